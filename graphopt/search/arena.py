"""Where graphs meet the clock: sessions for graphs of one model, measured in pairs."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from graphopt.ir.graph import Graph
from graphopt.ir.tensors import InFile
from graphopt.onnxio.emit import Emitted, emit
from graphopt.onnxio.load import Model
from graphopt.runtime import guard
from graphopt.runtime.session import LoadableModel, Place, Session, SessionConfig
from graphopt.runtime.timing import Paired, measure_models, measure_pair

SESSION_NOISE = 0.01
"""Relative difference that a comparison over single sessions must exceed to mean anything."""
GROWTH = 0.10
"""How much larger a file may become unless someone says otherwise, as a fraction of it."""
_SLACK = 1 << 20  # bytes that it may grow besides


def most_bytes(model: Model, growth: float = GROWTH) -> int:
    """How large what is made of a model may become."""
    return int(model.nbytes * (1 + growth)) + _SLACK


def loadable(model: Model, emitted: Emitted) -> LoadableModel:
    """An emitted model as the runtime takes it: weights by reference."""
    places = {
        name: Place(str(tensor.path), tensor.offset, tensor.nbytes)
        for name, tensor in emitted.tensors.items()
        if isinstance(tensor, InFile)
    }
    return LoadableModel(emitted.proto.SerializeToString(), emitted.arrays(), model.base_dir, places)


@dataclass(frozen=True, eq=False)
class Arena:
    """Measures graphs of one model against each other.

    Attributes:
        model: The model that the graphs came from.
        original: The model as its user has it (``model`` but for frozen inputs and specialised dimensions).
        config: Provider, threads and optimisation level.
        feeds: Inputs.
        max_bytes: How large an emitted model may be.
        seed: Of the bootstrap.
        patience: Seconds that opening a graph, or its first run, may take.
        known: Hashes of graphs that have been run.
    """

    model: Model
    original: Model
    config: SessionConfig
    feeds: Mapping[str, Any]
    max_bytes: int | None = None
    seed: int = 0
    patience: float = guard.LIMIT_S
    known: set[int] = field(default_factory=set)

    def vet(self, graph: Graph) -> None:
        """Run a graph for the first time, out of harm's way (:mod:`graphopt.runtime.guard`).

        Raises:
            CrashError: It takes the runtime down, or has no end.
            SessionError: It does not run.
        """
        if graph.hash not in self.known:
            with guard.open_guarded(
                self.loadable(graph), self.config, name="a candidate", seconds=self.patience
            ) as session:
                session.run(self.feeds)
            self.known.add(graph.hash)

    def loadable(self, graph: Graph | None) -> LoadableModel:
        """A graph as the runtime takes it; ``None`` stands for the original model."""
        if graph is None:
            return loadable(self.original, emit(self.original, self.original.graph))
        return loadable(self.model, emit(self.model, graph, max_bytes=self.max_bytes))

    def pair(
        self, baseline: Graph | None, variant: Graph, seconds: float = math.inf, rounds: int | None = None
    ) -> Paired:
        """A quick comparison of two graphs (``None``: the original model) over one session of each.

        Two sessions of the same model can differ by a per cent or two: see :data:`SESSION_NOISE`.

        Args:
            baseline: The one.
            variant: The other.
            seconds: Limit, the opening of the sessions not counted.
            rounds: Limit in rounds, 7 at least.

        Raises:
            SessionError: One of the two does not run.
        """
        for graph in (baseline, variant):
            if graph is not None:
                self.vet(graph)
        with Session(self.loadable(baseline), self.config) as a, Session(self.loadable(variant), self.config) as b:
            return measure_pair(
                a, b, self.feeds, seconds=seconds, min_rounds=7, max_rounds=rounds or 10_000, precision=0.01,
                seed=self.seed,
            )  # fmt: skip

    def verdict(
        self,
        variant: Graph,
        seconds: float = math.inf,
        session_rounds: int | None = None,
        sessions: int = 40,
        stop: Callable[[], bool] | None = None,
    ) -> Paired:
        """Compare a graph with the original model over several sessions of each.

        Args:
            variant: The graph.
            seconds: Time to spend, all told.
            session_rounds: See :func:`graphopt.runtime.timing.measure_models`.
            sessions: Of each to open at most.
            stop: Asked now and then; true ends it with what there is, 4 sessions of each at least.

        Raises:
            SessionError: One of the two does not run.
        """
        return self.over_sessions(None, variant, seconds, 4, 0.004, session_rounds, sessions, stop)

    def over_sessions(
        self,
        baseline: Graph | None,
        variant: Graph,
        seconds: float,
        sessions: int = 4,
        precision: float | None = None,
        session_rounds: int | None = None,
        most: int = 40,
        stop: Callable[[], bool] | None = None,
    ) -> Paired:
        """Compare two graphs (``None``: the original model) over at least so many sessions of each.

        Args:
            baseline: The one.
            variant: The other.
            seconds: Time to spend, opening included.
            sessions: Of each to open, however long that takes.
            precision: Width of the interval that is narrow enough to stop.
            session_rounds: See :func:`graphopt.runtime.timing.measure_models`.
            most: Sessions of each to open at most.
            stop: See :func:`graphopt.runtime.timing.measure_models`.

        Raises:
            SessionError: One of the two does not run.
        """
        for graph in (baseline, variant):
            if graph is not None:
                self.vet(graph)
        return measure_models(
            self.loadable(baseline), self.loadable(variant), self.feeds, self.config, seconds=seconds,
            min_sessions=sessions, max_sessions=most, precision=precision, session_rounds=session_rounds,
            stop=stop,
        )  # fmt: skip
