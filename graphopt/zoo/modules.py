"""Modules from entries of the zoo: torchvision made importable, a builder called, and random weights that are nowhere trivial.

A freshly initialised network is full of ones and zeros (biases, affine parameters, running statistics), and on such
weights a wrong rewrite of a BatchNorm or a bias is right by accident. Random statistics drawn independently of the
network would do, were it not that fifty layers of them overflow or underflow; so the statistics are those of a
random batch, which keep activations of order one.
"""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from graphopt.zoo.spec import ZooModel
from graphopt.zoo.table import example_inputs

_CALIBRATION_BATCH = 4
_ops: Any = torch.ops  # carries no annotations
_Library: Any = torch.library.Library  # nor does this

_SCHEMAS = (
    "nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
    "qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
)

# Kept for good: the declarations are withdrawn when the library object is collected.
_declared: list[Any] = []


def instantiate(model: ZooModel, seed: int) -> tuple[nn.Module, tuple[Tensor, ...]]:
    """The module with its random weights, in evaluation mode, and one set of inputs for it."""
    # Before the builders: they import torchvision, and so does transformers.
    prepare_torchvision()
    path, _, function = model.build.partition(":")
    builder: Callable[..., nn.Module] = getattr(importlib.import_module(path), function)
    example = tuple(torch.from_numpy(array) for array in example_inputs(model.name, seed).values())
    threads = torch.get_num_threads()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        # How a sum is split over threads changes its last bit, and with it the weights.
        torch.set_num_threads(1)
        try:
            module = builder(**model.params)
            randomise(module, example)
        finally:
            torch.set_num_threads(threads)
    return module.requires_grad_(False), example


def prepare_torchvision() -> None:
    """Declare torchvision's operators unless its compiled library does; call before importing torchvision.

    It registers fake implementations of its detection operators at import, and fails where the compiled library that declares them did
    not load, as with a CPU build of torch. No model of the zoo uses these operators, so declaring them is enough.
    """
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


def randomise(module: nn.Module, example: tuple[Tensor, ...]) -> None:
    """Replace constant parameters and batch statistics by random ones, drawn from torch's default generator.

    Args:
        module: Changed in place and left in evaluation mode.
        example: One set of inputs, batch first; only their shapes matter, and only if there is a BatchNorm.
    """
    with torch.no_grad():
        for parameter in module.parameters():
            if parameter.numel() > 1 and bool((parameter == parameter.flatten()[0]).all()):
                _fill(parameter)
    module.eval()
    norms = [m for m in module.modules() if isinstance(m, nn.BatchNorm2d)]
    if norms:
        _calibrate(module, norms, example)


def _fill(parameter: nn.Parameter) -> None:
    value = float(parameter.flatten()[0])
    if value == 0:
        nn.init.normal_(parameter, 0.0, 0.05)
    elif abs(value) < 1e-3:
        # ConvNeXt scales its residual branches by 1e-6, which would hide from any check what the branches compute.
        nn.init.uniform_(parameter, 0.05, 0.3)
    else:
        nn.init.uniform_(parameter, 0.6 * value, 1.4 * value)


def _calibrate(module: nn.Module, norms: list[nn.BatchNorm2d], example: tuple[Tensor, ...]) -> None:
    """Set each BatchNorm's running statistics to those of one random batch that passes through the network."""
    momenta = [norm.momentum for norm in norms]
    for norm in norms:
        norm.momentum = 1.0
        norm.train()
    with torch.no_grad():
        module(*(torch.randn(_CALIBRATION_BATCH, *tensor.shape[1:]) for tensor in example))
    for norm, momentum in zip(norms, momenta, strict=True):
        norm.momentum = momentum
        norm.eval()
        if norm.running_var is not None:
            # A channel that hardly varied in this batch must not be blown up by the inverse of its deviation.
            norm.running_var.clamp_(min=0.01 * float(norm.running_var.mean()))
