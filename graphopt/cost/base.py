"""What search knows of a cost model, and the bookkeeping that both models share.

The price of a graph is the sum of the prices of its windows (:mod:`graphopt.cost.windows`). Prices are kept as whole
picoseconds: integers add up to the same total in any order, so an update equals a fresh count to the last bit.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from graphopt.cost.layout import NOTHING, Layout, Layouts, Move
from graphopt.cost.shapes import Shapes
from graphopt.cost.windows import Partition, Window, partition, update
from graphopt.ir.edit import Delta
from graphopt.ir.graph import Graph

TICKS_PER_MS = 10**9


@dataclass(frozen=True)
class Costs:
    """The predicted cost of a graph.

    Attributes:
        total: Predicted time of one inference in milliseconds.
        by_node: The same by node id; 0 for nodes that never run and for those fused into another.
        partition: The window of each node that runs; the model's own state, like what follows.
        layout: Which values are in the runtime's blocked layout, and the conversions.
        outputs: The graph's outputs: which values they are is not part of an edit's delta.
        ticks: The total in picoseconds.
    """

    total: float
    by_node: Mapping[int, float]
    partition: Partition = field(default_factory=dict, repr=False, compare=False)
    layout: Layout = field(default=NOTHING, repr=False, compare=False)
    outputs: tuple[tuple[str, int], ...] = field(default=(), repr=False, compare=False)
    ticks: int = field(default=0, repr=False, compare=False)


class CostModel(Protocol):
    """Predicts the time of one inference."""

    name: str

    def of(self, graph: Graph) -> Costs:
        """The cost of a graph, from scratch."""
        ...

    def after(self, costs: Costs, graph: Graph, delta: Delta) -> Costs:
        """The cost of ``graph``, which came from the graph of ``costs`` by ``delta``; O(changed nodes)."""
        ...

    def total_after(self, costs: Costs, graph: Graph, delta: Delta) -> float:
        """The total of :meth:`after`, for a search that only wants to compare."""
        ...


class WindowCost(ABC):
    """A cost model that prices windows one by one, and the conversions of layout between them.

    Args:
        dims: Sizes of symbolic dimensions by name.
        block: Channels in a block of the runtime's convolution layout, 1 if it has none.
    """

    name = "window"

    def __init__(self, dims: Mapping[str, int] | None = None, block: int = 1) -> None:
        self.shapes = Shapes(dims)
        self.layouts = Layouts(self.shapes, block)

    def of(self, graph: Graph) -> Costs:
        """The cost of a graph, from scratch."""
        self.shapes.resolve(graph)
        windows = partition(graph)
        layout = self.layouts.of(graph)
        by_node = dict.fromkeys(graph.nodes, 0.0)
        each = list({window.nodes[-1]: window for window in windows.values()}.values())
        total = self._add(graph, each, layout, by_node)
        return Costs(total / TICKS_PER_MS, by_node, windows, layout, graph.outputs, total)

    def after(self, costs: Costs, graph: Graph, delta: Delta) -> Costs:
        """The cost of ``graph``, which came from the graph of ``costs`` by ``delta``; O(changed nodes).

        Args:
            costs: What this model said of the graph before the edit.
            graph: The graph after it.
            delta: The edit.
        """
        changes, gone, fresh, layout = self._changes(costs, graph, delta)
        windows = dict(costs.partition)
        for id, window in changes.items():
            if window is None:
                windows.pop(id, None)
            else:
                windows[id] = window
        by_node = dict(costs.by_node)
        total = costs.ticks
        for old in gone:
            total -= round(by_node[old.head] * TICKS_PER_MS)
            by_node[old.head] = 0.0
        for node in delta.removed:
            if node.id not in graph.nodes:
                by_node.pop(node.id, None)
        for node in delta.added:
            by_node[node.id] = 0.0
        total += self._add(graph, fresh, layout, by_node)
        return Costs(total / TICKS_PER_MS, by_node, windows, layout, graph.outputs, total)

    def total_after(self, costs: Costs, graph: Graph, delta: Delta) -> float:
        """The total of :meth:`after` alone, in less time: nothing is copied that grows with the graph."""
        _, gone, fresh, layout = self._changes(costs, graph, delta)
        total = costs.ticks - sum(round(costs.by_node[old.head] * TICKS_PER_MS) for old in gone)
        return (total + self._add(graph, fresh, layout, {})) / TICKS_PER_MS

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

    def _add(self, graph: Graph, windows: Sequence[Window], layout: Layout, by_node: dict[int, float]) -> int:
        """Enter the prices of some windows; their sum."""
        total = 0
        for window, ticks in zip(windows, self.prices(graph, windows, layout), strict=True):
            if layout.moves:
                for id in window.nodes:
                    for move in layout.by_payer.get(id, ()):
                        ticks += self.move_price(graph, move)
            by_node[window.head] = ticks / TICKS_PER_MS
            total += ticks
        return total

    def _elsewhere(self, graph: Graph, delta: Delta) -> set[int]:
        """Nodes not near the edit whose price may depend on it all the same."""
        return set()

    @abstractmethod
    def prices(self, graph: Graph, windows: Sequence[Window], layout: Layout) -> list[int]:
        """The price of each window, in picoseconds."""

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
