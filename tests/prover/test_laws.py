"""True laws, as users write them for themselves, are proved at the first attempt."""

from __future__ import annotations

from pathlib import Path

import pytest

from graphopt.prover.evidence import check_rule
from graphopt.rewrite.schema import read_rules
from tests.pace import slowness
from tests.share import part

LAWS = read_rules(Path(__file__).parent / "laws.yaml")
SECONDS = 10.0
"""Processor time in which an author wants his answer."""

pytest.importorskip("z3")


@pytest.mark.parametrize("rule", part(LAWS, 4, lambda rule: rule.id))
def test_a_law_is_proved_at_a_few_instances(rule):
    verdict = check_rule(rule, limit=16, attacks=32, tries=400, generic=False)
    assert verdict.verdict == "proved", verdict


@pytest.mark.parametrize("rule", part(LAWS, 45, lambda rule: rule.id))
def test_a_law_is_proved(rule):
    verdict = check_rule(rule, seconds=SECONDS * slowness(), generic=False)
    assert verdict.verdict == "proved", verdict
