"""Weights of other models in a folder, so that what several models have in common is written once."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

import numpy as np

from graphopt.errors import ModelError
from graphopt.ir.tensors import InFile
from graphopt.onnxio.load import external_tensors

_CHUNK = 1 << 24  # bytes compared at a time: of two tensors that differ, little is read


class Shared:
    """What lies in the external data of some models.

    Args:
        models: The models; one that can't be read has nothing to share.
        folder: Where another model is to be written; what lies elsewhere, it could not refer to.
    """

    def __init__(self, models: Iterable[Path], folder: Path) -> None:
        self._folder = folder.resolve()
        self._by_size: dict[int, list[InFile]] = {}
        for model in models:
            with suppress(ModelError, OSError):
                for tensor in external_tensors(model) if model.resolve().parent == self._folder else ():
                    self._by_size.setdefault(int(tensor.nbytes), []).append(tensor)

    def __bool__(self) -> bool:
        return bool(self._by_size)

    def find(self, content: bytes) -> tuple[str, int] | None:
        """The file (relative to the folder) and the offset at which some bytes lie already, compared byte by byte."""
        for tensor in self._by_size.get(len(content), ()) if content else ():
            if tensor.path.resolve().parent == self._folder and _equal(tensor, content):
                return tensor.path.name, tensor.offset
        return None


def _equal(tensor: InFile, content: bytes) -> bool:
    there, here = tensor.raw, np.frombuffer(content, np.uint8)
    return all(np.array_equal(there[at : at + _CHUNK], here[at : at + _CHUNK]) for at in range(0, len(here), _CHUNK))
