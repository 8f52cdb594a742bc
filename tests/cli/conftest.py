"""Small real models, and two ways to run the command: inside this process (fast) and as a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class Outcome:
    code: int
    out: str
    err: str

    def error_lines(self) -> list[str]:
        """The lines of a failure: one that says what is wrong and perhaps one that says what to do about it."""
        lines = self.err.splitlines()
        assert lines and lines[0].startswith("error: "), self.err
        assert len(lines) <= 2 and all(line.startswith("hint: ") for line in lines[1:]), self.err
        assert "Traceback" not in self.err
        return lines


Command = Callable[..., Outcome]


@pytest.fixture(autouse=True)
def isolated(monkeypatch: pytest.MonkeyPatch, fresh_cache: Path) -> None:
    """Nothing of the user's settings or caches reaches a test, and nothing of a test reaches them."""
    terminal = ("COLUMNS", "LINES", "TERMINAL_WIDTH", "NO_COLOR", "FORCE_COLOR")  # xdist sets some of these
    for name in [name for name in os.environ if name.startswith("GRAPHOPT_") or name in terminal]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("GRAPHOPT_CACHE_DIR", str(fresh_cache))


@pytest.fixture
def cli(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Command:
    """Run the command inside this process, in `tmp_path`. Takes the arguments, returns the `Outcome`."""
    from graphopt.cli.main import run

    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "100")

    def command(*arguments: object) -> Outcome:
        capfd.readouterr()
        code = run([str(argument) for argument in arguments])
        captured = capfd.readouterr()
        return Outcome(code, captured.out, captured.err)

    return command


@pytest.fixture
def process(tmp_path: Path) -> Command:
    """Run the command as a process of its own, in `tmp_path`."""

    def command(*arguments: object, **environment: str) -> Outcome:
        path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
        done = subprocess.run(
            [sys.executable, "-m", "graphopt", *map(str, arguments)],
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": path, **environment},
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        return Outcome(done.returncode, done.stdout, done.stderr)

    return command


def weights(name: str, *shape: int, seed: int = 0) -> TensorProto:
    values = np.random.default_rng(seed).normal(size=shape, scale=0.2).astype(np.float32)
    return numpy_helper.from_array(values, name)


def conv_net(batch: int | str = 1, *, seed: int = 0) -> onnx.ModelProto:
    """Conv, BatchNormalization, Relu, an Identity nobody needs, and the pooled result of it."""
    channels = 8
    norm = [
        numpy_helper.from_array(values.astype(np.float32), name)
        for name, values in {
            "scale": np.linspace(0.5, 1.5, channels),
            "shift": np.linspace(-1, 1, channels),
            "mean": np.linspace(-0.1, 0.1, channels),
            "var": np.linspace(0.5, 2, channels),
        }.items()
    ]
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"], name="conv", pads=[1, 1, 1, 1]),
        helper.make_node("BatchNormalization", ["c", "scale", "shift", "mean", "var"], ["n"], name="norm"),
        helper.make_node("Relu", ["n"], ["r"], name="relu"),
        helper.make_node("Identity", ["r"], ["i"], name="identity"),
        helper.make_node("ReduceMean", ["i"], ["y"], name="mean", axes=[2, 3], keepdims=1),
    ]
    graph = helper.make_graph(
        nodes,
        "conv_net",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [batch, 4, 12, 12])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [batch, channels, 1, 1])],
        [weights("w", channels, 4, 3, 3, seed=seed), *norm],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "net.onnx"
    onnx.save(conv_net(), path)
    return path


@pytest.fixture
def dynamic_model(tmp_path: Path) -> Path:
    path = tmp_path / "dynamic.onnx"
    onnx.save(conv_net("batch"), path)
    return path


@pytest.fixture
def other_model(tmp_path: Path) -> Path:
    """The same inputs and outputs as `model`, but another function."""
    path = tmp_path / "other.onnx"
    onnx.save(conv_net(seed=1), path)
    return path
