"""Checks of the paths on the command line, made before the work starts rather than after."""

from __future__ import annotations

import difflib
import os
from pathlib import Path

from graphopt.errors import UsageError


def existing_file(path: Path) -> Path:
    """`path`, if there is a file to read.

    Raises:
        UsageError: There is none.
    """
    if path.is_dir():
        raise UsageError(f"{path} is a folder, not a file")
    if path.exists():
        if not path.is_file():
            raise UsageError(f"{path} is not a regular file")  # reading a pipe or a terminal would hang
        return path
    hint = None
    if path.parent.is_dir():
        near = difflib.get_close_matches(path.name, os.listdir(path.parent), n=1)
        hint = f"did you mean {path.parent / near[0]}?" if near else None
    raise UsageError(f"no such file: {path}", hint)


def default_output(model: Path) -> Path:
    """Where the optimised `model` goes unless the user says otherwise: ``net.onnx`` to ``net.opt.onnx``."""
    stem = model.stem if model.suffix.lower() == ".onnx" else model.name
    return model.with_name(f"{stem}.opt.onnx")


def writable(path: Path, *, reads: dict[str, Path], writes: dict[str, Path]) -> Path:
    """`path`, if a file can be written there without harm to the other files of the command.

    Args:
        path: Where a file is to be written.
        reads: The files that the command reads, by what they are. They are never overwritten.
        writes: The other files that the command writes, by what they are.

    Raises:
        UsageError: There is no such folder, no permission, or `path` is one of the other files.
    """
    if str(path) == "-":
        raise UsageError("a model or a report cannot be written to stdout this way", "give the name of a file")
    for what, other in reads.items():
        if same_file(path, other):
            raise UsageError(f"{path} is {what}, which is never overwritten", "choose another name with -o")
    for what, other in writes.items():
        if same_file(path, other):
            raise UsageError(f"{path} is to hold {what} as well", "give each output a name of its own")
    if path.is_dir():
        raise UsageError(f"{path} is a folder, not a file")
    if not path.parent.is_dir():
        raise UsageError(f"no such folder: {path.parent}")
    if not os.access(path.parent, os.W_OK):
        raise UsageError(f"no permission to write in {path.parent}", "choose another place with -o")
    return path


def same_file(one: Path, other: Path) -> bool:
    """Whether two paths lead to the same file, through links or not; neither has to exist."""
    try:
        return os.path.samefile(one, other)
    except OSError:
        return os.path.realpath(one) == os.path.realpath(other)
