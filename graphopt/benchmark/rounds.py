"""Interleaved rounds over several models: in every round each of them takes its turn.

Two sessions of one model differ by a per cent or two for as long as they live (where their memory happens to lie), so
that rounds alone do not tell how sure a ratio is. A *cycle* is therefore: open a session of every contender, run some
rounds, close them all. The contenders are opened and run in an order that changes from cycle to cycle, and within a cycle
the rounds rotate and turn round, so that nobody always follows the same neighbour.
"""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from graphopt.benchmark.interval import ratio
from graphopt.benchmark.results import Ratio
from graphopt.runtime.dtypes import Array
from graphopt.runtime.session import Session, SessionConfig
from graphopt.runtime.timing import Turn, pause_between, turn_order

MIN_CYCLES = 4
"""Cycles of a measurement, at least."""
MIN_ROUNDS = 5
"""Rounds of a cycle, at least."""
PATIENCE = 3
"""How many times the planned time a measurement may take that is not precise enough."""

Timed = Callable[[], list[float]]
"""Takes a turn and returns the seconds of its runs."""


@dataclass(frozen=True)
class Contender:
    """What takes part.

    Attributes:
        name: Its name.
        model: What to open.
        config: How to open it.
    """

    name: str
    model: Path
    config: SessionConfig


Opener = Callable[[Contender, ExitStack], tuple[float, Timed]]
"""Opens a session that lives as long as the stack: the seconds that took, and how to take a turn."""


@dataclass(frozen=True, eq=False)
class Cycle:
    """What one session of each contender showed.

    Attributes:
        opened: Seconds that each took to open.
        turns: Seconds per run, a row for each round and a column for each contender.
        runs: Seconds of every single run of each contender.
    """

    opened: tuple[float, ...]
    turns: Array
    runs: tuple[Array, ...]


@dataclass(frozen=True)
class Effort:
    """How long to measure.

    Attributes:
        seconds: Time for the cycles; :data:`MIN_CYCLES` are run in any case.
        rounds: Rounds in place of a time, or None.
        precision: How far an interval may reach to either side, relative. Where one reaches further, or a verdict is
            ``unclear``, the measurement goes on for up to :data:`PATIENCE` times the time. What is far from 1 may
            be known less precisely: to a tenth of the difference.
    """

    seconds: float = 20.0
    rounds: int | None = None
    precision: float = 0.02


@dataclass(frozen=True, eq=False)
class Measured:
    """Cycles, and what they say of every contender.

    Attributes:
        cycles: The cycles.
        ratios: For each contender but the first: the time of the first over its own.
        noisy: Indices of contenders that were not measured precisely enough.
        seconds: How long it took.
    """

    cycles: tuple[Cycle, ...]
    ratios: tuple[Ratio, ...]
    noisy: tuple[int, ...]
    seconds: float

    @property
    def rounds(self) -> int:
        """Rounds over all cycles."""
        return sum(len(cycle.turns) for cycle in self.cycles)

    def over(self, baseline: int, variant: int, precision: float) -> Ratio:
        """The time of a contender over that of another."""
        return ratio([cycle.turns for cycle in self.cycles], baseline, variant, precision)

    def opened(self, index: int) -> float:
        """Median seconds to open a contender."""
        return float(np.median([cycle.opened[index] for cycle in self.cycles]))

    def runs(self, index: int) -> Array:
        """Seconds of all single runs of a contender."""
        return np.concatenate([cycle.runs[index] for cycle in self.cycles])


def measure(
    contenders: Sequence[Contender],
    opener: Opener,
    effort: Effort,
    *,
    on_round: Callable[[float], None] = lambda used: None,
    interrupted: Callable[[], bool] = lambda: False,
) -> Measured | None:
    """Measure contenders against the first of them.

    Args:
        contenders: The baseline, then the others.
        opener: How to open them.
        effort: How long.
        on_round: Called after each round with the part of the time or of the rounds that is used.
        interrupted: Asked after each round; true ends the measurement.

    Returns:
        What was measured, or None when it was interrupted before the second cycle had begun to run.

    Raises:
        SessionError: One of them can't be opened or run.
    """
    begin = time.perf_counter()
    cycles: list[Cycle] = []
    done = 0

    def told() -> None:
        nonlocal done
        done += 1
        on_round(done / effort.rounds if effort.rounds else (time.perf_counter() - begin) / effort.seconds)

    while True:
        left = None if effort.rounds is None else effort.rounds - done
        cycle = _cycle(contenders, opener, len(cycles), left, told, interrupted)
        if cycle is not None:
            cycles.append(cycle)
        if len(cycles) < MIN_CYCLES and not interrupted():
            continue
        if len(cycles) < 2:
            return None
        elapsed = time.perf_counter() - begin
        measured = _judged(cycles, len(contenders), effort.precision, elapsed)
        enough = done >= effort.rounds if effort.rounds else elapsed >= effort.seconds
        hopeless = bool(effort.rounds) or elapsed >= PATIENCE * effort.seconds
        if interrupted() or (enough and (hopeless or not measured.noisy)):
            return measured


def in_process(feeds: Mapping[str, Any]) -> Opener:
    """Opens sessions in this process.

    Args:
        feeds: Inputs of all contenders.
    """

    def opener(contender: Contender, stack: ExitStack) -> tuple[float, Timed]:
        start = time.perf_counter()
        session = stack.enter_context(Session(contender.model, contender.config))
        seconds = time.perf_counter() - start
        return seconds, Turn(session.prepare(feeds)).take

    return opener


def _cycle(
    contenders: Sequence[Contender],
    opener: Opener,
    number: int,
    max_rounds: int | None,
    on_round: Callable[[], None],
    interrupted: Callable[[], bool],
) -> Cycle | None:
    """Open all, run rounds for as long as the opening took, close all; None if there was no time for a round."""
    count = len(contenders)
    # Being opened first or last is worth something: every place is taken equally often, next to changing neighbours.
    order = np.roll(np.random.default_rng(number // count).permutation(count), number % count).tolist()
    opened, turns = [0.0] * count, dict[int, Timed]()
    rows: list[list[float]] = []
    runs: list[list[float]] = [[] for _ in contenders]
    pause = pause_between(c.config for c in contenders)
    begin = time.perf_counter()
    collecting = gc.isenabled()
    with ExitStack() as stack:
        for i in order:
            if interrupted():
                return None
            opened[i], turns[i] = opener(contenders[i], stack)
        seconds = time.perf_counter() - begin
        begin = time.perf_counter()
        gc.disable()  # a collection in the middle of a turn would be charged to whoever runs
        try:
            while len(rows) < MIN_ROUNDS or (max_rounds is None and time.perf_counter() - begin < seconds):
                if interrupted() or len(rows) == max_rounds:
                    break
                row = [0.0] * count
                for place in turn_order(count, len(rows)):
                    i = order[place]
                    if pause:
                        time.sleep(pause)
                    taken = turns[i]()
                    runs[i].extend(taken)
                    row[i] = statistics.fmean(taken)
                rows.append(row)
                on_round()
        finally:
            if collecting:
                gc.enable()
            turns.clear()  # they hold the sessions' inputs and outputs
    return Cycle(tuple(opened), np.array(rows), tuple(map(np.array, runs))) if rows else None


def _judged(cycles: Sequence[Cycle], count: int, precision: float, seconds: float) -> Measured:
    tables = [cycle.turns for cycle in cycles]
    ratios = tuple(ratio(tables, 0, index, precision) for index in range(1, count))
    noisy = tuple(i for i, each in enumerate(ratios, 1) if _is_noisy(each, precision))
    return Measured(tuple(cycles), ratios, noisy, seconds)


def _is_noisy(ratio: Ratio, precision: float) -> bool:
    return ratio.verdict == "unclear" or ratio.half_width > max(precision, 0.1 * abs(ratio.value - 1))
