"""The rounding error of a rule, and the limit on it."""

from __future__ import annotations

import pytest

from graphopt.config import rules_dir
from graphopt.errors import RuleError
from graphopt.prover.rounding import rounding_error
from graphopt.rewrite.library import load_library
from graphopt.rewrite.schema import parse_rules, read_rules

WINOGRAD = {rule.id: rule for rule in read_rules(rules_dir() / "winograd.yaml")}
TEXT = """
family: t
doc: t
rules:
  - id: t
    doc: t
    equal: real
    match: ["y = Mul(x, c)"]
    where: ["is_const(c)"]
    replace: ["r = Reciprocal(c)", "y = Div(x, r)"]
    examples:
      accept: [{x: 3xf32, c: const 3xf32}]
      reject: [{x: 3xf32, c: 3xf32}]
"""


def test_it_is_that_of_the_examples_to_measure():
    (rule,) = parse_rules(TEXT + "      measure: [{x: 500xf32, c: const 500xf32}, {x: Nx5xf32, c: const 5xf32}]\n", "t")
    error = rounding_error(rule)
    assert error is not None and 1e-9 < error < 1e-6
    assert rounding_error(rule) == error
    assert rounding_error(parse_rules(TEXT, "t")[0]) is None


def test_an_example_to_measure_has_to_match():
    (rule,) = parse_rules(TEXT + "      measure: [{x: 3xf32, c: 3xf32}]\n", "t")
    with pytest.raises(RuleError, match="measure 0 of t"):
        rounding_error(rule)


def test_smaller_tiles_round_less():
    two, four, six = (rounding_error(WINOGRAD[f"winograd-{side}-grouped"]) for side in (2, 4, 6))
    assert 1e-7 < two < 2e-6 < four < six < 4e-5


def test_a_limit_leaves_out_the_rules_that_round_worse():
    every = {rule.id for rule in load_library(["winograd"]).rules}
    assert every == set(WINOGRAD)
    assert {i for i in every if "-2-" in i} == {r.id for r in load_library(["winograd"], max_error=5e-6).rules}
    assert {i for i in every if "-6-" not in i} == {r.id for r in load_library(["winograd"], max_error=1.2e-5).rules}
    # Most rules have nothing recorded: they only move or merge sums. Of an approximation its claim counts.
    rounding = ["winograd", "strassen-matmul", "strassen-gemm", "strassen-linear"]
    rounding += [rule.id for rule in load_library().rules if rule.bound]
    assert {r.id for r in load_library(max_error=1e-12).rules} == {r.id for r in load_library(exclude=rounding).rules}
