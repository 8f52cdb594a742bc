"""One session in a process of its own.

Two questions can only be asked of such a process: how much memory it takes to load and run a model, and what
``session.set_denormal_as_zero`` is worth, for on the calling thread only the first session of a process decides that.

The process opens a model, runs it once and prints a line of JSON with the seconds that opening took, the peak memory in
bytes and where its nodes run. Then it answers each line of its input: ``turn`` with the seconds of the runs of a turn, and ``outputs FILE`` by writing
the outputs to an ``.npz`` file.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from graphopt.benchmark.children import Respondent
from graphopt.errors import GraphoptError, SessionError
from graphopt.ir.types import Array
from graphopt.runtime import guard
from graphopt.runtime.environment import peak_memory
from graphopt.runtime.feeds import make_feeds
from graphopt.runtime.given import load_npz
from graphopt.runtime.placement import Placement
from graphopt.runtime.rounds import Contender, Opener, Timed, processor_clock
from graphopt.runtime.session import Session, SessionConfig
from graphopt.runtime.timing import Turn

_START = "from graphopt.benchmark import worker; worker.run()"


class Worker(Respondent):
    """A session in a process of its own, from our side.

    Args:
        model: The file.
        config: How to open it.
        feeds: An ``.npz`` file of its inputs, see :func:`save_feeds`.

    Raises:
        SessionError: The model can't be opened or run there.
    """

    def __init__(self, model: Path, config: SessionConfig, feeds: Path) -> None:
        super().__init__(guard.command(_START, str(model.resolve()), str(feeds), json.dumps(asdict(config))))
        self.opened: float = self.first["opened"]
        """Seconds that opening the session took."""
        self.peak: int | None = self.first["peak"]
        """Peak memory of the process after one run, in bytes; None where the system does not tell."""
        self.placement = Placement(**self.first["placement"])
        """Where the nodes run."""

    def turn(self) -> list[float]:
        """Take a turn (see :class:`graphopt.runtime.timing.Turn`)."""
        taken: list[float] = self.ask("turn")
        return taken

    def outputs(self, path: Path) -> dict[str, Array]:
        """The outputs that are arrays, by name, by way of a file; types that numpy lacks become ``float64``."""
        self.ask(f"outputs {path}")
        return load_npz(path)


def in_workers(feeds: Path) -> Opener:
    """Opens sessions in processes of their own, all on the inputs in a file (see :func:`save_feeds`)."""

    def open_worker(contender: Contender, stack: ExitStack) -> tuple[float, Timed]:
        assert isinstance(contender.model, Path)
        worker = stack.enter_context(Worker(contender.model, contender.config, feeds))
        return worker.opened, worker.turn

    return open_worker


def save_feeds(feeds: Mapping[str, Any], path: Path) -> None:
    """Write inputs for a worker.

    Raises:
        SessionError: One of them is no array.
    """
    arrays: dict[str, Any] = {}
    for name, value in feeds.items():
        if not isinstance(value, np.ndarray):
            raise SessionError(f"input {name!r} is no array: it can't be handed to another process")
        # Text becomes one of fixed width: objects could only be pickled.
        arrays[name] = value.astype(np.str_) if value.dtype == object else value
    np.savez(path, **arrays)


def _wide(array: Array) -> Array:
    """An array of a type that files can name."""
    return array if array.dtype.isbuiltin == 1 else array.astype(np.float64)


def run() -> None:
    """Be the process: its arguments are the model, an ``.npz`` file of inputs and the configuration as JSON."""
    try:
        _serve()
    except GraphoptError as error:
        sys.exit(str(error))


def _serve() -> None:
    model, feeds_file, config_text = sys.argv[1:]
    answers = guard.stdout_for_answers()
    config = SessionConfig(**json.loads(config_text))
    start = time.perf_counter()
    with Session(Path(model), config) as session:
        opened = time.perf_counter() - start
        given = {
            name: a.astype(object) if a.dtype.kind == "U" else a
            for name, a in load_npz(Path(feeds_file), empty=True).items()
        }
        feeds = make_feeds(session.input_specs, overrides=given)
        session.run(feeds)
        first = {"opened": opened, "peak": peak_memory(), "placement": asdict(session.placement)}
        print(json.dumps(first), file=answers, flush=True)
        turn: Turn | None = None
        for line in sys.stdin:
            question, _, rest = line.strip().partition(" ")
            answer: Any = None
            if question == "turn":
                turn = turn or Turn(session.prepare(feeds), processor_clock(config))
                answer = turn.take()
            elif question == "outputs":
                outputs = zip(session.output_names, session.run(feeds), strict=True)
                save_feeds({name: _wide(value) for name, value in outputs if isinstance(value, np.ndarray)}, Path(rest))
            print(json.dumps(answer), file=answers, flush=True)
