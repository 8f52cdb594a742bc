"""Operators that only move elements, at one index of a tensor of any size."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from graphopt.ir.types import FLOATS
from graphopt.prover.generic.facts import OpenError, eq, flat, ge, lt, unflat
from graphopt.prover.generic.sizes import ONE, ZERO, Int, divided, product, symbol, total, whole
from graphopt.prover.generic.tensors import (
    Call,
    Index,
    Result,
    Shape,
    Tensor,
    constant,
    constant_ints,
    joint_shape,
    operator,
    stretched,
)
from graphopt.prover.generic.terms import ZERO as NOUGHT
from graphopt.prover.semantics import front

_END = 2**31 - 1


def _put(index: Index, axis: int, i: Int) -> Index:
    return (*index[:axis], i, *index[axis + 1 :])


@operator("Identity", "Dropout")
def _identity(c: Call) -> Result:
    x, train = c.arg(0), c.opt(2)
    if train is not None and train.fill != 0:
        raise OpenError("Dropout that may be told to train")
    return c.result(x.shape, x.at, ints=x.ints, fill=x.fill)


@operator("Transpose")
def _transpose(c: Call) -> Result:
    x = c.arg(0)
    perm = c.attributes.get("perm") or tuple(reversed(range(x.rank)))
    if sorted(perm) != list(range(x.rank)):
        raise OpenError(f"Transpose by {perm} of a tensor of rank {x.rank}")
    back = [perm.index(axis) for axis in range(x.rank)]
    return c.result([x.shape[p] for p in perm], lambda index: x.at(tuple(index[b] for b in back)), fill=x.fill)


def reshaped(c: Call, x: Tensor, shape: Sequence[Int]) -> Tensor:
    """The elements of a tensor in row-major order, in another shape of as many."""
    shape = tuple(c.facts.norm(d) for d in shape)
    old = tuple(c.facts.norm(d) for d in x.shape)
    groups = _groups(old, shape)

    def at(index: Index) -> Any:
        found: list[Int] = []
        for was, now in groups:
            here = tuple(index[i] for i in now)
            if len(was) == len(now) == 1:
                found.append(here[0])
            else:
                position = flat(here, [shape[i] for i in now])
                found += unflat(c.facts, position, [old[i] for i in was])
        return x.at(tuple(found))

    return c.result(shape, at, ints=x.ints, fill=x.fill)


def _groups(old: Shape, new: Shape) -> list[tuple[list[int], list[int]]]:
    """Runs of axes of both shapes with as many elements, as short as they are seen to be."""
    groups: list[tuple[list[int], list[int]]] = []
    i = j = 0
    while i < len(old) or j < len(new):
        was, now = ([i] if i < len(old) else []), ([j] if j < len(new) else [])
        i, j = i + len(was), j + len(now)
        while product(old[a] for a in was) != product(new[a] for a in now):
            a, b = product(old[a] for a in was), product(new[a] for a in now)
            if i < len(old) and (j >= len(new) or divided(b, a)[1] == ZERO or divided(a, b)[1] != ZERO):
                was.append(i)
                i += 1
            elif j < len(new):
                now.append(j)
                j += 1
            else:
                break
        groups.append((was, now))
    return groups


@operator("Reshape")
def _reshape(c: Call) -> Result:
    x, target = c.arg(0), c.arg(1)
    if target.ints is None:
        raise OpenError("a Reshape to a shape that is not known")
    dims: list[Int | None] = []
    for i, d in enumerate(target.ints):
        if d.number == 0 and not c["allowzero"]:
            if i >= x.rank:
                raise OpenError("a Reshape that copies a dimension which is not there")
            dims.append(x.shape[i])
        elif d.number == -1:
            dims.append(None)
        else:
            c.scope.require(ge(d, 1), "a Reshape to an empty shape")
            dims.append(d)
    return reshaped(c, x, fitted(c, x, dims))


def fitted(c: Call, x: Tensor, dims: Sequence[Int | None]) -> list[Int]:
    """A shape of as many elements as a tensor has, in which one dimension is left open."""
    elements = c.facts.norm(product(x.shape))
    given = c.facts.norm(product(d for d in dims if d is not None))
    if None not in dims:
        c.scope.require(eq(elements, given), f"a Reshape of {elements} elements to {given}")
        return [d for d in dims if d is not None]
    over, rest = divided(elements, given)
    if rest != ZERO:
        left = symbol("count", f"{elements}/{given}")
        if c.scope.after and not c.facts.prove(eq(elements, given * c.facts.quotient(elements, given))):
            raise OpenError(f"the replacement may be undefined: a Reshape of {elements} elements by {given}")
        c.facts.assume(ge(left, 1))
        c.facts.assume(eq(given * left, elements))
        over = c.facts.norm(left)
    return [over if d is None else d for d in dims]


@operator("Flatten")
def _flatten(c: Call) -> Result:
    x, axis = c.arg(0), c["axis"]
    axis = axis if axis == x.rank else front(axis, x.rank)
    return reshaped(c, x, (product(x.shape[:axis]), product(x.shape[axis:])))


def _axes(c: Call) -> list[int] | None:
    given = c.opt(1)
    found = given.numbers if given is not None else c.attributes.get("axes")
    return None if found is None else list(found)


@operator("Squeeze")
def _squeeze(c: Call) -> Result:
    x, axes = c.arg(0), _axes(c)
    if axes is None:
        gone = {a for a, d in enumerate(x.shape) if c.facts.decide(eq(d, 1))}
    else:
        gone = set(c.axes(axes, x.rank))
        for a in gone:
            c.scope.require(eq(x.shape[a], 1), "a Squeeze of a dimension that is not 1")
    kept = [a for a in range(x.rank) if a not in gone]

    def at(index: Index) -> Any:
        where = dict(zip(kept, index, strict=True))
        return x.at(tuple(where.get(a, ZERO) for a in range(x.rank)))

    return c.result([x.shape[a] for a in kept], at, ints=x.ints, fill=x.fill)


@operator("Unsqueeze")
def _unsqueeze(c: Call) -> Result:
    x, axes = c.arg(0), _axes(c) or []
    rank = x.rank + len(axes)
    new = set(c.axes(axes, rank))
    shape = list(x.shape)
    for a in sorted(new):
        shape.insert(a, ONE)
    return c.result(
        shape, lambda index: x.at(tuple(i for a, i in enumerate(index) if a not in new)), ints=x.ints, fill=x.fill
    )


@operator("Concat")
def _concat(c: Call) -> Result:
    parts = [c.arg(i) for i in range(len(c.x))]
    if not parts:
        raise OpenError("a Concat of nothing")
    axis = c.axis(c.attributes["axis"], parts[0].rank)
    for other in parts[1:]:
        if other.rank != parts[0].rank:
            raise OpenError("a Concat of different ranks")
        for a, (d, e) in enumerate(zip(parts[0].shape, other.shape, strict=True)):
            if a != axis:
                c.scope.require(eq(d, e), "a Concat of different dimensions", checked=True)
    shape = _put(parts[0].shape, axis, total(p.shape[axis] for p in parts))
    ints = None
    if all(p.ints is not None for p in parts) and parts[0].rank == 1:
        ints = tuple(i for p in parts for i in p.ints or ())

    def at(index: Index) -> Any:
        i = index[axis]
        for part in parts[:-1]:
            if c.facts.decide(lt(i, part.shape[axis])):
                return part.at(_put(index, axis, i))
            i = c.facts.norm(i - part.shape[axis])
        return parts[-1].at(_put(index, axis, i))

    return c.result(shape, at, ints=ints)


@operator("Split")
def _split(c: Call) -> Result:
    x, given = c.arg(0), c.opt(1)
    axis = c.axis(c["axis"], x.rank)
    size = x.shape[axis]
    if given is not None and given.ints is None:
        raise OpenError("a Split into sizes that are not known")
    named = c.attributes.get("split") if given is None else given.ints
    if named is None:
        chunk = c.facts.quotient(size + (c.outputs - 1), whole(c.outputs))
        if c.scope.opset < 18:
            c.scope.require(eq(chunk * c.outputs, size), "a Split into unequal parts")
        sizes = [chunk] * (c.outputs - 1)
        sizes.append(size - chunk * (c.outputs - 1))
        c.scope.require(ge(sizes[-1]), "a Split into more parts than there are")
    else:
        sizes = [whole(n) for n in named]
        if len(sizes) != c.outputs:
            raise OpenError("a Split into as many parts as it has no outputs")
        for n in sizes:
            c.scope.require(ge(n), "a Split into negative sizes")
        c.scope.require(eq(total(sizes), size), "a Split whose sizes do not add up")
    made, start = [], ZERO
    for n in sizes:
        made.append(_part(c, x, axis, start, n))
        start = start + n
    return made


def _part(c: Call, x: Tensor, axis: int, start: Int, n: Int, step: int = 1) -> Tensor:
    return c.result(
        _put(x.shape, axis, c.facts.norm(n)),
        lambda index: x.at(_put(index, axis, index[axis] * step + start)),
        fill=x.fill,
    )


@operator("Slice")
def _slice(c: Call) -> Result:
    x = c.arg(0)
    if c.scope.opset < 10:
        raise OpenError("Slice before 10")
    starts, ends = c.arg(1).ints, c.arg(2).ints
    if starts is None or ends is None:
        raise OpenError("a Slice between ends that are not known")
    over, steps = c.opt(3), c.opt(4)
    axes = list(range(len(starts))) if over is None else over.numbers
    strides = [1] * len(starts) if steps is None else steps.numbers
    ints = x.ints
    for start, end, axis, step in zip(starts, ends, c.axes(axes, x.rank), strides, strict=True):
        if ints is not None and x.rank == 1:
            numbers = (start.number, end.number)
            ints = ints[slice(*numbers, step)] if None not in numbers else None
        x = _sliced(c, x, axis, start, end, step)
    return c.result(x.shape, x.at, ints=ints, fill=x.fill)


def _sliced(c: Call, x: Tensor, axis: int, start: Int, end: Int, step: int) -> Tensor:
    n = x.shape[axis]
    first, last = _clamped(c, start, n), _clamped(c, end, n)
    if step == 1:
        if not c.facts.decide(ge(last, first)):
            last = first
        return _part(c, x, axis, first, last - first)
    if step > 1:
        if not c.facts.decide(ge(last, first + 1)):
            raise OpenError("an empty Slice")
        return _part(c, x, axis, first, c.facts.quotient(last - first + (step - 1), whole(step)), step)
    # Backwards: from the first, which is an element, down to one after the last, -1 before all.
    if start.number is None or end.number is None:
        raise OpenError("a Slice backwards between ends that are not numbers")
    high = n - 1 if start.number >= _END or start.number == -1 else None
    low = whole(-1) if end.number <= -_END else None
    if high is None or low is None:
        raise OpenError("a Slice backwards of a part")
    return _part(c, x, axis, high, c.facts.quotient(high - low + (-step - 1), whole(-step)), step)


def _clamped(c: Call, at: Int, n: Int) -> Int:
    """A position between 0 and n, a negative one counted from the end."""
    if at.number is not None and at.number >= _END:
        return n
    if at.number is not None and at.number <= -_END:
        return ZERO
    if not c.facts.decide(ge(at)):
        at = at + n
        if not c.facts.decide(ge(at)):
            return ZERO
    return at if c.facts.decide(ge(n, at)) else n


@operator("Gather")
def _gather(c: Call) -> Result:
    x, picks = c.arg(0), c.arg(1)
    axis = c.axis(c["axis"], x.rank)
    shape = (*x.shape[:axis], *picks.shape, *x.shape[axis + 1 :])
    n = x.shape[axis]
    if picks.ints is None:
        raise OpenError("a Gather at positions that are not known")
    places = []
    for p in picks.ints:
        p = p if c.facts.decide(ge(p)) else p + n
        c.scope.require(ge(p), "a Gather outside the tensor")
        c.scope.require(lt(p, n), "a Gather outside the tensor")
        places.append(p)
    ints = None
    if x.ints is not None and x.rank == 1 and picks.rank <= 1 and all(p.number is not None for p in places):
        ints = tuple(x.ints[p.number or 0] for p in places)

    def at(index: Index) -> Any:
        inner = index[axis : axis + picks.rank]
        position = flat(inner, picks.shape)
        place = places[-1]
        if position.number is not None:
            place = places[position.number]
        else:
            for i, candidate in enumerate(places[:-1]):
                if c.facts.decide(eq(position, i)):
                    place = candidate
                    break
        return x.at((*index[:axis], place, *index[axis + picks.rank :]))

    return c.result(shape, at, ints=ints)


@operator("Pad")
def _pad(c: Call) -> Result:
    x, fill, over = c.arg(0), c.opt(2), c.opt(3)
    if c.scope.opset < 11 or c["mode"] != "constant":
        raise OpenError("this form of Pad")
    given = c.arg(1).ints
    if given is None:
        raise OpenError("a Pad by what is not known")
    axes = list(range(x.rank)) if over is None else c.axes(over.numbers, x.rank)
    width = {axis: (given[i], given[len(given) // 2 + i]) for i, axis in enumerate(axes)}
    shape = []
    for axis, d in enumerate(x.shape):
        before, after = width.get(axis, (ZERO, ZERO))
        shape.append(c.facts.norm(d + before + after))
        c.scope.require(ge(shape[-1], 1), "a Pad to nothing")
        # What is cut off on one side must not reach into what is added on the other.
        c.scope.require(ge(d + before), "a Pad that takes more than there is")
        c.scope.require(ge(d + after), "a Pad that takes more than there is")

    nothing = (fill is None or (fill.fill == 0 and fill.const)) and x.dtype in FLOATS and not c.d.exact

    def at(index: Index) -> Any:
        if nothing and any(a.kind == "fresh" for i in index for a in i.leaves):  # in a sum
            where = tuple(c.facts.norm(i - width.get(axis, (ZERO, ZERO))[0]) for axis, i in enumerate(index))
            conds = [
                cond
                for axis in width
                if width[axis] != (ZERO, ZERO)
                for cond in (ge(where[axis]), lt(where[axis], x.shape[axis]))
            ]
            return c.d.guarded(conds, lambda: x.at(where))
        place = []
        outside = False
        for axis, d in enumerate(x.shape):
            before, after = width.get(axis, (ZERO, ZERO))
            i = c.facts.norm(index[axis] - before)
            if before.number == 0 and after.number == 0:
                place.append(i)
                continue
            if outside or not c.facts.decide(ge(i)) or not c.facts.decide(lt(i, d)):
                outside = True
            place.append(i)
        if not outside:
            return x.at(tuple(place))
        if fill is None:
            return NOUGHT
        return fill.at((ZERO,) * fill.rank)

    return c.result(shape, at)


@operator("Expand")
def _expand(c: Call) -> Result:
    x, target = c.arg(0), c.arg(1)
    if target.ints is None:
        raise OpenError("an Expand to a shape that is not known")
    for d in target.ints:
        c.scope.require(ge(d, 1), "an Expand to an empty shape")
    shape = joint_shape(c, [x.shape, target.ints])
    return c.result(shape, lambda index: stretched(c, x, index, shape), fill=x.fill)


@operator("Tile")
def _tile(c: Call) -> Result:
    x, repeats = c.arg(0), c.arg(1).ints
    if repeats is None or len(repeats) != x.rank:
        raise OpenError("a Tile whose repeats are not known")
    for r in repeats:
        c.scope.require(ge(r, 1), "a Tile to nothing")

    def at(index: Index) -> Any:
        return x.at(
            tuple(i if r == ONE else c.facts.remainder(i, d) for i, r, d in zip(index, repeats, x.shape, strict=True))
        )

    return c.result([d * r for d, r in zip(x.shape, repeats, strict=True)], at, fill=x.fill)


@operator("Shape")
def _shape(c: Call) -> Result:
    x = c.arg(0)
    dims = x.shape[c["start"] : c["end"]]
    made = constant_ints(c.scope, [c.facts.norm(d) for d in dims], (whole(len(dims)),))
    return replace(made, const=x.const)


@operator("Size")
def _size(c: Call) -> Result:
    return replace(constant_ints(c.scope, [c.facts.norm(product(c.arg(0).shape))], ()), const=c.arg(0).const)


@operator("ConstantOfShape")
def _constant_of_shape(c: Call) -> Result:
    dims, tensor = c.arg(0).ints, c.attributes.get("value")
    if dims is None:
        raise OpenError("a ConstantOfShape that is not known")
    value = 0.0 if tensor is None else float(tensor.numpy().reshape(()))
    made = constant(c.scope, "f32" if tensor is None else tensor.type.dtype, tuple(dims), value)
    return c.result(made.shape, made.at, made.dtype, fill=value)


@operator("Trilu")
def _trilu(c: Call) -> Result:
    x, k = c.arg(0), c.opt(1)
    shift = ZERO if k is None else (k.ints or ())[0]

    def at(index: Index) -> Any:
        row, column = index[-2], index[-1]
        inside = ge(column - row, shift) if c.attributes.get("upper", 1) else ge(shift, column - row)
        return x.at(index) if c.facts.decide(inside) else NOUGHT

    return c.result(x.shape, at)


@operator("DepthToSpace")
def _depth_to_space(c: Call) -> Result:
    x, b = c.arg(0), whole(c.attributes["blocksize"])
    n, channels, h, w = x.shape
    depth, rest = divided(channels, b * b)
    if rest != ZERO:
        channels = c.facts.norm(channels)
        if c.scope.after:
            raise OpenError("DepthToSpace of channels that are not seen to fit")
        depth = symbol("count", f"{channels}/{b * b}")
        c.facts.assume(ge(depth, 1))
        c.facts.assume(eq(depth * b * b, channels))
        depth = c.facts.norm(depth)
    crd = c["mode"] == "CRD"
    apart = reshaped(c, x, (n, depth, b, b, h, w) if crd else (n, b, b, depth, h, w))

    def at(index: Index) -> Any:
        i, d, p, q = index
        y, v = c.facts.quotient(p, b), c.facts.remainder(p, b)
        z, u = c.facts.quotient(q, b), c.facts.remainder(q, b)
        return apart.at((i, d, v, u, y, z) if crd else (i, v, u, d, y, z))

    return c.result((n, depth, h * b, w * b), at)


@operator("Resize")
def _resize(c: Call) -> Result:
    x, factors = c.arg(0), c.opt(2)
    plain = {"mode": "nearest", "coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
    data = (
        None
        if factors is None or factors.dtype not in FLOATS
        else [factors.at((whole(i),)).number for i in range(x.rank)]
    )
    if data is None or len(c.x) > 3 or any(c.attributes.get(k) != v for k, v in plain.items()):
        raise OpenError("this form of Resize")
    if any(f is None or f.denominator != 1 for f in data):
        raise OpenError("a Resize by what is no whole number")
    times = [whole(int(f)) for f in data if f is not None]

    def at(index: Index) -> Any:
        return x.at(tuple(c.facts.quotient(i, f) for i, f in zip(index, times, strict=True)))

    return c.result([d * f for d, f in zip(x.shape, times, strict=True)], at)
