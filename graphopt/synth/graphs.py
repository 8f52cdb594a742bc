"""Sides of pairs as graphs, so that the matcher, the engine and the cost model can look at them."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np

from graphopt.ir import ops
from graphopt.ir.constants import small_array, tensor_of
from graphopt.ir.edit import Edit, RefusedError
from graphopt.ir.graph import Graph, Node, Value, build
from graphopt.ir.types import ValueType, digest
from graphopt.rewrite.apply import apply
from graphopt.rewrite.library import Library
from graphopt.rewrite.schema import Rule
from graphopt.rewrite.sites import Sites
from graphopt.synth.operators import OPSET, TABLE, Shape, attributes, constants
from graphopt.synth.pairs import Pair, Ref, Side


def graph_of(side: Side, shapes: Mapping[str, Shape], fixed: Collection[str] = ()) -> Graph:
    """A side as a graph, some of its inputs as constants.

    Raises:
        RefusedError: The shapes do not fit.
    """
    values: dict[int, Value] = {}
    keys: dict[str, int] = {}
    inputs: list[int] = []
    for name, shape in shapes.items():
        type = ValueType("f32", shape)
        if name in fixed:
            tensor = tensor_of(np.zeros(shape, np.float32))
            value = Value(digest("fixed", name, shape), name, type, True, tensor)
        else:
            value = Value(digest("input", name, shape), name, type)
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
    """Asks whether rules lead from one side of a pair to the other."""

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
