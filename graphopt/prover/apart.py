"""How far results lie apart: the helpers with which the attack tells a difference from a rounding."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from graphopt.ir.types import Array

NEAR = 8.0  # last places of the largest result, within which both sides count as the same


def furthest_of(made: Sequence[Array], others: Sequence[Sequence[Array]]) -> list[Array]:
    """:func:`furthest` of each output."""
    with np.errstate(all="ignore"):
        return [furthest(one, many) for one, *many in zip(made, *others, strict=True)]


def furthest(made: Array, others: Sequence[Array]) -> Array:
    """Of several results that of each element which is furthest from a first one; of what are no floats, any that differs."""
    found = others[0]
    for other in others[1:]:
        further = np.abs(other - made) > np.abs(found - made) if made.dtype.kind == "f" else other != made
        found = np.where(further, other, found)
    return found


def size(a: Array) -> float:
    """The largest finite number of an array in size."""
    if a.dtype.kind != "f":
        return 0.0
    return float(np.abs(a[np.isfinite(a)]).max(initial=0.0))


def near(a: Array, b: Array) -> bool:
    """Whether two results differ so little that no reference has to be asked."""
    if a.shape != b.shape or a.dtype != b.dtype or a.dtype.kind != "f":
        return a.shape == b.shape and bool(np.array_equal(a, b))
    with np.errstate(all="ignore"):
        finite = np.isfinite(a)
        scale = np.abs(a[finite]).max(initial=0.0)
        return bool(np.all(np.abs(a[finite] - b[finite]) <= NEAR * float(np.finfo(a.dtype).eps) * scale))


def unit(dtype: Any) -> float:
    """The last place of a number near 1. Of float64 it is a coarser one: the reference has no more places itself."""
    return max(float(np.finfo(dtype).eps), 2.0**-42)
