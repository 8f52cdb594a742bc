"""Elementary functions of elements: absolute values, roots, exponentials and logarithms."""

from __future__ import annotations

from fractions import Fraction

from graphopt.prover.generic.arithmetic import Arithmetic
from graphopt.prover.generic.sizes import Atom, atom
from graphopt.prover.generic.terms import (
    NO_GUARDS,
    NOT_NEGATIVE,
    ONE,
    UNIT_TERM,
    ZERO,
    Real,
    positive,
)


class Elementary(Arithmetic):
    """Arithmetic with the laws of elementary functions."""

    def func(self, name: str, *operands: Real) -> Real:
        """A function of elements."""
        x = operands[0]
        match name:
            case "abs":
                return self._abs(x)
            case "sqrt":
                return self._sqrt(x)
            case "exp":
                return self._exp(x)
            case "log":
                return self._log(x)
            case "sigmoid":
                return self.inverse(self.add(ONE, self.func("exp", self.neg(x))))
            case "tanh":
                e = self.func("exp", self.add(x, x))
                return self.div(self.sub(e, ONE), self.add(e, ONE))
        return self.plain(name, *operands)

    def _abs(self, x: Real) -> Real:
        if len(x.terms) == 1:
            (((factors, binders, guards), c),) = x.terms.items()
            if not binders and not guards:
                made = Real({UNIT_TERM: abs(c)})
                for a, e in factors:
                    sure = a.kind in NOT_NEGATIVE or (e % 2 == 0)
                    made = self.mul(made, self.of(a if sure else atom("abs", self.of(a)), e))
                return made
        if not x.terms:
            return ZERO
        return self.of(atom("abs", self.neg(x) if x.ordered()[0][1] < 0 else x))

    def _sqrt(self, x: Real) -> Real:
        if not x.terms:
            return ZERO
        outside, rest = (x, ONE) if len(x.terms) == 1 else self._content(x)
        (((factors, binders, guards), c),) = outside.terms.items()
        if c < 0 or binders or guards:
            return self.of(atom("sqrt", x))
        made, left = _rational_root(self, c), ONE
        for a, e in factors:
            if e % 2 == 0:
                made = self.mul(made, self.power(self._abs(self.of(a)), int(e / 2)))
            elif a.kind == "exp":
                made = self.mul(made, self.of(a, e / 2))
            elif a.kind in NOT_NEGATIVE and a.kind not in ("sqrt", "root", "rootpi"):
                made = self.mul(made, self.power(self.of(atom("sqrt", self.of(a))), int(e)))
            else:
                left = self.mul(left, self.of(a, e))
        left = self.mul(left, rest)
        alone = next(iter(left.terms)) if len(left.terms) == 1 else None
        if alone is not None and len(alone[0]) == 1 and not alone[1] and not alone[2] and left.terms[alone] == 1:
            ((a, e),) = alone[0]  # an odd power has a root where its base has one
            if e.denominator == 1 and e != 1:
                return self.mul(made, self.power(self.of(atom("sqrt", self.of(a))), int(e)))
        return made if left == ONE else self.mul(made, self.of(atom("sqrt", left)))

    def _log(self, x: Real) -> Real:
        """Of a product of what is positive, the sum of the logarithms."""
        if len(x.terms) == 1:
            (((factors, binders, guards), c),) = x.terms.items()
            if c == 1 and not binders and not guards and len(factors) and all(positive(a) for a, _ in factors):
                made = ZERO
                for a, e in factors:
                    part = (
                        a.args[0]
                        if a.kind == "exp"
                        else self.plain("log", a.args[0] if a.kind == "poly" else self.of(a))
                    )
                    made = self.add(made, self.scaled(part, e))
                return made
        return self.plain("log", x)

    def _exp(self, x: Real) -> Real:
        powers: dict[Atom, Fraction] = {}
        logs = ONE
        for t, c in x.terms.items():
            one = Real({t: Fraction(1)}).single
            if one is not None and one.kind == "f" and one.args[0] == "log" and c.denominator == 1:
                logs = self.mul(logs, self.power(one.args[1], int(c)))
                continue
            powers[atom("exp", Real({t: Fraction(1)}))] = c
        made = self._term(powers, (), NO_GUARDS)
        return made if logs is ONE else self.mul(made, logs)


def _rational_root(algebra: Arithmetic, c: Fraction) -> Real:
    """The square root of a positive rational number: a rational number times roots of different primes."""
    n, made, out = c.numerator * c.denominator, ONE, Fraction(1, c.denominator)
    p = 2
    while p * p <= n and p < 10_000:
        while n % (p * p) == 0:
            n, out = n // (p * p), out * p
        if n % p == 0:
            n, made = n // p, algebra.mul(made, algebra.of(atom("root", p)))
        p += 1
    if n > 1:
        made = algebra.mul(made, algebra.of(atom("root", n)))
    return algebra.scaled(made, out)
