"""Reductions, normalisation and products over any domain of elements."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import reduce

import numpy as np

from graphopt.ir.types import Array
from graphopt.prover.domains import Floats, RandomOrder
from graphopt.prover.residues import Field
from graphopt.prover.semantics import (
    Call,
    ContradictionError,
    Result,
    UnsupportedError,
    front,
    operator,
    truncated,
)

# Reductions ----------------------------------------------------------------------------------------------------------


def fold(operation: Callable[[Array, Array], Array], x: Array, axis: int, start: Array | None = None) -> Array:
    """Combine the elements along an axis, in order, and drop the axis."""
    parts = [np.take(x, i, axis) for i in range(x.shape[axis])]
    if not parts:
        if start is None:
            raise UnsupportedError("a reduction of nothing")
        return np.broadcast_to(start, x.shape[:axis] + x.shape[axis + 1 :])
    return reduce(operation, parts)


def extreme(c: Call, x: Array, axis: int, largest: bool = True) -> Array:
    """The largest or the smallest elements along an axis."""
    if isinstance(c.d, RandomOrder) and c.d.holds(x) and x.shape[axis]:
        return c.d.extreme(x, axis, largest)
    holds = c.d.holds(x)
    larger, smaller = (c.d.max, c.d.min) if holds else (np.maximum, np.minimum)
    return fold(larger if largest else smaller, x, axis)


def total(c: Call, x: Array, axis: int) -> Array:
    """The sum along an axis."""
    if isinstance(c.d, Field) and c.d.holds(x):
        return c.d.total(x, axis)
    return fold(c.d.add, x, axis, c.number(0))


def _count(x: Array, axes: Sequence[int]) -> int:
    return math.prod(x.shape[a] for a in axes)


def reduce_axes(c: Call) -> tuple[tuple[int, ...], bool]:
    """Axes of a reduction and whether they are kept."""
    x, given = c.arg(0), c.opt(1)
    axes = c.attributes.get("axes") if given is None else tuple(int(a) for a in np.atleast_1d(given))
    if axes is None or len(axes) == 0:
        axes = () if c["noop_with_empty_axes"] == 1 else tuple(range(x.ndim))
    return tuple(sorted({front(a, x.ndim) for a in axes})), c["keepdims"] == 1


def _reduced(c: Call, x: Array, operation: Callable[[Array, Array], Array], start: Array | None = None) -> Array:
    axes, keep = reduce_axes(c)
    for axis in reversed(axes):
        x = fold(operation, x, axis, start)
    return np.expand_dims(x, axes) if keep else x


@operator(
    "ReduceSum",
    "ReduceMean",
    "ReduceProd",
    "ReduceMax",
    "ReduceMin",
    "ReduceSumSquare",
    "ReduceL1",
    "ReduceL2",
    "ReduceLogSum",
    "ReduceLogSumExp",
)
def _reduction(c: Call) -> Result:
    x, d = c.arg(0), c.d
    if not d.holds(x):
        if c.op == "ReduceMean":
            axes, _ = reduce_axes(c)
            divisor = np.array(_count(x, axes), x.dtype)
            return truncated(_reduced(c, x, np.add, np.array(0, x.dtype)), divisor)
        if c.op == "ReduceSumSquare":
            return _reduced(c, np.multiply(x, x), np.add, np.array(0, x.dtype))
        made = {"ReduceSum": np.add, "ReduceProd": np.multiply, "ReduceMax": np.maximum, "ReduceMin": np.minimum}.get(
            c.op
        )
        if made is None:
            raise UnsupportedError(f"{c.op} of integers")
        return _reduced(c, x, made, np.array(1 if c.op == "ReduceProd" else 0, x.dtype))
    axes, _ = reduce_axes(c)
    zero = c.number(0)
    match c.op:
        case "ReduceMax" | "ReduceMin":
            axes, keep = reduce_axes(c)
            for axis in reversed(axes):
                x = extreme(c, x, axis, c.op == "ReduceMax")
            return np.expand_dims(x, axes) if keep else x
        case "ReduceProd":
            return _reduced(c, x, d.mul, c.number(1))
        case "ReduceMean":
            if c.integers:
                return d.func("quotient of integers", _reduced(c, x, d.add, zero), c.number(_count(x, axes)))
            return d.div(_reduced(c, x, d.add, zero), c.number(_count(x, axes)))
        case "ReduceSumSquare":
            return _reduced(c, d.mul(x, x), d.add, zero)
        case "ReduceL1":
            return _reduced(c, d.func("abs", x), d.add, zero)
        case "ReduceL2":
            return d.func("sqrt", _reduced(c, d.mul(x, x), d.add, zero))
        case "ReduceLogSumExp":
            axes, keep = reduce_axes(c)
            x, top = lowered(c, x, axes)
            logs = d.func("log", _reduced(c, d.func("exp", x), d.add, zero))
            return logs if top is None else d.add(logs, top if keep else np.squeeze(top, axes))
        case "ReduceLogSum":
            return d.func("log", _reduced(c, x, d.add, zero))
    return _reduced(c, x, d.add, zero)


def lowered(c: Call, x: Array, axes: tuple[int, ...]) -> tuple[Array, Array | None]:
    """Floats less their largest along some axes, and that, for what takes exponentials: it would overflow as it is defined."""
    if not isinstance(c.d, Floats) or 0 in x.shape or not axes:
        return x, None
    top = x.max(axis=axes, keepdims=True)
    return (x - top, top) if np.isfinite(top).all() else (x, None)


@operator("Softmax", "LogSoftmax")
def _softmax(c: Call) -> Result:
    x, axis = c.arg(0), c["axis"]
    shape = x.shape
    if c.opset < 13:
        axis = front(axis, x.ndim)
        x = x.reshape(int(np.prod(shape[:axis], dtype=np.int64)), -1)
        axis = 1
    x, _ = lowered(c, x, (front(axis, x.ndim),))
    e = c.d.func("exp", x)
    sums = np.expand_dims(total(c, e, front(axis, x.ndim)), axis)
    made = c.d.div(e, sums) if c.op == "Softmax" else c.d.add(x, c.d.neg(c.d.func("log", sums)))
    return made.reshape(shape)


@operator("CumSum")
def _cumsum(c: Call) -> Result:
    x, axis = c.arg(0), front(int(c.arg(1)), c.arg(0).ndim)
    n = x.shape[axis]
    parts = [np.take(x, i, axis) for i in range(n)]
    if c["reverse"]:
        parts.reverse()
    zero = np.zeros((), x.dtype) if not c.d.holds(x) else c.number(0)
    add = c.d.add if c.d.holds(x) else np.add
    sums, running = [], np.broadcast_to(zero, x.shape[:axis] + x.shape[axis + 1 :])
    for part in parts:
        if c["exclusive"]:
            sums.append(running)
        running = add(running, part)
        if not c["exclusive"]:
            sums.append(running)
    if c["reverse"]:
        sums.reverse()
    return np.stack(sums, axis) if sums else x


# Normalisation -------------------------------------------------------------------------------------------------------


def mean(c: Call, x: Array, axes: Sequence[int]) -> Array:
    """The mean over axes, which stay as dimensions of 1."""
    count = c.number(_count(x, axes))
    for axis in sorted(axes, reverse=True):
        x = total(c, x, axis)
    return np.expand_dims(c.d.div(x, count), tuple(axes))


def _normalised(c: Call, x: Array, axes: Sequence[int], epsilon: float, centred: bool = True) -> Array:
    d = c.d
    away = d.add(x, d.neg(mean(c, x, axes))) if centred else x
    deviation = d.func("sqrt", d.add(mean(c, d.mul(away, away), axes), c.number(epsilon)))
    return d.div(away, deviation)


def _affine(c: Call, x: Array, scale: Array, shift: Array | None, axis: int = -1) -> Array:
    if axis == 1:
        scale = scale.reshape((-1,) + (1,) * (x.ndim - 2))
        shift = None if shift is None else shift.reshape((-1,) + (1,) * (x.ndim - 2))
    made = c.d.mul(x, scale)
    return made if shift is None else c.d.add(made, shift)


@operator("LayerNormalization", "RMSNormalization", "SimplifiedLayerNormalization")
def _layer_norm(c: Call) -> Result:
    x = c.arg(0)
    if len([t for t in c.to if t]) > 1:
        raise UnsupportedError("LayerNormalization with statistics as outputs")
    axes = range(front(c["axis"], x.ndim), x.ndim)
    made = _affine(c, _normalised(c, x, axes, c["epsilon"], c.op == "LayerNormalization"), c.arg(1), c.opt(2))
    if made.shape != x.shape:
        raise ContradictionError(f"{c.op} with a scale larger than its operand")
    return made


@operator("InstanceNormalization")
def _instance_norm(c: Call) -> Result:
    x = c.arg(0)
    return _affine(c, _normalised(c, x, range(2, x.ndim), c["epsilon"]), c.arg(1), c.arg(2), axis=1)


@operator("GroupNormalization")
def _group_norm(c: Call) -> Result:
    x, groups = c.arg(0), c["num_groups"]
    if c.opset < 21:
        raise UnsupportedError("GroupNormalization before 21")
    if any(c.arg(i).shape != (x.shape[1],) for i in (1, 2)):
        raise ContradictionError("a GroupNormalization whose channels do not fit")
    apart = x.reshape(x.shape[0], groups, -1)
    return _affine(c, _normalised(c, apart, (2,), c["epsilon"]).reshape(x.shape), c.arg(1), c.arg(2), axis=1)


@operator("BatchNormalization")
def _batch_norm(c: Call) -> Result:
    x, d = c.arg(0), c.d
    if c["training_mode"] or len([t for t in c.to if t]) > 1:
        raise UnsupportedError("BatchNormalization in training")
    if any(c.arg(i).shape != (x.shape[1] if x.ndim > 1 else 1,) for i in range(1, 5)):
        raise ContradictionError("a BatchNormalization whose channels do not fit")
    scale, shift, mean, variance = (c.arg(i).reshape((-1,) + (1,) * (x.ndim - 2)) for i in range(1, 5))
    deviation = d.func("sqrt", d.add(variance, c.number(c["epsilon"])))
    return d.add(d.mul(d.div(d.add(x, d.neg(mean)), deviation), scale), shift)


# Linear algebra ------------------------------------------------------------------------------------------------------


def matmul(c: Call, a: Array, b: Array) -> Array:
    """The product as numpy's matmul, elements summed in order."""
    left, right = a.ndim == 1, b.ndim == 1
    a = a[None, :] if left else a
    b = b[:, None] if right else b
    if a.shape[-1] != b.shape[-2]:
        raise ContradictionError(f"a product of {a.shape} and {b.shape}")
    if not c.d.holds(a):
        made = np.matmul(a, b)
    else:
        # Every product of a row and a column, then the sum over the inner dimension.
        products = c.d.mul(a[..., :, :, None], b[..., None, :, :])
        made = total(c, products, products.ndim - 2)
    made = np.squeeze(made, -2) if left else made
    return np.asarray(np.squeeze(made, -1) if right else made)


@operator("MatMul")
def _matmul(c: Call) -> Result:
    return matmul(c, c.arg(0), c.arg(1))


@operator("Gemm")
def _gemm(c: Call) -> Result:
    a, b, bias, d = c.arg(0), c.arg(1), c.opt(2), c.d
    made = matmul(c, a.T if c["transA"] else a, b.T if c["transB"] else b)
    if bias is not None and np.broadcast_shapes(bias.shape, made.shape) != made.shape:
        raise ContradictionError("a Gemm whose bias is larger than the product")
    if c.integers:
        if c["alpha"] != 1 or (bias is not None and c["beta"] != 1):
            raise UnsupportedError("Gemm of integers with factors")
        return made if bias is None else c.d.add(made, bias) if d.holds(a) else np.add(made, bias)
    made = made if c["alpha"] == 1 else d.mul(made, c.number(c["alpha"]))
    if bias is None:
        return made
    return d.add(made, bias if c["beta"] == 1 else d.mul(bias, c.number(c["beta"])))


def _turned(c: Call, x: Array, cos: Array, sin: Array) -> Array:
    """Pairs of the last axis turned by the angles: of its two halves, or of neighbours where they are interleaved."""
    d, half = c.d, x.shape[3] // 2
    if 2 * cos.shape[-1] != x.shape[3]:
        raise ContradictionError("a RotaryEmbedding whose angles do not fit")
    neighbours = bool(c.attributes.get("interleaved", 0))
    first, second = (x[..., ::2], x[..., 1::2]) if neighbours else (x[..., :half], x[..., half:])
    turned = d.add(d.mul(first, cos), d.neg(d.mul(second, sin)))
    also = d.add(d.mul(second, cos), d.mul(first, sin))
    return np.stack([turned, also], 4).reshape(x.shape) if neighbours else np.concatenate([turned, also], 3)


@operator("RotaryEmbedding", domain="com.microsoft")
def _contributed_rotary(c: Call) -> Result:
    x, positions = c.arg(0), c.arg(1)
    if x.ndim != 4 or any(c.attributes.get(name, 0) for name in ("num_heads", "rotary_embedding_dim")):
        raise UnsupportedError("this form of RotaryEmbedding")
    if c.of[0] not in ("f32", "f16", "bf16"):
        raise ContradictionError(f"com.microsoft.RotaryEmbedding of {c.of[0]}")
    rows = positions[0] + np.arange(x.shape[2]) if positions.ndim == 1 else positions
    if np.max(rows, initial=0) >= c.arg(2).shape[0]:
        raise ContradictionError("a RotaryEmbedding whose angles do not fit")
    cos, sin = (c.arg(i)[rows] if rows.ndim == 1 else c.arg(i)[rows][:, None] for i in (2, 3))
    return _turned(c, x, cos, sin)


@operator("RotaryEmbedding")
def _rotary(c: Call) -> Result:
    x, positions = c.arg(0), c.opt(3)
    if x.ndim != 4 or any(c.attributes.get(name, 0) for name in ("num_heads", "rotary_embedding_dim")):
        raise UnsupportedError("this form of RotaryEmbedding")
    cos, sin = (c.arg(i) if positions is None else c.arg(i)[positions] for i in (1, 2))
    if cos.shape[:2] != (x.shape[0], x.shape[2]):
        raise ContradictionError("a RotaryEmbedding whose angles do not fit")
    return _turned(c, x, cos[:, None], sin[:, None])


_OF_ELLIPSIS = "αβγδεζηθ"
"""Labels of what an ellipsis stands for, which stretches where it is 1."""


def _without_ellipsis(c: Call) -> str:
    """The equation of an Einsum with labels in the place of an ellipsis, if that is as many dimensions of every operand."""
    equation: str = c.attributes["equation"].replace(" ", "")
    left, _, out = equation.partition("->")
    many = {c.arg(i).ndim - len(term) + 3 for i, term in enumerate(left.split(",")) if "..." in term}
    if len(many) != 1 or "..." not in out:
        return equation
    return equation.replace("...", _OF_ELLIPSIS[: many.pop()])


@operator("Einsum")
def _einsum(c: Call) -> Result:
    left, arrow, out = _without_ellipsis(c).partition("->")
    terms = left.split(",")
    if not arrow or "." in left or any(len(set(t)) != len(t) for t in [*terms, out]):
        raise UnsupportedError("this form of Einsum")
    letters = out + "".join(sorted(set("".join(terms)) - set(out)))
    sizes: dict[str, int] = {}
    for i, term in enumerate(terms):
        labels = zip(term, c.arg(i).shape, strict=True)
        if any(sizes.setdefault(letter, n) != n for letter, n in labels if letter not in _OF_ELLIPSIS):
            raise ContradictionError("an Einsum whose sizes do not fit")
    made: Array | None = None
    for i, term in enumerate(terms):
        order = [term.index(letter) for letter in letters if letter in term]
        x = np.transpose(c.arg(i), order)
        x = np.expand_dims(x, tuple(k for k, letter in enumerate(letters) if letter not in term))
        made = x if made is None else c.d.mul(made, x) if c.d.holds(x) else np.multiply(made, x)
    if made is None:
        raise UnsupportedError("Einsum of nothing")
    for axis in range(len(letters) - 1, len(out) - 1, -1):
        made = total(c, made, axis) if c.d.holds(made) else made.sum(axis, dtype=made.dtype)
    return made
