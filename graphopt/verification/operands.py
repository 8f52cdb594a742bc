"""What operators ask of the elements of operands that models mostly know, and some leave to the caller: steps, axes, shapes, shares."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import product
from math import prod

from graphopt.ir.graph import Graph, Node
from graphopt.runtime.feeds import Interval

INTEGERS = ("i64", "i32", "i16", "i8", "u8", "u16", "u32", "u64")
# By operator and operand: inclusive low and exclusive high.
_BOUNDS: Mapping[tuple[str, int], Interval] = {
    ("CenterCropPad", 1): (4, 9),
    ("ConstantOfShape", 0): (1, 4),
    ("DFT", 1): (4, 9),
    ("Dropout", 1): (0, 1),
    ("Expand", 1): (1, 2),
    ("NonMaxSuppression", 2): (1, 4),
    ("NonMaxSuppression", 3): (0, 1),
    ("NonMaxSuppression", 4): (0, 1),
    ("OneHot", 1): (2, 9),
    ("Range", 1): (5, 9),
    ("Range", 2): (1, 3),
    ("Reshape", 1): (-1, 0),  # of one element
    ("Resize", 2): (1, 1 + 1e-9),
    ("Resize", 3): (8, 9),
    ("Slice", 2): (100, 101),  # up to the end
    ("Slice", 4): (1, 2),
    ("SplitToSequence", 1): (1, 2),
    ("STFT", 1): (4, 5),
    ("STFT", 3): (16, 17),
    ("MelWeightMatrix", 0): (8, 9),
    ("MelWeightMatrix", 1): (64, 65),
    ("MelWeightMatrix", 2): (8000, 8001),
    ("MelWeightMatrix", 3): (0, 1),
    ("MelWeightMatrix", 4): (3000, 3001),
    ("Tile", 1): (1, 3),
    ("TopK", 1): (1, 2),
    ("HannWindow", 0): (4, 9),
    ("HammingWindow", 0): (4, 9),
    ("BlackmanWindow", 0): (4, 9),
}
_MOST_K = 4  # elements of TopK
_GRID = 4  # rows and columns of a grid
_MOST_COLUMNS = 1 << 16  # of a Col2Im

_Dims = tuple[int | None, ...]
_Each = tuple[float, ...]


def asked(graph: Graph, node: Node, key: int, *, whole: bool = True) -> Interval | None:
    """The elements that a node takes as an operand: bounds of all, or of each; ``None`` where any will do, or which is not known.

    Args:
        graph: Where the node stands.
        node: One of ONNX's own operators.
        key: The operand.
        whole: Whether the elements stand in the operand as they are; else they are some of many.
    """
    slot, dtype = node.inputs.index(key), graph.type(key).dtype
    where = (node.op, slot)
    each = _each(graph, node, slot) if whole else None
    if each is not None:
        return each, tuple(n + (1e-9 if dtype not in INTEGERS else 1) for n in each)  # 1 is 1, rounded
    if node.op in ("Div", "Mod") and slot == 1 and dtype in INTEGERS:
        return 1, 4
    if where == ("DequantizeLinear", 2) and dtype == "i32":
        return 0, 1  # there is none for whole numbers of 32 bits
    return _limit(node, slot, _dims(graph, node.inputs[0])) or _BOUNDS.get(where)


def _limit(node: Node, slot: int, x: _Dims | None) -> Interval | None:
    """Bounds by the sizes of the first operand."""
    if not x:
        return None
    if (node.op, slot) == ("CumSum", 1):
        return 0, len(x)
    time = _at(x, int(node.attributes.get("time_axis", 0))) if node.op == "ReverseSequence" else None
    if slot == 1 and time:
        return 1, time + 1
    most = _at(x, int(node.attributes.get("axis", -1))) if (node.op, slot) == ("TopK", 1) else None
    return (1, min(most, _MOST_K) + 1) if most else None


def _each(graph: Graph, node: Node, slot: int) -> _Each | None:
    """The elements of a vector one by one."""
    key = node.inputs[slot]
    shape = None if key is None else graph.type(key).shape
    if shape is None or len(shape) != 1 or not isinstance(shape[0], int):
        return None
    count = shape[0]
    if (node.op in ("Unsqueeze", "Squeeze") or node.op.startswith("Reduce")) and slot == 1:
        x = _dims(graph, node.inputs[0]) if node.op == "Squeeze" else None
        ones = range(count) if x is None else [axis for axis, size in enumerate(x) if size == 1]
        made: Sequence[float] | None = tuple(ones)[:count]
    elif (node.op, slot) == ("Slice", 3):
        made = tuple(range(count))
    elif (node.op, slot) == ("Split", 1) and (parts := _parts(graph, node)) is not None:
        made = parts
    else:
        make = _MAKERS.get((node.op, slot))
        made = make(node, _dims(graph, node.inputs[0]), _dims(graph, node.outputs[0]), count) if make else None
    return tuple(made) if made is not None and len(made) == count else None


def _dims(graph: Graph, key: int | None) -> _Dims | None:
    """A shape, as far as it is numbers."""
    shape = None if key is None else graph.type(key).shape
    return None if shape is None else tuple(d if isinstance(d, int) else None for d in shape)


def _lengths(node: Node, x: _Dims | None, y: _Dims | None, count: int) -> _Each | None:
    time = _at(x, int(node.attributes.get("layout", 0)))
    return None if time is None else (time,) * count


def _parts(graph: Graph, node: Node) -> _Each | None:
    """Of a Split, the parts that are declared."""
    axis = int(node.attributes.get("axis", 0))
    parts = [_at(_dims(graph, key), axis) for key in node.outputs]
    return None if None in parts else tuple(size or 0 for size in parts)


def _shares(node: Node, x: _Dims | None, y: _Dims | None, count: int) -> _Each | None:
    """Of a Split, equal parts, but for the last."""
    whole = _at(x, int(node.attributes.get("axis", 0)))
    if whole is None:
        return None
    return (whole // count,) * (count - 1) + (whole - whole // count * (count - 1),)


def _target(node: Node, x: _Dims | None, y: _Dims | None, count: int) -> _Each | None:
    """Of a Reshape, what is declared; what is not is copied, as far as it can be, and the last of it is the rest."""
    wanted: list[int | None] = list(y) if y is not None and len(y) == count else [None] * count
    open_ = [i for i, size in enumerate(wanted) if size is None]
    copied = 0 if node.attributes.get("allowzero", 0) else len(x or ())
    for i in open_:
        wanted[i] = -1 if i == open_[-1] else 0 if i < copied else 1
    return tuple(size for size in wanted if size is not None)


def _expanded(node: Node, x: _Dims | None, y: _Dims | None, count: int) -> _Each | None:
    """Of an Expand, what is declared, else three times what may be repeated."""
    if y is not None and len(y) == count:
        return tuple(1 if size is None else size for size in y)
    own = None if x is None else (None,) * (count - len(x)) + x
    return None if own is None else tuple(3 if size == 1 else 1 for size in own[-count:])


def _as_declared(node: Node, x: _Dims | None, y: _Dims | None, count: int) -> _Each | None:
    return None if y is None or None in y else tuple(size or 0 for size in y)


def _resized(node: Node, x: _Dims | None, y: _Dims | None, count: int) -> _Each | None:
    """Of a Resize, what is declared, else another image of as many channels."""
    axes = [int(axis) for axis in node.attributes.get("axes", range(count))]
    known = [(axis, _at(x, axis), _at(y, axis)) for axis in axes]
    return tuple(
        after if after is not None else (1 if before is None and axis == 0 else 8 if axis > 1 or not before else before)
        for axis, before, after in known
    )


def _scaled(node: Node, x: _Dims | None, y: _Dims | None, count: int) -> _Each | None:
    axes = [int(axis) for axis in node.attributes.get("axes", range(count))]
    known = [(axis, _at(x, axis), _at(y, axis)) for axis in axes]
    return tuple(after / before if before and after else 2.0 if axis > 1 else 1.0 for axis, before, after in known)


def _at(shape: _Dims | None, axis: int) -> int | None:
    return shape[axis] if shape is not None and -len(shape) <= axis < len(shape) else None


def _grid(node: Node, x: _Dims | None, y: _Dims | None, count: int) -> _Each | None:
    return (_at(x, 0) or 1, 3, *(_at(y, axis) or _GRID for axis in range(1, count - 1)))


def _unpooled(node: Node, x: _Dims | None, y: _Dims | None, count: int) -> _Each | None:
    """Of a MaxUnpool, what its windows cover."""
    kernel = [int(n) for n in node.attributes.get("kernel_shape", ())]
    if x is None or None in x or len(x) != count or len(kernel) != count - 2:
        return None
    steps, pads = _windows(node, "strides", 1, len(kernel)), _windows(node, "pads", 0, 2 * len(kernel))
    sizes = [size or 0 for size in x]
    ends = [pads[i] + pads[i + len(kernel)] for i in range(len(kernel))]
    covered = [(n - 1) * s + k - p for n, s, k, p in zip(sizes[2:], steps, kernel, ends, strict=True)]
    return (*sizes[:2], *covered)


def _windows(node: Node, name: str, usual: int, count: int) -> list[int]:
    return [int(n) for n in node.attributes.get(name, (usual,) * count)]


def _folded(node: Node, x: _Dims | None, count: int) -> tuple[_Each, _Each] | None:
    """Of a Col2Im, an image and a block of which there are as many as columns; large blocks first, which overlap."""
    if x is None or len(x) != 3:
        return None
    _, size, columns = x
    if not size or not columns or columns > _MOST_COLUMNS:
        return None
    steps, wide, pads = (
        _windows(node, "strides", 1, count),
        _windows(node, "dilations", 1, count),
        _windows(node, "pads", 0, 2 * count),
    )
    ends = [pads[i] + pads[i + count] for i in range(count)]
    for block in product(range(min(size, 5), 0, -1), repeat=count):
        if size % prod(block):
            continue
        for places in _products(columns, count):
            rows = zip(places, steps, block, wide, ends, strict=True)
            image = tuple((n - 1) * s + (k - 1) * d + 1 - p for n, s, k, d, p in rows)
            if min(image) > 0:
                return image, block
    return None


def _products(whole: int, count: int) -> list[tuple[int, ...]]:
    """Ways to write a number as a product, the most even first."""
    if count == 1:
        return [(whole,)]
    found = [(n, *rest) for n in range(1, whole + 1) if whole % n == 0 for rest in _products(whole // n, count - 1)]
    return sorted(found, key=lambda each: (max(each), each))


_Maker = Callable[[Node, _Dims | None, _Dims | None, int], _Each | None]
_MAKERS: Mapping[tuple[str, int], _Maker] = {
    ("LSTM", 4): _lengths,
    ("GRU", 4): _lengths,
    ("RNN", 4): _lengths,
    ("Split", 1): _shares,
    ("SplitToSequence", 1): _shares,
    ("Reshape", 1): _target,
    ("Expand", 1): _expanded,
    ("ConstantOfShape", 0): _as_declared,
    ("Resize", 3): _resized,
    ("Resize", 2): _scaled,
    ("Upsample", 1): _scaled,
    ("AffineGrid", 1): _grid,
    ("MaxUnpool", 2): _unpooled,
    ("Col2Im", 1): lambda node, x, y, count: (_folded(node, x, count) or (None, None))[0],
    ("Col2Im", 2): lambda node, x, y, count: (_folded(node, x, count) or (None, None))[1],
}
