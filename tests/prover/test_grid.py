"""The grid meets what chance hardly does: combinations of ranks, attributes and equal sizes."""

from __future__ import annotations

from pathlib import Path

import pytest

from graphopt.prover.attack import attack
from graphopt.prover.grid import grid
from graphopt.rewrite.schema import read_rules

RULES = read_rules(Path(__file__).parent / "wrong" / "hidden.yaml")


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.id)
def test_what_is_hidden_is_found_whatever_the_seed(rule, seed):
    assert any(attack(instance, rule, seed, brief=True).wrong for instance in grid(rule, seed=seed))


def test_every_rank_with_every_flag():
    rule = RULES[0]
    met = {(len(case["x"].dims), len(case["c"].dims), case["f"]) for case in (i.case for i in grid(rule))}
    assert {(x, c, f) for x in (1, 2, 3) for c in range(x) for f in (0, 1)} <= met
