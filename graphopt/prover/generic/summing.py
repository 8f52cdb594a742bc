"""Reductions, normalisation and products, at one index of a tensor of any size."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from graphopt.ir.types import FLOATS
from graphopt.prover.generic.elements import plain
from graphopt.prover.generic.facts import OpenError
from graphopt.prover.generic.propositions import eq
from graphopt.prover.generic.sizes import ONE, ZERO, Int, product
from graphopt.prover.generic.tensors import (
    Call,
    Index,
    Result,
    Shape,
    Tensor,
    joint_shape,
    operator,
    stretched,
)
from graphopt.prover.generic.terms import ONE as UNIT
from graphopt.prover.generic.terms import Real

Body = Callable[[Index], Real]


def summed(c: Call, sizes: Sequence[Int], body: Body, kind: str = "sum") -> Real:
    """The sum, maximum or product of the body over all indices of a shape."""
    sizes = [c.facts.norm(n) for n in sizes]

    def inner(held: Index) -> Real:
        if len(held) == len(sizes):
            return body(held)
        n = sizes[len(held)]
        if n == ONE:
            return inner((*held, ZERO))
        if kind == "sum":
            return c.d.total(n, lambda k: inner((*held, k)))
        return c.d.over(kind, n, lambda k: inner((*held, k)))

    return inner(())


def _axes(c: Call) -> tuple[list[int], bool]:
    x, given = c.arg(0), c.opt(1)
    axes = c.attributes.get("axes") if given is None else given.numbers
    if axes is None or len(axes) == 0:
        axes = () if c["noop_with_empty_axes"] == 1 else tuple(range(x.rank))
    return sorted(c.axes(axes, x.rank)), c["keepdims"] == 1


def _along(c: Call, x: Tensor, axes: Sequence[int], keep: bool, reduce: Callable[[Body, list[Int]], Real]) -> Tensor:
    """A reduction: ``reduce`` gets the operand's element at an index into the reduced axes, and their sizes."""
    others = [a for a in range(x.rank) if a not in axes]
    shape = [ONE if a in axes else d for a, d in enumerate(x.shape) if keep or a not in axes]

    def at(index: Index) -> Real:
        outer = dict(zip(others, [index[a] for a in others] if keep else index, strict=True))

        def body(inner: Index) -> Real:
            where = {**outer, **dict(zip(axes, inner, strict=True))}
            found: Real = x.at(tuple(where[a] for a in range(x.rank)))
            return found

        return reduce(body, [x.shape[a] for a in axes])

    return c.result(shape, at)


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
    if x.dtype not in FLOATS and c.op not in ("ReduceSum", "ReduceMax", "ReduceMin"):
        raise OpenError(f"{c.op} of integers")
    axes, keep = _axes(c)
    before: dict[str, Callable[[Real], Real]] = {
        "ReduceSumSquare": lambda v: d.times(v, v),
        "ReduceL2": lambda v: d.times(v, v),
        "ReduceL1": lambda v: d.func("abs", v),
        "ReduceLogSumExp": lambda v: d.func("exp", v),
        "ReduceMin": d.neg,
    }
    after: dict[str, Callable[[Real], Real]] = {
        "ReduceL2": lambda v: d.func("sqrt", v),
        "ReduceLogSum": lambda v: d.func("log", v),
        "ReduceLogSumExp": lambda v: d.func("log", v),
        "ReduceMin": d.neg,
    }
    kind = {"ReduceMax": "max", "ReduceMin": "max", "ReduceProd": "product"}.get(c.op, "sum")

    def reduce(body: Body, sizes: list[Int]) -> Real:
        if kind == "max" and x.dtype not in FLOATS:
            body = _checked(c, body)
        first = before.get(c.op)
        made = summed(c, sizes, body if first is None else lambda k: first(body(k)), kind)
        if c.op == "ReduceMean":
            made = d.quotient(made, d.size(c.facts.norm(product(sizes))))
        last = after.get(c.op)
        return made if last is None else last(made)

    return _along(c, x, axes, keep, reduce)


def _checked(c: Call, body: Body) -> Body:
    """Whole numbers that are compared must not have come of sums, which may wrap around."""

    def run(index: Index) -> Real:
        value = body(index)
        if not plain(value):
            raise OpenError(f"{c.op} of sums of integers")
        return value

    return run


@operator("GlobalAveragePool", "GlobalMaxPool")
def _global_pool(c: Call) -> Result:
    x, d = c.arg(0), c.d
    average = c.op == "GlobalAveragePool"

    def reduce(body: Body, sizes: list[Int]) -> Real:
        made = summed(c, sizes, body, "sum" if average else "max")
        return d.quotient(made, d.size(c.facts.norm(product(sizes)))) if average else made

    return _along(c, x, range(2, x.rank), True, reduce)


@operator("Softmax", "LogSoftmax")
def _softmax(c: Call) -> Result:
    x, d = c.arg(0), c.d
    axis = c.axis(c["axis"], x.rank)
    axes = [axis] if c.scope.opset >= 13 else list(range(axis, x.rank))
    sums = _along(c, x, axes, True, lambda body, sizes: summed(c, sizes, lambda k: d.func("exp", body(k))))

    def at(index: Index) -> Real:
        below = sums.at(tuple(ZERO if a in axes else i for a, i in enumerate(index)))
        if c.op == "Softmax":
            return d.quotient(d.func("exp", x.at(index)), below)
        return d.plus(x.at(index), d.neg(d.func("log", below)))

    return c.result(x.shape, at)


# Normalisation -------------------------------------------------------------------------------------------------------


def _mean(c: Call, sizes: list[Int], body: Body) -> Real:
    return c.d.quotient(summed(c, sizes, body), c.d.size(c.facts.norm(product(sizes))))


@operator("LayerNormalization", "RMSNormalization", "SimplifiedLayerNormalization")
def _layer_norm(c: Call) -> Result:
    x, d = c.arg(0), c.d
    if c.outputs > 1:
        raise OpenError("LayerNormalization with statistics as outputs")
    axes = list(range(c.axis(c["axis"], x.rank), x.rank))
    scale, shift = c.arg(1), c.opt(2)
    _fits(c, x, scale, shift)
    away = x
    if c.op == "LayerNormalization":
        means = _along(c, x, axes, True, lambda body, sizes: _mean(c, sizes, body))
        away = c.result(x.shape, lambda i: d.plus(x.at(i), d.neg(means.at(_flat(i, axes)))))
    squares = _along(c, away, axes, True, lambda body, sizes: _mean(c, sizes, lambda k: d.times(body(k), body(k))))

    def at(index: Index) -> Real:
        deviation = d.func("sqrt", d.plus(squares.at(_flat(index, axes)), d.const(c["epsilon"])))
        return _affine(c, d.quotient(away.at(index), deviation), index, x.shape, scale, shift)

    return c.result(x.shape, at)


def _flat(index: Index, axes: Sequence[int]) -> Index:
    return tuple(ZERO if a in axes else i for a, i in enumerate(index))


def _fits(c: Call, x: Tensor, *others: Tensor | None) -> None:
    """Operands that broadcast to another leave its shape as it is."""
    for other in others:
        if other is None:
            continue
        if other.rank > x.rank:
            raise OpenError(f"{c.op} with an operand of a higher rank")
        for a, b in zip(joint_shape(c, [x.shape, other.shape]), x.shape, strict=True):
            c.scope.require(eq(a, b), f"{c.op} with an operand that is larger")


def _affine(c: Call, value: Real, index: Index, shape: Shape, scale: Tensor, shift: Tensor | None) -> Real:
    made = c.d.times(value, stretched(c, scale, index, shape))
    return made if shift is None else c.d.plus(made, stretched(c, shift, index, shape))


@operator("InstanceNormalization")
def _instance_norm(c: Call) -> Result:
    x, scale, shift, d = c.arg(0), c.arg(1), c.arg(2), c.d
    for other in (scale, shift):
        c.scope.require(eq(other.shape[0], x.shape[1]), "an InstanceNormalization whose channels do not fit")
    axes = list(range(2, x.rank))
    means = _along(c, x, axes, True, lambda body, sizes: _mean(c, sizes, body))
    away = c.result(x.shape, lambda i: d.plus(x.at(i), d.neg(means.at(_flat(i, axes)))))
    squares = _along(c, away, axes, True, lambda body, sizes: _mean(c, sizes, lambda k: d.times(body(k), body(k))))

    def at(index: Index) -> Real:
        deviation = d.func("sqrt", d.plus(squares.at(_flat(index, axes)), d.const(c["epsilon"])))
        made = d.quotient(away.at(index), deviation)
        return d.plus(d.times(made, scale.at((index[1],))), shift.at((index[1],)))

    return c.result(x.shape, at)


@operator("BatchNormalization")
def _batch_norm(c: Call) -> Result:
    x, d = c.arg(0), c.d
    if c["training_mode"] or c.outputs > 1 or x.rank < 2:
        raise OpenError("BatchNormalization in training")
    for i in range(1, 5):
        if c.arg(i).rank != 1:
            raise OpenError("a BatchNormalization whose channels do not fit")
        c.scope.require(eq(c.arg(i).shape[0], x.shape[1]), "a BatchNormalization whose channels do not fit")

    def at(index: Index) -> Real:
        scale, shift, mean, variance = (c.arg(i).at((index[1],)) for i in range(1, 5))
        deviation = d.func("sqrt", d.plus(variance, d.const(c["epsilon"])))
        away = d.quotient(d.plus(x.at(index), d.neg(mean)), deviation)
        return d.plus(d.times(away, scale), shift)

    return c.result(x.shape, at)


# Products ------------------------------------------------------------------------------------------------------------


def matmul(c: Call, a: Tensor, b: Tensor) -> Tensor:
    """The product as numpy's matmul."""
    if not a.rank or not b.rank:
        raise OpenError("a product with a number")
    left, right = a.rank == 1, b.rank == 1
    inner = a.shape[-1]
    c.scope.require(
        eq(inner, b.shape[0 if right else -2]),
        f"a product over {inner} and {b.shape[0 if right else -2]}",
        checked=True,
    )
    lead = joint_shape(c, [a.shape[:-2], b.shape[:-2]])
    shape = (*lead, *([] if left else [a.shape[-2]]), *([] if right else [b.shape[-1]]))

    def at(index: Index) -> Real:
        outer, rest = index[: len(lead)], list(index[len(lead) :])
        row = None if left else rest.pop(0)
        column = None if right else rest.pop(0)

        def body(k: Index) -> Real:
            first = _at_lead(c, a, outer, lead, (k[0],) if row is None else (row, k[0]))
            second = _at_lead(c, b, outer, lead, (k[0],) if column is None else (k[0], column))
            return c.d.times(first, second)

        return summed(c, [inner], body)

    return c.result(shape, at)


def _at_lead(c: Call, x: Tensor, outer: Index, lead: Shape, last: Index) -> Real:
    skip = len(lead) - (x.rank - len(last))
    where = tuple(c.facts.stretched(outer[skip + i], x.shape[i], lead[skip + i]) for i in range(x.rank - len(last)))
    found: Real = x.at((*where, *last))
    return found


@operator("MatMul")
def _matmul(c: Call) -> Result:
    return matmul(c, c.arg(0), c.arg(1))


def _turned(c: Call, x: Tensor, turn: Any) -> Tensor:
    if x.rank != 2:
        raise OpenError("a Gemm of what is no matrix")
    return c.result(x.shape[::-1], lambda index: x.at(index[::-1])) if turn else x


@operator("Gemm")
def _gemm(c: Call) -> Result:
    d, bias = c.d, c.opt(2)
    made = matmul(c, _turned(c, c.arg(0), c["transA"]), _turned(c, c.arg(1), c["transB"]))
    if c.arg(0).dtype not in FLOATS:
        raise OpenError("Gemm of integers")
    _fits(c, made, bias)

    def at(index: Index) -> Real:
        value = made.at(index)
        value = value if c["alpha"] == 1 else d.times(value, d.const(c["alpha"]))
        if bias is None:
            return value
        shift = stretched(c, bias, index, made.shape)
        return d.plus(value, shift if c["beta"] == 1 else d.times(shift, d.const(c["beta"])))

    return c.result(made.shape, at)


@operator("Einsum")
def _einsum(c: Call) -> Result:
    left, arrow, out = c.attributes["equation"].replace(" ", "").partition("->")
    terms = left.split(",")
    if not arrow or "." in left or any(len(set(t)) != len(t) for t in [*terms, out]):
        raise OpenError("this form of Einsum")
    sizes: dict[str, Int] = {}
    for i, term in enumerate(terms):
        if len(term) != c.arg(i).rank:
            raise OpenError("an Einsum whose ranks do not fit")
        for letter, n in zip(term, c.arg(i).shape, strict=True):
            c.scope.require(eq(sizes.setdefault(letter, n), n), "an Einsum whose sizes do not fit")
    inner = sorted(set("".join(terms)) - set(out))

    def at(index: Index) -> Real:
        def body(k: Index) -> Real:
            where = {**dict(zip(out, index, strict=True)), **dict(zip(inner, k, strict=True))}
            made = UNIT
            for i, term in enumerate(terms):
                value = c.arg(i).at(tuple(where[letter] for letter in term))
                made = value if i == 0 else c.d.times(made, value)
            return made

        return summed(c, [sizes[letter] for letter in inner], body)

    return c.result([sizes[letter] for letter in out], at)
