"""From pairs to rules: what is wrong is rejected, what is right is made as general as it is true."""

from __future__ import annotations

import pytest

from graphopt.rewrite.examples import build_example
from graphopt.rewrite.schema import Rule
from graphopt.synth.draft import one_rule
from graphopt.synth.generalise import generalise
from graphopt.synth.operators import Param
from graphopt.synth.pairs import Pair
from graphopt.synth.work import attack, prove_group
from tests.synth.sides import axes, axis, conv, node, over, pair, perm, pool

ONE_SIZE = {
    "a square matrix is its transpose": pair(
        [node("Transpose", "x", form=perm(1, 0)), node("Relu", (0, 0))], [node("Relu", "x")], x=(3, 3)
    ),
    "concatenation commutes": pair(
        [node("Concat", "x", "z", form=axis(0)), node("Relu", (0, 0))],
        [node("Relu", "z"), node("Relu", "x"), node("Concat", (0, 0), (1, 0), form=axis(0))],
        x=(2, 3), z=(2, 3),
    ),
    "a sum is three means": pair(
        [node("ReduceSum", "x", form=over(0))], [node("ReduceMean", "x", form=over(0)), node("Mul", (0, 0), 3.0)], x=(3,)
    ),
    "the mean of windows is the mean": pair(
        [node("AveragePool", "x", form=pool(2, 0, 2)), node("GlobalAveragePool", (0, 0))],
        [node("GlobalAveragePool", "x")],
        x=(1, 2, 4, 4),
    ),
}  # fmt: skip
POSITIVE = {
    "the root of a square": pair([node("Mul", "x", "x"), node("Sqrt", (0, 0))], [node("Relu", "x")], x=(3, 4)),
    "relu does nothing": pair([node("Relu", "x"), node("Neg", (0, 0))], [node("Neg", "x")], x=(3, 4)),
    "relu of a multiple": pair(
        [node("Mul", "x", "s"), node("Relu", (0, 0))], [node("Relu", "x"), node("Mul", (0, 0), "s")], x=(3, 4), s=()
    ),
    "relu of a product": pair(
        [node("Relu", "x"), node("Relu", "z"), node("Mul", (0, 0), (1, 0))],
        [node("Mul", "x", "z"), node("Relu", (0, 0))],
        x=(3, 4), z=(3, 4),
    ),
    "the maximum of a multiple": pair(
        [node("Mul", "x", "s"), node("ReduceMax", (0, 0), form=over(1))],
        [node("ReduceMax", "x", form=over(1)), node("Mul", (0, 0), "s")],
        x=(3, 4), s=(),
    ),
    "relu after the maximum of many": pair(
        # Of so many elements one is nearly always positive.
        [node("Relu", "x"), node("MaxPool", (0, 0), form=pool(3, 0, 1))], [node("MaxPool", "x", form=pool(3, 0, 1))], x=(1, 1, 3, 3)
    ),
}  # fmt: skip
PADDED = {
    # With padding the means of a border have another number of elements.
    "average pools compose": pair(
        [node("AveragePool", "x", form=pool(3, 1, 1)), node("AveragePool", (0, 0), form=pool(3, 1, 1))],
        [node("AveragePool", "x", form=pool(5, 2, 1))],
        x=(1, 2, 4, 3),
    ),
    "a pool reaches over the border": pair(
        [node("MaxPool", "x", form=pool(2, 0, 1)), node("MaxPool", "z", form=pool(2, 0, 1)), node("Add", (0, 0), (1, 0))],
        [node("Add", "x", "z"), node("MaxPool", (0, 0), form=pool(2, 0, 1))],
        x=(1, 2, 4, 3), z=(1, 2, 4, 3),
    ),
}  # fmt: skip
WRONG = ONE_SIZE | POSITIVE | PADDED


@pytest.mark.parametrize("wrong", WRONG.values(), ids=WRONG)
def test_wrong_laws_are_rejected_with_a_counterexample(wrong: Pair):
    found = generalise([wrong])
    assert found and all(f.outcome == "rejected" for f in found)
    assert "counterexample" in found[-1].message


def proved(*pairs: Pair) -> Rule:
    (found,) = [f for f in generalise(pairs) if f.outcome == "proved"]
    assert found.verdict is not None and found.verdict.verdict == "proved"
    return found.rule


def accepts(rule: Rule, **case: object) -> bool:
    return build_example(rule, case).match is not None


@pytest.mark.thorough
def test_what_holds_without_padding_only_says_so():
    # The sum of a kernel's elements times s is what Conv makes of an image of s, but for the border.
    rule = proved(
        pair(
            [node("Add", "x", "s"), node("Conv", (0, 0), "w", form=conv(0))],
            [
                node("Conv", "x", "w", form=conv(0)),
                node("ReduceSum", "w", form=over(1, 2, 3, keep=0)),
                node("Mul", (1, 0), "s"),
                node("Unsqueeze", (2, 0), form=axes(1)),
                node("Unsqueeze", (3, 0), form=axes(2)),
                node("Add", (0, 0), (4, 0)),
            ],
            x=(1, 2, 4, 3), w=(3, 2, 3, 3), s=(),
        )
    )  # fmt: skip
    assert any("pa" in line.names for line in rule.where)


def test_one_axis_becomes_any_axis_and_rank():
    rule = proved(
        *(
            pair(
                [node("Relu", "x"), node("Relu", "z"), node("Concat", (0, 0), (1, 0), form=axis(a))],
                [node("Concat", "x", "z", form=axis(a)), node("Relu", (0, 0))],
                x=(2, 3), z=(2, 3),
            )
            for a in (0, 1)
        )
    )  # fmt: skip
    assert not rule.where
    assert accepts(rule, x="5xNx2x7xf32", z="5xNx4x7xf32", i=-2, opset=18)


def test_a_shift_of_softmax_is_constant_along_its_axis():
    rule = proved(
        pair([node("Add", "x", "c"), node("Softmax", (0, 0), form=axis(1))], [node("Softmax", "x", form=axis(1))], x=(3, 4), c=(3, 1)),
        pair([node("Add", "x", "c"), node("Softmax", (0, 0), form=axis(0))], [node("Softmax", "x", form=axis(0))], x=(3, 4), c=(1, 4)),
    )  # fmt: skip
    assert accepts(rule, x="6x5xf32", c="6x1xf32", i=1, opset=18)
    assert not accepts(rule, x="6x5xf32", c="6x1xf32", i=0, opset=18)
    assert not accepts(rule, x="6x5xf32", c="6x5xf32", i=1, opset=18)


@pytest.mark.thorough
def test_a_factor_that_varies_along_the_axis_stays_inside():
    # Where the axis is dropped and all dimensions are equal, types do not tell.
    rule = proved(
        *(
            pair(
                [node("Mul", "x", "c"), node("ReduceSum", (0, 0), form=over(a, keep=keep))],
                [node("ReduceSum", "x", form=over(a, keep=keep)), node("Mul", (0, 0), "c")],
                x=(3, 4), c=shape,
            )
            for a, keep, shape in ((1, 1, (3, 1)), (0, 1, ()), (1, 0, ()), (0, 0, (4,)))
        )
    )  # fmt: skip
    assert accepts(rule, x="5x6xf32", c="6xf32", f=0, over="const 1xi64 = [0]", opset=18)
    assert not accepts(rule, x="3x3xf32", c="3xf32", f=0, over="const 1xi64 = [1]", opset=18)


def test_what_chooses_elements_is_exact_and_what_computes_is_not():
    chosen = pair([node("Relu", "x"), node("Relu", (0, 0))], [node("Relu", "x")], x=(3, 4))
    computed = pair([node("Add", "x", "x")], [node("Mul", "x", 2.0)], x=(3, 4))
    assert proved(chosen).claim == "exact"
    assert proved(computed).claim == "real"


def test_equal_permutations_do_not_cancel():
    rule = proved(
        *(
            pair([node("Transpose", "x", form=perm(*p)), node("Transpose", (0, 0), form=perm(*p))], [], x=shape)
            for p, shape in (((0, 2, 1), (2, 3, 4)), ((2, 1, 0), (2, 3, 4)))
        )
    )
    assert not accepts(rule, x="3x3x3xf32", p=[1, 2, 0], q=[1, 2, 0], opset=18)
    assert accepts(rule, x="3x5x2xf32", p=[1, 2, 0], q=[2, 0, 1], opset=18)


def test_attributes_that_a_condition_makes_equal_are_tried_at_other_values():
    # 2 x w + 2 b: true for alpha = beta = 1 alone, which alpha == beta would not say.
    unscaled = (
        Param("alpha", "factor", 1.0),
        Param("beta", "factor", 1.0),
        Param("transA", "flag", 0),
        Param("transB", "flag", 0),
    )
    rule = proved(
        pair(
            [node("Gemm", "x", "w", "b", form=unscaled)],
            [node("MatMul", "x", "w"), node("Add", (0, 0), "b")],
            x=(2, 3),
            w=(3, 4),
            b=(4,),
        )
    )
    (line,) = rule.match
    assert not {"alpha", "beta"} & {name for name, _ in line.captures}


SHIFT = (
    pair([node("Add", "x", "c"), node("Softmax", (0, 0), form=axis(1))], [node("Softmax", "x", form=axis(1))], x=(3, 4), c=(3, 1)),
    pair([node("Add", "x", "c"), node("Softmax", (0, 0), form=axis(0))], [node("Softmax", "x", form=axis(0))], x=(3, 4), c=(1, 4)),
)  # fmt: skip


@pytest.mark.thorough
def test_what_falls_at_last_is_proved_with_other_conditions():
    proved_one = next(f for f in generalise(SHIFT) if f.outcome == "proved")
    head, _, rest = proved_one.text.partition("    where:\n")
    wide = head + "    replace:\n" + rest.partition("    replace:\n")[2].partition("      reject:\n")[0]
    fallen = attack((wide, 0))
    assert "counterexample" in fallen.message
    mended = prove_group(([p.to_json() for p in SHIFT], [], 0, [fallen.refuted], None))
    (rule,) = [one_rule(f["text"]) for f in mended.found if f["outcome"] == "proved"]
    assert not accepts(rule, **fallen.refuted)
    assert not attack((mended.found[0]["text"], 0)).message


def test_an_instance_that_is_known_to_be_wrong_is_excluded():
    chosen = pair([node("Relu", "x"), node("Relu", (0, 0))], [node("Relu", "x")], x=(3, 4))
    case = {"x": "5xf32", "opset": 18}
    (found,) = generalise([chosen], refuted=[case])
    assert accepts(found.rule, x="3x4xf32", opset=18) and not accepts(found.rule, **case)
    # Of its own instances a rule can exclude none.
    (found,) = generalise([chosen], refuted=[{"x": "3x4xf32", "opset": 18}])
    assert found.outcome == "rejected"


def part(start: int, end: int, a: int) -> tuple[Param, ...]:
    return (Param("starts", "position", (start,), True), Param("ends", "position", (end,), True), *axes(a))


def test_the_second_part_of_a_concat_begins_where_the_first_one_ends():
    rule = proved(
        *(
            pair(
                [node("Concat", "x", "z", form=axis(a)), node("Slice", (0, 0), form=part(n, 2 * n, a))],
                [],
                z=(2, 4), x=(2, 4),
            )
            for a, n in ((0, 2), (1, 4))
        )
    )  # fmt: skip
    given = {"x": "5x7xf32", "z": "3x7xf32", "i": 0, "en": "const 1xi64 = [8]", "over": "const 1xi64 = [0]"}
    assert accepts(rule, **given, st="const 1xi64 = [5]", opset=18)
    assert not accepts(rule, **given, st="const 1xi64 = [4]", opset=18)
    assert not accepts(rule, **{**given, "z": "5x7xf32", "en": "const 1xi64 = [5]"}, st="const 1xi64 = [0]", opset=18)


def test_parts_that_lie_behind_one_another_are_the_whole():
    rule = proved(
        *(
            pair(
                [
                    node("Slice", "x", form=part(0, n, a)),
                    node("Slice", "x", form=part(n, 2 * n, a)),
                    node("Concat", (0, 0), (1, 0), form=axis(a)),
                ],
                [],
                x=(2, 4),
            )
            for a, n in ((0, 1), (1, 2))
        )
    )  # fmt: skip
    ends = {
        "st": "const 1xi64 = [0]",
        "over": "const 1xi64 = [0]",
        "over2": "const 1xi64 = [0]",
        "en2": "const 1xi64 = [5]",
    }
    assert accepts(rule, x="5x7xf32", i=0, en="const 1xi64 = [3]", st2="const 1xi64 = [3]", **ends, opset=18)
    assert not accepts(rule, x="5x7xf32", i=0, en="const 1xi64 = [3]", st2="const 1xi64 = [2]", **ends, opset=18)
