"""The normal form of a model: where every search begins."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from graphopt.ir.graph import Graph
from graphopt.ir.memo import collector_paused
from graphopt.ir.simplify import simplify
from graphopt.search.cleaning import Cleaned, normal_form
from graphopt.search.greedy import Greedy
from graphopt.search.nested import better_bodies
from graphopt.search.problem import Budget, Outcome, Problem, State, Step
from graphopt.search.strategies import StrategySpec

_SHARE = 0.25  # of what is left of a budget, for a body


@dataclass(frozen=True, eq=False)
class Normal:
    """A model in its normal form.

    Attributes:
        start: The graph as the engine simplifies it: what a trace begins with.
        graph: The normal form.
        steps: How the one became the other. Their costs are 0, as nothing was priced, but for those that pay in bodies.
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
    def after(cls, start: Graph, problem: Problem, budget: Budget | None = None) -> Normal:
        """The normal form of a graph that is simplified already.

        Args:
            start: The graph.
            problem: Rules, prices and the target.
            budget: What may be spent in bodies of control flow: after their normal form greedy looks for what pays there. ``None``: nothing.
        """

        def body(graph: Graph) -> tuple[Graph, list[Step]]:
            found, made = normal_form(graph, problem.library, problem.block)
            steps = [_record(problem, step) for step in made]
            if budget is None:
                return found, steps
            part = budget.part(_SHARE)
            outcome = Greedy().run(problem, problem.start(found), part)
            budget.spent += part.spent
            return outcome.state.graph, [*steps, *outcome.steps]

        with collector_paused():
            found, made = normal_form(start, problem.library, problem.block)
            found, within = better_bodies(found, body)
        steps = [_record(problem, step) for step in made] + [replace(step, inside=path) for path, step in within]
        return cls(start, found, tuple(steps))

    def then(self, outcome: Outcome) -> Outcome:
        """What a search found from here, with all steps from the start."""
        return replace(
            outcome, steps=(*self.steps, *outcome.steps), others=tuple(self.then(other) for other in outcome.others)
        )


def _record(problem: Problem, step: Cleaned) -> Step:
    return replace(problem.record(step.graph, step.match, 0.0, 0.0), alone=True)


class Cleaner:
    """No search: the normal form is all there is."""

    name = "none"

    def run(
        self, problem: Problem, start: State, budget: Budget, report: Callable[[State], None] | None = None
    ) -> Outcome:
        """See :class:`graphopt.search.problem.Strategy`."""
        return Outcome(start, (), 0, budget.elapsed, "nothing was searched")


SPEC = StrategySpec("none", "no search: the normal form is all there is", lambda s: Cleaner(), whole=True)
