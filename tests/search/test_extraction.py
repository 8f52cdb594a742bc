"""Extraction from constructed e-graphs: what is shared counts once, and nothing is computed from itself."""

from __future__ import annotations

import itertools
import random
import time

import pytest

from graphopt.search.extraction import Alternative, Extraction

pytest.importorskip("scipy")

X, A, B, C, D, E = range(6)


def way(makes, *reads) -> Alternative:
    return Alternative(tuple(makes) if isinstance(makes, tuple) else (makes,), reads)


def price(prices, chosen) -> float:
    return sum(prices[i] for i in chosen)


def test_what_two_values_share_counts_once():
    # A and B each have a cheap way of their own (3) and a dear common one (5 and next to nothing each).
    ways = [way(A, X), way(B, X), way(C, X), way(A, C), way(B, C)]
    prices = [3.0, 3.0, 5.0, 0.25, 0.25]
    found = Extraction(ways, [A, B], [X]).cheapest(prices)
    assert found == {2, 3, 4}  # value by value the own ways win: 3 < 5.25
    assert Extraction(ways, [A], [X]).cheapest(prices) == {0}


def test_one_node_makes_several_values():
    ways = [way(A, X), way(B, X), way((A, B), X)]
    assert Extraction(ways, [A, B], [X]).cheapest([2.0, 2.0, 3.0]) == {2}
    assert Extraction(ways, [B], [X]).cheapest([2.0, 2.0, 3.0]) == {1}


def test_nothing_is_computed_from_itself():
    # A from B and B from A cost nothing; one of them has to come from X.
    ways = [way(A, B), way(B, A), way(A, X), way(B, X)]
    assert Extraction(ways, [A, B], [X]).cheapest([0.0, 0.0, 2.0, 3.0]) == {1, 2}
    assert Extraction(ways[:2], [A], [X]).cheapest([0.0, 0.0]) is None


def test_a_cycle_with_a_tail_and_one_within_another():
    ways = [way(A, B), way(B, C), way(C, B), way(C, D), way(D, C), way(D, X), way(E, A, C)]
    found = Extraction(ways, [E], [X]).cheapest([0.0, 0.0, 0.0, 0.0, 0.0, 9.0, 1.0])
    assert found == {0, 1, 3, 5, 6}


def test_what_is_given_needs_no_way_and_what_is_not_has_none():
    assert Extraction([way(A, X)], [X], [X]).cheapest([1.0]) == frozenset()
    assert Extraction([way(A, B)], [A], [X]).cheapest([1.0]) is None
    assert Extraction([], [A], [X]).cheapest([]) is None


def test_the_next_best_after_the_best():
    ways = [way(A, X), way(A, X), way(A, X), way(B, X)]
    program = Extraction(ways, [A], [X])
    order = []
    while (found := program.cheapest([2.0, 1.0, 3.0, 0.0])) is not None:
        order.append(found)
        program.forbid(found)
    assert order == [{1}, {0}, {2}]  # and none with the useless fourth


def test_no_time_no_solution():
    assert Extraction([way(A, X)], [A], [X]).cheapest([1.0], seconds=0.0) is None


@pytest.mark.parametrize("seed", range(12))
def test_as_cheap_as_the_cheapest_of_all_choices(seed):
    chance = random.Random(seed)
    ways, prices = [], []
    for _ in range(10):
        makes = tuple(chance.sample(range(1, 6), chance.choice([1, 1, 2])))
        ways.append(way(makes, *chance.sample(range(6), chance.choice([1, 1, 2]))))
        prices.append(float(chance.randint(0, 9)))
    wanted = chance.sample(range(1, 6), 2)

    def computes(chosen) -> bool:
        known = {X}
        while fresh := {k for i in chosen if known.issuperset(ways[i].reads) for k in ways[i].makes} - known:
            known |= fresh
        return known.issuperset(wanted)

    all_choices = (c for n in range(11) for c in itertools.combinations(range(10), n))
    best = min((price(prices, c) for c in all_choices if computes(c)), default=None)
    found = Extraction(ways, wanted, [X]).cheapest(prices)
    assert (found is None) == (best is None)
    if found is not None:
        assert computes(found) and price(prices, found) == pytest.approx(best)


def test_a_long_row_takes_time_in_proportion():
    """A model of 20,000 nodes in a row: looking at all that wait for each one that is ready took most of a minute."""
    count = 20_000
    row = Extraction([way(i + 1, i) for i in range(count)], [count], [0])
    began = time.process_time()
    assert row._founded(frozenset(range(count))) == frozenset(range(count))
    assert not row._lost(frozenset(range(count)))
    assert len(row._lost(frozenset(range(1, count)))) == count - 1
    assert time.process_time() - began < 5.0
