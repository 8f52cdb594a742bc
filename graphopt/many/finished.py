"""What is finished in a folder of optimised models, so that a run that was killed goes on where it was.

A model is finished when what it was made of is what it would be made of now (the model with its weights, the settings, the rules, the
runtime, the machine), what was written is still there, and no noise hid whether it is faster: a quieter hour may tell. What others have
put into the folder stays, and what they have made of our files.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from contextlib import ExitStack, suppress
from functools import cache
from pathlib import Path
from typing import Any

from graphopt.errors import GraphoptError, UsageError, reason
from graphopt.files import alone, in_bytes, write_text
from graphopt.many.find import data_files
from graphopt.onnxio.load import load
from graphopt.onnxio.save import OURS
from graphopt.scratch import Closing

NAME = ".graphopt.json"
SCHEMA = "graphopt.finished/1"
_CHUNK = 1 << 24


class FinishedModels(Closing):
    """The models that are finished in a folder; while it is open no other process writes there.

    Args:
        folder: The folder; made if need be.
        made_with: Whatever but the model itself decides what is written, ready for JSON.

    Raises:
        UsageError: Another process is at work there, or it is no folder.
    """

    def __init__(self, folder: Path, made_with: Mapping[str, Any]) -> None:
        self.folder = folder
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except FileExistsError as error:
            raise UsageError(f"{folder} is not a folder") from error
        except OSError as error:
            raise UsageError(f"{folder}: can't be written to: {reason(error)}") from error
        self._stack = ExitStack()
        self._stack.enter_context(alone(folder, "wait for it, or choose another --out-dir"))
        self._made_with = json.dumps(made_with, sort_keys=True)
        self._entries, self._carried = self._read("models"), self._read("carried")

    def close(self) -> None:
        """Let others write there."""
        self._stack.close()

    def key(self, source: Path) -> str:
        """What a model would be made of, in short."""
        made = in_bytes(f"{content(source)} {self._made_with}")
        return hashlib.blake2b(made, digest_size=16).hexdigest()

    def finished(self, target: Path, key: str) -> dict[str, Any] | None:
        """What was told of a model when it was written; ``None`` if it was not, or not so, or is no longer there, or is open."""
        entry = self._entries.get(self._name(target))
        if not isinstance(entry, dict) or entry.get("key") != key or not isinstance(entry.get("told"), dict):
            return None
        if _unclear(entry["told"]):
            return None
        with suppress(OSError):
            if _plain(target) == entry.get("output") and _sizes(target) == entry.get("weights"):
                told: dict[str, Any] = entry["told"]
                return told
        return None

    def begin(self, source: Path, target: Path) -> None:
        """A model is about to be written.

        Raises:
            GraphoptError: Something of others is there, or it can't be written down that it may change.
        """
        entry = self._entries.get(self._name(target))
        if not target.is_file():
            return
        if isinstance(entry, dict):
            ours = entry.get("output") in (None, _plain(target))
        else:  # our list is lost, or was not written any more; we make no links
            ours = not target.is_symlink() and (_plain(target) == _plain(source) or _signed(target))
        if not ours:
            text = f"{target} stays as it is: no earlier run has written it, or it was changed since"
            raise GraphoptError(text, "remove it, or choose another folder with --out-dir")
        if isinstance(entry, dict):
            entry["output"] = None  # of a run that is killed from here on nobody knows what it has written
            self._write()

    def add(self, target: Path, key: str, told: Mapping[str, Any]) -> None:
        """A model is written.

        Raises:
            GraphoptError: That can't be written down.
        """
        output, weights = _plain(target), _sizes(target)
        self._entries[self._name(target)] = {"key": key, "output": output, "weights": weights, "told": told}
        self._write()

    def carries(self, source: Path, target: Path) -> bool:
        """Whether to copy a file that belongs to models: what others have put there, or made of it since, stays.

        Raises:
            GraphoptError: A file can't be read, or it can't be written down that it is ours.
        """
        name, now = self._name(target), content(source)
        if target.exists() and content(target) != self._carried.get(name):
            return False
        if self._carried.get(name) != now:
            self._carried[name] = now
            self._write()  # before it is copied: if that is cut short, the next run knows whose file it is
            return True
        return not target.exists()

    def _write(self) -> None:
        about = {"schema": SCHEMA, "models": self._entries, "carried": self._carried}
        write_text(self.folder / NAME, json.dumps(about, indent=1) + "\n")

    def _name(self, target: Path) -> str:
        return target.relative_to(self.folder).as_posix()

    def _read(self, part: str) -> dict[str, Any]:
        """The entries of a part; none where there is nothing, or nothing that we wrote."""
        try:
            found = json.loads((self.folder / NAME).read_text(encoding="utf-8"))
        except (OSError, ValueError, RecursionError):
            return {}
        entries = found.get(part) if isinstance(found, dict) and found.get("schema") == SCHEMA else None
        return entries if isinstance(entries, dict) else {}


def content(model: Path) -> str:
    """The hash of a model with its weights.

    Raises:
        GraphoptError: A file can't be read.
    """
    try:
        names = sorted((str(file.relative_to(model.parent.absolute())), file) for file in data_files(model))
        return " ".join([_plain(model), *(f"{name} {_plain(file)}" for name, file in names)])
    except OSError as error:
        raise GraphoptError(f"{model}: can't be read: {reason(error)}") from error


def contents(path: Path) -> str:
    """The hash of a file, or of all files of a folder.

    Raises:
        GraphoptError: A file can't be read.
    """
    files = sorted(each for each in path.rglob("*") if each.is_file()) if path.is_dir() else [path]
    try:
        return " ".join(f"{file.relative_to(path)} {_plain(file)}" for file in files)
    except OSError as error:
        raise GraphoptError(f"{path}: can't be read: {reason(error)}") from error


def _plain(file: Path) -> str:
    """The hash of a file; of one that has not changed since it was last asked for, from memory."""
    known = file.stat()
    return _hashed(file.resolve(), known.st_size, known.st_mtime_ns)


@cache
def _hashed(file: Path, size: int, changed: int) -> str:
    hashed = hashlib.blake2b(digest_size=16)
    with file.open("rb") as stream:
        while piece := stream.read(_CHUNK):
            hashed.update(piece)
    return hashed.hexdigest()


def _signed(file: Path) -> bool:
    """Whether a file says that graphopt has written it."""
    with suppress(GraphoptError):
        return any(entry.key == f"{OURS}version" for entry in load(file).proto.metadata_props)
    return False


def _unclear(told: Mapping[str, Any]) -> bool:
    """Whether the machine was too noisy to tell if a candidate is faster."""
    latency = told.get("latency")
    return bool(told.get("kept_original")) and isinstance(latency, dict) and latency.get("verdict") == "unclear"


def _sizes(target: Path) -> dict[str, int]:
    """The files of a written model's weights, which are named by their content, with their sizes."""
    return {file.name: file.stat().st_size for file in data_files(target)}
