"""The form in which a model is written: what rules that come last make of what a search found, where that is better.

The runtime wraps each linear layer on three dimensions into Reshape, Gemm, Reshape, and leaves all of these; in the flat form a stack
of layers is a stack of Gemms. Rules know the form with three dimensions, so a search is over before it is made.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial

from graphopt.ir.graph import Graph
from graphopt.ir.memo import collector_paused
from graphopt.runtime.timing import Paired
from graphopt.search.arena import Arena
from graphopt.search.cleaning import flat_form
from graphopt.search.effort import Purse
from graphopt.search.problem import LEEWAY, Problem
from graphopt.search.selection import FamilyVerdict, Selection

_SLOWER = 0.99  # a quick comparison errs; by how much a smaller graph may seem slower and still go to the last one


@dataclass(frozen=True, eq=False)
class Clock:
    """Where the two forms are compared, and what that may spend."""

    arena: Arena
    purse: Purse

    def pair(self, before: Graph, after: Graph) -> Paired | None:
        """A quick comparison; ``None`` where one of the two does not run."""
        amount = max(self.purse.least, self.purse.plan.look * self.purse.left)
        return self.purse.pay(amount, partial(self.arena.pair, before, after))


def flattened(selection: Selection, clock: Clock | None = None) -> Selection:
    """What was found in the form in which it is best written.

    Args:
        selection: What was found, with the rules and prices that it was found with.
        clock: Compares the two forms; without one the prices do.

    Returns:
        The selection with the steps to the flat form, where that has fewer nodes and is no slower; else as it was.
    """
    outcome, problem = selection.outcome, selection.problem
    before = outcome.state.graph
    with collector_paused():
        graph, made = flat_form(before, problem.library, problem.block)
    if graph.live_nodes() >= before.live_nodes():
        return selection
    # Both priced now: what was measured in the meantime may have corrected the prices.
    old, costs = problem.cost.of(before), problem.cost.of(graph)
    if clock is None:
        verdicts: tuple[FamilyVerdict, ...] = ()
        better = costs.total <= old.total * (1 + LEEWAY)
    else:
        paired = clock.pair(before, graph)
        better = paired is not None and paired.speedup >= _SLOWER
        verdicts = () if paired is None else _verdicts(problem, paired, better, old.total / costs.total)
    told = replace(selection, families=(*selection.families, *verdicts))
    if not better:
        return told
    cost = outcome.state.cost
    steps = [replace(problem.record(step.graph, step.match, cost, cost), alone=True) for step in made]
    state = problem.priced(graph, costs)
    return replace(told, outcome=replace(outcome, state=state, steps=(*outcome.steps, *steps)))


def _verdicts(problem: Problem, paired: Paired, kept: bool, predicted: float) -> tuple[FamilyVerdict, ...]:
    families = dict.fromkeys(rule.family for rule in problem.library.rules if rule.last)
    return tuple(FamilyVerdict(family, paired.speedup, paired.ci95, kept, predicted) for family in families)
