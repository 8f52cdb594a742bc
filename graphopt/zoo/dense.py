"""Builders of networks that make an image of an image: nearly all of their time goes to 3x3 convolutions.

Neither is in a model library, so both are written here from their papers. Imported only when a model is built.
"""

from __future__ import annotations

from itertools import pairwise

import torch
from torch import Tensor, nn

from graphopt.zoo.spec import Number


def _double(inputs: int, outputs: int) -> nn.Sequential:
    """Twice a 3x3 convolution, BatchNorm and ReLU."""
    layers: list[nn.Module] = []
    for channels in (inputs, outputs):
        layers += [nn.Conv2d(channels, outputs, 3, padding=1, bias=False), nn.BatchNorm2d(outputs), nn.ReLU()]
    return nn.Sequential(*layers)


class UNet(nn.Module):
    """U-Net.

    Args:
        width: Channels at full resolution, twice as many at each lower one.
        depth: How often the resolution is halved; ``size`` is a multiple of ``2**depth``.
        classes: Channels of the mask.
    """

    def __init__(self, *, width: int, depth: int, classes: int, **_: Number) -> None:
        super().__init__()
        widths = [width * 2**i for i in range(depth + 1)]
        self.first = _double(3, width)
        self.down = nn.ModuleList(_double(a, b) for a, b in pairwise(widths))
        self.pool = nn.MaxPool2d(2)
        steps = list(zip(widths[:0:-1], widths[-2::-1], strict=True))
        self.widen = nn.ModuleList(nn.ConvTranspose2d(a, b, 2, 2) for a, b in steps)
        self.up = nn.ModuleList(_double(a, b) for a, b in steps)
        self.last = nn.Conv2d(width, classes, 1)

    def forward(self, x: Tensor) -> Tensor:
        """Pixels [batch, 3, size, size] to a mask [batch, classes, size, size]."""
        skips = [self.first(x)]
        for down in self.down:
            skips.append(down(self.pool(skips[-1])))
        y = skips.pop()
        for widen, up in zip(self.widen, self.up, strict=True):
            y = up(torch.cat([skips.pop(), widen(y)], 1))
        return self.last(y)


class _Residual(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(width, width, 3, padding=1), nn.ReLU(), nn.Conv2d(width, width, 3, padding=1)
        )

    def forward(self, x: Tensor) -> Tensor:
        return x + self.body(x)


class SuperResolution(nn.Module):
    """EDSR.

    Args:
        width: Channels of the residual blocks.
        blocks: Their number.
        scale: How much larger the image becomes.
    """

    def __init__(self, *, width: int, blocks: int, scale: int, **_: Number) -> None:
        super().__init__()
        self.head = nn.Conv2d(3, width, 3, padding=1)
        self.body = nn.Sequential(*(_Residual(width) for _ in range(blocks)), nn.Conv2d(width, width, 3, padding=1))
        self.tail = nn.Sequential(
            nn.Conv2d(width, width * scale**2, 3, padding=1), nn.PixelShuffle(scale), nn.Conv2d(width, 3, 3, padding=1)
        )

    def forward(self, x: Tensor) -> Tensor:
        """Pixels [batch, 3, size, size] to an image [batch, 3, scale * size, scale * size]."""
        x = self.head(x)
        return self.tail(x + self.body(x))
