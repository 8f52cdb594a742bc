"""Legal ranges of inputs, read off the graph: token ids must exist in the embedding they look up, also where they are moved on the way."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from graphopt.ir.constants import small_array
from graphopt.ir.graph import Graph, Node
from graphopt.runtime.feeds import Interval, Range
from graphopt.verification.operands import INTEGERS, asked
from graphopt.verification.words import ENCODERS, input_words

# Where the first operand's elements come out as they are, if not all of them or in another order.
_PASS_THROUGH = frozenset(
    {"Cast", "Reshape", "Flatten", "Squeeze", "Unsqueeze", "Transpose", "Identity", "Expand", "Slice", "Gather", "GatherElements",
     "GatherND", "Split", "Tile", "Pad", "Compress"}
)  # fmt: skip
_ANY_OPERAND = frozenset({"Concat", "Max", "Min", "ScatterElements", "ScatterND"})
_TABLES = ("Gather", "GatherElements", "ScatterElements")
_FLOATS = ("f32", "f16", "f64")
_MOST = 4096  # steps from an input


def input_ranges(graph: Graph) -> dict[str, Range]:
    """For each input of which operators ask something, the inclusive low and exclusive high of legal elements, of all or of each, or what encoders know of them.

    Those that have a default are left alone: nobody makes them up.
    """
    encoded = any(node.op in ENCODERS for node in graph.nodes.values())
    found: dict[str, Range] = {**input_words(graph)} if encoded else {}
    for key in graph.inputs:
        value = graph.values[key]
        if not value.default and (value.type.dtype in INTEGERS or value.type.dtype in _FLOATS):
            limits = _together(list(_limits(graph, key)))
            if limits is not None:
                found[value.name] = limits
    return found


def _together(limits: Sequence[Interval]) -> Interval | None:
    """What all of them allow; of bounds of each element the first."""
    for low, high in limits:
        if isinstance(low, tuple):
            return low, high
    if not limits:
        return None
    low, high = (
        max(low for low, _ in limits if not isinstance(low, tuple)),
        min(high for _, high in limits if not isinstance(high, tuple)),
    )
    return (low, high) if low < high else None


def _limits(graph: Graph, start: int) -> Iterator[Interval]:
    """What everything that an input reaches asks of it; an element may have been multiplied and moved by constants on the way there."""
    stack, seen = [(start, _AS_IT_IS)], {(start, _AS_IT_IS)}
    while stack and len(seen) < _MOST:
        key, way = stack.pop()
        for user in graph.users[key]:
            node = graph.nodes[user]
            if node.domain or node.captures:
                continue
            sizes = _looked_up(graph, node, key)
            same = graph.type(key).shape == graph.type(start).shape
            other = (
                asked(graph, node, key, whole=same)
                if sizes is None and way == _AS_IT_IS and key in node.operands
                else None
            )
            if sizes is not None:
                yield from way.within(sizes)
            elif other is not None:
                yield other
            further = None if sizes is not None else _passed(graph, node, key)
            if further is None:
                continue
            for out in node.outputs:
                if out is not None and (reached := (out, way.then(further))) not in seen:
                    seen.add(reached)
                    stack.append(reached)


@dataclass(frozen=True)
class _Way:
    """What becomes of an element on its way: at most ``most * element + moved``, at least ``least * element + moved``."""

    least: int = 1
    most: int = 1
    moved: int = 0

    def then(self, further: _Way) -> _Way:
        return _Way(self.least * further.least, self.most * further.most, self.moved * further.most + further.moved)

    def within(self, sizes: Sequence[int]) -> Iterator[Interval]:
        """The elements that become indices of axes of some sizes, one axis for each column."""
        columns = [(max(0, -(self.moved // self.least)), (size - 1 - self.moved) // self.most + 1) for size in sizes]
        # An index below zero counts from the end: where nothing else fits, an element is 0.
        columns = [(low, high) if low < high else (0, 1) for low, high in columns]
        if len(columns) > 1 and self == _AS_IT_IS:
            yield tuple(low for low, _ in columns), tuple(high for _, high in columns)
        elif columns:
            yield max(low for low, _ in columns), min(high for _, high in columns)


_AS_IT_IS = _Way()


def _looked_up(graph: Graph, node: Node, key: int) -> list[int] | None:
    """Sizes of the axes that an operand indexes, as far as they are known; none of them where it indexes nothing known."""
    if node.inputs[1:2] != (key,) or node.inputs[0] is None:
        return None
    shape = graph.type(node.inputs[0]).shape
    if not shape:
        return None
    if node.op in _TABLES:
        axes = shape[int(node.attributes.get("axis", 0)) :][:1]
    elif node.op in ("GatherND", "ScatterND"):
        columns = (graph.type(key).shape or (None,))[-1]
        first = int(node.attributes.get("batch_dims", 0))
        axes = shape[first:][: columns if isinstance(columns, int) else 0]
    else:
        return None
    sizes = [size for size in axes if isinstance(size, int) and size > 0]
    return sizes if len(sizes) == len(axes) and sizes else None


def _passed(graph: Graph, node: Node, key: int) -> _Way | None:
    """What becomes of the elements of an operand that come out of a node; ``None`` when they do not come out."""
    if node.op in _ANY_OPERAND or (node.op == "Where" and key in node.inputs[1:]):
        return _AS_IT_IS
    if node.op in _PASS_THROUGH and node.inputs and node.inputs[0] == key:
        return _AS_IT_IS
    if node.op == "CumSum" and node.inputs[0] == key:
        return _summed(graph, node)
    if node.op in ("Add", "Sub", "Mul") and len(node.inputs) == 2:
        other = node.inputs[1] if node.inputs[0] == key else node.inputs[0]
        by = small_array(graph, other)
        if by is None or not by.size or by.dtype.kind not in "iu":
            return None
        if node.op == "Mul":
            return _Way(int(by.min()), int(by.max())) if by.min() > 0 else None
        if node.op == "Add" or node.inputs[0] == key:
            return _Way(moved=int(by.max()) if node.op == "Add" else -int(by.min()))
    return None


def _summed(graph: Graph, node: Node) -> _Way | None:
    """The way through a sum of all elements up to each along an axis; ``None`` where it is not known how many they are."""
    shape = None if node.inputs[0] is None else graph.type(node.inputs[0]).shape
    axis = small_array(graph, node.inputs[1])
    if shape is None or axis is None or axis.size != 1 or not -len(shape) <= axis.item() < len(shape):
        return None
    size = shape[int(axis.item())]
    return _Way(1, size) if isinstance(size, int) and size > 0 else None
