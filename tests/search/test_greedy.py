"""Greedy search over real rules and the analytic cost model."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from graphopt.cost.analytic import OperatorCost
from graphopt.cost.base import Price
from graphopt.cost.kernel import KernelCost
from graphopt.cost.store import Store
from graphopt.onnxio.load import load
from graphopt.rewrite.library import Library
from graphopt.rewrite.schema import parse_rules
from graphopt.runtime.environment import block_size
from graphopt.runtime.session import SessionConfig
from graphopt.search.greedy import MOST_FORMS, Greedy
from graphopt.search.problem import LEEWAY, NO_LEEWAY, Budget, Problem
from tests.ir.check import problems

RULES = """
family: test
doc: A merge that pays, a pair that undoes each other, and a hint.
rules:
  - id: merge
    doc: Two products with the same left operand are one.
    equal: real
    match: ["y1 = MatMul(x, w1)", "y2 = MatMul(x, w2)"]
    roots: {unordered: [y1, y2]}
    where: ["rank(w1) == 2 and rank(w2) == 2"]
    let: {widths: "i64([dim(w1, 1), dim(w2, 1)])"}
    replace: ["w = Concat<axis = -1>(w1, w2)", "y = MatMul(x, w)", "y1, y2 = Split<axis = -1>(y, widths)"]
    examples: {accept: [{x: 4x5xf32, w1: 5x3xf32, w2: 5x4xf32}], reject: [{x: 4x5xf32, w1: 5x3xf32, w2: 2x5x4xf32}]}
  - id: to-sum
    doc: A sum of two is an addition.
    equal: exact
    match: ["y = Add(a, b)"]
    prefer: ["True"]
    replace: ["y = Sum(a, b)"]
    examples: {accept: [{a: 3xf32, b: 3xf32}]}
  - id: to-add
    doc: The reverse.
    equal: exact
    match: ["y = Sum(a, b)"]
    prefer: ["True"]
    replace: ["y = Add(a, b)"]
    examples: {accept: [{a: 3xf32, b: 3xf32}]}
  - id: turn
    doc: A constant weight may be read from the other side.
    equal: real
    match: ["y = Gemm<transB = $t>(x, w)"]
    where: ["is_const(w)"]
    prefer: ["True"]
    replace: ["v = Transpose<perm = [1, 0]>(w)", "y = Gemm<transB = 1 - t>(x, v)"]
    examples: {accept: [{x: 4x5xf32, w: const 5x3xf32, t: 0}], reject: [{x: 4x5xf32, w: 5x3xf32, t: 0}]}
  - id: pile
    doc: What is added may be made of two.
    equal: exact
    match: ["y = Sub(x, b)"]
    where: ["is_const(b)"]
    prefer: ["True"]
    let: {zero: "like(b, 0)"}
    replace: ["c = Add(b, zero)", "y = Sub(x, c)"]
    examples: {accept: [{x: 3xf32, b: const 3xf32}], reject: [{x: 3xf32, b: 3xf32}]}
  - id: twice
    doc: x + x is 2x.
    equal: exact
    match: ["y = Add(x, x)"]
    prefer: ["False"]
    replace: ["y = Mul(x, 2)"]
    examples: {accept: [{x: 3xf32}]}
"""


CHEAPER = """
family: test
doc: One rule.
rules:
  - id: to-sum
    doc: A sum of two is an addition.
    equal: exact
    match: ["y = Add(a, b)"]
    replace: ["y = Sum(a, b)"]
    examples: {accept: [{a: 3xf32, b: 3xf32}]}
"""


class OneIsDearer(OperatorCost):
    """A window costs more than others of its look: the one that makes ``root``."""

    root: int | None = None

    def prices(self, graph, windows, layout):
        dear = graph.values[self.root].producer if self.root is not None else None
        found = super().prices(graph, windows, layout)
        return [Price(2 * p.warm, 2 * p.cold) if dear in w.nodes else p for p, w in zip(found, windows, strict=True)]


@pytest.fixture
def problem(tmp_path):
    with Store(tmp_path / "kernels.sqlite") as store:
        yield Problem(
            Library(tuple(parse_rules(RULES, "test.yaml"))), KernelCost(store, SessionConfig(), measure=False)
        )


def graph_of(
    *nodes: onnx.NodeProto, weights: dict[str, tuple[int, ...]], inputs: dict[str, list[int]], outputs: list[str]
):
    rng = np.random.default_rng(0)
    initializers = [numpy_helper.from_array(rng.standard_normal(s).astype(np.float32), n) for n, s in weights.items()]
    proto = helper.make_model(
        helper.make_graph(
            list(nodes),
            "g",
            [helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in inputs.items()],
            [helper.make_tensor_value_info(n, TensorProto.FLOAT, None) for n in outputs],
            initializers,
        ),
        opset_imports=[helper.make_opsetid("", 17)],
        ir_version=8,
    )
    return load(proto).graph


def test_hint_is_followed_once_and_not_undone(problem):
    graph = graph_of(helper.make_node("Add", ["a", "b"], ["y"]), weights={}, inputs={"a": [3], "b": [3]}, outputs=["y"])
    outcome = Greedy().run(problem, problem.start(graph), Budget())
    assert [s.rule for s in outcome.steps] == ["to-sum"]
    assert outcome.stop_reason == "no rewrite saves anything"
    assert problems(outcome.state.graph) == []


def test_turning_a_weight_round_and_round_comes_to_an_end(problem):
    graph = graph_of(
        helper.make_node("Gemm", ["x", "w"], ["y"]), weights={"w": (5, 3)}, inputs={"x": [4, 5]}, outputs=["y"]
    )
    outcome = Greedy().run(problem, problem.start(graph), Budget(candidates=50))
    assert [s.rule for s in outcome.steps] == ["turn"]
    assert outcome.stop_reason == "no rewrite saves anything"


def test_a_rule_that_leaves_something_behind_comes_to_an_end(problem):
    node = helper.make_node("Sub", ["x", "b"], ["y"])
    graph = graph_of(node, weights={"b": (3,)}, inputs={"x": [3]}, outputs=["y"])
    outcome = Greedy().run(problem, problem.start(graph), Budget(candidates=500))
    assert [s.rule for s in outcome.steps] == ["pile"] * (MOST_FORMS - 1)
    assert outcome.stop_reason == "no rewrite saves anything"


def test_hints_of_the_cpu_are_not_followed_on_other_providers(problem):
    here = Problem.where(problem.library, problem.cost, SessionConfig())
    assert (here.block, here.leeway) == (block_size(), LEEWAY)
    elsewhere = Problem.where(problem.library, problem.cost, SessionConfig("cuda"))
    assert (elsewhere.block, elsewhere.leeway) == (1, NO_LEEWAY)
    graph = graph_of(helper.make_node("Add", ["a", "b"], ["y"]), weights={}, inputs={"a": [3], "b": [3]}, outputs=["y"])
    assert not Greedy().run(elsewhere, elsewhere.start(graph), Budget()).steps


def test_rule_whose_hint_fails_is_not_taken(problem):
    graph = graph_of(helper.make_node("Add", ["x", "x"], ["y"]), weights={}, inputs={"x": [3]}, outputs=["y"])
    outcome = Greedy().run(problem, problem.start(graph), Budget())
    assert "twice" not in {s.rule for s in outcome.steps}


def test_candidate_budget_stops_the_search(problem):
    nodes = [helper.make_node("Add", [f"v{i}", "b"], [f"v{i + 1}"]) for i in range(20)]
    graph = graph_of(*nodes, weights={}, inputs={"v0": [3], "b": [3]}, outputs=["v20"])
    outcome = Greedy().run(problem, problem.start(graph), Budget(candidates=5))
    assert outcome.stop_reason == "candidate budget used up"
    assert outcome.candidates == 5


def test_interruption_keeps_the_best_so_far(problem):
    nodes = [helper.make_node("Add", [f"v{i}", "b"], [f"v{i + 1}"]) for i in range(20)]
    graph = graph_of(*nodes, weights={}, inputs={"v0": [3], "b": [3]}, outputs=["v20"])
    steps: list[float] = []
    outcome = Greedy().run(
        problem, problem.start(graph), Budget(interrupted=lambda: len(steps) >= 3), lambda s: steps.append(s.cost)
    )
    assert outcome.stop_reason == "interrupted"
    assert len(outcome.steps) == 3
    assert problems(outcome.state.graph) == []


def test_costs_in_the_trace_are_those_of_the_states(problem):
    nodes = [helper.make_node("Add", [f"v{i}", "b"], [f"v{i + 1}"]) for i in range(4)]
    graph = graph_of(*nodes, weights={}, inputs={"v0": [3], "b": [3]}, outputs=["v4"])
    start = problem.start(graph)
    outcome = Greedy().run(problem, start, Budget())
    assert outcome.steps[0].cost_before == start.cost
    assert outcome.steps[-1].cost_after == outcome.state.cost == problem.start(outcome.state.graph).cost


@pytest.mark.parametrize(("differ", "priced"), [(False, 2), (True, 20)])
def test_of_places_that_look_alike_two_are_priced_and_all_where_they_differ(differ, priced):
    nodes = [helper.make_node("Add", [f"x{i}", "b"], [f"y{i}"]) for i in range(20)]
    inputs = {f"x{i}": [3] for i in range(20)} | {"b": [3]}
    graph = graph_of(*nodes, weights={}, inputs=inputs, outputs=[f"y{i}" for i in range(20)])
    cost = OneIsDearer({"Add": 1.0, "Sum": 0.5})
    problem = Problem(Library(tuple(parse_rules(CHEAPER, "test.yaml"))), cost)
    if differ:
        sites = problem.start(graph).sites.matches
        (cost.root,) = sites[max(sites)].roots
    outcome = Greedy().run(problem, problem.start(graph), Budget())
    assert len(outcome.steps) == 20 and outcome.state.cost == pytest.approx(10.5 if differ else 10.0)
    assert outcome.candidates == priced
