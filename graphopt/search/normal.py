"""The normal form of a model and of the bodies of its control flow: where every search begins.

A body is opened, rewritten, and put back into its node, which is an edit of the graph around it. A trace holds the steps of a body one
after the other; a replay opens it once, too, so that it sees the same graphs.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import islice
from typing import TypeVar

from graphopt.ir.delta import Delta
from graphopt.ir.graph import Graph
from graphopt.ir.memo import collector_paused
from graphopt.ir.simplify import alike, asked_of_inputs, simplify, sized, stateless, unpacked
from graphopt.onnxio.bodies import HAS_BODY
from graphopt.onnxio.branches import decided
from graphopt.onnxio.inside import Path, body_paths, open_body
from graphopt.search.cleaning import Cleaned, normal_form
from graphopt.search.greedy import Greedy
from graphopt.search.problem import Budget, Outcome, Problem, Report, State, Step
from graphopt.search.strategies import StrategySpec

T = TypeVar("T")
_SHARE = 0.25  # of what is left of a budget, for a body
_BODIES = 1000  # of a graph


@dataclass(frozen=True, eq=False)
class Normal:
    """A model in its normal form.

    Attributes:
        start: The graph as :func:`simplified` leaves it: what a trace begins with.
        graph: The normal form.
        steps: How the one became the other. Their costs are 0, as nothing was priced, but for those that pay in bodies.
    """

    start: Graph
    graph: Graph
    steps: tuple[Step, ...]

    @classmethod
    def of(cls, graph: Graph, problem: Problem) -> Normal:
        """The normal form of a graph as it was loaded."""
        return cls.after(simplified(graph), problem)

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

    def run(self, problem: Problem, start: State, budget: Budget, report: Report | None = None) -> Outcome:
        """See :class:`graphopt.search.problem.Strategy`."""
        return Outcome(start, (), 0, budget.elapsed, "nothing was searched")


def simplified(graph: Graph) -> Graph:
    """A graph as the engine simplifies it: without an If that always takes one branch, and its bodies where that leaves fewer nodes to run.

    It is a graph of its own even where nothing was to do: written, its constants are numbers, and not as the file has them.
    """
    with collector_paused():
        graph = replace(stateless(asked_of_inputs(sized(alike(unpacked(simplify(graph)))))))
        if _has_bodies(graph):
            graph = decided(graph)
        for path in _paths(graph):
            changed = within(graph, path, lambda body: decided(unpacked(body)))
            if changed is not None and changed[2] < 0:
                graph = changed[0]
    return graph


def _paths(graph: Graph) -> list[Path]:
    """Where the bodies are that are looked at."""
    return list(islice(body_paths(graph, set()), _BODIES)) if _has_bodies(graph) else []


def _has_bodies(graph: Graph) -> bool:
    return any(node.opaque == HAS_BODY for node in graph.nodes.values())


def better_bodies(graph: Graph, better: Callable[[Graph], tuple[Graph, list[T]]]) -> tuple[Graph, list[tuple[Path, T]]]:
    """A graph with better bodies, and the steps to it, each with the body that it is made in.

    Args:
        graph: The graph.
        better: What becomes of the graph of a body, and the steps to it.
    """
    made = list[tuple[Path, T]]()
    for path in _paths(graph):
        found: list[tuple[Graph, list[T]]] = []

        def once(body: Graph, found: list[tuple[Graph, list[T]]] = found) -> Graph | None:
            found.append(better(body))
            return found[0][0] if found[0][1] else None

        changed = within(graph, path, once)
        # Some Identities come back when a body is written: they name an output, or what a body within it reads.
        if changed is not None and (changed[2] < 0 or any(node.rule for node in found[0][0].nodes.values())):
            graph = changed[0]
            made += [(path, step) for step in found[0][1]]
    return graph, made


def within(
    graph: Graph, path: Path, once: Callable[[Graph], Graph | None], taken: set[str] | None = None
) -> tuple[Graph, Delta, int] | None:
    """A graph with a body of it changed.

    Args:
        graph: The graph.
        path: Where the body is.
        once: What becomes of the graph of the body; ``None`` for nothing.
        taken: Names that nothing new in the body may have, besides those of the graph.

    Returns:
        The graph, what changed in it, and how many nodes the body has more, constants aside; ``None`` where there is no such body, or nothing changes.
    """
    body = open_body(graph, path[:2], taken or set())
    if body is None:
        return None
    if len(path) > 2:
        deeper = within(body.graph, path[2:], once, body.taken)
        return None if deeper is None else (*body.put_back(graph, deeper[0])[:2], deeper[2])
    inner = once(body.graph)
    return None if inner is None else body.put_back(graph, inner)


SPEC = StrategySpec("none", "no search: the normal form is all there is", lambda s: Cleaner(), whole=True)
