"""What a measurement depends on besides the model: processor, threads, provider and runtime.

A time measured in one environment says nothing about another, so every stored time carries the digest of the
environment it was measured in.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import platform
import re
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from graphopt.config import provider_name
from graphopt.errors import UsageError

if TYPE_CHECKING:
    from graphopt.runtime.session import SessionConfig

ISA_FLAGS = ("amx_int8", "avx2", "avx512_bf16", "avx512_vnni", "avx512f", "avx_vnni", "neon", "sve")
"""The instruction sets that change which kernels the runtime picks."""

_ALIASES = {"asimd": "neon"}  # what Linux calls it on arm64
_BLOCK_SIZES = (16, 8)
_CORE = 0.15
"""Of a processor; less than that the system itself takes, and what starts and ends."""


@dataclass(frozen=True)
class Environment:
    """Where a measurement holds.

    Attributes:
        cpu: Model name of the processor.
        isa: Those of :data:`ISA_FLAGS` that it has, sorted.
        cores: Processors this process may use.
        threads: Threads within an operator, the caller's own included; never 0.
        provider: Short name of the execution provider.
        level: The runtime's optimisation level.
        onnxruntime: Version of the runtime.
        system: Operating system and architecture, such as ``linux-x86_64``.
        provider_options: Options of the provider.
        package: The package that brings the provider, and its version; empty for the CPU's.
        device: Name and driver of the device that another provider computes on, where that is known.
    """

    cpu: str
    isa: tuple[str, ...]
    cores: int
    threads: int
    provider: str
    level: str
    onnxruntime: str
    system: str
    provider_options: Mapping[str, str] = field(default_factory=dict)
    package: str = ""
    device: str = ""

    def to_json(self) -> str:
        """The fields as one line of JSON with sorted keys; what is empty is left out."""
        return json.dumps(
            {key: value for key, value in asdict(self).items() if value != "" and value != {}}, sort_keys=True
        )

    @cached_property
    def digest(self) -> str:
        """Twelve hexadecimal digits that name this environment, the same in every process."""
        return hashlib.sha256(self.to_json().encode()).hexdigest()[:12]


def fingerprint(config: SessionConfig) -> Environment:
    """The environment of sessions opened here with ``config``.

    Raises:
        UnknownNameError: The provider does not exist.
    """
    from graphopt.runtime import providers

    provider = provider_name(providers.full_name(config.provider))
    cpu = provider == "cpu"
    return Environment(
        cpu=cpu_model(),
        isa=isa_flags(),
        cores=usable_cores(),
        threads=threads_used(config),
        provider=provider,
        level=config.level,
        onnxruntime=runtime_version(),
        system=f"{platform.system()}-{platform.machine()}".lower(),
        provider_options=dict(config.provider_options),
        package="" if cpu else package_of(provider),
        device="" if cpu else device_name(provider, config.provider_options),
    )


def machine_of(config: SessionConfig) -> str:
    """The name under which times are stored that sessions opened with ``config`` take: its environment, and its other settings."""
    bare = replace(config, profile=None, save_optimized=None, required=False)
    entries = sorted(bare.entries.items())
    more = "-" + hashlib.sha256(repr(entries).encode()).hexdigest()[:8] if entries else ""
    return fingerprint(bare).digest + more


def runtime_version() -> str:
    """Version of the installed onnxruntime, under whichever distribution name it came."""
    from graphopt.runtime.ort import onnxruntime

    return str(onnxruntime.__version__)


def package_of(provider: str) -> str:
    """Name and version of the installed package that brings a provider; empty if pip does not know it."""
    from graphopt.runtime import packages, providers

    present = packages.installed()
    about = providers.traits(provider)
    plugins = [package for package in present if about.plugin and package.name == about.package]
    found = plugins[0] if plugins else packages.owner(present)
    return f"{found.name} {found.version}" if found else ""


def device_name(provider: str, options: Mapping[str, str]) -> str:
    """Name of the device that a provider computes on, with its driver where that is known; empty where nothing is.

    Args:
        provider: Short name of a provider.
        options: Its options, which may choose one of several devices.
    """
    from graphopt.runtime import providers

    if providers.on_host(provider, options):
        return cpu_model()
    if providers.traits(provider).memory == "cuda":
        return _nvidia(options.get("device_id", "0"))
    from graphopt.runtime.ort import onnxruntime

    for device in onnxruntime.get_ep_devices() if hasattr(onnxruntime, "get_ep_devices") else ():
        if provider_name(device.ep_name) == provider:
            return f"{device.device.vendor} {device.device.metadata.get('Description', '')}".strip()
    return ""


@lru_cache
def _nvidia(number: str) -> str:
    query = ["nvidia-smi", f"--id={number}", "--query-gpu=name,driver_version", "--format=csv,noheader"]
    return _output(query).replace(", ", ", driver ")


def free_memory() -> int | None:
    """Bytes that a process can have, ``None`` where the system does not tell."""
    try:
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
        free = next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:"))
    except (OSError, ValueError, StopIteration):
        return None
    with suppress(OSError, ValueError):  # "max" is no number: then there is no bound
        group = Path("/sys/fs/cgroup")
        bound = int((group / "memory.max").read_text(encoding="ascii"))
        free = min(free, max(0, bound - int((group / "memory.current").read_text(encoding="ascii"))))
    return free


def peak_memory() -> int | None:
    """Peak resident memory of this process in bytes, None where the system does not tell.

    On Linux not by way of ``getrusage``: there the peak of the parent is handed down to a child.
    """
    if sys.platform == "linux":
        status = Path("/proc/self/status").read_text(encoding="ascii", errors="replace")
        found = re.search(r"VmHWM:\s+(\d+) kB", status)
        return int(found[1]) * 1024 if found else None
    elif sys.platform == "darwin":
        import resource

        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss  # in bytes
    else:
        return None


def usable_cores() -> int:
    """Processors this process may use: those it may run on, and no more than the quota of its container pays for."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    with suppress(OSError, ValueError):  # "max" is no number: then there is no bound
        quota, period = Path("/sys/fs/cgroup/cpu.max").read_text(encoding="ascii").split()
        cores = min(cores, max(1, math.ceil(int(quota) / int(period))))
    return cores


def threads_used(config: SessionConfig) -> int:
    """Threads within an operator of a session: as many as were asked for, or as the runtime takes by itself."""
    return config.threads or default_threads()


@lru_cache(maxsize=1)
def default_threads() -> int:
    """Threads that the runtime uses for an operator where nobody tells it a number, the caller's own included.

    It counts the physical cores of the machine, each system in its own way, and looks at neither affinity nor quota. So it is
    asked: its profile lists the threads that wait beside the caller's.
    """
    import numpy as np
    from onnx import TensorProto, helper

    from graphopt.runtime.profile import workers
    from graphopt.runtime.session import LoadableModel

    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1]) for name in "xy"]
    graph = helper.make_graph([helper.make_node("Exp", ["x"], ["y"])], "probe", ends[:1], ends[1:])
    found = workers(LoadableModel.probe(graph), {"x": np.ones(1, np.float32)})
    return usable_cores() if found is None else 1 + found


@lru_cache(maxsize=1)
def cpu_model() -> str:
    """Model name of the processor, or the architecture where the system does not tell."""
    if sys.platform == "darwin":
        name = _sysctl("machdep.cpu.brand_string")
    elif sys.platform == "win32":
        name = os.environ.get("PROCESSOR_IDENTIFIER", "")
    else:
        info = _cpuinfo()
        # arm64 Linux names no model: implementer and part number identify the core.
        name = info.get("model name") or " ".join(info[key] for key in ("CPU implementer", "CPU part") if key in info)
    return " ".join(name.split()) or platform.machine()


@lru_cache(maxsize=1)
def isa_flags() -> tuple[str, ...]:
    """Those of :data:`ISA_FLAGS` that the processor has, sorted."""
    if sys.platform == "darwin":
        words = {"neon"} if platform.machine() == "arm64" else _macos_x86_flags()
    else:
        info = _cpuinfo()
        words = set((info.get("flags") or info.get("Features") or "").split())
    words = {_ALIASES.get(word, word) for word in words}
    return tuple(sorted(words & set(ISA_FLAGS)))


def block_size() -> int:
    """Channels in a block of the CPU provider's blocked convolution layout (NCHWc), or 1 if it has none.

    The runtime's kernel library picks 16 floats with AVX-512F and 8 on other x86-64; on arm64 and RISC-V it is 16
    or none, depending on how the package was built. So the runtime is asked: a grouped convolution enters the
    blocked layout only when its channels per group are a multiple of the block. ``GRAPHOPT_BLOCK_SIZE`` overrides.

    Raises:
        UsageError: ``GRAPHOPT_BLOCK_SIZE`` is not a positive integer.
    """
    chosen = os.environ.get("GRAPHOPT_BLOCK_SIZE")
    if chosen is not None:
        if not chosen.isdigit() or int(chosen) < 1:
            raise UsageError(f"GRAPHOPT_BLOCK_SIZE must be a positive integer, got {chosen!r}")
        return int(chosen)
    return _probed_block_size()


def rule_block(config: SessionConfig) -> int:
    """The block that rules bring channels to: that of the processor, also for other providers that compute on it; else 1.

    Raises:
        UsageError: ``GRAPHOPT_BLOCK_SIZE`` is not a positive integer.
    """
    from graphopt.runtime.providers import on_host

    return block_size() if on_host(config.provider, config.provider_options) else 1


@lru_cache(maxsize=1)
def _probed_block_size() -> int:
    blocked = [size for size in _BLOCK_SIZES if _is_blocked(size)]
    return min(blocked, default=1)


def _is_blocked(channels: int) -> bool:
    """Whether a convolution with two groups of that many channels runs in the blocked layout."""
    import numpy as np
    from onnx import TensorProto, helper, numpy_helper

    from graphopt.runtime.profile import optimised_ops
    from graphopt.runtime.session import LoadableModel

    shape = [1, 2 * channels, 4, 4]
    weight = numpy_helper.from_array(np.ones((2 * channels, channels, 3, 3), np.float32), "w")
    graph = helper.make_graph(
        [helper.make_node("Conv", ["x", "w"], ["y"], group=2, pads=[1, 1, 1, 1])],
        "probe",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, shape)],
        [weight],
    )
    return any(op.startswith("com.microsoft.nchwc") for op in optimised_ops(LoadableModel.probe(graph)))


@lru_cache(maxsize=1)
def _cpuinfo() -> dict[str, str]:
    """The first processor's entries of ``/proc/cpuinfo``; empty where there is none."""
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return {}
    info: dict[str, str] = {}
    for line in text.splitlines():
        key, _, value = line.partition(":")
        info.setdefault(key.strip(), value.strip())
    return info


def _macos_x86_flags() -> set[str]:
    text = _sysctl("machdep.cpu.features") + " " + _sysctl("machdep.cpu.leaf7_features")
    return set(text.lower().replace(".", "_").split())


def _sysctl(key: str) -> str:
    return _output(["sysctl", "-n", key])


def _output(command: Sequence[str]) -> str:
    """What a command prints; nothing where there is no such command, or it fails."""
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return ""


class Neighbours:
    """Watches, from now on, the processors that this process may run on.

    Linux tells what all programs have taken of each processor (the hypervisor's part included) and what this one and its children have.
    """

    def __init__(self) -> None:
        self._before = _taken()

    def cores(self) -> float | None:
        """How many processors other programs took on average; ``None`` where the system does not tell."""
        before, now = self._before, _taken()
        if before is None or now is None or now[0] <= before[0]:
            return None
        # A machine that was halted meanwhile counts all that time as taken, in the moment in which it goes on.
        return min(max(0.0, (now[1] - before[1]) / (now[0] - before[0])), float(len(os.sched_getaffinity(0))))


def disturbs(cores: float | None, threads: int) -> bool:
    """Whether what other programs take leaves too few processors for so many threads."""
    return cores is not None and cores > len(os.sched_getaffinity(0)) - threads + _CORE


def _taken() -> tuple[float, float] | None:
    """The time, and the seconds that other programs have had on these processors."""
    with suppress(OSError, ValueError, AttributeError):  # the latter: another system
        wanted = {f"cpu{core}" for core in os.sched_getaffinity(0)}
        rows = [line.split() for line in Path("/proc/stat").read_text(encoding="ascii").splitlines()]
        # user, nice, system, then idle and waiting, then interrupts and what a hypervisor took; guests are part of the first two
        ticks = sum(sum(map(int, [*row[1:4], *row[6:9]])) for row in rows if row[0] in wanted)
        own = os.times()
        mine = own.user + own.system + own.children_user + own.children_system
        return time.monotonic(), ticks / os.sysconf("SC_CLK_TCK") - mine
    return None
