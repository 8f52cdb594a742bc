"""Attributes are written as their schema declares them."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import AttributeProto, numpy_helper

from graphopt.ir.constants import tensor_of
from graphopt.ir.infer import attribute, infer, make_node
from graphopt.ir.types import ValueType


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
