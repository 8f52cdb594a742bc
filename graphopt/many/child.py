"""One optimisation in a process of its own: what it takes of memory is given back, and what goes wrong there stays there.

The process is given a line of JSON, and then ``stop`` to end with the best so far. It answers in lines of JSON: what it is doing, and
in the end a report or an error. When its input ends, because we are gone or want it gone, it ends at once and leaves nothing behind.
"""

from __future__ import annotations

import json
import os
import queue
import subprocess
import sys
import tempfile
import threading
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

from graphopt import scratch
from graphopt.errors import GraphoptError, unexpected
from graphopt.pipeline.context import Progress
from graphopt.runtime import guard

_POLL_S, _GRACE_S = 0.2, 5.0
_START = "from graphopt.many import child; child.serve()"


def optimize(
    job: Mapping[str, Any], hear: Callable[[Progress], None], interrupted: Callable[[], bool]
) -> dict[str, Any]:
    """Optimise a model over there.

    Args:
        job: Arguments of :func:`graphopt.api.optimize`, ready for JSON.
        hear: Told what is being done.
        interrupted: Asked now and then; true ends it with the best so far.

    Returns:
        ``report`` (see :func:`graphopt.pipeline.summary.summarise`) or ``error`` with ``hint``; ``warnings``, and ``peak_memory`` in bytes
        where the system tells.
    """
    with tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as complaints:
        process = guard.spawn(
            _START,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=complaints,
            text=True,
            encoding="utf-8",
            start_new_session=True,
        )
        try:
            for line in _lines(process, job, interrupted):
                told = json.loads(line)
                if "stage" not in told:
                    answer: dict[str, Any] = told
                    return answer
                hear(Progress(**told))
        finally:
            _end(process)
        complaints.seek(0)
        return {"error": _ending(process.returncode, complaints.read()), "hint": None}


def _lines(process: subprocess.Popen[str], job: Mapping[str, Any], interrupted: Callable[[], bool]) -> Iterator[str]:
    """What the process says, line by line, while we listen to Ctrl-C."""
    assert process.stdin is not None and process.stdout is not None
    said, stdout, asked = queue.SimpleQueue[str | None](), process.stdout, False

    def read() -> None:
        with suppress(ValueError), stdout:  # closed, because nobody listens any more
            for line in stdout:
                said.put(line)
        said.put(None)

    threading.Thread(target=read, daemon=True).start()
    _say(process, json.dumps(job))
    while True:
        if interrupted() and not asked:
            asked = True
            _say(process, "stop")
        with suppress(queue.Empty):
            line = said.get(timeout=_POLL_S)
            if line is None:
                return
            yield line


def _say(process: subprocess.Popen[str], line: str) -> None:
    assert process.stdin is not None
    with suppress(BrokenPipeError):  # how it ended says why
        process.stdin.write(line + "\n")
        process.stdin.flush()


def _end(process: subprocess.Popen[str]) -> None:
    """See that it ends: by itself, and if it does not, by force."""
    assert process.stdin is not None
    with suppress(BrokenPipeError):
        process.stdin.close()
    try:
        process.wait(_GRACE_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _ending(code: int, complaints: str) -> str:
    """Why a process ended that has not answered."""
    lines = [line.strip() for line in complaints.splitlines() if line.strip()]
    if code < 0:
        reason = ", perhaps for want of memory" if code == -9 else ""
        return f"the process was ended by signal {-code}{reason}"
    return lines[-1] if lines else f"the process ended with code {code}"


def serve() -> None:
    """Be the process."""
    answers = guard.stdout_for_answers()
    job, stop = json.loads(sys.stdin.readline()), threading.Event()
    threading.Thread(target=_listen, args=(stop,), daemon=True).start()

    def say(told: Mapping[str, Any]) -> None:
        answers.write(json.dumps(told) + "\n")
        answers.flush()

    from graphopt.runtime.environment import peak_memory

    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("default")
        answer = _optimized(job, lambda told: say(asdict(told)), stop.is_set)
    ours = [str(each.message) for each in heard if each.category.__module__.partition(".")[0] == "graphopt"]
    say({**answer, "warnings": ours, "peak_memory": peak_memory()})


def _optimized(
    job: Mapping[str, Any], hear: Callable[[Progress], None], interrupted: Callable[[], bool]
) -> dict[str, Any]:
    from graphopt.api import optimize as optimized

    try:
        sharing = [Path(path) for path in job["sharing"]]
        result = optimized(
            job["model"],
            output=job["output"],
            inputs=job["inputs"],
            sharing=sharing,
            progress=hear,
            interrupted=interrupted,
            **job["settings"],
        )
    except GraphoptError as error:
        return {"error": str(error), "hint": error.hint}
    except MemoryError:
        return {"error": "out of memory", "hint": "close other programs, or give smaller --input-shape or --dim sizes"}
    except Exception as error:  # one model must not keep the others from being optimised
        return {"error": unexpected(error), "hint": "this is a fault of graphopt: please report it"}
    return {"report": result.report}


def _listen(stop: threading.Event) -> None:
    for line in sys.stdin:
        if line.strip() == "stop":
            stop.set()
    scratch.abandon()
    os._exit(1)
