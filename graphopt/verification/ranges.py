"""Legal ranges of integer inputs, read off the graph: token ids must exist in the embedding they look up."""

from __future__ import annotations

from graphopt.ir.graph import Graph, Node

_PASS_THROUGH = frozenset(
    {"Cast", "Reshape", "Flatten", "Squeeze", "Unsqueeze", "Transpose", "Identity", "Expand", "Slice"}
)


def input_ranges(graph: Graph) -> dict[str, tuple[int, int]]:
    """For each integer input that indexes a table, the inclusive low and exclusive high of a legal index."""
    found: dict[str, tuple[int, int]] = {}
    for key in graph.inputs:
        value = graph.values[key]
        if value.type.dtype not in ("i64", "i32", "i16", "i8", "u8"):
            continue
        limits = list(_limits(graph, key))
        if limits:
            found[value.name] = (0, min(limits))
    return found


def _limits(graph: Graph, start: int) -> list[int]:
    found: list[int] = []
    stack, seen = [start], {start}
    while stack:
        key = stack.pop()
        for user in graph.users[key]:
            node = graph.nodes[user]
            size = _table(graph, node, key)
            if size is not None:
                found.append(size)
            elif node.op in _PASS_THROUGH and node.inputs and node.inputs[0] == key:
                for out in node.outputs:
                    if out is not None and out not in seen:
                        seen.add(out)
                        stack.append(out)
    return found


def _table(graph: Graph, node: Node, key: int) -> int | None:
    """Size of the axis that ``key`` indexes in a gathering node."""
    if node.op not in ("Gather", "GatherElements") or len(node.inputs) < 2 or node.inputs[1] != key:
        return None
    data = node.inputs[0]
    shape = None if data is None else graph.type(data).shape
    if not shape:
        return None
    size = shape[int(node.attributes.get("axis", 0))]
    return size if isinstance(size, int) and size > 0 else None
