"""What each rule does on one model: how often it is tried, found and applied, and what that is predicted to save."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path

from graphopt.config import Settings
from graphopt.cost.kernel import KernelCost
from graphopt.cost.store import Store
from graphopt.ir.graph import Graph
from graphopt.ir.memo import collector_paused
from graphopt.pipeline.opening import config_of
from graphopt.pipeline.prepare import load_model
from graphopt.rewrite.library import Library
from graphopt.rewrite.match import Around, find
from graphopt.rewrite.schema import Rule
from graphopt.search.arena import most_added
from graphopt.search.greedy import Greedy
from graphopt.search.normal import Normal
from graphopt.search.problem import Budget, Outcome, Problem

_MEASURING = 5.0  # seconds for kernels that the store does not know yet


@dataclass(slots=True)
class Tally:
    """What the matcher did for one rule.

    Attributes:
        rule: The rule.
        tries: Nodes at which it started: those with an operator of the pattern's first line.
        hits: Matches found.
        preferred: Matches in which the rule's hints hold (all of them when it has none).
        seconds: Time spent.
    """

    rule: Rule
    tries: int = 0
    hits: int = 0
    preferred: int = 0
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class RuleStats:
    """What one rule did.

    Attributes:
        tally: What matching it on the original graph came to.
        applied: How often the greedy search applied it, which is also possible where an earlier step made room for it.
        gain: Predicted milliseconds that these applications saved, each counted when it was made.
    """

    tally: Tally
    applied: int
    gain: float


@dataclass(frozen=True, eq=False)
class Stats:
    """What the rules of a library did on one model.

    Attributes:
        rules: One entry for each rule, in the order of the library.
        nodes: Nodes of the graph that greedy starts from: the original, simplified.
        outcome: What greedy came to.
        before: Predicted milliseconds of the graph that greedy starts from.
        estimated: Kernels whose price is an estimate, for want of a measurement.
    """

    rules: tuple[RuleStats, ...]
    nodes: int
    outcome: Outcome
    before: float
    estimated: int = 0

    @property
    def after(self) -> float:
        """Predicted milliseconds after the greedy search."""
        return self.outcome.state.cost


def tally(graph: Graph, library: Library, block: int = 16) -> list[Tally]:
    """Find all matches of a graph as :meth:`graphopt.rewrite.sites.Sites.of` does, and count.

    The first look at a graph reads its small constants, at the expense of whichever rule asks first: for times that
    can be compared, look twice.
    """
    found = {rule.id: Tally(rule) for rule in library.rules}
    clock = time.perf_counter
    for node in graph.in_order():
        around = Around.of(graph, node)
        for plan in library.first_plans(node):
            entry = found[plan.rule.id]
            begin = clock()
            matches = list(filter(library.shows, find(graph, plan, node, block, around)))
            entry.seconds += clock() - begin
            entry.tries += 1
            entry.hits += len(matches)
            entry.preferred += sum(match.preferred for match in matches)
    return list(found.values())


def rule_stats(problem: Problem, graph: Graph, budget: Budget) -> Stats:
    """Count what each rule does on a graph."""
    normal = Normal.of(graph, problem)
    start = problem.start(
        normal.graph
    )  # also reads the constants that conditions ask for, so that no rule is charged for it
    with collector_paused():
        tallies = tally(normal.start, problem.library, problem.block)
    outcome = normal.then(Greedy().run(problem, start, budget))
    applied: dict[str, int] = {}
    gains: dict[str, float] = {}
    for step in outcome.steps:
        applied[step.rule] = applied.get(step.rule, 0) + 1
        gains[step.rule] = gains.get(step.rule, 0.0) + step.cost_before - step.cost_after
    rules = (RuleStats(t, applied.get(t.rule.id, 0), gains.get(t.rule.id, 0.0)) for t in tallies)
    return Stats(tuple(rules), len(graph.nodes), outcome, start.cost)


def model_stats(
    path: Path,
    library: Library,
    settings: Settings,
    *,
    seconds: float,
) -> Stats:
    """Count what each rule does on a model, with the prices that `graphopt optimize` would use.

    Where the settings let it measure, kernels that no earlier run has measured are measured for a few seconds. ``seconds`` limits the search.

    Raises:
        GraphoptError: The model can't be loaded.
    """
    config, model = config_of(settings), load_model(path, settings)
    with Store() as store:
        cost = KernelCost(store, config, seconds=_MEASURING, measure=settings.measure, growth=most_added(model))
        found = rule_stats(Problem.where(library, cost, config), model.graph, Budget(seconds))
        return Stats(found.rules, found.nodes, found.outcome, found.before, cost.estimated)
