"""What was done so far, so that a run that was killed goes on where it stood.

Every stage maps a function over tasks; its results are appended to a file of their own, a line each. The tasks of a stage
depend on the results before it alone, so a run that finds results takes them for those of its first tasks. A line that was
cut off in the middle is forgotten.
"""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from graphopt.documents import read_json
from graphopt.errors import GraphoptError
from graphopt.execution import Executor
from graphopt.files import write_text


class OutOfTime(Exception):
    """The budget is used up."""


def in_time(until: float | None) -> None:
    """Called now and then by tasks that may take minutes.

    Args:
        until: When nobody waits for them any more, as ``time.time`` has it: it means the same to all processes. ``None`` for never.

    Raises:
        OutOfTime: The time is over. What a task gives must not depend on the clock, so it gives nothing.
    """
    if until is not None and time.time() >= until:
        raise OutOfTime


class Journal:
    """Results of the stages of a run.

    Args:
        folder: Where they are kept.
        about: What the run is; the results of another run are thrown away.
        seconds: Time after which no stage goes on, ``None`` for no limit.

    Attributes:
        deadline: When no stage goes on, ``None`` for never.
    """

    def __init__(self, folder: Path, about: Mapping[str, Any], seconds: float | None) -> None:
        self.folder = folder
        self.deadline = None if seconds is None else time.monotonic() + seconds
        head = folder / "run.json"
        known = None
        with suppress(OSError, ValueError):
            known = read_json(head)
        if known != json.loads(json.dumps(about)):
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir(parents=True)
            write_text(head, json.dumps(about) + "\n")

    def map(
        self,
        stage: str,
        executor: Executor,
        work: Callable[[Any], Any],
        tasks: Sequence[Any],
        encode: Callable[[Any], Any],
        decode: Callable[[Any], Any],
    ) -> Iterator[Any]:
        """The results of a stage in the order of its tasks; they are kept as JSON, as ``encode`` makes it and ``decode`` reads it.

        Raises:
            OutOfTime: The budget is used up; results so far are kept.
            GraphoptError: The file is damaged.
        """
        path = self.folder / f"{stage}.jsonl"
        try:
            held = _lines(path)
            known = [decode(json.loads(line)) for line in held[: len(tasks)]]
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise GraphoptError(f"{path}: damaged: {error}", f"to begin anew, remove {self.folder}") from error
        yield from known
        done = min(len(held), len(tasks))
        if done == len(tasks):
            return
        self._check()
        with path.open("a", encoding="utf-8") as file:
            for result in executor.map(work, tasks[done:]):
                file.write(json.dumps(encode(result)) + "\n")
                file.flush()
                done += 1
                yield result
                if done < len(tasks):
                    self._check()

    def _check(self) -> None:
        if self.deadline is not None and time.monotonic() >= self.deadline:
            raise OutOfTime

    def finish(self) -> None:
        """The run is over: forget its results."""
        shutil.rmtree(self.folder, ignore_errors=True)


def _lines(path: Path) -> list[str]:
    """The whole lines of a file, which afterwards holds nothing else."""
    if not path.exists():
        return []
    content = path.read_bytes()
    whole = content[: content.rfind(b"\n") + 1]
    if whole != content:
        with path.open("r+b") as file:
            file.truncate(len(whole))
    return whole.decode("utf-8").splitlines()
