"""``graphopt inspect``: what a model consists of, and where its time goes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from graphopt import wording
from graphopt.cli import options, paths
from graphopt.cli.screen import console, facts, present, table
from graphopt.wording import milliseconds, one_line, placed, plural, size


@options.with_settings("provider", "provider_options", "custom_ops", "threads", "dims", "input_shapes")
def inspect(
    model: options.Model,
    given: Any = None,
    inputs: options.Inputs = None,
    json: options.Json = None,
) -> None:
    """Show a model's operators, sizes and shapes, what graphopt leaves alone and why, and where the time goes."""
    from graphopt.config import load_settings

    paths.existing_file(model)
    paths.report_file(json, {"the model": model}, paths.also_read(inputs=inputs))
    settings = load_settings(given)

    from graphopt.cli.progress import Waiting

    with Waiting("reading the model"):
        from graphopt import api

        chosen = {name: getattr(settings, name) for name in given}
        report = api.inspect_model(model, inputs=inputs, **chosen)
    present(lambda: show(report), report, json)


def show(report: Mapping[str, Any]) -> None:
    """Print a report of `graphopt.api.inspect_model` for people, on stdout."""
    screen = console(stderr=False)
    summary = facts()
    summary.add_row("model", one_line(report["path"]))
    summary.add_row("nodes", str(report["nodes"]))
    summary.add_row("size", size(report["size"]))
    summary.add_row("opset", f"{report['opset']}, IR version {report['ir_version']}")
    for what in ("inputs", "outputs"):
        values = [
            one_line(f"{name}: {shape}") for name, shape in report[what].items() if name not in report["defaults"]
        ]
        if what == "inputs" and report["defaults"]:
            values.append(f"and {plural(len(report['defaults']), 'weight')}, which a caller may replace")
        summary.add_row(what, "\n".join(values) or "none")
    sizes = wording.measured_at(report, "--dim")
    if sizes:
        summary.add_row("profiled", f"with {sizes}")
    placement = report["placement"]
    if placement:
        summary.add_row("placement", placed(placement["nodes"], placement["elsewhere"]))
    screen.print(summary)
    screen.print()

    operators = table("operator", "nodes", numbers=1)
    for name, count in report["operators"].items():
        operators.add_row(one_line(name), str(count))
    screen.print(operators)
    screen.print()

    if report["opaque"]:
        opaque = table("left alone because", "nodes", numbers=1)
        for reason, count in report["opaque"].items():
            opaque.add_row(one_line(reason), str(count))
        screen.print(opaque)
        screen.print()

    if report["profile"] is None:
        screen.print(one_line(f"no profile: {report['unprofiled']}"), soft_wrap=True)
        return
    kernels = table("kernel, as the runtime fused it", "count", "time", "share", numbers=3)
    for row in report["profile"]:
        share = f"{row['share'] * 100:.1f} %"
        kernels.add_row(one_line(row["op_type"]), str(row["count"]), milliseconds(row["ms"]), share)
    if placement and placement["device"] != "cpu":
        screen.print("The device works on its own: the times are those of launching its kernels.", soft_wrap=True)
    kernels.add_row("all", "", milliseconds(sum(row["ms"] for row in report["profile"])), "")
    screen.print(kernels)
