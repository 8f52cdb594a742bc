"""What a caller of the model sees stays: inputs, outputs, symbols, names, metadata; and what it may ask to change."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import ModelProto, TensorProto, helper

from graphopt.api import optimize
from graphopt.errors import ModelError, UnknownNameError, UnsupportedModelError, UsageError
from graphopt.ir.simplify import simplify
from graphopt.onnxio.emit import RULE_NOTE, emit, rule_of
from graphopt.onnxio.load import load
from graphopt.onnxio.read import upgraded
from graphopt.onnxio.save import save, to_proto
from graphopt.pipeline.prepare import ConversionWarning
from tests.ir.text import to_text
from tests.onnxio.models import (
    DROP_IDENTITY,
    INT,
    F,
    identical,
    library,
    model,
    node,
    normal,
    rule,
    run,
    same,
    through,
    weight,
)

X = np.array([-1.0, 2.0, 3.0], np.float32)
SWAP = rule("relu-twice", ["y = Relu(x)"], ["r = Relu(x)", "y = Max(x, r)"], equal="exact")


def dense(ir_version: int = 8, listed: bool = False, size: int = 3) -> ModelProto:
    """``Relu(x) * w + b``; the weights stand among the inputs too when ``listed``."""
    inputs = [("x", F, ["N", size])] + ([("w", F, [size]), ("b", F, [size])] if listed else [])
    weights = [weight("w", np.full(size, 2, np.float32)), weight("b", np.full(size, 5, np.float32))]
    nodes = [
        node("Identity", ["x"], ["i"]),
        node("Relu", ["i"], ["h"]),
        node("Neg", ["w"], ["v"]),
        node("Mul", ["h", "v"], ["m"]),
        node("Add", ["m", "b"], ["y"]),
    ]
    return model(nodes, inputs, [("y", F, ["N", size])], weights, ir_version=ir_version)


def test_metadata_stays(tmp_path: Path) -> None:
    proto = dense()
    proto.producer_name, proto.producer_version, proto.domain = "me", "1.2", "org.example"
    proto.model_version, proto.doc_string = 7, "a model"
    proto.metadata_props.add(key="author", value="somebody")
    proto.graph.name, proto.graph.doc_string = "graph name", "graph doc"
    proto.graph.input[0].doc_string = "pixels"
    proto.graph.output[0].doc_string = "scores"
    proto.graph.metadata_props.add(key="k", value="v")
    proto.graph.value_info.append(helper.make_tensor_value_info("h", F, ["N", 3]))
    out, _, _ = through(proto, tmp_path, library(DROP_IDENTITY))
    saved = onnx.load(out)
    for field in ("producer_name", "producer_version", "domain", "model_version", "doc_string", "ir_version"):
        assert getattr(saved, field) == getattr(proto, field)
    assert saved.metadata_props == proto.metadata_props
    for field in ("name", "doc_string", "input", "output", "metadata_props", "value_info"):
        assert getattr(saved.graph, field) == getattr(proto.graph, field)
    assert saved.opset_import == proto.opset_import


def test_metadata_is_added(tmp_path: Path) -> None:
    proto = dense()
    for key in ("old", "kept"):
        proto.metadata_props.add(key=key, value="1")
    loaded = load(proto)
    save(emit(loaded, loaded.graph), tmp_path / "m.onnx", metadata={"old": "2", "new": "3"})
    saved = onnx.load(tmp_path / "m.onnx")
    assert [(e.key, e.value) for e in saved.metadata_props] == [("kept", "1"), ("old", "2"), ("new", "3")]
    assert identical(to_proto(emit(loaded, loaded.graph), {"old": "2", "new": "3"}), saved)
    assert identical(to_proto(emit(loaded, loaded.graph)), proto)  # the loaded model is as it was


def test_new_nodes_say_who_made_them(tmp_path: Path) -> None:
    proto = dense()
    proto.graph.node[1].doc_string = "mine"
    divide = rule("mul-to-div", ["y = Mul(x, w)"], ["z = Reciprocal(w)", "h = Neg(x)", "g = Div(h, z)", "y = Neg(g)"])
    out, _, _ = through(proto, tmp_path, library(divide))
    nodes = onnx.load(out).graph.node
    assert {n.op_type: rule_of(n) for n in nodes} == {
        "Identity": None, "Relu": None, "Neg": "mul-to-div", "Div": "mul-to-div", "Add": None,
    }  # fmt: skip
    assert next(n.doc_string for n in nodes if n.op_type == "Div") == f"{RULE_NOTE}mul-to-div"
    assert nodes[1].doc_string == "mine"
    assert len({n.name for n in nodes if rule_of(n)}) == 3
    x = np.array([[1, -1, 2]], np.float32)
    same(run(out, {"x": x}), run(proto, {"x": x}))


def test_new_names_do_not_clash(tmp_path: Path) -> None:
    # Run twice over its own output: the labels of the second run are those of the first.
    path = tmp_path / "a.onnx"
    path.write_bytes(dense().SerializeToString())
    for n in range(3):
        folder = tmp_path / str(n)
        folder.mkdir()
        path, _, _ = through(path, folder, library(SWAP), edit=None)
        names = [o for node in onnx.load(path).graph.node for o in node.output]
        assert len(set(names)) == len(names)
        onnx.checker.check_model(str(path), full_check=True)
    x = np.array([[1, -1, 2]], np.float32)
    same(run(path, {"x": x}), run(dense(), {"x": x}))


@pytest.mark.parametrize(("ir_version", "listed"), [(3, True), (8, False), (8, True)])  # before 4 all had to be
@pytest.mark.parametrize("frozen", [False, True])
def test_initializers_among_the_inputs(ir_version: int, listed: bool, frozen: bool, tmp_path: Path) -> None:
    proto = dense(ir_version, listed, size=300)
    out, loaded, _ = through(proto, tmp_path, library(DROP_IDENTITY), freeze_initializers=frozen, max_bytes=10**6)
    constant = ir_version == 3 or not listed or frozen
    assert {v.name: v.const for v in loaded.graph.values.values() if v.name in "wbv"} == dict.fromkeys("wbv", constant)
    saved = onnx.load(out)
    assert saved.ir_version == ir_version
    onnx.checker.check_model(str(out), full_check=True)
    # -w was folded and w went; a model of IR version 3 holds what was folded in a Constant node.
    ops = [n.op_type for n in saved.graph.node]
    if not constant:
        assert ops == ["Relu", "Neg", "Mul", "Add"]
        assert [i.name for i in saved.graph.input] == ["x", "w", "b"]
    elif ir_version == 3:
        assert sorted(ops) == ["Add", "Constant", "Mul", "Relu"]
        assert [i.name for i in saved.graph.input] == ["x", "b"]
    else:
        assert ops == ["Relu", "Mul", "Add"]
        assert [i.name for i in saved.graph.input] == ["x"]
    x = np.ones((2, 300), np.float32)
    same(run(out, {"x": x}), run(proto, {"x": x}))
    if not constant:
        w = np.full(300, -3, np.float32)
        same(run(out, {"x": x, "w": w}), run(proto, {"x": x, "w": w}))
    session = onnxruntime.InferenceSession(str(out))
    assert [i.name for i in session.get_inputs()] == ["x"]
    assert [i.name for i in session.get_overridable_initializers()] == ([] if constant else ["w", "b"])


def test_outputs_that_are_inputs_or_weights(tmp_path: Path) -> None:
    w = weight("w", 2 * X)
    nodes = [node("Identity", ["x"], ["i"]), node("Identity", ["w"], ["v"]), node("Identity", ["i"], ["j"])]
    outputs = [(name, F, [3]) for name in ("j", "x", "w", "v", "i", "k")]
    constant = node("Constant", [], ["k"], value=weight("", 3 * X))
    proto = model([*nodes, constant], [("x", F, [3])], outputs, [w])
    for rules in (None, library(DROP_IDENTITY)):
        out, _, _ = through(proto, tmp_path, rules)
        assert onnx.load(out).graph.output == proto.graph.output
        same(run(out, {"x": X}), [X, X, 2 * X, 2 * X, X, 3 * X])
        onnx.checker.check_model(str(out), full_check=True)


def test_one_value_as_several_outputs(tmp_path: Path) -> None:
    nodes = [node("Relu", ["x"], [name]) for name in "abc"] + [
        node("Identity", ["c"], ["d"]),
        node("Neg", ["b"], ["e"]),
    ]
    proto = model(nodes, [("x", F, [3])], [(name, F, [3]) for name in "badec"])
    out, _, graph = through(proto, tmp_path, library(DROP_IDENTITY))
    assert sorted(n.op for n in graph.nodes.values()) == ["Neg", "Relu"]
    assert [o.name for o in onnx.load(out).graph.output] == list("badec")
    r = np.maximum(X, 0)
    same(run(out, {"x": X}), [r, r, r, -r, r])
    onnx.checker.check_model(str(out), full_check=True)


def test_outputs_trade_names(tmp_path: Path) -> None:
    # 'b' is computed from 'a'; afterwards both are the same value, which can carry only one of the names.
    proto = model(
        [node("Relu", ["x"], ["a"]), node("Relu", ["a"], ["b"])], [("x", F, [3])], [("b", F, [3]), ("a", F, [3])]
    )
    idempotent = rule("relu-of-relu", ["r = Relu(x)", "y = Relu(r)"], ["y = Relu(x)"], equal="exact")
    out, _, graph = through(proto, tmp_path, library(idempotent))
    assert len(graph.nodes) == 1
    same(run(out, {"x": X}), [np.maximum(X, 0)] * 2)


def test_equal_names_of_outputs(tmp_path: Path) -> None:
    proto = model([node("Relu", ["x"], ["y"])], [("x", F, [3])], [("y", F, [3]), ("y", F, [3])])
    out, _, _ = through(proto, tmp_path, simplified=False)
    assert identical(onnx.load(out), proto)


def test_unsorted_nodes(tmp_path: Path) -> None:
    proto = dense()
    nodes = list(proto.graph.node)
    del proto.graph.node[:]
    proto.graph.node.extend(reversed(nodes))
    out, loaded, _ = through(proto, tmp_path, simplified=False)
    assert identical(onnx.load(out), proto)
    assert [n.op for n in loaded.graph.in_order()] == ["Neg", "Identity", "Relu", "Mul", "Add"]
    out, _, _ = through(proto, tmp_path, library(DROP_IDENTITY))
    onnx.checker.check_model(str(out), full_check=True)


def test_shapes_follow_from_what_stands_later() -> None:
    """ONNX's inference takes the axes of a Slice for absent as long as it has not come to them, and cuts the first ones."""
    axes = node("Constant", [], ["axes"], value=onnx.numpy_helper.from_array(np.array([2])))
    cut = [node("Slice", ["x", "start", "end", "axes"], ["cut"]), axes, node("Neg", ["cut"], ["y"])]
    bounds = [onnx.numpy_helper.from_array(np.array([n]), name) for name, n in (("start", 0), ("end", 2))]
    graph = load(model(cut, [("x", F, [2, "S", 4])], [("y", F, None)], bounds)).graph
    assert {v.name: str(v.type) for v in graph.values.values()}["cut"] == "f32[2,S,2]"


@pytest.mark.parametrize("size, stale", [("B", [1, 4]), ("B", [1, 4, 1]), (3, [1, 4])])
def test_what_contradicts_the_inputs_is_not_believed(size: int | str, stale: list[int], tmp_path: Path) -> None:
    """Who gives an input another size often leaves the values after it as they were declared."""
    nodes = [node("Relu", ["x"], ["r"]), node("Shape", ["r"], ["shape"]), node("Neg", ["r"], ["n"])]
    nodes.append(node("Expand", ["one", "shape"], ["y"]))
    proto = model(
        [*nodes, node("Add", ["n", "y"], ["z"])],
        [("x", F, [size, 4])],
        [("z", F, [size, 4])],
        [onnx.numpy_helper.from_array(np.ones((1, 1), np.float32), "one")],
    )
    proto.graph.value_info.append(onnx.helper.make_tensor_value_info("r", F, stale))
    proto.graph.value_info.append(onnx.helper.make_tensor_value_info("n", F, [size, 4]))
    out, loaded, _ = through(proto, tmp_path, library(DROP_IDENTITY))
    assert {str(v.type) for v in loaded.graph.values.values() if v.name in "rn"} == {f"f32[{size},4]"}
    given = np.arange(12, dtype=np.float32).reshape(3, 4)
    same(run(out, {"x": given}), [1 - given])


def test_an_output_that_contradicts_the_inputs_is_not_believed(tmp_path: Path) -> None:
    """The declaration stays, being the model's interface: the runtime does no more than warn."""
    nodes = [node("Shape", ["x"], ["shape"]), node("Gather", ["shape", "first"], ["batch"], axis=0)]
    nodes += [node("Concat", ["batch", "rest"], ["to"], axis=0), node("Reshape", ["x", "to"], ["y"])]
    first = onnx.numpy_helper.from_array(np.array([0]), "first")
    rest = onnx.numpy_helper.from_array(np.array([2, 2]), "rest")
    proto = model(nodes, [("x", F, ["B", 4])], [("y", F, [1, 2, 2])], [first, rest])
    out, loaded, _ = through(proto, tmp_path, library(DROP_IDENTITY))
    assert [str(loaded.graph.type(key)) for _, key in loaded.graph.outputs] == ["f32[B,2,2]"]
    assert identical(onnx.load(out).graph.output[0], proto.graph.output[0])
    given = np.arange(12, dtype=np.float32).reshape(3, 4)
    same(run(out, {"x": given}), [given.reshape(3, 2, 2)])


def test_what_a_model_alone_says_is_believed() -> None:
    unknown = node("Mystery", ["x"], ["m"], domain="elsewhere")
    proto = model([unknown, node("Neg", ["m"], ["y"])], [("x", F, ["B"])], [("y", F, None)], domains={"elsewhere": 1})
    proto.graph.value_info.append(onnx.helper.make_tensor_value_info("m", F, [7]))
    assert {v.name: str(v.type) for v in load(proto).graph.values.values()}["y"] == "f32[7]"


def test_sorting_takes_linear_time() -> None:
    n = 4000
    nodes = [node("Relu", [f"v{i}"], [f"v{i + 1}"]) for i in reversed(range(n))]
    begin = time.monotonic()
    graph = load(model(nodes, [("v0", F, [3])], [(f"v{n}", F, [3])])).graph
    assert time.monotonic() - begin < 5
    assert len(graph.nodes) == n


def test_absent_operands_and_results(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    nodes = [
        node("Identity", ["x"], ["i"]),
        node("Clip", ["i", "", "top"], ["c"]),
        node("Resize", ["c", "", "", "sizes"], ["r"], mode="nearest"),
        node("LSTM", ["r", "lw", "lr", "", "", "", ""], ["", "h", ""], hidden_size=2),
        node("Squeeze", ["h"], ["y"]),
    ]
    weights = [weight("top", np.float32(0.5)), weight("sizes", np.array([3, 2, 4])), weight("lw", normal(rng, 1, 8, 4)),
               weight("lr", normal(rng, 1, 8, 2))]  # fmt: skip
    proto = model(nodes, [("x", F, [3, 2, 2])], [("y", F, [2, 2])], weights)
    out, _, _ = through(proto, tmp_path, library(DROP_IDENTITY))
    saved = onnx.load(out)
    assert [len(n.input) for n in saved.graph.node] == [3, 4, 7, 1]
    assert [len(n.output) for n in saved.graph.node] == [1, 1, 3, 1]
    x = normal(rng, 3, 2, 2)
    same(run(out, {"x": x}), run(proto, {"x": x}))


def test_symbols_stay(tmp_path: Path) -> None:
    nodes = [node("Identity", ["x"], ["i"]), node("Add", ["i", "z"], ["y"])]
    proto = model(nodes, [("x", F, ["batch", "seq", 3]), ("z", F, [None, "seq", 3])], [("y", F, ["batch", "seq", 3])])
    out, _, graph = through(proto, tmp_path, library(DROP_IDENTITY))
    saved = onnx.load(out)
    assert saved.graph.input == proto.graph.input
    assert saved.graph.output == proto.graph.output
    assert to_text(graph).splitlines()[:2] == ["input x:f32[batch,seq,3]", "input z:f32[z[0],seq,3]"]


@pytest.mark.parametrize(
    "called, means",
    [
        ("4*batch", "4·batch"),
        ("seq*batch", "batch·seq"),
        ("batch * 2 * seq", "2·batch·seq"),
        ("batch**2", "batch**2"),
        ("4*other", "4*other"),
        ("batch + 1", "batch + 1"),
    ],
)
def test_a_product_of_sizes_is_one_and_keeps_its_name(tmp_path: Path, called: str, means: str) -> None:
    nodes = [node("Reshape", ["x", "to"], ["r"]), node("Relu", ["r"], ["y"])]
    told = [("x", F, ["batch", "seq", 4]), ("to", TensorProto.INT64, [2])]
    proto = model(nodes, told, [("y", F, [called, 3])])
    proto.graph.value_info.append(helper.make_tensor_value_info("r", F, [called, 3]))
    out, _, graph = through(proto, tmp_path, library(DROP_IDENTITY))
    assert onnx.load(out).graph.output == proto.graph.output
    assert [v.type.shape for v in graph.values.values() if v.name in ("r", "y")] == [(means, 3)] * 2


def test_a_symbol_of_an_input_may_look_like_a_product(tmp_path: Path) -> None:
    proto = model([node("Relu", ["x"], ["y"])], [("x", F, ["4*b", "b"])], [("y", F, ["4*b", "b"])])
    graph = through(proto, tmp_path, library(DROP_IDENTITY))[2]
    assert [v.type.shape for v in graph.values.values()] == [("4*b", "b")] * 2


# -- specialisation ---------------------------------------------------------------------------------------------------


def attention() -> ModelProto:
    proto = model(
        [node("MatMul", ["a", "b"], ["s"]), node("Softmax", ["s"], ["y"])],
        [("a", F, ["N", "S", 4]), ("b", F, ["N", 4, "T"]), ("free", F, None)],
        [("y", F, ["N", "S", "T"])],
    )
    proto.graph.value_info.append(helper.make_tensor_value_info("s", F, ["N", "S", "T"]))
    return proto


def dims_of(proto: ModelProto, name: str) -> list[Any]:
    graph = proto.graph
    info = next(i for i in [*graph.input, *graph.output, *graph.value_info] if i.name == name)
    return [d.dim_value if d.HasField("dim_value") else d.dim_param for d in info.type.tensor_type.shape.dim]


def test_dims() -> None:
    loaded = load(attention(), dims={"N": 2, "T": 7})
    saved = to_proto(emit(loaded, loaded.graph))
    assert dims_of(saved, "a") == [2, "S", 4]
    assert dims_of(saved, "b") == [2, 4, 7]
    assert dims_of(saved, "y") == dims_of(saved, "s") == [2, "S", 7]
    assert "y:f32[2,S,7]" in to_text(loaded.graph)


def test_input_shapes() -> None:
    loaded = load(attention(), input_shapes={"a": [2, 5, 4], "free": (1, 1)}, dims={"T": 7})
    saved = to_proto(emit(loaded, loaded.graph))
    assert dims_of(saved, "b") == [2, 4, 7]
    assert dims_of(saved, "y") == [2, 5, 7]
    assert dims_of(saved, "free") == [1, 1]


@pytest.mark.parametrize("mark", ["?", "-1", "None", -1])
def test_what_exporters_write_for_an_unknown_size_is_no_name_of_it(mark: str | int) -> None:
    """Height and width are both called so, and neither is the other."""
    nodes = [
        node("Transpose", ["x"], ["t"], perm=[0, 2, 1]),
        node("Shape", ["x"], ["s"]),
        node("Reshape", ["t", "s"], ["y"]),
    ]
    proto = model(nodes, [("x", F, [2, mark, mark])], [("y", F, [2, mark, mark])])
    x = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
    made = optimize(proto, strategy="greedy", measure=False).model
    same(run(made, {"x": x}), run(proto, {"x": x}))
    loaded = load(proto, input_shapes={"x": [2, 3, 4]})
    shaped = to_proto(emit(loaded, loaded.graph))
    assert dims_of(shaped, "x") == [2, 3, 4]
    by_axis = load(proto, dims={"x[2]": 4})
    assert dims_of(to_proto(emit(by_axis, by_axis.graph)), "x")[2] == 4 and by_axis.graph.type(
        by_axis.graph.inputs[0]
    ).shape == (2, "x[1]", 4)
    with pytest.raises(UsageError, match=r"'x\[2\]' would be both 5 and 4"):
        load(proto, dims={"x[2]": 5}, input_shapes={"x": [2, 3, 4]})
    with pytest.raises(UnknownNameError, match=r"unknown dimension 'x\[0\]'"):
        load(proto, dims={"x[0]": 2})
    same(run(shaped, {"x": x}), run(proto, {"x": x}))


@pytest.mark.parametrize(
    ("options", "kind", "message"),
    [
        ({"dims": {"M": 1}}, UnknownNameError, "unknown dimension 'M'"),
        ({"dims": {"N": -1}}, UsageError, "can't be -1"),
        ({"input_shapes": {"z": [1]}}, UnknownNameError, "unknown input 'z'"),
        ({"input_shapes": {"y": [1]}}, UnknownNameError, "unknown input 'y'"),
        ({"input_shapes": {"a": [1, 2]}}, UsageError, "has rank 3, the given shape has rank 2"),
        ({"input_shapes": {"a": [1, 2, 5]}}, UsageError, "fixed dimension 4, not 5"),
        ({"input_shapes": {"a": [1, -2, 4]}}, UsageError, "can't be -2"),
        ({"input_shapes": {"a": [1, 2, 4], "b": [3, 4, 1]}}, UsageError, "'N' would be both 1 and 3"),
        ({"input_shapes": {"a": [1, 2, 4]}, "dims": {"S": 3}}, UsageError, "'S' would be both 3 and 2"),
    ],
)
def test_specialisation_errors(options: dict[str, Any], kind: type[Exception], message: str) -> None:
    with pytest.raises(kind, match=message):
        load(attention(), **options)


def test_only_tensors_have_a_shape_to_give() -> None:
    proto = model([node("SequenceLength", ["s"], ["n"])], [], [("n", INT, [])])
    proto.graph.input.append(helper.make_tensor_sequence_value_info("s", F, None))
    with pytest.raises(UsageError, match="no tensor"):
        load(proto, input_shapes={"s": [1]})


# -- refusals ---------------------------------------------------------------------------------------------------------


def relus(*pairs: str, inputs: str = "x", outputs: str = "y", weights: str = "") -> ModelProto:
    nodes = [node("Relu", [pair[0]], [pair[1]]) for pair in pairs]
    return model(nodes, [(i, F, [3]) for i in inputs], [(o, F, [3]) for o in outputs], [weight(w, X) for w in weights])


REFUSED: dict[str, tuple[Callable[[], ModelProto], str]] = {
    "cycle": (lambda: relus("ab", "ba", "ay"), "a cycle through node 'Relu'"),
    "self": (lambda: relus("yy"), "a cycle through node 'Relu'"),
    "undefined": (lambda: relus("qy"), "node 'Relu' reads 'q', which nothing defines"),
    "undefined output": (lambda: relus("xa"), "output 'y' is defined by nothing"),
    "two nodes": (lambda: relus("xy", "xy"), r"'y' is defined twice: by node .* \(Relu\) and by node .* \(Relu\)"),
    "node and input": (lambda: relus("xx", outputs="x"), r"'x' is defined twice: by an input and by node .* \(Relu\)"),
    "node and weight": (lambda: relus("xy", weights="y"), "'y' is defined twice"),
    "two inputs": (lambda: relus("xy", inputs="xx"), "'x' is defined twice"),
    "two weights": (lambda: relus("wy", weights="ww"), "'w' is defined twice"),
    "no output": (lambda: relus("xy", outputs=""), "no output"),
    "old": (
        lambda: model([node("Relu", ["x"], ["y"])], [("x", F, [3])], [("y", F, [3])], opset=6),
        "opset 6 is older than 7",
    ),
    "new": (
        lambda: model([node("Relu", ["x"], ["y"])], [("x", F, [3])], [("y", F, [3])], opset=999),
        "newer than the newest",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name: str, tmp_path: Path) -> None:
    make, message = REFUSED[name]
    path = tmp_path / "m.onnx"
    path.write_bytes(make().SerializeToString())
    with pytest.raises(ModelError, match=message) as caught:
        load(path)
    assert str(caught.value).startswith(f"{path}: ")
    assert isinstance(caught.value, UnsupportedModelError) is (name in ("old", "new"))
    assert (caught.value.hint is not None) is (name in ("old", "new"))


def test_an_old_model_is_converted_where_that_is_asked_for(tmp_path: Path) -> None:
    nodes = [node("Neg", ["x"], ["s"]), node("Neg", ["s"], ["t"]), node("Relu", ["t"], ["y"])]
    proto = model(nodes, [("x", F, [2, 3])], [("y", F, [2, 3])], opset=6)
    path, out = tmp_path / "in.onnx", tmp_path / "out.onnx"
    path.write_bytes(proto.SerializeToString())
    with pytest.raises(UnsupportedModelError, match="opset 6 is older") as caught:
        load(path)
    assert "--upgrade" in str(caught.value.hint)
    result = optimize(path, output=out, strategy="greedy", measure=False, cost_model="analytic", upgrade=True)
    assert result.report["verified"]["passed"] and len(load(out).graph.nodes) == 1
    assert optimize(load(out).proto, strategy="none", measure=False, upgrade=True).report["nodes"]["before"] == 1


def test_what_the_runtime_does_not_run_is_compared_as_it_was_converted(tmp_path: Path) -> None:
    """The runtime has kernels of Add from operator set 7 on: such a model is what a conversion is for."""
    nodes = [node("Add", ["x", "x"], ["s"]), node("Neg", ["s"], ["t"]), node("Neg", ["t"], ["y"])]
    proto = model(nodes, [("x", F, [2, 3])], [("y", F, [2, 3])], opset=6)
    path, out = tmp_path / "in.onnx", tmp_path / "out.onnx"
    path.write_bytes(proto.SerializeToString())
    with pytest.warns(ConversionWarning, match=r"does not run the model as it was given.*Add\(6\)"):
        told = optimize(path, output=out, strategy="greedy", measure=False, cost_model="analytic", upgrade=True).report
    assert told["verified"]["passed"] and told["converted"] and len(load(out).graph.nodes) == 1
    np.testing.assert_array_equal(run(out, {"x": np.ones((2, 3), np.float32)})[0], np.full((2, 3), 2, np.float32))


def test_a_model_without_a_standard_operator_needs_no_conversion(tmp_path: Path) -> None:
    """Trees by catboost and xgboost name no standard operator set, which stands for the first."""
    scale = node("Scaler", ["x"], ["y"], domain="ai.onnx.ml", offset=[1.0], scale=[2.0])
    proto = model([scale], [("x", F, [2, 3])], [("y", F, [2, 3])], domains={"ai.onnx.ml": 1})
    del proto.opset_import[[o.domain for o in proto.opset_import].index("")]
    path = tmp_path / "in.onnx"
    path.write_bytes(proto.SerializeToString())
    assert upgraded(path) == path
    assert optimize(path, strategy="none", measure=False, upgrade=True).report["nodes"] == {"before": 1, "after": 1}


def test_simplify_leaves_a_lean_model_alone() -> None:
    graph = load(dense()).graph
    assert simplify(graph) is graph


def test_simplify_drops_what_nothing_reads(tmp_path: Path) -> None:
    proto = dense()
    proto.graph.node.append(node("Neg", ["h"], ["unread"]))
    proto.graph.node.append(node("Relu", ["x"], ["twin"]))
    proto.graph.node.append(node("Neg", ["twin"], ["unread2"]))
    proto.graph.initializer.append(weight("spare", X))
    out, _, _ = through(proto, tmp_path, library(DROP_IDENTITY))
    saved = onnx.load(out)
    assert [n.op_type for n in saved.graph.node] == ["Relu", "Mul", "Add"]
    assert sorted(t.name for t in saved.graph.initializer) == ["b", "v"]


@pytest.mark.parametrize(
    ("op", "inputs", "default", "told", "other"),
    [
        ("Gather", ["x", "d"], np.array([1, 2]), [2, 4], np.array([0, 3])),
        ("Reshape", ["x", "d"], np.array([4, 4]), [4, 4], np.array([2, 8])),
        ("Expand", ["x", "d"], np.array([1, 4, 4]), [1, 4, 4], np.array([3, 4, 4])),
        ("Resize", ["x", "", "d"], np.array([1, 1], np.float32), [4, 4], np.array([3, 1], np.float32)),
    ],
)
def test_a_default_that_decides_on_a_shape_may_be_replaced(op, inputs, default, told, other):
    kind = F if default.dtype == np.float32 else INT
    proto = model(
        [node(op, inputs, ["h"]), node("Identity", ["h"], ["y"])],
        [("x", F, [4, 4]), ("d", kind, list(default.shape))],
        [("y", F, None)],
        [weight("d", default)],
    )
    proto.graph.value_info.append(helper.make_tensor_value_info("h", F, told))
    made = optimize(proto, strategy="none", measure=False).model
    assert [n.op_type for n in made.graph.node] == [op]
    x = np.arange(16, dtype=np.float32).reshape(4, 4)
    for feeds in ({"x": x}, {"x": x, "d": other}):
        same(run(made, feeds), run(proto, feeds))
