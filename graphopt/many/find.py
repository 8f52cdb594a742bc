"""Which models are meant, where each is written, and which files belong to them."""

from __future__ import annotations

import glob
import os
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from graphopt.errors import ModelError, UsageError, reason
from graphopt.files import existing, resolved
from graphopt.onnxio.load import external_files

_OTHER_WEIGHTS = {".bin", ".safetensors", ".pt", ".pth", ".ckpt", ".h5", ".msgpack", ".gguf", ".tflite"}
_OTHER_WEIGHTS |= {".npz", ".ot", ".pdparams", ".onnx_data", ".data"}
"""Endings of weights, which are large, and which configurations and tokenizers never have."""


@dataclass(frozen=True)
class ModelJob:
    """A model to optimise.

    Attributes:
        source: The model.
        target: Where it is written, ``None`` for nowhere.
    """

    source: Path
    target: Path | None


@dataclass(frozen=True)
class FoundModels:
    """What is meant by some arguments.

    Attributes:
        jobs: The models.
        carried: Files that belong to them (configurations, tokenizers), and where they go.
    """

    jobs: tuple[ModelJob, ...]
    carried: tuple[tuple[Path, Path], ...] = ()


def find(given: Sequence[Path], out: Path | None) -> FoundModels:
    """Find models.

    Args:
        given: Models, folders (of which all models are meant, and what lies beside them is carried along) and patterns.
        out: Where to write: what lies in a folder keeps its place below it. ``None`` for nowhere.

    Raises:
        UsageError: There is nothing of that name, no model in it, it can't be read, or two models would be written to one place.
    """
    jobs: dict[Path, ModelJob] = {}
    carried: list[tuple[Path, Path]] = []
    for each in given:
        found, others = _in(each, out)
        if not found:
            raise UsageError(
                f"no model in {each}" if each.is_dir() else f"nothing matches {each}", "models end in .onnx"
            )
        for path, place in found:
            jobs.setdefault(path.resolve(), ModelJob(path, None if out is None else out / place))
        if out is not None:
            carried += [(path, out / place) for path, place in others]
    _check(list(jobs.values()), carried)
    return FoundModels(tuple(jobs.values()), tuple(carried))


Placed = list[tuple[Path, Path]]
"""Files, each with its place below the folder that is written to."""


def _in(given: Path, out: Path | None) -> tuple[Placed, Placed]:
    """The models that an argument means, and other files."""
    if not given.exists() and glob.has_magic(str(given)):  # a pattern that the shell has left alone
        parts = given.parts
        fixed = Path(*parts[: next(number for number, part in enumerate(parts) if glob.has_magic(part))])
        paths = [Path(text) for text in sorted(glob.glob(str(given), recursive=True))]
        return [(path, path.relative_to(fixed)) for path in paths if _is_model(path)], []
    if not given.is_dir():
        return [(existing(given), Path(given.name))], []
    files = [(path, path.relative_to(given)) for path in _walk(given, out)]
    models = [(path, place) for path, place in files if _is_model(path)]
    weights = {file for path, _ in models for file in data_files(path)}
    return models, [(path, place) for path, place in files if _belongs(path) and path.absolute() not in weights]


def _walk(folder: Path, out: Path | None) -> Iterator[Path]:
    """All files below a folder, but for what is hidden and for what we write.

    Raises:
        UsageError: A folder can't be read: of the models in it nobody would hear again.
    """

    def refused(error: OSError) -> NoReturn:
        raise UsageError(f"{error.filename}: can't be read: {reason(error)}") from error

    for here, folders, names in os.walk(folder, onerror=refused):
        ours = [name for name in folders if out is not None and out.exists() and out.samefile(Path(here, name))]
        folders[:] = sorted(name for name in folders if not name.startswith(".") and name not in ours)
        yield from (Path(here, name) for name in sorted(names) if not name.startswith("."))


def _is_model(path: Path) -> bool:
    name = path.name.lower()
    return path.is_file() and name.endswith(".onnx") and not name.endswith(".opt.onnx")


def _belongs(path: Path) -> bool:
    return path.is_file() and path.suffix.lower() not in {".onnx", *_OTHER_WEIGHTS}


def data_files(model: Path) -> set[Path]:
    """The files in which a model keeps weights; none of a model that can't be read."""
    with suppress(ModelError, OSError):
        return external_files(model)
    return set()


def _check(jobs: Sequence[ModelJob], carried: Placed) -> None:
    """See that nothing is written twice or over what is read.

    Raises:
        UsageError: It would be.
    """
    reads = {resolved(job.source) for job in jobs} | {resolved(source) for source, _ in carried}
    taken: dict[Path, Path] = {}
    for source, target in [*((job.source, job.target) for job in jobs), *carried]:
        if target is None:
            continue
        place = resolved(target)
        if place in reads:
            raise UsageError(
                f"{target} is an input, which is never overwritten", "choose another folder with --out-dir"
            )
        if place in taken:
            raise UsageError(
                f"{taken[place]} and {source} would both be written to {target}", "give the folder that holds both"
            )
        taken[place] = source
