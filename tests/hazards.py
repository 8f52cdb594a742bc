"""Models that are dangerous to open or to run."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

_F, _I, _B = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL


def _info(name: str, kind: int, shape: list[int] | None) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, kind, shape)


def _model(nodes, inputs, outputs, initializers=(), functions=(), opsets=()) -> onnx.ModelProto:
    graph = helper.make_graph(nodes, "hazard", inputs, outputs, list(initializers))
    imports = [helper.make_opsetid("", 17), *opsets]
    return helper.make_model(graph, opset_imports=imports, ir_version=8, functions=functions)


def endless() -> onnx.ModelProto:
    """A loop of 2^62 rounds."""
    body = helper.make_graph(
        [helper.make_node("Identity", ["c"], ["co"]), helper.make_node("Add", ["a", "one"], ["ao"])], "body",
        [_info("i", _I, []), _info("c", _B, []), _info("a", _F, [4])], [_info("co", _B, []), _info("ao", _F, [4])],
        [numpy_helper.from_array(np.ones(4, np.float32), "one")],
    )  # fmt: skip
    rounds = numpy_helper.from_array(np.array(2**62, np.int64), "n")
    nodes = [helper.make_node("Identity", ["x"], ["v"]), helper.make_node("Loop", ["n", "", "v"], ["y"], body=body)]
    return _model(nodes, [_info("x", _F, [4])], [_info("y", _F, [4])], [rounds])


def exploding() -> onnx.ModelProto:
    """Functions that call each other twice, forty deep: the runtime puts 2^40 nodes in their place when it opens the model."""
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("me", 1)]

    def function(depth: int) -> onnx.FunctionProto:
        nodes = [helper.make_node("Neg", ["a"], ["b"])]
        if depth < 40:
            nodes = [helper.make_node(f"F{depth + 1}", [a], [b], domain="me") for a, b in (("a", "t"), ("t", "b"))]
        return helper.make_function("me", f"F{depth}", ["a"], ["b"], nodes, opsets)

    return _model(
        [helper.make_node("F0", ["x"], ["y"], domain="me")], [_info("x", _F, [4])], [_info("y", _F, [4])],
        functions=[function(depth) for depth in range(41)], opsets=opsets[1:],
    )  # fmt: skip


def greedy(gigabytes: int) -> onnx.ModelProto:
    """A model of a few bytes that asks for so much memory, and writes to all of it."""
    shape = numpy_helper.from_array(np.array([gigabytes, 1 << 28], np.int64), "shape")
    nodes = [
        helper.make_node("Identity", ["x"], ["v"]),
        helper.make_node("Expand", ["v", "shape"], ["large"]),
        helper.make_node("ReduceMean", ["large"], ["y"], keepdims=0),
    ]
    return _model(nodes, [_info("x", _F, [1])], [_info("y", _F, [])], [shape])


def stored(model: onnx.ModelProto, path: Path) -> Path:
    onnx.save(model, path)
    return path
