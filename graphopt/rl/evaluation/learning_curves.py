"""How agents learned: from the ``progress.csv`` of training runs to curves over real environment steps."""

from __future__ import annotations

import bisect
import math
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

import numpy as np
import numpy.typing as npt

from graphopt.rl.evaluation.scores import Curve, RatioInterval, Reach, estimate
from graphopt.rl.training.checkpoint import read_progress

SMOOTHED_UPDATES = 10
"""Updates over which ``saving`` is averaged: a few episodes on one model after another say little by themselves."""
REFERENCE = "ppo"
_REACH_TOLERANCE = 0.01
_MAX_POINTS = 200
_RESAMPLES = 500
_MEASURES = ("saving", "best")


@dataclass(frozen=True)
class Learning:
    """What is known of one training run.

    Attributes:
        algorithm: What trained.
        steps: Environment steps after each update.
        columns: Maps each measure (see :class:`graphopt.rl.evaluation.scores.Curve`) to its value after each update.
    """

    algorithm: str
    steps: Sequence[int]
    columns: Mapping[str, Sequence[float]]

    def at(self, measure: str, steps: int) -> float:
        """The value at a moment: that of the last update until then, or of the first."""
        return self.columns[measure][max(0, bisect.bisect_right(self.steps, steps) - 1)]


def read_learning(folder: Path, algorithm: str) -> Learning | None:
    """Read the progress of a training run; ``None`` if none was kept.

    Raises:
        CheckpointError: The file is damaged.
    """
    rows = read_progress(folder)
    if not rows:
        return None
    names = [
        name for name in dict.fromkeys(name for row in rows for name in row) if name.partition("/")[0] in _MEASURES
    ]
    columns = {name: _filled([row.get(name, math.nan) for row in rows]) for name in names}
    steps = [int(row["steps"]) for row in rows]
    smooth = {name: _trailing(c) if name.startswith("saving") else c for name, c in columns.items()}
    return Learning(algorithm, steps, smooth)


def curves(runs: Sequence[Learning]) -> list[Curve]:
    """For each measure and algorithm the mean over its runs, from where all of them have begun to where the first ends."""
    found: list[Curve] = []
    for measure in _measures(runs):
        for algorithm in dict.fromkeys(run.algorithm for run in runs):
            ours = [run for run in runs if run.algorithm == algorithm and measure in run.columns]
            if ours:
                found_at = ((s, estimate(run.at(measure, s) for run in ours)) for s in _grid(ours))
                points = [(s, mean) for s, mean in found_at if mean is not None]
                found.append(Curve(algorithm, measure, tuple(points), len(ours)))
    return found


def reaches(runs: Sequence[Learning]) -> list[Reach]:
    """When the mean of each algorithm's runs first came within a per cent of what the mean of PPO's runs ended with."""
    found: list[Reach] = []
    for measure in _measures(runs):
        known = [run for run in runs if measure in run.columns]
        reference = _Table.of([run for run in known if run.algorithm == REFERENCE], measure)
        if reference is None:
            continue
        target = reference.values[:, -1].mean()
        for algorithm in dict.fromkeys(run.algorithm for run in known):
            ours = [run for run in known if run.algorithm == algorithm]
            table = reference if algorithm == REFERENCE else _Table.of(ours, measure)
            assert table is not None
            alone = [table.reached(_level(target), [i]) for i in range(len(table.values))]
            steps = table.reached(_level(target), range(len(table.values)))
            rng = np.random.default_rng(0)
            ratios = [_fewer(reference, table, rng) for _ in range(_RESAMPLES)]
            low, high = (float(q) for q in np.quantile(ratios, (0.025, 0.975)))
            fewer = RatioInterval(_fewer(reference, table, None), low, high)
            found.append(
                Reach(measure, algorithm, float(target), steps, sum(s is not None for s in alone), len(alone), fewer)
            )
    return found


@dataclass(frozen=True, eq=False)
class _Table:
    """A measure of the runs of an algorithm at the same moments: steps (moments,), values (runs, moments)."""

    steps: Sequence[int]
    values: npt.NDArray[np.float64]

    @classmethod
    def of(cls, runs: Sequence[Learning], measure: str) -> _Table | None:
        if not runs:
            return None
        steps = _grid(runs)
        return cls(steps, np.array([[run.at(measure, s) for s in steps] for run in runs]))

    def reached(self, level: float, rows: Sequence[int]) -> int | None:
        """When the mean of some runs was first at a level."""
        there = np.flatnonzero(self.values[rows].mean(axis=0) >= level)
        return int(self.steps[there[0]]) if len(there) else None


def _level(target: float) -> float:
    return target - _REACH_TOLERANCE * abs(target)


def _fewer(reference: _Table, table: _Table, rng: np.random.Generator | None) -> float:
    """Steps of the one over those of the other until both are as good as the first in the end; of resampled runs, if there is chance."""
    rows = [np.arange(len(t.values)) for t in (reference, table)]
    if rng is not None:
        rows = [rng.choice(r, len(r)) for r in rows]
    one, other = rows[0].tolist(), (rows[0] if table is reference else rows[1]).tolist()
    level = _level(float(reference.values[one, -1].mean()))
    base, steps = reference.reached(level, one), table.reached(level, other)
    return 0.0 if base is None or steps is None else base / max(1, steps)


def _measures(runs: Sequence[Learning]) -> list[str]:
    names = dict.fromkeys(name for run in runs for name in run.columns)
    return sorted(names, key=lambda name: ("/" in name, _MEASURES.index(name.partition("/")[0]), name))


def _grid(runs: Sequence[Learning]) -> list[int]:
    """Moments at which an estimate is made."""
    first, last = max(run.steps[0] for run in runs), min(run.steps[-1] for run in runs)
    steps = sorted({s for run in runs for s in run.steps if first <= s <= last}) or [last]
    if len(steps) <= _MAX_POINTS:
        return steps
    return [steps[round(i * (len(steps) - 1) / (_MAX_POINTS - 1))] for i in range(_MAX_POINTS)]


def _filled(found: Sequence[float]) -> list[float]:
    """Numbers; where there is none (a model that was not played yet), the one before, at first nothing saved."""
    values: list[float] = []
    for value in found:
        values.append(value if math.isfinite(value) else values[-1] if values else 0.0)
    return values


def _trailing(values: Sequence[float]) -> list[float]:
    recent: deque[float] = deque(maxlen=SMOOTHED_UPDATES)
    means: list[float] = []
    for value in values:
        recent.append(value)
        means.append(fmean(recent))
    return means
