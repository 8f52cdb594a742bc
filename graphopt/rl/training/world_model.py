"""The world model: how an agent encodes what there is (V), what it expects to come of an action (M), and how it chooses (C).

After Ha & Schmidhuber, "World Models", 2018, and its use for graph rewriting by Parker, 2021. What is particular here:

- V is trained with M. An action is encoded as a vector of its rule's content, the nodes that it matched and its predicted saving.
- A state is a latent vector and the *set* of its actions. M says of each action whether it is still legal after the chosen one, and
  its embedding then; and of each rule whether the chosen action brings a place for it, and the embedding of that. So the legal set is
  predicted for graphs, rules and numbers of places that the model was never trained with.
- ``dynamics: mdn-lstm`` is a memory of 256 units and 8 Gaussians for each number of the next latent. ``deterministic`` has no memory
  and one answer, for a rewrite has one: it is unrolled over several steps and held to the encoded true graphs (self-consistency as in
  Ye et al., "Mastering Atari Games with Limited Data", 2021). Rewards and values are distributions in both (Hafner et al.,
  "Mastering Diverse Domains through World Models", 2023), over a logarithmic scale.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from graphopt.rewrite.schema import Rule
from graphopt.rl.features import ACTION_WIDTH, FRESH, SAVING, Batch, Observation
from graphopt.rl.play import Scores
from graphopt.rl.rule_features import RuleBatch
from graphopt.rl.training.controller import Encoder, Prior, Shape, Tensors, site_embeddings, symexp, symlog
from graphopt.rl.training.encoder import mlp, nearly_silent

_BINS = 49
_MAX_SYMLOG = 5.76  # of the bins: symlogs of rewards and values lie between -300 and 300 %
_MIN_LOG_PRIOR = -12.0
"""Logarithm of how likely a guess makes a bin far from it, next to its own."""
_HIDDEN = 64


@dataclass(frozen=True)
class WorldShape:
    """Sizes of a world model's networks.

    Attributes:
        seen: Sizes of the encoder.
        latent: Numbers that stand for a graph.
        memory: Units of the memory.
        gaussians: Gaussians for each number of the next latent.
        dynamics: One of :data:`graphopt.rl.training.training_run.DYNAMICS`.
    """

    seen: Shape
    latent: int = 32
    memory: int = 256
    gaussians: int = 8
    dynamics: str = "mdn-lstm"

    @property
    def remembered(self) -> int:
        """Numbers that are carried from one step to the next."""
        return 2 * self.memory if self.dynamics == "mdn-lstm" else 0

    def network(self) -> Dreamer:
        """Networks of these sizes."""
        return Dreamer(self)

    def policy(self, network: nn.Module, rules: Sequence[Rule]) -> DreamerPolicy:
        """Networks of these sizes as a policy."""
        assert isinstance(network, Dreamer)
        return DreamerPolicy(network, rules)


class TwoHotHead(nn.Module):
    """A distribution over amounts, told as logits of bins of their symlog (Hafner et al., 2023)."""

    edges: Tensor

    def __init__(self, inputs: int) -> None:
        super().__init__()
        self.net = mlp(inputs, _HIDDEN, _BINS)
        nearly_silent(self.net)
        self.register_buffer("edges", torch.linspace(-_MAX_SYMLOG, _MAX_SYMLOG, _BINS), persistent=False)

    def forward(self, x: Tensor, guess: Tensor | None = None) -> Tensor:
        """Logits of the bins, (rows, bins).

        Args:
            x: (rows, inputs).
            guess: What to expect before anything is learned, as symlog, (rows,).
        """
        out: Tensor = self.net(x)
        if guess is not None:
            width = 2 * _MAX_SYMLOG / (_BINS - 1)
            likely = -3.0 * torch.abs(self.edges - guess.unsqueeze(1)) / width
            # No bin is out of reach: where the guess is far off, what was met must be able to outweigh it.
            out = out + torch.logaddexp(likely, torch.full_like(likely, _MIN_LOG_PRIOR))
        return out

    def mean(self, logits: Tensor) -> Tensor:
        """The expected symlog, (rows,)."""
        return logits.softmax(1) @ self.edges

    def loss(self, logits: Tensor, target: Tensor) -> Tensor:
        """Cross-entropy with the two bins nearest to the targets (two-hot), (rows,)."""
        place = ((target + _MAX_SYMLOG) / (2 * _MAX_SYMLOG) * (_BINS - 1)).clamp(0, _BINS - 1)
        below = place.floor().clamp(max=_BINS - 2)
        share = (place - below).unsqueeze(1)
        log_probs = logits.log_softmax(1)
        i = below.long().unsqueeze(1)
        return -(log_probs.gather(1, i) * (1 - share) + log_probs.gather(1, i + 1) * share).squeeze(1)


class Mixture(nn.Module):
    """M with a memory: an LSTM and Gaussian mixtures."""

    def __init__(self, shape: WorldShape, action: int) -> None:
        super().__init__()
        self.shape = shape
        self.cell = nn.LSTMCell(shape.latent + action, shape.memory)
        self.mixture = nn.Linear(shape.memory, 3 * shape.gaussians * shape.latent)

    def forward(self, latent: Tensor, action: Tensor, memory: Tensor) -> tuple[Tensor, Tensor]:
        """What is expected of an action (rows, memory), and the memory after it."""
        h, c = memory[:, : self.shape.memory], memory[:, self.shape.memory :]
        h, c = self.cell(torch.cat([latent, action], 1), (h, c))
        return h, torch.cat([h, c], 1)

    def _parts(self, expected: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        parts = self.mixture(expected).view(len(expected), 3, self.shape.latent, self.shape.gaussians)
        return parts[:, 0], parts[:, 1], parts[:, 2].clamp(-5.0, 2.0)

    def loss(self, latent: Tensor, expected: Tensor, target: Tensor) -> Tensor:
        """Negative log-likelihood of the next latent, mean over its numbers, (rows,)."""
        logits, mean, log_sigma = self._parts(expected)
        distance = (target.unsqueeze(2) - mean) / log_sigma.exp()
        log_density = -0.5 * distance**2 - log_sigma - 0.5 * math.log(2 * math.pi)
        return -(logits.log_softmax(2) + log_density).logsumexp(2).mean(1)

    def next(self, latent: Tensor, expected: Tensor, temperature: float, chance: torch.Generator) -> Tensor:
        """A draw of the next latent; ``temperature`` flattens the mixture and widens its parts."""
        logits, mean, log_sigma = self._parts(expected)
        if temperature <= 0:
            part = logits.argmax(2, keepdim=True)
            return mean.gather(2, part).squeeze(2)
        flat = (logits / temperature).softmax(2).flatten(0, 1)
        part = torch.multinomial(flat, 1, generator=chance).view(*logits.shape[:2], 1)
        sigma = log_sigma.gather(2, part).squeeze(2).exp()
        noise = torch.randn(sigma.shape, generator=chance, device=sigma.device)
        return mean.gather(2, part).squeeze(2) + sigma * math.sqrt(temperature) * noise

    def hidden(self, memory: Tensor) -> Tensor:
        """What the controller sees of the memory."""
        return memory[:, : self.shape.memory]


class Transition(nn.Module):
    """M without a memory: the one next latent."""

    def __init__(self, shape: WorldShape, action: int) -> None:
        super().__init__()
        self.step = nn.Sequential(
            nn.Linear(shape.latent + action, shape.memory), nn.ReLU(), nn.Linear(shape.memory, shape.memory), nn.ReLU()
        )
        self.change = nn.Linear(shape.memory, shape.latent)
        self.norm = nn.LayerNorm(shape.latent)

    def forward(self, latent: Tensor, action: Tensor, memory: Tensor) -> tuple[Tensor, Tensor]:
        """What is expected of an action (rows, memory), and no memory."""
        return self.step(torch.cat([latent, action], 1)), memory

    def loss(self, latent: Tensor, expected: Tensor, target: Tensor) -> Tensor:
        """Squared distance of the next latent, mean over its numbers, (rows,)."""
        return ((self._next(latent, expected) - target) ** 2).mean(1)

    def next(self, latent: Tensor, expected: Tensor, temperature: float, chance: torch.Generator) -> Tensor:
        """The next latent."""
        return self._next(latent, expected)

    def _next(self, latent: Tensor, expected: Tensor) -> Tensor:
        return self.norm(latent + self.change(expected))

    def hidden(self, memory: Tensor) -> Tensor:
        """An empty tensor: there is no memory."""
        return memory


class WorldModel(Encoder):
    """V and M."""

    def __init__(self, shape: WorldShape) -> None:
        super().__init__(shape.seen)
        self.sizes = shape
        width, action = shape.seen.width, shape.seen.width
        self.latent = nn.Sequential(nn.Linear(width, shape.latent), nn.LayerNorm(shape.latent))
        self.action = mlp(3 * width + ACTION_WIDTH, _HIDDEN, action)
        self.dynamics: Mixture | Transition = (
            Mixture(shape, action) if shape.dynamics == "mdn-lstm" else Transition(shape, action)
        )
        self.reward = TwoHotHead(shape.memory + action + ACTION_WIDTH)
        self.worth = nn.Parameter(torch.ones(()))
        self.done = nn.Linear(shape.memory, 1)
        self.decoder = mlp(shape.latent, _HIDDEN, shape.seen.graph)
        # Of each action after the chosen one: whether it is legal, its embedding, its features.
        self.context = nn.Linear(shape.memory + action, _HIDDEN)
        self.other = nn.Linear(action + ACTION_WIDTH + 2, _HIDDEN)
        self.kept = nn.Linear(_HIDDEN, 1 + action + ACTION_WIDTH)
        # Of each rule: whether the chosen action brings a place for it, the embedding of that, its features.
        self.rule = nn.Linear(width, _HIDDEN)
        self.born = nn.Sequential(nn.Linear(_HIDDEN, _HIDDEN), nn.ReLU(), nn.Linear(_HIDDEN, 1 + action + ACTION_WIDTH))
        self.before = nn.Linear(shape.memory + action, _HIDDEN)
        with torch.no_grad():
            self.kept.weight.mul_(0.1)
            self.kept.bias.zero_()
            self.kept.bias[0] = 3.0  # most actions stay as they are, and few rules find a new place
            last = self.born[-1]
            assert isinstance(last, nn.Linear)
            last.bias[0] = -3.0

    def encode(self, batch: Tensors, table: Tensor) -> tuple[Tensor, Tensor]:
        """Latents of graphs (graphs, latent), and their actions as vectors (actions, width)."""
        nodes, whole = self.embed(batch)
        return self.encode_embedded(nodes, whole, table, batch.rules, batch.sites, batch.actions)

    def encode_embedded(
        self, nodes: Tensor, whole: Tensor, table: Tensor, rules: Tensor, sites: Tensor, actions: Tensor
    ) -> tuple[Tensor, Tensor]:
        """:meth:`encode` from embedded nodes and graphs."""
        return self.latent(whole), self.action(torch.cat([site_embeddings(nodes, table, rules, sites), actions], 1))

    def start(self, rows: int) -> Tensor:
        """The memory before anything was done."""
        return torch.zeros(rows, self.sizes.remembered, device=self.stop.device)

    def reward_logits(self, expected: Tensor, action: Tensor, features: Tensor) -> Tensor:
        """Logits of the reward of a chosen action: its predicted saving, and what the model has learned to add to it."""
        guess = self.worth * symlog(saving_percent(features[:, SAVING]))
        return self.reward(torch.cat([expected, action, features], 1), guess)

    def chosen_context(self, expected: Tensor, chosen: Tensor) -> Tensor:
        """What other actions need to know of the chosen one, (rows, ...).

        Args:
            expected: What is expected of it, (rows, memory).
            chosen: The chosen action, (rows, width).
        """
        return self.context(torch.cat([expected, chosen], 1))

    def predict_kept(
        self, context: Tensor, actions: Tensor, features: Tensor, tie: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Predict what becomes of actions after the chosen one: logits of being legal (...,), their embeddings (..., width), their features.

        Args:
            context: See :meth:`chosen_context`; it broadcasts against the actions.
            actions: (..., width).
            features: Features of these actions.
            tie: Whether it is the chosen action itself, and whether it shares a node with it, (..., 2).
        """
        hidden = torch.relu(context + self.other(torch.cat([actions, features, tie], -1)))
        legal, change, feature_change = self.kept(hidden).split([1, actions.shape[-1], ACTION_WIDTH], -1)
        changed = features + feature_change
        changed = torch.cat([changed[..., :FRESH], torch.zeros_like(changed[..., FRESH:])], -1)
        return legal.squeeze(-1), actions + change, changed

    def predict_born(self, expected: Tensor, chosen: Tensor, table: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Predict for each rule what the chosen action brings: logits of a new place (rows, rules), its embedding (rows, rules, width), its features.

        Args:
            expected: What is expected of the chosen action, (rows, memory).
            chosen: The chosen action, (rows, width).
            table: Embeddings of the rules, without STOP, (rules, width).
        """
        before = self.before(torch.cat([expected, chosen], 1))
        out = self.born(torch.relu(before.unsqueeze(1) + self.rule(table).unsqueeze(0)))
        legal, embedding, new_features = out.split([1, chosen.shape[1], ACTION_WIDTH], 2)
        new_features = torch.cat([new_features[..., :FRESH], torch.ones_like(new_features[..., FRESH:])], -1)
        return legal.squeeze(2), embedding, new_features


class Chooser(nn.Module):
    """C: scores actions, and tells what a state is worth, from latent and memory."""

    def __init__(self, shape: WorldShape) -> None:
        super().__init__()
        state = shape.latent + (shape.memory if shape.remembered else 0)
        self.state = nn.Linear(state, _HIDDEN)
        self.slot = nn.Linear(shape.seen.width + ACTION_WIDTH, _HIDDEN)
        self.score = nn.Sequential(nn.ReLU(), nn.Linear(_HIDDEN, _HIDDEN), nn.ReLU(), nn.Linear(_HIDDEN, 1))
        self.prior = Prior()
        self.value = TwoHotHead(state)
        nearly_silent(self.score)

    def forward(self, state: Tensor, actions: Tensor, features: Tensor, graph: Tensor) -> tuple[Tensor, Tensor]:
        """Scores of the actions (actions,), and logits of the states' values (states, bins).

        Args:
            state: Latent and hidden memory, (states, ...).
            actions: (actions, width).
            features: (actions, :data:`graphopt.rl.features.ACTION_WIDTH`).
            graph: State of each action, (actions,).
        """
        slot = self.slot(torch.cat([actions, features], 1))
        score = self.score(self.state(state)[graph] + slot).squeeze(1) + self.prior(features)
        return score, self.value(state)

    def worth(self, logits: Tensor) -> Tensor:
        """What states are worth, in the reward's unit."""
        return symexp(self.value.mean(logits))


class Dreamer(nn.Module):
    """All networks of a world-model agent."""

    def __init__(self, shape: WorldShape) -> None:
        super().__init__()
        self.shape = shape
        self.model = WorldModel(shape)
        self.chooser = Chooser(shape)

    def state(self, latent: Tensor, memory: Tensor) -> Tensor:
        """What the controller sees of a state."""
        return torch.cat([latent, self.model.dynamics.hidden(memory)], 1)


class DreamerPolicy:
    """A world-model agent as collection wants it: it sees the true state, and remembers what was done."""

    def __init__(self, agent: Dreamer, rules: Sequence[Rule]) -> None:
        self.agent = agent.eval()
        with torch.no_grad():
            self._table = agent.model.table(RuleBatch.of(rules))
        self._memory = agent.model.start(0)
        self._encoded = (torch.zeros(0), torch.zeros(0), torch.zeros(0, dtype=torch.int64))

    def begin(self, lanes: int) -> None:
        """See :class:`graphopt.rl.play.Policy`."""
        self._memory = self.agent.model.start(lanes)

    def __call__(self, observations: Sequence[Observation], lanes: Sequence[int]) -> Scores:
        """See :class:`graphopt.rl.play.Policy`."""
        batch = Batch.of(observations)
        model, chooser = self.agent.model, self.agent.chooser
        with torch.no_grad():
            t = Tensors.of(batch, self._table.device)
            latent, embeddings = model.encode(t, self._table)
            state = self.agent.state(latent, self._memory[list(lanes)])
            scores, values = chooser(state, embeddings, t.actions, t.action_graph)
            worth = chooser.worth(values)
        self._encoded = (latent, embeddings, t.first[:-1])
        return Scores(np.split(scores.double().cpu().numpy(), batch.first[1:-1]), worth.double().cpu().numpy())

    def chose(self, lanes: Sequence[int], actions: Sequence[int]) -> None:
        """See :class:`graphopt.rl.play.Policy`."""
        latent, embeddings, first = self._encoded
        with torch.no_grad():
            embedding = embeddings[first + torch.tensor(actions, device=first.device)]
            self._memory[list(lanes)] = self.agent.model.dynamics(latent, embedding, self._memory[list(lanes)])[1]


def saving_percent(saving: Tensor) -> Tensor:
    """Predicted saving in percent, from the feature that says it (the inverse of :func:`graphopt.rl.features.scaled`)."""
    saving = saving.clamp(-3.5, 3.5)
    return torch.sign(saving) * (torch.exp2(4 * torch.abs(saving)) - 1) / 10
