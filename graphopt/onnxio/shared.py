"""Weights of other models in a folder, so that what several models have in common is written once."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from graphopt.errors import ModelError
from graphopt.ir.tensors import Constant, InFile
from graphopt.onnxio.load import external_tensors

_CHUNK = 1 << 24  # bytes compared at a time


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

    def find(self, wanted: Constant) -> tuple[str, int] | None:
        """The file (relative to the folder) and the offset at which the bytes of a tensor lie already, compared byte by byte."""
        for tensor in self._by_size.get(wanted.nbytes, ()) if wanted.nbytes else ():
            if tensor.path.resolve().parent == self._folder and _equal(tensor, wanted):
                return tensor.path.name, tensor.offset
        return None


def _equal(tensor: InFile, wanted: Constant) -> bool:
    """Whether two tensors have the same bytes: of two that differ, little is read."""
    at = 0
    with tensor.path.open("rb") as file:
        file.seek(tensor.offset)
        for piece in wanted.pieces():
            for begin in range(0, len(piece), _CHUNK):
                part = piece[begin : begin + _CHUNK]
                if file.read(len(part)) != part:
                    return False
                at += len(part)
    return at == tensor.nbytes
