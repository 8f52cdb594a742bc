"""Convolution and pooling: windows that slide over an image of any size."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from graphopt.ir.types import FLOATS
from graphopt.prover.generic.facts import OpenError
from graphopt.prover.generic.propositions import Cond, eq, ge, lt
from graphopt.prover.generic.sizes import ONE, ZERO, Int, divided, product, symbol, whole
from graphopt.prover.generic.summing import summed
from graphopt.prover.generic.tensors import (
    Call,
    Index,
    Result,
    Tensor,
    operator,
)
from graphopt.prover.generic.terms import Real


def _windows(c: Call, kernel: Sequence[Int]) -> tuple[list[Any], list[Int], list[tuple[Int, Int]]]:
    """For each spatial axis the place of (output, offset), the number of outputs, and the padding on both sides."""
    x = c.arg(0)
    n = x.rank - 2
    strides, dilations = c["strides"] or (1,) * n, c["dilations"] or (1,) * n
    mode, pads = c["auto_pad"] or "NOTSET", [whole(p) for p in (c["pads"] or (0,) * (2 * n))]
    if len(pads) != 2 * n or len(strides) != n or len(dilations) != n or len(kernel) != n:
        raise OpenError(f"{c.op} whose attributes do not fit its rank")
    places, counts, padding = [], [], []
    for i in range(n):
        size, reach = x.shape[2 + i], (kernel[i] - 1) * dilations[i] + 1
        begin, end = pads[i], pads[n + i]
        if mode in ("SAME_UPPER", "SAME_LOWER"):
            out = c.facts.quotient(size + (strides[i] - 1), whole(strides[i]))
            both = (out - 1) * strides[i] + reach - size
            if not c.facts.decide(ge(both)):
                both = ZERO
            half = c.facts.quotient(both, whole(2))
            begin = half if mode == "SAME_UPPER" else both - half
            end = both - begin
        else:
            if mode == "VALID":
                begin = end = ZERO
            room = size + begin + end - reach
            c.scope.require(ge(room), "a window larger than the image")
            if c["ceil_mode"] and strides[i] != 1:
                raise OpenError("windows that are rounded up")
            out = c.facts.quotient(room, whole(strides[i])) + 1

        def place(o: Int, k: Int, i: int = i, begin: Int = begin) -> Int:
            return o * strides[i] + k * dilations[i] - begin

        places.append(place)
        counts.append(c.facts.norm(out))
        padding.append((begin, end))
    return places, counts, padding


def _inside(c: Call, x: Tensor, padding: Sequence[tuple[Int, Int]], where: Index) -> list[Cond]:
    """What has to hold for a place to be in the image and not in the padding."""
    conds = []
    for i, at in enumerate(where):
        begin, end = padding[i]
        conds += [ge(at)] if begin != ZERO else []
        conds += [lt(at, x.shape[2 + i])] if end != ZERO else []
    return conds


@operator("Conv")
def _conv(c: Call) -> Result:
    x, w, bias, d, group = c.arg(0), c.arg(1), c.opt(2), c.d, whole(c["group"])
    if x.rank != w.rank or x.dtype not in FLOATS or x.rank < 3:
        raise OpenError("a Conv whose ranks do not fit")
    c.scope.require(eq(x.shape[1], w.shape[1] * group), "a Conv whose channels do not fit")
    if bias is not None:
        c.scope.require(eq(bias.shape[0], w.shape[0]), "a Conv whose bias does not fit")
    named = c.attributes.get("kernel_shape")
    for given, n in zip(named or (), w.shape[2:], strict=False):
        c.scope.require(eq(n, given), "a Conv whose kernel_shape is not that of its weight")
    each = w.shape[0]
    if group != ONE:
        outputs = c.facts.norm(w.shape[0])
        each, rest = divided(outputs, group)
        if rest != ZERO:
            if c.scope.after and not c.facts.prove(eq(c.facts.quotient(outputs, group) * group, outputs)):
                raise OpenError("the replacement may be undefined: a Conv whose outputs do not fit its groups")
            each = symbol("count", f"{outputs}/{group}")
            c.facts.assume(ge(each, 1))
            c.facts.assume(eq(each * group, outputs))
            each = c.facts.norm(each)
    places, counts, padding = _windows(c, w.shape[2:])

    def at(index: Index) -> Real:
        n, o, *out = index
        first = ZERO if group == ONE else c.facts.quotient(o, each) * w.shape[1]

        def body(k: Index) -> Real:
            where = tuple(c.facts.norm(place(p, q)) for place, p, q in zip(places, out, k[1:], strict=True))

            def value() -> Real:
                return d.times(x.at((n, first + k[0], *where)), w.at((o, *k)))

            return d.guarded(_inside(c, x, padding, where), value)

        made = summed(c, w.shape[1:], body)
        return made if bias is None else d.plus(made, bias.at((o,)))

    return c.result((x.shape[0], w.shape[0], *counts), at)


@operator("FusedConv", domain="com.microsoft")
def _fused_conv(c: Call) -> Result:
    plain, other, d = _conv(replace(c, op="Conv", domain="", x=c.x[:3])), c.opt(3), c.d
    assert isinstance(plain, Tensor)
    if c.attributes.get("activation", "Relu") != "Relu":
        raise OpenError("FusedConv with another activation than Relu")
    if other is not None:
        if other.rank != plain.rank:
            raise OpenError("a FusedConv whose sum does not fit")
        for n, m in zip(other.shape, plain.shape, strict=True):
            c.scope.require(eq(n, m), "a FusedConv whose sum does not fit")

    def at(index: Index) -> Real:
        made: Real = plain.at(index) if other is None else d.plus(plain.at(index), other.at(index))
        return d.max(made, d.const(0.0)) if "activation" in c.attributes else made

    return c.result(plain.shape, at)


@operator("MaxPool", "AveragePool")
def _pool(c: Call) -> Result:
    x, d = c.arg(0), c.d
    if c.outputs > 1:
        raise OpenError("MaxPool with indices")
    kernel = [whole(k) for k in c.attributes["kernel_shape"]]
    places, counts, padding = _windows(c, kernel)
    padded = any(p != ZERO for both in padding for p in both)
    if c.op == "AveragePool" and padded and not (c["count_include_pad"] and (c["auto_pad"] or "NOTSET") == "NOTSET"):
        raise OpenError("an AveragePool that counts what is in the image")
    if c.op == "MaxPool":
        for k, (begin, end) in zip(kernel, padding, strict=True):
            c.scope.require(lt(begin, k), "a window of padding alone")
            c.scope.require(lt(end, k), "a window of padding alone")

    def at(index: Index) -> Real:
        n, channel, *out = index

        def body(k: Index) -> Real:
            where = tuple(c.facts.norm(place(p, q)) for place, p, q in zip(places, out, k, strict=True))

            def value() -> Real:
                found: Real = x.at((n, channel, *where))
                return found

            conds = _inside(c, x, padding, where)
            if c.op == "AveragePool":
                return d.guarded(conds, value)
            # A maximum is over what is in the image.
            return value() if all(c.facts.decide(cond) for cond in conds) else d.const(float("-inf"))

        if c.op == "MaxPool":
            return summed(c, kernel, body, "window")
        return d.quotient(summed(c, kernel, body), d.size(product(kernel)))

    return c.result((*x.shape[:2], *counts), at)
