"""Parts of a reward. A task names some of them, with weights; their sum is what an episode pays, as it comes.

Dense terms are paid at each rewrite, final ones at STOP. An episode that runs out of its budget is cut off, not ended: it gets no
final terms, and whoever learns from it puts the value of its last state in their place.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from graphopt.ir.graph import Graph


@dataclass(frozen=True)
class CostChange:
    """A rewrite that was made.

    Attributes:
        before: Predicted milliseconds before it.
        after: The same after it.
        start: The same at the start of the episode.
    """

    before: float
    after: float
    start: float


@dataclass(frozen=True, eq=False)
class EpisodeEnd:
    """An episode that ended.

    Attributes:
        start: The graph at the start.
        graph: The graph at the end.
        speedup: Measures how many times as fast as the original ``graph`` is (the same answer whenever asked).
    """

    start: Graph
    graph: Graph
    speedup: Callable[[], float]


@dataclass(frozen=True)
class TermKind:
    """How a term is computed.

    Attributes:
        doc: One line for people.
        dense: Paid at each rewrite.
        final: Paid at STOP.
    """

    doc: str
    dense: Callable[[CostChange], float] | None = None
    final: Callable[[EpisodeEnd], float] | None = None


def percent(before: float, after: float, start: float) -> float:
    """``100 (before - after) / start``: sums over an episode to the saving as a percentage."""
    return 100.0 * (before - after) / max(start, 1e-12)


def memory(graph: Graph) -> int:
    """Peak bytes of the values that are alive at a time when the nodes run one after the other."""
    left = {key: len(users) for key, users in graph.users.items()}
    size = {
        key: value.type.nbytes or 0
        for key, value in graph.values.items()
        if not value.const and (value.producer is not None or key in graph.inputs)
    }
    alive = sum(size.get(key, 0) for key in graph.inputs)
    peak = alive
    for node in graph.in_order():
        if graph.is_lazy(node):
            continue
        made = [key for key in node.outputs if key is not None]
        alive += sum(size.get(key, 0) for key in made)
        peak = max(peak, alive)
        unread = [key for key in made if not left[key] and key not in graph.output_keys]
        alive -= sum(size.get(key, 0) for key in unread)
        for key in dict.fromkeys(k for k in node.inputs if k is not None):
            left[key] -= 1
            if left[key] == 0 and key not in graph.output_keys:
                alive -= size.get(key, 0)
    return peak


def weights(graph: Graph) -> int:
    """Bytes of the constants that nodes read when the model runs, computed ones included."""
    read = {
        key
        for node in graph.nodes.values()
        if not graph.is_lazy(node)
        for key in node.inputs
        if key is not None and graph.values[key].const
    }
    return sum(graph.values[key].type.nbytes or 0 for key in read)


def _share(measure: Callable[[Graph], int]) -> Callable[[EpisodeEnd], float]:
    def term(end: EpisodeEnd) -> float:
        before, after = measure(end.start), measure(end.graph)
        return percent(before, after, before or after)  # of nothing there are no percents: all that came is new

    return term


TERMS: Mapping[str, TermKind] = {
    "cost": TermKind(
        "predicted milliseconds saved, in percent of those at the start",
        dense=lambda m: percent(m.before, m.after, m.start),
    ),
    "latency": TermKind(
        "measured time saved, in percent of the original's", final=lambda e: 100 * (1 - 1 / e.speedup())
    ),
    "memory": TermKind("peak bytes of activations saved, in percent", final=_share(memory)),
    "weights": TermKind("bytes of weights saved, in percent", final=_share(weights)),
    "nodes": TermKind("nodes saved, in percent", final=_share(Graph.live_nodes)),
    "steps": TermKind("-1 for each rewrite", dense=lambda m: -1.0),
}
