"""The cheapest way to compute some values, out of many: extraction from an e-graph as a 0/1 program, solved by HiGHS.

Yang et al., "Equality Saturation for Tensor Graph Superoptimization" (TENSAT), MLSys 2021, section 5.1: a variable for each node, at least one
chosen node for each value that is wanted or that a chosen node reads. A node counts once however many read it, which extraction
bottom-up, value by value, can't see. Unlike in the paper

- a node may make several values,
- no variables order the values. A solution in which values are computed from each other alone is cut off when it comes up, and solved again: if a chosen
  node reads one of a set of values, some chosen node makes one of them from values outside of it (a loop formula, as in answer set programming). That cuts off
  nothing else, and few of the cycles that an e-graph has ever pay.

Needs SciPy, of the ``egraph`` extra.
"""

from __future__ import annotations

import math
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

MOST_CUTS = 60
"""Solutions with cycles after which an extraction gives up."""
BRANCHES = 5000
"""Nodes of the solver's search tree: unlike seconds the same on a busy machine."""
GAP = 1e-5
"""Share of the price by which a solution may miss the cheapest."""

Row = Mapping[int, float]


@dataclass(frozen=True, slots=True)
class Alternative:
    """A way to compute values: an e-node, and the e-classes around it.

    Attributes:
        makes: The values.
        reads: From which.
    """

    makes: tuple[int, ...]
    reads: tuple[int, ...]


class Extraction:
    """Chooses among alternatives.

    Args:
        alternatives: All there are.
        wanted: Values that have to be computed.
        given: Values that are there without being computed.
    """

    def __init__(self, alternatives: Sequence[Alternative], wanted: Iterable[int], given: Collection[int] = ()) -> None:
        self.alternatives, self.given = tuple(alternatives), frozenset(given)
        self.wanted = tuple(key for key in dict.fromkeys(wanted) if key not in self.given)
        self.makers: dict[int, list[int]] = {}
        self.readers: dict[int, list[int]] = {}
        for i, alternative in enumerate(alternatives):
            for key in dict.fromkeys(alternative.makes):
                self.makers.setdefault(key, []).append(i)
            for key in dict.fromkeys(alternative.reads):
                self.readers.setdefault(key, []).append(i)
        # Each row is at least its bound: demand, then what was cut off.
        self._rows: list[tuple[Row, float]] = [(self._made(key), 1.0) for key in self.wanted]
        for key, readers in self.readers.items():
            if key not in self.given:
                self._rows += [self._needs(reader, self._made(key)) for reader in readers]

    @property
    def size(self) -> int:
        """How many alternatives there are."""
        return len(self.alternatives)

    def cheapest(self, prices: Sequence[float], seconds: float = math.inf) -> frozenset[int] | None:
        """The alternatives that compute what is wanted at the lowest sum of prices, none of them in vain.

        Args:
            prices: Of each alternative, not negative, in any unit.
            seconds: Limit; what was found by then counts, if anything was.

        Returns:
            Their numbers; ``None`` if there is no way (any more), or none was found within the limits.
        """
        end = time.monotonic() + seconds
        for _ in range(MOST_CUTS):
            left = end - time.monotonic()
            chosen = self._solved(prices, left) if left > 0 else None
            if chosen is None:
                return None
            used = self._founded(chosen)
            if used is not None:
                return used
            self._cut(chosen)
        return None

    def forbid(self, chosen: Collection[int]) -> None:
        """Let no later solution hold all of some alternatives: those of a solution are not found again, and not with useless ones added."""
        self._rows.append((dict.fromkeys(chosen, -1.0), 1.0 - len(chosen)))

    def _made(self, key: int) -> Row:
        return dict.fromkeys(self.makers.get(key, ()), 1.0)

    def _needs(self, reader: int, support: Row) -> tuple[Row, float]:
        """If the reader is chosen, something of the support is."""
        return {**support, reader: support.get(reader, 0.0) - 1.0}, 0.0

    def _solved(self, prices: Sequence[float], seconds: float) -> frozenset[int] | None:
        """A cheapest solution of the rows so far."""
        from scipy.optimize import Bounds, LinearConstraint, milp
        from scipy.sparse import csr_array

        count = self.size
        if not count:
            return None if self.wanted else frozenset()
        costs = np.asarray(prices, float)
        values, columns, ends, bounds = list[float](), list[int](), [0], list[float]()
        for row, bound in self._rows:
            columns += row.keys()
            values += row.values()
            ends.append(len(columns))
            bounds.append(bound)
        # Before scipy 1.15 HiGHS takes no indices of 64 bits, which lists of numbers become.
        rows = csr_array(
            (values, np.asarray(columns, np.int32), np.asarray(ends, np.int32)), shape=(len(bounds), count)
        )
        found = milp(
            costs / max(float(costs.max()), 1e-12),
            integrality=np.ones(count),
            bounds=Bounds(0, 1),
            constraints=LinearConstraint(rows, np.asarray(bounds)) if bounds else (),
            options={"time_limit": min(seconds, 1e6), "node_limit": BRANCHES, "mip_rel_gap": GAP},
        )
        return None if found.x is None else frozenset(np.flatnonzero(found.x > 0.5).tolist())

    def _founded(self, chosen: frozenset[int]) -> frozenset[int] | None:
        """Of the chosen alternatives those that compute what is wanted; ``None`` where some of it has no way from what is given."""
        by = self._made_by(chosen)
        used, todo = set[int](), list(self.wanted)
        while todo:
            key = todo.pop()
            if key in self.given:
                continue
            if key not in by:
                return None
            if by[key] not in used:
                used.add(by[key])
                todo += self.alternatives[by[key]].reads
        return frozenset(used)

    def _made_by(self, chosen: Iterable[int]) -> dict[int, int]:
        """Which of the chosen alternatives makes each value that has a way from what is given: the one with the shortest way, then the first.

        Each alternative is looked at once for each value that it reads: a model of 20,000 nodes in a row has as many levels.
        """
        missing, readers = dict[int, int](), dict[int, list[int]]()
        for i in sorted(chosen):
            reads = set(self.alternatives[i].reads) - self.given
            missing[i] = len(reads)
            for key in reads:
                readers.setdefault(key, []).append(i)
        by, ready = dict[int, int](), [i for i, count in missing.items() if not count]
        while ready:
            fresh = list[int]()
            for i in ready:
                for key in self.alternatives[i].makes:
                    if key not in self.given and key not in by:
                        by[key] = i
                        fresh.append(key)
            following = list[int]()
            for key in fresh:
                for i in readers.get(key, ()):
                    missing[i] -= 1
                    if not missing[i]:
                        following.append(i)
            ready = sorted(following)
        return by

    def _cut(self, chosen: frozenset[int]) -> None:
        """Cut off that values are computed from each other alone."""
        below = self._closed(chosen)
        support = {
            i: 1.0
            for key in sorted(below)
            for i in self.makers.get(key, ())
            if below.isdisjoint(self.alternatives[i].reads)
        }
        self._rows += [(support, 1.0) for key in self.wanted if key in below]
        readers = {i for key in below for i in self.readers.get(key, ())}
        self._rows += [self._needs(i, support) for i in sorted(readers)]

    def _closed(self, chosen: frozenset[int]) -> frozenset[int]:
        """Values that chosen alternatives compute from these very values, as few as a walk against the edges comes to."""
        lost = self._lost(chosen)

        def above(key: int) -> set[int]:
            makers = [i for i in self.makers.get(key, ()) if i in chosen]
            return {k for i in makers for k in self.alternatives[i].reads if k in lost}

        key, passed = min(lost), set[int]()
        while key not in passed:  # until one depends on itself
            passed.add(key)
            key = min(above(key))
        found, todo = {key}, [key]
        while todo:
            fresh = above(todo.pop()) - found
            found |= fresh
            todo += sorted(fresh)
        return frozenset(found)

    def _lost(self, chosen: frozenset[int]) -> frozenset[int]:
        """Values that chosen alternatives make and that have no way from what is given."""
        by = self._made_by(chosen)
        known = self.given.union(by)
        return frozenset(
            key
            for i in chosen
            if not known.issuperset(self.alternatives[i].reads)
            for key in self.alternatives[i].makes
            if key not in known
        )
