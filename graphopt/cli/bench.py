"""``graphopt bench``: what graphopt and others gain, measured."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from graphopt.cli import options, paths
from graphopt.cli.options import option
from graphopt.cli.screen import console, each, table, write_json
from graphopt.errors import GraphoptError, OutputsDifferError, TooSlowError, UsageError
from graphopt.files import file_named, write_text
from graphopt.kinds import integer, number
from graphopt.settings import DECLARED

if TYPE_CHECKING:
    from graphopt.benchmark.page import Graphs
    from graphopt.benchmark.plan import Plan
    from graphopt.benchmark.results import Bench

_WRITTEN = {"json": "the JSON results", "csv": "the CSV results", "html": "the page"}
_PLANNED = (
    "strategy",
    "provider",
    "provider_options",
    "custom_ops",
    "threads",
    "dims",
    "input_shapes",
    "seed",
    "at",
    "measure",
)
"""Settings that are the plan's, or have no meaning here; the others are those of each optimisation."""


def _list_rivals(wanted: bool) -> None:
    if not wanted:
        return
    from graphopt.benchmark import peers, rivals

    rows = table("name", "what it is", "state", whole=True)
    here = peers.installed()
    for name in peers.PEERS:
        rows.add_row(name, "optimiser", "installed" if name in here else f"pip install {peers.install(name)}")
    for name, rival in rivals.RIVALS.items():
        python = rivals.python_of(name)
        state = f"pip install {rival.install}" if python is None else "installed"
        if python not in (None, sys.executable):
            state = f"installed in {Path(str(python)).parents[1]}"
        rows.add_row(name, "runtime", state)
    console(stderr=False).print(rows)
    raise typer.Exit


@options.with_settings("agent", "provider_options", "custom_ops", "rules", "exclude", "dims", "input_shapes", "seed")
def bench(
    model: Annotated[
        list[str], typer.Argument(metavar="MODEL", help="ONNX models, or names of the zoo.", show_default=False)
    ],
    strategy: Annotated[
        list[str] | None,
        option(
            "--strategy",
            metavar="NAME",
            help="How graphopt searches (default auto); repeatable; none: not at all.",
            values=options.strategies,
        ),
    ] = None,
    against: Annotated[
        list[str] | None,
        option(
            "--against",
            metavar="NAMES",
            help="What else to measure: onnxsim, onnxslim, onnxscript, ort-transformers, other runtimes (see --list-rivals), and ONNX files of "
            "your own, with commas (default: the installed optimisers; original: none).",
        ),
    ] = None,
    list_rivals: Annotated[
        bool,
        typer.Option(
            "--list-rivals",
            help="List other runtimes and optimisers, and what to install for them.",
            is_eager=True,
            callback=_list_rivals,
        ),
    ] = False,
    level: Annotated[
        list[str] | None,
        option(
            "--level",
            metavar="NAMES",
            help="Levels of the runtime's own optimisation to measure the original at "
            "(default all,extended,basic,disabled); all is what the others are compared with.",
        ),
    ] = None,
    provider: Annotated[
        list[str] | None,
        option(
            "--provider", metavar="NAME", help="Execution provider (default cpu); repeatable.", values=options.providers
        ),
    ] = None,
    threads: Annotated[
        list[int] | None,
        option(
            "--threads",
            metavar="N",
            help="Threads within an operator (default 0: all cores, as ONNX Runtime takes them by itself); repeatable.",
            kind=integer(0),
        ),
    ] = None,
    seconds: Annotated[
        float | None,
        option(
            metavar="S",
            help="Time to measure each model (default 20); longer if it is too noisy.",
            kind=number(above=True),
        ),
    ] = None,
    rounds: Annotated[
        int | None,
        option(metavar="N", help="Rounds to measure each model, in place of --seconds; at least 20.", kind=integer(20)),
    ] = None,
    precision: Annotated[
        float,
        option(
            metavar="X",
            help="How far an interval may reach to either side (default 0.02, which is 2 %).",
            kind=number(above=True, below=1.0),
        ),
    ] = 0.02,
    budget: Annotated[
        float | None,
        option(metavar="SECONDS", help="Limit of each of graphopt's searches (default: none; the work is counted)."),
    ] = None,
    given: Any = None,
    inputs: options.Inputs = None,
    tune_session: Annotated[
        bool, option("--tune-session", help="Look for settings of the session worth using: threads, memory, levels ...")
    ] = False,
    fail_under: Annotated[
        float | None,
        option(
            metavar="RATIO",
            help="Exit with 4 if a model that graphopt wrote is clearly less than RATIO times as fast.",
            kind=number(above=True),
        ),
    ] = None,
    json: options.Json = None,
    csv: Annotated[
        str | None,
        option(
            "--csv",
            metavar="FILE|-",
            help="Write a row for each variant as CSV to FILE, or with - to stdout.",
            parser=options.file_or_stdout,
        ),
    ] = None,
    html: Annotated[
        Path | None,
        option("--html", metavar="FILE", help="Write everything as one self-contained page.", parser=file_named),
    ] = None,
    quiet: options.Quiet = False,
    verbose: Annotated[bool, option("--verbose", "-v", help="Say what is being done.")] = False,
) -> None:
    """Measure models as they are, as graphopt writes them and as other optimisers do, in interleaved rounds.

    All are compared with the original under ORT_ENABLE_ALL. Ctrl-C ends it with what was measured so far.
    """
    from graphopt.config import load_settings

    if quiet and verbose:
        raise UsageError("--quiet and --verbose exclude each other")
    if rounds is not None and seconds is not None:
        raise UsageError("--rounds and --seconds exclude each other")
    if json == "-" and csv == "-":
        raise UsageError("only one of --json and --csv can go to stdout")
    settings = load_settings({**given, "budget": budget})
    also = paths.also_read(inputs=inputs, rules=settings.rules, agent=settings.agent)
    named = None if against is None else options.names("--against", against)
    rivals = [Path(name) for name in named or () if Path(name).is_file()]
    asked = {"json": json, "csv": csv, "html": None if html is None else str(html)}
    targets = {what: target for what, target in asked.items() if target is not None}
    written = {what: Path(target) for what, target in targets.items() if target != "-" or what == "html"}
    files = [path for path in map(Path, model) if path.suffix or path.exists() or len(path.parts) > 1]
    also |= {f"the model {path}": path for path in (*rivals, *map(paths.existing_file, files))}
    paths.all_writable({_WRITTEN[what]: path for what, path in written.items()}, also)

    from graphopt.cli.progress import Waiting

    with Waiting("starting", shown=not quiet):
        from graphopt.benchmark.plan import NONE, Plan
        from graphopt.onnxio.load import load
        from graphopt.runtime.session import LEVELS

        for path in rivals:
            load(path)  # what is no model is refused before anything is measured

    strategies = tuple(s for s in dict.fromkeys(strategy or [settings.strategy]) if s != NONE)
    if fail_under is not None and not strategies:
        raise UsageError("--fail-under judges what graphopt writes, and --strategy none leaves nothing of that")
    plan = Plan(
        strategies=strategies,
        against=named,
        levels=LEVELS if level is None else options.names("--level", level),
        providers=tuple(dict.fromkeys(provider or [settings.provider])),
        provider_options=settings.provider_options,
        custom_ops=settings.custom_ops,
        threads=tuple(dict.fromkeys(threads or [settings.threads])),
        seconds=20.0 if seconds is None else seconds,
        rounds=rounds,
        precision=precision,
        inputs=inputs,
        dims=settings.dims,
        input_shapes=settings.input_shapes,
        seed=settings.seed,
        optimize={name: getattr(settings, name) for name in DECLARED if name not in _PLANNED},
        tune_session=tune_session,
    )
    plan.check()
    for path in (*files, *rivals):
        paths.spare_weights(path, written.values())
    found = _run(model, plan, targets, quiet=quiet, verbose=verbose)
    _judge(found, fail_under)


def _run(models: list[str], plan: Plan, targets: dict[str, str], *, quiet: bool, verbose: bool) -> Bench:
    """Measure, and show and write each case as soon as it is there."""
    from graphopt.benchmark.page import collector
    from graphopt.benchmark.run import bench as measure
    from graphopt.cli import benchtable
    from graphopt.cli.progress import Interrupt, SearchProgress

    screen = console(stderr="-" in targets.values())
    graphs: Graphs = {}
    unshown: list[OSError] = []  # what it cost is not lost because nobody reads it, or it finds no room
    with (
        Interrupt("what was measured so far") as interrupt,
        SearchProgress(shown=not quiet, verbose=verbose) as progress,
    ):

        def on_case(found: Bench) -> None:
            failed = found.cases[-1].baseline.status == "failed"
            if not quiet and not (failed and len(models) == 1):  # of a single model the error is told at the end
                with progress.hidden():
                    try:
                        benchtable.show_case(found.cases[-1], screen, plan.precision)
                    except OSError as error:
                        unshown.append(error)
            with suppress(GraphoptError, OSError, ExceptionGroup):  # there may be room at the end, where it is told
                _write(found, graphs, {what: target for what, target in targets.items() if target != "-"})

        found = measure(
            models,
            plan,
            progress=progress,
            on_case=on_case,
            on_result=collector(graphs) if "html" in targets else None,
            interrupted=interrupt,
        )
    each(
        None if quiet or len(found.cases) < 2 else lambda: benchtable.show_summary(found, screen),
        # Of nothing there is nothing to write, perhaps over what an earlier run has measured.
        (lambda: _write(found, graphs, targets)) if found.cases else None,
    )
    if unshown:
        raise unshown[0]
    return found


def _write(found: Bench, graphs: Graphs, targets: dict[str, str]) -> None:
    """Write the documents, to stdout where the target is ``-``."""
    from graphopt.benchmark.page import write_bench_page
    from graphopt.benchmark.results import to_csv

    def rows(target: str) -> None:
        if target == "-":
            print(to_csv(found), end="")
        else:
            write_text(Path(target), to_csv(found))

    writers: dict[str, Callable[[str], None]] = {
        "json": lambda target: write_json(found.to_dict(), target),
        "csv": rows,
        "html": lambda target: write_bench_page(found, graphs, Path(target)),
    }
    each(*(partial(writers[what], targets[what]) for what in writers if what in targets))


def _judge(found: Bench, fail_under: float | None) -> None:
    """Turn what went wrong into an error.

    Raises:
        KeyboardInterrupt: It was interrupted before anything was measured.
        GraphoptError: A model could not be measured at all, or a file of the user's own not beside it.
        OutputsDifferError: Such a file computes something else.
        TooSlowError: A model of graphopt's is slower than asked for, with certainty, or there is none.
    """
    if found.interrupted and not found.cases:
        raise KeyboardInterrupt
    failed = [case for case in found.cases if case.baseline.status not in ("measured", "skipped")]
    if failed:
        count = (
            f"{len(failed)} of {len(found.cases)} models can't be measured, the first: " if len(found.cases) > 1 else ""
        )
        raise GraphoptError(f"{count}{failed[0].model}: {failed[0].baseline.message}")
    for case in found.cases:
        for variant in case.of_kind("file"):
            if variant.status == "differs":
                raise OutputsDifferError(f"{variant.name} does not compute what {case.model} does: {variant.message}")
            if variant.status == "failed":
                raise GraphoptError(f"{variant.name} can't be compared with {case.model}: {variant.message}")
    for case in found.cases if fail_under is not None else ():
        for variant in case.of_kind("graphopt"):
            ratio, what = variant.ratio, f"{case.model}, {variant.name}"
            if ratio is None:
                raise TooSlowError(f"{what}: nothing to judge by --fail-under, {variant.message}")
            if fail_under is not None and ratio.high < fail_under:
                raise TooSlowError(
                    f"{what}: {ratio.value:.3f} ({ratio.low:.3f} to {ratio.high:.3f}) is below {fail_under:g}"
                )
