"""Builders of generators: networks that make an image grow. Imported only when a model is built."""

from __future__ import annotations

from itertools import pairwise

import torch
from torch import Tensor, nn

from graphopt.zoo.spec import Number


class Dcgan(nn.Sequential):
    """DCGAN's generator: transposed convolutions from one place to 64 x 64."""

    def __init__(self, *, noise: int, width: int, **_: Number) -> None:
        layers: list[nn.Module] = [nn.ConvTranspose2d(noise, 8 * width, 4, bias=False)]
        for wide, narrow in ((8, 4), (4, 2), (2, 1)):
            layers += [nn.BatchNorm2d(wide * width), nn.ReLU()]
            layers += [nn.ConvTranspose2d(wide * width, narrow * width, 4, 2, 1, bias=False)]
        last = nn.ConvTranspose2d(width, 3, 4, 2, 1, bias=False)
        super().__init__(*layers, nn.BatchNorm2d(width), nn.ReLU(), last, nn.Tanh())


class Pix2Pix(nn.Module):
    """The U-Net of pix2pix: every layer of 4x4 halves or doubles the image, down to one place."""

    def __init__(self, *, width: int, depth: int, **_: Number) -> None:
        super().__init__()
        sizes = [3, *(width * min(2**i, 8) for i in range(depth))]
        self.down = nn.ModuleList()
        self.up = nn.ModuleList()
        for i, (outer, inner) in enumerate(pairwise(sizes)):
            last = i == depth - 1
            plain = i == 0 or last
            self.down.append(_normed(nn.Conv2d(outer, inner, 4, 2, 1, bias=plain), None if plain else inner))
            made = outer if i else 3
            layer = nn.ConvTranspose2d(inner if last else 2 * inner, made, 4, 2, 1, bias=i == 0)
            self.up.insert(0, _normed(layer, made if i else None))

    def forward(self, x: Tensor) -> Tensor:
        """From an image to an image of the same size."""
        kept = []
        for i, layer in enumerate(self.down):
            x = layer(nn.functional.leaky_relu(x, 0.2) if i else x)
            kept.append(x)
        kept.pop()
        for layer in self.up:
            x = layer(torch.relu(x))
            x = torch.cat([x, kept.pop()], 1) if kept else x
        return torch.tanh(x)


def _normed(layer: nn.Module, channels: int | None) -> nn.Module:
    return layer if channels is None else nn.Sequential(layer, nn.BatchNorm2d(channels))


class CycleGan(nn.Module):
    """CycleGAN's generator: residual blocks between layers that halve and double the image, with reflected borders."""

    def __init__(self, *, width: int, blocks: int, **_: Number) -> None:
        super().__init__()
        self.first = nn.Sequential(nn.ReflectionPad2d(3), *_scaled(nn.Conv2d(3, width, 7), width))
        self.down = nn.Sequential(
            *_scaled(nn.Conv2d(width, 2 * width, 3, 2, 1), 2 * width),
            *_scaled(nn.Conv2d(2 * width, 4 * width, 3, 2, 1), 4 * width),
        )
        self.body = nn.ModuleList(_block(4 * width) for _ in range(blocks))
        self.up = nn.Sequential(
            *_scaled(nn.ConvTranspose2d(4 * width, 2 * width, 3, 2, 1, 1), 2 * width),
            *_scaled(nn.ConvTranspose2d(2 * width, width, 3, 2, 1, 1), width),
        )
        self.last = nn.Sequential(nn.ReflectionPad2d(3), nn.Conv2d(width, 3, 7), nn.Tanh())

    def forward(self, x: Tensor) -> Tensor:
        """From an image to an image of the same size."""
        x = self.down(self.first(x))
        for block in self.body:
            x = x + block(x)
        made: Tensor = self.last(self.up(x))
        return made


def _scaled(layer: nn.Module, channels: int) -> tuple[nn.Module, ...]:
    return layer, nn.InstanceNorm2d(channels), nn.ReLU()


def _block(channels: int) -> nn.Module:
    def half() -> tuple[nn.Module, ...]:
        return nn.ReflectionPad2d(1), nn.Conv2d(channels, channels, 3), nn.InstanceNorm2d(channels)

    return nn.Sequential(*half(), nn.ReLU(), *half())
