"""Backtracking and its controls over small rules and estimated prices."""

from __future__ import annotations

from dataclasses import replace

import pytest
from onnx import helper

from graphopt.cost.kernel import KernelCost
from graphopt.cost.store import Store
from graphopt.rewrite.library import Library
from graphopt.rewrite.schema import parse_rules
from graphopt.runtime.session import SessionConfig
from graphopt.search.backtracking import Auto, Backtracking, Beam, RandomWalk
from graphopt.search.greedy import Greedy
from graphopt.search.mcts import GumbelSearch
from graphopt.search.plans import Candidate, PlanSearch, in_rounds
from graphopt.search.problem import Budget, Outcome, Problem
from graphopt.search.symmetry import PlanExpansion, ReducedState, SiteClasses, disjoint
from tests.ir.check import problems
from tests.search.test_greedy import RULES as MERGING
from tests.search.test_greedy import graph_of

# Not laws: a search does not ask. The way to the cheap operator leads over a dearer graph.
RULES = """
family: test
doc: A detour and what it leads to.
rules:
  - id: detour
    doc: Costs a pass over memory.
    equal: real
    match: ["y = Erf(x)"]
    replace: ["n = Neg(x)", "t = Erf(n)", "y = Neg(t)"]
    examples: {accept: [{x: 3xf32}]}
  - id: shortcut
    doc: Saves two.
    equal: real
    match: ["n = Neg(x)", "t = Erf(n)", "y = Neg(t)"]
    replace: ["y = Relu(x)"]
    examples: {accept: [{x: 3xf32}]}
"""


@pytest.fixture
def problem(tmp_path):
    with Store(tmp_path / "kernels.sqlite") as store:
        yield Problem(
            Library(tuple(parse_rules(RULES, "test.yaml"))), KernelCost(store, SessionConfig(), measure=False)
        )


def layers(n: int):
    nodes = []
    for i in range(n):
        nodes.append(helper.make_node("MatMul", [f"v{i}", f"w{i}"], [f"m{i}"]))
        nodes.append(helper.make_node("Erf", [f"m{i}"], [f"v{i + 1}"]))
    weights = {f"w{i}": (64, 64) for i in range(n)}
    return graph_of(*nodes, weights=weights, inputs={"v0": [512, 64]}, outputs=[f"v{n}"])


def operators(graph) -> list[str]:
    return sorted(node.op for node in graph.nodes.values())


def test_greedy_does_not_go_through_a_step_that_costs(problem):
    assert Greedy().run(problem, problem.start(layers(1)), Budget()).steps == ()


def test_backtracking_does_if_alpha_lets_it(problem):
    start = problem.start(layers(1))
    assert Backtracking(alpha=1.0).run(problem, start, Budget()).steps == ()
    found = Backtracking(alpha=3.0).run(problem, start, Budget())
    assert [s.rule for s in found.steps] == ["detour", "shortcut"]
    assert operators(found.state.graph) == ["MatMul", "Relu"]
    assert found.state.cost < start.cost
    assert found.steps[0].cost_after > found.steps[0].cost_before
    assert problems(found.state.graph) == []


@pytest.mark.parametrize("n", [4, 12, 48])
def test_equal_layers_are_explored_once_and_rewritten_everywhere(problem, n: int):
    found = Backtracking(alpha=3.0).run(problem, problem.start(layers(n)), Budget(candidates=20))
    # The last layer makes the model's output, so it is not like the others.
    assert operators(found.state.graph).count("Relu") >= n - 1
    assert problems(found.state.graph) == []


def test_alpha_is_for_one_place_however_many_there_are(problem):
    start = problem.start(layers(24))
    found = Backtracking(alpha=1.1).run(problem, start, Budget(candidates=400))
    assert operators(found.state.graph).count("Relu") >= 23


def test_the_cost_of_a_reduced_state_is_that_of_the_graph_it_stands_for(problem):
    start = problem.start(layers(6))
    site_classes = SiteClasses()
    reduced = ReducedState.start(start, site_classes)
    assert set(reduced.open.values()) <= {1, 5}
    found = Backtracking(alpha=3.0).run(problem, start, Budget())
    assert found.state.cost == pytest.approx(problem.start(found.state.graph).cost)


def test_a_second_place_of_a_class_beside_the_first_counts_once(problem):
    rules = Library(tuple(rule for rule in parse_rules(MERGING, "test.yaml") if rule.id == "merge"))
    nodes = []
    for i in range(3):
        nodes += [helper.make_node("MatMul", [f"v{i}", f"w{i}{j}"], [f"m{i}{j}"]) for j in range(4)]
        nodes.append(helper.make_node("Sum", [f"m{i}{j}" for j in range(4)], [f"v{i + 1}"]))
    weights = {f"w{i}{j}": (64, 64) for i in range(3) for j in range(4)}
    graph = graph_of(*nodes, weights=weights, inputs={"v0": [4, 64]}, outputs=["v3"])
    problem, site_classes = replace(problem, library=rules), SiteClasses()
    start = problem.start(graph)
    reduced = ReducedState.start(start, site_classes)
    pairs = sorted(reduced.open)
    one = pairs[0]
    other = next(key for key in pairs if not set(key[1]) & set(one[1]))
    assert reduced.counts(one) == reduced.counts(other) == 6  # two beside each other in each of three layers
    expansion = PlanExpansion(problem, start, site_classes)
    after = reduced.after(problem, start.sites.matches[one], site_classes)
    assert other in after.open and after.counts(other) == 0
    both = after.after(problem, after.state.sites.matches[other], site_classes)
    assert both.state.cost != after.state.cost
    assert both.cost == after.cost == pytest.approx(expansion.of(both.plan)[0].cost)


NEIGHBOURS = """
family: test
doc: A rewrite of the sum changes who reads the activation before it.
rules:
  - id: to-sum
    doc: Another name.
    equal: exact
    match: ["s = Add(a, w)", "y = Relu(s)"]
    replace: ["s = Sum(a, w)"]
    examples: {accept: [{a: 3xf32, w: 3xf32}]}
"""


@pytest.mark.parametrize("n", [4, 48])
def test_equal_neighbours_of_a_rewrite_are_not_opened(problem, n: int):
    rules = Library(tuple(parse_rules(NEIGHBOURS, "test.yaml")))
    nodes = []
    for i in range(n):
        nodes.append(helper.make_node("Add", [f"v{i}", f"w{i}"], [f"s{i}"]))
        nodes.append(helper.make_node("Relu", [f"s{i}"], [f"v{i + 1}"]))
    graph = graph_of(*nodes, weights={f"w{i}": (64, 64) for i in range(n)}, inputs={"v0": [64, 64]}, outputs=[f"v{n}"])
    problem = replace(problem, library=rules)
    start, site_classes = problem.start(graph), SiteClasses()
    reduced = ReducedState.start(start, site_classes)
    key = max(reduced.open, key=lambda k: reduced.open[k])
    after = reduced.after(problem, start.sites.matches[key], site_classes)
    assert set(after.open) == set(reduced.open) - {key}
    carried, steps = PlanExpansion(problem, start, site_classes).of(after.plan)
    assert len(steps) == reduced.open[key]
    assert set(carried.sites.matches) == set(problem.start(carried.graph).sites.matches)


def test_sites_that_share_a_node_count_once():
    assert disjoint([("r", (1, 2)), ("r", (2, 3)), ("r", (4, 5))]) == 2


def test_a_part_of_a_budget_is_a_share_of_what_is_left_and_no_more_than_asked_for():
    budget = Budget(candidates=100, spent=40)
    assert [budget.part(0.5).candidates, budget.part(0.5, 10).candidates, budget.part(1.0, 80).candidates] == [
        30,
        10,
        60,
    ]
    paused = [0.0]
    for made in (Budget(9.0, aside=lambda: paused[0]).again(), Budget(9.0, aside=lambda: paused[0]).part(1.0)):
        paused[0] += 5.0  # seconds that do not count
        assert made.elapsed <= -4.0
    assert [Budget().part(0.5).candidates, Budget().part(0.5, 10).candidates] == [None, 10]
    assert Budget(candidates=40, spent=40).part(1.0, 10).exhausted() == "candidate budget used up"


@pytest.mark.parametrize(
    "strategy", [Backtracking(3.0), Beam(), RandomWalk(length=4, walks=20), Auto(3.0)], ids=lambda s: s.name
)
def test_every_strategy_finds_it_and_keeps_to_the_budget(problem, strategy):
    start = problem.start(layers(3))
    found = strategy.run(problem, start, Budget())
    assert found.state.cost < start.cost
    assert problems(found.state.graph) == []
    short = strategy.run(problem, start, Budget(candidates=1))
    assert short.candidates <= 1
    assert short.stop_reason == "candidate budget used up"
    assert short.state.cost <= start.cost


@pytest.mark.parametrize("strategy", [Backtracking, Beam, RandomWalk, Auto], ids=lambda s: s.name)
def test_the_same_start_gives_the_same_result(problem, strategy):
    graphs = {
        strategy().run(problem, problem.start(layers(3)), Budget(candidates=60)).state.graph.hash for _ in range(2)
    }
    assert len(graphs) == 1


def test_other_plans_are_kept_for_the_clock(problem):
    found = Backtracking(alpha=3.0).run(problem, problem.start(layers(3)), Budget())
    costs = [o.state.cost for o in (found, *found.others)]
    assert costs == sorted(costs)
    assert len({o.state.graph.hash for o in (found, *found.others)}) == 1 + len(found.others)


def test_an_interruption_keeps_the_best_so_far(problem):
    asked = iter([False] * 8 + [True] * 10_000)
    found = Backtracking(alpha=3.0).run(problem, problem.start(layers(3)), Budget(interrupted=lambda: next(asked)))
    assert found.stop_reason == "interrupted"
    assert problems(found.state.graph) == []


def test_a_round_without_a_better_plan_ends(problem):
    """Detours that lead nowhere: a round that is patient looks at all of them, another one ends, and what it found before stays."""
    aimless = replace(problem, library=Library(tuple(r for r in problem.library.rules if r.id == "detour")))
    start = aimless.start(layers(3))
    whole = Backtracking(alpha=1e9).run(aimless, start, Budget(candidates=2000))
    short = Backtracking(alpha=1e9, patience=3).run(aimless, start, Budget(candidates=2000))
    assert short.stop_reason == "no better plan in the last 5 rewrites"  # one more for each of two sites
    assert not short.steps and short.candidates < whole.candidates / 2
    found = Backtracking(alpha=3.0, patience=3).run(problem, problem.start(layers(3)), Budget(candidates=2000))
    assert operators(found.state.graph).count("Relu") == 3


@pytest.mark.parametrize("strategy", [Backtracking(1e9), GumbelSearch(patience=10_000)], ids=lambda s: s.name)
@pytest.mark.parametrize("candidates", [2, 9, 15])
def test_what_finds_nothing_uses_its_whole_budget(problem, strategy, candidates: int):
    """A round has a half of what is left, for the sake of the next; where it finds nothing there is no next one."""
    aimless = replace(problem, library=Library(tuple(r for r in problem.library.rules if r.id == "detour")))
    budget = Budget(candidates=candidates)
    found = strategy.run(aimless, aimless.start(layers(3)), budget)
    assert found.steps == () and found.stop_reason == "candidate budget used up"
    assert found.candidates == budget.spent == candidates


def test_a_round_has_all_until_it_finds_something_and_then_a_half(problem):
    for limit in ({"candidates": 101}, {"seconds": 50.0}):
        part = Budget(**limit).until_found(0.5)
        (name,) = limit
        assert getattr(part, name) == pytest.approx(limit[name], abs=0.1)
        within = part.part(0.5)
        for _ in range(2):  # only the first time counts
            part.found(), within.found()
        assert getattr(part, name) == pytest.approx(limit[name] / 2, abs=0.5)
        assert getattr(within, name) == pytest.approx(limit[name] / 4, abs=1.0)
    whole = Budget(candidates=10)
    whole.found()
    assert whole.candidates == 10


def test_a_round_whose_find_comes_to_nothing_does_not_say_that_the_budget_is_gone(problem):
    start = problem.start(layers(1))

    def mistaken(state, budget):
        budget.found()
        budget.spent = budget.candidates
        return Outcome(state, (), budget.spent, 0.0, budget.exhausted())

    found = in_rounds(mistaken, start, Budget(candidates=10), keep=4)
    assert found.candidates == 5 and found.stop_reason == "what seemed better at one place saves nothing everywhere"


def plan_of(search: PlanSearch, layers: str) -> Candidate:
    """The last rewrite of a plan for all layers but the last, or for all of them."""
    first = max(search.root.open, key=lambda key: search.root.open[key])
    last = next(key for key in search.root.open if key != first)
    here = search.root
    for key in (first, last)[: 2 if layers == "all" else 1]:
        detour = here.after(search.problem, here.state.sites.matches[key], search.site_classes)
        shortcut = next(m for m in detour.state.sites if m.rule.id == "shortcut")
        before, here = detour, detour.after(search.problem, shortcut, search.site_classes)
    return Candidate(before, shortcut, here.cost, here.state.cost)


def test_a_plan_ends_where_more_of_it_saves_nothing_everywhere(problem):
    search = PlanSearch(problem, problem.start(layers(4)), Budget(), 4)
    good = plan_of(search, "but the last")
    parent = good.parent.after(problem, good.match, search.site_classes)
    detour = next(m for m in parent.state.sites if m.rule.id == "detour" and m.nodes in {k[1] for k in parent.open})
    search.note(Candidate(parent, detour, good.cost / 2, good.here))  # it costs, whatever is claimed
    found = search.outcome("over", None)
    assert [step.rule for step in found.steps] == ["detour"] * 3 + ["shortcut"] * 3
    assert found.state.cost == pytest.approx(good.cost)


@pytest.mark.parametrize("seconds, steps", [(None, 8), (0.0, 0)])
def test_a_plan_that_pays_is_found_behind_those_that_promise_more(problem, seconds, steps: int):
    """Where time is long gone as many are carried out as would be kept."""
    search = PlanSearch(problem, problem.start(layers(4)), Budget(seconds), 4)
    good = plan_of(search, "all")
    detour = next(m for m in search.root.state.sites if m.rule.id == "detour")
    for share in (0.1, 0.2, 0.3, 0.4):  # they cost, whatever is claimed
        search.note(Candidate(search.root, detour, share * good.cost, good.here))
    search.note(good)
    assert len(search.outcome("over", None).steps) == steps


@pytest.mark.parametrize("waits", [False, True])
def test_who_waits_for_the_end_gets_the_best_plan_alone(problem, waits: bool):
    search = PlanSearch(problem, problem.start(layers(4)), Budget(interrupted=lambda: waits), 4)
    for name in ("but the last", "all"):
        search.note(plan_of(search, name))
    found = search.outcome("over", None)
    assert operators(found.state.graph).count("Relu") == 4
    assert len(found.others) == (0 if waits else 1)


def test_time_that_is_long_gone_is_overdue():
    assert [Budget(seconds).overdue for seconds in (None, 1e3, 0.0)] == [False, False, True]


def test_time_that_is_kept_for_what_comes_after_a_find_is_not_gone():
    """A find late in a round left it with nothing but its first plan: a half of the whole was over, and all the rest was still there."""
    gone = [0.0]
    part = Budget(100.0, aside=lambda: -gone[0]).until_found(0.5)
    gone[0] = 60.0
    part.found()
    assert part.exhausted() is None
    gone[0] = 81.0  # a half of what was left then
    assert part.exhausted() == "time budget used up" and not part.overdue
    gone[0] = 111.0
    assert part.overdue


def test_a_find_leaves_half_of_what_is_left():
    """However late it comes: what follows from it has its turn in the same round."""
    part = Budget(None, 100, least=40).until_found(0.5)
    part.spent = 70
    part.found()
    assert (part.candidates, part.least) == (85, 70)
    part.found()  # the first find alone
    assert part.candidates == 85
    assert Budget(None, 100, spent=30, least=40).until_found(0.5).least == 10
