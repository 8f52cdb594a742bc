"""What searches for plans share: pricing and making rewrites of reduced states, the graphs seen, the best plans, and rounds."""

from __future__ import annotations

import heapq
import itertools
import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace

from graphopt.ir.delta import Delta, RefusedError
from graphopt.ir.graph import Graph
from graphopt.ir.memo import collector_paused
from graphopt.rewrite.match import Match
from graphopt.rewrite.sites import Key
from graphopt.search.problem import NEGLIGIBLE_SHARE, Budget, Outcome, Problem, Report, State
from graphopt.search.symmetry import ClassRewrite, PlanExpansion, ReducedState, SiteClasses

MAX_DETOUR_STEPS = 6
"""Rewrites that a search makes without coming to a cheaper graph than where they began."""
_SPARE = 8
"""How many times as many plans are remembered as are to be kept: all of the best may promise what is not saved everywhere."""


@dataclass(frozen=True, eq=False)
class Candidate:
    """A rewrite that was priced and not made yet.

    Attributes:
        parent: Where it is to be made.
        match: The rewrite.
        cost: Predicted milliseconds after it, made everywhere.
        here: Predicted milliseconds after it, made at one place: what a search of unreduced states would see.
        after: The graph after it and what changed, where pricing made them: a rewrite is carried out once.
    """

    parent: ReducedState
    match: Match
    cost: float
    here: float
    after: tuple[Graph, Delta] | None = None


class PlanSearch:
    """A search from one state: prices and makes rewrites, knows the graphs it met, and keeps the best plans."""

    def __init__(self, problem: Problem, start: State, budget: Budget, keep: int) -> None:
        self.problem, self.start, self.budget, self.keep = problem, start, budget, keep
        self.site_classes = SiteClasses()
        self.root = ReducedState.start(start, self.site_classes)
        self.expansion = PlanExpansion(problem, start, self.site_classes)
        self.seen = {start.graph.hash}
        self.best = self.best_here = start.cost
        self._top: list[tuple[float, int, Candidate]] = []
        self._count = itertools.count()
        self._improved = 0  # what was spent by then

    @property
    def idle(self) -> int:
        """Rewrites since there was a better plan."""
        return self.budget.spent - self._improved

    def better_than(self, before: float) -> bool:
        """Whether the best plan is better by more than next to nothing than one that was predicted to take so many milliseconds.

        As a share of the start: what is predicted of a plan at all equal places may be too good to be true, and less than nothing.
        """
        return before - self.best > NEGLIGIBLE_SHARE * self.start.cost

    def candidates(self, reduced: ReducedState) -> Iterator[Candidate]:
        """Price the sites from which to go on, while the budget lasts."""
        for key in reduced.sites():
            if self.budget.exhausted() is not None:
                return
            candidate = self.priced(reduced, key)
            if candidate is not None:
                yield candidate

    def priced(self, reduced: ReducedState, key: Key) -> Candidate | None:
        """Price a site, unless its change is known; ``None`` where the engine refuses the rewrite."""
        state = reduced.state
        match = state.sites.matches[key]
        change, after = reduced.known.get(key), None
        if change is None:
            self.budget.spent += 1
            try:
                graph, delta, cost = self.problem.tried(state, match)
                change, after = cost - state.cost, (graph, delta)
            except RefusedError:
                change = math.inf
            reduced.known[key] = change
        if change == math.inf:
            return None
        # A second place of a class saves nothing more everywhere, but leads on to what several make possible: so it stands in line like the first.
        return Candidate(reduced, match, reduced.cost + reduced.open[key] * change, state.cost + change, after)

    def make(self, candidate: Candidate) -> ReducedState | None:
        """Make a rewrite; ``None`` if that can't be done, or leads to a graph that was met before."""
        made = self.rewritten(candidate)
        return None if made is None or made[0].hash in self.seen else self.reached(candidate, *made)

    def rewritten(self, candidate: Candidate) -> tuple[Graph, Delta] | None:
        """The graph after a rewrite, and what changed; ``None`` if it can't be made or the budget is gone."""
        if self.budget.exhausted() is not None:
            return None
        self.budget.spent += 1
        try:
            return candidate.after or self.problem.rewrite(candidate.parent.state.graph, candidate.match)
        except RefusedError:
            return None

    def reached(self, candidate: Candidate, graph: Graph, delta: Delta) -> ReducedState | None:
        """The state of a graph that was not met before; ``None`` if what it saves at one place is not saved at all."""
        self.seen.add(graph.hash)
        parent, match = candidate.parent, candidate.match
        made = parent.reached(self.problem.reached(parent.state, graph, delta), match, self.site_classes)
        if made.region is None and not self.adds_up(parent, made):
            return None
        self.note(Candidate(parent, match, made.cost, made.state.cost))
        return made

    def forget(self, keep: Iterable[int] = ()) -> None:
        """Forget which graphs were met, but for some by their hash, and what became of plans: the memory of a long search is bounded."""
        self.seen = {self.start.graph.hash, *keep}
        self.expansion = PlanExpansion(self.problem, self.start, self.site_classes)

    def adds_up(self, parent: ReducedState, made: ReducedState) -> bool:
        """Whether what a move saves at one place is saved at all.

        Savings add up but for one thing: a weight more here and there can be too much for the cache. Where that could be, the
        move is carried out everywhere.
        """
        before, after = parent.state.costs.sums, made.state.costs.sums
        if after.bytes <= before.bytes or after.warm == after.cold:
            return True
        cost = self.expansion.of(parent.plan)[0].cost
        return self.expansion.of(made.plan)[0].cost < cost

    def note(self, found: Candidate) -> None:
        """Remember a rewrite that was made, if it is among the best."""
        self.best_here = min(self.best_here, found.here)
        if found.cost >= self.start.cost:
            return
        if found.cost < self.best:
            self.best, self._improved = found.cost, self.budget.spent
            self.budget.found()
        heapq.heappush(self._top, (-found.cost, next(self._count), found))
        if len(self._top) > _SPARE * self.keep:
            heapq.heappop(self._top)

    def outcome(self, reason: str, report: Report | None) -> Outcome:
        """The best plans carried out everywhere, the one that is predicted to be fastest first; where none of them pays, the best of the others that does."""
        found: list[Outcome] = []
        for number, (_, _, candidate) in enumerate(sorted(self._top, reverse=True)):
            spare = number >= self.keep
            if (found and spare) or ((found or spare) and self.budget.overdue):
                break  # to carry out another one at a thousand places takes seconds
            site_class = self.site_classes.of(candidate.parent.state.graph, candidate.match)
            plan = (*candidate.parent.plan, ClassRewrite(candidate.match.rule.id, site_class))
            state, steps = self.expansion.best_of(plan)
            if steps and state.cost < self.start.cost and all(state.graph.hash != o.state.graph.hash for o in found):
                found.append(Outcome(state, steps, self.budget.spent, self.budget.elapsed, reason))
        found.sort(key=lambda o: o.state.cost)
        if not found:
            return Outcome(self.start, (), self.budget.spent, self.budget.elapsed, reason)
        if report is not None:
            report(found[0].state)
        return replace(found[0], seconds=self.budget.elapsed, others=tuple(found[1:]))


@collector_paused()
def in_rounds(search: Callable[[State, Budget], Outcome], start: State, budget: Budget, keep: int) -> Outcome:
    """Search from ``start``, and again from what was found.

    What a round finds is carried out at all equal places. These need not be equal any more after that, so the search goes on
    from there, until it finds nothing more. A round has a half of what is left of the budget, and the rest as well while it has found
    nothing: no other round would use it.

    Args:
        search: A round: searches from a state within a budget.
        start: Where the first round starts.
        budget: Of all rounds.
        keep: Plans in the outcome, the best included.
    """
    best, others = Outcome(start, (), 0, 0.0, ""), list[Outcome]()
    while True:
        part = budget.until_found(0.5)
        found = search(best.state, part)
        budget.spent += part.spent
        gained = found.state.cost < best.state.cost
        here = [replace(o, steps=(*best.steps, *o.steps), others=()) for o in (found, *found.others)]
        if gained:
            others = [*here[1:], *([best] if best.steps else []), *others][: keep - 1]
            best = here[0]
        reason = budget.exhausted()
        if reason is None and not gained:  # a part that is used up has found what is not saved at all equal places
            reason = (
                found.stop_reason
                if part.exhausted() is None
                else "what seemed better at one place saves nothing everywhere"
            )
        if reason is not None:
            return replace(
                best,
                candidates=budget.spent,
                seconds=budget.elapsed,
                stop_reason=reason,
                others=tuple(others),
                waiting=found.waiting,
            )
