"""Make torchvision importable beside a torch that its compiled operators were not built for.

torchvision registers fake implementations of its detection operators at import, and fails where the compiled library
that declares them did not load, as with a CPU build of torch. No model of the zoo uses these operators, so declaring
them is enough.
"""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import torch

_ops: Any = torch.ops  # carries no annotations
_Library: Any = torch.library.Library  # nor does this

_SCHEMAS = (
    "nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
    "qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
)

# Kept for good: the declarations are withdrawn when the library object is collected.
_declared: list[Any] = []


def prepare_torchvision() -> None:
    """Declare torchvision's operators unless its compiled library does; call before importing torchvision."""
    spec = importlib.util.find_spec("torchvision")
    if spec is None or _declared:
        return
    for folder in spec.submodule_search_locations or ():
        for library in (*Path(folder).glob("_C*.so"), *Path(folder).glob("_C*.pyd")):
            try:
                _ops.load_library(library)
            except (ImportError, OSError):
                continue
            return
    fragment = _Library("torchvision", "FRAGMENT")
    for schema in _SCHEMAS:
        fragment.define(schema)
    _declared.append(fragment)
