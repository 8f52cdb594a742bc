"""Threads that pass a matrix to each other tell how far apart their processors are."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from graphopt.runtime.distance import Distance, distance
from graphopt.runtime.session import SessionConfig


@pytest.fixture
def clock(monkeypatch):
    """A clock that goes on by what runs and waiting take."""
    now = [100.0]

    def advance(seconds):
        now[0] += seconds

    fake = SimpleNamespace(perf_counter=lambda: now[0], monotonic=lambda: now[0], sleep=advance)
    monkeypatch.setattr("graphopt.runtime.distance.time", fake)
    return SimpleNamespace(now=now, advance=advance)


def _apart(clock, spells):
    """A distance whose threads take 0.7 of one thread's time, and 2.3 times as long within spells."""

    def several():
        far = any(begin <= clock.now[0] < end for begin, end in spells)
        clock.advance(2.3e-3 if far else 0.7e-3)

    return Distance(lambda: clock.advance(1e-3), several)


@pytest.mark.parametrize(
    "times, far", [(0.7, False), (1.03, False), (2.3, True)], ids=["near", "a busy machine", "far"]
)
def test_far_is_where_several_threads_take_longer_than_one(clock, times, far):
    assert Distance(lambda: clock.advance(1e-3), lambda: clock.advance(times * 1e-3)).far() is far


def test_one_fast_run_shows_that_they_are_near(clock):
    disturbed = iter([5e-3, 6e-3, 9e-3, 0.7e-3])
    assert not Distance(lambda: clock.advance(1e-3), lambda: clock.advance(next(disturbed))).far()


def test_a_spell_is_waited_for_until_patience_ends(clock):
    found = _apart(clock, [(110, 117), (200, 300)])
    found.wait_for(20.0)
    found.settle()
    assert clock.now[0] < 101
    clock.now[0] = 110.0
    assert 7 <= found.settle() < 8
    assert clock.now[0] < 118 and not found.far()
    clock.now[0] = 200.0
    found.settle()
    assert 212 < clock.now[0] < 214 and found.far() and found.patience <= 0


def test_whoever_interrupts_waits_no_longer(clock):
    found = _apart(clock, [(110, 200)])
    found.wait_for(60.0, lambda: clock.now[0] >= 113)
    found.settle()
    clock.now[0] = 110.0
    assert 3 <= found.settle() < 4


def test_processors_that_were_never_near_are_not_waited_for(clock):
    found = _apart(clock, [(0, 1000)])
    assert found.patience == 0
    found.wait_for(20.0)
    found.settle()
    assert clock.now[0] < 101 and found.far()


def test_real_threads_tell_and_a_single_one_has_no_distance():
    assert distance(SessionConfig(threads=1)) is None
    found = distance(SessionConfig(threads=2))
    assert found is not None and found.far() in (False, True) and distance(SessionConfig(threads=2)) is found
