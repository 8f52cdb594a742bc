"""Conversions into and out of the blocked layout, against what the runtime does."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import helper, numpy_helper

from graphopt.cost.layout import Layouts, arrives_blocked
from graphopt.cost.shapes import Shapes
from graphopt.ir.edit import Edit
from graphopt.ir.simplify import simplify
from graphopt.onnxio.emit import emit
from graphopt.onnxio.load import load
from graphopt.onnxio.save import to_proto
from graphopt.rewrite.apply import apply
from graphopt.rewrite.library import load_library
from graphopt.rewrite.sites import Sites
from graphopt.runtime.environment import block_size
from graphopt.runtime.profile import optimised_ops
from graphopt.runtime.session import LoadableModel
from tests.cost.graphs import graph, node, operators, residual_network, windows

BLOCK = block_size()
pytestmark = pytest.mark.skipif(BLOCK <= 1, reason="the runtime has no blocked layout here")


def layout(g, block=BLOCK):
    return Layouts(Shapes(), block).of(g)


def conversions(g):
    moves = layout(g).moves.values()
    return sum(m.inward for m in moves), sum(not m.inward for m in moves)


def actual(nodes, inputs, weights, outputs):
    rng = np.random.default_rng(0)
    arrays = {
        n: rng.standard_normal(v).astype(np.float32) if isinstance(v, tuple) else np.asarray(v)
        for n, v in weights.items()
    }
    body = helper.make_graph(
        nodes, "g", [helper.make_tensor_value_info(n, 1, s) for n, s in inputs.items()],
        [helper.make_tensor_value_info(n, 1, None) for n in outputs],
        [numpy_helper.from_array(a, n) for n, a in arrays.items()],
    )  # fmt: skip
    model = helper.make_model(body, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)
    ops = optimised_ops(LoadableModel(model.SerializeToString()))
    return tuple(sum(n for op, n in ops.items() if op.endswith(end)) for end in ("ReorderInput", "ReorderOutput"))


def conv(x, y, weight, **attributes):
    return node("Conv", [x, weight], [y], **attributes)


C = 4 * BLOCK
W = {"w": (C, C, 1, 1), "v": (C, C, 1, 1)}
CASES = {
    "one convolution": ([conv("x", "y", "w")], {}),
    "two in a row": ([conv("x", "a", "w"), conv("a", "y", "v")], {}),
    "few channels are read directly": ([conv("image", "a", "rgb"), conv("a", "y", "w")], {"rgb": (C, 3, 1, 1)}),
    "an activation that the layout knows": ([conv("x", "a", "w"), node("Sigmoid", ["a"], ["b"]), conv("b", "y", "v")], {}),
    "one that it knows only in a convolution": (
        [conv("x", "a", "w"), node("LeakyRelu", ["a"], ["b"]), conv("b", "c", "v"), node("Add", ["c", "b"], ["y"])], {}
    ),
    "one that it does not know": ([conv("x", "a", "w"), node("Softplus", ["a"], ["b"]), conv("b", "y", "v")], {}),
    "a skip": ([conv("x", "a", "w"), conv("a", "b", "v"), node("Add", ["b", "a"], ["c"]), node("Relu", ["c"], ["y"])], {}),
    "a plain skip": ([conv("x", "a", "w"), node("Add", ["a", "x"], ["y"])], {}),
    "a gate": (
        [conv("x", "a", "w"), node("GlobalAveragePool", ["a"], ["p"]), node("Sigmoid", ["p"], ["s"]),
         node("Mul", ["a", "s"], ["m"]), conv("m", "y", "v")], {},
    ),
    "a gate by ReduceMean": (
        [conv("x", "a", "w"), node("ReduceMean", ["a", "axes"], ["p"]), node("Sigmoid", ["p"], ["s"]),
         node("Mul", ["a", "s"], ["m"]), conv("m", "y", "v")], {"axes": np.array([2, 3])},
    ),
    "pooling": ([node("MaxPool", ["x"], ["a"], kernel_shape=[2, 2]), conv("a", "y", "w")], {}),
    "grouped, wide": ([conv("x", "y", "g", group=4)], {"g": (C, BLOCK, 3, 3)}),
    "grouped, narrow": ([conv("x", "y", "g", group=8)], {"g": (C, BLOCK // 2, 3, 3)}),
    "depthwise": ([conv("x", "y", "g", group=C)], {"g": (C, 1, 3, 3)}),
    "odd channels": ([conv("x", "a", "o"), conv("a", "y", "p")], {"o": (6, C, 1, 1), "p": (C, 6, 1, 1)}),
    "concatenation": (
        [conv("x", "a", "w"), conv("x", "b", "v"), node("Concat", ["a", "b"], ["c"], axis=1), conv("c", "y", "t")],
        {"t": (C, 2 * C, 1, 1)},
    ),
    "concatenation of odd channels": (
        [conv("x", "a", "o"), conv("x", "b", "w"), node("Concat", ["a", "b"], ["y"], axis=1)], {"o": (4, C, 1, 1)}
    ),
    "shuffle": (
        [conv("x", "a", "w"), node("Reshape", ["a", "five"], ["b"]), node("Transpose", ["b"], ["c"], perm=[0, 2, 1, 3, 4]),
         node("Reshape", ["c", "four"], ["d"]), conv("d", "y", "v")],
        {"five": np.array([1, 2, C // 2, 8, 8]), "four": np.array([1, C, 8, 8])},
    ),
    "split": ([conv("x", "a", "w"), node("Split", ["a"], ["b", "c"], axis=1, num_outputs=2), conv("b", "y", "h")],
              {"h": (C, C // 2, 1, 1)}),
    "weights that vary": ([node("Abs", ["k"], ["w2"]), conv("x", "y", "w2")], {}),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_conversions_are_those_of_the_runtime(name):
    nodes, weights = CASES[name]
    read = {i for n in nodes for i in n.input}
    inputs = {k: s for k, s in {"x": (1, C, 8, 8), "image": (1, 3, 8, 8), "k": (C, C, 1, 1)}.items() if k in read}
    constants = {k: s for k, s in {**W, **weights}.items() if k in read}
    g = graph(nodes, inputs, constants, ["y"])
    assert conversions(g) == actual(nodes, inputs, constants, ["y"])


@pytest.mark.parametrize("batch", [2, "N"])
def test_a_gate_stays_in_blocks_whatever_the_batch(batch):
    """Of a Resize the runtime infers a batch of another name; then it would compute the product outside."""
    gate = [node("GlobalAveragePool", ["a"], ["p"]), node("Sigmoid", ["p"], ["s"]), node("Mul", ["a", "s"], ["m"])]
    rng = np.random.default_rng(0)
    body = helper.make_graph(
        [conv("x", "a", "w"), *gate, conv("m", "y", "v")], "g",
        [helper.make_tensor_value_info("x", 1, [batch, C, 8, 8])], [helper.make_tensor_value_info("y", 1, None)],
        [numpy_helper.from_array(rng.standard_normal(shape).astype(np.float32), name) for name, shape in W.items()],
    )  # fmt: skip
    model = load(helper.make_model(body, opset_imports=[helper.make_opsetid("", 20)], ir_version=10))
    before = simplify(model.graph)
    (match,) = Sites.of(before, load_library(["gate-in-blocked-layout"]), BLOCK)
    after, _ = apply(before, match, BLOCK)
    ops = optimised_ops(LoadableModel(to_proto(emit(model, after)).SerializeToString()))
    assert conversions(after) == tuple(sum(n for op, n in ops.items() if op.endswith(e)) for e in ("Input", "Output"))
    assert conversions(after) == (1, 1) and conversions(before) == (2, 3)


def test_no_blocks():
    assert not layout(residual_network(), block=1).moves


def test_a_skip_is_marked_where_one_kernel_adds_it():
    g = residual_network(blocks=2, channels=C)
    found = layout(g)
    assert [len(arrives_blocked(g, w, found)) for w in windows(g) if operators(g, w) == "Conv Add Relu"] == [1, 1]
    g = residual_network(blocks=2, channels=C, gate=True)
    found = layout(g)
    assert not any(arrives_blocked(g, w, found) for w in windows(g))


def test_an_update_follows_a_layout_downstream():
    g = residual_network(blocks=3, channels=C)
    layouts = Layouts(Shapes(), BLOCK)
    old = layouts.of(g)
    add = next(n for n in g.in_order() if n.op == "Add")
    edit = Edit(g, "abs", [add.outputs[0]])
    edit.add("Softplus", edit.add("Add", add.inputs[::-1]), outputs=add.outputs)
    after, delta = edit.commit()
    new, changed = layouts.after(old, after, delta)
    fresh = layouts.of(after)
    assert new.moves == fresh.moves and new.blocked == fresh.blocked and new.moves != old.moves
    assert changed
