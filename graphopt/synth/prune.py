"""Which rules follow from others: by one application (a more general rule) or by two."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

from graphopt.ir.edit import RefusedError
from graphopt.ir.graph import Graph
from graphopt.rewrite.apply import apply
from graphopt.rewrite.library import Library
from graphopt.rewrite.schema import Rule
from graphopt.rewrite.sites import Sites
from graphopt.synth.graphs import canonical, graph_of
from graphopt.synth.pairs import Pair

_WIDTH = 40  # graphs that the first application may lead to


class Rewriter:
    """Asks whether rules lead from one side of a pair to the other."""

    def __init__(self, rules: Sequence[Rule]) -> None:
        self.rules = tuple(rules)

    @cached_property
    def library(self) -> Library:
        """The rules, ready to be matched."""
        return Library(self.rules)

    def derives(self, pair: Pair, steps: int = 2) -> tuple[str, ...]:
        """Ids of rules that lead from ``before`` to ``after`` in at most ``steps`` applications; empty when none do."""
        if not self.rules:
            return ()
        return self.path(graph_of(pair.before, pair.shapes), graph_of(pair.after, pair.shapes), steps)

    def path(self, before: Graph, after: Graph, steps: int = 2) -> tuple[str, ...]:
        """The same for graphs."""
        target = canonical(after)
        seen = {canonical(before)}
        level: list[tuple[Graph, tuple[str, ...]]] = [(before, ())]
        for _ in range(steps):
            reached: list[tuple[Graph, tuple[str, ...]]] = []
            for graph, used in level:
                sites = Sites.of(graph, self.library)
                for key in sorted(sites.matches):
                    try:
                        made, _ = apply(graph, sites.matches[key])
                    except RefusedError:
                        continue
                    name = canonical(made)
                    if name == target:
                        return (*used, key[0])
                    if name not in seen:
                        seen.add(name)
                        reached.append((made, (*used, key[0])))
            level = reached[:_WIDTH]
        return ()
