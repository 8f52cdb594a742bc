"""What a benchmark found: frozen records, and the one document (``graphopt.bench/1``) that holds them.

Times are in milliseconds where a name ends in ``_ms``, in seconds where it ends in ``_s``. A ratio is the time of the
baseline over that of the variant: above 1 the variant is faster. A field that was not measured is None.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from graphopt.runtime.timing import Ratio
from graphopt.wording import csv_table, plural, sized

SCHEMA = "graphopt.bench/1"
SAMPLES = 500
"""Latency samples kept of a variant, at most."""

Kind = Literal["level", "peer", "file", "graphopt", "rival"]
Status = Literal["measured", "missing", "failed", "differs", "skipped"]


@dataclass(frozen=True)
class Latency:
    """The times of single runs.

    Attributes:
        p50_ms: The median.
        p90_ms: The 90th percentile.
        p95_ms: The 95th percentile.
        p99_ms: The 99th percentile.
        samples_ms: At most :data:`SAMPLES` of them, in the order of their size.
    """

    p50_ms: float
    p90_ms: float
    p95_ms: float
    p99_ms: float
    samples_ms: tuple[float, ...] = ()


@dataclass(frozen=True)
class Check:
    """The comparison of a variant's outputs with those of the original.

    Attributes:
        passed: Whether they agree.
        trials: Sets of inputs.
        max_abs: Largest difference of an element; None where one is not finite.
        max_rel: The same relative to the largest element of its output.
        message: What is wrong or worth knowing.
    """

    passed: bool
    trials: int
    max_abs: float | None
    max_rel: float | None
    message: str = ""


@dataclass(frozen=True)
class Operator:
    """The time of all nodes of an operator, in the graph that the runtime runs.

    Attributes:
        op: The operator.
        count: How many nodes.
        ms: Their time in one run.
        share: Its share of the time of all nodes, 0 to 1.
    """

    op: str
    count: int
    ms: float
    share: float


@dataclass(frozen=True)
class Step:
    """A rewrite of the search.

    Attributes:
        rule: Id of the rule.
        site: Name of the node where it was applied.
        before_ms: Predicted cost of the whole model before it.
        after_ms: The same after it.
        family: Family of the rule.
    """

    rule: str
    site: str
    before_ms: float
    after_ms: float
    family: str


@dataclass(frozen=True)
class Family:
    """What the clock said of a family of rules, within the search.

    Attributes:
        name: The family.
        ratio: Time without it over time with it; None where it was not measured.
        low: Lower end of the 95 % interval.
        high: Its upper end.
        kept: Whether its rewrites stayed.
    """

    name: str
    ratio: float | None
    low: float | None
    high: float | None
    kept: bool


@dataclass(frozen=True)
class Search:
    """How graphopt came to its variant.

    Attributes:
        strategy: How it searched.
        candidates: Graphs that were priced.
        seconds: Time of the search without its measurements.
        stop_reason: Why it ended.
        kept_original: Whether the variant is the input, unchanged.
        steps: The rewrites in order; kept here also when they were given up in the end.
        families: What measurement said of the families of rules.
        curve: Whenever it found something better: the number of its round, seconds since it began, predicted milliseconds.
    """

    strategy: str
    candidates: int
    seconds: float
    stop_reason: str
    kept_original: bool
    steps: tuple[Step, ...] = ()
    families: tuple[Family, ...] = ()
    curve: tuple[tuple[float, ...], ...] = ()


@dataclass(frozen=True)
class Placed:
    """Where the nodes of a variant run, on another provider than the CPU.

    Attributes:
        nodes: How many by provider.
        elsewhere: The operators that the provider left to others, and how many of each.
        device: The memory that inputs and outputs stay in while it is timed.
        copies: Whether copies from and to the device are part of the times.
    """

    nodes: Mapping[str, int]
    elsewhere: Mapping[str, int]
    device: str
    copies: bool


@dataclass(frozen=True)
class Variant:
    """One way to run a model.

    Attributes:
        name: ``original``, ``original (basic)``, ``onnxsim``, ``graphopt greedy``, a file ...
        kind: The original at a ``level`` of the runtime, a ``peer``, another ``file``, ``graphopt``, or the original in another
            runtime, a ``rival``.
        level: The runtime's optimisation level it runs at.
        status: ``measured``; ``missing`` (not installed), ``failed``, ``differs`` (computes something else, so that
            its speed means nothing) or ``skipped``.
        message: Why it was not measured, or what is worth knowing.
        ratio: Speed relative to the original at level ``all``; None for that itself.
        over_best: The same relative to the best of the runtime's levels, where that is not ``all``.
        latency: Times of single runs.
        open_ms: Median time to create a session; of a rival, to open and compile the model, once.
        size: Bytes of the file and of its weights in other files.
        peak: Peak memory in bytes of a process that only loads and runs it.
        nodes: Nodes in the file.
        optimise_s: Time the tool took to make it.
        version: Version of the tool that made it.
        check: The comparison with the original.
        placed: Where its nodes run; None on the CPU, which runs them all.
        operators: Where the time goes, for the original and graphopt's variants.
        search: The search, for graphopt's variants.
    """

    name: str
    kind: Kind
    level: str = "all"
    status: Status = "skipped"
    message: str = ""
    ratio: Ratio | None = None
    over_best: Ratio | None = None
    latency: Latency | None = None
    open_ms: float | None = None
    size: int | None = None
    peak: int | None = None
    nodes: int | None = None
    optimise_s: float | None = None
    version: str | None = None
    check: Check | None = None
    placed: Placed | None = None
    operators: tuple[Operator, ...] = ()
    search: Search | None = None


@dataclass(frozen=True)
class Trial:
    """A setting of the session that was tried.

    Attributes:
        name: What people call it.
        options: It, as options of the session (see :func:`graphopt.benchmark.tune.session_options`).
        ratio: Speed relative to the same without it; for all but threads, with the best number of threads.
        message: Why it is not advised in spite of its ratio.
    """

    name: str
    options: Mapping[str, Any]
    ratio: Ratio
    message: str = ""


@dataclass(frozen=True)
class Tuning:
    """Settings of the session worth using.

    Attributes:
        variant: Name of the variant they were measured on.
        tried: All settings.
        advised: Names of those worth using.
        options: All advised ones together as options of the session; empty if none is.
        ratio: Speed with all of them relative to the setting of the benchmark.
        python: The same as Python.
    """

    variant: str
    tried: tuple[Trial, ...]
    advised: tuple[str, ...]
    options: Mapping[str, Any]
    ratio: Ratio | None
    python: str


@dataclass(frozen=True)
class Case:
    """A model with a provider and a number of threads.

    Attributes:
        model: Its name: a name of the zoo, or the path as it was given.
        path: The file.
        provider: Short name of the execution provider.
        threads: Threads within an operator.
        variants: The original first, then the others in the order they were asked for.
        best_level: The runtime's level that is fastest on the original: ``all`` unless another is clearly faster.
        sessions: Sessions opened of each variant.
        rounds: Rounds over all sessions.
        measured_s: Time of the measurement.
        noisy: Names of the variants whose interval stayed wider than the precision asked for.
        environment: What the figures hold for: processor, runtime, threads.
        tuning: The session's settings, if asked for.
        sizes: Those at which dimensions that the model leaves open were measured.
        assumed: Which of them nobody chose.
        all_cores: Whether the runtime chose the number of threads.
    """

    model: str
    path: str
    provider: str
    threads: int
    variants: tuple[Variant, ...]
    best_level: str = "all"
    sessions: int = 0
    rounds: int = 0
    measured_s: float = 0.0
    noisy: tuple[str, ...] = ()
    environment: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    tuning: Tuning | None = None
    sizes: Mapping[str, int] = dataclasses.field(default_factory=dict)
    assumed: tuple[str, ...] = ()
    all_cores: bool = False

    @property
    def baseline(self) -> Variant:
        """The original at level ``all``."""
        return self.variants[0]

    def of_kind(self, kind: Kind) -> list[Variant]:
        """The variants of a kind."""
        return [v for v in self.variants if v.kind == kind]


@dataclass(frozen=True, repr=False)
class Bench:
    """A whole benchmark.

    Attributes:
        cases: One for each model, provider and number of threads.
        precision: How far an interval may reach from its middle, relative.
        interrupted: Whether it was ended early; the cases are those measured until then.
        seconds: How long it took.
        version: Version of graphopt.
    """

    cases: tuple[Case, ...]
    precision: float
    interrupted: bool = False
    seconds: float = 0.0
    version: str = ""

    def __repr__(self) -> str:
        early = ", ended early" if self.interrupted else ""
        return f"<Bench {', '.join(case.model for case in self.cases[:3])}: {plural(len(self.cases), 'case')}{early}>"

    def to_dict(self) -> dict[str, Any]:
        """The document, ready for JSON."""
        return {"schema": SCHEMA, **dataclasses.asdict(self)}


def finite(value: float) -> float | None:
    """A number, or None for one that JSON can't hold."""
    return value if math.isfinite(value) else None


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
