"""``graphopt optimize`` with many models: one line of progress, a line for each that is done, a table in the end."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from graphopt.cli import paths
from graphopt.cli.screen import console, each, table, word, write_json
from graphopt.errors import GraphoptError, TooSlowError, UnfinishedError, UsageError
from graphopt.files import writable
from graphopt.wording import interval, measured_at, milliseconds, one_line, plural, seconds, size, sized, slower_at

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from graphopt.config import Settings
    from graphopt.many.batch import Done
    from graphopt.many.find import FoundModels


def asked(models: Sequence[Path], out: Path | None, *, check: bool, single: Mapping[str, Any]) -> bool:
    """Whether a command line means many models; ``single`` are options for one alone, with what was given for each.

    Raises:
        UsageError: It does, and does not say where to write them, or has such an option.
    """
    if out is None and not check:
        for model in models:
            if model.is_dir():
                raise UsageError(f"{model} is a folder, not a file", "for all models in it, give --out-dir")
        if len(models) > 1:
            raise UsageError("several models need a folder to be written to", "give --out-dir")
        return False
    if out is None and len(models) == 1 and models[0].is_file():
        return False
    for name, value in single.items():
        if value:
            raise UsageError(f"{name} is for a single model")
    return True


def run(
    models: Sequence[Path],
    out: Path | None,
    settings: Settings,
    inputs: Path | None,
    json: str | None,
    *,
    quiet: bool,
    verbose: bool,
) -> None:
    """Optimise many models, and tell what became of them; without ``out`` nothing is written, and it is told whether they could be faster.

    Raises:
        GraphoptError: A model failed.
        UnfinishedError: Ctrl-C left some for another run.
        TooSlowError: A model could be faster, and nothing was to be written.
    """
    reads = {f"the model {path}": path for path in models if path.is_file()}
    reads |= paths.also_read(inputs=inputs, rules=settings.rules, agent=settings.agent)

    from graphopt.cli.progress import Interrupt, SearchProgress

    screen = console()
    with (
        SearchProgress(shown=not quiet, verbose=verbose) as progress,
        Interrupt("the best so far of this model") as interrupt,
    ):
        from graphopt.many.batch import optimize_found, told
        from graphopt.many.find import find

        meant = find(models, out)
        if json not in (None, "-"):
            _spare(Path(str(json)), meant, reads)

        def on_done(one: Done) -> None:
            with progress.hidden():
                for line in [] if quiet and not one.error else _lines(one):
                    screen.print(line, soft_wrap=True)

        found = optimize_found(
            meant, out, settings, inputs=inputs, progress=progress, on_done=on_done, interrupted=interrupt
        )
    each(
        None if quiet or len(found) < 2 else lambda: _show(found, screen),
        None if json is None else lambda: write_json(told(found), json),
    )
    _judge(found, out, stopped=interrupt.requested)


def _spare(report: Path, found: FoundModels, reads: dict[str, Path]) -> None:
    """See that the report takes the place of nothing that is read or written.

    Raises:
        UsageError: It does.
    """
    from graphopt.many.find import data_files

    writes = dict[str, Path]()
    for job in found.jobs:
        reads[f"the model {job.source}"] = job.source
        reads |= {f"{file.name}, weights of {job.source}": file for file in data_files(job.source)}
        if job.target is not None:
            writes[f"what becomes of {job.source}"] = job.target
    for source, target in found.carried:
        reads[f"a file beside models ({source})"], writes[f"a copy of {source}"] = source, target
    writable(report, reads=reads, writes=writes)


def could(model: Path, report: Mapping[str, Any]) -> str:
    """That a model could be faster."""
    latency = report["latency"]
    if not latency:
        return f"{model} could be faster, by prediction"
    return f"{model} could be {latency['speedup']:.3f}x as fast (95 % interval {interval(latency['ci95'])})"


def _lines(one: Done) -> list[str]:
    """What became of a model, when it is done."""
    name = one_line(str(one.job.source))
    if one.error:
        error = one.error.removeprefix(f"{one.job.source}: ")
        return [f"failed    {name}: {one_line(error, 300)}"]
    took = "done by an earlier run" if one.earlier else seconds(one.seconds)
    said = [_speed(one, spread=True) or "as it was"]
    if sizes := _sizes(one):
        said.append(f"measured with {sizes}")
        elsewhere = [] if one.report is None or one.report["kept_original"] else one.report.get("elsewhere", ())
        said += [f"{each['speedup']:.3f}x at {sized(each['sizes'])}" for each in elsewhere]
    return [f"{one.status:<9} {name}: {', '.join([*said, took])}"]


def _sizes(one: Done) -> str:
    """At which sizes a model was measured; empty where none is open, or nothing was measured."""
    return measured_at(one.report) if one.report and one.report["latency"] else ""


def _speed(one: Done, *, spread: bool = False) -> str:
    if one.report is None:
        return ""
    latency, kept = one.report["latency"], one.report["kept_original"]
    if not latency:
        return "" if kept else "not measured"
    ratio = f"{latency['speedup']:.3f}x" + (f" ({interval(latency['ci95'])})" if spread else "")
    if not kept:
        return ratio
    if slower := slower_at(one.report.get("elsewhere", ())):
        return f"a candidate measured {slower}" if spread else ""
    if latency.get("verdict") != "unclear":
        return ""
    return f"too noisy to tell, a candidate measured {ratio}" if spread else "too noisy"


def _show(done: Sequence[Done], screen: Console) -> None:
    screen.print()
    screen.print(_table(done))
    sized_alike: dict[str, list[str]] = {}
    for one in done:
        if sizes := _sizes(one):
            sized_alike.setdefault(sizes, []).append(one_line(str(one.job.source)))
    if sized_alike:
        screen.print()
        for sizes, names in sized_alike.items():
            screen.print(f"measured with {sizes}: {', '.join(names)}", soft_wrap=True)


def _table(done: Sequence[Done]) -> Table:
    """All models."""
    result = table("model", "result", "before", "after", "speed", "nodes", "size", numbers=5)
    for one in done:
        name = one_line(str(one.job.source))
        if one.report is None:
            result.add_row(name, one.status, *[""] * 5)
            continue
        told, latency = one.report, one.report["latency"]
        before = after = milliseconds(latency["baseline_ms"]) if latency else ""
        if latency and not told["kept_original"]:
            after = milliseconds(latency["optimized_ms"])
        nodes, bytes_ = told["nodes"]["after"], told["size"]["after"]
        result.add_row(name, one.status, before, after, _speed(one), str(nodes), size(bytes_))
    return result


def _judge(done: Sequence[Done], out: Path | None, *, stopped: bool) -> None:
    """Turn what went wrong into an error."""
    failed = [one for one in done if one.error]
    if stopped:
        raise UnfinishedError(f"stopped by Ctrl-C after {plural(len(done), 'model')}", "the same command goes on")
    if failed:
        first = failed[0].error.removeprefix(f"{failed[0].job.source}: ")
        count = f"{len(failed)} of {plural(len(done), 'model')} failed, the first: "
        raise GraphoptError(f"{count}{failed[0].job.source}: {first}", failed[0].hint)
    faster = [one for one in done if one.improved]
    if out is None and faster and faster[0].report is not None:
        more = f", and {len(faster) - 1} more" if len(faster) > 1 else ""
        words = " ".join(word(str(one.job.source)) for one in faster)
        raise TooSlowError(
            could(faster[0].job.source, faster[0].report) + more, f"graphopt optimize {words} --out-dir DIR"
        )
