"""Elements of tensors of any size: sums of products over bound indices, in a normal form.

A :class:`Real` is a sum of terms; a term is a coefficient, a product of powers of atoms (elements of operands, functions
of Reals) and the indices that it is summed over, each with its range. Equal sums of products have equal normal forms
(up to the names of bound indices, which are canonical), as in Wang et al., SPORES, 2020.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from fractions import Fraction
from functools import reduce

from graphopt.prover.generic.elementary import Elementary
from graphopt.prover.generic.propositions import Cond, eq
from graphopt.prover.generic.sizes import Atom, Int, atom, divided, whole
from graphopt.prover.generic.spans import ranged, replacing
from graphopt.prover.generic.terms import (
    NO_GUARDS,
    ZERO,
    Binder,
    Change,
    Real,
    elements,
    only_atom,
    ordered_term,
    put_inside,
    quotients,
)


class Reals(Elementary):
    """Real numbers: every law of a field holds, and some of roots and exponentials."""

    # Over ranges ---------------------------------------------------------------------------------------------------

    def pieces(self, size: Int, body: Callable[[Int], Real]) -> list[tuple[Real, list[Binder], list[Cond]]]:
        """The body at an index below a size: the element, the index with its range, and other conditions, for each case."""
        k = self.facts.fresh(size)
        v = only_atom(k)
        found = self.facts.branches([v], [], lambda: body(k))
        if len(found) > 1 and all(value == found[0][1] for _, value in found):
            found = [([], found[0][1])]
        made = []
        for conds, value in found:
            part = ranged(self.facts, v, size, conds)
            if part is None:
                continue
            low, length, guards = part
            w = self.facts.fresh(length) if length.number != 1 else whole(0)
            to = {v: w + low}
            change = replacing(self.facts, to)
            binders = [(only_atom(w), length)] if length.number != 1 else []
            made.append((self.changed(value, change), binders, [g.mapped(change) for g in guards]))
        return made

    def guarded(self, conds: Sequence[Cond], body: Callable[[], Real]) -> Real:
        """The body where conditions hold, else 0."""
        left = [c for c in conds if not self.facts.prove(c)]
        if not left:
            return body()
        found = self.facts.branches([], left, body)
        return self._wrapped(found[0][1], (), left) if found else ZERO

    def total(self, size: Int, body: Callable[[Int], Real]) -> Real:
        """The sum of the body over the indices below a size."""
        result = ZERO
        size = self.facts.norm(size)
        pieces = self.pieces(size, body)
        stride = self._stride(size, pieces)
        if stride is not None:
            # The index is taken apart in the body: it is two.
            outer = divided(size, stride)[0]
            return self.total(outer, lambda i: self.total(stride, lambda j: body(i * stride + j)))
        for value, binders, guards in pieces:
            result = self.add(result, self._wrapped(value, binders, guards))
        return result

    def _stride(self, size: Int, pieces: Sequence[tuple[Real, list[Binder], list[Cond]]]) -> Int | None:
        """By what the body divides the index, where that divides the size."""
        if len(pieces) != 1 or not pieces[0][1]:
            return None
        value, ((v, n),), _ = pieces[0]
        if n != size:
            return None
        for x in sorted(elements(value), key=str):
            for a in sorted((a for i in x.args[1] for a in quotients(i)), key=str):
                d: Int = a.args[1]
                if v in a.args[0].leaves and v not in d.leaves and d != size and divided(size, d)[1] == whole(0):
                    return d
        return None

    def over(self, kind: str, size: Int, body: Callable[[Int], Real]) -> Real:
        """The maximum or the product of the body over the indices below a size."""
        nothing = self.of(atom("constant", "-inf"))
        found = self.pieces(size, body)
        pieces = [piece for piece in found if piece[0] != nothing] if kind == "window" else found
        parts = [self._over(kind, *piece) for piece in pieces]
        if not parts:
            return nothing
        result = parts[0]
        for part in parts[1:]:
            result = self.mul(result, part) if kind == "product" else self.max(result, part)
        return result

    def _over(self, kind: str, value: Real, binders: Sequence[Binder], guards: Iterable[Cond]) -> Real:
        conds = frozenset(guards)
        kind = "max" if kind == "window" and not conds else kind  # of all of a window
        largest = kind != "product"
        # A window has something in it, whatever the conditions.
        sure = largest and (kind == "window" or not conds)
        if (not conds and not binders) or (sure and not value.leaves & {v for v, _ in binders}):
            return value
        one = value.single
        if one is not None and one.kind == "max" and largest:
            # The maximum of maxima; what does not depend on the index is out of it.
            parts = [self._over(kind, r, binders, conds) for r in sorted(one.args[0], key=str)]
            return reduce(self.max, parts)
        number = next(iter(value.terms.values())) if len(value.terms) == 1 else Fraction(1)
        if largest and number > 0 and number != 1 and value.number is None:
            return self.scaled(self._over(kind, self.scaled(value, 1 / number), binders, conds), number)
        if one is not None and one.kind == "over" and one.args[0] == kind:
            _, inner, inside, own = one.args
            to = {v: self.facts.fresh(n) for v, n in inner}
            change: Change = lambda p: p.replaced(lambda a: put_inside(a, to))  # noqa: E731
            value = self.changed(inside, change)
            binders = [*binders, *((only_atom(to[v]), n) for v, n in inner)]
            conds |= frozenset(c.mapped(change) for c in own)
        change = self._names(binders, (value,), conds)
        named = tuple(sorted(((only_atom(change(Int({(v,): 1}))), n) for v, n in binders), key=lambda b: b[0].name))
        return self.of(
            atom("over", kind, named, self.changed(value, change), frozenset(c.mapped(change) for c in conds))
        )

    def other_rebuilt(self, a: Atom, change: Change) -> Real:
        """A maximum or a product over a range with the whole numbers in it changed."""
        return self._over_changed(a, change) if a.kind == "over" else super().other_rebuilt(a, change)

    def _over_changed(self, a: Atom, change: Change) -> Real:
        kind, binders, inside, conds = a.args
        to = {v: self.facts.fresh(change(n)) for v, n in binders}

        def both(p: Int) -> Int:
            return change(p.replaced(lambda b: put_inside(b, to)))

        return self._over(
            kind,
            self.changed(inside, both),
            [(only_atom(to[v]), change(n)) for v, n in binders],
            [c.mapped(both) for c in conds],
        )

    # Equality ------------------------------------------------------------------------------------------------------

    def normal(self, a: Real) -> Real:
        """An element by what is known of whole numbers."""
        return self.changed(a, self.facts.norm)

    def same(self, a: Real, b: Real) -> bool:
        """Whether two elements are seen to be equal."""
        if a == b:
            return True
        a, b = self.normal(a), self.normal(b)
        if a != b and self._pair(a, b):
            b = self.normal(b)
            self._twins = {}
        d = self.sub(a, b)
        for _ in range(8):
            if not d.terms:
                return True
            below: dict[Atom, Fraction] = {}
            for (factors, _, _), _ in d.terms.items():
                for f, e in factors:
                    if f.kind == "poly" and f.height == 0:
                        below[f] = min(below.get(f, Fraction(0)), e)
            open_ = [f for f, e in below.items() if e] or list(below)
            if not open_:
                return False
            d = self._cleared(d, open_[0], -below[open_[0]])
        return not d.terms

    def _pair(self, a: Real, b: Real) -> bool:
        """Look for elements of operands at places that are the same, but not seen to be."""
        left, right = elements(a), elements(b)
        for y in sorted(right - left, key=str):
            for x in sorted(left - right, key=str):
                if x.args[0] == y.args[0] and all(
                    i == j or self.facts.prove(eq(i, j)) for i, j in zip(x.args[1], y.args[1], strict=True)
                ):
                    self._twins[y] = x
                    break
        return bool(self._twins)

    def _cleared(self, a: Real, f: Atom, times: Fraction) -> Real:
        """Times a power of a denominator, which is multiplied out."""
        result = ZERO
        for (factors, binders, guards), c in a.terms.items():
            powers = dict(factors)
            e = powers.pop(f, Fraction(0)) + times
            made = (
                self._term(powers, (), NO_GUARDS)
                if not binders
                else Real({ordered_term(powers, binders, guards): Fraction(1)})
            )
            result = self.add(result, self.scaled(self.mul(made, self.power(f.args[0], int(e))), c))
        return result
