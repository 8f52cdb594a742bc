"""The training loop: episodes from an executor, an update, a checkpoint now and then; the same for every algorithm that learns so.

Everything random comes from (seed, iteration, episode), and nothing is carried from one iteration to the next but the networks, their
optimiser and the counts. So a run that was killed goes on from its last checkpoint to the very figures of one that was not.
"""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from graphopt.errors import UsageError
from graphopt.execution import Executor, make_executor
from graphopt.files import alone
from graphopt.rewrite.library import Library
from graphopt.rl.manifest import PRICES, CheckpointError, Manifest, read_manifest
from graphopt.rl.play import TEMPERATURES, Trajectory
from graphopt.rl.task import Source, Task
from graphopt.rl.training import checkpoint
from graphopt.rl.training.checkpoint import Row, read_progress, write_progress
from graphopt.rl.training.environments import (
    closing,
    environment_facts,
    environment_of,
    find_models,
    keep_prices,
    library_of,
)
from graphopt.rl.training.learners import LEARNERS, device_of, require
from graphopt.rl.training.replay_buffer import Record
from graphopt.rl.training.rollout import Job, rollout
from graphopt.rl.training.training_run import PRESETS, Run, Status

if TYPE_CHECKING:
    import torch
    from torch import nn


CHECKPOINT_S = 120.0
"""Seconds between checkpoints."""
_EVALUATION = 2**31 - 1  # stands for the iteration in the seeds of the final evaluation
_PRETRAINING = _EVALUATION - 1
_BUSY = "wait for it, or choose another --out"
Report = Callable[[Status], None]


def train(run: Run, report: Report | None = None, interrupted: Callable[[], bool] = lambda: False) -> Manifest:
    """Train an agent from the beginning.

    Args:
        run: What to train and how.
        report: Hears how it goes.
        interrupted: Asked after each iteration; true ends training with a checkpoint.

    Returns:
        The manifest as written.

    Raises:
        MissingExtraError: A library for training is not installed.
        UsageError: The run makes no sense, or the folder holds an agent already, or files that would be overwritten.
        GraphoptError: It can't be trained; before the first update that leaves nothing behind, nor does a KeyboardInterrupt.
    """
    require(run)
    checkpoint.check_folder(run.out)
    if not run.task.graphs.pool:
        raise UsageError(f"task {run.task.name} names no graph to train on", "give some with --models")
    library = library_of(run.task)
    tell = report or (lambda status: None)
    with closing(run.out / PRICES), make_executor(run.executor, run.workers, run.address) as executor:
        find_models(run.task.graphs, tell)
        tell(Status("making the networks"))
        learned = 0

        def hear(status: Status) -> None:
            nonlocal learned
            learned = status.iteration
            tell(status)

        before = checkpoint.make(run.out)
        with alone(run.out, _BUSY):
            checkpoint.check_folder(run.out)  # again: another run may have been here since
            try:
                return _begun(run, library, executor, hear).go(interrupted)
            except BaseException:
                if not learned:
                    checkpoint.forget(run.out, before)
                raise


def _begun(run: Run, library: Library, executor: Executor, tell: Report) -> _Trainer:
    """A run before its first iteration, in its folder."""
    keep_prices(run, library, tell)
    manifest = Manifest(
        run.algorithm,
        run.task,
        {rule.id: rule.hash for rule in library.rules},
        run.seed,
        {"preset": run.preset, "pretrain": run.pretrain, "dynamics": run.dynamics, "tau": run.temperature},
        environment_facts(),
    )
    trainer = _Trainer(run, manifest, library, executor, tell)
    trainer.pretrain()
    trainer.save()
    return trainer


def resume(
    folder: Path, report: Report | None = None, interrupted: Callable[[], bool] = lambda: False, **changes: Any
) -> Manifest:
    """Go on with a run from its last checkpoint, to the figures that it would have had unbroken.

    Args:
        folder: Folder of the run.
        report: Hears how it goes.
        interrupted: Asked after each iteration; true ends training with a checkpoint.
        changes: Fields of :class:`Run` that do not change what is learned: ``steps``, ``minutes``, ``device``, ``executor``,
            ``workers``, ``address``.

    Raises:
        CheckpointError: The folder holds no run, or the rules have changed.
        UsageError: Another run is at work there.
    """
    with alone(folder, _BUSY), closing(folder / PRICES):
        manifest = read_manifest(folder)
        run = replace(Run.of(manifest, folder), **{name: value for name, value in changes.items() if value is not None})
        require(run)
        library = library_of(run.task)
        if {rule.id: rule.hash for rule in library.rules} != manifest.rules:
            raise CheckpointError(
                f"{folder}: the rules have changed since", "train a new agent, or go back to the old rules"
            )
        with make_executor(run.executor, run.workers, run.address) as executor:
            trainer = _Trainer(run, manifest, library, executor, report or (lambda status: None))
            trainer.restore()
            return trainer.go(interrupted)


class Learner(Protocol):
    """An algorithm as the loop sees it.

    Attributes:
        optimizers: Optimisers of its networks, by part.
    """

    optimizers: Mapping[str, torch.optim.Optimizer]

    @property
    def network(self) -> nn.Module:
        """All its networks: a checkpoint holds them, and its policy is made of them."""
        ...

    def explores(self, iteration: int) -> float:
        """Share of the episodes of an iteration that are to be played at random."""
        ...

    def remember(self, records: Sequence[Record]) -> None:
        """Hears of all episodes, random ones and those before an interruption included."""
        ...

    @property
    def remembered(self) -> Sequence[Record]:
        """Episodes that it still learns from, the oldest first."""
        ...

    def learn(self, played: Sequence[Trajectory], rng: np.random.Generator, fraction: float) -> dict[str, float]:
        """Learn in an iteration; returns what is logged of it.

        Args:
            played: The episodes that its policy played.
            rng: All of the iteration's chance, apart from the episodes.
            fraction: Part of the way to the end of training.
        """
        ...


def sources_of(task: Task, iteration: int, count: int) -> list[Source]:
    """What the episodes of an iteration begin with: the models take turns, also in being the first."""
    pool = task.graphs.pool
    # With a common divisor some models would never be the first, which are played at random, or never be played at all.
    stride = next(s for s in itertools.count(count + 1) if math.gcd(s, len(pool)) == 1)
    return [pool[(iteration * stride + i) % len(pool)] for i in range(count)]


class _Trainer:
    """A run under way."""

    def __init__(self, run: Run, manifest: Manifest, library: Library, executor: Executor, tell: Report) -> None:
        import torch

        torch.set_num_threads(1)  # figures depend on how sums are split; what runs side by side are the workers
        self.run, self.library, self.executor, self.tell = run, library, executor, tell
        self.preset = PRESETS[run.preset]
        self.device = device_of(run.device)
        torch.manual_seed(run.seed)
        self.spec = LEARNERS.get(run.algorithm)
        with LEARNERS.table.blamed(run.algorithm):
            made: tuple[Learner, Any, Any] = self.spec.make(run, self.preset, library.rules, self.device)
            self.learner, self.shape, sizes = made
        steps, self.episodes = self.spec.pace(self.preset)
        self.total = run.steps if run.steps is not None else None if run.minutes else steps
        settings = {
            **manifest.settings,
            "shape": asdict(self.shape),
            **sizes,
            "steps": run.steps,
            "minutes": run.minutes,
        }
        self.manifest = replace(manifest, settings=settings)
        self.rows: list[Row] = []
        self.began = time.monotonic() - manifest.seconds
        self._last = Status("starting")

    # -- the loop -------------------------------------------------------------------------------------------------

    def go(self, interrupted: Callable[[], bool]) -> Manifest:
        """Iterate until the steps or the minutes are used up, evaluate and export."""
        from torch.utils.tensorboard import SummaryWriter

        saved = time.monotonic()
        logs = SummaryWriter(str(self.run.out / checkpoint.LOGS), purge_step=self.manifest.steps)
        try:
            while self.fraction < 1.0 and not interrupted():
                status = self.iterate()
                for name, value in {**self.rows[-1], "rate": status.rate}.items():
                    if name not in ("iteration", "steps"):
                        logs.add_scalar(name, value, status.steps)
                self.tell(status)
                if time.monotonic() - saved > CHECKPOINT_S:
                    self.save()
                    saved = time.monotonic()
        finally:
            logs.close()
        before = bool(self.manifest.results)  # it was finished before: nothing is left to do, nor to count
        if self.fraction >= 1.0 and not before:
            self.tell(self.status("evaluating"))
            self.manifest = replace(self.manifest, results=self.evaluate())
        self.export()
        if not before:
            self.save()
        return self.manifest

    def iterate(self) -> Status:
        """Play episodes, learn from them."""
        begin = time.monotonic()
        number = self.manifest.iteration
        self.tell(replace(self.status(f"playing episodes, round {number + 1}"), learning=True))
        records, random = self.play(number)
        self.tell(self.status(f"learning, round {number + 1}"))
        played = [r.played for r in records]
        own = played[random:]
        steps = sum(t.steps for t in played)
        with LEARNERS.table.blamed(self.run.algorithm):
            self.learner.remember(records)
            metrics = self.learner.learn(own, np.random.default_rng([self.run.seed, number]), self.fraction)
        LEARNERS.table.returned(self.run.algorithm, metrics, (dict,))
        best = dict(self.manifest.best)
        for t in played:
            best[t.model] = max(t.saving, best.get(t.model, 0.0))
        self.manifest = replace(
            self.manifest,
            iteration=number + 1,
            steps=self.manifest.steps + steps,
            best=best,
            results={},  # those of an end before this one are of other networks
            seconds=time.monotonic() - self.began,
        )
        mean_return = float(np.mean([t.rewards.sum() for t in own]))
        row: Row = {
            "iteration": number + 1,
            "steps": self.manifest.steps,
            "return": mean_return,
            "saving": float(np.mean([t.saving for t in own])),
            "best": float(np.mean(list(best.values()))),
            **metrics,
        }
        before = self.rows[-1] if self.rows else {}
        for source in self.run.task.graphs.pool:
            savings = [t.saving for t in own if t.model == source.name]
            row[f"saving/{source.name}"] = (
                float(np.mean(savings)) if savings else before.get(f"saving/{source.name}", 0.0)
            )
            row[f"best/{source.name}"] = best.get(source.name, 0.0)
        self.rows.append(row)
        rate = steps / max(1e-9, time.monotonic() - begin)
        self._last = replace(self.status("training"), rate=rate, mean_return=mean_return, metrics=metrics)
        return self._last

    def play(self, iteration: int) -> tuple[list[Record], int]:
        """The episodes of an iteration, the same on every executor, and how many of them, the first, were random."""
        count = self.episodes
        sources = sources_of(self.run.task, iteration, count)
        seeds = [(self.run.seed, iteration, i) for i in range(count)]
        with LEARNERS.table.blamed(self.run.algorithm):
            random = min(count - 1, round(self.learner.explores(iteration) * count))
        played = self._played(sources[:random], seeds[:random], knows=False)
        played += self._played(sources[random:], seeds[random:])
        return [Record(t, source, seed) for t, source, seed in zip(played, sources, seeds, strict=True)], random

    def evaluate(self) -> dict[str, dict[str, float]]:
        """Predicted saving on each model as it is, in percent: of the likeliest actions, and the best and mean of several by chance."""
        pool, n = self.run.task.graphs.pool, self.preset.rollouts
        sources = [source for source in pool for _ in range(1 + n)]
        seeds = [
            None if k == 0 else (self.run.seed, _EVALUATION, m * n + k) for m in range(len(pool)) for k in range(1 + n)
        ]
        played = self._played(sources, seeds, temperatures=TEMPERATURES, warm=False)
        found: dict[str, dict[str, float]] = {}
        for m, source in enumerate(pool):
            savings = [t.saving for t in played[m * (1 + n) : (m + 1) * (1 + n)]]
            found[source.name] = {"greedy": savings[0], "best": max(savings), "mean": float(np.mean(savings[1:]))}
        return found

    def _played(
        self,
        sources: Sequence[Source],
        seeds: Sequence[tuple[int, ...] | None],
        *,
        knows: bool = True,
        actions: Sequence[tuple[int, ...]] | None = None,
        temperatures: tuple[float, ...] = (1.0,),
        warm: bool = True,
    ) -> list[Trajectory]:
        """Episodes of the present policy, of one that knows nothing, or of actions that are given."""
        shape, weights = None, None
        if knows and actions is None:
            shape = self.shape
            weights = {name: t.detach().cpu().numpy() for name, t in self.learner.network.state_dict().items()}
        given = None if actions is None else tuple(actions)
        where = self.run.task, tuple(sources), tuple(seeds), self.run.out / PRICES
        job = Job(*where, shape, weights, given, temperatures, warm)
        return [t for group in self.executor.map(rollout, job.split(self.preset.together)) for t in group]

    def pretrain(self) -> None:
        """Train the encoder by itself, if the run says so."""
        if not self.run.pretrain:
            return
        from graphopt.rl.training.controller import Encoder
        from graphopt.rl.training.pretrain import pretrain

        self.tell(self.status("pre-training the encoder"))
        pool = self.run.task.graphs.pool
        environments = [environment_of(self.run.task, source, self.run.out / PRICES) for source in pool]
        network = self.learner.network
        encoder = network if isinstance(network, Encoder) else network.get_submodule("model")
        assert isinstance(encoder, Encoder)
        losses = pretrain(encoder, environments, self.run.pretrain, (self.run.seed, _PRETRAINING))
        if losses:  # none where no graph has an edge
            told = {"pretraining": {"first": losses[0], "last": losses[-1]}}
            self.manifest = replace(self.manifest, settings={**self.manifest.settings, **told})

    # -- what is kept ---------------------------------------------------------------------------------------------

    @property
    def fraction(self) -> float:
        """Part of the way to the end."""
        done = [0.0]
        if self.total is not None:
            done.append(self.manifest.steps / self.total)
        if self.run.minutes is not None:
            done.append((time.monotonic() - self.began) / (60 * self.run.minutes))
        return min(1.0, max(done))

    def status(self, message: str) -> Status:
        """How it goes."""
        m, seconds = self.manifest, time.monotonic() - self.began
        return replace(
            self._last,
            message=message,
            iteration=m.iteration,
            steps=m.steps,
            seconds=seconds,
            fraction=self.fraction,
            best=m.best,
        )

    def save(self) -> None:
        """Write a checkpoint."""
        import torch

        tensors = {f"agent.{name}": t for name, t in self.learner.network.state_dict().items()}
        for part, optimizer in self.learner.optimizers.items():
            for index, state in optimizer.state_dict()["state"].items():
                for name, value in state.items():
                    tensors[f"optimizer.{part}.{index}.{name}"] = torch.as_tensor(value)
        tensors |= {f"replay.{name}": t for name, t in self._replayed().items()}
        self.manifest = replace(self.manifest, seconds=time.monotonic() - self.began)
        write_progress(self.run.out, self.rows)  # before the manifest, which says how much of it counts
        self.manifest = checkpoint.save(self.run.out, self.manifest, tensors)

    def restore(self) -> None:
        """Take up the last checkpoint."""
        checkpoint.check_prices(self.run.out)
        tensors = checkpoint.tensors_of(self.run.out, self.manifest)
        try:
            self.learner.network.load_state_dict(_below(tensors, "agent"))
        except RuntimeError as error:
            raise CheckpointError(f"{self.run.out}: the networks have another shape: {error}", "train again") from error
        for part, optimizer in self.learner.optimizers.items():
            states: dict[int, dict[str, torch.Tensor]] = {}
            for name, tensor in _below(tensors, f"optimizer.{part}").items():
                index, _, key = name.partition(".")
                states.setdefault(int(index), {})[key] = tensor
            optimizer.load_state_dict({**optimizer.state_dict(), "state": states})
        self._replay(_below(tensors, "replay"))
        self.rows = read_progress(self.run.out, self.manifest.iteration)

    def _replayed(self) -> dict[str, torch.Tensor]:
        """What is needed to play again the episodes that the learner still remembers."""
        import torch

        pool, records = list(self.run.task.graphs.pool), self.learner.remembered
        if not records:
            return {}
        return {
            "sources": torch.tensor([pool.index(r.source) for r in records]),
            "seeds": torch.tensor([r.seed for r in records]),
            "lengths": torch.tensor([r.played.steps for r in records]),
            "actions": torch.cat([torch.from_numpy(r.played.actions) for r in records]),
        }

    def _replay(self, kept: Mapping[str, torch.Tensor]) -> None:
        """Play them again: the same actions give the same episodes."""
        import torch

        if not kept:
            return
        pool = self.run.task.graphs.pool
        sources = [pool[i] for i in kept["sources"].tolist()]
        seeds = [tuple(seed) for seed in kept["seeds"].tolist()]
        actions = [tuple(part.tolist()) for part in torch.split(kept["actions"], kept["lengths"].tolist())]
        self.tell(self.status(f"playing {len(sources)} episodes again"))
        played = self._played(sources, seeds, actions=actions)
        self.learner.remember([Record(t, source, seed) for t, source, seed in zip(played, sources, seeds, strict=True)])

    def export(self) -> None:
        """Write the agent as ONNX."""
        self.tell(self.status("exporting"))
        with LEARNERS.table.blamed(self.run.algorithm):
            self.spec.export(self.learner.network, self.run.out)


def _below(tensors: Mapping[str, torch.Tensor], part: str) -> dict[str, torch.Tensor]:
    return {name.removeprefix(f"{part}."): t for name, t in tensors.items() if name.startswith(f"{part}.")}
