"""Operators that only move elements, or compute with shapes: the same over every domain."""

from __future__ import annotations

import numpy as np

from graphopt.ir.types import Array
from graphopt.prover.domains import Floats
from graphopt.prover.semantics import Call, ContradictionError, Result, UnsupportedError, front, operator

_LONGEST = 1 << 20  # elements of a Range


@operator("Identity", "Dropout")
def _identity(c: Call) -> Result:
    train = c.opt(2)
    if c.op == "Dropout" and train is not None and bool(train):
        ratio = c.known[1] if len(c.known) > 1 else None
        if ratio is None or ratio.any():
            # Random, and scaled; whatever it is, it is not its operand.
            return c.d.func("dropout", c.arg(0))
    return c.arg(0)


@operator("Transpose")
def _transpose(c: Call) -> Result:
    return np.transpose(c.arg(0), c.attributes.get("perm"))


@operator("Reshape")
def _reshape(c: Call) -> Result:
    x, dims = c.arg(0), [int(n) for n in c.arg(1)]
    if not c["allowzero"]:
        dims = [x.shape[i] if n == 0 else n for i, n in enumerate(dims)]
    return x.reshape(dims)


@operator("Flatten")
def _flatten(c: Call) -> Result:
    x, axis = c.arg(0), c["axis"]
    axis = axis if axis == x.ndim else front(axis, x.ndim)
    return x.reshape(int(np.prod(x.shape[:axis], dtype=np.int64)), int(np.prod(x.shape[axis:], dtype=np.int64)))


def _axes(c: Call) -> tuple[int, ...] | None:
    given = c.opt(1)
    if given is not None:
        return tuple(int(a) for a in given)
    found = c.attributes.get("axes")
    return None if found is None else tuple(found)


@operator("Squeeze")
def _squeeze(c: Call) -> Result:
    return np.squeeze(c.arg(0), _axes(c) or None)  # an empty list says as little as none, to the runtime


@operator("Unsqueeze")
def _unsqueeze(c: Call) -> Result:
    return np.expand_dims(c.arg(0), _axes(c) or ())


@operator("Concat")
def _concat(c: Call) -> Result:
    return np.concatenate([c.arg(i) for i in range(len(c.x))], c.attributes["axis"])


@operator("Split")
def _split(c: Call) -> Result:
    x, axis, given = c.arg(0), c["axis"], c.opt(1)
    sizes = c.attributes.get("split") if given is None else [int(n) for n in given]
    pieces = len(c.to)
    if sizes is None:
        chunk = -(-x.shape[axis] // pieces)
        sizes = [min(chunk, x.shape[axis] - i * chunk) for i in range(pieces)]
    if sum(sizes) != x.shape[axis] or len(sizes) != pieces or min(sizes) < 0:
        raise ContradictionError("a Split whose sizes do not fit")
    return list(np.split(x, np.cumsum(sizes)[:-1], axis))


@operator("Slice")
def _slice(c: Call) -> Result:
    x = c.arg(0)
    if c.opset < 10:
        raise UnsupportedError("Slice before 10")
    starts, ends, axes, steps = c.arg(1), c.arg(2), c.opt(3), c.opt(4)
    where = [slice(None)] * x.ndim
    for i, (start, end) in enumerate(zip(starts.tolist(), ends.tolist(), strict=True)):
        axis = front(i if axes is None else int(axes[i]), x.ndim)
        step = 1 if steps is None else int(steps[i])
        n = x.shape[axis]
        start, end = start + n if start < 0 else start, end + n if end < 0 else end
        if step > 0:
            where[axis] = slice(min(max(start, 0), n), min(max(end, 0), n), step)
        else:
            start, end = min(max(start, 0), n - 1), min(max(end, -1), n - 1)
            where[axis] = slice(start, None if end < 0 else end, step)
    return x[tuple(where)]


@operator("Gather")
def _gather(c: Call) -> Result:
    x, indices = c.arg(0), c.arg(1)
    return np.take(x, _inside(indices, x.shape[c["axis"]]), c["axis"])


@operator("GatherElements")
def _gather_elements(c: Call) -> Result:
    x, indices = c.arg(0), c.arg(1)
    return np.take_along_axis(x, _inside(indices, x.shape[c["axis"]]), c["axis"])


@operator("GatherND")
def _gather_nd(c: Call) -> Result:
    x, indices = c.arg(0), c.arg(1)
    if c.attributes.get("batch_dims", 0):
        raise UnsupportedError("GatherND with batch dimensions")
    columns = [_inside(indices[..., i], x.shape[i]) for i in range(indices.shape[-1])]
    return x[tuple(columns)]


@operator("ScatterND")
def _scatter_nd(c: Call) -> Result:
    x, indices, updates = c.arg(0), c.arg(1), c.arg(2)
    if c.attributes.get("reduction", "none") != "none":
        raise UnsupportedError("ScatterND that reduces")
    columns = np.stack([_inside(indices[..., i], x.shape[i]) for i in range(indices.shape[-1])], -1)
    places = columns.reshape(-1, columns.shape[-1])
    if len(np.unique(places, axis=0)) != len(places):
        raise UnsupportedError("ScatterND that writes a place twice")
    result = x.copy()
    result[tuple(columns[..., i] for i in range(columns.shape[-1]))] = updates
    return result


def _inside(indices: Array, n: int) -> Array:
    if np.any(indices < -n) or np.any(indices >= n):
        raise ContradictionError("positions outside the tensor")
    return np.where(indices < 0, indices + n, indices)


@operator("Pad")
def _pad(c: Call) -> Result:
    x, fill, axes = c.arg(0), c.opt(2), c.opt(3)
    if c["mode"] not in ("constant", "reflect", "edge", "wrap"):
        raise UnsupportedError("this form of Pad")
    if c.opset < 11:
        given, fill = list(c.attributes["pads"]), c.number(c.attributes.get("value", 0.0))
    else:
        given = c.arg(1).tolist()
    over = range(x.ndim) if axes is None else [front(int(a), x.ndim) for a in axes]
    width = [(0, 0)] * x.ndim
    for i, axis in enumerate(over):
        width[axis] = (given[i], given[len(given) // 2 + i])
    for axis, (before, after) in enumerate(width):
        n = x.shape[axis]
        x = np.take(x, np.arange(max(0, -before), n - max(0, -after)), axis)
    width = [(max(0, b), max(0, a)) for b, a in width]
    if c["mode"] != "constant":
        return np.pad(x, width, mode=c["mode"])
    if fill is None:
        fill = c.number(0) if c.d.holds(x) else np.zeros((), x.dtype)
    for axis, widths in enumerate(width):
        shape = list(x.shape)
        parts = []
        for n in widths:
            shape[axis] = n
            parts.append(np.broadcast_to(fill.reshape(()), shape))
        x = np.concatenate([parts[0], x, parts[1]], axis)
    return x


@operator("Expand")
def _expand(c: Call) -> Result:
    x = c.arg(0)
    return np.broadcast_to(x, np.broadcast_shapes(x.shape, tuple(int(n) for n in c.arg(1))))


@operator("Tile")
def _tile(c: Call) -> Result:
    repeats = tuple(int(n) for n in c.arg(1))
    if len(repeats) != c.arg(0).ndim:
        raise ContradictionError("a Tile whose repeats do not fit")
    return np.tile(c.arg(0), repeats)


@operator("Shape")
def _shape(c: Call) -> Result:
    return np.array(c.arg(0).shape[c["start"] : c["end"]], np.int64)


@operator("Size")
def _size(c: Call) -> Result:
    return np.array(c.arg(0).size, np.int64)


@operator("ConstantOfShape")
def _constant_of_shape(c: Call) -> Result:
    dims = tuple(int(n) for n in c.arg(0))
    tensor = c.attributes.get("value")
    content = np.zeros((), np.float32) if tensor is None else np.asarray(tensor.numpy()).reshape(())
    return np.broadcast_to(c.d.constant(content) if content.dtype.kind == "f" else content, dims)


@operator("Range")
def _range(c: Call) -> Result:
    start, limit, delta = c.arg(0), c.arg(1), c.arg(2)
    if c.d.holds(start) and not isinstance(c.d, Floats):
        raise UnsupportedError("Range of floats")
    first, last, step = (float(n) for n in (start, limit, delta))
    if step == 0 or not abs(last - first) <= _LONGEST * abs(step):  # also where one of them is no number
        raise UnsupportedError("a Range without an end")
    if not c.d.holds(start):
        return np.arange(int(start), int(limit), int(delta), dtype=start.dtype)
    return start + delta * np.arange(max(int(np.ceil((limit - start) / delta)), 0))


@operator("DepthToSpace")
def _depth_to_space(c: Call) -> Result:
    x, b = c.arg(0), c.attributes["blocksize"]
    n, channels, h, w = x.shape
    if c["mode"] == "CRD":
        return x.reshape(n, channels // b**2, b, b, h, w).transpose(0, 1, 4, 2, 5, 3).reshape(n, -1, h * b, w * b)
    return x.reshape(n, b, b, channels // b**2, h, w).transpose(0, 3, 4, 1, 5, 2).reshape(n, -1, h * b, w * b)


@operator("SpaceToDepth")
def _space_to_depth(c: Call) -> Result:
    x, b = c.arg(0), c.attributes["blocksize"]
    n, channels, h, w = x.shape
    order = (0, 1, 3, 5, 2, 4) if c.attributes.get("mode") == "CRD" else (0, 3, 5, 1, 2, 4)
    return x.reshape(n, channels, h // b, b, w // b, b).transpose(order).reshape(n, -1, h // b, w // b)


@operator("Trilu")
def _trilu(c: Call) -> Result:
    x, k = c.arg(0), c.opt(1)
    rows, columns = np.arange(x.shape[-2])[:, None], np.arange(x.shape[-1])
    shift = 0 if k is None else int(k)
    kept = columns - rows >= shift if c.attributes.get("upper", 1) else columns - rows <= shift
    zero = c.number(0) if c.d.holds(x) else np.zeros((), x.dtype)
    return np.where(kept, x, np.broadcast_to(zero, x.shape))
