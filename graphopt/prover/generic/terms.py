"""What elements are made of: terms, and what is asked of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from typing import Any

from graphopt.prover.generic.facts import OpenError
from graphopt.prover.generic.propositions import Cond
from graphopt.prover.generic.sizes import Atom, Int, atom, height_of, leaves_of

Factor = tuple[Atom, Fraction]
Binder = tuple[Atom, Int]
Term = tuple[tuple[Factor, ...], tuple[Binder, ...], frozenset[Cond]]
Change = Callable[[Int], Int]
NO_GUARDS: frozenset[Cond] = frozenset()
_LARGE = 4000  # terms; more are not worked with
POSITIVE = frozenset({"exp", "root", "dim", "rootpi"})
NOT_NEGATIVE = POSITIVE | {"sqrt", "abs", "count", "index", "bound", "fresh", "div", "wide", "gate"}


class Real:
    """A sum of terms."""

    __slots__ = ("_hash", "_name", "height", "leaves", "terms")

    def __init__(self, terms: Mapping[Term, Fraction]) -> None:
        self.terms = {t: c for t, c in terms.items() if c}
        if len(self.terms) > _LARGE:
            raise OpenError("too many terms")
        self._hash: int | None = None
        self._name: str | None = None
        self.height = max(
            (max(height_of(tuple(a for a, _ in f)), height_of(tuple(v for v, _ in b))) for f, b, _ in self.terms),
            default=0,
        )
        self.leaves: frozenset[Atom] = frozenset().union(*(_free(t) for t in self.terms))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Real) and self.terms == other.terms

    def __hash__(self) -> int:
        if self._hash is None:
            self._hash = hash(frozenset(self.terms.items()))
        return self._hash

    def __str__(self) -> str:
        if self._name is None:
            self._name = " + ".join(f"{'' if c == 1 else c}{_written(t)}" for t, c in self.ordered()) or "0"
        return self._name

    __repr__ = __str__

    def ordered(self) -> list[tuple[Term, Fraction]]:
        """Terms in an order that depends on nothing but what they are."""
        return sorted(self.terms.items(), key=lambda item: _written(item[0]))

    @property
    def number(self) -> Fraction | None:
        """Its value, ``None`` unless it is a rational number."""
        if not self.terms:
            return Fraction(0)
        return self.terms.get(UNIT_TERM) if len(self.terms) == 1 else None

    @property
    def single(self) -> Atom | None:
        """The atom that it is, if it is one."""
        if len(self.terms) != 1:
            return None
        (((factors, binders, _), c),) = self.terms.items()
        return factors[0][0] if c == 1 and not binders and len(factors) == 1 and factors[0][1] == 1 else None


UNIT_TERM: Term = ((), (), NO_GUARDS)


def _free(term: Term) -> frozenset[Atom]:
    """The symbols in a term that it does not bind."""
    factors, binders, guards = term
    inside = leaves_of(tuple(a for a, _ in factors)) | leaves_of(guards)
    return inside.difference(v for v, _ in binders) | leaves_of(tuple(n for _, n in binders))


def _written(term: Term) -> str:
    factors, binders, guards = term
    text = "*".join(a.name if e == 1 else f"{a.name}^{e}" for a, e in factors)
    ranges = ",".join(f"{v.name}<{n}" for v, n in binders)
    where = ",".join(sorted(map(str, guards)))
    return f"S[{ranges}|{where}]({text})" if ranges or where else f"({text})"


ZERO, ONE = Real({}), Real({UNIT_TERM: Fraction(1)})


def positive(a: Atom) -> bool:
    """Whether an atom is a positive number, where it is defined."""
    if a.kind == "poly":
        return all(
            c > 0 and all(positive(f) for f, _ in factors) and not guards
            for (factors, _, guards), c in a.args[0].terms.items()
        )
    return a.kind in POSITIVE


def quotients(p: Int) -> set[Atom]:
    """The quotients in a whole number."""
    found = {a for a in p.atoms if a.kind == "div"}
    return found.union(*(quotients(a.args[0]) for a in found))


def elements(thing: Any) -> set[Atom]:
    """The elements of operands in something."""
    if isinstance(thing, Real):
        return set().union(*(elements(f) for factors, _, _ in thing.terms for f, _ in factors))
    if isinstance(thing, tuple | frozenset):
        return set().union(*(elements(t) for t in thing))
    if isinstance(thing, Atom):
        return {thing} if thing.kind == "x" else elements(thing.args)
    return set()


def ordered_term(powers: Mapping[Atom, Fraction], binders: tuple[Binder, ...], guards: frozenset[Cond]) -> Term:
    """A term with its factors in the order of their names."""
    return tuple(sorted(powers.items(), key=lambda item: item[0].name)), binders, guards


def only_atom(p: Int) -> Atom:
    """The atom that a whole number is."""
    ((m, _),) = p.terms.items()
    return m[0]


def text_of(thing: Any) -> str:
    """A text that depends on nothing but what something is."""
    if isinstance(thing, Atom):
        return thing.name
    if isinstance(thing, tuple | frozenset):
        return "*".join(sorted(text_of(t) for t in thing))
    return str(thing)


def put_inside(a: Atom, to: Mapping[Atom, Int]) -> Int | None:
    """What a whole number's atom becomes when symbols in it are replaced."""
    if a in to:
        return to[a]
    if not a.leaves & set(to):
        return None

    def change(thing: Any) -> Any:
        if isinstance(thing, Int):
            return thing.replaced(lambda b: put_inside(b, to))
        if isinstance(thing, tuple):
            return tuple(change(t) for t in thing)
        return frozenset(change(t) for t in thing) if isinstance(thing, frozenset) else thing

    return Int({(atom(a.kind, *(change(t) for t in a.args)),): 1})


def negated(condition: Any) -> Any:
    """Not."""
    if isinstance(condition, bool):
        return not condition
    return condition.args[0] if condition.kind == "not" else atom("not", condition)


def joined(kind: str, parts: Sequence[Any]) -> Any:
    """And, or, exclusive or."""
    if kind == "xor":
        a, b = parts if len(parts) == 2 else (parts[0], parts[0])
        if isinstance(a, bool) or isinstance(b, bool) or a == b:
            raise OpenError("Xor of constants")
        return atom("xor", frozenset([a, b]))
    stop = kind == "or"
    if any(p is stop for p in parts):
        return stop
    left = frozenset(p for p in parts if not isinstance(p, bool))
    if not left:
        return not stop
    return next(iter(left)) if len(left) == 1 else atom(kind, left)
