"""Small real models, built with onnx.helper, and what it takes to describe them in a line."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import NodeProto, TensorProto, helper, numpy_helper

from graphopt.runtime.session import LoadableModel

F, LONG, TEXT = TensorProto.FLOAT, TensorProto.INT64, TensorProto.STRING
Value = tuple[str, int, Sequence[int | str | None] | None]


def proto(
    nodes: Sequence[NodeProto],
    inputs: Sequence[Value | onnx.ValueInfoProto],
    outputs: Sequence[Value | onnx.ValueInfoProto],
    weights: Mapping[str, np.ndarray[Any, Any] | TensorProto] | None = None,
    opset: int = 18,
    domains: Mapping[str, int] | None = None,
) -> onnx.ModelProto:
    def info(value: Value | onnx.ValueInfoProto) -> onnx.ValueInfoProto:
        return value if isinstance(value, onnx.ValueInfoProto) else helper.make_tensor_value_info(*value)

    initializers = [
        weight if isinstance(weight, TensorProto) else numpy_helper.from_array(weight, name)
        for name, weight in (weights or {}).items()
    ]
    graph = helper.make_graph(nodes, "g", [info(v) for v in inputs], [info(v) for v in outputs], initializers)
    imports = [helper.make_opsetid(*each) for each in {"": opset, **(domains or {})}.items()]
    return helper.make_model(graph, opset_imports=imports, ir_version=10)


def model(*args: Any, tensors: Mapping[str, Any] | None = None, **kwargs: Any) -> LoadableModel:
    return LoadableModel(proto(*args, **kwargs).SerializeToString(), tensors or {})


def of_map() -> LoadableModel:
    """A vector of what a map ``m`` holds under 1 and 2."""
    kind = helper.make_map_type_proto(LONG, helper.make_tensor_type_proto(F, []))
    node = helper.make_node("DictVectorizer", ["m"], ["y"], domain="ai.onnx.ml", int64_vocabulary=[1, 2])
    made = proto([node], [helper.make_value_info("m", kind)], [("y", F, [1, 2])])
    made.opset_import.add(domain="ai.onnx.ml", version=1)
    return LoadableModel(made.SerializeToString())


def placeholder(name: str, code: int, dims: Sequence[int], location: str = "elsewhere") -> TensorProto:
    tensor = TensorProto(name=name, data_type=code, dims=dims, data_location=TensorProto.EXTERNAL)
    for key, value in (("location", location), ("offset", "0")):
        tensor.external_data.add(key=key, value=value)
    return tensor


def chain(depth: int, width: int = 64, rows: int | str = 4, gain: float = 1.0, seed: int = 0) -> LoadableModel:
    """``depth`` products with random square matrices, named m0, m1, ..."""
    rng = np.random.default_rng(seed)
    nodes, weights = [], {}
    for i in range(depth):
        weights[f"w{i}"] = (gain * rng.standard_normal((width, width)) / width**0.5).astype(np.float32)
        source, target = "x" if i == 0 else f"h{i}", "y" if i == depth - 1 else f"h{i + 1}"
        nodes.append(helper.make_node("MatMul", [source, f"w{i}"], [target], name=f"m{i}"))
    return model(nodes, [("x", F, [rows, width])], [("y", F, [rows, width])], weights)
