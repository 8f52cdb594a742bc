"""Builders of networks that make images grow, and of those whose activations have parameters or many steps.

Imported only when a model is built.
"""

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


class _ConvMish(nn.Sequential):
    def __init__(self, inputs: int, outputs: int, kernel: int = 1, stride: int = 1) -> None:
        conv = nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, bias=False)
        super().__init__(conv, nn.BatchNorm2d(outputs), nn.Mish())


class _CrossStage(nn.Module):
    """Half of the channels go through residual blocks (in the first stage all), half past them."""

    def __init__(self, inputs: int, outputs: int, blocks: int, first: bool) -> None:
        super().__init__()
        half = outputs if first else outputs // 2
        inner = outputs // 2 if first else half
        self.down = _ConvMish(inputs, outputs, 3, 2)
        self.past, self.into = _ConvMish(outputs, half), _ConvMish(outputs, half)
        self.blocks = nn.ModuleList(
            nn.Sequential(_ConvMish(half, inner), _ConvMish(inner, half, 3)) for _ in range(blocks)
        )
        self.out, self.join = _ConvMish(half, half), _ConvMish(2 * half, outputs)

    def forward(self, x: Tensor) -> Tensor:
        x = self.down(x)
        past, y = self.past(x), self.into(x)
        for block in self.blocks:
            y = y + block(y)
        made: Tensor = self.join(torch.cat([self.out(y), past], 1))
        return made


class CspDarknet(nn.Sequential):
    """YOLOv4's backbone, CSPDarknet-53, with Mish after every convolution."""

    def __init__(self, *, width: int, d1: int, d2: int, d3: int, d4: int, d5: int, **_: Number) -> None:
        stages = [
            _CrossStage(width * 2**i, width * 2 ** (i + 1), depth, i == 0)
            for i, depth in enumerate((d1, d2, d3, d4, d5))
        ]
        super().__init__(_ConvMish(3, width, 3), *stages)


class _Inverted(nn.Module):
    """A bottleneck of pointwise, depthwise and pointwise convolutions with a slope for each channel."""

    def __init__(self, inputs: int, outputs: int, inner: int, stride: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            *_sloped(nn.Conv2d(inputs, inner, 1, bias=False), inner),
            *_sloped(nn.Conv2d(inner, inner, 3, stride, 1, groups=inner, bias=False), inner),
            nn.Conv2d(inner, outputs, 1, bias=False),
            nn.BatchNorm2d(outputs),
        )
        self.residual = stride == 1 and inputs == outputs

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.body(x)
        return x + y if self.residual else y


def _sloped(layer: nn.Module, channels: int) -> tuple[nn.Module, ...]:
    return layer, nn.BatchNorm2d(channels), nn.PReLU(channels)


class MobileFaceNet(nn.Sequential):
    """MobileFaceNet, from a face to its embedding."""

    def __init__(self, *, width: int, embedding: int, **_: Number) -> None:
        w = width
        stages = [(w, w, 2 * w, 2, 1), (w, w, 2 * w, 1, 4), (w, 2 * w, 4 * w, 2, 1), (2 * w, 2 * w, 4 * w, 1, 6)]
        stages += [(2 * w, 2 * w, 8 * w, 2, 1), (2 * w, 2 * w, 4 * w, 1, 2)]
        blocks = [_Inverted(i, o, inner, stride) for i, o, inner, stride, depth in stages for _ in range(depth)]
        super().__init__(
            *_sloped(nn.Conv2d(3, w, 3, 2, 1, bias=False), w),
            *_sloped(nn.Conv2d(w, w, 3, 1, 1, groups=w, bias=False), w),
            *blocks,
            *_sloped(nn.Conv2d(2 * w, 8 * w, 1, bias=False), 8 * w),
            nn.Conv2d(8 * w, 8 * w, 7, groups=8 * w, bias=False),
            nn.BatchNorm2d(8 * w),
            nn.Flatten(),
            nn.Linear(8 * w, embedding, bias=False),
        )
