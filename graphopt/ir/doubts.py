"""Where ONNX's inference says another shape than the runtime makes.

Rules believe shapes, so one that is wrong makes a rewrite wrong. The runtime decides what a model computes; a dimension on which
ONNX's inference differs from it is taken to be unknown.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from graphopt.ir.content import Content, bounds, takes_all
from graphopt.ir.types import Dim, ValueType

_POOLS = frozenset({"MaxPool", "AveragePool", "LpPool"})
MISTAKEN = _POOLS | {"Slice"}
"""Operators of which ONNX may infer what the runtime does not make."""


def _doubtful(op: str, domain: str, version: int, attributes: Mapping[str, Any]) -> bool:
    """Whether what ONNX infers of a node may be wrong: see :func:`believed`."""
    if domain:
        return False
    # At operator set 10 a Slice of constant bounds is said to keep the symbols of its operand.
    return (op == "Slice" and version == 10) or (op in _POOLS and bool(attributes.get("ceil_mode", 0)))


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
    x, y = first.shape, found[0].shape
    if x is None or y is None or len(x) != len(y):
        return found
    dims = _sliced(attributes, contents, x, y) if op == "Slice" else _pooled(attributes, x, y)
    return tuple(ValueType(t.dtype, dims) if t.shape == y else t for t in found)


def _sliced(
    attributes: Mapping[str, Any], contents: Sequence[Content | None], x: tuple[Dim, ...], y: tuple[Dim, ...]
) -> tuple[Dim, ...]:
    """A Slice's dimensions: an axis that is cut keeps no symbol."""
    rows = bounds(attributes, contents)
    cut = (
        set(range(len(x)))
        if rows is None
        else {axis % len(x) for axis, *row in rows if -len(x) <= axis < len(x) and not takes_all(*row)}
    )
    return tuple(None if i in cut and not isinstance(d, int) else d for i, d in enumerate(y))


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
