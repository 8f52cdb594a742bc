"""The ``progress.csv`` of a training run: a line for each update."""

from __future__ import annotations

import csv
import math
from collections.abc import Mapping, Sequence
from pathlib import Path

from graphopt.files import write_text
from graphopt.rl.manifest import PROGRESS, CheckpointError
from graphopt.wording import csv_table

Row = dict[str, float]


def write_progress(folder: Path, rows: Sequence[Mapping[str, float]]) -> None:
    """Write it, whole or not at all; nothing where there was no update.

    Raises:
        GraphoptError: The file can't be written.
    """
    if not rows:
        return
    # Rows from before an interruption may be of another version, which logged something else.
    heads = list(dict.fromkeys(name for row in rows for name in row))
    write_text(folder / PROGRESS, csv_table(heads, rows))


def read_progress(folder: Path, until: float = math.inf) -> list[Row]:
    """The lines of the first ``until`` updates, all by default; none where there is no file.

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
