"""torch's MultiheadAttention, as both exporters write it, becomes the runtime's operator, with samples beside each other and open sizes, too."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from graphopt import optimize
from graphopt.zoo.export import exporting

_WIDTH, _HEADS, _SAMPLES, _TOKENS, _OTHERS = 32, 4, 3, 6, 5


class _Layer(nn.Module):
    """Attention of a sequence to itself, or to another one."""

    def __init__(self, first: bool, weights: bool) -> None:
        super().__init__()
        self.layer = nn.MultiheadAttention(_WIDTH, _HEADS, batch_first=first)
        self.weights = weights
        nn.init.normal_(self.layer.in_proj_bias)
        nn.init.normal_(self.layer.out_proj.bias)

    def forward(self, x: Tensor, *others: Tensor) -> Tensor:
        memory = others[0] if others else x
        made: Tensor = self.layer(x, memory, memory, need_weights=self.weights)[0]
        return made


def _export(path: Path, exporter: str, first: bool, weights: bool, cross: bool, open_sizes: bool) -> None:
    lengths = (_TOKENS, _OTHERS) if cross else (_TOKENS,)
    given = tuple(torch.randn((_SAMPLES, n, _WIDTH) if first else (n, _SAMPLES, _WIDTH)) for n in lengths)
    batch = 0 if first else 1
    axes = [{batch: "batch", 1 - batch: f"length{i}"} for i in range(len(given))]
    module = _Layer(first, weights).eval()
    with exporting():
        if exporter == "legacy":
            torch.onnx.export(module, given, path, dynamo=False, opset_version=17)
            return
        dims = [{axis: torch.export.Dim(name) for axis, name in each.items()} for each in axes]
        shapes = (dims[0], *([tuple(dims[1:])] if cross else [])) if open_sizes else None
        program = torch.onnx.export(module, given, dynamo=True, opset_version=20, dynamic_shapes=shapes, verbose=False)
    assert program is not None
    program.save(path)


@pytest.mark.parametrize(
    "exporter, first, weights, cross, open_sizes",
    [
        ("dynamo", True, False, False, True),
        ("dynamo", True, True, False, False),
        ("dynamo", True, False, True, True),
        ("dynamo", False, True, False, False),
        ("legacy", True, True, False, False),
        ("legacy", False, False, True, False),
    ],
)
def test_it_is_one_operator(tmp_path, exporter, first, weights, cross, open_sizes):
    path = tmp_path / "layer.onnx"
    _export(path, exporter, first, weights, cross, open_sizes)
    found = optimize(path, strategy="backtracking", measure=False)
    assert found.report["verified"]["passed"]
    left = Counter(n.op_type for n in found.model.graph.node)
    assert left["Softmax"] == 0 and left["MultiHeadAttention" if cross else "Attention"] == 1
    assert left["Transpose"] <= (0 if first else 2 + 2 * cross), left
