"""Models of 8 bits: units that the runtime fuses stay whole, and where it fuses none, a rule has it do so."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnxruntime import quantization

import graphopt
from graphopt.runtime.environment import isa_flags
from graphopt.runtime.profile import optimised_ops

SHAPE = (1, 16, 12, 12)


class Samples(quantization.CalibrationDataReader):
    """Four sets of random inputs."""

    def __init__(self) -> None:
        rng = np.random.default_rng(0)
        self.sets = iter([{"x": rng.standard_normal(SHAPE).astype(np.float32)} for _ in range(4)])

    def get_next(self):
        return next(self.sets, None)


@pytest.fixture
def residual(tmp_path: Path) -> Path:
    """Two residual blocks, quantised by the runtime's own tool; weights of 7 bits add up right on every processor."""
    rng, nodes, weights, last = np.random.default_rng(1), [], [], "x"
    for block in range(2):
        key = f"_{block}"
        for name in ("a", "b"):
            weight = rng.standard_normal((16, 16, 3, 3)).astype(np.float32) / 12
            weights.append(numpy_helper.from_array(weight, name + "w" + key))
        nodes += [
            helper.make_node("Conv", [last, "aw" + key], ["a" + key], pads=[1] * 4),
            helper.make_node("Relu", ["a" + key], ["r" + key]),
            helper.make_node("Conv", ["r" + key, "bw" + key], ["b" + key], pads=[1] * 4),
            helper.make_node("Add", ["b" + key, last], ["s" + key]),
            helper.make_node("Relu", ["s" + key], ["y" + key]),
        ]
        last = "y" + key
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, SHAPE) for name in ("x", last)]
    graph = helper.make_graph(nodes, "residual", ends[:1], ends[1:], weights)
    onnx.save(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), tmp_path / "whole.onnx"
    )
    path = tmp_path / "qdq.onnx"
    quantization.quantize_static(tmp_path / "whole.onnx", path, Samples(), per_channel=True, reduce_range=True)
    return path


def convolutions(path: Path) -> list[str]:
    """The convolutions of the graph that the runtime makes of a model."""
    ops = optimised_ops(path).elements()
    return sorted(op.rpartition(":")[2] for op in ops if op.endswith(("Conv", "conv")))


def test_activations_that_several_read_are_quantised_as_the_runtime_wants(residual: Path, tmp_path: Path) -> None:
    target = tmp_path / "out.onnx"
    result = graphopt.optimize(residual, output=target, strategy="greedy", measure=False, threads=1)
    assert result.report["verified"]["passed"]
    assert result.report["rules"]["shared-activation-without-sign"] >= 1
    before, after = (convolutions(path) for path in (residual, target))
    assert after == ["QLinearConv"] * 4
    if "avx2" in isa_flags():  # elsewhere there are kernels for numbers with a sign
        assert "Conv" in before
    # Nothing is quantised that was not, and nothing is any more that was.
    kinds = [[node.op_type for node in onnx.load(path).graph.node] for path in (residual, target)]
    assert sorted(kinds[0]) == sorted(kinds[1])


def test_units_stay_whole_without_it(residual: Path, tmp_path: Path) -> None:
    target = tmp_path / "out.onnx"
    graphopt.optimize(residual, output=target, strategy="greedy", measure=False, threads=1, exclude=("quantised",))
    assert optimised_ops(target) == optimised_ops(residual)
