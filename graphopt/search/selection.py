"""What is left of a search after measurement: without a family of rules, without a step that does harm, in the form in which it is written."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

from graphopt.ir.delta import RefusedError
from graphopt.ir.graph import Graph
from graphopt.ir.memo import collector_paused
from graphopt.runtime.timing import Paired
from graphopt.search.arena import Arena
from graphopt.search.cleaning import flat_form
from graphopt.search.effort import Purse
from graphopt.search.greedy import Greedy
from graphopt.search.normal import Normal
from graphopt.search.problem import LEEWAY, Budget, Outcome, Problem, Step
from graphopt.search.trace import find

_SLOWER = 0.99  # a quick comparison errs; by how much a smaller graph may seem slower and still go to the last one


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


@dataclass(frozen=True)
class Culprit:
    """A step that did harm.

    Attributes:
        step: Its number, from 1.
        rule: Its rule.
        family: The family of the rule.
        node: Name of the value that it redefined.
        message: What is wrong after it.
    """

    step: int
    rule: str
    family: str
    node: str
    message: str


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


def first_harm(steps: int, harm: Callable[[int, int], str], wrong: str = "") -> tuple[int, str, int]:
    """The first step after which something is wrong: by halving, as a graph can be made again after any number of steps.

    Args:
        steps: How many there are.
        harm: Says what is wrong after so many steps (the second number) that was not after as many as the first; empty for nothing.
        wrong: What is wrong after all of them, if that has been asked.

    Returns:
        Its number, from 1 (0 for no step), what is wrong after it, and how often ``harm`` was asked.
    """
    low, high, asked = 0, steps, 0
    if not wrong:
        wrong, asked = (harm(low, high) if high else ""), 1
    if not wrong:
        return 0, "", asked
    while high - low > 1:
        middle, asked = (low + high) // 2, asked + 1
        found = harm(low, middle)
        if found:
            high, wrong = middle, found
        else:
            low = middle
    return high, wrong, asked


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
    """What was found in the form in which it is best written: what rules that come last make of it, where that is better.

    The runtime wraps each linear layer on three dimensions into Reshape, Gemm, Reshape, and leaves all of these; in the flat form a stack
    of layers is a stack of Gemms. Rules know the form with three dimensions, so a search is over before it is made.

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
