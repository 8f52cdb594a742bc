"""Commands in processes of their own: with a time limit, and out of reach of the Ctrl-C that is meant for us."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from graphopt import scratch

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
    """Run a command to its end, or stop it.

    Args:
        command: Program and arguments.
        seconds: Time limit.
        folder: Where it runs; here by default.
        interrupted: Asked now and then; true stops the command.
    """
    limit = time.monotonic() + seconds
    with subprocess.Popen(
        command, cwd=folder, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        text=True, encoding="utf-8", errors="replace", start_new_session=True,
    ) as process:  # fmt: skip
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
