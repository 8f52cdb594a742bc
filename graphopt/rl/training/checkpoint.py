"""What is kept of a training run: a JSON manifest and safetensors, no pickle.

A folder holds ``manifest.json``, the ``weights-N.safetensors`` that it names, ``prices.sqlite`` (kernel prices as they were when the
run began), ``progress.csv`` and TensorBoard's ``logs``; when training is done also the agent as ONNX. The manifest is replaced last
and at once, so whenever a run is killed, the folder holds a whole checkpoint.
"""

from __future__ import annotations

import csv
import math
import re
import shutil
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from graphopt.cost.store import Store, StoreWarning
from graphopt.errors import GraphoptError, UsageError, reason
from graphopt.files import write, write_text
from graphopt.rl.agent import CONTROLLER, ENCODER, MEMORY, RULES
from graphopt.rl.manifest import MANIFEST, PRICES, PROGRESS, CheckpointError, Manifest
from graphopt.wording import csv_table

if TYPE_CHECKING:
    from torch import Tensor

LOGS = "logs"
Row = dict[str, float]
"""A line of ``progress.csv``: what is told of an update."""
_WEIGHTS = re.compile(r"weights-\d+\.safetensors")
_CUT_SHORT = re.compile(r"\.weights-\d+\.safetensors.*")  # left by a run that was killed just then
_WRITTEN = {PRICES, PROGRESS, ENCODER, RULES, CONTROLLER, MEMORY}


def check_folder(folder: Path) -> None:
    """See that a run that begins in a folder would overwrite or remove nothing there.

    Raises:
        UsageError: It holds an agent already, or a file that is called like one of a run.
    """
    if (folder / MANIFEST).exists():
        raise UsageError(f"{folder} holds an agent already", "go on with --resume, or choose another --out")
    names = sorted(path.name for path in folder.iterdir()) if folder.is_dir() else []
    taken = [name for name in names if name in _WRITTEN or _WEIGHTS.fullmatch(name)]
    # Prices without a manifest are of a run that was killed before its first checkpoint, and so is all else.
    if taken and not (PRICES in taken and _are_prices(folder / PRICES)):
        raise UsageError(f"{folder / taken[0]} is there and not of a training run", "choose another --out")


def check_prices(folder: Path) -> None:
    """See that the prices of a run can be read: by others it would come to other figures.

    Raises:
        CheckpointError: They can't.
    """
    path = folder / PRICES
    if path.is_file() and not _are_prices(path):
        raise CheckpointError(f"{path}: not the prices of a training run", "restore it, or train a new agent")


def _are_prices(path: Path) -> bool:
    """Whether a file is a store of ours."""
    with warnings.catch_warnings(), Store(path) as store:
        warnings.simplefilter("ignore", StoreWarning)
        store.sizes()
        return store.persistent


def make(folder: Path) -> set[Path]:
    """Make the folder of a run.

    Returns:
        Which of it, of the folders around it and of what is in it was there before, for :func:`forget`.

    Raises:
        GraphoptError: It can't be made.
    """
    before = _found(folder)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        forget(folder, before)
        raise GraphoptError(f"{folder}: can't be made: {reason(error)}") from error
    return before


def forget(folder: Path, before: set[Path]) -> None:
    """Remove what a run has made that came to nothing, given what :func:`make` said before it began."""
    for path in sorted(_found(folder) - before):
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)  # or gone with the folder that it was in


def _found(folder: Path) -> set[Path]:
    inside = folder.iterdir() if folder.is_dir() else ()
    return {path for path in (folder, *folder.parents) if path.exists()} | set(inside)


def save(folder: Path, manifest: Manifest, tensors: Mapping[str, Tensor]) -> Manifest:
    """Write a checkpoint; the one before stays valid until this one is whole.

    Raises:
        GraphoptError: It can't be written.
    """
    from safetensors.torch import save

    name = f"weights-{manifest.iteration}.safetensors"
    write(folder / name, [save({key: t.detach().cpu().contiguous() for key, t in tensors.items()})])
    made = replace(manifest, weights=name)
    made.write(folder)
    for old in folder.iterdir():
        if old.name != name and (_WEIGHTS.fullmatch(old.name) or _CUT_SHORT.fullmatch(old.name)):
            old.unlink(missing_ok=True)
    return made


def tensors_of(folder: Path, manifest: Manifest) -> dict[str, Tensor]:
    """The parameters of a checkpoint.

    Raises:
        CheckpointError: The file is missing or damaged.
    """
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    path = folder / manifest.weights
    try:
        found: dict[str, Tensor] = load_file(path)
    except (OSError, SafetensorError) as error:
        raise CheckpointError(f"{path}: can't be read: {reason(error)}") from error
    return found


def write_progress(folder: Path, rows: Sequence[Mapping[str, float]]) -> None:
    """Write ``progress.csv``, whole or not at all; nothing where there was no update.

    Raises:
        GraphoptError: The file can't be written.
    """
    if not rows:
        return
    # Rows from before an interruption may be of another version, which logged something else.
    heads = list(dict.fromkeys(name for row in rows for name in row))
    write_text(folder / PROGRESS, csv_table(heads, rows))


def read_progress(folder: Path, until: float = math.inf) -> list[Row]:
    """The lines of ``progress.csv`` of the first ``until`` updates, all by default; none where there is no file.

    Raises:
        CheckpointError: The file is damaged.
    """
    path = folder / PROGRESS
    try:
        with path.open(encoding="utf-8", newline="") as lines:
            rows = [
                {name: _number(str(value)) for name, value in row.items() if value != ""}
                for row in csv.DictReader(lines)
            ]
        # The file may be of a later moment than the manifest, if the run was killed between the two.
        return [{**row, "steps": int(row["steps"])} for row in rows if row["iteration"] <= until]
    except FileNotFoundError:
        return []
    except (OSError, ValueError, KeyError, TypeError, csv.Error) as error:
        raise CheckpointError(
            f"{path}: not the progress of a training run", "move it away to go on without what it tells"
        ) from error


def _number(text: str) -> float:
    return int(text) if text.isdecimal() else float(text)
