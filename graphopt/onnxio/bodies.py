"""Graphs within a graph: the bodies of control flow, and what they read of the values around."""

from __future__ import annotations

from collections.abc import Iterator

from onnx import AttributeProto, GraphProto, NodeProto


def graphs(graph: GraphProto) -> Iterator[GraphProto]:
    """A graph and the bodies in it."""
    yield graph
    for node in graph.node:
        for body in bodies(node):
            yield from graphs(body)


def bodies(node: NodeProto) -> Iterator[GraphProto]:
    """The graphs that are attributes of a node."""
    for attribute in node.attribute:
        yield from [attribute.g] if attribute.type == AttributeProto.GRAPH else attribute.graphs


def captured(node: NodeProto) -> set[str]:
    """Names of outer values that the bodies of a node read."""
    found: set[str] = set()
    for body in bodies(node):
        found |= _free(body)
    return found


def _free(body: GraphProto) -> set[str]:
    own = (
        {i.name for i in body.input}
        | {t.name for t in body.initializer}
        | {s.values.name for s in body.sparse_initializer}
    )
    read: set[str] = set()
    for node in body.node:
        own.update(node.output)
    for node in body.node:
        read.update(i for i in node.input if i)
        read |= captured(node)
    read.update(o.name for o in body.output)
    return read - own
