"""What no rule understands is carried through: bodies, functions, custom operators, quantised units, containers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import ModelProto, TensorProto, helper

from graphopt.api import first_run, session_config
from graphopt.errors import ModelError, UnsupportedModelError
from graphopt.ir.edit import Edit
from graphopt.ir.graph import UNIT
from graphopt.ir.simplify import simplify
from graphopt.onnxio.emit import emit
from graphopt.onnxio.load import load
from graphopt.onnxio.save import to_proto
from graphopt.rewrite.sites import Sites
from tests.ir.check import problems
from tests.ir.text import to_text
from tests.onnxio.models import (
    DROP_IDENTITY,
    INT,
    B,
    F,
    body,
    identical,
    library,
    model,
    node,
    normal,
    rewritten,
    rule,
    run,
    same,
    through,
    weight,
)

X = np.array([-1.0, 2.0, 3.0], np.float32)
DOUBLE = rule("relu-of-relu", ["r = Relu(x)", "y = Relu(r)"], ["y = Relu(x)"], equal="exact")


def branches(then: str = "y", other: str = "y") -> dict[str, Any]:
    return {
        "then_branch": body([node("Relu", [then], ["t"])], [("t", F, [3])]),
        "else_branch": body([node("Neg", [other], ["e"])], [("e", F, [3])]),
    }


def choosing(*nodes: onnx.NodeProto, outputs: tuple[str, ...] = ("z",), **names: str) -> ModelProto:
    """A model whose last node is an If that captures ``y`` from outside."""
    last = node("If", ["c"], ["z"], **branches(**names))
    return model([*nodes, last], [("x", F, [3]), ("c", B, [])], [(o, F, [3]) for o in outputs])


CAPTURES: dict[str, Callable[[], ModelProto]] = {
    "a value": lambda: choosing(node("Abs", ["x"], ["y"])),
    "an alias of an input": lambda: choosing(node("Identity", ["x"], ["y"])),
    "an alias of a node": lambda: choosing(node("Abs", ["x"], ["a"]), node("Identity", ["a"], ["y"])),
    "an output that becomes an input": lambda: choosing(node("Identity", ["x"], ["y"]), outputs=("z", "y")),
    "an output that becomes a node": lambda: choosing(
        node("Abs", ["x"], ["a"]), node("Identity", ["a"], ["y"]), outputs=("y", "z")
    ),
    "both names of a value": lambda: choosing(
        node("Abs", ["x"], ["a"]), node("Identity", ["a"], ["y"]), outputs=("y", "z"), other="a"
    ),
    "a chain of aliases": lambda: choosing(
        node("Abs", ["x"], ["a"]), node("Identity", ["a"], ["y"]), node("Identity", ["y"], ["w"]),
        outputs=("y", "w", "z"), other="w",
    ),
    "a redefined value": lambda: choosing(node("Relu", ["x"], ["a"]), node("Relu", ["a"], ["y"])),
    "a redefined output": lambda: choosing(node("Relu", ["x"], ["a"]), node("Relu", ["a"], ["y"]), outputs=("y", "z")),
    "twins": lambda: choosing(
        node("Abs", ["x"], ["y"]), node("Abs", ["x"], ["w"]), node("Relu", ["w"], ["v"]), outputs=("z", "v"), other="w"
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CAPTURES)
def test_if_captures(name: str, tmp_path: Path) -> None:
    proto = CAPTURES[name]()
    out, _, _ = through(proto, tmp_path, library(DROP_IDENTITY, DOUBLE))
    onnx.checker.check_model(str(out), full_check=True)
    assert [o.name for o in onnx.load(out).graph.output] == [o.name for o in proto.graph.output]
    for flag in (True, False):
        feeds = {"x": X, "c": np.array(flag)}
        same(run(out, feeds), run(proto, feeds))


def test_two_bodies_read_a_name_that_is_gone(tmp_path: Path) -> None:
    ifs = [node("If", ["c"], [f"z{i}"], **branches()) for i in range(2)]
    proto = model(
        [node("Identity", ["x"], ["y"]), *ifs], [("x", F, [3]), ("c", B, [])], [("z0", F, [3]), ("z1", F, [3])]
    )
    out, _, _ = through(proto, tmp_path, library(DROP_IDENTITY))
    feeds = {"x": X, "c": np.array(False)}
    same(run(out, feeds), run(proto, feeds))


def test_nested_bodies(tmp_path: Path) -> None:
    inner = node("If", ["c"], ["u"], **branches("y", "w"))
    outer = node(
        "If", ["c"], ["z"],
        then_branch=body([inner, node("Add", ["u", "y"], ["t2"])], [("t2", F, [3])]),
        else_branch=body([node("Identity", ["w"], ["e2"])], [("e2", F, [3])]),
    )  # fmt: skip
    proto = model(
        [node("Identity", ["x"], ["y"]), node("Relu", ["x"], ["a"]), node("Relu", ["a"], ["w"]), outer],
        [("x", F, [3]), ("c", B, [])], [("z", F, [3])],
    )  # fmt: skip
    out, loaded, _ = through(proto, tmp_path, library(DROP_IDENTITY, DOUBLE))
    assert next(n for n in loaded.graph.nodes.values() if n.op == "If").captures == ("c", "w", "y")
    for flag in (True, False):
        feeds = {"x": X, "c": np.array(flag)}
        same(run(out, feeds), run(proto, feeds))


def test_a_body_hides_an_outer_name(tmp_path: Path) -> None:
    # 'y' of the body is its own; the outer 'y' must not be seen as captured.
    inner = body([node("Relu", ["x"], ["y_"]), node("Neg", ["y_"], ["t"])], [("t", F, [3])])
    proto = model(
        [node("Abs", ["x"], ["y"]), node("If", ["c"], ["z"], then_branch=inner, else_branch=inner)],
        [("x", F, [3]), ("c", B, [])], [("z", F, [3]), ("y", F, [3])],
    )  # fmt: skip
    assert next(n for n in load(proto).graph.nodes.values() if n.op == "If").captures == ("x",)


def loop() -> ModelProto:
    """Adds a captured value, itself an alias, in every round."""
    round_ = body(
        [node("Add", ["s", "y"], ["s2"]), node("Identity", ["go"], ["go2"]), node("Mul", ["s2", "k"], ["o"])],
        [("go2", B, []), ("s2", F, [3]), ("o", F, [3])],
        [("i", INT, []), ("go", B, []), ("s", F, [3])],
    )
    return model(
        [
            node("Identity", ["x"], ["y"]),
            node("Identity", ["w"], ["k"]),
            node("Loop", ["n", "", "x"], ["last", "all"], body=round_),
        ],
        [("x", F, [3])], [("last", F, [3]), ("all", F, ["rounds", 3])],
        [weight("n", np.array(4)), weight("w", np.array([2.0, 3.0, 4.0], np.float32))],
    )  # fmt: skip


def scan() -> ModelProto:
    step = body(
        [node("Add", ["s", "e"], ["s1"]), node("Add", ["s1", "y"], ["s2"]), node("Identity", ["s2"], ["o"])],
        [("s2", F, [3]), ("o", F, [3])],
        [("s", F, [3]), ("e", F, [3])],
    )
    return model(
        [node("Identity", ["x"], ["y"]), node("Scan", ["x", "m"], ["last", "all"], body=step, num_scan_inputs=1)],
        [("x", F, [3]), ("m", F, [5, 3])], [("last", F, [3]), ("all", F, [5, 3])],
    )  # fmt: skip


@pytest.mark.parametrize("make", [loop, scan])
def test_loops_capture(make: Callable[[], ModelProto], tmp_path: Path) -> None:
    proto = make()
    out, _, graph = through(proto, tmp_path, library(DROP_IDENTITY))
    assert "Identity" not in {n.op for n in graph.nodes.values() if not graph.is_lazy(n)}
    feeds = {"x": X, "m": np.ones((5, 3), np.float32)}
    feeds = {i.name: feeds[i.name] for i in proto.graph.input}
    same(run(out, feeds), run(proto, feeds))
    onnx.checker.check_model(str(out), full_check=True)


def test_captured_constants(tmp_path: Path) -> None:
    then = body([node("Add", ["y", "q"], ["t"])], [("t", F, [3])])
    other = body([node("Add", ["w", "k"], ["e"])], [("e", F, [3])])
    proto = model(
        [
            node("Identity", ["w"], ["y"]),
            node("Neg", ["w"], ["q"]),
            node("Constant", [], ["k"], value=weight("", X)),
            node("Identity", ["c"], ["d"]),
            node("If", ["d"], ["z"], then_branch=then, else_branch=other),
        ],
        [("c", B, [])], [("z", F, [3])], [weight("w", 2 * X)],
    )  # fmt: skip
    for ir_version in (3, 8):
        proto.ir_version = ir_version
        if ir_version == 3:
            proto.graph.input.append(helper.make_tensor_value_info("w", F, [3]))
        out, _, _ = through(
            proto, tmp_path, library(rule("cut", ["d = Identity(c)"], ["d = c"], where=["not is_const(c)"]))
        )
        assert {n.op_type for n in onnx.load(out).graph.node} <= {
            "If",
            "Constant",
        }  # the captured constants were folded
        onnx.checker.check_model(str(out), full_check=True)
        for flag in (True, False):
            same(run(out, {"c": np.array(flag)}), run(proto, {"c": np.array(flag)}))
        if ir_version == 3:
            proto.graph.input.pop()


def test_model_local_functions(tmp_path: Path) -> None:
    shifted = helper.make_function(
        "here", "Shifted", ["a", "b"], ["r"],
        [node("Add", ["a", "b"], ["s"]), node("Elu", ["s"], ["r"], domain="")],
        [helper.make_opsetid("", 17)], ["unused"],
    )  # fmt: skip
    # It has the name of a standard operator, but not its meaning.
    relu = helper.make_function(
        "here", "Relu", ["a"], ["r"], [node("Neg", ["a"], ["r"])], [helper.make_opsetid("", 17)]
    )
    proto = model(
        [
            node("Identity", ["x"], ["i"]),
            node("Shifted", ["i", "w"], ["h"], domain="here"),
            node("Relu", ["h"], ["r"], domain="here"),
            node("Relu", ["r"], ["y"], domain="here"),
        ],
        [("x", F, [3])], [("y", F, [3])], [weight("w", X)], domains={"here": 1}, functions=[shifted, relu],
    )  # fmt: skip
    out, _, _ = through(proto, tmp_path, library(DROP_IDENTITY, DOUBLE))
    assert not onnx.load(out).functions
    assert [n.op_type for n in onnx.load(out).graph.node] == ["Add", "Elu", "Neg", "Neg"]
    same(run(out, {"x": X}), run(proto, {"x": X}))


def _calling(domain: str, *nodes: onnx.NodeProto, opset: int = 17, **more: Sequence[onnx.NodeProto]) -> onnx.ModelProto:
    """A model that calls a function ``F`` of these nodes, from ``a`` to ``r``; ``more`` are others by their names."""
    imports = [helper.make_opsetid("", opset), helper.make_opsetid(domain, 1)]
    functions = [
        helper.make_function(domain, name, ["a"], ["r"], list(body), imports)
        for name, body in {"F": nodes, **more}.items()
    ]
    call = node("F", ["x"], ["y"], domain=domain)
    return model([call], [("x", F, [3])], [("y", F, [3])], domains={domain: 1}, functions=functions)


ABS = node("Abs", ["a"], ["r"])


def _ten_of(name: str) -> list[onnx.NodeProto]:
    return [node(name, [f"t{i}" if i else "a"], [f"t{i + 1}" if i < 9 else "r"], domain="here") for i in range(10)]


@pytest.mark.parametrize(
    "proto",
    [
        pytest.param(_calling("com.microsoft", ABS), id="the runtime may have a kernel"),
        pytest.param(_calling("here", ABS, opset=16), id="another operator set"),
        pytest.param(_calling("here", *_ten_of("F")), id="itself"),
        pytest.param(_calling("here", *_ten_of("G"), G=_ten_of("F")), id="each other"),
    ],
)
def test_functions_that_stay(proto: onnx.ModelProto) -> None:
    assert [n.opaque for n in load(proto).graph.in_order()] == ["model-local function"]


@pytest.mark.parametrize(("inside", "stays"), [("", False), ("here", True)])
def test_the_version_of_a_domain_counts_where_it_has_operators(inside: str, stays: bool) -> None:
    """jax2onnx has each function import its own domain in the version of ONNX's operator set, and the model in version 1."""
    body = [node("G", ["a"], ["b"], domain="here"), node("Abs", ["b"], ["r"], domain=inside)]
    proto = _calling("here", *body, G=[ABS])
    for function in proto.functions:
        function.opset_import[1].version = 17
    assert ([n.opaque for n in load(proto).graph.in_order()] == ["model-local function"]) is stays


def test_what_is_beside_a_function_that_calls_itself_has_a_shape() -> None:
    proto = _calling("here", *_ten_of("F"))
    proto.graph.node.append(node("Transpose", ["w"], ["z"]))
    proto.graph.input.append(helper.make_tensor_value_info("w", F, [2, 3]))
    proto.graph.output.append(helper.make_tensor_value_info("z", F, None))
    graph = load(proto).graph
    assert [str(graph.type(key)) for name, key in graph.outputs if name == "z"] == ["f32[3,2]"]


def test_an_overload_that_calls_another_does_not_call_itself() -> None:
    proto = _calling("here", node("F", ["a"], ["r"], domain="here", overload="inner"))
    proto.ir_version = 10
    inner = proto.functions.add()
    inner.CopyFrom(proto.functions[0])
    inner.overload, inner.node[0].op_type, inner.node[0].domain, inner.node[0].overload = "inner", "Abs", "", ""
    assert [n.op for n in load(proto).graph.in_order()] == ["Abs"]


def test_functions_that_are_too_much() -> None:
    many = {f"F{i}": _ten_of(f"F{i + 1}") for i in range(11)}
    with pytest.raises(ModelError, match="more than 1,000,000 nodes"):
        load(_calling("here", *_ten_of("F0"), **many, F11=[ABS]))


def test_functions_within_functions_and_bodies(tmp_path: Path) -> None:
    inner = helper.make_function(
        "here", "Bent", ["a"], ["r"], [node("LeakyRelu", ["a"], ["r"])], [helper.make_opsetid("", 17)], ["alpha"]
    )
    inner.node[0].attribute.add(name="alpha", ref_attr_name="alpha", type=onnx.AttributeProto.FLOAT)
    branches = [
        body([node("Bent", ["a"], ["t"], domain="here", alpha=alpha)], [("t", F, [3])]) for alpha in (0.25, 0.5)
    ]
    outer = helper.make_function(
        "there", "Either", ["a", "c"], ["r"], [node("If", ["c"], ["r"], then_branch=branches[0], else_branch=branches[1])],
        [helper.make_opsetid("", 17), helper.make_opsetid("here", 1)],
    )  # fmt: skip
    proto = model(
        [node("Either", ["x", "c"], ["e"], domain="there"), node("Bent", ["e"], ["y"], domain="here", alpha=2.0)],
        [("x", F, [3]), ("c", onnx.TensorProto.BOOL, [])], [("y", F, [3])], domains={"here": 1, "there": 1}, functions=[inner, outer],
    )  # fmt: skip
    out, _, _ = through(proto, tmp_path, library(DROP_IDENTITY))
    assert [n.op_type for n in onnx.load(out).graph.node] == ["If", "LeakyRelu"]
    for flag in (True, False):
        feeds = {"x": X, "c": np.array(flag)}
        same(run(out, feeds), run(proto, feeds))


def test_a_function_is_called_with_its_defaults(tmp_path: Path) -> None:
    """onnx's inliner leaves them out, in the graph, in bodies and in other functions."""
    imports = [helper.make_opsetid("", 17), helper.make_opsetid("here", 1)]
    bent = helper.make_function("here", "Bent", ["a"], ["r"], [node("LeakyRelu", ["a"], ["r"])], imports[:1])
    bent.node[0].attribute.add(name="alpha", ref_attr_name="slope", type=onnx.AttributeProto.FLOAT)
    bent.attribute_proto.add(name="slope", f=2.0, type=onnx.AttributeProto.FLOAT)
    twice = helper.make_function(
        "here", "Twice", ["a"], ["r"],
        [node("Bent", ["a"], ["t"], domain="here"), node("Bent", ["t"], ["r"], domain="here")], imports,
    )  # fmt: skip
    twice.node[1].attribute.add(name="slope", ref_attr_name="last", type=onnx.AttributeProto.FLOAT)
    twice.attribute_proto.add(name="last", f=3.0, type=onnx.AttributeProto.FLOAT)
    branches = [
        body([node("Bent", ["t"], [name], domain="here", **said)], [(name, F, [3])])
        for name, said in (("p", {}), ("q", {"slope": 0.5}))
    ]
    proto = model(
        [node("Twice", ["x"], ["t"], domain="here"), node("If", ["c"], ["y"], then_branch=branches[0], else_branch=branches[1])],
        [("x", F, [3]), ("c", onnx.TensorProto.BOOL, [])], [("y", F, [3])], domains={"here": 1}, functions=[bent, twice],
    )  # fmt: skip
    out, _, _ = through(proto, tmp_path, library(DROP_IDENTITY))
    assert [n.op_type for n in onnx.load(out).graph.node] == ["LeakyRelu", "LeakyRelu", "If"]
    for flag in (True, False):
        feeds = {"x": X, "c": np.array(flag)}
        same(run(out, feeds), run(proto, feeds))


@pytest.mark.parametrize("said", [{}, {"slope": 0.5}])
def test_a_function_keeps_a_default_that_its_caller_leaves_open(tmp_path: Path, said: dict[str, float]) -> None:
    """What calls it has an attribute of that name, which its own callers may leave out."""
    imports = [helper.make_opsetid("", 17), helper.make_opsetid("here", 1)]
    bent = helper.make_function("here", "Bent", ["a"], ["r"], [node("LeakyRelu", ["a"], ["r"])], imports[:1])
    bent.node[0].attribute.add(name="alpha", ref_attr_name="slope", type=onnx.AttributeProto.FLOAT)
    bent.attribute_proto.add(name="slope", f=2.0, type=onnx.AttributeProto.FLOAT)
    through_it = helper.make_function(
        "here", "Through", ["a"], ["r"], [node("Bent", ["a"], ["r"], domain="here")], imports, ["slope"]
    )
    through_it.node[0].attribute.add(name="slope", ref_attr_name="slope", type=onnx.AttributeProto.FLOAT)
    proto = model(
        [node("Identity", ["x"], ["i"]), node("Through", ["i"], ["y"], domain="here", **said)],
        [("x", F, [3])], [("y", F, [3])], domains={"here": 1}, functions=[bent, through_it],
    )  # fmt: skip
    out, _, _ = through(proto, tmp_path, library(DROP_IDENTITY))
    assert len(onnx.load(out).graph.node) == 1
    same(run(out, {"x": X}), run(proto, {"x": X}))


def test_custom_operators_stay_in_place(tmp_path: Path) -> None:
    # Two equal calls may do two different things, and one that nothing reads may act on the world.
    proto = model(
        [
            node("Relu", ["x"], ["r"]),
            node("Relu", ["r"], ["q"]),
            node("Draw", ["q"], ["a"], domain="my.ops", seed=1, name="first"),
            node("Draw", ["q"], ["b"], domain="my.ops", seed=1, name="second"),
            node("Log", ["a"], [], domain="my.ops", name="log"),
            node("Unread", ["b", ""], ["", "u"], domain="my.ops"),
            node("Add", ["a", "b"], ["y"]),
        ],
        [("x", F, [3])], [("y", F, [3])], domains={"my.ops": 3},
    )  # fmt: skip
    out, _, _ = through(proto, tmp_path, library(DOUBLE))
    saved = onnx.load(out)
    custom = [n for n in saved.graph.node if n.domain]
    # The rule let 'q' become 'r'.
    assert [(n.name, n.op_type, list(n.input), list(n.output)) for n in custom] == [
        ("first", "Draw", ["r"], ["a"]),
        ("second", "Draw", ["r"], ["b"]),
        ("log", "Log", ["a"], []),
        ("", "Unread", ["b", ""], ["", "u"]),
    ]
    assert len(saved.graph.node) == 6
    assert {o.domain: o.version for o in saved.opset_import} == {"": 17, "my.ops": 3}
    assert problems(simplify(load(out).graph)) == []


def test_a_rule_may_not_remove_a_custom_operator(tmp_path: Path) -> None:
    proto = model(
        [node("Count", ["x"], ["n"], domain="my.ops"), node("Identity", ["n"], ["i"]), node("Identity", ["x"], ["y"])],
        [("x", F, [3])], [("y", F, [3])], domains={"my.ops": 1},
    )  # fmt: skip
    graph, done = rewritten(simplify(load(proto).graph), library(DROP_IDENTITY))
    assert [n.op for n in graph.in_order()] == ["Count"]
    assert done == 1


def test_random_nodes_are_not_merged() -> None:
    proto = model(
        [node("RandomNormalLike", ["x"], [name]) for name in "ab"] + [node("Sub", ["a", "b"], ["y"])],
        [("x", F, [3])],
        [("y", F, [3])],
    )
    assert len(simplify(load(proto).graph).nodes) == 3


def quantised(rng: np.random.Generator) -> ModelProto:
    """A Conv in integers with what surrounds it in floats."""
    nodes = [
        node("Identity", ["x"], ["x0"]),
        node("QuantizeLinear", ["x0", "s", "z"], ["xq"]),
        node("DequantizeLinear", ["xq", "s", "z"], ["xd"]),
        node("DequantizeLinear", ["wq", "ws", "wz"], ["wd"]),
        node("Conv", ["xd", "wd"], ["c"]),
        node("Relu", ["c"], ["r"]),
        node("QuantizeLinear", ["r", "s", "z"], ["rq"]),
        node("DequantizeLinear", ["rq", "s", "z"], ["rd"]),
        node("Relu", ["rd"], ["r2"]),
        node("Relu", ["r2"], ["r3"]),
        node("Relu", ["r3"], ["y"]),
    ]
    weights = [
        weight("s", np.float32(0.1)),
        weight("z", np.uint8(128)),
        weight("ws", np.float32(0.02)),
        weight("wz", np.int8(0)),
        weight("wq", rng.integers(-100, 100, (4, 3, 3, 3)).astype(np.int8)),
    ]  # fmt: skip
    return model(nodes, [("x", F, [1, 3, 8, 8])], [("y", F, [1, 4, 6, 6])], weights)


def test_quantised_units_stay_whole(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    proto = quantised(rng)
    eager = rule("conv-to-double", ["y = Conv<*a>(x, w, b?)"], ["v = Add(w, w)", "y = Conv<*a>(x, v, b?)"])
    out, loaded, graph = through(proto, tmp_path, library(DROP_IDENTITY, DOUBLE, eager), max_bytes=10**6)
    saved = onnx.load(out)
    assert [n.op_type for n in saved.graph.node] == [
        "QuantizeLinear", "DequantizeLinear", "DequantizeLinear", "Conv", "Relu", "QuantizeLinear",
        "DequantizeLinear", "Relu", "Relu",
    ]  # fmt: skip
    assert [t.name for t in saved.graph.initializer] == ["s", "z", "ws", "wz", "wq"]
    x = normal(rng, 1, 3, 8, 8)
    same(run(out, {"x": x}), run(proto, {"x": x}))
    wd = next(v for v in graph.values.values() if v.name == "wd")
    assert not wd.const  # else the integer weight would be folded to floats
    assert {n.opaque for n in loaded.graph.nodes.values()} == {"", "quantisation", "quantised neighbour"}


def containers() -> ModelProto:
    sequence = helper.make_tensor_sequence_value_info
    nodes = [
        node("Identity", ["x"], ["x0"]),
        node("SequenceConstruct", ["x0", "x"], ["s"]),
        node("Identity", ["s"], ["s1"]),
        node("SequenceInsert", ["s1", "w"], ["s2"]),
        node("SequenceAt", ["s2", "i"], ["a"]),
        node("SequenceLength", ["s2"], ["n"]),
        node("Optional", ["a"], ["o"]),
        node("OptionalGetElement", ["o"], ["y"]),
        node("SplitToSequence", ["x", "one"], ["parts"], axis=0),
        node("ConcatFromSequence", ["parts"], ["z"], axis=0),
    ]
    proto = model(
        nodes, [("x", F, [3])], [("y", F, [3]), ("n", INT, []), ("z", F, [3])],
        [weight("w", X), weight("i", np.array(2)), weight("one", np.array(1))], opset=18,
    )  # fmt: skip
    proto.graph.output.append(sequence("s2", F, None))
    return proto


def test_sequences_and_optionals(tmp_path: Path) -> None:
    proto = containers()
    out, _, graph = through(proto, tmp_path, library(DROP_IDENTITY, DOUBLE))
    assert [n.op for n in graph.nodes.values()].count("Identity") == 1  # of the sequence: no rule sees it
    got, wanted = run(out, {"x": X}), run(proto, {"x": X})
    same(got[:3], wanted[:3])
    same(got[3], wanted[3])
    assert onnx.load(out).graph.output[3] == proto.graph.output[3]


def test_sparse_weights(tmp_path: Path) -> None:
    values = weight("w", np.array([5.0, 7.0], np.float32))
    sparse = helper.make_sparse_tensor(values, weight("", np.array([1, 5])), [2, 3])
    other = helper.make_sparse_tensor(weight("", np.array([2.0], np.float32)), weight("", np.array([2])), [3])
    nodes = [
        node("Identity", ["x"], ["i"]),
        node("Add", ["i", "w"], ["h"]),
        node("Constant", [], ["c"], sparse_value=other),
        node("Add", ["h", "c"], ["y"]),
    ]
    proto = model(nodes, [("x", F, [2, 3])], [("y", F, [2, 3])])
    proto.graph.sparse_initializer.append(sparse)
    out, loaded, _ = through(proto, tmp_path, library(DROP_IDENTITY))
    assert [s.values.name for s in onnx.load(out).graph.sparse_initializer] == ["w"]
    assert [n.op_type for n in onnx.load(out).graph.node] == ["Add", "Constant", "Add"]
    assert not any(v.const for v in loaded.graph.values.values())
    x = np.zeros((2, 3), np.float32)
    same(run(out, {"x": x}), [np.array([[0, 5, 2], [0, 0, 9]], np.float32)])


def test_sparse_weights_that_are_inputs_as_well(tmp_path: Path) -> None:
    """The runtime does not ask for them."""
    sparse = helper.make_sparse_tensor(weight("w", np.array([5.0], np.float32)), weight("", np.array([1])), [2, 3])
    nodes = [node("Identity", ["x"], ["i"]), node("Add", ["i", "w"], ["y"])]
    proto = model(nodes, [("x", F, [2, 3]), ("w", F, [2, 3])], [("y", F, [2, 3])])
    proto.graph.sparse_initializer.append(sparse)
    out, _, _ = through(proto, tmp_path, library(DROP_IDENTITY))
    x = np.zeros((2, 3), np.float32)
    same(run(out, {"x": x}), [np.array([[0, 5, 0], [0, 0, 0]], np.float32)])


def test_a_sparse_output_is_told(tmp_path: Path) -> None:
    sparse = helper.make_sparse_tensor(weight("w", np.array([5.0], np.float32)), weight("", np.array([1])), [2, 3])
    proto = model([node("Neg", ["x"], ["y"])], [("x", F, [2, 3])], [("y", F, [2, 3]), ("w", F, [2, 3])])
    proto.graph.sparse_initializer.append(sparse)
    with pytest.raises(UnsupportedModelError, match="output 'w' is a sparse tensor"):
        first_run(load(proto), session_config(), {}, (), {}, 0)


def test_what_stretches_over_sparse_weights_has_their_shape() -> None:
    def sparse(name: str) -> onnx.SparseTensorProto:
        return helper.make_sparse_tensor(weight(name, np.array([5.0], np.float32)), weight("", np.array([1])), [2, 3])

    def doubled(name: str) -> onnx.GraphProto:
        made = helper.make_graph([node("Mul", ["x", name], [f"y_{name}"])], name, [], [])
        made.output.append(helper.make_tensor_value_info(f"y_{name}", F, None))
        made.sparse_initializer.append(sparse(name))
        return made

    nodes = [
        node("Mul", ["x", "w"], ["y"]),
        node("If", ["b"], ["z"], then_branch=doubled("v"), else_branch=doubled("u")),
        node("Neg", ["z"], ["n"]),
    ]
    proto = model(nodes, [("x", F, []), ("b", B, [])], [("y", F, None), ("n", F, None)])
    proto.graph.sparse_initializer.append(sparse("w"))
    graph = simplify(load(proto).graph)
    shapes = {v.name: v.type.shape for v in graph.values.values()}
    got = run(proto, {"x": np.array(2, np.float32), "b": np.array(True)})
    assert [shapes["y"], shapes["n"]] == [a.shape for a in got] == [(2, 3), (2, 3)]


def test_opaque_nodes_match_nothing() -> None:
    greedy = rule("any", ["y = @unary:f(x)"], ["y = $f(x)"])
    for proto in (choosing(node("Abs", ["x"], ["y"])), containers(), quantised(np.random.default_rng(0))):
        graph = load(proto).graph
        matched = [
            (m.rule.id, graph.nodes[id]) for m in Sites.of(graph, library(greedy, DROP_IDENTITY)) for id in m.nodes
        ]
        assert matched
        # What hands on what goes into a unit, or comes out of one, is no part of it.
        opaque = [(rule, node.op, node.opaque) for rule, node in matched if node.opaque]
        assert set(opaque) <= {("drop-identity", "Identity", UNIT)}


def test_untouched_nodes_keep_every_bit(tmp_path: Path) -> None:
    proto = model(
        [
            node("Identity", ["x"], ["i"]),
            node("Clip", ["i", "", "m"], ["k"], name="clip", doc_string="why"),
            node("Dropout", ["k"], ["d", ""], name="drop"),
            node("LeakyRelu", ["d"], ["y"], alpha=0.1, name="leaky"),
        ],
        [("x", F, [3])], [("y", F, [3])], [weight("m", np.float32(2))],
    )  # fmt: skip
    proto.graph.node[3].metadata_props.add(key="origin", value="layer 3")
    out, _, _ = through(proto, tmp_path, library(DROP_IDENTITY))
    wanted = proto.graph.node[1:]
    wanted[0].input[0] = "x"
    assert list(onnx.load(out).graph.node) == list(wanted)
    same(run(out, {"x": X}), run(proto, {"x": X}))


def test_an_unknown_attribute_kind_is_opaque() -> None:
    foo = node("Foo", ["x"], ["y"], domain="my.ops", t=helper.make_tensor_type_proto(F, [2]))
    proto = model([foo], [("x", F, [3])], [("y", F, [3])], domains={"my.ops": 1})
    loaded = load(proto)
    assert "my.ops.Foo<t=...>" in to_text(loaded.graph)
    edit = Edit(loaded.graph)
    assert identical(to_proto(emit(loaded, edit.commit()[0])), proto)


def test_dtypes_that_numpy_lacks(tmp_path: Path) -> None:
    kinds = (
        TensorProto.BFLOAT16,
        TensorProto.FLOAT8E4M3FN,
        TensorProto.FLOAT8E5M2,
        TensorProto.INT4,
        TensorProto.UINT4,
    )
    x = np.zeros(5, np.float32)
    for kind in kinds:
        for size in (5, 4099):
            packed = helper.make_tensor("w", kind, [size], np.arange(size) % 5)
            raw = onnx.numpy_helper.from_array(onnx.numpy_helper.to_array(packed), "w")
            for tensor in (packed, raw):
                nodes = [
                    node("Cast", ["w"], ["f"], to=F),
                    node("Identity", ["x"], ["i"]),
                    node("Slice", ["f", "zero", "five"], ["g"]),
                    node("Add", ["i", "g"], ["y"]),
                ]
                bounds = [weight("zero", np.array([0])), weight("five", np.array([5]))]
                proto = model(nodes, [("x", F, [5])], [("y", F, [5])], [tensor, *bounds], opset=21, ir_version=10)
                out, _, _ = through(proto, tmp_path, simplified=False)
                assert identical(onnx.load(out), proto)
                for limit in (None, 10**6):
                    out, _, _ = through(proto, tmp_path, library(DROP_IDENTITY), max_bytes=limit)
                    same(run(out, {"x": x}), [np.arange(5, dtype=np.float32)])


@pytest.mark.parametrize("kind", [np.float16, np.float64, np.int8, np.uint16, np.uint64, np.bool_])
def test_plain_dtypes(kind: Any, tmp_path: Path) -> None:
    array = np.arange(12).reshape(3, 4).astype(kind)
    for tensor in (weight("w", array), weight("w", np.tile(array, (100, 100)))):
        proto = model(
            [node("Identity", ["w"], ["y"]), node("Identity", ["x"], ["z"])], [("x", F, [3])],
            [("y", tensor.data_type, None), ("z", F, [3])], [tensor],
        )  # fmt: skip
        out, _, _ = through(proto, tmp_path, library(DROP_IDENTITY))
        got, _ = run(out, {"x": X})
        np.testing.assert_array_equal(got, onnx.numpy_helper.to_array(tensor))


def test_strings(tmp_path: Path) -> None:
    words = np.array(["ä", "", "b" * 2000], object)
    nodes = [
        node("Identity", ["x"], ["i"]),
        node("Gather", ["w", "i"], ["g"]),
        node("Constant", [], ["c"], value_string="z"),
        node("Constant", [], ["cs"], value_strings=["p", "q"]),
        node("Constant", [], ["ct"], value=helper.make_tensor("", TensorProto.STRING, [1], [b"t"])),
        node("Concat", ["g", "cs", "ct"], ["y"], axis=0),
        node("Identity", ["c"], ["z"]),
    ]
    proto = model(
        nodes, [("x", INT, ["n"])], [("y", TensorProto.STRING, ["m"]), ("z", TensorProto.STRING, [])],
        [helper.make_tensor("w", TensorProto.STRING, [3], [w.encode() for w in words])],
    )  # fmt: skip
    for rules in (None, library(DROP_IDENTITY)):
        for limit in (None, 10**6):
            out, _, _ = through(proto, tmp_path, rules, max_bytes=limit)
            got = run(out, {"x": np.array([2, 0])})
            assert got[0].tolist() == ["b" * 2000, "ä", "p", "q", "t"]
            assert np.asarray(got[1]).tolist() == "z"
