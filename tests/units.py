"""Small quantised models."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from onnxruntime import quantization


class Samples(quantization.CalibrationDataReader):
    """Sets of random inputs ``x`` to take ranges from."""

    def __init__(self, shape: tuple[int, ...], sets: int = 4) -> None:
        rng = np.random.default_rng(0)
        self.sets = iter([{"x": rng.standard_normal(shape).astype(np.float32)} for _ in range(sets)])

    def get_next(self):
        return next(self.sets, None)


def saved(path: Path, nodes: list[onnx.NodeProto], weights: dict[str, np.ndarray], ends: tuple[Any, Any]) -> Path:
    """A model of float32 with one input ``x`` and one output ``y``."""
    made = [numpy_helper.from_array(array, name) for name, array in weights.items()]
    inputs, outputs = (
        [helper.make_tensor_value_info(name, kind, shape)] for name, (kind, shape) in zip("xy", ends, strict=True)
    )
    graph = helper.make_graph(nodes, "small", inputs, outputs, made)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return path


def between(path: Path, op: onnx.NodeProto, shape: tuple[int, ...], made: tuple[int, ...], kind: str = "uint8") -> Path:
    """A Conv and an operator of ``x`` and ``y``, each between DequantizeLinear and QuantizeLinear."""
    rng, channels = np.random.default_rng(0), shape[1]
    zero = np.array({"uint8": 128, "int8": 0}[kind], kind)
    weights = {
        "s": np.array(0.05, np.float32), "z": zero, "w": rng.integers(-60, 60, (channels, channels, 1, 1)).astype(np.int8),
        "ws": np.array(0.01, np.float32), "wz": np.array(0, np.int8),
        "bias": rng.integers(-900, 900, channels).astype(np.int32), "bs": np.array(0.05 * 0.01, np.float32),
    }  # fmt: skip
    pair = ("QuantizeLinear", "DequantizeLinear")
    nodes = [
        *(helper.make_node(op, [a, "s", "z"], [b]) for op, a, b in zip(pair, ("x", "q0"), ("q0", "d0"), strict=True)),
        helper.make_node("DequantizeLinear", ["w", "ws", "wz"], ["wd"]),
        helper.make_node("DequantizeLinear", ["bias", "bs"], ["bd"]),
        helper.make_node("Conv", ["d0", "wd", "bd"], ["c"]),
        *(helper.make_node(op, [a, "s", "z"], [b]) for op, a, b in zip(pair, ("c", "q1"), ("q1", "a"), strict=True)),
        op,
        *(helper.make_node(op, [a, "s", "z"], [b]) for op, a, b in zip(pair, ("b", "q2"), ("q2", "y"), strict=True)),
    ]
    return saved(path, nodes, weights, ((TensorProto.FLOAT, shape), (TensorProto.FLOAT, made)))
