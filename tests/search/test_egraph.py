"""Equality saturation over real graphs: what greedy can't see, within its bounds, the same way every time."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import pytest
from onnx import helper

from graphopt import registry
from graphopt.cost.kernel import KernelCost
from graphopt.cost.store import Store
from graphopt.errors import MissingExtraError
from graphopt.onnxio.load import load
from graphopt.rewrite.library import Library, load_library
from graphopt.rewrite.schema import parse_rules
from graphopt.runtime.session import SessionConfig
from graphopt.search import egraph
from graphopt.search.backtracking import Backtracking
from graphopt.search.egraph import Exploration
from graphopt.search.greedy import Greedy
from graphopt.search.normal import Normal
from graphopt.search.plans import PlanSearch
from graphopt.search.problem import Budget, Problem
from graphopt.search.strategies import SEARCHES
from tests.ir.check import problems
from tests.search.test_backtracking import layers, operators, problem  # noqa: F401 (a fixture)
from tests.search.test_greedy import RULES as MERGING
from tests.search.test_greedy import graph_of

needs_scipy = pytest.mark.skipif(find_spec("scipy") is None, reason="needs the egraph extra")

DEMO = Path(__file__).resolve().parents[2] / "models" / "demo_regnet.onnx"
SHARING = """
family: test
doc: Each costs a pass over memory, both together save one, for what they make first is the same.
rules:
  - id: one
    doc: Three become four.
    equal: real
    match: ["a = Hardmax<axis = 0>(x)", "b = Hardmax<axis = 1>(a)", "y = Hardmax<axis = 0>(b)"]
    replace: ["c = Hardmax<axis = -2>(x)", "d = Hardmax<axis = 1>(c)", "e = Hardmax<axis = -2>(d)", "y = Hardmax<axis = 0>(e)"]
    examples: {accept: [{x: 3xf32}]}
  - id: other
    doc: Three become four.
    equal: real
    match: ["a = Hardmax<axis = 1>(x)", "b = Hardmax<axis = 0>(a)", "y = Hardmax<axis = 1>(b)"]
    replace: ["c = Hardmax<axis = -2>(x)", "d = Hardmax<axis = 1>(c)", "e = Hardmax<axis = -2>(d)", "y = Hardmax<axis = 1>(e)"]
    examples: {accept: [{x: 3xf32}]}
"""


def with_rules(problem, text):  # noqa: F811
    return replace(problem, library=Library(tuple(parse_rules(text, "test.yaml"))))


def exploration_of(problem, start, candidates=1000, worlds=24, most=10_000):  # noqa: F811
    return Exploration(PlanSearch(problem, start, Budget(candidates=candidates), 4), worlds, most)


@pytest.fixture
def start(problem):  # noqa: F811
    return problem.start(layers(3))


@needs_scipy
@pytest.mark.parametrize("candidates", [10, 60, 200])
def test_it_says_that_a_budget_is_used_up_only_where_it_is(problem, candidates):  # noqa: F811
    """What fills the e-graph has a share of it, and was asked why all had ended."""
    aimless = replace(problem, library=Library(tuple(r for r in problem.library.rules if r.id == "detour")))
    found = egraph.EqualitySaturation().run(aimless, aimless.start(layers(3)), Budget(candidates=candidates))
    assert found.candidates < candidates and found.stop_reason.startswith("nothing better in what was extracted: ")


@needs_scipy
def test_it_escapes_where_greedy_ends(problem, start):  # noqa: F811
    for stuck in (Greedy(), Backtracking(alpha=1.0)):
        assert stuck.run(problem, start, Budget()).steps == ()
    found = egraph.EqualitySaturation().run(problem, start, Budget(candidates=300))
    assert operators(found.state.graph).count("Relu") == 3
    assert found.state.cost < start.cost
    assert problems(found.state.graph) == []
    assert sorted({s.rule for s in found.steps}) == ["detour", "shortcut"]
    assert "e-nodes" in found.stop_reason


@needs_scipy
def test_what_two_rewrites_share_counts_once(problem):  # noqa: F811
    sharing = with_rules(problem, SHARING)
    chains = [(0, 1, 0), (1, 0, 1)]
    nodes = [
        helper.make_node("Hardmax", [f"v{i}{j - 1}" if j else "x"], [f"v{i}{j}"], axis=axis)
        for i, axes in enumerate(chains)
        for j, axis in enumerate(axes)
    ]
    start = sharing.start(graph_of(*nodes, weights={}, inputs={"x": [512, 64]}, outputs=["v02", "v12"]))
    assert Greedy().run(sharing, start, Budget()).steps == ()
    exploration = exploration_of(sharing, start)
    exploration.saturate(8)
    assert {a.saving < 0 for a in exploration.egraph.applications} == {True}
    found = egraph.EqualitySaturation().run(sharing, start, Budget())
    assert len(found.state.graph.nodes) == 5
    assert found.state.cost < start.cost


@needs_scipy
def test_a_node_that_makes_several_values(problem):  # noqa: F811
    merging = with_rules(problem, MERGING)
    nodes = [helper.make_node("MatMul", ["x", f"w{i}"], [f"y{i}"]) for i in range(4)]
    graph = graph_of(
        *nodes,
        weights={f"w{i}": (64, 16) for i in range(4)},
        inputs={"x": [4, 64]},
        outputs=[f"y{i}" for i in range(4)],
    )
    start = merging.start(graph)
    exploration = exploration_of(merging, start)
    exploration.saturate(8)
    assert 2 in {len(node.makes) for node in exploration.egraph.nodes}
    found = egraph.EqualitySaturation().run(merging, start, Budget(candidates=400))
    assert found.state.cost <= Greedy().run(merging, start, Budget()).state.cost
    assert problems(found.state.graph) == []


@needs_scipy
def test_real_rules_on_a_real_model(tmp_path):
    with Store(tmp_path / "kernels.sqlite") as store:
        real = Problem(load_library(), KernelCost(store, SessionConfig(), measure=False))
        start = real.start(Normal.of(load(DEMO).graph, real).graph)
        one, two = (egraph.EqualitySaturation().run(real, start, Budget(candidates=400)) for _ in range(2))
        assert one.state.cost < start.cost and one.candidates <= 400
        assert (one.steps, one.candidates, one.stop_reason) == (two.steps, two.candidates, two.stop_reason)
        assert problems(one.state.graph) == []
        assert one.state.cost == pytest.approx(real.start(one.state.graph).cost)
        state = start
        for step in one.steps:  # a plan is made of recorded steps
            state = real.step(state, next(m for m in state.sites if m.site == step.site))
        assert state.graph.hash == one.state.graph.hash


@needs_scipy
@pytest.mark.parametrize("candidates", [0, 1, 7, 40])
def test_the_budget_holds(problem, start, candidates):  # noqa: F811
    budget = Budget(candidates=candidates)
    found = egraph.EqualitySaturation().run(problem, start, budget)
    assert found.candidates == budget.spent <= candidates
    assert found.state.cost <= start.cost


@needs_scipy
def test_an_interruption_ends_it_with_what_was_found(problem, start):  # noqa: F811
    asked = iter([False] * 12 + [True] * 10_000)
    found = egraph.EqualitySaturation().run(problem, start, Budget(interrupted=lambda: next(asked)))
    assert found.stop_reason == "interrupted"
    assert problems(found.state.graph) == [] and found.state.cost <= start.cost


def test_worlds_and_e_nodes_are_bounded(problem):  # noqa: F811
    start = problem.start(layers(3))
    free = exploration_of(problem, start)
    assert free.saturate(4) == "4 turns"  # a detour within a detour, without end
    bounded = exploration_of(problem, start, most=3)
    assert bounded.saturate(8) == "e-nodes used up"
    assert len(bounded.egraph) < len(free.egraph)
    narrow, held = exploration_of(problem, start, worlds=1), []
    narrow._keep_cheapest = lambda found, keep=narrow._keep_cheapest: (keep(found), held.append(len(found)))
    narrow.saturate(4)
    assert max(held) == 1 and narrow.left_out > 0
    assert len(narrow.egraph) < len(free.egraph)


def test_rewrites_that_undo_each_other_come_to_an_end(problem):  # noqa: F811
    back = [
        "id: back",
        "doc: Undoes it.",
        "equal: real",
        'match: ["a = Abs(x)", "y = Tanh(a)"]',
        'replace: ["y = Erf(x)"]',
    ]
    there = [line.replace("back", "there") for line in back[:3]]
    there += ['match: ["y = Erf(x)"]', 'replace: ["a = Abs(x)", "y = Tanh(a)"]']
    rules = ["\n    ".join(["  - " + rule[0], *rule[1:], "examples: {accept: [{x: 3xf32}]}"]) for rule in (there, back)]
    both = with_rules(problem, "\n".join(["family: test", "doc: Two.", "rules:", *rules]))
    exploration = exploration_of(both, both.start(layers(2)))
    assert exploration.saturate(20) == "saturated"
    ways = Counter(key for node in exploration.egraph.nodes for key in node.makes)
    assert max(ways.values()) == 2  # Erf and Tanh


def test_prices_of_nodes_add_up_to_those_of_graphs(problem, start):  # noqa: F811
    exploration = exploration_of(problem, start)
    exploration.saturate(3)
    graph, search = exploration.egraph, exploration.search
    prices = graph.prices()
    assert min(prices) >= 0.0
    for number, application in enumerate(graph.applications):
        made = exploration.together(graph.derivation(application.makes)).state
        nodes = graph.choice(made)
        change = sum(prices[i] for i in nodes - graph.start) - sum(prices[i] for i in graph.start - nodes)
        assert change == pytest.approx(made.cost - start.cost, abs=0.02 * start.cost), number
    assert search.best_here < start.cost


def test_only_the_last_sums_are_heeded(problem, start, monkeypatch):  # noqa: F811
    monkeypatch.setattr(egraph, "_MOST_SUMS", 3)
    exploration = exploration_of(problem, start)
    exploration.saturate(8)
    assert len(exploration.egraph._sums) == 3


def test_without_the_solver_it_says_what_to_install(monkeypatch):
    for module in (registry, egraph):
        monkeypatch.setattr(module, "find_spec", lambda name: None)
    with pytest.raises(MissingExtraError, match="scipy is not installed") as caught:
        egraph.EqualitySaturation()
    assert caught.value.hint == "pip install '.[egraph]' in graphopt's folder"
    with pytest.raises(MissingExtraError, match="scipy"):
        SEARCHES.ready("egraph")
