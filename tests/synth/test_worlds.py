"""What is enumerated: every operator, all graphs of operators that somebody names, and the laws that everybody knows of these."""

from __future__ import annotations

import pytest

from graphopt.errors import UsageError
from graphopt.synth.bank import Bank
from graphopt.synth.emit import formula
from graphopt.synth.operators import TABLE
from graphopt.synth.pairs import Pair
from graphopt.synth.work import enumerate_world
from graphopt.synth.worlds import WORLDS, select, strangers


def laws(ops: str, depth: int) -> set[str]:
    """Candidates for laws of some operators, as equations."""
    made = [enumerate_world((world, depth, 0, 10_000, None)) for world in select(ops.split(","))]
    return {formula(Pair.from_json(data)) for world in made for group in world.groups for data in group}


def test_every_operator_of_a_world_makes_graphs_there():
    """What is never made has no law, and nothing else would say so."""
    for world in WORLDS:
        bank = Bank(world)
        for size in (1, 2):
            for _ in bank.grow(size, last=False):
                if set(world.ops) <= {term.op for term in bank.terms}:
                    break
        assert {term.op for term in bank.terms} == set(world.ops), world.name
    assert {op for world in WORLDS for op in world.ops} == set(TABLE)


@pytest.mark.parametrize(
    ("ops", "depth", "known"),
    [
        ("Neg,Mul,Add", 2, {"Neg(Neg(x)) = x", "Neg(Mul(x, z)) = Mul(x, Neg(z))"}),
        ("Neg,Sub", 2, {"Sub(x, Neg(z)) = Sub(z, Neg(x))", "Neg(Sub(x, z)) = Sub(z, x)"}),
        ("Neg,Concat", 3, {"Concat(Neg(x), Neg(z)) = Neg(Concat(x, z))"}),
        ("Concat,Slice,Relu", 2, {"Slice(Concat(x, z)) = z", "Relu(Slice(x)) = Slice(Relu(x))", "Relu(Relu(x)) = Relu(x)"}),
        ("ReduceSum,Mul,MatMul", 2, {"ReduceSum(ReduceSum(x)) = ReduceSum(x)", "Mul(c, MatMul(x, v)) = MatMul(Mul(x, c), v)"}),
    ],
)  # fmt: skip
def test_named_operators_are_enumerated_as_deep_as_asked_with_all_their_laws(ops: str, depth: int, known: set[str]):
    assert known <= laws(ops, depth)


@pytest.mark.parametrize("world", WORLDS, ids=lambda world: world.name)
def test_what_is_made_in_a_world_is_as_deep_as_asked(world):
    """Graphs of two operators are few in any; larger ones are made where somebody names the operators, be they all of a world."""
    assert all(world.depth(depth) >= depth for depth in (1, 2))
    named = [made for made in select(world.ops) if set(made.ops) == set(world.ops)]
    assert world.name in {made.name for made in named}
    assert all(made.depth(3) >= 3 and made.any_order and not made.about for made in named)


@pytest.mark.parametrize("op", TABLE)
def test_a_named_operator_is_in_every_world_that_is_enumerated_for_it(op):
    assert all(made.ops == (op,) for made in select([op]))


def test_operators_that_do_not_meet_are_told():
    with pytest.raises(UsageError, match="Conv meets none of the others"):
        select(["Conv", "Softmax"])
    with pytest.raises(UsageError, match="Pow meets none of the others"):
        select(["Transpose", "Gemm", "Pow"])
    assert strangers(["MatMul", "Mul", "ReduceSum"]) == {"MatMul": ["ReduceSum"], "Mul": [], "ReduceSum": ["MatMul"]}
    assert strangers(["conv", "layout"]) == {}
    assert select(["Neg"]) and select(["Neg", "Neg"])
