"""TASO's cost-based relaxed search, and two controls that spend the same budget.

Jia et al., "TASO: Optimizing Deep Learning Computation with Automatic Generation of Graph Substitutions", SOSP 2019,
algorithm 2: graphs wait in a queue ordered by cost; the cheapest is taken out, every substitution is tried on it, and the
result waits in its turn if it costs less than alpha times the best so far. With alpha = 1 no step that costs is ever made.
The queue here holds states reduced by symmetry (:mod:`graphopt.search.symmetry`), is bounded, and knows a graph again by its hash. Order and
alpha go by the cost with a rewrite made at one place, as if nothing were reduced: a step that costs one per cent at each
of fifty places is within reach of alpha = 1.05.

Two things differ from the paper. Most substitutions touch different places, and trying them in every order would fill the queue
with subsets of those that cost next to nothing: after a move that does not pay, only sites around it come next
(:class:`graphopt.search.symmetry.ReducedState`). And what is found is carried out everywhere before the search begins again there.
"""

from __future__ import annotations

import heapq
import itertools
import math
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from graphopt.ir.edit import Delta, RefusedError
from graphopt.ir.graph import Graph
from graphopt.ir.memo import collector_paused
from graphopt.rewrite.match import Match
from graphopt.search.problem import Budget, Outcome, Problem, State
from graphopt.search.strategies import StrategySpec
from graphopt.search.symmetry import ClassRewrite, PlanExpansion, ReducedState, SiteClasses

ALPHAS = (1.0, 1.02, 1.05, 1.1)
"""With which `evaluate-agent` holds agents against backtracking."""
MAX_DETOUR_STEPS = 6
"""Rewrites that a search makes without coming to a cheaper graph than where they began."""
DETOUR_PENALTY = 2e-3
"""How much dearer each of them makes a graph wait: graphs that differ by what costs next to nothing are many."""

Report = Callable[[State], None]


@dataclass(frozen=True, eq=False)
class _Candidate:
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


class _Search:
    """What the strategies of this module share: pricing, the graphs seen, and the best plans."""

    def __init__(self, problem: Problem, start: State, budget: Budget, keep: int) -> None:
        self.problem, self.start, self.budget, self.keep = problem, start, budget, keep
        self.site_classes = SiteClasses()
        self.root = ReducedState.start(start, self.site_classes)
        self.expansion = PlanExpansion(problem, start, self.site_classes)
        self.seen = {start.graph.hash}
        self.best = self.best_here = start.cost
        self._top: list[tuple[float, int, _Candidate]] = []
        self._count = itertools.count()

    def candidates(self, reduced: ReducedState) -> Iterator[_Candidate]:
        """Price the sites from which to go on, while the budget lasts; those whose change is known are not priced again."""
        state = reduced.state
        for key in reduced.sites():
            if self.budget.exhausted() is not None:
                return
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
            if change < math.inf:
                yield _Candidate(reduced, match, reduced.cost + reduced.open[key] * change, state.cost + change, after)

    def make(self, candidate: _Candidate) -> ReducedState | None:
        """Make a rewrite; ``None`` if that can't be done, or leads to a graph that was met before."""
        parent, match = candidate.parent, candidate.match
        if self.budget.exhausted() is not None:
            return None
        self.budget.spent += 1
        try:
            graph, delta = candidate.after or self.problem.rewrite(parent.state.graph, match)
        except RefusedError:
            return None
        if graph.hash in self.seen:
            return None
        self.seen.add(graph.hash)
        made = parent.reached(self.problem.reached(parent.state, graph, delta), match, self.site_classes)
        if made.region is None and not self._adds_up(parent, made):
            return None
        self._note(_Candidate(parent, match, made.cost, made.state.cost))
        return made

    def _adds_up(self, parent: ReducedState, made: ReducedState) -> bool:
        """Whether what a move saves at one place is saved at all.

        Savings add up but for one thing: a weight more here and there can be too much for the cache. Where that could be, the
        move is carried out everywhere.
        """
        before, after = parent.state.costs.sums, made.state.costs.sums
        if after.bytes <= before.bytes or after.warm == after.cold:
            return True
        cost = self.expansion.of(parent.plan)[0].cost
        return self.expansion.of(made.plan)[0].cost < cost

    def _note(self, found: _Candidate) -> None:
        self.best_here = min(self.best_here, found.here)
        if found.cost >= self.start.cost:
            return
        self.best = min(self.best, found.cost)
        heapq.heappush(self._top, (-found.cost, next(self._count), found))
        if len(self._top) > self.keep:
            heapq.heappop(self._top)

    def outcome(self, reason: str, report: Report | None) -> Outcome:
        """The best plans carried out everywhere, the one that is predicted to be fastest first."""
        found: list[Outcome] = []
        for _, _, candidate in sorted(self._top, key=lambda item: item[2].cost):
            site_class = self.site_classes.of(candidate.parent.state.graph, candidate.match)
            state, steps = self.expansion.of(
                (*candidate.parent.plan, ClassRewrite(candidate.match.rule.id, site_class))
            )
            if steps and state.cost < self.start.cost and all(state.graph.hash != o.state.graph.hash for o in found):
                found.append(Outcome(state, steps, self.budget.spent, self.budget.elapsed, reason))
        found.sort(key=lambda o: o.state.cost)
        if not found:
            return Outcome(self.start, (), self.budget.spent, self.budget.elapsed, reason)
        if report is not None:
            report(found[0].state)
        return replace(found[0], seconds=self.budget.elapsed, others=tuple(found[1:]))


class Backtracking:
    """Best-first search that goes through steps that cost.

    Args:
        alpha: How much dearer than the best a graph may be and still be searched from.
        width: Candidates that wait at most; beyond, the dearer half is forgotten.
        keep: Best plans to carry out and to measure.
    """

    name = "backtracking"

    def __init__(self, alpha: float = 1.05, width: int = 2000, keep: int = 4) -> None:
        self.alpha, self.width, self.keep = alpha, width, keep

    def run(self, problem: Problem, start: State, budget: Budget, report: Report | None = None) -> Outcome:
        """See :class:`graphopt.search.problem.Strategy`.

        What is found is carried out at all equal places. These need not be equal any more after that, so the search goes on
        from there, each time in a half of what is left of the budget, until it finds nothing more.
        """
        best, others = Outcome(start, (), 0, 0.0, ""), list[Outcome]()
        while True:
            part = budget.part(0.5)
            found = self._round(problem, best.state, part, report)
            budget.spent += part.spent
            gained = found.state.cost < best.state.cost
            here = [replace(o, steps=(*best.steps, *o.steps), others=()) for o in (found, *found.others)]
            if gained:
                others = [*here[1:], *([best] if best.steps else []), *others][: self.keep - 1]
                best = here[0]
            reason = budget.exhausted()
            if reason or not gained:
                return replace(
                    best,
                    candidates=budget.spent,
                    seconds=budget.elapsed,
                    stop_reason=reason or found.stop_reason,
                    others=tuple(others),
                    waiting=found.waiting,
                )

    def _round(self, problem: Problem, start: State, budget: Budget, report: Report | None) -> Outcome:
        with collector_paused():
            search = _Search(problem, start, budget, self.keep)
            queue: list[tuple[float, int, _Candidate]] = []
            order = itertools.count()
            self._push(queue, search, order, search.root)
            while queue and budget.exhausted() is None:
                _, _, candidate = heapq.heappop(queue)
                reduced = search.make(candidate) if candidate.here <= self.alpha * search.best_here else None
                if reduced is None or reduced.state.cost > self.alpha * search.best_here:
                    continue
                self._push(queue, search, order, reduced)
                if len(queue) > self.width:
                    queue = heapq.nsmallest(self.width // 2, queue)
            reach = self.alpha * search.best_here
            waiting = sum(candidate.here <= reach for _, _, candidate in queue)
            return replace(
                search.outcome(budget.exhausted() or "everything within alpha was searched", report), waiting=waiting
            )

    def _push(
        self, queue: list[tuple[float, int, _Candidate]], search: _Search, order: Iterator[int], reduced: ReducedState
    ) -> None:
        detour = 1 + DETOUR_PENALTY * reduced.detour_steps
        for found in search.candidates(reduced):
            limit = self.alpha * search.best_here
            if reduced.detour_steps == MAX_DETOUR_STEPS - 1:
                limit = min(limit, math.nextafter(reduced.base, 0.0))  # the last step of a detour must pay
            if found.here <= limit:
                heapq.heappush(queue, (found.here * detour, next(order), found))


class Beam:
    """The best few graphs of each number of steps, whatever they cost: a control for :class:`Backtracking`.

    Args:
        width: Graphs kept of each number of steps.
        patience: Numbers of steps without a better graph after which it ends.
        keep: Best plans to carry out and to measure.
    """

    name = "beam"

    def __init__(self, width: int = 8, patience: int = 6, keep: int = 4) -> None:
        self.width, self.patience, self.keep = width, patience, keep

    def run(self, problem: Problem, start: State, budget: Budget, report: Report | None = None) -> Outcome:
        """See :class:`graphopt.search.problem.Strategy`."""
        with collector_paused():
            search = _Search(problem, start, budget, self.keep)
            level, idle = [search.root], 0
            while level and idle < self.patience and budget.exhausted() is None:
                best = search.best
                found = [c for reduced in level for c in search.candidates(reduced)]
                level = []
                for candidate in heapq.nsmallest(4 * self.width, found, key=lambda c: c.cost):
                    reduced = search.make(candidate) if len(level) < self.width else None
                    if reduced is not None:
                        level.append(reduced)
                idle = 0 if search.best < best else idle + 1
            return search.outcome(budget.exhausted() or "no better graph in the last steps", report)


class RandomWalk:
    """Random rewrites from the start, again and again: the control that any other strategy must beat.

    Args:
        length: Rewrites of a walk.
        walks: Walks without a better graph after which it ends.
        seed: Of the choices.
        keep: Best plans to carry out and to measure.
    """

    name = "random"

    def __init__(self, length: int = 20, walks: int = 200, seed: int = 0, keep: int = 4) -> None:
        self.length, self.walks, self.seed, self.keep = length, walks, seed, keep

    def run(self, problem: Problem, start: State, budget: Budget, report: Report | None = None) -> Outcome:
        """See :class:`graphopt.search.problem.Strategy`."""
        with collector_paused():
            search = _Search(problem, start, budget, self.keep)
            chance = random.Random(self.seed)
            idle = 0
            while idle < self.walks and budget.exhausted() is None and search.root.open:
                best, here = search.best, search.root
                for _ in range(self.length):
                    if budget.exhausted() is not None or not here.open:
                        break
                    key = chance.choice(sorted(here.open))
                    budget.spent += 1
                    try:
                        after = here.after(problem, here.state.sites.matches[key], search.site_classes)
                    except RefusedError:
                        continue
                    search._note(_Candidate(here, here.state.sites.matches[key], after.cost, after.state.cost))
                    here = after
                idle = 0 if search.best < best else idle + 1
            return search.outcome(budget.exhausted() or "no better graph in the last walks", report)


BACKTRACKING = StrategySpec(
    "backtracking",
    "best first, through steps that cost",
    lambda s: Backtracking(s.alpha),
    ("alpha",),
    trials={f"backtracking {alpha:g}": {"alpha": alpha} for alpha in ALPHAS},
)
BEAM = StrategySpec("beam", "the best few of each number of steps", lambda s: Beam())
RANDOM = StrategySpec(
    "random",
    "random walks: the control",
    lambda s: RandomWalk(seed=s.seed),
    ("seed",),
    trials={"random": {}},
    chance=True,
)
