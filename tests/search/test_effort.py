"""Work is counted where no limit in seconds is given, and a machine that has no time for us does not change the result."""

from __future__ import annotations

import itertools
import math

import pytest

import graphopt
from graphopt.search import effort as effort_module
from graphopt.search import problem
from graphopt.search.effort import PLAN, Effort, Purse
from graphopt.search.problem import Budget
from tests.test_api import grouped


class _Racing:
    """A clock on which a hundred seconds pass whenever someone looks."""

    def __init__(self) -> None:
        self._looks = itertools.count(step=100)

    def monotonic(self) -> float:
        return float(next(self._looks))


@pytest.mark.parametrize("budget", [None, 1.0])
def test_a_machine_without_time_for_us_finds_the_same(tmp_path, monkeypatch, budget):
    source = grouped(tmp_path / "m.onnx")
    quiet = graphopt.optimize(source, measure=False, rules=["grouped-conv"])
    monkeypatch.setattr(problem, "time", _Racing())
    busy = graphopt.optimize(source, measure=False, rules=["grouped-conv"], budget=budget)
    assert len(busy.report["steps"]) == len(quiet.report["steps"]) == 3
    assert busy.trace.result == quiet.trace.result
    assert "time" not in quiet.report["search"]["stop_reason"]


def test_the_effort_goes_by_the_model_alone():
    small, large = Effort.of(50, 0.5), Effort.of(5000, 500.0)
    assert small.seconds is None and math.isinf(small.pricing_s)
    assert small.searching().seconds is None and small.candidates < large.candidates
    assert small.rounds > large.rounds >= 28 and small.session_rounds > large.session_rounds >= 5
    assert {"kernels", "candidates", "rounds", "plan"} <= small.told().keys()
    # What takes long to open is compared less often.
    heavy = Effort.of(50, 18.0, 500_000_000)
    assert heavy.rounds < Effort.of(50, 18.0, 10_000_000).rounds / 2 and heavy.rounds >= 32
    # Where the clock will not judge, what a long search adds is less than the prices err.
    unjudged = Effort.of(50, 0.5, measured=False)
    assert unjudged.candidates < small.candidates / 2 and unjudged.rounds == small.rounds


def test_a_limit_is_shared_out_by_the_plan():
    effort = Effort.within(40.0, 0.0, 0.0)
    assert effort.candidates is None and effort.rounds is None and effort.kernels is None
    assert effort.pricing_s == 40 * PLAN.pricing and effort.searching().seconds == 40 * PLAN.search
    assert effort.comparing().limit == 40 * PLAN.comparing
    assert PLAN.pricing + PLAN.search + PLAN.verdict < 1 <= PLAN.pricing + PLAN.search + PLAN.comparing + PLAN.verdict
    for seconds in (0.001, 0.03, 1.0):  # a short model's rounds are as many as without a limit
        assert Effort.within(40.0, 0.0, seconds).session_rounds == Effort.of(50, 1e3 * seconds).session_rounds


def test_comparing_gets_what_pricing_and_the_search_leave(monkeypatch):
    now = [0.0]
    monkeypatch.setattr(effort_module.time, "monotonic", lambda: now[0])
    limit, due = 40.0, 40 * (1 - PLAN.verdict)
    purse = Effort.within(limit, 0.0, 0.0).comparing()
    assert purse.left == 40 * PLAN.comparing  # they may take little
    now[0] = 40 * (PLAN.pricing + PLAN.search)  # or all that they may
    purse.set_aside(now[0])
    assert 40 * 0.1 < purse.left < 40 * PLAN.comparing and purse.left == pytest.approx(due - now[0])
    now[0] = due
    assert purse.left == 0 and purse.closed


def test_what_is_done_grows_up_to_the_last_measurement():
    steps = [PLAN.done(), PLAN.done(0.5), PLAN.done(1.0, 0.5), PLAN.done(2.0, 1.0)]
    assert steps[0] > 0 and steps == sorted(set(steps)) and steps[-1] == pytest.approx(1 - PLAN.verdict)


def test_a_limit_knows_what_a_comparison_takes_before_there_was_one():
    slow, quick = Effort.within(10.0, 1.0, 0.1).comparing(), Effort.within(10.0, 0.01, 0.001).comparing()
    assert slow.dear > 10.0 and not slow.fits
    assert quick.dear < 0.2 and quick.fits
    assert Effort.of(50, 0.5).comparing().fits  # where work is counted, it takes what it takes


def test_a_purse_of_rounds_knows_no_clock():
    purse = Purse(None, 100)
    assert purse.share(3) == (math.inf, 8) and purse.share(50) == (math.inf, 50)
    purse.take(purse.spent, 30)
    assert (purse.spent, purse.left, purse.dear, purse.closed) == (30, 70, 30, False)
    purse.take(purse.spent, 61)
    assert purse.closed and Purse(0.0).share(3.0) == (3.0, None)
    assert (
        purse.room == math.inf
        and Purse(100 * PLAN.comparing).room == pytest.approx(80.0, abs=5.0)
        and Purse(0.0).room <= 0
    )


def test_some_candidates_are_tried_whatever_the_clock_says():
    budget = Budget(seconds=0.0, least=2)
    assert budget.exhausted() is None
    budget.spent = 2
    assert budget.exhausted() == "time budget used up"
    assert Budget(seconds=0.0, least=3).part(0.5).least == 2
    assert Budget(seconds=0.0, interrupted=lambda: True, least=2).exhausted() == "interrupted"
