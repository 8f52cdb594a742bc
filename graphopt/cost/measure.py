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


def kernel_ms(
    model: LoadableModel,
    feeds: Mapping[str, Any],
    config: SessionConfig,
    roofline: Roofline,
    *,
    cold: bool = False,
) -> float | None:
    """Time of a model's kernels.

    Conversions into and out of the blocked layout are left out: they lie at the border of the window, and its neighbours
    usually keep the layout. A view (Reshape and the like) counts as the runtime's overhead for a node; by itself it would
    have to copy an input of the model to an output.

    Args:
        model: The model.
        feeds: Its inputs.
        config: Provider, threads and level.
        roofline: Supplies the profiler's and the runtime's overhead for a node.
        cold: Whether the weights come from memory, as they do in a model whose weights exceed the cache: by the time a
            layer runs again, all others have run. The inputs are in the cache all the same.

    Returns:
        Milliseconds; ``None`` when the model does not run.
    """
    try:
        with tempfile.TemporaryDirectory(prefix="graphopt-window-") as folder:
            with Session(model, replace(config, profile=Path(folder) / "p", save_optimized=None)) as session:
                run = session.prepare(feeds)
                times = _repeat(run, (lambda: _evict(feeds)) if cold else None)
                events = json.loads(session.end_profiling().read_text(encoding="utf-8"))
    except (GraphoptError, OSError, ValueError):
        return None
    kernels = _kernels(events, len(times) + 2)
    if not kernels:
        return _low(times) * 1e3
    total = 0.0
    for op, ms in kernels:
        if op in REORDERS:
            continue
        if op in VIEWS:
            total += roofline.overhead_ms
        else:
            total += max(roofline.overhead_ms, ms - roofline.profiler_ms)
    return max(total, roofline.overhead_ms)


def wall_ms(model: LoadableModel, feeds: Mapping[str, Any], config: SessionConfig) -> float:
    """Time of one run as a stopwatch sees it.

    Raises:
        SessionError: The model does not run.
    """
    with Session(model, config) as session:
        return _low(_repeat(session.prepare(feeds))) * 1e3


def _repeat(run: Callable[[], None], before: Callable[[], None] | None = None) -> list[float]:
    """Seconds of some runs, after one that warms up; few for a slow model.

    Args:
        run: What to time.
        before: What to do before each run; since that takes time itself, there are few runs then.
    """
    start = time.perf_counter()
    run()
    first = time.perf_counter() - start
    runs = max(_MIN_RUNS if first < 0.05 else 2, min(_MAX_RUNS, math.ceil(TARGET_MS / 1e3 / max(first, 1e-6))))
    times = []
    for _ in range(min(runs, _COLD_RUNS) if before else runs):
        if before is not None:
            before()
        start = time.perf_counter()
        run()
        times.append(time.perf_counter() - start)
    return times


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
