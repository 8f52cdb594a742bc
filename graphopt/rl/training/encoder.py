"""The graph encoder: full graph-network blocks, with updates of edges, nodes and the whole.

Battaglia et al., "Relational inductive biases, deep learning, and graph networks", 2018, figure 4a; each round is a
``MetaLayer`` of torch_geometric with residual connections and layer norm. The same network encodes graphs and rules.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch_geometric.nn import MetaLayer
from torch_geometric.utils import scatter

from graphopt.rl.features import OPERATORS

OPERATOR_WIDTH = 16
MASKED = OPERATORS
"""Operator number of a node whose operator is hidden, for pre-training."""


def mlp(inputs: int, width: int, outputs: int | None = None) -> nn.Sequential:
    """Two layers."""
    return nn.Sequential(nn.Linear(inputs, width), nn.ReLU(), nn.Linear(width, width if outputs is None else outputs))


def nearly_silent(net: nn.Sequential) -> None:
    """Make what a net says at first close to nothing."""
    last = net[-1]
    assert isinstance(last, nn.Linear)
    nn.init.normal_(last.weight, std=0.01)
    nn.init.zeros_(last.bias)


def project(net: nn.Sequential, own: Tensor, spread: Sequence[tuple[Tensor, Tensor]]) -> Tensor:
    """An MLP of several vectors laid side by side, without laying them there: (rows, outputs).

    The first layer is linear, so each part has its share of the weights to itself, and what stands in several rows is multiplied
    once, before it is spread over them. For edges that is most of the work.

    Args:
        net: What :func:`mlp` makes.
        own: What each row has for itself, (rows, ...); the last of the inputs.
        spread: Vectors, and which of them stands in each row; the first inputs.
    """
    first = net[0]
    assert isinstance(first, nn.Linear)
    *shares, last = torch.split(first.weight, [*(part.size(1) for part, _ in spread), own.size(1)], 1)
    hidden = functional.linear(own, last, first.bias)
    for (part, rows), share in zip(spread, shares, strict=True):
        hidden = hidden + functional.linear(part, share).index_select(0, rows)
    return net[1:](hidden)


class _Update(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.update, self.norm = mlp(4 * width, width), nn.LayerNorm(width)


class _Edges(_Update):
    def forward(self, nodes: Tensor, links: Tensor, edges: Tensor, whole: Tensor, graph: Tensor) -> Tensor:
        spread = ((nodes, links[0]), (nodes, links[1]), (whole, graph[links[0]]))
        return self.norm(edges + project(self.update, edges, spread))


class _Nodes(_Update):
    def forward(self, nodes: Tensor, links: Tensor, edges: Tensor, whole: Tensor, graph: Tensor) -> Tensor:
        # What a node reads and what is read of it: a graph of operators is seen from both ends.
        read = scatter(edges, links[1], 0, nodes.size(0), "mean")
        used = scatter(edges, links[0], 0, nodes.size(0), "mean")
        own = torch.cat([nodes, read, used], 1)
        return self.norm(nodes + project(self.update, own, ((whole, graph),)))


class _Whole(_Update):
    def forward(self, nodes: Tensor, links: Tensor, edges: Tensor, whole: Tensor, graph: Tensor) -> Tensor:
        mean = scatter(nodes, graph, 0, whole.size(0), "mean")
        # Not `scatter`: the exporter loses that zeros, which it starts from, are not part of the maximum.
        least = nodes.new_full((whole.size(0), nodes.size(1)), -1e4)
        largest = least.scatter_reduce(0, graph.unsqueeze(1).expand_as(nodes), nodes, "amax")
        largest = largest.masked_fill(largest <= -1e4, 0.0)  # of no nodes: zero, as their mean
        between = scatter(edges, graph[links[0]], 0, whole.size(0), "mean")
        return self.norm(whole + self.update(torch.cat([whole, mean, largest, between], 1)))


class _Block(MetaLayer):  # type: ignore[misc]
    """A round: edges, then nodes, then the whole.

    The edges' model gets all nodes instead of those at both ends of each edge (see :func:`project`).
    """

    def forward(
        self,
        x: Tensor,
        edge_index: Tensor,
        edge_attr: Tensor | None = None,
        u: Tensor | None = None,
        batch: Tensor | None = None,
    ) -> tuple[Tensor, Tensor | None, Tensor | None]:
        edges = self.edge_model(x, edge_index, edge_attr, u, batch)
        nodes = self.node_model(x, edge_index, edges, u, batch)
        return nodes, edges, self.global_model(nodes, edge_index, edges, u, batch)


class GraphNet(nn.Module):
    """Encodes graphs laid end to end.

    Args:
        node: Features of a node, besides its operator.
        edge: Features of an edge.
        graph: Features of the whole.
        width: Width of all embeddings.
        rounds: Blocks, one after the other.
    """

    def __init__(self, node: int, edge: int, graph: int, width: int, rounds: int) -> None:
        super().__init__()
        self.nodes = nn.Linear(node + OPERATOR_WIDTH, width)
        self.edges = nn.Linear(edge, width)
        self.whole = nn.Linear(graph, width)
        self.rounds = nn.ModuleList(_Block(_Edges(width), _Nodes(width), _Whole(width)) for _ in range(rounds))

    def forward(
        self, operators: Tensor, nodes: Tensor, links: Tensor, edges: Tensor, graphs: Tensor, node_graph: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Embeddings of the nodes (nodes, width) and of the graphs (graphs, width).

        Args:
            operators: Embedded operators, (nodes, :data:`OPERATOR_WIDTH`).
            nodes: (nodes, node).
            links: (2, edges).
            edges: (edges, edge).
            graphs: (graphs, graph).
            node_graph: Graph of each node, (nodes,).
        """
        x, e, u = self.nodes(torch.cat([nodes, operators], 1)), self.edges(edges), self.whole(graphs)
        for block in self.rounds:
            x, e, u = block(x, links, e, u, node_graph)
        return x, u


class OperatorTable(nn.Embedding):
    """Embeddings of operators by the hash of their name, shared by graphs and rules."""

    def __init__(self) -> None:
        super().__init__(OPERATORS + 1, OPERATOR_WIDTH)
