"""What search knows of a cost model, and the bookkeeping that both models share.

The price of a graph is the sum of the prices of its windows (:mod:`graphopt.cost.windows`). Prices are kept as whole
picoseconds: integers add up to the same total in any order, so an update equals a fresh count to the last bit.

A window has two prices: with its weights in the processor's last-level cache, and with weights that come from memory. Which
holds is a matter of the whole graph. All weights of a model take turns, and where others share the cache (other processes, the
neighbours of a virtual machine) only a small model's stay until theirs comes again. A weight that is read several times in an
inference, as in an unrolled recurrent network, waits for a shorter time. The runtime packs a weight once for each type of
operator that reads it, so a rewrite that lets two types read one weight takes room for two.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import NamedTuple, Protocol

from immutables import Map

from graphopt.cost.layout import Layout, Layouts, Move
from graphopt.cost.shapes import Shapes
from graphopt.cost.windows import LOOKUPS, Partition, Window, partition, update
from graphopt.ir.delta import Delta
from graphopt.ir.graph import Graph

TICKS_PER_MS = 10**9
WARM, COLD = 0.25, 1.0
"""Size of all weights as a share of the last-level cache: up to the first they stay there, from the second on all come from memory.
Between the two lies what activations and the neighbours of a virtual machine take (measured on models of 5 to 21 MB, cache 32 MB)."""

Packed = tuple[int, str]
"""Key of a weight, and the type of the operators that it is packed for."""


class Price(NamedTuple):
    """The price of a window.

    Attributes:
        warm: Picoseconds with its weights in the cache.
        cold: Picoseconds with weights that come from memory.
        weights: Its weights, and their bytes.
    """

    warm: int
    cold: int
    weights: tuple[tuple[Packed, int], ...] = ()


@dataclass(frozen=True)
class Costs:
    """The predicted cost of a graph.

    Attributes:
        total: Predicted time of one inference in milliseconds.
        prices: The price of each window, by the id of its head.
        partition: The window of each node that runs; the model's own state, like what follows.
        layout: Which values are in the runtime's blocked layout, and the conversions.
        outputs: The graph's outputs: which values they are is not part of an edit's delta.
        sums: What the prices add up to.
    """

    total: float
    prices: Mapping[int, Price] = field(repr=False)
    partition: Partition = field(repr=False, compare=False)
    layout: Layout = field(repr=False, compare=False)
    outputs: tuple[tuple[str, int], ...] = field(repr=False, compare=False)
    sums: Sums

    @cached_property
    def by_node(self) -> Mapping[int, float]:
        """Milliseconds by node id; 0 for nodes that are fused into another. Nodes that never run are left out."""
        found = dict.fromkeys(self.partition, 0.0)
        for id, price in self.prices.items():
            found[id] = self.sums.of(price.warm, price.cold)
        return found


@dataclass(frozen=True)
class Sums:
    """What prices add up to.

    Attributes:
        warm: Picoseconds with all weights in the cache.
        cold: Picoseconds with all weights from memory.
        readers: How many windows read each weight.
        bytes: Size of all weights.
        read: Bytes of weights read in an inference.
        cache: Size of the last-level cache.
        scale: Time of a whole graph over the sum of its windows: what a window by itself does not show.
        most: Bytes that all weights may have; a graph of more takes infinitely long.
    """

    warm: int = 0
    cold: int = 0
    readers: Map[Packed, int] = field(default_factory=Map, repr=False)
    bytes: int = 0
    read: int = 0
    cache: float = 1.0
    scale: float = 1.0
    most: float = math.inf

    @property
    def share(self) -> float:
        """Share of the weights that come from memory."""
        return cold_share(self.bytes, self.read, self.cache)

    @property
    def ms(self) -> float:
        """Predicted milliseconds."""
        return self.of(self.warm, self.cold) if self.bytes <= self.most else math.inf

    def of(self, warm: int, cold: int) -> float:
        """Milliseconds that a part of the graph takes."""
        return self.scale * (warm + self.share * (cold - warm)) / TICKS_PER_MS

    def changed(self, gone: Iterable[Price], fresh: Iterable[Price]) -> tuple[Sums, dict[Packed, int]]:
        """The sums without some prices and with others, whose ``readers`` are those before; and how these change."""
        warm, cold, size, read = self.warm, self.cold, self.bytes, self.read
        readers: dict[Packed, int] = {}
        for prices, sign in ((fresh, 1), (gone, -1)):
            for price in prices:
                warm += sign * price.warm
                cold += sign * price.cold
                for weight, nbytes in price.weights:
                    before = readers[weight] if weight in readers else self.readers.get(weight, 0)
                    readers[weight] = before + sign
                    read += sign * nbytes
                    if not before or not before + sign:
                        size += sign * nbytes
        return replace(self, warm=warm, cold=cold, bytes=size, read=read), readers


class CostModel(Protocol):
    """Predicts the time of one inference.

    Attributes:
        name: Of the kind of model.
    """

    name: str

    @property
    def spent(self) -> float:
        """Seconds that it has measured for."""
        ...

    def of(self, graph: Graph) -> Costs:
        """The cost of a graph, from scratch; its time is a number of at least 0, or infinite for a graph that may not be."""
        ...

    def after(self, costs: Costs, graph: Graph, delta: Delta) -> Costs:
        """The cost of ``graph``, which came from the graph of ``costs`` by ``delta``; O(changed nodes)."""
        ...

    def total_after(self, costs: Costs, graph: Graph, delta: Delta) -> float:
        """The total of :meth:`after`, for a search that only wants to compare."""
        ...

    def correct(
        self, before: tuple[Graph, Costs], after: tuple[Graph, Costs], speedup: float, ci95: tuple[float, float]
    ) -> bool:
        """Learn from a comparison of two graphs by the clock; whether any price has changed."""
        ...

    def settle(self) -> None:
        """From now on an estimate may not depend on what was priced before it: the order of questions is no part of a task."""
        ...


class WindowCost(ABC):
    """A cost model that prices windows one by one, and the conversions of layout between them.

    Args:
        dims: Sizes of symbolic dimensions by name.
        block: Channels in a block of the runtime's convolution layout, 1 if it has none.
        growth: By how many bytes the weights of a graph may outgrow those of the first one that is priced from scratch.
    """

    name = "window"
    settled = False

    def __init__(self, dims: Mapping[str, int] | None = None, block: int = 1, growth: float = math.inf) -> None:
        self.cache = 1.0  # bytes of the last-level cache
        self.scale = 1.0
        self.growth = growth
        self.first: int | None = None  # bytes of weights of the graph that was priced first
        self.shapes = Shapes(dims)
        self.layouts = Layouts(self.shapes, block)

    @property
    def spent(self) -> float:
        """See :attr:`CostModel.spent`; a model without measurements spends nothing."""
        return 0.0

    def of(self, graph: Graph) -> Costs:
        """The cost of a graph, from scratch."""
        self.shapes.resolve(graph)
        windows = partition(graph)
        layout = self.layouts.of(graph)
        each = list({window.nodes[-1]: window for window in windows.values()}.values())
        prices = self._price(graph, each, layout)
        sums, readers = Sums(cache=self.cache, scale=self.scale).changed((), prices.values())
        if self.first is None:
            self.first = sums.bytes
        sums = replace(sums, readers=Map(readers), most=self.first + self.growth)
        return Costs(sums.ms, Map(prices), Map(windows), layout, graph.outputs, sums)

    def after(self, costs: Costs, graph: Graph, delta: Delta) -> Costs:
        """The cost of ``graph``, which came from the graph of ``costs`` by ``delta``; O(changed nodes)."""
        changes, gone, fresh, layout = self._changes(costs, graph, delta)
        windows, prices = Map(costs.partition).mutate(), Map(costs.prices).mutate()
        for id, window in changes.items():
            if window is None:
                windows.pop(id, None)
            else:
                windows[id] = window
        old = [prices.pop(window.head) for window in gone]
        new = self._fresh(costs, old, graph, fresh, layout)
        prices.update(new)
        sums, changed = costs.sums.changed(old, new.values())
        if changed:
            readers = costs.sums.readers.mutate()
            for weight, n in changed.items():
                if n:
                    readers[weight] = n
                else:
                    readers.pop(weight, None)
            sums = replace(sums, readers=readers.finish())
        return Costs(sums.ms, prices.finish(), windows.finish(), layout, graph.outputs, sums)

    def total_after(self, costs: Costs, graph: Graph, delta: Delta) -> float:
        """The total of :meth:`after` alone, in less time: nothing is copied that grows with the graph."""
        _, gone, fresh, layout = self._changes(costs, graph, delta)
        old = [costs.prices[window.head] for window in gone]
        return costs.sums.changed(old, self._fresh(costs, old, graph, fresh, layout).values())[0].ms

    def correct(
        self, before: tuple[Graph, Costs], after: tuple[Graph, Costs], speedup: float, ci95: tuple[float, float]
    ) -> bool:
        """See :meth:`CostModel.correct`; a model without measurements has nothing to correct."""
        return False

    def settle(self) -> None:
        """See :meth:`CostModel.settle`."""
        self.settled = True

    def _changes(
        self, costs: Costs, graph: Graph, delta: Delta
    ) -> tuple[dict[int, Window | None], list[Window], list[Window], Layout]:
        """How the windows change, those that lose their price, those to be priced, and the layout."""
        if graph.outputs is not costs.outputs:
            delta = _with_outputs(graph, costs.outputs, delta)
        changes, gone, fresh = update(graph, costs.partition, delta)
        layout, payers = self.layouts.after(costs.layout, graph, delta)
        seen = {window.nodes[-1] for window in fresh}
        for id in payers | self._elsewhere(graph, delta):
            window = changes[id] if id in changes else costs.partition.get(id)
            if window is not None and window.nodes[-1] not in seen:
                seen.add(window.nodes[-1])
                gone.append(window)
                fresh.append(window)
        return changes, gone, fresh, layout

    def _fresh(
        self, costs: Costs, old: Sequence[Price], graph: Graph, fresh: Sequence[Window], layout: Layout
    ) -> dict[int, Price]:
        """The prices of windows that take the place of others.

        Where the weights would then take more memory than they may, the total is infinite whatever the windows take, and only measuring
        them takes seconds and all memory there is: they have no price but their weights.
        """
        light = {window.head: Price(0, 0, self.weights(graph, window)) for window in fresh}
        if costs.sums.changed(old, light.values())[0].bytes > costs.sums.most:
            return light
        return self._price(graph, fresh, layout)

    def _price(self, graph: Graph, windows: Sequence[Window], layout: Layout) -> dict[int, Price]:
        """The prices of some windows with the conversions that they pay for, by head."""
        found: dict[int, Price] = {}
        for window, price in zip(windows, self.prices(graph, windows, layout), strict=True):
            moved = 0
            if layout.moves:
                for id in window.nodes:
                    for move in layout.by_payer.get(id, ()):
                        moved += self.move_price(graph, move)
            found[window.head] = Price(price.warm + moved, price.cold + moved, price.weights) if moved else price
        return found

    def _elsewhere(self, graph: Graph, delta: Delta) -> set[int]:
        """Nodes not near the edit whose price may depend on it all the same."""
        return set()

    def weights(self, graph: Graph, window: Window) -> tuple[tuple[Packed, int], ...]:
        """The constants of a window that are large enough for it to matter where they come from, and their bytes."""
        return ()

    @abstractmethod
    def prices(self, graph: Graph, windows: Sequence[Window], layout: Layout) -> list[Price]:
        """The price of each window."""

    @abstractmethod
    def move_price(self, graph: Graph, move: Move) -> int:
        """The price of a conversion into or out of the blocked layout, in picoseconds."""


def _with_outputs(graph: Graph, before: tuple[tuple[str, int], ...], delta: Delta) -> Delta:
    """The edit, with the makers of values that became graph outputs, or ceased to be, among the touched nodes.

    A value that is a graph output can't disappear into a fused kernel.
    """
    shifted = {key for _, key in before} ^ graph.output_keys
    makers = (graph.values[key].producer for key in shifted if key in graph.values)
    return Delta(delta.added, delta.removed, delta.touched + tuple(id for id in makers if id is not None))


def cold_share(nbytes: int, read: int, cache: float) -> float:
    """Share of a graph's weights that come from memory.

    Args:
        nbytes: Size of all of them.
        read: Bytes of them that an inference reads.
        cache: Bytes of the last-level cache.
    """
    # One that is read n times waits n times shorter, but what others take of the cache comes and goes: hence the root.
    size = nbytes * math.sqrt(nbytes / read) if read else 0.0
    return min(1.0, max(0.0, (size / cache - WARM) / (COLD - WARM)))


def held(graph: Graph) -> tuple[int, int]:
    """Bytes of a graph's weights, and of those that an inference reads."""
    nbytes = read = 0
    for key, value in graph.values.items():
        if value.tensor is not None:
            readers = sum(graph.nodes[id].op not in LOOKUPS for id in graph.users[key])
            nbytes += (value.type.nbytes or 0) * min(1, readers)
            read += (value.type.nbytes or 0) * readers
    return nbytes, read
