"""The normal form of a model: where every search begins."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from graphopt.ir.graph import Graph
from graphopt.ir.memo import collector_paused
from graphopt.ir.simplify import simplify
from graphopt.search.cleaning import Cleaned, normal_form
from graphopt.search.nested import normal_bodies
from graphopt.search.problem import Budget, Outcome, Problem, State, Step
from graphopt.search.strategies import StrategySpec


@dataclass(frozen=True, eq=False)
class Normal:
    """A model in its normal form.

    Attributes:
        start: The graph as the engine simplifies it: what a trace begins with.
        graph: The normal form.
        steps: How the one became the other. Their costs are 0: nothing was priced.
    """

    start: Graph
    graph: Graph
    steps: tuple[Step, ...]

    @classmethod
    def of(cls, graph: Graph, problem: Problem) -> Normal:
        """The normal form of a graph as it was loaded."""
        with collector_paused():
            start = simplify(graph)
        return cls.after(start, problem)

    @classmethod
    def after(cls, start: Graph, problem: Problem) -> Normal:
        """The normal form of a graph that is simplified already."""
        with collector_paused():
            found, made = normal_form(start, problem.library, problem.block)
            found, within = normal_bodies(found, problem.library, problem.block)
        return cls(
            start, found, tuple(_record(problem, step, path) for path, step in [*(((), s) for s in made), *within])
        )

    def then(self, outcome: Outcome) -> Outcome:
        """What a search found from here, with all steps from the start."""
        return replace(
            outcome, steps=(*self.steps, *outcome.steps), others=tuple(self.then(other) for other in outcome.others)
        )


def _record(problem: Problem, step: Cleaned, path: tuple[str, ...]) -> Step:
    return replace(problem.record(step.graph, step.match, 0.0, 0.0), alone=True, inside=path)


class Cleaner:
    """No search: the normal form is all there is."""

    name = "none"

    def run(
        self, problem: Problem, start: State, budget: Budget, report: Callable[[State], None] | None = None
    ) -> Outcome:
        """See :class:`graphopt.search.problem.Strategy`."""
        return Outcome(start, (), 0, budget.elapsed, "nothing was searched")


SPEC = StrategySpec("none", "no search: the normal form is all there is", lambda s: Cleaner(), whole=True)
