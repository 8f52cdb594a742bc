"""The first minute with graphopt as it looks on a terminal of 80 columns: ``python -m tests.bench.tour`` writes docs/tour.md.

Every command is run as a user would, in a folder with the model of ``models/`` and with an empty store of prices; what is shown is
what the terminal showed in the end, with the seconds to the first sign of life and to the prompt.
"""

from __future__ import annotations

import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from graphopt.runtime.environment import fingerprint, usable_cores
from graphopt.runtime.session import SessionConfig

ROOT = Path(__file__).resolve().parents[2]
COLUMNS = 80
STEPS = (
    ("What is in a model, and where its time goes:", "graphopt inspect regnet.onnx"),
    ("Make it faster. The result is verified, and measured against the original:", "graphopt optimize regnet.onnx --budget 10 --trace steps.json --report page.html"),
    ("Which rule made which node:", "graphopt explain regnet.opt.onnx"),
    ("What a rule does, where it is true, and how it was checked:", "graphopt rules show merge-conv-groups-to-block"),
    ("The same outputs, on inputs of another seed:", "graphopt verify regnet.onnx regnet.opt.onnx --seed 7"),
    ("The same file again, from the steps that were written down:", "graphopt replay steps.json regnet.onnx -o again.onnx"),
    ("A mistake is one line, and what to do about it:", "graphopt optimize regnet.onx"),
)  # fmt: skip
PYTHON = """import graphopt

result = graphopt.optimize("regnet.onnx", output="fast.onnx", budget=10)
print(result)
print(f"{result.speedup:.2f}")
"""


@dataclass(frozen=True)
class Shown:
    """What a terminal showed.

    Attributes:
        text: In the end, without colours.
        first: Seconds to its first byte.
        seconds: To the end of the command.
    """

    text: str
    first: float
    seconds: float


def show(arguments: list[str], folder: Path) -> Shown:
    """Run a command on a terminal of its own."""
    import pty  # where there are terminals

    terminal, end = pty.openpty()
    environment = {k: v for k, v in os.environ.items() if not k.startswith("GRAPHOPT_")}
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    environment |= {"TERM": "xterm", "COLUMNS": str(COLUMNS), "PYTHONPATH": path, "GRAPHOPT_CACHE_DIR": str(folder / ".cache")}  # fmt: skip
    began, first, seen = time.monotonic(), 0.0, b""
    with subprocess.Popen(arguments, cwd=folder, env=environment, stdin=subprocess.DEVNULL, stdout=end, stderr=end):
        os.close(end)
        while True:
            try:
                chunk = os.read(terminal, 65536)
            except OSError:  # how Linux says that the other end has closed
                break
            if not chunk:
                break
            first = first or time.monotonic() - began
            seen += chunk
    os.close(terminal)
    return Shown(_plain(seen.decode()), first, time.monotonic() - began)


def _plain(text: str) -> str:
    """What is left on the screen after lines were drawn anew and cleared."""
    lines = [""]
    for piece in re.findall(r"\x1b\[[0-9;?]*[A-Za-z]|\r\n|\r|[^\x1b\r]+", text):
        if piece == "\r\n":
            lines.append("")
        elif piece in ("\r", "\x1b[2K"):
            lines[-1] = ""
        elif piece == "\x1b[1A":
            lines.pop()
        elif not piece.startswith("\x1b"):
            lines[-1] += piece
    return "\n".join(line.rstrip() for line in lines).strip("\n")


def main() -> None:
    """Write the tour."""
    machine = fingerprint(SessionConfig())
    parts = [
        "# The first minute",
        f"Real output on a terminal of {COLUMNS} columns, written by `python -m tests.bench.tour` ({machine.cpu}, "
        f"{platform.system()}, ONNX Runtime {machine.onnxruntime}; {usable_cores()} processors with a load of {os.getloadavg()[0]:.0f}). "
        "Beneath each command: seconds to the first sign of life, and to the prompt.",
    ]  # fmt: skip
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        shutil.copy(ROOT / "models/demo_regnet.onnx", folder / "regnet.onnx")
        for about, command in STEPS:
            shown = show([sys.executable, "-m", *command.split()], folder)
            parts += [about, f"```\n$ {command}\n{_short(shown.text, name)}\n```", _times(shown)]
            print(f"{command}: {shown.first:.1f} s, {shown.seconds:.1f} s", flush=True)
        (folder / "fast.py").write_text(PYTHON)
        shown = show([sys.executable, "fast.py"], folder)
        parts += ["From Python:", f"```python\n{PYTHON}```", f"```\n{_short(shown.text, name)}\n```"]
    (ROOT / "docs/tour.md").write_text("\n\n".join(parts) + "\n", encoding="utf-8")


def _short(text: str, folder: str) -> str:
    return text.replace(f"{folder}/", "").replace(f"{ROOT}/", "")


def _times(shown: Shown) -> str:
    return f"*{shown.first:.1f} s to the first sign, {shown.seconds:.1f} s in all*"


if __name__ == "__main__":
    main()
