"""Iterated local search: kick a good plan out of its local optimum, descend again, keep what is better.

Lourenço, Martin, Stützle, "Iterated Local Search", Handbook of Metaheuristics, 2003. Backtracking widens its search around the
cheapest graphs and ends where everything within alpha was seen; more of the same does not leave that place. Here a few
rewrites are drawn whatever they cost, the first anywhere and each next one mostly beside it, and made at every equal place or at
one. Greedy descends from there: it prices what is new around the kick, so a turn costs what the kick changed, not what the
graph holds. A short backtracking follows where the descent comes close.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace

from graphopt.ir.delta import RefusedError
from graphopt.ir.memo import collector_paused
from graphopt.rewrite.sites import Key
from graphopt.search.backtracking import Backtracking
from graphopt.search.greedy import Greedy
from graphopt.search.problem import NEGLIGIBLE_SHARE, Budget, Outcome, Problem, Report, State, Step, cheapest
from graphopt.search.strategies import StrategySpec
from graphopt.search.symmetry import ClassRewrite, PlanExpansion, SiteClasses

MOST_KICKS = 3
"""Rewrites of a kick."""
HIGHEST = 1.2
"""How much dearer than the best a kick may make a graph."""
BESIDE = 0.8
"""Chance that a rewrite of a kick is drawn from what the one before made possible."""
EVERYWHERE = 0.7
"""Chance that it is made at every equal place."""
CLOSE = 1.002
"""How much dearer than the best a graph may be for a backtracking to begin there."""
SHORT = 150
"""Candidates of that backtracking."""


class IteratedLocalSearch:
    """Greedy and backtracking, then kicks for as long as the budget lasts.

    Args:
        alpha: Of the backtracking.
        seed: Of the kicks.
        patience: Kicks in a row without a better graph after which it ends.
        keep: Best graphs to measure.
    """

    name = "ils"

    def __init__(self, alpha: float = 1.05, seed: int = 0, patience: int = 300, keep: int = 4) -> None:
        self.alpha, self.seed, self.patience, self.keep = alpha, seed, patience, keep

    def run(self, problem: Problem, start: State, budget: Budget, report: Report | None = None) -> Outcome:
        """See :class:`graphopt.search.problem.Strategy`."""
        best = _spent(budget, Greedy().run(problem, start, budget.part(0.5), report))
        found = [best]
        if budget.exhausted() is None:
            part = budget.part(0.3)
            outcome = _spent(budget, Backtracking(self.alpha, keep=self.keep).run(problem, best.state, part, report))
            found += [best.then(outcome), *(best.then(o) for o in outcome.others)]
            best = min(found, key=lambda o: o.state.cost)
        reason = self._kicked(problem, best, budget, found, report)
        best, *others = cheapest(found, self.keep)
        return replace(best, candidates=budget.spent, seconds=budget.elapsed, stop_reason=reason, others=tuple(others))

    def _kicked(
        self, problem: Problem, best: Outcome, budget: Budget, found: list[Outcome], report: Report | None
    ) -> str:
        """Kick and descend until the budget or the patience ends; better plans are added to ``found``.

        Returns:
            Why it ended.
        """
        chance = random.Random(self.seed)
        idle = turns = 0
        with collector_paused():
            while idle < self.patience:
                reason = budget.exhausted()
                if reason is not None:
                    return f"{reason} after {turns} kicks"
                turns, idle = turns + 1, idle + 1
                kick = self._kick(problem, best.state, chance, budget)
                if kick is None:
                    continue
                made = best.then(kick)
                made = made.then(_spent(budget, Greedy().run(problem, made.state, budget.part(0.5))))
                if best.state.cost < made.state.cost <= CLOSE * best.state.cost:
                    short = budget.part(1.0, SHORT)
                    made = made.then(_spent(budget, Backtracking(self.alpha, keep=1).run(problem, made.state, short)))
                if made.state.cost < best.state.cost * (1 - NEGLIGIBLE_SHARE):
                    best, idle = made, 0
                    found.append(best)
                    if report is not None:
                        report(best.state)
        return f"no better graph after {turns} kicks"

    def _kick(self, problem: Problem, start: State, chance: random.Random, budget: Budget) -> Outcome | None:
        """A few rewrites whatever they cost; ``None`` where none is possible."""
        state, steps = start, tuple[Step, ...]()
        for _ in range(chance.randint(1, MOST_KICKS)):
            beside = [k for k in state.sites.fresh if k in state.sites.matches] if steps else []
            key = _drawn(sorted(beside) if beside and chance.random() < BESIDE else sorted(state.sites.matches), chance)
            if key is None:
                break
            budget.spent += 1
            match, classes = state.sites.matches[key], SiteClasses()
            try:
                if chance.random() < EVERYWHERE:
                    move = ClassRewrite(match.rule.id, classes.of(state.graph, match))
                    after, made = PlanExpansion(problem, state, classes).of((move,))
                else:
                    after = problem.step(state, match)
                    made = (problem.record(state.graph, match, state.cost, after.cost),)
            except RefusedError:
                continue
            if after.cost <= HIGHEST * start.cost and after.graph.hash != start.graph.hash:
                state, steps = after, (*steps, *made)
        return Outcome(state, steps, 0, 0.0, "kicked") if steps else None


def _drawn(keys: Sequence[Key], chance: random.Random) -> Key | None:
    """A site: first a rule, then a place of it, so that the rules with few places come up as well."""
    rules = sorted({key[0] for key in keys})
    if not rules:
        return None
    rule = chance.choice(rules)
    return chance.choice([key for key in keys if key[0] == rule])


def _spent(budget: Budget, outcome: Outcome) -> Outcome:
    """An outcome whose candidates count for the whole budget."""
    budget.spent += outcome.candidates
    return outcome


SPEC = StrategySpec(
    "ils", "greedy and backtracking, then kicks out of the local optimum", lambda s: IteratedLocalSearch(s.alpha, s.seed),
    ("alpha", "seed"), trials={"ils": {}}, chance=True,
)  # fmt: skip
