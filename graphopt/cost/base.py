"""What search knows of a cost model, and the bookkeeping that both models share.

The price of a graph is the sum of the prices of its windows (:mod:`graphopt.cost.windows`). Prices are kept as whole
picoseconds: integers add up to the same total in any order, so an update equals a fresh count to the last bit.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

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
        partition: The window of each node that runs; the model's own state.
        ticks: The total in picoseconds.
    """

    total: float
    by_node: Mapping[int, float]
    partition: Partition = field(default_factory=dict, repr=False, compare=False)
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


class WindowCost(ABC):
    """A cost model that prices windows one by one."""

    name = "window"

    def of(self, graph: Graph) -> Costs:
        """The cost of a graph, from scratch."""
        windows = partition(graph)
        each = list({window.nodes[-1]: window for window in windows.values()}.values())
        by_node = dict.fromkeys(graph.nodes, 0.0)
        total = 0
        for window, ticks in zip(each, self.prices(graph, each), strict=True):
            by_node[window.head] = ticks / TICKS_PER_MS
            total += ticks
        return Costs(total / TICKS_PER_MS, by_node, windows, total)

    def after(self, costs: Costs, graph: Graph, delta: Delta) -> Costs:
        """The cost of ``graph``, which came from the graph of ``costs`` by ``delta``; O(changed nodes).

        Args:
            costs: What this model said of the graph before the edit.
            graph: The graph after it.
            delta: The edit.
        """
        windows, gone, fresh = update(graph, costs.partition, delta)
        by_node = dict(costs.by_node)
        total = costs.ticks
        for window in gone:
            total -= round(by_node[window.head] * TICKS_PER_MS)
            by_node[window.head] = 0.0
        for node in delta.removed:
            if node.id not in graph.nodes:
                by_node.pop(node.id, None)
        for node in delta.added:
            by_node[node.id] = 0.0
        for window, ticks in zip(fresh, self.prices(graph, fresh), strict=True):
            by_node[window.head] = ticks / TICKS_PER_MS
            total += ticks
        return Costs(total / TICKS_PER_MS, by_node, windows, total)

    @abstractmethod
    def prices(self, graph: Graph, windows: Iterable[Window]) -> list[int]:
        """The price of each window, in picoseconds."""
