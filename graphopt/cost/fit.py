"""Fit the roofline of this machine with a few small models, once; later processes find it in the store.

:class:`Meter` is the stopwatch with that roofline, and how much it may be used.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, fields, replace
from typing import Any

import numpy as np

from graphopt.cost.analytic import ALIASED, FAR, NEAR, Roofline
from graphopt.cost.blueprint import blueprint
from graphopt.cost.measure import REORDERS, Stopwatch, last_level
from graphopt.cost.micro import Micro, micro_model
from graphopt.cost.shapes import Shapes
from graphopt.cost.store import Store
from graphopt.cost.windows import VIEWS, Window
from graphopt.errors import SessionError
from graphopt.ir.edit import Edit
from graphopt.ir.graph import Graph, Value, build
from graphopt.ir.types import ValueType, digest
from graphopt.runtime.session import SessionConfig

_PREFIX = "roofline-3:"
_SCALE = "scale:graph"
TYPICAL = 1.043
"""Time of a graph over the sum of its windows, where nobody has calibrated it: the mean of nine models on a Zen 4."""
_SHORT, _LONG = 10, 50  # operators of two chains: what one more takes is their difference, over 40 of them
_VIEWS = 16  # of a chain, with products in between
_WAKING_S = 0.3  # within which a device has reached its clock
_NUMBERS = 1 << 18  # elements of an elementwise test: in the second-level cache, as a layer's activations are


class Meter:
    """A stopwatch that starts when it is first asked, and how much it may be used.

    Args:
        store: Where the roofline is kept.
        environment: Digest of the environment of ``config``.
        config: Provider, threads and level.
        seconds: How long it may measure in all.
        kernels: How many windows it may measure in all.
        measure: Whether to measure at all.

    Attributes:
        spent: Seconds that it has measured for, the fit of the roofline included.
        measured: Windows that it has measured.
    """

    def __init__(
        self,
        store: Store,
        environment: str,
        config: SessionConfig,
        seconds: float = math.inf,
        kernels: float = math.inf,
        measure: bool = True,
    ) -> None:
        self.store, self.environment, self.config = store, environment, config
        self.seconds, self.kernels, self.measure = seconds, kernels, measure
        self.spent = 0.0
        self.measured = 0
        self._watch: Stopwatch | None = None
        self._known: Roofline | None = None

    @property
    def watch(self) -> Stopwatch | None:
        """The stopwatch; ``None`` where nothing may be measured."""
        if self._watch is None and self.measure:
            with self.timed():
                self._watch = stopwatch(self.store, self.environment, self.config)
        return self._watch

    @property
    def roofline(self) -> Roofline:
        """The peak numbers of this machine; typical ones when they are not known and nothing may be measured."""
        if self.watch is not None:
            return self.watch.roofline
        if self._known is None:
            self._known = remembered(self.store, self.environment) or Roofline()
        return self._known

    @property
    def open(self) -> bool:
        """Whether another window may be measured."""
        return self.measure and self.spent < self.seconds and self.measured < self.kernels

    @contextmanager
    def timed(self) -> Iterator[None]:
        """Count what takes place as time spent."""
        begun = time.monotonic()
        try:
            yield
        finally:
            self.spent += time.monotonic() - begun

    @contextmanager
    def only(self, share: float) -> Iterator[None]:
        """Let a share of what is left be used for now."""
        whole = self.seconds, self.kernels
        self.seconds = self.spent + share * (self.seconds - self.spent)
        self.kernels = self.measured + share * (self.kernels - self.measured)
        try:
            yield
        finally:
            self.seconds, self.kernels = whole

    def keep(self) -> None:
        """Keep the best pace seen, so that the next process knows what the machine can do."""
        if self._watch is not None:
            _remember_pace(self.store, self.environment, self._watch)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_watch": None}  # its sessions stay in this process


def stopwatch(store: Store, environment: str, config: SessionConfig) -> Stopwatch:
    """A stopwatch for this machine, with its roofline from the store, or fitted now in well under a second.

    Raises:
        UnknownNameError: The provider or the level does not exist.
        UsageError: The provider is not installed.
    """
    known = remembered(store, environment)
    if known is not None:
        return _watch(config, known)
    watch = _watch(config, fit(config))
    _remember_pace(store, environment, watch)
    store.put_many(environment, {_PREFIX + name: value for name, value in asdict(watch.roofline).items()})
    return watch


def remembered(store: Store, environment: str) -> Roofline | None:
    """The roofline that an earlier process has left in the store, if any."""
    names = {_PREFIX + f.name: f.name for f in fields(Roofline)}
    known = store.get_many(environment, names)
    sound = len(known) == len(names) and all(value >= 0 for value in known.values())
    return Roofline(**{names[key]: value for key, value in known.items()}) if sound else None


def _remember_pace(store: Store, environment: str, watch: Stopwatch) -> None:
    """Keep the best pace seen, so that the next process knows what the machine can do."""
    if watch.best_ms < watch.roofline.pace_ms and math.isfinite(watch.best_ms):
        watch.roofline = replace(watch.roofline, pace_ms=watch.best_ms)
        store.put_many(environment, {_PREFIX + "pace_ms": watch.best_ms})


def remembered_scale(store: Store, environment: str) -> float:
    """Time of a graph over the sum of its windows, as calibrated in an environment, or what is typical."""
    known = store.get_many(environment, [_SCALE]).get(_SCALE, TYPICAL)
    return known if 0.5 < known < 2 else TYPICAL


def remember_scale(store: Store, environment: str, scale: float) -> None:
    """Keep a calibration for later processes."""
    store.put_many(environment, {_SCALE: scale})


def fit(config: SessionConfig) -> Roofline:
    """Measure the peak numbers; what can't be measured keeps its default."""
    bare = _watch(config, Roofline(overhead_ms=0.0, profiler_ms=0.0))
    try:
        if bare.outside:
            _wake(bare)
        short, long = _whole(_chain((8,), _SHORT)), _whole(_chain((8,), _LONG))
        nodes = _LONG - _SHORT
        call = bare.wall_ms(short.model, short.feeds)
        overhead = (bare.wall_ms(long.model, long.feeds) - call) / nodes
        if bare.outside:
            added = call - _SHORT * overhead
            bare.roofline = replace(bare.roofline, profiler_ms=max(0.0, added))
        else:
            added = ((_ms(bare, long) or 0.0) - (_ms(bare, short) or 0.0)) / nodes - overhead
        pace = bare.best_ms if math.isfinite(bare.best_ms) else 0.0
        found = {"overhead_ms": max(1e-5, overhead), "profiler_ms": max(0.0, added), "pace_ms": pace}
        product, copy, erf = (
            _ms(bare, _whole(g))
            for g in (_product(128, 512, 768), _chain((_NUMBERS,), 2), _chain((_NUMBERS,), 1, ("Erf",)))
        )
        if product:
            found["gflops"] = 2 * 128 * 512 * 768 / (product * 1e6)
        if copy:
            found["gbytes"] = 2 * 2 * 4 * _NUMBERS / (copy * 1e6)
        if erf:
            found["scalar_gops"] = 15 * _NUMBERS / (erf * 1e6)
        for name, nbytes in (("", NEAR), ("aliased_", ALIASED), ("far_", FAR)):
            pool = _whole(_pool(nbytes))
            if reorders := bare.kernel_ms(pool.model, pool.feeds, only=REORDERS):
                found[f"reorder_{name}gbytes"] = 2 * nbytes / (reorders * 1e6)
        views = _whole(_views(_VIEWS))
        # One of many like it finds its code in the cache. Where windows are timed from outside, nobody knows what another takes.
        apart = (bare.kernel_ms(views.model, views.feeds, only=VIEWS) or 0.0) / _VIEWS - found["profiler_ms"]
        found["overhead_ms"] = max(found["overhead_ms"], apart)
        found["shared_bytes"], speed = last_level()
        found["far_gbytes"] = speed / 1e9
        return Roofline(**found)
    except SessionError:
        return Roofline()


def _wake(watch: Stopwatch) -> None:
    """Let a device work until it is at its clock: what a call takes on one that rests would be taken off every window."""
    until = time.monotonic() + _WAKING_S
    while watch.paced and time.monotonic() < until:
        watch.slowdown()


def _watch(config: SessionConfig, roofline: Roofline) -> Stopwatch:
    reference = _whole(_product(64, 256, 256))
    try:
        return Stopwatch(config, roofline, (reference.model, reference.feeds))
    except SessionError:
        return Stopwatch(config, roofline)


def _ms(watch: Stopwatch, micro: Micro) -> float | None:
    return watch.kernel_ms(micro.model, micro.feeds)


def _whole(graph: Graph) -> Micro:
    """A graph as one window."""
    order = tuple(node.id for node in graph.in_order())
    return micro_model(graph, blueprint(graph, Window(order, order[-1]), Shapes()))


def _chain(shape: tuple[int, ...], length: int, operators: tuple[str, ...] = ("Neg", "Abs")) -> Graph:
    """Elementwise operators one after the other; two kinds in turn, or the runtime would drop some."""
    edit, key = _start(shape)
    for i in range(length):
        key = edit.add(operators[i % len(operators)], [key])[0]
    return _finish(edit, key)


def _product(rows: int, inner: int, columns: int) -> Graph:
    edit, key = _start((rows, inner))
    return _finish(edit, edit.add("MatMul", [key, edit.constant(np.ones((inner, columns), np.float32))])[0])


def _views(count: int) -> Graph:
    """Products with weights that fill a core's own cache, and a Reshape after each."""
    edit, key = _start((64, 512))
    for i in range(count):
        key = edit.add("MatMul", [key, edit.constant(np.full((512, 512), 0.01 + i / 1e4, np.float32))])[0]
        key = edit.add("Reshape", [key, edit.constant(np.array([64, 512] if i % 2 else [1, 64, 512], np.int64))])[0]
    return _finish(edit, key)


def _pool(nbytes: int) -> Graph:
    """A pooling of a map that the runtime does in blocks, between two conversions."""
    side = math.isqrt(nbytes // (4 * 64))
    edit, key = _start((1, 64, side, side))
    return _finish(edit, edit.add("MaxPool", [key], {"kernel_shape": (1, 1)})[0])


def _start(shape: tuple[int, ...]) -> tuple[Edit, int]:
    type = ValueType("f32", shape)
    key = digest("input", "x", str(type))
    return Edit(build([], {key: Value(key, "x", type)}, (key,), (), {"": 17})), key


def _finish(edit: Edit, key: int) -> Graph:
    edit.publish([("y", key)])
    return edit.commit()[0]
