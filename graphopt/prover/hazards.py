"""What must not be tried: contents and sizes at which the runtime ends the process, takes all memory or never returns."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from graphopt.ir.constants import shape_operands
from graphopt.ir.graph import Graph
from graphopt.ir.infer import InferenceError, infer
from graphopt.ir.types import UNKNOWN, ValueType

COUNTING = frozenset({"Range", "HannWindow", "HammingWindow", "BlackmanWindow"})


def counts(graph: Graph) -> bool:
    """Whether the content of an operand alone says how long a result is: a wrong number there asks for all memory there is."""
    return any(node.op in COUNTING for node in graph.nodes.values())


def divides_by_computed(graph: Graph) -> bool:
    """Whether an integer is divided by one that the graph computes, or by a constant of 0 or -1.

    A division by 0, or of the least number by -1, ends the process.
    """
    for node in graph.nodes.values():
        if node.op not in ("Div", "Mod") or len(node.inputs) < 2 or node.inputs[1] is None:
            continue
        value = graph.values[node.inputs[1]]
        if value.type.dtype is None or value.type.dtype[0] not in "iu":
            continue
        if value.producer is not None or (value.tensor is not None and np.isin(value.tensor.numpy(), (0, -1)).any()):
            return True
    return False


def joins_empty(graph: Graph) -> bool:
    """Whether a Concat may join an operand that is empty."""
    shapes = [
        graph.type(key).shape for n in graph.nodes.values() if n.op == "Concat" for key in n.inputs if key is not None
    ]
    return any(shape is None or any(isinstance(d, str) or d == 0 for d in shape) for shape in shapes)


_WINDOWED = frozenset({"Conv", "ConvTranspose", "ConvInteger", "FusedConv", "NhwcConv", "NhwcFusedConv"})


def empties_a_window(graph: Graph, bind: Mapping[str, int]) -> bool:
    """Whether a convolution may have a kernel of size 0 where symbols have the given sizes: the runtime never returns."""
    for node in graph.nodes.values():
        if node.op not in _WINDOWED or len(node.inputs) < 2 or node.inputs[1] is None:
            continue
        dims = graph.type(node.inputs[1]).shape
        if dims is None or not all(isinstance(d, int) or d in bind for d in dims):
            dims = _types_at(graph, bind)[node.inputs[1]].shape
        if not all(bind.get(d, 0) if isinstance(d, str) else d for d in dims or (0,)):
            return True
    return False


def _types_at(graph: Graph, bind: Mapping[str, int]) -> dict[int, ValueType]:
    """Types of all values where symbols have the given sizes."""

    def sized(type: ValueType) -> ValueType:
        return replace(type, shape=tuple(bind.get(d, d) if isinstance(d, str) else d for d in type.shape or ()))

    found = {key: sized(value.type) for key, value in graph.values.items() if value.producer is None}
    for node in graph.in_order():
        types = [None if key is None else found[key] for key in node.inputs]
        data = shape_operands(graph, node.op, node.inputs)
        version = graph.opsets.get(node.domain, 1)
        try:
            made = infer(node.op, node.domain, version, node.attributes, types, data, len(node.outputs))
        except InferenceError:
            made = (UNKNOWN,) * len(node.outputs)
        found.update({key: type for key, type in zip(node.outputs, made, strict=True) if key is not None})
    return found


# Operators whose kernels may end the process where an operand is empty, or leave the result as memory was (onnxruntime 1.32).
_FRAIL = frozenset({"Einsum", "InstanceNormalization", "ArgMax", "ArgMin", "LSTM", "GRU", "RNN", "GridSample", "RoiAlign",
                    "GroupNormalization", "LpNormalization", "ConvTranspose", "Resize", "Col2Im", "RotaryEmbedding",
                    "MatMulInteger", "QLinearMatMul", "DynamicQuantizeMatMul", "MatMulIntegerToFloat"})  # fmt: skip

_DEADLY = frozenset({"DynamicQuantizeLSTM", "GroupQueryAttention", "Inverse", "MultiHeadAttention", "QAttention", "SkipLayerNormalization", "SkipSimplifiedLayerNormalization"})  # fmt: skip
"""Operators that end the process where an operand is empty, which only a pattern may do: a rule must not bring them there."""


def deadly(graph: Graph) -> bool:
    """Whether a pattern ends the process where something is empty."""
    return any(node.op in _DEADLY for node in graph.nodes.values())


def frail(graph: Graph) -> bool:
    """Whether a graph may end the process where something is empty, or give anything: also a Conv of several groups."""
    return any(
        node.op in _FRAIL or (node.op == "Conv" and node.attributes.get("group", 1) != 1)
        for node in graph.nodes.values()
    )
