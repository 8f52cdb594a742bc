"""What the runtime fuses with the quantisation around it is measured so."""

from __future__ import annotations

from collections import Counter

import pytest
from onnx import helper

from graphopt.cost.analytic import AnalyticCost
from graphopt.cost.blueprint import blueprint
from graphopt.cost.micro import micro_model
from graphopt.cost.shapes import Shapes
from graphopt.cost.windows import partition, quantised_ends, update
from graphopt.ir.graph import UNIT, Graph
from graphopt.ir.simplify import simplify
from graphopt.onnxio.load import load
from graphopt.rewrite.apply import apply
from graphopt.rewrite.library import load_library
from graphopt.rewrite.sites import Sites
from graphopt.runtime.profile import optimised_ops
from graphopt.runtime.session import Session
from tests.units import between

POOL = helper.make_node("AveragePool", ["a"], ["b"], kernel_shape=[3, 3], pads=[1] * 4, count_include_pad=1)
SHAPE = (1, 16, 10, 10)


def unit(graph: Graph, op: str) -> int:
    """The node of an operator."""
    return next(node.id for node in graph.nodes.values() if node.op == op)


@pytest.fixture
def graph(tmp_path):
    return simplify(load(between(tmp_path / "m.onnx", POOL, SHAPE, SHAPE)).graph)


def test_what_quantises_for_a_unit_has_no_price_of_its_own(graph):
    priced = {graph.nodes[id].op for id in partition(graph)}
    # The last DequantizeLinear makes the output: nothing pays for it.
    assert priced == {"Conv", "AveragePool", "QuantizeLinear", "DequantizeLinear"}
    assert Counter(graph.nodes[id].op for id in partition(graph))["DequantizeLinear"] == 1
    assert Counter(graph.nodes[id].op for id in partition(graph))["QuantizeLinear"] == 1  # of the input


@pytest.mark.parametrize(("op", "kernel"), [("Conv", "QLinearConv"), ("AveragePool", "QLinearAveragePool")])
def test_a_unit_is_measured_as_the_kernel_that_it_becomes(graph, op, kernel, tmp_path):
    node = graph.nodes[unit(graph, op)]
    marks = quantised_ends(graph, node)
    assert node.opaque == UNIT and len(marks) == (4 if op == "Conv" else 2)
    plan = blueprint(graph, partition(graph)[node.id], Shapes(), marks)
    micro = micro_model(graph, plan)
    path = tmp_path / "micro.onnx"
    path.write_bytes(micro.model.proto)
    assert {name.rpartition(":")[2] for name in optimised_ops(path)} >= {kernel}
    (made,) = Session(micro.model).run(micro.feeds)
    assert made.dtype == "uint8"
    assert plan.signature != blueprint(graph, partition(graph)[node.id], Shapes()).signature


def test_windows_follow_edits_of_units(graph):
    rule = "quantised-average-pool-is-depthwise-conv"
    (match,) = [match for match in Sites.of(graph, load_library()) if match.rule.id == rule]
    made, delta = apply(graph, match)
    changed, _, _ = update(made, partition(graph), delta)
    followed = {**partition(graph), **changed}
    assert {id: window for id, window in followed.items() if window is not None and id in made.nodes} == partition(made)
    assert AnalyticCost().of(made).total > 0
