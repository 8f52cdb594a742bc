"""Measurement decides: run a strategy, then take back every rule family that the clock shows to lose.

A sum over kernels does not see all that the runtime does to a graph, and the same family helps one model and hurts the
next. So the graph with all families is measured against the graph without one of them, family by family; the family
goes when the whole interval says that the model is faster without it by more than the luck of a session.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from graphopt.errors import SessionError
from graphopt.ir.edit import RefusedError
from graphopt.ir.graph import Graph
from graphopt.search.arena import LUCK, Arena
from graphopt.search.greedy import Greedy
from graphopt.search.problem import Budget, Outcome, Problem, State, Step, Strategy
from graphopt.search.trace import find

PATIENCE = 4
"""How much longer to look for the culprit while the graph as a whole is slower than the original."""

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
        wrong: Whether it was taken back because the provider computes something else with it.
    """

    family: str
    ratio: float | None
    ci95: tuple[float, float] | None
    kept: bool
    wrong: bool = False


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

    outcome = _fastest(arena, searched(problem), 0.4 * seconds, tell)
    verdicts: dict[str, FamilyVerdict] = {}
    clock = Budget(None, None, budget.interrupted)
    # A graph that gains has at most a small family that loses; one that does not was let down by what it trusted most.
    losing = bool(outcome.steps) and not _gains(arena, outcome, 0.2 * seconds)
    while True:
        # Without a family others may find their places, so the list is made anew after each one that goes.
        open_questions = [f for f in _by_gain(outcome) if f not in verdicts]
        if not open_questions:
            break
        family = open_questions[-1 if losing else 0]
        if clock.interrupted_now or clock.elapsed >= seconds * (PATIENCE if losing else 1):
            verdicts[family] = FamilyVerdict(family, None, None, True)
            continue
        tell(f"measuring without {family}", None)
        gone = [r.id for r in problem.library.rules if r.family == family]
        trial_problem = replace(problem, library=problem.library.without(gone))
        again = Budget(budget.seconds, budget.candidates, budget.interrupted)
        if isinstance(strategy, Greedy):
            trial = strategy.run(trial_problem, trial_problem.start(graph), again)
        else:
            trial = _without(trial_problem, graph, outcome, family, again)  # a whole search for each family takes too long
        if not trial.steps and len(_by_gain(outcome)) == 1:
            # All or nothing: the final measurement against the original answers this.
            verdicts[family] = FamilyVerdict(family, None, None, True)
            continue
        share = max(1.0, (seconds - clock.elapsed) / (len(open_questions) + 1))
        verdicts[family] = verdict = _compare(arena, family, trial, outcome, share)
        if not verdict.kept:
            outcome, problem = trial, trial_problem
            losing = losing and bool(outcome.steps) and not _gains(arena, outcome, 0.1 * seconds)
    return Selection(outcome, problem, tuple(verdicts.values()))


def take_back(selection: Selection, graph: Graph, budget: Budget, agrees: Callable[[Outcome], bool]) -> Selection:
    """Leave out the families that a provider computes something else with: one if that is enough, else more.

    Args:
        selection: What does not agree.
        graph: Where the search started.
        budget: Of the search.
        agrees: Whether an outcome computes what the original does.
    """
    outcome, problem = selection.outcome, selection.problem
    gone: list[str] = []
    settled = False
    while outcome.steps and not settled:
        families = _by_gain(outcome)
        for wrong in [[f] for f in families] + [families[:n] for n in range(2, len(families) + 1)]:
            rules = [r.id for r in problem.library.rules if r.family in wrong]
            left = replace(problem, library=problem.library.without(rules))
            trial = outcome
            for family in wrong:
                again = Budget(budget.seconds, budget.candidates, budget.interrupted)
                trial = _without(left, graph, trial, family, again)
            settled = not trial.steps or agrees(trial)
            if settled or wrong == families:
                break  # without all of them others may have found a place, so that the question comes up again
        outcome, problem, gone = trial, left, gone + wrong
    kept = [v for v in selection.families if v.family not in gone]
    return Selection(outcome, problem, (*kept, *(FamilyVerdict(f, None, None, False, True) for f in gone)))


def _fastest(arena: Arena, outcome: Outcome, seconds: float, tell: Report) -> Outcome:
    """Of all that a search found, what the clock says is fastest; what is predicted to be, unless another clearly is."""
    best, left = outcome, list(outcome.others)
    for i, other in enumerate(left):
        tell(f"measuring alternative {i + 1} of {len(left)}", None)
        try:
            paired = arena.pair(best.state.graph, other.state.graph, seconds / len(left))
        except SessionError:
            continue
        if paired.ci95[0] > 1.0 + LUCK:
            best = other
    return replace(best, candidates=outcome.candidates, seconds=outcome.seconds, others=())


def _without(problem: Problem, graph: Graph, outcome: Outcome, family: str, budget: Budget) -> Outcome:
    """The same steps without those of a family, and what greedy finds in the places that are free then."""
    state, steps = problem.start(graph), list[Step]()
    for step in outcome.steps:
        if step.family == family:
            continue
        match = find(state.sites, step)
        if match is None:
            continue  # it stood on a step of the family
        try:
            after = problem.step(state, match)
        except RefusedError:
            continue
        steps.append(problem.record(state, match, after))
        state = after
    rest = Greedy().run(problem, state, budget)
    # Candidates, time and the reason to stop are those of the search, of which this is a part.
    return replace(outcome, state=rest.state, steps=(*steps, *rest.steps), others=())


def _gains(arena: Arena, outcome: Outcome, seconds: float) -> bool:
    """Whether a quick look says that the graph is faster than the original."""
    try:
        return arena.pair(None, outcome.state.graph, seconds).speedup > 1.0
    except SessionError:
        return False


def _compare(arena: Arena, family: str, without: Outcome, outcome: Outcome, seconds: float) -> FamilyVerdict:
    """Measure the graph without a family against the graph with it."""
    if without.state.graph.hash == outcome.state.graph.hash:
        return FamilyVerdict(family, 1.0, None, True)
    try:
        paired = arena.pair(without.state.graph, outcome.state.graph, seconds)
    except SessionError:
        # One of the two does not run, and the input did: the smaller change is the safer one.
        return FamilyVerdict(family, None, None, False)
    return FamilyVerdict(family, paired.speedup, paired.ci95, paired.ci95[1] >= 1.0 - LUCK)


def _by_gain(outcome: Outcome) -> list[str]:
    """Families used, the one with the smallest predicted saving first: it is the likeliest to lose."""
    gains: dict[str, float] = {}
    for step in outcome.steps:
        gains[step.family] = gains.get(step.family, 0.0) + step.cost_before - step.cost_after
    return sorted(gains, key=lambda f: (gains[f], f))


def _predicted(state: State) -> str:
    return f"searching, predicted {state.cost:.2f} ms"
