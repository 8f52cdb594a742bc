"""What operators ask of the elements of operands that models mostly know, and some leave to the caller: steps, axes, shapes, shares."""

from __future__ import annotations

from collections.abc import Mapping

from graphopt.ir.graph import Graph, Node
from graphopt.runtime.feeds import Range

_INTEGERS = ("i64", "i32", "i16", "i8", "u8", "u16", "u32", "u64")
# By operator and operand: inclusive low and exclusive high.
_BOUNDS: Mapping[tuple[str, int], Range] = {
    ("Dropout", 1): (0, 1),
    ("NonMaxSuppression", 2): (1, 4),
    ("NonMaxSuppression", 3): (0, 1),
    ("NonMaxSuppression", 4): (0, 1),
    ("OneHot", 1): (2, 9),
    ("Range", 1): (5, 9),
    ("Range", 2): (1, 3),
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
    ("HannWindow", 0): (4, 9),
    ("HammingWindow", 0): (4, 9),
    ("BlackmanWindow", 0): (4, 9),
}
_SHAPES = {("Reshape", 1), ("Expand", 1), ("AffineGrid", 1), ("MaxUnpool", 2), ("Resize", 3), ("ConstantOfShape", 0)}
_SCALES = {("Resize", 2), ("Upsample", 1)}
_AXES = {("Unsqueeze", 1), ("Slice", 3)}
_LENGTHS = {("LSTM", 4), ("GRU", 4), ("RNN", 4)}


def asked(graph: Graph, node: Node, key: int) -> Range | None:
    """The elements that a node takes as an operand: bounds of all, or of each; ``None`` where any will do, or which is not known.

    Args:
        graph: Where the node stands.
        node: One of ONNX's own operators.
        key: The operand.
    """
    slot, dtype = node.inputs.index(key), graph.type(key).dtype
    where = (node.op, slot)
    if where in _BOUNDS:
        return _BOUNDS[where]
    if node.op in ("Div", "Mod") and slot == 1 and dtype in _INTEGERS:
        return 1, 4
    if where == ("DequantizeLinear", 2) and dtype == "i32":
        return 0, 1  # there is none for whole numbers of 32 bits
    shape = graph.type(key).shape
    if shape is None or len(shape) != 1 or not isinstance(shape[0], int):
        return None
    each = _each(graph, node, slot, shape[0])
    if each is None or len(each) != shape[0]:
        return None
    return each, tuple(n + (1e-9 if where in _SCALES else 1) for n in each)  # 1 is 1, rounded


def _each(graph: Graph, node: Node, slot: int, count: int) -> tuple[float, ...] | None:
    """The elements one by one."""
    where = (node.op, slot)
    before = None if node.inputs[0] is None else _static(graph, node.inputs[0])
    after = [None if key is None else _static(graph, key) for key in node.outputs]
    if where in _AXES:
        return tuple(range(count))
    if where == ("Squeeze", 1) and before is not None:
        return tuple(axis for axis, size in enumerate(before) if size == 1)[:count]
    if where == ("Split", 1) and before:
        axis = int(node.attributes.get("axis", 0))
        shares = tuple(shape[axis] for shape in after if shape is not None and axis < len(shape))
        return shares if len(shares) == count else (before[axis] // count,) * (count - 1) + (-(-before[axis] // count),)
    if where in _LENGTHS and before:
        return (before[0],) * count
    axes = [int(axis) for axis in node.attributes.get("axes", range(count))]
    if where in _SHAPES and after and after[0] is not None and len(axes) == count <= len(after[0]):
        return tuple(after[0][axis] for axis in axes)
    if where in _SCALES and after and after[0] is not None and before is not None and len(axes) == count <= len(before):
        return tuple(after[0][axis] / max(1, before[axis]) for axis in axes)
    return None


def _static(graph: Graph, key: int) -> tuple[int, ...] | None:
    type = graph.type(key)
    return tuple(d for d in type.shape if isinstance(d, int)) if type.static and type.shape is not None else None
