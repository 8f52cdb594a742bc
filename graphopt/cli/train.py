"""``graphopt train-agent``: train an agent that rewrites models."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Self

from graphopt.cli import options
from graphopt.cli.options import option
from graphopt.cli.screen import console, facts, table
from graphopt.kinds import integer
from graphopt.wording import one_line, percent, plural, seconds

if TYPE_CHECKING:
    from collections.abc import Callable

    from rich.console import RenderableType
    from rich.table import Table

    from graphopt.cli.progress import Interrupt
    from graphopt.rl.manifest import Manifest
    from graphopt.rl.task import Task
    from graphopt.rl.training.training_run import Status

_LINES_S = 10.0  # between two lines where there is no terminal
_SILENT_S = 20.0  # after which it is told what goes on before the first episodes
_SHOWN = (
    "policy_loss",
    "value_loss",
    "entropy",
    "approx_kl",
    "explained_variance",
    "model_loss",
    "reward_error",
    "gap",
)
_MODELS = 12


def train_agent(
    task: Annotated[
        str | None, option(metavar="TASK", help="A task file, or one of cost (default), latency, memory.")
    ] = None,
    algo: Annotated[
        str | None, option(metavar="NAME", help="How to learn: {algorithms}.", values=options.algorithms)
    ] = None,
    models: Annotated[
        list[str] | None,
        option(
            metavar="MODEL", help="Train on these instead of the task's: a file, a folder or a zoo name; repeatable."
        ),
    ] = None,
    steps: Annotated[
        int | None,
        option(metavar="N", help="Environment steps, up to the end of a round of episodes (default: the preset's)."),
    ] = None,
    minutes: Annotated[
        float | None,
        option(
            metavar="M",
            help="Stop after so many minutes instead; with --steps, after what comes first. A round is played to its end.",
        ),
    ] = None,
    device: Annotated[str | None, option(metavar="NAME", help="auto (default), cpu or cuda.")] = None,
    executor: Annotated[
        str | None, option(metavar="NAME", help="Where episodes are played: inline (default), processes or ray.")
    ] = None,
    workers: Annotated[int | None, option(metavar="N", help="Processes or Ray tasks at a time (default 2).")] = None,
    ray_address: Annotated[
        str | None, option(metavar="ADDRESS", help="A Ray cluster; it must see the same folders.")
    ] = None,
    seed: options.Seed = None,
    out: Annotated[
        Path | None, option(metavar="DIR", help="Folder for the agent (default: agent-TASK in the current one).")
    ] = None,
    resume: Annotated[
        Path | None, option(metavar="DIR", help="Go on with the run of this folder, from its last checkpoint.")
    ] = None,
    preset: Annotated[
        str | None, option(metavar="NAME", help="Sizes: debug (under a minute), small (default) or paper.")
    ] = None,
    pretrain: Annotated[
        int | None,
        option(
            metavar="N",
            help="First train the encoder for N steps as a graph auto-encoder (default 0).",
            kind=integer(0),
        ),
    ] = None,
    dynamics: Annotated[
        str | None, option(metavar="NAME", help="Of a world model: deterministic (default) or mdn-lstm.")
    ] = None,
    temperature: Annotated[
        float | None,
        option(
            "--temperature", "--tau", metavar="T", help="Temperature of a world model's dreams, 0 to 10 (default 1)."
        ),
    ] = None,
    quiet: options.Quiet = False,
) -> None:
    """Train an agent and write it to a folder, for `graphopt optimize --strategy rl|world-model --agent DIR`.

    Ctrl-C ends training with a checkpoint; --resume goes on from there, and gives the same figures as an uninterrupted run. Before the first
    episodes there is nothing to keep: it aborts.
    """
    from graphopt.cli.progress import Interrupt, Waiting
    from graphopt.errors import UsageError

    with Waiting("loading the libraries", shown=not quiet):
        from graphopt.rl.task import load_task
        from graphopt.rl.training.train import resume as go_on
        from graphopt.rl.training.train import train
        from graphopt.rl.training.training_run import Run

    free = {
        "steps": steps,
        "minutes": minutes,
        "device": device,
        "executor": executor,
        "workers": workers,
        "address": ray_address,
    }
    if resume is not None:
        fixed = {
            "task": task,
            "algo": algo,
            "models": models,
            "seed": seed,
            "out": out,
            "preset": preset,
            "pretrain": pretrain,
            "dynamics": dynamics,
            "temperature": temperature,
        }
        for name, value in fixed.items():
            if value is not None and value != []:
                raise UsageError(f"--{name} was chosen when the run began: --resume keeps it")
        with Interrupt("this iteration", begun=False) as interrupt, _View(shown=not quiet) as view:
            manifest, folder = go_on(resume, _heard(view, interrupt), interrupt, **free), resume
    else:
        chosen = load_task(task or "cost")
        if models:
            chosen = _on(chosen, models)
        folder = out or Path(f"agent-{chosen.name}")
        given = {"algorithm": algo, "preset": preset, "seed": seed, "pretrain": pretrain, **free}
        given |= {"dynamics": dynamics, "temperature": temperature}
        run = Run(chosen, folder, **{name: value for name, value in given.items() if value is not None})  # type: ignore[arg-type]
        with Interrupt("this iteration", begun=False) as interrupt, _View(shown=not quiet) as view:
            manifest = train(run, _heard(view, interrupt), interrupt)
    if not quiet:
        _show(manifest, folder)


def _heard(view: _View, interrupt: Interrupt) -> Callable[[Status], None]:
    """Shows how training goes, and knows from when on there is something that Ctrl-C can end with."""

    def hear(status: Status) -> None:
        interrupt.begun |= status.learning
        view(status)

    return hear


def _on(task: Task, models: list[str]) -> Task:
    """A task with other graphs to train on; folders stand for the models in them."""
    from dataclasses import replace

    from graphopt.errors import UsageError
    from graphopt.rl.task import Source

    sources: list[Source] = []
    for name in models:
        path = Path(name)
        if path.is_dir():
            found = sorted(path.glob("*.onnx"))
            if not found:
                raise UsageError(f"{path}: no .onnx file in this folder")
            sources += [Source(str(file.resolve())) for file in found]
        else:
            sources.append(Source(str(path.resolve()) if path.is_file() else name))
    return replace(task, graphs=replace(task.graphs, train=tuple(sources), shapes=(), family=()))


class _View:
    """How training goes: a table that is drawn anew on a terminal, a line now and then elsewhere."""

    def __init__(self, *, shown: bool) -> None:
        from rich.live import Live

        self._console = console()
        self._status: Status | None = None
        self._began = time.monotonic()
        self._live: Live | None = None
        if shown and self._console.is_terminal:
            self._live = Live(
                console=self._console, transient=True, refresh_per_second=2, get_renderable=self._renderable
            )
        self._lines = shown and not self._console.is_terminal
        self._last = 0.0
        self._said = ""

    def _renderable(self) -> RenderableType:
        """What is drawn at present; the seconds go on between two reports."""
        passed = seconds(time.monotonic() - self._began)
        if self._status is None or not self._status.steps:
            doing = "starting" if self._status is None else one_line(self._status.message, 60)
            return f"{doing}   {passed}"
        return _drawn(self._status, passed)

    def __enter__(self) -> Self:
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(self, *raised: object) -> None:
        if self._live is not None:
            self._live.stop()

    def __call__(self, status: Status) -> None:
        """Show how it goes."""
        self._status = status
        if self._live is not None and not status.steps:
            self._live.refresh()  # what is over before the next drawing would never be told
        if self._lines and not status.steps:  # before the first episodes there is no figure
            if status.message != self._said and time.monotonic() - self._began > _SILENT_S:
                self._said = status.message
                self._console.print(one_line(status.message), soft_wrap=True)
        elif self._lines and status.steps and time.monotonic() - self._last > _LINES_S:
            self._last = time.monotonic()
            best = ", ".join(f"{name} {saving:.1f} %" for name, saving in list(status.best.items())[:_MODELS])
            self._console.print(
                f"{status.message}: {status.steps} steps in {seconds(status.seconds)}, {status.rate:.0f} a second, "
                f"return {status.mean_return:.2f}, best {best or 'none yet'}",
                soft_wrap=True,
            )


def _drawn(status: Status, passed: str) -> Table:
    result = facts()
    left = status.left
    result.add_row("doing", f"{one_line(status.message, 60)}, {passed} since the start")
    result.add_row(
        "steps",
        f"{status.steps} in {seconds(status.seconds)}, {status.rate:.0f} a second, "
        f"{percent(status.fraction)} done" + ("" if left is None else f", {seconds(left)} left"),
    )
    result.add_row("return", f"{status.mean_return:.2f}")
    for name in _SHOWN:
        if name in status.metrics:
            result.add_row(name.replace("_", " "), f"{status.metrics[name]:.3f}")
    for i, (model, saving) in enumerate(list(status.best.items())[:_MODELS]):
        result.add_row("best" if i == 0 else "", f"{saving:6.2f} %  {one_line(model, 60)}")
    return result


def _show(manifest: Manifest, folder: Path) -> None:
    screen = console()
    if manifest.results:
        result = table("model", "likeliest actions", "best", "mean", numbers=3)
        for model, found in manifest.results.items():
            result.add_row(one_line(model), *(f"{found[key]:.2f} %" for key in ("greedy", "best", "mean")))
        screen.print(result)
        screen.print()
    story = facts()
    story.add_row(
        "trained", f"{manifest.steps} steps in {seconds(manifest.seconds)}, {plural(manifest.iteration, 'update')}"
    )
    if not manifest.results:
        story.add_row("stopped", f"before the end; go on with --resume {one_line(str(folder))}")
    story.add_row("written", one_line(str(folder)))
    screen.print(story)
