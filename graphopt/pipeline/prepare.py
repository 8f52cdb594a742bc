"""Stage 1, ``prepare``: check what the caller said, load rules and model, find sizes at which it runs."""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from types import NoneType
from typing import Any

from onnx import ModelProto

from graphopt.config import Settings
from graphopt.cost.analytic import AnalyticCost
from graphopt.cost.models import COST_MODELS
from graphopt.errors import SessionError, UsageError, expect_path
from graphopt.files import file_named, writable
from graphopt.ir.tensors import Stamp
from graphopt.ir.types import BY_CODE
from graphopt.onnxio.load import Model, external_files, load
from graphopt.onnxio.read import upgraded
from graphopt.onnxio.save import spare
from graphopt.pipeline.context import Context, Progress, Targets
from graphopt.pipeline.opening import as_given, bound_sizes, config_of, first_run, given_inputs, open_sizes
from graphopt.pipeline.strategies import make_strategy
from graphopt.rewrite.library import Library, load_library
from graphopt.runtime import guard
from graphopt.runtime.session import SessionConfig
from graphopt.search.arena import Arena, most_bytes
from graphopt.search.effort import Effort
from graphopt.search.normal import simplified
from graphopt.search.problem import Budget
from graphopt.verification.ranges import input_ranges
from graphopt.verification.sizes import size_hints
from graphopt.wording import plural

_LEAST_S = 2.0  # of a short budget, in which nothing could be told from noise
_OVER = 1.2  # a budget is held as long as no more than this times as much is used
_OPENINGS, _RUNS = (3, 14), (12, 60)  # what verifying a result takes, and measuring it as well
# By the size of a model alone, on the machine of docs/results.md: reading and pricing it, and opening it in the runtime.
_NODE_S, _OPENING_NODE_S, _OPENING_BYTE_S = 2e-4, 4e-5, 6e-10
_LARGE = 1e8  # bytes that are worth telling
_FAR = 2.0  # what is foreseen has to be so many times the budget: a closer call waits for the clock
_PATIENCE_S, _PATIENCE = 30.0, 30  # seconds, and multiples of the original's, for a candidate to be opened or run


class BudgetWarning(UserWarning):
    """The model takes longer than it may."""


class ConversionWarning(UserWarning):
    """A model was converted, and can't be compared with what it was converted to."""


def prepare(
    model: str | Path | ModelProto,
    settings: Settings,
    targets: Targets,
    inputs: str | Path | Mapping[str, Any] | None,
    hear: Callable[[Progress], None] | None,
    interrupted: Callable[[], bool] | None,
) -> Context:
    """Make ready what the other stages work on.

    Raises:
        UsageError: Something that the caller said is wrong.
        GraphoptError: Rules or model can't be loaded, or the model does not run.
    """
    guard.start()
    strategy = make_strategy(settings)
    if "prices" in COST_MODELS.ready(settings.cost_model).options:
        raise UsageError(f"cost model {settings.cost_model!r} needs prices, which only a task names")
    began, hear = time.monotonic(), hear or (lambda told: None)
    hear(Progress("load", "loading the rules"))
    config = config_of(settings)
    library = load_rules(settings)
    hear(Progress("load", "loading the model"))
    foreseen = False

    def seen(proto: ModelProto) -> None:
        nonlocal foreseen
        foreseen = _foresee(settings, proto)

    loaded = load_model(model, settings, seen)
    changed = settings.dims or settings.input_shapes or settings.freeze_initializers
    original = _load(model, settings.upgrade) if changed else loaded
    for target in filter(None, (targets.output, targets.trace, targets.report)):
        spare(target, None, original.files)
    ranges, given = input_ranges(loaded.graph), given_inputs(inputs, original)
    if settings.at and any(given):
        raise UsageError("inputs have the sizes that they have: 'inputs' and 'at' exclude each other")
    bound = bound_sizes(loaded, original)
    sets = _sets(settings, bound)
    guard.ready()
    opening = time.monotonic()
    baseline_s, feeds = first_run(original, config, ranges, given, sets[0], settings.seed, dict(settings.input_shapes))
    opening_s = max(0.0, time.monotonic() - opening - 2 * baseline_s)
    sizes = open_sizes(original, feeds)
    limit, start = most_bytes(loaded, settings.max_growth), simplified(loaded.graph)
    seconds = _left(settings, time.monotonic() - began, opening_s, baseline_s, told=foreseen)
    return Context(
        given=model,
        held=_held(model, original, config) if settings.upgrade else model,
        settings=settings,
        targets=targets,
        strategy=strategy,
        config=config,
        library=library,
        original=original,
        loaded=loaded,
        start=start,
        ranges=ranges,
        hints=replace(size_hints(original.graph), known=sizes),
        inputs=given,
        bound=bound,
        sets=sets,
        sizes=sizes,
        arena=Arena(loaded, original, config, feeds, limit, settings.seed, patience(baseline_s)),
        effort=effort_for(loaded, sizes, settings.measure)
        if seconds is None
        else Effort.within(seconds, opening_s, baseline_s),
        clock=Budget(seconds, None, interrupted),
        began=began,
        hear=hear,
    )


def _held(model: str | Path | ModelProto, original: Model, config: SessionConfig) -> str | Path | ModelProto:
    """What results are held against, of a model that was converted if it had to be."""
    converted = upgraded(model)
    if converted is model:
        return model
    try:
        with guard.open_guarded(as_given(model, original), replace(config, level="disabled")):  # as it is compared
            return model
    except SessionError as error:
        warnings.warn(
            f"the runtime does not run the model as it was given, so outputs are compared with those of what it was converted to: {error}",
            ConversionWarning,
            stacklevel=4,
        )
        return converted


def _sets(settings: Settings, bound: Mapping[str, int]) -> tuple[Mapping[str, int], ...]:
    """Sets of sizes to verify and measure at, those that were fixed among them.

    Raises:
        UsageError: A set has another size for a dimension that was fixed.
    """
    for sizes in settings.at:
        for name in sizes.keys() & bound.keys():
            if sizes[name] != bound[name]:
                fixed = "--dim" if name in settings.dims else "--input-shape"
                raise UsageError(
                    f"{name} can't be both {sizes[name]} (--at) and {bound[name]} ({fixed})", "leave one of them out"
                )
    return tuple({**bound, **sizes} for sizes in settings.at or ({},))


def _foresee(settings: Settings, proto: ModelProto) -> bool:
    """Tell at once, by the size of a model, that a budget is far too short, and what to expect; whether it is."""
    if settings.budget is None:
        return False
    nodes = len(proto.graph.node)
    # (Of a type that the file invents nothing is known; loading refuses it.)
    sizes = (
        math.prod(t.dims) * BY_CODE[t.data_type].bits / 8 for t in proto.graph.initializer if t.data_type in BY_CODE
    )
    nbytes = sum(max(0.0, size) for size in sizes)
    opening_s = nodes * _OPENING_NODE_S + nbytes * _OPENING_BYTE_S
    expected = nodes * _NODE_S + _OPENINGS[settings.measure] * opening_s
    if expected < _FAR * settings.budget:
        return False
    large = f" and {nbytes / 1e9:.1f} GB" if nbytes > _LARGE else ""
    warnings.warn(
        f"a budget of {settings.budget:g} s is too short for a model of {plural(nodes, 'node')}{large}: up to "
        f"{math.ceil(expected)} s are expected, {math.ceil(nodes * _NODE_S + opening_s)} s of them to read it and open it once",
        BudgetWarning,
        stacklevel=6,
    )
    return True


def _left(settings: Settings, spent: float, opening_s: float, run_s: float, *, told: bool) -> float | None:
    """Seconds of the budget for search and measurement: what reading the model has left, half of it and two seconds at least.

    Where the budget can't be held, the user is told now, and what to expect, unless they know already.
    """
    budget, measured = settings.budget, settings.measure
    if budget is None:
        return None
    left = max(budget - spent, budget / 2, min(budget, _LEAST_S))
    least = spent + max(left, _OPENINGS[measured] * opening_s + _RUNS[measured] * run_s)
    if least > _OVER * budget and not told:
        warnings.warn(
            f"a budget of {budget:g} s is too short for this model: up to {math.ceil(least)} s are expected ({spent:.1f} s to read "
            f"it and run it once, {opening_s:.1f} s to open it, some {_OPENINGS[measured]} times over)",
            BudgetWarning,
            stacklevel=4,
        )
    return left


def load_rules(settings: Settings) -> Library:
    """The rules that some settings name."""
    s = settings
    return load_library(s.rules, s.exclude, s.provider, s.portable, max_error=s.max_error)


def load_model(
    model: str | Path | ModelProto, settings: Settings, seen: Callable[[ModelProto], None] | None = None
) -> Model:
    """A model as some settings want it; ``seen`` as for :func:`graphopt.onnxio.load.load`."""
    return _load(
        model,
        settings.upgrade,
        freeze_initializers=settings.freeze_initializers,
        dims=settings.dims or None,
        input_shapes=settings.input_shapes or None,
        seen=seen,
    )


def _load(model: str | Path | ModelProto, upgrade: bool, **how: Any) -> Model:
    """A model, converted if that is asked for: it comes of its files also then, and they are never overwritten."""
    source = upgraded(model) if upgrade else model
    found = load(source, **how)
    if source is model or isinstance(model, ModelProto):
        return found
    path = Path(model)
    return replace(found, nested=found.nested | {(file, Stamp.of(file)) for file in {path, *external_files(path)}})


def effort_for(model: Model, sizes: Mapping[str, int], measured: bool = True) -> Effort:
    """What the optimisation of a model may spend where no limit is given.

    Args:
        model: The model.
        sizes: Of dimensions that it leaves open.
        measured: Whether the clock judges what the search finds.
    """
    typical = AnalyticCost(dims=sizes).of(model.graph).total
    return Effort.of(len(model.graph.nodes), typical, model.nbytes, measured)


def patience(baseline_s: float) -> float:
    """Seconds that opening or running a candidate may take, given those of a run of the original."""
    return max(_PATIENCE_S, _PATIENCE * baseline_s)


def check_targets(reads: Mapping[str, Any], **given: str | Path | None) -> Targets:
    """Files to write, each another one and none of them one that is read, see :func:`graphopt.files.writable`.

    Args:
        reads: What is read, by what it is; what is no path lies in no file.
        given: Where to write, by what it is; ``None`` for nowhere.

    Raises:
        UsageError: They are not, or can't be written.
    """
    known = {what: Path(read) for what, read in reads.items() if isinstance(read, str | Path)}
    targets: dict[str, Path] = {}
    for name, value in given.items():
        expect_path(name, value, also=NoneType)
        if value is None:
            continue
        try:
            writes = {f"the {other}": path for other, path in targets.items()}
            targets[name] = writable(file_named(value), reads=known, writes=writes)
        except UsageError as error:
            raise UsageError(f"{name}: {error}", error.hint) from error
    return Targets(targets.get("output"), targets.get("trace"), targets.get("report"))
