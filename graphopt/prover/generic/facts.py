"""What is known of sizes and indices, and the cases in which it has to be known more.

A question that what is known does not answer splits the case in two: :meth:`Facts.decide` answers yes for now, and
:meth:`Facts.branches` comes back for the no. A question about a variable that a sum binds splits that sum only.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from math import gcd
from typing import TypeVar

from graphopt.prover.generic.propositions import Cond, eq, ge, lt
from graphopt.prover.generic.sizes import (
    ONE,
    ZERO,
    Atom,
    Int,
    Whole,
    atom,
    coefficient,
    divided,
    product,
    whole,
)
from graphopt.prover.generic.solver import NATURAL, Solver

T = TypeVar("T")
_BRANCHES = 3000


class OutOfTimeError(Exception):
    """The time for a rule is over."""


class VacuousError(Exception):
    """Nothing is claimed in this case: the pattern is not defined, or the rule does not match."""


class OpenError(Exception):
    """The case can't be proved; the text says why."""


@dataclass
class _Level:
    owned: frozenset[Atom]
    facts: list[Cond] = field(default_factory=list)
    pending: list[list[Cond]] = field(default_factory=list)


class Facts:
    """What is known of whole numbers.

    Attributes:
        below: For an index, what it is below; every index is at least 0.
        named: Dimensions that the engine knows by name only.
    """

    def __init__(self, deadline: float) -> None:
        self.deadline = deadline
        self.below: dict[Atom, Int] = {}
        self.named: set[Atom] = set()
        self.counter = 0
        self._levels: list[_Level] = []
        self._solver = Solver(self.below)
        self._changed()

    # The case at hand ----------------------------------------------------------------------------------------------

    def _changed(self) -> None:
        self.known = [c for level in self._levels for c in level.facts]
        self._answers: dict[Cond, bool] = {}
        self._norms: dict[Int, Int] = {}
        self._equal: dict[Atom, Int] = {}
        self._ones: set[Int] = set()  # bounds that are 1
        for cond in self.known:
            if cond.kind == "eq":
                self._equate(self.norm(cond.args[0]))
                self._norms = {}
        if self._equal:
            self._ones = {bound for bound in set(self.below.values()) if self.norm(bound) == ONE}
            self._norms = {}

    def _equate(self, p: Int) -> None:
        """Use an equation to express one symbol by others."""
        order = {"fresh": 0, "index": 1, "count": 2, "dim": 3}
        p = _primitive(p)
        for a in sorted(p.atoms, key=lambda a: (order.get(a.kind, 9), a in self.named, a.name)):
            apart = coefficient(p, a) if a.kind in order else None
            if apart is not None and apart[0].number in (1, -1):
                self._put(a, -apart[1] if apart[0].number == 1 else apart[1])
                return
        for a in p.atoms:
            if a.kind == "wide" and p.terms.get((a,)) in (1, -1) and all(m == (a,) or a not in m for m in p.terms):
                self._put(a, Int({(a,): 1}) - p if p.terms[(a,)] == 1 else Int({(a,): 1}) + p)
                return
        # A product that is 1 has no other factors.
        products = [m for m in p.terms if m]
        if len(products) == 1 and abs(p.terms[products[0]]) == 1 and p.terms[products[0]] == -p.terms.get((), 0):
            for a in products[0]:
                if a.kind in order:
                    self._put(a, ONE)

    def _put(self, a: Atom, by: Int) -> None:
        change = {a: by}
        self._equal = {b: to.replaced(lambda c: self._renewed(c, change)) for b, to in self._equal.items()}
        self._equal[a] = by

    def assume(self, cond: Cond) -> None:
        """Take a condition for granted.

        Raises:
            VacuousError: It contradicts what is known.
        """
        if self.prove(cond):
            return
        if self.prove(~cond):
            raise VacuousError(str(cond))
        self._levels[0].facts.append(cond)
        self._changed()

    def decide(self, cond: Cond) -> bool:
        """Whether a condition holds in the case at hand, which is split where that is not known."""
        if self.prove(cond):
            return True
        if self.prove(~cond):
            return False
        leaves = cond.mapped(self.norm).leaves
        at = next((i for i in range(len(self._levels) - 1, 0, -1) if self._levels[i].owned & leaves), 0)
        if at == 0 and any(a.kind == "fresh" for a in leaves):
            raise OpenError(f"a case of an index that is not bound here: {cond}")
        level = self._levels[at]
        level.pending.append([*level.facts, ~cond])
        level.facts.append(cond)
        self._changed()
        return True

    def branches(
        self, owned: Iterable[Atom], assumed: Sequence[Cond], run: Callable[[], T]
    ) -> list[tuple[list[Cond], T]]:
        """The results of a function in every case that its decisions about the owned symbols make, with the conditions."""
        results: list[tuple[list[Cond], T]] = []
        level = _Level(frozenset(owned), pending=[list(assumed)])
        done = 0
        while level.pending:
            level.facts = level.pending.pop()
            depth = len(self._levels)
            self._levels.append(level)
            self._changed()
            self.check_time()
            done += 1
            try:
                if done > _BRANCHES:
                    raise OpenError("too many cases")
                if not self._contradictory(level):
                    results.append((level.facts, run()))
            except VacuousError as error:
                if depth:  # of the whole case nothing follows
                    raise OpenError(f"in a sum: {error}") from None
            finally:
                del self._levels[depth:]
                self._changed()
        return results

    def _contradictory(self, level: _Level) -> bool:
        """Whether the last thing assumed contradicts the rest, so that the case is empty."""
        if not level.facts:
            return False
        last = level.facts.pop()
        self._changed()
        empty = self.prove(~last)
        level.facts.append(last)
        self._changed()
        return empty

    def fresh(self, bound: Whole | None = None) -> Int:
        """A new index, below the bound."""
        self.counter += 1
        made = atom("fresh", f"k{self.counter}")
        if bound is not None:
            self.below[made] = self.norm(whole(bound))
        return Int({(made,): 1})

    # Proof ---------------------------------------------------------------------------------------------------------

    def prove(self, cond: Cond) -> bool:
        """Whether a condition follows from what is known."""
        cond = cond.mapped(self.norm)
        found = self._answers.get(cond)
        if found is None:
            found = self._answers[cond] = self._ask(cond)
            if found and cond.kind == "eq" and len(self._levels) == 1 and self._quick(cond) is None:
                self._levels[0].facts.append(cond)  # z3 has found it: now it is seen
                self._changed()
        return found

    def clear(self, cond: Cond) -> bool:
        """Whether a condition holds, if that is seen without z3."""
        cond = cond.mapped(self.norm)
        return self._answers.get(cond, False) or self._quick(cond) is True

    def _ask(self, cond: Cond) -> bool:
        quick = self._quick(cond)
        if quick is not None:
            return quick
        self.check_time()
        relevant, leaves = [], cond.leaves
        left = list(self.known)
        while True:
            more = [c for c in left if c.leaves & leaves]
            if not more:
                break
            relevant += more
            left = [c for c in left if not c.leaves & leaves]
            leaves = leaves.union(*(c.leaves for c in more))
        return self._solver.follows(cond, relevant, leaves)

    def check_time(self) -> None:
        """Stop where the time is over.

        Raises:
            OutOfTimeError: It is.
        """
        if time.process_time() > self.deadline:
            raise OutOfTimeError

    def _quick(self, cond: Cond) -> bool | None:
        """What can be said without z3."""
        if cond.kind in ("or", "and"):
            parts = [self._quick(c) for c in cond.args]
            stop = cond.kind == "or"
            if stop in parts:
                return stop
            return None if None in parts else not stop
        p = cond.args[0]
        if p.number is not None:
            return bool({"ge": p.number >= 0, "eq": p.number == 0, "ne": p.number != 0}[cond.kind])
        if cond.kind == "ge":
            return True if self.not_negative(p) else False if self.not_negative(-p - 1) else None
        if self.not_negative(p - 1) or self.not_negative(-p - 1):
            return bool(cond.kind == "ne")
        return None

    def not_negative(self, p: Int) -> bool:
        """Whether a polynomial is seen to be at least 0: indices go to their bounds, dimensions to 1 and up."""
        if any(a.kind not in NATURAL for a in p.atoms):
            return False
        for _ in range(12):
            if all(c >= 0 for c in p.terms.values()):
                return True
            indices = [a for a in p.atoms if a.kind != "dim"]
            if not indices:
                break
            changed = False
            for a in indices:
                apart = coefficient(p, a)
                if apart is None:
                    continue
                over, rest = apart
                if all(c >= 0 for c in over.terms.values()):
                    p, changed = rest, True
                    break
                if all(c <= 0 for c in over.terms.values()):
                    top = self._top(a)
                    if top is not None:
                        p, changed = over * (top - 1) + rest, True
                        break
            if not changed:
                break
        dims = {a: Int({(a,): 1, (): 1}) for a in p.atoms if a.kind in ("dim", "wide")}
        return all(c >= 0 for c in p.replaced(dims.get).terms.values())

    def _top(self, a: Atom) -> Int | None:
        """What an index is below."""
        if a in self.below:
            return self.norm(self.below[a])
        if a.kind == "gate" and len(a.args[0].terms) == 1:
            ((m, c),) = a.args[0].terms.items()
            return self._top(m[0]) if len(m) == 1 and c == 1 else None
        return None

    # Normal forms --------------------------------------------------------------------------------------------------

    def norm(self, p: Int) -> Int:
        """A polynomial by what is known: equal dimensions are one, quotients that are known are gone."""
        if p.number is not None:
            return p
        found = self._norms.get(p)
        if found is None:
            found = p.replaced(lambda a: self._renewed(a, self._equal))
            self._norms[p] = found
        return found

    def _renewed(self, a: Atom, equal: dict[Atom, Int]) -> Int | None:
        if a in equal:
            return equal[a]
        if self.below.get(a) == ONE or (a in self.below and equal is self._equal and self.below[a] in self._ones):
            return ZERO

        def inside(p: Int) -> Int:
            return self.norm(p) if equal is self._equal else p.replaced(lambda b: self._renewed(b, equal))

        if a.kind == "div":
            return self.quotient(inside(a.args[0]), inside(a.args[1]))
        if a.kind == "gate":
            return self.gate(inside(a.args[0]), [[inside(d) for d in clause] for clause in a.args[1]])
        if a.kind == "wide":
            return self.wide([inside(d) for d in a.args[0]])
        if a.args and isinstance(a.args[-1], tuple) and all(isinstance(i, Int) for i in a.args[-1]):
            return Int({(atom(a.kind, *a.args[:-1], tuple(inside(i) for i in a.args[-1])),): 1})
        return None

    def quotient(self, p: Int, d: Int) -> Int:
        """P // d, for d > 0."""
        if d == ONE:
            return p
        if p.number is not None and d.number is not None:
            return whole(p.number // d.number)
        over, rest = divided(p, d)
        if rest != ZERO and not self.not_negative(rest):
            over, rest = ZERO, p
            if not self.prove(ge(p)):
                raise OpenError(f"the quotient of {p}, which may be negative")
        if rest == ZERO or self.not_negative(d - rest - 1) or self.prove(lt(rest, d)):
            return over
        if len(rest.terms) == 1:
            ((m, c),) = rest.terms.items()
            if len(m) == 1 and c == 1 and m[0].kind == "div":  # (x // a) // b
                return over + self.quotient(m[0].args[0], m[0].args[1] * d)
        return over + Int({(atom("div", rest, d),): 1})

    def wide(self, dims: Sequence[Int]) -> Int:
        """The dimension that dims are stretched to: the one that is not 1, if any."""
        members: set[Int] = set()
        for d in dims:
            one = next(iter(d.atoms)) if len(d.terms) == 1 and len(d.atoms) == 1 else None
            members |= set(one.args[0]) if one is not None and one.kind == "wide" and d == Int({(one,): 1}) else {d}
        members = {d for d in members if d.number != 1}
        if not members:
            return ONE
        sure = [d for d in members if self._is_not_one(d)]
        if sure:
            return min(sure, key=str)
        if len(members) == 1:
            return next(iter(members))
        return Int({(atom("wide", frozenset(members)),): 1})

    def _is_not_one(self, d: Int) -> bool:
        if d.number is not None:
            return d.number != 1
        if all(c >= 0 for c in (d - 2).terms.values()):
            return True
        return any(c.kind in ("ne", "ge") and self._excludes(c, d - 1) for c in self.known)

    def _excludes(self, cond: Cond, p: Int) -> bool:
        q = cond.args[0]
        if cond.kind == "ge":
            between = (p - 1 - q).number  # not normalised: that may have asked
            return between is not None and between >= 0
        return q == p or q == -p or q.replaced(self._equal.get) in (p, -p)

    def gate(self, i: Int, clauses: Iterable[Iterable[Int]]) -> Int:
        """The index i where each clause has a dimension that is not 1, else 0."""
        found: set[frozenset[Int]] = set()
        for clause in clauses:
            members = frozenset(d for d in clause if d.number != 1)
            if not members:
                return ZERO
            if not any(self._is_not_one(d) for d in members):
                found.add(members)
        if len(i.terms) == 1:
            ((m, c),) = i.terms.items()
            if len(m) == 1 and c == 1 and m[0].kind == "gate":
                found |= m[0].args[1]
                i = m[0].args[0]
        found = {f for f in found if not any(g < f for g in found)}
        return Int({(atom("gate", i, frozenset(found)),): 1}) if found and i != ZERO else i

    def stretched(self, i: Int, d: Int, out: Int) -> Int:
        """The index into a dimension d that is stretched to ``out``, where i is the index into that."""
        d, out = self.norm(d), self.norm(out)
        if d == out:
            return i
        if d == ONE:
            return ZERO
        if self.prove(eq(d, 1)):
            return ZERO
        if self.prove(eq(d, out)) or self.prove(~eq(d, 1)):
            return i
        one = next(iter(d.atoms)) if len(d.terms) == 1 and len(d.atoms) == 1 else None
        clause = one.args[0] if one is not None and one.kind == "wide" else [d]
        return self.gate(i, [clause])

    def remainder(self, p: Int, d: Int) -> Int:
        """P % d, for d > 0."""
        return p - d * self.quotient(p, d)


def _primitive(p: Int) -> Int:
    """An equation without what all its terms have in common: a number, and dimensions, which are not 0."""
    if not p.terms:
        return p
    for a in next(iter(p.terms)):
        if a.kind == "dim" and all(a in m for m in p.terms):
            return _primitive(Int({(*m[: m.index(a)], *m[m.index(a) + 1 :]): c for m, c in p.terms.items()}))
    common = gcd(*p.terms.values())
    return Int({m: c // common for m, c in p.terms.items()}) if common > 1 else p


def flat(index: Sequence[Int], shape: Sequence[Int]) -> Int:
    """The position of an element in row-major order."""
    result = ZERO
    for i, d in zip(index, shape, strict=True):
        result = result * d + i
    return result


def unflat(facts: Facts, position: Int, shape: Sequence[Int]) -> tuple[Int, ...]:
    """The index of the element at a position in row-major order."""
    index = []
    for axis, d in enumerate(shape):
        stride = product(shape[axis + 1 :])
        at = facts.quotient(position, stride)
        index.append(ZERO if d == ONE else at if axis == 0 else facts.remainder(at, d))
    return tuple(index)
