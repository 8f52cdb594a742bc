"""What an edit guarantees, whatever it is asked to do."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from graphopt.ir.delta import RefusedError
from graphopt.ir.edit import Edit
from graphopt.ir.simplify import simplify
from graphopt.onnxio.load import load
from tests.ir.check import problems


def graph_of(text_nodes, inputs=("a", "b"), outputs=("y",), weights=()):
    nodes = [helper.make_node(op, i.split(), o.split(), name=f"n{k}") for k, (o, op, i) in enumerate(text_nodes)]
    info = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [2, 3]) for n in inputs]
    out = [helper.make_tensor_value_info(n, TensorProto.FLOAT, None) for n in outputs]
    tensors = [numpy_helper.from_array(np.ones((2, 3), np.float32), n) for n in weights]
    proto = helper.make_model(
        helper.make_graph(nodes, "g", info, out, tensors), opset_imports=[helper.make_opsetid("", 17)], ir_version=8
    )
    return load(proto).graph


def key(graph, name):
    return next(k for k, v in graph.values.items() if v.name == name)


def redefine(graph, root, op, operands):
    edit = Edit(graph, "test", [key(graph, root)])
    edit.add(op, [key(graph, o) for o in operands], outputs=[key(graph, root)])
    return edit.commit()


def test_a_redefined_value_keeps_key_name_and_type_and_the_old_graph_is_untouched():
    graph = graph_of([("t", "Add", "a b"), ("y", "Relu", "t")])
    before = graph.hash
    after, delta = redefine(graph, "t", "Sub", ["a", "b"])
    assert key(after, "t") == key(graph, "t") and after.type(key(after, "t")) == graph.type(key(graph, "t"))
    assert {n.op for n in delta.added} == {"Sub"} and {n.op for n in delta.removed} == {"Add"}
    assert problems(after) == [] and graph.hash == before and problems(graph) == []


def test_undoing_a_rewrite_restores_the_hash():
    graph = graph_of([("t", "Add", "a b"), ("y", "Relu", "t")])
    there, _ = redefine(graph, "t", "Sub", ["a", "b"])
    back, _ = redefine(there, "t", "Add", ["a", "b"])
    assert there.hash != graph.hash and back.hash == graph.hash


def test_an_equal_expression_is_reused():
    graph = graph_of([("s", "Mul", "a b"), ("t", "Add", "a b"), ("y", "Sub", "s t")])
    after, _ = redefine(graph, "t", "Mul", ["a", "b"])
    assert sorted(n.op for n in after.nodes.values()) == ["Mul", "Sub"]
    assert problems(after) == []


def test_a_split_in_two_is_no_part_of_a_split_in_three():
    nodes = [helper.make_node("Split", [x], parts, name=x) for x, parts in (("x", ["a", "b", "c"]), ("z", ["d", "e"]))]
    nodes += [helper.make_node("Sum", ["a", "b", "c"], ["y"]), helper.make_node("Sum", ["d", "e"], ["w"])]
    x, z, y, w = (helper.make_tensor_value_info(n, TensorProto.FLOAT, ["N", 2] if n in "xz" else None) for n in "xzyw")
    proto = helper.make_model(
        helper.make_graph(nodes, "g", [x, z], [y, w]), opset_imports=[helper.make_opsetid("", 13)]
    )
    graph = load(proto).graph
    with pytest.raises(RefusedError, match="another number of outputs"):
        Edit(graph, "test").add("Split", [key(graph, "x")], outputs=(None, None))
    with pytest.raises(RefusedError, match="another number of outputs"):
        Edit(graph, "test").alias(key(graph, "z"), key(graph, "x"))


def test_merging_readers_cascades():
    graph = graph_of([("s", "Neg", "a"), ("t", "Abs", "a"), ("u", "Exp", "s"), ("v", "Exp", "t"), ("y", "Sub", "u v")])
    after, _ = redefine(graph, "t", "Neg", ["a"])
    assert sorted(n.op for n in after.nodes.values()) == ["Exp", "Neg", "Sub"]
    assert problems(after) == []


def test_another_type_is_refused():
    graph = graph_of([("t", "Add", "a b"), ("y", "Relu", "t")])
    edit = Edit(graph, "test", [key(graph, "t")])
    with pytest.raises(RefusedError, match="would become"):
        edit.add("Shape", [key(graph, "a")], outputs=[key(graph, "t")])


def test_a_cycle_is_refused():
    graph = graph_of([("t", "Add", "a b"), ("u", "Relu", "t"), ("y", "Neg", "u")])
    edit = Edit(graph, "test", [key(graph, "t")])
    edit.add("Sub", [key(graph, "u"), key(graph, "b")], outputs=[key(graph, "t")])
    with pytest.raises(RefusedError, match="cycle"):
        edit.commit()


def test_only_what_is_out_of_order_gets_another_rank():
    chain = [("c0", "Neg", "b"), *((f"c{i}", "Neg", f"c{i - 1}") for i in range(1, 6))]
    graph = graph_of([("t", "Abs", "a"), ("u", "Exp", "t"), *chain, ("y", "Mul", "u c5")])
    # t now reads what stands after its reader u; the whole chain before that has to move, and nothing else.
    after, _ = redefine(graph, "t", "Add", ["a", "c3"])
    assert problems(after) == []
    moved = {
        name
        for name in ("u", "c0", "c1", "c2", "c3", "c4", "c5", "y")
        if after.order[after.values[key(after, name)].producer] != graph.order[graph.values[key(graph, name)].producer]
    }
    assert moved == {"c0", "c1", "c2", "c3"}


def test_an_alias_to_what_ranks_behind_its_readers_moves_it_before_them():
    graph = graph_of([("t", "Neg", "a"), ("u", "Exp", "t"), ("c", "Neg", "b"), ("d", "Abs", "c"), ("y", "Sum", "u d")])
    edit = Edit(graph, "test", [key(graph, "t")])
    edit.alias(key(graph, "t"), key(graph, "d"))
    after, _ = edit.commit()
    assert problems(after) == [] and "Exp" in {n.op for n in after.nodes.values()}
    edit = Edit(graph, "test", [key(graph, "t")])
    edit.alias(key(graph, "t"), key(graph, "u"))
    with pytest.raises(RefusedError, match="cycle"):
        edit.commit()


def test_a_root_must_be_defined():
    graph = graph_of([("t", "Add", "a b"), ("y", "Relu", "t")])
    with pytest.raises(RefusedError, match="no new definition"):
        Edit(graph, "test", [key(graph, "t")]).commit()


def test_an_interior_value_with_other_readers_stays():
    graph = graph_of([("t", "Add", "a b"), ("y", "Relu", "t"), ("z", "Neg", "t")], outputs=("y", "z"))
    after, _ = redefine(graph, "y", "Abs", ["a"])
    assert sorted(n.op for n in after.nodes.values()) == ["Abs", "Add", "Neg"]


def test_an_output_that_becomes_another_value_keeps_its_name():
    graph = graph_of([("t", "Add", "a b"), ("y", "Identity", "t")])
    edit = Edit(graph, "test", [key(graph, "y")])
    edit.alias(key(graph, "y"), key(graph, "t"))
    after, _ = edit.commit()
    assert after.outputs == (("y", key(graph, "t")),)
    assert problems(after) == []


def test_nodes_over_constants_are_lazy_and_cost_no_bytes():
    graph = graph_of([("t", "Add", "w v"), ("y", "Mul", "a t")], inputs=("a",), weights=("w", "v"))
    lazy = [n.op for n in graph.nodes.values() if graph.is_lazy(n)]
    assert lazy == ["Add"] and graph.values[key(graph, "t")].tensor is None


def test_simplify_merges_twins_and_drops_what_nothing_reads():
    graph = graph_of([("s", "Add", "a b"), ("t", "Add", "a b"), ("dead", "Exp", "a"), ("y", "Mul", "s t")])
    assert len(graph.nodes) == 4
    small = simplify(graph)
    assert sorted(n.op for n in small.nodes.values()) == ["Add", "Mul"]
    assert problems(small) == [] and simplify(small) is small
