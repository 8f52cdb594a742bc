"""Time per kernel, and the operators that the runtime really runs."""

from __future__ import annotations

import tempfile

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from graphopt.errors import SessionError, UsageError
from graphopt.runtime.profile import KernelTime, by_op, optimised_ops, profile
from graphopt.runtime.session import LoadableModel, SessionConfig
from tests.runtime.models import F, chain, model, proto

FEEDS = {"x": np.ones((4, 64), np.float32)}


def test_a_row_for_each_kernel_in_order():
    kernels = profile(chain(3), FEEDS, runs=4)
    assert [k.node_name for k in kernels] == ["m0", "m1", "m2"]
    assert {(k.op_type, k.provider) for k in kernels} == {("MatMul", "cpu")}
    assert all(k.ms >= 0 for k in kernels)


def test_unnamed_nodes_are_kept_apart():
    nodes = [helper.make_node("Sin", ["x"], ["h"]), helper.make_node("Sin", ["h"], ["y"])]
    graph = model(nodes, [("x", F, [4, 64])], [("y", F, [4, 64])])
    kernels = profile(graph, FEEDS, SessionConfig(level="disabled"), runs=2)
    assert [k.op_type for k in kernels] == ["Sin", "Sin"]
    assert len({k.node_name for k in kernels}) == 2


def test_a_loop_body_counts_once_per_iteration():
    body = helper.make_graph(
        [helper.make_node("Identity", ["c"], ["c2"]), helper.make_node("Sin", ["v"], ["v2"], name="inner")],
        "body",
        [helper.make_tensor_value_info(n, t, s) for n, t, s in (("i", 7, []), ("c", 9, []), ("v", F, [4, 64]))],
        [helper.make_tensor_value_info(n, t, s) for n, t, s in (("c2", 9, []), ("v2", F, [4, 64]))],
    )
    node = helper.make_node("Loop", ["n", "", "x"], ["y"], body=body, name="outer")
    graph = model([node], [("x", F, [4, 64])], [("y", F, [4, 64])], {"n": np.array(5)})
    times = {k.node_name: k.ms for k in profile(graph, FEEDS, runs=3)}
    assert {"outer", "inner"} <= set(times) and times["inner"] <= times["outer"]


def test_by_op():
    rows = (("a", "Conv", 1.0), ("b", "Add", 2.0), ("c", "Conv", 5.0))
    conv, add = by_op(KernelTime(name, op, "cpu", ms) for name, op, ms in rows)
    assert (conv.op_type, conv.count, conv.ms, conv.share) == ("Conv", 2, 6.0, 0.75)
    assert (add.op_type, add.share) == ("Add", 0.25)
    assert by_op([]) == []


def test_work_shows():
    nodes = [helper.make_node("Erf", ["x"], ["h"], name="much"), helper.make_node("Slice", ["h", "s", "e"], ["g"]),
             helper.make_node("Sin", ["g"], ["y"], name="little")]  # fmt: skip
    weights = {"s": np.array([0]), "e": np.array([1])}
    graph = model(nodes, [("x", F, [400, 1000])], [("y", F, None)], weights)
    times = {k.node_name: k.ms for k in profile(graph, {"x": np.ones((400, 1000), np.float32)})}
    assert times["much"] > times["little"]


def test_what_the_runtime_makes_of_a_graph():
    nodes = [helper.make_node("Conv", ["x", "w"], ["h"], pads=[1, 1, 1, 1]), helper.make_node("Relu", ["h"], ["y"])]
    graph = model(nodes, [("x", F, [1, 3, 8, 8])], [("y", F, [1, 5, 8, 8])], {"w": np.ones((5, 3, 3, 3), np.float32)})
    assert optimised_ops(graph, SessionConfig(level="disabled")) == {"Conv": 1, "Relu": 1}
    assert optimised_ops(graph, SessionConfig(level="extended")) == {"com.microsoft:FusedConv": 1}


def test_of_a_model_with_weights_in_memory_and_on_disk(tmp_path):
    big = np.ones((64, 64), np.float32)
    nodes = [helper.make_node("MatMul", ["x", "w"], ["h"], name="m"), helper.make_node("Relu", ["h"], ["y"], name="r")]
    graph = proto(nodes, [("x", F, [4, 64])], [("y", F, [4, 64])], {"w": big})
    onnx.save(graph, tmp_path / "m.onnx", save_as_external_data=True, location="d", size_threshold=0)
    in_memory = LoadableModel(onnx.load(tmp_path / "m.onnx", load_external_data=False).SerializeToString(), {"w": big})
    for each in (tmp_path / "m.onnx", in_memory):
        assert [k.node_name for k in profile(each, FEEDS, runs=1)] == ["m", "r"]
        assert optimised_ops(each, SessionConfig(level="disabled")) == {"MatMul": 1, "Relu": 1}


def test_nothing_is_left_behind(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    profile(chain(1), FEEDS, runs=1)
    optimised_ops(chain(1))
    with pytest.raises(SessionError):
        profile(chain(1), {}, runs=1)
    assert list(tmp_path.iterdir()) == []


def test_runs_must_be_positive():
    with pytest.raises(UsageError):
        profile(chain(1), FEEDS, runs=0)


def test_an_empty_graph_of_weights():
    graph = model([], [], [("w", TensorProto.FLOAT, [2])], {"w": np.ones(2, np.float32)})
    assert profile(graph, {}, runs=1) == []
