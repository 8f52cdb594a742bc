"""``graphopt cost``: the store of kernel times that predictions are made of."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from graphopt.cli import options, paths
from graphopt.cli.options import option
from graphopt.cli.screen import console, facts, table, write_json

app = typer.Typer(help="Show and manage the measured kernel times.", no_args_is_help=True, rich_markup_mode=None)

Environment = Annotated[
    str | None, option("--environment", metavar="DIGEST", help="Only this environment (see `cost show`); default: all.")
]


@app.command("show")
def show(json: options.Json = None) -> None:
    """Show how many kernel times are stored, by environment."""
    from graphopt.cost.store import Store
    from graphopt.runtime.environment import fingerprint
    from graphopt.runtime.providers import available
    from graphopt.runtime.session import SessionConfig

    here = {provider: fingerprint(SessionConfig(provider)).digest for provider in available()}
    with Store() as store:
        sizes, where = store.sizes(), store.path
    if json is not None:
        write_json({"schema": "graphopt.cost/1", "path": str(where), "here": here, "environments": sizes}, json)
    if json != "-":
        screen = console(stderr=False)
        about = facts()
        about.add_row("store", str(where))
        screen.print(about)
        rows = table("environment", "kernels", "", whole=True)
        names = {digest: f"this machine, {provider}, one thread" for provider, digest in here.items()}
        for name, count in sorted(sizes.items(), key=lambda item: -item[1]):
            rows.add_row(name, str(count), names.get(name, ""))
        screen.print(rows)


@app.command("clear")
def clear(environment: Environment = None) -> None:
    """Forget stored kernel times; they are measured again when they are needed."""
    from graphopt.cost.store import Store
    from graphopt.errors import UnknownNameError

    with Store() as store:
        known = store.sizes()
        if environment is not None and environment not in known:
            raise UnknownNameError("environment", environment, known)
        gone = store.clear(environment)
    console().print(f"{gone} kernel times forgotten")


@app.command("export")
def export(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Where to write them, as JSON.", show_default=False)],
    environment: Environment = None,
) -> None:
    """Write stored kernel times to a file, for another machine of the same kind."""
    from graphopt.cost.store import Store
    from graphopt.errors import UnknownNameError

    with Store() as store:
        known = store.sizes()
        if environment is not None and environment not in known:
            raise UnknownNameError("environment", environment, known)
        times = {name: store.all(name) for name in known if environment in (None, name)}
    write_json({"schema": "graphopt.kernels/1", "environments": times}, str(file))
    console().print(f"{sum(map(len, times.values()))} kernel times written to {file}")


@app.command("import")
def import_(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="What `cost export` wrote.", show_default=False)],
) -> None:
    """Add the kernel times of a file to the store; where both know a kernel, the file's time counts."""
    import json
    import math

    from graphopt.cost.store import Store
    from graphopt.errors import UsageError

    paths.existing_file(file)
    try:
        data = json.loads(file.read_text(encoding="utf-8"))
        if data["schema"] != "graphopt.kernels/1":
            raise ValueError(f"schema {data['schema']!r}")
        times = {str(e): {str(s): float(ms) for s, ms in found.items()} for e, found in data["environments"].items()}
        if not all(math.isfinite(ms) for found in times.values() for ms in found.values()):
            raise ValueError("a time is not finite")
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise UsageError(f"{file}: not a file of kernel times: {error}", "make one with graphopt cost export") from error
    with Store() as store:
        for name, found in times.items():
            store.put_many(name, found)
    console().print(f"{sum(map(len, times.values()))} kernel times read from {file}")
