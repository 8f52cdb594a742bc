"""Ratios: their intervals hold the truth, equal contenders are not told apart, and a planted difference is."""

from __future__ import annotations

import os
import subprocess
import sys
import time

import numpy as np
import pytest

from graphopt.runtime.environment import usable_cores
from graphopt.runtime.rounds import processor_clock
from graphopt.runtime.session import SessionConfig
from graphopt.runtime.timing import Ratio, Turn, ratio, student, verdict


def cycles(rng, count, truth=1.0, luck=0.01, noise=0.02, rounds=6):
    """Cycles of two contenders of which the second is ``truth`` times as fast; of many, some fall into a slow spell."""
    found = []
    for _ in range(count):
        spell = rng.normal(0, 0.1) if count >= 8 and rng.random() < 0.04 else 0.0
        shift = np.log(truth) + rng.normal(0, luck) + spell
        found.append(np.stack([np.exp(shift + rng.normal(0, noise, rounds)), np.ones(rounds)], axis=1))
    return found


@pytest.mark.parametrize("count", [4, 6, 8, 15, 30])
def test_another_run_falls_inside(count):
    rng = np.random.default_rng(count)
    inside = equal = 0
    for _ in range(1000):
        first, second = ratio(cycles(rng, count), 0, 1, 0.02), ratio(cycles(rng, count), 0, 1, 0.02)
        inside += first.again[0] <= second.value <= first.again[1]
        equal += verdict(*first.again, 0.02) not in ("faster", "slower")
    assert inside >= 900
    assert equal >= 970


def test_what_is_planted_is_found():
    rng = np.random.default_rng(0)
    for truth, wanted in ((0.95, "slower"), (1.05, "faster"), (1.0, "equal")):
        verdicts = [ratio(cycles(rng, 16, truth), 0, 1, 0.02).verdict for _ in range(60)]
        assert verdicts.count(wanted) >= 54, (truth, verdicts)


def test_value_is_inside_and_inverse_is_the_inverse():
    found = cycles(np.random.default_rng(1), 9, 1.3)
    there, back = ratio(found, 0, 1, 0.02), ratio(found, 1, 0, 0.02)
    assert there.low <= there.value <= there.high
    assert there.value == pytest.approx(1 / back.value)
    assert there.value == pytest.approx(1.3, rel=0.05)
    assert there.half_width == pytest.approx((there.high - there.low) / 2 / there.value)


def test_more_cycles_are_surer_than_more_rounds():
    rng = np.random.default_rng(2)
    few, rounds, many = (
        np.mean([ratio(cycles(rng, n, rounds=r), 0, 1, 0.02).half_width for _ in range(40)])
        for n, r in ((5, 5), (5, 50), (25, 5))
    )
    assert many < 0.6 * few and rounds > 0.6 * few


@pytest.mark.parametrize(
    ("low", "high", "wanted"),
    [
        (1.001, 1.2, "faster"),
        (0.5, 0.999, "slower"),
        (0.981, 1.019, "equal"),
        (1.0, 1.0, "equal"),
        (0.979, 1.01, "unclear"),
        (0.99, 1.021, "unclear"),
    ],
)
def test_verdict(low, high, wanted):
    assert verdict(low, high, 0.02) == wanted


@pytest.mark.parametrize("count", [2, 4, 5, 8, 20])
def test_the_interval_holds_the_truth_in_spite_of_luck_and_slow_spells(count):
    rng = np.random.default_rng(count)
    covered = 0
    for _ in range(300):
        effects = rng.normal(0, 0.01, count) + (rng.random(count) < 0.05) * rng.normal(0, 0.1, count)
        tables = [np.stack([np.exp(e + rng.normal(0, 0.02, 9)), np.ones(9)], axis=1) for e in effects]
        found = ratio(tables, 0, 1)
        covered += found.low <= 1 <= found.high
    assert covered >= 273  # 95 % of 300, less three standard deviations


@pytest.mark.parametrize("count", [4, 8, 20])
def test_the_interval_is_no_wider_than_it_must_be(count):
    """Without slow spells it holds the truth in 95 of 100, not in all: rounds of one session share its luck, and count once."""
    rng = np.random.default_rng(count)
    found = [ratio(cycles(rng, count, luck=0.02, noise=0.01, rounds=9), 0, 1) for _ in range(3000)]
    covered = sum(r.low <= 1 <= r.high for r in found)
    assert 3000 * 0.95 - 80 <= covered <= 3000 * 0.95 + 120


@pytest.mark.parametrize("rounds", [2, 5, 8, 25])
def test_whoever_comes_second_is_slower_and_that_does_not_show(rounds):
    """A fifth slower after the other's turn: the rounds of either order lie far apart, sessions do not."""
    rng = np.random.default_rng(rounds)
    order = 0.2 * (-1.0) ** np.arange(rounds)
    tables = cycles(rng, 12, 1.05, luck=0.002, noise=0.005, rounds=rounds)
    first = [table * np.exp(np.stack([order * (-1) ** (n // 2), 0 * order], axis=1)) for n, table in enumerate(tables)]
    found = ratio(first, 0, 1)
    assert found.value == pytest.approx(1.05, abs=0.006) and found.half_width < 0.006


def test_what_may_be_claimed():
    assert [Ratio.of(1.0, ci95).verdict for ci95 in ((1.01, 1.05), (0.9, 0.99), (0.97, 1.03), (0.94, 1.2))] == [
        "faster",
        "slower",
        "equal",
        "unclear",
    ]


def test_students_quantiles_go_on_smoothly():
    assert student(1) == pytest.approx(12.706)
    assert student(16) == pytest.approx(2.120, abs=0.01)
    assert student(39) == pytest.approx(2.023, abs=0.01)


def spin(seconds):
    """Take so much processor time."""
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        pass


@pytest.mark.parametrize("threads", [1, 2])
def test_time_without_a_processor_does_not_count_where_it_is_known(threads):
    def run():
        spin(0.006)
        time.sleep(0.03)  # to a thread it is the same as another program's turn

    taken = Turn(run, processor_clock(SessionConfig(threads=threads))).take()
    assert len(taken) == 1 and (taken[0] < 0.03) == (threads == 1)  # of several it waits for the others


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells how long a thread waited for a processor")
@pytest.mark.parametrize("threads", [1, 2])
def test_time_that_another_program_had_does_not_count(threads):
    if threads > usable_cores():
        pytest.skip("its own threads would take the processor from each other")
    had = processor_clock(SessionConfig(threads=threads))
    processors = os.sched_getaffinity(0)
    one = min(processors)
    other = subprocess.Popen([sys.executable, "-c", f"import os; os.sched_setaffinity(0, [{one}])\nwhile True: pass"])
    try:
        os.sched_setaffinity(0, {one})  # of this thread
        turn, begin = Turn(lambda: spin(0.2), had), time.perf_counter()
        (taken,) = turn.take()
        wall = time.perf_counter() - begin
    finally:
        os.sched_setaffinity(0, processors)
        other.kill()
        other.wait()
    assert 0.19 < taken < 0.75 * wall  # about half of it


@pytest.mark.parametrize(
    "config, clock",
    [
        (SessionConfig(threads=1), time.thread_time),
        (SessionConfig(threads=1000), time.perf_counter),
        (SessionConfig(threads=1, parallel=2), time.perf_counter),
        (SessionConfig("cuda", threads=1), time.perf_counter),
        (SessionConfig("openvino", threads=1), time.perf_counter),
    ],
)
@pytest.mark.skipif(sys.platform == "win32", reason="there a thread's time is too coarse")
def test_what_a_thread_had_is_known_on_the_processor(config, clock):
    assert processor_clock(config) is clock


@pytest.mark.parametrize("threads", [0, 2])
def test_the_time_of_one_of_several_threads_is_not_that_of_a_session(threads):
    assert processor_clock(SessionConfig(threads=threads)) is not time.thread_time
