"""Greedy search: always the rewrite with the largest predicted saving.

A rule with ``prefer`` hints is taken where they hold and next to nothing is predicted to be lost (its gain may be one that a
sum over kernels can't see, and the clock judges its family later); a rule without is taken where a saving is predicted. A step
hardly changes the prices of other sites, so each site is priced once, and of many that look alike only two; but what layout the runtime uses is decided over whole
regions, so at the end all sites are priced again, until nothing more pays.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable

from graphopt.ir.delta import RefusedError
from graphopt.ir.memo import collector_paused
from graphopt.rewrite.match import Match
from graphopt.rewrite.sites import Key
from graphopt.search.problem import NEGLIGIBLE_SHARE, Budget, Outcome, Problem, Report, State, Step
from graphopt.search.strategies import StrategySpec
from graphopt.search.symmetry import SiteClasses

MOST_FORMS = 8
"""Definitions that greedy tries for a value, the first one included."""


class Greedy:
    """Best saving first."""

    name = "greedy"

    @collector_paused()
    def run(self, problem: Problem, start: State, budget: Budget, report: Report | None = None) -> Outcome:
        """See :class:`graphopt.search.problem.Strategy`."""
        state, steps = start, list[Step]()
        forms, queue = _Forms(), _Queue(problem, budget)
        reason = queue.fill(state, state.sites.fresh)
        settled = 0  # number of steps when all sites were last priced
        while queue or (reason is None and settled < len(steps)):
            if budget.interrupted_now:
                reason = "interrupted"
                break
            if not queue:
                settled = len(steps)
                reason = queue.fill(state, state.sites.matches)
                continue
            key, match = queue.pop()
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
            reason = reason or queue.fill(state, state.sites.fresh)
        return Outcome(state, tuple(steps), budget.spent, budget.elapsed, reason or "no rewrite saves anything")


class _Queue:
    """Sites that pay, those that save most first.

    Of the sites that look alike two are priced; the others take their price where the two agree, and one of their own where they do not: at the border of
    a region of the blocked layout a rewrite costs something else than within. A step is priced anew when it is taken.
    """

    def __init__(self, problem: Problem, budget: Budget) -> None:
        self._problem, self._budget, self._classes = problem, budget, SiteClasses()
        self._heap: list[tuple[float, Key, int]] = []
        self._matches: list[Match] = []

    def __bool__(self) -> bool:
        return bool(self._heap)

    def pop(self) -> tuple[Key, Match]:
        """The best of them."""
        _, key, index = heapq.heappop(self._heap)
        return key, self._matches[index]

    def fill(self, state: State, keys: Iterable[Key]) -> str | None:
        """Price sites and queue those that pay; returns why to stop, if so."""
        alike: dict[int, list[Key]] = {}
        for key in sorted(keys):
            match = state.sites.matches[key]
            if not match.rule.prefer or match.preferred:
                alike.setdefault(self._classes.of(state.graph, match), []).append(key)
        for group in alike.values():
            reason = self._price(state, group)
            if reason is not None:
                return reason
        return None

    def _price(self, state: State, alike: list[Key]) -> str | None:
        changes: dict[Key, float | None] = {}
        for key in (alike[0], alike[-1], *alike):
            if key in changes:
                continue
            first, last = changes.get(alike[0]), changes.get(alike[-1])
            if first is not None and last is not None and abs(first - last) <= NEGLIGIBLE_SHARE * state.cost:
                changes[key] = first
            else:
                reason = self._budget.exhausted()
                if reason is not None:
                    return reason
                changes[key] = self._change(state, key)
            match, change = state.sites.matches[key], changes[key]
            if change is not None and worth(self._problem, match, state.cost, state.cost + change):
                self._matches.append(match)
                heapq.heappush(self._heap, (change, key, len(self._matches) - 1))
        return None

    def _change(self, state: State, key: Key) -> float | None:
        """By how much a site changes the cost; ``None`` where it can't be rewritten."""
        self._budget.spent += 1
        try:
            return self._problem.price(state, state.sites.matches[key])[1] - state.cost
        except RefusedError:
            return None


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


def worth(problem: Problem, match: Match, before: float, after: float) -> bool:
    """Whether greedy takes a rewrite, given the predicted cost before and after it."""
    if match.rule.prefer:
        return match.preferred and after <= before * (1 + problem.leeway)
    return after < before * (1 - NEGLIGIBLE_SHARE)


SPEC = StrategySpec("greedy", "always the largest saving", lambda s: Greedy(), trials={"greedy": {}}, whole=True)
