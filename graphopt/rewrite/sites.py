"""All matches of a graph, kept up to date in time proportional to what an edit changed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from immutables import Map

from graphopt.ir.delta import Delta
from graphopt.ir.graph import Graph
from graphopt.rewrite.library import Library
from graphopt.rewrite.match import Match, Starts, find_from
from graphopt.rewrite.schema import Rule

Key = tuple[str, tuple[int, ...]]


@dataclass(frozen=True, eq=False)
class Sites:
    """The matches of a graph. Immutable; :meth:`after` shares what an edit did not touch.

    Attributes:
        library: The rules.
        matches: Match by rule id and matched nodes.
        by_node: Keys of the matches that a node takes part in.
        block: Channel block of the target.
        fresh: Keys of the matches that the last edit brought (all of them at the start).
    """

    library: Library
    matches: Map[Key, Match]
    by_node: Map[int, tuple[Key, ...]]
    block: int
    fresh: tuple[Key, ...]

    @classmethod
    def of(cls, graph: Graph, library: Library, block: int = 16) -> Sites:
        """All matches of a graph, from scratch."""
        matches: dict[Key, Match] = {}
        by_node: dict[int, tuple[Key, ...]] = {}
        for node in graph.in_order():
            known = Starts()
            for plan in library.plans(graph, node):
                if plan.anchor == 0:
                    for match in filter(library.shows, find_from(graph, plan, node, block, known=known)):
                        _add(matches, by_node, match)
        return cls(library, Map(matches), Map(by_node), block, tuple(matches))

    def after(self, graph: Graph, delta: Delta) -> Sites:
        """The matches of ``graph``, which came from this object's graph by the edit ``delta``."""
        matches, by_node = self.matches.mutate(), self.by_node.mutate()
        stale = {n.id for n in delta.removed} | {n.id for n in delta.added} | set(delta.touched)
        for id in stale:
            for key in by_node.pop(id, ()):
                if matches.pop(key, None) is None:
                    continue
                for other in key[1]:
                    if other not in stale and other in by_node:
                        by_node[other] = tuple(k for k in by_node[other] if k != key)
        fresh: list[Key] = []
        done: set[int] = set()  # all matches of these nodes are found
        for id in sorted((i for i in stale if i in graph.nodes), key=lambda i: (graph.order[i], i)):
            node, known = graph.nodes[id], Starts()
            for plan in self.library.plans(graph, node):
                for match in filter(self.library.shows, find_from(graph, plan, node, self.block, done, known)):
                    if _add(matches, by_node, match):
                        fresh.append((match.rule.id, match.nodes))
            done.add(id)
        return Sites(self.library, matches.finish(), by_node.finish(), self.block, tuple(fresh))

    def only(self, rule: Rule) -> Sites:
        """The matches of one rule."""
        matches: dict[Key, Match] = {}
        by_node: dict[int, tuple[Key, ...]] = {}
        for key, match in self.matches.items():
            if key[0] == rule.id:
                _add(matches, by_node, match)
        return Sites(Library((rule,)), Map(matches), Map(by_node), self.block, tuple(matches))

    def __iter__(self) -> Iterator[Match]:
        return iter(self.matches.values())

    def __len__(self) -> int:
        return len(self.matches)


def _add(matches: Any, by_node: Any, match: Match) -> bool:
    """Enter a match into two maps, dictionaries or persistent ones that are being changed; false if it is known."""
    key = (match.rule.id, match.nodes)
    if key in matches:
        return False
    matches[key] = match
    for id in dict.fromkeys(match.nodes):
        by_node[id] = (*by_node.get(id, ()), key)
    return True
