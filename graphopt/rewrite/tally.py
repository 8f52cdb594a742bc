"""What matching does on one graph, rule by rule.

For people who write rules: the search goes through :mod:`graphopt.rewrite.sites`, which counts and times nothing.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

from graphopt.ir.graph import Graph
from graphopt.rewrite.library import Library
from graphopt.rewrite.match import Around, find
from graphopt.rewrite.schema import Rule


@dataclass(slots=True)
class Tally:
    """What the matcher did for one rule.

    Attributes:
        rule: The rule.
        tries: Nodes at which it started: those with an operator of the pattern's first line.
        hits: Matches found.
        preferred: Matches in which the rule's hints hold (all of them when it has none).
        seconds: Time spent.
    """

    rule: Rule
    tries: int = 0
    hits: int = 0
    preferred: int = 0
    seconds: float = 0.0


def tally(graph: Graph, library: Library, block: int = 16) -> list[Tally]:
    """Find all matches of a graph as :meth:`graphopt.rewrite.sites.Sites.of` does, and count.

    The first look at a graph reads its small constants, at the expense of whichever rule asks first: for times that
    can be compared, look twice.

    Args:
        graph: The graph.
        library: The rules; each gets an entry, in the same order.
        block: Channel block of the target's fast convolution layout.
    """
    found = {rule.id: Tally(rule) for rule in library.rules}
    clock = time.perf_counter
    for node in graph.in_order():
        around = Around.of(graph, node)
        for plan in library.first_plans(node):
            entry = found[plan.rule.id]
            begin = clock()
            matches = list(find(graph, plan, node, block, around))
            entry.seconds += clock() - begin
            entry.tries += 1
            entry.hits += len(matches)
            entry.preferred += sum(match.preferred for match in matches)
    return list(found.values())
