"""Windows priced by measurement on this machine."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from graphopt.cost.analytic import Roofline, fetch_ms, move_ms, window_ms
from graphopt.cost.base import TICKS_PER_MS, Costs, Packed, Price, WindowCost, held
from graphopt.cost.blueprint import BLOCKED, Blueprint, blueprint, denormal_readers, denormal_shares
from graphopt.cost.fit import Meter, remembered_scale
from graphopt.cost.layout import Layout, Move, arrives_blocked
from graphopt.cost.measure import MEMORY, OWN, destination, evicted, farther, in_a_row, sources
from graphopt.cost.micro import UnbuildableError, micro_model, repeatable
from graphopt.cost.models import CostModelSpec, Wanted
from graphopt.cost.store import FAILED, Store
from graphopt.cost.windows import IN_PLACE, LOOKUPS, NORMALISATIONS, VIEWS, Window, quantised_ends, result
from graphopt.ir.delta import Delta
from graphopt.ir.graph import Graph
from graphopt.runtime.environment import block_size, machine_of
from graphopt.runtime.providers import CPU, full_name, on_host
from graphopt.runtime.session import SessionConfig

WEIGHTS = 1 << 16
"""Bytes; smaller constants are in the cache or fetched in no time."""
_TRIFLE = 0.01
"""Share of a graph's time that sessions of the same model differ by."""
_FARTHEST = 5.0
"""Limit of a correction: beyond, something else is wrong."""
ESTIMATE_MARKUP = 1.1
"""Factor on an estimate: a search should not prefer a window only because nobody measured it."""
_FELT = 0.01  # share of a window's time below which nobody can tell where from it reads something
_FIRST = 0.6  # share of the time for measuring that a first look at a graph may use

Priced = tuple[Graph, Costs]
_Census = dict[tuple[str, str], tuple[int, float, Window]]


class KernelCost(WindowCost):
    """Prices a window by what was measured, here or by an earlier process; by a corrected estimate where nothing was.

    A price, once given, stays: the same graph costs the same throughout the life of this object, until :meth:`correct`. Once
    ``settled`` is set, an estimate no longer depends on what was priced before it.

    Args:
        store: Measurements of earlier runs; new ones go there.
        config: Provider, threads and level of the sessions to predict.
        seconds: How long it may measure in all.
        kernels: How many windows it may measure in all; ``None`` for no limit.
        measure: Whether to measure at all; without, the store and estimates must do.
        dims: Sizes of symbolic dimensions by name.
        growth: By how many bytes the weights of a graph may outgrow those of the first one that is priced from scratch.
    """

    name = "kernel"

    def __init__(
        self,
        store: Store,
        config: SessionConfig | None = None,
        *,
        seconds: float = math.inf,
        kernels: int | None = None,
        measure: bool = True,
        dims: Mapping[str, int] | None = None,
        growth: float = math.inf,
    ) -> None:
        config = config or SessionConfig()
        # Only the CPU provider, at its highest level, keeps tensors in blocks from one node to the next.
        self._packs = full_name(config.provider) == CPU
        blocked = self._packs and config.level == "all"
        super().__init__(dims, block_size() if blocked else 1, growth)
        self.store = store
        # A window of operators that the provider lacks runs elsewhere, as it does in the model.
        self.config = replace(config, profile=None, save_optimized=None, required=False)
        self.environment = machine_of(self.config)
        self.scale = remembered_scale(store, self.environment)
        most = math.inf if kernels is None else kernels
        self._meter = Meter(store, self.environment, self.config, seconds, most, measure)
        self.estimated = 0
        self._sources: tuple[str, str] | None = None
        self._outputs = OWN  # where outputs go, by which cache holds what a model computes
        self._prices: dict[str, int] = {}
        self._known: dict[Any, Price] = {}
        self._signatures: dict[Any, tuple[str, str]] = {}
        self._factors: dict[str, float] | None = None
        self._ratios: dict[str, list[float]] = {}
        self._twice: set[str] = set()
        self._corrected: set[str] = set()  # by the clock, since this object is there

    @property
    def roofline(self) -> Roofline:
        """The peak numbers of this machine; typical ones when they are not known and nothing may be measured."""
        return self._meter.roofline

    @property
    def measured(self) -> int:
        """Windows that it has measured."""
        return self._meter.measured

    @property
    def spent(self) -> float:
        """Seconds that it has measured for."""
        return self._meter.spent

    def of(self, graph: Graph) -> Costs:
        """The cost of a graph, from scratch; measures the windows not yet known, the largest first."""
        if self._sources is None:
            # The caches are the processor's.
            if on_host(self.config.provider, self.config.provider_options):
                self.cache = self.roofline.shared_bytes
                weights, read = held(graph)
                self._outputs = destination(self.shapes.live_bytes(graph), self.cache)
                self._sources = (MEMORY, MEMORY) if self._outputs == MEMORY else sources(weights, read, self.cache)
            else:
                self.cache, self._sources = math.inf, (OWN, OWN)
        # New windows appear throughout a search: something must be left for them.
        with self._meter.only(_FIRST):
            return super().of(graph)

    def prices(self, graph: Graph, windows: Sequence[Window], layout: Layout) -> list[Price]:
        """The price of each window."""
        keys = [self._key(graph, window, layout) for window in windows]
        known = self._known
        if any(key not in known for key in keys):
            self._learn(graph, [(k, w) for k, w in zip(keys, windows, strict=True) if k not in known])
        return [known[key] for key in keys]

    def move_price(self, graph: Graph, move: Move) -> int:
        """The price of a conversion into or out of the blocked layout, in picoseconds."""
        size = self.shapes.map_size(graph, move.key)
        return round(move_ms(*size, self.roofline, self._outputs == MEMORY) * TICKS_PER_MS)

    def correct(self, before: Priced, after: Priced, speedup: float, ci95: tuple[float, float]) -> bool:
        """Learn from a comparison of two graphs by the clock: the second is ``speedup`` times as fast as the first.

        Where their predicted ratio lies outside of the measured interval, the windows in which they differ are measured again where
        the first time may have fallen into a slow moment of the machine. If that does not explain it, those that only the second graph
        has are taken to be the cause, in proportion to their prices; if there are none that the clock has not corrected before, those
        that only the first has. The correction goes to the store and holds for all graphs that are priced from now on; graphs that were priced
        before must be priced again.

        Returns:
            Whether a price has changed.
        """
        off = _off(before, after, ci95)
        if not off:
            return False
        # That the machine was slow while a kernel was measured is likelier than that the kernel takes another time in the model.
        again = self._measure_again(before, after)
        if again:
            before, after = (before[0], self.of(before[0])), (after[0], self.of(after[0]))
            off = _off(before, after, ci95)
        had, has = self._census(*before), self._census(*after)
        blamed, total = _more(has, had)
        if blamed <= self._corrected:
            blamed, total = _more(had, has)
            off *= -before[1].total / (after[1].total + off)
        if not total or not off:
            return again
        factor = min(max(1 + off / total, 1 / _FARTHEST), _FARTHEST)
        known = self.store.corrections(self.environment)
        changed = {s: min(max(known.get(s, 1.0) * factor, 1 / _FARTHEST), _FARTHEST) for s in blamed}
        self._corrected |= blamed
        self.store.put_corrections(self.environment, changed)
        self._forget()
        return True

    def slowdown(self) -> float:
        """How much slower the machine is just now than when its kernels were measured: prices are those of its best pace."""
        watch = self._meter.watch
        return 1.0 if watch is None else watch.slowdown()

    def signatures(self, graph: Graph, windows: Sequence[Window], layout: Layout) -> list[tuple[str, str]]:
        """By which the store knows some windows: with their weights in the cache, and from memory."""
        self.prices(graph, windows, layout)  # a correction may have come in between
        return [self._signatures[self._key(graph, window, layout)] for window in windows]

    # -- parts ----------------------------------------------------------------------------------------------------

    def _census(self, graph: Graph, costs: Costs) -> _Census:
        """How many windows of each signature a graph has, what one costs in milliseconds, and the last of them."""
        windows = list({window.nodes[-1]: window for window in costs.partition.values()}.values())
        found: _Census = {}
        for window, pair in zip(windows, self.signatures(graph, windows, costs.layout), strict=True):
            n = found[pair][0] if pair in found else 0
            found[pair] = n + 1, costs.by_node[window.head], window
        return found

    def _measure_again(self, before: Priced, after: Priced) -> bool:
        """Measure the windows again in which two graphs differ, the dearest first, each once; keep the lesser time of each.

        What disturbs a measurement only adds to it. Where the stopwatch tells slow moments by itself there is nothing to do.

        Returns:
            Whether a time has changed.
        """
        watch = self._meter.watch
        if watch is None or watch.paced:
            return False
        had, has = self._census(*before), self._census(*after)
        differ = [
            (abs(n - (there[pair][0] if pair in there else 0)) * ms, graph, costs, pair, window)
            for (graph, costs), here, there in ((before, had, has), (after, has, had))
            for pair, (n, ms, window) in here.items()
            if ms and (pair not in there or there[pair][0] != n)
        ]
        lesser: dict[str, float] = {}
        for _, graph, costs, pair, window in sorted(differ, key=lambda row: -row[0]):
            plan = blueprint(graph, window, self.shapes, self._key(graph, window, costs.layout)[2], self._packs)
            known = self.store.get_many(self.environment, pair)
            for signature, ms in known.items():
                if signature in self._twice or ms == FAILED or not self._meter.open:
                    continue
                self._twice.add(signature)
                self._meter.measured += 1
                found = self._run(graph, plan, signature, window)
                if found is not None and found < ms:
                    lesser[signature] = found
        if lesser:
            self.store.put_many(self.environment, lesser)
            self._forget()
        return bool(lesser)

    def _forget(self) -> None:
        """Prices have changed in the store."""
        self._factors = None
        self._prices.clear()
        self._known.clear()
        self._signatures.clear()

    def _key(self, graph: Graph, window: Window, layout: Layout) -> Any:
        """What decides the price of a window, cheaper to find than its signature."""
        values, nodes = graph.values, graph.nodes
        const = tuple([k is None or values[k].const for id in window.nodes for k in nodes[id].inputs])
        marks = denormal_shares(graph, window) + tuple((key, BLOCKED) for key in arrives_blocked(graph, window, layout))
        marks += quantised_ends(graph, nodes[window.head])
        open_ended = len(window.nodes) > 1 and nodes[window.nodes[-1]].op in NORMALISATIONS
        made = [result(nodes[id]) for id in window.nodes] if open_ended else ()
        seen = tuple([len(graph.users[key]) for key in made if key is not None])
        return window.nodes, const, marks, seen

    def _elsewhere(self, graph: Graph, delta: Delta) -> set[int]:
        return denormal_readers(graph, delta)

    def _learn(self, graph: Graph, windows: Sequence[tuple[Any, Window]]) -> None:
        """Find the price of windows not seen before."""
        plans: dict[str, tuple[Blueprint, Window]] = {}
        found: dict[Any, tuple[str, str, tuple[tuple[Packed, int], ...]]] = {}
        for key, window in windows:
            plan = blueprint(graph, window, self.shapes, key[2], self._packs)
            weights = self.weights(graph, window)
            warm, cold = self._places(graph, window, weights)
            found[key] = plan.signature + warm, plan.signature + cold, weights
            for signature in found[key][:2]:
                if signature not in self._prices:
                    plans.setdefault(signature, (plan, window))
        if plans:
            self._price_all(graph, plans)
        assert self._sources is not None
        # Where the first graph's weights fit the cache, what it costs others to outgrow it is estimated.
        fits = self._sources[1] != MEMORY
        for key, (warm, cold, weights) in found.items():
            fetched = fetch_ms(_size(weights), self.roofline) if fits else 0.0
            self._known[key] = Price(self._prices[warm], self._prices[cold] + round(fetched * TICKS_PER_MS), weights)
            self._signatures[key] = warm, cold

    def weights(self, graph: Graph, window: Window) -> tuple[tuple[Packed, int], ...]:
        """See :meth:`graphopt.cost.base.WindowCost.weights`."""
        found: dict[Packed, int] = {}
        for id in window.nodes:
            node = graph.nodes[id]
            if node.op in LOOKUPS:
                continue  # reads a few rows
            for key in node.inputs:
                if key is not None and graph.values[key].const:
                    nbytes = self.shapes.nbytes(graph, key)
                    if nbytes >= WEIGHTS:
                        found[key, node.op] = nbytes
        return tuple(found.items())

    def _price_all(self, graph: Graph, plans: Mapping[str, tuple[Blueprint, Window]]) -> None:
        stored = {
            s: ms for s, ms in self.store.get_many(self.environment, plans).items() if ms == FAILED or 0 < ms < math.inf
        }
        analytic = {s: self._estimate(graph, window, s) for s, (_, window) in plans.items()}
        for signature, ms in stored.items():
            if ms != FAILED:
                self._set(signature, ms)
                self._compare(graph, plans[signature][1], ms, analytic[signature])
        left = [signature for signature, ms in stored.items() if ms == FAILED]
        fresh: dict[str, float] = {}
        try:
            for signature in sorted(plans.keys() - stored.keys(), key=lambda s: -analytic[s]):
                plan, window = plans[signature]
                if all(node.op in VIEWS for node in plan.nodes):
                    self._set(signature, self.roofline.overhead_ms)
                elif not self._meter.open:
                    left.append(signature)
                else:
                    found = self._run(graph, plan, signature, window)
                    fresh[signature] = FAILED if found is None else found
                    if found is None:
                        left.append(signature)
                        continue
                    self._meter.measured += 1
                    self._set(signature, found)
                    self._compare(graph, window, found, analytic[signature])
        finally:
            if fresh:
                self.store.put_many(self.environment, fresh)
                self._meter.keep()
        for signature in left:
            self.estimated += 1
            self._set(signature, ESTIMATE_MARKUP * analytic[signature] * self._correction(graph, plans[signature][1]))

    def _estimate(self, graph: Graph, window: Window, signature: str) -> float:
        """Milliseconds of a window that is not measured."""
        ms = window_ms(graph, window, self.roofline, self.shapes)
        if signature.endswith(MEMORY):
            ms += fetch_ms(_size(self.weights(graph, window)), self.roofline)
        return ms

    def _places(self, graph: Graph, window: Window, weights: tuple[tuple[Packed, int], ...]) -> tuple[str, str]:
        """From where to measure a window, for its warm and for its cold price: from where its weights come, or its output goes, if its time shows it."""
        assert self._sources is not None
        nodes = [graph.nodes[id] for id in window.nodes]
        made = 0
        if self._outputs != OWN and not all(node.op in IN_PLACE for node in nodes):
            made = sum(self.shapes.nbytes(graph, key) for key in nodes[-1].outputs if key is not None)
        if not weights and not made:
            return OWN, OWN
        felt = _FELT * window_ms(graph, window, self.roofline, self.shapes) * self.roofline.far_gbytes * 1e6
        warm, cold = self._sources if _size(weights) > felt else (OWN, OWN)
        return (farther(warm, self._outputs), farther(cold, self._outputs)) if made > felt else (warm, cold)

    def _run(self, graph: Graph, plan: Blueprint, signature: str, window: Window) -> float | None:
        watch = self._meter.watch
        if watch is None:
            return None
        with self._meter.timed():
            copies = 1
            # Copies find the place for their result in the cache.
            if self._packs and self._outputs != MEMORY and repeatable(graph, plan):
                weights = _size(self.weights(graph, window))
                copies = in_a_row(signature, weights, self._estimate(graph, window, signature), self.cache)
            try:
                micro = micro_model(graph, plan, copies, computed=self._packs)
            except UnbuildableError:
                return None
            evict = evicted(signature, self.cache)
            return watch.kernel_ms(micro.model, micro.feeds, evict=evict, copies=copies, unit=micro.unit)

    def _set(self, signature: str, ms: float) -> None:
        if self._factors is None:
            self._factors = self.store.corrections(self.environment)
        self._prices[signature] = round(ms * self._factors.get(signature, 1.0) * TICKS_PER_MS)

    def _compare(self, graph: Graph, window: Window, ms: float, estimate: float) -> None:
        """Learn how far off the estimate is for windows of this kind."""
        if self.settled:
            return
        self._ratios.setdefault(graph.nodes[window.head].op, []).append(ms / estimate)

    def _correction(self, graph: Graph, window: Window) -> float:
        """Geometric mean of measured over estimated times, of the same operator if possible."""
        ratios = self._ratios.get(graph.nodes[window.head].op)
        if not ratios:
            ratios = [r for each in self._ratios.values() for r in each]
        return math.exp(sum(math.log(r) for r in ratios) / len(ratios)) if ratios else 1.0


def _off(before: Priced, after: Priced, ci95: tuple[float, float]) -> float:
    """By how many milliseconds the second of two graphs is off, at least, if the first takes what it is predicted to; 0 for a trifle."""
    if not (before[1].total > 0 and after[1].total > 0):
        return 0.0  # nothing is left to compute: no price is to blame
    predicted = before[1].total / after[1].total
    believed = min(max(predicted, ci95[0]), ci95[1])
    off = before[1].total / believed - after[1].total
    return 0.0 if abs(off) < _TRIFLE * after[1].total else off


def _more(one: _Census, other: _Census) -> tuple[set[str], float]:
    """Signatures of which one graph has more windows than another, and the milliseconds that these take."""
    more = {pair: (n - other[pair][0] if pair in other else n) * ms for pair, (n, ms, _) in one.items()}
    found = {pair: ms for pair, ms in more.items() if ms > 0}
    return {signature for pair in found for signature in pair}, sum(found.values())


def _size(weights: tuple[tuple[Packed, int], ...]) -> int:
    """Bytes of all weights of a window."""
    return sum(nbytes for _, nbytes in weights)


def _made(wanted: Wanted) -> KernelCost:
    return KernelCost(
        wanted.store,
        wanted.config,
        seconds=wanted.seconds,
        kernels=wanted.kernels,
        measure=wanted.measure,
        dims=wanted.dims,
        growth=wanted.growth,
    )


SPEC = CostModelSpec("kernel", "windows of kernels, measured on this machine", _made, ("measure",))
