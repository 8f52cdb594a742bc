"""The time of the kernels of a small model.

On the CPU provider it is taken from the runtime's own profile. A stopwatch around such a model sees mostly the call into the
runtime, and the conversions into and out of the blocked convolution layout that the window's neighbours would share; the
profile tells the kernels apart. What the profiler itself adds to each kernel (about a microsecond) is known from
:mod:`graphopt.cost.analytic` and taken off.

Other providers compile the whole window into one kernel, or launch kernels and return at once: the profile tells nothing
about them. There the model is timed from outside, on bound inputs, and the call into the runtime is taken off.
"""

from __future__ import annotations

import json
import math
import time
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from graphopt import scratch
from graphopt.cost.analytic import Roofline
from graphopt.cost.base import cold_share
from graphopt.cost.windows import VIEWS
from graphopt.errors import GraphoptError
from graphopt.runtime.distance import distance
from graphopt.runtime.providers import CPU, full_name
from graphopt.runtime.session import LoadableModel, Session, SessionConfig, spinning
from graphopt.runtime.timing import GRAIN_S, undisturbed

REORDERS = frozenset({"ReorderInput", "ReorderOutput"})
_TURNED = "Transpose"
"""How the names of those begin that the runtime puts around a kernel of whole numbers, which wants channels last: in a model they are where
such a kernel meets another one. A window's own have the names that it gives them."""
CONTEXT = "ctx"
"""How the names of nodes begin that only stand for a window's neighbours."""
_WIDENED = "InsertedPrecisionFreeCast_"
"""How the runtime calls the casts that it puts around float16 where it computes in float32. Between two windows it takes them out again,
so those at the borders of a window alone are none of its own."""
TARGET_MS = 5.0
"""Milliseconds of runs of a window, all told, between ``_MIN_RUNS`` and ``_MAX_RUNS`` of them."""
_ENOUGH = 3  # clean runs
_PATIENCE_S, _PATIENCE_RUNS = 0.3, 50  # for as long a busy machine gets another chance to let a run through
_MIN_RUNS, _MAX_RUNS = 8, 20
_LEAST_RUNS = 5  # of what takes long
_COLD_RUNS, _COPIED_RUNS = 5, 3  # from memory: all of the ballast is read before each
AWAKE_S = 0.1
"""How long the threads of a window's session wait awake: longer than it takes to fill the caches with something else. In a model they are awake
when a layer begins, because the layers follow each other; woken up they add up to a tenth of a millisecond to a run."""
_UNFELT = 0.15  # a share of the weights that is priced like the others: one measurement of a kernel in place of two
_QUICK = 8 << 20  # bytes that are touched in a fraction of a millisecond
_SUFFIX = "_kernel_time"
OWN, SHARED, MEMORY = "", "-shared", "-memory"
"""Suffix of a signature that was measured with weights from a core's own cache, the last-level cache, or memory."""
_MOST_EVICTED = 256 << 20  # bytes that are touched at most where twice the cache is less
_CERTAIN = 64 << 20  # what processors have that are a single user's, or that few cores of a larger one share
_ROW, _MOST_COPIES = 24 << 20, 24  # bytes of all layers that are measured in a row, and how many they are at most
_ROW_MS = 12.0  # what they take together by estimate, at most: one that takes longer is timed well enough by itself


class Stopwatch:
    """Measures small models in one environment.

    Between the runs of a model it runs another, always the same. When that one is slower than it has ever been, so is the
    machine (a neighbour, a lower clock), and the result is corrected by as much: two windows measured in different
    minutes stay comparable. Where sessions have threads of their own nothing is corrected: two of them disturb each other, and what a
    product on several threads takes varies more from one run to the next than machines do from one minute to the next. But it waits for
    processors that are far from each other for the moment (:mod:`graphopt.runtime.distance`).

    Args:
        config: Provider, threads and level.
        roofline: Supplies what measuring adds and the runtime's overhead for a node, and the pace of the machine at its best.
        reference: The model that tells the pace, with its inputs; ``None`` to correct nothing.
    """

    def __init__(
        self,
        config: SessionConfig,
        roofline: Roofline,
        reference: tuple[LoadableModel, Mapping[str, Any]] | None = None,
    ) -> None:
        self.outside = full_name(config.provider) != CPU
        several = not self.outside and config.threads != 1
        self.config = spinning(config, AWAKE_S) if several else config
        self.roofline = roofline
        self.best_ms = roofline.pace_ms
        self._pace: Callable[[], None] | None = None
        self._distance = distance(config)
        if reference is not None and not several:
            self._session = Session(reference[0], config)
            self._pace = self._session.prepare(reference[1])

    def kernel_ms(
        self,
        model: LoadableModel,
        feeds: Mapping[str, Any],
        *,
        evict: int = 0,
        copies: int = 1,
        only: frozenset[str] | None = None,
        unit: bool = False,
    ) -> float | None:
        """Time of a model's kernels.

        Conversions into and out of the blocked layout are left out: whether there is one at the border of a window
        depends on its neighbours (:mod:`graphopt.cost.layout`). A view (Reshape and the like) counts as one between two products; by
        itself it would have to copy an input of the model to an output.

        Args:
            model: The model.
            feeds: Its inputs.
            evict: Bytes to touch before each run, so that weights have left the caches of that size, as they have in a
                model by the time a layer runs again: all others have run. The inputs are in the cache all the same.
            copies: How many times the window stands in the model; the time is that of one.
            only: Operators to count, and nothing but them.
            unit: Whether it is a unit of quantisation: Transposes that the runtime puts around it are left out.

        Returns:
            Milliseconds; ``None`` when the model does not run.
        """
        if self.outside:
            return None if only else self._from_outside(model, feeds, evict)
        if self._distance is not None:
            self._distance.settle()
        try:
            with (
                scratch.folder("window") as folder,
                Session(model, replace(self.config, profile=folder / "p")) as session,
            ):
                times, slowdown = self._repeat(session.prepare(feeds), evict, feeds, copies)
                events = json.loads(session.end_profiling().read_text(encoding="utf-8"))
        except (GraphoptError, OSError, ValueError):
            return None
        floor = self.roofline.overhead_ms
        total = 0.0
        apart = (CONTEXT, _WIDENED, *([_TURNED] if unit else []))
        kernels = _kernels(events, len(times))
        for name, op, each in kernels:
            if (op in REORDERS if only is None else op not in only) or name.startswith(apart):
                continue
            if op in VIEWS and only is None:
                total += floor
            else:
                total += max(floor, _typical(each, times) / slowdown - self.roofline.profiler_ms)
        if not kernels and only is None:
            total = _typical([wall * 1e3 for wall, _ in times], times) / slowdown
        return total if only else max(total / copies, floor)

    def _from_outside(self, model: LoadableModel, feeds: Mapping[str, Any], evict: int) -> float | None:
        """Time of a run without that of an empty one."""
        try:
            with Session(model, self.config) as session:
                times, slowdown = self._repeat(session.prepare(feeds), evict, feeds)
        except (GraphoptError, ValueError):
            return None
        typical = _typical([wall * 1e3 for wall, _ in times], times) / slowdown
        return max(self.roofline.overhead_ms, typical - self.roofline.profiler_ms)

    def wall_ms(self, model: LoadableModel, feeds: Mapping[str, Any]) -> float:
        """Time of one run as a stopwatch sees it.

        Raises:
            SessionError: The model does not run.
        """
        with Session(model, self.config) as session:
            times, slowdown = self._repeat(session.prepare(feeds))
            return _typical([wall * 1e3 for wall, _ in times], times) / slowdown

    @property
    def paced(self) -> bool:
        """Whether it knows how slow the machine is while it measures."""
        return self._pace is not None

    def slowdown(self) -> float:
        """How much slower than ever seen the machine is just now; 1 where that is not known."""
        if self._pace is None:
            return 1.0
        self._pace()
        pace = _low([min(_timed(self._pace)) for _ in range(_MAX_RUNS)]) * 1e3
        self.best_ms = min(self.best_ms, pace)
        return pace / self.best_ms

    def _repeat(
        self, run: Callable[[], None], evict: int = 0, feeds: Mapping[str, Any] | None = None, copies: int = 1
    ) -> tuple[list[tuple[float, float]], float]:
        """Wall and processor seconds of some runs, few for a slow model, and how much slower than best the machine was."""
        first = min(_timed(run))
        runs = max(
            _MIN_RUNS if first < 0.05 else _LEAST_RUNS, min(_MAX_RUNS, math.ceil(TARGET_MS / 1e3 / max(first, 1e-6)))
        )
        if evict > _QUICK:
            runs = min(runs, _COLD_RUNS if copies == 1 else _COPIED_RUNS)
        times: list[tuple[float, float]] = []
        paces: list[float] = []
        deadline = time.perf_counter() + _PATIENCE_S
        while len(times) < runs or (
            sum(undisturbed(*each) for each in times) < _ENOUGH
            and len(times) < _PATIENCE_RUNS
            and time.perf_counter() < deadline
        ):
            if self._pace is not None:
                self._pace()  # once for the cache
                paces.append(min(_timed(self._pace)))
            if evict:
                _evict(evict, feeds or {})
            wall, cpu = _timed(run)
            # This thread's time says nothing of a device, nor of a provider with threads of its own.
            times.append((wall, wall if self.outside else cpu))
        if not paces:
            return times, 1.0
        pace = _low(paces) * 1e3
        self.best_ms = min(self.best_ms, pace)
        return times, pace / self.best_ms


def _timed(run: Callable[[], None]) -> tuple[float, float]:
    """Seconds by the clock and of this thread's processor time."""
    wall, cpu = time.perf_counter(), time.thread_time()
    run()
    cpu = time.thread_time() - cpu
    return max(time.perf_counter() - wall, GRAIN_S), cpu


def _typical(each: list[float], times: list[tuple[float, float]]) -> float:
    """The time of a kernel, from its time in each run.

    Args:
        each: What is to be summed up, by run.
        times: Wall and processor time of the runs. Where the second is less, another process had the processor for some
            milliseconds; such runs are left out, or, when there is hardly any other, cut down to this thread's part.
    """
    clean = [t for t, run in zip(each, times, strict=True) if undisturbed(*run)]
    if len(clean) >= min(_ENOUGH, len(each)):
        return _low(clean)
    scaled = sorted(t * min(1.0, cpu / wall) for t, (wall, cpu) in zip(each, times, strict=True))
    return scaled[len(scaled) // 2]


def _kernels(events: list[dict[str, Any]], timed: int) -> list[tuple[str, str, list[float]]]:
    """Name, operator and milliseconds of each kernel in each of the last ``timed`` runs."""
    runs = sum(event.get("name") == "model_run" for event in events) or timed
    found: dict[tuple[str, str], list[float]] = defaultdict(list)
    for event in events:
        if event.get("cat") == "Node" and event["name"].endswith(_SUFFIX):
            found[event["name"], event["args"]["op_name"]].append(event["dur"] / 1e3)
    kernels = []
    for (name, op), times in found.items():
        # A node in a loop body, or one of several with the same name, has a whole number of events in each run.
        each, rest = divmod(len(times), runs)
        if rest or not each:
            sums = [sum(times) / runs] * timed
        else:
            sums = [sum(times[i * each : (i + 1) * each]) for i in range(runs - timed, runs)]
        kernels.append((name, op, sums))
    return kernels


@lru_cache(maxsize=2)  # one that is a core's own cache, one that is up to 256 MB
def _ballast(nbytes: int) -> np.ndarray[Any, np.dtype[np.int64]]:
    return np.ones(nbytes // 8, np.int64)


def _evict(nbytes: int, feeds: Mapping[str, Any]) -> None:
    """Fill the caches with something else, then bring the inputs back: a neighbour has just made them."""
    _ballast(nbytes).max()
    for array in feeds.values():
        if array.dtype.kind == "f":
            array.max(initial=0)


@cache
def cache_bytes() -> tuple[int, int]:
    """Size of a core's own cache and of the last-level cache, 1 MB and 32 MB where the system does not tell."""
    sizes = {}
    for file in Path("/sys/devices/system/cpu/cpu0/cache").glob("index*/size"):
        try:
            text = file.read_text(encoding="ascii").strip()
            level = int((file.parent / "level").read_text(encoding="ascii"))
            sizes[level] = int(text.rstrip("KMG")) * {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}.get(text[-1], 1)
        except (OSError, ValueError):
            continue
    last = sizes[max(sizes)] if sizes else 32 << 20
    return min(sizes.get(2, 1 << 20), last), last


def last_level() -> tuple[int, float]:
    """How much of the last-level cache this process gets, and how many bytes a second it reads from beyond.

    Who rents some cores of a large processor is told the cache of all of them, most of which holds what others compute. So where
    it is larger than that of a small processor the speed of reading says from which size on data comes from memory.
    """
    own, told = cache_bytes()
    if told <= _CERTAIN:
        return told, _reading_speed(np.ones(2 * told // 8, np.int64))
    near, sizes = max(4 * own, _CERTAIN // 8), [_CERTAIN // 4 << n for n in range(5)]
    ballast = np.ones(max(near, sizes[-1]) // 8, np.int64)
    speed = {size: _reading_speed(ballast[: size // 8]) for size in (near, *sizes)}
    beyond = speed[sizes[-1]]
    step = math.sqrt(speed[near] * beyond)
    return max((size for size in sizes if speed[size] > step), default=sizes[0]), beyond


def _reading_speed(array: np.ndarray[Any, Any]) -> float:
    """Bytes a second."""
    return array.nbytes / min(_timed(array.max)[0] for _ in range(8))


def _low(times: list[float]) -> float:
    """Mean of the fastest quarter.

    On a shared machine what disturbs a run only ever adds to it, and often disturbs most runs; a single minimum would be
    at the mercy of the profiler's grain of a microsecond.
    """
    quarter = sorted(times)[: max(3, len(times) // 4)]
    return sum(quarter) / len(quarter)


def sources(weights: int, read: int, shared: float) -> tuple[str, str]:
    """Where the weights of a model come from, for its warm and for its cold price.

    Args:
        weights: Their size in bytes.
        read: Bytes of them that an inference reads.
        shared: Bytes of the last-level cache.
    """
    if weights < cache_bytes()[0] / 2:
        return OWN, OWN
    share = cold_share(weights, read, shared)
    return SHARED if share <= 1 - _UNFELT else MEMORY, MEMORY if share >= _UNFELT else SHARED


def destination(alive: int, shared: float) -> str:
    """Where outputs go in a model of which so many bytes are alive at once: another output was there a while ago.

    Half of a cache is left to what else is in it. ``shared`` is the size of the last-level cache.
    """
    return OWN if 2 * alive <= cache_bytes()[0] else SHARED if 2 * alive <= shared else MEMORY


def farther(one: str, other: str) -> str:
    """The place that is farther from a core."""
    return max(one, other, key=(OWN, SHARED, MEMORY).index)


def evicted(signature: str, shared: float) -> int:
    """Bytes to touch so that the weights come from where a signature says; ``shared`` is the size of the last-level cache."""
    if signature.endswith(SHARED):
        return 2 * cache_bytes()[0]
    # Twice the cache leaves a third of a weight in it: what is read once does not push everything out.
    return int(max(2 * shared, min(4 * shared, _MOST_EVICTED))) if signature.endswith(MEMORY) else 0


def in_a_row(signature: str, weights: int, ms: float, shared: float) -> int:
    """How many layers with weights of their own are measured in a row, so that a run reads what no core has in its own cache.

    Args:
        signature: What is measured.
        weights: Bytes of the weights of one.
        ms: What one takes by estimate.
        shared: Bytes of the last-level cache.
    """
    if not weights or not signature.endswith((SHARED, MEMORY)):
        return 1
    row = shared / 4 if signature.endswith(SHARED) else _ROW
    return max(1, min(_MOST_COPIES, int(row / weights), int(_ROW_MS / ms)))
