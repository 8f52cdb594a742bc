"""The coarsest arithmetic inside a model."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from graphopt.runtime.precision import coarsest
from tests.runtime.models import F, chain, model, proto

IO = ([("x", F, [2])], [("y", F, [2])])


def through(code):
    return [helper.make_node("Cast", ["x"], ["h"], to=code), helper.make_node("Cast", ["h"], ["y"], to=F)]


def test_plain():
    assert coarsest(chain(2)) == "float32"


@pytest.mark.parametrize(("code", "name"), [(10, "float16"), (16, "bfloat16"), (11, "float32")])
def test_casts_inside(code, name):
    assert coarsest(model(through(code), *IO)) == name


def test_weights_and_inputs():
    half = numpy_helper.from_array(np.ones(2, np.float16), "w")
    assert coarsest(model([helper.make_node("Identity", ["x"], ["y"])], *IO, {"w": half})) == "float16"
    signature = [("x", TensorProto.BFLOAT16, [2])], [("y", TensorProto.BFLOAT16, [2])]
    assert coarsest(model([helper.make_node("Identity", ["x"], ["y"])], *signature)) == "bfloat16"


def test_constants():
    value = numpy_helper.from_array(np.ones(2, ml_dtypes.bfloat16))
    nodes = [helper.make_node("Constant", [], ["c"], value=value), helper.make_node("Identity", ["x"], ["y"])]
    assert coarsest(model(nodes, *IO)) == "bfloat16"


def test_bodies():
    halved = [helper.make_node("Cast", ["x"], ["h"], to=10), helper.make_node("Cast", ["h"], ["o"], to=F)]
    then = helper.make_graph(halved, "then", [], [helper.make_tensor_value_info("o", F, [2])])
    same = [helper.make_node("Identity", ["x"], ["p"])]
    other = helper.make_graph(same, "else", [], [helper.make_tensor_value_info("p", F, [2])])
    node = helper.make_node("If", ["c"], ["y"], then_branch=then, else_branch=other)
    assert coarsest(model([node], *IO, {"c": np.array(True)})) == "float16"


def test_quantised(tmp_path):
    steps = (("QuantizeLinear", "x", "q"), ("DequantizeLinear", "q", "y"))
    nodes = [helper.make_node(op, [source, "s"], [target]) for op, source, target in steps]
    graph = proto(nodes, *IO, {"s": np.array(0.1, np.float32)})
    onnx.save(graph, tmp_path / "m.onnx")
    assert coarsest(tmp_path / "m.onnx") == "quantized"
