"""Episodes as work for an executor: a job says all that its result depends on, so it is the same wherever it runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from graphopt.rl.play import Policy, ScriptedPolicy, Trajectory, UniformPolicy, play
from graphopt.rl.task import Source, Task
from graphopt.rl.training.environments import environment_of

if TYPE_CHECKING:
    from graphopt.rl.training.controller import Shape
    from graphopt.rl.training.world_model import WorldShape

Weights = Mapping[str, npt.NDArray[Any]]


@dataclass(frozen=True, eq=False)
class Job:
    """Episodes to play side by side.

    Attributes:
        task: The task.
        sources: The model of each episode.
        seeds: What the chance of each episode comes from; ``None`` takes the likeliest action always.
        prices: Store of kernel prices.
        shape: Sizes of the networks; ``None`` for a policy that knows nothing.
        weights: Their parameters.
        actions: What to do in each episode, instead of asking a policy.
        temperatures: Temperatures of the episodes, over and over.
        warm: Whether they may begin after random rewrites, where the task wants some.
    """

    task: Task
    sources: tuple[Source, ...]
    seeds: tuple[tuple[int, ...] | None, ...]
    prices: Path | None
    shape: Shape | WorldShape | None = None
    weights: Weights | None = None
    actions: tuple[tuple[int, ...], ...] | None = None
    temperatures: tuple[float, ...] = (1.0,)
    warm: bool = True

    def split(self, size: int) -> list[Job]:
        """The same in jobs of at most so many episodes."""
        parts = [slice(i, i + size) for i in range(0, len(self.sources), size)]
        actions = [None if self.actions is None else self.actions[part] for part in parts]
        return [
            replace(self, sources=self.sources[part], seeds=self.seeds[part], actions=given)
            for part, given in zip(parts, actions, strict=True)
        ]

    def __str__(self) -> str:
        return f"{len(self.sources)} episodes on {', '.join(sorted({s.name for s in self.sources}))}"


def rollout(job: Job) -> list[Trajectory]:
    """Play a job's episodes."""
    environments = [environment_of(job.task, source, job.prices) for source in job.sources]
    rngs = [None if seed is None else np.random.default_rng(seed) for seed in job.seeds]
    if job.actions is not None:
        return play(environments, ScriptedPolicy(job.actions), rngs, warm=job.warm)
    if job.shape is None:
        return play(environments, UniformPolicy(), rngs, warm=job.warm)
    import torch

    threads = torch.get_num_threads()
    # How a sum is split over threads changes its last bit, and with it an episode now and then.
    torch.set_num_threads(1)
    try:
        policy = _policy(job, environments[0].problem.library.rules)
        return play(environments, policy, rngs, temperatures=job.temperatures, warm=job.warm)
    finally:
        torch.set_num_threads(threads)


def _policy(job: Job, rules: Any) -> Policy:
    import torch

    assert job.shape is not None and job.weights is not None
    with torch.random.fork_rng(devices=[]):  # fresh parameters are drawn before the job's take their place
        network = job.shape.network()
    network.load_state_dict({name: torch.from_numpy(np.array(array)) for name, array in job.weights.items()})
    return job.shape.policy(network, rules)
