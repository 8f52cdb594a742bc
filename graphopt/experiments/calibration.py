"""How well predicted prices agree with the clock, over graphs that random rewrites make of a model.

A search believes its prices, and a deep one finds where they are wrong. So prices are put to the test where a search would go:
each graph comes from a random walk over the rules, made at all equal places, and is measured in turns with the graph that
the walk started from, over several sessions of both.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import TypeVar

import numpy as np

from graphopt.config import Settings
from graphopt.cost.fit import remember_scale, remembered_scale
from graphopt.cost.kernel import KernelCost
from graphopt.cost.store import Store
from graphopt.errors import SessionError
from graphopt.ir.delta import RefusedError
from graphopt.ir.memo import collector_paused
from graphopt.pipeline.opening import config_of, first_run
from graphopt.pipeline.prepare import load_model, load_rules
from graphopt.rewrite.sites import Key
from graphopt.runtime.environment import machine_of
from graphopt.runtime.rounds import Sampling
from graphopt.search.arena import Arena, most_added
from graphopt.search.normal import Normal
from graphopt.search.problem import Problem, State
from graphopt.search.symmetry import PlanExpansion, ReducedState, SiteClasses
from graphopt.verification.ranges import input_ranges

T = TypeVar("T")
ENOUGH = 5
"""Models that a calibration needs to be kept."""
LONGEST = 12
"""Moves of a walk, at most; each is made at all equal places."""
SESSIONS = 2
"""Sessions of each graph, at least: one may lie in memory in a lucky way, and be faster by a per cent for that."""
_WALKS = 20  # for each graph asked for: random graphs crowd around a few prices, so most are left out
_CARRIED = 3  # plans that are carried out for each graph asked for
_TASTED = 4  # rewrites that a walk chooses from, where it leans
_MOST_KEPT = 1000  # states that walks came to, kept for those that come there again
_MEASURING = 60.0  # seconds for the kernels of all graphs of a model


@dataclass(frozen=True)
class Point:
    """A rewritten graph.

    Attributes:
        model: Name of the model that it came from.
        steps: Rewrites.
        predicted_ms: What the cost model says of one inference.
        measured_ms: What the clock says: the latency of the graph that the walk started from, over the measured ratio.
        ci95: Interval of ``measured_ms``.
    """

    model: str
    steps: int
    predicted_ms: float
    measured_ms: float
    ci95: tuple[float, float]

    @property
    def error(self) -> float:
        """Predicted over measured time, less 1."""
        return self.predicted_ms / self.measured_ms - 1


@dataclass(frozen=True)
class Agreement:
    """Predicted against measured.

    Attributes:
        graphs: How many were measured.
        spearman: Rank correlation of predicted and measured time; ``nan`` where all are equal.
        median_error: Median of the relative errors, without their signs.
        p95_error: Their 95th percentile.
        spread: Slowest over fastest measured time: what there was to be told apart.
    """

    graphs: int
    spearman: float
    median_error: float
    p95_error: float
    spread: float


def agreement(points: Sequence[Point]) -> Agreement:
    """Sum up the points of one model, or the errors of several.

    Raises:
        ValueError: There are no points.
    """
    errors = np.abs([p.error for p in points])
    measured = np.array([p.measured_ms for p in points])
    return Agreement(
        len(points),
        spearman([p.predicted_ms for p in points], measured.tolist()),
        float(np.median(errors)),
        float(np.quantile(errors, 0.95)),
        float(measured.max() / measured.min()),
    )


def scaled(points: Sequence[Point]) -> tuple[float, list[Point]]:
    """What to multiply predictions by so that they are right on average, and how right they are then.

    What a graph takes beyond the sum of its windows is much the same for all models. Each model's predictions are scaled by
    what the others say, so that the errors are those of a model that was not calibrated with.

    Returns:
        The factor from all models, and the points with the factor of the other models; both as they are with a single model.
    """
    models = list(dict.fromkeys(p.model for p in points))
    logs = {m: median(math.log(p.measured_ms / p.predicted_ms) for p in points if p.model == m) for m in models}
    if len(models) < 2:
        return 1.0, list(points)
    total = sum(logs.values())
    others = {m: math.exp((total - logs[m]) / (len(models) - 1)) for m in models}
    return math.exp(total / len(models)), [replace(p, predicted_ms=p.predicted_ms * others[p.model]) for p in points]


def spearman(a: Sequence[float], b: Sequence[float]) -> float:
    """Spearman's rank correlation, ties by their mean rank; ``nan`` where one side has no order."""
    if len(a) < 2:
        return math.nan
    x, y = _ranks(a), _ranks(b)
    x, y = x - x.mean(), y - y.mean()
    scale = math.sqrt(float((x * x).sum() * (y * y).sum()))
    return float((x * y).sum()) / scale if scale else math.nan


def _ranks(values: Sequence[float]) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """Rank of each value from 0, equal values the mean of their ranks."""
    _, place, counts = np.unique(values, return_inverse=True, return_counts=True)
    ends = np.cumsum(counts)
    ranks: np.ndarray[tuple[int], np.dtype[np.float64]] = ((ends - counts + ends - 1) / 2)[place]
    return ranks


def samples(problem: Problem, start: State, count: int, seed: int = 0) -> list[tuple[State, int]]:
    """Graphs at the end of random walks, and how many rewrites made each; fewer than asked for where the rules make fewer.

    Most walks end at about the same price. So a third of them lean towards what is predicted to save and a third towards what
    is predicted to cost, and of all those are taken whose prices lie furthest from each other: from the cheapest to the
    dearest, the whole range that a search could mistake.
    """
    chance = random.Random(seed)
    site_classes = SiteClasses()
    known = _Known(problem)
    root = ReducedState.start(start, site_classes)
    expansion = PlanExpansion(problem, start, site_classes)
    found: dict[int, ReducedState] = {}
    with collector_paused():
        for _ in range(_WALKS * count):
            here, lean = root, chance.choice((-1, 0, 1))
            for _ in range(chance.randint(1, LONGEST)):
                keys = chance.sample(sorted(here.open), min(_TASTED if lean else 1, len(here.open)))
                if lean:
                    keys.sort(key=lambda k: lean * here.open[k] * known.change(here.state, k))
                if not keys:
                    break
                state = known.after(here.state, keys[-1])
                if state is not None:
                    here = here.reached(state, here.state.sites.matches[keys[-1]], site_classes)
            found.setdefault(here.state.graph.hash, here)
        found.pop(start.graph.hash, None)
        # What a walk predicts for all places is off where savings do not add up: so more are carried out than are wanted.
        made: dict[int, tuple[State, int]] = {}
        for reduced in _far_apart(list(found.values()), [q.cost for q in found.values()], len(found)):
            if len(made) == _CARRIED * count:
                break
            state, steps = expansion.of(reduced.plan)
            if state.cost < math.inf:  # at all places at once the weights may outgrow what they may take
                made.setdefault(state.graph.hash, (state, len(steps)))
        made.pop(start.graph.hash, None)
    return _far_apart(list(made.values()), [state.cost for state, _ in made.values()], count)


class _Known:
    """What rewrites of graphs come to: walks begin at the same graph, and meet the same ones by other ways."""

    def __init__(self, problem: Problem) -> None:
        self._problem = problem
        self._changes: dict[tuple[int, Key], float] = {}
        self._states: dict[tuple[int, Key], State | None] = {}

    def change(self, state: State, key: Key) -> float:
        """Predicted milliseconds that a rewrite adds, made at one place; 0 if it can't be made."""
        at = state.graph.hash, key
        if at not in self._changes:
            try:
                self._changes[at] = self._problem.price(state, state.sites.matches[key])[1] - state.cost
            except RefusedError:
                self._changes[at] = 0.0
        return self._changes[at]

    def after(self, state: State, key: Key) -> State | None:
        """The state after a rewrite; ``None`` if it can't be made."""
        at = state.graph.hash, key
        if at not in self._states:
            if len(self._states) >= _MOST_KEPT:
                self._states.clear()
            try:
                self._states[at] = self._problem.step(state, state.sites.matches[key])
            except RefusedError:
                self._states[at] = None
        return self._states[at]


def _far_apart(found: list[T], costs: list[float], count: int) -> list[T]:
    """Some of many, so that the smallest difference of their costs is large: always the one furthest from those taken."""
    if not found:
        return []
    taken = [costs.index(min(costs))]
    distance = [abs(cost - costs[taken[0]]) for cost in costs]
    while len(taken) < min(count, len(found)):
        best = max(range(len(found)), key=distance.__getitem__)
        if distance[best] == 0.0:
            break
        taken.append(best)
        distance = [min(d, abs(cost - costs[best])) for d, cost in zip(distance, costs, strict=True)]
    return [found[i] for i in taken]


def calibrate(
    name: str,
    problem: Problem,
    start: State,
    arena: Arena,
    *,
    graphs: int = 12,
    seconds: float = 1.0,
    seed: int = 0,
    slowdown: Callable[[], float] = lambda: 1.0,
    on_graph: Callable[[int], None] | None = None,
) -> list[Point]:
    """Measure so many graphs that random walks make of a model, each for so many seconds.

    ``slowdown`` tells how much slower the machine is just now than prices suppose, ``on_graph`` hears how many are done.
    """
    paired = []
    for state, steps in samples(problem, start, graphs, seed):
        try:
            pair = arena.over_sessions(start.graph, state.graph, Sampling(seconds, least=SESSIONS, patience=1))
        except SessionError:
            continue  # the runtime does not take it: no search would keep it either
        paired.append((state, steps, pair, pair.baseline_ms / slowdown()))
        if on_graph is not None:
            on_graph(len(paired))
    if not paired:
        return []
    # What the start takes is the same in all pairs: the median is free of slow spells.
    base = median(ms for *_, ms in paired)
    return [
        Point(name, steps, state.cost, base / p.speedup, (base / p.ci95[1], base / p.ci95[0]))
        for state, steps, p, _ in paired
    ]


def calibrate_model(
    path: Path, settings: Settings, *, graphs: int, seconds: float, on_graph: Callable[[int], None]
) -> list[Point]:
    """Rewrite a model at random and compare what each graph is predicted to take with what it takes.

    Each of so many ``graphs`` is measured for so many ``seconds``; ``on_graph`` hears how many are done.

    Raises:
        GraphoptError: The model can't be loaded or run.
    """
    config, library, model = config_of(settings), load_rules(settings), load_model(path, settings)
    _, feeds = first_run(model, config, input_ranges(model.graph), (), {}, settings.seed)
    arena = Arena(model, model, config, feeds, seed=settings.seed)
    with Store() as store:
        cost = KernelCost(store, config, seconds=_MEASURING, growth=most_added(model))
        problem = Problem.where(library, cost, config)
        start = problem.start(Normal.of(model.graph, problem).graph)
        return calibrate(
            path.name,
            problem,
            start,
            arena,
            graphs=graphs,
            seconds=seconds,
            seed=settings.seed,
            slowdown=cost.slowdown,
            on_graph=on_graph,
        )


def keep_scale(factor: float, settings: Settings) -> float:
    """Multiply later predictions by a factor; what graphs then take over the sum of their windows."""
    with Store() as store:
        place = machine_of(config_of(settings))
        scale = factor * remembered_scale(store, place)
        remember_scale(store, place, scale)
        return scale
