"""Sizes that depend on each other: a mask is as long as the past and what comes together.

What is known of symbols are equations of sums. They are solved for symbols by others, in the order of trust: what contradicts an
earlier one is left out.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

Linear = Mapping[str, int]
"""A sum: how often each symbol counts, and a number under the empty name."""

_PART = re.compile(r"(?:(\d+)\s*\*\s*)?([\w.\[\]/:-]+)(?:\s*\*\s*(\d+))?")


def linear(dim: int | str) -> Linear:
    """A dimension as a sum: ``past + 1`` is of a symbol and a number; what is not written as a sum is one symbol."""
    if isinstance(dim, int):
        return {"": dim}
    found: dict[str, int] = {}
    for part in dim.split("+"):
        match = _PART.fullmatch(part.strip())
        if match is None:
            return {dim: 1}
        before, name, after = match.groups()
        times = int(before or 1) * int(after or 1)
        if name.isdigit():
            times, name = times * int(name), ""
        found[name] = found.get(name, 0) + times
    return found


def addends(dim: str) -> list[str]:
    """The symbols in a dimension such as ``past + 1``; the symbol alone for most."""
    return [name for name in linear(dim) if name]


def evaluated(sum: Linear, sizes: Mapping[str, int]) -> int | None:
    """The value of a sum; ``None`` where a size is missing."""
    if any(name and name not in sizes for name in sum):
        return None
    total = 0
    for name, times in sum.items():
        total += times * (sizes[name] if name else 1)
    return total


def solve(equations: Iterable[tuple[Linear, Linear]], last: Iterable[str] = ()) -> dict[str, Linear]:
    """Symbols by others.

    Args:
        equations: Sums that are equal, the surest first.
        last: Names to be rid of first, where there is a choice; else symbols go that were met last.

    Returns:
        For each symbol that depends on others, of what it is the sum; those others depend on none.
    """
    solved: dict[str, dict[str, int]] = {}
    met: dict[str, int] = {}
    unwanted = set(last)
    for one, two in equations:
        for name in (*one, *two):
            met.setdefault(name, len(met))
        rest = _minus(_put_in(one, solved), _put_in(two, solved))
        choices = [name for name, times in rest.items() if name and abs(times) == 1]
        if not choices:
            continue

        def rank(name: str, rest: Mapping[str, int] = rest) -> tuple[bool, bool, int]:
            value = _solved_for(name, rest)
            return all(times >= 0 for times in value.values()), name in unwanted, met[name]

        pivot = max(choices, key=rank)
        value = _solved_for(pivot, rest)
        solved = {name: _put_in(sum, {pivot: value}) for name, sum in solved.items()}
        solved[pivot] = value
    return {name: sum for name, sum in solved.items() if name not in unwanted}


def _solved_for(name: str, rest: Mapping[str, int]) -> dict[str, int]:
    """A symbol of a sum that is nothing."""
    return {other: -times * rest[name] for other, times in rest.items() if other != name}


def _put_in(sum: Linear, solved: Mapping[str, Linear]) -> dict[str, int]:
    found: dict[str, int] = {}
    for name, times in sum.items():
        for other, more in solved.get(name, {name: 1}).items():
            found[other] = found.get(other, 0) + times * more
    return {name: times for name, times in found.items() if times}


def _minus(one: Mapping[str, int], two: Mapping[str, int]) -> dict[str, int]:
    found = dict(one)
    for name, times in two.items():
        found[name] = found.get(name, 0) - times
    return {name: times for name, times in found.items() if times}
