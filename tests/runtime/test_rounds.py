"""Interleaved rounds: every session has its turns, it goes on while it is noisy, and it ends when told to."""

from __future__ import annotations

import gc
import itertools
import time
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from graphopt.errors import SessionError, UsageError
from graphopt.runtime.rounds import (
    LONG_SETTLE_S,
    MIN_CYCLES,
    MIN_ROUNDS,
    SETTLE_S,
    Contender,
    Sampling,
    in_process,
    measure,
    measure_pair,
    turn_order,
)
from graphopt.runtime.session import LoadableModel, Session, SessionConfig
from graphopt.runtime.timing import Length, Ratio, Turn, Turns
from tests.runtime.models import chain

FEEDS = {"x": np.ones((4, 64), np.float32)}


@pytest.fixture
def contenders(tmp_path):
    found = []
    for name, depth in (("base", 30), ("same", 30), ("light", 3)):
        path = tmp_path / f"{name}.onnx"
        path.write_bytes(chain(depth).proto)
        found.append(Contender(name, path, SessionConfig()))
    return found


def test_real_models(contenders):
    measured = measure(contenders, in_process(FEEDS), Sampling(seconds=0.1, precision=0.5))
    same, light = measured.ratios
    assert light.value > 2 > same.value
    assert len(measured.cycles) >= MIN_CYCLES and measured.rounds >= MIN_CYCLES * MIN_ROUNDS
    assert measured.seconds > 0 and all(measured.opened(i) > 0 for i in range(3))
    assert len(measured.runs(2)) >= measured.rounds and np.median(measured.runs(2)) < np.median(measured.runs(0))
    over = measured.over(2, 0, 0.5)
    assert over.value == pytest.approx(1 / light.value)


def test_rounds_are_counted(contenders):
    used = []
    measured = measure(contenders[:2], in_process(FEEDS), Sampling(rounds=23), on_round=used.append)
    assert measured.rounds == 23 and len(measured.cycles) == 5
    assert used[-1] == 1.0 and used == sorted(used)


def test_a_model_is_timed_for_its_length_once(contenders):
    """Later sessions run it once, for their memory; and of models measured against each other all are warmed up, or none."""
    opener, found = in_process(FEEDS), []
    for contender in (*contenders, *contenders):
        with ExitStack() as stack:
            _, take = opener(contender, stack)
            found.append(take.__self__.length)
    first, again = found[:3], found[3:]
    assert first == again and len({length.warm for length in found}) == 1
    assert first[2].repeat > first[0].repeat  # the light one runs more often in a turn


@pytest.mark.parametrize("first, second", [(0.0, 0.03), (0.03, 0.0)])
def test_who_is_warmed_up_beside_one_who_is_not_would_seem_faster(first, second):
    """So all are as the first one is, and each model is asked for its length once."""
    turns, begun = Turns(), list[Length | None]()

    def begin(seconds):
        def made(length):
            begun.append(length)
            return Turn(lambda: time.sleep(seconds), length=length)

        return made

    assert Turn(lambda: time.sleep(first)).length.warm is (first == 0.0)
    found = [turns.of(name, begin(s)).length for name, s in (("a", first), ("b", second), ("a", first), ("b", second))]
    assert [length.warm for length in found] == [first == 0.0] * 4
    assert begun == [None, None, *found[:2]] and found[:2] == found[2:]
    assert min(length.repeat for length in found) == 1 < max(length.repeat for length in found)


@pytest.mark.parametrize("warm", [True, False])
def test_a_session_of_a_known_length_runs_once_before_its_first_turn(warm):
    runs: list[None] = []
    turn = Turn(lambda: runs.append(None), length=Length(3, warm))
    assert len(runs) == 1
    assert len(turn.take()) == 3 and len(runs) == 1 + warm + 3


@pytest.mark.parametrize("seconds, untimed", [(0.01, 1), (1.0, 0)])
def test_the_first_round_of_slow_models_counts(contenders, seconds, untimed):
    """Each round still runs the other way round than the one before."""
    turns: list[str] = []

    def opener(contender, stack):
        def take():
            turns.append(contender.name)
            return [seconds]

        return 1.0, take

    measured = measure(contenders[:2], opener, Sampling(rounds=8, each=2, least=4))
    assert measured.rounds == 8 and len(measured.cycles) == 4 and len(measured.runs(0)) == 8
    assert len(turns) == 2 * (8 + 4 * untimed)
    cycles = [turns[i : i + 4 + 2 * untimed] for i in range(0, len(turns), 4 + 2 * untimed)]
    assert all(cycle[-4:-2] == cycle[-2:][::-1] for cycle in cycles)


def test_interruption_keeps_what_there_is(contenders):
    count = itertools.count()
    measured = measure(contenders, in_process(FEEDS), Sampling(seconds=60), interrupted=lambda: next(count) > 20)
    assert measured is not None and len(measured.cycles) < MIN_CYCLES
    assert measure(contenders, in_process(FEEDS), Sampling(), interrupted=lambda: True) is None
    assert gc.isenabled()


def test_a_model_that_fails(contenders, tmp_path):
    junk = tmp_path / "junk.onnx"
    junk.write_bytes(b"junk")
    with pytest.raises(SessionError):
        measure([*contenders, Contender("junk", junk, SessionConfig())], in_process(FEEDS), Sampling())
    assert gc.isenabled()


def drawn(noise, opened):
    """Contenders whose times are drawn, so that what is measured is known; each session lasts a millisecond in all."""
    rng = np.random.default_rng(0)

    def opener(contender, stack):
        luck = np.exp(rng.normal(0, noise))
        opened.append(contender.name)
        return 1e-4, lambda: [luck * float(contender.name)]

    return opener


def named(*names):
    return [Contender(name, Path(), SessionConfig()) for name in names]


def test_it_goes_on_while_it_is_noisy():
    calm, noisy = [], []
    quiet = measure(named("1.0", "0.5"), drawn(1e-4, calm), Sampling(seconds=0.02))
    assert not quiet.noisy and quiet.ratios[0].value == pytest.approx(2, rel=1e-3)
    loud = measure(named("1.0", "1.0"), drawn(0.5, noisy), Sampling(seconds=0.02))
    assert loud.noisy == (1,) and loud.seconds >= 3 * 0.02 > quiet.seconds


def test_what_is_far_from_one_may_be_known_less_precisely():
    far = measure(named("1.0", "4.0"), drawn(0.04, []), Sampling(rounds=40, precision=0.02))
    assert far.ratios[0].half_width > 0.02 and not far.noisy


def test_places_and_neighbours_change():
    opened = []
    measure(named("1", "2", "3", "4"), drawn(0.01, opened), Sampling(rounds=80))
    orders = [tuple(opened[i : i + 4]) for i in range(0, len(opened), 4)]
    assert len(orders) == 16
    for place in range(4):
        assert all(sum(order[place] == name for order in orders) == 4 for name in "1234")
    neighbours = {pair for order in orders for pair in itertools.pairwise(order)}
    assert len(neighbours) > 8


def test_the_first_round_is_not_timed():
    def opener(contender, stack):
        turns = itertools.count()
        return 1e-4, lambda: [9.0 if next(turns) == 0 else float(contender.name)]

    measured = measure(named("2.0", "1.0"), opener, Sampling(rounds=20))
    assert measured is not None and measured.rounds == 20 and measured.over(0, 1).low == pytest.approx(2.0)
    assert [sum(map(len, cycle.runs)) for cycle in measured.cycles] == [10] * 4


def test_twenty_times_the_work_is_slower():
    few = Sampling(rounds=20)
    worse = measure_pair(chain(1), chain(40), FEEDS, sampling=few)
    better = measure_pair(chain(40), chain(1), FEEDS, sampling=few)
    assert worse.ratio.verdict == "slower" and better.ratio.verdict == "faster"
    assert worse.speedup < 0.5 and better.speedup > 2
    assert better.ci95[0] <= better.speedup <= better.ci95[1]
    assert better.baseline_ms > better.variant_ms > 0


def test_a_pair_over_sessions():
    result = measure_pair(chain(40), chain(1), FEEDS, sampling=Sampling(0.5, patience=1))
    assert result.ci95[0] > 1.5
    assert result.sessions >= 4 and result.rounds >= 5 * result.sessions
    assert result.samples.shape == (result.rounds, 2) and result.opening.shape == (result.sessions, 2)
    assert result.opens is not None and result.opens[0] > 1  # a longer chain takes longer to open, whichever came first


def test_whoever_wants_to_stop_gets_a_verdict_on_the_least_number_of_sessions():
    asked = []
    counted = Sampling(np.inf, each=3)
    result = measure_pair(chain(1), chain(40), FEEDS, sampling=counted, stop=lambda: bool(asked.append(1)) or True)
    assert (result.sessions, result.rounds, len(asked)) == (4, 12, 1)


def test_callback_counts_on_over_sessions(contenders):
    seen = []
    measured = measure(contenders[:2], in_process(FEEDS), Sampling(0, least=2), on_round=seen.append)
    assert len(seen) == measured.rounds and len(measured.cycles) == 2


def test_precision_ends_it():
    pair = named("1.0", "0.5")
    assert len(measure(pair, drawn(1e-9, []), Sampling(60, early=1e-3)).cycles) == MIN_CYCLES
    equal = named("1.0", "1.0")
    assert len(measure(equal, drawn(1e-2, []), Sampling(60, early=1e-9, most=9)).cycles) == 9
    # What is far from 1 need not be known as precisely.
    assert len(measure(pair, drawn(1e-2, []), Sampling(60, early=1e-9, most=9)).cycles) == MIN_CYCLES


def test_what_is_plainly_faster_ends_it():
    def found(plain: float, noise: float) -> Ratio:
        sampling = Sampling(60, early=1e-9, plain=plain, most=60)
        measured = measure(named("1.0", "0.95"), drawn(noise, []), sampling)
        assert len(measured.cycles) < 60
        return measured.ratios[0]

    exact, plain, widest = found(0.0, 0.015), found(0.2, 0.015), found(10.0, 0.04)
    assert exact.half_width <= 0.1 * (exact.value - 1) < plain.half_width <= 0.2 * (plain.value - 1)
    # No further than two per cent to either side, however plain it is.
    assert 0.01 < widest.half_width <= 0.02


def test_the_order_of_a_round_takes_turns():
    assert [turn_order(2, i) for i in range(4)] == [[0, 1], [1, 0], [0, 1], [1, 0]]
    rounds = [turn_order(3, i) for i in range(6)]
    assert all(sorted(order) == [0, 1, 2] for order in rounds)
    assert sorted(order.index(0) for order in rounds) == [0, 0, 1, 1, 2, 2]


def test_garbage_collection_is_back_on_afterwards(contenders):
    assert gc.isenabled()
    measure(contenders[:2], in_process(FEEDS), Sampling(rounds=8, each=2))
    assert gc.isenabled()
    with pytest.raises(ZeroDivisionError):
        measure(contenders[:2], in_process(FEEDS), Sampling(rounds=8), on_round=lambda used: 1 / 0)
    assert gc.isenabled()


def test_large_models_are_open_one_at_a_time():
    there, most = [], []
    usual = in_process(FEEDS)

    def opener(contender, stack):
        there.append(contender.name)
        most.append(len(there))
        stack.callback(there.pop)
        return usual(contender, stack)

    pair = [Contender(str(depth), chain(depth), SessionConfig()) for depth in (40, 1)]
    measured = measure(pair, opener, Sampling(rounds=20, each=5, alone=True))
    assert measured is not None and set(most) == {1}
    assert measured.rounds == 20 and [cycle.turns.shape for cycle in measured.cycles] == [(5, 2)] * 4
    assert measured.over(0, 1).value > 2


def test_failures():
    with pytest.raises(SessionError):
        measure_pair(chain(1), chain(1), {"x": np.ones((3, 64), np.float32)})
    with pytest.raises(UsageError, match="least"):
        Sampling(least=1)
    with pytest.raises(UsageError, match="most"):
        Sampling(least=5, most=4)
    with pytest.raises(SessionError):
        measure_pair(chain(1), LoadableModel(b"junk"), FEEDS)


def test_threads_sleep_before_the_next_turn():
    """What a process uses of its processors in a tenth of a second after a turn, the pause over, is next to nothing."""
    contender = Contender("x", chain(1, width=512, rows=512), SessionConfig(threads=2)).sleeping_soon()
    with Session(contender.model, contender.config) as session:
        run, used = session.prepare({"x": np.ones((512, 512), np.float32)}), []
        for _ in range(5):
            run()
            time.sleep(contender.pause)
            began = time.process_time()
            time.sleep(0.1)
            used.append(time.process_time() - began)
    assert min(used) < 0.005, used  # spinning, they use all of it, up to the runtime's own limit


def test_only_threads_that_spin_are_waited_for():
    alone, several = (Contender("x", Path("x.onnx"), SessionConfig(threads=n)) for n in (1, 0))
    assert alone.sleeping_soon() == alone and alone.pause == 0.0
    assert (several.pause, several.sleeping_soon().pause) == (LONG_SETTLE_S, SETTLE_S)
    device, host = (
        replace(several, config=SessionConfig(name, threads=0)).sleeping_soon() for name in ("cuda", "openvino")
    )
    assert (device.pause, host.pause) == (SETTLE_S, LONG_SETTLE_S)
    foreign = replace(several, foreign=True)
    assert foreign.sleeping_soon() == foreign and foreign.pause == LONG_SETTLE_S


def test_what_the_user_says_of_spinning_stays():
    own = {"session.intra_op.spin_duration_us": "7"}
    found = Contender("x", Path("x.onnx"), SessionConfig(threads=2, entries=own)).sleeping_soon()
    assert found.config.entries["session.intra_op.spin_duration_us"] == "7"
    assert found.pause == LONG_SETTLE_S


def test_a_cycle_of_several_threads_begins_when_their_processors_are_near(monkeypatch):
    asked = []

    class Near:
        def settle(self):
            asked.append(True)
            return 3600.0  # which is not the measurement's

    near = Near()
    monkeypatch.setattr("graphopt.runtime.rounds.distance", lambda config: near if config.threads == 2 else None)
    counts = []
    for threads in (1, 2):
        asked.clear()
        two = [Contender(str(depth), chain(depth), SessionConfig(threads=threads)) for depth in (3, 4)]
        measured = measure(two, in_process(FEEDS), Sampling(rounds=20, precision=0.5))
        counts.append((len(measured.cycles), len(asked)))
        assert measured.seconds < 60
    assert counts == [(4, 0), (4, 4)]
