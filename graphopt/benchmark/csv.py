"""The results as one table of plain values: a row for each variant of each case."""

from __future__ import annotations

from typing import Any

from graphopt.benchmark.results import Bench, Case, Variant
from graphopt.wording import csv_table, sized


def to_csv(bench: Bench) -> str:
    """The results as CSV, with a head; what was not measured is empty."""
    rows = [_row(case, variant) for case in bench.cases for variant in case.variants]
    # An empty benchmark still has its head.
    heads = _row(Case("", "", "", 0, ()), Variant("", "level"))
    return csv_table(list(heads), rows)


def _row(case: Case, variant: Variant) -> dict[str, Any]:
    v, ratio, latency, check, best = variant, variant.ratio, variant.latency, variant.check, variant.over_best
    return {
        "model": case.model,
        "provider": case.provider,
        "threads": case.threads,
        "variant": v.name,
        "kind": v.kind,
        "level": v.level,
        "status": v.status,
        "ratio": ratio and ratio.value,
        "low": ratio and ratio.low,
        "high": ratio and ratio.high,
        "verdict": ratio and ratio.verdict,
        "best_level": case.best_level,
        "over_best": best and best.value,
        "over_best_low": best and best.low,
        "over_best_high": best and best.high,
        "p50_ms": latency and latency.p50_ms,
        "p90_ms": latency and latency.p90_ms,
        "p95_ms": latency and latency.p95_ms,
        "p99_ms": latency and latency.p99_ms,
        "open_ms": v.open_ms,
        "size_bytes": v.size,
        "peak_bytes": v.peak,
        "nodes": v.nodes,
        "optimise_s": v.optimise_s,
        "version": v.version,
        "same": check and check.passed,
        "max_abs": check and check.max_abs,
        "max_rel": check and check.max_rel,
        "sessions": case.sessions,
        "rounds": case.rounds,
        "sizes": sized(case.sizes),
        "all_cores": case.all_cores,
        "message": v.message,
    }
