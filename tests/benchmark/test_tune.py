"""Settings of the session: what is tried, how it is said, and that a planted gain is found and a harmful one refused."""

from __future__ import annotations

import numpy as np
import onnxruntime
import pytest
from onnx import helper

from graphopt.benchmark.results import Ratio, Trial
from graphopt.benchmark.tune import (
    DENORMALS,
    SPINNING,
    Setting,
    Tuner,
    _best,
    as_python,
    other_settings,
    session_options,
    thread_settings,
)
from graphopt.benchmark.worker import save_feeds
from graphopt.runtime.environment import default_threads
from graphopt.runtime.rounds import Sampling
from graphopt.runtime.session import LEVELS, Session, SessionConfig
from tests.runtime.models import chain, model

FASTER, EQUAL = Ratio(1.2, 1.1, 1.3, "faster"), Ratio(1.0, 0.99, 1.01, "equal")


def names(settings):
    return [setting.name for setting in settings]


def test_threads():
    assert thread_settings(SessionConfig(), 1) == []
    found = names(thread_settings(SessionConfig(), 6))
    assert found == ["2 threads", "4 threads", "6 threads", "operators in parallel, up to 6"]
    assert names(thread_settings(SessionConfig(threads=2), 2))[:1] == ["1 thread"]


def test_all_cores_are_not_tried_against_themselves():
    here = default_threads()
    assert f"{here} thread{'s' if here > 1 else ''}" not in names(thread_settings(SessionConfig(threads=0), here))


def test_what_depends_on_threads():
    one, two = (other_settings(SessionConfig(threads=n)) for n in (1, 2))
    spinning = {"no spinning", "dynamic block size"}
    assert not spinning & set(names(one)) and spinning < set(names(two))
    levels = ["level extended", "level basic", "level disabled"]
    assert names(other_settings(SessionConfig(provider="openvino"))) == levels
    assert names(other_settings(SessionConfig(provider="cuda"))) == [
        *levels,
        "recorded CUDA graph",
        "channels last",
        "bias and activation within a convolution",
    ]


def test_every_setting_can_be_opened(tmp_path):
    path = tmp_path / "net.onnx"
    path.write_bytes(chain(2).proto)
    base, found = SessionConfig(threads=2), []
    for setting in (*thread_settings(base, 2), *other_settings(base)):
        with Session(path, setting.applied(base)) as session:
            found += session.run({"x": np.ones((4, 64), np.float32)})
    assert len(found) > 8
    for output in found:
        np.testing.assert_allclose(output, found[0], rtol=1e-5)


def test_settings_add_up():
    config = SessionConfig(entries={"a": "1"})
    for setting in (
        s for s in other_settings(SessionConfig(threads=2)) if s.name in ("no spinning", "denormals as zero")
    ):
        config = setting.applied(config)
    assert config.entries == {"a": "1", SPINNING: "0", DENORMALS: "1"}


def test_options_and_python(tmp_path, monkeypatch):
    assert session_options(SessionConfig(threads=3)) == {"intra_op_num_threads": 3}
    config = SessionConfig(threads=2, level="basic", parallel=2, arena=False, pattern=False, entries={SPINNING: "0"})
    options = session_options(config)
    assert options == {
        "intra_op_num_threads": 2, "execution_mode": "ORT_PARALLEL", "inter_op_num_threads": 2,
        "graph_optimization_level": "ORT_ENABLE_BASIC", "enable_cpu_mem_arena": False, "enable_mem_pattern": False,
        "config_entries": {SPINNING: "0"},
    }  # fmt: skip
    (tmp_path / "model.onnx").write_bytes(chain(1).proto)
    monkeypatch.chdir(tmp_path)
    scope = {}
    exec(as_python(config), scope)
    made = scope["session"].get_session_options()
    assert made.intra_op_num_threads == made.inter_op_num_threads == 2
    assert made.execution_mode == onnxruntime.ExecutionMode.ORT_PARALLEL
    assert made.graph_optimization_level == onnxruntime.GraphOptimizationLevel.ORT_ENABLE_BASIC
    assert not made.enable_cpu_mem_arena and not made.enable_mem_pattern
    assert made.get_session_config_entry(SPINNING) == "0"


def test_python_of_a_recorded_graph():
    config = SessionConfig(provider="cuda", provider_options={"device_id": "1"})
    graph = next(s for s in other_settings(config) if s.name == "recorded CUDA graph").applied(config)
    assert graph.provider_options == {"device_id": "1", "enable_cuda_graph": "1"}
    assert session_options(graph)["provider_options"] == graph.provider_options
    text = as_python(graph)
    compile(text, "advice", "exec")
    assert """providers=[("CUDAExecutionProvider", {'device_id': '1', 'enable_cuda_graph': '1'})])""" in text
    assert "io_binding" in text and "io_binding" not in as_python(config)


@pytest.mark.parametrize("level", LEVELS)
def test_python_of_every_level(level, tmp_path, monkeypatch):
    (tmp_path / "model.onnx").write_bytes(chain(1).proto)
    monkeypatch.chdir(tmp_path)
    scope = {}
    exec(as_python(SessionConfig(level=level)), scope)
    expected = f"ORT_{'DISABLE_ALL' if level == 'disabled' else f'ENABLE_{level.upper()}'}"
    assert scope["session"].get_session_options().graph_optimization_level.name == expected


def test_only_what_is_certain_and_harmless_is_chosen():
    settings = [Setting(str(i), {}, group) for i, group in enumerate("aabbcd")]
    trials = [
        Trial("0", {}, FASTER), Trial("1", {}, Ratio(1.4, 1.3, 1.5, "faster")), Trial("2", {}, EQUAL),
        Trial("3", {}, Ratio(1.1, 0.9, 1.3, "unclear")), Trial("4", {}, FASTER, "changes output"), Trial("5", {}, FASTER),
    ]  # fmt: skip
    assert names(_best(settings, trials)) == ["1", "5"]


def tuner(tmp_path, proto, feeds):
    path = tmp_path / "net.onnx"
    path.write_bytes(proto)
    save_feeds(feeds, tmp_path / "feeds.npz")
    return Tuner(path, feeds, tmp_path / "feeds.npz", Sampling(seconds=0.3, precision=0.2))


def test_denormals_are_found_and_advised(tmp_path):
    """Half of the operand is denormal: hundreds of times slower on most processors, and nothing to the result."""
    rng = np.random.default_rng(0)
    weights = {"w": np.where(rng.random((128, 128)) < 0.5, 1e-40, rng.standard_normal((128, 128))).astype(np.float32)}
    nodes = [helper.make_node("MatMul", ["x", "w"], ["h"]), helper.make_node("MatMul", ["h", "w"], ["y"])]
    proto = model(nodes, [("x", 1, [32, 128])], [("y", 1, [32, 128])], weights).proto
    found = tuner(tmp_path, proto, {"x": np.full((32, 128), 0.1, np.float32)}).tune(
        "original", SessionConfig(), cores=1
    )
    trial = next(t for t in found.tried if t.name == "denormals as zero")
    if trial.ratio.verdict != "faster":  # a processor that does not mind
        assert "denormals as zero" not in found.advised
        return
    if trial.ratio.high < 1.1:  # nor does one of which chance says so: it is asked again, and may answer either way
        return
    assert "denormals as zero" in found.advised
    assert found.options["config_entries"][DENORMALS] == "1"
    assert DENORMALS in found.python and found.ratio.low > 1


def test_what_changes_outputs_is_seen(tmp_path):
    nodes = [helper.make_node("Mul", ["x", "x"], ["h"]), helper.make_node("Mul", ["h", "big"], ["y"])]
    weights = {"big": np.float32(1e38) * np.ones(1, np.float32)}
    proto = model(nodes, [("x", 1, [8])], [("y", 1, [8])], weights).proto
    found = tuner(tmp_path, proto, {"x": np.full(8, 1e-20, np.float32)})
    assert "output 'y'" in found._difference(SessionConfig(), SessionConfig(entries={DENORMALS: "1"}), True)
    assert not found._difference(SessionConfig(), SessionConfig(arena=False), False)


def test_interrupted(tmp_path):
    quick = tuner(tmp_path, chain(2).proto, {"x": np.ones((4, 64), np.float32)})
    stopped = Tuner(quick.model, quick.feeds, quick.file, quick.sampling, stop=lambda: True)
    assert stopped.tune("original", SessionConfig()) is None
