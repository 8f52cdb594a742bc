"""Builders of sequence models without attention: causal convolutions and recurrence. Imported only when a model is built."""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn.functional import pad

from graphopt.zoo.spec import Number


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
