"""Sides of pairs as graphs: whether other rules lead from one to the other, and whether a rewrite can ever pay."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np

from graphopt.cost.analytic import Roofline, node_ms
from graphopt.cost.shapes import Shapes
from graphopt.ir import ops
from graphopt.ir.constants import small_array
from graphopt.ir.delta import RefusedError
from graphopt.ir.edit import Edit
from graphopt.ir.graph import Graph, Node, Value, build
from graphopt.ir.types import ValueType, digest
from graphopt.rewrite.apply import apply
from graphopt.rewrite.library import Library
from graphopt.rewrite.schema import Rule
from graphopt.rewrite.sites import Sites
from graphopt.synth.operators import OPSET, TABLE, Param, Shape, attributes, constants
from graphopt.synth.pairs import Pair, Ref, Side
from graphopt.synth.worlds import FLOW


def graph_of(side: Side, shapes: Mapping[str, Shape]) -> Graph:
    """A side as a graph.

    Raises:
        RefusedError: The shapes do not fit.
    """
    values: dict[int, Value] = {}
    keys: dict[str, int] = {}
    inputs: list[int] = []
    for name, shape in shapes.items():
        value = Value(digest("input", name, shape), name, ValueType("f32", shape))
        inputs.append(value.key)
        values[value.key] = value
        keys[name] = value.key
    edit = Edit(build([], values, tuple(inputs), (), {"": OPSET}))
    made: list[list[int]] = []

    def key(ref: Ref) -> int:
        if isinstance(ref, str):
            return keys[ref]
        return made[ref[0]][ref[1]] if isinstance(ref, tuple) else edit.constant(np.array(ref, np.float32))

    for node in side.nodes:
        operands = [key(r) for r in node.operands] + [edit.constant(a) for a in constants(node.form)]
        made.append(edit.add(node.op, operands, attributes(node.form), outputs=[None] * TABLE[node.op].outputs))
    edit.publish([(f"y{i}", key(r)) for i, r in enumerate(side.roots)])
    return edit.commit()[0]


def canonical(graph: Graph) -> int:
    """A hash of what the outputs say: the same for axes counted from either end, defaults written or not, operands swapped."""
    known: dict[int, Any] = {}

    def expression(key: int | None) -> Any:
        if key is None:
            return None
        if key not in known:
            value = graph.values[key]
            node = graph.producer(key)
            array = small_array(graph, key)
            if array is not None:
                known[key] = ("number", array.ravel().tolist())
            elif node is None:
                known[key] = value.name
            else:
                known[key] = digest(*_node(graph, node, [expression(k) for k in node.inputs]), node.outputs.index(key))
        return known[key]

    return digest([expression(key) for _, key in graph.outputs])


def _node(graph: Graph, node: Node, operands: list[Any]) -> tuple[Any, ...]:
    rank = len(graph.type(node.inputs[0]).shape or ()) if node.inputs and node.inputs[0] is not None else 0
    rank += 1 if node.op == "Unsqueeze" else 0
    said = {
        name: value % rank if name == "axis" and rank else value
        for name, value in node.attributes.items()
        if value != ops.default(node.op, name, opset=graph.opset, spatial_rank=rank - 2)
    }
    if "axis" not in said and ops.default(node.op, "axis", opset=graph.opset) is not None and rank:
        said["axis"] = ops.default(node.op, "axis", opset=graph.opset) % rank
    at = _AXES.get(node.op, len(operands))
    if at < len(operands) and isinstance(operands[at], tuple):
        operands[at] = ("number", sorted(a % rank if rank else a for a in operands[at][1]))
    if node.op in ops.COMMUTATIVE:
        operands = sorted(operands, key=repr)
    return node.op, sorted(said.items()), operands


_AXES = {"ReduceSum": 1, "ReduceMean": 1, "ReduceMax": 1, "Squeeze": 1, "Unsqueeze": 1, "Slice": 3}
"""Which operand holds axes."""


_WIDTH = 40  # graphs that the first application may lead to


class Rewriter:
    """Asks whether rules lead from one side of a pair to the other: by one application (of a more general rule) or by several."""

    def __init__(self, rules: Sequence[Rule]) -> None:
        self.rules = tuple(rules)

    @cached_property
    def library(self) -> Library:
        """The rules, ready to be matched."""
        return Library(self.rules)

    def derives(self, pair: Pair, steps: int = 2) -> tuple[str, ...]:
        """Ids of rules that lead from ``before`` to ``after`` in at most ``steps`` applications; empty when none do."""
        if not self.rules:
            return ()
        return self.path(graph_of(pair.before, pair.shapes), graph_of(pair.after, pair.shapes), steps)

    def path(self, before: Graph, after: Graph, steps: int = 2) -> tuple[str, ...]:
        """The same for graphs."""
        target = canonical(after)
        seen = {canonical(before)}
        level: list[tuple[Graph, tuple[str, ...]]] = [(before, ())]
        for _ in range(steps):
            reached: list[tuple[Graph, tuple[str, ...]]] = []
            for graph, used in level:
                sites = Sites.of(graph, self.library)
                for key in sorted(sites.matches):
                    try:
                        made, _ = apply(graph, sites.matches[key])
                    except RefusedError:
                        continue
                    name = canonical(made)
                    if name == target:
                        return (*used, key[0])
                    if name not in seen:
                        seen.add(name)
                        reached.append((made, (*used, key[0])))
            level = reached[:_WIDTH]
        return ()


_LARGER = (16, 128)
_ROOFLINE = Roofline()
_LEAST = 0.1  # relative; the prices of single operators are no better than that


def saves(pair: Pair) -> bool:
    """Whether what replaces the graph is predicted to be cheaper at some shapes and for some choice of constants.

    Operators are priced one by one by the roofline of :mod:`graphopt.cost.analytic`: which of them the runtime will fuse depends
    on what stands around them, of which a rule knows nothing.
    """
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
