"""Execution providers by name, present and absent."""

from __future__ import annotations

import onnxruntime
import pytest

from graphopt.errors import SessionError, UnknownNameError, UsageError
from graphopt.runtime import providers
from graphopt.runtime.session import Session, SessionConfig
from tests.runtime.models import chain


@pytest.mark.parametrize(
    ("short", "full"),
    [
        ("cpu", "CPUExecutionProvider"),
        ("cuda", "CUDAExecutionProvider"),
        ("tensorrt", "TensorrtExecutionProvider"),
        ("openvino", "OpenVINOExecutionProvider"),
        ("coreml", "CoreMLExecutionProvider"),
        ("dml", "DmlExecutionProvider"),
        ("qnn", "QNNExecutionProvider"),
    ],
)
def test_names(short, full):
    assert providers.full_name(short) == providers.full_name(short.upper()) == providers.full_name(full) == full
    assert providers.short_name(full) == short
    assert full in onnxruntime.get_all_providers()


def test_unknown_provider():
    with pytest.raises(UnknownNameError, match="unknown provider 'cdua'") as error:
        Session(chain(1), SessionConfig(provider="cdua"))
    assert error.value.hint == "did you mean 'cuda'?"


def absent():
    return [name for name in ("cuda", "dml", "coreml") if name not in providers.available()]


def test_absent_provider_says_what_to_install():
    name = absent()[0]
    with pytest.raises(UsageError, match=f"provider {name} is not available on this machine") as error:
        Session(chain(1), SessionConfig(provider=name))
    assert "install onnxruntime" in error.value.hint


def test_absent_provider_without_a_package():
    with pytest.raises(UsageError) as error:
        providers.require("RknpuExecutionProvider")
    assert "cpu" in error.value.hint


def test_cpu_is_always_there():
    assert "cpu" in providers.available()
    assert providers.require("cpu") == "CPUExecutionProvider"


@pytest.mark.skipif("AzureExecutionProvider" not in onnxruntime.get_available_providers(), reason="not in this build")
def test_a_provider_that_takes_nothing_is_an_error():
    with pytest.raises(SessionError, match="took no node") as error:
        Session(chain(1), SessionConfig(provider="AzureExecutionProvider"))
    assert error.value.hint == "choose provider cpu"
