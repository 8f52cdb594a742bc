"""Element types and shapes.

A dtype is a short name (``f32``, ``i64``, ``bool``); a dimension is an ``int``, the name of a symbol, or ``None`` when
nothing is known. Two equal symbols are equal sizes, as ONNX says; ``None`` is not even equal to itself.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from graphopt.ir.dtypes import ELEMENT_TYPES

TIMES = "\N{MIDDLE DOT}"
"""Between the factors of a product, ``7·batch·sequence``: a number first, if any, then the names in order (no exporter
writes this character into a name)."""

MADE_UP = "unk__"
"""How the names begin that ONNX's inference gives to dimensions it does not know."""

Dim = int | str | None
Shape = tuple[Dim, ...]

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
