"""Builders of the two architectures found by search that graph optimisers are usually measured on.

Neither is in a model library, so both are written here from their papers. Imported only when a model is built.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

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
