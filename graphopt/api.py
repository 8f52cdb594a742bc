"""The recipes: optimise, verify, inspect and explain a model."""

from __future__ import annotations

import json
import math
import os
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from html import escape
from pathlib import Path
from typing import Any

import numpy as np
from onnx import ModelProto

from graphopt import __version__
from graphopt.config import agents_dir, check_arguments, provider_name
from graphopt.cost.kernel import KernelCost
from graphopt.cost.store import Store
from graphopt.equivalence.numeric import Verification, sizes_wanted, verify_models
from graphopt.equivalence.ranges import input_ranges
from graphopt.equivalence.sizes import size_hints
from graphopt.errors import (
    CrashError,
    InputsNeededError,
    OutputsDifferError,
    SessionError,
    UnknownNameError,
    UsageError,
)
from graphopt.files import is_stream
from graphopt.ir.graph import Graph
from graphopt.ir.simplify import simplify
from graphopt.onnxio.emit import Emitted, emit, rule_of
from graphopt.onnxio.load import Model, load
from graphopt.onnxio.save import LARGEST_PROTOBUF, Staged, copy, to_proto
from graphopt.report import make_report
from graphopt.report.optimization import Found, write_report
from graphopt.rewrite.library import Library, load_library
from graphopt.runtime import guard
from graphopt.runtime.environment import usable_cores
from graphopt.runtime.feeds import load_npz, make_feeds, measured_sizes, shaped
from graphopt.runtime.placement import Placement
from graphopt.runtime.profile import by_op, profile
from graphopt.runtime.session import LoadableModel, Session, SessionConfig, TensorSpec
from graphopt.runtime.sizes import Symbols, first_that_run, named
from graphopt.runtime.timing import Paired
from graphopt.search.arena import Arena, loadable
from graphopt.search.auto import Auto
from graphopt.search.backtracking import Backtracking, Beam, RandomWalk
from graphopt.search.culprit import Culprit, first_harm
from graphopt.search.greedy import Greedy
from graphopt.search.problem import Budget, Outcome, Problem, State, Strategy
from graphopt.search.select import Better, Selection, leave_out, select, take_back
from graphopt.search.trace import Trace, carry_out
from graphopt.wording import measured_at, plural, sized

STRATEGIES: dict[str, Callable[[float, int], Strategy]] = {
    "auto": lambda alpha, seed: Auto(alpha),
    "greedy": lambda alpha, seed: Greedy(),
    "backtracking": lambda alpha, seed: Backtracking(alpha),
    "beam": lambda alpha, seed: Beam(),
    "random": lambda alpha, seed: RandomWalk(seed=seed),
}
"""Strategies by name, made from the relaxation alpha and a seed."""
LEARNED = ("rl", "world-model")
"""Strategies of trained agents."""
_SLACK = 1 << 20  # bytes that a model may grow besides ``max_growth``
_MEMORY_SLACK = 64 << 20  # bytes that the weights of a session may grow besides ``max_memory_growth``
_PATIENCE_S, _PATIENCE = 30.0, 30  # seconds, and multiples of the original's, for a candidate to be opened or run
_HURRY = 2.0  # seconds for the last measurement after Ctrl-C
_VISIBLE = 1.003  # a measured ratio below which a second look is not worth its time
_LONGEST = 10.0  # seconds for the second look
_OVERTIME = 10.0  # seconds beyond the budget by which a second look must have ended
_THERE = 0.2  # share of the budget for the measurement at another set of sizes
_DEFAULT = 40.0  # seconds at most where no budget is given: with loading, verifying and writing less than a minute


class ThreadsWarning(UserWarning):
    """More threads were asked for than there are processors."""


@dataclass(frozen=True)
class Progress:
    """What an optimisation is doing.

    Attributes:
        stage: ``load``, ``search``, ``verify``, ``measure`` or ``report``.
        message: One line for people.
        fraction: Part of the budget that is used, 0 to 1; ``None`` before the search begins.
        best: The last speed-up measured over the original, when known.
        budget: Seconds for search and measurement; ``None`` before the search begins.
    """

    stage: str
    message: str
    fraction: float | None = None
    best: float | None = None
    budget: float | None = None


@dataclass(frozen=True, eq=False, repr=False)
class Result:
    """An optimised model.

    Attributes:
        report: What was done and measured, ready for JSON (see :func:`graphopt.report.make_report`).
        emitted: The model in two parts, weights by reference.
        original: The input.
        found: What a page shows besides: graphs, steps, samples.
        trace: The steps of the search.
    """

    report: dict[str, Any]
    emitted: Emitted = field(repr=False)
    original: Model = field(repr=False)
    found: Found = field(repr=False)
    trace: Trace = field(repr=False)
    _arena: Arena = field(repr=False)
    _check: Callable[[Path], Verification] = field(repr=False)

    @property
    def speedup(self) -> float | None:
        """How many times as fast as the original the written model is: 1.0 for an input that was kept, None if not measured."""
        if self.report["kept_original"]:
            return 1.0
        latency = self.report["latency"]
        return None if latency is None else float(latency["speedup"])

    def __repr__(self) -> str:
        name = Path(self.report["input"]).name if self.report["input"] else "model"
        return f"<Result {name}: {', '.join(f'{value}' for _, value in self._facts())}>"

    def _repr_html_(self) -> str:
        """A small table, for notebooks."""
        rows = "".join(f"<tr><th>{escape(name)}</th><td>{escape(value)}</td></tr>" for name, value in self._facts())
        return f"<table>{rows}</table>"

    def _facts(self) -> list[tuple[str, str]]:
        told, latency = self.report, self.report["latency"]
        speed = "not measured"
        if told["kept_original"]:
            speed = "kept as it is"
        elif latency is not None:
            low, high = latency["ci95"]
            speed = f"{latency['speedup']:.3f}x ({low:.3f} to {high:.3f})"
        nodes = f"{told['nodes']['before']} to {told['nodes']['after']} nodes"
        rewrites = plural(sum(told["rules"].values()), "rewrite")
        facts = [("speed", speed), ("nodes", nodes), ("rewrites", rewrites)]
        if measured_at(told) and latency is not None:
            facts.append(("measured with", sized(told["sizes"])))
        if told["verified"]:
            facts.append(("outputs", "verified" if told["verified"]["passed"] else "DIFFERENT"))
        return facts

    @cached_property
    def model(self) -> ModelProto:
        """The optimised model."""
        return to_proto(self.emitted, self.metadata)

    def save(self, path: str | Path) -> None:
        """Write the model, whole or not at all; an input that was kept is copied byte for byte.

        Any other file is compared with the original by the runtime before it takes its place.

        Raises:
            GraphoptError: It can't be written.
            OutputsDifferError: What was written does not compute what the original does.
        """
        path, source = Path(path), self.original.path
        external = self.original.external
        beside = (
            source is not None and not is_stream(path) and Path(os.path.realpath(path)).parent.samefile(source.parent)
        )
        if self.report["kept_original"] and source is not None and (beside or not external):
            copy(source, path)
            return
        with Staged(self.emitted, path, external=external, metadata=self.metadata) as staged:
            _require(self._check(staged.path))
            staged.commit(self.metadata)

    def write_page(self, path: Path, *, hurried: bool = False) -> None:
        """Write what was found and measured, as an HTML page.

        Args:
            path: The file.
            hurried: Leave out what takes time: where the time goes by operator.

        Raises:
            GraphoptError: It can't be written.
        """
        write_report(path, self.report, self.found, self._arena, hurried=hurried)

    @property
    def metadata(self) -> dict[str, str]:
        """What is recorded in the written model."""
        return _metadata(self.report)


def _metadata(report: Mapping[str, Any]) -> dict[str, str]:
    if report["kept_original"]:
        return {}
    return {
        "graphopt.version": __version__,
        "graphopt.rules": json.dumps(report["rules"]),
        "graphopt.latency": json.dumps(report["latency"]),
        "graphopt.environment": json.dumps(report["environment"]),
    }


def optimize(
    model: str | Path | ModelProto,
    *,
    output: str | Path | None = None,
    strategy: str = "auto",
    agent: str | Path | None = None,
    alpha: float = 1.05,
    provider: str = "cpu",
    provider_options: Mapping[str, str] | None = None,
    threads: int = 1,
    budget: float | None = None,
    rules: Sequence[str] = (),
    exclude: Sequence[str] = (),
    dims: Mapping[str, int] | None = None,
    input_shapes: Mapping[str, Sequence[int]] | None = None,
    at: Sequence[Mapping[str, int]] = (),
    inputs: str | Path | Mapping[str, Any] | None = None,
    rtol: float | None = None,
    atol: float | None = None,
    seed: int = 0,
    portable: bool = False,
    freeze_initializers: bool = False,
    max_growth: float = 0.10,
    max_memory_growth: float = 0.25,
    max_error: float | None = None,
    measure: bool = True,
    trace: str | Path | None = None,
    report: str | Path | None = None,
    progress: Callable[[Progress], None] | None = None,
    interrupted: Callable[[], bool] | None = None,
) -> Result:
    """Rewrite a model so that ONNX Runtime runs it faster, verify it and measure it against the original.

    Args:
        model: A file or a parsed model.
        output: Where to write the result; nowhere by default.
        strategy: How to search: one of :data:`STRATEGIES` or of :data:`LEARNED`.
        agent: Folder of a trained agent, for a strategy of :data:`LEARNED`; the shipped one by default.
        alpha: How much dearer than the best a graph may be that backtracking searches from.
        provider: Short or full name of the execution provider.
        provider_options: Its options, as the runtime documents them.
        threads: Threads within an operator.
        budget: Seconds for search and measurement together; by default a few, more for a slow or a large model, at most 40.
        rules: Rule files, folders, families or ids; all shipped ones by default.
        exclude: Rules or families to leave out.
        dims: Sizes for symbolic dimensions; the written model has them fixed.
        input_shapes: Shapes for whole inputs; the written model has them fixed.
        at: Sizes at which to measure dimensions that stay symbolic: the search goes by the first set, and the result is
            verified and measured at each.
        inputs: Arrays by input name, or an ``.npz`` file of them, to verify and measure with.
        rtol: Relative tolerance of the verification, by default from the dtype.
        atol: Absolute tolerance of the verification, by default from the dtype.
        seed: Of everything random.
        portable: Standard ONNX operators only.
        freeze_initializers: Treat initializers that are graph inputs as constants and drop those inputs.
        max_growth: How much larger the file may become, as a fraction (1 MB more is always allowed).
        max_memory_growth: How much more memory the weights of a session may take, as a fraction of the file's size (64 MB more
            are always allowed). Weights that a rule computes when a session opens make no file larger.
        max_error: Rules whose evidence names a larger rounding error, relative to the largest result, are left out.
        measure: Measure, and fall back to the original unless the result is faster.
        trace: Where to write the steps of the search, as JSON.
        report: Where to write what was found and measured, as an HTML page.
        progress: Hears what is being done.
        interrupted: Asked now and then; true ends the search with the best so far.

    Raises:
        UsageError: An argument is wrong; the message names it.
        GraphoptError: See :mod:`graphopt.errors`; nothing is written then.
        OutputsDifferError: The model differs without a step of any rule: a fault of graphopt itself. (A step that changes the
            outputs is found, and its family taken back.)
    """
    _check_model("model", model)
    check_arguments(
        strategy=strategy, alpha=alpha, provider=provider, provider_options=provider_options, threads=threads,
        budget=budget, rules=rules, exclude=exclude, dims=dims, input_shapes=input_shapes, at=at, rtol=rtol, atol=atol,
        seed=seed, portable=portable, freeze_initializers=freeze_initializers, max_growth=max_growth,
        max_memory_growth=max_memory_growth, max_error=max_error, measure=measure,
    )  # fmt: skip
    output, trace, report = _targets(model, output=output, trace=trace, report=report)
    guard.start()
    chosen_strategy = _strategy(strategy, agent, alpha, seed)
    started = time.monotonic()
    hear = progress or (lambda p: None)
    hear(Progress("load", "loading the rules"))
    config = session_config(provider, provider_options, threads)
    library = load_library(rules, exclude, config.provider, portable, max_error=max_error)
    hear(Progress("load", "loading the model"))
    loaded = load(model, freeze_initializers=freeze_initializers, dims=dims, input_shapes=input_shapes)
    original = load(model) if dims or input_shapes or freeze_initializers else loaded
    limit = int(loaded.nbytes * (1 + max_growth)) + _SLACK
    ranges, hints = input_ranges(loaded.graph), size_hints(original.graph)
    overrides = load_npz(Path(inputs)) if isinstance(inputs, str | Path) else dict(inputs or {})
    if at and overrides:
        raise UsageError("inputs have the sizes that they have: 'inputs' and 'at' exclude each other")
    bound, shapes = _bound(loaded, original), dict(input_shapes or {})
    sets = [{**bound, **sizes} for sizes in at or ({},)]
    baseline_s, feeds = first_run(original, config, ranges, overrides, sets[0], seed, shapes)
    arena = Arena(loaded, original, config, feeds, limit, seed, _patience(baseline_s))
    sizes = open_sizes(original, feeds)
    total = budget if budget is not None else default_seconds(baseline_s, len(loaded.graph.nodes))
    clock = Budget(total, None, interrupted)

    def tell(told: Progress) -> None:
        hear(replace(told, fraction=min(1.0, clock.elapsed / total), budget=total))

    with Store() as store:
        known = {name: size for name, size in sizes.items() if "[" not in name}
        growth = max_memory_growth * loaded.nbytes + _MEMORY_SLACK
        cost = KernelCost(store, config, seconds=0.2 * total, measure=measure, dims=known, growth=growth)
        problem = Problem.where(library, cost, config)
        search = Budget(0.25 * total, None, interrupted)
        curve: list[tuple[int, float, float]] = []
        chosen = _search(
            problem, chosen_strategy, simplify(loaded.graph), search, arena, measure, 0.35 * total, tell,
            lambda number, state: curve.append((number, search.elapsed, state.cost)),
        )  # fmt: skip

    reference = as_given(model, original)

    def check_file(path: Path, where: SessionConfig = config) -> Verification:
        return _agreed(
            verify_models(
                reference, path, config=where, ranges=ranges, overrides=overrides, dims=each, shapes=shapes,
                hints=hints, rtol=rtol, atol=atol, seed=seed,
            )
            for each in sets
        )  # fmt: skip

    staged: Staged | None = None

    def check(graph: Graph, where: SessionConfig = config) -> Verification:
        # What is compared is what lies on the disk, so that neither reading nor writing can do harm unseen.
        nonlocal staged
        if staged is not None:
            staged.discard()
        staged = Staged(emit(loaded, graph, max_bytes=limit), output, external=original.external)
        return check_file(staged.path, where)

    verified: Verification | None = None
    paired: Paired | None = None
    elsewhere: list[tuple[dict[str, int], Paired]] = []
    if chosen.outcome.steps:
        tell(Progress("verify", "comparing outputs"))
        verified = check(chosen.outcome.state.graph)
        # Other providers have their own errors: what is right on the CPU is not the rules' fault.
        if (
            not verified.passed
            and config.provider != "cpu"
            and check(chosen.outcome.state.graph, session_config()).passed
        ):
            tell(Progress("verify", f"looking for what {config.provider} gets wrong"))
            chosen = take_back(chosen, simplify(loaded.graph), search, lambda o: check(o.state.graph).passed)
            verified = check(chosen.outcome.state.graph) if chosen.outcome.steps else None
        while verified is not None and not verified.passed:
            tell(Progress("verify", "looking for the step that changes the outputs"))
            start = simplify(loaded.graph)
            culprit = _culprit(chosen.outcome, start, library, problem.block, verified, check)
            tell(Progress("verify", f"taking {culprit.family} back: {culprit.rule} changes the outputs"))
            chosen = leave_out(chosen, start, search, culprit)
            verified = check(chosen.outcome.state.graph) if chosen.outcome.steps else None
    outcome = chosen.outcome
    graph = outcome.state.graph if outcome.steps else loaded.graph
    result = emit(loaded, graph, max_bytes=limit)
    if verified is not None and measure:
        tell(Progress("measure", "measuring against the original"))
        paired = _verdict(arena, graph, clock)
        elsewhere = _elsewhere(arena, graph, sets[1:], ranges, shapes, clock)
    kept = not outcome.steps or (paired is not None and paired.ci95[0] <= 1.0)
    final = emit(original, original.graph) if kept else result
    told = make_report(
        source=str(model) if isinstance(model, str | Path) else None, output=output, strategy=strategy, config=config,
        seed=seed, selection=chosen, paired=paired, kept=kept, verified=verified, original=original, final=final,
        placements=_placements(arena, None if kept else graph), seconds=time.monotonic() - started, sizes=sizes,
        given=[*sizes] if overrides else [*bound, *(at[0] if at else {})], elsewhere=elsewhere,
        weights=cost.first,
    )  # fmt: skip
    found = Found(chosen, paired, loaded.graph, graph, tuple(curve))
    options = {
        "dims": dict(dims or {}), "input_shapes": {k: list(v) for k, v in (input_shapes or {}).items()},
        "freeze_initializers": freeze_initializers, "rules": list(rules), "exclude": list(exclude),
        "provider": config.provider, "provider_options": dict(config.provider_options), "portable": portable,
    }  # fmt: skip
    about = {
        "strategy": strategy, "seed": seed, "stop_reason": outcome.stop_reason, "cost": outcome.state.cost,
        "kept_original": kept, "environment": told["environment"],
    }  # fmt: skip
    steps = Trace(
        f"{loaded.graph.hash:016x}", library.hash, problem.block, limit, options, outcome.steps,
        f"{graph.hash:016x}", _metadata(told), about,
    )  # fmt: skip
    finished = Result(told, final, original, found, steps, arena, check_file)
    if kept and staged is not None:
        staged.discard()
    if output is not None and (kept or staged is None):
        finished.save(output)
    elif output is not None and staged is not None:
        staged.commit(finished.metadata)
        with Store() as store:
            store.count_uses(Counter(step.rule for step in outcome.steps))
    if trace is not None:
        steps.write(trace)
    if report is not None:
        tell(Progress("report", "writing the report"))
        finished.write_page(report, hurried=search.interrupted_now)
    return finished


def open_sizes(model: Model, feeds: Mapping[str, Any]) -> dict[str, int]:
    """The sizes that some inputs give to the dimensions which a model leaves open."""
    specs = [
        TensorSpec(
            graph.values[key].name, "", graph.type(key).shape or (), "other" if graph.type(key).other else "tensor"
        )
        for graph in [model.graph]
        for key in graph.inputs
    ]
    return measured_sizes(specs, feeds)


def _elsewhere(
    arena: Arena,
    graph: Graph,
    sets: Sequence[Mapping[str, int]],
    ranges: Mapping[str, tuple[int, int]],
    shapes: Mapping[str, Sequence[int]],
    clock: Budget,
) -> list[tuple[dict[str, int], Paired]]:
    """The measurement against the original at other sizes, each in a share of the budget on top of it."""
    found: list[tuple[dict[str, int], Paired]] = []
    for sizes in sets:
        if clock.interrupted_now:
            break
        baseline_s, feeds = first_run(arena.original, arena.config, ranges, {}, sizes, arena.seed, shapes)
        there = replace(arena, feeds=feeds, patience=_patience(baseline_s), known=set())  # nothing has run at these
        paired = there.verdict(graph, max(_HURRY, _THERE * (clock.seconds or 0.0)))
        found.append((open_sizes(arena.original, feeds), paired))
    return found


def _agreed(checks: Iterable[Verification]) -> Verification:
    """Comparisons at several sizes as one: the first that fails, else all together."""
    found: list[Verification] = []
    for check in checks:
        if not check.passed:
            return check
        found.append(check)
    return replace(
        found[0], trials=sum(v.trials for v in found), max_abs=max(v.max_abs for v in found),
        max_rel=max(v.max_rel for v in found), sizes=tuple(sizes for v in found for sizes in v.sizes),
    )  # fmt: skip


def _check_model(name: str, model: Any) -> None:
    if not isinstance(model, str | Path | ModelProto):
        raise UsageError(f"{name} must be a path or an onnx.ModelProto, not {type(model).__name__}")


def _targets(model: str | Path | ModelProto, **given: str | Path | None) -> list[Path | None]:
    """Files to write, each another one and none of them the model.

    Raises:
        UsageError: They are not, or there is no such folder.
    """
    taken = {"model": Path(model).resolve()} if not isinstance(model, ModelProto) else {}
    targets: list[Path | None] = []
    for name, value in given.items():
        if value is not None and not isinstance(value, str | Path):
            raise UsageError(f"{name} must be a path, not {type(value).__name__}")
        target = None if value is None else Path(value)
        targets.append(target)
        if target is None:
            continue
        for other, path in taken.items():
            same = target.exists() and path.exists() and target.samefile(path)
            if (same or target.resolve() == path) and not is_stream(target):
                raise UsageError(f"{name} and {other} are the same file: {target}", "no input is ever overwritten")
        if not target.parent.is_dir():
            raise UsageError(f"{name}: no such folder: {target.parent}")
        taken[name] = target.resolve()
    return targets


def _culprit(
    outcome: Outcome, start: Graph, library: Library, block: int, verified: Verification,
    check: Callable[[Graph], Verification],
) -> Culprit:  # fmt: skip
    """The first step after which the model computes something else.

    Raises:
        OutputsDifferError: It does so without any step.
    """

    def harm(low: int, high: int) -> str:
        found = check(carry_out(start, library, block, outcome.steps[:high]))
        return "" if found.passed else found.message

    number, message, _ = first_harm(len(outcome.steps), harm, verified.message)
    if number == 1 and harm(0, 0):
        raise OutputsDifferError(
            f"the model differs before any rule has changed it: {message}",
            "this is a fault of graphopt: please report it",
        )
    step = outcome.steps[number - 1]
    return Culprit(number, step.rule, step.family, step.node, message)


def as_given(source: str | Path | ModelProto, loaded: Model) -> LoadableModel | Path:
    """A model as its user has it, for the runtime: the file, not what was read from it."""
    if not isinstance(source, ModelProto):
        return Path(source)
    if source.ByteSize() > LARGEST_PROTOBUF:
        return loadable(loaded, emit(loaded, loaded.graph))
    return LoadableModel(source.SerializeToString())


def _require(verified: Verification) -> None:
    if not verified.passed:
        raise OutputsDifferError(
            f"what was written differs: {verified.message}", "this is a fault of graphopt: please report it"
        )


def _patience(baseline_s: float) -> float:
    """Seconds that opening or running a candidate may take."""
    return max(_PATIENCE_S, _PATIENCE * baseline_s)


def default_seconds(baseline_s: float, nodes: int) -> float:
    """What an optimisation may take: a slow model takes long to measure, one of many nodes long to search."""
    return min(_DEFAULT, 10.0 + 250 * baseline_s + nodes / 250)


def session_config(
    provider: str = "cpu", provider_options: Mapping[str, Any] | None = None, threads: int = 1
) -> SessionConfig:
    """How to open a model for a user: the provider by its short name, its options as texts."""
    options = {key: str(value) for key, value in (provider_options or {}).items()}
    if threads > usable_cores():
        # Each takes memory and spins: a hundred thousand of them take minutes to start.
        warnings.warn(
            f"{threads} threads asked for, and {usable_cores()} used: as many as processors",
            ThreadsWarning,
            stacklevel=2,
        )
        threads = usable_cores()
    return SessionConfig(provider_name(provider), threads, provider_options=options)


def _placements(arena: Arena, graph: Graph | None) -> list[Placement]:
    """Where the original's nodes run, and those of the graph; empty on the CPU, where there is nothing to tell."""
    placements: list[Placement] = []
    for each in [] if arena.config.provider == "cpu" else [None] if graph is None else [None, graph]:
        with Session(arena.loadable(each), arena.config) as session:
            placements.append(session.placement)
    return placements


def _strategy(name: str, agent: str | Path | None, alpha: float, seed: int) -> Strategy:
    if name in STRATEGIES:
        if agent is not None:
            raise UsageError(f"an agent belongs to strategy {' or '.join(LEARNED)}, not to {name}")
        return STRATEGIES[name](alpha, seed)
    if name not in LEARNED:
        raise UnknownNameError("strategy", name, (*STRATEGIES, *LEARNED))
    from graphopt.rl.agent import Learned

    chosen = Learned(Path(agent) if agent is not None else agents_dir() / name, seed=seed)
    if chosen.name != name:
        raise UsageError(
            f"{agent} holds an agent of strategy {chosen.name}, not of {name}", f"use --strategy {chosen.name}"
        )
    return chosen


def _verdict(arena: Arena, graph: Graph, clock: Budget) -> Paired:
    """The measurement against the original; a gain that noise hides gets a second, longer look."""
    if clock.interrupted_now:
        return arena.verdict(graph, _HURRY)
    assert clock.seconds is not None
    began = clock.elapsed
    first = arena.verdict(graph, max(0.2 * clock.seconds, 0.6 * (clock.seconds - began)))
    if first.ci95[0] > 1.0 or first.speedup < _VISIBLE or clock.interrupted_now:
        return first
    if clock.elapsed + (clock.elapsed - began) > clock.seconds + _OVERTIME:  # opening a large model takes what it takes
        return first
    return arena.verdict(graph, min(0.5 * clock.seconds, _LONGEST))


def _search(
    problem: Problem,
    strategy: Strategy,
    graph: Any,
    budget: Budget,
    arena: Arena,
    measure: bool,
    seconds: float,
    tell: Callable[[Progress], None],
    better: Better,
) -> Selection:
    tell(Progress("search", "pricing the model"))
    if measure:
        return select(
            problem, strategy, graph, budget, arena, seconds, lambda m, best: tell(Progress("search", m, None, best)),
            better,
        )  # fmt: skip

    least = math.inf

    def heard(state: State) -> None:
        nonlocal least
        least = min(least, state.cost)
        tell(Progress("search", f"searching, predicted {least:.2f} ms"))
        better(1, state)

    start = problem.start(graph)
    better(1, start)
    outcome = strategy.run(problem, start, budget, heard)
    better(1, outcome.state)
    return Selection(outcome, problem, ())


def first_run(
    original: Model,
    config: SessionConfig,
    ranges: Mapping[str, tuple[int, int]],
    overrides: Mapping[str, Any],
    dims: Mapping[str, int],
    seed: int,
    shapes: Mapping[str, Sequence[int]] | None = None,
) -> tuple[float, dict[str, Any]]:
    """Seconds of one inference, and inputs that the model accepts."""
    name = str(original.path or "the model")
    with guard.open_guarded(loadable(original, emit(original, original.graph)), config, name=name) as session:
        given, dims = shaped(session.input_specs, shapes or {}, dims)
        specs = named(given)
        symbols = Symbols.of(specs, dims, overrides, size_hints(original.graph))
        errors: list[tuple[SessionError, dict[str, Any]]] = []

        def made(sizes: Mapping[str, int]) -> dict[str, Any]:
            return make_feeds(specs, seed=seed, ranges=ranges, overrides=overrides, dims=sizes)

        def runs(sizes: Mapping[str, int]) -> bool:
            feeds: dict[str, Any] = {}
            try:
                feeds = made(sizes)
                session.run(feeds)
            except SessionError as error:
                errors.append((error, feeds))
                guard.revive(session)
                return False
            return True

        sizes = first_that_run(symbols, runs)
        if sizes is None:
            plain = not isinstance(errors[0][0], CrashError | InputsNeededError)
            zeros = plain and not (symbols.free or overrides) and _fails_on_zeros(session, errors[0][1])
            raise _fails_everywhere(errors, symbols.free, given=bool(overrides), zeros=zeros)
        feeds = made(sizes)
        return session.clock(feeds), feeds


def _fails_everywhere(
    errors: Sequence[tuple[SessionError, dict[str, Any]]], symbols: Sequence[str], *, given: bool, zeros: bool
) -> SessionError:
    """What to say of a model that runs at none of the sizes tried: what it says at the likeliest, and what would help."""
    error, feeds = errors[0]
    if isinstance(error, InputsNeededError):
        return error  # they can't be made up
    choose = f"choose sizes with {sizes_wanted(symbols)}, or " if symbols else ""
    failed: SessionError
    if isinstance(error, CrashError):
        failed = CrashError(str(error), f"if it runs on real inputs, {choose}give them with --inputs file.npz")
    else:
        hint = choose + ("check --inputs" if given else "give real ones with --inputs file.npz")
        if zeros:
            hint = "it fails on zeros as well, so the fault is likely in the model: look at the node named"
        tried = f", nor at {len(errors) - 1} other choices of sizes" if len(errors) > 1 else ""
        text = f"the original model fails on made-up inputs ({_sketch(feeds)}){tried}: {error}"
        failed = InputsNeededError(text, hint)
    failed.__cause__ = error
    return failed


def _fails_on_zeros(session: guard.Guarded | Session, feeds: Mapping[str, Any]) -> bool:
    """Whether a model fails on zeros, too, which are legal as indices of any table and as lengths of most things."""
    numbers = {name: np.zeros_like(a) if np.asarray(a).dtype.kind in "fiub" else a for name, a in feeds.items()}
    try:
        session.run(numbers)
    except SessionError:
        return True
    return False


def _sketch(feeds: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} {np.asarray(a).dtype}{list(np.shape(a))}" for name, a in feeds.items())


def _bound(specialised: Model, original: Model) -> dict[str, int]:
    """Which symbol of the original stands for which number in the specialised model."""
    if specialised is original:
        return {}
    found: dict[str, int] = {}
    numbers = {i.name: i.type.tensor_type.shape.dim for i in specialised.proto.graph.input}
    for info in original.proto.graph.input:
        for before, after in zip(info.type.tensor_type.shape.dim, numbers.get(info.name, ()), strict=False):
            if before.WhichOneof("value") == "dim_param" and after.WhichOneof("value") == "dim_value":
                found[before.dim_param] = after.dim_value
    return found


def verify(
    a: str | Path | ModelProto,
    b: str | Path | ModelProto,
    *,
    provider: str = "cpu",
    provider_options: Mapping[str, str] | None = None,
    threads: int = 1,
    inputs: str | Path | Mapping[str, Any] | None = None,
    rtol: float | None = None,
    atol: float | None = None,
    seed: int = 0,
    dims: Mapping[str, int] | None = None,
    input_shapes: Mapping[str, Sequence[int]] | None = None,
) -> Verification:
    """Whether two models compute the same function, judged on several random inputs.

    Raises:
        UsageError: An argument is wrong; the message names it.
        GraphoptError: See :mod:`graphopt.errors`.
    """
    _check_model("a", a)
    _check_model("b", b)
    check_arguments(
        provider=provider, provider_options=provider_options, threads=threads, rtol=rtol, atol=atol, seed=seed,
        dims=dims, input_shapes=input_shapes,
    )  # fmt: skip
    first, second = load(a), load(b)
    overrides = load_npz(Path(inputs)) if isinstance(inputs, str | Path) else dict(inputs or {})
    return verify_models(
        as_given(a, first), as_given(b, second),
        config=session_config(provider, provider_options, threads), ranges=input_ranges(first.graph), overrides=overrides,
        dims=dims or {}, shapes=input_shapes, hints=size_hints(first.graph), rtol=rtol, atol=atol, seed=seed,
    )  # fmt: skip


def inspect_model(
    path: str | Path,
    *,
    provider: str = "cpu",
    provider_options: Mapping[str, str] | None = None,
    threads: int = 1,
    dims: Mapping[str, int] | None = None,
    input_shapes: Mapping[str, Sequence[int]] | None = None,
    inputs: str | Path | Mapping[str, Any] | None = None,
    runs: int = 5,
) -> dict[str, Any]:
    """What a model is made of and where its time goes.

    Returns:
        ``operators`` (count by type), ``opaque`` (count by reason), ``inputs``, ``outputs``, ``nodes``, ``size``, ``opset``,
        ``ir_version``, ``sizes`` (those at which open dimensions were measured), ``placement`` (``None`` on the CPU) and ``profile`` (milliseconds by operator as the runtime runs it; ``None``
        when it can't run).
    """
    _check_model("path", path)
    check_arguments(
        provider=provider, provider_options=provider_options, threads=threads, dims=dims, input_shapes=input_shapes
    )
    model = load(path, dims=dims, input_shapes=input_shapes)
    graph = model.graph
    sizes: dict[str, int] = {}
    config = session_config(provider, provider_options, threads)
    overrides = load_npz(Path(inputs)) if isinstance(inputs, str | Path) else dict(inputs or {})
    unprofiled: str | None = None
    kernels: list[dict[str, Any]] | None = None
    placement: Placement | None = None
    if config.provider != "cpu":
        with guard.open_guarded(loadable(model, emit(model, graph)), config, name=str(path)) as session:
            placement = session.placement
    try:
        _, feeds = first_run(model, config, input_ranges(graph), overrides, {}, 0)
        sizes = open_sizes(model, feeds)
        kernels = [asdict(k) for k in by_op(profile(loadable(model, emit(model, graph)), feeds, config, runs=runs))]
    except InputsNeededError as error:
        unprofiled = str(error)
    return {
        "schema": "graphopt.inspect/1",
        "path": str(path),
        "nodes": len(model.proto.graph.node),
        "size": model.nbytes,
        "opset": graph.opset,
        "ir_version": model.proto.ir_version,
        "operators": dict(
            Counter(f"{n.domain}.{n.op}" if n.domain else n.op for n in graph.nodes.values()).most_common()
        ),
        "opaque": dict(Counter(n.opaque for n in graph.nodes.values() if n.opaque).most_common()),
        "inputs": {graph.values[k].name: str(graph.type(k)) for k in graph.inputs},
        "outputs": {name: str(graph.type(k)) for name, k in graph.outputs},
        "sizes": sizes,
        "provider": config.provider,
        "placement": None if placement is None else asdict(placement),
        "profile": kernels,
        "unprofiled": unprofiled,
    }


def explain_model(path: str | Path) -> dict[str, Any]:
    """Which rule made which node of an optimised model, and what was measured.

    Returns:
        ``metadata`` (what :func:`optimize` recorded), ``rules`` (for each rule its nodes: name, operator, outputs).
    """
    _check_model("path", path)
    proto = load(path).proto
    made: dict[str, list[dict[str, Any]]] = {}
    for node in proto.graph.node:
        rule = rule_of(node)
        if rule is not None:
            made.setdefault(rule, []).append({"name": node.name, "op": node.op_type, "outputs": list(node.output)})
    # What is no UTF-8 comes out of protobuf as bytes: graphopt did not write it.
    entries = [(e.key, e.value) for e in proto.metadata_props if isinstance(e.key, str) and isinstance(e.value, str)]
    metadata = {key: value for key, value in entries if key.startswith("graphopt.")}
    return {
        "schema": "graphopt.explain/1",
        "path": str(path),
        "nodes": len(proto.graph.node),
        "metadata": metadata,
        "rules": made,
    }
