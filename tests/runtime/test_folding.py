"""Constants are what the runtime makes of them, whatever the operator set, and weights are held once."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper, parser

from graphopt.ir.constants import NotConstantError, evaluate, evaluate_all, small_array
from graphopt.ir.simplify import simplify
from graphopt.ir.types import ValueType
from graphopt.onnxio.inside import open_body
from graphopt.onnxio.load import load
from graphopt.runtime.session import LoadableModel, Session, SessionConfig
from tests.onnxio.models import B, F, body, model, node, weight

RNG = np.random.default_rng(0)
IMAGE = RNG.standard_normal((1, 3, 6, 6)).astype(np.float32)
CUBE = RNG.standard_normal((2, 3, 4)).astype(np.float32)
CHANNEL = np.abs(RNG.standard_normal(3)).astype(np.float32) + 0.5
BOXES = [np.array([[0, 0, 4, 4]], np.float32), np.array([0], np.int64)]
CASES = [
    *[(op, opset, [CUBE], {}) for op in ("Softmax", "LogSoftmax", "Hardmax") for opset in (7, 11, 12, 13)],
    *[("BatchNormalization", opset, [IMAGE, *[CHANNEL] * 4], {}) for opset in (9, 13, 15)],
    ("MaxPool", 12, [IMAGE], {"kernel_shape": [2, 2], "strides": [2, 2]}),
    ("LpNormalization", 17, [CUBE], {"axis": -1, "p": 2}),
    ("LRN", 13, [IMAGE], {"size": 3}),
    ("RoiAlign", 10, [IMAGE, *BOXES], {"output_height": 2, "output_width": 2}),
    ("ReduceSumSquare", 13, [np.array([[40000, 3], [-5, 65535]], np.int32)], {"axes": [1]}),
]


def proto_of(op, opset, operands, attributes, outputs=1):
    names = [f"c{i}" for i in range(len(operands))]
    outs = [f"y{i}" for i in range(outputs)]
    return helper.make_model(
        helper.make_graph(
            [helper.make_node(op, names, outs, **attributes)], "g", [],
            [helper.make_empty_tensor_value_info(out) for out in outs],
            [numpy_helper.from_array(a, n) for n, a in zip(names, operands, strict=True)],
        ),
        opset_imports=[helper.make_opsetid("", opset)],
        ir_version=8,
    )  # fmt: skip


def folded(proto):
    graph = load(proto).graph
    return [evaluate(graph, key) for _, key in graph.outputs]


def run(proto):
    with Session(LoadableModel(proto.SerializeToString()), SessionConfig(level="disabled")) as session:
        return session.run({})


@pytest.mark.parametrize(("op", "opset", "operands", "attributes"), CASES, ids=lambda v: str(v)[:20])
def test_a_constant_is_what_the_runtime_makes(op, opset, operands, attributes):
    proto = proto_of(op, opset, operands, attributes)
    proto.graph.output[0].type.tensor_type.elem_type = TensorProto.INT32 if op == "ReduceSumSquare" else 1
    assert np.array_equal(folded(proto)[0], run(proto)[0], equal_nan=True)


def test_indices_of_a_pool():
    proto = proto_of("MaxPool", 12, [IMAGE], {"kernel_shape": [2, 2], "storage_order": 1}, outputs=2)
    for output, code in zip(proto.graph.output, (1, TensorProto.INT64), strict=True):
        output.type.tensor_type.elem_type = code
    assert all(np.array_equal(a, b) for a, b in zip(folded(proto), run(proto), strict=True))


def test_a_resize_that_aligns_corners():
    operands = [IMAGE, np.zeros(0, np.float32), np.array([1, 1, 1.5, 1.5], np.float32)]
    attributes = {"mode": "linear", "coordinate_transformation_mode": "align_corners"}
    proto = proto_of("Resize", 13, operands, attributes)
    proto.graph.output[0].type.tensor_type.elem_type = 1
    assert np.array_equal(folded(proto)[0], run(proto)[0])


def test_one_session_for_many_and_what_fails_spoils_nothing(monkeypatch):
    names = [f"y{i}" for i in range(20)]
    nodes = [helper.make_node("Gather", ["w", f"i{i}"], [name]) for i, name in enumerate(names)]
    weights = [numpy_helper.from_array(np.arange(15, dtype=np.float32), "w")]
    weights += [numpy_helper.from_array(np.array([i]), f"i{i}") for i in range(20)]
    outputs = [helper.make_tensor_value_info(name, 1, None) for name in names]
    proto = helper.make_model(
        helper.make_graph(nodes, "g", [], outputs, weights),
        opset_imports=[helper.make_opsetid("", 17)],
        ir_version=8,
    )
    graph = load(proto).graph
    keys = dict(graph.outputs)
    opened = []
    monkeypatch.setattr(
        Session, "__init__", lambda self, *a, _init=Session.__init__, **k: (opened.append(1), _init(self, *a, **k))[1]
    )
    assert len(evaluate_all(graph, [keys[name] for name in names[:15]])) == 15 and len(opened) == 1
    found = evaluate_all(graph, keys.values())
    assert {name: found[keys[name]].tolist() for name in names[:15]} == {f"y{i}": [i] for i in range(15)}
    assert not {keys[name] for name in names[15:]} & set(found)
    with pytest.raises(NotConstantError):
        evaluate(graph, keys["y17"])


MEMORY = """
import sys
from dataclasses import replace
import numpy as np
from onnx import helper, numpy_helper
from graphopt.ir.constants import evaluate
from graphopt.ir.simplify import simplify
from graphopt.onnxio.inside import open_body
from graphopt.onnxio.load import load

nodes = [helper.make_node("Concat", ["a", "b"], ["w"], axis=0), helper.make_node("MatMul", ["x", "w"], ["y"])]
def model(n):
    weights = [numpy_helper.from_array(np.ones((n, 1024), np.float32), name) for name in "ab"]
    return helper.make_model(
        helper.make_graph(nodes, "g", [helper.make_tensor_value_info("x", 1, [1, 2 * n])],
                          [helper.make_tensor_value_info("y", 1, [1, 1024])], weights),
        opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
def fold(graph):
    return evaluate(graph, next(k for k, v in graph.values.items() if v.name == "w"))
def peak():
    return int(next(line for line in open("/proc/self/status") if line.startswith("VmHWM")).split()[1]) / 1024
fold(load(model(8)).graph)
graph = load(model(16384)).graph  # two weights of 64 MB
before = peak()
made = fold(graph)
print(peak() - before, made.nbytes / 2**20)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_weights_are_held_once():
    done = subprocess.run([sys.executable, "-c", MEMORY], capture_output=True, text=True, check=True)
    grown, size = map(float, done.stdout.split())
    assert size == 128
    assert grown < size + 24  # the result; neither the operands nor the result a second time


def test_what_one_graph_does_not_know_an_equal_one_may():
    proto = parser.parse_model(
        '<ir_version: 8, opset_import: ["": 17]> g (float[3] x) => (float[3] y) <float[2, 1, 2] c = {1, 2, 3, 4}> '
        "{ t = Relu (c) s = Shape (t) d = Cast <to = 1> (s) y = Add (x, d) }"
    )
    graph = load(proto).graph
    keys = {value.name: key for key, value in graph.values.items()}
    less = replace(graph.values[keys["t"]], type=ValueType("f32", ("a", 1, 2)))
    vague = replace(graph, values=graph.values.set(keys["t"], less))
    assert small_array(vague, keys["d"]) is None
    found = small_array(graph, keys["d"])
    assert found is not None and found.tolist() == [2, 1, 2]


def test_what_is_remembered_of_a_constant_is_not_that_of_another_model():
    """Names and operators are the same, but not what they stand for: operator sets differ, and weights that bodies read."""

    def softmax(opset: int):
        nodes = [node("Softmax", ["w"], ["soft"]), node("Mul", ["x", "soft"], ["y"])]
        weights = [weight("w", np.zeros((1, 2, 1), np.float32))]
        graph = simplify(load(model(nodes, [("x", F, ["N", 2, 5])], [("y", F, None)], weights, opset=opset)).graph)
        return small_array(graph, graph.nodes[graph.values[graph.outputs[0][1]].producer].inputs[1]).ravel().tolist()

    assert softmax(13) == [1, 1]
    assert softmax(12) == [0.5, 0.5]

    def reshaped(*sizes: int):
        nodes = [node("Concat", ["a", "b"], ["s"], axis=0), node("Reshape", ["x", "s"], ["z"])]
        branch = body(nodes, [("z", F, None)])
        nodes = [node("If", ["c"], ["y"], then_branch=branch, else_branch=branch)]
        weights = [weight(name, np.array([size])) for name, size in zip("ab", sizes, strict=True)]
        graph = load(model(nodes, [("c", B, []), ("x", F, [2, 3])], [("y", F, None)], weights)).graph
        opened = open_body(graph, ("y", "then_branch"), set())
        assert opened is not None
        return opened.graph.type(opened.graph.outputs[0][1]).shape

    assert reshaped(2, 3) == (2, 3)
    assert reshaped(3, 2) == (3, 2)
