"""No rule of the corpus of wrong rules gets a verdict with which it would load."""

from __future__ import annotations

from pathlib import Path

import pytest

from graphopt.equivalence.evidence import check_rule
from graphopt.rewrite.schema import read_rules
from tests.equivalence.witness import wrong_rules

pytest.importorskip("z3")

ACCEPTED = frozenset(
    {
        "attention-choice-as-sum",
        "attention-heads-joined-as-they-lie",
        "attention-mask-of-nothing",
        "attention-shared-keys-tiled",
        "integers-count-fits-a-half",
        "integers-place-fits-a-byte",
        "integers-sizes-fit-a-byte",
        "layout-depth-to-space-in-other-rank",
        "layout-depthwise-is-dense",
        "layout-gemm-flag-toggled-by-difference",
        "layout-inverse-permutation-missed",
        "opset-clip-of-equal-clip",
        "opset-relu-before-pad",
        "opset-slice-from-the-start",
        "rounding-nearly-one",
        "unusual-einsum-commutes",
        "unusual-einsum-of-one-without-arrow",
        "unusual-range-shifted",
        "unusual-relu-before-col2im",
    }
)
"""What the prover lets pass today and should not: sizes beyond those tried, attributes that have to change together, old operator sets whose operands were
attributes. A rule that it refuses from now on has to leave this list, and none may join it."""

RULES = [*read_rules(Path(__file__).parent / "wrong_rules.yaml"), *wrong_rules()]


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.id)
def test_a_wrong_rule_does_not_load(rule):
    verdict = check_rule(rule, generic=False)
    if rule.id in ACCEPTED:
        assert verdict.loads, f"{rule.id} is refused now: take it off the list"
        return
    assert not verdict.loads, verdict
