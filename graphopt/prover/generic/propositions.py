"""Conditions on whole numbers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from graphopt.prover.generic.sizes import (
    Atom,
    Int,
    Whole,
    leaves_of,
    whole,
)


@dataclass(frozen=True)
class Cond:
    """A condition on whole numbers.

    Attributes:
        kind: ``ge`` (a polynomial is not negative), ``eq`` or ``ne`` (it is, or is not, 0), ``or``, ``and``.
        args: The polynomial, or conditions.
    """

    kind: str
    args: tuple[Any, ...]

    @property
    def leaves(self) -> frozenset[Atom]:
        """The symbols in it."""
        return leaves_of(self.args)

    @property
    def height(self) -> int:
        """Of the variables bound in it."""
        return max((a.height for a in self.args), default=0)

    def __str__(self) -> str:
        return f"{self.kind}({','.join(sorted(map(str, self.args)))})"

    def __invert__(self) -> Cond:
        match self.kind:
            case "ge":
                return Cond("ge", (-self.args[0] - 1,))
            case "eq" | "ne":
                return Cond("ne" if self.kind == "eq" else "eq", self.args)
        return Cond("and" if self.kind == "or" else "or", tuple(~a for a in self.args))

    def mapped(self, change: Callable[[Int], Int]) -> Cond:
        """With its polynomials changed."""
        if self.kind in ("or", "and"):
            return Cond(self.kind, tuple(a.mapped(change) for a in self.args))
        p = change(self.args[0])
        if self.kind in ("eq", "ne") and str(-p) < str(p):
            p = -p
        return Cond(self.kind, (p,))


def ge(a: Whole, b: Whole = 0) -> Cond:
    """A >= b."""
    return Cond("ge", (whole(a) - b,))


def lt(a: Whole, b: Whole) -> Cond:
    """A < b."""
    return Cond("ge", (whole(b) - a - 1,))


def eq(a: Whole, b: Whole = 0) -> Cond:
    """A == b."""
    return Cond("eq", (whole(a) - b,)).mapped(lambda p: p)


def either(*conds: Cond) -> Cond:
    """One of the conditions."""
    return Cond("or", conds)
