"""The printed form of a graph: one node a line, for golden files and for people."""

from __future__ import annotations

from typing import Any

import numpy as np

from graphopt.ir.graph import Graph, Node, Opaque, Tensor, Value


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


def operator(node: Node) -> str:
    """The operator, with its domain unless that is ONNX's own."""
    return f"{node.domain}.{node.op}" if node.domain else node.op


def describe_attributes(node: Node) -> str:
    """The attributes, ``group=4, pads=[1,1,1,1]``."""
    return ", ".join(f"{k}={_attribute(v)}" for k, v in sorted(node.attributes.items()))


def reference(value: Value) -> str:
    """How an operand is printed."""
    if value.tensor is None:
        return value.name
    elements = value.type.elements
    if elements is not None and elements <= 8 and value.type.dtype not in ("str", None):
        return f"{value.type.dtype}:{np.array2string(value.tensor.numpy(), separator=',', max_line_width=10**6)}"
    return f"@{value.name}"


def _typed(value: Value) -> str:
    return f"{value.name}:{value.type}"


def _attribute(value: Any) -> str:
    if isinstance(value, Tensor):
        return f"{value.type}"
    if isinstance(value, Opaque):
        return "..."
    if isinstance(value, tuple):
        return "[" + ",".join(str(v) for v in value) + "]"
    return f"{value:g}" if isinstance(value, float) else str(value)
