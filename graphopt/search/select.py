"""Measurement decides: run a strategy, then take back every rule family that the clock shows to lose.

A sum over kernels does not see all that the runtime does to a graph, and the same family helps one model and hurts the
next. So the graph with all families is measured against the graph without one of them, family by family; the family
goes when the whole interval says that the model is faster without it by more than the luck of a session.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from graphopt.errors import SessionError
from graphopt.ir.graph import Graph
from graphopt.search.arena import LUCK, Arena
from graphopt.search.problem import Budget, Outcome, Problem, State, Strategy

Report = Callable[[str, float | None], None]
"""Told what is being done and the best ratio measured so far."""


@dataclass(frozen=True)
class FamilyVerdict:
    """What the clock said of a family.

    Attributes:
        family: Its name.
        ratio: Latency without the family over latency with it; above 1 the family pays. ``None`` when not measured.
        ci95: Interval of the ratio.
        kept: Whether its rewrites stay.
    """

    family: str
    ratio: float | None
    ci95: tuple[float, float] | None
    kept: bool


@dataclass(frozen=True, eq=False)
class Selection:
    """A strategy's outcome after measurement.

    Attributes:
        outcome: What is left.
        problem: The problem without the families that were taken back.
        families: A verdict for each family that was used.
    """

    outcome: Outcome
    problem: Problem
    families: tuple[FamilyVerdict, ...]


def select(
    problem: Problem,
    strategy: Strategy,
    graph: Graph,
    budget: Budget,
    arena: Arena,
    seconds: float,
    report: Report | None = None,
) -> Selection:
    """Search, then measure families away.

    Args:
        problem: Rules and prices.
        strategy: How to search.
        graph: Where to start.
        budget: Of the search.
        arena: Where to measure.
        seconds: For the measurements.
        report: Hears what is being done.
    """
    tell = report or (lambda message, best: None)

    def searched(p: Problem) -> Outcome:
        return strategy.run(p, p.start(graph), budget, lambda state: tell(_predicted(state), None))

    outcome = searched(problem)
    families = _by_gain(outcome)
    verdicts: list[FamilyVerdict] = []
    clock = Budget(seconds, None, budget.interrupted)
    for index, family in enumerate(families):
        if clock.exhausted() is not None or len(families) == 1:
            verdicts.append(FamilyVerdict(family, None, None, True))
            continue
        tell(f"measuring without {family}", None)
        gone = [r.id for r in problem.library.rules if r.family == family]
        trial_problem = Problem(problem.library.without(gone), problem.cost, problem.block)
        again = Budget(budget.seconds, budget.candidates, budget.interrupted)
        trial = strategy.run(trial_problem, trial_problem.start(graph), again)
        if trial.state.graph.hash == outcome.state.graph.hash:
            verdicts.append(FamilyVerdict(family, 1.0, None, True))
            continue
        share = max(1.0, (seconds - clock.elapsed) / (len(families) - index))
        try:
            paired = arena.pair(trial.state.graph, outcome.state.graph, share)
        except SessionError:
            # One of the two does not run; the family is only safe to keep if it is the smaller graph that fails.
            verdicts.append(FamilyVerdict(family, None, None, False))
            outcome, problem = trial, trial_problem
            continue
        kept = paired.ci95[1] >= 1.0 - LUCK
        verdicts.append(FamilyVerdict(family, paired.speedup, paired.ci95, kept))
        if not kept:
            outcome, problem = trial, trial_problem
    return Selection(outcome, problem, tuple(verdicts))


def _by_gain(outcome: Outcome) -> list[str]:
    """Families used, the one with the smallest predicted saving first: it is the likeliest to lose."""
    gains: dict[str, float] = {}
    for step in outcome.steps:
        gains[step.family] = gains.get(step.family, 0.0) + step.cost_before - step.cost_after
    return sorted(gains, key=lambda f: (gains[f], f))


def _predicted(state: State) -> str:
    return f"searching, predicted {state.cost:.2f} ms"
