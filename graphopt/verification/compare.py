"""Compare two values: arrays under a tolerance that follows their scale, containers part by part.

A rewrite may add floats in another order, so the last digits move, and where large terms cancel they move by more
than the result is large. What bounds the error is the size of the terms, and the best guess at it from outside is
the largest element of the output. So the tolerance of an element is ``atol + rtol * max|reference|``, the same for
all elements of an array. Large numbers that both have alike are left out of that maximum: what was put in place of a logit
or a box, the lowest float or -1e9, is no term of a sum, and beside it everything else would pass.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from graphopt.ir.types import Array

RTOL = {"float64": 1e-7, "float32": 1e-4, "float16": 1e-2, "bfloat16": 5e-2, "quantized": 5e-2}
"""Default relative tolerance by element type, or by the coarsest arithmetic inside the model if that is coarser.
Types of 8 bits or fewer get that of quantised arithmetic. (What computes with quantised numbers and is given floats gets less, see
:data:`graphopt.verification.reference.LEVEL`.)"""

_REAL = {"complex64": "float32", "complex128": "float64"}
_WIDE = {"float64", "float32", "complex64", "complex128"}
_TINY = 1e-30  # below this a scale counts as zero: the tolerance must not vanish with an all-zero output
_FILL = 1e4  # masks put -10000 and beyond in place of what does not count


@dataclass(frozen=True)
class Difference:
    """How far a value is from its reference.

    Attributes:
        passed: Whether it is within tolerance.
        max_abs: Largest difference of an element; infinite where the two can't be compared.
        max_rel: ``max_abs`` over the largest element of the reference that says how large its terms are.
        flips: How many elements of types that are compared exactly differ.
        message: What is wrong, empty if nothing is.
    """

    passed: bool
    max_abs: float = 0.0
    max_rel: float = 0.0
    flips: int = 0
    message: str = ""

    @property
    def known_rel(self) -> float:
        """``max_rel``; 0 where the two can't be compared."""
        return self.max_rel if math.isfinite(self.max_rel) else 0.0

    def worse(self, other: Difference) -> Difference:
        """The two together: failed if one failed, with the larger error and the first message."""
        return Difference(
            self.passed and other.passed,
            max(self.max_abs, other.max_abs),
            max(self.max_rel, other.max_rel),
            max(self.flips, other.flips),
            self.message or other.message,
        )


SAME = Difference(True)


@dataclass(frozen=True)
class Tolerance:
    """How much a value may differ.

    Attributes:
        rtol: Tolerance relative to the largest element of an array; None is :data:`RTOL` of its type.
        atol: Tolerance in absolute terms, added to the relative one.
        flips: How many elements may differ of types that are compared exactly.
        jump: By how much such an element may differ.
        levels: By how many levels 8-bit integers may differ: 1 suits quantised outputs, whose rounding may tip over.
        structure_only: Compare only types and shapes, for outputs that are random.
    """

    rtol: float | None = None
    atol: float | None = None
    flips: int = 0
    jump: float = math.inf
    levels: int = 0
    structure_only: bool = False


def compare(reference: Any, value: Any, tolerance: Tolerance) -> Difference:
    """Compare a value with its reference.

    Args:
        reference: An array, or a list, dict or None as the runtime returns for other types.
        value: What should equal it.
        tolerance: How much it may differ.
    """
    if reference is None or value is None:
        return SAME if reference is value else _failed("one is an empty optional, the other is not")
    if isinstance(reference, Mapping | list):
        before, after = _items(reference), _items(value)
        if after is None or before is None or type(reference) is not type(value):
            return _failed(f"a {type(reference).__name__} became a {type(value).__name__}")
        if before.keys() != after.keys():
            return SAME if tolerance.structure_only else _failed(f"{len(before)} elements became {len(after)} others")
        total = SAME
        for key, part in before.items():
            found = compare(part, after[key], tolerance)
            total = total.worse(replace(found, message=found.message and f"element {key!r}: {found.message}"))
        return total
    return _arrays(np.asarray(reference), np.asarray(value), tolerance)


def default_rtol(dtype: str) -> float:
    """Default relative tolerance of an element type (or of ``quantized`` arithmetic) by name."""
    return RTOL.get(_REAL.get(dtype, dtype), RTOL["quantized"])


def _items(value: Any) -> dict[Any, Any] | None:
    if isinstance(value, Mapping):
        return dict(value)
    return dict(enumerate(value)) if isinstance(value, list) else None


def _failed(message: str) -> Difference:
    return Difference(False, math.inf, math.inf, 0, message)


def _arrays(reference: Array, value: Array, tolerance: Tolerance) -> Difference:
    if reference.dtype != value.dtype:
        return _failed(f"type {reference.dtype} became {value.dtype}")
    if reference.shape != value.shape:
        return _failed(f"shape {list(reference.shape)} became {list(value.shape)}")
    if tolerance.structure_only or reference.size == 0:
        return SAME
    if reference.dtype.name.startswith(("float", "bfloat", "complex")):
        return _floats(reference, value, tolerance)
    return _exact(reference, value, tolerance)


def _floats(reference: Array, value: Array, tolerance: Tolerance) -> Difference:
    name = reference.dtype.name
    rtol = tolerance.rtol if tolerance.rtol is not None else default_rtol(name)
    if name not in _WIDE:
        reference, value = reference.astype(np.float32), value.astype(np.float32)
    finite = np.isfinite(reference)
    # Not a number must stay where it is; infinities too, with their sign.
    agree = (np.isnan(reference) & np.isnan(value)) | (reference == value)
    moved = int(np.count_nonzero(~agree & ~(finite & np.isfinite(value))))
    if moved:
        return _failed(f"{moved} of {reference.size} elements are finite in one and not in the other")
    if not finite.any():
        return SAME
    sizes = np.abs(reference[finite])
    error = float(np.abs(value[finite] - reference[finite]).max())
    scale = float(sizes[(sizes < _FILL) | ~agree[finite]].max(initial=0.0))
    relative = error / max(scale, _TINY)
    allowed = (tolerance.atol or 0.0) + rtol * scale
    if error <= allowed:
        return Difference(True, error, relative)
    message = f"off by {error:.3g} where values reach {scale:.3g} (at most {allowed:.3g} is allowed)"
    return Difference(False, error, relative, 0, message)


def _exact(reference: Array, value: Array, tolerance: Tolerance) -> Difference:
    differs = reference != value
    count = int(np.count_nonzero(differs))
    if not count:
        return SAME
    message = f"{count} of {reference.size} elements differ"
    error = scale = 1.0
    if reference.dtype.kind in "iu":
        # As Python integers: a difference of 64-bit integers can overflow.
        pairs = zip(reference[differs].tolist(), value[differs].tolist(), strict=True)
        error = float(max(abs(after - before) for before, after in pairs))
        scale = float(max(abs(int(reference.min())), abs(int(reference.max())), 1))
        message += f", by up to {error:.0f}"
    close = reference.dtype.kind in "iu" and reference.dtype.itemsize == 1 and error <= tolerance.levels
    if close or (count <= tolerance.flips and error <= tolerance.jump):
        return Difference(True, error, error / scale, count)
    return Difference(False, error, error / scale, count, message)
