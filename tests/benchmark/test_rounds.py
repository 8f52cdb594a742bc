"""Interleaved rounds: every session has its turns, it goes on while it is noisy, and it ends when told to."""

from __future__ import annotations

import gc
import itertools
from pathlib import Path

import numpy as np
import pytest

from graphopt.benchmark.rounds import MIN_CYCLES, MIN_ROUNDS, Contender, Effort, in_process, measure
from graphopt.errors import SessionError
from graphopt.runtime.session import SessionConfig
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
    measured = measure(contenders, in_process(FEEDS), Effort(seconds=0.1, precision=0.5))
    same, light = measured.ratios
    assert light.value > 2 > same.value
    assert len(measured.cycles) >= MIN_CYCLES and measured.rounds >= MIN_CYCLES * MIN_ROUNDS
    assert measured.seconds > 0 and all(measured.opened(i) > 0 for i in range(3))
    assert len(measured.runs(2)) >= measured.rounds and np.median(measured.runs(2)) < np.median(measured.runs(0))
    over = measured.over(2, 0, 0.5)
    assert over.value == pytest.approx(1 / light.value)


def test_rounds_are_counted(contenders):
    used = []
    measured = measure(contenders[:2], in_process(FEEDS), Effort(rounds=23), on_round=used.append)
    assert measured.rounds == 23 and len(measured.cycles) == 5
    assert used[-1] == 1.0 and used == sorted(used)


def test_interruption_keeps_what_there_is(contenders):
    count = itertools.count()
    measured = measure(contenders, in_process(FEEDS), Effort(seconds=60), interrupted=lambda: next(count) > 20)
    assert measured is not None and len(measured.cycles) < MIN_CYCLES
    assert measure(contenders, in_process(FEEDS), Effort(), interrupted=lambda: True) is None
    assert gc.isenabled()


def test_a_model_that_fails(contenders, tmp_path):
    junk = tmp_path / "junk.onnx"
    junk.write_bytes(b"junk")
    with pytest.raises(SessionError):
        measure([*contenders, Contender("junk", junk, SessionConfig())], in_process(FEEDS), Effort())
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
    quiet = measure(named("1.0", "0.5"), drawn(1e-4, calm), Effort(seconds=0.02))
    assert not quiet.noisy and quiet.ratios[0].value == pytest.approx(2, rel=1e-3)
    loud = measure(named("1.0", "1.0"), drawn(0.5, noisy), Effort(seconds=0.02))
    assert loud.noisy == (1,) and loud.seconds >= 3 * 0.02 > quiet.seconds


def test_what_is_far_from_one_may_be_known_less_precisely():
    far = measure(named("1.0", "4.0"), drawn(0.02, []), Effort(rounds=40, precision=0.02))
    assert far.ratios[0].half_width > 0.02 and not far.noisy


def test_places_and_neighbours_change():
    opened = []
    measure(named("1", "2", "3", "4"), drawn(0.01, opened), Effort(rounds=80))
    orders = [tuple(opened[i : i + 4]) for i in range(0, len(opened), 4)]
    assert len(orders) == 16
    for place in range(4):
        assert all(sum(order[place] == name for order in orders) == 4 for name in "1234")
    neighbours = {pair for order in orders for pair in itertools.pairwise(order)}
    assert len(neighbours) > 8
