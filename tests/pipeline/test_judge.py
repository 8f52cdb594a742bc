"""What is written: the faster model, the simpler one of two that are as fast, or else the input."""

from __future__ import annotations

import math
from types import SimpleNamespace

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import graphopt
from graphopt.cli.optimize import _speed
from graphopt.pipeline.judge import is_tie, verdict
from graphopt.runtime.environment import usable_cores
from graphopt.runtime.rounds import Sampling, measure_pair
from graphopt.runtime.timing import Paired, student
from graphopt.search.effort import Effort
from graphopt.search.problem import Budget, Outcome
from graphopt.search.selection import FamilyVerdict, Selection
from graphopt.wording import lost
from tests.runtime.test_rounds import FEEDS, chain

FASTER = np.array([[2.1, 1.0], [2.0, 1.0], [2.1, 0.9], [2.0, 1.0]])
NO_FASTER = np.array([[1.1, 1.0], [0.9, 1.0], [1.1, 1.0], [0.9, 1.0]])


def paired(low: float, high: float, opening: np.ndarray | None = FASTER) -> Paired:
    """What four sessions say whose interval is this one."""
    middle, half = math.log(low * high) / 2, math.log(high / low) / 2
    apart = half / student(3) * math.sqrt(3)  # of two and two
    cycles = [np.array([[4e-3 * math.exp(middle + sign * apart), 4e-3]]) for sign in (1, -1, 1, -1)]
    found = Paired.of(cycles, opening)
    assert found.ci95 == pytest.approx((low, high))
    return found


@pytest.fixture
def source(tmp_path):
    """A product among nodes that the runtime drops when it opens the model."""
    nodes = [helper.make_node("Identity", ["x"], ["i0"])]
    nodes += [helper.make_node("Identity", [f"i{i}"], [f"i{i + 1}"]) for i in range(29)]
    nodes.append(helper.make_node("MatMul", ["i29", "w"], ["y"]))
    weight = numpy_helper.from_array(np.random.default_rng(0).standard_normal((64, 64)).astype(np.float32), "w")
    info = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [64, 64]) for n in "xy"]
    graph = helper.make_graph(nodes, "g", info[:1], info[1:], [weight])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), tmp_path / "m.onnx")
    return tmp_path / "m.onnx"


@pytest.mark.parametrize(
    ("found", "tie"),
    [
        (paired(0.991, 1.009), True),
        (paired(0.985, 1.005), False),  # slower, perhaps, by more than a per cent
        (paired(0.995, 1.02), True),  # better than either as fast or faster alone
        (paired(0.991, 0.998), False),  # slower, surely
        (paired(0.991, 1.009, NO_FASTER), False),
        (paired(0.991, 1.009, None), False),
    ],
)
def test_a_tie_is_not_slower_and_opens_faster(found, tie):
    assert is_tie(found) == tie


def test_of_two_that_are_as_fast_the_simpler_one_is_written(source, monkeypatch):
    monkeypatch.setattr("graphopt.pipeline.judge.verdict", lambda *_: paired(0.995, 1.005))
    out = source.with_name("o.onnx")
    told = graphopt.optimize(source, output=out, rules=["identity"]).report
    assert told["tie"] and not told["kept_original"]
    assert len(onnx.load(out).graph.node) == told["nodes"]["after"] < 10 and told["nodes"]["before"] == 31
    assert told["opening"]["ratio"] > 1.9
    assert _speed(told).startswith("as fast, 3 % of the nodes, opens 2.1 times as fast: 1.000x (95 % interval 0.995")
    if told["memory"] is not None:  # the system tells
        assert min(told["memory"].values()) > 1e6
    assert graphopt.verify(source, out).passed


@pytest.mark.parametrize(
    ("found", "changes"),
    [(paired(0.995, 1.005), {"keep_ties": True}), (paired(0.97, 1.005), {}), (paired(0.995, 1.005, NO_FASTER), {})],
)
def test_else_the_input_is_kept(source, monkeypatch, found, changes):
    monkeypatch.setattr("graphopt.pipeline.judge.verdict", lambda *_: found)
    out = source.with_name("o.onnx")
    told = graphopt.optimize(source, output=out, rules=["identity"], **changes).report
    assert told["kept_original"] and not told["tie"]
    assert out.read_bytes() == source.read_bytes()


def test_an_input_that_is_kept_keeps_its_weights_in_another_folder(source, monkeypatch):
    """What was compared and not written had the same weights, and took them away from beside the input's copy."""
    monkeypatch.setattr("graphopt.pipeline.judge.verdict", lambda *_: paired(0.97, 1.005))
    onnx.save(onnx.load(source), source, save_as_external_data=True, location="w.data", size_threshold=0)
    out = source.parent / "out" / "o.onnx"
    out.parent.mkdir()
    told = graphopt.optimize(source, output=out, rules=["identity"]).report
    assert told["kept_original"] and len(list(out.parent.iterdir())) == 2
    assert graphopt.verify(source, out).passed


@pytest.fixture
def searched(tmp_path, monkeypatch):
    """A model with something to clean, of which a search makes a graph of which :func:`graphopt.pipeline.judge.verdict` says what a test wants."""
    made = helper.make_graph(
        [helper.make_node("Identity", ["x"], ["i"]), helper.make_node("Gemm", ["i", "w", "b"], ["y"])],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [8, 64])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [8, 64])],
        [numpy_helper.from_array(np.ones(shape, np.float32), name) for name, shape in (("w", (64, 64)), ("b", (64,)))],
    )
    onnx.save(helper.make_model(made, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), tmp_path / "m.onnx")

    def found(problem, strategy, graph, *_):
        start = problem.start(graph)
        (match,) = start.actions()
        state = problem.step(start, match)
        steps = (problem.record(graph, match, start.cost, state.cost),)
        families = (FamilyVerdict("matmul", 1.1, None, True, 1.1),)
        return Selection(Outcome(state, steps, 1, 0.0, "taken"), problem, families, losing=losing)

    monkeypatch.setattr("graphopt.pipeline.search.select", found)
    losing = False

    def run(*verdicts, seemed_to_lose=False, elsewhere=(), **changes):
        nonlocal losing
        losing, left = seemed_to_lose, list(verdicts)
        monkeypatch.setattr("graphopt.pipeline.judge.verdict", lambda *_: left.pop(0))
        if elsewhere:  # a verdict at another size beside each of the others
            others = iter(elsewhere)
            monkeypatch.setattr("graphopt.pipeline.judge._elsewhere", lambda *_: (({"batch": 8}, next(others)),))
        rules = changes.pop("rules", ["drop-identity", "gemm-is-matmul-and-bias"])
        told = graphopt.optimize(tmp_path / "m.onnx", output=tmp_path / "o.onnx", rules=rules, **changes).report
        assert sorted(path.name for path in tmp_path.iterdir()) == ["m.onnx", "o.onnx"] and not left
        return told, [node.op_type for node in onnx.load(tmp_path / "o.onnx").graph.node]

    return run


def test_where_a_search_loses_by_little_the_normal_form_is_what_is_left(searched):
    told, ops = searched(paired(0.991, 0.998), paired(1.02, 1.05))
    assert ops == ["Gemm"] and told["search"]["lost"]["ci95"] == pytest.approx([0.991, 0.998])


def test_where_a_search_loses_the_normal_form_is_what_is_left(searched, tmp_path_factory):
    page = tmp_path_factory.mktemp("page") / "page.html"
    told, ops = searched(paired(0.95, 0.98), paired(1.02, 1.05), report=page)
    assert ops == ["Gemm"] and not told["kept_original"] and list(told["rules"]) == ["drop-identity"]
    assert told["search"]["lost"]["ci95"] == pytest.approx([0.95, 0.98])
    assert told["latency"]["ci95"] == pytest.approx([1.02, 1.05])
    assert [family["kept"] for family in told["families"]] == [False]
    assert "what the search found measured 0.965x" in lost(told["search"]["lost"])
    assert lost(told["search"]["lost"]) in page.read_text(encoding="utf-8")


def test_where_a_search_seemed_to_lose_to_the_normal_form_the_faster_of_the_two_is_written(searched):
    told, ops = searched(paired(1.02, 1.05), paired(1.05, 1.09), seemed_to_lose=True)
    assert ops == ["Gemm"] and told["search"]["lost"]["ci95"] == pytest.approx([1.02, 1.05])


@pytest.mark.parametrize(
    ("verdicts", "changes", "ops"),
    [
        ([paired(1.02, 1.05)], {}, ["MatMul", "Add"]),  # it does not lose
        ([paired(1.02, 1.05), paired(1.01, 1.03)], {"seemed_to_lose": True}, ["MatMul", "Add"]),  # it only seemed so
        ([paired(1.02, 1.05), paired(0.96, 1.01)], {"seemed_to_lose": True}, ["MatMul", "Add"]),
        ([paired(0.95, 0.98), paired(0.96, 1.01)], {}, ["Identity", "Gemm"]),  # the other one loses, too
        ([paired(0.95, 0.98)], {"rules": ["gemm-is-matmul-and-bias"]}, ["Identity", "Gemm"]),  # there is no other
    ],
)
def test_else_what_the_search_found_is_told(searched, verdicts, changes, ops):
    told, written = searched(*verdicts, **changes)
    assert written == ops and told["search"]["lost"] is None
    assert told["latency"]["ci95"] == pytest.approx(list(verdicts[0].ci95))


def test_what_is_surely_slower_at_another_size_is_not_written(searched, tmp_path_factory):
    page = tmp_path_factory.mktemp("page") / "page.html"
    rules = ["gemm-is-matmul-and-bias"]
    told, ops = searched(paired(1.3, 1.5), elsewhere=[paired(0.8, 0.9)], rules=rules, report=page)
    assert ops == ["Identity", "Gemm"] and told["kept_original"] and told["latency"]["verdict"] == "faster"
    slower = "0.849x at batch=8 (95 % interval 0.800 to 0.900)"
    assert f"the best candidate measured {slower}, so the input is kept unchanged" in told["warnings"]
    assert (
        _speed(told) == f"slower at some of the sizes, where the best candidate measured {slower}; the original is kept"
    )
    assert f"(95 % interval 1.300 to 1.500), but {slower}" in page.read_text(encoding="utf-8")
    told, ops = searched(paired(1.3, 1.5), elsewhere=[paired(0.8, 1.1)], rules=rules)
    assert ops == ["Identity", "MatMul", "Add"] and not told["kept_original"]
    assert not [each for each in told["warnings"] if "kept" in each]  # others may speak of the machine


def test_where_a_search_loses_at_another_size_the_normal_form_is_what_is_left(searched):
    told, ops = searched(paired(1.3, 1.5), paired(1.02, 1.05), elsewhere=[paired(0.8, 0.9), paired(1.0, 1.1)])
    assert ops == ["Gemm"] and told["search"]["lost"]["sizes"] == {"batch": 8}
    assert lost(told["search"]["lost"]).endswith("measured 0.849x at batch=8 (95 % interval 0.800 to 0.900)")


def test_a_tie_is_none_where_another_size_loses(source, monkeypatch):
    monkeypatch.setattr("graphopt.pipeline.judge.verdict", lambda *_: paired(0.995, 1.005))
    monkeypatch.setattr("graphopt.pipeline.judge._elsewhere", lambda *_: (({"batch": 8}, paired(0.8, 0.9)),))
    told = graphopt.optimize(source, output=source.with_name("o.onnx"), rules=["identity"]).report
    assert told["kept_original"] and not told["tie"]


@pytest.mark.parametrize(
    ("found", "speedup", "of"),
    [
        (paired(1.3 / 1.1, 1.3 * 1.1), 1.3, "the written model"),
        (paired(0.9, 0.98), 1.0, "a candidate that was not written"),
    ],
)
def test_a_measurement_says_of_what_it_is(source, monkeypatch, found, speedup, of):
    monkeypatch.setattr("graphopt.pipeline.judge.verdict", lambda *_: found)
    result = graphopt.optimize(source, rules=["identity"])
    assert result.report["latency"]["of"] == of and result.report["latency"]["speedup"] == found.speedup
    assert result.speedup == pytest.approx(speedup)


@pytest.mark.skipif(usable_cores() < 2, reason="of one processor sessions have one thread")
@pytest.mark.parametrize(("far", "spells"), [(True, True), (False, True), (False, False)])
def test_it_is_told_when_processors_were_seen_far_from_each_other(source, monkeypatch, far, spells):
    monkeypatch.setattr("graphopt.pipeline.judge.verdict", lambda *_: paired(1.2, 1.4))
    found = SimpleNamespace(far=lambda: far, spells=spells, settle=lambda: 0.0)
    found.wait_for = lambda seconds, stop: setattr(found, "patience", seconds)
    monkeypatch.setattr("graphopt.search.arena.distance", lambda config: found if config.threads == 2 else None)
    told = graphopt.optimize(source, rules=["identity"], threads=2).report
    assert told["processors_apart"] == (far or spells)
    assert any("far from each other" in each for each in told["warnings"]) == (far or spells)
    assert found.patience == 60.0
    alone = graphopt.optimize(source, rules=["identity"], threads=1).report
    assert alone["processors_apart"] is None and not any("far from" in each for each in alone["warnings"])


def test_opening_is_measured_beside_running():
    found = measure_pair(chain(400), chain(1), FEEDS, sampling=Sampling(0.5))
    assert found.opening.shape == (found.sessions, 2)
    ratio, (low, high) = found.opens
    assert low < ratio < high and ratio > 1.5


@pytest.mark.parametrize(("began", "first_s", "looks"), [(0.0, 4.0, 2), (0.0, 7.0, 1), (0.0, 40.0, 1), (8.0, 1.5, 2)])
def test_a_second_look_keeps_to_the_limit(monkeypatch, began, first_s, looks):
    now, taken = [100.0], list[float]()
    monkeypatch.setattr("graphopt.search.problem.time", SimpleNamespace(monotonic=lambda: now[0]))

    def measure(graph, seconds, *_):
        taken.append(seconds)
        now[0] += first_s if len(taken) == 1 else seconds
        return paired(0.9, 1.4)

    clock = Budget(10.0)
    now[0] += began
    verdict(SimpleNamespace(verdict=measure), None, clock, Effort(10.0))
    assert len(taken) == looks
    assert clock.elapsed <= max(11.0, first_s)  # what is left of a fifth is for memory and for writing


@pytest.mark.parametrize(
    ("first", "looks"),
    [(paired(0.93, 1.05), 2), (paired(0.97, 1.005), 1), (paired(0.994, 1.013), 2), (paired(1.01, 1.2), 1)],
)
def test_what_noise_may_hide_is_looked_at_again(first, looks):
    """Also where the middle of a wide interval lies below 1: beside other work it says nothing."""
    taken = []

    def measure(*given):
        taken.append(given)
        return first

    found = verdict(SimpleNamespace(verdict=measure), None, Budget(), Effort.of(50, 1.0))
    assert len(taken) == looks and found.sessions == looks * first.sessions and found.rounds == looks * first.rounds
    assert found.opening.shape == (found.sessions, 2) and (found.ratio.half_width < first.ratio.half_width) == (
        looks > 1
    )
