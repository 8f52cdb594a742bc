"""``graphopt optimize``: make a model faster."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from graphopt import wording
from graphopt.cli import many, options, paths
from graphopt.cli.options import option
from graphopt.cli.screen import breakable, console, each, facts, table, word, write_json
from graphopt.config import load_settings
from graphopt.errors import TooSlowError, UsageError
from graphopt.files import file_named, is_stream
from graphopt.wording import change, milliseconds, one_line, plural, seconds, size

if TYPE_CHECKING:
    from rich.table import Table

    from graphopt.pipeline.context import Progress


@options.with_settings()
def optimize(
    models: Annotated[
        list[Path],
        typer.Argument(
            metavar="MODEL...", help="An ONNX model; with --out-dir, also folders and patterns.", show_default=False
        ),
    ],
    output: Annotated[
        Path | None,
        option(
            "--output",
            "-o",
            metavar="OUT",
            help="The file to write (default: MODEL.opt.onnx beside MODEL).",
            parser=file_named,
        ),
    ] = None,
    out_dir: Annotated[
        Path | None,
        option("--out-dir", metavar="DIR", help="Write all models there; started again, it goes on where it was."),
    ] = None,
    check: Annotated[
        bool, option("--check", help="Write nothing, and exit with 4 if a model could be faster.")
    ] = False,
    inputs: options.Inputs = None,
    profile: options.Profile = None,
    given: Any = None,
    dry_run: Annotated[bool, option("--dry-run", help="Do everything, but write no model.")] = False,
    json: options.Json = None,
    trace: Annotated[
        Path | None,
        option(metavar="FILE", help="Write the steps of the search, from which it can be replayed.", parser=file_named),
    ] = None,
    report: Annotated[
        Path | None,
        option(metavar="FILE", help="Write an HTML page of what was found, changed and measured.", parser=file_named),
    ] = None,
    quiet: options.Quiet = False,
    verbose: Annotated[bool, option("--verbose", "-v", help="Say what is being done, and list every step.")] = False,
) -> None:
    """Write a model that computes the same as MODEL and runs faster, with a measurement that proves it.

    MODEL itself is never changed. Ctrl-C ends the search and keeps the best found so far.
    """
    if quiet and verbose:
        raise UsageError("--quiet and --verbose exclude each other")
    if check and (output or out_dir):
        raise UsageError("--check writes no model: leave -o and --out-dir out")
    single = {"-o": output, "--trace": trace, "--report": report, "--dry-run": dry_run and not check}
    if many.asked(models, out_dir, check=check, single=single):
        many.run(models, out_dir, load_settings(given, profile=profile), inputs, json, quiet=quiet, verbose=verbose)
        return
    dry_run |= check
    model = paths.existing_file(models[0])
    target = output or paths.default_output(model)
    written = {"the model": None if dry_run else target, "the trace": trace, "the page": report}
    if json not in (None, "-"):
        written["the JSON report"] = Path(str(json))
    settings = load_settings(given, profile=profile)
    also = paths.also_read(inputs=inputs, rules=settings.rules, agent=settings.agent)
    writes = paths.all_writable(written, {"the input": model, **also})
    paths.spare_weights(model, writes)

    from graphopt.cli.progress import Interrupt, SearchProgress

    with SearchProgress(shown=not quiet, verbose=verbose) as progress, Interrupt(begun=False) as interrupt:
        from graphopt import api  # takes a moment: the line is there by then

        def heard(told: Progress) -> None:
            interrupt.begun |= told.stage != "load"  # while the model is read there is no best so far
            progress(told)

        result = api.optimize(
            model,
            output=None if dry_run else target,
            inputs=inputs,
            progress=heard,
            interrupted=interrupt,
            **{name: getattr(settings, name) for name in settings.__dataclass_fields__},
        )

    def draw(path: Path) -> None:
        from graphopt.pipeline.context import Progress

        with SearchProgress(shown=not quiet, verbose=verbose) as progress:
            progress(Progress("report", "writing the report"))
            result.write_page(path, hurried=interrupt.requested)

    # The model is written. What cost the most to find out comes first, and nothing that fails keeps the rest away.
    each(
        None if quiet else lambda: show(result.report, interrupted=interrupt.requested, verbose=verbose, page=report),
        None if json is None else lambda: write_json(result.report, json),
        None if trace is None else lambda: result.trace.write(trace),
        None if report is None else lambda: draw(report),
    )
    if check and not result.report["kept_original"] and not result.report.get("tie"):
        raise TooSlowError(many.could(model, result.report), f"graphopt optimize {word(str(model))}")


def show(
    report: Mapping[str, Any], *, interrupted: bool = False, verbose: bool = False, page: Path | None = None
) -> None:
    """Print a report of `graphopt.optimize` for people, on stderr, and where its page lies."""
    screen = console()
    for warning in report["warnings"]:
        screen.print(f"warning: {one_line(warning)}", style="yellow", soft_wrap=True)
    screen.print(_numbers(report))
    screen.print()
    screen.print(_story(report, interrupted=interrupted, page=page, verbose=verbose))
    for part in (_families(report), _steps(report)) if verbose else ():
        if part.row_count:
            screen.print()
            screen.print(part)
    advice = _next(report, page=page)
    if advice.row_count:
        screen.print()
        screen.print(advice)


def _next(report: Mapping[str, Any], *, page: Path | None) -> Table:
    """What to do with the result: look at it, tune the session, find out which rule gained what."""
    result = facts()
    written, source, there = report["output"], report["input"], _there(report)
    converted = report.get("converted", False)
    if page is None and report["steps"] and source:
        upgrade = " --upgrade" if converted else ""
        result.add_row("see what changed", f"graphopt optimize {word(source)}{upgrade}{there} --report page.html")
    if converted:
        source = written  # other commands don't take such a model
    if written and not report["kept_original"]:
        if not is_stream(Path(written)):  # what went down a pipe is not there to be read
            result.add_row("which rule made what", f"graphopt explain {word(written)}")
        result.add_row("session options worth using", f"graphopt bench {word(source or written)}{there} --tune-session")
    elif report["kept_original"] and source:
        result.add_row("settings may gain instead", f"graphopt bench {word(source)}{there} --tune-session")
    return result


def _there(report: Mapping[str, Any]) -> str:
    """What says on the command line that it is about another provider than the CPU's; empty for that."""
    if report["provider"] == "cpu":
        return ""
    given = (f" --provider-option {word(f'{key}={value}')}" for key, value in report["provider_options"].items())
    return f" --provider {word(report['provider'])}" + "".join(given)


def _numbers(report: Mapping[str, Any]) -> Table:
    """Before and after."""
    result = table("", "before", "after", "change", numbers=3)
    latency = report["latency"]
    if latency and report["kept_original"]:  # what was measured against it is not what was written
        same = milliseconds(latency["baseline_ms"])
        result.add_row("latency", same, same, "same")
    elif latency:
        result.add_row(
            "latency",
            milliseconds(latency["baseline_ms"]),
            milliseconds(latency["optimized_ms"]),
            f"{latency['speedup']:.3f}x",
        )
    opening, memory = report.get("opening"), report.get("memory")
    if opening and not report["kept_original"]:
        opens = milliseconds(opening["before_ms"]), milliseconds(opening["after_ms"])
        result.add_row("opening", *opens, f"{opening['ratio']:.3f}x")
    nodes, sizes = report["nodes"], report["size"]
    result.add_row("nodes", str(nodes["before"]), str(nodes["after"]), change(nodes["before"], nodes["after"]))
    result.add_row("size", size(sizes["before"]), size(sizes["after"]), change(sizes["before"], sizes["after"]))
    if memory:
        peaks = memory["before"], memory["after"]
        result.add_row("peak memory", *map(size, peaks), change(*peaks))
    return result


def _story(report: Mapping[str, Any], *, interrupted: bool, page: Path | None, verbose: bool) -> Table:
    """What was done, checked and written."""
    result = facts()
    result.add_row("speed", _speed(report))
    if lost := report["search"].get("lost"):
        result.add_row("", wording.lost(lost))
    sizes = wording.measured_at(report)
    if sizes and report["latency"]:
        result.add_row("measured", f"with {sizes}")
    for there in report.get("elsewhere", ()):
        result.add_row("", wording.measured(there))
    result.add_row("threads", f"all cores: {report['threads']}" if report["all_cores"] else f"{report['threads']}")
    rules = sorted(report["rules"].items(), key=lambda item: (-item[1], item[0]))
    result.add_row("rules", ", ".join(f"{rule} x{count}" for rule, count in rules) or "none applied")
    placement = report["placement"]
    if placement:
        result.add_row("placement", wording.placement(placement))
        result.add_row("timing", wording.timing(report["timing"]))
    verified = report["verified"]
    if verified:
        verdict = "same outputs" if verified["passed"] else "OUTPUTS DIFFER"
        where = f" at {one_line(wording.dimensions(verified['sizes']))}" if verified.get("sizes") else ""
        result.add_row(
            "verified",
            f"{verdict} in {plural(verified['trials'], 'trial')}{where}, largest error "
            f"{_error(verified['max_abs'])} absolute, {_error(verified['max_rel'])} relative"
            + (f"; {one_line(verified['message'])}" if verified.get("message") else ""),
        )
    search = report["search"]
    result.add_row(
        "search",
        f"{report['strategy']}, {plural(search['candidates'], 'candidate')} in {seconds(search['seconds'])}, "
        f"ended: {one_line(str(search['stop_reason']))}",
    )
    if verbose and report.get("effort"):
        result.add_row("effort", wording.effort(report["effort"]))
    if search["more"]:
        result.add_row("with more", f"{'; '.join(search['more'])}: see --budget")
    result.add_row("took", f"{seconds(report['seconds'])} in all")
    if interrupted:
        found = (
            "nothing faster was found until then" if report["kept_original"] else "this is the best found until then"
        )
        checked = ", verified" if verified and not report["kept_original"] else ""
        result.add_row("stopped", f"by Ctrl-C: {found}{checked}")
    unchanged = ", the same as the input" if report["kept_original"] else ""
    if unchanged and report.get("converted"):
        unchanged = ", the input in a later operator set"
    result.add_row("written", one_line(report["output"]) + unchanged if report["output"] else "nothing (dry run)")
    if page is not None:
        result.add_row("report", one_line(str(page)))
    return result


def _speed(report: Mapping[str, Any]) -> str:
    """One sentence on the measurement, which never claims more than the interval does."""
    latency = report["latency"]
    if not latency:
        return "no rewrite pays; the original is kept" if report["kept_original"] else "not measured"
    spread = f" (95 % interval {wording.interval(latency['ci95'])}, {plural(latency['rounds'], 'round')})"
    if report.get("tie"):
        return f"{wording.tie(report)}: {latency['speedup']:.3f}x{spread}"
    if report["kept_original"]:
        found = f"{latency['speedup']:.3f}x{spread}"
        if slower := wording.slower_at(report.get("elsewhere", ())):
            return f"slower at some of the sizes, where the best candidate measured {slower}; the original is kept"
        said = latency.get("verdict", "equal")
        if said == "unclear":
            return f"too noisy to tell: a candidate measured {found}; the original is kept"
        return f"no faster graph found, the best candidate measured {found}; the original is kept"
    if latency["ci95"][0] > 1:
        return f"{latency['speedup']:.3f}x as fast" + spread
    return f"{latency['speedup']:.3f}x, not distinguishable from the original" + spread


def _families(report: Mapping[str, Any]) -> Table:
    """What measurement said of each family of rules."""
    result = table("family", "speed with it", "95 % interval", "verdict", numbers=3)
    for family in report["families"]:
        ratio, interval = family["ratio"], family["ci95"]
        result.add_row(
            family["family"],
            "not measured" if ratio is None else f"{ratio:.3f}x",
            "" if interval is None else wording.interval(interval),
            "kept" if family["kept"] else "taken back: wrong results" if family["wrong"] else "taken back",
        )
    return result


def _steps(report: Mapping[str, Any]) -> Table:
    """Every rewrite on the way to the result."""
    result = table("step", "rule", "at", "cost before", "cost after", numbers=2)
    for number, step in enumerate(report["steps"], start=1):
        before, after = (f"{step[key]:.4g}" if step[key] else "-" for key in ("cost_before", "cost_after"))
        result.add_row(str(number), breakable(step["rule"]), one_line(str(step["site"]), 60), before, after)
    return result


def _error(value: float | None) -> str:
    return "-" if value is None else f"{value:.1e}" if value else "0"
