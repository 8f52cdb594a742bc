"""OpenVINO as a provider, from end to end, where its package is installed.

It excludes the CPU's package, so these run in an environment of their own: pip install -e '.[openvino,dev]', then
python -m pytest tests/test_openvino.py.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from onnx import helper

import graphopt
from graphopt.cost.kernel import KernelCost
from graphopt.cost.store import Store
from graphopt.errors import SessionError
from graphopt.ir.simplify import simplify
from graphopt.onnxio.load import load
from graphopt.runtime import providers
from graphopt.runtime.environment import fingerprint
from graphopt.runtime.session import LoadableModel, Session, SessionConfig
from graphopt.verification.numeric import verify_models
from tests.runtime.models import F, chain, model, proto

ROOT = Path(__file__).resolve().parents[1]
DEMO = ROOT / "models" / "demo_regnet.onnx"
OPENVINO = SessionConfig("openvino")
HALF = {"precision": "ACCURACY", "load_config": '{"CPU": {"INFERENCE_PRECISION_HINT": "bf16"}}'}

pytestmark = pytest.mark.skipif(
    "openvino" not in providers.available(), reason="needs onnxruntime-openvino, which excludes the CPU's onnxruntime"
)


@pytest.fixture(autouse=True)
def own_cache(monkeypatch, tmp_path_factory):
    monkeypatch.setenv("GRAPHOPT_CACHE_DIR", str(tmp_path_factory.mktemp("cache")))


def shuffled(channels: int = 16):
    """Convolutions with a channel shuffle between them, as in ShuffleNet."""
    rng = np.random.default_rng(0)
    half = channels // 2
    weights = {
        f"w{i}": (rng.standard_normal((channels, channels, 1, 1)) / channels**0.5).astype(np.float32) for i in (1, 2)
    }
    weights |= {"apart": np.array([1, 2, half, 6, 6]), "whole": np.array([1, channels, 6, 6])}
    nodes = [
        helper.make_node("Conv", ["x", "w1"], ["a"]),
        helper.make_node("Reshape", ["a", "apart"], ["b"]),
        helper.make_node("Transpose", ["b"], ["c"], perm=[0, 2, 1, 3, 4]),
        helper.make_node("Reshape", ["c", "whole"], ["d"]),
        helper.make_node("Conv", ["d", "w2"], ["y"]),
    ]
    return proto(nodes, [("x", F, [1, channels, 6, 6])], [("y", F, [1, channels, 6, 6])], weights)


def test_a_session_runs_on_it():
    feeds = {"x": np.ones((4, 64), np.float32)}
    with Session(chain(3)) as cpu, Session(chain(3), OPENVINO) as session:
        assert session.placement.nodes == {"openvino": 3} and not session.placement.elsewhere
        assert session.placement.device == "cpu" and not session.placement.copies
        assert np.allclose(session.run(feeds)[0], cpu.run(feeds)[0], atol=1e-5)
        session.prepare(feeds)()


def test_threads_reach_it_unless_it_is_told_otherwise():
    def chosen(config):
        return providers.choose(None, "OpenVINOExecutionProvider", config.provider_options, config.threads)[0][1]

    assert chosen(SessionConfig("openvino", 2)) == {"num_of_threads": "2"}
    assert chosen(SessionConfig("openvino", 2, provider_options={"num_of_threads": "1"})) == {"num_of_threads": "1"}
    assert chosen(SessionConfig("openvino", 0)) == {}


def test_what_it_lacks_is_left_to_the_cpu():
    nodes = [helper.make_node("MatMul", ["x", "w"], ["a"]), helper.make_node("Det", ["a"], ["y"])]
    graph = model(nodes, [("x", F, [2, 3, 3])], [("y", F, [2])], {"w": np.eye(3, dtype=np.float32)})
    with Session(graph, OPENVINO) as session:
        assert session.placement.nodes == {"openvino": 1, "cpu": 1} and session.placement.elsewhere == {"Det": 1}


def test_all_left_to_the_cpu_is_an_error():
    graph = model([helper.make_node("Det", ["x"], ["y"])], [("x", F, [2, 3, 3])], [("y", F, [2])])
    with pytest.raises(SessionError, match="provider openvino takes no node"):
        Session(graph, OPENVINO)


def test_a_device_that_is_not_there_is_an_error_that_says_so(capfd):
    with pytest.raises(SessionError) as error:
        Session(chain(1), SessionConfig("openvino", provider_options={"device_type": "NPU"}))
    assert "openvino does not start, and the runtime would use the CPU instead" in str(error.value)
    assert "Device NPU is not available" in str(error.value)
    assert capfd.readouterr() == ("", "")


def test_an_unknown_option_is_an_error():
    with pytest.raises(SessionError, match="option") as error:
        Session(chain(1), SessionConfig("openvino", provider_options={"devize": "CPU"}))
    assert "devize" in str(error.value) and "\n" not in str(error.value)


def test_kernels_have_a_store_of_their_own():
    graph = simplify(load(DEMO).graph)
    totals = {}
    with Store(None) as store:
        for config in (SessionConfig(), OPENVINO):
            cost = KernelCost(store, config, seconds=3.0)
            totals[config.provider] = cost.of(graph).total
            assert cost.measured > 5
        assert len(store.sizes()) == 2
    assert all(0.1 < ms < 1000 for ms in totals.values())
    half = SessionConfig("openvino", provider_options=HALF)
    assert len({fingerprint(c).digest for c in (SessionConfig(), OPENVINO, half)}) == 3
    assert fingerprint(OPENVINO).package.startswith("onnxruntime-openvino ")


def test_verification_allows_for_its_precision_but_not_for_more():
    config = SessionConfig("openvino", provider_options=HALF)
    graph = LoadableModel(shuffled().SerializeToString())
    same = verify_models(graph, graph, config=config)
    assert same.passed
    wrong = shuffled()
    wrong.graph.initializer[0].raw_data = (
        1.2 * np.frombuffer(wrong.graph.initializer[0].raw_data, np.float32)
    ).tobytes()
    assert not verify_models(graph, LoadableModel(wrong.SerializeToString()), config=config).passed


def test_a_family_that_it_gets_wrong_is_taken_back():
    """Gather then Conv: the compiler of OpenVINO 2025.4 permutes the weight the wrong way round."""
    on_cpu = graphopt.optimize(shuffled(), rules=["channel-shuffle-is-gather"], measure=False)
    assert on_cpu.report["rules"] == {"channel-shuffle-is-gather": 1}
    report = graphopt.optimize(
        shuffled(), rules=["channel-shuffle-is-gather"], measure=False, provider="openvino"
    ).report
    if report["rules"]:  # a version of OpenVINO that has mended it
        assert report["verified"]["passed"]
    else:
        assert report["kept_original"] and report["families"][0]["wrong"]
        assert report["warnings"][0] == "provider openvino computes something else with layout: taken back"


def test_the_command_from_start_to_end(tmp_path):
    command = [sys.executable, "-m", "graphopt", "optimize", DEMO, "-o", tmp_path / "out.onnx", "--budget", "6"]
    command += ["--provider", "OpenVINO", "--provider-option", "device_type=CPU", "--json", "-"]
    done = subprocess.run(list(map(str, command)), cwd=ROOT, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report["provider"] == "openvino" and report["provider_options"] == {"device_type": "CPU"}
    assert report["placement"]["before"] == {"openvino": 44} and not report["placement"]["elsewhere"]
    assert report["timing"] == {"device": "cpu", "copies": False}
    assert report["environment"]["package"].startswith("onnxruntime-openvino ")
    assert "openvino 44 nodes" in done.stderr and "in the host's memory, where the provider works" in done.stderr
    assert (tmp_path / "out.onnx").exists()
    verdict = graphopt.verify(DEMO, tmp_path / "out.onnx", provider="openvino")
    assert verdict.passed
