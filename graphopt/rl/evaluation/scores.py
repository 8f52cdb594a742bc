"""What an evaluation of agents found: a score for each run, and what the scores of several runs say together."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from statistics import fmean, geometric_mean, stdev
from typing import Any

from graphopt.runtime.timing import student
from graphopt.version import __version__

SCHEMA = "graphopt.evaluation/1"
STAGES = {
    1: "one graph, one seed",
    2: "many seeds",
    3: "new shapes",
    4: "new graphs of the families",
    5: "unseen families",
}
"""The stages of the protocol (Schaarschmidt et al., "Wield", 2019): each is farther from what the agent was trained on."""
OWN = "own"
STEPS, SECONDS, TRAINING = "real steps", "seconds", "seconds with training"
BUDGETS = (STEPS, SECONDS, TRAINING)
"""What a search gets to be compared with an agent: as many candidates as the agent priced, or as many steps as it made where that
is more; its seconds; its seconds and a share of those that training it took. ``own``: what the agent itself used."""
EQUAL_SAVING_POINTS = 0.01
"""Percentage points of the original's cost below which two savings are the same."""


@dataclass(frozen=True)
class Estimate:
    """A mean and where it would lie with other seeds.

    Attributes:
        mean: The mean.
        low: Lower end of its 95 % interval (Student's t); the mean itself where there is one value.
        high: Its upper end.
        count: Values.
    """

    mean: float
    low: float
    high: float
    count: int


def estimate(values: Iterable[float]) -> Estimate | None:
    """The mean of independent values and its interval; ``None`` where there is no value."""
    found = list(values)
    if not found:
        return None
    mean, n = fmean(found), len(found)
    half = student(n - 1) * stdev(found) / math.sqrt(n) if n > 1 else 0.0
    return Estimate(mean, mean - half, mean + half, n)


@dataclass(frozen=True)
class Score:
    """One run of one strategy on one graph.

    Attributes:
        stage: One of :data:`STAGES`.
        model: The graph.
        strategy: An agent's algorithm, or the name of a search.
        against: Algorithm whose budget it is; of an agent its own.
        budget: One of :data:`BUDGETS`, or ``own``.
        run: Folder of the agent; empty for a search.
        seed: Seed of its random draws; ``None`` where it makes none.
        saving: Predicted, carried out at every place, in percent of the model as it was.
        candidates: Rewrites priced.
        steps: Environment steps; ``None`` for a search.
        seconds: Wall-clock seconds that it took.
        allowed: Candidates or seconds that it was given; ``None`` for an agent, and for greedy, which ends by itself.
        stop: Why it ended.
        alone: What an agent's plan saved before search finished it; ``None`` for a search.
    """

    stage: int
    model: str
    strategy: str
    against: str
    budget: str
    run: str
    seed: int | None
    saving: float
    candidates: int
    steps: int | None
    seconds: float
    allowed: float | None
    stop: str
    alone: float | None = None


@dataclass(frozen=True)
class Trained:
    """A training run.

    Attributes:
        run: Its folder.
        algorithm: What trained it.
        seed: Seed of the training.
        steps: Environment steps of the training.
        seconds: Wall-clock seconds that it took.
    """

    run: str
    algorithm: str
    seed: int
    steps: int
    seconds: float


@dataclass(frozen=True)
class RatioInterval:
    """A measured ratio with its 95 % interval."""

    value: float
    low: float
    high: float


@dataclass(frozen=True)
class Timing:
    """An agent's plan and `auto`'s on one graph, by the clock.

    Attributes:
        model: The graph.
        algorithm: The agent's.
        speedup: How many times as fast as the original the agent's plan is.
        auto: How many times as fast as the original `auto`'s plan is.
        over_auto: How many times as fast as `auto`'s plan the agent's is.
        seconds: The agent's search took.
        auto_seconds: `auto`'s search took.
    """

    model: str
    algorithm: str
    speedup: RatioInterval
    auto: RatioInterval
    over_auto: RatioInterval
    seconds: float
    auto_seconds: float


@dataclass(frozen=True)
class Curve:
    """How an algorithm learned: the mean over its runs.

    Attributes:
        algorithm: Its name.
        measure: ``saving`` (mean of the episodes), ``best`` (met so far, mean over models), or one of these of a model
            (``best/MODEL``).
        points: Environment steps, and the estimate at that moment.
        runs: Training runs.
    """

    algorithm: str
    measure: str
    points: tuple[tuple[int, Estimate], ...]
    runs: int


@dataclass(frozen=True)
class Reach:
    """How soon an algorithm was as good as PPO in the end, by the means over their runs.

    Attributes:
        measure: See :class:`Curve`.
        algorithm: Its name.
        target: PPO's final value.
        steps: Environment steps after which the algorithm came within one per cent of it; ``None`` if it never did.
        reached: Runs that did so by themselves.
        runs: Number of runs.
        fewer: PPO's steps over these, 0 if it never came there, with a 95 % interval (bootstrap over the runs of both).
    """

    measure: str
    algorithm: str
    target: float
    steps: int | None
    reached: int
    runs: int
    fewer: RatioInterval


@dataclass(frozen=True)
class Evaluation:
    """Everything that was found.

    Attributes:
        task: Name of the task.
        agents: What was evaluated.
        scores: A line for each run.
        timings: What was measured.
        curves: How the agents learned.
        reaches: How soon.
        graphs: Graphs over which the training is shared out.
        cap: Limit on the seconds that a search gets with training included.
        notices: What a reader should know.
        interrupted: Whether it was ended before it was done.
        seconds: Wall-clock seconds that it took.
        version: Version of graphopt.
    """

    task: str
    agents: tuple[Trained, ...]
    scores: tuple[Score, ...] = ()
    timings: tuple[Timing, ...] = ()
    curves: tuple[Curve, ...] = ()
    reaches: tuple[Reach, ...] = ()
    graphs: int = 1
    cap: float = 0.0
    notices: tuple[str, ...] = ()
    interrupted: bool = False
    seconds: float = 0.0
    version: str = __version__

    def json(self) -> dict[str, Any]:
        """As plain data."""
        return {"schema": SCHEMA, **asdict(self)}

    @property
    def algorithms(self) -> tuple[str, ...]:
        """The agents' algorithms, in the order in which they were given."""
        return tuple(dict.fromkeys(agent.algorithm for agent in self.agents))

    def training_seconds(self, algorithm: str) -> float:
        """What training one agent took, mean over the runs."""
        return fmean(agent.seconds for agent in self.agents if agent.algorithm == algorithm)

    def timing_means(self) -> Iterator[tuple[str, tuple[float, ...], tuple[float, float]]]:
        """For each algorithm the geometric means of the three ratios of its timings, and of its and `auto`'s seconds."""
        for algorithm in dict.fromkeys(t.algorithm for t in self.timings):
            ours = [t for t in self.timings if t.algorithm == algorithm]
            ratios = (
                [r.value for r in each] for each in zip(*((t.speedup, t.auto, t.over_auto) for t in ours), strict=True)
            )
            times = geometric_mean(t.seconds for t in ours), geometric_mean(t.auto_seconds for t in ours)
            yield algorithm, tuple(map(geometric_mean, ratios)), times

    def sections(self) -> Iterator[Section]:
        """The comparisons, stage by stage, each agent at each budget."""
        for stage in STAGES:
            here = [s for s in self.scores if s.stage == stage]
            for algorithm in self.algorithms:
                ours = [s for s in here if s.strategy == algorithm and s.budget == OWN]
                for budget in BUDGETS if ours else ():
                    theirs = [s for s in here if s.against == algorithm and s.budget == budget]
                    yield Section(stage, algorithm, budget, (*ours, *theirs))


@dataclass(frozen=True)
class Section:
    """An agent and the searches at one budget, on the graphs of one stage.

    Attributes:
        stage: One of :data:`STAGES`.
        algorithm: The agent's.
        budget: One of :data:`BUDGETS`.
        scores: Scores of the agent and of the searches.
    """

    stage: int
    algorithm: str
    budget: str
    scores: Sequence[Score]

    @property
    def models(self) -> list[str]:
        """The graphs."""
        return list(dict.fromkeys(s.model for s in self.scores))

    @property
    def strategies(self) -> list[str]:
        """The agent, then the searches."""
        return list(dict.fromkeys(s.strategy for s in self.scores))

    def of(self, strategy: str, model: str) -> list[Score]:
        """The runs of a strategy on a graph."""
        return [s for s in self.scores if s.strategy == strategy and s.model == model]

    def saving(self, strategy: str, model: str) -> Estimate | None:
        """What a strategy saves on a graph."""
        return estimate(_units(self.of(strategy, model)))

    @property
    def alone(self) -> Section:
        """The agent by itself: before search finished its plans."""
        return replace(self, scores=[replace(s, saving=s.alone) for s in self.scores if s.alone is not None])

    def mean(self, strategy: str) -> Estimate | None:
        """What a strategy saves on the mean over all graphs; ``None`` unless it was run on all of them."""
        models = self.models
        found = [_units(self.of(strategy, model)) for model in models]
        most = max((len(values) for values in found), default=0)
        # What has no chance in it has one value, which stands against each seed of the others.
        if any(len(values) not in (1, most) for values in found):
            return None
        return estimate(fmean(values[i % len(values)] for values in found) for i in range(most))

    def allowed(self, model: str) -> float | None:
        """Candidates or seconds that the searches got."""
        return next((s.allowed for s in self.scores if s.model == model and s.allowed is not None), None)

    @property
    def rivals(self) -> dict[str, list[str]]:
        """The searches by kind: backtracking is there once for each alpha."""
        kinds: dict[str, list[str]] = {}
        for strategy in self.strategies:
            if strategy != self.algorithm:
                kinds.setdefault(strategy.partition(" ")[0], []).append(strategy)
        return kinds

    def best(self, strategies: Sequence[str], model: str) -> tuple[Estimate, str] | None:
        """What the best of some strategies saves on a graph, and which it is."""
        found = [(saving, s) for s in strategies if (saving := self.saving(s, model)) is not None]
        return max(found, key=lambda pair: pair[0].mean, default=None)

    def at_least(self, *others: str) -> tuple[int, int]:
        """On how many graphs the agent saves at least what the best of some searches does there, and how many there are."""
        pairs = [(self.saving(self.algorithm, m), self.best(others, m)) for m in self.models]
        known = [(a.mean, b[0].mean) for a, b in pairs if a is not None and b is not None]
        return sum(a >= b - EQUAL_SAVING_POINTS for a, b in known), len(known)


def _units(scores: Iterable[Score]) -> list[float]:
    """Savings that are independent of each other: of several training runs the mean of each, of a single one every seed."""
    runs: dict[str, list[float]] = {}
    for score in scores:
        runs.setdefault(score.run, []).append(score.saving)
    return [v for values in runs.values() for v in values] if len(runs) <= 1 else [fmean(v) for v in runs.values()]
