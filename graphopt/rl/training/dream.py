"""The dream: episodes that take place in the world model alone. Nothing here knows rules, graphs or prices."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from graphopt.rl.features import ACTION_WIDTH, STOP
from graphopt.rl.play import Played
from graphopt.rl.training.controller import symexp, symlog
from graphopt.rl.training.ppo import BatchPolicy, PolicyOutput
from graphopt.rl.training.world_model import Dreamer

MAX_BIRTHS = 6
"""New actions that a step brings at most."""


@dataclass(frozen=True, eq=False)
class Start:
    """States from which dreams begin, with equally many slots for actions; slot 0 is STOP's.

    Attributes:
        models: Name of the model of each.
        latent: (states, latent).
        memory: (states, remembered).
        actions: (states, slots, width).
        features: (states, slots, features).
        near: Which actions share a node, (states, slots, slots).
        legal: (states, slots).
    """

    models: tuple[str, ...]
    latent: Tensor
    memory: Tensor
    actions: Tensor
    features: Tensor
    near: Tensor
    legal: Tensor

    @classmethod
    def of(
        cls,
        models: Sequence[str],
        latent: Tensor,
        memory: Tensor,
        actions: Sequence[Tensor],
        features: Sequence[Tensor],
        near: Sequence[Tensor],
        room: int,
    ) -> Start:
        """Lay out states, given the embeddings of each one's legal actions, STOP first, their features and which of them share a node.

        There are ``room`` slots besides those that the fullest state needs.
        """
        slots = max(len(a) for a in actions) + room
        dense = latent.new_zeros(len(models), slots, actions[0].shape[1])
        dense_features = latent.new_zeros(len(models), slots, ACTION_WIDTH)
        legal = torch.zeros(len(models), slots, dtype=torch.bool, device=latent.device)
        shared = legal.unsqueeze(2).repeat(1, 1, slots)
        for i, (a, f, s) in enumerate(zip(actions, features, near, strict=True)):
            k = len(a)
            dense[i, :k], dense_features[i, :k], shared[i, :k, :k], legal[i, :k] = a, f, s.to(latent.device), True
        return cls(tuple(models), latent, memory, dense, dense_features, shared, legal)


@dataclass(frozen=True, eq=False)
class Dreams:
    """Episodes dreamt side by side.

    Attributes:
        episodes: One for each start; actions are counted among the legal ones.
        rows: Number of each step's state in the tensors below, the steps of the first episode first.
        state: What the controller saw, (states, ...).
        actions: (states, slots, width).
        features: (states, slots, features).
        legal: (states, slots).
    """

    episodes: tuple[Played, ...]
    rows: npt.NDArray[np.int64]
    state: Tensor
    actions: Tensor
    features: Tensor
    legal: Tensor

    def policy(self, agent: Dreamer) -> BatchPolicy:
        """The controller as a policy over the dreamt states, for :func:`graphopt.rl.training.ppo.update`."""

        def evaluate(part: npt.NDArray[np.int64]) -> PolicyOutput:
            rows = torch.from_numpy(self.rows[part]).to(self.state.device)
            legal = self.legal[rows]
            features = self.features[rows]
            scores, values, graph = _scored(agent, self.state[rows], self.actions[rows], features, legal)
            counts = legal.sum(1)
            return PolicyOutput(
                scores,
                features[legal],
                torch.ones_like(graph, dtype=torch.bool),
                graph,
                counts.cumsum(0) - counts,
                lambda returns: agent.chooser.value.loss(values, symlog(returns)).mean(),
            )

        return evaluate


def _scored(
    agent: Dreamer, state: Tensor, actions: Tensor, features: Tensor, legal: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Scores of the legal actions laid end to end, logits of the states' values, and the state of each action."""
    graph, slot = legal.nonzero(as_tuple=True)
    scores, values = agent.chooser(state, actions[graph, slot], features[graph, slot], graph)
    return scores, values, graph


@torch.no_grad()
def dream(
    agent: Dreamer, start: Start, table: Tensor, horizon: int, temperature: float, chance: torch.Generator
) -> Dreams:
    """Dream an episode from each start.

    Args:
        agent: V, M and C, none of which changes.
        start: Where the dreams begin.
        table: Embeddings of the rules that may find new places, without STOP, (rules, width).
        horizon: Steps at most; the value of the state reached stands for what would have followed.
        temperature: Temperature: above 1 the dream is more uncertain than M believes, at 0 the likeliest always happens.
        chance: Draws.
    """
    model, n, slots = agent.model, len(start.models), start.legal.shape[1]
    latent, memory, actions, features, legal = start.latent, start.memory, start.actions, start.features, start.legal
    near = start.near
    stop_embedding, stop_features = actions[:, :1], features[:, :1]
    over = torch.zeros(n, dtype=torch.bool, device=latent.device)
    states: list[tuple[Tensor, Tensor, Tensor, Tensor]] = []
    taken: list[Tensor] = []
    log_probs: list[Tensor] = []
    rewards: list[Tensor] = []
    values: list[Tensor] = []
    ended: list[Tensor] = []
    everyone = torch.arange(n, device=latent.device)
    for _ in range(horizon):
        state = agent.state(latent, memory)
        scores, worth, _ = _scored(agent, state, actions, features, legal)
        policy = torch.full(legal.shape, -1e9, device=scores.device).masked_scatter(legal, scores).log_softmax(1)
        action = torch.multinomial(policy.exp(), 1, generator=chance).squeeze(1)
        states.append((state, actions, features, legal))
        taken.append((legal.cumsum(1) - 1)[everyone, action])
        log_probs.append(policy[everyone, action])
        values.append(agent.chooser.worth(worth))
        chosen, chosen_features = actions[everyone, action], features[everyone, action]
        expected, after = model.dynamics(latent, chosen, memory)
        rewards.append(symexp(model.reward.mean(model.reward_logits(expected, chosen, chosen_features))))
        over = over | _happens(model.done(expected).squeeze(1), temperature, chance)
        ended.append(over)
        latent, memory = model.dynamics.next(latent, expected, temperature, chance), after
        tie = torch.zeros(n, slots, 2, device=latent.device)
        tie[everyone, action, 0] = 1.0
        tie[..., 1] = near[everyone, action].float()
        logits, actions, features = model.predict_kept(
            model.chosen_context(expected, chosen).unsqueeze(1), actions, features, tie
        )
        legal = legal & _happens(logits, temperature, chance)
        slots_now = actions, features, near, legal
        actions, features, near, legal = _add_born(agent, expected, chosen, table, slots_now, temperature, chance)
        actions = torch.cat([stop_embedding, actions[:, 1:]], 1)
        features = torch.cat([stop_features, features[:, 1:]], 1)
        legal = torch.cat([torch.ones_like(legal[:, :1]), legal[:, 1:]], 1)
        if bool(over.all()):
            break
    last = agent.chooser.worth(_scored(agent, agent.state(latent, memory), actions, features, legal)[1])
    return _gathered(start.models, states, taken, log_probs, rewards, [*values, last], ended)


def _happens(logits: Tensor, temperature: float, chance: torch.Generator) -> Tensor:
    if temperature <= 0:
        return logits > 0
    return torch.rand(logits.shape, generator=chance, device=logits.device) < torch.sigmoid(logits / temperature)


def _add_born(
    agent: Dreamer,
    expected: Tensor,
    chosen: Tensor,
    table: Tensor,
    slots: tuple[Tensor, Tensor, Tensor, Tensor],
    temperature: float,
    chance: torch.Generator,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Put new actions into free slots. They arise where the chosen one was, so they share its place with one another."""
    actions, features, near, legal = slots
    logits, embeddings, new_features = agent.model.predict_born(expected, chosen, table)
    born = _happens(logits, temperature, chance)
    likely = torch.where(born, logits, torch.full_like(logits, -1e9))
    n = len(legal)
    everyone = torch.arange(n, device=legal.device)
    most = min(MAX_BIRTHS, table.shape[0])
    actions, features, legal = actions.clone(), features.clone(), legal.clone()
    fresh = torch.zeros_like(legal)
    for rule in likely.topk(most, 1).indices.T:
        free = (~legal).float()
        free[:, STOP] = 0.0
        place = free.argmax(1)
        fits = born[everyone, rule] & (free[everyone, place] > 0)
        rows, to, of = everyone[fits], place[fits], rule[fits]
        actions[rows, to], features[rows, to], legal[rows, to], fresh[rows, to] = (
            embeddings[rows, of],
            new_features[rows, of],
            True,
            True,
        )
    old = ~fresh
    near = near & old.unsqueeze(1) & old.unsqueeze(2) | fresh.unsqueeze(1) & fresh.unsqueeze(2)
    return actions, features, near, legal


def _gathered(
    models: Sequence[str],
    states: Sequence[tuple[Tensor, Tensor, Tensor, Tensor]],
    taken: list[Tensor],
    log_probs: list[Tensor],
    rewards: list[Tensor],
    values: list[Tensor],
    ended: list[Tensor],
) -> Dreams:
    n, steps = len(models), len(taken)
    over = torch.stack(ended).cpu().numpy()  # (steps, n), true from the step on that ended it
    lengths = np.where(over.any(0), over.argmax(0) + 1, steps)
    chosen, certain, paid, worth = (torch.stack(x).cpu().double().numpy() for x in (taken, log_probs, rewards, values))
    episodes: list[Played] = []
    rows: list[npt.NDArray[np.int64]] = []
    for i, model in enumerate(models):
        k = int(lengths[i])
        expected = worth[: k + 1, i].copy()
        if over[k - 1, i]:
            expected[k] = 0.0
        episodes.append(Played(model, chosen[:k, i].astype(np.int64), paid[:k, i], certain[:k, i], expected))
        rows.append(np.arange(k, dtype=np.int64) * n + i)
    state, actions, features, legal = (torch.cat([s[j] for s in states]) for j in range(4))
    return Dreams(tuple(episodes), np.concatenate(rows), state, actions, features, legal)
