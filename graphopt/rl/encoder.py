"""The graph encoder: full graph-network blocks, with updates of edges, nodes and the whole.

Battaglia et al., "Relational inductive biases, deep learning, and graph networks", 2018, figure 4a; each round is a
``MetaLayer`` of torch_geometric with residual connections and layer norm. The same network encodes graphs and rules.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch_geometric.nn import MetaLayer
from torch_geometric.utils import scatter

from graphopt.rl.features import OPERATORS

OPERATOR_WIDTH = 16
MASKED = OPERATORS
"""Operator number of a node whose operator is hidden, for pre-training."""


def mlp(inputs: int, width: int, outputs: int | None = None) -> nn.Sequential:
    """Two layers."""
    return nn.Sequential(nn.Linear(inputs, width), nn.ReLU(), nn.Linear(width, width if outputs is None else outputs))


class _Edges(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.update, self.norm = mlp(4 * width, width), nn.LayerNorm(width)

    def forward(self, source: Tensor, target: Tensor, edges: Tensor, whole: Tensor, graph: Tensor) -> Tensor:
        out: Tensor = self.norm(edges + self.update(torch.cat([source, target, edges, whole[graph]], 1)))
        return out


class _Nodes(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.update, self.norm = mlp(4 * width, width), nn.LayerNorm(width)

    def forward(self, nodes: Tensor, links: Tensor, edges: Tensor, whole: Tensor, graph: Tensor) -> Tensor:
        # What a node reads and what is read of it: a graph of operators is seen from both ends.
        read = scatter(edges, links[1], 0, nodes.size(0), "mean")
        used = scatter(edges, links[0], 0, nodes.size(0), "mean")
        out: Tensor = self.norm(nodes + self.update(torch.cat([nodes, read, used, whole[graph]], 1)))
        return out


class _Whole(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.update, self.norm = mlp(4 * width, width), nn.LayerNorm(width)

    def forward(self, nodes: Tensor, links: Tensor, edges: Tensor, whole: Tensor, graph: Tensor) -> Tensor:
        mean = scatter(nodes, graph, 0, whole.size(0), "mean")
        # Not `scatter`: the exporter loses that zeros, which it starts from, are not part of the maximum.
        least = nodes.new_full((whole.size(0), nodes.size(1)), -1e4)
        largest = least.scatter_reduce(0, graph.unsqueeze(1).expand_as(nodes), nodes, "amax")
        between = scatter(edges, graph[links[0]], 0, whole.size(0), "mean")
        out: Tensor = self.norm(whole + self.update(torch.cat([whole, mean, largest, between], 1)))
        return out


class GraphNet(nn.Module):
    """Encodes graphs laid end to end.

    Args:
        node: Features of a node, besides its operator.
        edge: Features of an edge.
        graph: Features of the whole.
        width: Of all embeddings.
        rounds: Blocks, one after the other.
    """

    def __init__(self, node: int, edge: int, graph: int, width: int, rounds: int) -> None:
        super().__init__()
        self.nodes = nn.Linear(node + OPERATOR_WIDTH, width)
        self.edges = nn.Linear(edge, width)
        self.whole = nn.Linear(graph, width)
        self.rounds = nn.ModuleList(MetaLayer(_Edges(width), _Nodes(width), _Whole(width)) for _ in range(rounds))

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
