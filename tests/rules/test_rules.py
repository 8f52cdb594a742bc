"""Every shipped rule: its form, its examples, its evidence."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import pytest

from graphopt.config import rules_dir
from graphopt.prover import evidence
from graphopt.prover.evidence import check_rule
from graphopt.prover.examples import UndefinedError, compare_sides
from graphopt.rewrite.examples import build_example
from graphopt.rewrite.library import LOCK, VERDICTS, load_library, read_evidence
from graphopt.rewrite.schema import Rule
from tests.share import part

RULES = list(
    {rule.id: rule for p in ("cpu", "cuda") for rule in load_library(provider=p, evidence=False).rules}.values()
)
"""Of every provider that has rules of its own."""
EVIDENCE = read_evidence(rules_dir() / LOCK)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.id)
def test_the_rule_is_true_at_its_examples(rule: Rule):
    """In the runtime, as the engine and the operators are now."""
    for case in rule.examples["accept"]:
        with suppress(UndefinedError):
            assert compare_sides(rule, case, 7) <= max(10 * rule.bound, 1e-3), case


@pytest.mark.parametrize("rule", part(RULES, 22, lambda rule: rule.id))
def test_the_rule_is_true(rule: Rule):
    """At others, too; the evidence is from many more."""
    verdict = check_rule(rule, seed=7, limit=4, attacks=8, tries=80, generic=False)
    if verdict.verdict == "unsupported":  # it matches seldom
        verdict = check_rule(rule, seed=7, limit=4, attacks=8, tries=250, generic=False)
    assert verdict.loads, verdict.message


@pytest.mark.thorough
@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.id)
def test_the_rule_is_true_at_more_instances(rule: Rule):
    verdict = check_rule(rule, seed=7, limit=8, attacks=20, tries=250, generic=False)
    assert verdict.loads, verdict.message


@pytest.mark.parametrize(
    "rule",
    part(RULES[::10], 9, lambda rule: rule.id),
)
def test_the_evidence_says_whether_it_is_proved_for_all_sizes(rule: Rule):
    generic = pytest.importorskip("graphopt.prover.generic", reason="z3 is not installed")
    # A proof that is on record may take longer here; what had no time for one says nothing of a minute.
    recorded = EVIDENCE[rule.id]["all_sizes"]
    proof = generic.prove_generic(rule, seconds=60.0 if recorded else evidence._GENERIC_SECONDS)
    assert proof.complete == recorded


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.id)
def test_every_condition_has_an_example_that_fails_on_it(rule: Rule):
    failing = {build_example(rule, case).failing for case in rule.examples["reject"]}
    assert failing >= set(range(len(rule.where)))


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.id)
def test_evidence_is_for_the_present_text(rule: Rule):
    assert EVIDENCE[rule.id]["hash"] == rule.hash
    assert EVIDENCE[rule.id]["verdict"] in VERDICTS


def test_most_rules_are_proved():
    proved = sum(entry["verdict"] == "proved" for entry in EVIDENCE.values())
    assert proved >= 0.8 * len(EVIDENCE)


def test_the_readme_says_how_many():
    text = (Path(__file__).parents[2] / "README.md").read_text(encoding="utf-8")
    count = len(EVIDENCE)
    proved = sum(entry["verdict"] == "proved" for entry in EVIDENCE.values())
    general = sum(entry["all_sizes"] for entry in EVIDENCE.values())
    assert f"{proved} of the {count} rules are proved ({proved / count:.0%})".replace("%", " %") in text
    assert f"{general / count:.0%} are proved for tensors of all sizes".replace("%", " %") in text


def test_nothing_stale_stands_in_the_evidence():
    assert set(EVIDENCE) == {rule.id for rule in RULES}


def test_there_are_enough_rules_and_every_family_has_a_doc():
    assert len(RULES) >= 150
    assert all(rule.doc and rule.family for rule in RULES)
