"""Iterated local search: out of a local optimum, and the same way every time."""

from __future__ import annotations

from dataclasses import replace

import pytest

from graphopt.search.backtracking import Backtracking
from graphopt.search.greedy import Greedy
from graphopt.search.local import IteratedLocalSearch
from graphopt.search.problem import Budget, Outcome, cheapest
from tests.ir.check import problems
from tests.search.test_backtracking import layers, operators, problem  # noqa: F401 (a fixture)


@pytest.fixture
def start(problem):  # noqa: F811
    return problem.start(layers(3))


def test_a_kick_leads_where_no_descent_does(problem, start):  # noqa: F811
    for stuck in (Greedy(), Backtracking(alpha=1.0)):
        assert "Relu" not in operators(stuck.run(problem, start, Budget(candidates=500)).state.graph)
    found = IteratedLocalSearch(alpha=1.0).run(problem, start, Budget(candidates=500))
    assert operators(found.state.graph).count("Relu") == 3
    assert found.state.cost < start.cost
    assert problems(found.state.graph) == []
    assert [s.rule for s in found.steps].count("shortcut") == 3


def test_a_seed_gives_the_same_plan_again(problem, start):  # noqa: F811
    one, two = (IteratedLocalSearch(1.0, seed=4).run(problem, start, Budget(candidates=60)) for _ in range(2))
    assert (one.steps, one.candidates) == (two.steps, two.candidates)


def test_the_budget_holds(problem, start):  # noqa: F811
    budget = Budget(candidates=40)
    found = IteratedLocalSearch().run(problem, start, budget)
    assert found.candidates == budget.spent
    assert budget.spent <= 40 + 3  # a kick is carried out whole
    assert "kicks" in found.stop_reason


def test_an_interruption_ends_it_with_what_was_found(problem, start):  # noqa: F811
    asked = iter([False] * 30 + [True] * 10_000)
    found = IteratedLocalSearch(patience=10_000).run(problem, start, Budget(interrupted=lambda: next(asked)))
    assert "interrupted" in found.stop_reason
    assert found.state.cost <= start.cost


def test_patience_ends_a_search_without_a_budget(problem, start):  # noqa: F811
    found = IteratedLocalSearch(patience=20).run(problem, start, Budget())
    assert "no better graph" in found.stop_reason
    assert replace(found, others=()).state.cost <= start.cost


def test_each_graph_once_the_cheapest_first_and_of_equals_what_was_found_first(problem, start):  # noqa: F811
    better = Backtracking().run(problem, start, Budget(candidates=100))
    assert better.state.cost < start.cost
    same, unlike = Outcome(start, (), 1, 0.0, "first"), Outcome(replace(start, graph=layers(4)), (), 2, 0.0, "dear")
    found = [same, unlike, better, replace(same, stop_reason="second")]
    assert cheapest(found, 9) == [better, same, unlike]
    assert cheapest(found, 1) == [better]
