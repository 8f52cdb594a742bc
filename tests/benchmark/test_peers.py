"""Other optimisers in processes of their own: what they write, and every way in which they can fail."""

from __future__ import annotations

import sys
import time

import onnx
import pytest

from graphopt.benchmark import peers
from graphopt.benchmark.peers import PEERS, installed, run_peer
from graphopt.benchmark.plan import Plan
from graphopt.errors import UnknownNameError, UsageError
from tests.runtime.models import chain


@pytest.fixture
def source(tmp_path):
    path = tmp_path / "in put.onnx"
    path.write_bytes(chain(3).proto)
    return path


@pytest.fixture
def peer(monkeypatch):
    """Make a peer of some code, under the name of a module that is there."""

    def make(code, name="onnx"):
        monkeypatch.setitem(PEERS, name, code)
        return name

    return make


@pytest.mark.parametrize("name", installed())
def test_real_peers(name, source, tmp_path):
    run = run_peer(name, source, tmp_path / "out")
    if run.missing and name == "ort-transformers":
        pytest.skip(f"{name} {run.error}")
    assert not run.error and run.path is not None and run.version
    assert 0 < run.seconds < 60
    assert onnx.load(run.path).graph.output[0].name == "y"


def test_that_of_transformers_runs_where_it_is_named():
    assert "ort-transformers" in installed() and "ort-transformers" not in Plan().opponents
    assert Plan(against=("ort-transformers",)).opponents == ["ort-transformers"]


def test_what_it_prints_does_not_matter(source, tmp_path, peer):
    run = run_peer(peer("begin(); model = onnx.load(source); print('a table\\nof numbers')"), source, tmp_path / "out")
    assert run.path is not None and run.seconds is not None and run.version == onnx.__version__


def test_only_its_own_work_is_timed(source, tmp_path, peer):
    run = run_peer(peer("time.sleep(1); begin(); model = onnx.load(source)"), source, tmp_path / "out")
    assert run.seconds < 0.5


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("begin(); raise ValueError('bad\\nmodel')", "model"),
        ("begin(); import os; os.abort()", "killed by signal 6"),
        ("begin(); sys.exit(3)", "exit code 3"),
        ("begin(); model = None", "None"),
        ("import json.nonesuch", "No module named 'json.nonesuch'"),
    ],
)
def test_failures_are_told(source, tmp_path, peer, code, message):
    run = run_peer(peer(code), source, tmp_path / "out")
    assert run.path is None and not run.missing
    assert message in run.error and "\n" not in run.error


def test_what_it_imports_may_be_missing(source, tmp_path, peer):
    """The runtime's optimiser of transformers imports torch, which the runtime does not ask for."""
    run = run_peer(peer("import nonesuch"), source, tmp_path / "out")
    assert run.missing and run.error == "needs the Python module nonesuch, which is not installed"


def test_time_limit_and_interruption(source, tmp_path, peer):
    name = peer("begin(); time.sleep(60)")
    begin = time.monotonic()
    assert run_peer(name, source, tmp_path / "out", limit=0.5).error == "no result after 0.5 s"
    assert run_peer(name, source, tmp_path / "out", interrupted=lambda: True).error == "interrupted"
    assert time.monotonic() - begin < 30


def test_missing_and_unknown(source, tmp_path, peer):
    run = run_peer(peer("begin()", "nonesuch"), source, tmp_path / "out")
    assert run.missing and "pip install nonesuch" in run.error
    assert "nonesuch" not in peers.installed()
    with pytest.raises(UnknownNameError):
        run_peer("other", source, tmp_path / "out")


def test_where_no_python_is_known_it_is_said(source, tmp_path, peer, monkeypatch):
    monkeypatch.setattr(sys, "executable", None)
    monkeypatch.delitem(sys.modules, "multiprocessing.spawn", raising=False)
    with pytest.raises(UsageError, match="no Python to start a process with") as error:
        run_peer(peer("begin()"), source, tmp_path / "out")
    assert "set_executable" in str(error.value.hint)
