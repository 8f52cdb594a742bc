"""Resize over any domain of elements: along each axis a sum of neighbours, with weights that are fractions."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction

import numpy as np

from graphopt.ir.types import Array
from graphopt.prover.linear import total
from graphopt.prover.semantics import Call, ContradictionError, Result, UnsupportedError, front, operator

_OTHERWISE = {"keep_aspect_ratio_policy": "stretch", "antialias": 0}
_ROUNDED = {
    "floor": math.floor,
    "ceil": math.ceil,
    "round_prefer_floor": lambda x: math.ceil(x - Fraction(1, 2)),
    "round_prefer_ceil": lambda x: math.floor(x + Fraction(1, 2)),
}

Taps = list[tuple[int, Fraction]]
"""Places of the input and how much each of them counts."""


@operator("Resize")
def _resize(c: Call) -> Result:
    x, mode = c.arg(0), c["mode"] or "nearest"
    how = c["coordinate_transformation_mode"] or "half_pixel"
    if any((c[name] or value) != value for name, value in _OTHERWISE.items()) or how == "tf_crop_and_resize":
        raise UnsupportedError("this form of Resize")
    axes = [front(axis, x.ndim) for axis in c["axes"]] if c["axes"] else range(x.ndim)
    for axis, (factor, out) in zip(axes, _factors(c, x, axes), strict=True):
        size = x.shape[axis]
        if out == size and factor == 1:
            continue
        if out <= 0 or size <= 0:
            raise ContradictionError("a Resize of nothing, or to nothing")
        places = [_place(how, i, factor, size, out) for i in range(out)]
        if mode == "nearest":
            rounded = _ROUNDED[c["nearest_mode"] or "round_prefer_floor"]
            x = np.take(x, [min(max(rounded(p), 0), size - 1) for p in places], axis)
        else:
            x = _mixed(c, x, axis, [_taps(c, mode, p, size) for p in places])
    return x


def _factors(c: Call, x: Array, axes: Sequence[int]) -> list[tuple[Fraction, int]]:
    """By how much each of the axes becomes larger, and its size then."""
    factors, sizes = (c.known[i] if len(c.known) > i else None for i in (2, 3))
    if sizes is not None and sizes.size == len(axes):
        return [(Fraction(int(n), max(x.shape[a], 1)), int(n)) for a, n in zip(axes, sizes.tolist(), strict=True)]
    if factors is None or factors.size != len(axes):
        raise UnsupportedError("this form of Resize")
    return [(Fraction(f), math.floor(x.shape[a] * Fraction(f))) for a, f in zip(axes, factors.tolist(), strict=True)]


def _place(how: str, i: int, factor: Fraction, size: int, out: int) -> Fraction:
    """Where in the input a result lies."""
    half = Fraction(1, 2)
    if how == "asymmetric":
        return i / factor
    if how == "align_corners":
        return Fraction(i * (size - 1), out - 1) if out > 1 else Fraction(0)
    if how == "half_pixel" or (how == "pytorch_half_pixel" and out > 1):
        return (i + half) / factor - half
    if how == "pytorch_half_pixel":
        return Fraction(0)
    if how == "half_pixel_symmetric":
        return Fraction(size, 2) * (1 - Fraction(out) / (size * factor)) + (i + half) / factor - half
    raise UnsupportedError("this form of Resize")


def _taps(c: Call, mode: str, place: Fraction, size: int) -> Taps:
    """The neighbours of a place and their weights."""
    if mode == "linear":
        place = min(max(place, Fraction(0)), Fraction(size - 1))
        first = math.floor(place)
        part = place - first
        return [(first, 1 - part), (min(first + 1, size - 1), part)]
    if mode != "cubic":
        raise UnsupportedError("this form of Resize")
    first = math.floor(place)
    a = Fraction(float(np.float32(-0.75 if c["cubic_coeff_a"] is None else c["cubic_coeff_a"])))
    found = [(first + i, _cubic(abs(place - first - i), a)) for i in (-1, 0, 1, 2)]
    if c["exclude_outside"]:
        found = [(at, weight) for at, weight in found if 0 <= at < size]
        whole = sum(weight for _, weight in found)
        return [(at, weight / whole) for at, weight in found]
    return [(min(max(at, 0), size - 1), weight) for at, weight in found]


def _cubic(s: Fraction, a: Fraction) -> Fraction:
    """How much a place counts at a distance (Keys 1981)."""
    return ((a + 2) * s - (a + 3)) * s * s + 1 if s <= 1 else ((s - 5) * s + 8) * s * a - 4 * a


def _mixed(c: Call, x: Array, axis: int, taps: list[Taps]) -> Array:
    """What the taps of each result along an axis come to."""
    if not c.d.holds(x):
        raise UnsupportedError("Resize of integers between their places")
    many = max(map(len, taps))
    taps = [[*row, *[(0, Fraction(0))] * (many - len(row))] for row in taps]
    below = math.lcm(*(weight.denominator for row in taps for _, weight in row))
    if below > 1 << 40:
        raise UnsupportedError("a Resize by such a factor")
    places = np.array([[at for at, _ in row] for row in taps])
    weights = np.array([[float(weight * below) for _, weight in row] for row in taps])
    near = np.moveaxis(np.take(x, places, axis), (axis, axis + 1), (-2, -1))  # ..., results, taps
    made = total(c, c.d.mul(near, c.d.constant(weights)), near.ndim - 1)
    return np.moveaxis(c.d.div(made, c.number(below)), -1, axis)
