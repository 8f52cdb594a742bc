"""Sizes below 0 and missing types, of which ONNX's own inference ends the process: models that have them load, and the others know as much as ever."""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from graphopt.onnxio.declared import types_of
from tests.alone import alone
from tests.cli.conftest import ROOT
from tests.onnxio.models import F, body, model, node, weight

I64 = TensorProto.INT64
LOAD = """
import sys
from graphopt.errors import ModelError
from graphopt.onnxio.load import load
try:
    print(load(sys.argv[1]).graph is not None)
except ModelError as error:
    print(error)
"""


def vector(name, *numbers):
    return weight(name, np.array(numbers, np.int64))


BACKWARDS = [vector("from", -1), vector("to", -(2**62)), vector("axis", 1), vector("by", -1)]
TURN = node("Slice", ["a", "from", "to", "axis", "by"], ["y"])
TOO_MUCH = node("Pad", ["x", "cut"], ["a"])


def cut_by_a_pad():
    return model([TOO_MUCH, TURN], [("x", F, [1, 4])], [("y", F, None)], [vector("cut", 0, -3, 0, -3), *BACKWARDS])


def cut_by_a_pool():
    pool = node("MaxPool", ["x"], ["a"], kernel_shape=[5])
    last = [*BACKWARDS[:2], vector("axis", 2), BACKWARDS[3]]
    return model([pool, TURN], [("x", F, [1, 1, 2])], [("y", F, None)], last)


def forwards():
    ahead = [vector("from", 0), vector("to", 9), vector("axis", 1), vector("by", 1)]
    return model([TOO_MUCH, TURN], [("x", F, [1, 4])], [("y", F, None)], [vector("cut", 0, -3, 0, -3), *ahead])


def in_a_function():
    given = ["x", "cut", "from", "to", "axis", "by"]
    twice = helper.make_function("f", "Cut", given, ["y"], [TOO_MUCH, TURN], [helper.make_opsetid("", 17)])
    weights = [vector("cut", 0, -3, 0, -3), *BACKWARDS]
    call = node("Cut", given, ["y"], domain="f")
    return model([call], [("x", F, [1, 4])], [("y", F, None)], weights, domains={"f": 1}, functions=[twice])


def indices():
    nodes = [node("Pad", ["i", "cut"], ["j"]), node("GatherND", ["x", "j"], ["y"])]
    return model(nodes, [("x", F, [3, 6]), ("i", I64, [2, 1])], [("y", F, None)], [vector("cut", 0, -1, 0, -1)])


def decision_path(opset=17):
    """A tree as scikit-learn's converter writes it with ``decision_path``: the first version of its operator has no inference."""
    ids = {
        "nodes_treeids": [0],
        "nodes_nodeids": [0],
        "nodes_featureids": [0],
        "nodes_modes": ["LEAF"],
        "nodes_values": [0.0],
    }
    ways = {"nodes_truenodeids": [0], "nodes_falsenodeids": [0]}
    leaf = {"target_treeids": [0], "target_nodeids": [0], "target_ids": [0], "target_weights": [1.0], "n_targets": 1}
    tree = node("TreeEnsembleRegressor", ["x"], ["a"], domain="ai.onnx.ml", **ids, **ways, **leaf)
    words = node("LabelEncoder", ["a"], ["b"], domain="ai.onnx.ml", keys_floats=[1.0], values_strings=["way"])
    last = node("Reshape", ["b", "flat"], ["y"])
    given, made = [("x", F, ["N", 1])], [("y", TensorProto.STRING, [None])]
    return model([tree, words, last], given, made, [vector("flat", -1)], opset=opset, domains={"ai.onnx.ml": 2})


def unknown_words():
    nodes = [node("Custom", ["x"], ["a"], domain="c"), node("RegexFullMatch", ["a"], ["y"], pattern="a")]
    return model(nodes, [("x", F, [1])], [("y", TensorProto.BOOL, None)], opset=20, domains={"c": 1})


def in_a_body_of_a_function():
    """The function is written in another version of the operator set, so that it stays one."""
    branches = [
        body([node("RegexFullMatch", ["a"], [name], pattern=name)], [(name, TensorProto.BOOL, None)]) for name in "pq"
    ]
    either = node("If", ["c"], ["r"], then_branch=branches[0], else_branch=branches[1])
    function = helper.make_function("f", "Either", ["a", "c"], ["r"], [either], [helper.make_opsetid("", 21)])
    nodes = [node("Custom", ["x"], ["a"], domain="c"), node("Either", ["a", "c"], ["y"], domain="f")]
    given, made = [("x", F, [1]), ("c", TensorProto.BOOL, [])], [("y", TensorProto.BOOL, None)]
    return model(nodes, given, made, opset=20, domains={"c": 1, "f": 1}, functions=[function])


def less_than_no_batch_in_a_body_of_a_function():
    picks = [body([node("GatherND", ["x", "i"], [name], batch_dims=-5)], [(name, F, None)]) for name in "pq"]
    either = node("If", ["c"], ["r"], then_branch=picks[0], else_branch=picks[1])
    function = helper.make_function("f", "Pick", ["x", "i", "c"], ["r"], [either], [helper.make_opsetid("", 17)])
    given = [("x", F, [6, 4]), ("i", I64, [6, 1]), ("c", TensorProto.BOOL, [])]
    call = node("Pick", ["x", "i", "c"], ["y"], domain="f")
    return model([call], given, [("y", F, None)], domains={"f": 1}, functions=[function])


def loaded(path, proto):
    """What a process of its own says of a model that it loads."""
    onnx.save(proto, path)
    done = subprocess.run(
        [sys.executable, "-c", LOAD, path], capture_output=True, text=True, timeout=60, check=False,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    return done.returncode, done.stdout, done.stderr


@pytest.mark.parametrize("make", [cut_by_a_pad, cut_by_a_pool, forwards, in_a_function, indices])
def test_a_size_below_0_ends_no_process(tmp_path, make):
    code, said, trouble = loaded(tmp_path / "m.onnx", make())
    assert (code, said) == (0, "True\n"), trouble


@pytest.mark.parametrize("make", [decision_path, unknown_words, in_a_body_of_a_function])
def test_a_missing_type_ends_no_process(tmp_path, make):
    code, said, trouble = loaded(tmp_path / "m.onnx", make())
    assert (code, said) == (0, "True\n"), trouble


def test_a_node_that_ends_the_process_is_refused_in_a_body_of_a_function(tmp_path):
    code, said, trouble = loaded(tmp_path / "m.onnx", less_than_no_batch_in_a_body_of_a_function())
    assert code == 0 and said.endswith("GatherND has no -5 batch dimensions\n"), trouble


def test_a_missing_type_does_not_end_an_upgrade(tmp_path):
    onnx.save(decision_path(opset=5), tmp_path / "old.onnx")
    code = f"from graphopt.onnxio.read import upgraded; import onnx; onnx.save(upgraded(r'{tmp_path / 'old.onnx'}'), r'{tmp_path / 'new.onnx'}')"
    done = alone(code)
    assert done.returncode == 0, done.stderr
    made = onnx.load(tmp_path / "new.onnx")
    assert {o.domain: o.version for o in made.opset_import} == {"": 13, "ai.onnx.ml": 2}
    assert [n.domain for n in made.graph.node] == ["ai.onnx.ml", "ai.onnx.ml", ""]


def test_types_of_words_are_known_as_ever():
    words = node("LabelEncoder", ["x"], ["y"], domain="ai.onnx.ml", keys_floats=[1.0], values_strings=["one"])
    proto = model([words], [("x", F, ["N", 4])], [("y", TensorProto.STRING, None)], domains={"ai.onnx.ml": 2})
    assert str(types_of(proto)["y"]) == "str[N,4]"


def test_what_is_known_of_a_shape_goes_through_a_slice():
    nodes = [
        node("Shape", ["x"], ["s"]),
        node("Slice", ["s", "zero", "one"], ["n"]),
        node("Concat", ["n", "rest"], ["to"], axis=0),
        node("Reshape", ["x", "to"], ["y"]),
    ]
    weights = [vector("zero", 0), vector("one", 1), vector("rest", 20)]
    assert str(types_of(model(nodes, [("x", F, ["N", 4, 5])], [("y", F, None)], weights))["y"]) == "f32[N,20]"


def test_a_slice_is_inferred_as_ever():
    ahead = [vector("from", 1), vector("to", 9), vector("axis", 1), vector("by", 2)]
    shape = types_of(model([TURN], [("a", F, ["N", 4])], [("y", F, None)], ahead))["y"].shape
    assert shape == ("N", 2)


def test_threads_that_come_first_together():
    """Several of a host's threads may read their first models at the same time; the schemas are registered by one."""
    code = (
        "import sys, threading; sys.setswitchinterval(1e-6)\n"
        "from graphopt.onnxio import survivable\n"
        "together, failed = threading.Barrier(4), []\n"
        "def first():\n"
        "    together.wait()\n"
        "    try: survivable._register()\n"
        "    except Exception as error: failed.append(error)\n"
        "threads = [threading.Thread(target=first) for _ in range(4)]\n"
        "for thread in threads: thread.start()\n"
        "for thread in threads: thread.join()\n"
        "sys.exit(str(failed[0]) if failed else 0)"
    )
    done = alone(code)
    assert done.returncode == 0, done.stderr


def test_the_reference_evaluator_can_be_imported_after_the_first_model():
    """It refuses a name of two domains, and torch's exporter, which takes it by onnxscript, could be imported no more."""
    done = alone("from graphopt.onnxio import survivable; survivable._register(); import onnx.reference")
    assert done.returncode == 0, done.stderr
