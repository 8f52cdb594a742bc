"""Whose turn is when.

A run that is out of time should have met every family of laws. Small laws come first, because larger ones follow from them;
but some combinations of operators have laws by the hundred, all small and all alike (where signs may stand, what may be
added twice), and others have two. So every law of a combination pushes those after it back.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from graphopt.synth.pairs import Pair
from graphopt.synth.work import Group

ALIKE = 8
"""Laws of the same operators that count as much as one operator more."""


def in_turn(groups: Sequence[Group]) -> list[Group]:
    """Groups of pairs, each of one skeleton, in the order in which they should be looked at."""
    before: Counter[frozenset[str]] = Counter()
    placed: list[tuple[int, int, Group]] = []
    for pair, group in sorted(((Pair.from_json(group[0]), group) for group in groups), key=lambda item: _size(item[0])):
        placed.append((pair.size + before[pair.ops] // ALIKE, len(placed), group))
        before[pair.ops] += 1
    return [group for _, _, group in sorted(placed, key=lambda item: item[:2])]


def _size(pair: Pair) -> tuple[int, int, int, str]:
    """Small laws first, and of those the ones with more inputs that may differ."""
    return pair.size, len(pair.before.nodes), -len(pair.shapes), repr(pair.skeleton())
