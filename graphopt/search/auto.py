"""The default strategy: greedy, then backtracking with what is left of the budget."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from graphopt.search.backtracking import Backtracking
from graphopt.search.greedy import Greedy
from graphopt.search.problem import Budget, Outcome, Problem, State


class Auto:
    """Greedy first, because it knows the hints of rules whose gain no price shows; then cost-based search from there.

    Args:
        alpha: Of the backtracking.
    """

    name = "auto"

    def __init__(self, alpha: float = 1.05) -> None:
        self.greedy, self.backtracking = Greedy(), Backtracking(alpha)

    def run(
        self, problem: Problem, start: State, budget: Budget, report: Callable[[State], None] | None = None
    ) -> Outcome:
        """See :class:`graphopt.search.problem.Strategy`."""
        first = self.greedy.run(problem, start, budget, report)
        if budget.exhausted() is not None:
            return first
        second = self.backtracking.run(problem, first.state, budget, report)
        found = [
            replace(o, steps=(*first.steps, *o.steps), others=()) for o in (second, *second.others) if o.steps
        ]
        if not found:
            return replace(first, candidates=second.candidates, seconds=second.seconds, stop_reason=second.stop_reason)
        return replace(found[0], others=(first, *found[1:]))
