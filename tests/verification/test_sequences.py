"""Models whose inputs and outputs are sequences and optionals: inputs are made up, and differences found."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

import graphopt
from graphopt.errors import GraphoptError
from graphopt.runtime.feeds import make_feeds
from graphopt.runtime.session import TensorSpec
from tests.runtime.models import F, proto

TENSOR = helper.make_tensor_type_proto(F, ["n", 3])
SEQUENCE = helper.make_value_info("s", helper.make_sequence_type_proto(TENSOR))
OPTIONAL = helper.make_value_info("o", helper.make_optional_type_proto(helper.make_tensor_type_proto(F, [2, 3])))
X, Y = ("x", F, [2, 3]), ("y", F, [2, 3])


def node(op, inputs, outputs, **attributes):
    return helper.make_node(op, inputs, outputs, **attributes)


def sequence_in(last="Relu"):
    nodes = [node("SequenceAt", ["s", "one"], ["a"]), node("Identity", ["a"], ["b"]), node(last, ["b"], ["y"])]
    return proto(nodes, [SEQUENCE], [("y", F, ["n", 3])], {"one": np.array(1)})


def sequence_out(last="Relu"):
    nodes = [node("Identity", ["x"], ["a"]), node(last, ["a"], ["b"]), node("SequenceConstruct", ["b", "x"], ["s"])]
    return proto(nodes, [("x", F, ["n", 3])], [SEQUENCE])


def optional_in(last="Relu"):
    nodes = [node("OptionalGetElement", ["o"], ["a"]), node("Identity", ["a"], ["b"]), node(last, ["b"], ["y"])]
    return proto(nodes, [OPTIONAL], [Y])


def optional_out(last="Relu"):
    nodes = [node("Identity", ["x"], ["a"]), node(last, ["a"], ["b"]), node("Optional", ["b"], ["o"])]
    return proto(nodes, [X], [OPTIONAL])


def either(last="Relu"):
    """What an optional holds, or else ``last`` of another input."""
    out = helper.make_tensor_value_info("t", F, [2, 3])
    there = helper.make_graph([node("OptionalGetElement", ["o"], ["t"])], "there", [], [out])
    other = helper.make_graph([node("Identity", ["x"], ["e"]), node(last, ["e"], ["t"])], "other", [], [out])
    nodes = [node("OptionalHasElement", ["o"], ["h"]), node("If", ["h"], ["z"], then_branch=there, else_branch=other)]
    return proto([*nodes, node("Identity", ["z"], ["w"]), node("Abs", ["w"], ["y"])], [OPTIONAL, X], [Y])


MODELS = [sequence_in, sequence_out, optional_in, optional_out, either]


@pytest.mark.parametrize("make", MODELS)
def test_they_are_optimised_and_compared(make, tmp_path):
    onnx.save(make(), tmp_path / "m.onnx")
    result = graphopt.optimize(tmp_path / "m.onnx", output=tmp_path / "out.onnx", measure=False, strategy="none")
    assert result.report["verified"]["passed"] and "drop-identity" in result.report["rules"]


@pytest.mark.parametrize("make", MODELS)
def test_a_difference_is_found(make, tmp_path):
    onnx.save(make(), tmp_path / "a.onnx")
    onnx.save(make("Neg"), tmp_path / "b.onnx")
    assert graphopt.verify(tmp_path / "a.onnx", tmp_path / "a.onnx").passed
    assert not graphopt.verify(tmp_path / "a.onnx", tmp_path / "b.onnx").passed


def test_what_is_made_up():
    sequence = TensorSpec("s", "seq(tensor(float))", ("n", 3), "sequence")
    for seed in range(2):
        (made,) = make_feeds([sequence], seed=seed, dims={"n": 4}).values()
        assert [value.shape for value in made] == [(4, 3)] * (3 + seed) and (made[0] != made[1]).any()
    optional = TensorSpec("o", "optional(tensor(int64))", (2,), "optional")
    assert make_feeds([optional], flags=0)["o"] is None
    assert make_feeds([optional], flags=1)["o"].dtype == np.int64
    for dtype, kind in (("optional(seq(tensor(float)))", "optional"), ("map(int64,tensor(float))", "map")):
        with pytest.raises(GraphoptError, match="can't be made up"):
            make_feeds([TensorSpec("m", dtype, (), kind)])


def test_given_ones_that_it_fails_on_are_not_called_made_up(tmp_path):
    onnx.save(optional_in(), tmp_path / "m.onnx")
    (tmp_path / "in").mkdir()
    (tmp_path / "in/input_0.pb").write_bytes(numpy_helper.from_optional(None).SerializeToString())
    with pytest.raises(GraphoptError, match=r"fails on the inputs given \(o none\)"):
        graphopt.optimize(tmp_path / "m.onnx", inputs=tmp_path / "in", measure=False)
