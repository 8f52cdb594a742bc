"""Whether a rewrite can ever pay: at some shapes, with some of the inputs constant.

Operators are priced one by one by the roofline of :mod:`graphopt.cost.analytic`: which of them the runtime will fuse depends
on what stands around them, of which a rule knows nothing.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from graphopt.cost.analytic import node_ms
from graphopt.cost.roofline import Roofline
from graphopt.cost.shapes import Shapes
from graphopt.ir.edit import RefusedError
from graphopt.ir.graph import Graph
from graphopt.synth.graphs import graph_of
from graphopt.synth.operators import Param, Shape
from graphopt.synth.pairs import Pair, Side
from graphopt.synth.worlds import FLOW

_LARGER = 16
_LEAST = 0.1  # relative; the prices of single operators are no better than that


def saves(pair: Pair) -> bool:
    """Whether what replaces the graph is predicted to be cheaper at some shapes and for some choice of constants."""
    for scaled in _scaled(pair):
        # Among the few elements of the pair itself, only the number of operators counts.
        rooflines = (Roofline(), replace(Roofline(), overhead_ms=0.0))[: 1 if scaled is pair else 2]
        for fixed in _fixed(pair.before.inputs):
            try:
                before = graph_of(scaled.before, scaled.shapes, fixed)
                after = graph_of(scaled.after, scaled.shapes, fixed)
            except RefusedError:
                break  # these shapes do not fit
            if all(before.is_const(key) for _, key in before.outputs):
                continue
            if any(_price(after, r) < (1 - _LEAST) * _price(before, r) for r in rooflines):
                return True
    return False


def _price(graph: Graph, roofline: Roofline) -> float:
    shapes = Shapes()
    return sum(node_ms(graph, node, roofline, shapes) for node in graph.nodes.values() if not graph.is_lazy(node))


def _fixed(inputs: tuple[str, ...]) -> Iterator[frozenset[str]]:
    """Choices of inputs that are constants: none, one, all; never what flows through the model."""
    able = [name for name in inputs if name != FLOW]
    yield from dict.fromkeys([frozenset[str](), *(frozenset([name]) for name in able), frozenset(able)])


def _scaled(pair: Pair) -> Iterator[Pair]:
    """The pair, and with some of its dimensions larger, as far as its constants say which."""
    yield pair
    ops = {n.op for side in (pair.before, pair.after) for n in side.nodes}
    if "Reshape" in ops:
        return
    sizes = sorted({d for shape in pair.shapes.values() for d in shape if d > 1})
    for many in range(len(sizes), 0, -1):
        if "Slice" in ops and many < len(sizes):
            return  # positions tell no dimension from another
        for chosen in itertools.combinations(sizes, many):
            to = {d: d * _LARGER for d in chosen}
            shapes = {name: _shape(shape, to) for name, shape in pair.shapes.items()}
            yield Pair(shapes, _side(pair.before, to), _side(pair.after, to))


def _shape(shape: Shape, to: Mapping[int, int]) -> Shape:
    # A kernel, which is square here, stays as it is: the padding is made for it.
    kernel = len(shape) == 4 and shape[2] == shape[3]
    return tuple(d if kernel and i > 1 else to.get(d, d) for i, d in enumerate(shape))


def _side(side: Side, to: Mapping[int, int]) -> Side:
    def param(p: Param) -> Param:
        value: Any = p.value
        if p.kind == "sizes":
            value = tuple(to.get(n, n) for n in value)
        elif p.kind == "position":
            value = tuple(n * _LARGER for n in value)
        return replace(p, value=value)

    return Side(tuple(replace(n, form=tuple(map(param, n.form))) for n in side.nodes), side.roots)
