"""Every rule of the corpus is wrong, and its author could not see it: ONNX Runtime says so, not the prover."""

from __future__ import annotations

from collections import Counter

import pytest

from graphopt.rewrite.library import lint_rule
from graphopt.rewrite.schema import parse_rules
from tests.prover.witness import Witness, agree, difference, witnesses, wrong_rules

RULES = wrong_rules()
WITNESSES = witnesses()


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.id)
def test_a_witness_shows_that_the_rule_is_wrong(rule):
    assert difference(rule, WITNESSES[rule.id])


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.id)
def test_its_own_examples_pass(rule):
    assert lint_rule(rule) == []
    for case in rule.examples["accept"]:
        assert all(agree(rule, case, seed) for seed in range(3)), case


def test_rules_and_witnesses_belong_together():
    assert [i for i, n in Counter(rule.id for rule in RULES).items() if n > 1] == []
    assert {rule.id for rule in RULES} == set(WITNESSES)


def _rule(claim: str, pattern: str, replacement: str):
    text = f"""
family: t
doc: t
rules:
  - id: t
    doc: t
    equal: {claim}
    match: ["y = {pattern}"]
    replace: ["y = {replacement}"]
    examples: {{accept: [{{x: 3xf32}}]}}
"""
    (rule,) = parse_rules(text, "t.yaml")
    return rule


def test_a_true_rule_has_no_witness():
    for values in ("positive", "nan", "inf", "-0", "large", "subnormal"):
        assert difference(_rule("exact", "Add(x, x)", "Add(x, x)"), Witness({"x": "3xf32"}, {}, {"x": values})) == ""
        assert difference(_rule("real", "Add(x, x)", "Mul(x, 2.0)"), Witness({"x": "3xf32"}, {}, {"x": values})) == ""


def test_signs_of_zero_differ_bit_for_bit_only():
    at = Witness({"x": "3xf32"}, {}, {"x": "-0"})
    assert difference(_rule("exact", "Neg(x)", "Abs(x)"), at) == ""
    assert difference(_rule("exact", "Identity(x)", "Abs(x)"), at)
    assert difference(_rule("real", "Identity(x)", "Abs(x)"), at) == ""
