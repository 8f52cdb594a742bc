"""The prover's semantics against ONNX's own test cases, which nobody here wrote."""

from __future__ import annotations

import re
import warnings
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.numpy_helper
import onnx.parser
import onnxruntime
import pytest
import yaml

from graphopt.ir.types import FLOATS
from graphopt.onnxio.load import load
from graphopt.prover.domains import Floats, Terms
from graphopt.prover.evaluate import evaluate
from graphopt.prover.order import Order
from graphopt.prover.residues import Field
from graphopt.prover.semantics import OPERATORS, UnsupportedError

# The reference draws a mask; numbers overflow without the trick that a kernel uses; graphopt refuses operator set 1.
_OTHER = ("dropout", "training", "large_number", "test_not_")

_T = onnx.TensorProto
_ELEMENTS = {
    _T.FLOAT, _T.DOUBLE, _T.FLOAT16, _T.BOOL, _T.INT8, _T.INT16, _T.INT32, _T.INT64, _T.UINT8, _T.UINT16, _T.UINT32, _T.UINT64
}  # fmt: skip

PINNED = yaml.safe_load((Path(__file__).parent / "node_cases.yaml").read_text(encoding="utf-8"))
UNSUPPORTED = {name: reason for reason, names in PINNED["unsupported"].items() for name in names}


OTHERS = "others"
"""Operators that only another version of onnx has cases of."""


@cache
def cases() -> dict[str, list[Any]]:
    """ONNX's cases of a single node, by operator. Making them takes seconds, which only a process that runs some spends."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from onnx.backend.test.case.node import collect_testcases

        every = collect_testcases(None)
    found: dict[str, list[Any]] = {}
    for case in every:
        if (
            case.model is not None and len(case.model.graph.node) == 1
            and (case.model.graph.node[0].domain, case.model.graph.node[0].op_type) in OPERATORS
            and not any(word in case.name for word in _OTHER)
            and all(value.type.tensor_type.elem_type in _ELEMENTS for value in case.model.graph.input)
        ):  # fmt: skip
            found.setdefault(case.model.graph.node[0].op_type, []).append(case)
    return found


@pytest.mark.parametrize("operator", [*PINNED["operators"], OTHERS])
def test_node_cases(operator, tmp_path):
    named = [operator] if operator != OTHERS else sorted(cases().keys() - set(PINNED["operators"]))
    wrong = {}
    for case in (case for name in named for case in cases()[name]):
        try:
            check(case, tmp_path / "m.onnx")
        except Exception as error:
            wrong[case.name] = f"{type(error).__name__}: {error}"
    assert not wrong


def check(case, path):
    onnx.save(case.model, path)
    graph = load(path).graph
    for given, expected in case.data_sets:
        inputs = {}
        names = [i.name for i in case.model.graph.input]
        for key in graph.inputs:
            value = graph.values[key]
            array = as_array(given[names.index(value.name)])
            inputs[key] = array.astype(np.float64) if value.type.dtype in FLOATS else array
        if case.name in UNSUPPORTED:
            with pytest.raises(UnsupportedError, match=f"^{re.escape(UNSUPPORTED[case.name])}$"):
                evaluate(graph, Floats(0), inputs, ())
            continue
        try:
            with np.errstate(all="ignore"):
                found = evaluate(graph, Floats(0), inputs, ())
        except UnsupportedError:
            if onnx.__version__ != PINNED["onnx"]:
                continue  # a case of another version of onnx
            raise
        for got, want in zip(found, map(as_array, expected), strict=False):
            assert got.shape == want.shape
            tolerance = 2e-2 if want.dtype.itemsize <= 2 and want.dtype.kind not in "iub" else 1e-4
            np.testing.assert_allclose(
                got.astype(np.float64),
                want.astype(np.float64),
                rtol=tolerance,
                atol=tolerance if want.dtype.kind == "f" else 0,
            )


def as_array(data):
    return onnx.numpy_helper.to_array(data) if isinstance(data, onnx.TensorProto) else np.asarray(data)


def test_no_operator_has_lost_its_semantics():
    assert set(PINNED["operators"]) <= cases().keys()
    if onnx.__version__ == PINNED["onnx"]:
        assert UNSUPPORTED.keys() <= {case.name for group in cases().values() for case in group}


@pytest.mark.parametrize("domain", [Floats(1), Terms(1), Field(1), Field(1, 1)], ids=lambda d: f"{d.name}")
def test_laws_that_every_domain_obeys(domain):
    x, y, z = (domain.fresh(n, (64,)) for n in "xyz")
    zero, one = domain.constant(np.array(0.0)), domain.constant(np.array(1.0))

    def same(a, b):
        return bool(np.all(domain.equal(a, b))) if domain.name != "floats" else np.allclose(a, b)

    assert same(domain.add(x, y), domain.add(y, x))
    assert same(domain.mul(x, y), domain.mul(y, x))
    assert same(domain.add(x, zero), x)
    assert same(domain.mul(x, one), x)
    assert same(domain.neg(domain.neg(x)), x)
    assert same(domain.add(domain.neg(x), domain.neg(y)), domain.neg(domain.add(x, y)))
    assert same(domain.mul(domain.neg(x), y), domain.neg(domain.mul(x, y)))
    assert same(domain.max(domain.max(x, y), z), domain.max(x, domain.max(y, z)))
    assert same(domain.max(x, domain.min(x, y)), x)
    assert not same(domain.max(x, y), domain.min(x, y))
    assert not same(x, y)


@pytest.mark.parametrize("prime", [0, 1])
def test_the_field_knows_exponentials_roots_and_division(prime: int):
    d = Field(3, prime)
    x, y = d.fresh("x", (64,)), d.fresh("y", (64,))

    def same(a, b):
        return bool(np.all(d.equal(a, b)))

    assert same(d.func("exp", d.add(x, y)), d.mul(d.func("exp", x), d.func("exp", y)))
    assert same(d.func("log", d.func("exp", x)), x)
    assert same(d.mul(d.div(x, y), y), x)
    assert same(d.func("sqrt", d.mul(x, y)), d.mul(d.func("sqrt", x), d.func("sqrt", y)))
    root = d.constant(np.array(np.sqrt(2)))
    assert same(d.mul(root, root), d.constant(np.array(2.0)))
    assert same(d.mul(d.constant(np.array(np.float32(0.1))), d.constant(np.array(10.0))), d.constant(np.array(1.0)))
    # What is not a law must not hold.
    assert not same(d.func("exp", d.mul(x, y)), d.mul(d.func("exp", x), d.func("exp", y)))
    assert not same(d.func("sqrt", d.add(x, y)), d.add(d.func("sqrt", x), d.func("sqrt", y)))
    assert not same(d.func("erf", d.add(x, y)), d.add(d.func("erf", x), d.func("erf", y)))


def test_terms_do_not_know_that_sums_associate():
    d = Terms(0)
    x, y, z = (d.fresh(n, (8,)) for n in "xyz")
    assert not np.any(d.equal(d.add(d.add(x, y), z), d.add(x, d.add(y, z))))


def test_the_order_domain_is_not_a_field_of_floats():
    d = Order()
    assert d.holds(d.fresh("x", (2,)))
    with pytest.raises(UnsupportedError):
        d.constant(np.array(np.inf))


@pytest.mark.parametrize("text", [
    "y = MaxPool<kernel_shape = [2, 2], strides = [2, 2], ceil_mode = 2>(x)",
    "y = ReduceMean(x, axes)",
])  # fmt: skip
def test_attributes_and_axes_that_onnx_does_not_foresee_mean_what_the_runtime_makes_of_them(text: str):
    source = f'<ir_version: 8, opset_import: ["": 18]> g (float[1,1,4,3] x) => (float[] y) <int64[2] axes = {{1, 1}}> {{ {text} }}'
    given = np.arange(12.0).reshape(1, 1, 4, 3)
    proto = onnx.parser.parse_model(source)
    session = onnxruntime.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
    graph = load(proto).graph
    (made,) = evaluate(graph, Floats(0), {graph.inputs[0]: given}, ())
    (expected,) = session.run(None, {"x": given.astype(np.float32)})
    assert np.array_equal(made, expected)


@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
@pytest.mark.parametrize(
    "how", ["half_pixel", "asymmetric", "align_corners", "pytorch_half_pixel", "half_pixel_symmetric"]
)
def test_resizes_are_those_of_the_runtime(mode, how, tmp_path):
    """ONNX's own cases have the factors as an input; here they are constants, as rules have them."""
    x = np.random.default_rng(3).standard_normal((1, 2, 5, 4)).astype(np.float32)
    for told in ("scales = {1, 1, 2, 3}", "scales = {1, 1, 0.5, 1.5}", "sizes = {1, 2, 7, 4}", "sizes = {1, 2, 1, 8}"):
        kind = "int64" if told.startswith("sizes") else "float"
        operands = "x, , , sizes" if told.startswith("sizes") else "x, , scales"
        model = onnx.parser.parse_model(f"""
            <ir_version: 9, opset_import: ["" : 19]>
            g (float[1, 2, 5, 4] x) => (float[a, b, c, d] y) <{kind}[4] {told}> {{
                y = Resize<mode = "{mode}", coordinate_transformation_mode = "{how}">({operands})
            }}""")
        onnx.save(model, tmp_path / "m.onnx")
        graph = load(tmp_path / "m.onnx").graph
        (found,) = evaluate(graph, Floats(0), {graph.inputs[0]: x.astype(np.float64)}, ())
        session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
        (expected,) = session.run(None, {"x": x})
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)
