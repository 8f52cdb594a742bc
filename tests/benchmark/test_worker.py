"""A session in a process of its own: its time, its memory, its outputs, and how it fails."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from graphopt.benchmark.worker import Worker, in_workers, save_feeds
from graphopt.errors import SessionError
from graphopt.runtime.rounds import Contender, Sampling, measure
from graphopt.runtime.session import SessionConfig
from tests.runtime.models import chain, model

CONFIG = SessionConfig()


def feeds_file(tmp_path, **feeds):
    save_feeds(feeds, tmp_path / "feeds.npz")
    return tmp_path / "feeds.npz"


def test_turns_outputs_and_memory(tmp_path):
    path = tmp_path / "net.onnx"
    path.write_bytes(chain(3).proto)
    x = np.ones((4, 64), np.float32)
    with Worker(path, CONFIG, feeds_file(tmp_path, x=x)) as worker:
        assert worker.opened > 0
        assert worker.peak is None or worker.peak > 10_000_000
        assert min(worker.turn()) > 0
        outputs = worker.outputs(tmp_path / "out.npz")
    assert outputs["y"].shape == (4, 64) and np.isfinite(outputs["y"]).all()


def test_what_the_runtime_prints_is_no_answer(tmp_path, monkeypatch):
    path = tmp_path / "net.onnx"
    path.write_bytes(chain(3).proto)
    printing = (
        "import os; from graphopt.benchmark import worker; run = worker.Session.run; "
        "worker.Session.run = lambda *given: (os.write(1, b'noise'), run(*given))[1]; worker.run()"
    )
    monkeypatch.setattr("graphopt.benchmark.worker._START", printing)
    with Worker(path, CONFIG, feeds_file(tmp_path, x=np.ones((4, 64), np.float32))) as worker:
        assert worker.opened > 0 and worker.outputs(tmp_path / "out.npz")


def test_memory_grows_with_the_model(tmp_path):
    peaks = []
    for width in (64, 2048):
        path = tmp_path / f"{width}.onnx"
        path.write_bytes(chain(4, width).proto)
        with Worker(path, CONFIG, feeds_file(tmp_path, x=np.ones((4, width), np.float32))) as worker:
            peaks.append(worker.peak)
    if peaks[0] is not None:
        assert peaks[1] - peaks[0] > 4 * 2048 * 2048 * 4


def test_text(tmp_path):
    path = tmp_path / "net.onnx"
    value = [("t", TensorProto.STRING, [2]), ("u", TensorProto.STRING, [2])]
    path.write_bytes(model([helper.make_node("Identity", ["t"], ["u"])], value[:1], value[1:]).proto)
    with Worker(path, CONFIG, feeds_file(tmp_path, t=np.array(["a", "bc"], dtype=object))) as worker:
        assert worker.outputs(tmp_path / "out.npz")["u"].tolist() == ["a", "bc"]


def test_floats_that_numpy_lacks(tmp_path):
    path = tmp_path / "net.onnx"
    value = [("x", TensorProto.BFLOAT16, [2]), ("y", TensorProto.BFLOAT16, [2])]
    path.write_bytes(model([helper.make_node("Identity", ["x"], ["y"])], value[:1], value[1:]).proto)
    with Worker(path, CONFIG, feeds_file(tmp_path, x=np.array([1, 2], ml_dtypes.bfloat16))) as worker:
        assert worker.outputs(tmp_path / "out.npz")["y"].tolist() == [1, 2]


def test_a_model_that_fails(tmp_path):
    path = tmp_path / "junk.onnx"
    path.write_bytes(b"junk")
    with pytest.raises(SessionError, match="can't open the model") as caught:
        Worker(path, CONFIG, feeds_file(tmp_path))
    assert "\n" not in str(caught.value)


def test_a_worker_that_dies(tmp_path):
    path = tmp_path / "net.onnx"
    path.write_bytes(chain(1).proto)
    with Worker(path, CONFIG, feeds_file(tmp_path, x=np.ones((4, 64), np.float32))) as worker:
        worker._process.kill()
        with pytest.raises(SessionError, match="killed by signal 9"):
            worker.turn()


def test_a_worker_that_dies_before_it_hears_all_is_closed(tmp_path):
    path = tmp_path / "net.onnx"
    path.write_bytes(chain(1).proto)
    with Worker(path, CONFIG, feeds_file(tmp_path, x=np.ones((4, 64), np.float32))) as worker:
        worker._process.kill()
        worker._process.wait()
        worker._process.stdin.write("turn\n")  # stays in the buffer until the pipe is closed
    assert worker._process.stdin.closed and worker._process.returncode


def test_only_here_are_denormals_flushed(tmp_path):
    """The reason for all this: in this process another session has been the first."""
    nodes = [helper.make_node("Mul", ["x", "x"], ["y"])]
    onnx.save(onnx.load_from_string(model(nodes, [("x", 1, [8])], [("y", 1, [8])]).proto), tmp_path / "net.onnx")
    file = feeds_file(tmp_path, x=np.full(8, 1e-20, np.float32))
    found = []
    for entries in ({}, {"session.set_denormal_as_zero": "1"}):
        with Worker(tmp_path / "net.onnx", SessionConfig(entries=entries), file) as worker:
            found.append(worker.outputs(tmp_path / "out.npz")["y"][0])
    assert 0 < found[0] < 1e-39 and found[1] == 0


def test_rounds_between_processes(tmp_path):
    paths = [tmp_path / f"{depth}.onnx" for depth in (40, 2)]
    for path, depth in zip(paths, (40, 2), strict=True):
        path.write_bytes(chain(depth).proto)
    contenders = [Contender(path.stem, path, CONFIG) for path in paths]
    measured = measure(
        contenders, in_workers(feeds_file(tmp_path, x=np.ones((4, 64), np.float32))), Sampling(rounds=20)
    )
    assert measured.ratios[0].value > 1 and measured.rounds == 20
