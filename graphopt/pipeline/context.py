"""What all stages of an optimisation know, and what they tell while they work."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

from onnx import ModelProto

from graphopt.config import Settings
from graphopt.ir.graph import Graph
from graphopt.onnxio.bodies import all_nodes
from graphopt.onnxio.emit import Emitted, emit
from graphopt.onnxio.load import Model
from graphopt.rewrite.library import Library
from graphopt.runtime.feeds import Range
from graphopt.runtime.given import Given
from graphopt.runtime.session import SessionConfig
from graphopt.runtime.sizes import Hints
from graphopt.search.arena import Arena
from graphopt.search.effort import Effort
from graphopt.search.problem import Budget, Strategy


@dataclass(frozen=True)
class Progress:
    """What an optimisation is doing.

    Attributes:
        stage: ``load``, ``search``, ``verify``, ``measure`` or ``report``.
        message: One line for people.
        fraction: Part of the budget that is used, or of the work that is done where there is none, 0 to 1; ``None`` before the
            search begins.
        best: The last speed-up measured over the normal form, when known.
        budget: Seconds for all of it; ``None`` before the search begins, and where none was given.
    """

    stage: str
    message: str
    fraction: float | None = None
    best: float | None = None
    budget: float | None = None


@dataclass(frozen=True)
class Targets:
    """Files to write; ``None`` for those that nobody asked for.

    Attributes:
        output: The model.
        trace: The steps.
        report: The page.
        sharing: Models beside the output, into whose external data it may point.
    """

    output: Path | None = None
    trace: Path | None = None
    report: Path | None = None
    sharing: tuple[Path, ...] = ()


def smaller(original: Model, candidate: Emitted) -> bool:
    """Whether a candidate has fewer nodes than the original, and is no larger."""
    fewer = all_nodes(candidate.proto.graph) < all_nodes(original.proto.graph)
    return fewer and candidate.nbytes <= original.nbytes


@dataclass(frozen=True, eq=False)
class Context:
    """What every stage may look at.

    Attributes:
        given: The model as the caller has it.
        held: What results are held against: that, or what it was converted to where the runtime does not run it.
        settings: What the caller said, checked.
        targets: Files to write.
        strategy: How to search.
        config: How sessions are opened.
        library: The rules.
        original: The model as it was given.
        loaded: The model with its dimensions fixed and its initializers frozen, where that was asked for.
        start: Its graph as the search begins with it.
        ranges: Bounds of integer inputs, by name.
        hints: What the graph says of the sizes of symbols.
        inputs: Sets of inputs that the caller gave; the search goes by the first.
        bound: Which symbol of the original stands for which number in ``loaded``.
        sets: Sets of sizes to verify and measure at; the search goes by the first.
        sizes: Those at which dimensions that the model leaves open are measured.
        arena: Where graphs are measured.
        effort: What search and measurement may spend.
        clock: Runs since the search began; knows of the limit in seconds and of Ctrl-C.
        began: When the optimisation began, on the monotonic clock.
        hear: Told what is being done.
        drafts: What was written and not put in its place, to be closed in the end, however that comes.
    """

    given: str | Path | ModelProto
    held: str | Path | ModelProto
    settings: Settings
    targets: Targets
    strategy: Strategy
    config: SessionConfig
    library: Library
    original: Model
    loaded: Model
    start: Graph
    ranges: Mapping[str, Range]
    hints: Hints
    inputs: Given
    bound: Mapping[str, int]
    sets: tuple[Mapping[str, int], ...]
    sizes: Mapping[str, int]
    arena: Arena
    effort: Effort
    clock: Budget
    began: float
    hear: Callable[[Progress], None]
    drafts: ExitStack = field(default_factory=ExitStack)

    @cached_property
    def simpler(self) -> bool:
        """Whether the start, as it would be written, is simpler than the original: something to write although no rule applies."""
        return smaller(self.original, emit(self.loaded, self.start, max_bytes=self.limit))

    def tell(self, stage: str, message: str, best: float | None = None, done: float | None = None) -> None:
        """Say what is being done.

        Args:
            stage: See :class:`Progress`.
            message: See :class:`Progress`.
            best: See :class:`Progress`.
            done: Part of the work that is done, where it is counted; by default all but the last measurement.
        """
        told = Progress(stage, message, 1 - self.effort.plan.verdict if done is None else done, best)
        limit = self.settings.budget
        if limit is not None:
            told = replace(told, fraction=min(1.0, (time.monotonic() - self.began) / limit), budget=limit)
        self.hear(told)

    @property
    def limit(self) -> int:
        """Bytes that what is written may have."""
        assert self.arena.max_bytes is not None
        return self.arena.max_bytes
