"""From a task to environments: its rules, its prices and its models, loaded and remembered in each process."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from graphopt.cost.base import CostModel
from graphopt.cost.models import COST_MODELS, Wanted
from graphopt.cost.store import Store
from graphopt.errors import UsageError
from graphopt.onnxio.load import load
from graphopt.rewrite.library import Library, load_library
from graphopt.rl.task import Pricing, Source, Task
from graphopt.rl.task_environment import LRUCache, TaskEnvironment
from graphopt.runtime.environment import block_size
from graphopt.runtime.session import SessionConfig
from graphopt.search.normal import Normal
from graphopt.search.problem import Problem
from graphopt.zoo import build, names


def model_path(source: Source) -> Path:
    """The file of a source; a model of the zoo is built if need be.

    Raises:
        UsageError: It is neither a file nor a model of the zoo.
        MissingExtraError: It has to be built, and the zoo's libraries are not installed.
    """
    path = Path(source.model)
    if path.is_file():
        return path
    if source.model.partition("@")[0] in names():
        return build(source.model)
    raise UsageError(f"{source.model}: neither a file nor a model of the zoo", "see: graphopt zoo list")


def cost_model(pricing: Pricing, store: Store, *, measure: bool = False) -> CostModel:
    """The cost model that a task asks for.

    Args:
        pricing: What the task says.
        store: Prices of kernels.
        measure: Whether kernels may be measured.
    """
    spec = COST_MODELS.ready(pricing.model)
    return spec.make(
        Wanted(
            store, SessionConfig(threads=pricing.threads), measure, pricing.measure or 0.0, prices=pricing.prices
        )
    )  # fmt: skip


def library_of(task: Task) -> Library:
    """The rules of a task."""
    return load_library(task.rules, task.exclude)


def open_environment(task: Task, source: Source, store: Store, library: Library | None = None) -> TaskEnvironment:
    """Load a model and make it ready.

    Args:
        task: The task.
        source: The model.
        store: Prices of kernels, which is not written to but for measured speed-ups.
        library: The task's rules, if they were loaded before.

    Raises:
        GraphoptError: The model can't be loaded.
    """
    model = load(model_path(source), dims=dict(source.dims) or None)
    cost = cost_model(task.pricing, store)
    problem = Problem(library or library_of(task), cost, block_size())
    start = problem.start(Normal.of(model.graph, problem).graph)
    cost.settle()
    return TaskEnvironment(task, problem, start, source.name, model, store, source.dims)


_ENVIRONMENTS: LRUCache[Any, TaskEnvironment] = LRUCache(24)


def environment_of(task: Task, source: Source, prices: Path | None) -> TaskEnvironment:
    """The environment of a model, remembered in this process.

    Args:
        task: The task.
        source: The model.
        prices: The store that holds the prices of kernels; ``None`` for the user's own.
    """
    if prices is not None and not prices.is_file():
        raise UsageError(
            f"{prices}: no such file", "workers on other machines need the folder of the run under the same path"
        )
    key = (str(task.json()), source.model, tuple(sorted(source.dims.items())), prices)
    return _ENVIRONMENTS.get_or_make(
        key, lambda: open_environment(task, source, Store() if prices is None else Store(prices))
    )
