"""What a measurement depends on."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace

import onnxruntime
import pytest

from graphopt.errors import UnknownNameError, UsageError
from graphopt.runtime import environment
from graphopt.runtime.environment import block_size, fingerprint, rule_block
from graphopt.runtime.session import SessionConfig


def test_fields():
    found = fingerprint(SessionConfig(threads=3))
    assert found.onnxruntime == onnxruntime.__version__
    assert found.threads == 3 and found.provider == "cpu" and found.level == "all"
    assert found.cores >= 1 and found.cpu
    assert set(found.isa) <= set(environment.ISA_FLAGS) and list(found.isa) == sorted(found.isa)
    assert json.loads(found.to_json())["threads"] == 3


def test_digest_follows_what_matters_and_nothing_else():
    found = fingerprint(SessionConfig())
    assert found.digest == fingerprint(SessionConfig(provider="CPUExecutionProvider")).digest
    assert len(found.digest) == 12 and int(found.digest, 16) >= 0
    for change in (
        {"threads": 2},
        {"cpu": "?"},
        {"isa": ()},
        {"onnxruntime": "0"},
        {"system": "?"},
        {"level": "basic"},
        {"provider_options": {"device_id": "1"}},
        {"package": "onnxruntime-gpu 1.31.1"},
        {"device": "GPU, driver 1"},
    ):
        assert replace(found, **change).digest != found.digest


def test_digest_is_the_same_in_another_process():
    code = (
        "from graphopt.runtime.environment import fingerprint; from graphopt.runtime.session import SessionConfig;"
        "print(fingerprint(SessionConfig()).digest)"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert out.strip() == fingerprint(SessionConfig()).digest


def test_options_package_and_device_of_other_providers():
    cpu = fingerprint(SessionConfig())
    assert not cpu.package and not cpu.device and "package" not in cpu.to_json()
    found = fingerprint(SessionConfig("AzureExecutionProvider", provider_options={"a": "b"}))
    package = "onnxruntime" if not found.package.startswith("onnxruntime-") else found.package.split()[0]
    assert found.package == f"{package} {onnxruntime.__version__}"
    assert json.loads(found.to_json())["provider_options"] == {"a": "b"}


def test_blocks_are_the_processors():
    assert rule_block(SessionConfig()) == rule_block(SessionConfig("openvino")) == block_size()
    assert rule_block(SessionConfig("openvino", provider_options={"device_type": "GPU"})) == 1
    assert rule_block(SessionConfig("cuda")) == rule_block(SessionConfig("AzureExecutionProvider")) == 1


def test_unknown_provider():
    with pytest.raises(UnknownNameError):
        fingerprint(SessionConfig(provider="gpu0"))


def test_block_size_agrees_with_the_processor(monkeypatch):
    monkeypatch.delenv("GRAPHOPT_BLOCK_SIZE", raising=False)
    flags = environment.isa_flags()
    if "avx512f" in flags:
        assert block_size() == 16
    elif "avx2" in flags:
        assert block_size() == 8
    else:
        assert block_size() in (1, 8, 16)


def test_block_size_can_be_chosen(monkeypatch):
    monkeypatch.setenv("GRAPHOPT_BLOCK_SIZE", "8")
    assert block_size() == 8
    for text in ("0", "-8", "eight", ""):
        monkeypatch.setenv("GRAPHOPT_BLOCK_SIZE", text)
        with pytest.raises(UsageError, match="GRAPHOPT_BLOCK_SIZE"):
            block_size()


def test_importing_the_environment_loads_no_runtime():
    code = "import graphopt.runtime.environment, sys; sys.exit('onnxruntime' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
