"""Interleaved rounds over several models: in every round each of them takes its turn.

An absolute time on a shared machine is worth little: clocks, neighbours and caches move it by ten per cent within seconds. What
holds still is the *ratio* of sessions that run within the same milliseconds, so they take turns, and
:mod:`graphopt.runtime.timing` makes ratios of that. Four things that rounds do not average out are dealt with apart:

- *Luck.* Where its memory happens to lie makes a session faster or slower for as long as it lives: two sessions of one model
  differ by up to two per cent, and more rounds only make that difference surer. A *cycle* is therefore: open a session of every
  contender, run some rounds, close them all. The contenders are opened and run in an order that changes from cycle to cycle, and
  within a cycle the rounds rotate and turn round, so that nobody always follows the same neighbour. (Of models so large that two should
  not be in memory at once, one session is open at a time.)
- *Caches.* A session that runs after itself finds its weights in the cache, after another it does not, which is worth some per
  cent. Where the first of them is short all therefore run once untimed in every turn, every other round runs backwards, and what is told of a session
  weighs both orders alike (:mod:`graphopt.runtime.timing`). The first round after opening is not timed, but of slow models: it is like no other.
- *Processors.* Those of a virtual machine move: a cycle begins when they are near each other, as far as there is patience
  (:mod:`graphopt.runtime.distance`).
- *Threads.* Those of a session spin on for a while after its turn, and take the processors from whoever's turn is next. They are told to
  sleep soon, and each turn begins after that.
"""

from __future__ import annotations

import math
import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from graphopt.errors import UsageError
from graphopt.ir.memo import collector_paused
from graphopt.ir.types import Array
from graphopt.runtime.distance import Distance, distance
from graphopt.runtime.environment import threads_used, usable_cores
from graphopt.runtime.providers import CPU, full_name, on_host
from graphopt.runtime.session import SPIN_S, Model, Session, SessionConfig, spinning, spins
from graphopt.runtime.timing import GRAIN_S, NOISY, SLOW_S, Paired, Ratio, Turn, Turns, ratio

MIN_CYCLES = 4
"""Cycles of a measurement, at least: Student's quantile is 12.7 for two, 3.2 for four and 2.4 for eight."""
MIN_ROUNDS = 5
"""Rounds of a cycle, at least."""
PATIENCE = 3
"""How many times the planned time a measurement may take that is not precise enough."""
SETTLE_S = 3e-3
"""Pause before each turn where sessions have threads of their own: these sleep by then (otherwise twice the latency, with two threads on two cores)."""
LONG_SETTLE_S = 0.05
"""The pause where threads can't be told, or were told otherwise: those of other runtimes, of providers on the processor, and of ONNX Runtime before 1.27."""

_TOLD = 0.02
"""How far an interval may reach to either side of what is told as a gain, if that is not far larger."""

_SCHEDULER = Path("/proc/thread-self/schedstat")
"""Linux: nanoseconds that a thread had a processor, and that it waited for one."""

Timed = Callable[[], list[float]]
"""Takes a turn and returns the seconds of its runs."""


@dataclass(frozen=True)
class Contender:
    """What takes part.

    Attributes:
        name: Its name.
        model: What to open.
        config: How to open it.
        foreign: Whether another runtime runs it, on threads that do as they like.
    """

    name: str
    model: Model
    config: SessionConfig
    foreign: bool = False

    @property
    def several(self) -> bool:
        """Whether it has threads of its own."""
        return self.config.threads != 1 or self.config.parallel > 1

    @property
    def pause(self) -> float:
        """Seconds to wait after its turn until its threads sleep."""
        if not self.several:
            return 0.0
        provider = full_name(self.config.provider)
        others = self.foreign or (provider != CPU and on_host(provider, self.config.provider_options))
        told = spins(self.config, SPIN_S)
        return SETTLE_S if told and not others else LONG_SETTLE_S

    @property
    def distance(self) -> Distance | None:
        """How far apart the processors are that it runs on; ``None`` where nothing tells."""
        return None if self.foreign else distance(self.config)

    def sleeping_soon(self) -> Contender:
        """The same, its threads told to sleep after :data:`graphopt.runtime.session.SPIN_S` where the runtime knows how."""
        if self.foreign or not self.several:
            return self
        return replace(self, config=spinning(self.config, SPIN_S))


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
class Sampling:
    """How long to measure.

    Attributes:
        seconds: Time for the cycles, opening included; ``least`` are run in any case. Infinite where cycles or rounds are counted.
        rounds: Rounds in place of a time, or None.
        precision: How far an interval may reach to either side, relative. Where one reaches further, or a verdict is
            ``unclear``, the measurement goes on for up to ``patience`` times the time. What is far from 1 may
            be known less precisely: to a tenth of the difference.
        each: Rounds of a cycle; where the time is limited at least, and for as long as it took to open the sessions.
        least: Cycles at least, 2 or more; multiples of 4 balance the order of two.
        most: Cycles at most.
        patience: How many times ``seconds`` a measurement may take that is not precise enough.
        early: Stop as soon as no interval reaches further than this to either side, relative, or than a tenth of the difference where
            one is far from 1; None uses the whole time. Stopping at a lucky moment makes intervals a little too narrow.
        plain: The share of the difference that an interval may reach to either side for ``early``, in place of a tenth: it is plain then on
            which side of 1 the ratio lies. No further than 2 % for that.
        alone: Open one session at a time, for models of which no two should be in memory: each runs all rounds of a cycle before
            the next is opened, so that noise of seconds shows more.
    """

    seconds: float = 20.0
    rounds: int | None = None
    precision: float = 0.02
    each: int = MIN_ROUNDS
    least: int = MIN_CYCLES
    most: int | None = None
    patience: float = PATIENCE
    early: float | None = None
    plain: float = 0.0
    alone: bool = False

    def __post_init__(self) -> None:
        if not 2 <= self.least <= (self.least if self.most is None else self.most):
            raise UsageError(f"need 2 <= least <= most cycles, got {self.least} and {self.most}")

    @property
    def counted(self) -> bool:
        """Whether rounds are counted, not timed."""
        return self.rounds is not None or self.seconds == math.inf

    def ended(self, measured: Measured) -> bool:
        """Whether what was measured is enough, or as much as there may be."""
        if self.most is not None and len(measured.cycles) >= self.most:
            return True
        if self.early is not None and all(
            _is_precise(each, max(self.early, min(self.plain * abs(each.value - 1), _TOLD))) for each in measured.ratios
        ):
            return True
        if self.rounds is not None:
            return measured.rounds >= self.rounds
        return measured.seconds >= self.seconds * (self.patience if measured.noisy else 1)


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

    def over(self, baseline: int, variant: int, precision: float = NOISY) -> Ratio:
        """The time of a contender over that of another."""
        return ratio([cycle.turns for cycle in self.cycles], baseline, variant, precision)

    def pair(self, baseline: int, variant: int) -> Paired:
        """What the rounds say of two contenders."""
        opening = np.array([(cycle.opened[baseline], cycle.opened[variant]) for cycle in self.cycles])
        return Paired.of([cycle.turns[:, [baseline, variant]] for cycle in self.cycles], opening)

    def opened(self, index: int) -> float:
        """Median seconds to open a contender."""
        return float(np.median([cycle.opened[index] for cycle in self.cycles]))

    def runs(self, index: int) -> Array:
        """Seconds of all single runs of a contender."""
        return np.concatenate([cycle.runs[index] for cycle in self.cycles])


def measure(
    contenders: Sequence[Contender],
    opener: Opener,
    sampling: Sampling,
    *,
    on_round: Callable[[float], None] = lambda used: None,
    interrupted: Callable[[], bool] = lambda: False,
    stop: Callable[[], bool] = lambda: False,
) -> Measured | None:
    """Measure contenders against the first of them.

    Args:
        contenders: The baseline, then the others.
        opener: How to open them.
        sampling: How long.
        on_round: Called after each round with the part of the time or of the rounds that is used.
        interrupted: Asked after each round; true ends the measurement.
        stop: Asked after each cycle from the least number on; true ends the measurement.

    Returns:
        What was measured, or None when it was interrupted before the second cycle had begun to run.

    Raises:
        SessionError: One of them can't be opened or run.
    """
    begin = time.perf_counter()
    contenders = [contender.sleeping_soon() for contender in contenders]
    distances = {found for each in contenders if (found := each.distance) is not None}
    cycles: list[Cycle] = []
    done = 0

    def told() -> None:
        nonlocal done
        done += 1
        on_round(
            done / sampling.rounds
            if sampling.rounds
            else (time.perf_counter() - begin) / max(sampling.seconds, GRAIN_S)
        )

    while True:
        left = None if sampling.rounds is None else max(1, sampling.rounds - done)
        begin += sum(each.settle() for each in distances)
        run = _one_by_one if sampling.alone else _cycle
        cycle = run(contenders, opener, len(cycles), sampling, left, told, interrupted)
        if cycle is not None:
            cycles.append(cycle)
        if len(cycles) < sampling.least and not interrupted():
            continue
        if len(cycles) < 2:
            return None
        measured = _judged(cycles, len(contenders), sampling.precision, time.perf_counter() - begin)
        if interrupted() or sampling.ended(measured) or stop():
            return measured


def measure_pair(
    baseline: Model,
    variant: Model,
    feeds: Mapping[str, Any],
    config: SessionConfig | None = None,
    sampling: Sampling | None = None,
    stop: Callable[[], bool] = lambda: False,
) -> Paired:
    """Measure a variant against a baseline, in this process.

    Args:
        baseline: The model to beat.
        variant: The model that should beat it.
        feeds: Inputs of both.
        config: How to open both.
        sampling: How long; 20 seconds by default.
        stop: Asked after each cycle from the least number on; true ends the measurement.

    Raises:
        SessionError: One of the models can't be opened or fails.
    """
    config = config or SessionConfig()
    contenders = [Contender("baseline", baseline, config), Contender("variant", variant, config)]
    measured = measure(contenders, in_process(feeds), sampling or Sampling(patience=1), stop=stop)
    assert measured is not None  # nobody interrupts
    return measured.pair(0, 1)


def processor_clock(config: SessionConfig) -> Callable[[], float]:
    """A clock, in seconds, that stands while other programs have the processor of the thread that runs a session; that of the wall where nothing tells.

    Where a session has threads of its own, it goes on while that thread sleeps, until another one has done its part. Of more threads than
    processors some wait for the others, which is the session's own time.
    """
    if full_name(config.provider) != CPU or config.parallel > 1:
        return time.perf_counter
    if config.threads == 1:
        # On Windows a thread's time goes on in steps of 16 ms: a turn may seem to have had none.
        return time.perf_counter if sys.platform == "win32" else time.thread_time
    return _unless_delayed if threads_used(config) <= usable_cores() and _SCHEDULER.exists() else time.perf_counter


def _unless_delayed() -> float:
    return time.perf_counter() - int(_SCHEDULER.read_bytes().split()[1]) / 1e9


def in_process(feeds: Mapping[str, Any], turns: Turns | None = None) -> Opener:
    """Opens sessions in this process.

    Args:
        feeds: Inputs of all contenders.
        turns: Of all contenders, where others are opened elsewhere.
    """
    shared = turns or Turns()

    def opener(contender: Contender, stack: ExitStack) -> tuple[float, Timed]:
        start = time.perf_counter()
        session = stack.enter_context(Session(contender.model, contender.config))
        seconds = max(time.perf_counter() - start, GRAIN_S)
        begin = partial(Turn, session.prepare(feeds), processor_clock(contender.config))
        return seconds, shared.of(contender.name, begin).take

    return opener


def _cycle(
    contenders: Sequence[Contender],
    opener: Opener,
    number: int,
    sampling: Sampling,
    left: int | None,
    on_round: Callable[[], None],
    interrupted: Callable[[], bool],
) -> Cycle | None:
    """Open all, run rounds (where they are not counted, for as long as the opening took), close all; None if there was no time for one."""
    count = len(contenders)
    order = _order(count, number)
    opened, turns = [0.0] * count, dict[int, Timed]()
    rows: list[list[float]] = []
    runs: list[list[float]] = [[] for _ in contenders]
    pause = max(contender.pause for contender in contenders)

    def take_turns(index: int) -> list[list[float]]:
        taken: list[list[float]] = [[] for _ in contenders]
        for place in turn_order(count, index + number // count):
            if pause:
                time.sleep(pause)
            taken[order[place]] = turns[order[place]]()
        return taken

    def put_down(taken: list[list[float]]) -> None:
        for all_runs, some in zip(runs, taken, strict=True):
            all_runs.extend(some)
        rows.append([statistics.fmean(some) for some in taken])
        on_round()

    begin = time.perf_counter()
    with ExitStack() as stack:
        for i in order:
            if interrupted():
                return None
            opened[i], turns[i] = opener(contenders[i], stack)
        stack.callback(turns.clear)  # before the sessions close: they hold their inputs and outputs
        seconds = time.perf_counter() - begin
        with collector_paused():  # a collection in the middle of a turn would be charged to whoever runs
            first = take_turns(-1)
            begin = time.perf_counter()
            slow = min(map(statistics.fmean, first)) >= SLOW_S
            if slow:
                put_down(first)
            while len(rows) < sampling.each or (not sampling.counted and time.perf_counter() - begin < seconds):
                if interrupted() or len(rows) == left:
                    break
                put_down(take_turns(len(rows) - slow))
    return Cycle(tuple(opened), np.array(rows), tuple(map(np.array, runs))) if rows else None


def _one_by_one(
    contenders: Sequence[Contender],
    opener: Opener,
    number: int,
    sampling: Sampling,
    left: int | None,
    on_round: Callable[[], None],
    interrupted: Callable[[], bool],
) -> Cycle | None:
    """Open one after the other, run the rounds of each, close it; None if it was interrupted before all had run."""
    opened, columns = [0.0] * len(contenders), dict[int, list[float]]()
    runs: list[list[float]] = [[] for _ in contenders]
    rounds = sampling.each if left is None else min(sampling.each, left)
    for i in _order(len(contenders), number):
        with ExitStack() as stack, collector_paused():  # as in a cycle of many
            opened[i], turn = opener(contenders[i], stack)
            column = columns[i] = []
            while len(column) < rounds:
                if interrupted():
                    return None
                taken = turn()
                runs[i].extend(taken)
                column.append(statistics.fmean(taken))
            del turn  # it holds the session's inputs and outputs
    for _ in range(rounds):
        on_round()
    return Cycle(tuple(opened), np.array([columns[i] for i in range(len(contenders))]).T, tuple(map(np.array, runs)))


def _order(count: int, number: int) -> list[int]:
    """In which order a cycle opens: every place is taken equally often, next to changing neighbours; first or last is worth something."""
    order: list[int] = np.roll(np.random.default_rng(number // count).permutation(count), number % count).tolist()
    return order


def _judged(cycles: Sequence[Cycle], count: int, precision: float, seconds: float) -> Measured:
    tables = [cycle.turns for cycle in cycles]
    ratios = tuple(ratio(tables, 0, index, precision) for index in range(1, count))
    noisy = tuple(
        i for i, each in enumerate(ratios, 1) if each.verdict == "unclear" or not _is_precise(each, precision)
    )
    return Measured(tuple(cycles), ratios, noisy, seconds)


def _is_precise(ratio: Ratio, precision: float) -> bool:
    """Whether an interval is as narrow as was asked for, or a tenth of what the ratio is away from 1."""
    return ratio.half_width <= max(precision, 0.1 * abs(ratio.value - 1))


def turn_order(count: int, round_index: int) -> list[int]:
    """Turns of a round: the baseline's place moves on, and every other round runs backwards."""
    shift = round_index // 2 % count if count > 2 else 0
    order = [(index + shift) % count for index in range(count)]
    return order if round_index % 2 == 0 else order[::-1]
