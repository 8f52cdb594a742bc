"""Recipes over traces: make the steps again, and find the one that did harm."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from pathlib import Path
from typing import Any

from onnx import ModelProto

from graphopt.config import check_arguments
from graphopt.errors import SessionError, expect_path
from graphopt.ir.graph import Graph
from graphopt.onnxio.bodies import all_nodes
from graphopt.onnxio.emit import Emitted, emit
from graphopt.onnxio.load import Model
from graphopt.onnxio.save import copy, save
from graphopt.pipeline.opening import check_model, first_run, given_inputs, open_names, open_sizes, session_config
from graphopt.pipeline.prepare import check_targets, load_model, load_rules
from graphopt.rewrite.library import Library
from graphopt.runtime.given import Given
from graphopt.search.arena import Arena
from graphopt.search.normal import simplified
from graphopt.search.problem import Step
from graphopt.search.selection import first_harm
from graphopt.search.trace import Trace, TraceError, carry_out, fingerprint, read_trace
from graphopt.verification.numeric import Verifier
from graphopt.verification.ranges import input_ranges
from graphopt.verification.sizes import size_hints


@dataclass(frozen=True, eq=False, repr=False)
class Replayed:
    """A trace made again.

    Attributes:
        emitted: The model, weights by reference.
        loaded: The input.
        steps: Steps made.
        of: Steps in the trace.
        unwritten: Whether the steps are those of a candidate in whose place :func:`optimize` wrote its input.
    """

    emitted: Emitted
    loaded: Model
    steps: int
    of: int
    unwritten: bool = False

    def __repr__(self) -> str:
        return f"<Replayed {self.steps} of {self.of} steps, {self.nodes_before} to {self.nodes_after} nodes>"

    @property
    def nodes_before(self) -> int:
        """Nodes of the input, in bodies too."""
        return all_nodes(self.loaded.proto.graph)

    @property
    def nodes_after(self) -> int:
        """Nodes of the result, in bodies too."""
        return all_nodes(self.emitted.proto.graph)


def replay(
    trace: str | Path, model: str | Path | ModelProto, *, output: str | Path | None = None, steps: int | None = None
) -> Replayed:
    """Make the steps of a trace again; with all of them the graph is the one that the trace was written for.

    Args:
        trace: What :func:`optimize` wrote.
        model: The model it was written for.
        output: Where to write the result; nowhere by default.
        steps: How many steps to make; all by default.

    Raises:
        TraceError: It is not a trace of this model and of the present rules.
        UsageError: An argument is wrong; the message names it.
    """
    check_arguments(steps=steps)
    told = _read(trace, model)
    target = check_targets({"the model": model, "the trace": trace}, output=output).output
    library, loaded = _opened(told, model)
    chosen = told.steps[:steps]
    # Without a step the model stays as it is, unless `optimize` wrote what was simpler without a rule: metadata says that it wrote.
    made = bool(chosen) or (not told.steps and bool(told.metadata))
    graph = carry_out(simplified(loaded.graph), library, told.block, chosen) if made else loaded.graph
    if len(chosen) == len(told.steps) and fingerprint(graph) != told.result:
        raise TraceError("the steps lead to another graph than they did", "was the trace edited?")
    emitted = emit(loaded, graph, max_bytes=told.max_bytes)
    if target is not None:
        if not made and loaded.path is not None and loaded.whole:
            copy(loaded.path, target)
        else:
            save(emitted, target, external=loaded.external, metadata=_metadata(told, chosen))
    unwritten = bool(chosen) and told.about.get("kept_original") is True
    return Replayed(emitted, loaded, len(chosen), len(told.steps), unwritten)


def _metadata(told: Trace, chosen: Sequence[Step]) -> dict[str, str]:
    """What is recorded in a model that some steps of a trace make. What the trace says was measured with all of them."""
    if len(chosen) == len(told.steps):
        return dict(told.metadata)
    if not chosen:
        return {}
    version = {name: text for name, text in told.metadata.items() if name == "graphopt.version"}
    return version | {"graphopt.rules": json.dumps(Counter(step.rule for step in chosen))}


def _arena(told: Trace, loaded: Model, threads: int | None, given: Given, seed: int = 0) -> Arena:
    """Where graphs of a trace's model are measured: at the sizes that the trace was made at, as far as it says them."""
    config = session_config(
        told.settings.provider,
        told.settings.provider_options,
        told.settings.threads if threads is None else threads,
        told.settings.custom_ops,
    )
    ranges, open_ = input_ranges(loaded.graph), open_names(loaded)
    # The others the trace's options have fixed; and inputs that are given have sizes of their own.
    sizes = {name: size for name, size in told.sizes.items() if name in open_ and not any(given)}
    _, feeds = first_run(loaded, config, ranges, given, sizes, seed)
    return Arena(loaded, loaded, config, feeds, told.max_bytes, seed)


def _sizes(told: Trace, loaded: Model, arena: Arena) -> dict[str, int]:
    """At which sizes is measured: those that the trace's options have fixed, and those of the inputs."""
    return {**told.sizes, **open_sizes(loaded, arena.feeds)}


def _read(trace: str | Path, model: str | Path | ModelProto) -> Trace:
    expect_path("trace", trace)
    check_model("model", model)
    return read_trace(Path(trace))


def _opened(told: Trace, model: str | Path | ModelProto) -> tuple[Library, Model]:
    """The rules and the model of a trace, if they are those that it was made with."""
    library = load_rules(told.settings)
    if library.hash != told.rules:
        raise TraceError(
            "the rules are not those that the trace was made with", "replay with the same version of graphopt"
        )
    loaded = load_model(model, told.settings)
    if fingerprint(loaded.graph) != told.model:
        raise TraceError("the model is not the one that the trace was written for")
    return library, loaded


@dataclass(frozen=True)
class Culprit:
    """What :func:`bisect` found.

    Attributes:
        step: Number of the step, from 1; ``None`` when no step does harm.
        rule: Its rule.
        node: Name of the value that it redefined.
        message: What is wrong after it.
        tried: How many prefixes of the trace were looked at.
        sizes: With ``slower``, those at which dimensions that the model leaves open were measured.
    """

    step: int | None
    rule: str
    node: str
    message: str
    tried: int
    sizes: Mapping[str, int] = field(default_factory=dict)


def bisect(
    trace: str | Path,
    model: str | Path | ModelProto,
    *,
    slower: bool = False,
    threads: int | None = None,
    inputs: str | Path | Mapping[str, Any] | None = None,
    rtol: float | None = None,
    atol: float | None = None,
    seed: int = 0,
    seconds: float = 3.0,
) -> Culprit:
    """Find the first step of a trace after which the model computes something else, or is slower.

    Args:
        trace: What :func:`optimize` wrote.
        model: The model it was written for.
        slower: Look for a loss of speed instead of a wrong result.
        threads: Threads within an operator; ``None`` for as many as the trace was made with.
        inputs: Arrays by input name, an ``.npz`` file of them, or a folder of sets, in place of random ones.
        rtol: Relative tolerance; ``None`` for that of the trace.
        atol: Absolute tolerance; ``None`` for that of the trace.
        seed: Of the random inputs.
        seconds: For each comparison of speed.

    Raises:
        TraceError: It is not a trace of this model and of the present rules.
    """
    check_arguments(slower=slower, threads=threads, inputs=inputs, rtol=rtol, atol=atol, seed=seed, seconds=seconds)
    told = _read(trace, model)
    library, loaded = _opened(told, model)
    given = given_inputs(inputs, loaded)
    arena = _arena(told, loaded, threads, given, seed)
    start = simplified(loaded.graph)
    verifier = Verifier(
        arena.loadable(None),
        overrides=given,
        ranges=input_ranges(loaded.graph),
        dims=told.settings.dims,
        hints=size_hints(loaded.graph),
        rtol=told.settings.rtol if rtol is None else rtol,
        atol=told.settings.atol if atol is None else atol,
        seed=seed,
    )

    def after(steps: int) -> Graph:
        return carry_out(start, library, told.block, told.steps[:steps])

    def harm(low: int, high: int) -> str:
        """What is wrong after ``high`` steps that was not after ``low``; empty for nothing."""
        graph = after(high)
        if slower:
            base = after(low) if low else None
            paired = arena.pair(base, graph, seconds)
            return f"{1 / paired.speedup:.3f} times the time before it" if paired.ratio.verdict == "slower" else ""
        try:
            verdict = verifier.verify(arena.loadable(graph), arena.config)
        except SessionError as error:
            return str(error)
        return "" if verdict.passed else verdict.message

    sizes = _sizes(told, loaded, arena) if slower else {}
    number, wrong, tried = first_harm(len(told.steps), harm)
    if not number:
        speed = "no slower" if slower else "the same"
        return Culprit(None, "", "", f"the model is {speed} after all {len(told.steps)} steps", tried, sizes)
    step = told.steps[number - 1]
    return Culprit(number, step.rule, step.node, wrong, tried, sizes)


@dataclass(frozen=True)
class Stage:
    """Steps of a trace that follow each other and are of one rule.

    Attributes:
        rule: The rule.
        first: Number of the first step, from 1.
        steps: How many.
        node: Name of the value that the first one redefined.
        predicted: Predicted milliseconds before them over those after them.
        measured: The same by the clock; ``None`` when not measured.
        ci95: Interval of ``measured``.
        sizes: Those at which dimensions that the model leaves open were measured.
    """

    rule: str
    first: int
    steps: int
    node: str
    predicted: float
    measured: float | None = None
    ci95: tuple[float, float] | None = None
    sizes: Mapping[str, int] = field(default_factory=dict)


def stages(
    trace: str | Path,
    model: str | Path | ModelProto,
    *,
    seconds: float | None = 2.0,
    threads: int | None = None,
    inputs: str | Path | Mapping[str, Any] | None = None,
    on_stage: Callable[[Stage], None] | None = None,
) -> list[Stage]:
    """What each rule of a trace was predicted to gain when its turn came, and what the clock says it gained.

    Args:
        trace: What :func:`optimize` wrote.
        model: The model it was written for.
        seconds: For each measurement; ``None`` to measure nothing.
        threads: Threads within an operator; ``None`` for as many as the trace was made with.
        inputs: Arrays by input name, an ``.npz`` file of them, or a folder of sets, in place of random ones.
        on_stage: Hears of each stage.

    Raises:
        TraceError: It is not a trace of this model and of the present rules.
    """
    check_arguments(seconds=seconds, threads=threads, inputs=inputs, on_stage=on_stage)
    told = _read(trace, model)
    library, loaded = _opened(told, model)
    arena = None if seconds is None else _arena(told, loaded, threads, given_inputs(inputs, loaded))
    start = before = simplified(loaded.graph)
    found, done = list[Stage](), 0
    for rule, group in groupby(told.steps, key=lambda step: step.rule):
        steps = list(group)
        # Within a body a replay begins where the search did: with the body as it was.
        whole = bool(steps[0].inside)
        after = carry_out(
            *(
                (start, library, told.block, told.steps[: done + len(steps)])
                if whole
                else (before, library, told.block, steps)
            )
        )
        left = steps[-1].cost_after
        cost = steps[0].cost_before / left if left else 1.0  # nothing is left to compute
        stage = Stage(rule, done + 1, len(steps), steps[0].node, cost)
        if arena is not None and seconds is not None:
            paired = arena.pair(before, after, seconds)
            stage = replace(stage, measured=paired.speedup, ci95=paired.ci95, sizes=_sizes(told, loaded, arena))
        found.append(stage)
        if on_stage is not None:
            on_stage(stage)
        before, done = after, done + len(steps)
    return found
