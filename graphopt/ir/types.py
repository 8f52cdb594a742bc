"""Element types and shapes.

A dtype is a short name (``f32``, ``i64``, ``bool``), which rules and graphs use; sessions use that of the numpy dtype (``float32``, ``bfloat16``,
``int4``; strings are ``str``). The table is our own, because onnx's takes a tenth of a second to import and knows no widths.

A dimension is an ``int``, the name of a symbol, or ``None`` when nothing is known. Two equal symbols are equal sizes, as ONNX says; ``None`` is not
even equal to itself.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple

import numpy as np

TIMES = "\N{MIDDLE DOT}"
"""Between the factors of a product, ``7·batch·sequence``: a number first, if any, then the names in order (no exporter
writes this character into a name)."""

MADE_UP = "unk__"
"""How the names begin that ONNX's inference gives to dimensions it does not know."""

NAMELESS = frozenset({"?", "-1", "None"})
"""What exporters write for a dimension of which they know nothing, height and width of one image alike: no name of a size."""

Dim = int | str | None
Shape = tuple[Dim, ...]
Array = np.ndarray[Any, np.dtype[Any]]


def dim_name(name: str, axis: int) -> str:
    """What a dimension of an input is called that has no name: ``x[0]``."""
    return f"{name}[{axis}]"


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
DTYPES: dict[str, int] = {row.short: row.code for row in ELEMENT_TYPES}
"""The ``TensorProto.DataType`` number of each dtype."""
DTYPE_NAMES: dict[int, str] = {number: name for name, number in DTYPES.items()}
NUMPY_NAMES: dict[str, str] = {row.short: row.name for row in ELEMENT_TYPES if row.native and row.bits}
"""Of the dtypes that numpy itself has: its name of each."""
BITS: dict[str, int] = {row.short: row.bits for row in ELEMENT_TYPES if row.bits}
FLOATS = frozenset({"f16", "bf16", "f32", "f64"})


@dataclass(frozen=True, slots=True)
class ValueType:
    """What is known of a value.

    Attributes:
        dtype: Short dtype name, ``None`` when unknown or not a tensor.
        shape: Dimensions, ``None`` when even the rank is unknown.
        other: The serialised type of a sequence, optional, map or sparse tensor; such a value matches no rule.
    """

    dtype: str | None = None
    shape: Shape | None = None
    other: bytes | None = None

    @property
    def static(self) -> bool:
        """Whether every dimension is a number."""
        return self.shape is not None and all(isinstance(d, int) for d in self.shape)

    @property
    def elements(self) -> int | None:
        """Number of elements, ``None`` unless static."""
        if self.shape is None:
            return None
        n = 1
        for d in self.shape:
            if not isinstance(d, int):
                return None
            n *= d
        return n

    @property
    def nbytes(self) -> int | None:
        """Size in bytes, ``None`` unless static and of a fixed-size dtype."""
        n = self.elements
        return None if n is None or self.dtype not in BITS else (n * BITS[self.dtype] + 7) // 8

    def __str__(self) -> str:
        if self.other is not None:
            return "opaque"
        dims = "?" if self.shape is None else ",".join("?" if d is None else str(d) for d in self.shape)
        return f"{self.dtype or '?'}[{dims}]"


UNKNOWN = ValueType()


def factors(dim: Dim) -> tuple[int, tuple[str, ...]] | None:
    """A dimension as a number times symbols, ``None`` when nothing is known of it."""
    if dim is None or isinstance(dim, int):
        return None if dim is None else (dim, ())
    head, *rest = dim.split(TIMES)
    if head.isdecimal():
        return (int(head), tuple(rest)) if rest else None  # a symbol that is called "7" may be anything
    return (1, (head, *rest))


def _dimension(number: int, symbols: Iterable[str]) -> Dim:
    names = sorted(symbols)
    if number == 0 or not names:
        return number
    return TIMES.join(names if number == 1 else [str(number), *names]) if number > 0 else None


def product(dims: Iterable[Dim]) -> Dim:
    """The product of dimensions, written so that equal products are equal; ``None`` where one is unknown."""
    number, symbols = 1, list[str]()
    for dim in dims:
        parts = factors(dim)
        if parts is None:
            return None
        number *= parts[0]
        symbols += parts[1]
    return _dimension(number, symbols)


def quotient(a: Dim, b: Dim) -> Dim:
    """``a / b`` where it is known to be without a rest (and ``b`` is not 0), else ``None``."""
    over, under = factors(a), factors(b)
    if over is None or under is None or under[0] == 0 or over[0] % under[0]:
        return None
    left = Counter(over[1])
    left.subtract(under[1])
    return None if any(n < 0 for n in left.values()) else _dimension(over[0] // under[0], left.elements())


def known(dim: Dim) -> bool:
    """Whether a dimension says anything: a number does, and a symbol that somebody chose."""
    return dim is not None and not (isinstance(dim, str) and dim.startswith(MADE_UP))


def merge(declared: ValueType, inferred: ValueType) -> ValueType | None:
    """The declared type refined by the inferred one, or ``None`` where the two contradict each other.

    Two symbols are two sizes, and a symbol is no number: a value that is ``[batch, seq]`` can't become ``[batch, 10]``, as
    there is a ``seq`` for which that is another shape. What is unknown contradicts nothing.
    """
    if declared is inferred or declared == inferred:
        return declared
    if declared.other is not None or inferred.other is not None:
        return declared if inferred == UNKNOWN else inferred if declared == UNKNOWN else None
    if declared.dtype and inferred.dtype and declared.dtype != inferred.dtype:
        return None
    dtype = declared.dtype or inferred.dtype
    a, b = declared.shape, inferred.shape
    if a is None or b is None:
        return ValueType(dtype, b if a is None else a)
    if len(a) != len(b):
        return None
    dims: list[Dim] = []
    for x, y in zip(a, b, strict=True):
        if known(x) and known(y) and x != y:
            return None
        dims.append(x if known(x) or y is None else y)
    return ValueType(dtype, tuple(dims))


def digest(*parts: Any) -> int:
    """A 64-bit hash of ``repr(parts)``, the same in every process."""
    return int.from_bytes(hashlib.blake2b(repr(parts).encode(), digest_size=8).digest(), "little")


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
