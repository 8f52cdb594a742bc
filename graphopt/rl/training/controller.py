"""The agent's networks: graph encoder, rule encoder, action scorer and value.

An action is scored from the whole graph, its rule, the nodes that it matched and its predicted saving, each action by itself: the
policy does not depend on the order or the number of actions, and works on models and rules that it was not trained with.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace

import numpy as np
import torch
from torch import Tensor, nn

from graphopt.rewrite.schema import Rule
from graphopt.rl.features import ACTION_WIDTH, PRIOR, Batch, Featurizer, Observation
from graphopt.rl.play import MemorylessPolicy, Scores
from graphopt.rl.rule_features import EDGE_WIDTH, FAMILIES, GRAPH_WIDTH, NODE_WIDTH, RuleBatch
from graphopt.rl.task import Task
from graphopt.rl.training.encoder import GraphNet, OperatorTable, mlp, nearly_silent

RULE_ROUNDS = 2


@dataclass(frozen=True)
class Shape:
    """Sizes of the networks.

    Attributes:
        node: Features of a node.
        edge: Features of an edge.
        graph: Features of a graph.
        width: Width of all embeddings.
        rounds: Graph-network blocks.
    """

    node: int
    edge: int
    graph: int
    width: int = 64
    rounds: int = 3

    @classmethod
    def of(cls, task: Task, width: int, rounds: int) -> Shape:
        """The sizes for a task."""
        featurizer = Featurizer(task.features.node, task.features.edge, task.features.graph)
        return cls(featurizer.node_width, featurizer.edge_width, featurizer.graph_width, width, rounds)

    def network(self) -> Controller:
        """Networks of these sizes."""
        return Controller(self)

    def policy(self, network: nn.Module, rules: Sequence[Rule]) -> TorchPolicy:
        """Networks of these sizes as a policy."""
        assert isinstance(network, Controller)
        return TorchPolicy(network, rules)


@dataclass(frozen=True, eq=False)
class Tensors:
    """A :class:`graphopt.rl.features.Batch` in torch."""

    operators: Tensor
    nodes: Tensor
    links: Tensor
    edges: Tensor
    graphs: Tensor
    node_graph: Tensor
    rules: Tensor
    sites: Tensor
    actions: Tensor
    action_graph: Tensor
    mask: Tensor
    first: Tensor

    @classmethod
    def of(cls, batch: Batch, device: torch.device | str = "cpu") -> Tensors:
        """The same arrays on a device."""
        return cls(**{f.name: torch.from_numpy(getattr(batch, f.name)).to(device) for f in fields(cls)})


class RuleEncoder(nn.Module):
    """Embeds rules from what they say."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.family = nn.Embedding(FAMILIES, width)
        self.net = GraphNet(NODE_WIDTH, EDGE_WIDTH, GRAPH_WIDTH, width, RULE_ROUNDS)
        self.out = mlp(2 * width, width)

    def forward(
        self,
        operators: Tensor,
        nodes: Tensor,
        links: Tensor,
        edges: Tensor,
        graphs: Tensor,
        families: Tensor,
        node_graph: Tensor,
    ) -> Tensor:
        """Embeddings, (rules, width)."""
        _, whole = self.net(operators, nodes, links, edges, graphs, node_graph)
        return self.out(torch.cat([whole, self.family(families)], 1))


class Prior(nn.Module):
    """What features of actions add to their scores.

    A new policy leans to what is predicted to save and away from what costs: most rewrites of a real model cost, and a policy that tried
    them all alike would see little else. How much it leans is learned like the rest.
    """

    def __init__(self) -> None:
        super().__init__()
        self.factors = nn.Parameter(torch.tensor(PRIOR))

    def forward(self, actions: Tensor) -> Tensor:
        """What to add, (actions,)."""
        return actions @ self.factors


class Heads(nn.Module):
    """Scores of actions and the value of states."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.score = mlp(4 * width + ACTION_WIDTH, width, 1)
        self.value = mlp(width, width, 1)
        self.prior = Prior()

    def forward(
        self,
        nodes: Tensor,
        whole: Tensor,
        table: Tensor,
        rules: Tensor,
        sites: Tensor,
        actions: Tensor,
        action_graph: Tensor,
    ) -> tuple[Tensor, Tensor]:
        """Scores of the actions (actions,), and the :func:`symlog` of the graphs' values (graphs,); see :func:`site_embeddings`."""
        inputs = torch.cat([whole[action_graph], site_embeddings(nodes, table, rules, sites), actions], 1)
        return self.score(inputs).squeeze(1) + self.prior(actions), self.value(whole).squeeze(1)


def site_embeddings(nodes: Tensor, table: Tensor, rules: Tensor, sites: Tensor) -> Tensor:
    """Embeddings of actions' rules and of the nodes that they matched, (actions, 3 width).

    Args:
        nodes: Embeddings of the nodes, (nodes, width).
        table: Embeddings of STOP and of the rules, (1 + rules, width).
        rules: Rule of each action, -1 for STOP, (actions,).
        sites: Matched nodes of each action, -1 for none, (actions, lines).
    """
    there = (sites >= 0).unsqueeze(2).to(nodes.dtype)
    # What -1 stands for has a row, also where no graph has a node.
    nodes = torch.cat([nodes, nodes.new_zeros(1, nodes.size(1))])
    matched = nodes[sites.clamp(min=0)] * there
    mean = matched.sum(1) / there.sum(1).clamp(min=1.0)
    largest = (matched - 1e4 * (1 - there)).amax(1) * there.amax(1)  # of no nodes: zero
    return torch.cat([table[rules + 1], mean, largest], 1)


class Encoder(nn.Module):
    """Encodes graphs and rules."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.shape = shape
        self.operators = OperatorTable()
        self.encoder = GraphNet(shape.node, shape.edge, shape.graph, shape.width, shape.rounds)
        self.rules = RuleEncoder(shape.width)
        self.stop = nn.Parameter(torch.zeros(1, shape.width))

    def embed(self, batch: Tensors) -> tuple[Tensor, Tensor]:
        """Embeddings of nodes (nodes, width) and of graphs (graphs, width)."""
        return self.encoder(
            self.operators(batch.operators), batch.nodes, batch.links, batch.edges, batch.graphs, batch.node_graph
        )

    def table(self, rules: RuleBatch) -> Tensor:
        """Embeddings of STOP and of rules, (1 + rules, width)."""
        t = {f.name: torch.from_numpy(getattr(rules, f.name)).to(self.stop.device) for f in fields(rules)}
        found: Tensor = self.rules(**{**t, "operators": self.operators(t["operators"])})
        return torch.cat([self.stop, found])

    def table_of(self, batch: Batch, rules: Sequence[Rule]) -> tuple[Tensor, Batch]:
        """Embeddings of STOP and of the rules that occur in a batch, and the batch with its rules numbered accordingly."""
        present = np.unique(batch.rules[batch.rules >= 0])
        if not len(present):
            present = np.zeros(1, np.int64)
        place = np.full(len(rules) + 1, -1, np.int64)
        place[present] = np.arange(len(present))
        # The last entry of `place` is STOP's, which is -1.
        return self.table(RuleBatch.of([rules[i] for i in present])), replace(batch, rules=place[batch.rules])


class Controller(Encoder):
    """A model-free agent: the encoder, and heads that score what it encodes."""

    def __init__(self, shape: Shape) -> None:
        super().__init__(shape)
        self.heads = Heads(shape.width)
        # A new policy follows the prior, and values are close to nothing.
        for head in (self.heads.score, self.heads.value):
            nearly_silent(head)

    def forward(self, batch: Tensors, table: Tensor) -> tuple[Tensor, Tensor]:
        """Scores of the actions (actions,) and the symlog of values (graphs,)."""
        nodes, whole = self.embed(batch)
        return self.heads(nodes, whole, table, batch.rules, batch.sites, batch.actions, batch.action_graph)


class TorchPolicy(MemorylessPolicy):
    """A controller as collection wants it."""

    def __init__(self, controller: Controller, rules: Sequence[Rule]) -> None:
        self.controller = controller.eval()
        with torch.no_grad():
            self._table = controller.table(RuleBatch.of(rules))

    def __call__(self, observations: Sequence[Observation], lanes: Sequence[int]) -> Scores:
        """Scores and values; see :class:`graphopt.rl.play.Policy`."""
        batch = Batch.of(observations)
        with torch.no_grad():
            scores, values = self.controller(Tensors.of(batch, self._table.device), self._table)
        return Scores(np.split(scores.double().cpu().numpy(), batch.first[1:-1]), symexp(values.double()).cpu().numpy())


def symlog(x: Tensor) -> Tensor:
    """``sign(x) ln(1 + |x|)`` (Hafner et al., DreamerV3): returns of a tenth of a per cent and of fifty are learned alike."""
    return torch.sign(x) * torch.log1p(torch.abs(x))


def symexp(x: Tensor) -> Tensor:
    """The inverse of :func:`symlog`."""
    return torch.sign(x) * (torch.exp(torch.abs(x)) - 1.0)  # expm1 has no ONNX form
