"""``graphopt cost``: the store of kernel times that predictions are made of."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from graphopt.cli import options, paths
from graphopt.cli.options import option
from graphopt.cli.screen import console, each, facts, present, table, write_json
from graphopt.documents import DocumentError, checked, read_json
from graphopt.errors import UnknownNameError, UsageError
from graphopt.files import file_named, write_text
from graphopt.kinds import integer, number
from graphopt.wording import percent, plural

if TYPE_CHECKING:
    from graphopt.cost.store import Store
    from graphopt.experiments.calibration import Agreement

app = typer.Typer(help="Show and manage the measured kernel times.", no_args_is_help=True, rich_markup_mode=None)

Environment = Annotated[
    str | None, option("--environment", metavar="DIGEST", help="Only this environment (see `cost show`); default: all.")
]


@contextmanager
def _store() -> Iterator[Store]:
    """The store, for a command that is about it: where it can't be used, nothing was found or kept there.

    Raises:
        GraphoptError: It can't.
    """
    from graphopt.cost.store import Store, StoreWarning

    with warnings.catch_warnings(), Store() as store:
        warnings.simplefilter("ignore", StoreWarning)
        try:
            yield store
        finally:
            if store.fault is not None:
                raise store.fault


@app.command("show")
def show(json: options.Json = None) -> None:
    """Show how many kernel times are stored, by environment."""
    paths.report_file(json, {})

    from graphopt.cli.progress import Waiting

    with Waiting("reading the store"):
        from graphopt.runtime.environment import fingerprint
        from graphopt.runtime.providers import available
        from graphopt.runtime.session import SessionConfig

        here = {provider: fingerprint(SessionConfig(provider, threads=0)).digest for provider in available()}
        on_one = {provider: fingerprint(SessionConfig(provider)).digest for provider in here}
        with _store() as store:
            sizes, where = store.sizes(), store.path
    document = {
        "schema": "graphopt.cost/1",
        "path": str(where),
        "here": here,
        "one_thread": on_one,
        "environments": sizes,
    }

    def shown() -> None:
        screen = console(stderr=False)
        about = facts()
        about.add_row("store", str(where))
        screen.print(about)
        rows = table("environment", "kernels", "", whole=True)
        names = {digest: f"this machine, {provider}, all cores" for provider, digest in here.items()}
        names |= {digest: f"this machine, {provider}, one thread" for provider, digest in on_one.items()}
        for name, count in sorted(sizes.items(), key=lambda item: -item[1]):
            rows.add_row(name, str(count), names.get(name, ""))
        screen.print(rows)

    present(shown, document, json)


@app.command("clear", short_help="Forget stored kernel times.")
def clear(environment: Environment = None) -> None:
    """Forget stored kernel times; they are measured again when they are needed."""
    with _store() as store:
        _environments(store, environment)
        gone = store.clear(environment)
    console().print(f"{plural(gone, 'kernel time')} forgotten")


@app.command("export", short_help="Write stored kernel times to a file.")
def export(
    file: Annotated[
        Path,
        typer.Argument(metavar="FILE", help="Where to write them, as JSON.", show_default=False, parser=file_named),
    ],
    environment: Environment = None,
) -> None:
    """Write stored kernel times to a file, for another machine of the same kind."""
    paths.report_file(str(file), {})

    with _store() as store:
        times = {name: store.kernels(name) for name in _environments(store, environment)}
    write_json({"schema": "graphopt.kernels/1", "environments": times}, str(file))
    where = "stdout" if str(file) == "-" else file
    console().print(f"{plural(sum(map(len, times.values())), 'kernel time')} written to {where}")


def _environments(store: Store, wanted: str | None) -> list[str]:
    """The environment that is asked for, or all that there are.

    Raises:
        UnknownNameError: Nothing is stored for it.
    """
    known = store.sizes()
    if wanted is not None and wanted not in known:
        raise UnknownNameError("environment", wanted, known)
    return [name for name in known if wanted in (None, name)]


@app.command("import", short_help="Add the kernel times of a file.")
def import_(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="What `cost export` wrote.", show_default=False)],
) -> None:
    """Add the kernel times of a file to the store; where both know a kernel, the file's time counts."""
    paths.existing_file(file)
    try:
        times = _times(file)
    except (OSError, ValueError) as error:
        raise UsageError(
            f"{file}: not a file of kernel times: {error}", "make one with graphopt cost export"
        ) from error
    with _store() as store:
        for name, found in times.items():
            store.put_many(name, found)
    console().print(f"{plural(sum(map(len, times.values())), 'kernel time')} read from {file}")


def _times(file: Path) -> dict[str, Mapping[str, float]]:
    """Kernel times by environment, of a file that `cost export` wrote: what is no time would take the place of one in the store.

    Raises:
        OSError: The file can't be read.
        ValueError: It is another one, or damaged.
    """
    from graphopt.cost.store import FAILED

    data = checked(Mapping[str, Any], read_json(file), "it")
    if data.get("schema") != "graphopt.kernels/1":
        raise DocumentError(f"schema {data.get('schema')!r}")
    found: dict[str, Mapping[str, float]] = checked(
        Mapping[str, Mapping[str, float]], data.get("environments"), "'environments'"
    )
    for name, times in found.items():
        "".join((name, *times)).encode()  # half a character can stand in JSON, but in no store
        for signature, ms in times.items():
            if not (math.isfinite(ms) and (ms >= 0 or ms == FAILED)):
                raise DocumentError(f"{signature!r} takes {ms:g} ms")
    return found


@app.command("calibrate", short_help="Compare predicted times with measured ones.")
@options.with_settings(
    "rules", "exclude", "provider", "provider_options", "custom_ops", "threads", "dims", "input_shapes", "seed"
)
def calibrate(
    models: Annotated[list[Path], typer.Argument(metavar="MODEL...", help="ONNX models.", show_default=False)],
    graphs: Annotated[
        int, option("--graphs", metavar="N", help="Graphs to make of each model (default 12).", kind=integer(2))
    ] = 12,
    seconds: Annotated[
        float, option("--seconds", metavar="S", help="Time to measure each graph (default 2).", kind=number())
    ] = 2.0,
    given: Any = None,
    json: options.Json = None,
    svg: Annotated[
        Path | None, option("--svg", metavar="FILE", help="Draw predicted against measured times.", parser=file_named)
    ] = None,
    quiet: options.Quiet = False,
) -> None:
    """Compare predicted with measured times of randomly rewritten graphs, and with five models or more correct what all have in common.

    The errors of a model are those with the correction that the other models ask for.
    """
    from graphopt.config import load_settings

    for model in models:
        paths.existing_file(model)
    settings = load_settings(given)
    reads = {f"the model {m}": m for m in models}
    also = paths.also_read(rules=settings.rules)
    paths.report_file(json, reads, also)
    if svg is not None:
        if str(svg) == "-":
            raise UsageError("a drawing cannot be written to stdout", "give the name of a file")
        paths.report_file(str(svg), reads, also, {} if json in (None, "-") else {"the JSON results": Path(str(json))})

    from graphopt.cli.progress import WorkProgress

    points, screen = [], console()
    with WorkProgress(shown=not quiet) as progress:
        from graphopt.experiments.calibration import ENOUGH, agreement, calibrate_model, keep_scale, scaled
        from graphopt.report.plots import draw_scatter

        for model in models:

            def told(done: int, name: str = model.name) -> None:
                progress(f"measuring {name}: {done} of {graphs}")

            points += calibrate_model(model, settings, graphs=graphs, seconds=seconds, on_graph=told)
    factor, points = scaled(points)
    known = list(dict.fromkeys(p.model for p in points))
    about = {"models": known, "factor": factor, "points": [asdict(p) for p in points]}

    def show() -> None:
        rows = table("model", "graphs", "rank correlation", "median error", "95 %", "slowest / fastest", numbers=5)
        for name in known:
            rows.add_row(name, *_agreement(agreement([p for p in points if p.model == name])))
        if len(known) > 1:
            rows.add_row("all", *_agreement(agreement(points)))
        console(stderr=False).print(rows)

    def correct() -> None:
        text = f"nothing was corrected: that takes {ENOUGH} models"
        if len(known) >= ENOUGH:
            scale = keep_scale(factor, settings)
            text = f"graphs take {scale:.3f} times the sum of their windows: predictions are scaled by that from now on"
        if not quiet:
            screen.print(text, soft_wrap=True)

    def draw(target: Path) -> None:
        write_text(target, draw_scatter([(p.model, p.measured_ms, p.predicted_ms) for p in points]))

    each(
        lambda: present(None if quiet else show, {"schema": "graphopt.calibration/1", **about}, json),
        correct,
        None if svg is None or not points else lambda: draw(svg),
    )


def _agreement(found: Agreement) -> tuple[str, ...]:
    rank = "" if math.isnan(found.spearman) else f"{found.spearman:.3f}"
    return str(found.graphs), rank, percent(found.median_error, 1), percent(found.p95_error, 1), f"{found.spread:.3f}"
