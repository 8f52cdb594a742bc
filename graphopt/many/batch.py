"""Optimise many models, one after the other."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from types import NoneType
from typing import Any

from graphopt.config import Settings, check_arguments
from graphopt.errors import GraphoptError, UsageError, expect, expect_path, refusal
from graphopt.many import child
from graphopt.many.find import FoundModels, ModelJob, find
from graphopt.many.finished import FinishedModels, content, contents
from graphopt.onnxio.save import copy
from graphopt.pipeline.context import Progress
from graphopt.pipeline.opening import config_of
from graphopt.pipeline.prepare import load_rules
from graphopt.runtime.environment import fingerprint
from graphopt.version import __version__

SCHEMA = "graphopt.many/1"


class ManyWarning(UserWarning):
    """What was told of a model while it was optimised, or of a file beside it."""


@dataclass(frozen=True)
class Done:
    """What became of a model.

    Attributes:
        job: The model.
        report: What was told of it, see :func:`graphopt.pipeline.summary.summarise`; ``None`` if it failed.
        error: What went wrong; empty if nothing did.
        hint: What to do about it.
        earlier: Whether an earlier run has done it.
        seconds: How long it took now.
        peak_memory: Bytes of the process that optimised it; ``None`` where the system does not tell.
    """

    job: ModelJob
    report: Mapping[str, Any] | None = None
    error: str = ""
    hint: str | None = None
    earlier: bool = False
    seconds: float = 0.0
    peak_memory: int | None = None

    @property
    def improved(self) -> bool:
        """Whether a faster model was found, by measurement or, where nothing is measured, by prediction."""
        return self.status in ("faster", "predicted")

    @property
    def status(self) -> str:
        """``failed``, ``faster``, ``predicted`` (to be faster: nothing was measured), ``simpler`` (and as fast) or ``kept``."""
        if self.report is None:
            return "failed"
        if self.report["kept_original"]:
            return "kept"
        return "simpler" if self.report["tie"] else "faster" if self.report["latency"] else "predicted"

    def told(self) -> dict[str, Any]:
        """Ready for JSON."""
        return {
            "input": str(self.job.source),
            "output": None if self.job.target is None else str(self.job.target),
            "status": self.status,
            "error": self.error or None,
            "hint": self.hint,
            "earlier": self.earlier,
            "seconds": self.seconds,
            "peak_memory": self.peak_memory,
            "report": self.report,
        }


def optimize_many(
    models: Sequence[str | Path],
    out: str | Path | None,
    settings: Settings | None = None,
    *,
    inputs: str | Path | None = None,
    progress: Callable[[Progress], None] | None = None,
    on_done: Callable[[Done], None] | None = None,
    interrupted: Callable[[], bool] | None = None,
) -> list[Done]:
    """Optimise many models, each in a process of its own; one that fails keeps no other away.

    A run that was killed goes on when it is started again with the same arguments: what is finished is recognised by the contents of
    the models, the settings, the rules, the runtime and the machine. A file in the place of a model that graphopt has not written stays,
    and the model fails.

    Args:
        models: Files, folders and patterns. What else lies in a folder (configurations, tokenizers) is copied along.
        out: The folder to write to, in which everything keeps its place; ``None`` to write nothing.
        settings: What to do, and how.
        inputs: An ``.npz`` file of arrays by input name, or a folder of sets, for all of them.
        progress: Hears what is being done.
        on_done: Hears of each model when it is finished.
        interrupted: Asked now and then; true ends the model at hand with the best so far, and leaves the others for another run.

    Returns:
        What became of each model, in their order; of those that were not begun, nothing.

    Raises:
        UsageError: Nothing is found, two models have one place, or an argument is wrong; the message names it.
        GraphoptError: The rules can't be loaded, or nothing can be written.
    """
    expect("models", models, (list, tuple), "a list of paths")
    for each in models:
        expect_path("each of models", each)
    expect_path("out", out, also=NoneType)
    expect_path("inputs", inputs, also=NoneType)
    expect("settings", settings, (Settings, NoneType), "a graphopt.Settings")
    check_arguments(progress=progress, on_done=on_done, interrupted=interrupted)
    if not models:
        raise UsageError("models must name one at least")
    folder = None if out is None else Path(out)
    found = find([Path(each) for each in models], folder)
    return optimize_found(
        found,
        folder,
        settings or Settings(),
        inputs=inputs,
        progress=progress,
        on_done=on_done,
        interrupted=interrupted,
    )


def optimize_found(
    found: FoundModels,
    folder: Path | None,
    settings: Settings,
    *,
    inputs: str | Path | None = None,
    progress: Callable[[Progress], None] | None = None,
    on_done: Callable[[Done], None] | None = None,
    interrupted: Callable[[], bool] | None = None,
) -> list[Done]:
    """Optimise models that were found; arguments, result and errors as of :func:`optimize_many`."""
    hear, stop = progress or (lambda told: None), interrupted or (lambda: False)
    hear(Progress("load", "loading the rules"))
    made_with = _made_with(settings, None if inputs is None else Path(inputs))
    with nullcontext() if folder is None else FinishedModels(folder, made_with) as journal:
        done: list[Done] = []
        if journal is not None:
            _carry(found, journal)
        for number, job in enumerate(found.jobs, start=1):
            if stop():
                break
            label = f"{number}/{len(found.jobs)} {job.source.name}"

            def tell(told: Progress, label: str = label) -> None:
                hear(replace(told, message=f"{label}: {told.message}"))

            done.append(_one(job, settings, inputs, journal, done, tell, stop))
            if on_done is not None:
                on_done(done[-1])
        return done


def told(done: Sequence[Done]) -> dict[str, Any]:
    """What became of all, ready for JSON."""
    return {"schema": SCHEMA, "models": [each.told() for each in done]}


def _made_with(settings: Settings, inputs: Path | None) -> dict[str, Any]:
    """What but the models decides the results: of files that the settings name the contents, too.

    Raises:
        GraphoptError: Rules, or one of these files, can't be read.
    """
    config = config_of(settings)
    return {
        "graphopt": __version__,
        "settings": asdict(settings),
        "rules": str(load_rules(settings).hash),
        "files": [contents(Path(each)) for each in (inputs, settings.agent, *config.custom_ops) if each is not None],
        "environment": asdict(fingerprint(config)),
    }


def _carry(found: FoundModels, journal: FinishedModels) -> None:
    """Copy what belongs to the models, unless it is there, or something of others is."""
    for source, target in found.carried:
        target.parent.mkdir(parents=True, exist_ok=True)
        if journal.carries(source, target):
            copy(source, target)
        elif content(target) != content(source):
            text = f"{target} stays as it is and not as {source}: no earlier run has copied it, or it was changed since"
            warnings.warn(text, ManyWarning, stacklevel=3)


def _one(
    job: ModelJob,
    settings: Settings,
    inputs: str | Path | None,
    journal: FinishedModels | None,
    before: Sequence[Done],
    hear: Callable[[Progress], None],
    stop: Callable[[], bool],
) -> Done:
    """Optimise a model, unless it is finished."""
    began = time.monotonic()
    hear(Progress("load", "starting"))
    target = job.target
    try:
        key = "" if journal is None else journal.key(job.source)
        if journal is not None and target is not None:
            known = journal.finished(target, key)
            if known is not None:
                return Done(job, known, earlier=True)
            journal.begin(job.source, target)
            target.parent.mkdir(parents=True, exist_ok=True)
        sharing = [each.job.target for each in before if each.report and each.job.target and each.job.target != target]
        answer = child.optimize(
            {
                "model": str(job.source),
                "output": None if target is None else str(target),
                "inputs": None if inputs is None else str(inputs),
                "settings": asdict(settings),
                "sharing": [str(path) for path in sharing],
            },
            hear,
            stop,
        )
        for text in answer.get("warnings", ()):
            warnings.warn(text, ManyWarning, stacklevel=2)
        report = answer.get("report")
        if journal is not None and target is not None and report is not None:
            # What a Ctrl-C cut short is ours, and no finished work: another run begins it again.
            journal.add(target, "" if stop() else key, report)
    except GraphoptError as error:
        answer, report = {"error": str(error), "hint": error.hint}, None
    except OSError as error:
        answer, report = {"error": refusal(error)}, None
    seconds, peak = time.monotonic() - began, answer.get("peak_memory")
    return Done(job, report, answer.get("error", ""), answer.get("hint"), seconds=seconds, peak_memory=peak)
