"""Where ONNX's inference says another shape than the runtime makes.

Rules believe shapes, so one that is wrong makes a rewrite wrong. The runtime decides what a model computes; a dimension on which
ONNX's inference differs from it is taken to be unknown.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from graphopt.ir.content import Content, bounds, takes_all
from graphopt.ir.schema import unshaped
from graphopt.ir.types import MADE_UP, Dim, ValueType, digest, known

_POOLS = frozenset({"MaxPool", "AveragePool", "LpPool"})
_REDUCTIONS = frozenset(
    {f"Reduce{kind}" for kind in ("Sum", "Mean", "Max", "Min", "Prod", "L1", "L2", "LogSum", "LogSumExp", "SumSquare")}
)
_FRAMES = frozenset({"Squeeze", "Unsqueeze"})
_OTHERS = {
    "Slice", "PRelu", "Einsum", "Concat", "Attention", "ConvTranspose", "NonZero", "DFT", "Resize", "SplitToSequence",
}  # fmt: skip
MISTAKEN = _POOLS | _REDUCTIONS | _FRAMES | _OTHERS
"""Operators of which ONNX may infer what the runtime does not make."""
MISREAD = _POOLS | {"STFT", "Reshape", "Squeeze"}
"""Operators of which ONNX's inference may read attributes otherwise than its definition and the runtime."""


def read(op: str, domain: str, attributes: Mapping[str, Any]) -> Mapping[str, Any]:
    """Attributes of which ONNX infers what the runtime makes of the given ones."""
    if domain or op not in MISREAD:
        return attributes
    if op == "STFT":
        return {"onesided": 1, **attributes}
    changed: dict[str, Any] = {}
    for flag in ("ceil_mode", "allowzero"):
        if attributes.get(flag, 0) not in (0, 1):  # set if it is 1
            changed[flag] = 0
    if op in _POOLS and attributes.get("auto_pad", "NOTSET") != "NOTSET" and not any(attributes.get("pads", (1,))):
        changed["pads"] = None  # ONNX takes pads that are there for those that are wanted
    axes = attributes.get("axes", ())
    if op == "Squeeze" and isinstance(axes, tuple) and min(axes, default=-1) >= 0:
        changed["axes"] = tuple(sorted(axes))  # before operator set 11 ONNX looks for one after the other
    return {**attributes, **changed} if changed else attributes


def _doubtful(op: str, domain: str, version: int, attributes: Mapping[str, Any]) -> bool:
    """Whether what ONNX infers of a node may be wrong: see :func:`believed`."""
    if domain:
        return False
    # At operator set 10 a Slice of constant bounds is said to keep the symbols of its operand; in any, one that goes backwards from
    # behind the end towards what is further behind is said to be empty.
    # The slope of a PRelu should stretch to its operand; the runtime stretches both.
    # A Concat takes what is empty for nothing, whatever its other dimensions say; ONNX infers a number from them where others say a symbol.
    # Of an Attention whose heads lie in one dimension without a known size ONNX makes heads of size 0.
    # Of an Einsum's label that is 1 in one operand the first operand's size is inferred; the runtime stretches it.
    # A Squeeze whose axes are an empty list takes out all of length 1.
    # Of a number a NonZero finds one index; ONNX says none.
    # A DFT of operator set 20 is as long as an operand says; where nobody knows it, ONNX takes its signal's length.
    return (
        doubtful_by_itself(op, domain, version, attributes)
        or (op == "Squeeze" and (version >= 13 or list(attributes.get("axes", (0,))) == []))
        or op in ("PRelu", "Einsum", "Concat", "Attention", "NonZero")
        or (op == "DFT" and version >= 20)
        or (op == "Slice" and version >= 10)
    )


def doubtful_by_itself(op: str, domain: str, version: int, attributes: Mapping[str, Any]) -> bool:
    """Whether what ONNX infers of a node may be wrong whatever its operands are."""
    # Windows that are rounded up: the runtime makes none that begins behind the end.
    # Of a ConvTranspose that is told to make less than it was given, ONNX begins a shape and does not end it: batch and channels are all.
    # Before operator set 11 no axis was to be negative: ONNX lets one be and infers the shape without it, the runtime counts from behind.
    # A flag of a reduction is set if it is 1.
    # A pool that finds its own pads does not look at dilations, nor such a ConvTranspose at what it should add.
    # A Resize that keeps proportions takes axes that are counted from behind for none.
    # A SplitToSequence that is told to cut off single slices may take their axis out, which it is not to do.
    return not domain and (
        (op in _FRAMES and version < 11 and any(axis < 0 for axis in attributes.get("axes", ())))
        or (op in _REDUCTIONS and not {attributes.get(a, 0) for a in ("keepdims", "noop_with_empty_axes")} <= {0, 1})
        or (op == "SplitToSequence" and attributes.get("keepdims", 1) != 1)
        or (op == "ConvTranspose" and ("output_shape" in attributes or _adds_to_same(attributes)))
        or (
            op in _POOLS
            and (attributes.get("ceil_mode", 0) == 1 or _padded_twice(attributes) or _dilated_same(attributes))
        )
        or (
            op == "Resize"
            and attributes.get("keep_aspect_ratio_policy", "stretch") != "stretch"
            and min(attributes.get("axes", ()), default=0) < 0
        )
    )


def _padded_twice(attributes: Mapping[str, Any]) -> bool:
    """Whether a pool has pads and is told to find its own: ONNX infers by the former, the runtime pools by the latter."""
    return attributes.get("auto_pad", "NOTSET") != "NOTSET" and any(attributes.get("pads", ()))


def _same(attributes: Mapping[str, Any]) -> bool:
    return str(attributes.get("auto_pad", "NOTSET")).startswith("SAME")


def _dilated_same(attributes: Mapping[str, Any]) -> bool:
    return _same(attributes) and any(d != 1 for d in attributes.get("dilations", ()))


def _adds_to_same(attributes: Mapping[str, Any]) -> bool:
    return _same(attributes) and any(attributes.get("output_padding", ()))


def believed(
    op: str,
    domain: str,
    version: int,
    attributes: Mapping[str, Any],
    inputs: Sequence[ValueType | None],
    contents: Sequence[Content | None],
    found: tuple[ValueType, ...],
) -> tuple[ValueType, ...]:
    """The inferred types of a node's outputs, without the dimensions that the runtime may make otherwise.

    Args:
        op: Operator type.
        domain: Operator domain.
        version: Version of the operator set.
        attributes: As in :class:`graphopt.ir.graph.Node`.
        inputs: Type of each input, ``None`` for an omitted one.
        contents: What is known of the elements of each input; none if left out.
        found: What ONNX infers.
    """
    first = inputs[0] if inputs else None
    if not _doubtful(op, domain, version, attributes) or first is None or not found:
        return found
    if op == "Squeeze" and version >= 13 and (len(inputs) < 2 or inputs[1] is None or inputs[1].shape != (0,)):
        return found
    if op in _FRAMES or op in _REDUCTIONS:
        return (ValueType(found[0].dtype), *found[1:])
    x, y = first.shape, found[0].shape
    if op == "ConvTranspose":
        begun = x is not None and y is not None and len(y) < len(x)
        return (ValueType(found[0].dtype),) if begun or _adds_to_same(attributes) else found
    if op == "SplitToSequence":
        return found if len(inputs) < 2 or inputs[1] is None else tuple(map(unshaped, found))
    if op == "Resize" or (op == "NonZero" and x == ()):
        return (ValueType(found[0].dtype),)
    if op == "NonZero":
        return found
    if op == "DFT":
        return (ValueType(found[0].dtype, _transformed(inputs, contents, y)),)
    if op == "Attention":
        nothing = any(0 in (type.shape or ()) for type in inputs[:3] if type is not None)
        return _attended(inputs, found if nothing else tuple(map(_without_zeros, found)))
    if op == "Concat":
        return (ValueType(found[0].dtype, _joined(attributes, inputs, y)),) if y is not None else found
    if op == "Einsum" and y is not None:
        return (ValueType(found[0].dtype, _summed(str(attributes.get("equation", "")), inputs, y)), *found[1:])
    if x is None or y is None or len(x) != len(y):
        return found
    if op == "PRelu":
        slope = inputs[1].shape if len(inputs) > 1 and inputs[1] is not None else None
        dims = _stretched(x, slope)
    else:
        dims = _sliced(version, attributes, inputs, contents, x, y) if op == "Slice" else _pooled(attributes, x, y)
    if dims is None:
        return tuple(ValueType(t.dtype) for t in found)
    return tuple(ValueType(t.dtype, dims) if t.shape == y else t for t in found)


def _without_zeros(type: ValueType) -> ValueType:
    return type if type.shape is None else ValueType(type.dtype, tuple(None if d == 0 else d for d in type.shape))


def _attended(inputs: Sequence[ValueType | None], found: tuple[ValueType, ...]) -> tuple[ValueType, ...]:
    """An Attention's outputs: of the products of queries and keys ONNX forgets those with the past's."""
    products = found[3].shape if len(found) > 3 else None
    if not products or len(inputs) < 5 or inputs[4] is None:
        return found
    return (*found[:3], ValueType(found[3].dtype, (*products[:-1], None)))


def _transformed(
    inputs: Sequence[ValueType | None], contents: Sequence[Content | None], y: tuple[Dim, ...] | None
) -> tuple[Dim, ...] | None:
    """A DFT's dimensions: of a length that nobody knows along its axis."""
    known_of = [None if i >= len(contents) else contents[i] for i in range(3)]
    if y is None or len(inputs) < 2 or inputs[1] is None or known_of[1] is not None:
        return y
    axis = (-2,) if len(inputs) < 3 or inputs[2] is None else known_of[2]
    if axis is None or len(axis) != 1 or not isinstance(axis[0], int) or not -len(y) <= axis[0] < len(y):
        return (None,) * len(y)
    return tuple(None if i == axis[0] % len(y) else d for i, d in enumerate(y))


def _joined(attributes: Mapping[str, Any], inputs: Sequence[ValueType | None], y: tuple[Dim, ...]) -> tuple[Dim, ...]:
    """A Concat's dimensions: those that all operands say, or one that can't be empty."""
    shapes = [type.shape for type in inputs if type is not None and type.shape is not None]
    if not y or len(shapes) < len(inputs) or any(len(shape) != len(y) for shape in shapes):
        return y
    filled = [shape for shape in shapes if all(isinstance(d, int) and d for d in shape)]
    empty = any(0 in shape for shape in shapes)
    dims = list(y)
    for i in set(range(len(y))) - {attributes.get("axis", 1) % len(y)}:
        said = {shape[i] if known(shape[i]) else None for shape in shapes}
        if len(said if empty else said - {None}) > 1:
            dims[i] = filled[0][i] if filled else _one_of(shapes, i)
    return tuple(dims)


def _one_of(shapes: Sequence[tuple[Dim, ...]], axis: int) -> Dim:
    """The size that a Concat has there: nobody chose its name, but the same shapes make the same size."""
    return None if any(None in shape for shape in shapes) else f"{MADE_UP}{digest(shapes, axis):x}"


def _summed(equation: str, inputs: Sequence[ValueType | None], y: tuple[Dim, ...]) -> tuple[Dim, ...]:
    """An Einsum's dimensions: of labels that have one size in all operands."""
    left, arrow, right = equation.replace(" ", "").partition("->")
    sizes: dict[str, set[Dim]] = {}
    for term, type in zip(left.split(","), inputs, strict=False):
        shape = None if type is None else type.shape
        labels = () if shape is None else _labels(term, len(shape))
        if shape is None or len(shape) != len(labels):
            return (None,) * len(y)
        for label, dim in zip(labels, shape, strict=True):
            sizes.setdefault(label, set()).add(dim)
    made = _labels(right, len(y))
    if not arrow or len(made) != len(y):
        return y if all(len(s) == 1 for s in sizes.values()) else (None,) * len(y)
    return tuple(d if len(sizes.get(label, ())) == 1 else None for label, d in zip(made, y, strict=True))


def _labels(term: str, rank: int) -> tuple[str, ...]:
    """One label a dimension: those that an ellipsis stands for are counted from behind, as they stretch."""
    before, dots, behind = term.partition("...")
    many = rank - len(before) - len(behind) if dots else 0
    return (*before, *(f"{dots}{i}" for i in range(many, 0, -1)), *behind)


def _stretched(x: tuple[Dim, ...], slope: tuple[Dim, ...] | None) -> tuple[Dim, ...] | None:
    """A PRelu's dimensions: its operand's where the slope stretches to them."""
    if slope is None or len(slope) > len(x):
        return None
    lead = len(x) - len(slope)
    return (
        *x[:lead],
        *(d if s == 1 or (s == d and d is not None) else None for d, s in zip(x[lead:], slope, strict=True)),
    )


def _sliced(
    version: int,
    attributes: Mapping[str, Any],
    inputs: Sequence[ValueType | None],
    contents: Sequence[Content | None],
    x: tuple[Dim, ...],
    y: tuple[Dim, ...],
) -> tuple[Dim, ...]:
    """A Slice's dimensions: an axis that is cut keeps no symbol, one that is turned round is believed if it is turned as a whole."""
    rows = bounds(attributes, inputs, contents)
    if rows is None:
        if len(inputs) > 3 and inputs[3] is not None and (len(contents) < 4 or contents[3] is None):
            return (None,) * len(y)  # ONNX takes the first axes for those that nobody knows
        return y if version > 10 else tuple(d if isinstance(d, int) else None for d in y)
    dims = list(y)
    for axis, start, end, step in rows:
        if not -len(x) <= axis < len(x):
            return (None,) * len(y)
        backwards = step < 0 and end >= 0
        if backwards or (not isinstance(dims[axis], int) and not takes_all(start, end, step)):
            dims[axis] = None
    return tuple(dims)


def _pooled(attributes: Mapping[str, Any], x: tuple[Dim, ...], y: tuple[Dim, ...]) -> tuple[Dim, ...]:
    """A pool's dimensions: with ceil_mode, those on which the runtime agrees."""
    kernel = attributes.get("kernel_shape", ())
    n = len(kernel)
    strides, dilations = attributes.get("strides") or (1,) * n, attributes.get("dilations") or (1,) * n
    pads = attributes.get("pads") or (0,) * (2 * n)
    if n != len(x) - 2 or attributes.get("auto_pad", "NOTSET") != "NOTSET" or len(pads) != 2 * n:
        return (*y[:2], *(None,) * (len(y) - 2))
    dims: list[Dim] = list(y[:2])
    for i, (before, after) in enumerate(zip(x[2:], y[2:], strict=True)):
        made = None
        if isinstance(before, int):
            made = _windows(before, kernel[i], strides[i], dilations[i], pads[i], pads[i + n])
        dims.append(after if made is not None and made == after else None)
    return tuple(dims)


def _windows(size: int, kernel: int, stride: int, dilation: int, head: int, tail: int) -> int:
    """How many windows the runtime counts when it rounds up: none that begins in the padding behind the end."""
    over = size + head + tail - dilation * (kernel - 1) - 1
    count = -(-over // stride) + 1
    return count - 1 if (count - 1) * stride >= size + head else count
