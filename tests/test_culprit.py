"""A rule that changes what a model computes is found and taken back, and the rest of the optimisation stays."""

from __future__ import annotations

import json

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import graphopt
from graphopt.rewrite.schema import read_rules
from graphopt.search.selection import first_harm

WRONG = """\
family: mistaken
doc: Its evidence says that it was proved.
rules:
  - id: sign-does-not-matter
    doc: it does
    equal: exact
    match:
      - y = Neg(x)
    replace:
      - y = x
    examples:
      accept: [{x: 4x5xf32}]
      reject: []
"""


def model(path, wrong=2):
    """Matrix products that share an operand, and signs between them."""
    rng = np.random.default_rng(0)
    weights = [numpy_helper.from_array(rng.standard_normal((32, 32)).astype(np.float32), f"w{i}") for i in range(3)]
    nodes = [helper.make_node("MatMul", ["x", f"w{i}"], [f"h{i}"]) for i in range(3)]
    nodes += [helper.make_node("Identity" if i >= wrong else "Neg", [f"h{i}"], [f"n{i}"]) for i in range(3)]
    nodes += [helper.make_node("Relu", [f"n{i}"], [f"r{i}"]) for i in range(3)]
    nodes += [helper.make_node("Relu", [f"r{i}"], [f"y{i}"]) for i in range(3)]
    graph = helper.make_graph(
        nodes, "signs", [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 32])],
        [helper.make_tensor_value_info(f"y{i}", TensorProto.FLOAT, ["batch", 32]) for i in range(3)], weights,
    )  # fmt: skip
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return path


@pytest.fixture
def mistaken(tmp_path):
    """A file of one wrong rule, with evidence that says it is right."""
    path = tmp_path / "mistaken.yaml"
    path.write_text(WRONG, encoding="utf-8")
    (rule,) = read_rules(path)
    entry = {"hash": rule.hash, "verdict": "proved"}
    (tmp_path / "evidence.lock").write_text(json.dumps({"rules": {rule.id: entry}}), encoding="utf-8")
    return path


def test_the_family_of_the_first_wrong_step_is_taken_back(tmp_path, mistaken):
    out = tmp_path / "out.onnx"
    result = graphopt.optimize(
        model(tmp_path / "m.onnx"), output=out, rules=[str(mistaken), "standard"], strategy="greedy", measure=False
    )
    (culprit,) = result.report["culprits"]
    assert culprit["rule"] == "sign-does-not-matter" and culprit["family"] == "mistaken" and culprit["step"] >= 1
    assert "off by" in culprit["message"]
    assert any("sign-does-not-matter" in warning and "mistaken" in warning for warning in result.report["warnings"])
    assert result.report["verified"]["passed"]
    assert {"family": "mistaken", "kept": False, "wrong": True}.items() <= next(
        f.items() for f in result.report["families"] if f["family"] == "mistaken"
    )
    # The rest of the optimisation is there: a repeated Relu and an Identity are gone, the signs are not.
    ops = [n.op_type for n in onnx.load(out).graph.node]
    assert ops.count("Neg") == 2 and ops.count("Relu") == 3 and "Identity" not in ops
    assert result.report["rules"] and "sign-does-not-matter" not in result.report["rules"]
    assert graphopt.verify(tmp_path / "m.onnx", out).passed


def test_without_the_wrong_family_nothing_is_left(tmp_path, mistaken):
    out = tmp_path / "out.onnx"
    result = graphopt.optimize(model(tmp_path / "m.onnx"), output=out, rules=[str(mistaken)], measure=False)
    assert result.report["kept_original"] and result.report["culprits"]
    assert out.read_bytes() == (tmp_path / "m.onnx").read_bytes()


@pytest.mark.parametrize("wrong", range(1, 12))
def test_the_first_step_by_halving(wrong):
    asked = []

    def harm(low, high):
        asked.append(high)
        return f"after {high}" if high >= wrong else ""

    number, message, _ = first_harm(11, harm, "")
    assert (number, message) == (wrong, f"after {wrong}")
    assert len(asked) <= 6


def test_no_step_does_harm():
    assert first_harm(5, lambda low, high: "") == (0, "", 1)
    assert first_harm(0, lambda low, high: "never asked") == (0, "", 1)
