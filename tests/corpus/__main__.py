"""Models that no one here wrote, through the whole of graphopt: what is the same, refused, changed; what takes how much.

    python -m tests.corpus [FOLDER ...] [--work DIR] [--python PYTHON] [--producer NAME ...] [--only PATTERN]
                           [--limit N] [--seconds 300] [--memory 8] [--again STATUS ...] [--markdown FILE]

Models are built by producers that are installed for PYTHON (those that are not are named and left out), taken from the onnx package's
backend suite (producer ``suite``), and from folders of ``.onnx`` files, each with inputs in an ``.npz`` file of the same name where there
is one. What was built stays in DIR, and so does ``journal.jsonl``, in which every outcome is written as it is found: the command goes on
where it was ended. ``--again refused`` tries those of a status once more.

Models are optimised (greedily, and nothing is measured) in a child process with limits of time and of memory. The exit status is 1 when
one was changed, or anything died or failed within graphopt.
"""

from __future__ import annotations

import argparse
import fnmatch
import json
import random
import select
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tests.corpus.produce import MISSING
from tests.corpus.recipes import PRODUCERS, recipes
from tests.corpus.table import markdown, table
from tests.corpus.trial import BAD, Outcome

_BATCH = 200  # models that one process of a producer builds
_BUILD_S = 240.0


class Journal:
    """What was found so far, a line for each model."""

    def __init__(self, path: Path, again: Sequence[str]) -> None:
        self._path, self._found = path, dict[tuple[str, str], Outcome]()
        for line in path.read_text().splitlines() if path.exists() else ():
            outcome = Outcome(**json.loads(line))
            self._found[outcome.producer, outcome.name] = outcome
        self._found = {key: each for key, each in self._found.items() if each.status not in again}

    def __contains__(self, key: tuple[str, str]) -> bool:
        return key in self._found

    def add(self, outcome: Outcome) -> None:
        """Write an outcome down."""
        self._found[outcome.producer, outcome.name] = outcome
        with self._path.open("a") as file:
            file.write(json.dumps(asdict(outcome)) + "\n")
        print(f"{outcome.producer:14} {outcome.name:40} {outcome.status:10} {outcome.seconds:6.1f} s  {outcome.note[:160]}", flush=True)  # fmt: skip

    @property
    def outcomes(self) -> list[Outcome]:
        """All of them."""
        return list(self._found.values())


class Worker:
    """The process that graphopt works in."""

    def __init__(self, memory: int) -> None:
        self._memory = memory
        self._process: subprocess.Popen[str] | None = None

    def ask(self, task: Mapping[str, str], seconds: float) -> Outcome:
        """The outcome for a model; that it died is one."""
        if self._process is None:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.corpus.trial", str(self._memory)],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
            )  # fmt: skip
        assert self._process.stdin is not None and self._process.stdout is not None
        began = time.monotonic()
        try:
            print(json.dumps(task), file=self._process.stdin, flush=True)
            ready, _, _ = select.select([self._process.stdout], [], [], seconds)
            line = self._process.stdout.readline() if ready else ""
        except OSError:
            ready, line = [self._process.stdout], ""
        if line:
            return Outcome(**json.loads(line))
        why = "the process ended" if ready else f"no end within {seconds:.0f} s"
        self.end()
        return Outcome(task["producer"], Path(task["model"]).stem, "died", why, seconds=time.monotonic() - began)

    def end(self) -> None:
        """End it."""
        if self._process is not None:
            self._process.kill()
            self._process.communicate()
            self._process = None


def built(producer: str, names: Sequence[str], folder: Path, python: str) -> Iterator[tuple[str, str]]:
    """Build models; yields the name of each, as soon as it is there, and why it was not built."""
    folder.mkdir(parents=True, exist_ok=True)
    todo = list[str]()
    for name in names:
        if (folder / f"{name}.onnx").exists():
            yield name, ""
        else:
            todo.append(name)
    while todo:
        batch, done = todo[:_BATCH], 0
        command = [python, "-m", "tests.corpus.produce", producer, str(folder), *batch]
        with tempfile.TemporaryFile("w+") as said:
            process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=said, text=True)
            try:
                for name, why in _told(process):
                    done += 1
                    yield name, why
                with suppress(subprocess.TimeoutExpired):
                    process.wait(1.0)
            finally:
                ended = process.returncode is not None
                process.kill()
                process.communicate()
            if done < len(batch):
                said.seek(0)
                last = (said.read().strip().splitlines() or [f"exit code {process.returncode}"])[-1]
                yield (
                    batch[done],
                    f"its producer's process ended: {last}" if ended else f"not built within {_BUILD_S:.0f} s",
                )
                done += 1
        todo = todo[done:]


def _told(process: subprocess.Popen[str]) -> Iterator[tuple[str, str]]:
    """What a process has built, and why it was not built."""
    assert process.stdout is not None
    while select.select([process.stdout], [], [], _BUILD_S)[0]:
        line = process.stdout.readline()
        if not line:
            return
        told: Mapping[str, Any] = json.loads(line)
        yield told["name"], told["why"]


def models(given: argparse.Namespace, journal: Journal) -> Iterator[tuple[str, Path]]:
    """Producer and file of every model that the journal does not have."""
    for root in given.folders:
        for path in sorted(root.rglob("*.onnx")):
            if fnmatch.fnmatch(path.stem, given.only) and (root.name, path.stem) not in journal:
                yield root.name, path
    for producer in given.producer or (() if given.folders else PRODUCERS):
        chosen = [name for name in recipes(producer) if fnmatch.fnmatch(name, given.only)]
        if given.limit is not None and given.limit < len(chosen):
            chosen = random.Random(0).sample(chosen, given.limit)
        wanted = [name for name in chosen if (producer, name) not in journal]
        folder = given.work / producer
        # Those of the onnx package are taken by what graphopt itself is installed with.
        for name, why in built(producer, wanted, folder, sys.executable if producer == "suite" else given.python):
            if why.startswith(MISSING):
                print(f"{producer:14} {name:40} left out, {why}", flush=True)
            elif why:
                journal.add(Outcome(producer, name, "unbuilt", why))
            else:
                yield producer, folder / f"{name}.onnx"


def main() -> int:
    """Run the corpus and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="*", type=Path, help="folders of models")
    parser.add_argument("--work", type=Path, default=Path("corpus"), help="where models and the journal are kept")
    parser.add_argument("--python", default=sys.executable, help="builds the models")
    parser.add_argument("--producer", nargs="+", choices=list(PRODUCERS))
    parser.add_argument("--only", default="*", help="shell pattern on the names")
    parser.add_argument("--limit", type=int, help="at most this many models of each producer, a repeatable choice")
    parser.add_argument("--seconds", type=float, default=300.0, help="for each model")
    parser.add_argument("--memory", type=float, default=8.0, help="GB")
    parser.add_argument("--again", nargs="+", default=[], help="try those of these statuses once more")
    parser.add_argument("--markdown", type=Path, help="write the table there")
    given = parser.parse_args()
    given.work.mkdir(parents=True, exist_ok=True)
    journal, worker = Journal(given.work / "journal.jsonl", given.again), Worker(int(given.memory * 1e9))
    try:
        for producer, path in models(given, journal):
            inputs = path.with_suffix(".npz")
            task = {"producer": producer, "model": str(path), "inputs": str(inputs) if inputs.exists() else "", "folder": str(given.work)}  # fmt: skip
            journal.add(worker.ask(task, given.seconds))
    finally:
        worker.end()
    print(table(journal.outcomes))
    if given.markdown:
        given.markdown.write_text(markdown(journal.outcomes))
    return 1 if any(outcome.status in BAD for outcome in journal.outcomes) else 0


if __name__ == "__main__":
    raise SystemExit(main())
