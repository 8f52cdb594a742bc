"""What the attack tries: the numbers of a rule, and floats up to the ends of the integers that they are cast to."""

from __future__ import annotations

import numpy as np
import pytest

from graphopt.prover.contents import largest
from graphopt.prover.evidence import check_rule
from graphopt.prover.instances import variations
from graphopt.prover.values import MOST_TIMES, around, of_range
from graphopt.rewrite.examples import Operand
from graphopt.rewrite.schema import parse_rules, read_rules


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


def test_what_the_runtime_makes_of_nothing_is_asked_of_no_rule(tmp_path):
    doubles = ["f = Cast<to = 11>(x)", "g = Cast<to = 11>(w)", "m = MatMul(f, g)", "y = Cast<to = 6>(m)"]
    assert verdict(tmp_path, "exact", ["y = MatMulInteger(x, w)"], doubles, "{x: 2x3xu8, w: 3x4xi8}").loads
    joined = ["c = Concat<axis = 1>(a, b)", "q = Sqrt(c)", "y = ReduceSum<axes = [1], keepdims = 1>(q)"]
    halves = [line for v in "ab" for line in (f"p{v} = Sqrt({v})", f"s{v} = ReduceSum<axes = [1], keepdims = 1>(p{v})")]
    cases = "{a: 0x0xf32, b: Sx0xf32, opset: 11}, {a: 3x4xf32, b: 3x5xf32, opset: 11}"
    found = verdict(tmp_path, "real", joined, [*halves, "y = Add(sa, sb)"], cases)
    assert found.loads, found.message


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
