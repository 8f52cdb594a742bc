"""Checks of the paths on the command line, made before the work starts rather than after."""

from __future__ import annotations

import difflib
import os
from collections.abc import Iterable, Mapping
from pathlib import Path

from graphopt.errors import UsageError
from graphopt.files import existing, files_read, same_file, weight_folders, writable


def existing_file(path: Path) -> Path:
    """`path`, if there is a file to read.

    Raises:
        UsageError: There is none.
    """
    try:
        return existing(path)
    except UsageError as error:
        bare = path.name == str(path) and not path.suffix
        if error.hint is None and bare and not os.path.lexists(path):
            error.hint = _in_the_zoo(path.name)
        raise


def _in_the_zoo(name: str) -> str | None:
    """How to get at the model of the zoo whose name that may be."""
    from graphopt import zoo

    near = [name] if name in zoo.names() else difflib.get_close_matches(name, zoo.names(), n=1)
    return f"`graphopt zoo build {near[0]}` makes the model of that name and prints its path" if near else None


def default_output(model: Path) -> Path:
    """Where the optimised `model` goes unless the user says otherwise: ``net.onnx`` to ``net.opt.onnx``."""
    stem = model.stem if model.suffix.lower() == ".onnx" else model.name
    return model.with_name(f"{stem}.opt.onnx")


def also_read(
    *, inputs: Path | None = None, rules: Iterable[str | Path] = (), agent: str | Path | None = None
) -> dict[str, Path]:
    """What a command reads besides models, see :func:`graphopt.files.files_read`.

    Raises:
        UsageError: There are no such inputs.
    """
    if inputs is not None and not os.path.isdir(inputs):
        existing_file(inputs)
    return files_read(inputs, rules, agent)


def spare_weights(model: Path, targets: Iterable[Path]) -> None:
    """Make sure that no target is a file in which `model` keeps its weights.

    Args:
        model: The input.
        targets: Where the command will write. (What it writes beside a model has a name by its content.)

    Raises:
        UsageError: A target is such a file.
        ModelError: `model` can't be read.
    """
    near = weight_folders(model)  # so that the model need be read for few targets only
    there = [path for path in targets if path.exists() and any(path.resolve().is_relative_to(f) for f in near)]
    if not there:
        return
    from graphopt.onnxio.load import external_files

    weights = external_files(model)
    for path in there:
        if any(same_file(path, file) for file in weights):
            raise UsageError(f"{path} would overwrite weights of the input", "choose another name")


def all_writable(outputs: Mapping[str, Path | None], reads: Mapping[str, Path]) -> list[Path]:
    """The files that a command writes, of which it may be given any, by what they are.

    Raises:
        UsageError: One can't be written without harm to another, or to what is read.
    """
    writes: dict[str, Path] = {}
    for what, path in outputs.items():
        if path is not None:
            writes[what] = writable(path, reads=reads, writes=writes)
    return list(writes.values())


def report_file(
    target: str | None,
    models: Mapping[str, Path],
    others: Mapping[str, Path] | None = None,
    writes: Mapping[str, Path] | None = None,
) -> None:
    """Check a file of results, such as the value of ``--json``.

    Args:
        target: Where it goes; ``None`` or ``-`` for no file.
        models: The models that the command reads, by what they are.
        others: What it reads besides, see `also_read`.
        writes: The other files that it writes.

    Raises:
        UsageError: The report can't be written there without harm.
        ModelError: A model can't be read.
    """
    if target is None or target == "-":
        return
    path = writable(Path(target), reads={**models, **(others or {})}, writes=writes or {})
    for model in models.values():
        spare_weights(model, [path])
