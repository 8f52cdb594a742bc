"""Dimensions that have to be equal for a node to run.

Symbols are different until something says that they are the same, and type inference lets them pass: a Concat of ``S`` and ``T`` rows beside
each other may run or not, as may the sum of ``S`` and of 8 elements. A rewrite must not add such a node where the pattern did not ask for the same.

What is broadcast asks for less than a Concat or a product: one of two dimensions may be 1. So what a pattern asks for is an order, in which a
dimension is below another one when it is 1 or equal to it. Two are equal when each is below the other, and agree when both are below a third.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from itertools import combinations, zip_longest
from typing import Any

from graphopt.ir.graph import Graph
from graphopt.ir.ops import BROADCASTING
from graphopt.ir.types import Dim, Shape, ValueType, known

_DEMANDING = BROADCASTING | {"Concat", "MatMul", "Gemm", "Conv"}
# Operands that are vectors. ONNX infers the result whatever they are, and kernels read beyond them.
_VECTORS = {
    "Conv": (2,), "ConvTranspose": (2,), "QLinearConv": (8,), "BatchNormalization": (1, 2, 3, 4), "InstanceNormalization": (1, 2),
    "GroupNormalization": (1, 2),
}  # fmt: skip
MISTAKEN_SLICE = "onnxruntime may mistake the size of a Slice of open dimensions at operator set 10"
"""Why: it takes a cut symbol for the same size, as ONNX does, and gives the result a buffer of that size."""
_ALIKE = frozenset({"Sum", "Max", "Min", "Mean"})

Below = Mapping[Hashable, frozenset[Hashable]]
"""For each dimension those that it is 1 or equal to, itself among them; a dimension that is not there is below itself alone."""

_EQUAL, _AGREE = "equal", "agree"


def disagreement(
    op: str,
    domain: str,
    version: int,
    attributes: Mapping[str, Any],
    types: Sequence[ValueType | None],
    granted: Below | None,
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
        return MISTAKEN_SLICE
    for place in _VECTORS.get(op, ()):
        type = types[place] if place < len(types) else None
        shape = None if type is None else type.shape
        if shape is not None and len(shape) != 1:
            return f"operand {place} of {op} has {len(shape)} dimensions, not one"
    if granted is None or op not in _DEMANDING:
        return ""
    asked = sorted(
        sorted(map(str, pair)) for kind, *pair in _demanded(op, attributes, types) if not _holds(granted, kind, *pair)
    )
    return f"{op} wants {' and '.join(asked[0])} to be equal" if asked else ""


def _holds(granted: Below, kind: str, one: Dim, two: Dim) -> bool:
    above, over = (granted.get(dim, frozenset((dim,))) for dim in (one, two))
    return bool(above & over) if kind == _AGREE else two in above and one in over


def demands_of(graph: Graph, nodes: Iterable[int]) -> Below:
    """What nodes of a graph take for granted about dimensions that are written differently."""
    above: defaultdict[Hashable, set[Hashable]] = defaultdict(set)
    for node in map(graph.nodes.__getitem__, nodes):
        if node.domain or node.op not in _DEMANDING:
            continue
        types = [None if key is None else graph.type(key) for key in node.inputs]
        if all(type is None or type.static for type in types):
            continue
        for place, (kind, one, two) in enumerate(_demanded(node.op, node.attributes, types)):
            if kind == _EQUAL:
                above[one].add(two)
                above[two].add(one)
            else:  # what broadcasting makes of the two, whatever its name
                above[one].add((node.id, place))
                above[two].add((node.id, place))
        made = None if node.outputs[0] is None else graph.type(node.outputs[0]).shape
        for dims in zip_longest(*(reversed(s) for s in (made or (), *_broadcast(node.op, types)))):
            for dim in dims[1:]:
                if dims[0] is not None and dim not in (1, None, dims[0]):
                    above[dim].add(dims[0])
    return {dim: _reached(above, dim) for dim in tuple(above)}


def _reached(above: Mapping[Hashable, set[Hashable]], start: Hashable) -> frozenset[Hashable]:
    found, todo = {start}, [start]
    while todo:
        fresh = above.get(todo.pop(), set()) - found
        found |= fresh
        todo += fresh
    return frozenset(found)


def may_widen(graph: Graph, keys: Iterable[int | None]) -> bool:
    """Whether a constant among operands that are laid over each other may do nothing but add dimensions of one to the others.

    Rules move constants about as if they did not, and where all ranks are known the root's tells of it. Nobody notices where one is not.
    """
    shapes = [(graph.type(key).shape, graph.is_const(key)) for key in keys if key is not None]
    if all(shape is not None for shape, _ in shapes):
        return False
    ranks = {True: 0, False: 0}
    for shape, const in shapes:
        adds = const and shape is not None and shape[:1] == (1,)
        ranks[adds] = max(ranks[adds], len(shape or ()))
    return ranks[True] > ranks[False]


def _demanded(
    op: str, attributes: Mapping[str, Any], types: Sequence[ValueType | None]
) -> Iterator[tuple[str, Dim, Dim]]:
    """Pairs of different dimensions that a node wants to be equal, or to agree."""
    shapes = [None if type is None else type.shape for type in types]
    pairs: Iterable[tuple[Dim, Dim]] = ()
    if op == "Concat":
        pairs = _beside([s for s in shapes if s is not None], int(attributes.get("axis", 1)))
    elif op == "MatMul" and len(shapes) == 2 and shapes[0] and shapes[1]:
        pairs = [(shapes[0][-1], shapes[1][-2] if len(shapes[1]) > 1 else shapes[1][0])]
    elif op == "Gemm" and len(shapes) > 1 and shapes[0] and shapes[1] and len(shapes[0]) == len(shapes[1]) == 2:
        pairs = [(shapes[0][0 if attributes.get("transA") else 1], shapes[1][1 if attributes.get("transB") else 0])]
    elif op == "Conv" and len(shapes) > 2 and shapes[1] and shapes[2]:
        pairs = [(shapes[1][0], shapes[2][0])]
    for one, two in pairs:
        if None not in (one, two) and one != two:
            yield _EQUAL, one, two
    for one, two in _over(_broadcast(op, types)):
        yield _AGREE, one, two


def _broadcast(op: str, types: Sequence[ValueType | None]) -> list[Shape]:
    """The shapes that a node lays over each other."""
    shapes = [type.shape for type in types if type is not None and type.shape is not None]
    if op in BROADCASTING:
        return shapes
    return [s[:-2] for s in shapes] if op == "MatMul" and len(shapes) == 2 and all(shapes) else []


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
        yield from combinations(sorted({d for d in dims if d != 1 and known(d)}, key=str), 2)
