"""Graphs for the cost models: written as node lists, with weights made up from their shapes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from onnx import ModelProto, NodeProto, helper, numpy_helper

from graphopt.cost.windows import Window, partition
from graphopt.ir.graph import Graph
from graphopt.onnxio.load import load

node = helper.make_node
Shape = Sequence[int | str]


def model(
    nodes: Sequence[NodeProto],
    inputs: Mapping[str, Shape],
    weights: Mapping[str, Any] | None = None,
    outputs: Sequence[str] | None = None,
    opset: int = 20,
) -> ModelProto:
    """A model.

    Args:
        nodes: Its nodes.
        inputs: Shapes of the float inputs.
        weights: Constants: a shape for random float32, or an array.
        outputs: Names of its outputs, by default those of the last node.
        opset: Operator-set version.
    """
    rng = np.random.default_rng(0)
    arrays = {
        name: rng.standard_normal(value).astype(np.float32) if isinstance(value, tuple) else np.asarray(value)
        for name, value in (weights or {}).items()
    }
    typed = [helper.make_tensor_value_info(name, 1, list(shape)) for name, shape in inputs.items()]
    results = [helper.make_tensor_value_info(name, 1, None) for name in outputs or nodes[-1].output]
    body = helper.make_graph(
        nodes, "g", typed, results, [numpy_helper.from_array(array, name) for name, array in arrays.items()]
    )
    domains = [helper.make_opsetid("", opset), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(body, opset_imports=domains, ir_version=10)


def graph(*args: Any, **options: Any) -> Graph:
    """A loaded graph; the arguments are those of :func:`model`."""
    return load(model(*args, **options)).graph


def transformer(*args: int, **options: int) -> Graph:
    """The graph of :func:`transformer_model`."""
    return load(transformer_model(*args, **options)).graph


def residual_network(*args: Any, **options: Any) -> Graph:
    """The graph of :func:`residual_model`."""
    return load(residual_model(*args, **options)).graph


def transformer_model(layers: int = 4, rows: int = 16, width: int = 32, heads: int = 4) -> ModelProto:
    """An encoder as exporters write it, each layer with weights of its own."""
    nodes: list[NodeProto] = []
    weights: dict[str, Any] = {
        "split": np.array([1, rows, heads, width // heads], np.int64),
        "join": np.array([1, rows, width], np.int64),
        "root": np.float32((width // heads) ** 0.5),
    }
    x = "x"
    for i in range(layers):

        def add(op: str, ins: Sequence[str], out: str, prefix: str = f"l{i}_", **attributes: Any) -> str:
            nodes.append(node(op, list(ins), [prefix + out], **attributes))
            return prefix + out

        def dense(x: str, name: str, a: int, b: int, prefix: str = f"l{i}_", add: Any = add) -> str:
            weights[f"{prefix}{name}_w"], weights[f"{prefix}{name}_b"] = (a, b), (b,)
            return str(add("Add", [add("MatMul", [x, f"{prefix}{name}_w"], name), f"{prefix}{name}_b"], name + "_y"))

        def norm(x: str, name: str, prefix: str = f"l{i}_", add: Any = add) -> str:
            weights[f"{prefix}{name}_s"], weights[f"{prefix}{name}_b"] = (width,), (width,)
            return str(add("LayerNormalization", [x, f"{prefix}{name}_s", f"{prefix}{name}_b"], name))

        parts = []
        for part, perm in (("q", [0, 2, 1, 3]), ("k", [0, 2, 3, 1]), ("v", [0, 2, 1, 3])):
            y = add("Reshape", [dense(x, part, width, width), "split"], part + "_r")
            parts.append(add("Transpose", [y], part + "_t", perm=perm))
        scores = add("Div", [add("MatMul", parts[:2], "qk"), "root"], "scores")
        mixed = add("MatMul", [add("Softmax", [scores], "softmax", axis=-1), parts[2]], "mixed")
        mixed = add("Reshape", [add("Transpose", [mixed], "mixed_t", perm=[0, 2, 1, 3]), "join"], "mixed_r")
        x = norm(add("Add", [dense(mixed, "o", width, width), x], "sum1"), "norm1")
        hidden = add("Gelu", [dense(x, "up", width, 4 * width)], "gelu")
        x = norm(add("Add", [dense(hidden, "down", 4 * width, width), x], "sum2"), "norm2")
    return model(nodes, {"x": (1, rows, width)}, weights)


def residual_model(blocks: int = 3, channels: int = 32, size: int = 14, gate: bool = False) -> ModelProto:
    """Convolutions with skips; with a gate, each block scales its channels and so leaves the blocked layout."""
    nodes = [node("Conv", ["image", "stem"], ["x"], pads=[1, 1, 1, 1])]
    weights: dict[str, Any] = {"stem": (channels, 3, 3, 3)}
    x = "x"
    for i in range(blocks):
        for j in (1, 2):
            weights[f"w{i}{j}"], weights[f"b{i}{j}"] = (channels, channels, 3, 3), (channels,)
        nodes += [
            node("Conv", [x, f"w{i}1", f"b{i}1"], [f"c{i}"], pads=[1, 1, 1, 1]),
            node("Relu", [f"c{i}"], [f"r{i}"]),
            node("Conv", [f"r{i}", f"w{i}2", f"b{i}2"], [f"d{i}"], pads=[1, 1, 1, 1]),
        ]
        y = f"d{i}"
        if gate:
            weights[f"g{i}"] = (channels, channels, 1, 1)
            nodes += [
                node("GlobalAveragePool", [y], [f"p{i}"]),
                node("Conv", [f"p{i}", f"g{i}"], [f"q{i}"]),
                node("Sigmoid", [f"q{i}"], [f"s{i}"]),
                node("Mul", [y, f"s{i}"], [f"m{i}"]),
            ]
            y = f"m{i}"
        nodes += [node("Add", [y, x], [f"a{i}"]), node("Relu", [f"a{i}"], [f"y{i}"])]
        x = f"y{i}"
    return model(nodes, {"image": (1, 3, size, size)}, weights)


def windows(graph: Graph) -> list[Window]:
    """The windows of a graph, each once."""
    return list({window.nodes: window for window in partition(graph).values()}.values())


def operators(graph: Graph, window: Window) -> str:
    """The operators of a window, in its order."""
    return " ".join(graph.nodes[id].op for id in window.nodes)
