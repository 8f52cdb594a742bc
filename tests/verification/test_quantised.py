"""Quantised models that an exact rewrite moves as far as the runtime itself does."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnxruntime import quantization

from graphopt.runtime.session import LoadableModel
from graphopt.verification.compare import RTOL
from graphopt.verification.numeric import Verification, Verifier
from tests.units import Samples, between

SHAPE = (1, 8, 64, 64)
DEPTH = 6


@pytest.fixture(scope="module")
def deep(tmp_path_factory: pytest.TempPathFactory) -> onnx.ModelProto:
    """Convolutions with gates, each of which makes more of a level that tipped over."""
    folder, rng, nodes, weights, last = tmp_path_factory.mktemp("deep"), np.random.default_rng(1), [], [], "x"
    for n in range(DEPTH):
        for kind in "ag":
            weight = (rng.standard_normal((8, 8, 3, 3)) / 4).astype(np.float32)
            weights.append(numpy_helper.from_array(weight, f"{kind}w{n}"))
            nodes.append(helper.make_node("Conv", [last, f"{kind}w{n}"], [f"{kind}{n}"], pads=[1] * 4))
        nodes += [
            helper.make_node("Sigmoid", [f"g{n}"], [f"s{n}"]),
            helper.make_node("Mul", [f"a{n}", f"s{n}"], [f"y{n}"]),
        ]
        last = f"y{n}"
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, SHAPE) for name in ("x", last)]
    graph = helper.make_graph(nodes, "deep", ends[:1], ends[1:], weights)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), folder / "a.onnx")
    quantization.quantize_static(folder / "a.onnx", folder / "b.onnx", Samples(SHAPE, 3), reduce_range=True)
    return onnx.load(folder / "b.onnx")


def without_sign(model: onnx.ModelProto, shift: int = 128) -> onnx.ModelProto:
    """The same with activations of uint8: exactly, if their zero points move by 128."""
    made = onnx.ModelProto()
    made.CopyFrom(model)
    points = {t.name: t for t in made.graph.initializer if t.data_type == TensorProto.INT8 and not t.dims}
    activations = {node.input[2] for node in made.graph.node if node.op_type == "QuantizeLinear"}
    for name in activations & points.keys():
        point = np.asarray(numpy_helper.to_array(points[name]).astype(int) + shift)
        points[name].CopyFrom(numpy_helper.from_array(np.clip(point, 0, 255).astype(np.uint8), name))
    return made


def compared(original: onnx.ModelProto, other: onnx.ModelProto, **how: float) -> Verification:
    """What a comparison says."""
    return Verifier(LoadableModel(original.SerializeToString()), **how).verify(LoadableModel(other.SerializeToString()))


def test_an_exact_rewrite_may_move_an_output_as_far_as_the_runtime_does(deep: onnx.ModelProto) -> None:
    found = compared(deep, without_sign(deep))
    assert found.passed and found.max_rel > RTOL["quantized"], "nothing tipped over, so that this shows nothing"
    assert found.outputs[0].reference == "disabled, both" and "own optimiser" in found.message
    assert found.max_rel <= found.outputs[0].tolerance


@pytest.mark.parametrize("shift", [127, 126, 120])
def test_a_wrong_one_that_moves_it_no_further_is_refused(deep: onnx.ModelProto, shift: int) -> None:
    allowed = compared(deep, without_sign(deep)).outputs[0].tolerance
    found = compared(deep, without_sign(deep, shift))
    assert not found.passed and found.max_rel < allowed


@pytest.mark.parametrize(("shift", "same"), [(0.0, True), (0.005, True), (0.03, False), (-0.03, False)])
def test_a_steady_model_gets_no_more_than_a_level(tmp_path: Path, shift: float, same: bool) -> None:
    """What moves by no more than a level where the inputs move by a part of one is not to move by three."""
    op = helper.make_node("Relu", ["a"], ["b"])
    original = onnx.load(between(tmp_path / "m.onnx", op, (1, 8, 12, 12), (1, 8, 12, 12)))
    other = onnx.ModelProto()
    other.CopyFrom(original)
    largest = compared(original, original).outputs[0]
    assert largest.tolerance < RTOL["quantized"]
    other.graph.node[-1].output[0] = "was y"
    other.graph.initializer.append(numpy_helper.from_array(np.float32(shift * 6.4), "shift"))  # 0.05 by 128 levels
    other.graph.node.append(helper.make_node("Add", ["was y", "shift"], ["y"]))
    assert compared(original, other).passed == same


def test_a_tolerance_that_was_asked_for_is_kept(deep: onnx.ModelProto) -> None:
    assert not compared(deep, without_sign(deep), rtol=0.05).passed
