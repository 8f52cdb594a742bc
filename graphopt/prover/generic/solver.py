"""Questions about whole numbers, put to z3."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any

import z3

from graphopt.prover.generic.propositions import Cond
from graphopt.prover.generic.sizes import Atom, Int

_MILLISECONDS = 150  # for one question
NATURAL = frozenset({"dim", "count", "index", "fresh", "bound", "div", "gate", "wide"})
"""Kinds of symbols that are never negative."""


class Solver:
    """Asks z3, whose terms are kept.

    Args:
        below: For an index, what it is below; may grow.
    """

    def __init__(self, below: Mapping[Atom, Int]) -> None:
        self.below = below
        self._atoms: dict[Atom, Any] = {}

    def follows(self, cond: Cond, known: Iterable[Cond], leaves: Collection[Atom]) -> bool:
        """Whether a condition follows from others in which the given symbols are; not, where that is not found in time."""
        solver = z3.Solver()
        solver.set("timeout", _MILLISECONDS)
        seen: set[Atom] = set()
        for a in leaves:
            self._bounds(solver, a, seen)
        for c in known:
            solver.add(self._cond(c))
        solver.add(z3.Not(self._cond(cond)))
        return bool(solver.check() == z3.unsat)

    def _bounds(self, solver: Any, a: Atom, seen: set[Atom]) -> None:
        if a in seen:
            return
        seen.add(a)
        term = self._atom(a)
        if a.kind in NATURAL:
            solver.add(term >= (1 if a.kind == "dim" else 0))
        if a in self.below:
            solver.add(term < self._int(self.below[a]))
            for b in self.below[a].leaves:
                self._bounds(solver, b, seen)

    def _cond(self, cond: Cond) -> Any:
        """A condition as a term of z3."""
        match cond.kind:
            case "ge":
                return self._int(cond.args[0]) >= 0
            case "eq":
                return self._int(cond.args[0]) == 0
            case "ne":
                return self._int(cond.args[0]) != 0
            case "or":
                return z3.Or([self._cond(c) for c in cond.args])
        return z3.And([self._cond(c) for c in cond.args])

    def _int(self, p: Int) -> Any:
        """A polynomial as a term of z3."""
        parts = []
        for m, c in p.terms.items():
            term: Any = z3.IntVal(c)
            for a in m:
                term = term * self._atom(a)
            parts.append(term)
        return z3.Sum(parts) if parts else z3.IntVal(0)

    def _atom(self, a: Atom) -> Any:
        held = self._atoms.get(a)
        if held is None:
            if a.kind == "div":
                held = self._int(a.args[0]) / self._int(a.args[1])
            elif a.kind == "gate":
                open_ = z3.And([z3.Or([self._int(d) != 1 for d in clause]) for clause in a.args[1]])
                held = z3.If(open_, self._int(a.args[0]), 0)
            elif a.kind == "wide":
                held = z3.IntVal(1)
                for d in a.args[0]:
                    held = z3.If(self._int(d) != 1, self._int(d), held)
            else:
                held = z3.Int(a.name)
            self._atoms[a] = held
        return held
