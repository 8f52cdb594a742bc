"""Paired measurement: large differences are found, none is found where there is none, and it ends when told to."""

from __future__ import annotations

import gc

import numpy as np
import pytest

from graphopt.errors import SessionError, UsageError
from graphopt.runtime import timing
from graphopt.runtime.session import LoadableModel, Session
from graphopt.runtime.timing import (
    Paired,
    bootstrap_median,
    measure_many,
    measure_models,
    measure_pair,
    student,
    turn_order,
)
from tests.runtime.models import chain

FEEDS = {"x": np.ones((4, 64), np.float32)}


def test_twenty_times_the_work_is_slower():
    with Session(chain(1)) as light, Session(chain(40)) as heavy:
        worse = measure_pair(light, heavy, FEEDS, seconds=1, max_rounds=20)
        better = measure_pair(heavy, light, FEEDS, seconds=1, max_rounds=20)
    assert worse.verdict() == "slower" and better.verdict() == "faster"
    assert worse.speedup < 0.5 and better.speedup > 2
    assert better.ci95[0] <= better.speedup <= better.ci95[1]
    assert better.baseline_ms > better.variant_ms > 0


def test_over_sessions():
    result = measure_models(chain(40), chain(1), FEEDS, seconds=0.5)
    assert result.verdict(margin=0.5) == "faster"
    assert result.sessions >= 4 and result.rounds >= 5 * result.sessions
    assert result.opens is not None and result.opens[0] > 1  # a longer chain takes longer to open, whichever came first


def test_many_in_one_run():
    with Session(chain(20)) as baseline, Session(chain(1)) as light, Session(chain(200)) as heavy:
        faster, slower = measure_many([baseline, light, heavy], FEEDS, seconds=1, max_rounds=20)
    assert faster.verdict() == "faster" and slower.verdict() == "slower"
    assert faster.rounds == slower.rounds


def test_rounds_and_callback():
    seen = {}
    with Session(chain(1)) as a:
        result = measure_pair(a, a, FEEDS, seconds=0, min_rounds=5, on_round=seen.__setitem__)
        assert result.rounds == 5 and list(seen) == [1, 2, 3, 4, 5]
        assert np.median(list(seen.values())) == pytest.approx(result.speedup)
        assert measure_pair(a, a, FEEDS, seconds=60, max_rounds=12).rounds == 12


def test_whoever_wants_to_stop_gets_a_verdict_on_the_least_number_of_sessions():
    asked = []
    result = measure_models(chain(1), chain(40), FEEDS, session_rounds=3, stop=lambda: bool(asked.append(1)) or True)
    assert (result.sessions, result.rounds, len(asked)) == (4, 12, 1)


def test_callback_over_sessions_counts_on():
    seen = []
    result = measure_models(
        chain(1), chain(1), FEEDS, seconds=0, min_sessions=2, on_round=lambda done, ratio: seen.append(done)
    )
    assert seen == list(range(1, result.rounds + 1)) and result.sessions == 2


def test_precision_ends_it():
    with Session(chain(1)) as a, Session(chain(40)) as b:
        loose = measure_pair(a, b, FEEDS, seconds=60, min_rounds=10, precision=10.0)
    assert loose.rounds == 10
    assert measure_models(chain(1), chain(40), FEEDS, seconds=60, precision=1e6).sessions == 4


def test_the_order_of_a_round_takes_turns():
    assert [turn_order(2, i) for i in range(4)] == [[0, 1], [1, 0], [0, 1], [1, 0]]
    rounds = [turn_order(3, i) for i in range(6)]
    assert all(sorted(order) == [0, 1, 2] for order in rounds)
    assert sorted(order.index(0) for order in rounds) == [0, 0, 1, 1, 2, 2]


def test_garbage_collection_is_back_on_afterwards():
    assert gc.isenabled()
    with Session(chain(1)) as a:
        measure_pair(a, a, FEEDS, seconds=0, min_rounds=2)
        assert gc.isenabled()
        with pytest.raises(ZeroDivisionError):
            measure_pair(a, a, FEEDS, min_rounds=2, on_round=lambda done, ratio: 1 / 0)
    assert gc.isenabled()


def test_failures():
    with Session(chain(1)) as a:
        with pytest.raises(SessionError):
            measure_pair(a, a, {"x": np.ones((3, 64), np.float32)})
        with pytest.raises(UsageError, match="min_rounds"):
            measure_pair(a, a, FEEDS, min_rounds=5, max_rounds=4)
        with pytest.raises(UsageError, match="variant"):
            measure_many([a], FEEDS)
    with pytest.raises(UsageError, match="min_sessions"):
        measure_models(chain(1), chain(1), FEEDS, min_sessions=1)
    with pytest.raises(SessionError):
        measure_models(chain(1), LoadableModel(b"junk"), FEEDS)


@pytest.mark.parametrize(
    ("interval", "margin", "verdict"),
    [
        ((1.01, 1.05), 0.0, "faster"),
        ((0.9, 0.99), 0.0, "slower"),
        ((0.99, 1.2), 0.0, "equal"),
        ((1.0, 1.2), 0.0, "equal"),
        ((1.01, 1.05), 0.02, "equal"),
        ((0.9, 0.99), 0.02, "equal"),
    ],
)
def test_verdict(interval, margin, verdict):
    result = Paired(1.0, 1.0, sum(interval) / 2, interval, 10)
    assert result.verdict(margin) == verdict
    assert result.width == pytest.approx(interval[1] - interval[0])


def test_bootstrap_covers_the_median():
    rng = np.random.default_rng(0)
    samples = rng.lognormal(0.0, 0.1, (200, 40))
    intervals = [bootstrap_median(sample, seed=i, resamples=500) for i, sample in enumerate(samples)]
    covered = sum(low <= 1 <= high for low, high in intervals)
    assert 180 <= covered <= 199
    assert bootstrap_median(samples[0], seed=1) == bootstrap_median(samples[0], seed=1)


@pytest.mark.parametrize("count", [2, 4, 5, 8, 20])
def test_the_interval_over_sessions_covers_in_spite_of_luck_and_slow_spells(count):
    rng = np.random.default_rng(count)
    covered = 0
    for _ in range(300):
        effects = rng.normal(0, 0.01, count) + (rng.random(count) < 0.05) * rng.normal(0, 0.1, count)
        tables = [np.stack([np.exp(e + rng.normal(0, 0.02, 9)), np.ones(9)], axis=1) for e in effects]
        result = timing._over_sessions(tables)
        covered += result.ci95[0] <= 1 <= result.ci95[1]
    assert covered >= 273  # 95 % of 300, less three standard deviations


def test_students_quantiles_go_on_smoothly():
    assert student(1) == pytest.approx(12.706)
    assert student(16) == pytest.approx(2.120, abs=0.01)
    assert student(39) == pytest.approx(2.023, abs=0.01)
