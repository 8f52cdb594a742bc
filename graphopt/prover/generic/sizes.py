"""Whole numbers that are not known: polynomials over symbols, the dimensions and indices of tensors of any size.

An :class:`Int` is a polynomial with whole coefficients over :class:`Atom`: dimensions, indices, and what is not polynomial
(quotients, remainders, indices of stretched dimensions). Equal polynomials are equal objects in every respect, so they
serve as keys.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from typing import Any, Union

_atoms: dict[str, Atom] = {}


class Atom:
    """Something that is taken as it is, known by its name.

    Attributes:
        kind: ``dim``, ``index``, ``bound`` (by a sum), ``div``, ... for whole numbers; what elements are made of has kinds
            of its own.
        args: What it is made of.
        name: Equal names are the same atom.
        height: One more than the highest variable bound inside, 0 without any.
        leaves: The symbols of whole numbers in it.
    """

    __slots__ = ("args", "height", "kind", "leaves", "name")

    def __init__(self, kind: str, args: tuple[Any, ...], name: str) -> None:
        self.kind, self.args, self.name = kind, args, name
        self.height = 1 + args[0] if kind == "bound" else max((height_of(a) for a in args), default=0)
        if kind in _SYMBOLS:
            self.leaves: frozenset[Atom] = frozenset([self])
        else:
            self.leaves = frozenset().union(*(leaves_of(a) for a in args))
            if kind in ("over", "fold"):  # its second part are bound indices, with their ranges
                self.leaves = self.leaves.difference(v for v, _ in args[1])

    def __repr__(self) -> str:
        return self.name


_SYMBOLS = frozenset({"dim", "count", "index", "bound", "fresh"})


def height_of(thing: Any) -> int:
    """The height of an atom, a polynomial, or what is made of them."""
    if isinstance(thing, tuple | frozenset):
        return max((height_of(t) for t in thing), default=0)
    found: int = getattr(thing, "height", 0)
    return found


def leaves_of(thing: Any) -> frozenset[Atom]:
    """The symbols of whole numbers in something."""
    if isinstance(thing, tuple | frozenset):
        return frozenset().union(*(leaves_of(t) for t in thing))
    found: frozenset[Atom] = getattr(thing, "leaves", frozenset())
    return found


def atom(kind: str, *args: Any) -> Atom:
    """The atom of a kind made of these parts."""
    name = f"{kind}({','.join(_written(a) for a in args)})"
    found = _atoms.get(name)
    if found is None:
        found = _atoms[name] = Atom(kind, args, name)
    return found


def _written(thing: Any) -> str:
    if isinstance(thing, tuple):
        return f"[{','.join(map(_written, thing))}]"
    if isinstance(thing, frozenset):
        return f"{{{','.join(sorted(map(_written, thing)))}}}"
    return str(thing)


def symbol(kind: str, name: str) -> Int:
    """A dimension or an index as a polynomial."""
    return Int({(atom(kind, name),): 1})


Monomial = tuple[Atom, ...]
Whole = Union["Int", int]


class Int:
    """A polynomial: coefficient by monomial, an ascending tuple of atoms in which powers are repetitions."""

    __slots__ = ("_hash", "_name", "height", "leaves", "terms")

    def __init__(self, terms: Mapping[Monomial, int]) -> None:
        self.terms = {m: c for m, c in terms.items() if c}
        self._name: str | None = None
        self._hash: int | None = None
        self.height = max((a.height for m in self.terms for a in m), default=0)
        self.leaves: frozenset[Atom] = frozenset().union(*(a.leaves for m in self.terms for a in m))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Int) and self.terms == other.terms

    def __hash__(self) -> int:
        if self._hash is None:
            self._hash = hash(frozenset(self.terms.items()))
        return self._hash

    def __str__(self) -> str:
        if self._name is None:
            parts = sorted((("*".join(a.name for a in m)), c) for m, c in self.terms.items())
            self._name = "+".join(f"{c}*{m}" if m and c != 1 else m or str(c) for m, c in parts) or "0"
        return self._name

    __repr__ = __str__

    @property
    def number(self) -> int | None:
        """Its value, ``None`` unless it is known."""
        if not self.terms:
            return 0
        return self.terms.get((), None) if len(self.terms) == 1 else None

    @property
    def atoms(self) -> frozenset[Atom]:
        """The atoms of its monomials."""
        return frozenset(a for m in self.terms for a in m)

    def __add__(self, other: Whole) -> Int:
        terms = dict(self.terms)
        for m, c in whole(other).terms.items():
            terms[m] = terms.get(m, 0) + c
        return Int(terms)

    __radd__ = __add__

    def __neg__(self) -> Int:
        return Int({m: -c for m, c in self.terms.items()})

    def __sub__(self, other: Whole) -> Int:
        return self + -whole(other)

    def __rsub__(self, other: Whole) -> Int:
        return whole(other) + -self

    def __mul__(self, other: Whole) -> Int:
        terms: dict[Monomial, int] = {}
        for m, c in self.terms.items():
            for n, d in whole(other).terms.items():
                joint = tuple(sorted(m + n, key=_by_name)) if m and n else m or n
                terms[joint] = terms.get(joint, 0) + c * d
        return Int(terms)

    __rmul__ = __mul__

    def replaced(self, replace: Callable[[Atom], Int | None]) -> Int:
        """With polynomials in the place of atoms."""
        found = {a: replace(a) for a in self.atoms}
        if all(new is None for new in found.values()):
            return self
        result = ZERO
        for m, c in self.terms.items():
            product: Int = Int({(): c})
            for a in m:
                new = found[a]
                product = product * (Int({(a,): 1}) if new is None else new)
            result = result + product
        return result


def _by_name(a: Atom) -> str:
    return a.name


ZERO, ONE = Int({}), Int({(): 1})


@lru_cache(maxsize=4096)
def _number(value: int) -> Int:
    return Int({(): value})


def whole(value: Whole) -> Int:
    """A number as a polynomial."""
    return value if isinstance(value, Int) else _number(int(value))


def product(values: Iterable[Whole]) -> Int:
    """The product of numbers."""
    result = ONE
    for value in values:
        result = result * value
    return result


def total(values: Iterable[Whole]) -> Int:
    """The sum of numbers."""
    result = ZERO
    for value in values:
        result = result + value
    return result


def coefficient(p: Int, a: Atom) -> tuple[Int, Int] | None:
    """``(q, r)`` with p = q a + r and no a in r; ``None`` where a has a higher power or is inside another atom."""
    over: dict[Monomial, int] = {}
    rest: dict[Monomial, int] = {}
    for m, c in p.terms.items():
        times = m.count(a)
        if times > 1 or any(b is not a and a in b.leaves for b in m):
            return None
        if times:
            at = m.index(a)
            over[m[:at] + m[at + 1 :]] = c
        else:
            rest[m] = c
    return Int(over), Int(rest)


def divided(p: Int, d: Int) -> tuple[Int, Int]:
    """``(q, r)`` with p = q d + r, as much of p in q as monomials allow. ``d`` is one monomial; else q is 0."""
    if len(d.terms) != 1:
        return (ONE, ZERO) if p == d else (ZERO, p)
    ((dm, dc),) = d.terms.items()
    over: dict[Monomial, int] = {}
    rest: dict[Monomial, int] = {}
    for m, c in p.terms.items():
        left = list(m)
        try:
            for a in dm:
                left.remove(a)
        except ValueError:
            rest[m] = c
            continue
        if c % dc == 0:
            over[tuple(left)] = c // dc
        elif not dm:
            over[m] = c // dc
            rest[m] = c % dc
        else:
            rest[m] = c
    return Int(over), Int(rest)
