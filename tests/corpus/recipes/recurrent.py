"""torch's recurrent networks, and scripted control flow."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from tests.corpus.recipes.export import export


def _layers(kind: str, settings: Mapping[str, Any], dynamo: bool, path: Path) -> Mapping[str, Any]:
    import torch

    torch.manual_seed(0)
    network = getattr(torch.nn, kind)(8, 16, **settings)

    class First(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.network, self.head = network, torch.nn.LazyLinear(3)

        def forward(self, x: Any) -> Any:
            return self.head(self.network(x)[0])

    module, x = First(), torch.randn(2, 5, 8)
    module(x)
    where = {0: "batch", 1: "time"} if settings.get("batch_first") else {0: "time", 1: "batch"}
    return export(module, {"x": x}, ["y"], path, dynamo=dynamo, axes=None if dynamo else {"x": where})


def _scripted(kind: str, path: Path) -> Mapping[str, Any]:
    import torch

    from tests.corpus.recipes import flows

    torch.manual_seed(0)
    module: Any = torch.jit.script(getattr(flows, kind)())  # type: ignore[no-untyped-call]
    return export(module, {"x": torch.randn(4, 6)}, ["y"], path, dynamo=False, axes={"x": {0: "n"}})


_SETTINGS: Mapping[str, Mapping[str, Any]] = {
    "": {}, "-first": {"batch_first": True}, "-two": {"num_layers": 2}, "-both": {"bidirectional": True}, "-all": {"num_layers": 2, "bidirectional": True, "batch_first": True},
}  # fmt: skip
RECIPES = {
    **{f"{k}{name}-legacy": partial(_layers, k, s, False) for k in ("LSTM", "GRU", "RNN") for name, s in _SETTINGS.items()},
    **{f"{k}{name}-dynamo": partial(_layers, k, _SETTINGS[name], True) for k in ("LSTM", "GRU") for name in ("", "-first")},
}  # fmt: skip
SCRIPTED = {k: partial(_scripted, k) for k in ("Loop", "Branch", "While", "Nested", "Both", "Grow")}
