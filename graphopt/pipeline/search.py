"""Stage 2, ``search``: price the model, search, and keep of what was found what the clock says is fastest."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

from graphopt.config import provider_name
from graphopt.cost.models import COST_MODELS, Wanted
from graphopt.cost.store import Store
from graphopt.ir.graph import Graph
from graphopt.pipeline.context import Context
from graphopt.search.arena import most_added
from graphopt.search.normal import Cleaner, Normal
from graphopt.search.problem import Budget, Problem, State
from graphopt.search.select import Better, select
from graphopt.search.selection import Clock, Selection, flattened

Point = tuple[int, float, float]
Curve = tuple[Point, ...]
"""See :class:`graphopt.report.optimization.Found`."""


@dataclass(frozen=True, eq=False)
class Searched:
    """What the search left.

    Attributes:
        selection: The best that was found.
        budget: What the search could spend, and has spent.
        curve: How the search came there.
        predicted: How many times as fast as the normal form it is by the prices as they are at the end; ``None`` where one of them costs nothing.
        plain: Makes the same of the normal form, where something else was found: what is left if that loses.
    """

    selection: Selection
    budget: Budget
    curve: Curve
    predicted: float | None
    plain: Callable[[], Searched] | None = None


def search(context: Context) -> Searched:
    """Search within the effort, from the normal form of the context's start."""
    effort, curve = context.effort, list[Point]()
    if context.settings.measure and (distance := context.arena.distance) is not None:
        distance.wait_for(effort.waiting_s, lambda: context.clock.interrupted_now)
    with Store() as store:
        cost = COST_MODELS.ready(context.settings.cost_model).make(
            Wanted(
                store,
                context.config,
                context.settings.measure,
                effort.pricing_s,
                effort.kernels,
                context.sizes,
                growth=most_added(context.loaded, context.settings.max_memory_growth),
            )
        )
        problem = Problem.where(context.library, cost, context.config)
        budget = effort.searching(context.clock.interrupted)
        normal = Normal.after(context.start, problem, None if context.strategy.name == Cleaner.name else budget)

        def better(number: int, state: State) -> None:
            curve.append((number, budget.elapsed, state.cost))

        purse, plan = effort.comparing(), effort.plan

        def done() -> float:
            searched = budget.spent / budget.candidates if budget.candidates else 0.0
            return plan.done(searched, purse.spent / purse.limit)

        context.tell("search", "pricing the model", done=0.0)
        if context.settings.measure:
            found = select(
                problem,
                context.strategy,
                normal.graph,
                budget,
                context.arena,
                purse,
                lambda message, best: context.tell("search", message, best, done()),
                better,
            )
            clock = Clock(context.arena, purse) if purse.fits else None
        else:
            clock, found = None, _predicted(context, problem, normal.graph, budget, better)
        # What the form is worth is known for the CPU; elsewhere the clock must say so.
        known, result = provider_name(context.config.provider) == "cpu", found
        if not context.clock.interrupted_now and (clock is not None or known):
            result = flattened(found, clock)
        searched = _searched(result, normal, budget, curve)
        if not context.settings.measure or not found.outcome.steps:
            return searched
        slower = result is not found and result.outcome is found.outcome  # the flat form
        return replace(searched, plain=partial(_plain, found, normal, budget, curve, known and not slower))


def _searched(selection: Selection, normal: Normal, budget: Budget, curve: Sequence[Point]) -> Searched:
    """What was found from the normal form, with all steps from the start."""
    outcome, cost = selection.outcome, selection.problem.cost
    before, after = (cost.of(graph).total for graph in (normal.graph, outcome.state.graph))
    predicted = before / after if before and after else None
    return Searched(replace(selection, outcome=normal.then(outcome)), budget, tuple(curve), predicted)


def _plain(found: Selection, normal: Normal, budget: Budget, curve: Sequence[Point], flat: bool) -> Searched:
    """The normal form, as matrices if it may be, in place of what was found from it."""
    state = found.problem.priced(normal.graph, found.problem.cost.of(normal.graph))
    families = tuple(replace(family, kept=False) for family in found.families)
    outcome = replace(found.outcome, state=state, steps=(), others=(), waiting=0)
    bare = replace(found, outcome=outcome, families=families)
    return _searched(flattened(bare) if flat else bare, normal, budget, curve)


def _predicted(context: Context, problem: Problem, graph: Graph, budget: Budget, better: Better) -> Selection:
    """What the search alone finds, where nothing may be measured."""
    least = math.inf

    def heard(state: State) -> None:
        nonlocal least
        least = min(least, state.cost)
        context.tell("search", f"searching, predicted {least:.2f} ms", done=context.effort.plan.done())
        better(1, state)

    start = problem.start(graph)
    better(1, start)
    outcome = context.strategy.run(problem, start, budget, heard)
    better(1, outcome.state)
    return Selection(outcome, problem, ())
