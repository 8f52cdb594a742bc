"""The time of the kernels of a small model, taken from the runtime's own profile.

A stopwatch around such a model sees mostly the call into the runtime, and the conversions into and out of the blocked
convolution layout that the window's neighbours would share; the profile tells the kernels apart. What the profiler
itself adds to each kernel (about a microsecond) is known from :mod:`graphopt.cost.roofline` and taken off.
"""

from __future__ import annotations

import json
import math
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from graphopt.cost.roofline import Roofline
from graphopt.cost.windows import VIEWS
from graphopt.errors import GraphoptError
from graphopt.runtime.session import LoadableModel, Session, SessionConfig

REORDERS = frozenset({"ReorderInput", "ReorderOutput"})
TARGET_MS = 15.0
_MIN_RUNS, _MAX_RUNS, _COLD_RUNS = 5, 40, 6
_SUFFIX = "_kernel_time"


class Stopwatch:
    """Measures small models in one environment.

    Between the runs of a model it runs another, always the same. When that one is slower than it has ever been, so is the
    machine (a neighbour, a lower clock), and the result is corrected by as much: two windows measured in different
    minutes stay comparable.

    Args:
        config: Provider, threads and level.
        roofline: Supplies the profiler's and the runtime's overhead for a node, and the pace of the machine at its best.
        reference: The model that tells the pace, with its inputs; ``None`` to correct nothing.
    """

    def __init__(
        self, config: SessionConfig, roofline: Roofline, reference: tuple[LoadableModel, Mapping[str, Any]] | None = None
    ) -> None:
        self.config = config
        self.roofline = roofline
        self.best_ms = roofline.pace_ms
        self._pace: Callable[[], None] | None = None
        if reference is not None:
            self._session = Session(reference[0], config)
            self._pace = self._session.prepare(reference[1])

    def kernel_ms(self, model: LoadableModel, feeds: Mapping[str, Any], *, cold: bool = False) -> float | None:
        """Time of a model's kernels.

        Conversions into and out of the blocked layout are left out: they lie at the border of the window, and its
        neighbours usually keep the layout. A view (Reshape and the like) counts as the runtime's overhead for a node; by
        itself it would have to copy an input of the model to an output.

        Args:
            model: The model.
            feeds: Its inputs.
            cold: Whether the weights come from memory, as they do in a model whose weights exceed the cache: by the
                time a layer runs again, all others have run. The inputs are in the cache all the same.

        Returns:
            Milliseconds; ``None`` when the model does not run.
        """
        try:
            with tempfile.TemporaryDirectory(prefix="graphopt-window-") as folder:
                with Session(model, replace(self.config, profile=Path(folder) / "p")) as session:
                    times, slowdown = self._repeat(session.prepare(feeds), feeds if cold else None)
                    events = json.loads(session.end_profiling().read_text(encoding="utf-8"))
        except (GraphoptError, OSError, ValueError):
            return None
        kernels = _kernels(events, len(times) + 2)
        floor = self.roofline.overhead_ms
        if not kernels:
            return max(floor, _low(times) * 1e3 / slowdown)
        total = 0.0
        for op, ms in kernels:
            if op in VIEWS:
                total += floor
            elif op not in REORDERS:
                total += max(floor, ms / slowdown - self.roofline.profiler_ms)
        return max(total, floor)

    def wall_ms(self, model: LoadableModel, feeds: Mapping[str, Any]) -> float:
        """Time of one run as a stopwatch sees it.

        Raises:
            SessionError: The model does not run.
        """
        with Session(model, self.config) as session:
            times, slowdown = self._repeat(session.prepare(feeds), None)
            return _low(times) * 1e3 / slowdown

    def _repeat(self, run: Callable[[], None], cold: Mapping[str, Any] | None) -> tuple[list[float], float]:
        """Seconds of some runs after one that warms up, few for a slow model; how much slower than best the machine was."""
        first = _timed(run)
        runs = max(_MIN_RUNS if first < 0.05 else 2, min(_MAX_RUNS, math.ceil(TARGET_MS / 1e3 / max(first, 1e-6))))
        times, paces = [], []
        for _ in range(runs if cold is None else min(runs, _COLD_RUNS)):
            if self._pace is not None:
                paces.append(_timed(self._pace))
            if cold is not None:
                _evict(cold)
            times.append(_timed(run))
        if not paces:
            return times, 1.0
        pace = _low(paces) * 1e3
        self.best_ms = min(self.best_ms, pace)
        return times, pace / self.best_ms


def _timed(run: Callable[[], None]) -> float:
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


def _kernels(events: list[dict[str, Any]], runs: int) -> list[tuple[str, float]]:
    """Operator and milliseconds of each kernel; ``runs`` counts the two that came before the timed ones."""
    found: dict[tuple[str, str], list[float]] = defaultdict(list)
    for event in events:
        if event.get("cat") == "Node" and event["name"].endswith(_SUFFIX):
            found[event["name"], event["args"]["op_name"]].append(event["dur"] / 1e3)
    kernels = []
    for (_, op), times in found.items():
        each, rest = divmod(len(times), runs)
        sums = [sum(times) / runs] if rest or not each else [sum(times[i * each : i * each + each]) for i in range(2, runs)]
        kernels.append((op, _low(sums)))
    return kernels


@cache
def _ballast() -> np.ndarray[Any, np.dtype[np.int64]]:
    return np.ones(2 * cache_bytes() // 8, np.int64)


def _evict(feeds: Mapping[str, Any]) -> None:
    """Fill the caches with something else, then bring the inputs back: a neighbour has just made them."""
    _ballast().max()
    for array in feeds.values():
        if array.dtype.kind == "f":
            array.max(initial=0)


@cache
def cache_bytes() -> int:
    """Size of the last-level cache, 32 MB where the system does not tell."""
    sizes = []
    for file in Path("/sys/devices/system/cpu/cpu0/cache").glob("index*/size"):
        try:
            text = file.read_text(encoding="ascii").strip()
            sizes.append(int(text.rstrip("KMG")) * {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}.get(text[-1], 1))
        except (OSError, ValueError):
            continue
    return min(max(sizes, default=32 << 20), 256 << 20)


def _low(times: list[float]) -> float:
    """Mean of the faster half. On a shared machine what disturbs a run only ever adds to it; a single minimum would be
    at the mercy of the profiler's grain of a microsecond."""
    half = sorted(times)[: max(1, (len(times) + 1) // 2)]
    return sum(half) / len(half)
