"""How nodes and operands are printed."""

from __future__ import annotations

from typing import Any

import numpy as np

from graphopt.ir.graph import Node, Opaque, Tensor, Value


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


def _attribute(value: Any) -> str:
    if isinstance(value, Tensor):
        return f"{value.type}"
    if isinstance(value, Opaque):
        return "..."
    if isinstance(value, tuple):
        return "[" + ",".join(str(v) for v in value) + "]"
    return f"{value:g}" if isinstance(value, float) else str(value)
