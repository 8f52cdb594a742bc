"""The printed form of a graph: one node a line, for golden files and for people."""

from __future__ import annotations

from graphopt.ir.graph import Graph, Node, Value
from graphopt.ir.text import describe_attributes, operator, reference


def to_text(graph: Graph) -> str:
    """The graph as text.

    Values are named as in ONNX; a constant prints as ``@name``, a small one with its content; a node that only computes
    constants is marked ``const``.
    """
    lines = [f"input {_typed(graph.values[k])}" for k in graph.inputs]
    for node in graph.in_order():
        outs = ", ".join("_" if k is None else _typed(graph.values[k]) for k in node.outputs)
        ins = ", ".join("_" if k is None else reference(graph.values[k]) for k in node.inputs)
        mark = "const " if graph.is_lazy(node) else ""
        note = f"  # {node.rule}" if node.rule else ""
        lines.append(f"{mark}{outs} = {describe(node)}({ins}){note}")
    lines += [f"output {name} = {reference(graph.values[k])}" for name, k in graph.outputs]
    return "\n".join(lines) + "\n"


def describe(node: Node) -> str:
    """Operator and attributes, ``Conv<group=4>``."""
    attributes = describe_attributes(node)
    return f"{operator(node)}<{attributes}>" if attributes else operator(node)


def _typed(value: Value) -> str:
    return f"{value.name}:{value.type}"
