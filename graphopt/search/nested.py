"""The bodies of control flow: their normal form, and what pays in them.

A body is opened, rewritten, and put back into its node, which is an edit of the graph around it. A trace holds the steps of a body one
after the other; a replay opens it once, too, so that it sees the same graphs.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from graphopt.ir.edit import Delta
from graphopt.ir.graph import Graph
from graphopt.onnxio.bodies import HAS_BODY
from graphopt.onnxio.inside import Path, body_paths, open_body

T = TypeVar("T")
_BODIES = 1000  # of a graph


def better_bodies(graph: Graph, better: Callable[[Graph], tuple[Graph, list[T]]]) -> tuple[Graph, list[tuple[Path, T]]]:
    """A graph with better bodies, and the steps to it, each with the body that it is made in.

    Args:
        graph: The graph.
        better: What becomes of the graph of a body, and the steps to it.
    """
    made = list[tuple[Path, T]]()
    if not any(node.opaque == HAS_BODY for node in graph.nodes.values()):
        return graph, made
    for path in list(body_paths(graph, set()))[:_BODIES]:
        found: list[tuple[Graph, list[T]]] = []

        def once(body: Graph, found: list[tuple[Graph, list[T]]] = found) -> Graph | None:
            found.append(better(body))
            return found[0][0] if found[0][1] else None

        changed = within(graph, path, once)
        # Some Identities come back when a body is written: they name an output, or what a body within it reads.
        if changed is not None and (changed[2] < 0 or any(node.rule for node in found[0][0].nodes.values())):
            graph = changed[0]
            made += [(path, step) for step in found[0][1]]
    return graph, made


def within(
    graph: Graph, path: Path, once: Callable[[Graph], Graph | None], taken: set[str] | None = None
) -> tuple[Graph, Delta, int] | None:
    """A graph with a body of it changed.

    Args:
        graph: The graph.
        path: Where the body is.
        once: What becomes of the graph of the body; ``None`` for nothing.
        taken: Names that nothing new in the body may have, besides those of the graph.

    Returns:
        The graph, what changed in it, and how many nodes the body has more; ``None`` where there is no such body, or nothing changes.
    """
    body = open_body(graph, path[:2], taken or set())
    if body is None:
        return None
    if len(path) > 2:
        deeper = within(body.graph, path[2:], once, body.taken)
        return None if deeper is None else (*body.put_back(graph, deeper[0])[:2], deeper[2])
    inner = once(body.graph)
    return None if inner is None else body.put_back(graph, inner)
