"""Legal ranges of inputs, read off the graph: token ids must exist in the embedding they look up, also where they are moved on the way."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from graphopt.ir.constants import small_array
from graphopt.ir.graph import Graph, Node
from graphopt.runtime.feeds import Range
from graphopt.verification.operands import asked

# Where the first operand's elements come out as they are, if not all of them or in another order.
_PASS_THROUGH = frozenset(
    {"Cast", "Reshape", "Flatten", "Squeeze", "Unsqueeze", "Transpose", "Identity", "Expand", "Slice", "Gather", "GatherElements",
     "GatherND", "Split", "Tile", "Pad", "Compress"}
)  # fmt: skip
_ANY_OPERAND = frozenset({"Concat", "Max", "Min", "ScatterElements", "ScatterND"})
_TABLES = ("Gather", "GatherElements", "ScatterElements")
_FLOATS = ("f32", "f16", "f64")
_INTEGERS = ("i64", "i32", "i16", "i8", "u8", "u16", "u32", "u64")
_MOST = 4096  # steps from an input


def input_ranges(graph: Graph) -> dict[str, Range]:
    """For each input of which operators ask something, the inclusive low and exclusive high of legal elements, of all or of each."""
    found: dict[str, Range] = {}
    for key in graph.inputs:
        value = graph.values[key]
        if value.type.dtype in _INTEGERS or value.type.dtype in _FLOATS:
            limits = _together(list(_limits(graph, key)))
            if limits is not None:
                found[value.name] = limits
    return found


def _together(limits: Sequence[Range]) -> Range | None:
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


def _limits(graph: Graph, start: int) -> Iterator[Range]:
    """What everything that an input reaches asks of it; an element may have been moved by a constant on the way there."""
    stack, seen = [(start, 0)], {(start, 0)}
    while stack and len(seen) < _MOST:
        key, moved = stack.pop()
        for user in graph.users[key]:
            node = graph.nodes[user]
            if node.domain or node.captures:
                continue
            size = _looked_up(graph, node, key)
            other = asked(graph, node, key) if size is None and not moved and key in node.operands else None
            if size is not None:
                yield max(0, -moved), size - moved
            elif other is not None:
                yield other
            further = None if size is not None else _passed(graph, node, key)
            for out in node.outputs if further is not None else ():
                if out is not None and further is not None and (out, moved + further) not in seen:
                    seen.add((out, moved + further))
                    stack.append((out, moved + further))


def _looked_up(graph: Graph, node: Node, key: int) -> int | None:
    """Size of the axis that an operand indexes."""
    if node.op not in _TABLES or node.inputs[1:2] != (key,):
        return None
    data = node.inputs[0]
    shape = None if data is None else graph.type(data).shape
    if not shape:
        return None
    size = shape[int(node.attributes.get("axis", 0))]
    return size if isinstance(size, int) and size > 0 else None


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
