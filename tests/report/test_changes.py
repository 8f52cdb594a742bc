"""Two graphs laid over each other: what stayed, what changed, where it is drawn."""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

import graphopt
from graphopt.onnxio.load import load
from graphopt.report.changes import LONGEST, clip, compare, places
from graphopt.report.layout import columns, lanes
from graphopt.search.problem import Step
from tests.report.pages import chain, graph_of
from tests.test_api import grouped


def model(nodes, weights=(), inputs=("x",), outputs=("y",), shape=(4, 4)):
    graph = helper.make_graph(
        nodes, "g", *([helper.make_tensor_value_info(n, TensorProto.FLOAT, shape) for n in names] for names in (inputs, outputs)),
        initializer=list(weights),
    )  # fmt: skip
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def square(name, value):
    return numpy_helper.from_array(np.full((4, 4), value, np.float32), name)


def test_equal_graphs_do_not_differ():
    view = compare(graph_of(chain(5)), graph_of(chain(5)))
    assert view.changes == () and len(view.nodes) == 15
    assert all(node.before == node.after and node.change is None for node in view.nodes)


def test_each_place_is_a_change_and_equal_ones_are_of_one_kind():
    view = compare(graph_of(chain(9)), graph_of(chain(9, relu="Tanh")))
    assert len(view.changes) == 3 and {change.kind for change in view.changes} == {0}
    for number, change in enumerate(view.changes):
        (gone,), (come,) = change.removed, change.added
        assert (view.nodes[gone].op, view.nodes[come].op) == ("Relu", "Tanh")
        assert view.nodes[gone].after is None and view.nodes[come].before is None
        assert view.nodes[gone].change == view.nodes[come].change == number
        # The two make the same value: by it a reader finds the same place in the other graph.
        assert view.nodes[gone].before.outputs == view.nodes[come].after.outputs
    starts = [min(view.nodes[i].column for i in change.removed) for change in view.changes]
    assert starts == sorted(starts)


def test_connected_nodes_are_one_change():
    before = model([helper.make_node("Relu", ["x"], ["a"]), helper.make_node("Abs", ["a"], ["y"])])
    after = model([helper.make_node("Tanh", ["x"], ["b"]), helper.make_node("Erf", ["b"], ["y"])])
    (change,) = compare(graph_of(before), graph_of(after)).changes
    assert len(change.removed) == len(change.added) == 2


@pytest.mark.parametrize(("name", "value", "changes"), [("v", 1.0, 0), ("w", 2.0, 1)], ids=["renamed", "other content"])
def test_a_weight_counts_by_its_content(name, value, changes):
    before = model([helper.make_node("MatMul", ["x", "w"], ["y"])], [square("w", 1.0)])
    after = model([helper.make_node("MatMul", ["x", name], ["y"])], [square(name, value)])
    assert len(compare(graph_of(before), graph_of(after)).changes) == changes


def test_attributes_count():
    before, after = (model([helper.make_node("Softmax", ["x"], ["y"], axis=axis)]) for axis in (0, 1))
    assert len(compare(graph_of(before), graph_of(after)).changes) == 1


def test_a_node_whose_source_is_gone_stays_the_same_node():
    before = model([helper.make_node("Identity", ["x"], ["a"]), helper.make_node("Abs", ["a"], ["y"])])
    after = model([helper.make_node("Abs", ["x"], ["y"])])
    view = compare(graph_of(before), graph_of(after), [Step("drop-identity", "identity", "", "a", 2.0, 1.0)])
    (change,) = view.changes
    # Nothing came, so the step alone tells which rule did it.
    assert change.rules == ("drop-identity",) and change.added == ()
    kept = next(node for node in view.nodes if node.op == "Abs")
    assert kept.change is None and kept.before != kept.after
    assert places(view) == {"a": 0}


def test_constants_and_what_computes_them_do_not_run():
    shift = [helper.make_node("Neg", ["w"], ["n"]), helper.make_node("Add", ["x", "n"], ["y"])]
    view = compare(*[graph_of(model(shift, [square("w", 1.0)]))] * 2)
    assert [node.op for node in view.nodes] == ["Add"]
    ends = {value.name: (value.input, value.output) for value in view.values}
    assert ends == {"x": (True, (False, False)), "n": (False, (False, False)), "y": (False, (True, True))}


def test_of_an_optimisation_and_of_its_file(tmp_path):
    """The graph of a search and the file that was written from it show the same changes, by the same rules."""
    source, output = grouped(tmp_path / "m.onnx"), tmp_path / "o.onnx"
    result = graphopt.optimize(source, output=output, measure=False, rules=["grouped-conv"])
    view = compare(load(source).graph, load(output).graph)
    assert {change.rules for change in view.changes} == {(rule,) for rule in result.report["rules"]}
    assert [view.nodes[i].op for change in view.changes for i in change.removed] == ["Conv"] * 3


def test_columns_are_longest_paths():
    assert columns([[1, 2], [2], [], []]) == [0, 1, 2, 0]


def test_a_cycle_of_two_graphs_is_cut():
    depth = columns([[1], [2], [1, 3], []])
    assert depth[0] < depth[1] < depth[2] < depth[3]


def test_lanes_keep_the_spine_straight_and_no_two_nodes_meet():
    rng = random.Random(0)
    spine = 300
    readers = [[i + 1] for i in range(spine - 1)] + [[]]
    for branch in range(100):
        start = rng.randrange(spine - 10)
        readers[start].append(spine + branch)
        readers.append([start + 3])
    column = columns(readers)
    lane = lanes(column, readers)
    assert min(lane) == 0 and len(set(zip(column, lane, strict=True))) == len(readers)
    assert max(lane) < 10
    assert len(set(lane[:spine])) == 1


def test_long_text_loses_its_middle():
    assert clip("short") == "short"
    text = clip("a" * 500 + "b" * 500)
    assert (
        len(text) == LONGEST and text.startswith("aaa") and text.endswith("bbb") and "\N{HORIZONTAL ELLIPSIS}" in text
    )


def test_views_are_frozen():
    view = compare(graph_of(chain(1)), graph_of(chain(1)))
    with pytest.raises(AttributeError):
        view.before = "x"
    assert replace(view, before="x").before == "x"
