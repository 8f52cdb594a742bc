"""A trained agent as ONNX models, which need no torch.

``rules.onnx`` embeds rules, once for a library; ``encoder.onnx`` embeds the nodes and the whole of graphs laid end to end;
``controller.onnx`` scores their actions and tells their values.
"""

from __future__ import annotations

import copy
import logging
import os
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from graphopt.rl.agent import CONTROLLER, ENCODER, RULES
from graphopt.rl.controller import Controller, expanded
from graphopt.rl.features import ACTION_WIDTH
from graphopt.rl.rule_features import EDGE_WIDTH, GRAPH_WIDTH, NODE_WIDTH

_OPSET = 18


class _Encoder(nn.Module):
    def __init__(self, whole: Controller) -> None:
        super().__init__()
        self.operators, self.encoder = whole.operators, whole.encoder

    def forward(
        self, operators: Tensor, nodes: Tensor, links: Tensor, edges: Tensor, graphs: Tensor, node_graph: Tensor
    ) -> tuple[Tensor, Tensor]:
        out: tuple[Tensor, Tensor] = self.encoder(self.operators(operators), nodes, links, edges, graphs, node_graph)
        return out


class _Rules(nn.Module):
    def __init__(self, whole: Controller) -> None:
        super().__init__()
        self.operators, self.rules = whole.operators, whole.rules

    def forward(
        self, operators: Tensor, nodes: Tensor, links: Tensor, edges: Tensor, graphs: Tensor, families: Tensor,
        node_graph: Tensor,
    ) -> Tensor:  # fmt: skip
        out: Tensor = self.rules(self.operators(operators), nodes, links, edges, graphs, families, node_graph)
        return out


class _Heads(nn.Module):
    def __init__(self, whole: Controller) -> None:
        super().__init__()
        self.heads = whole.heads

    def forward(
        self,
        embedded: Tensor,
        whole: Tensor,
        table: Tensor,
        rules: Tensor,
        sites: Tensor,
        actions: Tensor,
        action_graph: Tensor,
    ) -> tuple[Tensor, Tensor]:
        scores, values = self.heads(embedded, whole, table, rules, sites, actions, action_graph)
        return scores, expanded(values)


def export(controller: Controller, folder: Path) -> None:
    """Write the three models into a folder, each whole or not at all.

    Args:
        controller: The networks.
        folder: Where to.
    """
    controller = copy.deepcopy(controller).eval().cpu().requires_grad_(False)
    shape = controller.shape
    i, f = torch.int64, torch.float32
    operators, links, node_graph = (
        torch.zeros(5, dtype=i),
        torch.tensor([[0, 1, 3], [1, 2, 4]]),
        torch.tensor([0, 0, 0, 1, 1]),
    )
    _write(
        _Encoder(controller), folder / ENCODER,
        {
            "operators": operators, "nodes": torch.zeros(5, shape.node), "links": links, "edges": torch.zeros(3, shape.edge),
            "graphs": torch.zeros(2, shape.graph), "node_graph": node_graph,
        },
        {"operators": "n", "nodes": "n", "links": (1, "e"), "edges": "e", "graphs": "g", "node_graph": "n"},
        {"embedded": "n", "whole": "g"},
    )  # fmt: skip
    _write(
        _Rules(controller), folder / RULES,
        {
            "operators": operators, "nodes": torch.zeros(5, NODE_WIDTH), "links": links, "edges": torch.zeros(3, EDGE_WIDTH),
            "graphs": torch.zeros(2, GRAPH_WIDTH), "families": torch.zeros(2, dtype=i), "node_graph": node_graph,
        },
        {"operators": "n", "nodes": "n", "links": (1, "e"), "edges": "e", "graphs": "r", "families": "r", "node_graph": "n"},
        {"table": "r"},
    )  # fmt: skip
    _write(
        _Heads(controller), folder / CONTROLLER,
        {
            "embedded": torch.zeros(5, shape.width), "whole": torch.zeros(2, shape.width), "table": torch.zeros(3, shape.width),
            "rules": torch.tensor([-1, 0, -1, 2]), "sites": torch.tensor([[-1, -1], [0, 1], [-1, -1], [3, -1]]),
            "actions": torch.zeros(4, ACTION_WIDTH, dtype=f), "action_graph": torch.tensor([0, 0, 1, 1]),
        },
        {
            "embedded": "n", "whole": "g", "table": "r", "rules": "a", "sites": (0, "a", 1, "w"), "actions": "a",
            "action_graph": "a",
        },
        {"scores": "a", "values": "g"},
    )  # fmt: skip


def _write(
    module: nn.Module, path: Path, inputs: Mapping[str, Tensor], dynamic: Mapping[str, Any], outputs: Mapping[str, str]
) -> None:
    partial = path.with_name(f".{path.name}")
    logger = logging.getLogger("torch.onnx")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that this exporter is the older one; the newer needs onnxscript
            torch.onnx.export(
                module, tuple(inputs.values()), str(partial), dynamo=False, opset_version=_OPSET,
                input_names=list(inputs), output_names=list(outputs),
                dynamic_axes={name: _axes(axes) for name, axes in {**dynamic, **outputs}.items()},
            )  # fmt: skip
        os.replace(partial, path)
    finally:
        logger.setLevel(level)
        partial.unlink(missing_ok=True)


def _axes(axes: str | Sequence[Any]) -> dict[int, str]:
    if isinstance(axes, str):
        return {0: axes}
    return {int(k): str(name) for k, name in zip(axes[::2], axes[1::2], strict=True)}
