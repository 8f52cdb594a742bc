"""Commands in processes of their own: with a time limit, and out of reach of the Ctrl-C that is meant for us."""

from __future__ import annotations

import json
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from graphopt import scratch
from graphopt.errors import SessionError
from graphopt.scratch import Closing

_POLL_S = 0.2  # between two looks at Ctrl-C


@dataclass(frozen=True)
class Ended:
    """How a command ended.

    Attributes:
        code: Its exit code; None if it was stopped, by the limit or by the user.
        out: What it printed.
        err: What it complained of.
    """

    code: int | None
    out: str
    err: str

    def complaint(self) -> str:
        """The last line of what went wrong: of a traceback, the exception."""
        lines = [line for line in self.err.splitlines() if line.strip()]
        if lines:
            return lines[-1].strip()
        return f"killed by signal {-self.code}" if self.code is not None and self.code < 0 else f"exit code {self.code}"


def call(
    command: Sequence[str],
    *,
    seconds: float,
    folder: Path | None = None,
    interrupted: Callable[[], bool] = lambda: False,
) -> Ended:
    """Run a command to its end, or stop it: after so many seconds, or when it is interrupted, which is asked now and then."""
    limit = time.monotonic() + seconds
    with subprocess.Popen(
        command,
        cwd=folder,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        encoding="utf-8",
        errors="replace",
        start_new_session=True,
    ) as process:
        scratch.on_abandon(process, process.kill)
        try:
            while True:
                try:
                    out, err = process.communicate(timeout=_POLL_S)
                    return Ended(process.returncode, out, err)
                except subprocess.TimeoutExpired:
                    if time.monotonic() > limit or interrupted():
                        process.kill()
                        out, err = process.communicate()
                        return Ended(None, out, err)
        except BaseException:
            process.kill()
            raise
        finally:
            scratch.settled(process)


class Respondent(Closing):
    """A process that answers each line with a line of JSON, and begins with one.

    Args:
        command: Program and arguments.
        folder: Where it runs; here by default.
        environment: Its environment; ours by default.
        limit: Seconds that each answer, the first as well, may take; None for any.

    Attributes:
        first: What it says when it is ready.

    Raises:
        SessionError: It ended instead, or did not come to an end.
    """

    def __init__(
        self,
        command: Sequence[str],
        *,
        folder: Path | None = None,
        environment: Mapping[str, str] | None = None,
        limit: float | None = None,
    ) -> None:
        self._limit = limit
        self._complaints = tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace")  # noqa: SIM115 (lives as long as the process)
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._complaints,
            text=True,
            cwd=folder,
            start_new_session=True,
            env=environment,
        )
        scratch.on_abandon(self._process, self._process.kill)
        try:
            self.first: Any = self._answer()
        except BaseException:
            self.close()
            raise

    def ask(self, question: str) -> Any:
        """The answer to a line."""
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):  # the answer says why
            self._process.stdin.write(question + "\n")
            self._process.stdin.flush()
        return self._answer()

    def close(self) -> None:
        """End the process, if it has not ended."""
        scratch.settled(self._process)
        if not self._complaints.closed:
            with suppress(BrokenPipeError), self._complaints, self._process:  # of what it was never told
                self._process.kill()

    def _answer(self) -> Any:
        assert self._process.stdout is not None
        late = threading.Event()

        def end() -> None:
            late.set()
            self._process.kill()

        timer = None if self._limit is None else threading.Timer(self._limit, end)
        if timer is not None:
            timer.start()
        try:
            line = self._process.stdout.readline()
        finally:
            if timer is not None:
                timer.cancel()
        if line:
            return json.loads(line)
        code = self._process.wait()
        if late.is_set():
            raise SessionError(f"no answer after {self._limit:g} s")
        self._complaints.seek(0)
        raise SessionError(Ended(code, "", self._complaints.read()).complaint())
