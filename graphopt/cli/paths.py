"""Checks of the paths on the command line, made before the work starts rather than after."""

from __future__ import annotations

import difflib
import os
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path

from graphopt.config import STORE, cache_dir, nearest_file
from graphopt.errors import UsageError
from graphopt.files import is_stream

_RULES = frozenset({".yaml", ".yml"})
_INPUTS = frozenset({".npz", ".npy", ".pb"})
_EVIDENCE, _MANIFEST = "evidence.lock", "manifest.json"
_OF_AGENTS = frozenset({".onnx", ".safetensors", ".sqlite", ".csv", ".json"})


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
    if path.is_symlink():
        raise UsageError(f"no such file: {path} is a link to {os.readlink(path)}, which is not there")
    if path.parent.is_dir():
        near = difflib.get_close_matches(path.name, os.listdir(path.parent), n=1)
        hint = f"did you mean {path.parent / near[0]}?" if near else None
    if hint is None and path.name == str(path) and not path.suffix:
        hint = _in_the_zoo(path.name)
    raise UsageError(f"no such file: {path}", hint)


def _in_the_zoo(name: str) -> str | None:
    """How to get at the model of the zoo whose name that may be."""
    from graphopt import zoo

    near = [name] if name in zoo.names() else difflib.get_close_matches(name, zoo.names(), n=1)
    return f"`graphopt zoo build {near[0]}` makes the model of that name and prints its path" if near else None


def existing_inputs(path: Path) -> Path:
    """`path`, if there is a file or a folder to read inputs from.

    Raises:
        UsageError: There is neither.
    """
    return path if path.is_dir() else existing_file(path)


def default_output(model: Path) -> Path:
    """Where the optimised `model` goes unless the user says otherwise: ``net.onnx`` to ``net.opt.onnx``."""
    stem = model.stem if model.suffix.lower() == ".onnx" else model.name
    return model.with_name(f"{stem}.opt.onnx")


def also_read(
    *, inputs: Path | None = None, rules: Iterable[str | Path] = (), agent: str | Path | None = None
) -> dict[str, Path]:
    """What a command reads besides models, by what it is: also the evidence beside rules.

    Args:
        inputs: A file of inputs, or a folder.
        rules: Files and folders of rules; what is none of either names rules, and is passed over.
        agent: The folder of an agent.

    Raises:
        UsageError: There are no such inputs.
    """
    found: dict[str, Path] = {}
    if inputs is not None:
        found[f"the {_kind(inputs)} of inputs"] = existing_inputs(inputs)
    for each in filter(Path.exists, map(Path, rules)):
        found[f"the {_kind(each)} of rules {each}"] = each
        if each.is_file():
            found[f"the evidence of {each}"] = each.with_name(_EVIDENCE)
    if agent:
        found["the agent"] = Path(agent)
    return found


def _always_read() -> dict[str, Path]:
    """What any command may read, by what it is: the file of settings and the store of kernel times."""
    settings = nearest_file(Path.cwd())
    found = {} if settings is None else {"the file of settings": settings}
    with suppress(UsageError):  # where there is no cache, nothing is kept in it
        found["the store of kernel times"] = cache_dir() / STORE
    return found


def _kind(path: Path) -> str:
    return "folder" if path.is_dir() else "file"


def is_rules(path: Path) -> bool:
    """Whether a file of a folder of rules is one of rules or their evidence, by its name."""
    return path.suffix in _RULES or path.name == _EVIDENCE


def _is_read(path: Path, folder: Path) -> bool:
    """Whether a file of a folder is one of those that are read in it: inputs, rules, agents; reports and models may lie beside them."""
    of_agent = (folder / _MANIFEST).is_file()
    return path.suffix in _INPUTS or is_rules(path) or (of_agent and path.suffix in _OF_AGENTS)


def writable(path: Path, *, reads: Mapping[str, Path], writes: Mapping[str, Path]) -> Path:
    """`path`, if a file can be written there without harm to the other files of the command.

    Args:
        path: Where a file is to be written.
        reads: The files and folders that the command reads, by what they are. They are never overwritten, nor what is read in them,
            nor what any command reads.
        writes: The other files that the command writes, by what they are.

    Raises:
        UsageError: There is no such folder, no permission, `path` is one of the other files, or nothing to write to.
    """
    if str(path) == "-":
        raise UsageError("a model or a report cannot be written to stdout this way", "give the name of a file")
    for what, other in {**reads, **_always_read()}.items():
        if same_file(path, other):
            raise UsageError(f"{path} is {what}, which is never overwritten", "choose another name")
        if (
            os.path.isdir(other)
            and path.is_file()
            and _is_read(path, other)
            and path.resolve().is_relative_to(other.resolve())
        ):
            raise UsageError(f"{path} is part of {what}, which is never overwritten", "choose another name")
    if is_stream(path):
        # Not a descriptor of this process: those can be written by whoever holds them, whatever the path's own rights.
        if path.exists() and not os.access(path, os.W_OK):
            raise UsageError(f"no permission to write into {path}")
        return path
    for what, other in writes.items():
        if same_file(path, other):
            raise UsageError(f"{path} is to hold {what} as well", "give each output a name of its own")
    folder = Path(os.path.realpath(path)).parent  # of a link, that of the file which it leads to
    if not folder.is_dir():
        raise UsageError(f"no such folder: {folder if path.is_symlink() else path.parent}")
    if not os.access(folder, os.W_OK):
        raise UsageError(f"no permission to write in {path.parent}", "choose another place")
    return path


def spare_weights(model: Path, targets: Iterable[Path]) -> None:
    """Make sure that no target is a file in which `model` keeps its weights.

    Args:
        model: The input.
        targets: Where the command will write. (What it writes beside a model has a name by its content.)

    Raises:
        UsageError: A target is such a file.
        ModelError: `model` can't be read.
    """
    folder = model.resolve().parent
    # Weights lie in the model's folder or below it, so that the model need be read for few targets only.
    there = [path for path in targets if path.exists() and path.resolve().is_relative_to(folder)]
    if not there:
        return
    from graphopt.onnxio.load import load

    weights = {Path(tensor.path) for tensor in load(model).tensors.values() if hasattr(tensor, "path")}
    for path in there:
        if any(same_file(path, file) for file in weights - {model}):
            raise UsageError(f"{path} would overwrite weights of the input", "choose another name")


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


def same_file(one: Path, other: Path) -> bool:
    """Whether two paths lead to the same file, through links or not; neither has to exist."""
    try:
        return os.path.samefile(one, other)
    except OSError:
        return os.path.realpath(one) == os.path.realpath(other)
