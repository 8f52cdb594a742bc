"""The form in which a model is written: linear layers on matrices, and only where that is better."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import onnx
import pytest

import graphopt
from graphopt.cost.analytic import AnalyticCost
from graphopt.errors import RuleError
from graphopt.ir.simplify import simplify
from graphopt.onnxio.emit import emit
from graphopt.onnxio.load import load
from graphopt.onnxio.save import to_proto
from graphopt.retrace import replay
from graphopt.rewrite.library import Library, load_library
from graphopt.rewrite.schema import parse_rules
from graphopt.rewrite.sites import Sites
from graphopt.runtime.timing import Paired, Ratio
from graphopt.search.cleaning import flat_form
from graphopt.search.effort import Purse
from graphopt.search.problem import Outcome, Problem
from graphopt.search.selection import Clock, Selection, flattened
from tests.ir.check import problems
from tests.onnxio.models import F, model, node, run, weight

LIBRARY = load_library()
RANDOM = np.random.default_rng(0)


def stack(layers: int, batch: int | str = 2) -> onnx.ModelProto:
    """Layers of a transformer without attention: two linear ones, a residual, a scale for each column."""
    nodes, weights, last = [], list[onnx.TensorProto](), "x"
    for i in range(layers):
        sizes = {f"w{i}": (64, 96), f"b{i}": (96,), f"v{i}": (96, 64), f"c{i}": (64,), f"s{i}": (64,)}
        weights += [weight(name, RANDOM.standard_normal(size).astype(np.float32) / 8) for name, size in sizes.items()]
        nodes += [
            node("MatMul", [last, f"w{i}"], [f"m{i}"]), node("Add", [f"m{i}", f"b{i}"], [f"a{i}"]), node("Relu", [f"a{i}"], [f"r{i}"]),
            node("MatMul", [f"r{i}", f"v{i}"], [f"n{i}"]), node("Add", [f"c{i}", f"n{i}"], [f"d{i}"]),
            node("Add", [f"d{i}", last], [f"e{i}"]), node("Mul", [f"e{i}", f"s{i}"], [f"y{i}"]),
        ]  # fmt: skip
        last = f"y{i}"
    return model(nodes, [("x", F, [batch, 50, 64])], [(last, F, [batch, 50, 64])], weights)


def selection(proto: onnx.ModelProto) -> Selection:
    problem = Problem(LIBRARY, AnalyticCost(dims={"N": 2}))
    state = problem.start(simplify(load(proto).graph))
    return Selection(Outcome(state, (), 0, 0.0, ""), problem, ())


@pytest.mark.parametrize("batch", [2, "N"])
def test_a_stack_of_linear_layers_stays_a_matrix(batch):
    proto = stack(3, batch)
    loaded = load(proto)
    graph, steps = flat_form(simplify(loaded.graph), LIBRARY)
    assert problems(graph) == [] and steps
    counts = Counter(n.op for n in graph.nodes.values() if not graph.is_lazy(n))
    assert counts == {"Reshape": 2, "Gemm": 6, "Relu": 3, "Add": 3, "Mul": 3}
    made = to_proto(emit(loaded, graph))
    for size in (1, 2) if batch == "N" else (2,):
        x = RANDOM.standard_normal((size, 50, 64)).astype(np.float32)
        np.testing.assert_allclose(run(made, {"x": x})[0], run(proto, {"x": x})[0], rtol=1e-4, atol=1e-4)
    assert flat_form(graph, LIBRARY)[1] == []


def decoder(tokens: int) -> onnx.ModelProto:
    """A layer of GPT-2 as torch exports it: Gemms between Reshapes that keep zeros, queries, keys and values split, GELU spelled out."""
    weights = [
        weight(name, RANDOM.standard_normal(size).astype(np.float32) / 8)
        for name, size in {
            "wq": (64, 192),
            "bq": (192,),
            "wo": (64, 64),
            "bo": (64,),
            "w1": (64, 96),
            "b1": (96,),
        }.items()
    ]
    shapes = {
        "rows": [-1, 64],
        "three": [1, tokens, 192],
        "heads": [1, tokens, 4, 16],
        "one": [1, tokens, 64],
        "wide": [1, tokens, 96],
        "flat": [-1, 96],
    }
    weights += [weight(name, np.array(shape, np.int64)) for name, shape in shapes.items()]
    weights += [weight(f"c{i}", np.float32(c)) for i, c in enumerate((0.5, 3, 0.044715, 0.7978845608, 1))]

    def reshape(x: str, shape: str, y: str) -> onnx.NodeProto:
        return node("Reshape", [x, shape], [y], allowzero=1)

    nodes = [
        reshape("x", "rows", "r0"), node("Gemm", ["r0", "wq", "bq"], ["g0"]), reshape("g0", "three", "qkv"),
        node("Split", ["qkv"], ["q0", "k0", "v0"], axis=2),
    ]  # fmt: skip
    for name, perm in {"q": [0, 2, 1, 3], "k": [0, 2, 3, 1], "v": [0, 2, 1, 3]}.items():
        nodes += [reshape(f"{name}0", "heads", f"{name}1"), node("Transpose", [f"{name}1"], [name], perm=perm)]
    nodes += [
        node("MatMul", ["q", "k"], ["s0"]), node("Softmax", ["s0"], ["s1"]), node("MatMul", ["s1", "v"], ["h0"]),
        node("Transpose", ["h0"], ["h1"], perm=[0, 2, 1, 3]), reshape("h1", "rows", "h2"), node("Gemm", ["h2", "wo", "bo"], ["h3"]),
        reshape("h3", "one", "h4"), reshape("h4", "rows", "h5"), node("Gemm", ["h5", "w1", "b1"], ["g1"]), reshape("g1", "wide", "a"),
        node("Mul", ["a", "c0"], ["half"]), node("Pow", ["a", "c1"], ["a3"]), node("Mul", ["a3", "c2"], ["a4"]),
        node("Add", ["a", "a4"], ["a5"]), node("Mul", ["a5", "c3"], ["a6"]), node("Tanh", ["a6"], ["a7"]),
        node("Add", ["a7", "c4"], ["a8"]), node("Mul", ["half", "a8"], ["gelu"]), reshape("gelu", "flat", "y"),
    ]  # fmt: skip
    return model(nodes, [("x", F, [1, tokens, 64])], [("y", F, [tokens, 96])], weights)


@pytest.mark.parametrize(("tokens", "transposes"), [(5, 4), (1, 0)])
def test_a_layer_of_a_decoder_is_reshaped_to_heads_and_back_alone(tokens, transposes):
    proto = decoder(tokens)
    loaded = load(proto)
    graph, _ = flat_form(simplify(loaded.graph), LIBRARY)
    counts = Counter(n.op for n in graph.nodes.values() if not graph.is_lazy(n))
    assert (counts["Reshape"], counts["Transpose"]) == (5, transposes)
    x = RANDOM.standard_normal((1, tokens, 64)).astype(np.float32)
    np.testing.assert_allclose(
        run(to_proto(emit(loaded, graph)), {"x": x})[0], run(proto, {"x": x})[0], rtol=1e-4, atol=1e-4
    )


def test_no_search_sees_the_rules_that_come_last():
    graph = simplify(load(stack(1)).graph)
    last = {rule.id for rule in LIBRARY.rules if rule.last}
    assert "linear-of-rows-is-gemm" in last
    assert not last & {match.rule.id for match in Sites.of(graph, LIBRARY)}
    assert last & {match.rule.id for match in Sites.of(graph, LIBRARY.whole)}


def test_a_single_layer_stays_as_it_is():
    """Reshape, Gemm, Reshape are more nodes than MatMul and Add."""
    weights = [weight("w", np.ones((8, 8), np.float32)), weight("b", np.ones(8, np.float32))]
    nodes = [node("MatMul", ["x", "w"], ["m"]), node("Add", ["m", "b"], ["y"])]
    found = selection(model(nodes, [("x", F, [2, 5, 8])], [("y", F, [2, 5, 8])], weights))
    assert flattened(found) is found


@pytest.mark.parametrize(("ratio", "kept"), [(1.05, True), (0.995, True), (0.9, False)])
def test_the_clock_says_whether_it_is_written_so(ratio, kept):
    found = selection(stack(3))
    asked = []

    def pair(*given):
        asked.append(given)
        return Paired(1.0, 1.0, Ratio.of(ratio, (ratio - 0.01, ratio + 0.01)), 8, 4)

    purse = Purse(None, 100)
    flat = flattened(found, Clock(SimpleNamespace(pair=pair), purse))
    assert bool(flat.outcome.steps) == kept and all(step.alone for step in flat.outcome.steps)
    (verdict,) = flat.families
    assert (verdict.family, verdict.ratio, verdict.kept) == ("flat", ratio, kept)
    assert len(asked) == 1 and purse.spent == 8


def test_its_steps_are_in_the_trace_and_are_made_again(tmp_path):
    onnx.save(stack(3), tmp_path / "m.onnx")
    done = graphopt.optimize(
        tmp_path / "m.onnx", output=tmp_path / "o.onnx", trace=tmp_path / "t.json", strategy="none", measure=False
    )
    assert done.report["rules"]["linear-of-rows-is-gemm"] == 6
    assert len(onnx.load(tmp_path / "o.onnx").graph.node) == 17
    replay(tmp_path / "t.json", tmp_path / "m.onnx", output=tmp_path / "r.onnx")
    assert (tmp_path / "r.onnx").read_bytes() == (tmp_path / "o.onnx").read_bytes()
    told = json.loads((tmp_path / "t.json").read_text())
    assert {step["family"] for step in told["steps"]} >= {"flat"}


@pytest.mark.parametrize(
    ("head", "message"),
    [
        ("equal: real\n    always: true\n    last: true", "'always' and 'last' exclude each other"),
        ("equal: approx(1e-3)\n    last: true", "'last' is for rules that are exact or real"),
        ("equal: real\n    last: yes", "'last' is true, or is left out"),
        ("equal: real\n    hinted: true", "'hinted' is for rules with 'prefer' lines"),
    ],
)
def test_last_is_a_plain_flag(head, message):
    text = f"family: f\nrules:\n  - id: r\n    doc: d\n    {head}\n    match:\n      - y = Relu(x)\n    replace:\n      - y = Relu(x)\n"
    with pytest.raises((RuleError, ExceptionGroup), match=message):
        parse_rules(text, "f.yaml")


def test_the_hash_of_a_library_tells_what_comes_last():
    (rule,) = [r for r in LIBRARY.rules if r.id == "linear-of-rows-is-gemm"]
    assert Library((rule,)).hash != Library((replace(rule, last=False),)).hash
