"""Episodes played side by side, in any process: no torch here, a policy is whatever scores actions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from graphopt.ir.memo import collector_paused
from graphopt.rl.episode import Episode
from graphopt.rl.features import PRIOR, Observation
from graphopt.rl.task_environment import TaskEnvironment

Doubles = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Scores:
    """What a policy thinks of some states.

    Attributes:
        logits: Scores of the actions of each state, masked ones included.
        values: Expected return of each state, (states,).
    """

    logits: Sequence[Doubles]
    values: Doubles


TEMPERATURES = (1.0, 0.5, 0.25)
"""Temperatures of the episodes of an agent that is used, not trained: some look around, some keep to what it is sure of."""


class Policy(Protocol):
    """Scores the actions of states. It may remember, for each of the episodes that are played side by side, what happened so far."""

    def begin(self, lanes: int) -> None:
        """So many episodes begin, numbered from 0."""
        ...

    def __call__(self, observations: Sequence[Observation], lanes: Sequence[int]) -> Scores:
        """The scores, in the order of the observations, of which each belongs to an episode."""
        ...

    def chose(self, lanes: Sequence[int], actions: Sequence[int]) -> None:
        """What was done in the states that were scored last."""
        ...


class MemorylessPolicy:
    """A policy that looks at nothing but the state."""

    def begin(self, lanes: int) -> None:
        """See :class:`Policy`."""

    def chose(self, lanes: Sequence[int], actions: Sequence[int]) -> None:
        """See :class:`Policy`."""


class UniformPolicy(MemorylessPolicy):
    """Knows nothing: every legal action is as good as any other."""

    def __call__(self, observations: Sequence[Observation], lanes: Sequence[int]) -> Scores:
        """See :class:`Policy`."""
        return Scores([np.zeros(len(o.mask)) for o in observations], np.zeros(len(observations)))


class PriorPolicy(MemorylessPolicy):
    """An agent that has learned nothing: it leans to what is predicted to save, and to rules whose hints hold."""

    def __call__(self, observations: Sequence[Observation], lanes: Sequence[int]) -> Scores:
        """See :class:`Policy`."""
        return Scores([o.actions.astype(np.float64) @ PRIOR for o in observations], np.zeros(len(observations)))


class ScriptedPolicy:
    """Does what is written for each episode."""

    def __init__(self, actions: Sequence[Sequence[int]]) -> None:
        self._actions = actions
        self._made: list[int] = []

    def begin(self, lanes: int) -> None:
        """See :class:`Policy`."""
        self._made = [0] * lanes

    def __call__(self, observations: Sequence[Observation], lanes: Sequence[int]) -> Scores:
        """See :class:`Policy`."""
        logits = [np.full(len(o.mask), -np.inf) for o in observations]
        for row, lane in zip(logits, lanes, strict=True):
            written = self._actions[lane][self._made[lane] :]
            row[written[0] if written else 0] = 0.0
        return Scores(logits, np.zeros(len(observations)))

    def chose(self, lanes: Sequence[int], actions: Sequence[int]) -> None:
        """See :class:`Policy`."""
        for lane in lanes:
            self._made[lane] += 1


@dataclass(frozen=True, eq=False)
class Played:
    """One episode, real or dreamt: what a model-free agent learns from.

    Attributes:
        model: The model.
        actions: (steps,).
        rewards: (steps,).
        log_probs: Log-probabilities of the actions under the policy that chose them, (steps,).
        values: What the policy expected, (steps + 1,); 0 after STOP.
    """

    model: str
    actions: npt.NDArray[np.int64]
    rewards: Doubles
    log_probs: Doubles
    values: Doubles


@dataclass(frozen=True, eq=False)
class Trajectory(Played):
    """A real episode, of which a world model learns step by step.

    Attributes:
        observations: Observations before each step, and where it ended (steps + 1).
        terminated: Whether it ended with STOP; else the budget cut it off, and the last value stands for the rest.
        saving: Predicted saving at the end, carried out everywhere, in percent of the model as it was.
    """

    observations: tuple[Observation, ...]
    terminated: bool
    saving: float

    @property
    def steps(self) -> int:
        """Number of steps."""
        return len(self.actions)


def log_softmax(logits: Doubles, mask: npt.NDArray[np.bool_]) -> Doubles:
    """Logarithms of the probabilities of the legal actions; of the others minus infinity."""
    masked = np.where(mask, logits, -np.inf)
    top = masked.max()
    out: Doubles = masked - (top + np.log(np.exp(masked - top).sum()))
    return out


def choose(log_probs: Doubles, rng: np.random.Generator | None, temperature: float = 1.0) -> int:
    """Draw an action, or take the likeliest where there is no ``rng``; never a masked one."""
    if rng is None:
        return int(np.argmax(log_probs))
    scaled = (log_probs - log_probs.max()) / temperature
    weights = np.cumsum(np.exp(scaled))
    # The first whose share reaches beyond the draw: an action of probability 0 adds nothing and is never it.
    return int(np.searchsorted(weights, rng.random() * weights[-1], side="right").clip(0, len(weights) - 1))


def play(
    environments: Sequence[TaskEnvironment],
    policy: Policy,
    rngs: Sequence[np.random.Generator | None],
    *,
    temperatures: Sequence[float] = (1.0,),
    warm: bool = True,
    go_on: Callable[[], bool] = lambda: True,
    watch: Callable[[Episode], Any] = lambda episode: None,
) -> list[Trajectory]:
    """Play an episode on each environment, all side by side so that the policy is asked for many states at once.

    Args:
        environments: Where to play.
        policy: Scores the actions.
        rngs: What chance each episode follows; ``None`` takes the likeliest action always.
        temperatures: Temperatures of the episodes, over and over: above 1 choices are more random, below less.
        warm: Whether episodes may begin after random rewrites, where the task wants some.
        go_on: Asked before each step; false ends all episodes where they stand.
        watch: Sees each episode when it is over.
    """
    with collector_paused():
        episodes = [Episode(environment, rng, warm=warm) for environment, rng in zip(environments, rngs, strict=True)]
        logs = [_Log(episode) for episode in episodes]
        policy.begin(len(episodes))
        while (active := [i for i, e in enumerate(episodes) if not e.result.done]) and go_on():
            scores = policy([episodes[i].observation for i in active], active)
            chosen: list[int] = []
            for i, logits, value in zip(active, scores.logits, scores.values, strict=True):
                log_probs = log_softmax(logits, episodes[i].observation.mask)
                chosen.append(choose(log_probs, rngs[i], temperatures[i % len(temperatures)]))
                logs[i].add(chosen[-1], float(log_probs[chosen[-1]]), float(value))
            policy.chose(active, chosen)
        cut = [i for i, e in enumerate(episodes) if not e.result.terminated]
        ends = policy([episodes[i].observation for i in cut], cut).values if cut else np.zeros(0)
        last = dict(zip(cut, ends, strict=True))
        for episode in episodes:
            watch(episode)
        return [log.trajectory(float(last.get(i, 0.0))) for i, log in enumerate(logs)]


class _Log:
    """What happens in an episode."""

    def __init__(self, episode: Episode) -> None:
        self.episode = episode
        self.observations = [episode.observation]
        self.actions: list[int] = []
        self.rewards: list[float] = []
        self.log_probs: list[float] = []
        self.values: list[float] = []

    def add(self, action: int, log_prob: float, value: float) -> None:
        result = self.episode.step(action)
        self.actions.append(action)
        self.rewards.append(result.reward)
        self.log_probs.append(log_prob)
        self.values.append(value)
        self.observations.append(self.episode.observation)

    def trajectory(self, last: float) -> Trajectory:
        return Trajectory(
            model=self.episode.environment.name,
            observations=tuple(self.observations),
            actions=np.array(self.actions, np.int64),
            rewards=np.array(self.rewards),
            log_probs=np.array(self.log_probs),
            values=np.array([*self.values, last]),
            terminated=self.episode.result.terminated,
            saving=self.episode.saving(),
        )
