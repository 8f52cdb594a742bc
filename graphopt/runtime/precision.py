"""How precisely a model computes, told from its file: half precision inside shows in no input or output."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain
from typing import Any

from graphopt.onnxio.bodies import bodies
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
    found = {_COARSE.get(info.type.tensor_type.elem_type) for info in (*proto.graph.input, *proto.graph.output)}
    weights = list(proto.graph.initializer)
    for node in _nodes([proto.graph.node, *(function.node for function in proto.functions)]):
        if any(word in node.op_type for word in _QUANTISING):
            return "quantized"
        for attribute in node.attribute:
            if attribute.name in ("to", "dtype"):
                found.add(_COARSE.get(attribute.i))
            elif attribute.type == onnx.AttributeProto.TENSOR:
                found.add(_COARSE.get(attribute.t.data_type))
        weights += [tensor for body in bodies(node) for tensor in body.initializer]
    found |= {_COARSE.get(tensor.data_type) for tensor in weights}
    return next((kind for kind in ("bfloat16", "float16") if kind in found), "float32")


def _nodes(groups: Iterable[Iterable[Any]]) -> Iterator[Any]:
    """All nodes, those of nested bodies included."""
    for node in chain.from_iterable(groups):
        yield node
        yield from _nodes(body.node for body in bodies(node))
