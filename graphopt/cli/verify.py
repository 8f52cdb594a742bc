"""``graphopt verify``: do two models compute the same?"""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Annotated, Any

import typer

from graphopt import wording
from graphopt.cli import options, paths
from graphopt.cli.screen import console, each, facts, write_json
from graphopt.errors import OutputsDifferError


@options.with_settings(
    "provider", "provider_options", "custom_ops", "threads", "dims", "input_shapes", "rtol", "atol", "seed"
)
def verify(
    original: Annotated[Path, typer.Argument(metavar="A", help="An ONNX model.", show_default=False)],
    other: Annotated[Path, typer.Argument(metavar="B", help="The model to compare with it.", show_default=False)],
    inputs: options.Inputs = None,
    given: Any = None,
    json: options.Json = None,
    quiet: options.Quiet = False,
) -> None:
    """Run two models on the same inputs and compare their outputs. Exits with 3 if they differ."""
    from graphopt.config import load_settings

    for path in (original, other):
        paths.existing_file(path)
    models = {"the first model": original, "the second model": other}
    paths.report_file(json, models, paths.also_read(inputs=inputs))
    settings = load_settings(given)

    from graphopt.cli.progress import Waiting

    with Waiting("comparing outputs", shown=not quiet):
        from graphopt import api

        chosen = {name: getattr(settings, name) for name in given}
        verdict = api.verify(original, other, inputs=inputs, **chosen)
    document = {"schema": "graphopt.verification/1", **dataclasses.asdict(verdict)}

    def show() -> None:
        if not verdict.passed:
            worst = verdict.worst_output
            hint = f"the largest difference is in output {worst!r}" if worst else None
            raise OutputsDifferError(verdict.message or f"{original} and {other} differ", hint)
        if quiet:
            return
        result = facts()
        result.add_row("same", "the outputs agree")
        result.add_row("trials", str(verdict.trials))
        if verdict.sizes:
            result.add_row("sizes", wording.one_line(wording.dimensions(verdict.sizes)))
        result.add_row("error", f"at most {verdict.max_abs:.2g} absolute, {verdict.max_rel:.2g} relative")
        if verdict.message:  # how little was there to compare
            result.add_row("but", wording.one_line(verdict.message))
        console().print(result)

    each(show, None if json is None else lambda: write_json(document, json))
