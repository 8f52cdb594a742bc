"""Builders of models that listen: from samples, their spectra computed in the model. Imported only when a model is built."""

from __future__ import annotations

from itertools import pairwise

import torch
from torch import Tensor, nn

from graphopt.zoo.spec import Number


class LogMel(nn.Module):
    """Logarithms of the energies in triangular bands that are as wide as the ear hears them."""

    window: Tensor
    bands: Tensor

    def __init__(self, rate: int, frame: int, step: int, mels: int) -> None:
        super().__init__()
        self.frame, self.step = frame, step
        self.register_buffer("window", torch.hann_window(frame))
        self.register_buffer("bands", _bands(rate, frame, mels))

    def forward(self, samples: Tensor) -> Tensor:
        """Samples [batch, seq] to energies [batch, 1, frames, mels]."""
        # As real numbers: the older exporter knows no others.
        spectrum = torch.stft(samples, self.frame, self.step, window=self.window, return_complex=False)
        energy = spectrum.square().sum(-1)
        return torch.log(self.bands @ energy + 1e-6).transpose(1, 2).unsqueeze(1)


def _bands(rate: int, frame: int, mels: int) -> Tensor:
    """Triangles [mels, frame // 2 + 1] whose middles stand evenly on the mel scale (O'Shaughnessy 1987)."""
    top = 2595 * torch.log10(torch.tensor(1 + rate / 2 / 700))
    edges = 700 * (10 ** (torch.linspace(0, float(top), mels + 2) / 2595) - 1)
    bins = torch.linspace(0, rate / 2, frame // 2 + 1)
    rising = (bins - edges[:-2, None]) / (edges[1:-1] - edges[:-2])[:, None]
    falling = (edges[2:, None] - bins) / (edges[2:] - edges[1:-1])[:, None]
    return torch.minimum(rising, falling).clamp(min=0)


class DsCnn(nn.Sequential):
    """A keyword spotter: the spectrum of a second, then pairs of depthwise and pointwise convolutions."""

    def __init__(self, *, rate: int, mels: int, width: int, depth: int, classes: int, **_: Number) -> None:
        layers: list[nn.Module] = [nn.Conv2d(1, width, (10, 4), 2, (5, 1), bias=False)]
        for _i in range(depth):
            layers += [
                nn.BatchNorm2d(width),
                nn.ReLU(),
                nn.Conv2d(width, width, 3, padding=1, groups=width, bias=False),
            ]
            layers += [nn.BatchNorm2d(width), nn.ReLU(), nn.Conv2d(width, width, 1, bias=False)]
        head = (nn.BatchNorm2d(width), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, classes))
        super().__init__(LogMel(rate, rate // 25, rate // 50, mels), *layers, *head)


class _Residual(nn.Module):
    """A narrow convolution of three samples and one of one, beside what they are added to."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        inner = channels // 2
        self.body = nn.Sequential(
            nn.ELU(), nn.Conv1d(channels, inner, 3, padding=1), nn.ELU(), nn.Conv1d(inner, channels, 1)
        )

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.body(x)
        return x + y


class EncodecEncoder(nn.Module):
    """EnCodec's encoder: convolutions that shorten the samples 320 times, and an LSTM of two layers."""

    def __init__(self, *, width: int, states: int, **_: Number) -> None:
        super().__init__()
        sizes = [width * 2**i for i in range(5)]
        layers: list[nn.Module] = [nn.Conv1d(1, width, 7, padding=3)]
        for (narrow, wide), stride in zip(pairwise(sizes), (2, 4, 5, 8), strict=True):
            layers += [_Residual(narrow), nn.ELU(), nn.Conv1d(narrow, wide, 2 * stride, stride, (stride + 1) // 2)]
        self.body = nn.Sequential(*layers)
        self.lstm = nn.LSTM(sizes[-1], sizes[-1], 2)
        self.last = nn.Sequential(nn.ELU(), nn.Conv1d(sizes[-1], states, 7, padding=3))

    def forward(self, samples: Tensor) -> Tensor:
        """Samples [batch, 1, seq] to states [batch, states, seq // 320]."""
        x = self.body(samples)
        steps = x.permute(2, 0, 1)
        y: Tensor = self.last((steps + self.lstm(steps)[0]).permute(1, 2, 0))
        return y
