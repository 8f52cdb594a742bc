"""Builders of architectures that are in no model library, written here from their papers. Imported only when a model is built.

The first two were found by search, and graph optimisers are usually measured on them; the next two make an image of an image, so that
nearly all of their time goes to 3x3 convolutions; then come sequence models without attention (causal
convolutions, and recurrence), and a network whose activations have a slope for each channel.
"""

from __future__ import annotations

from functools import partial
from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn.functional import pad

from graphopt.zoo.spec import Number


class NasRnn(nn.Module):
    """The recurrent cell of Zoph and Le (2016), appendix A, unrolled.

    Each of the eight leaves of the cell's tree is ``x @ W_i + h @ U_i``, written as separate products as in TASO's
    benchmark: that a wider product may replace them is for the optimiser to find.

    Args:
        hidden: Width of inputs and state.
        steps: Number of time steps.
        shared: Whether, not 0, all steps use the same weights, as a recurrent network does. TASO's benchmark makes new
            weights at every step, which forbids every merge across time.
    """

    def __init__(self, *, hidden: int, steps: int, shared: int, **_: Number) -> None:
        super().__init__()
        self.steps = steps
        self.shared = shared
        copies = 1 if shared else steps
        scale = hidden**-0.5
        self.w = nn.ParameterList(nn.Parameter(torch.randn(hidden, hidden) * scale) for _ in range(8 * copies))
        self.u = nn.ParameterList(nn.Parameter(torch.randn(hidden, hidden) * scale) for _ in range(8 * copies))

    def forward(self, h0: Tensor, *xs: Tensor) -> Tensor:
        """The last state [batch, hidden] from the first one and one input [batch, hidden] per step."""
        h = h0
        for step, x in enumerate(xs):
            first = 0 if self.shared else 8 * step
            h = self._cell([x @ self.w[first + i] + h @ self.u[first + i] for i in range(8)])
        return h

    @staticmethod
    def _cell(t: list[Tensor]) -> Tensor:
        a = t[0].relu() + t[3].sigmoid()
        b = t[1].sigmoid() + t[2].tanh()
        c = t[4].sigmoid() * t[5].tanh()
        d = t[6].sigmoid() * t[7].relu()
        left = b.sigmoid() + c.tanh()
        right = a.tanh() * d.tanh()
        return (left.tanh() * right.tanh()).tanh()


class _SeparableConv(nn.Sequential):
    """ReLU, depthwise, pointwise, BatchNorm, and all of it again: the separable convolution of NASNet.

    Only the first depthwise convolution has the stride.
    """

    def __init__(self, channels: int, kernel: int, stride: int = 1) -> None:
        super().__init__()
        for s in (stride, 1):
            self.append(nn.ReLU())
            self.append(nn.Conv2d(channels, channels, kernel, s, kernel // 2, groups=channels, bias=False))
            self.append(nn.Conv2d(channels, channels, 1, bias=False))
            self.append(nn.BatchNorm2d(channels, eps=1e-3))


class _Squeeze(nn.Sequential):
    """ReLU, pointwise, BatchNorm: brings a cell's input to the cell's width."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__(nn.ReLU(), nn.Conv2d(inputs, outputs, 1, bias=False), nn.BatchNorm2d(outputs, eps=1e-3))


class _FactorizedReduction(nn.Module):
    """Halves the resolution by two strided views, one pixel apart, each through its own pointwise convolution."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.even = nn.Conv2d(inputs, outputs // 2, 1, bias=False)
        self.odd = nn.Conv2d(inputs, outputs - outputs // 2, 1, bias=False)
        self.pool = nn.AvgPool2d(1, stride=2)
        self.shift = nn.ZeroPad2d((0, 1, 0, 1))
        self.norm = nn.BatchNorm2d(outputs, eps=1e-3)

    def forward(self, x: Tensor) -> Tensor:
        x = x.relu()
        shifted = self.shift(x)[:, :, 1:, 1:]
        return self.norm(torch.cat((self.even(self.pool(x)), self.odd(self.pool(shifted))), 1))


class _Cell(nn.Module):
    """What both cells share: both inputs brought to the same width and resolution."""

    def __init__(self, prev: int, cur: int, filters: int, prev_is_larger: bool) -> None:
        super().__init__()
        self.fit_cur = _Squeeze(cur, filters)
        self.fit_prev = _FactorizedReduction(prev, filters) if prev_is_larger else _Squeeze(prev, filters)


class _NormalCell(_Cell):
    """Figure 4, left: [batch, *, n, n] twice to [batch, 6 filters, n, n]."""

    def __init__(self, prev: int, cur: int, filters: int, prev_is_larger: bool) -> None:
        super().__init__(prev, cur, filters, prev_is_larger)
        self.cur3 = _SeparableConv(filters, 3)
        self.cur5 = _SeparableConv(filters, 5)
        self.prev3a = _SeparableConv(filters, 3)
        self.prev3b = _SeparableConv(filters, 3)
        self.prev5 = _SeparableConv(filters, 5)
        self.avg = nn.AvgPool2d(3, 1, 1, count_include_pad=False)

    def forward(self, prev: Tensor, cur: Tensor) -> Tensor:
        p, c = self.fit_prev(prev), self.fit_cur(cur)
        pairs = (
            self.cur3(c) + c,
            self.prev3a(p) + self.cur5(c),
            self.avg(c) + p,
            self.avg(p) + self.avg(p),
            self.prev5(p) + self.prev3b(p),
        )
        return torch.cat((p, *pairs), 1)


class _ReductionCell(_Cell):
    """Figure 4, right: [batch, *, n, n] twice to [batch, 4 filters, n/2, n/2]."""

    def __init__(self, prev: int, cur: int, filters: int, prev_is_larger: bool) -> None:
        super().__init__(prev, cur, filters, prev_is_larger)
        self.prev7a = _SeparableConv(filters, 7, 2)
        self.prev7b = _SeparableConv(filters, 7, 2)
        self.prev5 = _SeparableConv(filters, 5, 2)
        self.cur5 = _SeparableConv(filters, 5, 2)
        self.inner3 = _SeparableConv(filters, 3)
        self.max2 = nn.MaxPool2d(3, 2, 1)
        self.avg2 = nn.AvgPool2d(3, 2, 1, count_include_pad=False)
        self.avg = nn.AvgPool2d(3, 1, 1, count_include_pad=False)

    def forward(self, prev: Tensor, cur: Tensor) -> Tensor:
        p, c = self.fit_prev(prev), self.fit_cur(cur)
        first = self.prev7a(p) + self.cur5(c)
        second = self.max2(c) + self.prev7b(p)
        third = self.avg2(c) + self.prev5(p)
        fourth = self.avg(first) + second
        fifth = self.inner3(first) + self.max2(c)
        return torch.cat((second, third, fourth, fifth), 1)


class NasNetA(nn.Module):
    """NASNet-A for images (Zoph et al. 2017, appendix A.4): a stem, then three stages of cells.

    The stem is a strided convolution and two reduction cells, so the first stage runs at an eighth of the input's
    resolution. A reduction cell stands before the second and the third stage.

    Args:
        filters: Filters per operation in the first stage; doubled by each reduction.
        cells: Normal cells per stage.
        stem: Channels of the first convolution.
        classes: Number of logits.
    """

    def __init__(self, *, filters: int, cells: int, stem: int, classes: int, **others: Number) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, stem, 3, 2, 1, bias=False), nn.BatchNorm2d(stem, eps=1e-3))
        self.cells = nn.ModuleList()
        prev = cur = stem
        after_reduction = False

        def add(kind: type[_NormalCell] | type[_ReductionCell], width: int) -> None:
            nonlocal prev, cur, after_reduction
            self.cells.append(kind(prev, cur, width, prev_is_larger=after_reduction))
            after_reduction = kind is _ReductionCell
            prev, cur = cur, width * (4 if after_reduction else 6)

        add(_ReductionCell, max(1, filters // 4))
        add(_ReductionCell, max(1, filters // 2))
        for stage in range(3):
            if stage:
                add(_ReductionCell, filters * 2**stage)
            for _ in range(cells):
                add(_NormalCell, filters * 2**stage)
        self.fc = nn.Linear(cur, classes)

    def forward(self, pixels: Tensor) -> Tensor:
        """Logits [batch, classes] from pixels [batch, 3, size, size], size a multiple of 32."""
        prev = cur = self.stem(pixels)
        for cell in self.cells:
            prev, cur = cur, cell(prev, cur)
        return self.fc(cur.relu().mean((2, 3)))


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


class _Gated(nn.Module):
    """A dilated convolution that sees no later sample, gated; to what is carried on and what is said."""

    def __init__(self, width: int, skip: int, kernel: int, dilation: int) -> None:
        super().__init__()
        self.before = (kernel - 1) * dilation
        self.value = nn.Conv1d(width, width, kernel, dilation=dilation)
        self.gate = nn.Conv1d(width, width, kernel, dilation=dilation)
        self.carried = nn.Conv1d(width, width, 1)
        self.said = nn.Conv1d(width, skip, 1)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        earlier = pad(x, (self.before, 0))
        y = self.value(earlier).tanh() * self.gate(earlier).sigmoid()
        return x + self.carried(y), self.said(y)


class WaveNet(nn.Module):
    """WaveNet.

    Args:
        layers: Layers of a stack; their dilation doubles from 1.
        stacks: How often the dilations begin again.
        width: Channels that are carried from layer to layer.
        skip: Channels of what each layer says, summed.
        kernel: Samples that a convolution sees.
        classes: Levels of a sample.
    """

    def __init__(
        self, *, layers: int, stacks: int, width: int, skip: int, kernel: int, classes: int, **_: Number
    ) -> None:
        super().__init__()
        self.first = nn.Conv1d(1, width, 1)
        self.layers = nn.ModuleList(
            _Gated(width, skip, kernel, 2**layer) for _ in range(stacks) for layer in range(layers)
        )
        self.last = nn.Sequential(nn.ReLU(), nn.Conv1d(skip, skip, 1), nn.ReLU(), nn.Conv1d(skip, classes, 1))

    def forward(self, samples: Tensor) -> Tensor:
        """Samples [batch, 1, length] to logits of what follows each [batch, classes, length]."""
        x, total = self.layers[0](self.first(samples))
        for layer in self.layers[1:]:
            x, said = layer(x)
            total = total + said
        return self.last(total)


class Lstm(nn.Module):
    """A text classifier: an LSTM of ``layers`` layers."""

    def __init__(self, *, layers: int, hidden: int, embed: int, vocab: int, classes: int, **_: Number) -> None:
        super().__init__()
        self.embed = nn.Embedding(vocab, embed)
        self.lstm = nn.LSTM(embed, hidden, layers, batch_first=True)
        self.last = nn.Linear(hidden, classes)

    def forward(self, input_ids: Tensor) -> Tensor:
        """Tokens [batch, seq] to logits [batch, classes]."""
        states, _ = self.lstm(self.embed(input_ids))
        return self.last(states[:, -1])


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


class _Branches(nn.Module):
    """GoogLeNet's module: four ways beside each other, of 1, 3 and 5 pixels a side and of a pool."""

    def __init__(self, inputs: int, one: int, three: tuple[int, int], five: tuple[int, int], pooled: int) -> None:
        super().__init__()
        self.ways = nn.ModuleList(
            (
                _bent(nn.Conv2d(inputs, one, 1)),
                nn.Sequential(_bent(nn.Conv2d(inputs, three[0], 1)), _bent(nn.Conv2d(*three, 3, padding=1))),
                nn.Sequential(_bent(nn.Conv2d(inputs, five[0], 1)), _bent(nn.Conv2d(*five, 5, padding=2))),
                nn.Sequential(nn.MaxPool2d(3, 1, 1), _bent(nn.Conv2d(inputs, pooled, 1))),
            )
        )

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([way(x) for way in self.ways], 1)


def _bent(layer: nn.Module) -> nn.Sequential:
    return nn.Sequential(layer, nn.ReLU())


_WAYS = (
    ((4, (6, 8), (1, 2), 2), (8, (8, 12), (2, 6), 4)),
    ((12, (6, 13), (1, 3), 4), (10, (7, 14), (2, 4), 4), (8, (8, 16), (2, 4), 4), (7, (9, 18), (2, 4), 4), (16, (10, 20), (2, 8), 8)),
    ((16, (10, 20), (2, 8), 8), (24, (12, 24), (3, 8), 8)),
)  # fmt: skip
"""Channels of GoogLeNet's modules, stage by stage, in sixteenths: of 1x1, of 3x3 and what goes into it, of 5x5 likewise, and of the pool's."""


class GoogLeNet(nn.Sequential):
    """GoogLeNet as published, with local response normalisation and without its two auxiliary heads."""

    def __init__(self, *, width: int, classes: int, **_: Number) -> None:
        w, shrink = width, partial(nn.MaxPool2d, 3, 2, ceil_mode=True)
        layers: list[nn.Module] = [_bent(nn.Conv2d(3, 4 * w, 7, 2, 3)), shrink(), nn.LocalResponseNorm(5)]
        layers += [_bent(nn.Conv2d(4 * w, 4 * w, 1)), _bent(nn.Conv2d(4 * w, 12 * w, 3, padding=1))]
        layers.append(nn.LocalResponseNorm(5))
        channels = 12 * w
        for stage in _WAYS:
            layers.append(shrink())
            for one, three, five, pooled in stage:
                sizes = (three[0] * w, three[1] * w), (five[0] * w, five[1] * w)
                layers.append(_Branches(channels, one * w, *sizes, pooled * w))
                channels = (one + three[1] + five[1] + pooled) * w
        super().__init__(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, classes))
