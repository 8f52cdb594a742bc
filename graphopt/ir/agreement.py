"""Dimensions that have to be equal for a node to run.

Symbols are different until something says that they are the same, and type inference lets them pass: a Concat of ``S`` and ``T`` rows beside
each other may run or not. A rewrite must not add such a node where the pattern did not ask for the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from graphopt.ir.graph import Graph
from graphopt.ir.types import Dim, Shape

Pair = frozenset[Dim]
"""Two dimensions that are not known to be equal."""


def demanded(op: str, domain: str, attributes: Mapping[str, Any], shapes: Sequence[Shape | None]) -> set[Pair]:
    """Known dimensions that a node wants to be equal and that are written differently."""
    if domain:
        return set()
    pairs: Iterable[tuple[Dim, Dim]] = ()
    known = [s for s in shapes if s is not None]
    if op == "Concat":
        pairs = _beside(known, int(attributes.get("axis", 1)))
    elif op == "MatMul" and len(known) == 2 and known[0] and known[1]:
        pairs = [(known[0][-1], known[1][-2] if len(known[1]) > 1 else known[1][0])]
    elif op == "Gemm" and len(shapes) > 1 and shapes[0] and shapes[1] and len(shapes[0]) == len(shapes[1]) == 2:
        pairs = [(shapes[0][0 if attributes.get("transA") else 1], shapes[1][1 if attributes.get("transB") else 0])]
    return {frozenset(pair) for pair in pairs if None not in pair and pair[0] != pair[1]}


def demands_of(graph: Graph, nodes: Iterable[int]) -> frozenset[Pair]:
    """What nodes of a graph demand together."""
    found: set[Pair] = set()
    for id in nodes:
        node = graph.nodes[id]
        shapes = [None if key is None else graph.type(key).shape for key in node.inputs]
        found |= demanded(node.op, node.domain, node.attributes, shapes)
    return frozenset(found)


def _beside(shapes: Sequence[Shape], axis: int) -> Iterator[tuple[Dim, Dim]]:
    if not shapes or any(len(s) != len(shapes[0]) for s in shapes):
        return
    for other in shapes[1:]:
        for i, pair in enumerate(zip(shapes[0], other, strict=True)):
            if i != axis % len(shapes[0]):
                yield pair
