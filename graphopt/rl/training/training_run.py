"""What a training run is: its sizes, its limits, and how it goes. No torch here."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from graphopt.documents import DocumentError, record
from graphopt.rl.manifest import MANIFEST, CheckpointError, Manifest
from graphopt.rl.task import Task

DYNAMICS = ("mdn-lstm", "deterministic")
"""Dynamics of a world model, see :mod:`graphopt.rl.training.world_model`."""
DEVICES = ("auto", "cpu", "cuda")
_IN_DREAMS: Mapping[str, Any] = {"gamma": 0.95, "prior_regularisation": 1e-3}
"""Dreams are cut off before most of them end, and the value of where they are then stands for the rest: undiscounted, any constant could be
added to all values, and one that grows keeps the controller from ever stopping. And M changes its mind, so C has to be able to."""


@dataclass(frozen=True)
class Preset:
    """Sizes of a run.

    Attributes:
        steps: Environment steps, unless the caller says otherwise.
        episodes: Played between two updates.
        together: Episodes of one job, side by side.
        width: Width of all embeddings.
        rounds: Graph-network blocks.
        rollouts: Episodes that follow chance in the final evaluation of each model.
        ppo: Changes to the defaults of :class:`graphopt.rl.training.ppo.PPO`.
        dreamt_steps: Environment steps for a world model, which learns more from each.
        dreamt: Episodes that it plays between two updates.
        dreaming: Changes to the defaults of :class:`graphopt.rl.training.dreamer.Dreaming`.
        dream_ppo: Changes to the defaults of PPO where it learns from dreams.
    """

    steps: int
    episodes: int
    together: int
    width: int
    rounds: int
    rollouts: int
    ppo: Mapping[str, Any] = field(default_factory=dict)
    dreamt_steps: int = 10_000
    dreamt: int = 6
    dreaming: Mapping[str, Any] = field(default_factory=dict)
    dream_ppo: Mapping[str, Any] = field(
        default_factory=lambda: {**_IN_DREAMS, "learning_rate": 1e-3, "minibatch": 512, "entropy": 0.03}
    )


PRESETS: Mapping[str, Preset] = {
    "debug": Preset(
        steps=600,
        episodes=8,
        together=4,
        width=32,
        rounds=2,
        rollouts=4,
        ppo={"learning_rate": 2e-3},
        dreamt_steps=600,
        dreamt=8,
        dreaming={"fits": 20, "rounds": 4, "dreams": 96, "horizon": 8, "random": 0.4},
        dream_ppo={**_IN_DREAMS, "learning_rate": 2e-3, "minibatch": 128, "entropy": 0.15},
    ),
    "small": Preset(
        steps=50_000,
        episodes=18,
        together=18,
        width=32,
        rounds=3,
        rollouts=8,
        ppo={"learning_rate": 1e-3, "entropy": 0.01},
    ),
    "paper": Preset(
        steps=1_000_000,
        episodes=64,
        together=8,
        width=128,
        rounds=4,
        rollouts=16,
        ppo={"learning_rate": 3e-4, "minibatch": 256},
        dreamt_steps=200_000,
        dreamt=32,
        dreaming={"fits": 100, "dreams": 512},
    ),
}


@dataclass(frozen=True)
class _Chosen:
    """What the settings in a manifest say of its :class:`Run`."""

    preset: str
    pretrain: int
    steps: int | None = None
    minutes: float | None = None
    dynamics: str | None = None
    tau: float | None = None


@dataclass(frozen=True)
class Run:
    """What to train and how.

    Attributes:
        task: The task.
        out: Folder for everything that is written.
        algorithm: One of :data:`graphopt.rl.training.learners.LEARNERS`.
        preset: One of :data:`PRESETS`.
        seed: Seed of all random draws.
        steps: Environment steps; the preset's by default. An iteration is never cut short, so there may be more.
        minutes: Stop after so many minutes instead; of both, what comes first ends it.
        pretrain: Gradient steps of the graph auto-encoder before the agent begins.
        dynamics: One of :data:`graphopt.rl.training.training_run.DYNAMICS`; for a world model.
        temperature: Temperature of its dreams.
        device: ``auto``, ``cpu`` or ``cuda``.
        executor: Where episodes are played.
        workers: Episodes' jobs at the same time, where the executor runs several; its default by default.
        address: Address of a Ray cluster.
    """

    task: Task
    out: Path
    algorithm: str = "ppo"
    preset: str = "small"
    seed: int = 0
    steps: int | None = None
    minutes: float | None = None
    pretrain: int = 0
    dynamics: str | None = None
    temperature: float | None = None
    device: str = "auto"
    executor: str = "inline"
    workers: int | None = None
    address: str | None = None

    @classmethod
    def of(cls, manifest: Manifest, folder: Path) -> Run:
        """The run that a folder with this manifest holds.

        Raises:
            CheckpointError: The manifest does not say what it needs.
        """
        known = {each.name for each in fields(_Chosen)}
        told = {name: value for name, value in manifest.settings.items() if name in known}
        try:
            chosen = record(_Chosen, told, "the settings")
        except DocumentError as error:
            raise CheckpointError(f"{folder / MANIFEST}: not a whole manifest: {error}") from error
        return cls(
            manifest.task,
            folder,
            manifest.algorithm,
            chosen.preset,
            manifest.seed,
            steps=chosen.steps,
            minutes=chosen.minutes,
            pretrain=chosen.pretrain,
            dynamics=chosen.dynamics,
            temperature=chosen.tau,
        )


@dataclass(frozen=True)
class Status:
    """How training goes.

    Attributes:
        message: What is being done.
        iteration: Batches learned from.
        steps: Environment steps.
        seconds: Since training began, over all resumptions.
        fraction: Part of the way to the end.
        rate: Environment steps a second in the last iteration, learning included.
        mean_return: Mean return of the last episodes.
        best: Best predicted saving met on each model, in percent.
        metrics: Metrics of the last update.
        learning: Whether an iteration begins: from the first one on, training that is interrupted has something to keep.
    """

    message: str
    iteration: int = 0
    steps: int = 0
    seconds: float = 0.0
    fraction: float = 0.0
    rate: float = 0.0
    mean_return: float = 0.0
    best: Mapping[str, float] = field(default_factory=dict)
    metrics: Mapping[str, float] = field(default_factory=dict)
    learning: bool = False

    @property
    def left(self) -> float | None:
        """Seconds to go, as far as one can tell."""
        return None if self.fraction <= 0 else self.seconds * (1 - self.fraction) / self.fraction
