"""What a floating-point constant stands for: the number its author meant.

A rule that claims equality of real functions writes ``0.1`` and means one tenth, not the nearest float32. The prover
computes with what is meant; how far rounding may carry the two sides apart is the business of the numeric checks.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache

_RELATIVE = 1.2e-7  # half a unit in the last place of a float32, doubled for one rounding more
_DENOMINATORS = (1000, 10_000, 100_000, 1_000_000)


@dataclass(frozen=True)
class Exact:
    """A rational number times the square roots of two and of pi, each to a whole power.

    Attributes:
        rational: The rational factor.
        root2: Power of the square root of 2.
        rootpi: Power of the square root of pi.
    """

    rational: Fraction
    root2: int = 0
    rootpi: int = 0


_IRRATIONAL = {
    math.sqrt(2): Exact(Fraction(1), 1),
    1 / math.sqrt(2): Exact(Fraction(1, 2), 1),
    math.sqrt(2 / math.pi): Exact(Fraction(1), 1, -1),
    math.sqrt(math.pi / 2): Exact(Fraction(1, 2), 1, 1),
    2 / math.sqrt(math.pi): Exact(Fraction(2), 0, -1),
}


@lru_cache(maxsize=1 << 16)
def meant(value: float) -> Exact | None:
    """The number that a float stands for; ``None`` for infinities and NaN.

    Known irrational numbers first, then the fraction of the smallest denominator that rounds to the float, else the
    float itself, which is a rational number too.
    """
    if not math.isfinite(value):
        return None
    if value == int(value):
        return Exact(Fraction(int(value)))
    for number, exact in _IRRATIONAL.items():
        if math.isclose(abs(value), number, rel_tol=_RELATIVE):
            return exact if value > 0 else Exact(-exact.rational, exact.root2, exact.rootpi)
    whole = Fraction(value)
    for limit in _DENOMINATORS:
        near = whole.limit_denominator(limit)
        if near and abs(near - whole) <= abs(whole) * Fraction(_RELATIVE):
            return Exact(near)
    # Small numbers such as 1e-12: the decimal fraction that was written.
    decimal = Fraction(f"{value:.6g}")
    if abs(decimal - whole) <= abs(whole) * Fraction(_RELATIVE):
        return Exact(decimal)
    return Exact(whole)
