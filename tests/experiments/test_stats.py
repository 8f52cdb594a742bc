"""What each rule does on a model."""

from __future__ import annotations

import onnx
import pytest
from onnx import TensorProto, helper

from graphopt.config import Settings
from graphopt.cost.kernel import KernelCost
from graphopt.cost.store import Store
from graphopt.experiments.stats import Stats, model_stats, rule_stats
from graphopt.onnxio.load import load
from graphopt.rewrite.library import Library
from graphopt.runtime.session import SessionConfig
from graphopt.search.problem import Budget, Problem
from tests.onnxio.models import library, rule

LIBRARY = library(
    rule("cancel", ["n = Neg(x)", "y = Neg(n)"], ["y = x"]),
    rule("hinted", ["y = Abs(x)"], ["n = Neg(x)", "y = Abs(n)"], prefer=["False"]),
    rule("absent", ["y = Tanh(x)"], ["y = x"]),
)


@pytest.fixture
def negations() -> onnx.ModelProto:
    """Four negations and the absolute value of it all: three places for a pair, of which two can be taken."""
    names = ["x", "a", "b", "c", "d", "y"]
    ops = ["Neg", "Neg", "Neg", "Neg", "Abs"]
    nodes = [helper.make_node(op, [names[i]], [names[i + 1]]) for i, op in enumerate(ops)]
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [64, 256]) for name in ("x", "y")]
    graph = helper.make_graph(nodes, "negations", ends[:1], ends[1:])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def check(found: Stats) -> None:
    counts = {e.tally.rule.id: (e.tally.tries, e.tally.hits, e.tally.preferred, e.applied) for e in found.rules}
    assert counts == {"cancel": (4, 3, 3, 2), "hinted": (1, 1, 0, 0), "absent": (0, 0, 0, 0)}
    gains = {e.tally.rule.id: e.gain for e in found.rules}
    assert gains["cancel"] > 0 == gains["hinted"] == gains["absent"]
    assert sum(gains.values()) == pytest.approx(found.before - found.after)
    assert found.nodes == 5
    assert len(found.outcome.state.graph.nodes) == 1


def test_graph(negations):
    with Store(None) as store:
        problem = Problem(LIBRARY, KernelCost(store, SessionConfig(), measure=False))
        check(rule_stats(problem, load(negations).graph, Budget()))


def test_model(negations, tmp_path, monkeypatch):
    monkeypatch.setenv("GRAPHOPT_CACHE_DIR", str(tmp_path / "cache"))
    path = tmp_path / "negations.onnx"
    onnx.save(negations, path)
    found = model_stats(path, LIBRARY, Settings(measure=False), seconds=20.0)
    check(found)
    assert found.estimated > 0


def test_without_rules(negations):
    with Store(None) as store:
        problem = Problem(Library(()), KernelCost(store, SessionConfig(), measure=False))
        found = rule_stats(problem, load(negations).graph, Budget())
    assert found.rules == ()
    assert found.before == found.after
