"""Constants that are moved and moved back."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

from graphopt.ir.constants import evaluate
from graphopt.ir.delta import RefusedError
from graphopt.ir.edit import Edit
from graphopt.ir.graph import Graph
from graphopt.onnxio.load import load


def graph_with(**weights):
    """A graph that reads some weights, which the tests move about."""
    nodes = [helper.make_node("Identity", [name], [f"{name}_read"]) for name in weights]
    proto = helper.make_model(
        helper.make_graph(
            nodes, "g", [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1])],
            [helper.make_tensor_value_info(f"{name}_read", TensorProto.FLOAT, None) for name in weights],
            [numpy_helper.from_array(array, name) for name, array in weights.items()],
        ),
        opset_imports=[helper.make_opsetid("", 17)],
        ir_version=8,
    )  # fmt: skip
    return load(proto).graph


def edit_of(**shapes):
    rng = np.random.default_rng(0)
    arrays = {name: rng.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}
    graph = graph_with(**arrays)
    keys = {value.name: key for key, value in graph.values.items()}
    return Edit(graph, "test"), [keys[name] for name in shapes], list(arrays.values())


def content(edit, key):
    return evaluate(Graph(edit._nodes, edit._values, {}, {}, (), (), edit.graph.opsets, 0), key)


def nodes_behind(edit, key):
    node = edit.maker(key)
    return [] if node is None else [node.op, *(op for k in node.inputs for op in nodes_behind(edit, k))]


def test_transposed_twice_is_one_transpose_or_none():
    edit, (w,), (array,) = edit_of(w=(2, 3, 4))
    (once,) = edit.add("Transpose", [w], {"perm": (1, 2, 0)})
    (twice,) = edit.add("Transpose", [once], {"perm": (1, 2, 0)})
    assert nodes_behind(edit, twice) == ["Transpose"]
    assert np.array_equal(content(edit, twice), array.transpose(2, 0, 1))
    assert edit.add("Transpose", [twice], {"perm": (1, 2, 0)}) == [w]
    (back,) = edit.add("Transpose", [w])
    assert edit.add("Transpose", [back]) == [w]


def test_reshaped_back_is_what_it_was():
    edit, (w,), _ = edit_of(w=(2, 3, 4))
    (flat,) = edit.add("Reshape", [w, edit.constant(np.array([6, 4]))])
    (more,) = edit.add("Unsqueeze", [flat, edit.constant(np.array([0]))])
    assert nodes_behind(edit, more) == ["Reshape"] and edit.type(more).shape == (1, 6, 4)
    assert edit.add("Reshape", [more, edit.constant(np.array([2, -1, 4]))]) == [w]


def test_what_was_joined_and_split_again_is_what_it_was():
    edit, (a, b, c), arrays = edit_of(a=(2, 3), b=(2, 1), c=(2, 4))
    (ab,) = edit.add("Concat", [a, b], {"axis": 1})
    (abc,) = edit.add("Concat", [ab, c], {"axis": -1})
    assert nodes_behind(edit, abc) == ["Concat"]
    assert np.array_equal(content(edit, abc), np.concatenate(arrays, 1))

    def split(*sizes):
        return edit.add("Split", [abc, edit.constant(np.array(sizes))], {"axis": 1}, outputs=[None] * len(sizes))

    assert split(3, 1, 4) == [a, b, c] and split(4, 4) == [ab, c]
    assert edit.maker(split(2, 6)[0]).op == "Split"
    assert edit.add("Split", [abc, edit.constant(np.array([1, 1]))], {"axis": 0}, outputs=[None] * 2) != [a, b]


def test_what_was_split_and_joined_again_is_what_it_was():
    edit, (w, v), arrays = edit_of(w=(4, 3), v=(2, 3))
    parts = edit.add("Split", [w, edit.constant(np.array([1, 3]))], {"axis": 0}, outputs=[None] * 2)
    assert edit.add("Concat", parts, {"axis": 0}) == [w]
    (with_v,) = edit.add("Concat", [v, *parts], {"axis": 0})
    assert nodes_behind(edit, with_v) == ["Concat"]
    assert np.array_equal(content(edit, with_v), np.concatenate(arrays[::-1], 0))
    (reversed_,) = edit.add("Concat", parts[::-1], {"axis": 0})
    assert "Split" in nodes_behind(edit, reversed_)


def test_a_concat_without_an_axis_is_refused():
    edit, (v, w), _ = edit_of(v=(2, 3), w=(2, 3))
    with pytest.raises(RefusedError, match="axis"):
        edit.add("Concat", [v, w])


def test_what_is_computed_when_the_model_runs_is_left_alone():
    proto = helper.make_model(
        helper.make_graph(
            [helper.make_node("Transpose", ["x"], ["t"]), helper.make_node("Relu", ["t"], ["y"])],
            "g",
            [helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 3])],
            [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        ),
        opset_imports=[helper.make_opsetid("", 17)],
        ir_version=8,
    )
    graph = load(proto).graph
    edit = Edit(graph, "test")
    t = next(k for k, v in graph.values.items() if v.name == "t")
    (back,) = edit.add("Transpose", [t])
    assert nodes_behind(edit, back) == ["Transpose", "Transpose"]


MOVES = st.lists(
    st.tuples(st.sampled_from(("Transpose", "Reshape", "Split", "Concat")), st.integers(0, 2**16)), max_size=12
)


@settings(deadline=None)  # the first constant brings the runtime with it
@given(MOVES)
def test_any_chain_of_moves_gives_the_same_elements(moves):
    edit, keys, arrays = edit_of(a=(2, 6), b=(2, 6), c=(6, 2))
    pool = dict(zip(keys, arrays, strict=True))
    for op, number in moves:
        chance = np.random.default_rng(number)
        key = list(pool)[int(chance.integers(len(pool)))]
        array = pool[key]
        axis = int(chance.integers(array.ndim))
        if op == "Transpose":
            perm = tuple(int(i) for i in chance.permutation(array.ndim))
            made, true = edit.add("Transpose", [key], {"perm": perm}), [array.transpose(perm)]
        elif op == "Reshape":
            shape = [(array.size,), (array.shape[0], -1), (1, *array.shape), (-1, 2)][
                int(chance.integers(3 + (array.size % 2 == 0)))
            ]
            made, true = edit.add("Reshape", [key, edit.constant(np.array(shape))]), [array.reshape(shape)]
        elif op == "Split" and array.shape[axis] > 1:
            cut = int(chance.integers(1, array.shape[axis]))
            sizes = edit.constant(np.array([cut, array.shape[axis] - cut]))
            made, true = (
                edit.add("Split", [key, sizes], {"axis": axis}, outputs=[None] * 2),
                np.split(array, [cut], axis),
            )
        elif op == "Concat":
            fits = [k for k, a in pool.items() if a.ndim == array.ndim and np.array_equal(
                np.delete(a.shape, axis), np.delete(array.shape, axis))]  # fmt: skip
            others = [fits[int(i)] for i in chance.integers(len(fits), size=2)]
            made, true = (
                edit.add("Concat", [key, *others], {"axis": axis}),
                [np.concatenate([pool[k] for k in (key, *others)], axis)],
            )
        else:
            continue
        if sum(a.size for a in true) > 5000:
            continue
        for k, a in zip(made, true, strict=True):
            assert edit.type(k).shape == a.shape and np.array_equal(content(edit, k), a)
            pool[k] = a


def test_numbers_can_not_be_joined():
    edit, (a, b), _ = edit_of(a=(), b=())
    with pytest.raises(RefusedError):
        edit.add("Concat", [a, b], {"axis": -1})


@pytest.mark.parametrize("attributes", [{}, {"axis": 2}, {"axis": -3}])
def test_an_axis_that_is_not_there_is_refused(attributes):
    edit, (a, b), _ = edit_of(a=(2, 3), b=(2, 3))
    with pytest.raises(RefusedError):
        edit.add("Concat", [a, b], attributes)
    (joined,) = edit.add("Concat", [a, b], {"axis": 1})
    for op, wrong in [("Split", {"axis": 7}), ("Transpose", {"perm": (0, 2)})]:
        with pytest.raises(RefusedError):
            edit.add(op, [joined], wrong, outputs=[None, None] if op == "Split" else [None])
