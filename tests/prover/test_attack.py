"""What the attack tries: the numbers of a rule, and floats up to the ends of the integers that they are cast to."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest

from graphopt.prover.cases import parse_case
from graphopt.prover.contents import edges, largest, refilled
from graphopt.prover.evaluate import overhangs
from graphopt.prover.evidence import check_rule
from graphopt.prover.instances import variations
from graphopt.prover.schemas import values_of
from graphopt.prover.values import MOST_TIMES, around, of_range, uses
from graphopt.rewrite.examples import Operand, build_example
from graphopt.rewrite.schema import parse_rules, read_rules

WRONG = Path(__file__).parent / "wrong"


def verdict(tmp_path, equal, match, replace, accept="{x: 3xf32}"):
    lines = [f"    {key}: {value!r}" for key, value in (("match", match), ("replace", replace))]
    head = ["family: t", "doc: t", "rules:", "  - id: t", "    doc: t", f"    equal: {equal}"]
    path = tmp_path / "t.yaml"
    path.write_text("\n".join([*head, *lines, f"    examples: {{accept: [{accept}]}}"]), encoding="utf-8")
    return check_rule(read_rules(path)[0], generic=False)


def test_the_numbers_of_a_rule_and_those_beside_them():
    fill = around([88.0, -300.0])
    assert {88.0, -88.0, 300.0, 132.0, 150.0} < set(fill.pool) and any(88.0 < v < 88.1 for v in fill.pool)
    drawn = fill.whole(np.int64, (200,), np.random.default_rng(0), "")
    assert set(np.abs(drawn)) == {87, 88, 89, 299, 300, 301}
    assert set(np.abs(fill.whole(np.int8, (200,), np.random.default_rng(0), ""))) == {87, 88, 89}  # 300 is none


@pytest.mark.parametrize(("dtype", "ends"), [("i8", (-128, 127)), ("u16", (0, 65535)), ("i64", (-(2**63), 2**63))])
def test_floats_of_the_range_of_integers(dtype, ends):
    pool = of_range([dtype]).pool
    assert min(pool) >= ends[0] and max(pool) <= ends[1]
    assert max(pool) > 0.9 * ends[1] and min(pool) <= 0.9 * ends[0]


def test_a_limit_that_a_rule_names_is_reached(tmp_path):
    assert verdict(tmp_path, "real", ["y = Min(x, 77777.0)"], ["y = x"]).verdict == "failed"


def test_a_number_that_is_none_stays_one_beside_a_cast(tmp_path):
    found = verdict(tmp_path, "exact", ["e = Equal(x, x)", "y = Cast<to = 6>(e)"], ["a = Abs(x)", "e = GreaterOrEqual(a, 0.0)", "n = Not(e)", "m = Or(e, n)", "y = Cast<to = 6>(m)"])  # fmt: skip
    assert found.verdict == "failed" and "nan" in found.message


def test_what_a_cast_makes_of_a_float_out_of_range_is_asked_of_no_rule(tmp_path):
    there = ["i = Cast<to = 7>(x)", "y = Cast<to = 6>(i)"]
    assert verdict(tmp_path, "exact", ["y = Cast<to = 6>(x)"], there).loads
    assert verdict(tmp_path, "exact", ["y = Cast<to = 7>(x)"], ["i = Cast<to = 6>(x)", "y = Cast<to = 7>(i)"]).verdict == "failed"  # fmt: skip


def test_what_is_no_number_in_bfloat16_equals_itself(tmp_path):
    assert verdict(tmp_path, "exact", ["a = Identity(x)", "y = Cast<to = 16>(a)"], ["y = Cast<to = 16>(x)"]).loads


def test_of_what_no_contents_are_made_up_nothing_is_said(tmp_path):
    texts = verdict(tmp_path, "exact", ["y = StringConcat(a, b)"], ["y = StringConcat(b, a)"], "{a: 3xstr, b: 3xstr, opset: 20}")  # fmt: skip
    halves = verdict(tmp_path, "exact", ["a = Cast<to = 10>(x)", "y = Cast<to = 16>(a)"], ["y = x"], "{x: 3xbf16}")  # fmt: skip
    assert [texts.verdict, halves.verdict] == ["unsupported"] * 2


def test_what_the_runtime_makes_of_nothing_is_asked_of_no_rule(tmp_path):
    doubles = ["f = Cast<to = 11>(x)", "g = Cast<to = 11>(w)", "m = MatMul(f, g)", "y = Cast<to = 6>(m)"]
    assert verdict(tmp_path, "exact", ["y = MatMulInteger(x, w)"], doubles, "{x: 2x3xu8, w: 3x4xi8}").loads
    joined = ["c = Concat<axis = 1>(a, b)", "q = Sqrt(c)", "y = ReduceSum<axes = [1], keepdims = 1>(q)"]
    halves = [line for v in "ab" for line in (f"p{v} = Sqrt({v})", f"s{v} = ReduceSum<axes = [1], keepdims = 1>(p{v})")]
    cases = "{a: 0x0xf32, b: Sx0xf32, opset: 11}, {a: 3x4xf32, b: 3x5xf32, opset: 11}"
    found = verdict(tmp_path, "real", joined, [*halves, "y = Add(sa, sb)"], cases)
    assert found.loads, found.message


def test_what_the_runtime_rounds_of_sums_of_integers_is_asked_of_no_claim_about_numbers(tmp_path):
    turned, plain = ["t = Transpose<perm = [1, 0]>(x)", "y = ReduceSum<keepdims = 0>(t)"], ["y = ReduceSum<keepdims = 0>(x)"]  # fmt: skip
    found = verdict(tmp_path, "real", turned, plain, "{x: 2x3xi64}, {x: 2x3xi32}")
    assert found.loads, found.message
    last = ["c = CumSum(x, k)", "y = Gather<axis = 0>(c, -1)"]
    found = verdict(tmp_path, "real", last, ["y = ReduceSum<keepdims = 0>(x)"], "{x: 3xi32, k: const i64 = 0}")
    assert found.loads, found.message
    assert verdict(tmp_path, "exact", turned, plain, "{x: 2x3xi64}").verdict == "failed"
    assert verdict(tmp_path, "real", ["a = Abs(x)", "y = ReduceSum<keepdims = 0>(a)"], plain, "{x: 2x3xi64}").verdict == "failed"  # fmt: skip


def test_a_window_larger_than_its_image_is_asked_of_no_rule(tmp_path):
    small, large = ("AveragePool<kernel_shape = [$a], strides = [$a]>(x)", "AveragePool<kernel_shape = [$b], strides = [$b]>(p)")  # fmt: skip
    both = "AveragePool<kernel_shape = [a * b], strides = [a * b]>(x)"
    found = verdict(tmp_path, "real", [f"p = {small}", f"y = {large}"], [f"y = {both}"], "{x: 1x2x12xf32, a: 2, b: 3}, {x: 1x2xSxf32, a: 2, b: 3}")  # fmt: skip
    assert found.loads, found.message
    kept = ["y = MaxPool<kernel_shape = [4], strides = [2], ceil_mode = $c>(x)"]
    verdict(tmp_path, "real", kept, ["y = x"], "{x: 1x1x3xf32, c: 1}")
    (rule,) = read_rules(tmp_path / "t.yaml")
    for ceil, larger in ((0, True), (1, False)):
        graph = build_example(rule, parse_case(rule, {"x": "1x1x3xf32", "c": ceil})).graph
        assert overhangs(graph, (), {graph.inputs[0]: np.ones((1, 1, 3))}) is larger


def test_signs_of_zero_alone_are_told(tmp_path):
    other = ["n = Not(c)", "y = Where(n, a, b)"]
    found = verdict(tmp_path, "exact", other, ["y = Where(c, b, a)"], "{c: 2x3xbool, a: 2x3xf32, b: 2x3xf32}")
    assert found.verdict == "failed" and "a claim 'real' does not count them" in found.message


def test_instances_that_hold_nothing_take_no_place_of_those_that_are_proved(tmp_path):
    there, back = ["d = DepthToSpace<blocksize = $b>(x)", "y = SpaceToDepth<blocksize = $b>(d)"], ["y = x"]
    found = verdict(tmp_path, "exact", there, back, "{x: 1x8x3x4xf32, b: 2}")
    assert found.verdict == "proved", found.message


def test_no_image_is_made_a_thousand_times_as_large(tmp_path):
    text = """
family: t
doc: t
rules:
  - id: t
    doc: t
    equal: exact
    match: ["y = Resize<axes = [2, 3]>(x, none, s)"]
    where: ["rank(x) == 4 and max_of(s) < 30000"]
    let: {ones: "like(s, [1, 1])"}
    replace: ["t = Concat<axis = 0>(ones, s)", "y = Resize(x, none, t)"]
    examples:
      accept: [{x: 1x2x3x4xf32, s: "const 2xf32 = [2, 2]", opset: 18}]
      reject: [{x: 1x2x3x4x1xf32, s: "const 2xf32 = [2, 2]", opset: 18}]
"""
    (rule,) = parse_rules(text, "t.yaml")
    made = [case["s"] for case in variations(rule) if isinstance(case["s"], Operand)]
    assert len(made) > 100 and max(map(largest, made)) <= MOST_TIMES


@pytest.mark.parametrize(("written", "meant"), [("ReLU", "Relu"), ("com.microsoft.BiasGeLu", "BiasGelu")])
def test_an_operator_that_there_is_not_is_named(tmp_path, written, meant):
    found = verdict(tmp_path, "exact", [f"y = {written}(x)"], ["y = x"])
    assert found.message.endswith(f"there is no operator '{written.rpartition('.')[2]}'; did you mean '{meant}'?")


def test_numbers_are_tried_where_the_conditions_end_with_zero_points_at_both_ends_of_their_type():
    (rule,) = (r for r in read_rules(WRONG / "tolerances.yaml") if r.id == "tolerance-requantise")
    found = [*edges(rule, parse_case(rule, rule.examples["accept"][0]))]
    assert {case["z"].data for case in found} == {3, -128, 127}
    gaps = [case["t"].data / case["s"].data - 1 for case in found if case["s"].data == 0.1]
    assert min(gaps) == pytest.approx(-0.003, rel=1e-2) and max(gaps) == pytest.approx(0.003, rel=1e-2)


def test_no_groups_are_tried_because_a_condition_speaks_of_zero():
    kind = onnx.defs.OpSchema.AttrType.INT  # a ConvInteger of no groups ends the process
    rng = np.random.default_rng(0)
    assert 0 not in values_of("group", kind, 1, 4, 2, rng, said=(0, 8)) and 8 in values_of(
        "group", kind, 1, 4, 2, rng, said=(0, 8)
    )
    assert 0 in values_of("axis", kind, 1, 4, 2, rng, said=(0,))


def test_of_a_long_list_some_elements_change():
    operand = Operand("i64", (5000,), True, [*range(5000)])
    made = list(refilled(operand, np.random.default_rng(0), (), False, False, False))
    changed = {i for o in made if len(o.data) == 5000 for i in (0, 2500, 4999) if o.data[i] != i}
    assert {0, 4999} <= changed and len(made) < 400


def test_what_says_the_size_of_a_grid_is_no_number_to_be_drawn():
    text = """
family: t
doc: t
rules:
  - id: t
    doc: t
    equal: exact
    match: ["g = AffineGrid(t, s)", "y = Relu(g)"]
    replace: ["g2 = AffineGrid(t, s)", "y = Relu(g2)"]
    examples: {accept: [{t: 1x2x3xf32, s: "4xi64", opset: 20}]}
"""
    (rule,) = parse_rules(text, "t.yaml")
    graph = build_example(rule, rule.examples["accept"][0]).graph
    assert [graph.values[key].name for key, use in uses(graph).items() if use == "shape"] == ["s"]
