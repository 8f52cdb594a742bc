"""Whether a rewrite can ever pay: at some shapes, with some of the inputs constant.

Operators are priced one by one by the roofline of :mod:`graphopt.cost.analytic`: which of them the runtime will fuse depends
on what stands around them, of which a rule knows nothing.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from graphopt.cost.analytic import Roofline, node_ms
from graphopt.cost.shapes import Shapes
from graphopt.ir.edit import RefusedError
from graphopt.ir.graph import Graph
from graphopt.synth.graphs import graph_of
from graphopt.synth.operators import Param, Shape
from graphopt.synth.pairs import Pair, Side
from graphopt.synth.worlds import FLOW

_LARGER = (16, 128)
_ROOFLINE = Roofline()
_LEAST = 0.1  # relative; the prices of single operators are no better than that


def saves(pair: Pair) -> bool:
    """Whether what replaces the graph is predicted to be cheaper at some shapes and for some choice of constants."""
    for scaled in _scaled(pair):
        try:
            before = _priced(graph_of(scaled.before, scaled.shapes))
            after = _priced(graph_of(scaled.after, scaled.shapes))
        except RefusedError:
            continue  # these shapes do not fit
        for fixed in _fixed(pair.before.inputs):
            left, right = _running(before, fixed), _running(after, fixed)
            overhead = _ROOFLINE.overhead_ms
            # Among the few elements of the pair itself, only the number of operators counts.
            alone = scaled is not pair and sum(right) < (1 - _LEAST) * sum(left)
            if alone or sum(ms + overhead for ms in right) < (1 - _LEAST) * sum(ms + overhead for ms in left):
                return True
    return False


_Priced = list[tuple[frozenset[str], float]]
"""For each node the inputs that it depends on, and its time without the runtime's overhead."""


def _priced(graph: Graph) -> _Priced:
    shapes = Shapes()
    known: dict[int | None, frozenset[str]] = {key: frozenset([graph.values[key].name]) for key in graph.inputs}
    made: _Priced = []
    for node in graph.in_order():
        inputs = frozenset[str]().union(*(known.get(key, frozenset()) for key in node.inputs))
        known.update(dict.fromkeys(node.outputs, inputs))
        made.append((inputs, node_ms(graph, node, _ROOFLINE, shapes) - _ROOFLINE.overhead_ms))
    return made


def _running(nodes: _Priced, fixed: frozenset[str]) -> list[float]:
    """Times of the nodes that run although some inputs are constants."""
    return [ms for inputs, ms in nodes if not inputs <= fixed]


def _fixed(inputs: tuple[str, ...]) -> Iterator[frozenset[str]]:
    """Choices of inputs that are constants; never what flows through the model."""
    able = [name for name in inputs if name != FLOW]
    for many in range(len(able) + 1):
        yield from map(frozenset, itertools.combinations(able, many))


def _scaled(pair: Pair) -> Iterator[Pair]:
    """The pair, and with some of its dimensions larger, as far as its constants say which."""
    yield pair
    for times in _LARGER:
        yield from _times(pair, times)


def _times(pair: Pair, times: int) -> Iterator[Pair]:
    ops = pair.ops
    if "Reshape" in ops:
        return
    sizes = sorted({d for shape in pair.shapes.values() for d in shape if d > 1})
    for many in range(len(sizes), 0, -1):
        if "Slice" in ops and many < len(sizes):
            return  # positions tell no dimension from another
        for chosen in itertools.combinations(sizes, many):
            to = {d: d * times for d in chosen}
            shapes = {name: _shape(shape, to) for name, shape in pair.shapes.items()}
            yield Pair(shapes, _side(pair.before, to, times), _side(pair.after, to, times))


def _shape(shape: Shape, to: Mapping[int, int]) -> Shape:
    # A kernel, which is square here, stays as it is: the padding is made for it.
    kernel = len(shape) == 4 and shape[2] == shape[3]
    return tuple(d if kernel and i > 1 else to.get(d, d) for i, d in enumerate(shape))


def _side(side: Side, to: Mapping[int, int], times: int) -> Side:
    def param(p: Param) -> Param:
        value: Any = p.value
        if p.kind == "sizes":
            value = tuple(to.get(n, n) for n in value)
        elif p.kind == "position":
            value = tuple(n * times for n in value)
        return replace(p, value=value)

    return Side(tuple(replace(n, form=tuple(map(param, n.form))) for n in side.nodes), side.roots)
