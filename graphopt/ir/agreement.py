"""Dimensions that have to be equal for a node to run.

Symbols are different until something says that they are the same, and type inference lets them pass: a Concat of ``S`` and ``T`` rows beside
each other may run or not, as may the sum of ``S`` and of 8 elements. A rewrite must not add such a node where the pattern did not ask for the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import combinations, zip_longest
from typing import Any

from graphopt.ir.graph import Graph, Node
from graphopt.ir.ops import BROADCASTING
from graphopt.ir.types import Dim, Shape, ValueType, known

Pair = frozenset[Dim]
"""Two dimensions that are not known to be equal."""


_DEMANDING = BROADCASTING | {"Concat", "MatMul", "Gemm"}
# It takes a cut symbol for the same size, as ONNX does, and gives the result a buffer of that size.
_MISTAKEN = "onnxruntime may mistake the size of a Slice of open dimensions at operator set 10"
_ALIKE = frozenset({"Sum", "Max", "Min", "Mean"})


def disagreement(
    op: str,
    domain: str,
    version: int,
    attributes: Mapping[str, Any],
    types: Sequence[ValueType | None],
    granted: frozenset[Pair] | None,
) -> str:
    """What a new node wants of its operands' dimensions and does not get, as a message; empty for nothing.

    Args:
        op: Operator type.
        domain: Operator domain.
        version: Operator set.
        attributes: Attribute values.
        types: Of its operands, ``None`` for one that is omitted.
        granted: What it may ask for; ``None`` for anything.
    """
    if domain:
        return ""
    if version < 8 and op in _ALIKE and len({t.shape for t in types if t is not None}) > 1:
        return f"{op} does not broadcast before operator set 8"
    first = types[0] if types else None
    if op == "Slice" and version == 10 and granted is not None and first is not None and not first.static:
        return _MISTAKEN
    if granted is None or op not in _DEMANDING:
        return ""
    asked = sorted(sorted(map(str, pair)) for pair in _demanded(op, attributes, types) - granted)
    return f"{op} wants {' and '.join(asked[0])} to be equal" if asked else ""


def sliced_blindly(graph: Graph, added: Iterable[Node]) -> str:
    """Why new nodes may not stand before the Slices that read them, as a message; empty for nothing.

    What is before them may be all that has kept the runtime from knowing the symbols that it mistakes.
    """
    if graph.opsets.get("") != 10:
        return ""
    made = [key for node in added for key in node.outputs if key is not None and not graph.type(key).static]
    return _MISTAKEN if any(graph.nodes[user].op == "Slice" for key in made for user in graph.users[key]) else ""


def demands_of(graph: Graph, nodes: Iterable[int]) -> frozenset[Pair]:
    """Known dimensions that nodes of a graph want to be equal and that are written differently, directly or by way of others."""
    found: set[Pair] = set()
    for node in map(graph.nodes.__getitem__, nodes):
        if node.op in _DEMANDING and not node.domain:
            # What broadcasting makes of two dimensions has a name of its own.
            keys = (*node.inputs, *node.outputs) if node.op in BROADCASTING else node.inputs
            found |= _demanded(node.op, node.attributes, [None if key is None else graph.type(key) for key in keys])
    if len(found) < 2:
        return frozenset(found)
    classes: list[set[Dim]] = []
    for pair in found:
        joined = [c for c in classes if c & pair]
        classes = [c for c in classes if not c & pair] + [set(pair).union(*joined)]
    return frozenset(frozenset(pair) for c in classes for pair in combinations(c, 2))


def _demanded(op: str, attributes: Mapping[str, Any], types: Sequence[ValueType | None]) -> set[Pair]:
    shapes = [None if type is None else type.shape for type in types]
    ranked = [s for s in shapes if s is not None]
    pairs: Iterable[tuple[Dim, Dim]] = ()
    if op in BROADCASTING:
        pairs = _over(ranked)
    elif op == "Concat":
        pairs = _beside(ranked, int(attributes.get("axis", 1)))
    elif op == "MatMul" and len(ranked) == 2 and ranked[0] and ranked[1]:
        pairs = [
            (ranked[0][-1], ranked[1][-2] if len(ranked[1]) > 1 else ranked[1][0]),
            *_over([s[:-2] for s in ranked]),
        ]
    elif op == "Gemm" and len(shapes) > 1 and shapes[0] and shapes[1] and len(shapes[0]) == len(shapes[1]) == 2:
        pairs = [(shapes[0][0 if attributes.get("transA") else 1], shapes[1][1 if attributes.get("transB") else 0])]
    return {frozenset(pair) for pair in pairs if None not in pair and pair[0] != pair[1]}


def _beside(shapes: Sequence[Shape], axis: int) -> Iterator[tuple[Dim, Dim]]:
    if not shapes or any(len(s) != len(shapes[0]) for s in shapes):
        return
    for other in shapes[1:]:
        for i, pair in enumerate(zip(shapes[0], other, strict=True)):
            if i != axis % len(shapes[0]):
                yield pair


def _over(shapes: Sequence[Shape]) -> Iterator[tuple[Dim, Dim]]:
    """Dimensions that broadcasting lays over each other, but for those of 1."""
    for dims in zip_longest(*(reversed(s) for s in shapes)):
        if len(set(dims)) > 1:
            yield from combinations((d for d in dims if d != 1 and known(d)), 2)
