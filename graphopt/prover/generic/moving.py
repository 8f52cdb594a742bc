"""Operators that give the elements of a tensor another place or shape, at one index of a tensor of any size."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from graphopt.ir.types import FLOATS
from graphopt.prover.generic.facts import OpenError, flat, unflat
from graphopt.prover.generic.propositions import eq, ge
from graphopt.prover.generic.sizes import ONE, ZERO, Int, divided, product, symbol, whole
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
