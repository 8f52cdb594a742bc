"""Arithmetic of elements: sums of products over bound indices, in a normal form."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction
from typing import Any

from graphopt.prover.domains import EVEN, ODD, WHOLE
from graphopt.prover.generic.facts import Facts, OpenError
from graphopt.prover.generic.propositions import Cond, ge
from graphopt.prover.generic.sizes import Atom, Int, atom, coefficient, height_of, leaves_of
from graphopt.prover.generic.spans import ranged, replacing
from graphopt.prover.generic.terms import (
    NO_GUARDS,
    ONE,
    UNIT_TERM,
    ZERO,
    Binder,
    Change,
    Factor,
    Real,
    Term,
    joined,
    negated,
    only_atom,
    ordered_term,
    put_inside,
    text_of,
)
from graphopt.prover.numbers import meant


class Arithmetic:
    """Terms added, multiplied and divided, functions of them, and order."""

    exact = False

    def __init__(self, facts: Facts) -> None:
        self.facts = facts
        self.dtypes: dict[str, str] = {}  # of operands, by name
        self._twins: dict[Atom, Atom] = {}

    # Making terms --------------------------------------------------------------------------------------------------

    def const(self, value: float | Fraction) -> Real:
        """A number."""
        if isinstance(value, Fraction):
            return Real({UNIT_TERM: value})
        exact = meant(float(value))
        if exact is None:
            return self.of(atom("constant", str(float(value))))
        made = Real({UNIT_TERM: exact.rational})
        for a, power in ((atom("root", 2), exact.root2), (atom("rootpi"), exact.rootpi)):
            if power:
                made = self.mul(made, self.power(self.of(a), power))
        return made

    def of(self, a: Atom, exponent: int | Fraction = 1) -> Real:
        """An atom."""
        return Real({(((a, Fraction(exponent)),), (), NO_GUARDS): Fraction(1)})

    def size(self, p: Int) -> Real:
        """A whole number as an element."""
        terms: dict[Term, Fraction] = {}
        for m, c in p.terms.items():
            factors = tuple((a, Fraction(len(list(g)))) for a, g in itertools.groupby(m))
            terms[(factors, (), NO_GUARDS)] = Fraction(c)
        return Real(terms)

    def add(self, a: Real, b: Real) -> Real:
        """Sum."""
        terms = dict(a.terms)
        for t, c in b.terms.items():
            terms[t] = terms.get(t, Fraction(0)) + c
        return Real(terms)

    def neg(self, a: Real) -> Real:
        """Negative."""
        return Real({t: -c for t, c in a.terms.items()})

    def scaled(self, a: Real, by: Fraction) -> Real:
        """A rational multiple."""
        return Real({t: c * by for t, c in a.terms.items()})

    def sub(self, a: Real, b: Real) -> Real:
        """Difference."""
        return self.add(a, self.neg(b))

    def mul(self, a: Real, b: Real) -> Real:
        """Product."""
        result = ZERO
        for s, c in a.terms.items():
            for t, d in b.terms.items():
                result = self.add(result, self.scaled(self._joined(s, t), c * d))
        return result

    def _joined(self, s: Term, t: Term) -> Real:
        if s[1] or t[1]:
            s, t = self._freshened(s), self._freshened(t)
        powers: dict[Atom, Fraction] = dict(s[0])
        for a, e in t[0]:
            powers[a] = powers.get(a, Fraction(0)) + e
        return self._term(powers, (*s[1], *t[1]), s[2] | t[2])

    def _term(self, powers: Mapping[Atom, Fraction], binders: Sequence[Binder], guards: frozenset[Cond]) -> Real:
        """A term, its roots gathered and its bound indices named."""
        extra = ONE
        kept: dict[Atom, Fraction] = {}
        for a, e in powers.items():
            if a.kind in ("sqrt", "root") and not 0 <= e < 2 and e.denominator == 1:
                inside = a.args[0] if a.kind == "sqrt" else Real({UNIT_TERM: Fraction(a.args[0])})
                extra = self.mul(extra, self.power(inside, int(e // 2)))
                e = e % 2
            elif a.kind == "sqrt" and e == 2:
                extra, e = self.mul(extra, a.args[0]), Fraction(0)
            elif a.kind == "abs" and e % 2 == 0:
                extra, e = self.mul(extra, self.power(a.args[0], int(e))), Fraction(0)
            if e:
                kept[a] = e
        if extra is not ONE:
            base = Real({ordered_term(kept, tuple(binders), guards): Fraction(1)})
            if binders and extra != ONE:
                # The roots may hold bound indices: nothing is taken out of the sum.
                result = ZERO
                for (f, b, g), c in extra.terms.items():
                    powers2 = dict(kept)
                    for a, e in f:
                        powers2[a] = powers2.get(a, Fraction(0)) + e
                    if b:
                        raise OpenError("the square of a root of a sum in a sum")
                    result = self.add(result, self.scaled(self._term(powers2, binders, guards | g), c))
                return result
            return self.mul(base, extra) if extra != ONE else base
        if not binders:
            return Real({ordered_term(kept, (), guards): Fraction(1)})
        return self._closed(kept, binders, guards)

    def _closed(self, powers: Mapping[Atom, Fraction], binders: Sequence[Binder], guards: frozenset[Cond]) -> Real:
        """A sum: what is not in its body counts, the rest get canonical names."""
        inside = leaves_of(tuple(powers)) | leaves_of(guards)
        used = [b for b in binders if b[0] in inside]
        times = ONE
        for v, n in binders:
            if v not in inside:
                times = self.mul(times, self.size(n))
        if used:
            change = self._names(used, tuple(powers), guards)
            result = ONE
            for a, e in powers.items():
                result = self._times(
                    result, self.rebuilt(a, change) if a.leaves & {v for v, _ in used} else self.of(a), e
                )
            named = tuple(sorted(((only_atom(change(Int({(v,): 1}))), n) for v, n in used), key=lambda b: b[0].name))
            renamed = frozenset(g.mapped(change) for g in guards)
            made = Real({(f, (*named, *b), g | renamed): c for (f, b, g), c in result.terms.items()})
        else:
            made = Real({ordered_term(powers, (), guards): Fraction(1)})
        return made if times is ONE else self.mul(made, times)

    def _times(self, a: Real, b: Real, e: Fraction) -> Real:
        if e.denominator == 1:
            return self.mul(a, self.power(b, int(e)))
        one = b.single
        if one is None:
            raise OpenError("a broken power")
        return self.mul(a, self.of(one, e))

    def _names(self, binders: Sequence[Binder], *things: Any) -> Change:
        """Canonical names of bound indices: by height, and within it by what their place looks like."""
        height = max(height_of(t) for t in things)
        shown = " ".join(sorted(text_of(t) for t in things))
        places = []
        for v, n in binders:
            text = shown.replace(v.name, "@")
            for u, _ in binders:
                text = text.replace(u.name, "#") if u is not v else text
            places.append((str(n), "".join(sorted(text.split("*"))) if len(binders) > 1 else ""))
        order = sorted(range(len(binders)), key=lambda i: (places[i], binders[i][0].name))
        to = {binders[i][0]: Int({(atom("bound", height, at),): 1}) for at, i in enumerate(order)}
        return lambda p: p.replaced(lambda a: put_inside(a, to))

    def _freshened(self, t: Term) -> Term:
        """A term whose bound indices nothing else has."""
        factors, binders, guards = t
        if not binders or all(v.kind == "fresh" for v, _ in binders):
            return t
        to = {v: self.facts.fresh(n) for v, n in binders}
        change: Change = lambda p: p.replaced(lambda a: put_inside(a, to))  # noqa: E731
        made = ONE
        for a, e in factors:
            made = self._times(made, self.rebuilt(a, change) if a.leaves & set(to) else self.of(a), e)
        ((f, _, g),) = made.terms
        if made.terms[(f, (), g)] != 1:
            raise OpenError("a sum whose terms change sign with the names of its indices")
        return f, tuple((only_atom(to[v]), n) for v, n in binders), g | frozenset(c.mapped(change) for c in guards)

    def changed(self, a: Real, change: Change) -> Real:
        """An element with the whole numbers in it changed."""
        result = ZERO
        for (factors, binders, guards), c in a.terms.items():
            if binders:
                factors, binders, guards = self._freshened((factors, binders, guards))
            made = Real({UNIT_TERM: c})
            for f, e in factors:
                made = self._times(made, self.rebuilt(f, change), e)
            made = self._wrapped(made, [(v, change(n)) for v, n in binders], [g.mapped(change) for g in guards])
            result = self.add(result, made)
        return result

    def _wrapped(self, a: Real, binders: Sequence[Binder], guards: Iterable[Cond]) -> Real:
        """The sum of an element over indices, where conditions hold."""
        kept = frozenset(g for g in guards if not self.facts.clear(g))
        if not binders and not kept:
            return a
        result = ZERO
        for t, c in a.terms.items():
            f, b, g = self._freshened(t)
            result = self.add(result, self.scaled(self._bound(f, b, g | kept, list(binders)), c))
        return result

    def _bound(
        self, factors: tuple[Factor, ...], inner: tuple[Binder, ...], guards: frozenset[Cond], binders: list[Binder]
    ) -> Real:
        """The sum of a term over more indices; conditions on one of them are made its range where they can be."""
        for at, (v, n) in enumerate(binders):
            others = binders[:at] + binders[at + 1 :]
            for g in guards:
                apart = coefficient(g.args[0], v) if g.kind == "eq" else None
                if apart is not None and apart[0].number in (1, -1) and v not in n.leaves:
                    place = -apart[1] if apart[0].number == 1 else apart[1]
                    inside = [ge(place), ge(n, place + 1)]
                    return self._moved(factors, inner, (guards - {g}).union(inside), others, {v: place})
            own = [g for g in guards if v in g.leaves]
            if own:
                part = ranged(self.facts, v, n, own)
                if part is None:
                    return ZERO
                low, length, rest = part
                if len(rest) < len(own):
                    w = self.facts.fresh(length)
                    renamed = [*others, (only_atom(w), length)] if length.number != 1 else others
                    left = guards.difference(own).union(rest)
                    return self._moved(factors, inner, left, renamed, {v: w + low if length.number != 1 else low})
        return self._term(dict(factors), (*inner, *binders), self._needed(guards))

    def _needed(self, guards: frozenset[Cond]) -> frozenset[Cond]:
        """Conditions without those that follow from one of the others."""
        left = sorted(guards, key=str)
        for g in sorted(guards, key=str):
            if g.kind == "ge" and any(
                o is not g and o.kind == "ge" and self.facts.not_negative(g.args[0] - o.args[0]) for o in left
            ):
                left.remove(g)
        return frozenset(left)

    def _moved(
        self,
        factors: tuple[Factor, ...],
        inner: tuple[Binder, ...],
        guards: frozenset[Cond],
        binders: list[Binder],
        to: Mapping[Atom, Int],
    ) -> Real:
        """The same where an index is somewhere else."""
        change = replacing(self.facts, to)
        made = ONE
        for f, e in factors:
            made = self._times(made, self.rebuilt(f, change), e)
        held = [(v, change(n)) for v, n in (*inner, *binders)]
        return self._wrapped(made, held, [g.mapped(change) for g in guards])

    def rebuilt(self, a: Atom, change: Change) -> Real:
        """An atom with the whole numbers in it changed."""
        if a.kind in ("dim", "count", "index", "bound", "fresh", "div", "gate", "wide"):
            return self.size(change(Int({(a,): 1})))
        if not a.leaves:
            return self.of(a)
        match a.kind:
            case "x":
                made = atom("x", a.args[0], tuple(change(i) for i in a.args[1]))
                return self.of(self._twins.get(made, made))
            case "f":
                return self.func(a.args[0], *(self.changed(r, change) for r in a.args[1:]))
            case "max":
                result: Real | None = None
                for r in sorted(a.args[0], key=str):
                    new = self.changed(r, change)
                    result = new if result is None else self.max(result, new)
                assert result is not None
                return result
            case "sqrt":
                return self.func("sqrt", self.changed(a.args[0], change))
            case "abs":
                return self.func("abs", self.changed(a.args[0], change))
            case "exp":
                return self.func("exp", self.changed(a.args[0], change))
            case "poly":
                return self.of(atom("poly", self.changed(a.args[0], change)))
            case "if":
                return self.select(
                    self.truth_changed(a.args[0], change),
                    self.changed(a.args[1], change),
                    self.changed(a.args[2], change),
                )
        return self.other_rebuilt(a, change)

    def other_rebuilt(self, a: Atom, change: Change) -> Real:
        """Atoms that only another algebra makes."""
        raise OpenError(f"{a.kind} with other indices")

    # Division and functions ---------------------------------------------------------------------------------

    def power(self, a: Real, n: int) -> Real:
        """A whole power."""
        if n < 0:
            return self.power(self.inverse(a), -n)
        result = ONE
        for _ in range(n):
            result = self.mul(result, a)
        return result

    def inverse(self, a: Real) -> Real:
        """One over an element, where it is not 0."""
        if not a.terms:
            raise OpenError("a division by zero")
        if len(a.terms) == 1:
            (((factors, binders, guards), c),) = a.terms.items()
            if not binders and not guards:
                made = Real({UNIT_TERM: 1 / c})
                return self.mul(made, self._term({f: -e for f, e in factors}, (), NO_GUARDS))
        outside, rest = self._content(a)
        return self.mul(self.inverse(outside), self.of(atom("poly", rest), -1))

    def _content(self, a: Real) -> tuple[Real, Real]:
        """``(c, r)`` with a = c r: what all terms have in common, and a rest that begins with 1."""
        ordered = a.ordered()
        common: dict[Atom, Fraction] | None = None
        for (factors, binders, _guards), _ in ordered:
            bound = {v for v, _ in binders}
            own = {f: e for f, e in factors if not f.leaves & bound and f.kind != "sqrt"}
            if common is None:
                common = own
            else:
                common = {f: min(e, own.get(f, Fraction(0))) for f, e in common.items()}
                for f, e in own.items():
                    if f not in common and e < 0:
                        common[f] = e
                common = {f: e for f, e in common.items() if e}
        outside = self.scaled(self._term(common or {}, (), NO_GUARDS), ordered[0][1])
        inverse = self.scaled(self._term({f: -e for f, e in (common or {}).items()}, (), NO_GUARDS), 1 / ordered[0][1])
        rest = self.mul(a, inverse)
        first = rest.ordered()[0][1]
        return self.scaled(outside, first), self.scaled(rest, 1 / first)

    def div(self, a: Real, b: Real) -> Real:
        """Quotient."""
        return self.mul(a, self.inverse(b))

    def func(self, name: str, *operands: Real) -> Real:
        """A function of elements: of those with laws of their own, :class:`~graphopt.prover.generic.elementary.Elementary` knows more."""
        return self.plain(name, *operands)

    def plain(self, name: str, *operands: Real) -> Real:
        """A function of which only its symmetry is known."""
        x = operands[0]
        if name in WHOLE and x.single is not None and x.single.kind == "f" and x.single.args[0] in WHOLE:
            return x
        if name in ODD and not x.terms:
            return ZERO
        if name in ODD | EVEN and x.ordered()[0][1] < 0:
            made = self.of(atom("f", name, self.neg(x)))
            return self.neg(made) if name in ODD else made
        return self.of(atom("f", name, *operands))

    # What operators compute with: here the same, in floating point other than the laws of numbers allow ---------------

    def plus(self, a: Real, b: Real) -> Real:
        """Sum, as an operator computes it."""
        return self.add(a, b)

    def times(self, a: Real, b: Real) -> Real:
        """Product, as an operator computes it."""
        return self.mul(a, b)

    def quotient(self, a: Real, b: Real) -> Real:
        """Quotient, as an operator computes it."""
        return self.div(a, b)

    # Order and choice ----------------------------------------------------------------------------------------------

    def max(self, a: Real, b: Real) -> Real:
        """The larger one."""
        members: set[Real] = set()
        for r in (a, b):
            one = r.single
            members |= set(one.args[0]) if one is not None and one.kind == "max" else {r}
        numbers = sorted(n for n in (r.number for r in members) if n is not None)
        members -= {Real({UNIT_TERM: n}) if n else ZERO for n in numbers[:-1]}
        if len(members) > 1:
            members.discard(self.of(atom("constant", "-inf")))
        if len(members) == 1:
            return next(iter(members))
        return self.of(atom("max", frozenset(members)))

    def min(self, a: Real, b: Real) -> Real:
        """The smaller one."""
        return self.neg(self.max(self.neg(a), self.neg(b)))

    def select(self, condition: Any, a: Real, b: Real) -> Real:
        """The first where the condition holds, else the second."""
        if condition is True or a == b:
            return a
        if condition is False:
            return b
        return self.of(atom("if", condition, a, b))

    def less(self, a: Real, b: Real) -> Any:
        """Whether a < b."""
        d = self.sub(b, a)
        n = d.number
        return n > 0 if n is not None else atom("positive", self.scaled(d, 1 / abs(d.ordered()[0][1])))

    def equal(self, a: Real, b: Real) -> Any:
        """Whether a == b."""
        d = self.sub(a, b)
        n = d.number
        return n == 0 if n is not None else atom("zero", self.scaled(d, 1 / d.ordered()[0][1]))

    def truth_changed(self, condition: Any, change: Change) -> Any:
        """A condition with the whole numbers in it changed."""
        if isinstance(condition, bool):
            return condition
        match condition.kind:
            case "positive":
                return self.less(ZERO, self.changed(condition.args[0], change))
            case "zero":
                return self.equal(self.changed(condition.args[0], change), ZERO)
            case "truth":
                return atom("truth", condition.args[0], tuple(change(i) for i in condition.args[1]))
            case "not":
                return negated(self.truth_changed(condition.args[0], change))
            case "and" | "or" | "xor":
                parts = [self.truth_changed(c, change) for c in sorted(condition.args[0], key=str)]
                return joined(condition.kind, parts)
        raise OpenError(f"the condition {condition}")
