"""The normal form: what can never cost is done before any search, and after every step of one.

Rules that say ``always`` are carried out wherever their conditions and hints hold, by a worklist and without prices: a pass is linear
in the nodes, and after a rewrite only what it changed is looked at again. So a rule need not clean up after itself, and
graphs that differ by noise alone are one graph with one hash.

A step of a search is a rewrite and the cleaning around it; the steps to the normal form are single rewrites, so that a trace
names each and a wrong one is found.
"""

from __future__ import annotations

from dataclasses import dataclass

from graphopt.ir.delta import Delta, RefusedError, together
from graphopt.ir.graph import Graph
from graphopt.rewrite.apply import apply
from graphopt.rewrite.library import Library
from graphopt.rewrite.match import Match, Starts, find_from
from graphopt.runtime import kernels

_MOST = 10_000
"""Rewrites around one step after which its cleaning ends: rules that make ever larger graphs must not go on for ever."""
_FIRST = frozenset({0})


@dataclass(frozen=True, slots=True)
class Cleaned:
    """A rewrite of the normal form: the graph it was made in, and where."""

    graph: Graph
    match: Match


def normal_form(graph: Graph, library: Library, block: int = 16) -> tuple[Graph, list[Cleaned]]:
    """The normal form of a graph, and the steps to it.

    Args:
        graph: The graph.
        library: The rules, of which those that say ``always`` count.
        block: Channel block of the target's fast convolution layout.
    """
    return _fixed_point(graph, library.always, block)


def flat_form(graph: Graph, library: Library, block: int = 16) -> tuple[Graph, list[Cleaned]]:
    """The form in which a graph is written, by the rules that say ``last`` and those that say ``always``, and the steps to it.

    It may be worse: what a rule moves for the sake of the next is lost where there is no next.
    """
    if not any(rule.last for rule in library.rules):
        return graph, []
    return _fixed_point(graph, library.last, block)


def _fixed_point(graph: Graph, always: Library, block: int) -> tuple[Graph, list[Cleaned]]:
    """Rules carried out wherever their conditions and hints hold, until they hold nowhere."""
    made = list[Cleaned]()
    if not always.rules:
        return graph, made
    seen = {graph.hash}
    # What changes nothing goes first, or a factor of one goes into the weights of a layer, which are not those of its twin any more.
    for rules in (always.drops, always):
        # Backwards: what computes a shape need not be looked at once the shape is known where it is used.
        for id in [node.id for node in graph.in_order()][::-1]:
            # Each match is found from the node of its first line; around a rewrite all lines are tried.
            while (found := _first(graph, rules, id, block, seen, anchors=_FIRST)) is not None:
                match, after, delta = found
                made.append(Cleaned(graph, match))
                graph, _ = _clean(after, delta, rules, block, seen, made)
    return graph, made


def rewritten(graph: Graph, match: Match, library: Library, block: int = 16) -> tuple[Graph, Delta]:
    """The graph after a rewrite, clean around it, and what changed.

    Raises:
        RefusedError: The rewrite would break an invariant of the graph, or the processor has no kernel for it.
    """
    graph, delta = alone(graph, match, block)
    always = library.always
    return _clean(graph, delta, always, block, set()) if always.rules else (graph, delta)


def alone(graph: Graph, match: Match, block: int = 16) -> tuple[Graph, Delta]:
    """The graph after a rewrite, as it leaves it, and what changed; raises as :func:`rewritten` does."""
    made, delta = apply(graph, match, block)
    missing = kernels.complaint(made, delta)
    if missing:
        raise RefusedError(missing)
    return made, delta


def _clean(
    graph: Graph, delta: Delta, always: Library, block: int, seen: set[int], made: list[Cleaned] | None = None
) -> tuple[Graph, Delta]:
    """The graph without what the rules that always hold find around an edit, and all that changed.

    ``seen`` holds the hashes of the graphs on the way, to which none comes back; ``made`` takes the rewrites.
    """
    deltas = [delta]
    seen.add(graph.hash)
    todo = dict.fromkeys(_changed(graph, delta))
    while todo and len(deltas) <= _MOST:
        id = next(iter(todo))
        found = _first(graph, always, id, block, seen)
        if found is None:
            del todo[id]
            continue
        if made is not None:
            made.append(Cleaned(graph, found[0]))
        _, graph, delta = found
        seen.add(graph.hash)
        deltas.append(delta)
        todo.update(dict.fromkeys(_changed(graph, delta)))
    return graph, together(deltas) if len(deltas) > 1 else delta


def _changed(graph: Graph, delta: Delta) -> list[int]:
    """The nodes at which an edit may have made a match, in an order that the edit alone decides."""
    return [
        *(node.id for node in delta.added if node.id in graph.nodes),
        *(i for i in delta.touched if i in graph.nodes),
    ]


def _first(
    graph: Graph, always: Library, id: int, block: int, seen: set[int], anchors: frozenset[int] | None = None
) -> tuple[Match, Graph, Delta] | None:
    """The first match with a node that can be rewritten, and what comes of it: no graph that was there before."""
    node = graph.nodes.get(id)
    if node is None or graph.is_lazy(node):
        return None
    known = Starts()
    for plan in always.plans(graph, node):
        if anchors is not None and plan.anchor not in anchors:
            continue
        for match in find_from(graph, plan, node, block, known=known):
            if not match.preferred:
                continue
            try:
                after, delta = alone(graph, match, block)
            except RefusedError:
                continue
            if after.hash not in seen:
                return match, after, delta
    return None
