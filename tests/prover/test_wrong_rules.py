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
DEAR = {
    "belongs-values-scaled-without-past-of-groups", "described-scatters-joined", "otherwise-gru-reset-either-way",
    "beside-rnn-relu-activations", "believed-alphas-of-rnn", "beside-ms-nbits-accuracy", "believed-symmetric-kernel",
}  # fmt: skip
"""Those that take 10 to 30 seconds each, which are left to ``make thorough``."""
OTHERS = [rule for rule in RULES if rule.id not in DEAR]
THOROUGH = [pytest.param(rule, id=rule.id, marks=pytest.mark.thorough) for rule in RULES if rule.id in DEAR]


@pytest.mark.parametrize("rule", [*part(OTHERS, 20, lambda rule: rule.id), *THOROUGH])
def test_a_wrong_rule_does_not_load(rule):
    verdict = check_rule(rule, generic=False)
    assert not verdict.loads, verdict


@pytest.mark.parametrize("seed", [1])
@pytest.mark.parametrize("rule", part(OTHERS, 160, lambda rule: rule.id))
def test_it_does_not_with_other_instances_either(rule, seed):
    verdict = check_rule(rule, seed=seed, generic=False)
    assert not verdict.loads, verdict
