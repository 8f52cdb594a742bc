"""Learning from dreams: fit the world model to real episodes, then train the controller inside it.

Metrics of an iteration, besides those of :mod:`graphopt.rl.training.ppo`, which are of the dreams:

- ``model_loss`` and its parts: ``latent_loss`` (next latent: likelihood or squared distance), ``reward_loss`` (cross-entropy),
  ``done_loss``, ``legal_loss`` (whether actions stay legal), ``birth_loss`` (which rules find new places).
- ``reward_error``: mean error of the predicted reward on episodes that were held out, in the reward's unit; ``legal_accuracy`` and
  ``birth_accuracy`` (of those predicted or real, the share that are both) likewise.
- ``dream_return``, ``gap``: mean return of dreams from the beginnings of models, and by how much that of the first, before the controller
  learns from dreams, exceeds that of the real episodes that were played last, over no more steps: what an agent gains by the model's errors
  shows here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields

import numpy as np
import torch
from torch import Tensor, nn

from graphopt.rewrite.schema import Rule
from graphopt.rl.features import Batch
from graphopt.rl.play import Trajectory
from graphopt.rl.rule_features import RuleBatch
from graphopt.rl.training.controller import Tensors, symexp, symlog
from graphopt.rl.training.dream import Start, dream
from graphopt.rl.training.ppo import PPO, Samples, update
from graphopt.rl.training.replay_buffer import Record, Replay, Windows, shared, windows
from graphopt.rl.training.world_model import Dreamer, Transition, WorldModel


@dataclass(frozen=True)
class Dreaming:
    """Settings of the algorithm.

    Attributes:
        dynamics: One of :data:`graphopt.rl.training.training_run.DYNAMICS`.
        learning_rate: Learning rate of V and M.
        fits: Gradient steps of V and M in an iteration.
        windows: Windows of a gradient step.
        length: Steps of a window.
        episodes: Real episodes that an iteration learns from and dreams of.
        rounds: Dreams and updates of C in an iteration.
        dreams: Begun in each round.
        horizon: Steps of a dream at most.
        temperature: Temperature of the dream.
        random: Share of the episodes that are played at random.
        first: The same in the first iteration.
        keep: States of real episodes that are kept.
    """

    dynamics: str = "deterministic"
    learning_rate: float = 1e-3
    fits: int = 40
    windows: int = 12
    length: int = 5
    episodes: int = 24
    rounds: int = 6
    dreams: int = 192
    horizon: int = 12
    temperature: float = 1.0
    random: float = 0.25
    first: float = 0.5
    keep: int = 6000


class DreamerLearner:
    """A world-model agent as the training loop sees it (:class:`graphopt.rl.training.train.Learner`)."""

    def __init__(self, agent: Dreamer, rules: Sequence[Rule], settings: Dreaming, ppo: PPO) -> None:
        self.network, self.rules, self.settings, self.ppo = agent, rules, settings, ppo
        self._model = torch.optim.Adam(agent.model.parameters(), lr=settings.learning_rate, eps=1e-5)
        self._choice = torch.optim.Adam(agent.chooser.parameters(), lr=ppo.learning_rate, eps=1e-5)
        self.optimizers: Mapping[str, torch.optim.Optimizer] = {"model": self._model, "controller": self._choice}
        self.replay = Replay(settings.keep)

    def explores(self, iteration: int) -> float:
        """See :class:`graphopt.rl.training.train.Learner`."""
        return self.settings.first if iteration == 0 else self.settings.random

    def remember(self, records: Sequence[Record]) -> None:
        """Keep real episodes."""
        for record in records:
            self.replay.add(record)

    @property
    def remembered(self) -> Sequence[Record]:
        """See :class:`graphopt.rl.training.train.Learner`."""
        return self.replay.records

    def learn(self, played: Sequence[Trajectory], rng: np.random.Generator, fraction: float) -> dict[str, float]:
        """See :class:`graphopt.rl.training.train.Learner`."""
        records = self.replay.pick(rng, self.settings.episodes)
        metrics = self.fit(records, rng)
        chance = torch.Generator(self.network.model.stop.device)
        chance.manual_seed(int(rng.integers(2**62)))
        entropy = self.ppo.entropy * (1 - 0.95 * fraction)
        sums: dict[str, float] = {}
        starts, roots = self.starts(records)
        table = self.table()
        at_roots: list[float] = []
        before: list[float] = []
        for number in range(self.settings.rounds):
            rows = _rows(len(starts.models), roots, self.settings.dreams, rng)
            found = dream(
                self.network,
                _some(starts, rows),
                table,
                self.settings.horizon,
                self.settings.temperature,
                chance,
            )
            at_roots += [float(e.rewards.sum()) for e, row in zip(found.episodes, rows, strict=True) if row in roots]
            if number == 0:
                before = at_roots[:]
            samples = Samples.of(found.episodes, self.ppo)
            policy = found.policy(self.network)
            for name, value in update(
                policy, self.network.chooser, self._choice, samples, self.ppo, entropy, rng
            ).items():
                sums[name] = sums.get(name, 0.0) + value / self.settings.rounds
        own = [float(t.rewards[: self.settings.horizon].sum()) for t in played]
        return {
            **sums,
            **metrics,
            **self.validate(),
            "dream_return": float(np.mean(at_roots)) if at_roots else 0.0,
            "gap": float(np.mean(before) - np.mean(own)) if before and own else 0.0,
        }

    # -- V and M --------------------------------------------------------------------------------------------------

    def fit(self, records: Sequence[Record], rng: np.random.Generator) -> dict[str, float]:
        """Fit V and M to some real episodes; the mean of each part of the loss."""
        model, s = self.network.model, self.settings
        memories = self._memories(records)
        model.train()
        sums: dict[str, float] = {}
        for _ in range(s.fits):
            found = windows(records, rng, s.windows, s.length)
            parts = losses(model, found, self.rules, _begun(memories, found))
            loss = torch.stack(list(parts.values())).sum()
            self._model.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            self._model.step()
            for name, part in {"model_loss": loss, **parts}.items():
                sums[name] = sums.get(name, 0.0) + float(part.detach()) / s.fits
        return {name: value for name, value in sums.items() if name in _LOGGED}

    @torch.no_grad()
    def validate(self) -> dict[str, float]:
        """How wrong M is on episodes that it was not fitted to."""
        model = self.network.model.eval()
        records = [r for r in self.replay.unseen if r.played.steps][-self.settings.windows :]
        if not records:
            return {"reward_error": 0.0, "legal_accuracy": 0.0, "birth_accuracy": 0.0}
        found = Windows.of([(r, 0, min(r.played.steps, 2 * self.settings.length)) for r in records])
        begun = model.start(len(records))
        e = _expect(model, found, self.rules, begun)
        error = torch.abs(
            symexp(model.reward.mean(e.reward)) - torch.from_numpy(found.rewards).float().to(e.reward.device)
        )
        legal, stays = e.legal
        right = (legal > 0) == stays
        births, rules = e.births
        born, real = births > 0, rules >= 0
        either = int((born | real).sum())
        return {
            "reward_error": float(error.mean()),
            "legal_accuracy": float(right.float().mean()) if len(right) else 1.0,
            "birth_accuracy": int((born & real).sum()) / either if either else 1.0,
        }

    @torch.no_grad()
    def _memories(self, records: Sequence[Record]) -> dict[int, Tensor]:
        """The memory before each step of each episode, by the record's ``id``; nothing where M has none."""
        model = self.network.model.eval()
        if not self.network.shape.remembered:
            return {}
        found: dict[int, Tensor] = {}
        for record in records:
            latent, embeddings, first, _ = _encoded(model, record, self.rules)
            found[id(record)] = _memory(model, record, latent, embeddings, first)
        return found

    # -- where dreams begin ---------------------------------------------------------------------------------------

    @torch.no_grad()
    def starts(self, records: Sequence[Record]) -> tuple[Start, frozenset[int]]:
        """All states of some real episodes, and which of them are the beginnings."""
        model = self.network.model.eval()
        models: list[str] = []
        latents: list[Tensor] = []
        remembered: list[Tensor] = []
        actions: list[Tensor] = []
        features: list[Tensor] = []
        near: list[Tensor] = []
        roots: set[int] = set()
        for record in records:
            latent, embeddings, first, action_features = _encoded(model, record, self.rules)
            roots.add(len(models))
            for t in range(record.played.steps):
                observation = record.played.observations[t]
                mask = torch.from_numpy(observation.mask)
                a, b = int(first[t]), int(first[t + 1])
                models.append(record.played.model)
                actions.append(embeddings[a:b][mask])
                features.append(action_features[a:b][mask])
                near.append(torch.from_numpy(shared(observation)[np.ix_(observation.mask, observation.mask)]))
            latents.append(latent[: record.played.steps])
            remembered.append(_memory(model, record, latent, embeddings, first))
        room = 2 * self.settings.horizon
        return Start.of(models, torch.cat(latents), torch.cat(remembered), actions, features, near, room), frozenset(
            roots
        )

    @torch.no_grad()
    def table(self) -> Tensor:
        """Embeddings of the rules that were met, without STOP."""
        met = sorted(
            {int(i) for r in self.replay.records for o in r.played.observations for i in np.unique(o.rules) if i >= 0}
        )
        return self.network.model.eval().table(RuleBatch.of([self.rules[i] for i in met]))[1:]


_LOGGED = frozenset({"model_loss", "latent_loss", "reward_loss", "done_loss", "legal_loss", "birth_loss"})


def _rows(starts: int, roots: frozenset[int], count: int, rng: np.random.Generator) -> np.ndarray:
    """Where to dream from: half of the time where real episodes begin, else at any state."""
    first = rng.choice(sorted(roots), count // 2)
    return np.concatenate([first, rng.permutation(starts)[: count - len(first)]])


def _some(start: Start, rows: np.ndarray) -> Start:
    i = torch.from_numpy(rows).to(start.latent.device)
    tensors = {f.name: getattr(start, f.name)[i] for f in fields(start) if f.name != "models"}
    return Start(tuple(start.models[r] for r in rows), **tensors)


def _encoded(model: WorldModel, record: Record, rules: Sequence[Rule]) -> tuple[Tensor, Tensor, np.ndarray, Tensor]:
    """Latents of an episode's states, embeddings of their actions, where each state's begin, and features."""
    table, batch = model.table_of(Batch.of(record.played.observations), rules)
    t = Tensors.of(batch, table.device)
    latent, embeddings = model.encode(t, table)
    return latent, embeddings, batch.first, t.actions


def _memory(model: WorldModel, record: Record, latent: Tensor, embeddings: Tensor, first: np.ndarray) -> Tensor:
    """The memory before each step of an episode, (steps, remembered)."""
    memory, rows = model.start(1), list[Tensor]()
    for t, action in enumerate(record.played.actions):
        rows.append(memory)
        embedding = embeddings[first[t] + int(action)].unsqueeze(0)
        memory = model.dynamics(latent[t : t + 1], embedding, memory)[1]
    return torch.cat(rows)


def _begun(memories: Mapping[int, Tensor], found: Windows) -> Tensor | None:
    if not memories:
        return None
    return torch.stack([memories[id(record)][first] for record, first, _ in found.parts])


_Pair = tuple[Tensor, Tensor]  # what M says, and what is true


@dataclass(frozen=True, eq=False)
class _Expected:
    """What M says of windows, and what is true of the actions that it says it of."""

    latent_loss: Tensor
    reward: Tensor
    done: Tensor
    decoded: _Pair
    legal: _Pair
    embeddings: _Pair
    features: _Pair
    births: _Pair
    born_embeddings: _Pair
    born_features: _Pair


def _expect(model: WorldModel, w: Windows, rules: Sequence[Rule], memory: Tensor | None) -> _Expected:
    table, batch = model.table_of(Batch.of(w.observations), rules)
    device = table.device
    t = Tensors.of(batch, device)
    latent, embeddings = model.encode(t, table)

    def on(x: np.ndarray) -> Tensor:
        return torch.from_numpy(x).to(device)

    before, after = on(w.before), on(w.after)
    chosen_slot = t.first[before] + on(w.chosen)
    chosen, action_features = embeddings[chosen_slot], t.actions[chosen_slot]
    memory = model.start(w.counts[0]) if memory is None else memory
    # The memory needs the true latent; what has none is unrolled on its own answers, for so it is used.
    unrolled = isinstance(model.dynamics, Transition)
    expected: list[Tensor] = []
    distances: list[Tensor] = []
    at, own = 0, latent[:0]
    for k, going in enumerate(w.counts):
        rows = slice(at, at + going)
        here = own[:going] if unrolled and k else latent[before[rows]]
        e, memory = model.dynamics(here, chosen[rows], memory[:going])
        expected.append(e)
        distances.append(model.dynamics.loss(here, e, latent[after[rows]].detach()))
        if unrolled:
            own = model.dynamics.next(here, e, 0.0, torch.default_generator)
        at += going
    u = torch.cat(expected)
    step, slot = on(w.slot_step), on(w.slots)
    context = model.chosen_context(u, chosen)
    tie = torch.stack([slot == chosen_slot[step], on(w.slot_near)], 1).float()
    legal, embedding, features = model.predict_kept(context[step], embeddings[slot], t.actions[slot], tie)
    slot_after = on(w.slot_after)
    stays = slot_after >= 0
    live = ~on(w.done)
    births, born_embedding, born_features = model.predict_born(u, chosen, table[1:])
    true = torch.full(births.shape, -1, dtype=torch.int64, device=device)
    born = on(w.births)
    true[on(w.birth_step), t.rules[born]] = born
    real = true >= 0
    return _Expected(
        latent_loss=torch.cat(distances)[live],
        reward=model.reward_logits(u, chosen, action_features),
        done=model.done(u).squeeze(1),
        decoded=(model.decoder(latent), t.graphs),
        legal=(legal, stays),
        embeddings=(embedding[stays], embeddings[slot_after[stays]].detach()),
        features=(features[stays], t.actions[slot_after[stays]]),
        births=(births[live], true[live]),
        born_embeddings=(born_embedding[real], embeddings[true[real]].detach()),
        born_features=(born_features[real], t.actions[true[real]]),
    )


def losses(model: WorldModel, w: Windows, rules: Sequence[Rule], memory: Tensor | None) -> dict[str, Tensor]:
    """How wrong V and M are about windows of real episodes, part by part; ``memory`` is that before each window's first step, ``None`` where M has none."""
    e = _expect(model, w, rules, memory)
    rewards, done = torch.from_numpy(w.rewards).float(), torch.from_numpy(w.done).float()
    binary = nn.functional.binary_cross_entropy_with_logits
    squared, near = nn.functional.mse_loss, nn.functional.smooth_l1_loss
    zero = e.reward.sum() * 0.0
    (legal, stays), (births, born) = e.legal, e.births

    def mean(loss: Callable[[Tensor, Tensor], Tensor], pair: _Pair) -> Tensor:
        return loss(*pair) if len(pair[0]) else zero

    return {
        "latent_loss": e.latent_loss.mean() if len(e.latent_loss) else zero,
        "reward_loss": model.reward.loss(e.reward, symlog(rewards.to(e.reward.device))).mean(),
        "done_loss": binary(e.done, done.to(e.done.device)),
        "legal_loss": mean(binary, (legal, stays.float())),
        "birth_loss": 4 * mean(binary, (births, (born >= 0).float())),
        "decoder_loss": near(*e.decoded),
        "embedding_loss": mean(squared, e.embeddings),
        "features_loss": 4 * mean(near, e.features),
        "born_embedding_loss": mean(squared, e.born_embeddings),
        "born_features_loss": 4 * mean(near, e.born_features),
    }
