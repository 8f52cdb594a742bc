"""Measurement decides: of what a search found, keep what the clock says is fastest.

A sum over kernels does not see all that the runtime does to a graph, and the same family of rules helps one model and hurts the
next. So the best few graphs are measured against each other, then the best with all its families against the same without one of
them, family by family; a family goes when the whole interval says that the model is faster without it by more than the luck of
a session. Graphs that hardly differ are not compared: noise would decide. Where a pair contradicts the prediction, the prices are
corrected, and as long as there is something left to spend the search goes on with the new prices; a family that went comes back
once, for the places where it pays by these.

:class:`_Searches` runs the strategy, :class:`_Clock` compares graphs, both within what they may spend (:mod:`graphopt.search.effort`).
"""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial

from graphopt.cost.base import CostModel, Costs
from graphopt.errors import SessionError
from graphopt.ir.graph import Graph
from graphopt.runtime.providers import on_host
from graphopt.runtime.timing import Paired, Ratio
from graphopt.search.arena import Arena
from graphopt.search.effort import LEAST_ROUNDS, Purse
from graphopt.search.greedy import Greedy
from graphopt.search.problem import Budget, Outcome, Problem, State, Strategy
from graphopt.search.selection import FamilyVerdict, Selection, by_gain, lacking, without

Tell = Callable[[str, float | None], None]
"""Told what is being done and the best ratio measured so far."""

Better = Callable[[int, State], None]
"""Told the number of the round, from 1, and a state: prices of different rounds can't be compared."""

_DOUBT, _DOUBT_ELSEWHERE = 0.02, 0.1
"""Standard deviation of the logarithm of what a family is predicted to gain, about what it gains: on the processor, and on other devices."""
_TRIFLE = 0.003
"""What a family may lose and stay: to take it away costs more questions."""
_AT_LEAST = 0.01
"""What a family must gain that makes the weights larger. How much of the caches is there to hold them depends on what else runs: a SqueezeNet with
two layers in Winograd's form, 1.2 % faster than its input when it was written, was 2 to 4 % slower from half an hour later on."""
_APART = 0.05
"""Share of the time that must go into different kernels for two graphs to be compared: a price errs by a part of itself, and a
comparison of ten rounds by two per cent."""


def select(
    problem: Problem,
    strategy: Strategy,
    graph: Graph,
    budget: Budget,
    arena: Arena,
    purse: Purse,
    report: Tell | None = None,
    better: Better | None = None,
) -> Selection:
    """Search, measure, correct the prices, and search again while there is something left to spend and something was learned.

    Args:
        problem: Rules and prices.
        strategy: How to search.
        graph: Where to start.
        budget: Of the search, all rounds together.
        arena: Where to measure.
        purse: Of the measurements, all rounds together.
        report: Hears what is being done.
        better: Hears of every better state of every round, of where it started and of where it ended.
    """
    tell, hear = report or (lambda message, best: None), better or (lambda number, state: None)
    clock = _Clock(arena, problem.cost, purse, budget, tell)
    searches = _Searches(strategy, graph, budget, purse, clock, hear)
    best = _settle(searches, clock, problem, searches.run(problem), ())
    seen, back = {graph.hash, best.outcome.state.graph.hash}, set[str]()
    while clock.learned and not (searches.over or purse.closed):
        clock.learned = False
        # A family goes as a whole: some of its places may pay all the same, and the corrected prices say which.
        once = {v.family for v in best.families if not v.kept and v.ratio is not None} - back
        back |= once
        lost = [v.family for v in best.families if not v.kept and v.family not in once]
        whole = lacking(problem, lost, normal=False) if once else best.problem
        found = searches.run(whole)
        if found.state.graph.hash in seen:
            break
        seen.add(found.state.graph.hash)
        if clock.faster(best.outcome, found, purse.plan.round * purse.left):
            asked = once & set(by_gain(found))
            verdicts = tuple(v for v in best.families if v.family not in asked)
            settled = _settle(searches, clock, whole, found, verdicts)
            seen.add(settled.outcome.state.graph.hash)
            # Quick looks can contradict each other: what loses to the start is no better than what gained over it.
            if best.losing or not settled.losing:
                best = settled
    return replace(best, rounds=searches.rounds)


@dataclass
class _Searches:
    """Runs the strategy, round by round, each in a part of what is left.

    Attributes:
        rounds: Searches so far.
    """

    strategy: Strategy
    graph: Graph
    whole: Budget
    purse: Purse
    clock: _Clock
    hear: Better
    rounds: int = 0
    _seconds: float = 0.0

    @property
    def over(self) -> bool:
        """Whether there is nothing left for another round."""
        whole, end = self.whole, 1 - self.purse.plan.end
        return whole.interrupted_now or (
            (whole.seconds is not None and self._seconds >= end * whole.seconds)
            or (whole.candidates is not None and whole.spent >= end * whole.candidates)
        )

    def run(self, problem: Problem) -> Outcome:
        """Search once."""
        began = time.monotonic()
        self.rounds += 1
        start = problem.start(self.graph)  # what it takes to price and match the whole model is none of the search's
        self.hear(self.rounds, start)
        budget = self._part()
        least = math.inf

        def heard(state: State) -> None:
            nonlocal least
            least = min(least, state.cost)
            # Corrected prices are other prices: next to the first ones a figure would seem to rise.
            first = self.rounds == 1
            predicted = f", predicted {least:.2f} ms" if first else f" with measured prices, round {self.rounds}"
            self.clock.tell(f"searching{predicted}")
            self.hear(self.rounds, state)

        found = self.strategy.run(problem, start, budget, heard)
        self.hear(self.rounds, found.state)
        self._seconds += budget.elapsed
        self.whole.spent += budget.spent
        self.purse.set_aside(time.monotonic() - began)
        return found

    def _part(self) -> Budget:
        whole, share = self.whole, self.purse.plan.round
        seconds = None if whole.seconds is None else share * (whole.seconds - self._seconds)
        candidates = None
        if whole.candidates is not None:
            candidates = math.ceil(share * max(0, whole.candidates - whole.spent))
        return Budget(seconds, candidates, whole.interrupted, lambda: self.clock.cost.spent, least=whole.least)


@dataclass
class _Clock:
    """Compares graphs by the clock, and corrects prices that it contradicts.

    Attributes:
        learned: Whether a price has changed; whoever acts upon it sets it back.
        best: The last ratio measured over where the search started.
        told: What graphs that ran together say of each two of them, by their hashes; whoever asks for a pair takes it away.
    """

    arena: Arena
    cost: CostModel
    purse: Purse
    budget: Budget
    report: Tell
    learned: bool = False
    best: float | None = None
    told: dict[tuple[int, int], Paired] = field(default_factory=dict)

    def tell(self, message: str) -> None:
        """Report what is being done."""
        self.report(message, self.best)

    def pair(self, one: Graph, two: Graph, amount: float) -> tuple[Paired, float] | None:
        """Measure two graphs, and correct the prices where they differ.

        Args:
            one: The first.
            two: The second.
            amount: What it may spend of the purse.

        Returns:
            The measurement and the ratio that was predicted; ``None`` when one of the two does not run.
        """
        paired = self.told.pop((one.hash, two.hash), None)
        if paired is None:
            paired = self.purse.pay(amount, partial(self.arena.pair, one, two))
        if paired is None:
            return None
        # They may have been priced before a correction: only prices of the same moment can be compared.
        before, after = self.cost.of(one), self.cost.of(two)
        self.learned |= self.cost.correct((one, before), (two, after), paired.speedup, paired.ci95)
        return paired, _speedup(before.total, after.total)

    def together(self, graphs: Sequence[Graph], amount: float) -> None:
        """Run graphs of which pairs will be asked for in the same rounds: each is opened and run once, not once for every pair.

        Args:
            graphs: The graphs, the most important first: as many are taken as there is memory and time for. What does not run with the
                others, or does not run, is compared in pairs.
            amount: What it may spend of the purse.
        """
        self.told = {}
        purse = self.purse
        # In seconds a half: as long for each question as in pairs. In rounds each counts, though it takes half of the time.
        if purse.rounds is None:
            amount = min(amount / 2, purse.room)
        fits = 2 * amount / max(purse.dear if purse.rounds is None else LEAST_ROUNDS, 1e-9)
        seats = int(max(0, min(self.arena.seats, fits)))
        chosen = list({graph.hash: graph for graph in graphs}.values())[:seats]
        count = len(chosen)
        if count < 3:
            return
        seconds, rounds = purse.share(amount if purse.rounds is None else amount / count)
        before, measured = purse.spent, None
        with suppress(SessionError):
            measured = self.arena.together(chosen, seconds, rounds, lambda: self.budget.interrupted_now)
        purse.take(before, 0 if measured is None else measured.rounds, count - 1)
        if measured is not None:
            pairs = itertools.permutations(range(count), 2)
            self.told = {(chosen[i].hash, chosen[j].hash): measured.pair(i, j) for i, j in pairs}

    def knows(self, one: Graph, two: Graph) -> bool:
        """Whether a comparison costs nothing any more."""
        return (one.hash, two.hash) in self.told

    def apart(self, one: Graph, two: Graph) -> float:
        """Share of the time of a graph that goes into kernels, or conversions, that another one does not have; the larger of the two shares."""
        costs = self.cost.of(one), self.cost.of(two)

        def own(mine: Costs, other: Costs) -> float:
            times = mine.by_node
            alone = sum(times[id] for id, price in mine.prices.items() if other.prices.get(id) != price)
            return alone / mine.total if mine.total else 0.0

        return max(own(*costs), own(*costs[::-1]))

    def faster(self, best: Outcome, other: Outcome, amount: float) -> bool:
        """Whether another outcome is clearly faster than the best."""
        found = self.pair(best.state.graph, other.state.graph, amount)
        return found is not None and found[0].ratio.verdict == "faster"

    def gains(self, start: Graph, outcome: Outcome, amount: float) -> bool:
        """Whether a quick look says that the graph is faster than where the search started; where it can't tell a loss from noise, a second one.

        To take a loss for one asks about all families, which costs more than a look. The original is left to the last measurement: what the
        runtime makes of it is in no price of the search's, and the start may be faster than both.
        """
        looks = list[Paired]()
        while len(looks) < 2 and not (looks and (looks[0].speedup > 1.0 or looks[0].ratio.verdict == "slower")):
            found = self.pair(start, outcome.state.graph, amount)
            if found is None:
                return False
            looks.append(found[0])
        surest = min(looks, key=lambda look: look.ratio.half_width)
        self.best = surest.speedup
        return surest.speedup > 1.0

    def fastest(self, outcome: Outcome, amount: float) -> Outcome:
        """Of all that a search found, what the clock says is fastest; what is predicted to be, unless another clearly is.

        A comparison is only begun if there is enough for the dearest one so far. What was not compared stays in ``others``.
        """
        best, left, count = outcome, list(outcome.others), len(outcome.others)
        purse = self.purse
        began = purse.spent
        while left and not self.budget.interrupted_now:
            one, two = best.state.graph, left[0].state.graph
            if not self.knows(one, two) and purse.dear > min(amount - (purse.spent - began), purse.room):
                break
            other = left.pop(0)
            if self.apart(one, two) < _APART:
                continue
            self.tell(f"measuring alternative {count - len(left)} of {count}")
            if self.faster(best, other, max(purse.least, amount / count)):
                best = other
        return replace(
            best, candidates=outcome.candidates, seconds=outcome.seconds, waiting=outcome.waiting, others=tuple(left)
        )

    def family(self, family: str, trial: Outcome, outcome: Outcome, amount: float) -> FamilyVerdict:
        """Measure the graph without a family (``trial``) against the graph with it."""
        if trial.state.graph.hash == outcome.state.graph.hash:
            return FamilyVerdict(family, 1.0, None, True, 1.0)
        found = self.pair(trial.state.graph, outcome.state.graph, amount)
        if found is None:
            # One of the two does not run, and the input did: the smaller change is the safer one.
            return FamilyVerdict(family, None, None, False)
        paired, predicted = found
        weights = [self.cost.of(each.state.graph).sums.bytes for each in (trial, outcome)]
        least = _AT_LEAST if weights[0] < weights[1] else -_TRIFLE
        doubt = _DOUBT if on_host(self.arena.config.provider, self.arena.config.provider_options) else _DOUBT_ELSEWHERE
        kept = paired.ratio.verdict != "slower" and _believed(paired.ratio, predicted, doubt) > least
        return FamilyVerdict(family, paired.speedup, paired.ci95, kept, predicted)


def _settle(
    searches: _Searches, clock: _Clock, problem: Problem, outcome: Outcome, verdicts: tuple[FamilyVerdict, ...]
) -> Selection:
    """Keep the fastest of what a search found, without the families that lose."""
    purse, plan = clock.purse, clock.purse.plan
    amount = plan.round * purse.left
    asked = {v.family: v for v in verdicts}
    start, first = searches.graph, outcome
    trials = _side_by_side(searches, clock, problem, outcome, [f for f in by_gain(outcome) if f not in asked])
    if clock.told:
        amount /= 2
    outcome = clock.fastest(outcome, plan.alternatives * amount)
    if outcome.state is not first.state:
        trials.clear()
    began = purse.spent
    # A graph that gains has at most a small family that loses; one that does not was let down by what it trusted most.
    looked = bool(outcome.steps) and (purse.fits or clock.knows(start, outcome.state.graph))
    losing = looked and not clock.gains(start, outcome, plan.look * amount)
    # Without a family others may find their places, so the list is made anew after each one that goes.
    while questions := [f for f in by_gain(outcome) if f not in asked]:
        family = questions[-1 if losing else 0]
        used, known = purse.spent - began, trials.get(family)
        most = min(amount * (plan.patience if losing else 1), used + purse.room)
        free = known is not None and clock.knows(known[1].state.graph, outcome.state.graph)
        if clock.budget.interrupted_now or not (free or used + purse.dear <= most):
            asked[family] = FamilyVerdict(family, None, None, True)
            continue
        smaller, trial = known or _trial(searches, problem, outcome, family)
        # All or nothing: the final measurement against the original answers this.
        last = not trial.steps and len(by_gain(outcome)) == 1
        if last or (not losing and clock.apart(trial.state.graph, outcome.state.graph) < _APART):
            asked[family] = FamilyVerdict(family, None, None, True, _speedup(trial.state.cost, outcome.state.cost))
            continue
        clock.tell(f"measuring without {family}")
        share = max(purse.least, (amount - (purse.spent - began)) / (len(questions) + 1))
        asked[family] = verdict = clock.family(family, trial, outcome, share)
        if not verdict.kept:
            outcome, problem = trial, smaller
            trials.clear()
            losing = losing and bool(outcome.steps) and not clock.gains(start, outcome, plan.again * amount)
    return Selection(outcome, problem, tuple(asked.values()), losing=losing)


def _side_by_side(
    searches: _Searches, clock: _Clock, problem: Problem, outcome: Outcome, families: Sequence[str]
) -> dict[str, tuple[Problem, Outcome]]:
    """Run in the same rounds what most questions are about.

    That is the start, what was found, and what differs enough from that: of the alternatives, and of what is left of it without each family.

    Returns:
        What is left without each family.
    """
    purse = clock.purse
    if not purse.fits or clock.budget.interrupted_now:
        return {}
    trials = {family: _trial(searches, problem, outcome, family) for family in families}
    rivals = [o.state.graph for o in (*(trial for _, trial in trials.values()), *outcome.others)]
    best = outcome.state.graph
    clock.tell("measuring what was found")
    clock.together(
        [searches.graph, best, *(graph for graph in rivals if clock.apart(graph, best) >= _APART)],
        purse.plan.round * purse.left,
    )
    return trials


def _believed(ratio: Ratio, predicted: float, doubt: float) -> float:
    """The logarithm of a ratio, as prediction and measurement together say it, each as far as it can be trusted."""
    if not 0 < predicted < math.inf:
        return math.log(ratio.value)
    measured = (math.log(ratio.high) - math.log(ratio.low)) / (2 * 1.96) if ratio.low > 0 else math.inf
    weights = 1 / max(measured, 1e-6) ** 2, 1 / doubt**2
    return (weights[0] * math.log(ratio.value) + weights[1] * math.log(predicted)) / sum(weights)


def _speedup(before: float, after: float) -> float:
    """Ratio of two predicted times; 1 where nothing is left to compute."""
    return before / after if after else 1.0


def _trial(searches: _Searches, problem: Problem, outcome: Outcome, family: str) -> tuple[Problem, Outcome]:
    """What is left of an outcome without a family."""
    smaller, budget = lacking(problem, [family], normal=False), searches.whole.again()
    if isinstance(searches.strategy, Greedy):
        return smaller, searches.strategy.run(smaller, smaller.start(searches.graph), budget)
    # A whole search for each takes too long.
    return smaller, without(smaller, searches.graph, outcome, family, budget)
