"""From the runs of a turn to a ratio with an interval and a verdict: the one way in which two models are told apart.

On the processor it is known when another program had it in the middle of a turn. Such a turn counts by the time that the calling thread
had: on a busy machine a pair of sessions with no other thread is then nearly as precise as on an idle one. Where a session has more threads,
what the others lack makes the caller wait, and that still counts.

A round of a measurement gives one ratio (:mod:`graphopt.runtime.rounds`). Whose turn follows the other's finds the other's data in the
caches, and is slower by up to a fifth in spite of a run to warm up, so ratios of rounds in either order lie in two heaps: a session's ratio is the mean of
the two orders' medians. Medians are free of slow spells, but not of the session's luck, and rounds of one session share it: so the unit of the
statistics is the cycle (one session of each; random effects, as Kalibera and Jones, "Rigorous Benchmarking in Reasonable Time", 2013). The
ratio is the mean over cycles of those means, on a logarithmic scale, a fifth trimmed at either end, because a cycle may fall into a
slow spell as a whole. Its interval is Student's for the trimmed mean (Tukey and McLaughlin, 1963): it holds the true ratio in 95 of 100 measurements.
"""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

import numpy as np

from graphopt.ir.types import Array

Verdict = Literal["faster", "slower", "equal", "unclear"]

NOISY = 0.04
"""How far from 1 an interval around it may reach before it says nothing: that of a model which is as fast is narrower."""
GRAIN_S = 1e-9
"""No run takes less: on a coarse clock one of an empty model may take no time at all, and it is divided by."""
_TURN_S = 5e-3  # a turn is timed for at least this long: far above the grain of the clock and the cost of a call
_WARM_S = 20e-3  # a model that takes less than this feels the cold caches that the other model leaves
SLOW_S = 5 * _WARM_S
"""What takes this long in its first run, where memory is new, is not one of those."""
_MAX_REPEAT = 1000  # runs of a turn: a call takes a few microseconds, whatever the model
_UNDISTURBED = 0.9  # share of its time that a thread must have had the processor ...
_SWITCH_S = 5e-6  # ... but for as much as the clocks of thread and wall may differ by
_TRIM = 0.2  # the share at either end that Tukey and McLaughlin advise for tails like a busy machine's
_SPARE = 8  # of fewer cycles none can be spared

# Two-sided 95 % quantiles of Student's t by degrees of freedom, from 1.
_STUDENT = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131)


@dataclass(frozen=True)
class Ratio:
    """How many times as fast as its baseline something is.

    Attributes:
        value: Time of the baseline over its own; above 1 it is faster.
        low: Lower end of the 95 % interval.
        high: Upper end of it.
        verdict: What may be claimed: ``faster`` or ``slower`` if the interval lies on one side of 1, ``equal`` if it holds 1 and
            nothing further from 1 than the precision asked for, else ``unclear``.
    """

    value: float
    low: float
    high: float
    verdict: Verdict

    @classmethod
    def of(cls, value: float, ci95: tuple[float, float], precision: float = NOISY) -> Ratio:
        """A ratio of which no more is claimed than its interval says."""
        return cls(value, *ci95, verdict(*ci95, precision))

    @property
    def half_width(self) -> float:
        """Half the width of the interval, relative to the ratio."""
        return (self.high - self.low) / (2 * self.value)

    @property
    def again(self) -> tuple[float, float]:
        """Where the ratio of another run would come out, in 95 of 100: both runs have an error, so this is wider."""
        low, high = (self.value * (end / self.value) ** math.sqrt(2) for end in (self.low, self.high))
        return low, high


@dataclass(frozen=True)
class Paired:
    """The outcome of a measurement of two models.

    Attributes:
        baseline_ms: Median time of one run of the baseline, in milliseconds.
        variant_ms: The same of the variant. The two are for display; their quotient is not ``ratio``.
        ratio: Baseline time over variant time.
        rounds: Rounds measured.
        sessions: Sessions opened of each model.
        cycles: Seconds of one run in each round (rows), of the baseline and of the variant (columns), a table for each session.
        opening: Seconds that opening a session took (rows), of the baseline and of the variant (columns); ``None`` where it was
            not timed.
    """

    baseline_ms: float
    variant_ms: float
    ratio: Ratio
    rounds: int
    sessions: int
    cycles: tuple[Array, ...] = field(default=(), repr=False, compare=False)
    opening: Array | None = field(default=None, repr=False, compare=False)

    @classmethod
    def of(cls, cycles: Sequence[Array], opening: Array | None = None) -> Paired:
        """What sessions of two models say.

        Args:
            cycles: See above; two at least.
            opening: See above.
        """
        baseline_ms, variant_ms = (float(ms) for ms in np.median(np.concatenate(cycles), axis=0) * 1e3)
        rounds = sum(map(len, cycles))
        return cls(baseline_ms, variant_ms, ratio(cycles, 0, 1), rounds, len(cycles), tuple(cycles), opening)

    def joined(self, more: Paired) -> Paired:
        """Both as one measurement, where this one alone did not say enough.

        Whoever looks a second time only where the first time said nothing has two chances to be wrong. They are fewer where the second
        look holds the first than where it forgets it: the two then tend to be wrong together.
        """
        opening = None if self.opening is None or more.opening is None else np.concatenate([self.opening, more.opening])
        return Paired.of(self.cycles + more.cycles, opening)

    @property
    def samples(self) -> Array:
        """Milliseconds of one run in each round (rows), of the baseline and of the variant (columns)."""
        return np.concatenate(self.cycles) * 1e3 if self.cycles else np.empty((0, 2))

    @property
    def speedup(self) -> float:
        """The ratio as a number; above 1 the variant is faster."""
        return self.ratio.value

    @property
    def ci95(self) -> tuple[float, float]:
        """95 % interval of ``speedup``."""
        return self.ratio.low, self.ratio.high

    @property
    def opens(self) -> tuple[float, tuple[float, float]] | None:
        """How many times as fast the variant opens, with a 95 % interval; ``None`` where it was not timed."""
        if self.opening is None:
            return None
        middle, half = _middle(np.log(self.opening[:, 0] / self.opening[:, 1]))
        return math.exp(middle), (math.exp(middle - half), math.exp(middle + half))


class Length(NamedTuple):
    """How long turns are.

    Attributes:
        repeat: Runs of a turn.
        warm: Whether one more goes before them, untimed.
    """

    repeat: int
    warm: bool


class Turn:
    """One session's turn: warmed up where that matters, repeated until it is long enough to be timed.

    Args:
        run: Runs the model once, see :meth:`graphopt.runtime.session.Session.prepare`.
        had: A clock that stands while other programs have the processor (:func:`graphopt.runtime.rounds.processor_clock`).
        length: What an earlier session of the model found; this one then runs once, because memory is new to it.

    Attributes:
        length: How long its turns are.
    """

    def __init__(
        self, run: Callable[[], None], had: Callable[[], float] = time.perf_counter, length: Length | None = None
    ) -> None:
        self._run, self._had = run, had
        best = self._clock(1)[0]
        self.length = self._found(best) if length is None else length

    def take(self) -> list[float]:
        """Take the turn.

        Returns:
            Seconds of each of its runs.
        """
        if self.length.warm:
            self._run()
        return self._clock(self.length.repeat)

    def _found(self, best: float) -> Length:
        """How long turns have to be where the first run took so many seconds."""
        if best < SLOW_S:
            best = self._clock(1)[0]
        if best < _WARM_S:
            best = min(best, *self._clock(2))
        return Length(max(1, min(_MAX_REPEAT, math.ceil(_TURN_S / max(best, 1e-7)))), best < _WARM_S)

    def _clock(self, repeat: int) -> list[float]:
        had = self._had()
        marks = [time.perf_counter()]
        for _ in range(repeat):
            self._run()
            marks.append(time.perf_counter())
        had = self._had() - had
        wall = marks[-1] - marks[0]
        share = 1.0 if undisturbed(wall, had) else had / wall
        return [max(share * (end - start), GRAIN_S) for start, end in itertools.pairwise(marks)]


class Turns:
    """Turns of models that are measured against each other.

    How long those of a model are is found by its first session. Who is warmed up beside one who isn't seems faster: all are as the first one is.
    """

    def __init__(self) -> None:
        self._known: dict[str, Length] = {}

    def of(self, name: str, begin: Callable[[Length | None], Turn]) -> Turn:
        """The turns of a session.

        Args:
            name: Of the model.
            begin: Makes them, of a length that is known, or of one that it finds.
        """
        turn = begin(self._known.get(name))
        if name not in self._known:
            warm = next((length.warm for length in self._known.values()), turn.length.warm)
            self._known[name] = turn.length = turn.length._replace(warm=warm)
        return turn


def undisturbed(wall: float, had: float) -> bool:
    """Whether no other program had the processor for long.

    Args:
        wall: Seconds that passed.
        had: Seconds of processor time of the thread that they passed for.
    """
    return had > _UNDISTURBED * wall or wall - had < _SWITCH_S


def ratio(cycles: Sequence[Array], baseline: int, variant: int, precision: float = NOISY) -> Ratio:
    """The time of a contender over that of another.

    Args:
        cycles: Seconds per run, for each cycle a row for each round and a column for each contender; two at least.
        baseline: Column of the one.
        variant: Column of the other; above 1 it is the faster.
        precision: How far from 1 an interval around 1 may reach to mean ``equal``.
    """
    middle, half = _middle(np.array([_of_session(np.log(table[:, baseline] / table[:, variant])) for table in cycles]))
    return Ratio.of(math.exp(middle), (math.exp(middle - half), math.exp(middle + half)), precision)


def verdict(low: float, high: float, precision: float) -> Verdict:
    """What an interval says."""
    if low > 1:
        return "faster"
    if high < 1:
        return "slower"
    return "equal" if low >= 1 - precision and high <= 1 + precision else "unclear"


def _of_session(rounds: Array) -> float:
    """What the rounds of a session say, of which every other one runs backwards."""
    orders = (rounds[::2], rounds[1::2]) if len(rounds) > 1 else (rounds,)
    return float(np.mean([np.median(order) for order in orders]))


def _middle(values: Array) -> tuple[float, float]:
    """A trimmed mean and half of its 95 % interval."""
    ordered, count = np.sort(values), len(values)
    trimmed = int(_TRIM * count) if count >= _SPARE else 0
    kept = count - 2 * trimmed
    winsorised = np.clip(ordered, ordered[trimmed], ordered[count - 1 - trimmed])
    error = winsorised.std(ddof=1) * math.sqrt(count) / kept
    return float(ordered[trimmed : count - trimmed].mean()), float(student(kept - 1) * error)


def student(freedom: int) -> float:
    """The two-sided 95 % quantile of Student's t; beyond the table by its leading terms."""
    return _STUDENT[freedom - 1] if freedom <= len(_STUDENT) else 1.96 + 2.5 / freedom
