"""Operators that take parts of a tensor and put parts together, at one index of a tensor of any size."""

from __future__ import annotations

from typing import Any

from graphopt.ir.types import FLOATS
from graphopt.prover.generic.facts import OpenError, flat
from graphopt.prover.generic.propositions import eq, ge, lt
from graphopt.prover.generic.sizes import ZERO, Int, total, whole
from graphopt.prover.generic.tensors import (
    Call,
    Index,
    Result,
    Tensor,
    operator,
)
from graphopt.prover.generic.terms import ZERO as NOUGHT

_END = 2**31 - 1


def _put(index: Index, axis: int, i: Int) -> Index:
    return (*index[:axis], i, *index[axis + 1 :])


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
