"""A trained agent as ONNX models, which need no torch.

``rules.onnx`` embeds rules, once for a library; ``encoder.onnx`` embeds the nodes and the whole of graphs laid end to end;
``controller.onnx`` scores their actions and tells their values. ``memory.onnx``, where the agent has a memory, says what it is after an
action.
"""

from __future__ import annotations

import copy
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from graphopt.rl.agent import CONTROLLER, ENCODER, MEMORY, RULES
from graphopt.rl.features import ACTION_WIDTH
from graphopt.rl.rule_features import EDGE_WIDTH, GRAPH_WIDTH, NODE_WIDTH
from graphopt.rl.training.controller import Controller, Encoder, symexp
from graphopt.rl.training.world_model import Dreamer
from graphopt.zoo.export import exporting

_OPSET = 18


# What is exported takes the inputs that :func:`export` names, in this order.


class _Encoder(nn.Module):
    def __init__(self, whole: Encoder) -> None:
        super().__init__()
        self.operators, self.encoder = whole.operators, whole.encoder

    def forward(self, operators: Tensor, *graphs: Tensor) -> tuple[Tensor, Tensor]:
        return self.encoder(self.operators(operators), *graphs)


class _Rules(nn.Module):
    def __init__(self, whole: Encoder) -> None:
        super().__init__()
        self.operators, self.rules, self.stop = whole.operators, whole.rules, whole.stop

    def forward(self, operators: Tensor, *graphs: Tensor) -> Tensor:
        *features, node_graph, families = graphs
        return torch.cat([self.stop, self.rules(self.operators(operators), *features, families, node_graph)])


class _Heads(nn.Module):
    def __init__(self, whole: Controller) -> None:
        super().__init__()
        self.heads = whole.heads

    def forward(self, *inputs: Tensor) -> tuple[Tensor, Tensor]:
        scores, values = self.heads(*inputs)
        return scores, symexp(values)


class _Chooser(nn.Module):
    def __init__(self, agent: Dreamer) -> None:
        super().__init__()
        self.agent = agent

    def forward(self, *inputs: Tensor) -> tuple[Tensor, ...]:
        actions, action_graph, memory = inputs[5:]
        latent, embedding = self.agent.model.encode_embedded(*inputs[:6])
        scores, values = self.agent.chooser(self.agent.state(latent, memory), embedding, actions, action_graph)
        return scores, self.agent.chooser.worth(values), latent, embedding


class _Memoryless(_Chooser):
    def forward(self, *inputs: Tensor) -> tuple[Tensor, ...]:
        _, whole, *_ = inputs
        return super().forward(*inputs, whole[:, :0])[:2]


class _Recall(nn.Module):
    def __init__(self, agent: Dreamer) -> None:
        super().__init__()
        self.dynamics = agent.model.dynamics

    def forward(self, latent: Tensor, embedding: Tensor, memory: Tensor) -> Tensor:
        return self.dynamics(latent, embedding, memory)[1]


def _graphs(node: int, edge: int, graph: int) -> dict[str, Tensor]:
    """Two graphs laid end to end, of features of these widths."""
    return {
        "operators": torch.zeros(5, dtype=torch.int64),
        "nodes": torch.zeros(5, node),
        "links": torch.tensor([[0, 1, 3], [1, 2, 4]]),
        "edges": torch.zeros(3, edge),
        "graphs": torch.zeros(2, graph),
        "node_graph": torch.tensor([0, 0, 0, 1, 1]),
    }


def _axes_of(graph: str) -> dict[str, Any]:
    """Names of their sizes, the number of graphs by the given one."""
    return {"operators": "n", "nodes": "n", "links": (1, "e"), "edges": "e", "graphs": graph, "node_graph": "n"}


def export(network: nn.Module, folder: Path) -> None:
    """Write the models of a controller, or of a world-model agent, into a folder, each whole or not at all."""
    network = copy.deepcopy(network).eval().cpu().requires_grad_(False)
    encoder = network.model if isinstance(network, Dreamer) else network
    assert isinstance(encoder, Encoder)
    shape = encoder.shape
    graphs, each = _graphs(shape.node, shape.edge, shape.graph), _axes_of("g")
    _write(_Encoder(encoder), folder / ENCODER, graphs, each, {"embedded": "n", "whole": "g"})
    drawn, of_rules = _graphs(NODE_WIDTH, EDGE_WIDTH, GRAPH_WIDTH), _axes_of("r")
    families = torch.zeros(2, dtype=torch.int64)
    _write(
        _Rules(encoder), folder / RULES, {**drawn, "families": families}, {**of_rules, "families": "r"}, {"table": "t"}
    )
    inputs = {
        "embedded": torch.zeros(5, shape.width),
        "whole": torch.zeros(2, shape.width),
        "table": torch.zeros(4, shape.width),
        "rules": torch.tensor([-1, 0, -1, 2]),
        "sites": torch.tensor([[-1, -1], [0, 1], [-1, -1], [3, -1]]),
        "actions": torch.zeros(4, ACTION_WIDTH),
        "action_graph": torch.tensor([0, 0, 1, 1]),
    }
    axes = {
        "embedded": "n",
        "whole": "g",
        "table": "t",
        "rules": "a",
        "sites": (0, "a", 1, "w"),
        "actions": "a",
        "action_graph": "a",
    }
    scores = {"scores": "a", "values": "g"}
    (folder / MEMORY).unlink(missing_ok=True)
    if not isinstance(network, Dreamer):
        _write(_Heads(network), folder / CONTROLLER, inputs, axes, scores)  # type: ignore[arg-type]
    elif not network.shape.remembered:
        _write(_Memoryless(network), folder / CONTROLLER, inputs, axes, scores)
    else:
        memory = {"memory": torch.zeros(2, network.shape.remembered)}
        _write(
            _Chooser(network),
            folder / CONTROLLER,
            {**inputs, **memory},
            {**axes, "memory": "g"},
            {**scores, "latent": "g", "look": "a"},
        )
        _write(
            _Recall(network),
            folder / MEMORY,
            {"latent": torch.zeros(2, network.shape.latent), "look": torch.zeros(2, shape.width), **memory},
            {"latent": "g", "look": "g", "memory": "g"},
            {"after": "g"},
        )


def _write(
    module: nn.Module, path: Path, inputs: Mapping[str, Tensor], dynamic: Mapping[str, Any], outputs: Mapping[str, str]
) -> None:
    partial = path.with_name(f".{path.name}")
    try:
        with exporting():
            torch.onnx.export(  # by the older exporter: the newer needs onnxscript
                module,
                tuple(inputs.values()),
                str(partial),
                dynamo=False,
                opset_version=_OPSET,
                input_names=list(inputs),
                output_names=list(outputs),
                dynamic_axes={name: _axes(axes) for name, axes in {**dynamic, **outputs}.items()},
            )
        os.replace(partial, path)
    finally:
        partial.unlink(missing_ok=True)


def _axes(axes: str | Sequence[Any]) -> dict[int, str]:
    if isinstance(axes, str):
        return {0: axes}
    return {int(k): str(name) for k, name in zip(axes[::2], axes[1::2], strict=True)}
