"""What a new node may take to be equal: what the pattern took to be equal, and nothing else."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from onnx import TensorProto, helper

from graphopt.ir.agreement import demands_of, disagreement
from graphopt.ir.types import ValueType
from graphopt.onnxio.load import load

NOTHING: dict[str, frozenset[str]] = {}


def of(*shapes):
    return [None if shape is None else ValueType("f32", shape) for shape in shapes]


@pytest.mark.parametrize(
    ("op", "attributes", "shapes", "said"),
    [
        ("MatMul", {}, (("N", "T"), ("S", "M")), "MatMul wants S and T to be equal"),
        ("MatMul", {}, (("N", "S"), ("S", "M")), ""),
        ("MatMul", {}, (("N", None), ("S", "M")), ""),
        ("Gemm", {"transB": 1}, (("N", "T"), ("M", "S"), None), "Gemm wants S and T to be equal"),
        ("Concat", {"axis": 1}, (("S", 4), ("T", 4)), "Concat wants S and T to be equal"),
        ("Concat", {"axis": 0}, (("S", 4), ("T", 4)), ""),
        ("Add", {}, (("S",), ("T",)), "Add wants S and T to be equal"),
        ("Sub", {}, (("S",), (8,)), "Sub wants 8 and S to be equal"),
        ("Mul", {}, (("S", 4), ("S", 1)), ""),
        ("Add", {}, (("unk__3", 4), ("S", 4)), ""),
        ("MatMul", {}, (("S", 4, 5), ("T", 5, 4)), "MatMul wants S and T to be equal"),
    ],
)
def test_what_a_node_asks_for(op, attributes, shapes, said):
    assert disagreement(op, "", 17, attributes, of(*shapes), NOTHING) == said
    assert not disagreement(op, "custom", 1, attributes, of(*shapes), NOTHING)
    assert not disagreement(op, "", 17, attributes, of(*shapes), None)
    same = frozenset({"S", "T", 8})
    assert not disagreement(op, "", 17, attributes, of(*shapes), dict.fromkeys(same, same))
    either = {"S": frozenset({"S", 8}), "T": frozenset({"T", 8})}
    strict = op in ("Concat", "Gemm") or (op == "MatMul" and len(shapes[0]) == 2)
    assert disagreement(op, "", 17, attributes, of(*shapes), either) == (said if strict else "")


def test_operators_that_did_not_broadcast_once():
    types = of((2, 3), (3,))
    assert disagreement("Sum", "", 7, {}, types, None) == "Sum does not broadcast before operator set 8"
    assert not disagreement("Sum", "", 8, {}, types, None)
    assert not disagreement("Sum", "custom", 7, {}, types, None)


def test_the_message_is_the_same_in_every_process():
    code = (
        "from graphopt.ir.agreement import disagreement; from graphopt.ir.types import ValueType as V;"
        "print(disagreement('Concat', '', 17, {'axis': 0}, [V('f32', (1, *'DCBA')), V('f32', (1, *'WXYZ'))], {}))"
    )
    said = {
        subprocess.check_output([sys.executable, "-c", code], env={**os.environ, "PYTHONHASHSEED": seed}, text=True)
        for seed in "0123"
    }
    assert said == {"Concat wants A and Z to be equal\n"}


def test_a_slice_of_open_dimensions_at_operator_set_10():
    assert disagreement("Slice", "", 10, {}, of(("N", 3)), NOTHING)
    assert not disagreement("Slice", "", 11, {}, of(("N", 3)), NOTHING)
    assert not disagreement("Slice", "", 10, {}, of((4, 3)), NOTHING)


def test_what_follows_from_two_sums():
    """Each of three is 1 or what all of them make together; no two of them are equal for that."""
    sized = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [d]) for n, d in (("a", "S"), ("b", "T"), ("c", "U"))]
    nodes = [helper.make_node("Add", ["a", "b"], ["y"]), helper.make_node("Add", ["y", "c"], ["z"])]
    outputs = [helper.make_tensor_value_info("z", TensorProto.FLOAT, None)]
    graph = load(helper.make_model(helper.make_graph(nodes, "g", sized, outputs), ir_version=8)).graph
    granted = demands_of(graph, graph.nodes)
    for one, two in (("S", "T"), ("S", "U"), ("T", "U")):
        assert not disagreement("Mul", "", 17, {}, of((one,), (two,)), granted)
        assert disagreement("Concat", "", 17, {"axis": 1}, of((one, 1), (two, 1)), granted)


def test_what_meets_one_in_the_middle_says_nothing_of_the_ends():
    """Of 5 and 1, and 1 and 7, both sums run; of 5 and 7 none does."""
    sized = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [d]) for n, d in (("a", "S"), ("b", "T"), ("c", "U"))]
    nodes = [helper.make_node("Add", ["a", "b"], ["y"]), helper.make_node("Add", ["b", "c"], ["z"])]
    outputs = [helper.make_tensor_value_info(n, TensorProto.FLOAT, None) for n in "yz"]
    graph = load(helper.make_model(helper.make_graph(nodes, "g", sized, outputs), ir_version=8)).graph
    granted = demands_of(graph, graph.nodes)
    assert not disagreement("Mul", "", 17, {}, of(("S",), ("T",)), granted)
    assert disagreement("Mul", "", 17, {}, of(("S",), ("U",)), granted)


def test_what_the_nodes_of_a_pattern_ask_for():

    inputs = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, dims)
        for name, dims in (("a", ["N", "T"]), ("b", ["S", 4]))
    ]
    nodes = [helper.make_node("MatMul", ["a", "b"], ["y"]), helper.make_node("Relu", ["y"], ["z"])]
    outputs = [helper.make_tensor_value_info("z", TensorProto.FLOAT, None)]
    graph = load(
        helper.make_model(
            helper.make_graph(nodes, "g", inputs, outputs), opset_imports=[helper.make_opsetid("", 17)], ir_version=8
        )
    ).graph
    granted = demands_of(graph, graph.nodes)
    assert granted == dict.fromkeys("ST", frozenset("ST"))
    assert not disagreement("Concat", "", 17, {"axis": 1}, of(("S", 4), ("T", 4)), granted)
    assert not demands_of(graph, [i for i, n in graph.nodes.items() if n.op == "Relu"])
