"""TASO's cost-based relaxed search, the default that begins with greedy, and two controls that spend the same budget.

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
from collections.abc import Iterator
from dataclasses import replace

from graphopt.ir.delta import RefusedError
from graphopt.ir.memo import collector_paused
from graphopt.search.greedy import Greedy
from graphopt.search.plans import MAX_DETOUR_STEPS, Candidate, PlanSearch, in_rounds
from graphopt.search.problem import Budget, Outcome, Problem, Report, State, cheapest
from graphopt.search.strategies import StrategySpec
from graphopt.search.symmetry import ReducedState

ALPHAS = (1.0, 1.02, 1.05, 1.1)
"""With which `evaluate-agent` holds agents against backtracking."""
DETOUR_PENALTY = 2e-3
"""How much dearer each of them makes a graph wait: graphs that differ by what costs next to nothing are many."""

PATIENCE = 300
"""Rewrites without a better plan, besides one for each site of the start, after which a round of :class:`Auto` ends. On
45 models two fifths of the rewrites came after the last better plan, and what a round found later than this saved 0.23 % at most."""


class Backtracking:
    """Best-first search that goes through steps that cost.

    Args:
        alpha: How much dearer than the best a graph may be and still be searched from.
        width: Candidates that wait at most; beyond, the dearer half is forgotten.
        keep: Best plans to carry out and to measure.
        patience: Rewrites without a better plan, besides one for each site of the start, after which a round ends.
    """

    name = "backtracking"

    def __init__(self, alpha: float = 1.05, width: int = 2000, keep: int = 4, patience: float = math.inf) -> None:
        self.alpha, self.width, self.keep, self.patience = alpha, width, keep, patience

    def run(self, problem: Problem, start: State, budget: Budget, report: Report | None = None) -> Outcome:
        """See :class:`graphopt.search.problem.Strategy`.

        Round by round, see :func:`graphopt.search.plans.in_rounds`.
        """
        return in_rounds(lambda origin, part: self._round(problem, origin, part, report), start, budget, self.keep)

    def _round(self, problem: Problem, start: State, budget: Budget, report: Report | None) -> Outcome:
        search = PlanSearch(problem, start, budget, self.keep)
        queue: list[tuple[float, int, Candidate]] = []
        order = itertools.count()
        self._push(queue, search, order, search.root)
        patience = self.patience + len(search.root.open)
        while queue and budget.exhausted() is None and search.idle <= patience:
            _, _, candidate = heapq.heappop(queue)
            reduced = search.make(candidate) if candidate.here <= self.alpha * search.best_here else None
            if reduced is None or reduced.state.cost > self.alpha * search.best_here:
                continue
            self._push(queue, search, order, reduced)
            if len(queue) > self.width:
                queue = heapq.nsmallest(self.width // 2, queue)
        reach = self.alpha * search.best_here
        waiting = sum(candidate.here <= reach for _, _, candidate in queue)
        stuck = search.idle > patience
        ended = f"no better plan in the last {patience} rewrites" if stuck else "everything within alpha was searched"
        return replace(search.outcome(budget.exhausted() or ended, report), waiting=waiting)

    def _push(
        self, queue: list[tuple[float, int, Candidate]], search: PlanSearch, order: Iterator[int], reduced: ReducedState
    ) -> None:
        detour = 1 + DETOUR_PENALTY * reduced.detour_steps
        for found in search.candidates(reduced):
            limit = self.alpha * search.best_here
            if reduced.detour_steps == MAX_DETOUR_STEPS - 1:
                limit = min(limit, math.nextafter(reduced.base, 0.0))  # the last step of a detour must pay
            if found.here <= limit:
                heapq.heappush(queue, (found.here * detour, next(order), found))


class Auto:
    """Greedy, because it knows the hints of rules whose gain no price shows; then cost-based search.

    Backtracking starts twice: from the model itself, because what greedy does first can stand in the way of something better,
    and from greedy's result, because a search of the whole may not get as far.

    Args:
        alpha: Of the backtracking.
        keep: Best graphs to measure.
    """

    name = "auto"

    def __init__(self, alpha: float = 1.05, keep: int = 4) -> None:
        self.greedy, self.keep = Greedy(), keep
        self.backtracking = Backtracking(alpha, keep=keep, patience=PATIENCE)

    def run(self, problem: Problem, start: State, budget: Budget, report: Report | None = None) -> Outcome:
        """See :class:`graphopt.search.problem.Strategy`."""
        part = budget.part(0.5)
        first = self.greedy.run(problem, start, part, report)
        budget.spent += part.spent
        found, reason, waiting = [first], first.stop_reason, 0
        for origin, share in ((start, 0.5), (first.state, 1.0)):
            if budget.exhausted() is not None:
                break
            part = budget.part(share)
            outcome = self.backtracking.run(problem, origin, part, report)
            budget.spent += part.spent
            before = () if origin is start else first.steps
            found += [replace(o, steps=(*before, *o.steps), others=()) for o in (outcome, *outcome.others) if o.steps]
            reason, waiting = outcome.stop_reason, waiting + outcome.waiting
        best, *others = cheapest(found, self.keep)
        if first.steps and best.state is not first.state:  # what differs most from the best is asked about first
            others = [first, *(o for o in others if o.state is not first.state)]
        return replace(
            best,
            candidates=budget.spent,
            seconds=budget.elapsed,
            stop_reason=budget.exhausted() or reason,
            others=tuple(others),
            waiting=waiting,
        )


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
            search = PlanSearch(problem, start, budget, self.keep)
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
            search = PlanSearch(problem, start, budget, self.keep)
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
                    search.note(Candidate(here, here.state.sites.matches[key], after.cost, after.state.cost))
                    here = after
                idle = 0 if search.best < best else idle + 1
            return search.outcome(budget.exhausted() or "no better graph in the last walks", report)


AUTO = StrategySpec("auto", "greedy, then backtracking from two places", lambda s: Auto(s.alpha), ("alpha",))
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
