"""Prices by measurement, from the store, and by estimate."""

from __future__ import annotations

import pickle

import numpy as np
import pytest

from graphopt.cost.analytic import FAR, NEAR, Roofline, fetch_ms, move_ms
from graphopt.cost.fit import stopwatch
from graphopt.cost.kernel import ESTIMATE_MARKUP, KernelCost
from graphopt.cost.measure import last_level
from graphopt.cost.store import FAILED, Store
from graphopt.errors import UnknownNameError
from graphopt.ir.delta import RefusedError
from graphopt.ir.edit import Edit
from graphopt.rewrite.apply import apply
from graphopt.rewrite.sites import Sites
from graphopt.runtime.session import SessionConfig
from graphopt.search.problem import Problem
from tests.cost.graphs import graph, node, residual_network, transformer
from tests.onnxio.models import library, rule

RULES = library(
    rule("swap", ["y = Add(a, b)"], ["y = Add(b, a)"]),
    rule("add-to-sum", ["s = Add(a, b)", "y = LayerNormalization<*r>(s, g, c)"],
         ["t = Sum(a, b)", "y = LayerNormalization<*r>(t, g, c)"]),
    rule("div-to-mul", ["y = Div(x, c)"], ["r = Reciprocal(c)", "y = Mul(x, r)"], where=["is_const(c)"]),
    rule("pool", ["y = GlobalAveragePool(x)"], ["y = ReduceMean(x, axes)"], let={"axes": "i64([2, 3])"}),
    rule("merge", ["y1 = MatMul(x, w1)", "y2 = MatMul(x, w2)"],
         ["w = Concat<axis = -1>(w1, w2)", "y = MatMul(x, w)", "y1, y2 = Split<axis = -1>(y, widths)"],
         roots="{unordered: [y1, y2]}", where=["rank(w1) == 2 and rank(w2) == 2"],
         let={"widths": "i64([dim(w1, -1), dim(w2, -1)])"}),
)  # fmt: skip


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    """One store for the module, so that each window is measured once."""
    with Store(tmp_path_factory.mktemp("cost") / "s") as found:
        yield found


def test_measured_once_for_all(store):
    g = transformer(layers=6)
    model = KernelCost(store)
    costs = model.of(g)
    assert 0 < costs.total < 100
    assert costs.total == pytest.approx(sum(costs.by_node.values()))
    assert 5 <= model.measured <= 14 and model.estimated == 0
    assert model.of(g) == costs
    again = KernelCost(store)
    assert again.of(g) == costs and again.measured == 0
    unmeasured = KernelCost(store, measure=False)
    assert unmeasured.of(g).total == pytest.approx(costs.total, rel=0.01)
    assert set(store.sizes()) == {model.environment}


def test_depth_costs_in_proportion(store):
    model = KernelCost(store)
    assert model.of(transformer(layers=8)).total == pytest.approx(2 * model.of(transformer(layers=4)).total, rel=0.01)


@pytest.mark.parametrize("make", [transformer, lambda: residual_network(gate=True)])
def test_an_update_equals_a_fresh_count(store, make):
    g = make()
    model = KernelCost(store)
    costs, sites = model.of(g), Sites.of(g, RULES)
    random = np.random.default_rng(3)
    for _ in range(25):
        keys = sorted(sites.matches)
        g, delta = apply(g, sites.matches[keys[random.integers(len(keys))]])
        total = model.total_after(costs, g, delta)
        costs, sites = model.after(costs, g, delta), sites.after(g, delta)
        assert costs == model.of(g)
        assert costs.total == total
    assert KernelCost(store).of(g) == costs


def test_without_measuring():
    model = KernelCost(Store(None), measure=False)
    costs = model.of(transformer())
    assert costs.total > 0 and model.measured == 0 and model.estimated > 5 and model.spent == 0


def test_when_time_is_up():
    g = transformer()
    model = KernelCost(Store(None), kernels=5)  # of which a first look may use three
    costs = model.of(g)
    assert model.measured == 3 and model.estimated > 3
    # What was not measured is estimated in the light of what was, and stays at that price.
    assert model.of(g) == costs
    nothing = KernelCost(Store(None), seconds=0.0)
    assert nothing.of(g).total > 0 and nothing.measured == 0


def test_the_largest_is_measured_first():
    nodes = [node("MatMul", ["x", "small"], ["a"]), node("MatMul", ["x", "large"], ["b"])]
    g = graph(nodes, {"x": (64, 64)}, {"small": (64, 2), "large": (64, 2048)}, ["a", "b"])
    model = KernelCost(Store(None), kernels=1)
    costs = model.of(g)
    large = next(n for n in g.nodes.values() if g.type(n.outputs[0]).shape == (64, 2048))
    reference = KernelCost(Store(None), measure=False)
    reference.of(g)
    assert model.measured == 1 and model.estimated == 1
    ratio = model._ratios["MatMul"]
    assert len(ratio) == 1
    small = next(n for n in g.nodes.values() if n is not large)
    assert costs.by_node[small.id] > 0
    assert ESTIMATE_MARKUP > 1


def test_a_window_that_does_not_run_is_tried_once(store):
    # A Reshape whose target is made up can't hold the elements.
    nodes = [node("Cast", ["s"], ["i"], to=7), node("Reshape", ["x", "i"], ["r"]), node("Expand", ["x", "i"], ["y"]),
             node("OneHot", ["i", "d", "v"], ["z"])]  # fmt: skip
    g = graph(nodes, {"x": (4, 4), "s": (3,), "v": (3,)}, {"d": np.array(5)}, ["r", "y", "z"])
    model = KernelCost(store)
    costs = model.of(g)
    assert model.estimated >= 1 and costs.total > 0
    again = KernelCost(store)
    assert again.of(g).total > 0 and again.measured == 0
    known = store.get_many(model.environment, model._prices)
    assert FAILED in known.values()


def test_a_body_is_estimated(store):
    from onnx import helper

    body = helper.make_graph([node("Neg", ["x"], ["n"])], "b", [], [helper.make_tensor_value_info("n", 1, None)])
    nodes = [node("ReduceMax", ["x"], ["m"], keepdims=0), node("Cast", ["m"], ["c"], to=9),
             node("If", ["c"], ["y"], then_branch=body, else_branch=body)]  # fmt: skip
    model = KernelCost(store)
    assert model.of(graph(nodes, {"x": (4,)})).total > 0 and model.estimated == 1


def test_nonsense_in_the_store_is_not_believed():
    g = graph([node("Erf", ["x"], ["y"])], {"x": (64, 64)})
    store = Store(None)
    first = KernelCost(store)
    first.of(g)
    for ms in (float("nan"), float("inf"), 0.0, -3.0):
        store.put_many(first.environment, {next(iter(first._prices)): ms})
        model = KernelCost(store)
        assert 0 < model.of(g).total < 10 and model.measured == 1


def test_environments_are_kept_apart(store):
    one = KernelCost(store, SessionConfig(threads=1))
    assert one.environment == KernelCost(store).environment
    others = [
        SessionConfig(threads=2),
        SessionConfig(level="basic"),
        SessionConfig(entries={"session.set_denormal_as_zero": "1"}),
    ]
    assert len({one.environment, *(KernelCost(store, c).environment for c in others)}) == 4
    with pytest.raises(UnknownNameError):
        KernelCost(store, SessionConfig(provider="abacus"))


def test_at_another_level(store):
    g = residual_network(blocks=1)
    model = KernelCost(store, SessionConfig(level="disabled"))
    assert model.of(g).total > 0 and not model.of(g).layout.live


def test_a_copy_goes_on_measuring(store):
    model = KernelCost(store)
    g = transformer(layers=2)
    costs = model.of(g)
    copy = pickle.loads(pickle.dumps(model))
    assert copy.of(g) == costs
    assert copy.of(graph([node("Erf", ["x"], ["y"])], {"x": (33, 77)})).total > 0


def masked(lowest):
    mask = np.where(np.tri(32, dtype=bool), 0, lowest).astype(np.float32)
    nodes = [node("Add", ["x", "mask"], ["s"]), node("Reshape", ["s", "shape"], ["r"]), node("Softmax", ["r"], ["p"], axis=-1),
             node("MatMul", ["p", "v"], ["y"])]  # fmt: skip
    return graph(nodes, {"x": (1, 8, 32, 32), "v": (8, 32, 16)}, {"mask": mask, "shape": np.array([8, 32, 32])})


def test_a_mask_that_breeds_denormals_is_seen_from_the_product(store):
    model = KernelCost(store)
    risky, safe = model.of(masked(-100.0)), model.of(masked(-300.0))
    assert model.measured == 4  # the two products have nothing but their numbers to tell them apart
    assert risky.total > 0 and safe.total > 0
    g = masked(-100.0)
    add = next(n for n in g.nodes.values() if n.op == "Add")
    edit = Edit(g, "lower", add.outputs)
    edit.add("Add", [add.inputs[0], edit.constant(np.where(np.tri(32, dtype=bool), 0, -300).astype(np.float32))],
             outputs=add.outputs)  # fmt: skip
    after, delta = edit.commit()
    assert model.after(model.of(g), after, delta) == model.of(after) and model.of(after).total == safe.total


def hiding(op, lowest, computed):
    """A Softmax of masked scores, or the operator that does both, with the last half of the keys hidden; the mask as numbers, or computed from them."""
    mask = np.where(np.arange(64) < 32, 0, lowest).astype(np.float32) * np.ones((1, 1, 64, 64), np.float32)
    name = "half" if computed else "mask"
    weights = {"mask": mask}
    nodes = [node("Transpose", ["mask"], ["half"], perm=[1, 0, 2, 3])] if computed else []
    if op == "Softmax":
        nodes += [node("Add", ["x", name], ["s"]), node("Softmax", ["s"], ["y"], axis=-1)]
        return graph(nodes, {"x": (1, 2, 64, 64)}, weights)
    heads = node("MultiHeadAttention", ["x", "x", "x", "", "", name], ["y"], domain="com.microsoft", num_heads=2)
    return graph([*nodes, heads], {"x": (1, 64, 16)}, weights)


@pytest.mark.parametrize("computed", [False, True])
@pytest.mark.parametrize("op", ["Softmax", "MultiHeadAttention"])
def test_what_a_mask_hides_is_part_of_the_price(op, computed):
    model = KernelCost(Store(None), measure=True)
    seen = []
    for lowest in (0.0, -1e30, -1e30):
        model.of(hiding(op, lowest, computed))
        seen.append(model.measured)
    assert seen[0] < seen[1] == seen[2]


WIDER = library(
    rule("wider", ["y = MatMul(x, w)"], ["w2 = Concat<axis = -1>(w, w)", "m = MatMul(x, w2)", "y = Slice(m, i, j, k)"],
         where=["is_const(w)"], let={"i": "i64([0])", "j": "i64([dim(w, 1)])", "k": "i64([1])"}),
)  # fmt: skip


def test_a_rewrite_for_which_weights_outgrow_their_room_is_refused(store):
    size = 256 * 256 * 4
    nodes = [node("MatMul", ["x", "a"], ["y"]), node("MatMul", ["y", "b"], ["z"])]
    g = graph(nodes, {"x": (4, 256)}, {"a": (256, 256), "b": (256, 320)})
    problem = Problem(WIDER, KernelCost(store, measure=False, growth=size))
    start = problem.start(g)
    first, second = sorted(start.sites, key=lambda match: g.type(match.roots[0]).shape[-1])
    one = problem.step(start, first)  # a weight of twice the size in place of one
    assert one.costs.sums.bytes - start.costs.sums.bytes == size
    with pytest.raises(RefusedError, match="more memory"):
        problem.price(one, second)
    with pytest.raises(RefusedError, match="more memory"):
        problem.step(one, second)
    counting = KernelCost(store, growth=size)
    heavy = Problem(WIDER, counting)
    here = heavy.step(heavy.start(g), first)
    known = counting.measured
    with pytest.raises(RefusedError, match="more memory"):
        heavy.price(here, second)
    with pytest.raises(RefusedError, match="more memory"):
        heavy.step(here, second)
    assert counting.measured == known  # what is refused whatever it takes is not measured
    roomy = Problem(WIDER, KernelCost(store, measure=False))
    assert roomy.step(roomy.step(roomy.start(g), first), second).cost > 0


def test_weights_that_outgrow_the_cache_come_from_memory(monkeypatch):
    """One matrix read eight times, as in an unrolled recurrent network, is priced in the cache; eight of them do not fit."""
    monkeypatch.setattr("graphopt.cost.measure.cache_bytes", lambda: (1 << 20, 4 << 20))
    monkeypatch.setattr(KernelCost, "roofline", Roofline(shared_bytes=4 << 20))
    steps = [node("MatMul", [f"x{n}", f"w{n}"], [f"x{n + 1}"]) for n in range(8)]
    apart = graph(steps, {"x0": (1, 512)}, {f"w{n}": (512, 512) for n in range(8)})
    again = graph(
        [node("MatMul", [f"x{n}", "w0"], [f"x{n + 1}"]) for n in range(8)], {"x0": (1, 512)}, {"w0": (512, 512)}
    )
    model = KernelCost(Store(":memory:"), measure=False)
    one, eight = model.of(again), model.of(apart)
    assert (one.sums.share, eight.sums.share) == (0, 1)
    assert eight.total - one.total == pytest.approx(model.scale * 8 * fetch_ms(1 << 20, model.roofline))
    assert KernelCost(Store(":memory:"), measure=False).of(apart).total > one.total


@pytest.mark.parametrize("threads", [1, 2])
def test_the_numbers_of_a_machine_are_measured_once(threads, tmp_path):
    config = SessionConfig(threads=threads)
    first = stopwatch(Store(tmp_path / "s.sqlite"), "here", config)
    assert stopwatch(Store(tmp_path / "s.sqlite"), "here", config).roofline == first.roofline
    assert (first.slowdown() >= 1) if threads == 1 else (first.slowdown() == 1)


def test_the_least_that_a_node_takes_is_what_it_takes_between_products(store):
    """Not what one of many like it takes in a row, 0.3 us: a model has hundreds of small ones, each with cold code."""
    floor = stopwatch(store, "here", SessionConfig(threads=1)).roofline.overhead_ms
    assert 0 < floor < 0.1
    g = graph(
        [node("Reshape", ["x", "dims"], ["r"]), node("Neg", ["r"], ["y"])], {"x": (2, 2)}, {"dims": np.array([4])}
    )
    model = KernelCost(Store(None), SessionConfig(threads=1))
    assert model.of(g).total >= 2 * model.roofline.overhead_ms


def test_conversions_go_by_size():
    roofline = Roofline(reorder_gbytes=40.0, reorder_aliased_gbytes=20.0, reorder_far_gbytes=10.0, overhead_ms=0.0)
    assert move_ms(NEAR, 64, roofline) == pytest.approx(NEAR / 40e6)
    assert move_ms(FAR, 64, roofline) == pytest.approx(FAR / 10e6)
    assert move_ms(2 * FAR, 64, roofline) == pytest.approx(2 * FAR / 10e6)
    assert NEAR / 40e6 < move_ms(2 * NEAR, 128, roofline) / 2 < NEAR / 10e6  # between the two
    assert move_ms(NEAR, 64, roofline, far=True) == pytest.approx(NEAR / 10e6)
    # 32 x 32 numbers are 4 KB: all channels of a block want the same places of the cache.
    assert move_ms(4 * 64 * 32 * 32, 64, roofline) == pytest.approx(2 * move_ms(4 * 64 * 32 * 32, 63, roofline))


@pytest.mark.parametrize(("rows", "far"), [(64, False), (4096, True)])
def test_results_that_do_not_fit_the_caches_are_priced_to_memory(monkeypatch, rows, far):
    """A Transpose of a large model; not what may write where it reads, nor where it can't show."""
    monkeypatch.setattr(KernelCost, "roofline", Roofline(shared_bytes=1 << 22))
    nodes = [node("Transpose", ["x"], ["t"], perm=[1, 0]), node("Sigmoid", ["t"], ["s"]), node("Softmax", ["s"], ["y"])]
    g = graph(nodes, {"x": (rows, 256)})
    model = KernelCost(Store(":memory:"), measure=False)
    costs = model.of(g)
    windows = list({window.nodes[-1]: window for window in costs.partition.values()}.values())
    at = {
        g.nodes[window.head].op: pair[1].endswith("-memory")
        for window, pair in zip(windows, model.signatures(g, windows, costs.layout), strict=True)
    }
    assert at["Transpose"] == far and not at["Sigmoid"]


@pytest.mark.parametrize(
    ("told", "holds", "found"),
    [
        (32 << 20, 8 << 20, 32 << 20),  # what belongs to so few cores is believed
        (480 << 20, 64 << 20, 64 << 20),
        (480 << 20, 100 << 20, 64 << 20),
        (480 << 20, 1 << 30, 16 << 20),  # no step: where it is makes no difference
    ],
)
def test_of_a_large_cache_counts_what_this_process_gets(monkeypatch, told, holds, found):
    monkeypatch.setattr("graphopt.cost.measure.cache_bytes", lambda: (2 << 20, told))
    monkeypatch.setattr("graphopt.cost.measure._reading_speed", lambda array: 30e9 if array.nbytes <= holds else 15e9)
    assert last_level() == (found, 15e9 if holds < 1 << 30 else 30e9)
