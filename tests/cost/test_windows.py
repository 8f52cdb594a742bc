"""Which nodes belong together."""

from __future__ import annotations

from collections import Counter

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from graphopt.cost.analytic import AnalyticCost
from graphopt.cost.windows import DIAMOND, LIMIT, partition
from graphopt.ir.delta import RefusedError
from graphopt.ir.edit import Edit
from graphopt.ir.simplify import simplify
from graphopt.onnxio.load import load
from graphopt.rewrite.apply import apply
from graphopt.rewrite.sites import Sites
from tests.cost.graphs import graph, node, operators, residual_network, transformer, windows
from tests.ir.graphs import Sample, samples
from tests.pace import calls
from tests.rewrite.pack import PACK

RULES = PACK.without({"split-concat", "split-matmul"})


def groups(g):
    return sorted(operators(g, w) for w in windows(g))


def test_layers_of_a_transformer():
    g = transformer(layers=3)
    assert Counter(groups(g)) == Counter(
        {
            "MatMul Add": 3 * 5, "Reshape": 3 * 4, "Transpose Transpose MatMul Div": 3, "Softmax": 3, "Transpose MatMul": 3,
            "Transpose": 3, "Add LayerNormalization": 3 * 2, "MatMul Add Gelu": 3,
        }
    )  # fmt: skip


def test_each_running_node_is_in_one_window():
    g = residual_network(gate=True)
    seen = [id for w in windows(g) for id in w.nodes]
    assert len(seen) == len(set(seen))
    assert set(seen) == {n.id for n in g.nodes.values() if not g.is_lazy(n)}
    assert all(w.head in w.nodes for w in windows(g))


def test_convolution_with_what_follows():
    conv = node("Conv", ["x", "w"], ["c"])
    weights = {"w": (8, 8, 1, 1), "s": (8,), "b": (8,), "m": (8,), "v": (8,), "half": np.float32(0.5)}
    inputs = {"x": (1, 8, 4, 4)}
    batch = node("BatchNormalization", ["c", "s", "b", "m", "v"], ["n"])
    assert groups(graph([conv, batch, node("Relu", ["n"], ["y"])], inputs, weights)) == ["Conv BatchNormalization Relu"]
    swish = [conv, node("Sigmoid", ["c"], ["s_"]), node("Mul", ["c", "s_"], ["y"])]
    assert groups(graph(swish, inputs, weights)) == ["Conv Sigmoid Mul"]
    # A value that is read elsewhere too ends the window.
    pooled = [*swish, node("MaxPool", ["c"], ["z"], kernel_shape=[1, 1])]
    assert groups(graph(pooled, inputs, weights, ["y", "z"])) == ["Conv", "MaxPool", "Sigmoid Mul"]
    assert groups(graph([conv, node("Relu", ["c"], ["y"])], inputs, weights, ["c", "y"])) == ["Conv", "Relu"]


def test_both_branches_of_a_sum_of_convolutions():
    nodes = [
        node("Conv", ["x", "w"], ["a"]),
        node("Conv", ["x", "v"], ["b"]),
        node("Add", ["a", "b"], ["s"]),
        node("Relu", ["s"], ["y"]),
    ]
    assert groups(graph(nodes, {"x": (1, 8, 4, 4)}, {"w": (8, 8, 1, 1), "v": (8, 8, 1, 1)})) == ["Conv Conv Add Relu"]


def test_a_product_keeps_bias_and_activation_only():
    weights = {"w": (8, 8), "b": (8,)}
    dense = [node("MatMul", ["x", "w"], ["m"]), node("Add", ["m", "b"], ["a"])]
    inputs = {"x": (4, 8), "r": (4, 8)}
    assert groups(graph([*dense, node("Relu", ["a"], ["y"])], inputs, weights)) == ["MatMul Add Relu"]
    assert groups(graph([*dense, node("Add", ["a", "r"], ["y"])], inputs, weights)) == ["Add", "MatMul Add"]
    gelu = [
        node("Div", ["a", "k"], ["d"]), node("Erf", ["d"], ["e"]), node("Add", ["e", "one"], ["f"]),
        node("Mul", ["a", "f"], ["g"]), node("Mul", ["g", "half"], ["y"]),
    ]  # fmt: skip
    constants = {**weights, "k": np.float32(2**0.5), "one": np.float32(1), "half": np.float32(0.5)}
    assert groups(graph([*dense, *gelu], inputs, constants)) == ["Div Erf Add Mul Mul", "MatMul Add"]


def test_decomposed_normalisation_is_one_window():
    nodes = [
        node("ReduceMean", ["x", "last"], ["mean"]),
        node("Sub", ["x", "mean"], ["d"]),
        node("Pow", ["d", "two"], ["sq"]),
        node("ReduceMean", ["sq", "last"], ["var"]),
        node("Add", ["var", "eps"], ["ve"]),
        node("Sqrt", ["ve"], ["sd"]),
        node("Div", ["d", "sd"], ["n"]),
        node("Mul", ["n", "s"], ["ns"]),
        node("Add", ["ns", "b"], ["y"]),
    ]
    weights = {"last": np.array([-1]), "two": np.float32(2), "eps": np.float32(1e-5), "s": (8,), "b": (8,)}
    assert groups(graph(nodes, {"x": (4, 8)}, weights)) == ["ReduceMean Sub Pow ReduceMean Add Sqrt Div Mul Add"]


def test_sum_before_a_normalisation_may_be_read_twice():
    nodes = [
        node("Add", ["x", "r"], ["s"]),
        node("LayerNormalization", ["s", "g"], ["n"]),
        node("MatMul", ["n", "w"], ["m"]),
        node("Add", ["m", "s"], ["y"]),
    ]
    g = graph(nodes, {"x": (4, 8), "r": (4, 8)}, {"g": (8,), "w": (8, 8)})
    assert groups(g) == ["Add", "Add LayerNormalization", "MatMul"]


def test_a_long_run_is_priced_node_by_node():
    nodes = [node("Tanh" if i % 2 else "Neg", [f"v{i}"], [f"v{i + 1}"]) for i in range(LIMIT + 1)]
    assert all(len(w.nodes) == 1 for w in windows(graph(nodes, {"v0": (4,)})))
    assert len(windows(graph(nodes[:-1], {"v0": (4,)}))) == 1


def test_lazy_constants_are_in_no_window():
    nodes = [node("Mul", ["w", "k"], ["scaled"]), node("MatMul", ["x", "scaled"], ["y"])]
    g = graph(nodes, {"x": (4, 8)}, {"w": (8, 8), "k": np.float32(2)})
    assert groups(g) == ["MatMul"]


@settings(max_examples=150, deadline=None)
@given(samples(), st.randoms(use_true_random=False))
def test_an_update_equals_a_fresh_count(sample: Sample, random):
    """Windows, layouts and prices after random rewrites are those of the graph they lead to."""
    g = simplify(load(sample.model).graph)
    model = AnalyticCost(block=4)
    costs, sites = model.of(g), Sites.of(g, RULES)
    for _ in range(8):
        if not sites.matches:
            break
        try:
            g, delta = apply(g, sites.matches[random.choice(sorted(sites.matches))])
        except RefusedError:
            continue
        total = model.total_after(costs, g, delta)
        costs, sites = model.after(costs, g, delta), sites.after(g, delta)
        fresh = model.of(g)
        assert costs.total == total
        assert costs == fresh
        assert {w.nodes for w in costs.partition.values()} == {w.nodes for w in partition(g).values()}
        assert set(costs.partition) == set(partition(g))


def test_a_new_reader_splits_a_window_and_its_end_joins_it_again():
    g = residual_network(blocks=2)
    model = AnalyticCost(block=16)
    before = model.of(g)
    conv = next(n for n in g.in_order() if n.op == "Conv")
    edit = Edit(g)
    key = edit.add("Abs", [conv.outputs[0]])[0]
    edit.publish([*g.outputs, ("extra", key)])
    split, delta = edit.commit()
    during = model.after(before, split, delta)
    assert during == model.of(split)
    assert len(set(during.partition.values())) > len(set(before.partition.values()))
    edit = Edit(split)
    edit.publish(g.outputs)
    edit.alias(key, conv.outputs[0])
    joined, delta = edit.commit()
    assert model.after(during, joined, delta) == model.of(joined)


def test_what_is_left_of_a_run_that_was_too_long_is_one_window():
    """A product comes one step closer to the end of its branch, which then no longer goes on into what follows."""
    branch = [node("MatMul", ["x", "w"], ["m"]), node("Add", ["m", "b"], ["v0"])]
    branch += [node("Tanh", [f"v{i}"], [f"v{i + 1}"]) for i in range(DIAMOND)]
    tail = [node("Mul", [f"v{DIAMOND}", "z"], ["t0"])]
    tail += [node("Neg", [f"t{i}"], [f"t{i + 1}"]) for i in range(LIMIT - 4)]
    g = graph([*branch, *tail], {"x": (4, 8), "z": (4, 8)}, {"w": (8, 8), "b": (8,)})
    model = AnalyticCost()
    before = model.of(g)
    assert all(len(w.nodes) == 1 for w in before.partition.values())
    product, bias = (next(n for n in g.in_order() if n.op == op) for op in ("MatMul", "Add"))
    edit = Edit(g, roots=[bias.outputs[0]])
    edit.add("Gemm", [*product.inputs, bias.inputs[1]], outputs=[bias.outputs[0]])
    after, delta = edit.commit()
    costs = model.after(before, after, delta)
    assert sorted(len(w.nodes) for w in set(costs.partition.values())) == [1 + DIAMOND, 1 + LIMIT - 4]
    assert costs == model.of(after)


def test_a_value_that_becomes_an_output_ends_its_window():
    nodes = [node("Neg", ["x"], ["a"]), node("Tanh", ["a"], ["y"]), node("Abs", ["x"], ["z"])]
    g = graph(nodes, {"x": (4,)}, outputs=["y", "z"])
    model = AnalyticCost()
    before = model.of(g)
    key = {n.op: n.outputs[0] for n in g.nodes.values()}
    edit = Edit(g)
    edit.alias(key["Abs"], key["Neg"])
    after, delta = edit.commit()
    costs = model.after(before, after, delta)
    assert costs == model.of(after)
    assert len(set(before.partition.values())) == 2 and len(set(costs.partition.values())) == 2


def test_an_update_is_as_much_work_in_a_large_graph():
    """The search prices thousands of candidates."""

    def needed(layers):
        g, model = transformer(layers=layers), AnalyticCost()
        costs = model.of(g)
        add = [n for n in g.in_order() if n.op == "Add"][3]
        edit = Edit(g, "swap", [add.outputs[0]])
        edit.add("Add", (add.inputs[1], add.inputs[0]), outputs=[add.outputs[0]])
        after, delta = edit.commit()
        return calls(lambda: model.after(costs, after, delta)), calls(lambda: model.of(after))

    (small, small_whole), (large, large_whole) = needed(6), needed(24)
    assert large <= 1.1 * small < small_whole < large_whole / 3
