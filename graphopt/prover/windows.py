"""Convolution and pooling over any domain of elements."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from graphopt.ir.types import Array
from graphopt.prover.linear import extreme, mean, total
from graphopt.prover.semantics import Call, ContradictionError, Result, UnsupportedError, WindowError, operator


def _window_geometry(c: Call, kernel: Sequence[int]) -> list[Array]:
    """For each spatial axis the input position of every (output, offset)."""
    x = c.arg(0)
    n = x.ndim - 2
    strides = c["strides"] or (1,) * n
    dilations = c["dilations"] or (1,) * n
    mode = c["auto_pad"] or "NOTSET"
    pads = list(c["pads"] or (0,) * (2 * n))
    places = []
    for i in range(n):
        size, reach = x.shape[2 + i], (kernel[i] - 1) * dilations[i] + 1
        begin, end = pads[i], pads[n + i]
        if mode in ("SAME_UPPER", "SAME_LOWER"):
            out = -(-size // strides[i])
            both = max((out - 1) * strides[i] + reach - size, 0)
            begin = both // 2 if mode == "SAME_UPPER" else both - both // 2
        elif mode == "VALID":
            begin, out = 0, -(-(size - reach + 1) // strides[i])
        else:
            room = size + begin + end - reach
            if room < 0:
                # Rounding up, there is one over the edge by as little as a stride.
                over = c["ceil_mode"] != 1 or room <= -strides[i]
                raise (WindowError if over else ContradictionError)("a window larger than the image")
            out = (-(-room // strides[i]) if c["ceil_mode"] == 1 else room // strides[i]) + 1
            if c["ceil_mode"] == 1 and (out - 1) * strides[i] >= size + begin:
                out -= 1
        places.append(np.arange(out)[:, None] * strides[i] - begin + np.arange(kernel[i]) * dilations[i])
    return places


def _gather_windows(x: Array, places: Sequence[Array]) -> Array:
    """(N, C, outputs..., offsets...) from (N, C, spatial...); positions must be inside."""
    n = len(places)
    for i, place in enumerate(places):
        x = np.take(x, place, axis=2 + 2 * i)  # the axis becomes two: output, offset
    return np.transpose(x, [0, 1, *range(2, 2 + 2 * n, 2), *range(3, 3 + 2 * n, 2)])


def _padded(x: Array, places: Sequence[Array], fill: Array) -> tuple[Array, list[Array]]:
    """The tensor with enough of ``fill`` around it that all places are inside, and the places counted anew."""
    moved = []
    for i, place in enumerate(places):
        axis = 2 + i
        before = max(0, -int(place.min()))
        after = max(0, int(place.max()) - x.shape[axis] + 1)
        shape = list(x.shape)
        parts = []
        for width in (before, after):
            shape[axis] = width
            parts.append(np.broadcast_to(fill, shape))
        x = np.concatenate([parts[0], x, parts[1]], axis)
        moved.append(place + before)
    return x, moved


@operator("Conv")
def _conv(c: Call) -> Result:
    x, w, bias = c.arg(0), c.arg(1), c.opt(2)
    if not c.d.holds(x):
        raise UnsupportedError("Conv of integers")
    group = c["group"]
    if x.shape[1] != w.shape[1] * group or w.shape[0] % group or (bias is not None and bias.shape != w.shape[:1]):
        raise ContradictionError("a Conv whose channels do not fit")
    if tuple(c["kernel_shape"] or w.shape[2:]) != w.shape[2:]:
        raise ContradictionError("a Conv whose kernel_shape is not that of its weight")
    places = _window_geometry(c, w.shape[2:])
    return _convolved(c, x, w, bias, places)


def _convolved(c: Call, x: Array, w: Array, bias: Array | None, places: Sequence[Array]) -> Array:
    """Sums of products of a weight, outputs first, and what is at the places; around the input are zeros."""
    d, group, counts = c.d, c["group"], [len(place) for place in places]
    x, places = _padded(x, places, c.number(0))
    windows = _gather_windows(x, places).reshape((x.shape[0], group, 1, w.shape[1], int(np.prod(counts)), -1))
    weight = w.reshape((1, group, w.shape[0] // group, w.shape[1], 1, -1))
    products = d.mul(windows, weight)
    products = np.moveaxis(products, 4, 3).reshape((*products.shape[:3], products.shape[4], -1))
    made = total(c, products, 4).reshape((x.shape[0], w.shape[0], *counts))
    return made if bias is None else d.add(made, bias.reshape((-1,) + (1,) * len(counts)))


@operator("ConvTranspose")
def _conv_transpose(c: Call) -> Result:
    """A Conv of stride 1 over the input with zeros between its elements, by the kernel read backwards."""
    x, w, bias = c.arg(0), c.arg(1), c.opt(2)
    if not c.d.holds(x):
        raise UnsupportedError("ConvTranspose of integers")
    group, kernel, n = c["group"], w.shape[2:], x.ndim - 2
    if x.shape[1] != w.shape[0] or w.shape[0] % group or (bias is not None and bias.shape != (group * w.shape[1],)):
        raise ContradictionError("a ConvTranspose whose channels do not fit")
    if tuple(c["kernel_shape"] or kernel) != kernel:
        raise ContradictionError("a ConvTranspose whose kernel_shape is not that of its weight")
    strides, dilations = c["strides"] or (1,) * n, c["dilations"] or (1,) * n
    places = []
    for i in range(n):
        reach = (kernel[i] - 1) * dilations[i]
        before, out = _transposed_geometry(c, i, (x.shape[2 + i] - 1) * strides[i] + reach + 1)
        x = _spread(x, 2 + i, strides[i], c.number(0))
        places.append(np.arange(out)[:, None] + before - np.arange(kernel[i]) * dilations[i])
    turned = np.swapaxes(w.reshape((group, -1, *w.shape[1:])), 1, 2).reshape((-1, w.shape[0] // group, *kernel))
    return _convolved(c, x, turned, bias, places)


def _transposed_geometry(c: Call, axis: int, whole: int) -> tuple[int, int]:
    """What is cut off at the beginning of a spatial axis of a transposed convolution that has ``whole`` elements before, and what is left."""
    n = c.arg(0).ndim - 2
    pads, extra = c["pads"] or (0,) * (2 * n), c["output_padding"] or (0,) * n
    mode, whole = c["auto_pad"] or "NOTSET", whole + extra[axis]
    wanted = c["output_shape"][axis] if c["output_shape"] else None
    if wanted is None and mode in ("SAME_UPPER", "SAME_LOWER"):
        wanted = c.arg(0).shape[2 + axis] * (c["strides"] or (1,) * n)[axis]
    if wanted is not None:
        away = max(0, whole - wanted)
        before = away // 2 if mode == "SAME_UPPER" else away - away // 2
        left = wanted if c["output_shape"] else whole - away
    else:
        before = 0 if mode == "VALID" else pads[axis]
        left = whole if mode == "VALID" else whole - pads[axis] - pads[n + axis]
    if left <= 0:
        raise WindowError("a ConvTranspose of which nothing is left")
    return before, left


def _spread(x: Array, axis: int, stride: int, fill: Array) -> Array:
    """The tensor with ``stride - 1`` of ``fill`` between neighbours along an axis."""
    shape = list(x.shape)
    shape[axis] = max(0, (shape[axis] - 1) * stride + 1)
    made = np.broadcast_to(fill, shape).copy()
    made[(slice(None),) * axis + (slice(None, None, stride),)] = x
    return made


@operator("FusedConv", domain="com.microsoft")
def _fused_conv(c: Call) -> Result:
    if c.attributes.get("activation", "Relu") != "Relu":
        raise UnsupportedError("FusedConv with another activation than Relu")
    made, other = _conv(replace(c, op="Conv", domain="", x=c.x[:3])), c.opt(3)
    assert not isinstance(made, list)
    if other is not None:
        if other.shape != made.shape:
            raise ContradictionError("a FusedConv whose sum does not fit")
        made = c.d.add(made, other)
    return c.d.max(made, c.number(0)) if "activation" in c.attributes else made


@operator("MaxPool")
def _max_pool(c: Call) -> Result:
    x = c.arg(0)
    if len([t for t in c.to if t]) > 1:
        raise UnsupportedError("MaxPool with indices")
    places = _window_geometry(c, c.attributes["kernel_shape"])
    inside = []
    for i, place in enumerate(places):
        valid = (place >= 0) & (place < x.shape[2 + i])
        if not valid.any(1).all():
            raise ContradictionError("a window of padding alone")
        # A maximum does not see repetition: padding is replaced by an element that is in the window.
        first = np.take_along_axis(place, valid.argmax(1)[:, None], 1)
        inside.append(np.where(valid, place, first))
    windows = _gather_windows(x, inside)
    flat = windows.reshape((*windows.shape[: x.ndim], -1))
    return extreme(c, flat, x.ndim)


@operator("AveragePool")
def _average_pool(c: Call) -> Result:
    x, d = c.arg(0), c.d
    places = _window_geometry(c, c.attributes["kernel_shape"])
    n = len(places)
    pads = list(c["pads"] or (0,) * (2 * n))
    if c["count_include_pad"] and (c["auto_pad"] or "NOTSET") != "NOTSET":
        raise UnsupportedError("AveragePool that counts automatic padding")
    counts = np.ones(())
    for i, place in enumerate(places):
        low, high = (-pads[i], x.shape[2 + i] + pads[n + i]) if c["count_include_pad"] else (0, x.shape[2 + i])
        counts = np.multiply.outer(counts, ((place >= low) & (place < high)).sum(1))
    if np.any(counts == 0):
        raise ContradictionError("a window of padding alone")
    padded, moved = _padded(x, places, c.number(0))
    windows = _gather_windows(padded, moved)
    sums = total(c, windows.reshape((*windows.shape[: x.ndim], -1)), x.ndim)
    return d.div(sums, d.constant(counts))


@operator("GlobalAveragePool")
def _global_average_pool(c: Call) -> Result:
    return mean(c, c.arg(0), range(2, c.arg(0).ndim))


@operator("GlobalMaxPool")
def _global_max_pool(c: Call) -> Result:
    x = c.arg(0)
    flat = x.reshape((*x.shape[:2], -1))
    return extreme(c, flat, 2).reshape(x.shape[:2] + (1,) * (x.ndim - 2))
