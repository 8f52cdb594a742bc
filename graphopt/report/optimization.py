"""The page of one optimisation."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from graphopt.errors import SessionError
from graphopt.ir.graph import Graph
from graphopt.report.changes import compare, places
from graphopt.report.view import Facts, FamilyRow, Page, SearchCurve, StepRow, Subject, Variant
from graphopt.runtime.profile import by_op, profile
from graphopt.runtime.timing import Paired, Ratio
from graphopt.search.arena import Arena
from graphopt.search.selection import FamilyVerdict, Selection
from graphopt.wording import (
    change,
    dimensions,
    effort,
    interval,
    lost,
    measured_at,
    milliseconds,
    placement,
    plural,
    seconds,
    size,
    sized,
    slower_at,
    threads,
    tie,
    timing,
)

_PROFILED_S = 1.5  # for the profile of each of the two models
_RUNS = 50  # of a profile at most
_KERNELS = 40_000  # that a profile may list, all runs together: to read one takes 35 microseconds

_ENVIRONMENT = {
    "cpu": "Processor",
    "isa": "Instruction sets",
    "cores": "Processors usable",
    "threads": "Threads within an operator",
    "provider": "Execution provider",
    "provider_options": "Options of the provider",
    "package": "Package of the provider",
    "device": "Device",
    "level": "Optimisation level of the runtime",
    "onnxruntime": "ONNX Runtime",
    "system": "System",
}


@dataclass(frozen=True, eq=False)
class Found:
    """What an optimisation found, besides the figures in its JSON report.

    Attributes:
        selection: What the search and the measurement of families left.
        paired: The final measurement, ``None`` when nothing was measured.
        before: The graph of the input.
        after: The graph that was measured, written or not.
        curve: Whenever the search found something better, when it began and when it ended: the number of the round (its
            prices can't be compared with those of another), seconds, predicted milliseconds.
    """

    selection: Selection
    paired: Paired | None
    before: Graph
    after: Graph
    curve: tuple[tuple[int, float, float], ...]


def write_report(path: Path, told: Mapping[str, Any], found: Found, arena: Arena, *, hurried: bool = False) -> None:
    """Profile both models, if they were measured and it is not hurried, and write the page of an optimisation.

    Raises:
        GraphoptError: The file can't be written.
    """
    from graphopt.report.render import write_page  # brings the template engine, which only a page needs

    subject = subject_of(told, found)
    if found.paired is not None and not hurried:
        listed = _KERNELS // max(1, len(found.before.nodes))
        runs = max(1, min(_RUNS, listed, round(1e3 * _PROFILED_S / found.paired.baseline_ms)))
        graphs = None, found.after
        try:
            profiles = [by_op(profile(arena.loadable(graph), arena.feeds, arena.config, runs)) for graph in graphs]
        except SessionError as error:
            subject = replace(subject, notes=(*subject.notes, f"no times by operator: {error}"))
        else:
            pairs = zip(subject.variants, profiles, strict=True)
            subject = replace(subject, variants=tuple(replace(v, operators=tuple(rows)) for v, rows in pairs))
    what = "kept as it is" if told["kept_original"] else "optimised"
    write_page(Page(f"{subject.name}, {what}", (subject,), environment_of(told)), path)


def subject_of(told: Mapping[str, Any], found: Found) -> Subject:
    """An optimisation as a subject of a page, without times by operator."""
    name = Path(told["input"]).name if told["input"] else "model"
    outcome = found.selection.outcome
    other = "candidate, not written" if told["kept_original"] else "optimised"
    graph = compare(found.before, found.after, outcome.steps, names=("original", other))
    where = places(graph)
    steps = tuple(
        StepRow(s.rule, s.family, s.node, s.cost_before, s.cost_after, where.get(s.node)) for s in outcome.steps
    )
    families = tuple(
        FamilyRow(v.family, None if v.ratio is None or v.ci95 is None else Ratio.of(v.ratio, v.ci95), _fate(v))
        for v in found.selection.families
    )
    return Subject(
        name=name,
        summary=_sentence(name, told, found.paired),
        facts=_facts(told),
        variants=() if found.paired is None else _variants(told, found.paired, other),
        curves=_curves(told["strategy"], found),
        steps=steps,
        families=families,
        graph=graph,
        notes=tuple(told["warnings"]),
    )


def _fate(verdict: FamilyVerdict) -> str:
    return "kept" if verdict.kept else "taken back: wrong results" if verdict.wrong else "taken back"


def _curves(strategy: str, found: Found) -> tuple[SearchCurve, ...]:
    """A curve for each round of the search, none when no round found anything."""
    rounds: dict[int, list[tuple[float, float]]] = {}
    ends: dict[int, float] = {}
    for number, second, cost in found.curve:
        points = rounds.setdefault(number, [])
        if not points or cost < points[-1][1]:
            points.append((second, cost))
        ends[number] = second
    if all(len(points) == 1 for points in rounds.values()):
        return ()
    names = {number: strategy if number == 1 else f"{strategy}, round {number}" for number in rounds}
    return tuple(SearchCurve(names[n], tuple(points), ends[n]) for n, points in rounds.items())


def _variants(told: Mapping[str, Any], paired: Paired, other: str) -> tuple[Variant, Variant]:
    samples = [tuple(map(float, column)) for column in paired.samples.T]
    nodes, sizes, written = told["nodes"], told["size"], not told["kept_original"]
    opening, memory = told.get("opening") or {}, told.get("memory") or {}
    return (
        Variant(
            "original",
            True,
            samples[0],
            nodes=nodes["before"],
            file_bytes=sizes["before"],
            session_ms=opening.get("before_ms"),
            peak_bytes=memory.get("before"),
        ),
        Variant(
            other,
            False,
            samples[1],
            paired.ratio,
            nodes=nodes["after"] if written else None,
            file_bytes=sizes["after"] if written else None,
            session_ms=opening.get("after_ms"),
            peak_bytes=memory.get("after"),
        ),
    )


def _sentence(name: str, told: Mapping[str, Any], paired: Paired | None) -> str:
    """What was measured and how, and never more than the interval says."""
    environment = told["environment"]
    where = (
        f"ONNX Runtime {environment['onnxruntime']} at ORT_ENABLE_{environment['level'].upper()}, "
        f"{environment['provider']} provider, {threads(told['threads'], all_cores=told['all_cores'])}, "
        f"{environment['device'] or environment['cpu']}"
    )
    if told["timing"]:
        where += f"; {timing(told['timing'])}"
    if paired is None:
        if told["kept_original"]:
            return f"No rewrite is predicted to make {name} faster, so it is kept as it is and nothing was measured; {where}."
        return (
            f"{name} was rewritten but not measured: every gain on this page is predicted. {_agreement(told)} {where}."
        )
    spread = f"(95 % interval {interval(paired.ci95)})"
    if measured_at(told):
        where += f"; measured with {sized(told['sizes'])}"
    how = (
        f"original and candidate took turns over {plural(paired.rounds, 'round')} in "
        f"{plural(paired.sessions, 'session')} of each; {where}."
    )
    if told["kept_original"]:
        why = f"which is {'too noisy to tell' if paired.ratio.verdict == 'unclear' else 'not surely faster'}"
        if slower := slower_at(told.get("elsewhere", ())):
            why = f"but {slower}"
        head = f"{name} is kept as it is, because the best candidate ran {paired.speedup:.3f} times as fast {spread}, {why}:"
    else:
        head = f"{name} runs {paired.speedup:.3f} times as fast as before {spread}:"
        if told.get("tie"):
            head = f"{name} is simpler now ({tie(told)}), and ran {paired.speedup:.3f} times as fast {spread}:"
    return f"{head} {how} {_agreement(told)}"


def _agreement(told: Mapping[str, Any]) -> str:
    verified = told["verified"]
    if not verified:
        return "Outputs were not compared."
    error = f"{verified['max_abs']:.1e} absolute, {verified['max_rel']:.1e} relative"
    where = f" ({dimensions(verified['sizes'])})" if verified.get("sizes") else ""
    note = f" ({verified['message']})" if verified.get("message") else ""
    return f"Outputs agree on {verified['trials']} sets of inputs{where}, the largest error is {error}{note}."


def _facts(told: Mapping[str, Any]) -> Facts:
    facts = []
    latency, nodes, sizes, search = told["latency"], told["nodes"], told["size"], told["search"]
    if latency:
        of = " of the candidate" if told["kept_original"] else ""
        facts.append((f"Speed-up{of}", f"{latency['speedup']:.3f}\N{MULTIPLICATION SIGN}"))
        times = milliseconds(latency["baseline_ms"]), milliseconds(latency["optimized_ms"])
        facts.append((f"Latency{of}", _arrow(*times)))
    if measured_at(told):
        facts.append(("Measured with", measured_at(told)))
    for there in told.get("elsewhere", ()):
        said = f"{there['speedup']:.3f}\N{MULTIPLICATION SIGN} ({interval(there['ci95'])}), {there['verdict']}"
        facts.append((f"At {sized(there['sizes'])}", said))
    facts.append(("Nodes in the file", _arrow(str(nodes["before"]), str(nodes["after"]))))
    grown = change(sizes["before"], sizes["after"])
    facts.append(("File size", f"{_arrow(size(sizes['before']), size(sizes['after']))} ({grown})"))
    made = f"{len(told['steps'])} tried, none kept" if told["kept_original"] and told["steps"] else "none"
    if told["rules"]:
        made = f"{sum(told['rules'].values())} by {plural(len(told['rules']), 'rule')}"
    opening, memory = told.get("opening"), told.get("memory")
    if opening and not told["kept_original"]:
        facts.append(("Opening", _arrow(milliseconds(opening["before_ms"]), milliseconds(opening["after_ms"]))))
    if memory:
        facts.append(("Peak memory", _arrow(size(memory["before"]), size(memory["after"]))))
    facts.append(("Rewrites", made))
    facts.append(("Search", f"{plural(search['candidates'], 'candidate')} in {seconds(search['seconds'])}"))
    facts.append(("Search ended", search["stop_reason"]))
    if search.get("lost"):
        facts.append(("Written", lost(search["lost"])))
    if told.get("effort"):
        facts.append(("Effort", effort(told["effort"])))
    if search["more"]:
        facts.append(("With more time", "; ".join(search["more"])))
    if told["placement"]:
        facts.append(("Where nodes run", placement(told["placement"])))
    facts.append(("All in all", seconds(told["seconds"])))
    return tuple(facts)


def _arrow(before: str, after: str) -> str:
    return before if before == after else f"{before} \N{RIGHTWARDS ARROW} {after}"


def environment_of(told: Mapping[str, Any]) -> Facts:
    """Where an optimisation was measured, and by what."""
    from graphopt.version import __version__

    facts = environment_facts(told["environment"])
    return (*facts, ("graphopt", __version__), ("Strategy", told["strategy"]), ("Seed", str(told["seed"])))


def environment_facts(environment: Mapping[str, Any]) -> Facts:
    """Where something was measured."""
    return tuple((_ENVIRONMENT.get(key, key), _listed(value)) for key, value in environment.items() if value)


def _listed(value: Any) -> str:
    if isinstance(value, Mapping):
        value = [f"{key}={each}" for key, each in value.items()]
    return ", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
