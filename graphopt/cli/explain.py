"""``graphopt explain``: which rule made which node of an optimised model, and what each step of its making gained."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from graphopt.cli import options, paths
from graphopt.cli.options import option
from graphopt.cli.screen import breakable, console, facts, present, table
from graphopt.documents import parse_json
from graphopt.errors import UsageError
from graphopt.kinds import number
from graphopt.wording import interval, measured, milliseconds, one_line, sized

if TYPE_CHECKING:
    from rich.table import Table


def explain(
    model: Annotated[
        Path,
        typer.Argument(
            metavar="MODEL", help="A model that graphopt wrote; with --trace its original.", show_default=False
        ),
    ],
    trace: Annotated[
        Path | None,
        option("--trace", metavar="FILE", help="Show each step that `optimize --trace` recorded for MODEL."),
    ] = None,
    seconds: Annotated[
        float | None,
        option(
            "--seconds",
            metavar="S",
            help="With --trace: time to measure each step (default 2); 0 measures nothing.",
            kind=number(),
        ),
    ] = None,
    threads: options.Threads = None,
    inputs: options.Inputs = None,
    json: options.Json = None,
) -> None:
    """Show which rule made which node of a model that graphopt wrote, or what each step gained, predicted and measured."""
    if trace is None and (seconds, threads, inputs) != (None, None, None):
        raise UsageError(
            "--seconds, --threads and --inputs are about the steps of a trace, which are measured",
            "give one with --trace",
        )
    paths.existing_file(model)
    others = {} if trace is None else {"the trace": paths.existing_file(trace)}
    paths.report_file(json, {"the model": model}, {**others, **paths.also_read(inputs=inputs)})

    from graphopt.cli.progress import WorkProgress

    with WorkProgress(shown=True) as progress:
        if trace is None:
            from graphopt import api

            report = api.explain_model(model)
        else:
            from graphopt import retrace

            found = retrace.stages(
                trace,
                model,
                seconds=(2.0 if seconds is None else seconds) or None,
                threads=threads,
                inputs=inputs,
                on_stage=lambda s: progress(f"step {s.first + s.steps - 1}: {s.rule}"),
            )
            report = {
                "schema": "graphopt.stages/1",
                "path": str(model),
                "trace": str(trace),
                "stages": [asdict(s) for s in found],
            }
    present(lambda: (show if trace is None else show_stages)(report), report, json)


def show_stages(report: Mapping[str, Any]) -> None:
    """Print what each stage of a trace gained, on stdout."""
    screen = console(stderr=False)
    if not report["stages"]:
        screen.print("the trace has no step")
        return
    rows = table("steps", "rule", "at", "predicted", "measured", "95 % interval", numbers=3)
    for stage in report["stages"]:
        last = stage["first"] + stage["steps"] - 1
        rows.add_row(
            str(stage["first"]) if stage["steps"] == 1 else f"{stage['first']}-{last}",
            breakable(stage["rule"]),
            one_line(stage["node"], 40),
            f"{stage['predicted']:.3f}x",
            "" if stage["measured"] is None else f"{stage['measured']:.3f}x",
            "" if stage["ci95"] is None else interval(stage["ci95"]),
        )
    screen.print(rows)
    sizes = report["stages"][-1]["sizes"]
    if sizes:
        screen.print(f"\nmeasured with {sized(sizes)}")


def show(report: Mapping[str, Any]) -> None:
    """Print a report of `graphopt.api.explain_model` for people, on stdout."""
    screen = console(stderr=False)
    recorded = _recorded(report["metadata"])
    if recorded.row_count:
        screen.print(recorded)
        screen.print()
    if not report["rules"]:
        screen.print(f"none of the {report['nodes']} nodes was made by a rule")
        return
    # Ids are whole, for they are copied, unless that leaves the names no room.
    whole = max(map(len, report["rules"])) <= 0.6 * screen.width
    nodes = table("rule", "operator", "node", whole=whole)
    for rule, made in report["rules"].items():
        for row in made:
            name = row["name"] or ", ".join(row["outputs"])
            nodes.add_row(one_line(rule) if whole else breakable(rule), one_line(row["op"]), one_line(name))
    screen.print(nodes)
    total = sum(map(len, report["rules"].values()))
    screen.print(f"\n{total} of {report['nodes']} nodes were made by rules")


def _recorded(metadata: Mapping[str, str]) -> Table:
    """What `graphopt optimize` wrote into the model, as far as it is still there and readable."""
    result = facts()
    if "graphopt.version" in metadata:
        result.add_row("made by", f"graphopt {one_line(metadata['graphopt.version'], 40)}")
    try:
        latency = parse_json(metadata["graphopt.latency"])
        times = f"{milliseconds(latency['baseline_ms'])} before, {milliseconds(latency['optimized_ms'])} after"
        result.add_row("latency", f"{times}: {measured(latency)}")
    except (KeyError, TypeError, ValueError):
        pass
    with suppress(AttributeError, KeyError, ValueError):
        result.add_row("sizes", f"measured with {one_line(sized(parse_json(metadata['graphopt.sizes'])))}")
    try:
        where = parse_json(metadata["graphopt.environment"])
        runtime = f"onnxruntime {where['onnxruntime']}, provider {where['provider']}, threads {where['threads']}"
        result.add_row("measured", one_line(f"{where['cpu']}, {runtime}"))
    except (KeyError, TypeError, ValueError):
        pass
    return result
