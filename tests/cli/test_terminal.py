"""`graphopt optimize` on a real terminal: progress while it works, and Ctrl-C."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.pace import slowness

pty = pytest.importorskip("pty")

ROOT = Path(__file__).resolve().parents[2]


def on_terminal(
    folder: Path, *arguments: str, interrupts: int = 0, when: str = "starting", **environment: str
) -> tuple[int, str, str]:
    """Run the command with a terminal as its stderr. Returns the exit code, stdout and what the terminal got.

    Args:
        folder: Where to run it.
        arguments: The arguments.
        interrupts: How often to press Ctrl-C, from the moment on when `when` is on the screen.
        when: See `interrupts`; by default the first sign of progress.
        environment: Additional variables.
    """
    terminal, end = pty.openpty()
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    base = {key: value for key, value in os.environ.items() if key not in {"NO_COLOR", "COLUMNS"}}
    with subprocess.Popen(
        [sys.executable, "-m", "graphopt", *arguments],
        cwd=folder,
        env={**base, "PYTHONPATH": path, "TERM": "xterm-256color", "COLUMNS": "80", **environment},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=end,
    ) as process:
        os.close(end)
        seen = b""
        while True:
            try:
                chunk = os.read(terminal, 4096)
            except OSError:  # how Linux says that the other end has closed
                break
            if not chunk:
                break
            seen += chunk
            if interrupts and when.encode() in seen:
                interrupts -= 1
                process.send_signal(signal.SIGINT)
                time.sleep(0.05)
        assert process.stdout is not None
        out = process.stdout.read().decode()
        code = process.wait(timeout=120)
    os.close(terminal)
    return code, out, seen.decode()


def test_progress(model):
    code, out, seen = on_terminal(model.parent, "optimize", "net.onnx", "--budget", "1")
    assert code == 0, seen
    assert not out
    assert "measuring" in seen
    assert "\x1b[" in seen
    assert "written" in seen


def test_no_color(model):
    _, _, seen = on_terminal(model.parent, "explain", "no-such.onnx", NO_COLOR="1")
    assert "\x1b" not in seen
    code, _, seen = on_terminal(model.parent, "optimize", "net.onnx", "--budget", "1", NO_COLOR="1")
    assert code == 0, seen
    assert not any(f"\x1b[{color}" in seen for color in ("31", "32", "33", "34", "35", "36", "38;"))


def test_quiet(model):
    code, out, seen = on_terminal(model.parent, "optimize", "net.onnx", "-q", "--budget", "1")
    assert (code, out, seen) == (0, "", "")


def test_ctrl_c_keeps_the_best_so_far(model):
    code, _, seen = on_terminal(model.parent, "optimize", "net.onnx", "--budget", "60", interrupts=1, when="% of 60 s")
    assert code == 0, seen
    assert "Ctrl-C again aborts" in seen
    assert "until then" in seen
    assert model.with_name("net.opt.onnx").exists()


def test_ctrl_c_twice_aborts(model):
    code, _, seen = on_terminal(model.parent, "optimize", "net.onnx", "--budget", "60", interrupts=2, when="% of 60 s")
    assert code == 130, seen
    assert seen.rstrip().endswith("error: aborted by Ctrl-C")
    assert "Traceback" not in seen
    assert [path.name for path in model.parent.iterdir()] == ["net.onnx"]


def test_ctrl_c_while_loading_aborts(model):
    code, _, seen = on_terminal(model.parent, "optimize", "net.onnx", "--budget", "60", interrupts=1)
    assert code == 130, seen
    assert seen.rstrip().endswith("error: aborted by Ctrl-C") and "best" not in seen
    assert [path.name for path in model.parent.iterdir()] == ["net.onnx"]


def test_the_first_sign_comes_before_the_libraries(model):
    """Nothing heavy is imported before something is drawn."""
    code = (
        "import os, sys; from graphopt.cli import progress\n"
        "def enter(self):\n"
        "    print(sorted({'onnx', 'onnxruntime', 'numpy', 'sympy', 'torch'} & set(sys.modules)), flush=True); os._exit(0)\n"
        "progress._Drawn.__enter__ = enter\n"
        "from graphopt.cli.main import run; run(sys.argv[1:])"
    )
    commands = [
        ("optimize", "net.onnx", "--budget", "1"), ("inspect", "net.onnx"), ("verify", "net.onnx", "net.onnx"),
        ("explain", "net.onnx"), ("train-agent", "--task", "none"), ("evaluate-agent", "none"), ("rules", "list"),
        ("rules", "show", "drop-identity"), ("rules", "check"), ("providers",),
        ("bench", "net.onnx"), ("replay", "net.onnx", "net.onnx"), ("bisect", "net.onnx", "net.onnx"),
        ("optimize", "net.onnx", "--out-dir", "out"), ("rules", "stats", "net.onnx"), ("rules", "generate", "--out", "new"),
        ("cost", "show"), ("cost", "calibrate", "net.onnx"),
    ]  # fmt: skip
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    for command in commands:
        done = subprocess.run(
            [sys.executable, "-c", code, *command], cwd=model.parent, env=environment, capture_output=True, text=True,
            check=False,
        )  # fmt: skip
        assert done.stdout == "[]\n", (command, done.stdout[:200], done.stderr)


def to_first_sign(folder: Path, *arguments: str) -> float:
    """Seconds of the processor that a command takes until something is on its terminal; what else runs decides nothing."""
    terminal, end = pty.openpty()
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "TERM": "xterm", "COLUMNS": "80"}
    command = [sys.executable, "-m", "graphopt", *arguments]
    with subprocess.Popen(command, cwd=folder, env=environment, stdin=subprocess.DEVNULL, stdout=end, stderr=end) as it:
        os.close(end)
        assert os.read(terminal, 100).startswith(b"\x1b")  # a line that moves, not a complaint
        times = Path(f"/proc/{it.pid}/stat").read_text().rpartition(")")[2].split()
        it.kill()
    os.close(terminal)
    return (int(times[11]) + int(times[12])) / os.sysconf("SC_CLK_TCK")


@pytest.mark.skipif(sys.platform != "linux", reason="processor time by /proc")
@pytest.mark.parametrize(
    "command",
    [("inspect", "net.onnx"), ("optimize", "net.onnx"), ("rules", "list"), ("replay", "net.onnx", "net.onnx")],
    ids=lambda command: command[0],
)
def test_the_first_sign_comes_within_half_a_second(model, command):
    assert any(to_first_sign(model.parent, *command) < 0.5 * slowness() for _ in range(3))


@pytest.mark.slow
def test_training_tells_what_it_does_before_the_first_episodes(model):
    pytest.importorskip("torch")
    arguments = ("train-agent", "--models", "net.onnx", "--preset", "debug", "--steps", "20", "--out", "agent")
    code, _, seen = on_terminal(model.parent, *arguments)
    assert code == 0, seen
    for said in ("loading the libraries", "playing episodes, round 1", "since the start", "trained"):
        assert said in seen, said


def test_bench_draws_its_progress_beside_its_tables(model):
    quick = ("--strategy", "none", "--against", "original", "--level", "all", "--rounds", "60", "--precision", "0.5")
    code, out, seen = on_terminal(model.parent, "bench", "net.onnx", "net.onnx", *quick)
    assert code == 0, seen
    assert "net.onnx: " in seen and "\x1b[" in seen
    assert out.count("60 rounds") == 2 and "\x1b" not in out


def test_bench_interrupted_before_anything_was_measured(model):
    code, out, seen = on_terminal(model.parent, "bench", "net.onnx", "--json", "b.json", interrupts=1)
    assert code == 130, seen
    assert seen.rstrip().endswith("error: aborted by Ctrl-C") and not out
