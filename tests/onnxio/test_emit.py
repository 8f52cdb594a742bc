"""Which constants become arrays, and how large the file may become."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from graphopt.onnxio.emit import emit
from graphopt.onnxio.load import load
from graphopt.onnxio.save import to_proto
from tests.onnxio.models import (
    DROP_IDENTITY,
    F,
    body,
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

SCALE = rule(
    "scale-the-weight", ["h = MatMul(x, w)", "y = Mul(h, c)"], ["v = Mul(w, c)", "y = MatMul(x, v)"],
    where=["is_const(w, c) and size(c) == 1"],
)  # fmt: skip
MERGE = rule(
    "merge", ["y1 = MatMul(x, w1)", "y2 = MatMul(x, w2)"],
    ["w = Concat<axis = -1>(w1, w2)", "y = MatMul(x, w)", "y1, y2 = Split<axis = -1>(y, widths)"],
    roots="{unordered: [y1, y2]}", where=["is_const(w1, w2)"], let={"widths": "i64([dim(w1, -1), dim(w2, -1)])"},
)  # fmt: skip
WIDEN = rule(
    "widen", ["y = MatMul(x, w)"],
    ["v = Neg(w)", "b = Concat<axis = 1>(v, v)", "z = MatMul(x, b)", "p, q = Split<axis = 1>(z, widths)", "y = Neg(p)"],
    where=["is_const(w) and dim(w, 0) == dim(w, 1)"], let={"widths": "i64([dim(w, 1), dim(w, 1)])"},
)  # fmt: skip
N = 256


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(0)


def scaled(rng: np.random.Generator, times: int) -> onnx.ModelProto:
    """One weight, whose product is scaled in several ways."""
    nodes = [node("MatMul", ["x", "w"], ["h"])] + [node("Mul", ["h", f"c{i}"], [f"y{i}"]) for i in range(times)]
    weights = [weight("w", normal(rng, N, N)), *(weight(f"c{i}", np.float32(i + 2)) for i in range(times))]
    return model(nodes, [("x", F, [2, N])], [(f"y{i}", F, [2, N]) for i in range(times)], weights)


def test_a_replaced_weight_costs_nothing(tmp_path: Path, rng: np.random.Generator) -> None:
    proto = scaled(rng, 1)
    out, _, _ = through(proto, tmp_path, library(SCALE), max_bytes=proto.ByteSize() + 500)
    saved = onnx.load(out)
    assert [n.op_type for n in saved.graph.node] == ["MatMul"]
    assert len(saved.graph.initializer) == 1
    x = normal(rng, 2, N)
    same(run(out, {"x": x}), run(proto, {"x": x}), 1e-4, 1e-4)


@pytest.mark.parametrize("room", [0.0, 1.5, 3.2, 20.0])
def test_a_shared_weight_costs_a_copy_for_each_use(room: float, tmp_path: Path, rng: np.random.Generator) -> None:
    proto = scaled(rng, 8)
    limit = proto.ByteSize() + int(room * N * N * 4) + 3000
    out, loaded, graph = through(proto, tmp_path, library(SCALE), max_bytes=limit)
    assert out.stat().st_size <= limit
    emitted = emit(loaded, graph, max_bytes=limit)
    # With room for all eight copies the shared weight itself goes.
    assert len(emitted.unfolded) == (0 if room > 7 else 8 - int(room))
    assert [n.op_type for n in emitted.proto.graph.node].count("Mul") == len(emitted.unfolded)
    x = normal(rng, 2, N)
    same(run(out, {"x": x}), run(proto, {"x": x}), 1e-3, 1e-3)


def test_no_limit_folds_whatever_a_rule_made(rng: np.random.Generator) -> None:
    loaded = load(scaled(rng, 3))
    graph, done = rewritten(loaded.graph, library(SCALE))
    assert done == 3
    assert emit(loaded, graph).unfolded == ()


@pytest.mark.parametrize("elsewhere", [False, True])
def test_what_takes_no_more_room_than_its_weight_is_folded(
    elsewhere: bool, tmp_path: Path, rng: np.random.Generator
) -> None:
    """Of a weight that is computed the first step is; not where the weight stays for another reader."""
    nodes = [node("MatMul", ["x", "w"], ["y"]), *([node("Sub", ["x", "w"], ["z"])] if elsewhere else [])]
    outputs = [("y", F, [N, N]), *([("z", F, [N, N])] if elsewhere else [])]
    proto = model(nodes, [("x", F, [N, N])], outputs, [weight("w", normal(rng, N, N))])
    limit = proto.ByteSize() + 2000
    out, loaded, graph = through(proto, tmp_path, library(WIDEN), max_bytes=limit)
    saved = onnx.load(out)
    assert out.stat().st_size <= limit and len(emit(loaded, graph, max_bytes=limit).unfolded) == 1
    assert [n.op_type for n in saved.graph.node].count("Concat") == 1
    assert [n.op_type for n in saved.graph.node].count("Neg") == (2 if elsewhere else 1)
    assert [t.name for t in saved.graph.initializer].count("w") == (1 if elsewhere else 0)
    x = normal(rng, N, N)
    same(run(out, {"x": x}), run(proto, {"x": x}), 1e-4, 1e-4)


def computed(count: int, size: int) -> onnx.ModelProto:
    """Weights that are computed, as in a model that was made small for tests, and an Identity to be dropped."""
    fill = [
        node("ConstantOfShape", ["s"], [f"w{i}"], value=weight("", np.array([0.5 + i], np.float32)))
        for i in range(count)
    ]
    add = [node("Add", ["i" if i == 0 else f"a{i - 1}", f"w{i}"], [f"a{i}"]) for i in range(count)]
    nodes = [*fill, node("Identity", ["x"], ["i"]), *add]
    return model(nodes, [("x", F, [size])], [(f"a{count - 1}", F, [size])], [weight("s", np.array([size]))])


@pytest.mark.parametrize("size", [100, 1000, 5000])
def test_what_the_original_computes_does_not_bloat_the_file(size: int, tmp_path: Path) -> None:
    proto = computed(400, size)
    limit = int(1.1 * proto.ByteSize()) + (1 << 19)
    out, _, _ = through(proto, tmp_path, library(DROP_IDENTITY), max_bytes=limit)
    assert out.stat().st_size <= limit
    left = [n.op_type for n in onnx.load(out).graph.node].count("ConstantOfShape")
    assert (left == 0) is (size == 100)
    assert (left > 370) is (size == 5000)  # each of 20 kB, as far as there is room
    x = np.ones(size, np.float32)
    same(run(out, {"x": x}), run(proto, {"x": x}))


def test_a_large_constant_stays_computed_without_a_limit(tmp_path: Path) -> None:
    out, _, _ = through(computed(2, 100_000), tmp_path, library(DROP_IDENTITY))
    assert out.stat().st_size < 1000


def test_merged_weights_on_disk_and_in_memory(tmp_path: Path, rng: np.random.Generator) -> None:
    nodes = [node("MatMul", ["x", "w1"], ["y1"]), node("MatMul", ["x", "w2"], ["y2"])]
    weights = [weight("w1", normal(rng, N, 4)), weight("w2", normal(rng, N, 8))]
    proto = model(nodes, [("x", F, [2, N])], [("y1", F, [2, 4]), ("y2", F, [2, 8])], weights)
    x = normal(rng, 2, N)
    for external in (False, True):
        out, loaded, graph = through(
            proto, tmp_path, library(MERGE), max_bytes=proto.ByteSize() + 1000, external=external
        )
        saved = onnx.load(out)
        assert [n.op_type for n in saved.graph.node] == ["MatMul", "Split"]
        same(run(out, {"x": x}), run(proto, {"x": x}))
        whole = to_proto(emit(loaded, graph))
        same(run(whole, {"x": x}), run(proto, {"x": x}))
        onnx.checker.check_model(str(out), full_check=True)
    emitted = emit(loaded, graph)
    assert emitted.nbytes == pytest.approx(whole.ByteSize(), rel=0.02)
    assert {name: array.shape for name, array in emitted.arrays().items()} == {next(iter(emitted.tensors)): (N, 12)}


def test_a_constant_that_can_not_be_computed_stays(tmp_path: Path, rng: np.random.Generator) -> None:
    # There is no ninth element: the runtime says so when the model runs, and so it will.
    nodes = [node("Gather", ["w", "k"], ["g"]), node("Identity", ["x"], ["i"]), node("Add", ["i", "g"], ["y"])]
    weights = [weight("w", normal(rng, 4)), weight("k", np.array([9]))]
    proto = model(nodes, [("x", F, [1])], [("y", F, [1])], weights)
    out, loaded, graph = through(proto, tmp_path, library(DROP_IDENTITY), max_bytes=10**6)
    assert [n.op_type for n in onnx.load(out).graph.node] == ["Gather", "Add"]
    assert emit(loaded, graph, max_bytes=10**6).unfolded == ("g",)


def test_what_can_be_computed_is_beside_what_can_not(tmp_path: Path, rng: np.random.Generator) -> None:
    nodes = [
        node("Neg", ["w"], ["n"]), node("Gather", ["n", "k"], ["g"]), node("Abs", ["g"], ["a"]),
        node("Identity", ["x"], ["i"]), node("Add", ["i", "a"], ["p"]), node("Add", ["p", "n"], ["y"]),
    ]  # fmt: skip
    weights = [weight("w", normal(rng, 4)), weight("k", np.array([9]))]
    proto = model(nodes, [("x", F, [4])], [("y", F, [4])], weights)
    out, _, _ = through(proto, tmp_path, library(DROP_IDENTITY), max_bytes=10**6)
    saved = onnx.load(out)
    assert "n" in {t.name for t in saved.graph.initializer}
    assert sorted(n.op_type for n in saved.graph.node) == ["Abs", "Add", "Add", "Gather"]


def test_contributed_operators_are_folded(tmp_path: Path, rng: np.random.Generator) -> None:
    nodes = [
        node("Neg", ["w"], ["n"]), node("Gelu", ["n"], ["g"], domain="com.microsoft"), node("Abs", ["g"], ["a"]),
        node("Identity", ["x"], ["i"]), node("Add", ["i", "a"], ["p"]), node("Add", ["p", "n"], ["y"]),
    ]  # fmt: skip
    proto = model(nodes, [("x", F, [4])], [("y", F, [4])], [weight("w", normal(rng, 4))], domains={"com.microsoft": 1})
    out, _, _ = through(proto, tmp_path, library(DROP_IDENTITY), max_bytes=10**6)
    assert [n.op_type for n in onnx.load(out).graph.node] == ["Add", "Add"]
    x = normal(rng, 4)
    same(run(out, {"x": x}), run(proto, {"x": x}))


def test_contributed_domain_is_imported_when_a_rule_needs_it(tmp_path: Path, rng: np.random.Generator) -> None:
    quick = rule("quick", ["s = Sigmoid(x)", "y = Mul(x, s)"], ["y = com.microsoft.QuickGelu<alpha = 1.0>(x)"])
    proto = model([node("Sigmoid", ["x"], ["s"]), node("Mul", ["s", "x"], ["y"])], [("x", F, [4])], [("y", F, [4])])
    out, _, _ = through(proto, tmp_path, library(quick))
    assert {o.domain: o.version for o in onnx.load(out).opset_import} == {"": 17, "com.microsoft": 1}
    x = normal(rng, 4)
    same(run(out, {"x": x}), run(proto, {"x": x}))


def test_folding_in_float16_and_bfloat16(tmp_path: Path, rng: np.random.Generator) -> None:
    for kind, dtype in ((onnx.TensorProto.FLOAT16, np.float16), (onnx.TensorProto.BFLOAT16, None)):
        values = rng.integers(1, 9, (4, 4)).astype(np.float32)
        tensor = onnx.helper.make_tensor("w", kind, [4, 4], values.ravel())
        nodes = [
            node("Transpose", ["w"], ["t"]), node("Concat", ["t", "w"], ["c"], axis=0), node("Identity", ["x"], ["i"]),
            node("Cast", ["c"], ["f"], to=F), node("MatMul", ["f", "i"], ["y"]),
        ]  # fmt: skip
        proto = model(nodes, [("x", F, [4, 2])], [("y", F, [8, 2])], [tensor])
        out, _, _ = through(proto, tmp_path, library(DROP_IDENTITY), max_bytes=10**6)
        assert [n.op_type for n in onnx.load(out).graph.node] == ["MatMul"], dtype
        x = normal(rng, 4, 2)
        same(run(out, {"x": x}), [np.concatenate([values.T, values]) @ x])


@pytest.mark.parametrize(("shape", "ops"), [([2, 3], ["Div"]), (["N", 3], ["Size", "Cast", "Div"])])
def test_a_size_is_a_number_where_the_shape_is_known(tmp_path: Path, shape: list[int | str], ops: list[str]) -> None:
    nodes = [
        node("Identity", ["x"], ["i"]),
        node("Size", ["i"], ["n"]),
        node("Cast", ["n"], ["f"], to=F),
        node("Div", ["i", "f"], ["y"]),
    ]
    out, _, _ = through(model(nodes, [("x", F, shape)], [("y", F, shape)]), tmp_path, library(DROP_IDENTITY))
    assert [n.op_type for n in onnx.load(out).graph.node] == ops
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    same(run(out, {"x": x}), [x / 6])


def test_what_only_a_folded_constant_reads_is_not_written(tmp_path: Path) -> None:
    nodes = [
        node("Exp", ["x"], ["e"]),
        node("Shape", ["e"], ["s"]),
        node("Identity", ["y"], ["i"]),
        node("Expand", ["i", "s"], ["z"]),
    ]
    proto = model(nodes, [("x", F, [2, 3]), ("y", F, [1])], [("z", F, None)])
    out, _, _ = through(proto, tmp_path, library(DROP_IDENTITY))
    assert [n.op_type for n in onnx.load(out).graph.node] == ["Expand"]
    feeds = {"x": np.ones((2, 3), np.float32), "y": np.ones(1, np.float32)}
    same(run(out, feeds), run(proto, feeds))


@pytest.mark.parametrize(
    ("shown", "left"), [([], ["Exp", "If"]), (["e"], ["Exp", "Identity", "If"]), (["i"], ["Exp", "If"])]
)
def test_what_a_body_reads_is_called_as_it_reads_it(tmp_path: Path, shown: list[str], left: list[str]) -> None:
    branches = [body([node(op, ["i"], [op])], [(op, F, None)]) for op in ("Neg", "Abs")]
    nodes = [
        node("Exp", ["x"], ["e"]),
        node("Identity", ["e"], ["i"]),
        node("If", ["c"], ["y"], then_branch=branches[0], else_branch=branches[1]),
    ]
    outputs = [(name, F, None) for name in ("y", *shown)]
    proto = model(nodes, [("x", F, ["N"]), ("c", onnx.TensorProto.BOOL, [])], outputs)
    out, _, _ = through(proto, tmp_path, library(DROP_IDENTITY))
    assert sorted(n.op_type for n in onnx.load(out).graph.node) == left
    for c in (True, False):
        feeds = {"x": np.ones(3, np.float32), "c": np.array(c)}
        same(run(out, feeds), run(proto, feeds))


@pytest.mark.parametrize(("ir_version", "left"), [(3, ["Add", "Constant", "Constant"]), (8, ["Add"])])
@pytest.mark.parametrize("form", [{"value_float": 2.0}, {"value": onnx.numpy_helper.from_array(np.float32(2))}])
def test_a_constant_node_becomes_an_initializer(tmp_path: Path, ir_version: int, left: list[str], form: Any) -> None:
    nodes = [
        node("Constant", [], ["c"], **form),
        node("Identity", ["x"], ["h"]),
        node("Add", ["h", "c"], ["y"]),
        node("Identity", ["c"], ["shown"]),
    ]
    outputs = [("y", F, ["N"]), ("shown", F, [])]
    proto = model(nodes, [("x", F, ["N"])], outputs, ir_version=ir_version)
    out, _, _ = through(proto, tmp_path, library(DROP_IDENTITY))
    assert sorted(n.op_type for n in onnx.load(out).graph.node) == left
    feeds = {"x": np.ones(3, np.float32)}
    same(run(out, feeds), run(proto, feeds))


def test_an_equation_is_read_without_its_spaces_and_written_as_it_was() -> None:
    nodes = [node("Einsum", ["a", "b"], ["y"], equation="b i d, b j d -> b i j"), node("Relu", ["y"], ["z"])]
    proto = model(nodes, [("a", F, [2, 3, 4]), ("b", F, [2, 5, 4])], [("z", F, [2, 3, 5])])
    loaded = load(proto)
    (einsum,) = (n for n in loaded.graph.nodes.values() if n.op == "Einsum")
    assert einsum.attributes["equation"] == "bid,bjd->bij"
    assert to_proto(emit(loaded, loaded.graph)) == proto
