"""Random weights that are nowhere trivial, and batch statistics that keep activations of order one.

A freshly initialised network is full of ones and zeros (biases, affine parameters, running statistics), and on such
weights a wrong rewrite of a BatchNorm or a bias is right by accident. Random statistics drawn independently of the
network would do, were it not that fifty layers of them overflow or underflow; so the statistics are those of a
random batch.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

_CALIBRATION_BATCH = 4


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
