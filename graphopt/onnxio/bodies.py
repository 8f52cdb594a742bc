"""Graphs within a graph: the bodies of control flow, and what they read of the values around."""

from __future__ import annotations

from collections.abc import Iterator

from onnx import AttributeProto, GraphProto, NodeProto

HAS_BODY = "has a body"
"""Why nodes of control flow are opaque whose bodies are graphs like any other."""


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
        found |= free_names(body)
    return found


def names_in(graph: GraphProto) -> Iterator[str]:
    """All names in a graph and the bodies in it."""
    for g in graphs(graph):
        for node in g.node:
            yield from (node.name, *node.output, *node.input)
        yield from (info.name for info in [*g.input, *g.output])
        yield from (tensor.name for tensor in g.initializer)
        yield from (sparse.values.name for sparse in g.sparse_initializer)


def names_within(node: NodeProto) -> Iterator[str]:
    """All names in the bodies of a node."""
    for body in bodies(node):
        yield from names_in(body)


def within(node: NodeProto) -> Iterator[NodeProto]:
    """All nodes in the bodies of a node."""
    for body in bodies(node):
        for graph in graphs(body):
            yield from graph.node


def all_nodes(graph: GraphProto) -> int:
    """Nodes of a graph and of the bodies in it."""
    return sum(len(each.node) for each in graphs(graph))


def free_names(body: GraphProto) -> set[str]:
    """Names of outer values that a body reads."""
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
