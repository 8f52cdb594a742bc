"""What is read without need: sizes that are known, and states of zeros."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

from graphopt.ir.graph import Graph
from graphopt.ir.simplify import alike, asked_of_inputs, simplify, sized, stateless
from graphopt.onnxio.emit import emit
from graphopt.onnxio.load import load
from graphopt.onnxio.save import to_proto
from tests.ir.check import problems
from tests.onnxio.models import INT, F, Typed, body, model, node, run, same, weight

GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}


def running(graph: Graph) -> list[str]:
    return sorted(n.op for n in graph.nodes.values() if not graph.is_lazy(n))


def recurrent(op: str, states: list[onnx.NodeProto], given: list[str], fill: float = 0.0) -> onnx.ModelProto:
    """A layer of three units over sequences of two, any number of them."""
    rng = np.random.default_rng(0)
    value = onnx.numpy_helper.from_array(np.array([fill], np.float32))
    nodes = [
        node("Shape", ["x"], ["s"]),
        node("Slice", ["s", "one", "two"], ["batch"]),
        node("Concat", ["four", "batch", "three"], ["dims"], axis=0),
        node("ConstantOfShape", ["dims"], ["all"], value=value),
        *states,
        node(op, ["x", "w", "r", "", "", *given], ["y", "h"], hidden_size=3),
    ]
    weights = [weight(n, np.array([v])) for n, v in (("zero", 0), ("one", 1), ("two", 2), ("three", 3), ("four", 4))]
    for name, width in (("w", 2), ("r", 3)):
        weights.append(weight(name, rng.standard_normal((1, GATES[op] * 3, width)).astype(np.float32)))
    return model(nodes, [("x", F, [5, "N", 2])], [("y", F, None), ("h", F, None)], weights)


SLICED = [node("Slice", ["all", "zero", "one", "zero"], ["h0"]), node("Slice", ["all", "one", "two", "zero"], ["c0"])]
JOINED = [node("Slice", ["all", "zero", "one", "zero"], ["some"]), node("Slice", ["all", "zero", "zero", "zero"], ["no"]),
          node("Concat", ["some", "no"], ["h0"], axis=0)]  # fmt: skip
SPREAD = [node("Slice", ["all", "zero", "one", "zero"], ["some"]), node("Identity", ["some"], ["h0"])]


@pytest.mark.parametrize(
    ("op", "states", "given"),
    [
        ("LSTM", SLICED, ["h0", "c0"]),
        ("GRU", SPREAD, ["h0"]),
        ("GRU", JOINED, ["h0"]),
        ("RNN", SPREAD, ["h0"]),
        ("LSTM", SLICED, ["", "c0"]),
    ],
)
def test_states_of_zeros_are_not_given(op: str, states: list[onnx.NodeProto], given: list[str]) -> None:
    proto = recurrent(op, states, given)
    loaded = load(proto)
    graph = stateless(simplify(loaded.graph))
    assert running(graph) == [op] and problems(graph) == []
    made = to_proto(emit(loaded, graph))
    for batch in (1, 3):
        feeds = {"x": np.random.default_rng(1).standard_normal((5, batch, 2)).astype(np.float32)}
        same(run(made, feeds), run(proto, feeds), 0, 0)


@pytest.mark.parametrize("fill", [1.0, -0.0, np.nan])
def test_other_states_stay(fill: float) -> None:
    graph = simplify(load(recurrent("LSTM", SLICED, ["h0", "c0"], fill)).graph)
    assert stateless(graph).hash == graph.hash


def test_states_of_which_a_part_is_given_stay() -> None:
    states = [*SLICED[:1], node("Concat", ["h0", "h0"], ["two_h"], axis=0), node("Add", ["two_h", "one_f"], ["c"]),
              node("Concat", ["h0", "c"], ["hc"], axis=0), node("Slice", ["hc", "two", "three", "zero"], ["some"])]  # fmt: skip
    proto = recurrent("GRU", states, ["some"])
    proto.graph.initializer.append(weight("one_f", np.float32(1)))
    graph = simplify(load(proto).graph)
    assert stateless(graph).hash == graph.hash


def filled(to: float) -> onnx.ModelProto:
    """Two layers that scatter into zeros: one has them as they are, the other computes them."""
    value = onnx.numpy_helper.from_array(np.array([to], np.float32))
    nodes = [
        node("ScatterElements", ["zeros", "i", "x"], ["a"], axis=0, reduction="add"),
        node("ConstantOfShape", ["four"], ["computed"], value=value),
        node("ScatterElements", ["computed", "i", "x"], ["b"], axis=0, reduction="add"),
        node("Mul", ["a", "b"], ["y"]),
    ]
    weights = [weight("zeros", np.zeros(4, np.float32)), weight("four", np.array([4]))]
    return model(nodes, [("x", F, ["N"]), ("i", INT, ["N"])], [("y", F, [4])], weights)


def test_layers_on_constants_that_are_computed_alike_are_one() -> None:
    """As in graph networks by torch's older exporter, each of which makes its self-loops and degrees anew."""
    loaded = load(filled(0.0))
    graph = alike(simplify(loaded.graph))
    assert running(graph) == ["Mul", "ScatterElements"] and problems(graph) == []
    feeds = {"x": np.array([1, 2, 3], np.float32), "i": np.array([0, 2, 0])}
    same(run(to_proto(emit(loaded, graph)), feeds), run(filled(0.0), feeds), 0, 0)


def test_a_constant_of_one_that_gave_way_to_another() -> None:
    """What computed a constant that gave way is left over; the next to give way makes its reader equal to that."""
    nodes = [
        node("Neg", ["minus"], ["again"]), node("Add", ["x", "again"], ["a"]),
        node("Sub", ["plus", "two"], ["less"]), node("Add", ["a", "less"], ["b"]),
        node("Neg", ["less"], ["more"]), node("Add", ["b", "more"], ["y"]),
    ]  # fmt: skip
    numbers = {"plus": 1, "minus": -1, "two": 2}
    weights = [weight(name, np.full(3, value, np.float32)) for name, value in numbers.items()]
    loaded = load(model(nodes, [("x", F, [3])], [("y", F, [3])], weights))
    graph = alike(simplify(loaded.graph))
    assert running(graph) == ["Add"] * 3 and problems(graph) == []
    feeds = {"x": np.arange(3, dtype=np.float32)}
    same(run(to_proto(emit(loaded, graph)), feeds), run(loaded.proto, feeds), 0, 0)


@pytest.mark.parametrize("to", [-0.0, 1.0])
def test_layers_on_other_constants_stay_apart(to: float) -> None:
    graph = simplify(load(filled(to)).graph)
    assert alike(graph).hash == graph.hash


def test_what_is_asked_for_its_size_alone_goes() -> None:
    nodes = [node("Exp", ["x"], ["e"]), node("Shape", ["e"], ["s"]), node("Expand", ["y", "s"], ["z"])]
    graph = simplify(load(model(nodes, [("x", F, [2, 3]), ("y", F, ["N"])], [("z", F, None)])).graph)
    assert running(graph) == ["Exp", "Expand"]
    graph = sized(graph)
    assert running(graph) == ["Expand"] and problems(graph) == []


def test_a_size_that_is_not_known_is_asked() -> None:
    nodes = [node("Exp", ["x"], ["e"]), node("Shape", ["e"], ["s"]), node("Expand", ["y", "s"], ["z"])]
    graph = simplify(load(model(nodes, [("x", F, ["M", 3]), ("y", F, [1])], [("z", F, None)])).graph)
    assert sized(graph).hash == graph.hash


def test_a_size_keeps_the_name_that_others_know_it_by() -> None:
    then = body([node("Expand", ["y", "s"], ["a"])], [("a", F, None)])
    other = body([node("Expand", ["y", "r"], ["b"])], [("b", F, None)])
    nodes = [
        node("Shape", ["x"], ["s"]),
        node("If", ["c"], ["z"], then_branch=then, else_branch=other),
        node("Size", ["x"], ["n"]),
    ]
    inputs: list[Typed] = [("x", F, [2, 3]), ("y", F, [1]), ("r", INT, [2]), ("c", onnx.TensorProto.BOOL, [])]
    graph = simplify(load(model(nodes, inputs, [("z", F, None), ("n", INT, None)])).graph)
    assert sized(graph).hash == graph.hash


def test_equal_nodes_that_come_of_it_are_one() -> None:
    nodes = [
        node("Shape", ["x"], ["s"]), node("Shape", ["w"], ["t"]), node("Reshape", ["v", "s"], ["a"]), node("Reshape", ["v", "t"], ["b"]),
        node("Shape", ["a"], ["p"]), node("Shape", ["b"], ["q"]), node("Expand", ["y", "p"], ["z"]), node("Expand", ["y", "q"], ["u"]),
    ]  # fmt: skip
    inputs: list[Typed] = [("x", F, [2, 3]), ("w", F, [2, 3]), ("v", F, [6]), ("y", F, ["N"])]
    graph = sized(simplify(load(model(nodes, inputs, [("z", F, None), ("u", F, None)])).graph))
    assert running(graph) == ["Expand"] and problems(graph) == []


def masks(opset: int, asked: str) -> onnx.ModelProto:
    """Two layers that each make a mask as long and as wide as their own result has rows."""
    nodes, last = [], "x"
    for i in "ab":
        nodes.append(node("Exp", [last], [f"{i}.y"]))
        if asked == "part":
            nodes.append(node("Shape", [f"{i}.y"], [f"{i}.n"], start=1, end=2))
        elif asked == "slice":
            nodes += [node("Shape", [f"{i}.y"], [f"{i}.s"]), node("Slice", [f"{i}.s", "one", "two"], [f"{i}.n"])]
        else:
            nodes += [node("Shape", [f"{i}.y"], [f"{i}.s"]), node("Gather", [f"{i}.s", "at"], [f"{i}.g"])]
            nodes.append(node("Reshape", [f"{i}.g", "one"], [f"{i}.n"]))
        nodes += [
            node("Concat", [f"{i}.n", f"{i}.n"], [f"{i}.nn"], axis=0),
            node("Expand", ["fill", f"{i}.nn"], [f"{i}.e"]),
            node("Trilu", [f"{i}.e"], [f"{i}.m"], upper=0),
            node("MatMul", [f"{i}.m", f"{i}.y"], [f"{i}.z"]),
        ]
        last = f"{i}.z"
    weights = [
        weight("one", np.array([1])), weight("two", np.array([2])), weight("at", np.array(1)),
        weight("fill", np.array(0.5, np.float32)),
    ]  # fmt: skip
    return model(nodes, [("x", F, ["B", "T", 3])], [(last, F, None)], weights, opset=opset)


@pytest.mark.parametrize(
    ("opset", "asked"), [(17, "part"), (17, "slice"), (17, "number"), (14, "slice"), (14, "number")]
)
def test_a_size_that_an_input_has_is_asked_of_it(opset: int, asked: str) -> None:
    loaded = load(masks(opset, asked))
    before = simplify(loaded.graph)
    graph = asked_of_inputs(before)
    assert running(before).count("Trilu") == 2 and running(graph).count("Trilu") == 1
    assert problems(graph) == [] and asked_of_inputs(graph).hash == graph.hash
    shapes = [n for n in graph.nodes.values() if n.op == "Shape"]
    assert [n.inputs[0] for n in shapes] == [graph.inputs[0]]
    for rows in (1, 4):
        feeds = {"x": np.random.default_rng(0).uniform(-1, 0, (2, rows, 3)).astype(np.float32)}
        same(run(to_proto(emit(loaded, graph)), feeds), run(loaded.proto, feeds), 0, 0)


def test_a_size_that_is_shown_is_asked_where_it_was() -> None:
    nodes = [node("Exp", ["x"], ["e"]), node("Shape", ["e"], ["s"], start=0, end=1), node("Expand", ["y", "s"], ["z"])]
    outputs: list[Typed] = [("z", F, None), ("s", INT, None)]
    graph = simplify(load(model(nodes, [("x", F, ["M", 3]), ("y", F, [1])], outputs)).graph)
    assert asked_of_inputs(graph).hash == graph.hash


def test_a_size_that_an_input_of_the_model_was_asked_stays_with_it() -> None:
    nodes = [node("Shape", ["w"], ["s"], start=1, end=2), node("Expand", ["y", "s"], ["z"])]
    graph = simplify(
        load(model(nodes, [("x", F, ["M", 3]), ("w", F, [2, "M"]), ("y", F, [1])], [("z", F, None)])).graph
    )
    assert asked_of_inputs(graph).hash == graph.hash


def test_a_size_stays_where_what_comes_of_it_would_contradict_itself() -> None:
    """Two results of one name each are one as soon as their sizes are: who declares two names for them says that they may differ."""
    nodes = [node("Exp", ["x"], ["e"]), node("Tanh", ["x"], ["t"])]
    for i in "et":
        nodes += [node("Shape", [i], [f"{i}.n"], start=0, end=1), node("Expand", ["y", f"{i}.n"], [f"{i}.w"])]
        nodes.append(node("NonZero", [f"{i}.w"], [f"{i}.z"]))
    outputs: list[Typed] = [("e.z", INT, [1, "P"]), ("t.z", INT, [1, "Q"])]
    graph = asked_of_inputs(simplify(load(model(nodes, [("x", F, ["M", 3]), ("y", F, [1])], outputs)).graph))
    assert problems(graph) == [] and running(graph).count("NonZero") == 2


@pytest.mark.parametrize(("shown", "left"), [(("m", "n"), 1), (("m", "i", "n"), 1), (("m", "i", "n", "j"), 2)])
def test_equal_nodes_stay_two_where_copies_of_their_outputs_were_more(shown: tuple[str, ...], left: int) -> None:
    nodes = [node("TopK", ["x", "k"], ["m", "i"]), node("TopK", ["x", "k"], ["n", "j"])]
    outputs: list[Typed] = [(name, F if name in "mn" else INT, None) for name in shown]
    loaded = load(model(nodes, [("x", F, ["N", 3])], outputs, [weight("k", np.array([2]))]))
    graph = simplify(loaded.graph)
    assert running(graph) == ["TopK"] * left and problems(graph) == []
    made = to_proto(emit(loaded, graph))
    assert len(made.graph.node) <= 2
    feeds = {"x": np.random.default_rng(0).standard_normal((4, 3)).astype(np.float32)}
    same(run(made, feeds), run(loaded.proto, feeds), 0, 0)
