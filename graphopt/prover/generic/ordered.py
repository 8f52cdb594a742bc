"""Elements that are the same because of an order: maxima, minima and what is chosen by comparison, decided by z3.

Sums, and functions that z3 does not know, are taken for any number, the same one wherever they are the same.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import z3

from graphopt.prover.generic.facts import Facts
from graphopt.prover.generic.reals import Reals
from graphopt.prover.generic.sizes import Atom
from graphopt.prover.generic.terms import Real

_MILLISECONDS = 500
_ABOVE = {"sigmoid": 0, "exp": 0, "tanh": -1, "erf": -1}  # bounds of functions
_BELOW = {"sigmoid": 1, "tanh": 1, "erf": 1}
_NOT_BELOW = {"sqrt": 0, "abs": 0, "softplus": 0}
_SIZES = frozenset({"count", "index", "bound", "fresh", "div", "wide", "gate"})


class _Terms:
    def __init__(self) -> None:
        self.facts: list[Any] = []
        self.chosen = False  # whether an order matters at all
        self._held: dict[Atom, Any] = {}

    def real(self, a: Real) -> Any:
        parts = []
        for (factors, binders, guards), c in a.terms.items():
            if binders or guards:
                parts.append(_number(c) * z3.Real(str(Real({(factors, binders, guards): Fraction(1)}))))
                continue
            term: Any = _number(c)
            for f, e in factors:
                term = self._times(term, f, e)
            parts.append(term)
        return z3.Sum(parts) if parts else z3.RealVal(0)

    def _times(self, term: Any, f: Atom, e: Fraction) -> Any:
        if e.denominator != 1 or abs(e) > 8:
            found = z3.Real(f"{f.name}^{e}")
            if f.kind == "exp":
                self.facts.append(found > 0)
            return term * found
        base = self.atom(f)
        if e < 0:
            self.facts.append(base != 0)
        for _ in range(abs(int(e))):
            term = term * base if e > 0 else term / base
        return term

    def atom(self, a: Atom) -> Any:
        held = self._held.get(a)
        if held is None:
            held = self._held[a] = self._atom(a)
        return held

    def _atom(self, a: Atom) -> Any:
        match a.kind:
            case "max":
                self.chosen = True
                first, *others = [self.real(r) for r in sorted(a.args[0], key=str)]
                for other in others:
                    first = z3.If(first >= other, first, other)
                return first
            case "abs":
                self.chosen = True
                inside = self.real(a.args[0])
                return z3.If(inside >= 0, inside, -inside)
            case "if":
                self.chosen = True
                return z3.If(self.truth(a.args[0]), self.real(a.args[1]), self.real(a.args[2]))
            case "poly":
                return self.real(a.args[0])
        found = z3.Real(a.name)
        if a.kind in ("exp", "root", "rootpi"):
            self.facts.append(found > 0)
        elif a.kind == "dim":
            self.facts.append(found >= 1)
        elif a.kind in _SIZES:
            self.facts.append(found >= 0)
        elif a.kind == "sqrt":
            inside = self.real(a.args[0])
            self.facts += [found >= 0, found * found == inside]
        elif a.kind == "op" and a.args[0] == "mul":
            self._rounded_product(found, *a.args[1:])
        elif a.kind == "f":
            name = a.args[0]
            self.facts += [found > _ABOVE[name]] if name in _ABOVE else []
            self.facts += [found < _BELOW[name]] if name in _BELOW else []
            self.facts += [found >= _NOT_BELOW[name]] if name in _NOT_BELOW else []
        return found

    def _rounded_product(self, found: Any, a: Real, b: Real) -> None:
        """What rounding leaves of a product with a positive number: its sign, and on which side of the other factor it is."""
        factor, other = (a, b) if a.number is not None else (b, a)
        n = factor.number
        if n is None or n <= 0:
            return
        x = self.real(other)
        self.facts += [z3.Implies(x >= 0, found >= 0), z3.Implies(x <= 0, found <= 0)]
        if n <= 1:
            self.facts += [z3.Implies(x >= 0, found <= x), z3.Implies(x <= 0, found >= x)]
        if n >= 1:
            self.facts += [z3.Implies(x >= 0, found >= x), z3.Implies(x <= 0, found <= x)]

    def truth(self, condition: Any) -> Any:
        if isinstance(condition, bool):
            return z3.BoolVal(condition)
        match condition.kind:
            case "positive":
                return self.real(condition.args[0]) > 0
            case "zero":
                return self.real(condition.args[0]) == 0
            case "not":
                return z3.Not(self.truth(condition.args[0]))
            case "and" | "or":
                parts = [self.truth(c) for c in sorted(condition.args[0], key=str)]
                return z3.And(parts) if condition.kind == "and" else z3.Or(parts)
        return z3.Bool(condition.name)


def _number(c: Fraction) -> Any:
    return z3.Q(c.numerator, c.denominator)


def equal_by_order(algebra: Reals, a: Real, b: Real) -> bool:
    """Whether z3 finds no numbers on which two elements differ."""
    terms = _Terms()
    left, right = terms.real(algebra.normal(a)), terms.real(algebra.normal(b))
    return terms.chosen and _valid(terms, left == right, algebra.facts)


def equal_truths(algebra: Reals, a: Any, b: Any) -> bool:
    """Whether z3 finds no numbers on which two conditions differ."""
    terms = _Terms()
    left, right = (terms.truth(algebra.truth_changed(c, algebra.facts.norm)) for c in (a, b))
    return _valid(terms, left == right, algebra.facts)


def _valid(terms: _Terms, claim: Any, facts: Facts) -> bool:
    facts.check_time()
    solver = z3.Solver()
    solver.set("timeout", _MILLISECONDS)
    solver.add(*terms.facts)
    solver.add(z3.Not(claim))
    return bool(solver.check() == z3.unsat)
