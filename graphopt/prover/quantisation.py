"""What quantising means, and taking it back.

Whole numbers stand for real ones, ``(q - zero point) * scale``. What is quantised was divided by the scale, rounded to the nearest whole
number, moved by the zero point and kept in the range of its type: of this, rounding and range are one function that is not looked into.
"""

from __future__ import annotations

import numpy as np

from graphopt.ir.types import Array
from graphopt.prover.domains import QUANTISE
from graphopt.prover.semantics import Call, ContradictionError, Result, UnsupportedError, front, operator

_WHOLE = frozenset({"i8", "u8", "i16", "u16", "i32"})


@operator("DequantizeLinear")
def _dequantise(c: Call) -> Result:
    x, d = c.arg(0), c.d
    if c.of[0] not in _WHOLE:
        raise UnsupportedError(f"DequantizeLinear of {c.of[0]}")
    scale, zero = _along(c, c.arg(1), x), c.opt(2)
    if zero is not None:
        x = d.add(_element(c, x), d.neg(_along(c, _element(c, zero), x)))
    return d.mul(_element(c, x), scale)


@operator("QuantizeLinear")
def _quantise(c: Call) -> Result:
    x, d = c.arg(0), c.d
    if not d.holds(x):
        raise UnsupportedError("QuantizeLinear of integers")
    if c.to[0] not in _WHOLE:
        raise UnsupportedError(f"QuantizeLinear to {c.to[0]}")
    zero = c.number(0) if c.opt(2) is None else _element(c, c.arg(2))
    level = d.div(x, _along(c, c.arg(1), x))
    return d.func(QUANTISE + str(c.to[0]), level, np.broadcast_to(_along(c, zero, x), level.shape))


def _element(c: Call, x: Array) -> Array:
    return x if c.d.holds(x) else c.d.constant(x)


def _along(c: Call, a: Array, x: Array) -> Array:
    """A scale or zero point, one for all or one for each place along the axis, to go with a tensor."""
    if a.size == 1:
        return a.reshape(())
    if a.ndim != 1:
        raise UnsupportedError(f"{c.op} of blocks")
    axis = front(c["axis"], x.ndim)
    if x.shape[axis] != len(a):
        raise ContradictionError(f"{len(a)} scales along an axis of {x.shape[axis]}")
    return a.reshape([-1 if i == axis else 1 for i in range(x.ndim)])
