"""Builders of detectors up to their boxes (what follows, dropping those that overlap, is left to the caller), and of a backbone.

Imported only when a model is built.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from graphopt.zoo.spec import Number

# YOLOv5's anchors, in pixels: three (width, height) for each of the strides 8, 16, 32.
_ANCHORS = (
    ((10, 13), (16, 30), (33, 23)),
    ((30, 61), (62, 45), (59, 119)),
    ((116, 90), (156, 198), (373, 326)),
)
_STRIDES = (8, 16, 32)


class _Conv(nn.Sequential):
    """A convolution, by default one that keeps the map's size up to its stride, BatchNorm and SiLU."""

    def __init__(self, inputs: int, outputs: int, kernel: int = 1, stride: int = 1, pad: int | None = None) -> None:
        conv = nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2 if pad is None else pad, bias=False)
        super().__init__(conv, nn.BatchNorm2d(outputs, eps=1e-3), nn.SiLU())


class _Bottleneck(nn.Module):
    def __init__(self, width: int, shortcut: bool) -> None:
        super().__init__()
        self.body = nn.Sequential(_Conv(width, width), _Conv(width, width, 3))
        self.shortcut = shortcut

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.body(x)
        return x + y if self.shortcut else y


class _C3(nn.Module):
    """A cross-stage block: half of the channels go through bottlenecks, half past them."""

    def __init__(self, inputs: int, outputs: int, depth: int, shortcut: bool = True) -> None:
        super().__init__()
        half = outputs // 2
        self.through = nn.Sequential(_Conv(inputs, half), *(_Bottleneck(half, shortcut) for _ in range(depth)))
        self.past = _Conv(inputs, half)
        self.join = _Conv(2 * half, outputs)

    def forward(self, x: Tensor) -> Tensor:
        return self.join(torch.cat([self.through(x), self.past(x)], 1))


class _Pyramid(nn.Module):
    """SPPF: one 5x5 pooling three times, and what lay between."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.narrow = _Conv(width, width // 2)
        self.pool = nn.MaxPool2d(5, 1, 2)
        self.join = _Conv(2 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        maps = [self.narrow(x)]
        for _ in range(3):
            maps.append(self.pool(maps[-1]))
        return self.join(torch.cat(maps, 1))


class Yolo(nn.Module):
    """A detector in the manner of YOLOv5.

    Args:
        size: Pixels of a side, a multiple of 32.
        width: Channels of the first convolution, 16 for the size that is called nano.
        depth: Bottlenecks of most cross-stage blocks.
        classes: Kinds of objects.
    """

    def __init__(self, *, size: int, width: int, depth: int, classes: int, **_: Number) -> None:
        super().__init__()
        w = [width * 2**i for i in range(5)]
        self.stem = nn.Sequential(
            _Conv(3, w[0], 6, 2, 2), _Conv(w[0], w[1], 3, 2), _C3(w[1], w[1], depth), _Conv(w[1], w[2], 3, 2)
        )
        self.fine = _C3(w[2], w[2], 2 * depth)
        self.middle = nn.Sequential(_Conv(w[2], w[3], 3, 2), _C3(w[3], w[3], 3 * depth))
        self.coarse = nn.Sequential(_Conv(w[3], w[4], 3, 2), _C3(w[4], w[4], depth), _Pyramid(w[4]), _Conv(w[4], w[3]))
        self.grow = nn.Upsample(scale_factor=2, mode="nearest")
        self.to_middle = nn.Sequential(_C3(2 * w[3], w[3], depth, False), _Conv(w[3], w[2]))
        self.to_fine = _C3(2 * w[2], w[2], depth, False)
        self.from_fine = _Conv(w[2], w[2], 3, 2)
        self.at_middle = _C3(2 * w[2], w[3], depth, False)
        self.from_middle = _Conv(w[3], w[3], 3, 2)
        self.at_coarse = _C3(2 * w[3], w[4], depth, False)
        self.heads = nn.ModuleList(nn.Conv2d(i, 3 * (5 + classes), 1) for i in w[2:])
        for level, stride in enumerate(_STRIDES):
            across = torch.arange(size // stride, dtype=torch.float32)
            grid = torch.stack(torch.meshgrid(across, across, indexing="xy"), -1)
            self.register_buffer(f"grid{level}", (grid - 0.5)[None, None])
            self.register_buffer(f"anchor{level}", torch.tensor(_ANCHORS[level])[None, :, None, None].float())

    def forward(self, pixels: Tensor) -> Tensor:
        """Pixels [batch, 3, size, size] to boxes [batch, 63 * (size / 32)**2, 5 + classes]."""
        fine = self.fine(self.stem(pixels))
        middle = self.middle(fine)
        coarse = self.coarse(middle)
        middle = self.to_middle(torch.cat([self.grow(coarse), middle], 1))
        fine = self.to_fine(torch.cat([self.grow(middle), fine], 1))
        middle = self.at_middle(torch.cat([self.from_fine(fine), middle], 1))
        coarse = self.at_coarse(torch.cat([self.from_middle(middle), coarse], 1))
        return torch.cat([self._boxes(level, x) for level, x in enumerate((fine, middle, coarse))], 1)

    def _boxes(self, level: int, x: Tensor) -> Tensor:
        """What a head says of its map, as rows of centre, size, objectness and classes."""
        y: Tensor = self.heads[level](x)
        batch, channels, *sizes = y.shape
        y = y.view(batch, 3, channels // 3, *sizes).permute(0, 1, 3, 4, 2).sigmoid()
        centre, sides, scores = torch.split(y, [2, 2, channels // 3 - 4], -1)
        centre = (centre * 2 + self.get_buffer(f"grid{level}")) * _STRIDES[level]
        sides = (sides * 2) ** 2 * self.get_buffer(f"anchor{level}")
        return torch.cat([centre, sides, scores], -1).flatten(1, 3)


class _SsdLite(nn.Module):
    """A network and its heads, with boxes decoded from the offsets to their anchors."""

    def __init__(self, model: Any, size: int) -> None:
        super().__init__()
        from torchvision.models.detection.image_list import ImageList

        self.backbone, self.head = model.backbone, model.head
        pixels = torch.zeros(1, 3, size, size)
        model.eval()
        maps = list(model.backbone(pixels).values())
        (corners,) = model.anchor_generator(ImageList(pixels, [(size, size)]), maps)
        low, high = torch.split(corners, 2, -1)
        self.register_buffer("centres", (low + high) / 2)
        self.register_buffer("sides", high - low)

    def forward(self, pixels: Tensor) -> tuple[Tensor, Tensor]:
        found = self.head(list(self.backbone(pixels).values()))
        move, grow = torch.split(found["bbox_regression"], 2, -1)
        sides = self.get_buffer("sides")
        centres = self.get_buffer("centres") + move * 0.1 * sides
        half = torch.exp(grow * 0.2) * sides * 0.5
        return torch.cat([centres - half, centres + half], -1), found["cls_logits"].softmax(-1)


def ssdlite(*, size: int, classes: int, **_: Number) -> nn.Module:
    """SSDLite on MobileNet v3: pixels [batch, 3, size, size] to boxes [batch, anchors, 4] and scores [batch, anchors, classes]."""
    from torchvision.models.detection import ssdlite320_mobilenet_v3_large

    model = ssdlite320_mobilenet_v3_large(weights=None, weights_backbone=None, num_classes=classes)
    return _SsdLite(model, size)


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
