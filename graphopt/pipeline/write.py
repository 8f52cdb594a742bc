"""Stage 5, ``write``: tell what was done, and put the model, the trace and the page in their places."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from html import escape
from pathlib import Path
from typing import Any, NoReturn

from onnx import ModelProto

from graphopt.cost.store import Store
from graphopt.errors import OutputsDifferError, expect_path
from graphopt.files import is_stream
from graphopt.ir.tensors import see_unchanged
from graphopt.onnxio.emit import Emitted
from graphopt.onnxio.load import Model
from graphopt.onnxio.save import Staged, copy, spare, to_proto
from graphopt.pipeline.context import Context
from graphopt.pipeline.judge import Judged
from graphopt.pipeline.summary import summarise
from graphopt.report.optimization import Found, write_report
from graphopt.search.arena import Arena
from graphopt.search.trace import Trace, fingerprint, options_of
from graphopt.verification.numeric import Verification
from graphopt.version import __version__
from graphopt.wording import measured_at, plural, sized


@dataclass(frozen=True, eq=False, repr=False)
class Result:
    """An optimised model.

    It can't be pickled: it reads the files of the input, and compares what is saved with them. What another process wants of it is
    ``report``, and the file that ``output`` names.

    Attributes:
        report: What was done and measured, ready for JSON (see :func:`graphopt.pipeline.summary.summarise`).
        emitted: The model in two parts, weights by reference.
        original: The input.
        found: What a page shows besides: graphs, steps, samples.
        trace: The steps of the search.
    """

    report: dict[str, Any]
    emitted: Emitted = field(repr=False)
    original: Model = field(repr=False)
    found: Found = field(repr=False)
    trace: Trace = field(repr=False)
    _arena: Arena = field(repr=False)
    _check: Callable[[Path], Verification] = field(repr=False)
    _sharing: tuple[Path, ...] = field(default=(), repr=False)

    @property
    def speedup(self) -> float | None:
        """How many times as fast as the original the written model is: 1.0 for an input that was kept, None if not measured."""
        if self.report["kept_original"]:
            return 1.0
        latency = self.report["latency"]
        return None if latency is None else float(latency["speedup"])

    def __reduce__(self) -> NoReturn:
        raise TypeError("a Result can't be pickled or copied: hand over its report, and the file that it is written to")

    def __repr__(self) -> str:
        name = Path(self.report["input"]).name if self.report["input"] else "model"
        return f"<Result {name}: {', '.join(f'{value}' for _, value in self._facts())}>"

    def _repr_html_(self) -> str:
        """A small table, for notebooks."""
        rows = "".join(f"<tr><th>{escape(name)}</th><td>{escape(value)}</td></tr>" for name, value in self._facts())
        return f"<table>{rows}</table>"

    def _facts(self) -> list[tuple[str, str]]:
        told, latency = self.report, self.report["latency"]
        speed = "not measured"
        if told["kept_original"]:
            speed = "kept as it is"
        elif latency is not None:
            low, high = latency["ci95"]
            speed = f"{latency['speedup']:.3f}x ({low:.3f} to {high:.3f})"
        nodes = f"{told['nodes']['before']} to {told['nodes']['after']} nodes"
        rewrites = plural(sum(told["rules"].values()), "rewrite")
        facts = [("speed", speed), ("nodes", nodes), ("rewrites", rewrites)]
        if measured_at(told) and latency is not None:
            facts.append(("measured with", sized(told["sizes"])))
        if told["verified"]:
            facts.append(("outputs", "verified" if told["verified"]["passed"] else "DIFFERENT"))
        return facts

    @cached_property
    def model(self) -> ModelProto:
        """The optimised model."""
        return to_proto(self.emitted, self.metadata)

    def save(self, path: str | Path) -> None:
        """Write the model, whole or not at all; an input that was kept is copied byte for byte.

        One with weights in files of their own takes them along to another folder, into a file of another name. What is not copied is compared
        with the original by the runtime before it takes its place.

        Raises:
            GraphoptError: It can't be written.
            ModelError: The input, or a file of its weights, has changed since it was read.
            UsageError: ``path`` is no path, or that of the input or of weights of it.
            OutputsDifferError: What was written does not compute what the original does.
        """
        path, source = self._place(path), self.original.path
        see_unchanged(self.original.files)  # what is written comes of it, or is compared with it
        external = self.original.external
        # Of a link there are two: weights are in one of them.
        places = {os.path.dirname(os.path.realpath(path)), os.path.realpath(path.parent)}
        beside = source is not None and not is_stream(path) and places == {os.path.realpath(source.parent)}
        if self.report["kept_original"] and source is not None and (beside or self.original.whole):
            copy(source, path)
            return
        with Staged(self.emitted, path, external=external, metadata=self.metadata, sharing=self._sharing) as staged:
            _require(self._check(staged.path))
            staged.commit(self.metadata)
        self._count_uses()

    def _place(self, path: str | Path) -> Path:
        """Where to write, if that is not the input.

        Raises:
            UsageError: It is, or no path.
        """
        expect_path("path", path)
        given = self.report["input"]  # the file also of a model that was converted when it was read
        spare(Path(path), None if given is None else Path(given), self.original.files)
        return Path(path)

    def _count_uses(self) -> None:
        """Add to how often rules were applied in files that were written."""
        with Store() as store:
            store.count_uses(self.report["rules"])

    def write_page(self, path: str | Path, *, hurried: bool = False) -> None:
        """Write what was found and measured, as an HTML page.

        Args:
            path: The file.
            hurried: Leave out what takes time: where the time goes by operator.

        Raises:
            GraphoptError: It can't be written.
            UsageError: ``path`` is no path, or that of the input or of weights of it.
        """
        write_report(self._place(path), self.report, self.found, self._arena, hurried=hurried)

    @property
    def metadata(self) -> dict[str, str]:
        """What is recorded in the written model."""
        return _metadata(self.report)


def write(context: Context, judged: Judged) -> Result:
    """Make the report and the trace, and write what was asked for.

    Raises:
        GraphoptError: A file can't be written.
    """
    targets, staged = context.targets, judged.verified.staged
    told = summarise(context, judged)
    trace = _trace(context, judged, told)
    selection, curve = judged.verified.selection, judged.verified.searched.curve
    found = Found(selection, judged.paired, context.loaded.graph, judged.graph, curve)
    result = Result(
        told, judged.final, context.original, found, trace, context.arena, judged.verified.check, targets.sharing
    )
    if targets.output is not None and (judged.kept or staged is None):
        if staged is not None:
            staged.close()  # what ends the process later takes its weights away, which may be the same
        result.save(targets.output)
    elif targets.output is not None and staged is not None:
        staged.commit(result.metadata)
        result._count_uses()
    if targets.trace is not None:
        trace.write(targets.trace)
    if targets.report is not None:
        context.tell("report", "writing the report")
        result.write_page(targets.report, hurried=context.clock.interrupted_now)
    return result


def _trace(context: Context, judged: Judged, told: Mapping[str, Any]) -> Trace:
    """The steps, with what it takes to make them again."""
    selection = judged.verified.selection
    outcome = selection.outcome
    about = {
        "strategy": context.settings.strategy,
        "seed": context.settings.seed,
        "stop_reason": outcome.stop_reason,
        "cost": outcome.state.cost,
        "kept_original": judged.kept,
        "environment": told["environment"],
    }
    return Trace(
        fingerprint(context.loaded.graph),
        context.library.hash,
        selection.problem.block,
        context.limit,
        options_of(context.settings),
        outcome.steps,
        fingerprint(judged.graph),
        _metadata(told),
        about,
        dict(context.sizes),
    )


def _metadata(report: Mapping[str, Any]) -> dict[str, str]:
    if report["kept_original"]:
        return {}
    sizes = report["sizes"] if report["latency"] else {}
    return {
        "graphopt.version": __version__,
        "graphopt.rules": json.dumps(report["rules"]),
        "graphopt.latency": json.dumps(report["latency"]),
        "graphopt.environment": json.dumps(report["environment"]),
        **({"graphopt.sizes": json.dumps(sizes)} if sizes else {}),
    }


def _require(verified: Verification) -> None:
    if not verified.passed:
        raise OutputsDifferError(
            f"what was written differs: {verified.message}", "this is a fault of graphopt: please report it"
        )
