"""Pairs of graphs, written by hand."""

from __future__ import annotations

from graphopt.synth.operators import Form, Param, Shape
from graphopt.synth.pairs import Node, Pair, Ref, Side


def node(op: str, *operands: Ref, form: Form = ()) -> Node:
    return Node(op, form, operands)


def pair(before: list[Node], after: list[Node], **shapes: Shape) -> Pair:
    """A pair of graphs whose last nodes are their results; no node is the input itself."""
    return Pair(shapes, _side(before), _side(after) if after else Side((), (next(iter(shapes)),)))


def _side(nodes: list[Node]) -> Side:
    return Side(tuple(nodes), ((len(nodes) - 1, 0),))


def axis(value: int) -> Form:
    return (Param("axis", "axis", value),)


def axes(*values: int) -> Form:
    return (Param("axes", "axes", values, True),)


def over(*values: int, keep: int = 1) -> Form:
    return (Param("keepdims", "flag", keep), *axes(*values))


def perm(*values: int) -> Form:
    return (Param("perm", "perm", values),)


def conv(pad: int) -> Form:
    return (Param("group", "groups", 1), Param("pads", "window", (pad,) * 4))


def pool(kernel: int, pad: int, stride: int) -> Form:
    return (
        Param("kernel_shape", "window", (kernel,) * 2),
        Param("pads", "window", (pad,) * 4),
        Param("strides", "window", (stride,) * 2),
    )
