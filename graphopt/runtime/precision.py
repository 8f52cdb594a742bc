"""How precisely a model computes, told from its file: half precision inside shows in no input or output."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from graphopt.runtime.session import LoadableModel, Model

_COARSE = {10: "float16", 16: "bfloat16"}
_QUANTISING = ("QuantizeLinear", "DynamicQuantizeLinear", "ConvInteger", "MatMulInteger", "MatMulNBits")


def coarsest(model: Model) -> str:
    """The coarsest arithmetic that a model uses anywhere.

    Returns:
        ``quantized``, ``bfloat16``, ``float16`` or ``float32``, in this order of preference. A model of doubles
        counts as ``float32``.
    """
    import onnx

    if isinstance(model, LoadableModel):
        proto = onnx.load_model_from_string(model.proto)
    else:
        proto = onnx.load(model, load_external_data=False)
    graphs = [proto.graph]
    found = {_COARSE.get(info.type.tensor_type.elem_type) for info in (*proto.graph.input, *proto.graph.output)}
    for node in _nodes([proto.graph.node, *(function.node for function in proto.functions)], graphs):
        if any(word in node.op_type for word in _QUANTISING):
            return "quantized"
        for attribute in node.attribute:
            if attribute.name in ("to", "dtype"):
                found.add(_COARSE.get(attribute.i))
            elif attribute.type == onnx.AttributeProto.TENSOR:
                found.add(_COARSE.get(attribute.t.data_type))
    found |= {_COARSE.get(tensor.data_type) for graph in graphs for tensor in graph.initializer}
    return next((kind for kind in ("bfloat16", "float16") if kind in found), "float32")


def _nodes(bodies: Iterable[Iterable[Any]], graphs: list[Any]) -> Iterator[Any]:
    """All nodes, those of nested bodies included; the bodies' graphs are added to ``graphs``."""
    for body in bodies:
        for node in body:
            yield node
            inner = [a.g for a in node.attribute if a.HasField("g")] + [g for a in node.attribute for g in a.graphs]
            graphs.extend(inner)
            yield from _nodes((graph.node for graph in inner), graphs)
