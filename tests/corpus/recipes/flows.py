"""Modules with control flow that depends on data, to be scripted."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class Loop(nn.Module):
    """As often as there are rows."""

    def __init__(self) -> None:
        super().__init__()
        self.f = nn.Linear(6, 6)

    def forward(self, x: Tensor) -> Tensor:
        y = x
        for i in range(x.size(0)):
            y = torch.relu(self.f(y)) + x[i]
        return y


class Branch(nn.Module):
    """One way or the other."""

    def __init__(self) -> None:
        super().__init__()
        self.f, self.g = nn.Linear(6, 6), nn.Linear(6, 6)

    def forward(self, x: Tensor) -> Tensor:
        return self.f(x) * 2.0 if bool(x.sum() > 0) else self.g(x) - 1.0


class While(nn.Module):
    """Until it is large."""

    def forward(self, x: Tensor) -> Tensor:
        n = 0
        while bool(x.abs().sum() < 100) and n < 10:
            x = x * 2 + 0.5
            n += 1
        return x


class Nested(nn.Module):
    """A choice in every round."""

    def __init__(self) -> None:
        super().__init__()
        self.f = nn.Linear(6, 6)

    def forward(self, x: Tensor) -> Tensor:
        y = torch.zeros_like(x)
        for i in range(3):
            if bool(x.mean() > 0):  # noqa: SIM108 - an expression is another graph
                y = y + self.f(x)
            else:
                y = y - x * i
        return y


class Both(nn.Module):
    """What the branches share is computed before them."""

    def __init__(self) -> None:
        super().__init__()
        self.f = nn.Linear(6, 6)

    def forward(self, x: Tensor) -> Tensor:
        h = self.f(x)
        y = torch.softmax(h, -1) if x.size(0) > 2 else torch.sigmoid(h)
        return y + h


class Grow(nn.Module):
    """A list that grows."""

    def forward(self, x: Tensor) -> Tensor:
        found: list[Tensor] = []
        for i in range(x.size(0)):
            found.append(x[i] * i)
        return torch.stack(found)
