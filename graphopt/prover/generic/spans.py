"""Ranges of bound indices, and the parts of them in which conditions hold."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from graphopt.prover.generic.facts import Facts
from graphopt.prover.generic.propositions import Cond, ge
from graphopt.prover.generic.sizes import Atom, Int, coefficient, whole
from graphopt.prover.generic.terms import (
    Change,
    put_inside,
)


def replacing(facts: Facts, to: Mapping[Atom, Int]) -> Change:
    """Polynomials with other sizes in place of some symbols."""
    return lambda p: facts.norm(p.replaced(lambda a: put_inside(a, to)))


def ranged(facts: Facts, v: Atom, size: Int, conds: Sequence[Cond]) -> tuple[Int, Int, list[Cond]] | None:
    """First index, length and other conditions of the part of a range in which conditions hold; ``None`` if empty."""
    lows, highs, guards = [whole(0)], [size], []
    for cond in conds:
        apart = coefficient(cond.args[0], v) if cond.kind in ("ge", "eq") else None
        by = apart[0].number if apart is not None else None
        # A window's place depends on where it is: where it is in the image stays a condition.
        if apart is None or by not in (1, -1) or any(a.kind in ("fresh", "bound", "index") for a in apart[1].leaves):
            guards.append(cond)
            continue
        at = -apart[1] if by == 1 else apart[1]
        if by == 1 or cond.kind == "eq":
            lows.append(at)
        if by == -1 or cond.kind == "eq":
            highs.append(at + 1)
    low, high = _extreme(facts, lows, True), _extreme(facts, highs, False)
    if not facts.decide(ge(high, low + 1)):
        return None
    return low, high - low, guards


def _extreme(facts: Facts, items: list[Int], largest: bool) -> Int:
    best = items[0]
    for item in items[1:]:
        if facts.decide(ge(item, best) if largest else ge(best, item)):
            best = item
    return best
