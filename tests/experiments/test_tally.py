"""Counting what the matcher does."""

from __future__ import annotations

from onnx import TensorProto, helper

from graphopt.experiments.stats import tally
from graphopt.ir.graph import Graph
from graphopt.onnxio.load import load
from graphopt.rewrite.sites import Sites
from tests.onnxio.models import library, rule

LIBRARY = library(
    rule("relu-of-neg", ["n = Neg(x)", "y = Relu(n)"], ["y = Relu(x)"]),
    rule("hinted", ["y = Neg(x)"], ["y = x"], prefer=["not is_output(y)"]),
    rule("never-true", ["y = Relu(x)"], ["y = x"], where=["False"]),
    rule("absent", ["y = Tanh(x)"], ["y = x"]),
)


def chain(*ops: str) -> Graph:
    """Operators one after the other, from x to y."""
    names = ["x", *(f"v{i}" for i in range(len(ops) - 1)), "y"]
    nodes = [helper.make_node(op, [names[i]], [names[i + 1]]) for i, op in enumerate(ops)]
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [2, 3]) for name in ("x", "y")]
    graph = helper.make_graph(nodes, "chain", ends[:1], ends[1:])
    return load(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)).graph


def test_counts():
    graph = chain("Neg", "Relu", "Neg", "Neg", "Relu", "Abs")
    found = {t.rule.id: t for t in tally(graph, LIBRARY)}
    assert list(found) == [r.id for r in LIBRARY.rules]
    counts = {id: (t.tries, t.hits, t.preferred) for id, t in found.items()}
    assert counts == {"relu-of-neg": (3, 2, 2), "hinted": (3, 3, 3), "never-true": (2, 0, 0), "absent": (0, 0, 0)}
    assert found["absent"].seconds == 0 < found["never-true"].seconds


def test_a_match_whose_hint_fails_is_a_hit_all_the_same():
    found = {t.rule.id: t for t in tally(chain("Relu", "Neg"), LIBRARY)}["hinted"]
    assert (found.hits, found.preferred) == (1, 0)


def test_hits_are_those_of_the_search():
    graph = chain("Neg", "Relu", "Neg", "Neg", "Relu", "Abs")
    assert sum(t.hits for t in tally(graph, LIBRARY)) == len(Sites.of(graph, LIBRARY))
