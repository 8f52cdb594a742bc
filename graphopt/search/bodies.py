"""The normal form of the bodies of control flow.

A step within a body opens it, rewrites it once, and puts it back, so that a trace names each and a replay makes the same graphs.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from graphopt.ir.edit import Delta
from graphopt.ir.graph import Graph
from graphopt.onnxio.bodies import HAS_BODY
from graphopt.onnxio.inside import Path, body_paths, open_body
from graphopt.rewrite.library import Library
from graphopt.rewrite.match import Match, find_from
from graphopt.search.cleaning import Cleaned, alone, clean_steps

_STEPS = 200  # in a body


def normal_bodies(graph: Graph, library: Library, block: int = 16) -> tuple[Graph, list[tuple[Path, Cleaned]]]:
    """A graph with its bodies in their normal form, and the steps to it, each with the body that it is made in.

    Args:
        graph: The graph.
        library: The rules, of which those that say ``always`` count.
        block: Channel block of the target's fast convolution layout.
    """
    always, made = library.always, list[tuple[Path, Cleaned]]()
    if not always.rules or not any(node.opaque == HAS_BODY for node in graph.nodes.values()):
        return graph, made
    for path in list(body_paths(graph, set())):
        for _ in range(_STEPS):
            step = _step(graph, path, always, block)
            if step is None:
                break
            graph, cleaned = step
            made.append((path, cleaned))
    return graph, made


def _step(graph: Graph, path: Path, always: Library, block: int) -> tuple[Graph, Cleaned] | None:
    """The graph after the first step in a body that makes a difference to what is written, and the step."""
    body = _body(graph, path)
    for match, after, delta in () if body is None else clean_steps(body, always, block):
        changed = _at(graph, path, set(), partial(_instead, after))
        # Some Identities come back when a body is written: they name an output, or what a body within it reads.
        if changed is not None and (changed[2] < 0 or any(node.rule for node in delta.added)):
            assert body is not None
            return changed[0], Cleaned(body, match)
    return None


def _instead(after: Graph, body: Graph) -> Graph:
    return after


def _body(graph: Graph, path: Path) -> Graph | None:
    """The graph of a body."""
    found: list[Graph] = []
    _at(graph, path, set(), lambda body: found.append(body))
    return found[0] if found else None


def made_again(
    graph: Graph, library: Library, block: int, path: Path, rule: str, site: str
) -> tuple[Graph, Delta] | None:
    """A graph after a step within one of its bodies, and what changed; ``None`` where there is no such place.

    Raises:
        RefusedError: The rewrite would break an invariant.
    """

    def once(body: Graph) -> Graph | None:
        match = _find(body, library, block, rule, site)
        return None if match is None else alone(body, match, block)[0]

    changed = _at(graph, path, set(), once)
    return None if changed is None else changed[:2]


def _find(graph: Graph, library: Library, block: int, rule: str, site: str) -> Match | None:
    for node in graph.in_order():
        for plan in library.plans(graph, node):
            if plan.rule.id == rule:
                for match in find_from(graph, plan, node, block):
                    if match.site == site:
                        return match
    return None


def _at(
    graph: Graph, path: Path, taken: set[str], once: Callable[[Graph], Graph | None]
) -> tuple[Graph, Delta, int] | None:
    """A graph with a body of it changed, what changed, and how many nodes the body has more; ``None`` where nothing does."""
    body = open_body(graph, path[:2], taken)
    if body is None:
        return None
    if len(path) > 2:
        deeper = _at(body.graph, path[2:], body.taken, once)
        return None if deeper is None else (*body.put_back(graph, deeper[0])[:2], deeper[2])
    inner = once(body.graph)
    return None if inner is None else body.put_back(graph, inner)
