"""The topological order of a graph under construction: every node has a rank above those that it reads."""

from __future__ import annotations

import heapq
from collections.abc import Iterable

from immutables import Map, MapMutation

from graphopt.ir.delta import RefusedError
from graphopt.ir.graph import Node, Value

_PASSES = 3
"""Attempts to put nodes whose operands changed where they belong, before all ranks are found anew."""
_CLOSE = 1e-9
"""Distance of ranks below which they are found anew: above what is left of a float64 between the ranks of a million nodes."""


class Ranks:
    """Ranks that an edit keeps up, in proportion to what it changes.

    Args:
        nodes: Nodes of the graph under construction, by id.
        values: Its values, by key.
        users: Ids of the nodes that read each value.
        base: The ranks before.

    Attributes:
        order: The ranks, by id of the node.
        floor: New nodes come after this rank.
        ceiling: And before this one.
        rewired: Nodes that read other values than before.
    """

    def __init__(
        self,
        nodes: MapMutation[int, Node],
        values: MapMutation[int, Value],
        users: MapMutation[int, tuple[int, ...]],
        base: Map[int, float],
    ) -> None:
        self._nodes, self._values, self._users, self._base = nodes, values, users, base
        self.order = base.mutate()
        self.floor, self.ceiling = -float("inf"), float("inf")
        self.rewired: list[int] = []

    def settle(self, fresh: list[int], defined: Iterable[int]) -> None:
        """Give each new node a rank between those it reads and those that read it.

        Args:
            fresh: The new nodes, operands first.
            defined: Values that have a new definition.

        Raises:
            RefusedError: There is a cycle.
        """
        settled = True
        if fresh:
            low, high = self.floor, self.ceiling
            if high == float("inf"):
                high = max(low, max(self._base.values(), default=0.0)) + 1.0
            if low == -float("inf"):
                low = high - 1.0
            settled = self._seat(fresh, low, high) if low < high else self._lift(fresh, high)
        doubtful = dict.fromkeys(self.rewired)
        if self.floor >= self.ceiling:
            doubtful.update(dict.fromkeys(u for root in defined for u in self._users.get(root, ())))
        for _ in range(_PASSES):
            early = [i for i in doubtful if i in self._nodes and not self._after_operands(i)] if settled else []
            settled = settled and all(self._lift([i], self.order[i]) for i in early)
            if not early:
                break
        if not settled or early:
            self.order = self._topological(fresh)

    def _seat(self, nodes: list[int], low: float, high: float) -> bool:
        """Spread the ranks of some nodes between two others; false when these are too close."""
        step = (high - low) / len(nodes)
        for i, node in enumerate(nodes):
            self.order[node] = low + step * (i + 1)
        return step >= _CLOSE

    def _lift(self, nodes: list[int], high: float) -> bool:
        """Rank some nodes below ``high``, and before them all that they depend on and that does not rank below it yet.

        Returns:
            False when only ranks from scratch can tell: what they depend on depends on one of them.
        """
        low, before = -float("inf"), dict[int, float]()
        waiting = list(nodes)
        while waiting:
            reader = waiting.pop()
            for key in self._nodes[reader].inputs:
                node = None if key is None else self._values[key].producer
                if node is None or node in before:
                    continue
                if node in nodes:
                    if reader in before or nodes.index(node) >= nodes.index(reader):
                        return False
                elif self.order[node] < high:
                    low = max(low, self.order[node])
                else:
                    before[node] = self.order[node]
                    waiting.append(node)
        low = high - 1.0 if low == -float("inf") else low
        moved = sorted(before, key=lambda i: (before[i], i)) + nodes
        return self._seat(moved, low, low + (high - low) * len(moved) / (len(moved) + 1))

    def _after_operands(self, node: int) -> bool:
        rank = self.order[node]
        producers = (self._values[k].producer for k in self._nodes[node].inputs if k is not None)
        return all(p is None or self.order[p] < rank for p in producers)

    def _topological(self, fresh: list[int]) -> MapMutation[int, float]:
        """Ranks from scratch, as close to the old order as the edges allow.

        Raises:
            RefusedError: There is a cycle.
        """
        nodes, old = self._nodes.finish(), dict(self.order.finish())
        for i in fresh:
            old[i] = min(self.ceiling, 1e18)
        waiting = {
            i: len(
                {self._values[k].producer for k in n.inputs if k is not None and self._values[k].producer is not None}
            )
            for i, n in nodes.items()
        }
        ready = [(old[i], i) for i, n in waiting.items() if n == 0]
        heapq.heapify(ready)
        order: dict[int, float] = {}
        while ready:
            _, i = heapq.heappop(ready)
            order[i] = float(len(order))
            readers = {u for k in nodes[i].outputs if k is not None for u in self._users[k]}
            for user in readers:
                waiting[user] -= 1
                if waiting[user] == 0:
                    heapq.heappush(ready, (old[user], user))
        if len(order) != len(nodes):
            raise RefusedError("the rewrite would make a cycle")
        return Map(order).mutate()
