"""Families that a provider computes something else with are taken back, and no others."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from graphopt.cost.kernel import KernelCost
from graphopt.cost.store import Store
from graphopt.ir.simplify import simplify
from graphopt.onnxio.load import load
from graphopt.rewrite.library import load_library
from graphopt.search.greedy import Greedy
from graphopt.search.problem import Budget, Outcome, Problem
from graphopt.search.selection import Selection, take_back


@pytest.fixture
def searched():
    """A graph, and what greedy makes of it with three families."""
    names = [("half", np.full((), 0.5)), ("axes", np.array([2, 3]))]
    values = [numpy_helper.from_array(v.astype(np.int64 if n == "axes" else np.float32), n) for n, v in names]
    nodes = [
        helper.make_node("Identity", ["x"], ["i"]),
        helper.make_node("Pow", ["i", "half"], ["r"]),
        helper.make_node("ReduceMean", ["r", "axes"], ["y"], keepdims=1),
    ]
    x, y = (
        helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in (("x", [1, 8, 9, 9]), ("y", [1, 8, 1, 1]))
    )
    proto = helper.make_model(
        helper.make_graph(nodes, "g", [x], [y], values), opset_imports=[helper.make_opsetid("", 18)], ir_version=9
    )
    graph = simplify(load(proto).graph)
    with Store(None) as store:
        problem = Problem(load_library(["pow", "reduce", "identity"]), KernelCost(store, measure=False), 1)
        yield graph, Selection(Greedy().run(problem, problem.start(graph), Budget()), problem, ())


def families(outcome: Outcome) -> set[str]:
    return {step.family for step in outcome.steps}


def test_one_family_is_enough(searched):
    graph, selection = searched
    assert families(selection.outcome) >= {"pow", "reduce"}
    after = take_back(selection, graph, Budget(), lambda outcome: "pow" not in families(outcome))
    assert families(after.outcome) == families(selection.outcome) - {"pow"}
    assert [(v.family, v.kept, v.wrong) for v in after.families] == [("pow", False, True)]
    assert not any(rule.family == "pow" for rule in after.problem.library.rules)


def test_two_families_together(searched):
    graph, selection = searched
    after = take_back(selection, graph, Budget(), lambda outcome: not families(outcome) & {"pow", "reduce"})
    assert not families(after.outcome) & {"pow", "reduce"}
    assert {v.family for v in after.families} >= {"pow", "reduce"} and all(v.wrong for v in after.families)


def test_nothing_agrees_but_the_original(searched):
    graph, selection = searched
    after = take_back(selection, graph, Budget(), lambda outcome: False)
    assert not after.outcome.steps and after.outcome.state.graph.hash == graph.hash
    # Without those that were used at first, others found a place: they went, too.
    assert {v.family for v in after.families} > families(selection.outcome)
