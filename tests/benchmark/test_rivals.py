"""Other runtimes: the real ones where they are installed, and everything that can go wrong, with processes that really fail."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from graphopt.benchmark import rivals
from graphopt.benchmark.plan import Plan
from graphopt.benchmark.rivals import RIVALS, Opened, RivalRuntime, python_of
from graphopt.benchmark.run import bench
from graphopt.benchmark.worker import save_feeds
from graphopt.errors import SessionError, UnknownNameError
from graphopt.runtime.session import Session
from tests.runtime.models import chain

# A runtime that is there wherever graphopt is, used as a rival of itself.
ITSELF = """
import onnxruntime
options = onnxruntime.SessionOptions()
options.intra_op_num_threads = threads
session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
def run(feeds):
    return session.run(None, feeds)
"""


@pytest.fixture
def net(tmp_path):
    path = tmp_path / "net.onnx"
    path.write_bytes(chain(4).proto)
    return path


@pytest.fixture
def feeds(net):
    with Session(net) as session:
        (spec,) = session.input_specs
        shape = [size if isinstance(size, int) else 2 for size in spec.shape]
        return {spec.name: np.random.default_rng(0).normal(size=shape).astype(np.float32)}


@pytest.fixture
def rival(monkeypatch):
    def make(code, name="itself", modules=("onnxruntime",)):
        monkeypatch.setitem(RIVALS, name, RivalRuntime(modules, "onnxruntime", "onnxruntime", code))
        return name

    return make


def opened(name: str, net: Path, feeds: dict[str, np.ndarray], folder: Path, limit: float = 300.0) -> Opened:
    save_feeds(feeds, folder / "feeds.npz")
    return Opened(name, net, 1, folder / "feeds.npz", folder, limit)


@pytest.mark.slow
@pytest.mark.parametrize("name", RIVALS)
def test_a_real_one(name, net, feeds, tmp_path):
    python = python_of(name)
    if python is None:
        pytest.skip(f"{name} is not installed: pip install {RIVALS[name].install}")
    imported = "; ".join(f"import {module}" for module in RIVALS[name].modules)
    tried = subprocess.run([python, "-c", imported], capture_output=True, text=True, check=False)
    if tried.returncode:
        pytest.skip(f"{name} is installed and can't be imported: {tried.stderr.strip().splitlines()[-1]}")
    with opened(name, net, feeds, tmp_path) as there, Session(net) as session:
        (found,) = there.outputs(feeds)
        np.testing.assert_allclose(found, session.run(feeds)[0], rtol=1e-3, atol=1e-4)
        assert there.version and there.opened > 0 and all(seconds > 0 for seconds in there.turn().take())


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("raise ValueError('not for me')", "ValueError: not for me"),
        ("os.kill(os.getpid(), 11)", "killed by signal 11"),
        ("time.sleep(600)", "no answer after 3 s"),
        (ITSELF + "run = None", "TypeError: 'NoneType' object is not callable"),
    ],
)
def test_one_that_fails(code, said, rival, net, feeds, tmp_path):
    with pytest.raises(SessionError, match=said):
        opened(rival(code), net, feeds, tmp_path, limit=3.0 if "sleep" in code else 60.0)


def test_all_of_them_in_a_benchmark(rival, net):
    """One that runs, one that computes something else, one far behind, one that crashes, one that is not there: the rest goes on."""
    rival(ITSELF)
    rival(ITSELF + "def run(feeds):\n    return [2 * each for each in session.run(None, feeds)]", "double")
    rival(ITSELF + "def run(feeds):\n    time.sleep(0.2)\n    return session.run(None, feeds)", "slow")
    rival("import nothing_of_that_name", "broken")
    rival(ITSELF, "absent", ("nothing_of_that_name",))
    names = ("itself", "double", "slow", "broken", "absent")
    plan = Plan(strategies=(), against=names, levels=("all",), rounds=20, precision=0.5, threads=(1,))
    (case,) = bench([net], plan).cases
    found = {variant.name: variant for variant in case.variants}
    assert {name: variant.status for name, variant in found.items()} == {
        "original": "measured", "itself": "measured", "double": "differs", "slow": "skipped", "broken": "failed", "absent": "missing",
    }  # fmt: skip
    assert re.fullmatch(r"\S+ times as fast by a single run, too slow to take turns", found["slow"].message)
    assert "No module named 'nothing_of_that_name'" in found["broken"].message
    assert "pip install onnxruntime" in found["absent"].message
    itself = found["itself"]
    assert itself.ratio is not None and itself.check is not None and itself.check.passed and itself.version
    assert itself.open_ms is not None and itself.optimise_s is not None and itself.latency is not None


def test_tensorrt_says_what_is_missing(net, feeds, tmp_path):
    """Where it is installed and there is a GPU, :func:`test_a_real_one` runs it."""
    if python_of("tensorrt") is not None:
        pytest.skip("tensorrt is installed")
    with pytest.raises(SessionError, match=r"not installed: pip install tensorrt cuda-python .*GPU"):
        opened("tensorrt", net, feeds, tmp_path)


def test_an_environment_of_its_own(rival, net, feeds, tmp_path, monkeypatch):
    name = rival(ITSELF, modules=("nothing_of_that_name",))
    assert python_of(name) is None
    own = tmp_path / "rivals" / name / "bin/python"
    own.parent.mkdir(parents=True)
    own.write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    own.chmod(0o755)
    monkeypatch.setenv("GRAPHOPT_RIVALS", str(tmp_path / "rivals"))
    assert os.name == "nt" or python_of(name) == str(own)
    with opened(name, net, feeds, tmp_path) as there:
        assert len(there.outputs(feeds)) == 1


def test_unknown_ones_are_named():
    with pytest.raises(UnknownNameError, match="unknown opponent 'openvin'") as caught:
        Plan(against=("openvin",)).check()
    assert caught.value.hint == "did you mean 'openvino'?"


def test_they_are_listed(capfd, monkeypatch):
    from graphopt.cli.main import run

    monkeypatch.setattr(rivals, "python_of", lambda name: sys.executable if name == "iree" else None)
    assert run(["bench", "--list-rivals"]) == 0
    lines = {line.split()[0]: line for line in capfd.readouterr().out.splitlines() if line.split()}
    assert "pip install openvino" in lines["openvino"] and "installed" in lines["iree"]
    assert {"onnxsim", "onnxslim", "onnxscript", "ort-transformers", *RIVALS} <= lines.keys()
