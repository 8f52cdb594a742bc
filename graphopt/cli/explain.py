"""``graphopt explain``: which rule made which node of an optimised model."""

from __future__ import annotations

import json as json_module
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from graphopt.cli import options, paths
from graphopt.cli.screen import console, facts, milliseconds, one_line, table, write_json

if TYPE_CHECKING:
    from rich.table import Table


def explain(model: options.Model, json: options.Json = None) -> None:
    """Show which rule made which node of a model that graphopt wrote."""
    paths.existing_file(model)
    paths.report_file(json, {"the model": model})

    from graphopt import api

    report = api.explain_model(model)
    if json is not None:
        write_json(report, json)
    if json != "-":
        show(report)


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
    nodes = table("rule", "operator", "node", whole=True)
    for rule, made in report["rules"].items():
        for row in made:
            name = row["name"] or ", ".join(row["outputs"])
            nodes.add_row(one_line(rule), one_line(row["op"]), one_line(name))
    screen.print(nodes)
    total = sum(map(len, report["rules"].values()))
    screen.print(f"\n{total} of {report['nodes']} nodes were made by rules")


def _recorded(metadata: Mapping[str, str]) -> Table:
    """What `graphopt optimize` wrote into the model, as far as it is still there and readable."""
    result = facts()
    if "graphopt.version" in metadata:
        result.add_row("made by", f"graphopt {one_line(metadata['graphopt.version'], 40)}")
    try:
        latency = json_module.loads(metadata["graphopt.latency"])
        low, high = latency["ci95"]
        times = f"{milliseconds(latency['baseline_ms'])} before, {milliseconds(latency['optimized_ms'])} after"
        result.add_row("latency", f"{times}: {latency['speedup']:.3f}x (95 % interval {low:.3f} to {high:.3f})")
    except (KeyError, TypeError, ValueError):
        pass
    try:
        where = json_module.loads(metadata["graphopt.environment"])
        runtime = f"onnxruntime {where['onnxruntime']}, provider {where['provider']}, threads {where['threads']}"
        result.add_row("measured", one_line(f"{where['cpu']}, {runtime}"))
    except (KeyError, TypeError, ValueError):
        pass
    return result
