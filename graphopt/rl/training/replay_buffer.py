"""Real episodes as a world model learns from them: windows of steps, with what became of each action.

Arrays only. What an episode was is its model, its seed and its actions: from these a resumed run plays it again.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from graphopt.ir.types import digest
from graphopt.rl.features import SAVING, Integers, Observation, scaled
from graphopt.rl.play import Doubles, Trajectory
from graphopt.rl.task import Source


@dataclass(frozen=True, eq=False)
class Record:
    """An episode.

    Attributes:
        played: The episode.
        source: Its model.
        seed: Where its chance came from.
    """

    played: Trajectory
    source: Source
    seed: tuple[int, ...]

    @cached_property
    def fates(self) -> list[tuple[Integers, Integers]]:
        """For each step: the index of each action afterwards, -1 if it is not legal then; and the indices of new actions."""
        return [_fate(a, b) for a, b in itertools.pairwise(self.played.observations)]

    @cached_property
    def near(self) -> list[npt.NDArray[np.bool_]]:
        """For each step: which actions share a node with the chosen one."""
        return [shared(o)[a] for o, a in zip(self.played.observations, self.played.actions, strict=False)]

    @cached_property
    def reward_error(self) -> Doubles:
        """For each step: how far its reward is from the predicted saving, as agents see savings."""
        guess = [o.actions[a, SAVING] for o, a in zip(self.played.observations, self.played.actions, strict=False)]
        out: Doubles = np.abs(scaled(self.played.rewards.astype(np.float32)) - np.array(guess)).astype(np.float64)
        return out


def shared(observation: Observation) -> npt.NDArray[np.bool_]:
    """Which actions share a matched node, (actions, actions)."""
    rows = np.repeat(np.arange(len(observation.sites)), observation.sites.shape[1])
    there = observation.sites.ravel() >= 0
    takes = np.zeros((len(observation.sites), len(observation.nodes)), np.float32)
    takes[rows[there], observation.sites.ravel()[there]] = 1.0
    out: npt.NDArray[np.bool_] = takes @ takes.T > 0
    return out


def _fate(before: Observation, after: Observation) -> tuple[Integers, Integers]:
    place = {int(name): i for i, name in enumerate(after.identities) if after.mask[i]}
    kept = np.array([place.get(int(name), -1) for name in before.identities], np.int64)
    known = set(before.identities.tolist())
    # Where a rule finds several places at once, the one that saves most stands for them: M tells of one.
    best: dict[int, int] = {}
    for name, i in place.items():
        rule = int(after.rules[i])
        if name not in known and (rule not in best or after.actions[i, 0] > after.actions[best[rule], 0]):
            best[rule] = i
    return kept, np.array(sorted(best.values()), np.int64)


@dataclass(frozen=True, eq=False)
class Windows:
    """Consecutive steps of several episodes.

    Steps are numbered by their place in the window first: all first steps, then all second ones; windows are sorted by length, so
    those that go on are always the first.

    Attributes:
        parts: Episode, first step and number of steps of each window.
        observations: All states.
        counts: How many windows have a first step, a second one, ...
        before: State of each step, (steps,).
        after: State after it, (steps,).
        chosen: Action, by its number in the state, (steps,).
        rewards: (steps,).
        done: Whether it ended the episode, (steps,).
        slots: Legal actions besides STOP in the states of steps that did not end it, by their number in all states, (slots,).
        slot_step: Step of each, (slots,).
        slot_near: Whether it shares a node with the chosen action, (slots,).
        slot_after: Its number afterwards in all states, -1 for gone, (slots,).
        births: New actions afterwards, by their number in all states, (births,).
        birth_step: Step of each, (births,).
    """

    parts: tuple[tuple[Record, int, int], ...]
    observations: tuple[Observation, ...]
    counts: tuple[int, ...]
    before: Integers
    after: Integers
    chosen: Integers
    rewards: Doubles
    done: npt.NDArray[np.bool_]
    slots: Integers
    slot_step: Integers
    slot_near: npt.NDArray[np.bool_]
    slot_after: Integers
    births: Integers
    birth_step: Integers

    @classmethod
    def of(cls, parts: Sequence[tuple[Record, int, int]]) -> Windows:
        """Windows of records: record, first step and number of steps of each."""
        parts = sorted(parts, key=lambda part: -part[2])
        observations: list[Observation] = []
        state: list[int] = []
        for record, first, steps in parts:
            state.append(len(observations))
            observations += record.played.observations[first : first + steps + 1]
        offset = np.concatenate([[0], np.cumsum([len(o.rules) for o in observations])]).astype(np.int64)
        counts: list[int] = []
        before: list[int] = []
        chosen: list[int] = []
        rewards: list[float] = []
        done: list[bool] = []
        slots: list[Integers] = []
        slot_step: list[Integers] = []
        slot_near: list[npt.NDArray[np.bool_]] = []
        slot_after: list[Integers] = []
        births: list[Integers] = []
        birth_step: list[Integers] = []
        for k in range(parts[0][2]):
            going = [(part, s) for part, s in zip(parts, state, strict=True) if part[2] > k]
            counts.append(len(going))
            for (record, first, _), s in going:
                t, step, played = first + k, len(before), record.played
                before.append(s + k)
                chosen.append(int(played.actions[t]))
                rewards.append(float(played.rewards[t]))
                done.append(played.terminated and t == played.steps - 1)
                if done[-1]:
                    continue
                kept, fresh = record.fates[t]
                legal = 1 + np.flatnonzero(played.observations[t].mask[1:])
                slots.append(offset[s + k] + legal)
                slot_step.append(np.full(len(legal), step, np.int64))
                slot_near.append(record.near[t][legal])
                slot_after.append(np.where(kept[legal] < 0, -1, offset[s + k + 1] + kept[legal]))
                births.append(offset[s + k + 1] + fresh)
                birth_step.append(np.full(len(fresh), step, np.int64))
        whole = np.array(before, np.int64)
        return cls(
            parts=tuple(parts),
            observations=tuple(observations),
            counts=tuple(counts),
            before=whole,
            after=whole + 1,
            chosen=np.array(chosen, np.int64),
            rewards=np.array(rewards),
            done=np.array(done, np.bool_),
            slots=_joined(slots),
            slot_step=_joined(slot_step),
            slot_near=np.concatenate([np.zeros(0, np.bool_), *slot_near]),
            slot_after=_joined(slot_after),
            births=_joined(births),
            birth_step=_joined(birth_step),
        )


def _joined(parts: Sequence[Integers]) -> Integers:
    return np.concatenate([np.zeros(0, np.int64), *parts])


class Replay:
    """The last episodes, some of them held out to see how wrong the model is on what it was not fitted to.

    Args:
        size: States that are kept; older episodes are dropped.
        held_out: One of so many episodes, on the mean, is not learned from.
    """

    def __init__(self, size: int, held_out: int = 8) -> None:
        self.size, self.held_out = size, held_out
        self.records: list[Record] = []

    def add(self, record: Record) -> None:
        """Keep an episode."""
        self.records.append(record)
        while sum(r.played.steps for r in self.records) > self.size and len(self.records) > 1:
            self.records.pop(0)

    @property
    def learned(self) -> list[Record]:
        """Episodes to learn from."""
        return [r for r in self.records if not self._is_unseen(r)]

    @property
    def unseen(self) -> list[Record]:
        """Episodes that are held out."""
        return [r for r in self.records if self._is_unseen(r)]

    def _is_unseen(self, record: Record) -> bool:
        # By a hash: models take turns by the number of the episode, and some would be held out always, others never.
        return digest(*record.seed[1:]) % self.held_out == 0

    def pick(self, rng: np.random.Generator, count: int) -> list[Record]:
        """Some episodes to learn from, each model's as often as any other's, and of each model the newest ones first of all."""
        by_model: dict[str, list[Record]] = {}
        for record in self.learned:
            by_model.setdefault(record.played.model, []).append(record)
        picked: list[Record] = []
        for records in by_model.values():
            share = -(-count // len(by_model))
            recent = max(1, share // 2)
            newest, older = records[-recent:], records[:-recent]
            drawn = rng.permutation(len(older))[: share - len(newest)]
            picked += [*newest, *(older[int(i)] for i in drawn)]
        return picked


def windows(records: Sequence[Record], rng: np.random.Generator, count: int, length: int) -> Windows:
    """Windows of random episodes. Every other one begins at any step, the rest where a reward was not what was predicted.

    A model that starts from the predicted saving has the most to learn there, and it may be one step of an episode of forty.
    """
    parts: list[tuple[Record, int, int]] = []
    for k, i in enumerate(rng.integers(len(records), size=count)):
        record = records[int(i)]
        steps, weights = record.played.steps, np.cumsum(record.reward_error)
        first = int(rng.integers(steps))
        if k % 2 and weights[-1] > 0:
            first = int(np.searchsorted(weights, rng.random() * weights[-1], side="right").clip(0, steps - 1))
        parts.append((record, first, min(length, steps - first)))
    return Windows.of(parts)
