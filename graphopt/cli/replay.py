"""``graphopt replay`` and ``graphopt bisect``: do again what a trace tells, and find the step that did harm."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from graphopt.cli import options, paths
from graphopt.cli.screen import console, facts, present
from graphopt.errors import UsageError
from graphopt.files import file_named, writable
from graphopt.wording import sized

TraceFile = Annotated[Path, typer.Argument(metavar="TRACE", help="What `optimize --trace` wrote.", show_default=False)]


def replay(
    trace: TraceFile,
    model: options.Model,
    output: Annotated[
        Path | None,
        options.option("-o", "--output", metavar="FILE", help="Where to write the model.", parser=file_named),
    ] = None,
    steps: Annotated[
        int | None, options.option("--steps", metavar="N", help="Stop after the first N steps (default: all).")
    ] = None,
    quiet: options.Quiet = False,
) -> None:
    """Make the steps of a trace again: the same model, the same rules, the same result bit for bit."""
    for path in (trace, model):
        paths.existing_file(path)
    if output is not None:
        writable(output, reads={"the trace": trace, "the model": model}, writes={})
        paths.spare_weights(model, [output])
    if steps is not None and steps < 0:
        raise UsageError(f"--steps must be 0 or more, not {steps}")

    from graphopt.cli.progress import Waiting

    with Waiting("making the steps again", shown=not quiet):
        from graphopt import retrace

        done = retrace.replay(trace, model, output=output, steps=steps)
    if not quiet:
        about = facts()
        about.add_row("steps", f"{done.steps} of {done.of}")
        about.add_row("nodes", f"{done.nodes_before} before, {done.nodes_after} after")
        if output is not None:
            about.add_row("written", str(output))
        if done.unwritten:
            about.add_row("kept", "`optimize` measured these steps and wrote its input in their place")
        console().print(about)


@options.with_settings("threads", "rtol", "atol", "seed")
def bisect(
    trace: TraceFile,
    model: options.Model,
    slower: Annotated[
        bool,
        options.option("--slower", help="Look for the step that made the model slower, not for one that broke it."),
    ] = False,
    given: Any = None,
    inputs: options.Inputs = None,
    json: options.Json = None,
) -> None:
    """Find the first step of a trace that changes what the model computes (exit code 3), or with --slower how fast it is."""
    for path in (trace, model):
        paths.existing_file(path)
    paths.report_file(json, {"the model": model}, {"the trace": trace, **paths.also_read(inputs=inputs)})

    from graphopt.cli.progress import Waiting

    with Waiting("looking for the step"):
        from graphopt import retrace

        chosen = {name: value for name, value in given.items() if value is not None}
        found = retrace.bisect(trace, model, slower=slower, inputs=inputs, **chosen)
    document = {
        "schema": "graphopt.bisect/1",
        "step": found.step,
        "rule": found.rule,
        "node": found.node,
        "message": found.message,
        "tried": found.tried,
        "sizes": found.sizes,
    }

    def show() -> None:
        screen = console(stderr=False)
        if found.step is None:
            screen.print(f"no step does harm: {found.message}", soft_wrap=True)
        else:
            screen.print(f"step {found.step}: {found.rule} at {found.node}: {found.message}", soft_wrap=True)
        if found.sizes:
            screen.print(f"measured with {sized(found.sizes)}", soft_wrap=True)

    present(show, document, json)
    if found.step is not None:
        raise typer.Exit(1 if slower else 3)
