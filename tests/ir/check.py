"""The validity rules of a graph, checked after every rewrite under test."""

from __future__ import annotations

from graphopt.ir.graph import Graph, expression_id, graph_hash


def problems(graph: Graph) -> list[str]:
    """Everything that is wrong with a graph; an empty list for a valid one."""
    found: list[str] = []
    for id, node in graph.nodes.items():
        if id != node.id or id != expression_id(node.op, node.domain, node.attributes, node.inputs, node.salt):
            found.append(f"{node}: wrong id")
        if id not in graph.order:
            found.append(f"{node}: no rank")
        for key in node.inputs:
            if key is None:
                continue
            if key not in graph.values:
                found.append(f"{node}: reads a value that is gone")
                continue
            if id not in graph.users.get(key, ()):
                found.append(f"{node}: not among the users of {graph.values[key].name}")
            producer = graph.producer(key)
            if producer is not None and graph.order.get(producer.id, 0) >= graph.order.get(id, 0):
                found.append(f"{node}: ranks before its operand {graph.values[key].name}")
        for key in node.outputs:
            if key is not None and (key not in graph.values or graph.values[key].producer != id):
                found.append(f"{node}: an output names another producer")
    for key, value in graph.values.items():
        if value.key != key:
            found.append(f"{value.name}: wrong key")
        origins = (value.producer is not None) + (value.tensor is not None) + (key in graph.inputs)
        if origins != 1:
            found.append(f"{value.name}: {origins} origins (producer, tensor, graph input)")
        if value.producer is not None and (
            value.producer not in graph.nodes or key not in graph.nodes[value.producer].outputs
        ):
            found.append(f"{value.name}: its producer does not make it")
        for user in graph.users.get(key, ()):
            if user not in graph.nodes or key not in graph.nodes[user].inputs:
                found.append(f"{value.name}: a user does not read it")
    if set(graph.users) != set(graph.values):
        found.append("users and values have different keys")
    if set(graph.order) != set(graph.nodes):
        found.append("order and nodes have different ids")
    found += [f"output {name}: no such value" for name, key in graph.outputs if key not in graph.values]
    if graph.hash != graph_hash(graph.nodes.values(), graph.outputs):
        found.append("the hash is not the sum over the nodes")
    return found
