"""The model of a window, and what a window's signature depends on."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

import numpy as np
import onnx
import pytest

from graphopt.cost.blueprint import BLOCKED, blueprint
from graphopt.cost.measure import CONTEXT, REORDERS
from graphopt.cost.micro import UnbuildableError, _node, micro_model, repeatable
from graphopt.cost.shapes import Shapes
from graphopt.cost.windows import Window
from graphopt.ir.constants import tensor_of
from graphopt.ir.graph import Node
from graphopt.runtime.profile import profile
from graphopt.runtime.session import Session
from tests.cost.graphs import graph, node, operators, residual_network, transformer, windows


def plan(g, index=0, marks=()):
    return blueprint(g, windows(g)[index], Shapes(), marks)


def outputs(g, plan):
    micro = micro_model(g, plan)
    with Session(micro.model) as session:
        return session.run(micro.feeds)


@pytest.mark.parametrize("make", [transformer, residual_network, lambda: residual_network(gate=True)])
def test_every_window_runs(make):
    g = make()
    for window in windows(g):
        found = outputs(g, blueprint(g, window, Shapes()))
        assert found and all(np.isfinite(a).all() for a in found), operators(g, window)
        for key, array in zip(blueprint(g, window, Shapes()).outputs, found, strict=True):
            assert g.type(key).shape in (None, array.shape)


def test_layers_share_their_windows():
    for make, most in ((transformer, 14), (residual_network, 6)):
        counts = []
        for n in (3, 9):
            g = make(n)
            counts.append(len({blueprint(g, w, Shapes()).signature for w in windows(g)}))
        assert counts[0] == counts[1] <= most


DENSE = [node("MatMul", ["x", "w"], ["m"]), node("Add", ["m", "b"], ["y"])]
SIZES = {"w": (8, 8), "b": (8,)}


def signature(nodes, inputs, weights, **options):
    return plan(graph(nodes, inputs, weights, **options)).signature


def test_a_signature_knows_what_matters():
    base = signature(DENSE, {"x": (4, 8)}, SIZES)
    renamed = [node("MatMul", ["in", "k"], ["o"]), node("Add", ["o", "c"], ["out"])]
    assert signature(renamed, {"in": (4, 8)}, {"k": (8, 8), "c": (8,)}) == base
    different = [
        signature(DENSE, {"x": (5, 8)}, SIZES),
        signature(DENSE, {"x": (4, 8)}, {"w": (8, 8), "b": (1,)}),
        signature(DENSE, {"x": (4, 8), "w": (8, 8)}, {"b": (8,)}),
        signature(DENSE, {"x": (4, 8)}, SIZES, outputs=["m", "y"]),
        signature([*DENSE, node("Relu", ["y"], ["z"])], {"x": (4, 8)}, SIZES),
        signature(DENSE, {"x": (4, 8)}, SIZES, opset=12),
    ]
    assert len({base, *different}) == len(different) + 1


def test_a_weight_that_is_packed_may_lie_either_way_round():
    def of(weight, packs=True, const=True, **attributes):
        inputs, weights = ({"x": (4, 8)}, {"w": weight}) if const else ({"x": (4, 8), "w": weight}, {})
        g = graph([node("Gemm", ["x", "w"], ["y"], **attributes)], inputs, weights)
        return blueprint(g, windows(g)[0], Shapes(), packs=packs).signature

    assert of((8, 3)) == of((8, 3), transB=0) == of((3, 8), transB=1)
    assert of((8, 3)) != of((8, 5)) and of((8, 3)) != of((8, 3), alpha=0.5)
    assert of((8, 3), packs=False) != of((3, 8), packs=False, transB=1)
    assert of((8, 3), const=False) != of((3, 8), const=False, transB=1)


def test_content_counts_where_it_steers_the_kernel():
    def of(array):
        return signature([node("ReduceMean", ["x", "a"], ["y"])], {"x": (4, 4)}, {"a": np.array(array)})

    assert of([0]) != of([1]) and of([1]) == of([1])

    def power(exponent):
        return signature([node("Pow", ["x", "e"], ["y"])], {"x": (4, 4)}, {"e": np.float32(exponent)})

    assert power(2) != power(2.5)

    def attribute(alpha):
        return signature([node("LeakyRelu", ["x"], ["y"], alpha=alpha)], {"x": (4, 4)}, {})

    assert attribute(0.1) != attribute(0.2)


def test_weights_are_constants_and_large_ones_are_passed_on():
    g = graph(DENSE, {"x": (4, 256)}, {"w": (256, 256), "b": (256,)})
    micro = micro_model(g, plan(g))
    proto = onnx.load_model_from_string(micro.model.proto)
    assert [i.name for i in proto.graph.input] == list(micro.feeds) and len(proto.graph.initializer) == 2
    assert len(micro.model.tensors) == 1 and len(micro.model.proto) < 10_000
    weight = next(iter(micro.model.tensors.values()))
    assert weight.shape == (256, 256) and np.abs(weight).min() > 1e-3


@pytest.mark.parametrize(
    "nodes, x, weights",
    [
        (DENSE, (128, 256), {"w": (256, 256), "b": (256,)}),
        (
            [*DENSE[:1], node("Add", ["m", "b"], ["a"]), node("Gelu", ["a"], ["y"])],
            (1, 64, 256),
            {"w": (256, 256), "b": (256,)},
        ),
        (
            [node("Conv", ["x", "w"], ["c"], pads=[1] * 4), node("Relu", ["c"], ["y"])],
            (1, 64, 14, 14),
            {"w": (64, 64, 3, 3)},
        ),
    ],
)
def test_copies_are_layers_each_as_it_is_alone(nodes, x, weights):
    """The runtime fuses none of them with another, and takes none for another: each has weights of its own."""
    g = graph(nodes, {"x": x}, weights)
    window = plan(g)
    assert len(windows(g)) == 1 and repeatable(g, window)

    def kernels(copies):
        micro = micro_model(g, window, copies)
        found = profile(micro.model, micro.feeds, runs=1)
        return Counter(k.op_type for k in found if not k.node_name.startswith(CONTEXT) and k.op_type not in REORDERS)

    alone = kernels(1)
    assert kernels(3) == Counter({op: 3 * n for op, n in alone.items()})
    large = [array for array in micro_model(g, window, 3).model.tensors.values() if array.ndim > 1]
    assert len(large) == 3 and not any((a == b).all() for a, b in pairwise(large))


@pytest.mark.parametrize(
    ("nodes", "over"),
    [
        ([node("Softmax", ["x"], ["y"])], True),
        ([node("Mul", ["x", "row"], ["m"]), node("Tanh", ["m"], ["y"])], True),
        ([node("Mul", ["row", "x"], ["y"])], True),
        ([node("Transpose", ["x"], ["y"], perm=[1, 0])], False),
        ([node("Add", ["small", "x"], ["y"])], True),  # over the large one
        ([node("Add", ["small", "other"], ["y"])], False),
    ],
)
def test_what_a_kernel_may_overwrite_is_computed_and_what_it_writes_is_no_output(nodes, over):
    """The runtime may reuse neither an input nor the place of an output; what stands around the window counts in no price."""
    used = {name for n in nodes for name in n.input}
    shapes = {name: s for name, s in {"x": (64, 32), "small": (1, 32), "other": (64, 1)}.items() if name in used}
    g = graph(nodes, shapes, {"row": (32,)} if "row" in used else {})
    (window,) = windows(g)
    micro = micro_model(g, blueprint(g, window, Shapes()), computed=True)
    made = onnx.load_model_from_string(micro.model.proto).graph.node
    assert [n.op_type for n in made if n.name.startswith(CONTEXT)] == (["Max", "Size"] if over else [])
    kernels = {k.op_type for k in profile(micro.model, micro.feeds, runs=1)}
    assert not over or "Max" in kernels  # the runtime has left it in


def test_what_could_be_taken_for_one_is_not_copied():
    turned = [node("Transpose", ["x"], ["t"], perm=[1, 0]), node("MatMul", ["t", "w"], ["y"])]
    g = graph(turned, {"x": (256, 128)}, {"w": (256, 256)})
    order = tuple(n.id for n in g.in_order())
    assert not repeatable(g, blueprint(g, Window(order, order[-1]), Shapes()))  # all transpose the same
    small = graph(DENSE, {"x": (4, 8)}, SIZES)
    assert not repeatable(small, plan(small))  # weights that stay in the cache


def test_a_rule_may_write_a_whole_number_for_a_float():
    from graphopt.ir.edit import Edit

    g = graph([node("Relu", ["x"], ["y"])], {"x": (4, 4)})
    relu = next(iter(g.nodes.values()))
    edit = Edit(g, "leak", relu.outputs)
    edit.add("LeakyRelu", relu.inputs, {"alpha": 1}, outputs=relu.outputs)
    after, _ = edit.commit()
    assert outputs(after, plan(after))


def test_an_attribute_that_a_rule_writes_keeps_its_shape_and_type():
    made = Node("Constant", (), (1,), {"value": tensor_of(np.array(3, np.float32))})
    written = _node(graph([node("Relu", ["x"], ["y"])], {"x": (2,)}), made, "w0", {1: "v"})
    assert list(written.attribute[0].t.dims) == []


def test_a_blocked_operand_comes_out_of_a_convolution():
    g = residual_network(blocks=2)
    window, key = next(
        (w, k)
        for w in windows(g)
        if operators(g, w) == "Conv Add Relu"
        for k in blueprint(g, w, Shapes()).externals
        if g.producer(k).op == "Conv"
    )
    marked = blueprint(g, window, Shapes(), [(key, BLOCKED)])
    assert marked.signature != blueprint(g, window, Shapes()).signature
    proto = onnx.load_model_from_string(micro_model(g, marked).model.proto)
    assert [n.op_type for n in proto.graph.node] == ["Conv", "Relu", "Conv", "Add", "Relu"]
    assert outputs(g, marked)


def test_denormal_operands():
    g = graph([node("MatMul", ["p", "v"], ["y"])], {"p": (16, 16), "v": (16, 16)})
    key = g.inputs[0]
    feed = micro_model(g, blueprint(g, windows(g)[0], Shapes(), [(key, 4)])).feeds["x0"]
    assert 0.3 < (np.abs(feed) < 1e-38).mean() < 0.7 and (feed != 0).all()


def test_what_cannot_be_built():
    body = onnx.helper.make_graph(
        [node("Neg", ["x"], ["n"])], "b", [], [onnx.helper.make_tensor_value_info("n", 1, None)]
    )
    choice = node("If", ["c"], ["y"], then_branch=body, else_branch=body)
    g = graph([node("Cast", ["x"], ["b"], to=9), node("ReduceMax", ["x"], ["m"], keepdims=0),
               node("Cast", ["m"], ["c"], to=9), choice], {"x": (4,)})  # fmt: skip
    window = next(w for w in windows(g) if operators(g, w) == "If")
    with pytest.raises(UnbuildableError):
        micro_model(g, blueprint(g, window, Shapes()))
