"""The manifest of an agent: what it was trained for, how, and how far; and the names of the files beside it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from graphopt import registry
from graphopt.documents import DocumentError, read_json, record
from graphopt.errors import GraphoptError, UsageError, reason
from graphopt.files import write_text
from graphopt.rl.task import Task, parse_task
from graphopt.version import __version__

SCHEMA = "graphopt.agent/1"
MANIFEST = "manifest.json"
PRICES = "prices.sqlite"
PROGRESS = "progress.csv"


class CheckpointError(GraphoptError):
    """A folder holds no agent, or not one that can be used here."""


@dataclass(frozen=True)
class Manifest:
    """What a checkpoint is.

    Attributes:
        algorithm: What trained it.
        task: What it was trained for.
        rules: Hash of each rule that it was trained with, by id.
        seed: Seed of all random draws.
        settings: Sizes and settings of the algorithm.
        environment: Where it was trained: fingerprint and versions.
        iteration: Batches learned from.
        steps: Environment steps.
        seconds: Spent training.
        best: Best predicted saving met on each model, in percent.
        results: Results of the final evaluation; empty until training is done.
        weights: Name of the file of parameters.
        version: Version of graphopt.
    """

    algorithm: str
    task: Task
    rules: Mapping[str, str]
    seed: int
    settings: Mapping[str, Any]
    environment: Mapping[str, Any]
    iteration: int = 0
    steps: int = 0
    seconds: float = 0.0
    best: Mapping[str, float] = field(default_factory=dict)
    results: Mapping[str, Any] = field(default_factory=dict)
    weights: str = ""
    version: str = __version__

    def write(self, folder: Path) -> None:
        """Write it, whole or not at all.

        Raises:
            GraphoptError: The file can't be written.
        """
        data = {"schema": SCHEMA, **asdict(self), "task": self.task.json()}
        write_text(folder / MANIFEST, json.dumps(data, indent=1) + "\n")


def read_manifest(folder: Path) -> Manifest:
    """Read the manifest of an agent.

    Raises:
        CheckpointError: There is none, or it is of another version.
    """
    path = folder / MANIFEST
    try:
        data = read_json(path)
    except OSError as error:
        raise CheckpointError(
            f"{folder}: no agent: {MANIFEST}: {reason(error)}", "make one with graphopt train-agent --out DIR"
        ) from error
    except DocumentError as error:
        raise CheckpointError(f"{path}: not a manifest: {error}") from error
    schema = data.pop("schema", None) if isinstance(data, dict) else None
    if schema != SCHEMA:
        raise CheckpointError(f"{path}: not of this version: schema {schema!r} instead of {SCHEMA!r}", "train again")
    try:
        task = parse_task(json.dumps(data["task"]), str(path))
        manifest = record(Manifest, {**data, "task": task}, "the manifest")
    except (KeyError, DocumentError, UsageError) as error:
        raise CheckpointError(f"{path}: not a whole manifest: {error}") from error
    if manifest.algorithm not in (known := registry.LEARNERS.names()):
        raise CheckpointError(
            f"{path}: unknown algorithm {manifest.algorithm[:40]!r}", f"this version knows {', '.join(known)}"
        )
    return manifest
