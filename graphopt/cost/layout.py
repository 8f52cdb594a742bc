"""Where the runtime converts between its blocked convolution layout and the plain one.

On a CPU the runtime keeps feature maps in blocks of 8 or 16 channels (NCHWc) from one convolution to the next, as long as
every operator between knows that layout. Where one does not, it inserts a conversion, and another one before the next
convolution. A rewrite that puts a Reshape or a broadcast Mul between two convolutions pays for both; one that removes it
earns both. The rules here follow ``onnxruntime/core/optimizer/nchwc_transformer.cc``.

A value is *blocked* or not by what produces it, and a conversion belongs to a value: out of the blocks when some reader
needs it plain, into them when it is plain and some reader wants blocks. However many such readers there are, it is done
once.
"""

from __future__ import annotations

import heapq
from collections.abc import Container, Mapping
from dataclasses import dataclass, field

from immutables import Map, MapMutation

from graphopt.cost.shapes import Shapes
from graphopt.cost.windows import Window, result
from graphopt.ir.delta import Delta
from graphopt.ir.graph import Graph, Node

_ALIGNED = 4  # channels: what the conversion itself can handle is a multiple of this
_POOLS = frozenset({"MaxPool", "AveragePool"})
_GLOBAL_POOLS = frozenset({"GlobalMaxPool", "GlobalAveragePool"})
_UNARY = frozenset({"Relu", "Sigmoid", "Tanh", "HardSigmoid", "HardSwish", "Gelu", "QuickGelu", "BatchNormalization"})
_FUSED = frozenset({"LeakyRelu", "Clip"})  # known to the layout only as the activation of a convolution
_SHAPED = frozenset({"Add", "Sum", "Mul"})
_TO_LAST, _FROM_LAST = (0, 2, 3, 1), (0, 3, 1, 2)
_DROPPED = frozenset({"Identity", "Dropout"})
_CONVERTED = frozenset({"Conv", "FusedConv"}) | _POOLS


@dataclass(frozen=True, slots=True)
class Move:
    """A conversion of a value.

    Attributes:
        key: The value.
        inward: Whether it goes into the blocks, else out of them.
        payer: The node to whose price it is added.
    """

    key: int
    inward: bool
    payer: int


@dataclass(frozen=True)
class Layout:
    """The layout of a graph's values.

    Attributes:
        blocked: Keys of the blocked values (a mapping, because there is no persistent set).
        moves: Conversion by value.
        by_payer: The conversions that a node pays for.
        live: Whether the graph has anything that the layout is made for; without, nothing is tracked.
    """

    blocked: Mapping[int, None] = field(default_factory=dict)
    moves: Mapping[int, Move] = field(default_factory=dict)
    by_payer: Mapping[int, tuple[Move, ...]] = field(default_factory=dict)
    live: bool = False


NO_LAYOUT = Layout()


class Layouts:
    """Finds the layout of graphs.

    Args:
        shapes: Static shapes of values.
        block: Channels in a block; 1 when the runtime has no such layout, and then nothing is ever blocked.
    """

    def __init__(self, shapes: Shapes, block: int) -> None:
        self.shapes = shapes
        self.block = block

    def of(self, graph: Graph) -> Layout:
        """The layout of a graph, from scratch."""
        if self.block <= 1 or not any(node.op in _CONVERTED for node in graph.nodes.values()):
            return NO_LAYOUT
        blocked: dict[int, None] = {}
        for node in graph.in_order():
            key = result(node)
            if key is not None and self._blocks(graph, node, blocked):
                blocked[key] = None
        moves, payers = Map[int, Move]().mutate(), Map[int, tuple[Move, ...]]().mutate()
        for key in graph.values:
            _put(moves, payers, key, self._move(graph, key, blocked))
        return Layout(Map(blocked), moves.finish(), payers.finish(), True)

    def after(self, old: Layout, graph: Graph, delta: Delta) -> tuple[Layout, set[int]]:
        """The layout after an edit.

        Returns:
            The layout, and the nodes that pay for other conversions or read a value whose layout changed.
        """
        if not old.live:
            if self.block <= 1 or not any(node.op in _CONVERTED for node in delta.added):
                return old, set()
            new = self.of(graph)
            return new, set(new.by_payer) | {u for key in new.blocked for u in graph.users[key]}
        blocked, moves, payers = Map(old.blocked).mutate(), Map(old.moves).mutate(), Map(old.by_payer).mutate()
        # Values whose maker, readers or layout changed; their conversions are looked at once all layouts are known.
        open_values: set[int] = set()
        for node in delta.removed:
            open_values.update(k for k in (*node.inputs, *node.outputs) if k is not None)
        start = {node.id for node in delta.added} | set(delta.touched)
        for id in list(start):
            if id in graph.nodes:
                start.update(u for k in graph.nodes[id].outputs if k is not None for u in graph.users[k])
        queue = [(graph.order[id], id) for id in start if id in graph.nodes]
        heapq.heapify(queue)
        queued = {id for _, id in queue}
        changed: set[int] = set()
        while queue:
            _, id = heapq.heappop(queue)
            queued.discard(id)
            node = graph.nodes[id]
            open_values.update(k for k in (*node.inputs, *node.outputs) if k is not None)
            single = result(node)
            for key in node.outputs:
                if key is None or (key == single and self._blocks(graph, node, blocked)) == (key in blocked):
                    continue
                if key in blocked:
                    del blocked[key]
                else:
                    blocked[key] = None
                changed.update(graph.users[key])
                for user in graph.users[key]:
                    if user not in queued:
                        queued.add(user)
                        heapq.heappush(queue, (graph.order[user], user))
        for key in open_values:
            before = moves.get(key)
            move = self._move(graph, key, blocked) if key in graph.values else None
            if key not in graph.values:
                blocked.pop(key, None)
            if move != before:
                changed.update(m.payer for m in (before, move) if m is not None)
                _take(moves, payers, key)
                _put(moves, payers, key, move)
        return Layout(blocked.finish(), moves.finish(), payers.finish(), True), changed

    # -- rules ----------------------------------------------------------------------------------------------------

    def _blocks(self, graph: Graph, node: Node, blocked: Container[int]) -> bool:
        """Whether a node's result is blocked."""
        if node.opaque or node.domain not in ("", "com.microsoft") or not node.inputs or node.inputs[0] is None:
            return False
        op, data = node.op, node.inputs[0]
        if op in ("Conv", "FusedConv"):
            return self._wants(graph, node) or self._direct(graph, node)
        if op in _POOLS:
            return self._wants(graph, node)
        if op in _GLOBAL_POOLS:
            return data in blocked and self._channels(graph, data) % self.block == 0
        if op in _UNARY:
            return data in blocked
        if op in _FUSED:
            return data in blocked and self._after_convolution(graph, data)
        varying = [k for k in node.inputs if k is not None and not graph.values[k].const]
        if not varying or any(k not in blocked for k in varying):
            return False
        if op in _SHAPED:
            if len(varying) < len(node.inputs):
                return self._per_channel(graph, node) and (op == "Mul" or self._after_convolution(graph, varying[0]))
            shape = self.shapes.shape(graph, data)
            return all(self.shapes.shape(graph, k) == shape for k in varying)
        if op == "Concat":
            return node.attributes.get("axis") == 1 and all(self._channels(graph, k) % self.block == 0 for k in varying)
        return (
            op == "Resize"
            and node.attributes.get("mode", "nearest") in ("nearest", "linear")
            and (
                node.attributes.get("coordinate_transformation_mode", "half_pixel") == "asymmetric"
                or node.attributes.get("mode") == "linear"
            )
        )

    def _wants(self, graph: Graph, node: Node) -> bool:
        """Whether a node works on a blocked operand and has a plain one converted."""
        key = node.inputs[0] if node.inputs else None
        if key is None or node.opaque:
            return False
        if node.op in _POOLS:
            return (
                len(node.outputs) == 1
                and len(self.shapes.shape(graph, key)) == 4
                and self.shapes.type(graph, key).dtype == "f32"
                and self._channels(graph, key) % self.block == 0
            )
        weight = self._weight(graph, node)
        if weight is None:
            return False
        out, inner = weight[0], weight[1]
        group = int(node.attributes.get("group", 1))
        if group == 1:
            return inner >= self.block and inner % _ALIGNED == 0
        if out % _ALIGNED:
            return False
        return (inner == 1 and out == group) or (
            inner % self.block == 0 and out % group == 0 and out // group % self.block == 0
        )

    def _direct(self, graph: Graph, node: Node) -> bool:
        """Whether a convolution reads a plain operand of few channels and makes a blocked result."""
        weight = self._weight(graph, node)
        return weight is not None and int(node.attributes.get("group", 1)) == 1 and weight[1] < self.block

    def _weight(self, graph: Graph, node: Node) -> tuple[int, ...] | None:
        """Shape of a constant weight of a two-dimensional convolution."""
        if node.op not in ("Conv", "FusedConv") or len(node.inputs) < 2 or node.inputs[1] is None:
            return None
        if any(k is not None and not graph.values[k].const for k in node.inputs[1:3]):
            return None
        type = self.shapes.type(graph, node.inputs[1])
        return self.shapes.shape(graph, node.inputs[1]) if type.dtype == "f32" and len(type.shape or ()) == 4 else None

    def _after_convolution(self, graph: Graph, key: int) -> bool:
        """Whether a value comes from a convolution and goes nowhere else, so that its reader is fused into it."""
        maker = graph.producer(key)
        return maker is not None and maker.op in ("Conv", "FusedConv") and len(graph.users[key]) == 1

    def _per_channel(self, graph: Graph, node: Node) -> bool:
        """Whether the constant operand is one number, or one for each channel."""
        for key in node.inputs:
            if key is not None and graph.values[key].const:
                shape = self.shapes.shape(graph, key)
                if any(d != 1 for i, d in enumerate(reversed(shape)) if i != 2):
                    return False
        return True

    def _channels(self, graph: Graph, key: int) -> int:
        shape = self.shapes.shape(graph, key)
        return shape[1] if len(shape) > 1 else 1

    # -- conversions ----------------------------------------------------------------------------------------------

    def _move(self, graph: Graph, key: int, blocked: Container[int]) -> Move | None:
        """The conversion of a value, if it needs one."""
        value = graph.values[key]
        if value.const:
            return None
        if key in blocked:
            assert value.producer is not None
            if key in graph.output_keys or any(self._plain(graph, graph.nodes[u], blocked) for u in graph.users[key]):
                return Move(key, False, value.producer)
            return None
        takers = [u for u in graph.users[key] if graph.nodes[u].inputs[0] == key and self._wants(graph, graph.nodes[u])]
        if not takers:
            return None
        maker = graph.producer(key)
        if maker is None:
            return Move(key, True, min(takers))
        if maker.op == "Transpose" and maker.attributes.get("perm") == _FROM_LAST and len(graph.users[key]) == 1:
            return None  # one kernel does both
        return Move(key, True, maker.id)

    def _plain(self, graph: Graph, node: Node, blocked: Container[int]) -> bool:
        """Whether a reader of a blocked value needs it plain."""
        if node.op == "Transpose" and node.attributes.get("perm") == _TO_LAST:
            return False  # one kernel does both
        if node.op in _DROPPED:
            return False
        key = result(node)
        return key is None or key not in blocked or self._direct(graph, node)


def arrives_blocked(graph: Graph, window: Window, layout: Layout) -> tuple[int, ...]:
    """Operands from outside that a window is measured with in the blocked layout, because its kernel is another one there.

    A convolution adds a blocked residual in its own kernel, and a Resize has a kernel of its own for blocks.
    """
    nodes = graph.nodes
    if not layout.live:
        return ()
    if len(window.nodes) == 1:
        node = nodes[window.head]
        return (
            tuple(k for k in node.inputs[:1] if k is not None)
            if node.op == "Resize" and result(node) in layout.blocked
            else ()
        )
    if nodes[window.head].op not in ("Conv", "FusedConv"):
        return ()
    found: list[int] = []
    for id in window.nodes:
        node = nodes[id]
        if node.op in ("Add", "Sum") and result(node) in layout.blocked:
            for key in node.inputs:
                if key in layout.blocked and key is not None and graph.values[key].producer not in window.nodes:
                    found.append(key)
    return tuple(found)


def _put(
    moves: MapMutation[int, Move], payers: MapMutation[int, tuple[Move, ...]], key: int, move: Move | None
) -> None:
    if move is not None:
        moves[key] = move
        payers[move.payer] = (*payers.get(move.payer, ()), move)


def _take(moves: MapMutation[int, Move], payers: MapMutation[int, tuple[Move, ...]], key: int) -> None:
    move = moves.pop(key, None)
    if move is not None:
        rest = tuple(m for m in payers[move.payer] if m.key != key)
        if rest:
            payers[move.payer] = rest
        else:
            del payers[move.payer]
