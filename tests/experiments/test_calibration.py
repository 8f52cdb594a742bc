"""Predicted against measured: the statistics, the random graphs, and a whole small calibration."""

from __future__ import annotations

import math

import pytest

from graphopt.cost.analytic import AnalyticCost
from graphopt.cost.kernel import KernelCost
from graphopt.cost.store import Store
from graphopt.experiments.calibration import Point, agreement, samples, scaled, spearman
from graphopt.ir.simplify import simplify
from graphopt.onnxio.load import load
from graphopt.rewrite.library import load_library
from graphopt.search.problem import Problem
from tests.test_api import grouped


def test_rank_correlation():
    assert spearman([1, 2, 3, 4], [10, 20, 30, 400]) == pytest.approx(1.0)
    assert spearman([1, 2, 3], [3, 2, 1]) == pytest.approx(-1.0)
    # Ties count by their mean rank: 1 - 6 * 0.5 / 24 without the correction for ties, Pearson of the ranks with it.
    assert spearman([1, 2, 2, 3], [1, 2, 3, 4]) == pytest.approx(0.9486832980505138)
    assert math.isnan(spearman([1, 1], [1, 2])) and math.isnan(spearman([1], [1]))


def points(model, factor, measured=(1.0, 2.0, 3.0)):
    return [Point(model, 1, ms / factor, ms, (ms, ms)) for ms in measured]


def test_what_all_models_have_in_common_is_corrected_from_the_others():
    factor, found = scaled([*points("a", 1.1), *points("b", 1.1), *points("c", 1.331)])
    assert factor == pytest.approx((1.1 * 1.1 * 1.331) ** (1 / 3))
    errors = {m: agreement([p for p in found if p.model == m]).median_error for m in "abc"}
    assert errors["c"] == pytest.approx(1 - 1.1 / 1.331)  # its own error does not help it
    assert errors["a"] == errors["b"] == pytest.approx(math.sqrt(1.1 * 1.331) / 1.1 - 1)
    alone = points("a", 1.1)
    assert scaled(alone) == (1.0, alone)


def test_samples_take_no_more_memory_than_they_may(tmp_path):
    graph = simplify(load(grouped(tmp_path / "m.onnx")).graph)
    problem = Problem(load_library(), KernelCost(Store(None), measure=False, growth=2e5), 16)
    found = [state.cost for seed in range(3) for state, _ in samples(problem, problem.start(graph), 3, seed=seed)]
    assert found and all(map(math.isfinite, found))


def test_samples_are_different_graphs_from_cheap_to_dear(tmp_path):
    graph = simplify(load(grouped(tmp_path / "m.onnx")).graph)
    problem = Problem(load_library(), AnalyticCost(block=16), 16)
    start = problem.start(graph)
    found = samples(problem, start, 3, seed=1)
    hashes = {state.graph.hash for state, _ in found}
    assert len(hashes) == len(found) >= 2 and start.graph.hash not in hashes
    assert all(steps > 0 for _, steps in found)
    assert [s.graph.hash for s, _ in samples(problem, start, 3, seed=1)] == [s.graph.hash for s, _ in found]
