"""Attributes are written as their schema declares them."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import AttributeProto, helper, numpy_helper

from graphopt.ir import schema
from graphopt.ir.constants import tensor_of
from graphopt.ir.infer import InferenceError, attribute, infer, make_node
from graphopt.ir.types import ValueType
from graphopt.runtime.session import Session
from tests.onnxio import models
from tests.runtime.models import model


@pytest.mark.parametrize(
    "value", [np.array(3, np.int64), np.zeros((0,), np.float32), np.ones((1,), np.float32), np.ones((2, 1))]
)
def test_a_tensor_keeps_its_shape(value):
    written = attribute("ConstantOfShape", "", 18, "value", tensor_of(value))
    assert list(written.t.dims) == list(value.shape)
    np.testing.assert_array_equal(numpy_helper.to_array(written.t), value)


@pytest.mark.parametrize(
    ("op", "name", "value", "type"),
    [
        ("TfIdfVectorizer", "pool_strings", (), AttributeProto.STRINGS),
        ("TfIdfVectorizer", "pool_strings", ("a", "b"), AttributeProto.STRINGS),
        ("TfIdfVectorizer", "weights", (), AttributeProto.FLOATS),
        ("TfIdfVectorizer", "weights", (1, 2), AttributeProto.FLOATS),
        ("TfIdfVectorizer", "ngram_indexes", (), AttributeProto.INTS),
        ("LeakyRelu", "alpha", 1, AttributeProto.FLOAT),
        ("Transpose", "perm", (1, 0), AttributeProto.INTS),
    ],
)
def test_a_list_has_the_declared_type_even_if_it_is_empty(op, name, value, type):
    written = attribute(op, "", 18, name, value)
    assert written.type == type
    assert (
        len(value) == len(written.strings or written.floats or written.ints)
        if isinstance(value, tuple)
        else written.f == value
    )


def test_what_the_schema_does_not_declare_is_refused():
    with pytest.raises(TypeError):
        attribute("Transpose", "", 18, "perm", (0.5,))


def test_none_is_left_out():
    assert [a.name for a in make_node("Gemm", "", 18, ["a", "b"], ["y"], {"alpha": None, "beta": 2}).attribute] == [
        "beta"
    ]


@pytest.mark.parametrize(
    ("factors", "attributes", "kept"),
    [
        ((1, 1, 2, 2), {}, "N"),
        ((1, 1, 2, 2), {"coordinate_transformation_mode": "tf_crop_and_resize"}, None),  # a part of it, perhaps
        ((2, 1, 2, 2), {}, None),
        ((1, 2), {"axes": (2, 3)}, None),
        (None, {}, None),
    ],
)
def test_what_a_resize_does_not_scale_keeps_its_symbol(factors, attributes, kept):
    x, scales = ValueType("f32", ("N", 8, 4, 4)), ValueType("f32", (4 if factors is None else len(factors),))
    data = [None, None, None if factors is None else np.array(factors, np.float32)]
    (found,) = infer("Resize", "", 19, attributes, [x, None, scales], data, 1)
    assert found.shape[0] == kept


@pytest.mark.parametrize(
    ("op", "attributes", "shapes"),
    [
        (
            "FusedConv",
            {"activation": "Relu", "pads": [1, 1, 1, 1], "strides": [2, 2]},
            [(2, 3, 8, 9), (4, 3, 3, 3), (4,)],
        ),
        ("FusedConv", {"activation": "Relu"}, [(2, 3, 8, 9), (4, 3, 1, 1), (4,), (2, 4, 8, 9)]),
        ("FusedGemm", {"activation": "LeakyRelu", "activation_alpha": 0.1, "transB": 1}, [(2, 3), (4, 3), (4,)]),
        ("FusedMatMul", {"alpha": 0.5}, [(2, 5, 3), (2, 3, 4)]),
        ("FusedMatMul", {"transA": 1}, [(2, 3, 5), (3, 4)]),
        ("FusedMatMul", {"transB": 1}, [(6, 2, 5, 3), (2, 4, 3)]),
        ("FusedMatMul", {"transA": 1, "transB": 1}, [(3,), (4, 3)]),
        ("Attention", {"num_heads": 2}, [(2, 5, 8), (8, 24), (24,)]),
        ("Attention", {"num_heads": 2, "qkv_hidden_sizes": [8, 8, 4]}, [(2, 5, 8), (8, 20), (20,)]),
        ("MatMulNBits", {"K": 32, "N": 6, "bits": 4, "block_size": 16}, [(2, 5, 32), (6, 2, 8), (6, 2)]),
    ],
)
def test_operators_of_the_runtime_have_the_shapes_that_it_makes(op, attributes, shapes):
    """A model that the runtime has optimised, or its quantiser has been over, is made of these."""
    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal(shape).astype(np.float32) for shape in shapes]
    if op == "MatMulNBits":
        arrays[1] = np.zeros(shapes[1], np.uint8)
    names = [f"x{i}" for i in range(len(shapes))]
    node = helper.make_node(op, names, ["y"], domain="com.microsoft", **attributes)
    types = [ValueType("u8" if a.dtype == np.uint8 else "f32", a.shape) for a in arrays]
    inputs = [(n, helper.np_dtype_to_tensor_dtype(a.dtype), a.shape) for n, a in zip(names, arrays, strict=True)]
    with Session(model([node], inputs, [("y", 1, None)], domains={"com.microsoft": 1})) as session:
        (y,) = session.run(dict(zip(names, arrays, strict=True)))
    given = {name: tuple(v) if isinstance(v, list) else v for name, v in attributes.items()}
    (found,) = infer(op, "com.microsoft", 1, given, types, [None] * len(types), 1)
    assert found == ValueType("f32", y.shape)


def test_what_embeds_and_normalises_before_its_time_has_the_shape_that_the_runtime_makes():
    """BERT as the runtime's own tools leave it, at an operator set that has no LayerNormalization yet."""
    table = np.ones((5, 8), np.float32)
    weights = {"table": table, "scale": table[0]}
    nodes = [
        helper.make_node(
            "EmbedLayerNormalization",
            ["ids", "", "table", "table", "", "scale", "scale"],
            ["e", ""],
            domain="com.microsoft",
        ),
        helper.make_node("LayerNormalization", ["e", "scale", "scale"], ["y"]),
    ]
    proto = model(nodes, [("ids", 6, (2, 3))], [("y", 1, None)], weights, opset=11, domains={"com.microsoft": 1})
    with Session(proto) as session:
        (y,) = session.run({"ids": np.ones((2, 3), np.int32)})
    ids, of_table, scale = ValueType("i32", (2, 3)), ValueType("f32", (5, 8)), ValueType("f32", (8,))
    given = [ids, None, of_table, of_table, None, scale, scale]
    embedded, _ = infer("EmbedLayerNormalization", "com.microsoft", 1, {}, given, [None] * 7, 2)
    (found,) = infer("LayerNormalization", "", 11, {}, [embedded, scale, scale], [None] * 3, 1)
    assert found == embedded == ValueType("f32", y.shape)


@pytest.mark.parametrize("op, attributes, data", [("Pad", {}, [-3, -3]), ("GatherND", {"batch_dims": -2}, None)])
def test_what_onnx_does_not_survive_is_refused(op, attributes, data):
    """Sizes below 0 end the process where a Slice reads them, less than no batch dimensions at once."""
    second = ValueType("i64", (2,) if data else (2, 1))
    given = [None, None if data is None else np.array(data, np.int64)]
    with pytest.raises(InferenceError):
        infer(op, "", 18, attributes, [ValueType("f32", (5,) if data else (3, 6)), second], given, 1)


def test_types_are_checked_where_onnx_cannot_list_those_of_a_parameter(monkeypatch):
    """As onnx 1.20 is built, the list of a parameter's types can't be handed to Python; every rewrite asks for it."""

    class Parameter:
        def __init__(self, real):
            self.real = real

        def __getattr__(self, name):
            if name == "types":
                raise TypeError("Unable to convert function return value to a Python type!")
            return getattr(self.real, name)

    real = schema.formal
    monkeypatch.setattr(schema, "formal", lambda of, i: Parameter(real(of, i)))
    schema._complaint.cache_clear()
    assert schema.complaint("Relu", "", 17, {}, ["f32"]) == ""
    assert "can't have 'X' of str" in schema.complaint("Relu", "", 17, {}, ["str"])
    schema._complaint.cache_clear()


@pytest.mark.parametrize(
    ("op", "version", "more"), [("GroupNormalization", 21, 2), ("MeanVarianceNormalization", 13, 0)]
)
def test_what_onnx_gives_no_shape_has_that_of_its_operand(op: str, version: int, more: int) -> None:
    x, scale = ValueType("f32", ("N", 4, 3)), ValueType("f32", (4,))
    attributes = {"num_groups": 2} if more else {}
    assert infer(op, "", version, attributes, [x, *[scale] * more], [None] * (1 + more), 1) == (x,)


@pytest.mark.parametrize(
    ("op", "attributes", "shape"),
    [
        ("ImageScaler", {"scale": 2.0, "bias": (1.0, 2.0, 3.0)}, ("N", 3, 8, 9)),
        ("Affine", {"alpha": 2.0, "beta": 1.0}, ("N", 3, 8, 9)),
        ("Crop", {"border": (1, 2, 3, 1)}, ("N", 3, 5, 5)),
        ("Crop", {"border": (1, 2, 0, 0), "scale": (3, 4)}, ("N", 3, 3, 4)),
        ("Crop", {"border": (9, 0, 9, 0)}, None),
    ],
)
def test_experiments_that_onnx_has_given_up_have_shapes_as_the_runtime_makes_them(
    op: str, attributes: dict[str, object], shape: tuple[int | str, ...] | None
) -> None:
    x = np.arange(216, dtype=np.float32).reshape(1, 3, 8, 9)
    (found,) = infer(op, "", 7, attributes, [ValueType("f32", ("N", 3, 8, 9))], [None], 1)
    assert found.shape == shape
    if shape is not None:
        made = models.model([helper.make_node(op, ["x"], ["y"], **attributes)], [("x", models.F, x.shape)], [("y", models.F, None)], opset=7)  # fmt: skip
        assert models.run(made, {"x": x})[0].shape == (1, *shape[1:])
