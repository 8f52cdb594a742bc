"""Inputs whose elements come out of a list: the words and categories that a model knows, of which it refuses others or makes nothing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from graphopt.ir.types import Array


@dataclass(frozen=True)
class Vocabulary:
    """What an input may hold.

    Attributes:
        columns: The elements to choose from: one list for all, or one for each place of the last dimension, empty where anything may stand.
    """

    columns: tuple[tuple[str | int, ...], ...]

    def put(self, array: Array, rng: np.random.Generator) -> Array:
        """An array of the same shape with chosen elements where there is a choice."""
        made = np.array(array)
        if len(self.columns) == 1:
            made[...] = self._drawn(0, made.shape, made.dtype, rng)
        elif made.shape[-1:] == (len(self.columns),):
            for place, words in enumerate(self.columns):
                if words:
                    made[..., place] = self._drawn(place, made.shape[:-1], made.dtype, rng)
        return made

    def _drawn(self, place: int, shape: tuple[int, ...], dtype: np.dtype[Any], rng: np.random.Generator) -> Array:
        words = np.array(self.columns[place], object).astype(dtype)
        return words[rng.integers(0, len(words), shape)]
