"""The default strategy: greedy, then backtracking with what is left of the budget, from the start and from where greedy ended."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from graphopt.search.backtracking import Backtracking
from graphopt.search.greedy import Greedy
from graphopt.search.problem import Budget, Outcome, Problem, State, cheapest
from graphopt.search.strategies import StrategySpec


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
        self.greedy, self.backtracking, self.keep = Greedy(), Backtracking(alpha, keep=keep), keep

    def run(
        self, problem: Problem, start: State, budget: Budget, report: Callable[[State], None] | None = None
    ) -> Outcome:
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


SPEC = StrategySpec("auto", "greedy, then backtracking from two places", lambda s: Auto(s.alpha), ("alpha",))
