"""From a task to environments: its rules, its prices and its models, loaded and remembered in each process."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from graphopt.config import Settings
from graphopt.cost.base import CostModel
from graphopt.cost.models import COST_MODELS, Wanted
from graphopt.cost.store import SPEEDUP, Store
from graphopt.errors import UsageError
from graphopt.ir.graph import Graph
from graphopt.onnxio.load import Model, load
from graphopt.rewrite.library import Library, load_library
from graphopt.rl.agent import AgentNotice
from graphopt.rl.manifest import PRICES
from graphopt.rl.task import Graphs, Pricing, Source, Task
from graphopt.rl.task_environment import EpisodeState, LRUCache, TaskEnvironment
from graphopt.rl.training.training_run import Run, Status
from graphopt.runtime.environment import block_size, fingerprint, machine_of
from graphopt.runtime.feeds import make_feeds
from graphopt.runtime.session import Session, SessionConfig
from graphopt.search.arena import Arena, most_bytes
from graphopt.search.greedy import Greedy
from graphopt.search.normal import Normal
from graphopt.search.problem import Budget, Problem, State
from graphopt.search.trace import Trace, options_of
from graphopt.search.trace import fingerprint as graph_fingerprint
from graphopt.verification.ranges import input_ranges
from graphopt.zoo import build, describe, names


def model_path(source: Source) -> Path:
    """The file of a source; a model of the zoo is built if need be.

    Raises:
        UsageError: It is neither a file nor a model of the zoo.
        MissingExtraError: It has to be built, and the zoo's libraries are not installed.
    """
    path = Path(source.model)
    if path.is_file():
        return path
    _see_in_zoo(source.model)
    return build(source.model)


def find_models(graphs: Graphs, tell: Callable[[Status], None]) -> None:
    """Find, before anything takes its time, what of a task's graphs is missing.

    The models to train on are built if need be. From those that are held out nothing is learned: an evaluation builds them, and needs the
    libraries for it.

    Raises:
        UsageError: One is neither a file nor a model of the zoo.
        MissingExtraError: See :func:`model_path`.
    """
    for source in graphs.held_out:
        if not Path(source.model).is_file():
            _see_in_zoo(source.model)
    for source in graphs.pool:
        tell(Status(f"finding {source.name}"))
        model_path(source)


def _see_in_zoo(name: str) -> None:
    if name.partition("@")[0] not in names():
        raise UsageError(f"{name}: neither a file nor a model of the zoo", "see: graphopt zoo list")
    describe(name)


def cost_model(pricing: Pricing, store: Store, *, measure: bool = False) -> CostModel:
    """The cost model that a task asks for."""
    spec = COST_MODELS.ready(pricing.model)
    return spec.make(
        Wanted(store, SessionConfig(threads=pricing.threads), measure, pricing.measure or 0.0, prices=pricing.prices)
    )


class FileEnvironment(TaskEnvironment):
    """The environment of a task on a model in a file, which can be measured and of which traces can be written.

    Args (the others are those of :class:`graphopt.rl.task_environment.TaskEnvironment`):
        model: The model as loaded.
        store: Where measured speed-ups are remembered.
        dims: Sizes of symbolic dimensions that the model was loaded with.
    """

    def __init__(
        self,
        task: Task,
        problem: Problem,
        start: State,
        name: str,
        model: Model,
        store: Store,
        dims: Mapping[str, int],
    ) -> None:
        super().__init__(task, problem, start, name)
        self.model, self.store, self.dims = model, store, dict(dims)

    def speedup(self, graph: Graph) -> float:
        """How many times as fast as the original a graph runs; measured once and remembered in the store."""
        place = f"{SPEEDUP}{self.start.graph.hash:016x}:{graph.hash:016x}"
        config = SessionConfig(threads=self.task.pricing.threads)
        machine = machine_of(config)
        known = self.store.get_many(machine, [place]).get(place)
        if known is None:
            arena = self._arena(config)
            known = arena.pair(None, graph, self.task.pricing.seconds).speedup
            self.store.put_many(machine, {place: known})
        return known

    def trace(self, state: EpisodeState) -> Trace:
        """What `graphopt replay` needs to make the steps of an episode again."""
        normal = Normal.of(self.model.graph, self.problem)
        task = self.task
        settings = Settings(
            dims=self.dims, rules=tuple(task.rules), exclude=tuple(task.exclude), threads=task.pricing.threads
        )
        return Trace(
            graph_fingerprint(self.model.graph),
            self.problem.library.hash,
            self.problem.block,
            most_bytes(self.model),
            options_of(settings),
            (*normal.steps, *state.steps),
            graph_fingerprint(state.search_state.graph),
            about={"strategy": "rl", "task": self.task.name, "cost": state.cost},
        )

    def _arena(self, config: SessionConfig) -> Arena:
        bare = Arena(self.model, self.model, config, {}, most_bytes(self.model))
        with Session(bare.loadable(None), config) as session:
            feeds = make_feeds(session.input_specs, ranges=input_ranges(self.model.graph))
        return replace(bare, feeds=feeds)


def library_of(task: Task) -> Library:
    """The rules of a task."""
    return load_library(task.rules, task.exclude)


def start_of(source: Source, library: Library, cost: CostModel) -> tuple[Model, Problem, State]:
    """A model as loaded, its rules and prices, and its normal form, where searches and episodes begin."""
    model = load(model_path(source), dims=dict(source.dims) or None)
    problem = Problem(library, cost, block_size())
    return model, problem, problem.start(Normal.of(model.graph, problem).graph)


def open_environment(task: Task, source: Source, store: Store, library: Library | None = None) -> FileEnvironment:
    """Load a model and make it ready. To the store nothing is written but measured speed-ups.

    Raises:
        GraphoptError: The model can't be loaded.
    """
    model, problem, start = start_of(source, library or library_of(task), cost_model(task.pricing, store))
    problem.cost.settle()
    return FileEnvironment(task, problem, start, source.name, model, store, source.dims)


_ENVIRONMENTS: LRUCache[Any, FileEnvironment] = LRUCache(24)
_STORES: dict[Path | None, Store] = {}
"""One for all environments of a process, so that it can be closed; the next use opens it again."""


def environment_of(task: Task, source: Source, prices: Path | None, library: Library | None = None) -> FileEnvironment:
    """The environment of a model, remembered in this process; by the user's own prices of kernels, unless a store is given.

    Whoever has read the task's rules gives them: their files may have been edited since.
    """
    if prices is not None and not prices.is_file():
        raise UsageError(
            f"{prices}: no such file", "workers on other machines need the folder of the run under the same path"
        )
    file = Path(source.model).absolute()
    found = file.stat() if file.is_file() else None  # one that was exported again is another model
    model = source.model if found is None else (file, found.st_mtime_ns, found.st_size)
    rules = None if library is None else library.hash
    key = (str(task.json()), model, tuple(sorted(source.dims.items())), prices, rules)

    def opened() -> FileEnvironment:
        store = _store_of(prices)
        if prices is not None:
            _see_prices(store, prices, task.pricing)
        return open_environment(task, source, store, library)

    return _ENVIRONMENTS.get_or_make(key, opened)


def _see_prices(store: Store, path: Path, pricing: Pricing) -> None:
    """Tell whoever gives prices, so that figures repeat, where they are of other machines: none of them is used then."""
    if "measure" not in COST_MODELS.get(pricing.model).options or kernel_prices(store, pricing):
        return
    if any(store.kernels(machine) for machine in store.sizes()):
        warnings.warn(
            f"{path} holds no kernel prices of this machine, but of another: what kernels take is estimated here, and figures differ from those "
            "of there (another processor, number of cores that the process may use, or version of the runtime is another machine)",
            AgentNotice,
            stacklevel=2,
        )


def kernel_prices(store: Store, pricing: Pricing) -> dict[str, float]:
    """What a store knows of this machine's kernels."""
    return store.kernels(machine_of(SessionConfig(threads=pricing.threads)))


def _store_of(prices: Path | None) -> Store:
    if prices not in _STORES:
        _STORES[prices] = Store() if prices is None else Store(prices)
    return _STORES[prices]


@contextmanager
def closing(prices: Path) -> Iterator[None]:
    """A block after which all of a store of prices lies in its one file, whoever has used it meanwhile.

    Workers may end without closing it, and leave a part beside it, which whoever opens and closes it then puts where it belongs.
    """
    try:
        yield
    finally:
        store = _store_of(prices)
        store.close()
        if prices.is_file() and prices.with_name(f"{prices.name}-wal").is_file():
            with store:
                store.sizes()


def environment_facts() -> dict[str, Any]:
    """Where a run learns, for its manifest."""
    import torch

    config = SessionConfig()
    return {"fingerprint": fingerprint(config).digest, "torch": torch.__version__, "block": block_size()}


def keep_prices(run: Run, library: Library, tell: Callable[[Status], None]) -> None:
    """Copy the prices known now into the run's folder: all workers and a resumed run then see the same ones."""
    pricing = run.task.pricing
    if "measure" in COST_MODELS.get(pricing.model).options and pricing.measure:
        for source in run.task.graphs.pool:
            tell(Status(f"measuring kernels of {source.name}"))
            with Store() as store:
                _, problem, start = start_of(source, library, cost_model(pricing, store, measure=True))
                Greedy().run(problem, start, Budget(2 * pricing.measure))
    path = run.out / PRICES
    for left in ("", "-wal", "-shm"):  # of a run that was killed; what lies beside a store is part of it
        path.with_name(path.name + left).unlink(missing_ok=True)
    with Store() as known, Store(path) as kept:
        name = machine_of(SessionConfig(threads=pricing.threads))
        kept.put_many(name, known.all(name))
        kept.put_corrections(name, known.corrections(name))
