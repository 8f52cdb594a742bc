"""What a graph says of the sizes of its symbols."""

from __future__ import annotations

import os
import platform

import onnx
import pytest
from onnx import parser

from graphopt.api import first_run, session_config
from graphopt.errors import CrashError, InputsNeededError
from graphopt.ir.simplify import simplify
from graphopt.onnxio.load import load
from graphopt.verification.numeric import verify_models
from graphopt.verification.sizes import size_hints

CASES = [
    ("Add", "float[n] x", "float[12] c", "y = Add(x, c)", {"n": 12}),
    ("MatMul", "float[b, n] x", "float[300, 2] c", "y = MatMul(x, c)", {"n": 300}),
    ("Gemm", "float[n, b] x", "float[300, 2] c", "y = Gemm<transA = 1>(x, c)", {"n": 300}),
    ("Concat", "float[b, n] x", "float[2, 77] c", "y = Concat<axis = 0>(x, c)", {"n": 77}),
    ("Split", "float[n] x", "float[1] c", "s = Constant<value_ints = [30, 47]>() y, z = Split<axis = 0>(x, s)", {"n": 77}),
    ("Reshape", "float[n, 3] x", "float[1] c", "s = Constant<value_ints = [11, 15]>() y = Reshape(x, s)", {"n": 55}),
    ("Reshape", "float[n] x", "float[1] c", "s = Constant<value_ints = [-1, 51]>() y = Reshape(x, s)", {"n": 51}),
    ("Reshape", "float[b, 2, n] x", "float[b, 8, h, w] c", "s = Shape(c) y = Reshape(x, s)", {"n": 4, "h": 1, "w": 1}),
    ("Gather", "float[n] x", "float[1] c", "s = Constant<value_ints = [99]>() y = Gather(x, s)", {"n": 100}),
    ("Conv", "float[1, n, h, h] x", "float[2, 5, 3, 3] c", "y = Conv<kernel_shape = [3, 3]>(x, c)", {"n": 5}),
]  # fmt: skip


@pytest.mark.parametrize(
    "body",
    [
        "w = Reshape(c, k) y = Conv<kernel_shape = [3, 3]>(x, w, d)",
        "w = Reshape(c, k) f = Flatten(x) y = Gemm(f, w, d)",
    ],
)
def test_a_weight_of_which_nothing_is_known_asks_for_nothing(body):
    """What the bias has for dimensions says nothing of the image's channels."""
    found = proto("float[1, n, h, h] x", "float[90] c, int64[m] k, float[7] d", body)
    assert 7 not in size_hints(simplify(load(found).graph)).sizes.get("n", ())


COUNTED = "s = Shape(x) i = Constant<value_int = 1>() z = Constant<value_int = 0>() m = Gather(s, i) r = Range(z, m, i)"
CLIPPED = [
    ("o = Constant<value_ints = [0]>() k = Constant<value_ints = [40]>() a = Constant<value_ints = [1]>() y = Slice(x, o, k, a)", "y = Identity(x)"),
    (f"{COUNTED} k = Constant<value_int = 31>() t = Min(r, k) f = Cast<to = 1>(t) y = Add(x, f)", f"{COUNTED} f = Cast<to = 1>(r) y = Add(x, f)"),
    (f"{COUNTED} k = Constant<value_int = 16>() t = Less(r, k) f = Cast<to = 1>(t) y = Mul(x, f)", "y = Identity(x)"),
    (f"{COUNTED} k = Constant<value_int = 10>() t = Greater(m, k) y = If<then_branch = one () => (float p) {{ p = Neg(x) }}, "
     "else_branch = two () => (float q) { q = Identity(x) }>(t)", "y = Identity(x)"),
]  # fmt: skip


@pytest.mark.parametrize(("clipped", "whole"), CLIPPED, ids=["slice", "buckets", "window", "branch"])
def test_what_differs_beyond_a_bound_alone(clipped, whole, tmp_path):
    """Below a number that the graph holds sizes against the two are the same; no size is tried there by itself."""
    models = [proto("float[batch, seq] x", "float[1] c", body) for body in (clipped, whole)]
    for model, name in zip(models, "ab", strict=True):
        onnx.save(model, tmp_path / name)
    a, b = tmp_path / "a", tmp_path / "b"
    hints = size_hints(load(models[0]).graph)
    assert not verify_models(a, b, hints=hints).passed and verify_models(a, a, hints=hints).passed


def test_bounds():
    body = "s = Constant<value_ints = [2]>() e = Constant<value_ints = [-300]>() y = Slice(x, s, e)"
    assert list(size_hints(load(proto("float[n] x", "float[1] c", body)).graph).bounds) == [300, 2]
    assert not size_hints(load(proto("float[900] x", "float[1] c", body)).graph).bounds  # of a size that is known


CRASHES = pytest.mark.skipif(
    os.name == "nt" or platform.machine() not in ("x86_64", "AMD64"), reason="it needs a process to lose, and x86"
)
CRASH = (  # the least whole number divided by -1, where b, does not fit; processors take that as a division by zero
    "l = Constant<value_ints = [-9223372036854775808]>() m = Neg(o) d = Where(b, m, o) "
    "q = Div(l, d) f = Cast<to = 1>(q) y = Add(x, f)"
)


def proto(x, c, body):
    return parser.parse_model(
        f'<ir_version: 8, opset_import: ["": 17]> g ({x}, {c}) => (float[?] y) {{ {body} }}'.replace(
            "float[?] y", "float y"
        )
    )


@pytest.mark.parametrize(("op", "x", "c", "body", "hints"), CASES)
def test_hints(op, x, c, body, hints):
    found = size_hints(simplify(load(proto(x, c, body)).graph)).sizes
    assert {name: found[name][0] for name in hints} == hints


@pytest.mark.parametrize(("op", "x", "c", "body", "hints"), CASES)
def test_a_model_runs_at_what_its_graph_speaks_of(op, x, c, body, hints):
    _, feeds = first_run(load(proto(x, c, body)), session_config(), {}, (), {}, 0)
    assert feeds["x"].size > 0


def test_the_option_is_named_where_nothing_runs():
    body = "s = Shape(x) t = Constant<value_ints = [1009]>() e = Equal(s, t) f = Cast<to = 7>(e) z = Sub(f, t) y = Expand(x, z)"
    with pytest.raises(InputsNeededError, match="other choices of sizes") as error:
        first_run(load(proto("float[n] x", "float[1] c", body)), session_config(), {}, (), {}, 0)
    assert "--dim n=N" in str(error.value.hint)


def test_sides_of_an_image_are_those_that_are_declared_of_the_result():
    text = """<ir_version: 8, opset_import: ["": 17]> g (float[b, 3, h, w] x) => (float[b, 3, 40, 52] y) {
        k = Constant<value_float = 1.0>() s = Constant<value_ints = [3, 1, 2, 2]>() t = Expand(k, s)
        y = ConvTranspose<group = 3, strides = [2, 2], output_shape = [40, 52]>(x, t) }"""
    assert size_hints(load(parser.parse_model(text)).graph).sizes == {"h": [40], "w": [52]}


def test_attention_that_projects_by_itself_says_how_wide_things_are():
    text = """<ir_version: 8, opset_import: ["": 17, "com.microsoft": 1]> g
        (float[b, s, hidden] x, float[hidden, n] w, float[n] c) => (float[b, s, hidden] y) {
        y = com.microsoft.Attention<num_heads = 12>(x, w, c) }"""
    _, feeds = first_run(load(parser.parse_model(text)), session_config(), {}, (), {}, 0)
    assert feeds["x"].shape[2] % 12 == 0 and feeds["w"].shape[1] == 3 * feeds["x"].shape[2]


def test_what_the_runtime_has_no_kernel_for_is_not_said_to_want_other_sizes():
    text = """<ir_version: 8, opset_import: ["": 17, "com.microsoft": 1]> g
        (float[b, s, 8] x, float[8, 24] w, float[24] c, int32[b, 1, 64, 64] m) => (float[b, s, 8] y) {
        y = com.microsoft.Attention<num_heads = 2>(x, w, c, m) }"""
    with pytest.raises(InputsNeededError, match="not supported") as error:
        first_run(load(parser.parse_model(text)), session_config(), {}, (), {}, 0)
    assert "no kernel" in str(error.value.hint) and "--dim" not in str(error.value.hint)


@CRASHES
@pytest.mark.parametrize("size", [8, 1])
def test_a_size_at_which_the_runtime_crashes_is_one_that_does_not_run(tmp_path, size):
    # At 8, the likeliest size, or at 1, which every symbol is tried at.
    body = (
        f"s = Shape(x) k = Constant<value_ints = [{size}]>() o = Constant<value_ints = [1]>() b = Equal(s, k) {CRASH}"
    )
    model = proto("float[n] x", "float[1] c", body)
    _, feeds = first_run(load(model), session_config(), {}, (), {}, 0)
    assert feeds["x"].size != size
    onnx.save(model, tmp_path / "m.onnx")
    found = verify_models(tmp_path / "m.onnx", tmp_path / "m.onnx")
    tried = {sizes["n"] for sizes in found.sizes}
    assert found.passed and len(tried) > 1 and size not in tried


@CRASHES
def test_a_crash_at_every_size_is_told_as_one():
    body = f"s = Shape(x) o = Constant<value_ints = [1]>() b = Equal(s, s) {CRASH}"
    with pytest.raises(CrashError, match="SIGFPE") as error:
        first_run(load(proto("float[n] x", "float[1] c", body)), session_config(), {}, (), {}, 0)
    assert "--dim n=N" in str(error.value.hint) and "--inputs" in str(error.value.hint)
