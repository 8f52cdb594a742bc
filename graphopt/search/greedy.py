"""Greedy search: always the rewrite with the largest predicted saving.

A rule with ``prefer`` hints is taken where they hold and next to nothing is predicted to be lost (its gain may be one that a
sum over kernels can't see, and the clock judges its family later); a rule without is taken where a saving is predicted. A step
hardly changes the prices of other sites, so each site is priced once; but what layout the runtime uses is decided over whole
regions, so at the end all sites are priced again, until nothing more pays.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable

from graphopt.ir.edit import RefusedError
from graphopt.ir.memo import collector_paused
from graphopt.rewrite.match import Match
from graphopt.rewrite.sites import Key
from graphopt.search.problem import NEGLIGIBLE_SHARE, Budget, Outcome, Problem, State, Step
from graphopt.search.strategies import StrategySpec

MOST_FORMS = 8
"""Definitions that greedy tries for a value, the first one included."""


class Greedy:
    """Best saving first."""

    name = "greedy"

    def run(
        self, problem: Problem, start: State, budget: Budget, report: Callable[[State], None] | None = None
    ) -> Outcome:
        """See :class:`graphopt.search.problem.Strategy`."""
        with collector_paused():
            return self._run(problem, start, budget, report)

    def _run(self, problem: Problem, start: State, budget: Budget, report: Callable[[State], None] | None) -> Outcome:
        state, steps = start, list[Step]()
        forms = _Forms()
        queue: list[tuple[float, Key, int]] = []
        priced: list[Match] = []
        reason = _price(problem, state, budget, priced, queue, state.sites.fresh)
        settled = 0  # number of steps when all sites were last priced
        while queue or (reason is None and settled < len(steps)):
            if budget.interrupted_now:
                reason = "interrupted"
                break
            if not queue:
                settled = len(steps)
                reason = _price(problem, state, budget, priced, queue, state.sites.matches)
                continue
            _, key, index = heapq.heappop(queue)
            match = priced[index]
            if state.sites.matches.get(key) is not match:
                continue
            try:
                after = problem.step(state, match)
            except RefusedError:
                continue
            if not worth(problem, match, state.cost, after.cost) or not forms.new(match, state, after):
                continue
            steps.append(problem.record(state.graph, match, state.cost, after.cost))
            state = after
            if report is not None:
                report(state)
            # When the budget is gone, what was priced is still taken: that is nearly free.
            reason = reason or _price(problem, state, budget, priced, queue, state.sites.fresh)
        return Outcome(state, tuple(steps), budget.spent, budget.elapsed, reason or "no rewrite saves anything")


class _Forms:
    """The definitions that each value has had.

    Two rules that undo each other would go back and forth for ever, in ever new combinations over the sites of a model;
    so no value takes a form that it has had before. And if one of them leaves something behind each time, such as a zero added to
    a bias, every form is new: so no value takes more than :data:`MOST_FORMS`.
    """

    def __init__(self) -> None:
        self._had: dict[int, set[int | None]] = {}

    def new(self, match: Match, before: State, after: State) -> bool:
        """Whether a rewrite gives some root a form that is new to it; if so, it is remembered."""
        fresh = False
        for root in match.roots:
            had = self._had.setdefault(root, set())
            had.add(before.graph.values[root].producer)
            value = after.graph.values.get(root)
            form = None if value is None else value.producer
            if form not in had and len(had) < MOST_FORMS:
                had.add(form)
                fresh = True
        return fresh


def _price(
    problem: Problem,
    state: State,
    budget: Budget,
    priced: list[Match],
    queue: list[tuple[float, Key, int]],
    keys: Iterable[Key],
) -> str | None:
    """Price sites and queue those that pay; returns why to stop, if so."""
    for key in sorted(keys):
        match = state.sites.matches[key]
        if match.rule.prefer and not match.preferred:
            continue
        reason = budget.exhausted()
        if reason is not None:
            return reason
        budget.spent += 1
        try:
            _, cost = problem.price(state, match)
        except RefusedError:
            continue
        if worth(problem, match, state.cost, cost):
            priced.append(match)
            heapq.heappush(queue, (cost - state.cost, key, len(priced) - 1))
    return None


def worth(problem: Problem, match: Match, before: float, after: float) -> bool:
    """Whether greedy takes a rewrite, given the predicted cost before and after it."""
    if match.rule.prefer:
        return match.preferred and after <= before * (1 + problem.leeway)
    return after < before * (1 - NEGLIGIBLE_SHARE)


SPEC = StrategySpec("greedy", "always the largest saving", lambda s: Greedy(), trials={"greedy": {}}, whole=True)
