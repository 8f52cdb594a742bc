"""Whose turn is when, what can pay, and what follows from what."""

from __future__ import annotations

from graphopt.synth.generate import ALIKE, in_turn
from graphopt.synth.graphs import saves
from graphopt.synth.pairs import Node, Pair
from graphopt.synth.work import derivable
from tests.synth.sides import axis, node, pair


def negated(times: int) -> Pair:
    """A law of Neg and Relu alone: as many as one likes, all of the same operators."""
    nodes: list[Node] = [node("Neg", "x")] + [node("Neg", (n, 0)) for n in range(times - 1)]
    return pair([*nodes, node("Relu", (times - 1, 0))], [node("Relu", "x")], x=(3, 4))


def test_small_laws_come_first_and_those_of_one_kind_do_not_crowd_out_others():
    merging = pair(
        [node("MatMul", "x", "v"), node("MatMul", "x", "w"), node("Concat", (0, 0), (1, 0), form=axis(1))],
        [node("Concat", "v", "w", form=axis(1)), node("MatMul", "x", (0, 0))],
        x=(3, 4), v=(4, 2), w=(4, 2),
    )  # fmt: skip
    crowd = [negated(n) for n in range(1, 3 * ALIKE)]
    order = [Pair.from_json(group[0]) for group in in_turn([[p.to_json()] for p in [*crowd[::-1], merging]])]
    assert order[0] == crowd[0]
    assert [p for p in order if p != merging] == crowd
    assert order.index(merging) < ALIKE


def test_a_merge_pays_where_the_weights_are_constants():
    convs = pair(
        [node("MatMul", "x", "v"), node("MatMul", "z", "w"), node("Add", (0, 0), (1, 0))],
        [node("Concat", "x", "z", form=axis(1)), node("Concat", "v", "w", form=axis(0)), node("MatMul", (0, 0), (1, 0))],
        x=(3, 4), z=(3, 4), v=(4, 2), w=(4, 2),
    )  # fmt: skip
    assert saves(convs)


def test_what_only_changes_places_never_pays():
    assert not saves(
        pair(
            [node("Add", "x", "z"), node("Relu", (0, 0))],
            [node("Add", "z", "x"), node("Relu", (0, 0))],
            x=(3, 4),
            z=(3, 4),
        )
    )


def scaled(left: str, right: str, where: str) -> str:
    """A law of a product of matrices and a factor."""
    return f"""  - id: ID
    doc: DOC
    equal: real
    match: [{left}]
    where: ["is_float(x)", "rank(x) == 2 and rank(v) == 2 and rank(s) <= 2", "{where}"]
    replace: [{right}]
    examples:
      accept: [{{x: 2x3xf32, v: 3x4xf32, s: f32, opset: 18}}, {{x: 2x5xf32, v: 5x4xf32, s: 1x1xf32, opset: 18}}]
      reject:
        - {{x: 2x3xi32, v: 3x4xi32, s: i32, opset: 18}}
        - {{x: 2x2x3xf32, v: 3x4xf32, s: f32, opset: 18}}
        - {{x: 2x3xf32, v: 3x4xf32, s: 2x3xf32, opset: 18}}
"""


def test_a_law_of_rows_does_not_follow_from_laws_of_single_numbers():
    through, around = '"m = Mul(x, s)", "y = MatMul(m, v)"', '"n = MatMul(x, v)", "y = Mul(s, n)"'
    inward = '"t = Mul(v, s)", "y = MatMul(x, t)"'
    others = [("first", scaled(through, inward, "size(s) == 1")), ("second", scaled(inward, around, "size(s) == 1"))]
    law = pair(
        [node("Mul", "x", "s"), node("MatMul", (0, 0), "v")], [node("MatMul", "x", "v"), node("Mul", "s", (0, 0))], x=(2, 3), v=(3, 4), s=()
    )  # fmt: skip
    assert derivable(others, [law], scaled(through, around, "size(s) == 1"))
    assert not derivable(others, [law], scaled(through, around, "rank(s) == 0 or dim(s, -1) == 1"))
    assert not derivable(others[:1], [law], scaled(through, around, "size(s) == 1"))
