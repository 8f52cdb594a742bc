"""Which of two models is faster, and how sure that is.

An absolute time on a shared machine is worth little: clocks, neighbours and caches move it by ten per cent within
seconds. What holds still is the *ratio* of two sessions that run within the same milliseconds. So sessions take
turns, forwards in one round and backwards in the next (A B, B A, A B ...), every round gives one ratio, and the
verdict is the median of the ratios with a bootstrap interval. A slow spell spoils a few ratios, not their median.

Three things that rounds do not average out are dealt with apart:

- *Caches.* A session that runs after itself finds its weights in the cache, after the other it does not, which is
  worth a few per cent to a model of some milliseconds. Short models therefore run once untimed in every turn.
- *Luck.* Where its memory happens to lie makes a session faster or slower for as long as it lives: two sessions of
  one model differ by up to two per cent, and more rounds only make that difference surer. :func:`measure_models`
  opens both models again and again, and takes its interval over sessions (random effects, as Kalibera and Jones,
  "Rigorous Benchmarking in Reasonable Time", 2013). :func:`measure_pair` compares two sessions, not two models.
- *Threads.* Those of a session spin on for a while after its turn, so there is a pause before the next one.
"""

from __future__ import annotations

import gc
import itertools
import math
import statistics
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from graphopt.errors import UsageError
from graphopt.runtime.dtypes import Array
from graphopt.runtime.session import Model, Session, SessionConfig

RESAMPLES = 2000
SETTLE_S = 0.05
"""Pause before each turn where sessions have threads of their own: after a run these spin for tens of milliseconds in
wait of the next, and take the processors from whoever's turn it is then (twice the latency, with two threads on two cores)."""
GRAIN_S = 1e-9
"""No run takes less: on a coarse clock one of an empty model may take no time at all, and it is divided by."""
_TURN_S = 5e-3  # a turn is timed for at least this long: far above the grain of the clock and the cost of a call
_WARM_S = 20e-3  # a model that takes less than this feels the cold caches that the other model leaves
_MAX_REPEAT = 1000
_TRIM = 0.2  # share of the sessions dropped at either end
_SESSION_ROUNDS = 5  # at least so many rounds with each pair of sessions

# Two-sided 95 % quantiles of Student's t by degrees of freedom, from 1.
_STUDENT = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131)


@dataclass(frozen=True)
class Paired:
    """The outcome of a paired measurement.

    Attributes:
        baseline_ms: Median time of one run of the baseline, in milliseconds.
        variant_ms: The same of the variant. The two are for display; their quotient is not ``speedup``.
        speedup: Baseline time over variant time: the median over rounds; above 1 the variant is faster.
        ci95: 95 % interval of ``speedup``.
        rounds: Rounds measured.
        sessions: Sessions opened of each model, where the interval is one over sessions; else 1.
        samples: Milliseconds of one run in each round (rows), of the baseline and of the variant (columns).
        opening_s: Median seconds that opening a session of each took, where several were opened.
    """

    baseline_ms: float
    variant_ms: float
    speedup: float
    ci95: tuple[float, float]
    rounds: int
    sessions: int = 1
    samples: Array | None = field(default=None, repr=False, compare=False)
    opening_s: tuple[float, float] | None = None

    @property
    def width(self) -> float:
        """Width of the interval."""
        return self.ci95[1] - self.ci95[0]

    def verdict(self, margin: float = 0.0) -> str:
        """``faster``, ``slower`` or ``equal`` (not told apart), as the whole interval lies above, below or around 1.

        Args:
            margin: How far from 1 the interval has to stay to count, for example 0.01.
        """
        if self.ci95[0] > 1 + margin:
            return "faster"
        return "slower" if self.ci95[1] < 1 - margin else "equal"


def measure_models(
    baseline: Model,
    variant: Model,
    feeds: Mapping[str, Any],
    config: SessionConfig | None = None,
    *,
    seconds: float = 20.0,
    min_sessions: int = 4,
    max_sessions: int = 40,
    precision: float | None = None,
    on_round: Callable[[int, float], None] | None = None,
) -> Paired:
    """Measure a variant against a baseline over several sessions of each: the verdict on two models.

    At any moment one session of each is open. Which is opened first and which runs first takes turns, because that
    alone can be worth half a per cent. About half of the time goes into runs, the other half into opening sessions.

    Args:
        baseline: The model to beat.
        variant: The model that should beat it.
        feeds: Inputs of both.
        config: How to open both.
        seconds: Time to spend at most, opening included; ``min_sessions`` are opened in any case.
        min_sessions: Sessions of each model to open at least, 2 or more; multiples of 4 balance the order.
        max_sessions: Sessions of each model to open at most.
        precision: Stop as soon as the interval is narrower than this; None uses the whole time. Stopping at a
            lucky moment makes intervals a little too narrow: they then hold the truth in about 90 % of cases.
        on_round: Called after each round with the number of rounds done over all sessions and the last ratio.

    Raises:
        SessionError: One of the models can't be opened or fails.
        UsageError: The numbers of sessions make no sense.
    """
    if not 2 <= min_sessions <= max_sessions:
        raise UsageError(f"need 2 <= min_sessions <= max_sessions, got {min_sessions} and {max_sessions}")
    start = time.perf_counter()
    tables: list[Array] = []
    opened: list[tuple[float, float]] = []
    while len(tables) < max_sessions:
        opening = time.perf_counter()
        if len(tables) >= min_sessions and (
            opening - start >= seconds or (precision is not None and _over_sessions(tables).width <= precision)
        ):
            break
        done = sum(len(table) for table in tables)
        open_swapped, run_swapped = len(tables) % 2 == 1, len(tables) // 2 % 2 == 1
        models = (variant, baseline) if open_swapped else (baseline, variant)
        with Session(models[0], config) as one:
            between = time.perf_counter()
            with Session(models[1], config) as other:
                took = (between - opening, time.perf_counter() - between)
                opened.append(took[::-1] if open_swapped else took)
                pair = [other, one] if open_swapped else [one, other]
                spent = sum(took)
                tables.append(
                    _rounds(pair, feeds, spent, _SESSION_ROUNDS, 1000, _progress(on_round, done), run_swapped)
                )
    before, after = np.median(opened, axis=0)
    return replace(_over_sessions(tables), opening_s=(float(before), float(after)))


def measure_pair(
    baseline: Session,
    variant: Session,
    feeds: Mapping[str, Any],
    *,
    seconds: float = 10.0,
    min_rounds: int = 10,
    max_rounds: int = 10_000,
    precision: float | None = None,
    seed: int = 0,
    on_round: Callable[[int, float], None] | None = None,
) -> Paired:
    """Measure one session against another.

    Args:
        baseline: The session to beat.
        variant: The session that should beat it.
        feeds: Inputs of both.
        seconds: Time to spend at most, warm-up included; ``min_rounds`` are run in any case.
        min_rounds: Rounds to run at least.
        max_rounds: Rounds to run at most.
        precision: Stop as soon as the interval is narrower than this; None uses the whole time.
        seed: Seed of the bootstrap.
        on_round: Called after each round with the number of rounds done and the last ratio.

    Raises:
        SessionError: One of the models fails.
        UsageError: The numbers of rounds make no sense.
    """
    (paired,) = measure_many(
        [baseline, variant],
        feeds,
        seconds=seconds,
        min_rounds=min_rounds,
        max_rounds=max_rounds,
        precision=precision,
        seed=seed,
        on_round=None if on_round is None else lambda done, ratios: on_round(done, ratios[0]),
    )
    return paired


def measure_many(
    sessions: Sequence[Session],
    feeds: Mapping[str, Any],
    *,
    seconds: float = 10.0,
    min_rounds: int = 10,
    max_rounds: int = 10_000,
    precision: float | None = None,
    seed: int = 0,
    on_round: Callable[[int, Sequence[float]], None] | None = None,
) -> list[Paired]:
    """Measure several sessions against one baseline in one interleaved run.

    Args:
        sessions: The baseline, then the variants.
        feeds: Inputs of all of them.
        seconds: Time to spend at most, warm-up included; ``min_rounds`` are run in any case.
        min_rounds: Rounds to run at least.
        max_rounds: Rounds to run at most.
        precision: Stop as soon as every interval is narrower than this; None uses the whole time.
        seed: Seed of the bootstrap.
        on_round: Called after each round with the number of rounds done and the last ratio of each variant.

    Returns:
        An outcome for each variant.

    Raises:
        SessionError: One of the models fails.
        UsageError: There is no variant, or the numbers of rounds make no sense.
    """
    if len(sessions) < 2:
        raise UsageError("a paired measurement needs a baseline and at least one variant")
    if not 2 <= min_rounds <= max_rounds:
        raise UsageError(f"need 2 <= min_rounds <= max_rounds, got {min_rounds} and {max_rounds}")

    def precise(times: list[list[float]]) -> bool:
        return precision is not None and max(each.width for each in _outcomes(np.array(times), seed)) <= precision

    return _outcomes(_rounds(sessions, feeds, seconds, min_rounds, max_rounds, on_round, enough=precise), seed)


def bootstrap_median(values: Array, *, seed: int = 0, resamples: int = RESAMPLES) -> tuple[float, float]:
    """Bootstrap 95 % interval of the median.

    Args:
        values: A one-dimensional sample.
        seed: Seed of the resampling.
        resamples: How many resamples to draw.
    """
    rng = np.random.default_rng(seed)
    picks = rng.integers(0, len(values), (resamples, len(values)))
    medians = np.median(values[picks], axis=1)
    low, high = np.quantile(medians, (0.025, 0.975))
    return float(low), float(high)


def _rounds(
    sessions: Sequence[Session],
    feeds: Mapping[str, Any],
    seconds: float,
    min_rounds: int,
    max_rounds: int,
    on_round: Callable[[int, Sequence[float]], None] | None = None,
    backwards: bool = False,
    enough: Callable[[list[list[float]]], bool] = lambda times: False,
) -> Array:
    """Run rounds and return seconds per run, one row for each round and one column for each session."""
    start = time.perf_counter()
    first = [Turn(session.prepare(feeds)) for session in (reversed(sessions) if backwards else sessions)]
    turns = first[::-1] if backwards else first
    pause = pause_between(session.config for session in sessions)
    times: list[list[float]] = []
    next_check = min_rounds
    collecting = gc.isenabled()
    gc.disable()  # a collection in the middle of a turn would be charged to whoever runs
    try:
        while len(times) < max_rounds:
            if len(times) >= min_rounds and time.perf_counter() - start >= seconds:
                break
            row = [0.0] * len(turns)
            for index in turn_order(len(turns), len(times) + backwards):
                if pause:
                    time.sleep(pause)
                row[index] = statistics.fmean(turns[index].take())
            times.append(row)
            if on_round is not None:
                on_round(len(times), [row[0] / each for each in row[1:]])
            if len(times) >= next_check:
                if enough(times):
                    break
                next_check = math.ceil(len(times) * 1.1)  # checking costs: do it at growing distances
    finally:
        if collecting:
            gc.enable()
    return np.array(times)


class Turn:
    """One session's turn: warmed up where that matters, repeated until it is long enough to be timed.

    Args:
        run: Runs the model once, see :meth:`graphopt.runtime.session.Session.prepare`.
    """

    def __init__(self, run: Callable[[], None]) -> None:
        self._run = run
        run()
        best = self._clock(1)[0]
        if best < _WARM_S:
            best = min(best, *self._clock(2))
        self._repeat = max(1, min(_MAX_REPEAT, math.ceil(_TURN_S / max(best, 1e-7))))
        self._warm = best < _WARM_S

    def take(self) -> list[float]:
        """Take the turn.

        Returns:
            Seconds of each of its runs.
        """
        if self._warm:
            self._run()
        return self._clock(self._repeat)

    def _clock(self, repeat: int) -> list[float]:
        marks = [time.perf_counter()]
        for _ in range(repeat):
            self._run()
            marks.append(time.perf_counter())
        return [max(end - start, GRAIN_S) for start, end in itertools.pairwise(marks)]


def pause_between(configs: Iterable[SessionConfig]) -> float:
    """Seconds to wait before each turn of sessions that are opened like this: see :data:`SETTLE_S`."""
    return SETTLE_S if any(config.threads != 1 or config.parallel > 1 for config in configs) else 0.0


def turn_order(count: int, round_index: int) -> list[int]:
    """Turns of a round: the baseline's place moves on, and every other round runs backwards."""
    shift = round_index // 2 % count if count > 2 else 0
    order = [(index + shift) % count for index in range(count)]
    return order if round_index % 2 == 0 else order[::-1]


def _progress(
    on_round: Callable[[int, float], None] | None, before: int
) -> Callable[[int, Sequence[float]], None] | None:
    if on_round is None:
        return None
    return lambda done, ratios: on_round(before + done, ratios[0])


def _outcomes(table: Array, seed: int) -> list[Paired]:
    """The outcome of each variant (column 1 on) against the baseline (column 0), over rounds (rows)."""
    outcomes = []
    for column in range(1, table.shape[1]):
        ratios = table[:, 0] / table[:, column]
        outcomes.append(
            Paired(
                baseline_ms=float(np.median(table[:, 0])) * 1e3,
                variant_ms=float(np.median(table[:, column])) * 1e3,
                speedup=float(np.median(ratios)),
                ci95=bootstrap_median(ratios, seed=seed),
                rounds=len(table),
                samples=table[:, [0, column]] * 1e3,
            )
        )
    return outcomes


def _over_sessions(tables: Sequence[Array]) -> Paired:
    """The outcome over pairs of sessions: each counts once, whatever its number of rounds.

    Of the logarithms of the sessions' medians, a fifth is trimmed at either end (a session may fall into a slow spell
    as a whole), and the interval is Student's for the trimmed mean, as given by Tukey and McLaughlin (1963).
    """
    logs = np.sort([np.median(np.log(table[:, 0] / table[:, 1])) for table in tables])
    count = len(logs)
    trimmed = int(_TRIM * count) if count >= 8 else 0  # of fewer, none can be spared
    kept = count - 2 * trimmed
    winsorised = np.clip(logs, logs[trimmed], logs[count - 1 - trimmed])
    error = winsorised.std(ddof=1) * math.sqrt(count) / kept
    mean, half = float(logs[trimmed : count - trimmed].mean()), float(student(kept - 1) * error)
    everything = np.concatenate(tables)
    return Paired(
        baseline_ms=float(np.median(everything[:, 0])) * 1e3,
        variant_ms=float(np.median(everything[:, 1])) * 1e3,
        speedup=math.exp(mean),
        ci95=(math.exp(mean - half), math.exp(mean + half)),
        rounds=len(everything),
        sessions=count,
        samples=everything * 1e3,
    )


def student(freedom: int) -> float:
    """The two-sided 95 % quantile of Student's t; beyond the table by its leading terms."""
    return _STUDENT[freedom - 1] if freedom <= len(_STUDENT) else 1.96 + 2.5 / freedom
