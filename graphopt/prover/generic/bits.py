"""Elements bit for bit: an operator's result is a function of its operands, of which few laws are known.

Those are what floating-point numbers obey: addition and multiplication commute, signs move through products, 0 and 1 do
nothing; and whatever only chooses among its operands rounds nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from graphopt.prover.generic.facts import OpenError
from graphopt.prover.generic.reals import Reals
from graphopt.prover.generic.sizes import Atom, Int, atom
from graphopt.prover.generic.terms import ONE, ZERO, Change, Real, put_inside


class Bits(Reals):
    """Floating-point numbers. Signed zeros are not told apart."""

    exact = True

    def plus(self, a: Real, b: Real) -> Real:
        if not a.terms or not b.terms:
            return b if not a.terms else a
        if a == self.neg(b):
            return ZERO
        (a, s), (b, t) = self._signed(a), self._signed(b)
        if (str(b), t) < (str(a), s):
            a, s, b, t = b, t, a, s
        made = self.of(atom("op", "add", a, b if s == t else self.neg(b)))
        return self.neg(made) if s < 0 else made

    def times(self, a: Real, b: Real) -> Real:
        if not a.terms or not b.terms:
            return ZERO
        (a, s), (b, t) = self._signed(a), self._signed(b)
        if a == ONE or b == ONE:
            made = b if a == ONE else a
        else:
            a, b = sorted((a, b), key=str)
            made = self.of(atom("op", "mul", a, b))
        return self.neg(made) if s != t else made

    def quotient(self, a: Real, b: Real) -> Real:
        if not b.terms:
            raise OpenError("a division by zero")
        if not a.terms:
            return ZERO
        (a, s), (b, t) = self._signed(a), self._signed(b)
        made = a if b == ONE else self.of(atom("op", "div", a, b))
        return self.neg(made) if s != t else made

    def func(self, name: str, *operands: Real) -> Real:
        return self._abs(operands[0]) if name == "abs" else self.plain(name, *operands)

    def _signed(self, a: Real) -> tuple[Real, int]:
        return (self.neg(a), -1) if a.ordered()[0][1] < 0 else (a, 1)

    def total(self, size: Int, body: Callable[[Int], Real]) -> Real:
        return self._folded("add", size, body)

    def over(self, kind: str, size: Int, body: Callable[[Int], Real]) -> Real:
        return super().over(kind, size, body) if kind != "product" else self._folded("mul", size, body)

    def _folded(self, kind: str, size: Int, body: Callable[[Int], Real]) -> Real:
        """One element after the other: the order is part of what is computed."""
        parts = self.pieces(size, body)
        if len(parts) != 1 or parts[0][2]:
            raise OpenError("a sum over parts, whose order matters for rounding")
        ((value, binders, _),) = parts
        return self._fold(kind, binders[0], value) if binders else value

    def _fold(self, kind: str, binder: tuple[Atom, Int], value: Real) -> Real:
        v, n = binder
        if kind == "add" and value.terms and value.ordered()[0][1] < 0:
            return self.neg(self._fold(kind, binder, self.neg(value)))
        name = atom("bound", value.height, 0)
        inside = self.changed(value, lambda p: p.replaced(lambda a: self._put(a, v, Int({(name,): 1}))))
        return self.of(atom("fold", kind, ((name, n),), inside))

    def _put(self, a: Atom, v: Atom, to: Int) -> Int | None:
        return put_inside(a, {v: to})

    def other_rebuilt(self, a: Atom, change: Change) -> Real:
        if a.kind == "op":
            operands = [self.changed(r, change) for r in a.args[1:]]
            done: dict[str, Any] = {"add": self.plus, "mul": self.times, "div": self.quotient}
            made: Real = done[a.args[0]](*operands)
            return made
        if a.kind == "fold":
            kind, ((v, n),), inside = a.args
            w = self.facts.fresh(change(n))
            ((m, _),) = w.terms.items()
            return self._fold(
                kind,
                (m[0], change(n)),
                self.changed(inside, lambda p: change(p.replaced(lambda b: self._put(b, v, w)))),
            )
        return super().other_rebuilt(a, change)
