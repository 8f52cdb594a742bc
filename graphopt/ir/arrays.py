"""Constants that a rule or the engine made: arrays, known by their content."""

from __future__ import annotations

from typing import Any

import numpy as np

from graphopt.ir.delta import RefusedError
from graphopt.ir.dtypes import BY_NAME
from graphopt.ir.graph import Tensor
from graphopt.ir.types import ValueType, digest


class ArrayData:
    """Bytes of a constant that a rule or the engine made.

    Args:
        array: The content.
        meant: The number that it stands for, where the rule says so: 0.1 is none of the numbers of a float16.
    """

    def __init__(self, array: np.ndarray[Any, Any], meant: float | None = None) -> None:
        self._array, self.meant = array, meant

    @property
    def nbytes(self) -> int:
        """Size in bytes."""
        return int(self._array.nbytes)

    def numpy(self) -> np.ndarray[Any, Any]:
        """The array itself."""
        return self._array


def tensor_of(array: np.ndarray[Any, Any], meant: float | None = None) -> Tensor:
    """A tensor known by its content; ``meant`` as in :class:`ArrayData`.

    Raises:
        RefusedError: ONNX has no such dtype.
    """
    row = BY_NAME.get(array.dtype.name)
    if row is None or not (row.native and row.bits):
        raise RefusedError(f"no ONNX dtype for {array.dtype}")
    key = digest("tensor", row.short, array.shape, array.tobytes())
    return Tensor(key, ValueType(row.short, tuple(array.shape)), ArrayData(array, meant))
