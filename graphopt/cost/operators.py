"""A price for each operator: a cost model for toys."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from graphopt.cost.base import TICKS_PER_MS, Price, WindowCost
from graphopt.cost.layout import Layout, Move
from graphopt.cost.models import CostModelSpec
from graphopt.cost.windows import Window
from graphopt.ir.graph import Graph


class OperatorCost(WindowCost):
    """A cost model for toys: each node that runs has the price of its operator, in milliseconds."""

    name = "operators"

    def __init__(self, by_operator: Mapping[str, float]) -> None:
        super().__init__()
        self._ticks = {op: round(ms * TICKS_PER_MS) for op, ms in by_operator.items()}

    def prices(self, graph: Graph, windows: Sequence[Window], layout: Layout) -> list[Price]:
        """The price of each window."""
        ticks = [sum(self._ticks.get(graph.nodes[id].op, 0) for id in window.nodes) for window in windows]
        return [Price(t, t) for t in ticks]

    def move_price(self, graph: Graph, move: Move) -> int:
        """Nothing."""
        return 0


SPEC = CostModelSpec(
    "operators", "a price for each operator, for toys", lambda wanted: OperatorCost(wanted.prices), ("prices",)
)
