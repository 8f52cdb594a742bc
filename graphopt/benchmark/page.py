"""The page of a benchmark."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from graphopt.benchmark.results import Bench, Case, Search, Variant
from graphopt.pipeline.write import Result
from graphopt.report import view
from graphopt.report.changes import compare, places
from graphopt.report.optimization import environment_facts
from graphopt.report.view import FamilyRow, GraphView, Page, SearchCurve, StepRow, Subject
from graphopt.runtime.environment import threads_used
from graphopt.runtime.profile import OpTime
from graphopt.runtime.session import SessionConfig
from graphopt.runtime.timing import Ratio
from graphopt.wording import sized, threads

Graphs = dict[tuple[str, str, int, str], GraphView]
"""What graphopt did to a graph, by model, provider, threads and name of the variant: too large for the JSON document."""


def collector(graphs: Graphs) -> Callable[[str, SessionConfig, str, Result], None]:
    """Takes what `bench` makes of each model and keeps what the page shows of its graphs."""

    def take(model: str, config: SessionConfig, variant: str, result: Result) -> None:
        found = result.found
        name = f"{variant}, not written" if result.report["kept_original"] else variant
        graph = compare(found.before, found.after, found.selection.outcome.steps, names=("original", name))
        graphs[model, config.provider, threads_used(config), variant] = graph

    return take


def write_bench_page(found: Bench, graphs: Mapping[tuple[str, str, int, str], GraphView], path: Path) -> None:
    """Write a benchmark as a page, with what :func:`collector` kept of its graphs.

    Raises:
        GraphoptError: The file can't be written.
    """
    from graphopt.report.render import write_page  # brings the template engine, which only a page needs

    several = len({(case.provider, case.threads) for case in found.cases}) > 1
    subjects = [_subject(case, graphs, several) for case in found.cases]
    first = found.cases[0] if found.cases else None
    notes = ("The benchmark was ended early: what is here was measured until then.",) if found.interrupted else ()
    facts = environment_facts(first.environment) if first is not None and not several else ()
    title = f"Benchmark of {subjects[0].name}" if len(subjects) == 1 else f"Benchmark of {len(subjects)} models"
    write_page(Page(title, subjects, (*facts, ("graphopt", found.version)), notes=notes), path)


def _subject(case: Case, graphs: Mapping[tuple[str, str, int, str], GraphView], several: bool) -> Subject:
    """A case as a subject. Steps and graph are those of graphopt's fastest variant."""
    name = Path(case.model).name
    ours = [v for v in case.of_kind("graphopt") if v.search is not None]
    best = max(ours, key=lambda v: v.ratio.value if v.ratio else 0.0, default=None)
    graph = None if best is None else graphs.get((case.model, case.provider, case.threads, best.name))
    notes = [f"Intervals that stayed wider than asked for: {', '.join(case.noisy)}."] if case.noisy else []
    if case.best_level != "all":
        notes.append(f"On the original the runtime's level {case.best_level} is faster than all.")
    if case.tuning is not None and case.tuning.advised:
        notes.append(f"Settings worth using on {case.tuning.variant}: {', '.join(case.tuning.advised)}.")
    return Subject(
        name=f"{name}, {case.provider}, {threads(case.threads, all_cores=case.all_cores)}" if several else name,
        summary=_sentence(name, case, best),
        variants=tuple(_variant(v, i == 0) for i, v in enumerate(case.variants)),
        curves=tuple(curve for v in ours if v.search is not None for curve in _curves(v.name, v.search)),
        steps=() if best is None or best.search is None else _steps(best.search, graph),
        families=() if best is None or best.search is None else _families(best.search),
        graph=graph,
        notes=tuple(notes),
        single=True,
    )


def _sentence(name: str, case: Case, best: Variant | None) -> str:
    where = case.environment
    at = f" with {sized(case.sizes)}" if case.sizes else ""
    how = (
        f"{len(case.variants)} variants took turns{at} over {case.rounds} rounds in {case.sessions} sessions of each; "
        f"ONNX Runtime {where['onnxruntime']}, {case.provider} provider, {threads(case.threads, all_cores=case.all_cores)}, {where['cpu']}."
    )
    if best is None or best.ratio is None:
        return f"{name}: {how}"
    ratio = best.ratio
    if best.search is not None and best.search.kept_original:
        return f"{best.name} found nothing that is surely faster, and left {name} unchanged: {how}"
    said = f"{best.name} runs {name} {ratio.value:.3f} times as fast as ORT_ENABLE_ALL alone"
    return f"{said} (95 % interval {ratio.low:.3f} to {ratio.high:.3f}, {ratio.verdict}): {how}"


def _variant(v: Variant, baseline: bool) -> view.Variant:
    return view.Variant(
        v.name,
        baseline,
        () if v.latency is None else v.latency.samples_ms,
        v.ratio,
        v.nodes,
        v.size,
        v.open_ms,
        v.peak,
        v.optimise_s,
        tuple(OpTime(o.op, o.count, o.ms, o.share) for o in v.operators),
        v.message if v.status == "measured" else f"{v.status}: {v.message}",
    )


def _curves(name: str, search: Search) -> list[SearchCurve]:
    """A curve for each round: prices of different rounds can't be compared."""
    rounds: dict[int, list[tuple[float, float]]] = {}
    for number, second, cost in search.curve:
        rounds.setdefault(int(number), []).append((second, cost))
    return [
        SearchCurve(name if number == 1 else f"{name}, round {number}", tuple(points), points[-1][0])
        for number, points in rounds.items()
    ]


def _steps(search: Search, graph: GraphView | None) -> tuple[StepRow, ...]:
    where = {} if graph is None else places(graph)
    return tuple(StepRow(s.rule, s.family, s.site, s.before_ms, s.after_ms, where.get(s.site)) for s in search.steps)


def _families(search: Search) -> tuple[FamilyRow, ...]:
    return tuple(
        FamilyRow(
            f.name,
            None if f.ratio is None or f.low is None or f.high is None else Ratio.of(f.ratio, (f.low, f.high)),
            "kept" if f.kept else "taken back",
        )
        for f in search.families
    )
