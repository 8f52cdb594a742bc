"""Two layers by seven products each: blocks go from one to the next as they are."""

from __future__ import annotations

from collections import Counter

import numpy as np

from graphopt.cost.analytic import AnalyticCost
from graphopt.ir.simplify import simplify
from graphopt.onnxio.emit import emit
from graphopt.rewrite.library import load_library
from graphopt.runtime.session import Session, SessionConfig
from graphopt.search.arena import loadable
from graphopt.search.problem import Problem
from tests.bench.strassen import in_blocks, layers, stepped


def test_two_layers_in_blocks():
    model = layers(8, (6, 8, 4))
    problem = Problem(load_library(), AnalyticCost())
    both = in_blocks(problem, stepped(problem, problem.start(simplify(model.graph)), "strassen-gemm"))
    count = Counter(node.op for node in both.graph.nodes.values())
    # Nothing is put together or cut between the layers: only the input is cut into four blocks, and the output made of four.
    assert (count["Concat"], count["Gelu"]) == (3, 4)
    assert sum(node.op == "Slice" and node.inputs[0] in both.graph.inputs for node in both.graph.nodes.values()) == 4
    feeds = {"x": np.random.default_rng(0).standard_normal((8, 6), np.float32)}
    ran = []
    for graph in (simplify(model.graph), both.graph):
        with Session(loadable(model, emit(model, graph)), SessionConfig()) as session:
            ran.append(session.run(feeds)[0])
    np.testing.assert_allclose(*ran, rtol=1e-4, atol=1e-5)
