"""Legal ranges of inputs, read off the graph: token ids must exist in the embedding they look up, also where they are moved on the way."""

from __future__ import annotations

from collections.abc import Iterator

from graphopt.ir.constants import small_array
from graphopt.ir.graph import Graph, Node

# Where the first operand's elements come out as they are, if not all of them or in another order.
_PASS_THROUGH = frozenset(
    {"Cast", "Reshape", "Flatten", "Squeeze", "Unsqueeze", "Transpose", "Identity", "Expand", "Slice", "Gather", "GatherElements",
     "GatherND", "Split", "Tile", "Pad", "Compress"}
)  # fmt: skip
_ANY_OPERAND = frozenset({"Concat", "Max", "Min", "ScatterElements", "ScatterND"})
_INTEGERS = ("i64", "i32", "i16", "i8", "u8")
_MOST = 4096  # steps from an input


def input_ranges(graph: Graph) -> dict[str, tuple[int, int]]:
    """For each input that indexes a table or tells a zero point, the inclusive low and exclusive high of a legal element."""
    found: dict[str, tuple[int, int]] = {}
    for key in graph.inputs:
        value = graph.values[key]
        if value.type.dtype not in _INTEGERS:
            continue
        limits = list(_limits(graph, key))
        if limits:
            low, high = max(low for low, _ in limits), min(high for _, high in limits)
            if low < high:
                found[value.name] = (low, high)
    return found


def _limits(graph: Graph, start: int) -> Iterator[tuple[int, int]]:
    """What everything that an input reaches asks of it; an element may have been moved by a constant on the way there."""
    stack, seen = [(start, 0)], {(start, 0)}
    while stack and len(seen) < _MOST:
        key, moved = stack.pop()
        for user in graph.users[key]:
            node = graph.nodes[user]
            asked = _asked(graph, node, key)
            if asked is not None:
                yield max(0, asked[0] - moved), asked[1] - moved
                continue
            further = _passed(graph, node, key)
            for out in node.outputs if further is not None else ():
                if out is not None and further is not None and (out, moved + further) not in seen:
                    seen.add((out, moved + further))
                    stack.append((out, moved + further))


def _asked(graph: Graph, node: Node, key: int) -> tuple[int, int] | None:
    """What a node asks of the elements of an operand."""
    if node.op in ("Gather", "GatherElements", "ScatterElements") and len(node.inputs) > 1 and node.inputs[1] == key:
        data = node.inputs[0]
        shape = None if data is None else graph.type(data).shape
        if not shape:
            return None
        size = shape[int(node.attributes.get("axis", 0))]
        return (0, size) if isinstance(size, int) and size > 0 else None
    if node.op == "DequantizeLinear" and node.inputs[2:3] == (key,) and graph.type(key).dtype == "i32":
        return 0, 1  # there is none for whole numbers of 32 bits
    return None


def _passed(graph: Graph, node: Node, key: int) -> int | None:
    """By how much the elements of an operand are moved when they come out of a node; ``None`` when they do not come out."""
    if node.op in _ANY_OPERAND or (node.op == "Where" and key in node.inputs[1:]):
        return 0
    if node.op in _PASS_THROUGH and node.inputs and node.inputs[0] == key:
        return 0
    if node.op in ("Add", "Sub") and len(node.inputs) == 2:
        other = node.inputs[1] if node.inputs[0] == key else node.inputs[0]
        by = small_array(graph, other)
        if by is not None and by.size and by.dtype.kind in "iu" and (node.op == "Add" or node.inputs[0] == key):
            return int(by.max()) if node.op == "Add" else -int(by.min())
    return None
