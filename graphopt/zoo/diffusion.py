"""The builder of a latent-diffusion U-Net, written from its paper: convolutions, and attention over every pixel and over a text.

Attention is torch's own function, which exporters spell out. Imported only when a model is built.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn.functional import gelu, interpolate, scaled_dot_product_attention

from graphopt.zoo.spec import Number

_GROUPS = 32  # of GroupNorm, in latent diffusion


def _norm(channels: int) -> nn.GroupNorm:
    return nn.GroupNorm(min(_GROUPS, channels // 2), channels, eps=1e-6)


class _Residual(nn.Module):
    """Two 3x3 convolutions, each after GroupNorm and SiLU; the time is added between them."""

    def __init__(self, inputs: int, outputs: int, time: int) -> None:
        super().__init__()
        self.before = nn.Sequential(_norm(inputs), nn.SiLU(), nn.Conv2d(inputs, outputs, 3, padding=1))
        self.time = nn.Sequential(nn.SiLU(), nn.Linear(time, outputs))
        self.after = nn.Sequential(_norm(outputs), nn.SiLU(), nn.Conv2d(outputs, outputs, 3, padding=1))
        self.skip = nn.Identity() if inputs == outputs else nn.Conv2d(inputs, outputs, 1)

    def forward(self, x: Tensor, time: Tensor) -> Tensor:
        return self.skip(x) + self.after(self.before(x) + self.time(time)[:, :, None, None])


class _Attention(nn.Module):
    """Attention of ``x`` [batch, tokens, width] to ``context`` [batch, others, context width]."""

    def __init__(self, width: int, context: int, head: int) -> None:
        super().__init__()
        self.heads = width // head
        self.query = nn.Linear(width, width, bias=False)
        self.key = nn.Linear(context, width, bias=False)
        self.value = nn.Linear(context, width, bias=False)
        self.out = nn.Linear(width, width)

    def forward(self, x: Tensor, context: Tensor) -> Tensor:
        batch, _, width = x.shape
        q, k, v = (
            part.view(batch, -1, self.heads, width // self.heads).transpose(1, 2)
            for part in (self.query(x), self.key(context), self.value(context))
        )
        y = scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(batch, -1, width)
        return self.out(y)


class _GatedFeedForward(nn.Module):
    """GEGLU: one half of the inner states, times the GELU of the other."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.widen = nn.Linear(width, 8 * width)
        self.narrow = nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        states, gate = self.widen(x).chunk(2, -1)
        return self.narrow(states * gelu(gate))


class _Transformer(nn.Module):
    """A transformer block over the pixels of a map: to themselves, to the text, and a feed-forward network."""

    def __init__(self, width: int, context: int, head: int) -> None:
        super().__init__()
        self.norm = _norm(width)
        self.enter = nn.Conv2d(width, width, 1)
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(3))
        self.itself = _Attention(width, width, head)
        self.text = _Attention(width, context, head)
        self.feed = _GatedFeedForward(width)
        self.leave = nn.Conv2d(width, width, 1)

    def forward(self, x: Tensor, context: Tensor) -> Tensor:
        batch, width, *sides = x.shape
        y = self.enter(self.norm(x)).permute(0, 2, 3, 1).reshape(batch, -1, width)
        z = self.norms[0](y)
        y = y + self.itself(z, z)
        y = y + self.text(self.norms[1](y), context)
        y = y + self.feed(self.norms[2](y))
        return x + self.leave(y.reshape(batch, *sides, width).permute(0, 3, 1, 2))


class _Stage(nn.Module):
    """A residual block, and a transformer block after it where the stage has attention."""

    def __init__(self, inputs: int, outputs: int, time: int, context: int, head: int) -> None:
        super().__init__()
        self.residual = _Residual(inputs, outputs, time)
        self.attention = _Transformer(outputs, context, head) if head else None

    def forward(self, x: Tensor, time: Tensor, context: Tensor) -> Tensor:
        y: Tensor = self.residual(x, time)
        return y if self.attention is None else self.attention(y, context)


class DiffusionUNet(nn.Module):
    """Stable Diffusion's U-Net.

    Args:
        width: Channels at full resolution, twice as many at each lower one.
        levels: Resolutions, each half the one before it; ``size`` is a multiple of ``2**(levels - 1)``. All but the lowest have attention,
            which the middle blocks have as well.
        blocks: Residual blocks of a resolution on the way down; one more on the way up.
        head: Channels of a head, of which ``width`` is a multiple.
        text: Width of the text's states.
    """

    def __init__(self, *, width: int, levels: int, blocks: int, head: int, text: int, **others: Number) -> None:
        super().__init__()
        self.width = width
        time = 4 * width
        self.time = nn.Sequential(nn.Linear(width, time), nn.SiLU(), nn.Linear(time, time))
        self.first = nn.Conv2d(4, width, 3, padding=1)
        widths = [width * 2**i for i in range(levels)]
        self.down, self.up = nn.ModuleList(), nn.ModuleList()
        self.shrink, self.grow = nn.ModuleList(), nn.ModuleList()
        skips, at = [width], width
        for level, wide in enumerate(widths):
            last = level == levels - 1
            for _ in range(blocks):
                self.down.append(_Stage(at, wide, time, text, 0 if last else head))
                at = wide
                skips.append(at)
            if not last:
                self.shrink.append(nn.Conv2d(at, at, 3, 2, 1))
                skips.append(at)
        self.middle = nn.ModuleList((_Stage(at, at, time, text, head), _Stage(at, at, time, text, 0)))
        for level, wide in reversed(list(enumerate(widths))):
            for _ in range(blocks + 1):
                self.up.append(_Stage(at + skips.pop(), wide, time, text, 0 if level == levels - 1 else head))
                at = wide
            if level:
                self.grow.append(nn.Conv2d(at, at, 3, padding=1))
        self.blocks = blocks
        self.last = nn.Sequential(_norm(width), nn.SiLU(), nn.Conv2d(width, 4, 3, padding=1))

    def forward(self, latents: Tensor, timestep: Tensor, context: Tensor) -> Tensor:
        """Latents [batch, 4, size, size], timestep [batch] and context [batch, tokens, text] to noise like the latents."""
        time = self.time(_waves(timestep, self.width))
        x = self.first(latents)
        skips = [x]
        for i, stage in enumerate(self.down):
            x = stage(x, time, context)
            skips.append(x)
            level, place = divmod(i, self.blocks)
            if place == self.blocks - 1 and level < len(self.shrink):
                x = self.shrink[level](x)
                skips.append(x)
        for stage in self.middle:
            x = stage(x, time, context)
        for i, stage in enumerate(self.up):
            x = stage(torch.cat([x, skips.pop()], 1), time, context)
            level, place = divmod(i, self.blocks + 1)
            if place == self.blocks and level < len(self.grow):
                x = self.grow[level](interpolate(x, scale_factor=2.0, mode="nearest"))
        return self.last(x)


def _waves(timestep: Tensor, width: int) -> Tensor:
    """Sines and cosines of a time [batch] at ``width // 2`` frequencies: [batch, width]."""
    half = width // 2
    frequencies = torch.exp(torch.arange(half, dtype=torch.float32) * (-math.log(10000) / half))
    angles = timestep[:, None].float() * frequencies[None]
    return torch.cat([torch.cos(angles), torch.sin(angles)], -1)
