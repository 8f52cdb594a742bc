"""What the engine cleans without a rule: nodes folded, merged or dead."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

import graphopt
from graphopt.retrace import replay

FOLDED = [("Exp", ["c"], "e"), ("Add", ["x", "e"], "y")]
EQUAL = [("Sin", ["x"], "a"), ("Sin", ["x"], "b"), ("Atan", ["a"], "s"), ("Mul", ["s", "b"], "y")]
DEAD = [("Sin", ["x"], "unread"), ("Add", ["x", "c"], "y")]


@pytest.fixture(params=[FOLDED, EQUAL, DEAD], ids=["folded", "equal", "dead"])
def source(request, tmp_path):
    nodes = [helper.make_node(op, inputs, [output]) for op, inputs, output in request.param]
    info = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [2, 3]) for n in "xy"]
    constant = numpy_helper.from_array(np.array([0.1, 0.2, 0.3], np.float32), "c")
    graph = helper.make_graph(nodes, "g", info[:1], info[1:], [constant])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), tmp_path / "m.onnx")
    return tmp_path / "m.onnx"


def outputs(path):
    feeds = {"x": np.linspace(-1, 1, 6, dtype=np.float32).reshape(2, 3)}
    return onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"]).run(None, feeds)[0]


def test_it_is_written_where_no_rule_applies(source, tmp_path):
    result = graphopt.optimize(
        source, output=tmp_path / "o.onnx", strategy="none", measure=False, trace=tmp_path / "t.json"
    )
    before, after = (len(onnx.load(path).graph.node) for path in (source, tmp_path / "o.onnx"))
    assert not result.report["steps"]
    assert not result.report["kept_original"]
    assert after == before - 1
    np.testing.assert_array_equal(outputs(tmp_path / "o.onnx"), outputs(source))
    replay(tmp_path / "t.json", source, output=tmp_path / "again.onnx")
    assert (tmp_path / "again.onnx").read_bytes() == (tmp_path / "o.onnx").read_bytes()


def test_a_model_that_is_clean_is_kept_byte_for_byte(source, tmp_path):
    graphopt.optimize(source, output=tmp_path / "o.onnx", strategy="none", measure=False)
    result = graphopt.optimize(tmp_path / "o.onnx", output=tmp_path / "p.onnx", strategy="none", measure=False)
    assert result.report["kept_original"]
    assert (tmp_path / "p.onnx").read_bytes() == (tmp_path / "o.onnx").read_bytes()
