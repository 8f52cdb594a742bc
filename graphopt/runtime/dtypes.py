"""Element types: one row for each, with its ONNX code, its numpy (or ml_dtypes) name and its width.

The name of a type is that of its numpy dtype (``float32``, ``bfloat16``, ``int4``); strings are ``str``.
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
        runtime: The name in the runtime's type strings, as in ``tensor(float)``.
        name: The numpy or ml_dtypes name.
        bits: The width of an element; 0 for strings.
        native: Whether numpy itself has the type, so that the runtime's Python binding takes and returns it.
    """

    code: int
    runtime: str
    name: str
    bits: int
    native: bool = True


ELEMENT_TYPES = (
    ElementType(1, "float", "float32", 32),
    ElementType(2, "uint8", "uint8", 8),
    ElementType(3, "int8", "int8", 8),
    ElementType(4, "uint16", "uint16", 16),
    ElementType(5, "int16", "int16", 16),
    ElementType(6, "int32", "int32", 32),
    ElementType(7, "int64", "int64", 64),
    ElementType(8, "string", "str", 0),
    ElementType(9, "bool", "bool", 8),
    ElementType(10, "float16", "float16", 16),
    ElementType(11, "double", "float64", 64),
    ElementType(12, "uint32", "uint32", 32),
    ElementType(13, "uint64", "uint64", 64),
    ElementType(14, "complex64", "complex64", 64),
    ElementType(15, "complex128", "complex128", 128),
    ElementType(16, "bfloat16", "bfloat16", 16, native=False),
    ElementType(17, "float8e4m3fn", "float8_e4m3fn", 8, native=False),
    ElementType(18, "float8e4m3fnuz", "float8_e4m3fnuz", 8, native=False),
    ElementType(19, "float8e5m2", "float8_e5m2", 8, native=False),
    ElementType(20, "float8e5m2fnuz", "float8_e5m2fnuz", 8, native=False),
    ElementType(21, "uint4", "uint4", 4, native=False),
    ElementType(22, "int4", "int4", 4, native=False),
    ElementType(23, "float4e2m1", "float4_e2m1fn", 4, native=False),
    ElementType(24, "float8e8m0", "float8_e8m0fnu", 8, native=False),
    ElementType(25, "uint2", "uint2", 2, native=False),
    ElementType(26, "int2", "int2", 2, native=False),
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
