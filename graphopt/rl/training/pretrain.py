"""Pre-training: the encoder as a graph auto-encoder.

Of some nodes the operator and the price are hidden; from its embeddings of the nodes the network says what they were, and which pairs
of nodes are joined by an edge (Kipf & Welling, "Variational Graph Auto-Encoders", 2016, without the noise). Graphs are those of
random episodes. An experiment: over three runs of PPO it changed nothing that could be seen (docs/results.md, agents).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import nn

from graphopt.rl.features import NODE, OPERATORS, Batch, Observation
from graphopt.rl.play import UniformPolicy, play
from graphopt.rl.task_environment import TaskEnvironment
from graphopt.rl.training.controller import Encoder, Tensors
from graphopt.rl.training.encoder import MASKED

_HIDDEN_SHARE = 0.15
_EPISODES_EACH = 4  # of each model
_BATCH_GRAPHS = 16  # of a gradient step


def pretrain(
    controller: Encoder, environments: Sequence[TaskEnvironment], steps: int, seed: tuple[int, ...]
) -> list[float]:
    """Train the encoder of a controller in place, on graphs of some environments, for so many gradient steps.

    Returns:
        The loss of each step.
    """
    rng = np.random.default_rng(seed)
    lanes = [environment for environment in environments for _ in range(_EPISODES_EACH)]
    played = play(lanes, UniformPolicy(), [np.random.default_rng([*seed, i]) for i in range(len(lanes))])
    observations: list[Observation] = [o for t in played for o in t.observations]
    device = controller.stop.device
    width = controller.shape.width
    priced = "price" in environments[0].task.features.node
    torch.manual_seed(seed[-1])
    operator, price = nn.Linear(width, OPERATORS).to(device), nn.Linear(width, NODE["price"][0]).to(device)
    joined = nn.Bilinear(width, width, 1).to(device)
    modules = [controller.operators, controller.encoder, operator, price, joined]
    parameters = [p for module in modules for p in module.parameters()]
    optimizer = torch.optim.Adam(parameters, 1e-3)
    losses: list[float] = []
    for _ in range(steps):
        batch = Tensors.of(
            Batch.of([observations[i] for i in rng.integers(len(observations), size=_BATCH_GRAPHS)]), device
        )
        hidden = torch.from_numpy(rng.random(len(batch.nodes)) < _HIDDEN_SHARE).to(device)
        if not bool(hidden.any()) or not batch.links.shape[1]:
            continue
        nodes = batch.nodes.clone()
        # What sort of operator it is stands among the features, so all of a hidden node's features go.
        nodes[hidden] = 0.0
        embedded, _ = controller.encoder(
            controller.operators(torch.where(hidden, MASKED, batch.operators)),
            nodes,
            batch.links,
            batch.edges,
            batch.graphs,
            batch.node_graph,
        )
        loss = nn.functional.cross_entropy(operator(embedded[hidden]), batch.operators[hidden])
        if priced:
            loss = loss + nn.functional.smooth_l1_loss(price(embedded[hidden]), batch.nodes[hidden][:, -2:])
        a, b = batch.links
        other = b[torch.from_numpy(rng.permutation(len(b))).to(device)]
        pairs = torch.cat([joined(embedded[a], embedded[b]), joined(embedded[a], embedded[other])]).squeeze(1)
        truth = torch.cat([torch.ones(len(a)), torch.zeros(len(a))]).to(device)
        loss = loss + nn.functional.binary_cross_entropy_with_logits(pairs, truth)
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        losses.append(float(loss.detach()))
    return losses
