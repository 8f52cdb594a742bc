"""Element types: one row for each, with its ONNX code, all its names and its width.

A table of our own, because onnx's takes a tenth of a second to import and knows no widths. Rules and graphs use the short name, sessions that of
the numpy dtype (``float32``, ``bfloat16``, ``int4``; strings are ``str``).
"""

from __future__ import annotations

from functools import cache
from typing import Any, NamedTuple

import numpy as np

Array = np.ndarray[Any, np.dtype[Any]]


class ElementType(NamedTuple):
    """An ONNX element type.

    Attributes:
        code: The ``TensorProto.DataType`` number.
        short: The name in graphs and rules.
        runtime: The name in type strings of schemas and of the runtime, as in ``tensor(float)``.
        name: The numpy or ml_dtypes name.
        bits: The width of an element; 0 for strings.
        native: Whether numpy itself has the type, so that the runtime's Python binding takes and returns it.
    """

    code: int
    short: str
    runtime: str
    name: str
    bits: int
    native: bool = True


ELEMENT_TYPES = (
    ElementType(1, "f32", "float", "float32", 32),
    ElementType(2, "u8", "uint8", "uint8", 8),
    ElementType(3, "i8", "int8", "int8", 8),
    ElementType(4, "u16", "uint16", "uint16", 16),
    ElementType(5, "i16", "int16", "int16", 16),
    ElementType(6, "i32", "int32", "int32", 32),
    ElementType(7, "i64", "int64", "int64", 64),
    ElementType(8, "str", "string", "str", 0),
    ElementType(9, "bool", "bool", "bool", 8),
    ElementType(10, "f16", "float16", "float16", 16),
    ElementType(11, "f64", "double", "float64", 64),
    ElementType(12, "u32", "uint32", "uint32", 32),
    ElementType(13, "u64", "uint64", "uint64", 64),
    ElementType(14, "c64", "complex64", "complex64", 64),
    ElementType(15, "c128", "complex128", "complex128", 128),
    ElementType(16, "bf16", "bfloat16", "bfloat16", 16, native=False),
    ElementType(17, "f8e4m3fn", "float8e4m3fn", "float8_e4m3fn", 8, native=False),
    ElementType(18, "f8e4m3fnuz", "float8e4m3fnuz", "float8_e4m3fnuz", 8, native=False),
    ElementType(19, "f8e5m2", "float8e5m2", "float8_e5m2", 8, native=False),
    ElementType(20, "f8e5m2fnuz", "float8e5m2fnuz", "float8_e5m2fnuz", 8, native=False),
    ElementType(21, "u4", "uint4", "uint4", 4, native=False),
    ElementType(22, "i4", "int4", "int4", 4, native=False),
    ElementType(23, "f4e2m1", "float4e2m1", "float4_e2m1fn", 4, native=False),
    ElementType(24, "f8e8m0", "float8e8m0", "float8_e8m0fnu", 8, native=False),
    ElementType(25, "u2", "uint2", "uint2", 2, native=False),
    ElementType(26, "i2", "int2", "int2", 2, native=False),
)

BY_CODE = {row.code: row for row in ELEMENT_TYPES}
BY_RUNTIME = {row.runtime: row for row in ELEMENT_TYPES}
BY_NAME = {row.name: row for row in ELEMENT_TYPES}


@cache
def numpy_dtype(name: str) -> np.dtype[Any]:
    """The numpy dtype of an element type; that of strings is ``object``.

    Args:
        name: A name from :data:`ELEMENT_TYPES`.

    Raises:
        KeyError: There is no such element type.
    """
    row = BY_NAME[name]
    if row.name == "str":
        return np.dtype(object)
    if row.native:
        return np.dtype(name)
    import ml_dtypes  # brought by onnx; imported here because most models do without

    dtype: np.dtype[Any] = np.dtype(getattr(ml_dtypes, name))
    return dtype
