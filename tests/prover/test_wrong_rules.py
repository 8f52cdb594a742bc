"""No rule of the corpus of wrong rules gets a verdict with which it would load."""

from __future__ import annotations

from pathlib import Path

import pytest

from graphopt.prover.evidence import check_rule
from graphopt.rewrite.schema import read_rules
from tests.prover.witness import wrong_rules
from tests.share import part

pytest.importorskip("z3")

RULES = [*read_rules(Path(__file__).parent / "wrong_rules.yaml"), *wrong_rules()]


@pytest.mark.parametrize("rule", part(RULES, 10, lambda rule: rule.id))
def test_a_wrong_rule_does_not_load(rule):
    verdict = check_rule(rule, generic=False)
    assert not verdict.loads, verdict


@pytest.mark.parametrize("seed", [1])
@pytest.mark.parametrize("rule", part(RULES, 120, lambda rule: rule.id))
def test_it_does_not_with_other_instances_either(rule, seed):
    verdict = check_rule(rule, seed=seed, generic=False)
    assert not verdict.loads, verdict
