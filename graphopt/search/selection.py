"""What is left of a search after measurement, and what is left without a family of rules."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from graphopt.ir.edit import RefusedError
from graphopt.ir.graph import Graph
from graphopt.search.culprit import Culprit
from graphopt.search.greedy import Greedy
from graphopt.search.normal import Normal
from graphopt.search.problem import Budget, Outcome, Problem, Step
from graphopt.search.trace import find


@dataclass(frozen=True)
class FamilyVerdict:
    """What the clock said of a family.

    Attributes:
        family: Its name.
        ratio: Latency without the family over latency with it; above 1 the family pays. ``None`` when not measured.
        ci95: Interval of the ratio.
        kept: Whether its rewrites stay.
        predicted: What the ratio was predicted to be; ``None`` where there was no time to ask. Without a ``ratio`` no comparison
            could have seen it, or the last one answers it.
        wrong: Whether it was taken back because the model computes something else with it.
    """

    family: str
    ratio: float | None
    ci95: tuple[float, float] | None
    kept: bool
    predicted: float | None = None
    wrong: bool = False


@dataclass(frozen=True, eq=False)
class Selection:
    """A strategy's outcome after measurement.

    Attributes:
        outcome: What is left.
        problem: The problem without the families that were taken back.
        families: A verdict for each family that was used.
        rounds: How often the search ran, each time with prices that measurements had corrected.
        culprits: Steps that changed what the model computes; their families were taken back.
        losing: Whether a quick look did not see that it gains over where the search started.
    """

    outcome: Outcome
    problem: Problem
    families: tuple[FamilyVerdict, ...]
    rounds: int = 1
    culprits: tuple[Culprit, ...] = ()
    losing: bool = False


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
        families = by_gain(outcome)
        for wrong in [[f] for f in families] + [families[:n] for n in range(2, len(families) + 1)]:
            left, trial = _leaving_out(problem, outcome, graph, budget, wrong)
            settled = not trial.steps or agrees(trial)
            if settled or wrong == families:
                break  # without all of them others may have found a place, so that the question comes up again
        outcome, problem, gone = trial, left, gone + wrong
    return _without_families(selection, outcome, problem, gone)


def leave_out(selection: Selection, graph: Graph, budget: Budget, culprit: Culprit) -> Selection:
    """Leave out the family of a step that changes what the model computes; the rest of the steps stays.

    Args:
        selection: What does not agree.
        graph: Where the search started.
        budget: Of the search.
        culprit: The step.
    """
    problem, outcome = _leaving_out(selection.problem, selection.outcome, graph, budget, [culprit.family])
    left = _without_families(selection, outcome, problem, [culprit.family])
    return replace(left, culprits=(*selection.culprits, culprit))


def without(problem: Problem, graph: Graph, outcome: Outcome, family: str, budget: Budget) -> Outcome:
    """The same steps without those of a family, and what greedy finds in the places that are free then.

    Where they begin with those to the normal form, that is found again, without the family.
    """
    steps = list[Step]()
    if any(step.alone for step in outcome.steps):
        normal = Normal.of(graph, problem)
        graph, steps = normal.graph, [*normal.steps]
    state = problem.start(graph)
    for step in outcome.steps:
        if step.alone or step.inside or step.family == family:
            continue
        match = find(state.sites, step)
        if match is None:
            continue  # it stood on a step of the family
        try:
            after = problem.step(state, match)
        except RefusedError:
            continue
        steps.append(problem.record(state.graph, match, state.cost, after.cost))
        state = after
    if outcome.steps and all(step.alone for step in outcome.steps):
        return replace(outcome, state=state, steps=tuple(steps))
    rest = Greedy().run(problem, state, budget)
    # Candidates, time and the reason to stop are those of the search, of which this is a part.
    return replace(outcome, state=state, steps=tuple(steps)).then(rest)


def lacking(problem: Problem, families: Sequence[str], *, normal: bool = True) -> Problem:
    """The problem without the rules of some families; ``normal`` says whether those of the normal form go as well."""
    rules = [rule.id for rule in problem.library.rules if rule.family in families and (normal or not rule.always)]
    return replace(problem, library=problem.library.without(rules))


def by_gain(outcome: Outcome) -> list[str]:
    """Families used, the one with the smallest predicted saving first: it is the likeliest to lose."""
    gains: dict[str, float] = {}
    for step in outcome.steps:
        gains[step.family] = gains.get(step.family, 0.0) + step.cost_before - step.cost_after
    return sorted(gains, key=lambda f: (gains[f], f))


def _leaving_out(
    problem: Problem, outcome: Outcome, graph: Graph, budget: Budget, families: Sequence[str]
) -> tuple[Problem, Outcome]:
    left = lacking(problem, families)
    for family in families:
        outcome = without(left, graph, outcome, family, budget.again())
    return left, outcome


def _without_families(selection: Selection, outcome: Outcome, problem: Problem, gone: Sequence[str]) -> Selection:
    kept = [v for v in selection.families if v.family not in gone]
    wrong = [FamilyVerdict(family, None, None, False, wrong=True) for family in gone]
    return replace(selection, outcome=outcome, problem=problem, families=(*kept, *wrong))
