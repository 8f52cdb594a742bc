"""Inputs that a user gives: a file of arrays, or a folder of sets of them.

A set lies in an ``.npz`` file, or in a folder: ``NAME.npy`` for each input, or protobufs as the ONNX project writes its test data,
``input_0.pb``, ``input_1.pb``, in the order of the model's inputs. A folder of such files or folders holds a set in each.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from graphopt.errors import UsageError, reason
from graphopt.ir.types import Array

if TYPE_CHECKING:
    from onnx import ValueInfoProto

MOST_SETS = 32
"""Of a folder: each is run by every model that is compared, and its outputs are kept."""
_HINT = "a folder of inputs holds .npz files, or folders of input_0.pb, input_1.pb ... or of NAME.npy"
_MESSAGE = re.compile(r"input_\d{1,9}\.pb")

Arrays = dict[str, Any]
Given = Sequence[Mapping[str, Any]]
"""Sets of inputs, one at least: arrays by input name, for some of the inputs or all."""


class InputsWarning(UserWarning):
    """Not all inputs that were given are used."""


def read_inputs(path: Path, declared: Sequence[ValueInfoProto]) -> list[Arrays]:
    """Read the inputs that lie at a path.

    Args:
        path: An ``.npz`` file or a folder, see the module.
        declared: The inputs of the model, see :func:`graphopt.onnxio.testdata.declared`.

    Returns:
        Sets of arrays (lists for sequences, ``None`` for an empty optional) by input name, at least one.

    Raises:
        UsageError: There is nothing of the kind, or a file can't be read.
    """
    if not path.is_dir():
        return [load_npz(path)]
    try:
        return _sets(path, declared)
    except OSError as error:
        raise UsageError(f"can't read inputs from {path}: {reason(error)}", _HINT) from error


def _sets(path: Path, declared: Sequence[ValueInfoProto]) -> list[Arrays]:
    """The sets of a folder, in the order of their names (numbers by their size)."""
    entries = sorted(path.iterdir(), key=_order)
    if _is_set(entries):
        return [_set(path, entries, declared)]
    found = [each for each in entries if each.suffix == ".npz" or (each.is_dir() and _is_set(each.iterdir()))]
    if not found:
        raise UsageError(f"{path} holds no inputs", _HINT)
    if len(found) > MOST_SETS:
        text = f"{path}: the first {MOST_SETS} of {len(found)} sets of inputs are used"
        warnings.warn(text, InputsWarning, stacklevel=5)
    return [
        _set(each, sorted(each.iterdir(), key=_order), declared) if each.is_dir() else load_npz(each)
        for each in found[:MOST_SETS]
    ]


def _order(path: Path) -> list[tuple[int, str]]:
    return [(int(part), "") if part.isdecimal() else (-1, part) for part in re.split(r"([0-9]+)", path.name) if part]


def _is_set(entries: Any) -> bool:
    """Whether files are inputs one by one."""
    return any(each.suffix == ".npy" or _MESSAGE.fullmatch(each.name) for each in entries)


def _set(path: Path, entries: Sequence[Path], declared: Sequence[ValueInfoProto]) -> Arrays:
    """The arrays of a folder that is one set."""
    arrays = [each for each in entries if each.suffix == ".npy"]
    messages = [each for each in entries if _MESSAGE.fullmatch(each.name)]
    if arrays and messages:
        raise UsageError(f"{path} holds both {arrays[0].name} and {messages[0].name}", "keep one kind of inputs")
    if messages:
        from graphopt.onnxio.testdata import read_message  # those who read arrays alone do without onnx

        return dict(read_message(each, declared) for each in messages)
    # Names with a slash make no file: they may be written with underscores.
    names = {re.sub(r"[^\w.-]", "_", each.name): each.name for each in declared}
    return {names.get(each.stem, each.stem): _load_npy(each) for each in arrays}


def _load_npy(path: Path) -> Array:
    try:
        found = np.load(path, allow_pickle=False)
    except OSError:
        raise
    except Exception as error:
        raise UsageError(f"can't read inputs from {path}: {_why(error)}", _HINT) from error
    if not isinstance(found, np.ndarray):
        found.close()
        raise UsageError(f"{path} holds more than one array", "call it .npz")
    return found


def _why(error: Exception) -> str:
    """Why a file can't be read; numpy takes whatever it does not know for pickled objects, and advises to load them unsafely."""
    return "it holds no plain arrays" if "allow_pickle" in str(error) else str(error) or type(error).__name__


def load_npz(path: Path, *, empty: bool = False) -> dict[str, Array]:
    """Read arrays by input name from an ``.npz`` file.

    Args:
        path: The file.
        empty: Whether it may hold no array, as for a model without inputs.

    Raises:
        UsageError: The file can't be read, or is no npz file of plain arrays.
    """
    hint = "write them with numpy.savez(path, input_name=array, ...)"
    try:
        archive = np.load(path, allow_pickle=False)
        if isinstance(archive, np.ndarray):
            raise UsageError(f"{path} holds one array without a name", hint)
        with archive:
            if not archive.files and not empty:
                raise UsageError(f"{path} holds no array: without --inputs they are made up", hint)
            return {name: archive[name] for name in archive.files}
    except UsageError:
        raise
    except OSError as error:
        raise UsageError(f"can't read inputs from {path}: {reason(error)}", hint) from error
    except Exception as error:
        # numpy and zipfile raise anything from TokenError to NotImplementedError for a file that lies about itself.
        raise UsageError(f"can't read inputs from {path}: {_why(error)}", hint) from error
