"""Where graphs meet the clock: sessions for graphs of one model, measured in pairs."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from graphopt.ir.graph import Graph
from graphopt.onnxio.emit import Emitted, emit
from graphopt.onnxio.load import Model
from graphopt.onnxio.save import LARGEST_PROTOBUF, by_reference
from graphopt.runtime import guard
from graphopt.runtime.distance import Distance, distance
from graphopt.runtime.environment import free_memory
from graphopt.runtime.rounds import (
    MIN_CYCLES,
    MIN_ROUNDS,
    Contender,
    Measured,
    Sampling,
    in_process,
    measure,
    measure_pair,
)
from graphopt.runtime.session import LoadableModel, SessionConfig
from graphopt.runtime.timing import NOISY, Paired, Ratio
from graphopt.settings import Settings

_DEFAULT = Settings()
_SLACK = 1 << 20  # bytes that a file may grow besides
_MEMORY_SLACK = 64 << 20  # bytes that the weights of a session may grow besides
_ROOM = 4 << 30  # bytes of sessions that run together, or a half of the free memory where that is less
_SURE = 0.002  # half an interval with which a verdict ends early: less than what is worth telling
_PLAIN = 0.2  # the same as a share of the gain, which is then five times as far from 1 as its interval reaches
_QUICK = 0.005  # the same of a quick comparison
_QUICK_ROUNDS = 2  # of each cycle of a quick comparison at least: as often first as second


def most_bytes(model: Model, growth: float = _DEFAULT.max_growth) -> int:
    """How large what is made of a model may become."""
    return int(min(model.nbytes * (1 + growth), sys.maxsize)) + _SLACK


def most_added(model: Model, growth: float = _DEFAULT.max_memory_growth) -> float:
    """How many bytes of weights a session of what is made of a model may hold beyond those of the model."""
    return growth * model.nbytes + _MEMORY_SLACK


def _quick(seconds: float, rounds: int | None) -> Sampling:
    """How a quick comparison measures."""
    each = _QUICK_ROUNDS if rounds is None else max(_QUICK_ROUNDS, min(MIN_ROUNDS, rounds // MIN_CYCLES))
    return Sampling(seconds, rounds, each=each, patience=1, early=_QUICK)


def loadable(model: Model, emitted: Emitted) -> LoadableModel:
    """An emitted model as the runtime takes it.

    What lies in a file is read from there by the runtime itself: a mapping of ours would count as memory beside its copy.
    """
    proto, arrays, folder = by_reference(emitted)
    return LoadableModel(proto, arrays, folder or model.base_dir)


@dataclass(frozen=True, eq=False)
class Compared:
    """Graphs that ran in the same rounds.

    Attributes:
        measured: What was measured; None where all graphs are the original, of which nothing needs a clock.
        places: Which contender each name is; the original is the first.
    """

    measured: Measured | None
    places: Mapping[str, int]

    def over(self, baseline: str | None, variant: str, precision: float = NOISY) -> Ratio | None:
        """The time of one (None: the original) over that of another; None where both are the same graph."""
        first, second = 0 if baseline is None else self.places[baseline], self.places[variant]
        if first == second or self.measured is None:
            return None
        return self.measured.over(first, second, precision)


@dataclass(frozen=True, eq=False)
class Arena:
    """Measures graphs of one model against each other.

    Attributes:
        model: The model that the graphs came from.
        original: The model as its user has it (``model`` but for frozen inputs and specialised dimensions).
        config: Provider, threads and optimisation level.
        feeds: Inputs.
        max_bytes: How large an emitted model may be.
        seed: Of the inputs at other sizes.
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

    @property
    def seats(self) -> int:
        """Sessions that may be in memory at once, if none takes more than what has run over there so far: two at least."""
        free, each = free_memory(), guard.peak()
        return 2 if free is None or each is None else max(2, min(_ROOM, free // 2) // max(each, 1))

    @property
    def distance(self) -> Distance | None:
        """How far apart the processors are that it measures on; ``None`` for one, and for other devices."""
        return distance(self.config)

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
        """A quick comparison of two graphs (``None``: the original model).

        Args:
            baseline: The one.
            variant: The other.
            seconds: Limit; :data:`MIN_CYCLES` sessions of each are opened in any case.
            rounds: Limit in rounds, over all sessions.

        Raises:
            SessionError: One of the two does not run.
        """
        return self.over_sessions(baseline, variant, _quick(seconds, rounds))

    def together(
        self,
        graphs: Sequence[Graph],
        seconds: float = math.inf,
        rounds: int | None = None,
        interrupted: Callable[[], bool] = lambda: False,
    ) -> Measured | None:
        """:meth:`pair` for more graphs than two, which all run in the same rounds; ``None`` if it was interrupted too early to tell.

        Raises:
            SessionError: One of them does not run.
        """
        return self._interleaved(graphs, _quick(seconds, rounds), interrupted)

    def verdict(
        self,
        variant: Graph,
        seconds: float = math.inf,
        session_rounds: int = MIN_ROUNDS,
        sessions: int = 40,
        stop: Callable[[], bool] = lambda: False,
    ) -> Paired:
        """Compare a graph with the original model.

        Args:
            variant: The graph.
            seconds: Time to spend, all told.
            session_rounds: Rounds with each pair of sessions.
            sessions: Of each to open at most.
            stop: Asked now and then; true ends it with what there is, 4 sessions of each at least.

        Raises:
            SessionError: One of the two does not run.
        """
        sampling = Sampling(seconds, each=session_rounds, most=sessions, patience=1, early=_SURE, plain=_PLAIN)
        return self.over_sessions(None, variant, sampling, stop)

    def compare(
        self, graphs: Mapping[str, Graph], sampling: Sampling, interrupted: Callable[[], bool] = lambda: False
    ) -> Compared | None:
        """Run graphs and the original in the same interleaved rounds, equal ones once.

        Args:
            graphs: By name.
            sampling: How long.
            interrupted: Asked now and then; true ends it.

        Returns:
            What was measured; None if it was interrupted before there was anything to tell.

        Raises:
            SessionError: One of them does not run.
        """
        distinct: dict[int, Graph | None] = {self.original.graph.hash: None}
        for graph in graphs.values():
            distinct.setdefault(graph.hash, graph)
        places = {name: list(distinct).index(graph.hash) for name, graph in graphs.items()}
        if len(distinct) == 1:
            return Compared(None, places)
        measured = self._interleaved(distinct.values(), sampling, interrupted)
        return None if measured is None or interrupted() else Compared(measured, places)

    def over_sessions(
        self, baseline: Graph | None, variant: Graph, sampling: Sampling, stop: Callable[[], bool] = lambda: False
    ) -> Paired:
        """Compare two graphs (``None``: the original model).

        Args:
            baseline: The one.
            variant: The other.
            sampling: How long.
            stop: See :func:`graphopt.runtime.rounds.measure_pair`.

        Raises:
            SessionError: One of the two does not run.
        """
        sampling = self._ready((baseline, variant), sampling)
        return measure_pair(self.loadable(baseline), self.loadable(variant), self.feeds, self.config, sampling, stop)

    def _interleaved(
        self, graphs: Collection[Graph | None], sampling: Sampling, interrupted: Callable[[], bool]
    ) -> Measured | None:
        """Run graphs in the same rounds."""
        sampling = self._ready(graphs, sampling)
        contenders = [Contender(str(place), self.loadable(graph), self.config) for place, graph in enumerate(graphs)]
        return measure(contenders, in_process(self.feeds), sampling, interrupted=interrupted)

    def _ready(self, graphs: Iterable[Graph | None], sampling: Sampling) -> Sampling:
        """Vet graphs that will be measured; how, if no two of them should be in memory."""
        for graph in graphs:
            if graph is not None:
                self.vet(graph)
        return replace(sampling, alone=self.original.nbytes > LARGEST_PROTOBUF)
