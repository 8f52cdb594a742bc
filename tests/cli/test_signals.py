"""Ctrl-C and SIGTERM, at any moment and whatever the runtime is doing."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from graphopt.cli import signals
from tests.cli.conftest import ROOT
from tests.hazards import endless, stored

pytestmark = pytest.mark.skipif(os.name == "nt", reason="signals of Unix")
INT, TERM, HUP = signal.SIGINT, signal.SIGTERM, getattr(signal, "SIGHUP", signal.SIGTERM)


@pytest.fixture(autouse=True)
def not_under_nohup():
    """Whoever runs the tests may ignore the end of the terminal, and so would the commands that they start."""
    before = signal.signal(HUP, signal.SIG_DFL)
    yield
    signal.signal(HUP, before)


def test_ctrl_c_is_heard_before_anything_large_is_imported():
    # Until then Python itself ends the command, with a traceback.
    code = "import sys, graphopt.__main__; print(*sorted({'typing', 're', 'threading'} & set(sys.modules)))"
    started = subprocess.run(
        [sys.executable, "-S", "-c", code], capture_output=True, text=True, env={**os.environ, "PYTHONPATH": str(ROOT)}
    )
    assert (started.stdout, started.stderr) == ("\n", "")


def signalled(folder: Path, arguments, plan, code: str = "", ready: str = "") -> tuple[int, str, float]:
    """Exit code, complaints and seconds after the last signal of a command that is sent signals.

    Args:
        folder: Where it runs.
        arguments: Its arguments.
        plan: Seconds, and the signals to send then.
        code: What to run in its place.
        ready: A line of stderr from which on the seconds count.
    """
    temporary = folder / "tmp"
    temporary.mkdir(exist_ok=True)
    command = [sys.executable, *(["-c", code] if code else ["-m", "graphopt"]), *map(str, arguments)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "TMPDIR": str(temporary)}
    with subprocess.Popen(
        command, stderr=subprocess.PIPE, text=True, cwd=folder, env=environment, start_new_session=True
    ) as process:
        while ready and process.stderr.readline().strip() != ready:
            assert process.poll() is None
        began = time.monotonic()
        for moment, number in plan:
            time.sleep(max(0.0, began + moment - time.monotonic()))
            os.killpg(process.pid, number)  # as a terminal does
        last = time.monotonic()
        try:
            _, err = process.communicate(timeout=30)
        except subprocess.TimeoutExpired:
            process.kill()
            raise
    assert "Traceback" not in err
    assert not list(temporary.iterdir())
    return process.returncode, err, time.monotonic() - last


@pytest.mark.parametrize("command", ["optimize", "verify", "inspect"])
def test_a_model_without_end(tmp_path, command):
    path = stored(endless(), tmp_path / "loop.onnx")
    optimise = command == "optimize"
    arguments = [command, path] + {"optimize": ["-v"], "verify": [path], "inspect": []}[command]
    for number in (INT, TERM):
        plan = [(1 if optimise else 2, number)]
        code, err, seconds = signalled(tmp_path, arguments, plan, ready="loading the model" if optimise else "")
        assert code == 128 + number
        assert seconds < 20  # it takes a fraction of one where the machine is free
        assert "Ctrl-C again aborts" not in err  # before the search there is no best so far to end with
    assert sorted(p.name for p in tmp_path.iterdir()) == ["loop.onnx", "tmp"]


# A command whose main thread is in the runtime for good, with work under way that must not stay.
DEAF = """
import sys
from contextlib import suppress
from pathlib import Path
import numpy as np
from graphopt import scratch
from graphopt.cli import signals
from graphopt.cli.progress import Interrupt
from graphopt.files import Draft
from graphopt.runtime.session import Session
from graphopt.runtime import guard
from graphopt.cli import main
def run(arguments):
    with Interrupt(), scratch.folder("work"), Draft(Path("out")), Session(Path(arguments[0])) as session:
        guard.start()
        print("deaf", file=sys.stderr, flush=True)
        session.run({"x": np.ones(4, np.float32)})
main.run = run
main.main()
"""


@pytest.mark.parametrize("plan", [[(0.5, INT), (1.0, INT)], [(0.5, TERM)]])
def test_a_main_thread_that_does_not_come_back(tmp_path, plan):
    path = stored(endless(), tmp_path / "loop.onnx")
    code, err, seconds = signalled(tmp_path, [path], plan, DEAF, ready="deaf")
    assert ("Ctrl-C again aborts" in err) == (code == 130)
    assert code == 128 + plan[-1][1] and seconds < 20
    assert sorted(p.name for p in tmp_path.iterdir()) == ["loop.onnx", "tmp"]


@pytest.mark.parametrize("number", [INT, TERM])
def test_no_traceback_while_modules_load(tmp_path, model, number):
    # Some time after the first of the large imports has begun; before that it is Python's own start.
    code = (
        "import os, sys, threading, time\n"
        "def send(moment):\n"
        "    while 'typer' not in sys.modules: time.sleep(0.001)\n"
        f"    time.sleep(moment); os.kill(os.getpid(), {int(number)})\n"
        "threading.Thread(target=send, args=(float(sys.argv.pop()),), daemon=True).start()\n"
        "from graphopt.__main__ import main; main()"
    )
    for moment in (0.0, 0.02, 0.05, 0.1, 0.3):
        exit_code, err, _ = signalled(tmp_path, ["inspect", model, moment], [], code)
        assert exit_code == 128 + number, err
        assert err.count("\n") == (number == INT)


def test_workers_that_start_are_deaf_to_ctrl_c(tmp_path):
    """A Ctrl-C goes to the whole group: only the parent speaks."""
    code = (
        "import os, signal, threading, time\n"
        "from graphopt.execution import Processes\n"
        "def main():\n"
        "    signal.signal(signal.SIGINT, lambda *_: None)\n"
        "    for moment in range(1, 9):\n"
        "        threading.Timer(moment / 20, os.killpg, (os.getpid(), signal.SIGINT)).start()\n"
        "    with Processes(2) as pool: print(list(pool.map(abs, [-1, -2])))\n"
        "if __name__ == '__main__': main()\n"
    )
    script = tmp_path / "script.py"
    script.write_text(code)
    done = subprocess.run(
        [sys.executable, script], capture_output=True, text=True, start_new_session=True, timeout=60, check=False,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    assert done.stdout == "[1, 2]\n" and done.stderr == ""


@pytest.mark.parametrize("plan", [[(3.0, INT), (4.0, INT)], [(0.5, TERM)], [(1.5, HUP)], [(2.5, TERM)]])
def test_commands_with_workers_and_imports(tmp_path, plan):
    """What a signal raises may be lost in an import, and a KeyboardInterrupt that was caught must not count at the end."""
    arguments = ["rules", "generate", "--out", tmp_path / "rules", "--depth", "2"]
    code, err, _ = signalled(tmp_path, arguments, plan)
    assert code == 128 + plan[-1][1]
    assert err.count("error:") == (code == 130)


@pytest.mark.slow
@pytest.mark.parametrize(
    "arguments",
    [
        ("bench", "net.onnx", "--strategy", "none", "--seconds", "600"),
        ("optimize", "loop.onnx", "--out-dir", "out"),
        ("train-agent", "--models", "net.onnx", "--preset", "debug", "--steps", "1000000", "--out", "agent"),
        ("cost", "calibrate", "net.onnx", "--seconds", "60"),
        ("rules", "check", "--all"),
    ],
    ids=lambda arguments: arguments[0],
)
def test_sigterm_ends_what_takes_long(tmp_path, model, monkeypatch, arguments):
    stored(endless(), tmp_path / "loop.onnx")
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "torch"))  # torch would have it among temporary files
    code, err, seconds = signalled(tmp_path, arguments, [(1.2, TERM)])
    assert code == 143 and seconds < 20, err
    assert "error" not in err


@pytest.mark.parametrize(("number", "code"), [(INT, 130), (TERM, 143), (HUP, 128 + HUP)])
def test_a_signal_that_hits_a_destructor_is_not_lost(number, code):
    program = f"""
import signal
from graphopt.cli import signals
class Held:
    def __del__(self):
        signal.raise_signal({int(number)})
        len("where Python looks for signals")
signals.watch()
held = Held()
del held
print("went on")
"""
    ended = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True)
    assert ended.returncode == code and not ended.stdout
    assert "Traceback" not in ended.stderr


@pytest.mark.parametrize(
    ("received", "error", "printed"),
    [
        (2, KeyboardInterrupt(), False),
        (15, SystemExit(143), False),
        (2, ValueError("x"), True),
        (0, KeyboardInterrupt(), True),
    ],
)
def test_what_a_signal_raised_in_a_library_in_c_is_not_printed(monkeypatch, capsys, received, error, printed):
    monkeypatch.setattr(signals, "_received", received)
    signals._printed(type(error), error, None)
    assert bool(capsys.readouterr().err) == printed
