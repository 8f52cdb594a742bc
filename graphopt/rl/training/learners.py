"""The algorithms that train agents, by name.

A new one is a file with a :class:`LearnerSpec`, and its line in :mod:`graphopt.registry`. No torch here, nor where the specifications
are: what makes a learner imports it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from graphopt import registry
from graphopt.errors import UnknownNameError, UsageError
from graphopt.execution import has_workers
from graphopt.registry import Registry
from graphopt.rewrite.schema import Rule
from graphopt.rl.training.training_run import DEVICES, DYNAMICS, PRESETS, Preset, Run

if TYPE_CHECKING:
    from torch import nn

LIBRARIES = ("torch", "torch_geometric", "safetensors", "tensorboard")
"""What the loop of training needs."""
_LARGEST_SEED = 2**63 - 1  # torch takes no larger ones, and checkpoints hold no larger ones


def export_network(network: nn.Module, folder: Path) -> None:
    """Write a network of ours as ONNX, see :func:`graphopt.rl.training.onnx_export.export`."""
    from graphopt.rl.training.onnx_export import export

    export(network, folder)


@dataclass(frozen=True)
class LearnerSpec:
    """An algorithm, as the command line, the loop of training and the strategies of agents know it.

    Attributes:
        name: Name by which it is chosen.
        doc: One line for people.
        make: Makes the :class:`graphopt.rl.training.train.Learner` of a run from the run, the preset, the rules and the device; returns it
            with the sizes of its networks (picklable, with a method ``network()``) and its settings, ready for JSON.
        options: Fields of :class:`graphopt.rl.training.training_run.Run` that belong to it alone.
        needs: Modules that it imports and graphopt's base does not bring.
        pace: Environment steps of a whole run, and episodes between two updates, by the preset.
        export: Writes its network into a folder as the ONNX models that :mod:`graphopt.rl.agent` runs.
    """

    name: str
    doc: str
    make: Callable[[Run, Preset, Sequence[Rule], str], tuple[Any, Any, Any]]
    options: tuple[str, ...] = ()
    needs: tuple[str, ...] = LIBRARIES
    pace: Callable[[Preset], tuple[int, int]] = lambda preset: (preset.steps, preset.episodes)
    export: Callable[[nn.Module, Path], None] = export_network


def _ppo(run: Run, preset: Preset, rules: Sequence[Rule], device: str) -> tuple[Any, Any, Any]:
    from graphopt.rl.training.controller import Shape
    from graphopt.rl.training.ppo import PPO, PPOLearner

    shape, settings = Shape.of(run.task, preset.width, preset.rounds), PPO(**preset.ppo)
    return PPOLearner(shape.network().to(device), rules, settings), shape, {"ppo": asdict(settings)}


def _world_model(run: Run, preset: Preset, rules: Sequence[Rule], device: str) -> tuple[Any, Any, Any]:
    from graphopt.rl.training.controller import Shape
    from graphopt.rl.training.dreamer import DreamerLearner, Dreaming
    from graphopt.rl.training.ppo import PPO
    from graphopt.rl.training.world_model import WorldShape

    said = {"dynamics": run.dynamics, "temperature": run.temperature}
    chosen = {name: value for name, value in said.items() if value is not None}
    dreaming, ppo = Dreaming(**{**preset.dreaming, **chosen}), PPO(**preset.dream_ppo)
    shape = WorldShape(Shape.of(run.task, preset.width, preset.rounds), dynamics=dreaming.dynamics)
    learner = DreamerLearner(shape.network().to(device), rules, dreaming, ppo)
    return learner, shape, {"ppo": asdict(ppo), "dreaming": asdict(dreaming)}


PPO_SPEC = LearnerSpec("ppo", "proximal policy optimisation on real episodes", _ppo)
WORLD_MODEL_SPEC = LearnerSpec(
    "world-model",
    "a model of the environment, and a controller trained in its dreams",
    _world_model,
    ("dynamics", "temperature"),
    pace=lambda preset: (preset.dreamt_steps, preset.dreamt),
)

LEARNERS: Registry[LearnerSpec] = Registry(registry.LEARNERS, LearnerSpec)
"""Algorithms by name."""


def device_of(name: str) -> str:
    """The device of torch that a run names.

    Raises:
        UsageError: This torch has none of that kind.
    """
    import torch

    if name == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    if name == "cuda" and not torch.cuda.is_available():
        raise UsageError("this torch sees no CUDA device", "install a torch built for CUDA, or use --device cpu")
    return name


def require(run: Run) -> None:
    """What is wrong with a run, before anything is loaded."""
    spec = LEARNERS.get(run.algorithm)
    if run.preset not in PRESETS:
        raise UnknownNameError("preset", run.preset, PRESETS)
    if run.device not in DEVICES:
        raise UnknownNameError("device", run.device, DEVICES)
    for what, value in (("--steps", run.steps), ("--minutes", run.minutes)):
        if value is not None and not (value > 0 and math.isfinite(value)):
            raise UsageError(f"{what} must be above 0, not {value}")
    if not 0 <= run.seed <= _LARGEST_SEED:
        raise UsageError(f"--seed must be a whole number from 0 to {_LARGEST_SEED}, not {run.seed}")
    has_workers(run.executor, run.workers)
    run.task.graphs.check_names()
    for other in LEARNERS.all():
        for name in set(other.options) - set(spec.options):
            if getattr(run, name) is not None:
                raise UsageError(f"--{name} belongs to the algorithm {other.name}, not to {run.algorithm}")
    if run.dynamics is not None and run.dynamics not in DYNAMICS:
        raise UnknownNameError("dynamics", run.dynamics, DYNAMICS)
    if run.temperature is not None and not 0 <= run.temperature <= 10:
        raise UsageError(f"--temperature must be between 0 and 10, not {run.temperature}")
    LEARNERS.ready(run.algorithm)
