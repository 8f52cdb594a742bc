"""``graphopt zoo``: the models to try things on."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, cast, get_args

import typer

from graphopt.cli import options, paths
from graphopt.cli.options import option
from graphopt.cli.screen import console, present, table
from graphopt.errors import UnknownNameError
from graphopt.kinds import integer

app = typer.Typer(help="List and build models with random weights.", no_args_is_help=True, rich_markup_mode=None)


@app.command("list")
def list_models(json: options.Json = None) -> None:
    """List the models that `graphopt zoo build` can make."""
    paths.report_file(json, {})

    from graphopt import zoo

    models = [zoo.describe(name) for name in zoo.names()]
    rows = [
        {
            "name": model.name,
            "family": model.family,
            "doc": model.doc,
            "parameters": dict(model.params),
            "inputs": [str(spec) for spec in model.inputs],
        }
        for model in models
    ]

    def show() -> None:
        result = table("name", "family", "what it is", whole=True)
        for model in models:
            result.add_row(model.name, model.family, model.doc)
        console(stderr=False).print(result)

    present(show, {"schema": "graphopt.zoo/1", "models": rows}, json)


@app.command("build")
def build(
    names: Annotated[
        list[str],
        typer.Argument(metavar="NAME", help="Models; parameters follow an @: bert_base@layers=4.", show_default=False),
    ],
    exporter: Annotated[
        str, option(metavar="dynamo|legacy", help="Which of torch's exporters to use (default dynamo).")
    ] = "dynamo",
    out: Annotated[
        Path | None, option(metavar="DIR", help="Folder for the files (default: the zoo's in the user's cache).")
    ] = None,
    seed: Annotated[int, option(metavar="N", help="Seed of the weights (default 0).", kind=integer(0))] = 0,
    force: Annotated[bool, option("--force", help="Build even if the file is there already.")] = False,
    quiet: options.Quiet = False,
) -> None:
    """Build models and print the paths of their files."""
    from graphopt import zoo

    if exporter not in get_args(zoo.Exporter):
        raise UnknownNameError("exporter", exporter, get_args(zoo.Exporter))
    chosen = cast(zoo.Exporter, exporter)
    for name in names:
        zoo.describe(name)  # find every misspelt name before the first build, which takes a while
    screen = console()
    for name in names:
        if quiet:
            print(zoo.build(name, chosen, out, seed, force=force))
            continue
        with screen.status(f"building {name}"):
            path = zoo.build(name, chosen, out, seed, force=force)
        print(path)
