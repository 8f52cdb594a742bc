"""What the attack tries: the numbers of a rule, and floats up to the ends of the integers that they are cast to."""

from __future__ import annotations

import numpy as np
import pytest

from graphopt.prover.evidence import check_rule
from graphopt.prover.values import around, of_range
from graphopt.rewrite.schema import read_rules


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


@pytest.mark.parametrize(("written", "meant"), [("ReLU", "Relu"), ("com.microsoft.BiasGeLu", "BiasGelu")])
def test_an_operator_that_there_is_not_is_named(tmp_path, written, meant):
    found = verdict(tmp_path, "exact", [f"y = {written}(x)"], ["y = x"])
    assert found.message.endswith(f"there is no operator '{written.rpartition('.')[2]}'; did you mean '{meant}'?")
