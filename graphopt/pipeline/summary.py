"""What an optimisation tells of itself, ready for JSON."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from graphopt.ir.graph import Graph
from graphopt.onnxio.bodies import all_nodes
from graphopt.pipeline.context import Context
from graphopt.pipeline.judge import Judged
from graphopt.pipeline.opening import shaped_sizes
from graphopt.runtime.environment import disturbs, fingerprint, threads_used, usable_cores
from graphopt.runtime.placement import Placement
from graphopt.runtime.session import Session, SessionConfig
from graphopt.runtime.timing import Paired
from graphopt.search.arena import Arena
from graphopt.search.selection import FamilyVerdict, Selection
from graphopt.verification.numeric import Verification
from graphopt.wording import plural, slower_at

SCHEMA = "graphopt.report/1"


def summarise(context: Context, judged: Judged) -> dict[str, Any]:
    """The report of an optimisation, ready for JSON. What goes into it is explained where it comes from: :class:`graphopt.pipeline.judge.Judged`."""
    settings, config, kept, paired = context.settings, context.config, judged.kept, judged.paired
    verified, sizes = judged.verified, context.sizes
    selection, verification = verified.selection, verified.verification
    untouched = selection is verified.searched.selection  # nothing was taken back since
    outcome, placements = selection.outcome, _placements(context.arena, None if kept else judged.graph)
    elsewhere = [{"sizes": dict(there), **_latency(found, kept)} for there, found in judged.elsewhere]
    return {
        "schema": SCHEMA,
        "input": str(context.given) if isinstance(context.given, str | Path) else None,
        "output": None if context.targets.output is None else str(context.targets.output),
        "strategy": settings.strategy,
        "provider": config.provider,
        "provider_options": dict(config.provider_options),
        "threads": threads_used(config),
        "all_cores": not config.threads,
        "seed": settings.seed,
        "latency": None if paired is None else _latency(paired, kept),
        "sizes": dict(sizes),
        "sizes_assumed": _assumed(context),
        "elsewhere": elsewhere,
        "kept_original": kept,
        "converted": settings.upgrade and context.original.path is None and isinstance(context.given, str | Path),
        "verified": None if verification is None else _verified(verification),
        "tie": judged.tie,
        "opening": None if paired is None else _opening(paired),
        "memory": None if None in judged.memory else dict(zip(("before", "after"), judged.memory, strict=True)),
        "other_programs": None if judged.others is None else round(judged.others, 2),
        "processors_apart": judged.apart,
        "nodes": {"before": all_nodes(context.original.proto.graph), "after": all_nodes(judged.final.proto.graph)},
        "placement": _placement(placements),
        "timing": None if not placements else {"device": placements[0].device, "copies": placements[0].copies},
        "size": {"before": context.original.nbytes, "after": judged.final.nbytes},
        "rules": {} if kept else dict(Counter(s.rule for s in outcome.steps).most_common()),
        "steps": [
            {
                "rule": s.rule,
                "family": s.family,
                "site": s.node,
                "cost_before": s.cost_before,  # 0 both: a step to the normal form, which is not priced
                "cost_after": s.cost_after,
            }
            for s in outcome.steps
        ],
        "families": [_family(v) for v in selection.families],
        "culprits": [asdict(culprit) for culprit in selection.culprits],
        "search": {
            "candidates": outcome.candidates,
            "seconds": outcome.seconds,
            "stop_reason": outcome.stop_reason,
            "rounds": selection.rounds,
            "predicted": verified.searched.predicted if untouched else None,
            "lost": _lost(judged),
            "more": _more(selection),
        },
        "effort": context.effort.told(),
        "seconds": time.monotonic() - context.began,
        "environment": asdict(fingerprint(config)),
        "warnings": _warnings(judged, config, slower_at(elsewhere)),
    }


def _latency(paired: Paired, kept: bool) -> dict[str, Any]:
    """A measurement. The second time is what the ratio makes of the first: medians of two series do not divide to the median of ratios."""
    return {
        "baseline_ms": paired.baseline_ms,
        "optimized_ms": paired.baseline_ms / paired.speedup,
        "speedup": paired.speedup,
        "ci95": list(paired.ci95),
        "verdict": paired.ratio.verdict,
        "of": "a candidate that was not written" if kept else "the written model",
        "rounds": paired.rounds,
        "sessions": paired.sessions,
    }


def _opening(paired: Paired) -> dict[str, Any] | None:
    """How long a session takes to open, of the models of a measurement."""
    if paired.opening is None or paired.opens is None:
        return None
    before, _ = (float(ms) for ms in np.median(paired.opening, axis=0) * 1e3)
    ratio, interval = paired.opens
    return {"before_ms": before, "after_ms": before / ratio, "ratio": ratio, "ci95": list(interval)}


def _verified(v: Verification) -> dict[str, Any]:
    return {
        "passed": v.passed,
        "trials": v.trials,
        "max_abs": v.max_abs,
        "max_rel": v.max_rel,
        "sizes": [dict(sizes) for sizes in v.sizes],
        "message": v.message,
    }


def _lost(judged: Judged) -> dict[str, Any] | None:
    """What was measured of the plan in whose place the normal form is written."""
    if judged.lost is None:
        return None
    return {"speedup": judged.lost.speedup, "ci95": list(judged.lost.ci95), "sizes": dict(judged.lost_at)}


def _assumed(context: Context) -> list[str]:
    """The dimensions of which nobody said the size."""
    if any(context.inputs):
        return []
    settings = context.settings
    chosen = {*context.bound, *(settings.at[0] if settings.at else ())}
    chosen |= {*shaped_sizes(context.original, context.arena.feeds, settings.input_shapes)}
    return [name for name in context.sizes if name not in chosen]


def _placements(arena: Arena, graph: Graph | None) -> list[Placement]:
    """Where the original's nodes run, and those of the graph; empty on the CPU, where there is nothing to tell."""
    placements: list[Placement] = []
    for each in [] if arena.config.provider == "cpu" else [None] if graph is None else [None, graph]:
        with Session(arena.loadable(each), arena.config) as session:
            placements.append(session.placement)
    return placements


def _placement(placements: Sequence[Placement]) -> dict[str, Any] | None:
    if not placements:
        return None
    return {
        "before": dict(placements[0].nodes),
        "after": dict(placements[-1].nodes),
        "elsewhere": dict(placements[-1].elsewhere),
    }


def _family(v: FamilyVerdict) -> dict[str, Any]:
    interval = None if v.ci95 is None else list(v.ci95)
    return {
        "family": v.family,
        "ratio": v.ratio,
        "ci95": interval,
        "kept": v.kept,
        "wrong": v.wrong,
        "predicted": v.predicted,
    }


def _more(selection: Selection) -> list[str]:
    """What a longer budget would be spent on."""
    found = []
    if selection.outcome.waiting:
        found.append(f"{selection.outcome.waiting} graphs wait to be searched from")
    if selection.outcome.others:
        found.append(f"plans not measured: {len(selection.outcome.others)}")
    unmeasured = [v.family for v in selection.families if v.predicted is None and v.kept]
    if len(selection.families) > 1 and unmeasured:
        found.append(f"not measured apart: {', '.join(unmeasured)}")
    return found


def _warnings(judged: Judged, config: SessionConfig, slower: str) -> list[str]:
    warnings = []
    selection, kept, paired, others = judged.verified.selection, judged.kept, judged.paired, judged.others
    threads = threads_used(config)
    if config.provider == "cpu" and disturbs(others, threads):
        fewer = ", or choose --threads 1, which they disturb less" if threads > 1 else ""
        warnings.append(
            f"other programs took {others:.1f} processors while {plural(threads, 'thread')} of {usable_cores()} processors were measured, "
            f"and small gains don't show beside them: end them{fewer}"
        )
    if judged.apart:
        warnings.append(
            "at times the processors are far from each other, as a virtual machine's may be: what one thread writes then reaches the others "
            "late. The figures are of other times, as far as it could wait for them; a plan may lose at these: choose --threads 1 where that matters"
        )
    graph = selection.outcome.state.graph
    if defaults := sum(graph.values[key].default for key in graph.inputs):
        warnings.append(
            f"{plural(defaults, 'weight')} can be replaced by a caller, as the model lists them as inputs, so nothing is folded into them, "
            "neither here nor by the runtime: --freeze-initializers takes them for constants"
        )
    for c in selection.culprits:
        warnings.append(
            f"step {c.step}, {c.rule} at {c.node}, changes the outputs: family {c.family} taken back ({c.message})"
        )
    blamed = {c.family for c in selection.culprits}
    wrong = [v.family for v in selection.families if v.wrong and v.family not in blamed]
    if wrong:
        warnings.append(f"provider {config.provider} computes something else with {', '.join(wrong)}: taken back")
    if kept and slower:
        warnings.append(f"the best candidate measured {slower}, so the input is kept unchanged")
    elif kept and paired is not None and paired.ratio.verdict == "unclear":
        found = f"{paired.speedup:.2f}x ({paired.ci95[0]:.2f} to {paired.ci95[1]:.2f})"
        warnings.append(
            f"too noisy to tell: the best candidate measured {found}, so the input is kept unchanged; "
            "quiet the machine, or give more time with --budget"
        )
    elif kept:
        gain = "measurable gain" if selection.outcome.steps else "rewrite that saves anything"
        warnings.append(f"no {gain}: the input is kept unchanged")
    elif judged.final.unfolded:
        warnings.append(f"{len(judged.final.unfolded)} constants stay computed so that the file does not grow")
    return warnings
