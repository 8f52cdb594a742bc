"""Execution providers: names, what brings them, and how a session is told to use one.

A short name (``cuda``) is what users write; the runtime knows the full one (``CUDAExecutionProvider``). Both are
accepted everywhere, and so are the full names of providers that have no short one here.

What is known of providers without asking the runtime is known where it is not installed, too: it is imported late.

Some providers are part of a package of the runtime. Others are plug-ins: a library in a package of its own that is
registered first, and named to a session by its devices. (Given by name, the runtime silently ignores them.)
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import io
import os
import sys
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from graphopt.config import PROVIDERS, provider_name
from graphopt.errors import SessionError, UnknownNameError, UsageError
from graphopt.runtime import packages

CPU = "CPUExecutionProvider"


@dataclass(frozen=True)
class Traits:
    """What is special about a provider.

    Attributes:
        package: What pip calls the package that brings it.
        needs: What else it needs, for people.
        system: The only system that it exists on, as ``sys.platform`` and for people.
        memory: The runtime's name of the memory that it wants inputs in; ``cpu`` also for accelerators whose
            provider takes them from the host and copies them itself.
        host: Whether it computes on the processor, so that caches and vector width matter.
        threads: The option that takes the number of threads, if it does not use the session's own.
        plugin: The module of its plug-in package; empty for a provider that is built into the runtime.
        next: Providers that are offered what it leaves before the CPU is.
    """

    package: str = ""
    needs: str = ""
    system: tuple[str, str] | None = None
    memory: str = "cpu"
    host: bool = False
    threads: str = ""
    plugin: str = ""
    next: tuple[str, ...] = ()


_NVIDIA = "an NVIDIA GPU, CUDA and cuDNN (pip install 'onnxruntime-gpu[cuda,cudnn]' brings both)"
TRAITS = {
    "cpu": Traits("onnxruntime", host=True),
    "cuda": Traits("onnxruntime-gpu", _NVIDIA, memory="cuda"),
    "tensorrt": Traits("onnxruntime-gpu", f"{_NVIDIA}, and TensorRT", memory="cuda", next=("cuda",)),
    "openvino": Traits("onnxruntime-openvino", host=True, threads="num_of_threads"),
    "coreml": Traits("onnxruntime", system=("darwin", "macOS")),
    "directml": Traits("onnxruntime-directml", "a DirectX 12 GPU", ("win32", "Windows"), memory="dml"),
    "qnn": Traits(
        "onnxruntime-qnn",
        "a Qualcomm processor, or the option backend_type=htp to simulate one",
        plugin="onnxruntime_qnn",
    ),
}

# A machine has several devices of one provider; where the user does not choose, the runtime's most special one is taken.
_BEST_FIRST = ("NPU", "GPU", "CPU")


_registering = threading.Lock()


def full_name(provider: str) -> str:
    """The runtime's name of a provider, whether or not it is installed.

    Args:
        provider: A short or a full name.

    Raises:
        UnknownNameError: The runtime has no such provider.
    """
    short = provider_name(provider)
    if short in PROVIDERS:
        return PROVIDERS[short]
    from graphopt.runtime.ort import onnxruntime

    if provider in onnxruntime.get_all_providers():
        return provider
    raise UnknownNameError("provider", provider, PROVIDERS)


def traits(provider: str) -> Traits:
    """What is special about a provider; nothing, for one without a short name."""
    return TRAITS.get(provider_name(provider), Traits())


def on_host(provider: str, options: Mapping[str, str]) -> bool:
    """Whether a provider computes on the processor with these options, so that caches and vector width matter."""
    return traits(provider).host and "CPU" in options.get("device_type", "CPU").upper()


def available() -> list[str]:
    """The short names of the providers that the installed packages hold, best first (the runtime's own order).

    Whether one also starts on this machine only a session can tell.
    """
    from graphopt.runtime.ort import onnxruntime

    for name in TRAITS:
        with contextlib.suppress(SessionError):  # a plug-in that does not load is not there
            _register(name)
    return [provider_name(name) for name in onnxruntime.get_available_providers()]


def require(provider: str) -> str:
    """The runtime's name of a provider that is installed here.

    Args:
        provider: A short or a full name.

    Raises:
        UnknownNameError: The runtime has no such provider.
        UsageError: It has, but not in the package installed here.
        SessionError: It is a plug-in that the runtime does not load.
    """
    from graphopt.runtime.ort import onnxruntime

    full = full_name(provider)
    short = provider_name(full)
    _register(short)
    if full in onnxruntime.get_available_providers():
        return full
    hint = how_to_get(short) or "this build of onnxruntime has: " + ", ".join(available())
    raise UsageError(f"provider {short} is not available on this machine", hint)


def how_to_get(provider: str) -> str:
    """What to do to have a provider here; empty where that is not known."""
    about = traits(provider)
    if not about.package:
        return ""
    if about.system is not None and not sys.platform.startswith(about.system[0]):
        return f"it exists on {about.system[1]} only"
    rivals = [p.name for p in packages.installed() if p.whole and p.name != about.package and not about.plugin]
    uninstall = f"pip uninstall -y {' '.join(rivals)} && " if rivals else ""
    return f"{uninstall}pip install {about.package}" + (f"; it needs {about.needs}" if about.needs else "")


def choose(options: Any, provider: str, given: Mapping[str, str], threads: int) -> list[Any] | None:
    """Tell a session which provider to use; the CPU takes what it leaves.

    Args:
        options: The session's options; a plug-in is entered there.
        provider: Full name of a provider that is installed.
        given: Options of the provider.
        threads: Threads within an operator.

    Returns:
        The argument ``providers`` of a session.

    Raises:
        UsageError: The provider takes no options, or has no device.
    """
    from graphopt.runtime.ort import onnxruntime

    about = traits(provider)
    if provider == CPU:
        if given:
            raise UsageError(f"provider cpu takes no options: {', '.join(given)}", "choose another with --provider")
        return [CPU]
    chosen = {about.threads: str(threads), **given} if about.threads and threads else dict(given)
    if about.plugin:
        options.add_provider_for_devices(_devices(provider), chosen)
        return None
    if about.memory == "cuda":
        _preload_cuda()
    shared = {key: value for key, value in chosen.items() if key == "device_id"}
    present = onnxruntime.get_available_providers()
    behind = [(PROVIDERS[name], shared) for name in about.next if PROVIDERS[name] in present]
    return [(provider, chosen), *behind, CPU]


def did_not_start(provider: str, reason: str) -> SessionError:
    """The error for a session that the runtime opened without the provider that was asked for.

    Args:
        provider: Its full name.
        reason: What the runtime's log says of it, or nothing.
    """
    text = f"provider {provider_name(provider)} does not start, and the runtime would use the CPU instead"
    needs = traits(provider).needs
    hint = f"it needs {needs}" if needs else "check its options and libraries, or choose provider cpu"
    return SessionError(f"{text}: {reason}" if reason else text, hint)


def _register(provider: str) -> None:
    """Register the plug-in of a provider, if it has one that is installed, whichever thread comes first."""
    with _registering:
        _register_once(provider)


@cache
def _register_once(provider: str) -> None:
    from graphopt.runtime.ort import onnxruntime

    module = traits(provider).plugin
    if not module or importlib.util.find_spec(module) is None:
        return
    try:
        if any(device.ep_name == PROVIDERS[provider] for device in onnxruntime.get_ep_devices()):
            return  # the program that graphopt is a part of has done it
        library = importlib.import_module(module).get_library_path()
        onnxruntime.register_execution_provider_library(PROVIDERS[provider], os.fspath(library))
    except Exception as error:  # the binding's errors share no base, and a plug-in may raise any of its own
        name = traits(provider).package
        raise SessionError(f"onnxruntime can't load {name}: {error}", f"see the page of {name} on PyPI") from error


def _devices(provider: str) -> list[Any]:
    """The devices of a plug-in that a session should use: all of the best kind."""
    from graphopt.runtime.ort import onnxruntime

    found = [device for device in onnxruntime.get_ep_devices() if device.ep_name == provider]
    for kind in _BEST_FIRST:
        best = [device for device in found if device.device.type.name == kind]
        if best:
            return best
    raise UsageError(f"provider {provider_name(provider)} finds no device on this machine")


@cache
def _preload_cuda() -> None:
    """Load CUDA and cuDNN from their pip packages, where the system has none; the runtime's own way, which prints."""
    from graphopt.runtime.ort import onnxruntime

    with contextlib.redirect_stdout(io.StringIO()):
        onnxruntime.preload_dlls()
