"""The pass for Olive, in a workflow of the real package: `pip install olive-ai requests` in an environment of its own."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest

pytest.importorskip(
    "olive", reason="olive-ai is not installed: pip install olive-ai requests in an environment of its own"
)

from tests.cli.conftest import conv_net

ROOT = Path(__file__).resolve().parents[2]


def outputs(path: Path) -> np.ndarray:
    import onnxruntime

    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    return session.run(None, {"x": np.random.default_rng(0).normal(size=(1, 4, 12, 12)).astype(np.float32)})[0]


@pytest.fixture(autouse=True)
def alone(monkeypatch, tmp_path):
    monkeypatch.setenv("OLIVE_DISABLE_TELEMETRY", "1")
    monkeypatch.setenv("GRAPHOPT_CACHE_DIR", str(tmp_path / "prices"))
    monkeypatch.setenv("PYTHONPATH", str(ROOT))


def workflow(folder: Path, **parameters: object) -> Path:
    config = {
        "input_model": {"type": "ONNXModel", "model_path": str(folder / "net.onnx")},
        "passes": {"faster": {"type": "GraphOpt", **parameters}},
        "output_dir": str(folder / "out"),
        "cache_dir": str(folder / "cache"),
        "evaluate_input_model": False,
    }
    (folder / "workflow.json").write_text(json.dumps(config))
    return folder / "workflow.json"


def run(config: Path) -> subprocess.CompletedProcess[str]:
    from graphopt.integrations.olive import PACKAGE_CONFIG

    command = [sys.executable, "-m", "olive", "run", "--config", config, "--package-config", PACKAGE_CONFIG]
    return subprocess.run(command, capture_output=True, text=True, cwd=config.parent, timeout=500, check=False)


@pytest.mark.slow
@pytest.mark.parametrize("external", [False, True])
def test_a_workflow(tmp_path, external):
    model = conv_net()
    onnx.save(model, tmp_path / "net.onnx", save_as_external_data=external, size_threshold=0, location="net.data")
    done = run(workflow(tmp_path, strategy="none", measure=False, max_growth=0.2))
    assert done.returncode == 0, done.stderr
    (written,) = (tmp_path / "out").rglob("*.onnx")
    proto = onnx.load(written, load_external_data=False)
    assert any(entry.key == "graphopt.rules" for entry in proto.metadata_props)
    assert len(proto.graph.node) < len(model.graph.node)
    assert any(tensor.data_location == onnx.TensorProto.EXTERNAL for tensor in proto.graph.initializer) == external
    assert np.allclose(outputs(written), outputs(tmp_path / "net.onnx"), atol=1e-5)


@pytest.mark.slow
def test_a_wrong_parameter_is_named(tmp_path):
    onnx.save(conv_net(), tmp_path / "net.onnx")
    done = run(workflow(tmp_path, threads=-1))
    assert done.returncode != 0 or not list((tmp_path / "out").rglob("*.onnx"))
    assert "threads must be" in done.stdout + done.stderr
