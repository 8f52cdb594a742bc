"""Planning on the true rewriter: through steps that cost, the same way every time, within its bounds."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import pytest
from onnx import helper

from graphopt.cost.analytic import OperatorCost
from graphopt.cost.kernel import KernelCost
from graphopt.cost.store import Store
from graphopt.onnxio.load import load
from graphopt.rewrite.library import Library, load_library
from graphopt.rewrite.schema import parse_rules
from graphopt.runtime.session import SessionConfig
from graphopt.search import mcts
from graphopt.search.greedy import Greedy
from graphopt.search.mcts import GumbelSearch, Tree
from graphopt.search.normal import Normal
from graphopt.search.plans import PlanSearch
from graphopt.search.problem import Budget, Problem
from tests.ir.check import problems
from tests.search.test_backtracking import layers, operators, problem  # noqa: F401 (a fixture)
from tests.search.test_greedy import graph_of

DEMO = Path(__file__).resolve().parents[2] / "models" / "demo_regnet.onnx"
THERE_AND_BACK = """
family: test
doc: Two rules that undo each other.
rules:
  - id: there
    doc: Costs a pass over memory.
    equal: real
    match: ["y = Erf(x)"]
    replace: ["n = Neg(x)", "t = Erf(n)", "y = Neg(t)"]
    examples: {accept: [{x: 3xf32}]}
  - id: back
    doc: And saves it.
    equal: real
    match: ["n = Neg(x)", "t = Erf(n)", "y = Neg(t)"]
    replace: ["y = Erf(x)"]
    examples: {accept: [{x: 3xf32}]}
"""
ONCE = """
family: test
doc: Twice is once.
rules:
  - id: once
    doc: Saves one.
    equal: exact
    match: ["a = Floor(x)", "y = Floor(a)"]
    replace: ["y = Floor(x)"]
    examples: {accept: [{x: 3xf32}]}
"""


@pytest.fixture
def start(problem):  # noqa: F811
    return problem.start(layers(3))


def test_planning_goes_through_a_step_that_costs(problem, start):  # noqa: F811
    assert Greedy().run(problem, start, Budget()).steps == ()
    found = GumbelSearch().run(problem, start, Budget(candidates=500))
    assert operators(found.state.graph).count("Relu") == 3
    assert found.state.cost < start.cost
    assert problems(found.state.graph) == []
    costs = [o.state.cost for o in (found, *found.others)]
    assert costs == sorted(costs) and len({o.state.graph.hash for o in (found, *found.others)}) == len(costs)


def test_a_move_is_made_at_all_equal_places(problem):  # noqa: F811
    start = problem.start(layers(24))
    found = GumbelSearch().run(problem, start, Budget(candidates=60))
    assert operators(found.state.graph).count("Relu") >= 23
    assert found.steps[0].cost_before == start.cost


def test_a_seed_gives_the_same_plan_again(problem, start):  # noqa: F811
    one, two = (GumbelSearch(seed=4).run(problem, start, Budget(candidates=60)) for _ in range(2))
    assert (one.steps, one.candidates, one.stop_reason) == (two.steps, two.candidates, two.stop_reason)


@pytest.mark.parametrize("candidates", [0, 1, 7, 40])
def test_the_budget_holds(problem, start, candidates):  # noqa: F811
    budget = Budget(candidates=candidates)
    found = GumbelSearch().run(problem, start, budget)
    assert found.candidates == budget.spent <= candidates
    assert found.state.cost <= start.cost


def test_an_interruption_ends_it_with_what_was_found(problem, start):  # noqa: F811
    asked = iter([False] * 30 + [True] * 10_000)
    found = GumbelSearch(patience=10_000).run(problem, start, Budget(interrupted=lambda: next(asked)))
    assert found.stop_reason == "interrupted"
    assert problems(found.state.graph) == [] and found.state.cost <= start.cost


def test_patience_ends_a_search_without_a_budget(problem, start):  # noqa: F811
    found = GumbelSearch(patience=3).run(problem, start, Budget())
    assert "no better graph in the last of" in found.stop_reason
    assert operators(found.state.graph).count("Relu") == 3


def test_patience_ends_it_where_a_plan_promises_less_than_nothing(problem):  # noqa: F811
    """Of eight in a row four pairs are one each, and every pair with what was made of one counts four times again: more than there is."""
    rules = replace(problem, library=Library(tuple(parse_rules(ONCE, "test.yaml"))))
    nodes = [helper.make_node("Floor", [f"v{i}"], [f"v{i + 1}"]) for i in range(8)]
    start = rules.start(graph_of(*nodes, weights={}, inputs={"v0": [512, 64]}, outputs=["v8"]))
    plans = list[float]()

    class Counted(GumbelSearch):
        def _plan(self, tree, chance):
            super()._plan(tree, chance)
            plans.append(tree.search.best)
            assert len(plans) < 500

    found = Counted(patience=3).run(rules, start, Budget())
    assert min(plans) < 0.0
    assert found.stop_reason.startswith("no better graph in the last of")


def test_what_costs_nothing_can_be_planned_from(problem):  # noqa: F811
    """Views alone take no time by some prices, and rules match them."""
    free = replace(problem, cost=OperatorCost({"Erf": 0.0, "Neg": 1.0, "MatMul": 0.0}))
    start = free.start(layers(1))
    assert start.cost == 0.0 and start.actions()
    found = GumbelSearch(patience=2).run(free, start, Budget(candidates=50))
    assert found.steps == () and found.state.cost == 0.0


def test_every_better_graph_is_told(problem, start):  # noqa: F811
    told = []
    found = GumbelSearch().run(problem, start, Budget(candidates=500), told.append)
    assert told[-1].cost == found.state.cost


def test_states_are_forgotten_and_the_best_plan_is_not(problem, monkeypatch):  # noqa: F811
    most, enter = [0], Tree._enter

    def entered(self, reduced, own):
        node = enter(self, reduced, own)
        most[0] = max(most[0], len(self.held))
        return node

    monkeypatch.setattr(Tree, "_enter", entered)
    start = problem.start(layers(3))
    free = GumbelSearch().run(problem, start, Budget(candidates=2000))
    unbounded, most[0] = most[0], 0
    found = GumbelSearch(states=3, simulations=4).run(problem, start, Budget(candidates=2000))
    assert most[0] <= 3 + 4 < unbounded
    assert found.state.cost == free.state.cost


def test_a_learned_policy_is_asked_and_what_it_does_not_propose_is_not_priced(problem, start):  # noqa: F811
    asked = []

    def prior(state, matches):
        asked.append(len(matches))
        return [8.0 if match.rule.id == "shortcut" else 0.0 for match in matches]

    search = PlanSearch(problem, start, Budget(candidates=500), 4)
    tree = Tree(search, prior)
    tree.widen(tree.root, math.inf)
    assert search.budget.spent == 0 and asked == [len(tree.root.actions)]
    found = GumbelSearch(prior).run(problem, start, Budget(candidates=500))
    assert operators(found.state.graph).count("Relu") == 3


def test_a_policy_that_gives_no_numbers_is_an_error(problem, start):  # noqa: F811
    with pytest.raises(ValueError, match="a logit that is no number"):
        GumbelSearch(lambda state, matches: [math.nan for _ in matches]).run(problem, start, Budget(candidates=50))


def test_savings_are_the_prior_where_nobody_learned_one(problem, start):  # noqa: F811
    tree = Tree(PlanSearch(problem, start, Budget(), 4))
    tree.widen(tree.root, math.inf)
    assert {action.logit for action in tree.root.actions} == {-mcts.STEEPEST}  # each detour costs more than a per cent
    after = tree._grow(tree.root, tree.root.actions[0])
    assert after is not None and after.own < 0
    tree.widen(after, math.inf)
    assert max(action.logit for action in after.actions) == mcts.STEEPEST


def edges(tree):
    return [(node, a.child) for node in tree.held.values() for a in node.actions if a.child is not None]


def test_graphs_reached_in_several_ways_are_one_state(problem, start):  # noqa: F811
    tree = Tree(PlanSearch(problem, start, Budget(), 4))
    tree.widen(tree.root, math.inf)
    for _ in range(30):
        for action in tree.root.actions:
            tree.simulate(tree.root, action)
    found = edges(tree)
    assert all(child is tree.held[child.hash] for _, child in found)
    assert len({child.hash for _, child in found}) < len(found)  # the last layer first, or the last one last


def test_no_way_leads_back(problem, start):  # noqa: F811
    there_and_back = replace(problem, library=Library(tuple(parse_rules(THERE_AND_BACK, "test.yaml"))))
    start = there_and_back.start(start.graph)
    tree = Tree(PlanSearch(there_and_back, start, Budget(), 4))
    tree.widen(tree.root, math.inf)
    for _ in range(40):
        tree.simulate(tree.root, tree.root.actions[0])
    assert tree.root not in [child for _, child in edges(tree)]
    assert any(action.dead for node in tree.held.values() for action in node.actions)
    assert GumbelSearch().run(there_and_back, start, Budget()).steps == ()


def test_values_that_are_not_known_are_completed_by_those_that_are(problem, start):  # noqa: F811
    tree = Tree(PlanSearch(problem, start, Budget(), 4))
    tree.widen(tree.root, math.inf)
    node = tree.root
    added = node.improvement()
    assert {added(action) for action in node.actions} == {0.0}
    tree.simulate(node, node.actions[0])
    added = node.improvement()
    assert added(node.actions[0]) == 0.0 < added(node.actions[1])  # a detour is worse than what is not known


@pytest.mark.parametrize("seed", [0, 1])
def test_real_rules_on_a_real_model(tmp_path, seed):
    with Store(tmp_path / "kernels.sqlite") as store:
        real = Problem(load_library(), KernelCost(store, SessionConfig(), measure=False))
        start = real.start(Normal.of(load(DEMO).graph, real).graph)
        budget = Budget(candidates=400)
        found = GumbelSearch(seed=seed).run(real, start, budget)
        assert found.state.cost < start.cost and budget.spent <= 400
        assert problems(found.state.graph) == []
        assert found.state.cost == pytest.approx(real.start(found.state.graph).cost)
        assert found.steps[-1].cost_after == pytest.approx(found.state.cost)
