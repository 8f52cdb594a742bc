"""Feeds each hostile input to a process of its own and says what came of it."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from tests.hostile.texts import Case

ROOT = Path(__file__).resolve().parents[2]
SECONDS = 10.0
BYTES = 2_000_000_000
_PATIENCE = 90.0  # seconds by the clock after which a process is ended


@dataclass(frozen=True)
class Outcome:
    """What a command did with a hostile input.

    Attributes:
        case: The input.
        code: Exit code; negative for a signal, as -11 for a segmentation fault.
        seconds: Of the processor: what else runs on the machine decides nothing.
        peak: Resident bytes at most.
        said: What it printed.
    """

    case: Case
    code: int
    seconds: float
    peak: int
    said: str

    @property
    def wrong(self) -> str:
        """What is wrong with that; empty for nothing."""
        if self.code not in (0, 1, 2, 3, 4):
            return f"exit code {self.code}"
        if "internal error" in self.said or "Traceback" in self.said:
            return "internal error"
        if any(not c.isprintable() and c != "\n" for c in self.said):
            return "control characters on the screen"
        if self.code and not any(line for line in self.said.splitlines()):
            return "no word of why"
        if self.seconds > SECONDS:
            return f"{self.seconds:.1f} s"
        return f"{self.peak / 1e9:.1f} GB" if self.peak > BYTES else ""

    @property
    def answer(self) -> str:
        """The line that tells the user."""
        lines = [line for line in self.said.splitlines() if line.strip()]
        told = [line for line in lines if line.startswith(("error:", "internal error:", "warning:"))]
        return (told or lines or [""])[0]


def run(case: Case) -> Outcome:
    """Feed one input to a process."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        arguments = case.build(folder)
        path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
        environment = {k: v for k, v in os.environ.items() if not k.startswith("GRAPHOPT_")}
        environment |= {"PYTHONPATH": path, "GRAPHOPT_CACHE_DIR": str(folder / "cache"), "GRAPHOPT_BUDGET": "2"}
        with (folder / "said").open("wb+") as said:
            began = time.monotonic()
            process = subprocess.Popen(
                [sys.executable, "-m", "graphopt", *arguments], cwd=folder, env=environment, stdin=subprocess.DEVNULL,
                stdout=said, stderr=subprocess.STDOUT,
            )  # fmt: skip
            while True:
                pid, status, usage = os.wait4(process.pid, os.WNOHANG)
                if pid:
                    break
                if time.monotonic() - began > _PATIENCE:
                    process.kill()
                time.sleep(0.02)
            seconds = usage.ru_utime + usage.ru_stime
            process.returncode = os.waitstatus_to_exitcode(status)
            said.seek(0)
            text = said.read().decode("utf-8", "replace").replace(name, "...")
    scale = 1 if sys.platform == "darwin" else 1024
    return Outcome(case, process.returncode, seconds, usage.ru_maxrss * scale, text)
