"""What a budget in seconds leaves for search and measurement, and when it is said that it can't be held."""

from __future__ import annotations

import warnings

import pytest

import graphopt
from graphopt.config import Settings
from graphopt.pipeline.prepare import BudgetWarning, _left
from tests.test_api import grouped


@pytest.mark.parametrize(
    ("budget", "spent", "opening", "run", "left", "said"),
    [
        (10.0, 2.0, 0.01, 0.01, 8.0, ""),
        (10.0, 8.0, 0.01, 0.01, 5.0, "up to 13 s are expected (8.0 s to read it"),
        (2.0, 1.0, 2.4, 0.05, 2.0, "up to 52 s are expected (1.0 s to read it and run it once, 2.4 s to open it"),
        (60.0, 1.0, 0.5, 0.01, 59.0, ""),
    ],
)  # fmt: skip
def test_what_a_budget_leaves(budget, spent, opening, run, left, said):
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        assert _left(Settings(budget=budget), spent, opening, run) == left
    assert [said in str(w.message) for w in told] == ([True] if said else [])
    assert _left(Settings(), 100.0, 100.0, 100.0) is None


def test_a_budget_that_is_too_short_is_told_at_once(tmp_path):
    source = grouped(tmp_path / "m.onnx")
    heard: list[str] = []
    with pytest.warns(BudgetWarning, match=r"a budget of 0\.02 s is too short .* expected") as told:
        graphopt.optimize(source, budget=0.02, progress=lambda p: heard.append(f"{len(told)} {p.message}"))
    assert len(told) == 1
    assert next(line for line in heard if "pricing" in line).startswith("1 ")
