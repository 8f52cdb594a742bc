"""Measurement decides, and corrects the prices that it contradicts."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from graphopt.cost.kernel import KernelCost
from graphopt.cost.store import Store
from graphopt.onnxio.load import load
from graphopt.pipeline.judge import verdict
from graphopt.pipeline.search import _predicted
from graphopt.rewrite.library import Library
from graphopt.runtime import guard
from graphopt.runtime.rounds import Sampling
from graphopt.runtime.session import SessionConfig
from graphopt.runtime.timing import Paired, Ratio
from graphopt.search.arena import Arena
from graphopt.search.backtracking import Auto, Backtracking
from graphopt.search.effort import Effort, Purse
from graphopt.search.greedy import Greedy
from graphopt.search.problem import Budget, Outcome, Problem, Step
from graphopt.search.select import _Clock, _Searches, select
from graphopt.search.selection import Clock as ClockOfForms
from tests.onnxio.models import library, rule

SLOWER = library(
    # A square root by logarithm and exponential: right for positive numbers, and never faster.
    rule("slow-sqrt", ["y = Sqrt(x)"], ["l = Log(x)", "h = Mul(l, 0.5)", "y = Exp(h)"]),
)


def arena_of(pair, seats=99, **others):
    """An arena in which a function says what a pair shows, and what several show that run together is what their pairs show."""

    def together(graphs, seconds, rounds, interrupted):
        return SimpleNamespace(rounds=8, pair=lambda i, j: pair(graphs[i], graphs[j], seconds, rounds))

    return SimpleNamespace(**{"pair": pair, "seats": seats, "together": together, "config": SessionConfig()} | others)


@pytest.fixture
def store(tmp_path):
    with Store(tmp_path / "s") as found:
        yield found


def _two(store, threads=1):
    """A problem, and two states of which the second is slower."""
    from onnx import TensorProto, helper

    nodes = [helper.make_node("Sqrt", ["x"], ["y"])]
    made = helper.make_graph(
        nodes, "g", [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1 << 18])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1 << 18])],
    )  # fmt: skip
    model = load(helper.make_model(made, opset_imports=[helper.make_opsetid("", 17)], ir_version=8))
    problem = Problem(SLOWER, KernelCost(store, SessionConfig(threads=threads)), 16)
    first = problem.start(model.graph)
    second = problem.step(first, first.actions()[0])
    return model, problem, first, second


def test_a_pair_that_contradicts_the_prediction_corrects_the_prices_and_the_store(store):
    _, problem, first, second = _two(store)
    cost = problem.cost
    assert second.cost > 2 * first.cost
    # Say that the clock found the second graph to be twice as fast as the first.
    assert cost.correct((first.graph, first.costs), (second.graph, second.costs), 2.0, (1.9, 2.1))
    assert cost.of(first.graph).total == first.cost
    believed = cost.of(second.graph).total
    assert believed < second.cost
    again = KernelCost(store)
    assert again.of(second.graph).total == believed and again.measured == 0
    # Nothing more to learn from the same pair once it is believed.
    third = KernelCost(Store(None))
    a, b = third.of(first.graph), third.of(second.graph)
    ratio = a.total / b.total
    assert not third.correct((first.graph, a), (second.graph, b), ratio, (0.99 * ratio, 1.01 * ratio))
    assert not third.correct((first.graph, a), (second.graph, b), 3 * ratio, (0.9 * ratio, 5 * ratio))
    assert third.of(second.graph) == b


def test_what_the_clock_has_corrected_is_not_blamed_again(store):
    _, problem, first, second = _two(store)
    cost = problem.cost
    ratio = first.cost / second.cost
    once, twice = ((value, (0.99 * value, 1.01 * value)) for value in (1.5 * ratio, 2.5 * ratio))
    assert cost.correct((first.graph, first.costs), (second.graph, second.costs), *once)
    before, after = cost.of(first.graph), cost.of(second.graph)
    assert before.total == first.cost and before.total / after.total == pytest.approx(once[1][0])
    # Another comparison says something else: now it is the other graph's turn.
    assert cost.correct((first.graph, before), (second.graph, after), *twice)
    assert cost.of(second.graph).total == after.total
    assert cost.of(first.graph).total / after.total == pytest.approx(twice[1][0])


@pytest.mark.parametrize("threads", [1, 2])
def test_a_price_from_a_slow_moment_is_measured_again_before_a_kernel_is_blamed(store, threads):
    """With threads of their own sessions have no stopwatch that tells slow moments; with one thread the price stands, and is corrected."""
    _, problem, first, second = _two(store, threads)
    config, environment = SessionConfig(threads=threads), problem.cost.environment
    (head,) = (n.id for n in first.graph.in_order() if n.op == "Sqrt")
    (pair,) = problem.cost.signatures(first.graph, [first.costs.partition[head]], first.costs.layout)
    store.put_many(environment, {each: 50 * ms for each, ms in store.get_many(environment, pair).items()})

    cost = KernelCost(store, config)
    before, after = cost.of(first.graph), cost.of(second.graph)
    slow, true = before.total / after.total, first.cost / second.cost
    assert slow > 20 * true
    assert cost.correct((first.graph, before), (second.graph, after), true, (true / 4, 4 * true))
    mended = cost.of(first.graph).total
    assert (mended < 10 * first.cost) == (threads == 2)
    assert bool(store.corrections(environment)) == (threads == 1)


def test_a_correction_has_a_limit(store):
    _, problem, first, second = _two(store)
    for _ in range(4):
        priced = problem.cost.of(first.graph), problem.cost.of(second.graph)
        problem.cost.correct((first.graph, priced[0]), (second.graph, priced[1]), 1e-3, (0.9e-3, 1.1e-3))
    assert max(store.corrections(problem.cost.environment).values()) == 5.0


def test_a_graph_that_is_predicted_to_gain_and_loses_is_left_and_the_search_goes_on(store):
    model, problem, first, second = _two(store)
    # The store believes that the slow form takes next to no time.
    cost = problem.cost
    cost.correct((first.graph, first.costs), (second.graph, second.costs), 1e3, (1e3, 1e3))
    environment = cost.environment
    store.put_corrections(environment, dict.fromkeys(store.corrections(environment), 0.02))
    fooled = Problem(SLOWER, KernelCost(store), 16)
    start = fooled.start(model.graph)
    assert fooled.step(start, start.actions()[0]).cost < 0.5 * start.cost

    feeds = {"x": np.random.default_rng(0).uniform(1, 2, 1 << 18).astype(np.float32)}
    arena = Arena(model, model, SessionConfig(), feeds)
    for strategy in (Greedy(), Auto()):
        chosen = select(Problem(SLOWER, KernelCost(store), 16), strategy, model.graph, Budget(20.0), arena, Purse(6.0))
        assert not chosen.outcome.steps or chosen.rounds > 1
    # What was learned stays: a later search is not fooled again.
    later = Problem(SLOWER, KernelCost(store), 16)
    start = later.start(model.graph)
    assert later.step(start, start.actions()[0]).cost > start.cost


def test_graphs_are_compared_in_the_same_rounds_and_equal_ones_run_once(store):
    model, _, first, second = _two(store)
    arena = Arena(
        model, model, SessionConfig(), {"x": np.random.default_rng(0).uniform(1, 2, 1 << 18).astype(np.float32)}
    )
    graphs = {"same": first.graph, "slow": second.graph, "slow again": second.graph}
    found = arena.compare(graphs, Sampling(rounds=8))
    assert found is not None and found.measured is not None and len(found.measured.ratios) == 1
    assert found.over(None, "same") is None and found.over("slow", "slow again") is None
    slower, faster = found.over(None, "slow"), found.over("slow", "same")
    assert slower is not None and faster is not None and slower.high < 1 < faster.low
    alone = arena.compare({"same": first.graph}, Sampling(rounds=8))
    assert alone is not None and alone.measured is None and alone.over(None, "same") is None
    assert arena.compare(graphs, Sampling(rounds=8), lambda: True) is None


def test_as_many_run_together_as_a_half_of_the_free_memory_holds(store, monkeypatch):
    model, _, first, second = _two(store)
    arena = Arena(model, model, SessionConfig(), {"x": np.ones(1 << 18, np.float32)})
    found = arena.together([first.graph, second.graph, first.graph], rounds=8)
    assert found is not None and found.pair(0, 1).ci95[1] < 1 < found.pair(1, 2).ci95[0]
    assert arena.together([first.graph, second.graph], interrupted=lambda: True) is None
    for free, seats in ((None, 2), (0, 2), (7, 3), (10, 5), (10**6, (4 << 30) // guard.peak())):
        known = None if free is None else free * guard.peak()
        monkeypatch.setattr("graphopt.search.arena.free_memory", lambda known=known: known)
        assert arena.seats == seats


@pytest.mark.parametrize("contradicted", [False, True])
@pytest.mark.parametrize(
    "strategy, seats", [(Greedy(), 99), (Auto(keep=1), 99), (Greedy(), 2)], ids=["greedy", "auto", "pairs"]
)
def test_a_family_that_loses_as_a_whole_comes_back_where_it_pays(store, monkeypatch, strategy, seats, contradicted):
    """By the prices a form is good at two places, by the clock at one of them: first it goes, then it comes back there alone.

    Unless a look at the start says that the new plan loses to it, as the first did not: then that one stays.
    """
    from onnx import TensorProto, helper

    sizes = {"a": 1 << 18, "b": (1 << 18) + 16, "c": 1 << 18}
    nodes = [helper.make_node("Neg", [n], [f"r{n}"]) for n in "ab"]
    nodes += [helper.make_node("Abs", ["c"], ["d"]), helper.make_node("Abs", ["d"], ["rc"])]
    ins, outs = (
        [helper.make_tensor_value_info(p + n, TensorProto.FLOAT, [sizes[n]]) for n in "abc"] for p in ("", "r")
    )
    made = helper.make_graph(nodes, "g", ins, outs)
    model = load(helper.make_model(made, opset_imports=[helper.make_opsetid("", 17)], ir_version=8))
    form, once = library(
        rule("by-minus-one", ["y = Neg(x)"], ["y = Mul(x, -1)"]),
        rule("once", ["d = Abs(c)", "y = Abs(d)"], ["y = Abs(c)"]),
    ).rules
    rules = Library((replace(form, family="form"), replace(once, family="other")))

    # Prices by which the form takes half of what it replaces at the first place, nine tenths at the second.
    problem = Problem(rules, KernelCost(store), 16)
    start, wrong = problem.start(model.graph), {}
    for match in start.actions():
        if match.rule.id == "by-minus-one":
            state = problem.step(start, match)
            (head,) = (n.id for n in state.graph.in_order() if n.op == "Mul")
            share = 0.5 if start.graph.type(match.roots[0]).shape[0] == sizes["a"] else 0.9
            factor = share * start.costs.by_node[match.nodes[0]] / state.costs.by_node[head]
            (pair,) = problem.cost.signatures(state.graph, [state.costs.partition[head]], state.costs.layout)
            wrong |= dict.fromkeys(pair, factor)
    store.put_corrections(problem.cost.environment, wrong)

    def by_the_clock(graph):
        formed = {graph.type(n.inputs[0]).shape[0] for n in graph.in_order() if n.op == "Mul"}
        return (
            2.0
            - 0.5 * (sizes["a"] in formed)
            + 0.6 * (sizes["b"] in formed)
            + sum(n.op == "Abs" for n in graph.in_order())
        )

    looks, look = iter([False] + 9 * [contradicted]), _Clock.gains
    monkeypatch.setattr(_Clock, "gains", lambda *given: look(*given) and not next(looks))

    def pair(one, two, seconds, most):
        ratio = by_the_clock(one) / by_the_clock(two)
        return Paired(1.0, 1.0, Ratio.of(ratio, (ratio - 0.01, ratio + 0.01)), 20, 4)

    fooled = Problem(rules, KernelCost(store), 16)
    chosen = select(fooled, strategy, model.graph, Budget(candidates=200), arena_of(pair, seats), Purse(60.0))
    assert by_the_clock(chosen.outcome.state.graph) == pytest.approx(3.0 if contradicted else 2.5)
    assert {v.family: v.kept for v in chosen.families} == {"form": not contradicted, "other": True}


@pytest.mark.parametrize("seats", [2, 99])
@pytest.mark.parametrize("ms, asked", [(0.02, False), (0.5, True)])
def test_a_family_in_which_no_comparison_could_see_a_difference_is_not_asked_about(store, ms, asked, seats):
    """And graphs that ran together are not compared in pairs as well."""
    from onnx import TensorProto, helper

    nodes = [
        helper.make_node("Abs", ["a"], ["d"]), helper.make_node("Abs", ["d"], ["ra"]), helper.make_node("Neg", ["b"], ["rb"]),
    ]  # fmt: skip
    sizes = {"a": 1 << 10, "b": 1 << 11}
    ins, outs = ([helper.make_tensor_value_info(p + n, TensorProto.FLOAT, [sizes[n]]) for n in "ab"] for p in ("", "r"))
    made = helper.make_graph(nodes, "g", ins, outs)
    model = load(helper.make_model(made, opset_imports=[helper.make_opsetid("", 17)], ir_version=8))
    once, form = library(
        rule("once", ["d = Abs(c)", "y = Abs(d)"], ["y = Abs(c)"]),
        rule("by-minus-one", ["y = Neg(x)"], ["y = Mul(x, -1)"]),
    ).rules
    rules = Library((replace(once, family="large"), replace(form, family="form")))

    # Whatever they take here: two Abs a millisecond, one the half of it, the form half of what it replaces.
    problem = Problem(rules, KernelCost(store, measure=False), 16)
    start = problem.start(model.graph)
    states = [start, *(problem.step(start, match) for match in start.actions())]
    for state in states:
        for window in {each.nodes: each for each in state.costs.partition.values()}.values():
            (pair,) = problem.cost.signatures(state.graph, [window], state.costs.layout)
            op = state.graph.nodes[window.head].op
            price = {"Abs": 0.5 * len(window.nodes), "Neg": ms, "Mul": ms / 2}[op]
            store.put_many(problem.cost.environment, dict.fromkeys(pair, price))

    paired = []

    def pair(*given):
        paired.append(given)
        return alike(*given)

    def alike(one, two, seconds, most):
        return Paired(1.0, 1.0, Ratio.of(1.5, (1.2, 1.8)), 20, 4)

    known = Problem(rules, KernelCost(store, measure=False), 16)
    arena = arena_of(alike, seats)
    arena.pair = pair
    chosen = select(known, Greedy(), model.graph, Budget(candidates=200), arena, Purse(60.0))
    assert {v.family for v in chosen.families} == {"large", "form"} and all(v.kept for v in chosen.families)
    assert {v.family for v in chosen.families if v.ratio is not None} == ({"large", "form"} if asked else {"large"})
    assert bool(paired) == (seats == 2)
    assert all(
        v.predicted is not None for v in chosen.families
    )  # the clock was not asked because it could not have told


@pytest.mark.parametrize(
    "measured, predicted, grown, kept",
    [
        pytest.param((1.03, 1.02, 1.04), 1.03, False, True, id="it gains"),
        pytest.param((0.97, 0.96, 0.98), 1.10, False, False, id="whatever was predicted, it loses"),
        pytest.param((0.985, 0.967, 1.003), 1.004, False, False, id="it loses by both together"),
        pytest.param((0.99, 0.95, 1.03), 1.05, False, True, id="what hardly was measured is as predicted"),
        pytest.param((0.999, 0.99, 1.008), 1.0, False, True, id="a trifle"),
        pytest.param((1.003, 0.994, 1.012), 1.008, True, False, id="larger weights for a trifle"),
        pytest.param((1.02, 1.01, 1.03), 1.02, True, True, id="larger weights for something"),
    ],
)
def test_a_family_is_judged_by_prediction_and_measurement(store, monkeypatch, measured, predicted, grown, kept):
    _, problem, without, found = _two(store)
    of, hash = problem.cost.of, found.graph.hash

    def weighing(graph):
        costs = of(graph)
        return replace(costs, sums=replace(costs.sums, bytes=1 + (grown and graph.hash == hash)))

    monkeypatch.setattr(problem.cost, "of", weighing)
    monkeypatch.setattr("graphopt.search.select._speedup", lambda before, after: predicted)
    value, low, high = measured
    arena = arena_of(lambda *_: Paired(1.0, 1.0, Ratio.of(value, (low, high)), 20, 4))
    clock = _Clock(arena, problem.cost, Purse(60.0), Budget(), lambda *_: None)
    trial, outcome = (Outcome(state, (), 1, 0.0, "") for state in (without, found))
    verdict = clock.family("family", trial, outcome, 1.0)
    assert (verdict.kept, verdict.ratio, verdict.predicted) == (kept, value, predicted)


@pytest.mark.parametrize(
    "looks, gains",
    [
        pytest.param([(1.02, 0.95, 1.10)], True, id="it seems to gain"),
        pytest.param([(0.95, 0.93, 0.97)], False, id="it loses"),
        pytest.param([(0.98, 0.90, 1.07), (1.05, 1.03, 1.07)], True, id="noise hid a gain"),
        pytest.param([(0.99, 0.96, 1.02), (1.01, 0.80, 1.30)], False, id="the second look says less than the first"),
    ],
)
def test_a_look_that_cannot_tell_a_loss_from_noise_is_followed_by_another(store, looks, gains):
    _, problem, first, second = _two(store)
    left = [Paired(1.0, 1.0, Ratio.of(value, (low, high)), 8, 4) for value, low, high in looks]
    arena = SimpleNamespace(pair=lambda *_: left.pop(0))
    clock = _Clock(arena, problem.cost, Purse(60.0), Budget(), lambda message, best: None)
    assert clock.gains(first.graph, Outcome(second, (), 1, 0.0, "done"), 10.0) == gains and not left


class Zigzag:
    """A strategy that hears of costs as they come: its second step is worse than its first."""

    name = "zigzag"

    def run(self, problem, start, budget, report=None):
        for cost in (3.0, 2.0, 2.5):
            report(replace(start, costs=replace(start.costs, total=cost)))
        return Outcome(start, (), 3, 0.0, "done")


def test_a_predicted_time_does_not_rise_and_after_a_correction_there_is_none(store):
    model, problem, _, _ = _two(store)
    told, budget, purse = list[str](), Budget(), Purse(1.0)
    clock = _Clock(None, problem.cost, purse, budget, lambda message, best: told.append(message))
    searches = _Searches(Zigzag(), model.graph, budget, purse, clock, lambda number, state: None)
    searches.run(problem)
    falling = [f"searching, predicted {ms} ms" for ms in ("3.00", "2.00", "2.00")]
    assert told == falling
    searches.run(problem)
    assert told[3:] == ["searching with measured prices, round 2"] * 3
    told.clear()
    unmeasured = SimpleNamespace(
        tell=lambda stage, message, done: told.append(message), effort=Effort.of(1, 1.0), strategy=Zigzag()
    )
    _predicted(unmeasured, problem, model.graph, budget, lambda number, state: None)
    assert told == falling


@pytest.mark.parametrize("seats", [2, 99])
@pytest.mark.parametrize("limit", [3.0, 10.0, 40.0, 300.0])
def test_all_that_is_handed_out_keeps_to_the_limit(store, monkeypatch, limit, seats):
    """On a clock that goes on by what each stage is handed, and a little by every comparison, with a graph that seems to lose."""
    model, _, first, second = _two(store)
    problem, now = Problem(SLOWER, KernelCost(store, measure=False), 16), [100.0]
    for module in ("effort", "select", "problem"):
        monkeypatch.setattr(f"graphopt.search.{module}.time", SimpleNamespace(monotonic=lambda: now[0]))
    steps = tuple(Step("rule", f"family {i}", "", "", 2.0, 1.0) for i in range(40))
    found = Outcome(second, steps, 1, 0.0, "done")

    class Slow:
        def run(self, problem, start, budget, report=None):
            now[0] += effort.pricing_s + budget.seconds
            return replace(found, others=tuple(replace(found, state=first) for _ in range(9)))

    def takes(seconds):
        now[0] += seconds + 0.002 * limit

    unclear = Paired(1.0, 1.0, Ratio.of(0.95, (0.9, 1.02)), 20, 4)

    def pair(one, two, seconds, most):
        takes(seconds)
        return unclear

    def together(graphs, seconds, rounds, interrupted):
        takes(seconds)
        return SimpleNamespace(rounds=8, pair=lambda i, j: unclear)

    def verdict_of(graph, seconds, *_):
        takes(seconds)
        return Paired(1.0, 1.0, Ratio.of(1.1, (0.9, 1.4)), 20, 4)

    arena, effort = arena_of(pair, seats, together=together, verdict=verdict_of), Effort(limit)
    monkeypatch.setattr("graphopt.search.select._trial", lambda *_: (problem, replace(found, state=first)))
    clock, budget, purse = Budget(limit), effort.searching(), effort.comparing()
    chosen = select(problem, Slow(), model.graph, budget, arena, purse)
    compared = [family for family in chosen.families if family.ratio is not None]
    ClockOfForms(arena, purse).pair(first.graph, second.graph)
    verdict(arena, second.graph, clock, effort)
    assert compared and 0.8 * limit < clock.elapsed <= 1.2 * limit


def test_what_takes_longer_than_there_is_time_is_not_compared(store):
    """Sessions that take seconds to open: all that is left belongs to the last measurement."""
    model, _, first, second = _two(store)
    problem = Problem(SLOWER, KernelCost(store, measure=False), 16)
    steps = tuple(Step("rule", f"family {i}", "", "", 2.0, 1.0) for i in range(3))
    found = Outcome(second, steps, 1, 0.0, "done")
    found = replace(found, others=(replace(found, state=first),))

    def pair(*_):
        raise AssertionError("compared")

    strategy, arena = SimpleNamespace(run=lambda *_: found), arena_of(pair, together=pair)
    purse = Effort.within(10.0, 1.0, 0.1).comparing()
    chosen = select(problem, strategy, model.graph, Budget(10.0), arena, purse)
    assert chosen.outcome.state is second and len(chosen.outcome.others) == 1
    assert len(chosen.families) == 3 and all(v.kept and v.ratio is None for v in chosen.families)


def test_plans_that_there_was_no_time_to_measure_are_told(store):
    from onnx import TensorProto, helper

    nodes = [
        helper.make_node("Log", ["x"], ["l"]), helper.make_node("Add", ["l", "l"], ["d"]), helper.make_node("Exp", ["d"], ["y"]),
    ]  # fmt: skip
    made = helper.make_graph(
        nodes, "g", [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1 << 16])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1 << 16])],
    )  # fmt: skip
    model = load(helper.make_model(made, opset_imports=[helper.make_opsetid("", 17)], ir_version=8))
    shorter = library(
        rule("product", ["l = Log(x)", "d = Add(l, l)", "y = Exp(d)"], ["y = Mul(x, x)"]),
        rule("power", ["l = Log(x)", "d = Add(l, l)", "y = Exp(d)"], ["r = Abs(x)", "y = Mul(r, r)"]),
    )
    arena = Arena(model, model, SessionConfig(), {"x": np.full(1 << 16, 2.0, np.float32)})
    found = []
    for seconds in (0.0, 6.0):
        problem = Problem(shorter, KernelCost(store, measure=False), 16)
        outcome = select(problem, Backtracking(2.0), model.graph, Budget(candidates=20), arena, Purse(seconds)).outcome
        found.append((len(outcome.steps), len(outcome.others)))
    assert found == [(1, 1), (1, 0)]
