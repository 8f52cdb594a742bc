"""Graphs within a graph: the bodies of control flow, and what they read of the values around."""

from __future__ import annotations

import heapq
import itertools
import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping

from onnx import AttributeProto, GraphProto, ModelProto, NodeProto, TensorProto

from graphopt.errors import ModelError
from graphopt.ir.types import BY_CODE

HAS_BODY = "has a body"
"""Why nodes of control flow are opaque whose bodies are graphs like any other."""
CONTROL = ("If", "Loop", "Scan")
"""The operators that run bodies."""
_SMALL = 1 << 10  # bytes of a weight that may be there several times


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


def with_inner(nodes: Iterable[NodeProto]) -> Iterator[NodeProto]:
    """Nodes, each followed by all in its bodies."""
    for node in nodes:
        yield node
        yield from within(node)


def every_node(proto: ModelProto) -> Iterator[NodeProto]:
    """The nodes of a model's graph and of its functions, and all in the bodies of these."""
    return with_inner(itertools.chain(proto.graph.node, *(function.node for function in proto.functions)))


def all_nodes(graph: GraphProto) -> int:
    """Nodes of a graph and of the bodies in it."""
    return sum(len(each.node) for each in graphs(graph))


def order_of(graph: GraphProto) -> list[int]:
    """Places of a graph's nodes in topological order: ascending where they stand in one.

    Raises:
        ModelError: There is a cycle.
    """
    given = _given(graph)
    producers = {name for node in graph.node for name in node.output if name} - given
    readers: dict[str, list[int]] = {}
    missing: list[int] = []
    for index, node in enumerate(graph.node):
        needs = producers.intersection({*node.input} | captured(node))
        missing.append(len(needs))
        for name in needs:
            readers.setdefault(name, []).append(index)
    ready = [index for index, n in enumerate(missing) if n == 0]  # ascending, so a heap already
    order: list[int] = []
    while ready:
        order.append(heapq.heappop(ready))
        for name in graph.node[order[-1]].output:
            for index in readers.pop(name, ()):
                missing[index] -= 1
                if missing[index] == 0:
                    heapq.heappush(ready, index)
    if len(order) != len(missing):
        stuck = next(graph.node[index] for index, n in enumerate(missing) if n > 0)
        raise ModelError(f"the graph has a cycle through node {stuck.name or stuck.op_type!r}")
    return order


def put_in_order(graph: GraphProto) -> None:
    """Bring the nodes of a graph, and of the bodies in it, into topological order; raises as :func:`order_of` does."""
    for each in graphs(graph):
        order = order_of(each)
        if order != sorted(order):
            copies = GraphProto(node=[each.node[place] for place in order])
            each.ClearField("node")
            each.node.extend(copies.node)


def _given(graph: GraphProto) -> set[str]:
    """Names of inputs and weights."""
    weights = {s.values.name for s in graph.sparse_initializer}.union(t.name for t in graph.initializer)
    return weights.union(i.name for i in graph.input)


def free_names(body: GraphProto) -> set[str]:
    """Names of outer values that a body reads."""
    own = _given(body)
    read: set[str] = set()
    for node in body.node:
        own.update(node.output)
    for node in body.node:
        read.update(i for i in node.input if i)
        read |= captured(node)
    read.update(o.name for o in body.output)
    return read - own


def unshadow(graph: GraphProto) -> None:
    """Give another name to what a body calls as a graph around it calls something else.

    A file may say so where the outer value comes after the body. The runtime, which orders nodes anew, may then refuse it.
    """
    _unshadow(graph, set(), set(names_in(graph)))


def _unshadow(graph: GraphProto, outer: set[str], taken: set[str]) -> None:
    around = outer | _defined(graph)
    for node in graph.node:
        for body in bodies(node):
            fresh: dict[str, str] = {}
            for name in sorted(_defined(body) & around):
                fresh[name] = next(f"{name}_{n}" for n in itertools.count(1) if f"{name}_{n}" not in taken)
                taken.add(fresh[name])
            if fresh:
                _rename(body, fresh)
            _unshadow(body, around, taken)


def _rename(graph: GraphProto, fresh: Mapping[str, str]) -> None:
    """Rename values of a graph, and what the bodies in it read of them."""
    for info in (*graph.input, *graph.output, *graph.value_info):
        info.name = fresh.get(info.name, info.name)
    for tensor in (*graph.initializer, *(each.values for each in graph.sparse_initializer)):
        tensor.name = fresh.get(tensor.name, tensor.name)
    for node in graph.node:
        node.input[:] = [fresh.get(name, name) for name in node.input]
        node.output[:] = [fresh.get(name, name) for name in node.output]
        for body in bodies(node):
            own = _defined(body)
            _rename(body, {name: other for name, other in fresh.items() if name not in own})


def _defined(graph: GraphProto) -> set[str]:
    """Names of all values of a graph, without those of its bodies."""
    return _given(graph).union(name for node in graph.node for name in node.output if name)


def settle(graph: GraphProto, names: Collection[str], whole: Callable[[TensorProto], TensorProto], room: int) -> int:
    """Move weights into the bodies that alone read them; what is small each of several gets.

    A body is handed all that it captures in every run and turn, and the runtime's blocked convolutions are not for captured weights.

    Args:
        graph: The graph; its initializers are moved, and from body to body.
        names: Initializers that may be.
        whole: An initializer with its bytes in it.
        room: Bytes that may move.

    Returns:
        Bytes that may still move.
    """
    read = {name for node in graph.node for name in node.input} | {info.name for info in (*graph.input, *graph.output)}
    owned = [body for node in graph.node if node.op_type in CONTROL for body in bodies(node)]
    readers: dict[str, list[GraphProto]] = {}
    for body in owned:
        for name in free_names(body):
            readers.setdefault(name, []).append(body)
    kept, moved = list[TensorProto](), set[str]()
    read |= {name for node in graph.node if node.op_type not in CONTROL for name in captured(node)}
    for tensor in graph.initializer:
        into = readers.get(tensor.name, ()) if tensor.name in names and tensor.name not in read else ()
        size = math.prod(tensor.dims) * BY_CODE[tensor.data_type].bits // 8 if tensor.data_type in BY_CODE else room + 1
        if not into or size * len(into) > room or (len(into) > 1 and size > _SMALL):
            kept.append(tensor)
            continue
        room -= size * len(into)
        moved.add(tensor.name)
        for body in into:
            body.initializer.append(whole(tensor))
    if moved:
        copies = GraphProto(initializer=kept)
        graph.ClearField("initializer")
        graph.initializer.extend(copies.initializer)
        for body in owned:
            room = settle(body, moved, lambda tensor: tensor, room)
    return room
