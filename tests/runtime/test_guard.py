"""Sessions in a child: what a model does to it is an error here, and nothing else."""

from __future__ import annotations

import os
import pickle
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest

from graphopt import errors
from graphopt.errors import CrashError, InputsNeededError, SessionError, UnknownNameError
from graphopt.runtime import guard
from graphopt.runtime.guard import Guarded, open_guarded
from graphopt.runtime.session import LoadableModel, Session, SessionConfig
from tests.hazards import endless, exploding, greedy, stored
from tests.runtime.models import chain

pytestmark = pytest.mark.skipif(os.name == "nt", reason="sessions are opened in this process there")
ROOT = Path(__file__).resolve().parents[2]
X = {"x": np.ones(4, np.float32)}


def memory(model) -> LoadableModel:
    return LoadableModel(model.SerializeToString())


def test_the_same_as_a_session():
    model = chain(3)
    with Session(model) as here, open_guarded(model) as there:
        assert isinstance(there, Guarded)
        assert there.input_specs == here.input_specs and there.output_specs == here.output_specs
        assert there.output_names == here.output_names and there.placement == here.placement
        feeds = {
            s.name: np.ones([d if isinstance(d, int) else 2 for d in s.shape], np.float32) for s in here.input_specs
        }
        for one, other in zip(here.run(feeds), there.run(feeds), strict=True):
            np.testing.assert_array_equal(one, other)
        assert there.clock(feeds) > 0
        with pytest.raises(SessionError, match="can't run the model"):
            there.run({})
    with pytest.raises(UnknownNameError, match="no-such") as error:
        open_guarded(model, SessionConfig("no-such"))
    assert error.value.hint


@pytest.mark.parametrize(("number", "name"), [(signal.SIGFPE, "SIGFPE"), (signal.SIGSEGV, "SIGSEGV")])
def test_a_crash_is_an_error_that_names_the_model(tmp_path, number, name):
    path = stored(endless(), tmp_path / "loop.onnx")
    with open_guarded(path) as session:
        # What an instruction of the model would do, at a moment when the child is in the runtime.
        threading.Timer(0.5, os.kill, (guard._running()._process.pid, number)).start()
        with pytest.raises(CrashError, match=rf"loop\.onnx: ONNX Runtime crashes \({name}\) when it runs this model"):
            session.run(X)
        with pytest.raises(CrashError, match="ended by an earlier request"):
            session.run(X)
    with open_guarded(chain(2)) as session:  # the next child
        assert session.output_names


def test_a_run_without_end_is_ended():
    with open_guarded(memory(endless()), name="it", seconds=1.0) as session:
        began = time.monotonic()
        with pytest.raises(CrashError, match="it: ONNX Runtime does not end within 1 s when it runs"):
            session.run(X)
        assert time.monotonic() - began < 3


def test_opening_without_end_is_ended():
    with pytest.raises(CrashError, match="does not end within 2 s when it opens"):
        open_guarded(memory(exploding()), seconds=2.0)


def test_a_model_that_asks_for_all_memory_fails_alone():
    with open_guarded(memory(greedy(4000))) as session, pytest.raises(SessionError):
        session.run({"x": np.ones(1, np.float32)})
    with open_guarded(chain(2)) as session:
        assert session.output_names


def test_weights_in_files_are_not_sent(tmp_path):
    from graphopt.onnxio.emit import emit
    from graphopt.onnxio.load import load
    from graphopt.search.arena import loadable
    from tests.onnxio.test_killed import X as INPUT
    from tests.onnxio.test_killed import stored as net

    model = load(net(tmp_path / "m.onnx", 3.0))
    payload = guard._payload(loadable(model, emit(model, model.graph)))
    assert len(pickle.dumps(payload)) < 2000
    with open_guarded(loadable(model, emit(model, model.graph))) as session:
        assert session.run({"x": INPUT})[0][0, 0] == 96.0


def test_the_child_ends_with_its_parent():
    code = (
        "import os, numpy as np; from graphopt.runtime import guard; from graphopt.runtime.session import LoadableModel\n"
        "from tests.hazards import endless\n"
        "s = guard.open_guarded(LoadableModel(endless().SerializeToString()))\n"
        "print(guard._running()._process.pid, flush=True)\n"
        "s.run({'x': np.ones(4, np.float32)})"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, cwd=ROOT) as parent:
        child = int(parent.stdout.readline())
        time.sleep(0.3)
        parent.kill()
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        try:
            if Path(f"/proc/{child}/stat").read_text().split()[2] == "Z":
                break
        except OSError:
            break
        time.sleep(0.05)
    else:
        os.kill(child, signal.SIGKILL)
        pytest.fail("it goes on")


def test_every_error_can_be_sent():
    for name, kind in vars(errors).items():
        if isinstance(kind, type) and issubclass(kind, errors.GraphoptError):
            error = kind.__new__(kind)
            errors.GraphoptError.__init__(error, "what", "how")
            again = pickle.loads(pickle.dumps(error))
            assert (type(again), str(again), again.hint) == (kind, "what", "how"), name
    again = pickle.loads(pickle.dumps(InputsNeededError("what", "how")))
    assert str(again) == "what" and again.hint == "how"


def test_a_candidate_that_has_no_end_is_refused(tmp_path):
    from graphopt.onnxio.load import load
    from graphopt.search.arena import Arena

    model = load(stored(endless(), tmp_path / "loop.onnx"))
    arena = Arena(model, model, SessionConfig(), X, patience=1.0)
    with pytest.raises(SessionError, match="a candidate: ONNX Runtime does not end within 1 s"):
        arena.pair(None, model.graph, 1.0)


def test_a_model_that_has_no_end_is_no_equal(tmp_path, monkeypatch):
    import onnx
    from onnx import TensorProto, helper

    from graphopt.verification.numeric import verify_models

    monkeypatch.setattr("graphopt.verification.reference._PATIENCE_S", 1.0)
    info = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [4]) for n in "xy"]
    plain = helper.make_model(
        helper.make_graph([helper.make_node("Neg", ["x"], ["y"])], "g", info[:1], info[1:]),
        opset_imports=[helper.make_opsetid("", 17)], ir_version=8,
    )  # fmt: skip
    onnx.save(plain, tmp_path / "plain.onnx")
    found = verify_models(tmp_path / "plain.onnx", stored(endless(), tmp_path / "loop.onnx"))
    assert not found.passed and "loop.onnx: ONNX Runtime does not end within" in found.message


def in_a_host(code: str, **how) -> str:
    """What a program prints that has graphopt open a model first."""
    model = f"LoadableModel({chain(1).proto!r})"
    given = f"from graphopt.runtime.guard import open_guarded\nfrom graphopt.runtime.session import LoadableModel\nmodel = {model}\n"
    done = subprocess.run(
        [sys.executable, "-c", f"import sys; sys.path.insert(0, {str(ROOT)!r})\n{given}{code}"],
        **{"capture_output": True, "text": True, "timeout": 60, "check": False} | how,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_modules_of_the_folder_are_not_those_of_python(tmp_path):
    """A command finds its own modules wherever it is run; so must what it starts."""
    (tmp_path / "json.py").write_text("raise SystemExit('this is not the one')")
    said = in_a_host(
        f"import json, os; os.chdir({str(tmp_path)!r}); sys.path.remove('')\nprint(type(open_guarded(model)).__name__)"
    )
    assert said == "Guarded"


def test_a_path_among_the_places_of_modules_is_passed_over():
    code = "from pathlib import Path; sys.path.append(Path('/tmp'))\nprint(type(open_guarded(model)).__name__)"
    assert in_a_host(code) == "Guarded"


@pytest.mark.parametrize("nothing", ["None", "''", "sys.executable; sys.frozen = True"])
def test_without_a_python_to_start_models_are_opened_here(nothing):
    assert in_a_host(f"sys.executable = {nothing}\nprint(type(open_guarded(model)).__name__)") == "Session"


@pytest.mark.parametrize(
    ("program", "said"),
    [("/no/such/python", "no process can be started with /no/such/python: no such file"), ("true", "exit code 0")],
)
def test_what_is_no_python_is_said(program, said):
    program = shutil.which(program) or program
    code = f"sys.executable = {program!r}\ntry: open_guarded(model)\nexcept Exception as error: print(type(error).__name__, error, error.hint)"
    told = in_a_host(code)
    assert told.startswith("GraphoptError") and said in told and "set_executable" in told


def test_a_host_names_its_python():
    code = (
        "import multiprocessing; python, sys.executable = sys.executable, 'host'; multiprocessing.set_executable(python)\n"
        "print(type(open_guarded(model)).__name__)"
    )
    assert in_a_host(code) == "Guarded"


@pytest.mark.skipif(not hasattr(os, "fork"), reason="forks")
def test_a_fork_while_another_thread_asks():
    """The lock is held then by a thread that the new process does not have."""
    code = (
        "import os, signal, threading\nfrom graphopt.runtime import guard\nheld, over = threading.Event(), threading.Event()\n"
        "def hold():\n    with guard._lock: held.set(); over.wait(30)\n"
        "threading.Thread(target=hold).start(); held.wait()\n"
        "pid = os.fork()\n"
        "if not pid: signal.alarm(20); open_guarded(model); os._exit(0)\n"
        "print(os.waitpid(pid, 0)[1]); over.set()"
    )
    assert in_a_host(code) == "0"
