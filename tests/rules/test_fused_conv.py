"""On a CUDA device a convolution and what follows it become one operator; its numbers are those of the processor's own kernel."""

from __future__ import annotations

from collections import Counter

import numpy as np
import torch
from torch import nn

from graphopt.cost.analytic import AnalyticCost
from graphopt.ir.simplify import simplify
from graphopt.onnxio.emit import emit
from graphopt.onnxio.load import load
from graphopt.onnxio.save import to_proto
from graphopt.rewrite.library import load_library
from graphopt.search.problem import Problem
from tests.bench.strassen import stepped
from tests.onnxio.models import run


class Block(nn.Module):
    """A residual block with a projection, as ResNets have it."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Conv2d(4, 6, 3, 2, 1), nn.Conv2d(6, 6, 3, 1, 1)
        self.aside = nn.Conv2d(4, 6, 1, 2)

    def forward(self, x):
        return torch.relu(self.second(torch.relu(self.first(x))) + self.aside(x))


def test_a_residual_block_is_three_operators(tmp_path):
    path = tmp_path / "block.onnx"
    torch.manual_seed(0)
    torch.onnx.export(Block().eval(), (torch.zeros(2, 4, 9, 9),), path, dynamo=False, opset_version=17)
    model = load(path)
    problem = Problem(load_library(provider="cuda"), AnalyticCost())
    state = problem.start(simplify(model.graph))
    for rule in ("sum-and-relu-into-conv", "relu-into-conv"):
        state = stepped(problem, state, rule)
    assert Counter(node.op for node in state.graph.nodes.values()) == {"Conv": 1, "FusedConv": 2}
    feeds = {
        model.graph.values[key].name: np.random.default_rng(0).standard_normal((2, 4, 9, 9), np.float32)
        for key in model.graph.inputs
    }
    ran = [run(to_proto(emit(model, graph)), feeds)[0] for graph in (model.graph, state.graph)]
    np.testing.assert_allclose(*ran, rtol=1e-5, atol=1e-6)


def test_the_processor_fuses_by_itself():
    assert "fused-conv" not in {rule.family for rule in load_library().whole.rules}
    assert "fused-conv" in {rule.family for rule in load_library(provider="cuda").rules}
