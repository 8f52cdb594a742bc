"""Execution providers by name, present and absent, and what a session says of those that do not start."""

from __future__ import annotations

import importlib.util
import platform
import sys
import threading
import time
from types import SimpleNamespace

import numpy as np
import onnxruntime
import pytest

from graphopt.config import PROVIDERS, provider_name
from graphopt.errors import SessionError, UnknownNameError, UsageError
from graphopt.runtime import providers
from graphopt.runtime.session import Session, SessionConfig
from tests.runtime.models import chain

AZURE = pytest.mark.skipif(
    "AzureExecutionProvider" not in onnxruntime.get_available_providers(), reason="this build has no idle provider"
)
CUDA_WITHOUT_GPU = pytest.mark.skipif(
    "cuda" not in providers.available() or importlib.util.find_spec("nvidia") is not None,
    reason="needs onnxruntime-gpu on a machine without CUDA",
)


QNN = pytest.mark.skipif(
    "qnn" not in providers.available() or platform.machine() not in ("x86_64", "AMD64"),
    reason="needs onnxruntime-qnn, and a machine that has to simulate the device",
)


@pytest.mark.parametrize(("short", "full"), PROVIDERS.items())
def test_names(short, full):
    assert providers.full_name(short) == providers.full_name(short.upper()) == providers.full_name(full) == full
    assert provider_name(full) == short
    assert full in onnxruntime.get_all_providers()
    assert providers.traits(full) is providers.traits(short) is providers.TRAITS[short]


def test_a_provider_without_a_short_name():
    assert providers.full_name("MIGraphXExecutionProvider") == "MIGraphXExecutionProvider"
    assert providers.traits("MIGraphXExecutionProvider") == providers.Traits()


def test_unknown_provider():
    with pytest.raises(UnknownNameError, match="unknown provider 'cdua'") as error:
        Session(chain(1), SessionConfig(provider="cdua"))
    assert error.value.hint == "did you mean 'cuda'?"


@pytest.mark.parametrize("name", [name for name in PROVIDERS if name not in providers.available()])
def test_an_absent_provider_says_how_to_get_it(name):
    with pytest.raises(UsageError, match=f"provider {name} is not available on this machine") as error:
        Session(chain(1), SessionConfig(provider=name))
    hint = error.value.hint
    if name == "coreml" or (name == "directml" and sys.platform != "win32"):
        assert hint.endswith(" only")
    else:
        assert f"pip install {providers.TRAITS[name].package}" in hint
        # A second package would overwrite the files of the first; only a plug-in goes beside it.
        assert ("pip uninstall" in hint) == (not providers.TRAITS[name].plugin)


def test_absent_provider_without_a_package():
    with pytest.raises(UsageError) as error:
        providers.require("RknpuExecutionProvider")
    assert "cpu" in error.value.hint


def test_cpu_is_always_there():
    assert "cpu" in providers.available()
    assert providers.require("cpu") == "CPUExecutionProvider"


def test_the_cpu_takes_no_options():
    with pytest.raises(UsageError, match="provider cpu takes no options: device_id"):
        Session(chain(1), SessionConfig(provider_options={"device_id": "1"}))


def test_what_computes_on_the_processor():
    assert providers.on_host("cpu", {}) and providers.on_host("OpenVINOExecutionProvider", {})
    assert providers.on_host("openvino", {"device_type": "CPU"})
    assert not providers.on_host("openvino", {"device_type": "GPU.0"})
    assert not providers.on_host("cuda", {}) and not providers.on_host("MIGraphXExecutionProvider", {})


@AZURE
def test_a_provider_that_takes_nothing_is_an_error():
    with pytest.raises(SessionError, match="takes no node") as error:
        Session(chain(1), SessionConfig(provider="AzureExecutionProvider"))
    assert error.value.hint == "choose provider cpu"


@AZURE
def test_a_provider_may_take_nothing_where_it_need_not():
    with Session(chain(3), SessionConfig(provider="AzureExecutionProvider", required=False)) as session:
        assert session.placement.nodes == {"cpu": 3}
        assert session.placement.elsewhere == {"MatMul": 3}


def test_on_the_cpu_there_is_nothing_to_place():
    with Session(chain(3)) as session:
        assert session.placement.nodes == {} == session.placement.elsewhere
        assert session.placement.device == "cpu" and not session.placement.copies


@CUDA_WITHOUT_GPU
@pytest.mark.parametrize("name", ["cuda", "tensorrt"])
def test_a_package_without_its_device_is_an_error_that_says_why(name, capfd):
    with pytest.raises(SessionError) as error:
        Session(chain(1), SessionConfig(provider=name))
    text = str(error.value)
    assert text.startswith(f"provider {name} does not start") and "onnxruntime-gpu[cuda,cudnn]" in str(error.value.hint)
    assert "would use the CPU instead: Failed to load library" in text or "install TensorRT libraries" in text
    assert "\n" not in text and "onnxruntime_src" not in text
    assert capfd.readouterr() == ("", "")


@QNN
def test_a_plug_in_runs_and_is_told_its_options():
    options = {"backend_type": "htp"}
    with Session(chain(2), SessionConfig("qnn", provider_options=options)) as session, Session(chain(2)) as cpu:
        assert "qnn" in session.placement.nodes and session.placement.copies
        feeds = {"x": np.ones((4, 64), np.float32)}
        assert np.allclose(session.run(feeds)[0], cpu.run(feeds)[0], atol=1e-2)


@QNN
def test_a_plug_in_that_registers_and_takes_no_node_is_an_error():
    with pytest.raises(SessionError, match="provider qnn takes no node"):
        Session(chain(2), SessionConfig("qnn", provider_options={"backend_type": "gpu"}))


@QNN
def test_a_plug_in_that_does_not_start_is_an_error():
    with pytest.raises(SessionError, match=r"provider qnn does not start.*backend") as error:
        Session(chain(2), SessionConfig("qnn"))
    assert "backend_type" in str(error.value.hint)


def test_a_plug_in_is_registered_once(monkeypatch, tmp_path):
    """The runtime refuses a second time, be it another thread's or, of what the host has registered, ours."""
    (tmp_path / "onnxruntime_qnn.py").write_text("def get_library_path(): return 'library'")
    monkeypatch.syspath_prepend(tmp_path)
    registered, refused = [], []

    def register(name: str, library: str) -> None:
        time.sleep(0.05)
        refused.extend(registered)
        registered.append(name)

    monkeypatch.setattr(onnxruntime, "register_execution_provider_library", register, raising=False)
    monkeypatch.setattr(onnxruntime, "get_ep_devices", list, raising=False)
    providers._register_once.cache_clear()
    threads = [threading.Thread(target=providers._register, args=("qnn",)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (registered, refused) == (["QNNExecutionProvider"], [])

    providers._register_once.cache_clear()
    theirs = SimpleNamespace(ep_name="QNNExecutionProvider")
    monkeypatch.setattr(onnxruntime, "get_ep_devices", lambda: [theirs], raising=False)
    providers._register("qnn")
    assert registered == ["QNNExecutionProvider"]
    providers._register_once.cache_clear()
