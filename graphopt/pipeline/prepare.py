"""Stage 1, ``prepare``: check what the caller said, load rules and model, find sizes at which it runs."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from onnx import ModelProto

from graphopt.config import Settings
from graphopt.cost.analytic import AnalyticCost
from graphopt.cost.models import COST_MODELS
from graphopt.equivalence.ranges import input_ranges
from graphopt.equivalence.sizes import size_hints
from graphopt.errors import UsageError
from graphopt.files import is_stream
from graphopt.ir.simplify import simplify
from graphopt.onnxio.load import Model, load
from graphopt.onnxio.upgrade import upgraded
from graphopt.pipeline.context import Context, Progress, Targets
from graphopt.pipeline.opening import bound_sizes, first_run, given_inputs, open_sizes, session_config
from graphopt.pipeline.strategies import make_strategy
from graphopt.rewrite.library import Library, load_library
from graphopt.runtime import guard
from graphopt.search.arena import Arena, most_bytes
from graphopt.search.effort import Effort
from graphopt.search.problem import Budget

_PATIENCE_S, _PATIENCE = 30.0, 30  # seconds, and multiples of the original's, for a candidate to be opened or run


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
    config = session_config(settings.provider, settings.provider_options, settings.threads)
    library = load_rules(settings)
    hear(Progress("load", "loading the model"))
    loaded = load_model(model, settings)
    changed = settings.dims or settings.input_shapes or settings.freeze_initializers
    original = load(upgraded(model) if settings.upgrade else model) if changed else loaded
    ranges, overrides = input_ranges(loaded.graph), given_inputs(inputs)
    if settings.at and overrides:
        raise UsageError("inputs have the sizes that they have: 'inputs' and 'at' exclude each other")
    bound = bound_sizes(loaded, original)
    sets = tuple({**bound, **sizes} for sizes in settings.at or ({},))
    baseline_s, feeds = first_run(
        original, config, ranges, overrides, sets[0], settings.seed, dict(settings.input_shapes)
    )
    sizes = open_sizes(original, feeds)
    limit = most_bytes(loaded, settings.max_growth)
    return Context(
        given=model, settings=settings, targets=targets, strategy=strategy, config=config, library=library,
        original=original, loaded=loaded, start=simplify(loaded.graph), ranges=ranges, hints=size_hints(original.graph),
        overrides=overrides, bound=bound, sets=sets, sizes=sizes,
        arena=Arena(loaded, original, config, feeds, limit, settings.seed, patience(baseline_s)),
        effort=effort_for(loaded, settings.budget, sizes), clock=Budget(settings.budget, None, interrupted),
        began=began, hear=hear,
    )  # fmt: skip


def load_rules(settings: Settings) -> Library:
    """The rules that some settings name."""
    return load_library(
        settings.rules, settings.exclude, settings.provider, settings.portable, max_error=settings.max_error
    )


def load_model(model: str | Path | ModelProto, settings: Settings) -> Model:
    """A model as some settings want it."""
    return load(
        upgraded(model) if settings.upgrade else model, freeze_initializers=settings.freeze_initializers, dims=settings.dims or None,
        input_shapes=settings.input_shapes or None,
    )  # fmt: skip


def effort_for(model: Model, seconds: float | None, sizes: Mapping[str, int]) -> Effort:
    """What the optimisation of a model may spend.

    Args:
        model: The model.
        seconds: The limit that was given, if one was.
        sizes: Of dimensions that it leaves open.
    """
    typical = AnalyticCost(dims=named_sizes(sizes)).of(model.graph).total if seconds is None else 0.0
    return Effort.of(seconds, len(model.graph.nodes), typical)


def named_sizes(sizes: Mapping[str, int]) -> dict[str, int]:
    """Sizes of those open dimensions that have a name."""
    return {name: size for name, size in sizes.items() if "[" not in name}


def patience(baseline_s: float) -> float:
    """Seconds that opening or running a candidate may take, given those of a run of the original."""
    return max(_PATIENCE_S, _PATIENCE * baseline_s)


def check_model(name: str, model: Any) -> None:
    """See that an argument is a model.

    Raises:
        UsageError: It is not.
    """
    if not isinstance(model, str | Path | ModelProto):
        raise UsageError(f"{name} must be a path or an onnx.ModelProto, not {type(model).__name__}")


def check_targets(model: str | Path | ModelProto, **given: str | Path | None) -> Targets:
    """Files to write, each another one and none of them the model.

    Raises:
        UsageError: They are not, or there is no such folder.
    """
    taken = {"model": Path(model).resolve()} if not isinstance(model, ModelProto) else {}
    targets: dict[str, Path | None] = {}
    for name, value in given.items():
        if value is not None and not isinstance(value, str | Path):
            raise UsageError(f"{name} must be a path, not {type(value).__name__}")
        target = None if value is None else Path(value)
        targets[name] = target
        if target is None:
            continue
        for other, path in taken.items():
            same = target.exists() and path.exists() and target.samefile(path)
            if (same or target.resolve() == path) and not is_stream(target):
                raise UsageError(f"{name} and {other} are the same file: {target}", "no input is ever overwritten")
        if not target.parent.is_dir():
            raise UsageError(f"{name}: no such folder: {target.parent}")
        taken[name] = target.resolve()
    return Targets(**targets)
