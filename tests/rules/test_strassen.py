"""Two layers by seven products each: blocks go from one to the next as they are."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from graphopt.cost.analytic import AnalyticCost
from graphopt.ir.simplify import simplify
from graphopt.onnxio.emit import emit
from graphopt.onnxio.load import load
from graphopt.onnxio.save import to_proto
from graphopt.rewrite.library import load_library
from graphopt.rewrite.sites import Sites
from graphopt.search.problem import Problem
from tests.bench.strassen import in_blocks, layers, stepped
from tests.onnxio.models import F, model, node, run, weight


def test_two_layers_in_blocks():
    model = layers(8, (6, 8, 4))
    problem = Problem(load_library().whole, AnalyticCost())
    both = in_blocks(problem, stepped(problem, problem.start(simplify(model.graph)), "strassen-gemm"))
    count = Counter(node.op for node in both.graph.nodes.values())
    # Nothing is put together or cut between the layers: only the input is cut into four blocks, and the output made of four.
    assert (count["Concat"], count["Gelu"]) == (3, 4)
    assert sum(node.op == "Slice" and node.inputs[0] in both.graph.inputs for node in both.graph.nodes.values()) == 4
    feeds = {"x": np.random.default_rng(0).standard_normal((8, 6), np.float32)}
    ran = [run(to_proto(emit(model, graph)), feeds)[0] for graph in (model.graph, both.graph)]
    np.testing.assert_allclose(*ran, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("shape", "other", "seen"),
    [
        ((1, 8, 8), (), False),
        ((1, 1024, 1024), (), True),
        ((1, 1024, 1024), (1,), True),
        ((4, 256, 1024), (), False),
        (("N", 1024, 1024), (), False),
        # Which of two first dimensions is the batch nobody knows: neither may be more than one.
        ((4, 256, 1024), (1, 1024), False),
        ((1, 1024, 1024), (4, 256), False),
        ((1, 1024, 1024), ("N", 256), False),
        ((1, 1024, 1024), (1024,), False),
    ],
)
def test_no_search_tries_what_is_too_small_or_of_several_samples(
    shape: tuple[int | str, ...], other: tuple[int | str, ...], seen: bool
) -> None:
    """Rows are taken in pairs, and a NaN in one reaches the other."""
    wide = int(shape[-1])
    proto = model(
        [node("MatMul", ["x", "w"], ["y"]), node("Neg", ["m"], ["n"])], [("x", F, shape), ("m", F, other)],
        [("y", F, shape), ("n", F, other)], [weight("w", np.ones((wide, wide), np.float32))],
    )  # fmt: skip
    graph, rules = simplify(load(proto).graph), load_library()
    assert any(match.rule.family == "strassen" for match in Sites.of(graph, rules)) == seen
    assert any(match.rule.family == "strassen" for match in Sites.of(graph, rules.whole)) == (shape[0] != "N")
