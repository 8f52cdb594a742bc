"""What an agent sees of a graph: numpy arrays, kept up to date in time proportional to what a rewrite changed.

Nodes and edges are described by groups of numbers that a task chooses from :data:`NODE`, :data:`EDGE` and :data:`GRAPH`.
Operators are known by a hash of their name, so an agent can be shown one that it never met. All logarithms are to base 2.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import log2, prod
from typing import Any

import numpy as np
import numpy.typing as npt

from graphopt.cost.base import Costs
from graphopt.cost.windows import CONVOLUTIONS, NORMALISATIONS, POINTWISE, PRODUCTS, REDUCTIONS, VIEWS
from graphopt.ir.graph import Graph, Node, Value
from graphopt.ir.types import FLOATS, ValueType, digest

Floats = npt.NDArray[np.float32]
Integers = npt.NDArray[np.int64]

OPERATORS = 2048
"""Buckets for the names of operators; the salt is chosen so that those which the shipped rules name do not collide."""
_SALT = 10
_ASIDE = {("", "STFT"): 1}
"""What is added to it for operators that rules came to name after agents had been trained, where they would collide."""
_MOVES = frozenset({"Transpose", "Concat", "Split", "Slice", "Pad", "Gather", "Expand", "Tile"})


def operator_bucket(domain: str, op: str) -> int:
    """The number that stands for an operator, the same in every process and version."""
    return digest("operator", _SALT + _ASIDE.get((domain, op), 0), domain, op) % OPERATORS


# --- groups of features: name, width, function -------------------------------------------------------------------------


def _kind(graph: Graph, node: Node) -> list[float]:
    op = node.op
    return [
        float(op in kind) for kind in (CONVOLUTIONS, PRODUCTS, POINTWISE, REDUCTIONS, VIEWS, NORMALISATIONS, _MOVES)
    ] + [float(bool(node.opaque))]


def _attributes(graph: Graph, node: Node) -> list[float]:
    a = node.attributes
    perm = _ints(a.get("perm"))
    return [
        log2(max(1, _int(a.get("group"), 1))) / 8,
        log2(max(1, abs(prod(_ints(a.get("kernel_shape")))))) / 8,
        max(_ints(a.get("strides")), default=1) - 1.0,
        max(_ints(a.get("dilations")), default=1) - 1.0,
        float(any(_ints(a.get("pads")))),
        _int(a.get("axis"), 0) / 4,
        float(bool(_int(a.get("transA"), 0))) + 2.0 * float(bool(_int(a.get("transB"), 0))),
        float(bool(perm) and perm[-1] != len(perm) - 1),
        len(a) / 8,
    ]


def _shape(graph: Graph, node: Node) -> list[float]:
    out = next((graph.values[k].type for k in node.outputs if k is not None), None)
    read = [graph.values[k] for k in node.inputs if k is not None]
    weights = sum(v.type.nbytes or 0 for v in read if v.const)
    largest = max((v.type.elements or 0 for v in read), default=0)
    return [*_extent(out), log2(1 + largest) / 24, log2(1 + weights) / 24]


def _dtype(graph: Graph, node: Node) -> list[float]:
    out = next((graph.values[k].type for k in node.outputs if k is not None), None)
    return _dtype_of(None if out is None else out.dtype)


def _constness(graph: Graph, node: Node) -> list[float]:
    const = [graph.values[k].const for k in node.inputs if k is not None]
    return [float(graph.is_lazy(node)), sum(const) / max(1, len(const)), float(any(const))]


def _fan_out(graph: Graph, node: Node) -> list[float]:
    readers = sum(len(graph.users[k]) for k in node.outputs if k is not None)
    ends = any(k in graph.output_keys for k in node.outputs if k is not None)
    return [log2(1 + readers) / 4, float(ends), len(node.inputs) / 8, len(node.outputs) / 8]


def _position(value: Value, position: int) -> list[float]:
    return [position / 4, float(position == 0), float(position == 1)]


def _value_shape(value: Value, position: int) -> list[float]:
    return _extent(value.type)


def _value_dtype(value: Value, position: int) -> list[float]:
    return _dtype_of(value.type.dtype)


NodeGroup = Callable[[Graph, Node], list[float]]
EdgeGroup = Callable[[Value, int], list[float]]

NODE: Mapping[str, tuple[int, NodeGroup | None]] = {
    "operator": (8, _kind),  # what sort it is; its name goes separately, as a number to look up
    "attributes": (9, _attributes),
    "shape": (8, _shape),
    "dtype": (5, _dtype),
    "constness": (3, _constness),
    "fan-out": (4, _fan_out),
    "price": (2, None),  # changes with the neighbours, so it is read anew at each step
}
EDGE: Mapping[str, tuple[int, EdgeGroup]] = {
    "position": (3, _position),
    "shape": (6, _value_shape),
    "dtype": (5, _value_dtype),
}
GRAPH: Mapping[str, int] = {"cost": 3, "size": 3, "progress": 1}
STOP = 0
"""The action that ends an episode, always legal."""
ACTION_WIDTH = 6
SAVING, FRESH = 0, 5
"""Features of an action that a world model knows the meaning of: its predicted saving, and that the last step brought it."""
PRIOR = (1.0, 0.0, 0.0, 0.0, 1.5, 0.0)
"""What an action's features add to its score before anything is learned: its predicted saving, and that its rule's hints hold."""


def _extent(type: ValueType | None) -> list[float]:
    """Rank, the last four dimensions and the number of elements; what is unknown is -1/8."""
    if type is None or type.shape is None:
        return [-0.125] * 6
    dims = [log2(1 + d) / 16 if isinstance(d, int) else -0.125 for d in type.shape[-4:]]
    n = type.elements
    return [len(type.shape) / 8, *([0.0] * (4 - len(dims))), *dims, -0.125 if n is None else log2(1 + n) / 24]


def _dtype_of(dtype: str | None) -> list[float]:
    return [
        float(dtype == "f32"),
        float(dtype in FLOATS and dtype != "f32"),
        float(dtype in ("i64", "i32")),
        float(dtype == "bool"),
        float(dtype in ("i8", "u8")),
    ]


def _int(value: Any, default: int) -> int:
    return value if isinstance(value, int) else default


def _ints(value: Any) -> tuple[int, ...]:
    return tuple(v for v in value if isinstance(v, int)) if isinstance(value, tuple | list) else ()


# --- a graph as arrays ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Observation:
    """A state as an agent sees it. Action 0 is STOP, which is always legal.

    Attributes:
        operators: Bucket of each node's operator, (nodes,).
        nodes: Features of the nodes, (nodes, n).
        links: Index of the node that makes a value, and of one that reads it, (2, edges).
        edges: Features of the edges, (edges, e).
        graph: Features of the whole, (g,).
        rules: Index of each action's rule in the library, -1 for STOP, (actions,).
        sites: Indices of the nodes that an action's pattern matched, in the order of its lines, -1 where it has no more,
            (actions, lines).
        actions: Predicted saving and the like, (actions, :data:`ACTION_WIDTH`).
        mask: Which actions are legal, (actions,).
        identities: Numbers of the actions, (actions,): one that an action keeps throughout an episode, and another in the next.
    """

    operators: Integers
    nodes: Floats
    links: Integers
    edges: Floats
    graph: Floats
    rules: Integers
    sites: Integers
    actions: Floats
    mask: npt.NDArray[np.bool_]
    identities: Integers


@dataclass(frozen=True, eq=False)
class GraphFeatures:
    """The features of a graph's nodes and edges.

    Attributes:
        graph: The graph.
        index: Row of each node, by id.
        operators: See :class:`Observation`.
        fixed: Features of the nodes that do not depend on prices.
        links: See :class:`Observation`.
        edges: See :class:`Observation`.
        first: Where the edges into each node begin, (nodes + 1,).
    """

    graph: Graph
    index: Mapping[int, int]
    operators: Integers
    fixed: Floats
    links: Integers
    edges: Floats
    first: Integers


class Featurizer:
    """Turns graphs into features, of the groups that are named."""

    def __init__(self, node: Sequence[str], edge: Sequence[str], graph: Sequence[str]) -> None:
        self.priced = "price" in node
        self.named = "operator" in node
        self._node = [function for name in node if (function := NODE[name][1]) is not None]
        self._edge = [EDGE[name][1] for name in edge]
        self._graph = tuple(graph)
        self.node_width = sum(NODE[name][0] for name in node)
        self.edge_width = sum(EDGE[name][0] for name in edge)
        self.graph_width = sum(GRAPH[name] for name in graph)
        self._fixed_width = self.node_width - (NODE["price"][0] if self.priced else 0)

    def featurize(self, graph: Graph, before: GraphFeatures | None = None) -> GraphFeatures:
        """The features of a graph; those of nodes that are as they were are taken from ``before``."""
        if before is None:
            none = np.zeros(0, np.int64)
            before = GraphFeatures(
                graph,
                {},
                none,
                _matrix([], self._fixed_width),
                none.reshape(2, 0),
                _matrix([], self.edge_width),
                np.zeros(1, np.int64),
            )
        elif graph is before.graph:
            return before
        index = {id: i for i, id in enumerate(graph.nodes)}
        old, known, known_edges = before.index, len(before.fixed), len(before.edges)
        rows: list[list[float]] = []
        edges: list[list[float]] = []
        buckets: list[int] = []
        makers: list[int] = []
        counts: list[int] = []
        take: list[int] = []  # where each row comes from: the rows there were, then the fresh ones
        moved = [-1] * known  # where each row there was went
        for i, (id, node) in enumerate(graph.nodes.items()):
            row = old.get(id)
            if row is not None:
                moved[row] = i
                if _same(node, before.graph, graph):
                    take.append(row)
                    continue
            take.append(known + len(rows))
            rows.append([x for function in self._node for x in function(graph, node)])
            buckets.append(operator_bucket(node.domain, node.op) if self.named else 0)
            n = len(makers)
            for position, key in enumerate(node.inputs):
                value = None if key is None else graph.values[key]
                if value is not None and value.producer is not None:
                    makers.append(index[value.producer])
                    edges.append([x for function in self._edge for x in function(value, position)])
            counts.append(len(makers) - n)
        taken = np.array(take, np.int64)
        begin = np.concatenate([before.first[:-1], known_edges + np.cumsum([0, *counts])[:-1]]).astype(np.int64)[taken]
        many = np.concatenate([np.diff(before.first), np.array(counts, np.int64)])[taken]
        first = np.concatenate([[0], np.cumsum(many)]).astype(np.int64)
        taken_edges = np.repeat(begin - first[:-1], many) + np.arange(first[-1])
        sources = np.concatenate([np.array(moved, np.int64)[before.links[0]], np.array(makers, np.int64)])[taken_edges]
        return GraphFeatures(
            graph,
            index,
            np.concatenate([before.operators, np.array(buckets, np.int64)])[taken],
            np.concatenate([before.fixed, _matrix(rows, self._fixed_width)])[taken],
            np.stack([sources, np.repeat(np.arange(len(taken)), many)]),
            np.concatenate([before.edges, _matrix(edges, self.edge_width)])[taken_edges],
            first,
        )

    def nodes(self, features: GraphFeatures, costs: Costs, start_ms: float) -> Floats:
        """Features of the nodes, prices included, (nodes, n)."""
        if not self.priced:
            return features.fixed
        by_node = costs.by_node
        ms = np.array([by_node.get(id, 0.0) for id in features.graph.nodes], np.float32)
        share = ms / np.float32(max(start_ms, 1e-9))
        prices = np.stack([10 * share, np.log2(1 + 1e3 * ms) / 16], axis=1)
        return np.concatenate([features.fixed, prices.astype(np.float32)], axis=1)

    def later(self, graph: Floats, used: float) -> Floats:
        """Features of the whole when so much more of the budget is used up."""
        if "progress" not in self._graph:
            return graph
        later = graph.copy()
        later[sum(GRAPH[name] for name in self._graph[: self._graph.index("progress")])] += used
        return later

    def graph(self, features: GraphFeatures, cost: float, start_ms: float, actions: int, used: float) -> Floats:
        """Features of the whole, (g,).

        Args:
            features: The graph's nodes and edges.
            cost: Predicted milliseconds.
            start_ms: The same at the start.
            actions: How many are offered.
            used: Share of the budget that is used up.
        """
        saved = (start_ms - cost) / max(start_ms, 1e-9)
        groups = {
            "cost": [10 * saved, cost / max(start_ms, 1e-9), log2(1 + 1e3 * cost) / 16],
            "size": [log2(1 + len(features.fixed)) / 8, log2(1 + len(features.edges)) / 8, log2(1 + actions) / 8],
            "progress": [used],
        }
        return np.array([x for name in self._graph for x in groups[name]], np.float32)


def _same(node: Node, before: Graph, after: Graph) -> bool:
    """Whether a node is as it was, with all that its features are made from: edits share what they leave alone."""
    if before.nodes.get(node.id) is not node:
        return False
    old, new = before.values, after.values
    for key in node.inputs:
        if key is not None and old.get(key) is not new[key]:
            return False
    for key in node.outputs:
        if key is not None and (old.get(key) is not new[key] or before.users[key] is not after.users[key]):
            return False
    return before.outputs is after.outputs or not any(
        (key in before.output_keys) != (key in after.output_keys) for key in node.outputs
    )


def _matrix(rows: list[list[float]], width: int) -> Floats:
    return np.array(rows, np.float32).reshape(len(rows), width)


# --- many observations at once -------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Batch:
    """Observations laid end to end; what a network takes, in torch and in the runtime alike.

    Attributes:
        operators: (nodes,).
        nodes: (nodes, n).
        links: (2, edges), indices into all nodes.
        edges: (edges, e).
        graphs: (graphs, g).
        node_graph: Graph of each node, (nodes,).
        rules: (actions,).
        sites: (actions, lines), indices into all nodes, -1 for none.
        actions: (actions, :data:`ACTION_WIDTH`).
        action_graph: Graph of each action, (actions,).
        mask: (actions,).
        first: Where each graph's actions begin, (graphs + 1,).
    """

    operators: Integers
    nodes: Floats
    links: Integers
    edges: Floats
    graphs: Floats
    node_graph: Integers
    rules: Integers
    sites: Integers
    actions: Floats
    action_graph: Integers
    mask: npt.NDArray[np.bool_]
    first: Integers

    @classmethod
    def of(cls, observations: Sequence[Observation]) -> Batch:
        """Lay observations end to end."""
        sizes = np.array([len(o.nodes) for o in observations], np.int64)
        offsets = np.concatenate([[0], np.cumsum(sizes)[:-1]]).astype(np.int64)
        counts = np.array([len(o.rules) for o in observations], np.int64)
        number = np.arange(len(observations), dtype=np.int64)
        return cls(
            operators=np.concatenate([o.operators for o in observations]),
            nodes=np.concatenate([o.nodes for o in observations]),
            links=np.concatenate([o.links + k for o, k in zip(observations, offsets, strict=True)], axis=1),
            edges=np.concatenate([o.edges for o in observations]),
            graphs=np.stack([o.graph for o in observations]),
            node_graph=np.repeat(number, sizes),
            rules=np.concatenate([o.rules for o in observations]),
            sites=np.concatenate(
                [np.where(o.sites < 0, -1, o.sites + k) for o, k in zip(observations, offsets, strict=True)]
            ),
            actions=np.concatenate([o.actions for o in observations]),
            action_graph=np.repeat(number, counts),
            mask=np.concatenate([o.mask for o in observations]),
            first=np.concatenate([[0], np.cumsum(counts)]).astype(np.int64),
        )


def scaled(x: Floats) -> Floats:
    """Savings in percent as agents see them, ``sign(x) log2(1 + 10 |x|) / 4``: a tenth is visible, and fifty are no outlier."""
    out: Floats = np.sign(x) * np.log2(1 + 10 * np.abs(x)) / np.float32(4)
    return out
