"""Every shipped rule: its form, its examples, its evidence."""

from __future__ import annotations

import pytest

from graphopt.config import rules_dir
from graphopt.equivalence.rules import check_rule
from graphopt.rewrite.examples import build_example
from graphopt.rewrite.library import LOCK, load_library, read_evidence
from graphopt.rewrite.schema import Rule

LIBRARY = load_library(evidence=False)
EVIDENCE = read_evidence(rules_dir() / LOCK)


@pytest.mark.parametrize("rule", LIBRARY.rules, ids=lambda rule: rule.id)
def test_both_sides_of_every_example_agree(rule: Rule):
    verdict = check_rule(rule, seeds=(7,))
    assert verdict.verdict == "tested", verdict.message
    assert verdict.cases >= 1


@pytest.mark.parametrize("rule", LIBRARY.rules, ids=lambda rule: rule.id)
def test_every_condition_has_an_example_that_fails_on_it(rule: Rule):
    failing = {build_example(rule, case).failing for case in rule.examples["reject"]}
    assert failing >= set(range(len(rule.where)))


@pytest.mark.parametrize("rule", LIBRARY.rules, ids=lambda rule: rule.id)
def test_evidence_is_for_the_present_text(rule: Rule):
    assert EVIDENCE[rule.id]["hash"] == rule.hash
    assert EVIDENCE[rule.id]["verdict"] in ("proved", "tested")


def test_nothing_stale_stands_in_the_evidence():
    assert set(EVIDENCE) == {rule.id for rule in LIBRARY.rules}


def test_there_are_enough_rules_and_every_family_has_a_doc():
    assert len(LIBRARY.rules) >= 40
    assert all(rule.doc and rule.family for rule in LIBRARY.rules)


def test_wrong_rules_are_refused():
    from graphopt.rewrite.schema import parse_rules

    text = """
family: wrong
doc: Rules that are not true.
rules:
  - id: sub-commutes
    doc: It does not.
    equal: real
    match: ["y = Sub(a, b)"]
    replace: ["y = Sub(b, a)"]
    examples: {accept: [{a: 2x3xf32, b: 2x3xf32}]}
  - id: transpose-is-identity
    doc: It is not, and the square shape hides it from types.
    equal: exact
    match: ["y = Transpose<perm = $p>(x)"]
    replace: ["y = x"]
    examples: {accept: [{x: 3x3xf32, p: [1, 0]}]}
  - id: concat-in-the-wrong-order
    doc: Wrong.
    equal: exact
    match: ["c = Concat<axis = 0>(a, b)", "y = Relu(c)"]
    replace: ["ra = Relu(a)", "rb = Relu(b)", "y = Concat<axis = 0>(rb, ra)"]
    examples: {accept: [{a: 2x3xf32, b: 2x3xf32}]}
"""
    for rule in parse_rules(text, "wrong.yaml"):
        assert check_rule(rule).verdict == "failed", rule.id
