"""What is known of shapes that a model computes, and what must not be believed of them."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto

from graphopt.ir.constants import known_content
from graphopt.ir.content import over
from graphopt.ir.content import shape as decided
from graphopt.ir.graph import Graph
from graphopt.ir.simplify import simplify
from graphopt.ir.types import ValueType, factors, known, product, quotient
from graphopt.onnxio.load import load
from tests.onnxio.models import F, model, node, weight

I = TensorProto.INT64  # noqa: E741
B = TensorProto.BOOL
C = {
    "first": [0], "both": [0, 1], "last": [2], "zero": 0, "unit": 1, "none": [], "one": [1], "eight": [8], "free": [-1], "two": [2],
    "end": [2**63 - 1], "heads": [2, 4], "axis0": [0],
}  # fmt: skip


def graph(nodes, shape=("N", "S", 8), opset=17, out="y") -> Graph:
    read = {name for n in nodes for name in n.input}
    weights = [weight(name, np.array(items, np.int64)) for name, items in C.items() if name in read]
    inputs = [("x", F, list(shape)), ("k", I, ["K"]), ("q", F, ["Q", 3])]
    proto = model(nodes, [i for i in inputs if i[0] in read], [(out, 0, None)], weights, opset=opset)
    return simplify(load(proto).graph)


def value(g: Graph, name: str) -> int:
    return next(key for key, v in g.values.items() if v.name == name)


def content(nodes, name="y", **more):
    g = graph(nodes, **more)
    return known_content(g, value(g, name))


def shape(nodes, **more):
    """Dimensions, ``None`` for those that ONNX's inference made up a name for."""
    g = graph(nodes, **more)
    dims = g.type(value(g, "y")).shape
    return dims and tuple(None if isinstance(d, str) and d.startswith("unk__") else d for d in dims)


SHAPE = node("Shape", ["x"], ["s"])


@pytest.mark.parametrize(
    ("dims", "written"),
    [
        ((2, 3), 6),
        (("N", 2, "B", 3), "6·B·N"),
        (("6·B·N", "N"), "6·B·N·N"),
        (("N",), "N"),
        (("N", 0), 0),
        (("N", None), None),
        ((-1, "N"), None),
        (("7", 2), None),
        ((), 1),
    ],
)
def test_product(dims, written):
    assert product(dims) == written


@pytest.mark.parametrize(
    ("a", "b", "result"),
    [
        (6, 3, 2), (7, 3, None), (6, 0, None), ("6·B·N", "N", "6·B"), ("6·B·N", "3·B·N", 2), ("N", "N", 1), ("N", "M", None),
        ("N·N", "N", "N"), ("N", "N·N", None), ("6·N", 4, None), (None, 2, None), (6, "N", None),
    ],
)  # fmt: skip
def test_quotient(a, b, result):
    assert quotient(a, b) == result


def test_a_symbol_may_look_like_a_number():
    assert factors("7") is None and factors("7·N") == (7, ("N",)) and factors("N7") == (1, ("N7",))


@pytest.mark.parametrize(
    ("nodes", "expected"),
    [
        ([node("Shape", ["x"], ["y"])], ("N", "S", 8)),
        ([node("Shape", ["x"], ["y"], start=1)], ("S", 8)),
        ([node("Size", ["x"], ["y"])], ("8·N·S",)),
        ([SHAPE, node("Gather", ["s", "both"], ["y"])], ("N", "S")),
        ([SHAPE, node("Gather", ["s", "zero"], ["y"])], ("N",)),
        ([SHAPE, node("Slice", ["s", "one", "end"], ["y"])], ("S", 8)),
        ([SHAPE, node("Slice", ["s", "free", "first", "axis0", "free"], ["y"])], (8, "S")),
        ([SHAPE, node("Gather", ["s", "both"], ["b"]), node("ReduceProd", ["b"], ["y"], keepdims=0)], ("N·S",)),
        ([SHAPE, node("Gather", ["s", "both"], ["b"]), node("Concat", ["b", "free", "eight"], ["y"], axis=0)],
         ("N", "S", -1, 8)),
        ([SHAPE, node("Mul", ["s", "two"], ["y"])], ("2·N", "2·S", 16)),
        ([SHAPE, node("Div", ["s", "eight"], ["y"])], (None, None, 1)),
        ([SHAPE, node("Add", ["s", "one"], ["y"])], (None, None, 9)),
        ([SHAPE, node("Sub", ["s", "s"], ["y"])], (0, 0, 0)),
        # A division of numbers with a rest rounds towards zero; a size is never negative, so never a free one.
        ([SHAPE, node("Add", ["s", "one"], ["a"]), node("Div", ["a", "two"], ["y"])], (None, None, 4)),
        ([SHAPE, node("Mod", ["s", "eight"], ["y"])], (None, None, 0)),
        ([SHAPE, node("Equal", ["s", "free"], ["e"]), node("Where", ["e", "one", "s"], ["y"])], ("N", "S", 8)),
        ([SHAPE, node("Equal", ["s", "eight"], ["e"]), node("Where", ["e", "two", "s"], ["y"])], (None, None, 2)),
        ([SHAPE, node("Cast", ["s"], ["c"], to=TensorProto.INT32), node("Unsqueeze", ["c", "axis0"], ["y"])], ("N", "S", 8)),
        # Comparisons of numbers, and what follows from one side alone.
        ([SHAPE, node("Greater", ["s", "two"], ["g"]), node("Not", ["g"], ["y"])], (None, None, 0)),
        ([SHAPE, node("LessOrEqual", ["s", "eight"], ["a"]), node("GreaterOrEqual", ["s", "free"], ["b"]), node("And", ["a", "b"], ["y"])],
         (None, None, 1)),
        ([SHAPE, node("Equal", ["s", "free"], ["a"]), node("Less", ["s", "two"], ["b"]), node("And", ["a", "b"], ["y"])], (0, 0, 0)),
        ([SHAPE, node("Equal", ["s", "free"], ["a"]), node("Not", ["a"], ["n"]), node("Less", ["s", "two"], ["b"]),
          node("Or", ["n", "b"], ["y"])], (1, 1, 1)),
        # A size may be 0, which is no truth; what has no place in the type is another number.
        ([SHAPE, node("Cast", ["s"], ["c"], to=B), node("Where", ["c", "one", "two"], ["y"])], (None, None, 1)),
        ([SHAPE, node("Concat", ["s", "end"], ["c"], axis=0), node("Cast", ["c"], ["y"], to=TensorProto.INT32)], ("N", "S", 8, None)),
        ([SHAPE, node("Concat", ["s", "end"], ["c"], axis=0), node("Add", ["c", "one"], ["y"])], (None, None, 9, None)),
        # A vector whose length alone is known, among others; one of unknown length; a float on the way.
        ([SHAPE, node("Gather", ["k", "one"], ["g"]), node("Concat", ["s", "g"], ["y"], axis=0)], ("N", "S", 8, None)),
        ([SHAPE, node("Concat", ["s", "k"], ["y"], axis=0)], None),
        ([SHAPE, node("Cast", ["s"], ["c"], to=F), node("Cast", ["c"], ["y"], to=I)], None),
        ([SHAPE, node("Gather", ["s", "k"], ["y"])], None),
        ([SHAPE, node("Slice", ["s", "k", "end"], ["y"])], None),
    ],
)  # fmt: skip
def test_content(nodes, expected):
    assert content(nodes) == expected


@pytest.mark.parametrize(
    ("start", "step", "expected"), [("zero", "unit", ("N",)), ("unit", "unit", (None,)), ("zero", "zero", (None,))]
)
def test_a_range_to_a_size_has_that_size(start, step, expected):
    nodes = [SHAPE, node("Gather", ["s", "zero"], ["n"]), node("Range", [start, "n", step], ["y"])]
    assert shape(nodes) == expected


@pytest.mark.parametrize(
    ("limit", "delta", "expected"),
    [
        (7.5, 0.5, (14,)), (0.4, 0.5, (0,)),
        (1e8, 1e7, (None,)),  # the half is lost as float
    ],
)  # fmt: skip
def test_a_range_of_floats_has_its_size_where_differences_are_not_rounded(limit, delta, expected):
    """Torch lays the centres of patches out so, and all behind was of unknown shape."""
    bounds = {"from": 0.5, "to": limit, "by": delta}
    nodes = [node("Neg", [name], [f"{name}s"]) for name in bounds]  # what ONNX does not follow
    weights = [weight(name, np.array(-number, np.float32)) for name, number in bounds.items()]
    nodes += [node("Range", ["froms", "tos", "bys"], ["r"]), node("Add", ["r", "x"], ["y"])]
    g = simplify(load(model(nodes, [("x", F, [])], [("y", F, None)], weights)).graph)
    found = g.type(value(g, "y")).shape
    assert tuple(dim if isinstance(dim, int) else None for dim in found) == expected


def reshape(*parts):
    """A Reshape of x to the Concat of these."""
    picks = [SHAPE, node("Gather", ["s", "first"], ["N"]), node("Gather", ["s", "one"], ["S"]), node("Mul", ["N", "S"], ["NS"])]  # fmt: skip
    made = {name for n in picks for name in n.output}
    needed = set(parts) & made
    for n in reversed(picks):
        if needed & set(n.output):
            needed |= set(n.input) & made
    return [n for n in picks if needed & set(n.output)] + [
        node("Concat", list(parts), ["to"], axis=0),
        node("Reshape", ["x", "to"], ["y"]),
    ]


@pytest.mark.parametrize(
    ("parts", "expected"),
    [
        (("NS", "eight"), ("N·S", 8)),
        (("N", "S", "heads"), ("N", "S", 2, 4)),
        (("N", "free", "heads"), ("N", "S", 2, 4)),
        (("free", "eight"), ("N·S", 8)),
        (("axis0", "axis0", "heads"), ("N", "S", 2, 4)),
        (("S", "N", "eight"), ("S", "N", 8)),
    ],
)
def test_shape_of_reshape(parts, expected):
    assert shape(reshape(*parts)) == expected


@pytest.mark.parametrize(
    ("x", "target", "expected"),
    [
        # Unrelated to x: were it 0, it would copy a dimension of x.
        (("N", "S", 8), ("Q", -1), (None, None)),
        (("N", "S", 8), ("Q", 8), ("N·S", 8)),
        ((None, 8), ("Q", 8), (None, 8)),
        # Were N 0, the last one could be anything; a -1 would be refused then.
        (("N", "S", 8), ("N", None, 8), ("N", None, 8)),
        (("N", "S", 8), ("N", -1, 8), ("N", "S", 8)),
        (("N", "S", 8), (None, None, 8), (None, None, 8)),
        # Were S 0, x's first dimension would stand in its place, and the -1 for 0.
        ((6, "S"), ("S", -1), (None, None)),
        ((6, "S"), ("S", 6), ("S", 6)),
        (("N", 1, "S"), (-1, "S"), (None, None)),
        (("2·N", 4, "S"), ("N", -1, "S", 4), ("N", 2, "S", 4)),
        (("2·N", "S", 4), ("N", -1, "S", 4), ("N", None, None, 4)),
        (("N", 8), (0, 0, 3), ("N", 8, 3)),
        (("N", 8), (2, 2, 0), (2, 2, "2·N")),
        (None, (2, -1), (2, None)),
    ],
)
def test_sizes_of_a_reshape_that_are_believed(x, target, expected):
    types = [ValueType("f32", x), ValueType("i64", (len(target),))]
    assert decided("Reshape", {}, types, [None, target]) == expected


def test_a_dimension_of_an_input_is_followed_without_a_name():
    assert shape(reshape("NS", "eight"), shape=("N", "S", None)) == ("N·S", 8)
    assert shape([SHAPE, node("Reshape", ["x", "s"], ["y"])], shape=(None, "S", "unk__7")) == ("x[0]", "S", "x[2]")


def test_shape_of_reshape_of_something_unknown():
    cut = [node("Slice", ["x", "one", "end", "two"], ["c"]), node("Shape", ["c"], ["s"])]
    assert shape([*cut, node("Reshape", ["x", "s"], ["y"])], shape=("N", "S", None)) == ("N", "S", None)


@pytest.mark.parametrize(
    ("nodes", "expected"),
    [
        ([node("Slice", ["x", "first", "end", "one"], ["y"])], ("N", "S", 8)),
        ([node("Slice", ["x", "one", "end", "one"], ["y"])], ("N", None, 8)),
        ([node("Slice", ["x", "first", "two", "one"], ["y"])], ("N", None, 8)),
        ([node("Shape", ["q"], ["s"]), node("ConstantOfShape", ["s"], ["y"])], ("Q", 3)),
        # At most one is neither 1 nor more.
        (
            [SHAPE, node("Slice", ["x", "first", "one", "axis0"], ["a"]), node("Expand", ["a", "s"], ["y"])],
            (None, "S", 8),
        ),
        ([SHAPE, node("Gather", ["x", "first"], ["a"]), node("Expand", ["a", "s"], ["y"])], ("N", "S", 8)),
    ],
)
def test_shapes_that_contents_decide(nodes, expected):
    assert shape(nodes) == expected


def test_slices_before_operator_set_10_have_attributes():
    nodes = [SHAPE, node("Slice", ["s"], ["y"], starts=[0], ends=[2])]
    assert content(nodes, opset=9) == ("N", "S")


def test_a_symbol_that_inference_made_up_gives_way():
    nodes = [node("Slice", ["x", "first", "end", "axis0"], ["a"]), node("Relu", ["a"], ["y"])]
    assert shape(nodes) == ("N", "S", 8)


def test_a_cut_to_another_size_is_that_size_where_the_two_are_added():
    """A table of 8 positions of which as many are taken as there are tokens: what runs has no more than 8 of them."""
    sized = [node("Shape", ["q"], ["t"]), node("Gather", ["t", "axis0"], ["n"])]
    cut = node("Slice", ["w", "first", "n", "axis0"], ["c"])
    table = weight("w", np.zeros((8, 3), np.float32))
    inputs = [("q", F, ["Q", 3]), ("r", F, ["R", 3])]
    ends = [weight(name, np.array(C[name], np.int64)) for name in ("first", "axis0")]

    def of(*nodes):
        proto = model([*sized, cut, *nodes], inputs, [("y", 0, None)], [table, *ends], opset=17)
        g = simplify(load(proto).graph)
        return g.type(value(g, "y")).shape

    assert of(node("Add", ["q", "c"], ["y"])) == ("Q", 3)
    assert of(node("Expand", ["c", "t"], ["y"])) == ("Q", 3)
    assert of(node("Relu", ["c"], ["d"]), node("Sub", ["d", "q"], ["y"])) == ("Q", 3)
    # Of another size nothing is known, nor of what is the lesser of the two by itself.
    assert not known(of(node("Add", ["r", "c"], ["y"]))[0])
    assert not known(of(node("Neg", ["c"], ["y"]))[0])
    assert of(node("Add", ["c", "c"], ["y"])) == of(node("Neg", ["c"], ["y"]))


@pytest.mark.parametrize(
    ("shapes", "expected"),
    [
        ([("N", 1), ("S",)], ("N", "S")),
        ([("N", 4), ("N", "S")], ("N", 4)),
        ([("N",), ("S",)], (None,)),
        ([("N",), (None,)], (None,)),
        ([(None,), (5,)], (5,)),
        ([("unk__min(8,N)",), ("N",)], ("N",)),
        ([("unk__min(8,N)",), ("S",)], (None,)),
        ([("unk__min(8,N)",), ("unk__min(9,N)",)], (None,)),
        ([("unk__min(8,M,N)",), ("N",)], (None,)),
        ([(2,), (3,)], (None,)),
        ([("N",), (-1,)], (None,)),
    ],
)
def test_what_is_laid_over_each_other(shapes, expected):
    assert over(shapes) == expected


def test_what_says_where_it_begins_is_not_laid_over_from_the_end():
    """Before operator set 7 the second operand may lie anywhere along the first."""
    types = [ValueType("f32", ("N", "S", 4)), ValueType("f32", ("S",))]
    assert decided("Add", {"axis": 1, "broadcast": 1}, types, [None, None]) is None
    assert decided("Add", {}, types, [None, None]) == ("N", "S", 4)


def test_what_is_flat():
    assert shape([node("Flatten", ["x"], ["y"])]) == ("N", "8·S")
    assert shape([node("Flatten", ["x"], ["y"], axis=-1)]) == ("N·S", 8)
    assert shape([node("Flatten", ["x"], ["y"], axis=0)]) == (1, "8·N·S")
