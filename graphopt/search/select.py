"""Measurement decides: of what a search found, keep what the clock says is fastest.

A sum over kernels does not see all that the runtime does to a graph, and the same family of rules helps one model and hurts the
next. So the best few graphs are measured against each other, then the best with all its families against the same without one of
them, family by family; a family goes when the whole interval says that the model is faster without it by more than the luck of
a session. Where a pair contradicts the prediction, the prices are corrected, and as long as there is time the search goes on
with the new prices.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from graphopt.errors import SessionError
from graphopt.ir.edit import RefusedError
from graphopt.ir.graph import Graph
from graphopt.rewrite.library import Library
from graphopt.runtime.timing import Paired
from graphopt.search.arena import LUCK, Arena
from graphopt.search.culprit import Culprit
from graphopt.search.greedy import Greedy
from graphopt.search.normal import Normal
from graphopt.search.problem import Budget, Outcome, Problem, State, Step, Strategy
from graphopt.search.trace import find

PATIENCE = 4
"""How much longer to look for the culprit while the graph as a whole is slower than the original."""

SHARE = 0.6
"""Of what is left of the time, how much a round may use: the rest is for rounds with corrected prices."""

_LEAST = 1.0  # seconds for a comparison to mean anything

Report = Callable[[str, float | None], None]
"""Told what is being done and the best ratio measured so far."""

Better = Callable[[int, State], None]
"""Told the number of the round, from 1, and a state: prices of different rounds can't be compared."""


@dataclass(frozen=True)
class FamilyVerdict:
    """What the clock said of a family.

    Attributes:
        family: Its name.
        ratio: Latency without the family over latency with it; above 1 the family pays. ``None`` when not measured.
        ci95: Interval of the ratio.
        kept: Whether its rewrites stay.
        predicted: What the ratio was predicted to be; ``None`` when not measured.
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
    """

    outcome: Outcome
    problem: Problem
    families: tuple[FamilyVerdict, ...]
    rounds: int = 1
    culprits: tuple[Culprit, ...] = ()


def select(
    problem: Problem,
    strategy: Strategy,
    graph: Graph,
    budget: Budget,
    arena: Arena,
    seconds: float,
    report: Report | None = None,
    better: Better | None = None,
) -> Selection:
    """Search, measure, correct the prices, and search again while there is time and something was learned.

    Args:
        problem: Rules and prices.
        strategy: How to search.
        graph: Where to start.
        budget: Of the search, all rounds together.
        arena: Where to measure.
        seconds: For the measurements, all rounds together.
        report: Hears what is being done.
        better: Hears of every better state of every round, of where it started and of where it ended.
    """
    tell, hear = report or (lambda message, best: None), better or (lambda number, state: None)
    judge = _Judge(problem, strategy, graph, budget, arena, seconds, tell, hear)
    best = judge.round(problem)
    seen = {graph.hash, best.outcome.state.graph.hash}
    while judge.learned and not judge.over():
        judge.learned = False
        found = judge.search(best.problem)
        if found.state.graph.hash in seen:
            break
        seen.add(found.state.graph.hash)
        if judge.faster(best.outcome, found, SHARE * judge.left):
            best = judge.settle(best.problem, found, best.families)
            seen.add(best.outcome.state.graph.hash)
    return replace(best, rounds=judge.rounds)


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


def _leaving_out(
    problem: Problem, outcome: Outcome, graph: Graph, budget: Budget, families: Sequence[str]
) -> tuple[Problem, Outcome]:
    rules = [r.id for r in problem.library.rules if r.family in families]
    left = replace(problem, library=problem.library.without(rules))
    for family in families:
        again = Budget(budget.seconds, budget.candidates, budget.interrupted)
        outcome = _without(left, graph, outcome, family, again)
    return left, outcome


def _without_families(selection: Selection, outcome: Outcome, problem: Problem, gone: Sequence[str]) -> Selection:
    kept = [v for v in selection.families if v.family not in gone]
    wrong = [FamilyVerdict(family, None, None, False, wrong=True) for family in gone]
    return replace(selection, outcome=outcome, problem=problem, families=(*kept, *wrong))


class _Judge:
    """Searches and measures for :func:`select`, within its time."""

    def __init__(
        self,
        problem: Problem,
        strategy: Strategy,
        graph: Graph,
        budget: Budget,
        arena: Arena,
        seconds: float,
        tell: Report,
        hear: Better,
    ) -> None:
        self.strategy, self.graph, self.budget, self.arena = strategy, graph, budget, arena
        self.hear, self.rounds = hear, 0
        self.best: float | None = None  # the last ratio measured over the original
        self._tell = tell
        self.start = problem.start(graph)
        self.cost = problem.cost
        self.seconds = seconds
        self.clock = Budget(None, None, budget.interrupted)
        self.searched = self.elsewhere = 0.0
        self.dear = 0.0  # seconds of the dearest comparison: opening a large model takes longer than running it
        self.spent = 0
        self.learned = False

    def tell(self, message: str) -> None:
        """Report what is being done."""
        self._tell(message, self.best)

    @property
    def left(self) -> float:
        """Seconds left for measurements."""
        return max(0.0, self.seconds - (self.clock.elapsed - self.elsewhere))

    def over(self) -> bool:
        """Whether there is no time for another round."""
        return (
            self.budget.interrupted_now
            or self.left <= 0.1 * self.seconds
            or (self.budget.seconds is not None and self.searched >= 0.9 * self.budget.seconds)
            or (self.budget.candidates is not None and self.spent >= self.budget.candidates)
        )

    def search(self, problem: Problem) -> Outcome:
        """Run the strategy in a part of what is left of the search's time."""
        whole = self.budget
        seconds = None if whole.seconds is None else SHARE * (whole.seconds - self.searched)
        candidates = None if whole.candidates is None else whole.candidates - self.spent
        budget = Budget(seconds, candidates, whole.interrupted, lambda: self.cost.spent)
        began = time.monotonic()
        self.rounds += 1

        least = math.inf

        def heard(state: State) -> None:
            nonlocal least
            least = min(least, state.cost)
            # Corrected prices are other prices: next to the first ones a figure would seem to rise.
            predicted = (
                f", predicted {least:.2f} ms" if self.rounds == 1 else f" with measured prices, round {self.rounds}"
            )
            self.tell(f"searching{predicted}")
            self.hear(self.rounds, state)

        start = problem.start(self.graph)
        self.hear(self.rounds, start)
        found = self.strategy.run(problem, start, budget, heard)
        self.hear(self.rounds, found.state)
        self.searched += budget.elapsed
        self.elsewhere += time.monotonic() - began
        self.spent += budget.spent
        return found

    def round(self, problem: Problem) -> Selection:
        """Search, and settle what was found."""
        return self.settle(problem, self.search(problem), ())

    def settle(self, problem: Problem, outcome: Outcome, verdicts: tuple[FamilyVerdict, ...]) -> Selection:
        """Keep the fastest of what a search found, without the families that lose."""
        seconds = SHARE * self.left
        outcome = self._fastest(outcome, 0.4 * seconds)
        asked = {v.family: v for v in verdicts}
        clock = Budget(None, None, self.budget.interrupted)
        # A graph that gains has at most a small family that loses; one that does not was let down by what it trusted most.
        losing = bool(outcome.steps) and not self._gains(outcome, 0.2 * seconds)
        while True:
            # Without a family others may find their places, so the list is made anew after each one that goes.
            questions = [f for f in _by_gain(outcome) if f not in asked]
            if not questions:
                break
            family = questions[-1 if losing else 0]
            if clock.exhausted() or clock.elapsed + self.dear > seconds * (PATIENCE if losing else 1):
                asked[family] = FamilyVerdict(family, None, None, True)
                continue
            self.tell(f"measuring without {family}")
            smaller = replace(problem, library=problem.library.without(_searched(problem.library, family)))
            budget = Budget(self.budget.seconds, self.budget.candidates, self.budget.interrupted)
            if isinstance(self.strategy, Greedy):
                trial = self.strategy.run(smaller, smaller.start(self.graph), budget)
            else:
                trial = _without(smaller, self.graph, outcome, family, budget)  # a whole search for each takes too long
            if not trial.steps and len(_by_gain(outcome)) == 1:
                # All or nothing: the final measurement against the original answers this.
                asked[family] = FamilyVerdict(family, None, None, True)
                continue
            share = max(_LEAST, (seconds - clock.elapsed) / (len(questions) + 1))
            asked[family] = verdict = self._compare(family, trial, outcome, share)
            if not verdict.kept:
                outcome, problem = trial, smaller
                losing = losing and bool(outcome.steps) and not self._gains(outcome, 0.1 * seconds)
        return Selection(outcome, problem, tuple(asked.values()))

    def faster(self, best: Outcome, other: Outcome, seconds: float) -> bool:
        """Whether another outcome is clearly faster than the best."""
        found = self._pair(best.state, other.state, seconds)
        return found is not None and found[0].ci95[0] > 1.0 + LUCK

    def _pair(self, one: State, two: State, seconds: float, original: bool = False) -> tuple[Paired, float] | None:
        """Measure two states, and correct the prices where they differ.

        Returns:
            The measurement and the ratio that was predicted; ``None`` when one of the two does not run.
        """
        began = time.monotonic()
        try:
            paired = self.arena.pair(None if original else one.graph, two.graph, seconds)
        except SessionError:
            return None
        finally:
            self.dear = max(self.dear, time.monotonic() - began)
        # States may have been priced before a correction: only prices of the same moment can be compared.
        before, after = self.cost.of(one.graph), self.cost.of(two.graph)
        self.learned |= self.cost.correct((one.graph, before), (two.graph, after), paired.speedup, paired.ci95)
        return paired, before.total / after.total if after.total else 1.0  # nothing is left to compute

    def _fastest(self, outcome: Outcome, seconds: float) -> Outcome:
        """Of all that a search found, what the clock says is fastest; what is predicted to be, unless another clearly is.

        A comparison is only begun if there is time for the dearest one so far. What was not compared stays in ``others``.
        """
        best, left, count = outcome, list(outcome.others), len(outcome.others)
        clock = Budget(seconds, None, self.budget.interrupted)
        while left and not clock.interrupted_now and clock.elapsed + self.dear <= seconds:
            self.tell(f"measuring alternative {count - len(left) + 1} of {count}")
            other = left.pop(0)
            if self.faster(best, other, max(_LEAST, seconds / count)):
                best = other
        return replace(
            best, candidates=outcome.candidates, seconds=outcome.seconds, waiting=outcome.waiting, others=tuple(left)
        )

    def _gains(self, outcome: Outcome, seconds: float) -> bool:
        """Whether a quick look says that the graph is faster than the original."""
        found = self._pair(self.start, outcome.state, seconds, original=True)
        self.best = self.best if found is None else found[0].speedup
        return found is not None and found[0].speedup > 1.0

    def _compare(self, family: str, without: Outcome, outcome: Outcome, seconds: float) -> FamilyVerdict:
        """Measure the graph without a family against the graph with it."""
        if without.state.graph.hash == outcome.state.graph.hash:
            return FamilyVerdict(family, 1.0, None, True, 1.0)
        found = self._pair(without.state, outcome.state, seconds)
        if found is None:
            # One of the two does not run, and the input did: the smaller change is the safer one.
            return FamilyVerdict(family, None, None, False)
        paired, predicted = found
        return FamilyVerdict(family, paired.speedup, paired.ci95, paired.ci95[1] >= 1.0 - LUCK, predicted)


def _without(problem: Problem, graph: Graph, outcome: Outcome, family: str, budget: Budget) -> Outcome:
    """The same steps without those of a family, and what greedy finds in the places that are free then.

    Where they begin with those to the normal form, that is found again, without the family.
    """
    steps = list[Step]()
    if any(step.alone for step in outcome.steps):
        normal = Normal.of(graph, problem)
        graph, steps = normal.graph, [*normal.steps]
    state = problem.start(graph)
    for step in outcome.steps:
        if step.alone or step.family == family:
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


def _searched(library: Library, family: str) -> list[str]:
    """The rules of a family but those of the normal form, about which the clock is not asked."""
    return [rule.id for rule in library.rules if rule.family == family and not rule.always]


def _by_gain(outcome: Outcome) -> list[str]:
    """Families used, the one with the smallest predicted saving first: it is the likeliest to lose."""
    gains: dict[str, float] = {}
    for step in outcome.steps:
        gains[step.family] = gains.get(step.family, 0.0) + step.cost_before - step.cost_after
    return sorted(gains, key=lambda f: (gains[f], f))
