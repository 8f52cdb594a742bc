"""Sizes of symbols, read off the graph: what meets a symbol says which sizes it can have."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from math import lcm, prod

from graphopt.ir.constants import known_content
from graphopt.ir.graph import Graph, Node
from graphopt.ir.infer import element_shape
from graphopt.ir.ops import BROADCASTING
from graphopt.ir.types import Dim, Shape, factors, product
from graphopt.runtime.interfaces import table
from graphopt.runtime.sizes import Hints
from graphopt.runtime.ties import Linear, linear

_WINDOWS = frozenset({"Conv", "MaxPool", "AveragePool", "ConvTranspose", "LpPool"})
_HANDED_ON = frozenset({"SequenceAt", "SequenceInsert", "SequenceErase", "Identity", "Relu", "Cast"})
_BOUNDING = frozenset(
    {
        "Slice",
        "Min",
        "Max",
        "Clip",
        "Less",
        "LessOrEqual",
        "Greater",
        "GreaterOrEqual",
        "Equal",
        "Mod",
        "Div",
        "Trilu",
        "TopK",
    }
)
_IMAGE = 4  # dimensions
_HEAD = 8  # width of one of attention
_LARGEST = 4096
_LARGEST_BOUND = 512  # attention from each place to each other takes the square of it


def size_hints(graph: Graph) -> Hints:
    """What operators seem to ask of the sizes of symbols."""
    votes: dict[str, dict[int, int]] = {}
    for node in graph.nodes.values():
        shapes = [None if key is None else graph.type(key).shape for key in node.inputs]
        for dim, size in _meetings(graph, node, shapes):
            parts = factors(dim) if isinstance(size, int) else None
            if (
                parts is None
                or not isinstance(size, int)
                or len(parts[1]) != 1
                or size % parts[0]
                or not 0 < size // parts[0] <= _LARGEST
            ):
                continue
            counted = votes.setdefault(parts[1][0], {})
            counted[size // parts[0]] = counted.get(size // parts[0], 0) + 1
    for dim, size in _as_results(graph):
        votes.setdefault(dim, {size: 1})
    return Hints(
        {s: sorted(counted, key=lambda n: (-counted[n], n)) for s, counted in votes.items()},
        _equations(graph),
        _bounds(graph),
        {graph.values[key].name: _held(graph, key) for key in graph.inputs if graph.type(key).other},
        _known_as(graph),
    )


def _as_results(graph: Graph) -> Iterator[tuple[str, int]]:
    """Sides of images that are declared of results alone: most come out as large as they went in."""
    results = [shape for _, key in graph.outputs if (shape := graph.type(key).shape) and len(shape) == _IMAGE]
    for shape in (graph.type(key).shape or () for key in graph.inputs):
        for axis, dim in enumerate(shape if len(shape) == _IMAGE else ()):
            sizes = {size for result in results if isinstance(size := result[axis], int)}
            if axis > 1 and isinstance(dim, str) and len(sizes) == 1:
                yield dim, sizes.pop()


def _known_as(graph: Graph) -> dict[str, str]:
    """What inputs would be called elsewhere, by the operand that they are."""
    inputs, found = set(graph.inputs), dict[str, str]()
    for node in graph.nodes.values():
        operands = table().operands.get(f"{node.domain}.{node.op}" if node.domain else node.op, {})
        for slot, key in enumerate(node.inputs):
            if key in inputs and key is not None and slot in operands:
                found.setdefault(graph.values[key].name, operands[slot])
    return found


def _held(graph: Graph, start: int) -> tuple[Dim, ...]:
    """The shape of the tensors in a sequence, as declared or as far as what reads them tells; of two dimensions where nothing does."""
    declared = element_shape(graph.type(start))
    if declared is not None:
        return tuple(declared)
    stack, seen = [start], {start}
    while stack:
        for user in graph.users[stack.pop()]:
            node = graph.nodes[user]
            shapes = [graph.type(key).shape for key in node.inputs[1:2] if key is not None]
            if node.op in ("SequenceInsert", *_WINDOWS) and shapes and shapes[0]:
                return tuple(shapes[0]) if node.op == "SequenceInsert" else (None,) * len(shapes[0])
            if node.op == "Transpose" and "perm" in node.attributes:
                return (None,) * len(node.attributes["perm"])
            for key in node.outputs if node.op in _HANDED_ON else ():
                if key is not None and key not in seen:
                    seen.add(key)
                    stack.append(key)
    return None, None


def _equations(graph: Graph) -> list[tuple[Linear, Linear]]:
    """Sums of the inputs' symbols that operators hold against each other, in the order of the graph."""
    declared = [graph.type(key).shape or () for key in graph.inputs]
    symbols = {name for shape in declared for dim in shape if isinstance(dim, str) for name in (dim, *linear(dim))}
    found: dict[tuple[Dim, Dim], tuple[Linear, Linear]] = {}
    for node in sorted(graph.nodes.values(), key=lambda node: graph.order[node.id]) if symbols else ():
        shapes = [None if key is None else graph.type(key).shape for key in node.inputs]
        for one, two in _meetings(graph, node, shapes):
            if isinstance(one, str) and isinstance(two, str) and one != two:
                sums = _sum(one), _sum(two)
                if all(not name or name in symbols for sum in sums for name in sum):
                    found.setdefault((one, two), sums)
    return list(found.values())


def _sum(dim: str) -> Linear:
    parts = factors(dim)
    return {parts[1][0]: parts[0]} if parts is not None and len(parts[1]) == 1 and parts[0] > 1 else linear(dim)


def _bounds(graph: Graph) -> list[int]:
    """Whole numbers that sizes may be held against, the largest first: where a Slice ends, how wide a window is, the last of some buckets."""
    found: set[int] = set()
    for node in graph.nodes.values():
        if node.domain or node.opaque or node.op not in _BOUNDING:
            continue
        if node.op == "Slice" and (x := node.inputs[0]) is not None and graph.type(x).static:
            continue
        for key in node.inputs:
            numbers = known_content(graph, key) if key is not None and graph.type(key).dtype in ("i64", "i32") else None
            found.update(abs(n) for n in numbers or () if isinstance(n, int) and 1 < abs(n) <= _LARGEST_BOUND)
    return sorted(found, reverse=True)


def _meetings(graph: Graph, node: Node, shapes: Sequence[Shape | None]) -> Iterator[tuple[Dim, Dim]]:
    """Dimensions that a node holds against numbers, or against each other."""
    known = [shape for shape in shapes if shape is not None]
    x, w = (*shapes, None, None)[:2]
    if node.domain or node.opaque:
        if (node.domain, node.op) == ("com.microsoft", "Attention") and x and w and len(w) == 2:
            yield from _attended(node, x, w, shapes[2] if len(shapes) > 2 else None)
    elif node.op in BROADCASTING:
        yield from _equal(known)
    elif node.op in ("MatMul", "Gemm") and x and w:
        a = x[0 if node.attributes.get("transA", 0) else -1]
        b = w[-1 if node.attributes.get("transB", 0) or len(w) == 1 else -2]
        yield from _pair(a, b)
        if node.op == "MatMul":
            yield from _equal([x[:-2], w[:-2]])
    elif node.op == "Concat" and len({len(shape) for shape in known}) == 1:
        axis = node.attributes.get("axis", 0) % (len(known[0]) or 1)
        yield from _equal([shape[:axis] + shape[axis + 1 :] for shape in known])
    elif node.op == "Reshape" and shapes and shapes[0] is not None:
        target = known_content(graph, node.inputs[1]) if len(node.inputs) > 1 else node.attributes.get("shape")
        result = node.outputs[0]
        if target is None and result is not None:
            target = graph.type(result).shape  # known where it was computed from that of an input
        yield from _reshaped(shapes[0], target)
    elif node.op == "Split" and shapes and shapes[0]:
        parts = known_content(graph, node.inputs[1]) if len(node.inputs) > 1 else node.attributes.get("split")
        axis = node.attributes.get("axis", 0)
        if -len(shapes[0]) <= axis < len(shapes[0]):
            if parts and all(isinstance(n, int) for n in parts):
                yield shapes[0][axis], sum(n for n in parts if isinstance(n, int))
            elif not parts:
                yield shapes[0][axis], len(node.outputs)
    elif node.op in ("Gather", "GatherElements") and len(shapes) > 1 and shapes[0]:
        picks = known_content(graph, node.inputs[1])
        axis = node.attributes.get("axis", 0)
        if picks and -len(shapes[0]) <= axis < len(shapes[0]):
            yield shapes[0][axis], 1 + max((p if p >= 0 else -1 - p for p in picks if isinstance(p, int)), default=0)
    elif node.op in _WINDOWS and x is not None:
        channels = w[1] if w is not None and len(w) > 1 and len(x) > 1 and node.op == "Conv" else None
        if isinstance(channels, int):
            yield x[1], channels * int(node.attributes.get("group", 1))
        kernel = node.attributes.get("kernel_shape", ())
        for dim, size in zip(x[2:], kernel, strict=False):
            yield dim, max(32, int(size))


def _attended(node: Node, x: Shape, w: Shape, b: Shape | None) -> Iterator[tuple[Dim, Dim]]:
    """Of attention that projects by itself: queries, keys and values in one matrix, and heads that share out their width."""
    yield from _pair(x[-1], w[0])
    if "qkv_hidden_sizes" not in node.attributes:
        yield from _pair(w[1], product((3, w[0])))
        yield w[0], _HEAD * int(node.attributes.get("num_heads", 1))
    if b:
        yield from _pair(b[0], w[1])


def _pair(a: Dim, b: Dim) -> Iterator[tuple[Dim, Dim]]:
    if isinstance(a, str) and b is not None:
        yield a, b
    elif isinstance(b, str) and a is not None:
        yield b, a


def _equal(shapes: Sequence[Shape]) -> Iterator[tuple[Dim, Dim]]:
    """Dimensions that broadcast against each other: those at the same place from the end."""
    for place in range(1, 1 + max((len(shape) for shape in shapes), default=0)):
        dims = [shape[-place] for shape in shapes if len(shape) >= place]
        sizes = {d for d in dims if isinstance(d, int) and d > 1}
        symbols = [d for d in dims if isinstance(d, str)]
        for dim in symbols:
            for size in sorted(sizes):
                yield dim, size
        for dim in symbols[1:]:
            yield symbols[0], dim


def _reshaped(x: Shape, target: Sequence[Dim] | None) -> Iterator[tuple[Dim, int]]:
    """The size of the one symbol of a tensor that is told to have a number of elements, or a multiple of one; or of several, to have as many as the target."""
    whole = factors(product(x))
    if target is None or whole is None:
        return
    if not all(isinstance(d, int) for d in target):
        yield from _as_many(whole, factors(product(target)))
        return
    if len(whole[1]) != 1:
        return
    numbers = [d if d else (x[i] if i < len(x) else 1) for i, d in enumerate(target) if d != -1]
    if not all(isinstance(d, int) for d in numbers):
        return
    wanted = prod(int(d) for d in numbers if d is not None)
    if wanted > 0 and whole[0] > 0:
        yield product(x), lcm(wanted, whole[0]) if -1 in target else wanted


def _as_many(one: tuple[int, tuple[str, ...]], two: tuple[int, tuple[str, ...]] | None) -> Iterator[tuple[Dim, int]]:
    """Sizes at which two products are the same: 1 but for one symbol."""
    if two is None or min(one[0], two[0]) <= 0 or -1 in (one[0], two[0]):
        return
    left, right = Counter(one[1]) - Counter(two[1]), Counter(two[1]) - Counter(one[1])
    for side, (many, few) in ((left, (two[0], one[0])), (right, (one[0], two[0]))):
        if len(side) == 1 and side.total() == 1 and many % few == 0:
            alone = next(iter(side))
            yield alone, many // few
            for other in {*left, *right} - {alone}:
                yield other, 1
            return
