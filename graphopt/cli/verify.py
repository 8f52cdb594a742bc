"""``graphopt verify``: do two models compute the same?"""

from __future__ import annotations

import dataclasses
import warnings
from pathlib import Path
from typing import Annotated

import typer

from graphopt import wording
from graphopt.cli import options, paths
from graphopt.cli.screen import console, facts, write_json
from graphopt.errors import OutputsDifferError


def verify(
    original: Annotated[Path, typer.Argument(metavar="A", help="An ONNX model.", show_default=False)],
    other: Annotated[Path, typer.Argument(metavar="B", help="The model to compare with it.", show_default=False)],
    provider: options.Provider = None,
    provider_option: options.ProviderOptions = None,
    threads: options.Threads = None,
    inputs: options.Inputs = None,
    dim: options.Dims = None,
    input_shape: options.InputShapes = None,
    rtol: options.Rtol = None,
    atol: options.Atol = None,
    seed: options.Seed = None,
    json: options.Json = None,
    quiet: options.Quiet = False,
) -> None:
    """Run two models on the same inputs and compare their outputs. Exits with 3 if they differ."""
    from graphopt.config import load_settings

    if quiet:
        warnings.simplefilter("ignore")
    for path in (original, other):
        paths.existing_file(path)
    if inputs is not None:
        paths.existing_inputs(inputs)
    paths.report_file(json, {"the first model": original, "the second model": other})
    settings = load_settings(
        {
            "provider": provider,
            "provider_options": options.provider_options(provider_option),
            "threads": threads,
            "dims": options.dims(dim),
            "input_shapes": options.input_shapes(input_shape),
            "rtol": rtol,
            "atol": atol,
            "seed": seed,
        }
    )

    from graphopt.cli.progress import Waiting

    with Waiting("comparing outputs", shown=not quiet):
        from graphopt import api

        verdict = api.verify(
            original,
            other,
            provider=settings.provider,
            provider_options=settings.provider_options,
            threads=settings.threads,
            inputs=inputs,
            rtol=settings.rtol,
            atol=settings.atol,
            seed=settings.seed,
            dims=settings.dims,
            input_shapes=settings.input_shapes,
        )
    if json is not None:
        write_json({"schema": "graphopt.verification/1", **dataclasses.asdict(verdict)}, json)
    if not verdict.passed:
        raise OutputsDifferError(verdict.message or f"{original} and {other} differ", _hint(verdict.worst_output))
    if not quiet:
        result = facts()
        result.add_row("same", "the outputs agree")
        result.add_row("trials", str(verdict.trials))
        if verdict.sizes:
            result.add_row("sizes", wording.one_line(wording.dimensions(verdict.sizes)))
        result.add_row("error", f"at most {verdict.max_abs:.2g} absolute, {verdict.max_rel:.2g} relative")
        console().print(result)


def _hint(worst_output: str | None) -> str | None:
    return f"the largest difference is in output {worst_output!r}" if worst_output else None
