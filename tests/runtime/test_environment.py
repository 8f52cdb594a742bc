"""What a measurement depends on."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import onnxruntime
import pytest

from graphopt.errors import UnknownNameError, UsageError
from graphopt.runtime import environment
from graphopt.runtime.environment import (
    Neighbours,
    block_size,
    default_threads,
    disturbs,
    fingerprint,
    rule_block,
)
from graphopt.runtime.session import Session, SessionConfig
from tests.runtime.models import chain


def test_fields():
    found = fingerprint(SessionConfig(threads=3))
    assert found.onnxruntime == onnxruntime.__version__
    assert found.threads == 3 and found.provider == "cpu" and found.level == "all"
    assert found.cores >= 1 and found.cpu
    assert set(found.isa) <= set(environment.ISA_FLAGS) and list(found.isa) == sorted(found.isa)
    assert json.loads(found.to_json())["threads"] == 3


def test_all_cores_are_the_threads_that_the_runtime_starts():
    here = default_threads()
    assert here >= 1
    # Prices of so many threads are the same, whoever chose the number.
    assert fingerprint(SessionConfig(threads=0)) == fingerprint(SessionConfig(threads=here))
    tasks = Path("/proc/self/task")
    if tasks.is_dir():
        before = set(os.listdir(tasks))
        with Session(chain(1), SessionConfig(threads=0)):
            assert len(set(os.listdir(tasks)) - before) == here - 1


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="needs Linux")
def test_a_process_that_may_use_fewer_processors_is_warned():
    code = (
        "import os, warnings; os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})\n"
        "from graphopt.pipeline.opening import session_config\n"
        "with warnings.catch_warnings(record=True) as told:\n"
        "    warnings.simplefilter('always'); config = session_config(threads=0)\n"
        "print(config.threads, *(w.message for w in told))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    here = default_threads()
    warned = f"0 ONNX Runtime takes {here} threads by itself, and this process may use 1 processor: choose --threads 1"
    assert done.stdout.startswith(warned if here > 1 else "0\n")


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


linux = pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells")


@linux
def test_what_another_program_takes_is_seen_and_what_this_one_takes_is_not():
    """Bounds that hold whatever else runs: other tests do."""
    tick = os.sysconf("SC_CLK_TCK")
    other = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    try:

        def taken() -> float:
            fields = Path(f"/proc/{other.pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
            return (int(fields[11]) + int(fields[12])) / tick

        watch, began, before = Neighbours(), time.monotonic(), taken()
        time.sleep(1.0)
        its, seen = (taken() - before) / (time.monotonic() - began), watch.cores()
        assert seen is not None and its > 0 and seen > its - 0.1
    finally:
        other.kill()
    # It is waited for later: what a child has taken counts as this program's when it is.
    watch, began, mine = Neighbours(), time.monotonic(), time.process_time()
    while time.process_time() - mine < 0.5:
        pass
    own, seen = 0.5 / (time.monotonic() - began), watch.cores()
    other.wait()
    assert seen is not None and seen < len(os.sched_getaffinity(0)) - own + 0.1


@linux
def test_what_disturbs():
    cores = len(os.sched_getaffinity(0))
    assert not disturbs(None, cores)
    assert not disturbs(0.05, cores)  # what a system does by itself
    assert disturbs(0.5, cores)
    assert not disturbs(0.5, cores - 1)  # it has a processor of its own
    assert disturbs(1.5, cores - 1)
