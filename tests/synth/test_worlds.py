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
    made = set()
    for world in WORLDS:
        bank = Bank(world)
        for size in (1, 2):
            for _ in bank.grow(size, last=False):
                if set(world.ops) <= {term.op for term in bank.terms}:
                    break
        made |= {term.op for term in bank.terms}
    assert made == set(TABLE)


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
def test_a_graph_of_two_operators_is_small_in_every_world(world):
    assert [world.depth(depth) for depth in (1, 2)] >= [1, 2]
    assert world.depth(3) == 3 + world.deeper


def test_operators_that_do_not_meet_are_told():
    with pytest.raises(UsageError, match="Conv meets none of the others"):
        select(["Conv", "Softmax"])
    with pytest.raises(UsageError, match="Pow meets none of the others"):
        select(["Transpose", "Gemm", "Pow"])
    assert strangers(["MatMul", "Mul", "ReduceSum"]) == {"MatMul": ["ReduceSum"], "Mul": [], "ReduceSum": ["MatMul"]}
    assert strangers(["conv", "layout"]) == {}
    assert select(["Neg"]) and select(["Neg", "Neg"])
