"""A size for every dimension."""

from __future__ import annotations

import numpy as np
import pytest

from graphopt.cost.shapes import ASSUMED, Shapes
from tests.cost.graphs import graph, node


def only(g, shapes=None):
    shapes = shapes or Shapes()
    shapes.resolve(g)
    return shapes.shape(g, g.outputs[0][1])


def test_symbols():
    g = graph([node("Relu", ["x"], ["y"])], {"x": ("batch", 3, "length", "past + 2")})
    assert only(g) == (1, 3, ASSUMED, ASSUMED + 2)
    assert only(g, Shapes({"batch": 4, "length": 7, "past": 5})) == (4, 3, 7, 7)


def test_a_product_of_symbols_is_the_product_of_their_sizes():
    g = graph([node("Relu", ["x"], ["y"])], {"x": ("6·batch·length", 3)})
    assert only(g) == (6 * ASSUMED, 3)
    assert only(g, Shapes({"batch": 4, "length": 5})) == (120, 3)


def test_a_shape_that_follows_from_the_inputs_is_inferred():
    nodes = [
        node("Expand", ["x", "to"], ["e"]),
        node("Transpose", ["e"], ["t"], perm=[1, 0]),
        node("MatMul", ["t", "w"], ["y"]),
    ]
    g = graph(nodes, {"x": ("rows", 1)}, {"to": np.array([1, 8]), "w": (ASSUMED, 5)})
    assert only(g) == (8, 5)


def test_what_cannot_be_known_is_assumed():
    g = graph([node("NonZero", ["x"], ["i"]), node("Cast", ["i"], ["y"], to=1)], {"x": (4, 4)})
    assert only(g) == (2, ASSUMED)
    shapes = Shapes()
    assert shapes.nbytes(g, g.outputs[0][1]) == 2 * ASSUMED * 4


@pytest.mark.parametrize("depth", [500])
def test_a_deep_graph(depth):
    nodes = [node("Relu", [f"v{i}"], [f"v{i + 1}"]) for i in range(depth)]
    assert only(graph(nodes, {"v0": ("n", "m")})) == (1, ASSUMED)


def test_what_is_alive_at_once():
    """Two of three maps at a time; a view is none, an unread result goes at once, the graph's own input is not computed."""
    nodes = [node("Relu", ["x"], ["a"]), node("Reshape", ["a", "to"], ["v"]), node("Neg", ["v"], ["b"])]
    nodes += [node("Abs", ["b"], ["c"]), node("Neg", ["c"], ["y"])]
    g = graph(nodes, {"x": (4, 8)}, {"to": np.array([8, 4])})
    shapes = Shapes()
    shapes.resolve(g)
    assert shapes.live_bytes(g) == 2 * 4 * 8 * 4
    kept = graph([node("Relu", ["x"], ["a"]), node("Neg", ["a"], ["b"]), node("Abs", ["b"], ["c"]), node("Add", ["a", "c"], ["y"])], {"x": (4, 8)})  # fmt: skip
    assert Shapes().live_bytes(kept) == 3 * 4 * 8 * 4  # the first is read by the last
