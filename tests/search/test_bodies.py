"""Bodies of If, Loop and Scan in their normal form: what they compute, what a trace tells, and what is left alone."""

from __future__ import annotations

import json
import time

import numpy as np
import onnx
import pytest
from onnx import helper

import graphopt
from graphopt.ir.simplify import simplify
from graphopt.onnxio.emit import emit
from graphopt.onnxio.inside import open_body
from graphopt.onnxio.load import load
from graphopt.onnxio.save import to_proto
from graphopt.retrace import bisect, replay, stages
from graphopt.rewrite.library import load_library
from graphopt.search.cleaning import normal_form
from graphopt.search.normal import better_bodies
from tests.ir.check import problems
from tests.onnxio.models import run
from tests.runtime.models import F, proto

LIBRARY = load_library()
BOOL, LONG = onnx.TensorProto.BOOL, onnx.TensorProto.INT64


def normal_bodies(graph):
    return better_bodies(graph, lambda body: normal_form(body, LIBRARY))


def info(name, kind=F, shape=(2, 3)):
    return helper.make_tensor_value_info(name, kind, shape)


def noise(source, target, tag, zero="zero"):
    """``target = relu(source)``, with two transposes that cancel, a zero that is added and an Identity."""
    return [
        helper.make_node("Transpose", [source], [f"{tag}a"], perm=[1, 0]),
        helper.make_node("Transpose", [f"{tag}a"], [f"{tag}b"], perm=[1, 0]),
        helper.make_node("Relu", [f"{tag}b"], [f"{tag}c"]),
        helper.make_node("Identity", [f"{tag}c"], [target]),
    ]


def branch(name, source, tag):
    return helper.make_graph(noise(source, f"{tag}out", tag), name, [], [info(f"{tag}out")])


def choice():
    """Captured ``h`` is the only reason for the node that makes it: ``Relu`` of a captured value in one branch, of ``x`` in the other."""
    nodes = [
        helper.make_node("Neg", ["x"], ["h"]),
        helper.make_node(
            "If", ["c"], ["y"], then_branch=branch("then", "h", "t"), else_branch=branch("else", "x", "e")
        ),
    ]
    return proto(nodes, [info("x"), info("c", BOOL, [])], [info("y")])


def loop():
    """``x = relu(x + w)``, ``n`` times; what the body declares of the carried shape is wrong after the first turn."""
    body = helper.make_graph(
        [*noise("v", "u", "l"), helper.make_node("Concat", ["u", "w"], ["o"], axis=0), helper.make_node("Identity", ["k"], ["ko"])],
        "body", [info("i", LONG, []), info("k", BOOL, []), info("v")], [info("ko", BOOL, []), info("o")],
    )  # fmt: skip
    nodes = [
        helper.make_node("Abs", ["x"], ["w"]),
        helper.make_node("Loop", ["n", "go", "x"], ["y"], body=body),
    ]
    weights = {"n": np.array(3, np.int64), "go": np.array(True)}
    return proto(nodes, [info("x")], [("y", F, [None, 3])], weights)


def scan():
    body = helper.make_graph(
        [helper.make_node("Add", ["s", "e"], ["a"]), helper.make_node("Identity", ["a"], ["m"]),
         helper.make_node("Relu", ["m"], ["so"]), helper.make_node("Sub", ["m", "w"], ["z"])],
        "body", [info("s", F, [3]), info("e", F, [3])], [info("so", F, [3]), info("z", F, [3])],
    )  # fmt: skip
    nodes = [helper.make_node("Scan", ["first", "x"], ["last", "y"], body=body, num_scan_inputs=1)]
    weights = {"first": np.zeros(3, np.float32), "w": np.arange(3, dtype=np.float32)}
    return proto(nodes, [info("x")], [info("last", F, [3]), info("y")], weights)


def nested():
    inner = branch("inner", "h", "n")
    then = helper.make_graph(
        [helper.make_node("Exp", ["x"], ["h"]), *noise("h", "m", "o"),
         helper.make_node("If", ["d"], ["q"], then_branch=inner, else_branch=branch("other", "m", "p"))],
        "then", [], [info("q")],
    )  # fmt: skip
    node = helper.make_node("If", ["c"], ["y"], then_branch=then, else_branch=branch("else", "x", "e"))
    return proto([node], [info("x"), info("c", BOOL, []), info("d", BOOL, [])], [info("y")])


MODELS = {"if": choice, "loop": loop, "scan": scan, "nested": nested}


def operators(model):
    from graphopt.onnxio.bodies import graphs

    return sorted(node.op_type for graph in graphs(model.graph) for node in graph.node)


@pytest.mark.parametrize("name", MODELS)
def test_a_body_loses_its_noise_and_computes_the_same(name):
    model = MODELS[name]()
    loaded = load(model)
    graph, steps = normal_bodies(simplify(loaded.graph))
    assert steps and problems(graph) == []
    assert normal_bodies(graph)[1] == []
    made = to_proto(emit(loaded, graph))
    onnx.checker.check_model(made)
    assert "Transpose" not in operators(made) and len(operators(made)) < len(operators(model))
    x = np.random.default_rng(0).standard_normal((2, 3)).astype(np.float32)
    for flags in ((True, True), (True, False), (False, True)):
        feeds = {"x": x, "c": np.array(flags[0]), "d": np.array(flags[1])}
        feeds = {i.name: feeds[i.name] for i in model.graph.input}
        for ours, theirs in zip(run(made, feeds), run(model, feeds), strict=True):
            assert np.array_equal(ours, theirs)


def test_the_declared_shape_of_what_a_loop_carries_is_not_believed():
    types = body_types(loop())
    assert types["v"].shape == ("v[0]", 3) and types["w"].shape == (2, 3)  # it grows


def body_types(model):
    body = open_body(load(model).graph, (model.graph.node[-1].output[0], "body"), set())
    assert body is not None
    return {value.name: value.type for value in body.graph.values.values()}


def test_what_is_carried_has_the_shape_that_it_keeps():
    assert body_types(scan())["s"].shape == body_types(scan())["e"].shape == (3,)
    assert body_types(attention_loop())["v"].shape == ("b", 128, 64)
    turned = attention_loop()
    turned.graph.node[0].attribute[0].g.node.insert(0, helper.make_node("Transpose", ["v"], ["vt_"], perm=[0, 2, 1]))
    turned.graph.node[0].attribute[0].g.output[1].name = "vt_"
    assert body_types(turned)["v"].shape == ("b", "v[1]", "v[2]")
    flat = attention_loop()
    flat.graph.node[0].attribute[0].g.node.append(helper.make_node("Flatten", ["v"], ["vf"]))
    flat.graph.node[0].attribute[0].g.output[1].name = "vf"
    assert body_types(flat)["v"].shape is None


def attention_loop():
    """Attention of what is carried, four times over."""
    rng, nodes, weights = np.random.default_rng(0), list[onnx.NodeProto](), dict[str, np.ndarray]()
    for p in "qkv":
        weights[f"w{p}"] = (rng.standard_normal((64, 64)) / 10).astype(np.float32)
        nodes += [
            helper.make_node("MatMul", ["v", f"w{p}"], [f"{p}m"]),
            helper.make_node("Reshape", [f"{p}m", "heads"], [f"{p}r"]),
            helper.make_node("Transpose", [f"{p}r"], [f"{p}t"], perm=[0, 2, 3, 1] if p == "k" else [0, 2, 1, 3]),
        ]
    nodes += [
        helper.make_node("MatMul", ["qt", "kt"], ["scores"]),
        helper.make_node("Mul", ["scores", "scale"], ["scaled"]),
        helper.make_node("Softmax", ["scaled"], ["soft"], axis=-1),
        helper.make_node("MatMul", ["soft", "vt"], ["mixed"]),
        helper.make_node("Transpose", ["mixed"], ["back"], perm=[0, 2, 1, 3]),
        helper.make_node("Reshape", ["back", "whole"], ["joined"]),
        helper.make_node("Add", ["joined", "v"], ["o"]),
        helper.make_node("Identity", ["k"], ["ko"]),
    ]
    weights |= {"heads": np.array([0, 0, 4, 16]), "whole": np.array([0, 0, 64]), "scale": np.array(0.25, np.float32)}
    shape = ["b", 128, 64]
    body = helper.make_graph(
        nodes, "body", [info("i", LONG, []), info("k", BOOL, []), info("v", F, shape)],
        [info("ko", BOOL, []), info("o", F, shape)], [onnx.numpy_helper.from_array(w, n) for n, w in weights.items()],
    )  # fmt: skip
    turns = {"n": np.array(4), "go": np.array(True)}
    return proto(
        [helper.make_node("Loop", ["n", "go", "x"], ["y"], body=body)],
        [info("x", F, shape)],
        [info("y", F, shape)],
        turns,
        17,
    )


def test_what_pays_in_a_body_is_found_by_its_price(tmp_path):
    onnx.save(attention_loop(), tmp_path / "m.onnx")
    out, trace = tmp_path / "out.onnx", tmp_path / "trace.json"
    graphopt.optimize(tmp_path / "m.onnx", output=out, trace=trace, measure=False, strategy="greedy")
    steps = json.loads(trace.read_text())["steps"]
    priced = [step for step in steps if step["inside"] == ["y", "body"] and not step["alone"]]
    assert priced and all(step["cost_after"] < step["cost_before"] for step in priced)
    assert "Attention" in operators(onnx.load(out)) and "Softmax" not in operators(onnx.load(out))
    assert graphopt.verify(tmp_path / "m.onnx", out).passed
    replay(trace, tmp_path / "m.onnx", output=tmp_path / "again.onnx")
    assert (tmp_path / "again.onnx").read_bytes() == out.read_bytes()


@pytest.mark.parametrize("name", MODELS)
def test_optimize_writes_it_tells_it_and_makes_it_again(tmp_path, name):
    onnx.save(MODELS[name](), tmp_path / "m.onnx")
    out, trace = tmp_path / "out.onnx", tmp_path / "trace.json"
    result = graphopt.optimize(tmp_path / "m.onnx", output=out, trace=trace, measure=False, strategy="none")
    assert result.report["verified"]["passed"] and not result.report["kept_original"]
    assert result.report["nodes"]["after"] < result.report["nodes"]["before"]
    told = json.loads(trace.read_text())
    assert any(step["inside"] for step in told["steps"])
    replay(trace, tmp_path / "m.onnx", output=tmp_path / "again.onnx")
    assert (tmp_path / "again.onnx").read_bytes() == out.read_bytes()
    assert bisect(trace, tmp_path / "m.onnx").step is None
    assert sum(stage.steps for stage in stages(trace, tmp_path / "m.onnx", seconds=None)) == len(told["steps"])
    replay(trace, tmp_path / "m.onnx", output=tmp_path / "some.onnx", steps=len(told["steps"]) // 2)
    assert graphopt.verify(tmp_path / "m.onnx", tmp_path / "some.onnx").passed


def test_a_value_that_no_body_reads_any_more_goes():
    body = helper.make_graph(
        [helper.make_node("Shape", ["h"], ["hs"]), helper.make_node("Reshape", ["x", "hs"], ["tout"])],
        "then",
        [],
        [info("tout")],
    )
    nodes = [
        helper.make_node("Neg", ["x"], ["h"]),
        helper.make_node("If", ["c"], ["y"], then_branch=body, else_branch=branch("else", "x", "e")),
    ]
    loaded = load(proto(nodes, [info("x"), info("c", BOOL, [])], [info("y")]))
    graph, _ = normal_bodies(simplify(loaded.graph))
    assert operators(to_proto(emit(loaded, graph))) == ["Identity", "If", "Relu"]


def test_a_large_body_takes_no_longer_than_a_large_graph():
    nodes, last = [], "x"
    for i in range(300):
        nodes += [helper.make_node("Identity", [last], [f"i{i}"]), helper.make_node("Tanh", [f"i{i}"], [f"t{i}"])]
        last = f"t{i}"
    then = helper.make_graph([*nodes, helper.make_node("Relu", [last], ["tout"])], "then", [], [info("tout")])
    node = helper.make_node("If", ["c"], ["y"], then_branch=then, else_branch=branch("else", "x", "e"))
    graph = simplify(load(proto([node], [info("x"), info("c", BOOL, [])], [info("y")])).graph)
    began = time.process_time()
    assert len(normal_bodies(graph)[1]) >= 300
    assert time.process_time() - began < 5.0  # 0.2 s; opened once for each step it took 27


def test_new_names_are_no_names_of_what_is_around():
    """A body's new constant may have no name that anything has that the body could capture."""
    loaded = load(choice())
    graph, _ = normal_bodies(simplify(loaded.graph))
    made = to_proto(emit(loaded, graph))
    outer = {name for node in made.graph.node for name in node.output} | {i.name for i in made.graph.input}
    for node in made.graph.node:
        for attribute in node.attribute:
            assert outer.isdisjoint(name for n in attribute.g.node for name in n.output)


def test_a_body_in_which_no_rule_holds_is_simplified_as_well(tmp_path):
    """Equal nodes, one that nothing reads, and one that computes a constant, beside an Identity outside."""
    nodes = [
        helper.make_node("Relu", ["x"], ["a"]),
        helper.make_node("Relu", ["x"], ["b"]),
        helper.make_node("Sin", ["h"], ["dead"]),
        helper.make_node("Exp", ["k"], ["e"]),
        helper.make_node("Mul", ["a", "e"], ["m"]),
        helper.make_node("Add", ["m", "b"], ["tout"]),
    ]
    weight = onnx.numpy_helper.from_array(np.arange(3, dtype=np.float32), "k")
    then = helper.make_graph(nodes, "then", [], [info("tout")], [weight])
    other = helper.make_graph([helper.make_node("Tanh", ["x"], ["eout"])], "else", [], [info("eout")])
    around = [
        helper.make_node("Neg", ["x"], ["h"]),
        helper.make_node("Identity", ["c"], ["d"]),
        helper.make_node("If", ["d"], ["y"], then_branch=then, else_branch=other),
    ]
    onnx.save(proto(around, [info("x"), info("c", BOOL, [])], [info("y")]), tmp_path / "m.onnx")
    out, trace = tmp_path / "out.onnx", tmp_path / "trace.json"
    graphopt.optimize(tmp_path / "m.onnx", output=out, trace=trace, measure=False, strategy="none")
    assert operators(onnx.load(out)) == ["Add", "Constant", "If", "Mul", "Relu", "Tanh"]
    assert graphopt.verify(tmp_path / "m.onnx", out).passed
    replay(trace, tmp_path / "m.onnx", output=tmp_path / "again.onnx")
    assert (tmp_path / "again.onnx").read_bytes() == out.read_bytes()


def settled(taken, then_nodes, weights=()):
    """``If`` of a constant that is computed, behind an Identity that a rule takes away."""
    then = helper.make_graph(then_nodes, "then", [], [info("tout"), info("tout2")], weights)
    other = helper.make_graph(
        [*noise("h", "eout", "e"), helper.make_node("Sin", ["x"], ["eout2"])], "else", [], [info("eout"), info("eout2")]
    )
    nodes = [
        helper.make_node("Identity", ["x"], ["i"]),
        helper.make_node("Neg", ["i"], ["h"]),
        helper.make_node("Not", ["never"], ["always"]),
        helper.make_node("If", ["always"], ["y", "z"], then_branch=then, else_branch=other),
        helper.make_node("Abs", ["y"], ["w"]),
    ]
    return proto(nodes, [info("x")], [info("w"), info("z")], {"never": np.array(not taken)})


PLAIN = [
    helper.make_node("Mul", ["h", "k"], ["m"]),
    helper.make_node("Tanh", ["m"], ["tout"]),
    helper.make_node("Identity", ["h"], ["tout2"]),
]
DRAWN = [*PLAIN[:2], helper.make_node("RandomNormalLike", ["h"], ["tout2"])]
WEIGHT = onnx.numpy_helper.from_array(np.full(3, 2, np.float32), "k")


@pytest.mark.parametrize(
    ("taken", "then", "left"),
    [
        (True, PLAIN, ["Abs", "Mul", "Neg", "Tanh"]),
        (False, PLAIN, ["Abs", "Neg", "Relu", "Sin"]),
        (True, DRAWN, ["Abs", "Mul", "Neg", "RandomNormalLike", "Tanh"]),
    ],
)
def test_of_an_if_that_always_takes_a_branch_the_branch_is_left(tmp_path, taken, then, left):
    onnx.save(settled(taken, then, [WEIGHT]), tmp_path / "m.onnx")
    out, trace = tmp_path / "out.onnx", tmp_path / "trace.json"
    graphopt.optimize(tmp_path / "m.onnx", output=out, trace=trace, measure=False, strategy="none")
    assert operators(onnx.load(out)) == left
    assert graphopt.verify(tmp_path / "m.onnx", out).passed
    replay(trace, tmp_path / "m.onnx", output=tmp_path / "again.onnx")
    assert (tmp_path / "again.onnx").read_bytes() == out.read_bytes()
