"""Numbers in the lines of rules: what they match, and what they become."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from graphopt.ir.delta import RefusedError
from graphopt.ir.graph import Graph
from graphopt.onnxio.load import load
from graphopt.prover.evidence import check_rule
from graphopt.rewrite.apply import apply
from graphopt.rewrite.examples import build_example
from graphopt.rewrite.schema import Rule
from graphopt.rewrite.sites import Sites
from tests.onnxio.models import B, F, library, model, node, rewritten, rule, weight

NUMPY = {
    TensorProto.FLOAT: np.float32,
    TensorProto.DOUBLE: np.float64,
    TensorProto.FLOAT16: np.float16,
    TensorProto.BFLOAT16: ml_dtypes.bfloat16,
}


def scaled(kind: int, constant: float) -> Graph:
    """The product of an input and a constant, both of a type."""
    tensor = helper.make_tensor("c", kind, [], [float(np.array(constant).astype(NUMPY[kind]))])
    return load(
        model([node("Mul", ["x", "c"], ["y"])], [("x", kind, [2])], [("y", kind, [2])], [tensor], opset=17)
    ).graph


@pytest.mark.parametrize("kind", NUMPY)
@pytest.mark.parametrize("number", [0.1, 0.044715, -0.7071067811865476, 1e-5, 3.0])
def test_a_number_matches_what_it_rounds_to(kind: int, number: float) -> None:
    rules = library(rule("scale", [f"y = Mul(x, {number})"], ["y = Relu(x)"]))
    assert rewritten(scaled(kind, number), rules)[1] == 1
    assert rewritten(scaled(kind, number * 1.01), rules)[1] == 0
    assert rewritten(scaled(kind, 0), rules)[1] == 0


@pytest.mark.parametrize(("equal", "near"), [("real", 1), ("exact", 0)])
def test_under_a_claim_of_bits_no_other_number_does(equal: str, near: int) -> None:
    rules = library(rule("scale", ["y = Mul(x, 0.1)"], ["y = Relu(x)"], equal=equal))
    for kind in NUMPY:
        assert rewritten(scaled(kind, 0.1), rules)[1] == 1
    assert rewritten(scaled(TensorProto.DOUBLE, 0.100000008), rules)[1] == near
    assert rewritten(scaled(TensorProto.FLOAT, 0.1000005), rules)[1] == near


@pytest.mark.parametrize("kind", NUMPY)
@pytest.mark.parametrize(("equal", "other"), [("real", 1), ("exact", 0)])
def test_under_a_claim_of_bits_a_zero_has_a_sign(kind: int, equal: str, other: int) -> None:
    for number in ("0.0", "-0.0"):
        rules = library(rule("nothing", [f"y = Mul(x, {number})"], ["y = Relu(x)"], equal=equal))
        assert rewritten(scaled(kind, float(number)), rules)[1] == 1
        assert rewritten(scaled(kind, -float(number)), rules)[1] == other


@pytest.mark.parametrize("pattern", ["y = LeakyRelu(x)", "y = LeakyRelu<alpha = 0.01>(x)"])
@pytest.mark.parametrize(("equal", "near"), [("real", 1), ("exact", 0)])
def test_under_a_claim_of_bits_no_other_attribute_does(pattern: str, equal: str, near: int) -> None:
    rules = library(rule("slope", [pattern], ["y = Relu(x)"], equal=equal))
    for alpha, found in ((np.float32(0.01), 1), (np.nextafter(np.float32(0.01), np.float32(1)), near)):
        given = model([node("LeakyRelu", ["x"], ["y"], alpha=float(alpha))], [("x", F, [2])], [("y", F, [2])])
        assert rewritten(load(given).graph, rules)[1] == found


@pytest.mark.parametrize("number", [1e-9, 1e-7, 1e6])
def test_a_number_that_float16_does_not_have_matches_nothing(number: float) -> None:
    rules = library(rule("scale", [f"y = Mul(x, {number})"], ["y = Relu(x)"]))
    with np.errstate(over="ignore"):
        assert rewritten(scaled(TensorProto.FLOAT16, number), rules)[1] == 0


def single(text: str) -> Rule:
    return library(text).rules[0]


def test_the_proof_takes_a_rounded_number_for_what_was_written() -> None:
    text = rule("scale", ["a = Mul(x, 0.1)", "y = Mul(a, 0.3)"], ["y = Mul(x, 0.03)"], equal="real")
    verdict = check_rule(single(text + "\nexamples: {accept: [{x: 3xf16}, {x: 4x5xf32}]}"), limit=20, tries=100)
    assert verdict.verdict == "proved", verdict.message


def becomes(graph: Graph, text: str, name: str = "y") -> list[np.ndarray]:
    """The constants that the node which makes the output reads after the rewrite."""
    after, done = rewritten(graph, library(text), limit=1)
    assert done == 1
    maker = after.producer(after.outputs[0][1])
    assert maker is not None
    values = [after.values[key] for key in maker.inputs if key is not None]
    return [value.tensor.numpy() for value in values if value.tensor is not None]


def test_a_number_takes_the_dtype_that_the_schema_ties_it_to() -> None:
    half = TensorProto.FLOAT16
    masked = load(
        model([node("Mul", ["x", "x"], ["m"]), node("Where", ["c", "m", "z"], ["y"])],
              [("c", B, [3]), ("x", half, [3])], [("y", half, [3])], [weight("z", np.float16(0))])
    ).graph  # fmt: skip
    first = rule("first", ["m = Mul(x, x)", "y = Where(c, m, z)"], ["y = Where(c, x, 0.5)"])
    assert [(c.dtype.name, c.tolist()) for c in becomes(masked, first)] == [("float16", 0.5)]
    both = rule("both", ["m = Mul(x, x)", "y = Where(c, m, z)"], ["y = Where(c, 1, 0.5)"])
    assert [(c.dtype.name, c.tolist()) for c in becomes(masked, both)] == [("float16", 1.0), ("float16", 0.5)]


def test_a_number_that_is_tied_to_nothing_takes_what_the_schema_allows() -> None:
    x = [("x", F, [2, 3])]
    square = load(model([node("Mul", ["x", "x"], ["y"])], x, [("y", F, [2, 3])])).graph
    power = becomes(square, rule("power", ["y = Mul(x, x)"], ["y = Pow(x, 2)"]))
    assert [(c.dtype.name, c.tolist()) for c in power] == [("float32", 2.0)]
    row = load(model([node("ReduceMax", ["x"], ["y"], axes=[0], keepdims=0)], x, [("y", F, [3])])).graph
    gather = becomes(row, rule("gather", ["y = ReduceMax<*a>(x)"], ["y = Gather(x, 1)"]))
    assert [(c.dtype.name, c.tolist()) for c in gather] == [("int64", 1)]
    choose = becomes(square, rule("choose", ["y = Mul(x, x)"], ["y = Where(1, x, x)"]))
    assert [(c.dtype.name, c.tolist()) for c in choose] == [("bool", True)]


@pytest.mark.parametrize(
    ("kind", "number", "message"),
    [
        (TensorProto.INT32, "0.5", "0.5 is no i32"),
        (TensorProto.UINT8, "-1", "-1 is no u8"),
        (TensorProto.FLOAT16, "1e6", "1e\\+06 is too large for f16"),
    ],
)
def test_a_number_that_the_dtype_does_not_have_is_refused(kind: int, number: str, message: str) -> None:
    graph = load(model([node("Mul", ["x", "x"], ["y"])], [("x", kind, [2])], [("y", kind, [2])])).graph
    (match,) = Sites.of(graph, library(rule("times", ["y = Mul(x, x)"], [f"y = Mul(x, {number})"]))).matches.values()
    with pytest.raises(RefusedError, match=message):
        apply(graph, match)


def test_an_example_gives_a_number_the_tied_dtype() -> None:
    text = rule("mask", ["y = Where(c, x, 0.5)"], ["y = Where(c, x, 0.5)"])
    example = build_example(single(text), {"c": "3xbool", "x": "3xf32"})
    assert example.match is not None
    (constant,) = [v.tensor.numpy() for v in example.graph.values.values() if v.tensor is not None]
    assert (constant.dtype.name, constant.tolist()) == ("float32", 0.5)
    assert numpy_helper.from_array(constant).data_type == TensorProto.FLOAT
