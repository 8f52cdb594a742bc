"""Execution providers: short names, full names, and which of them this machine has.

A short name (``cuda``) is what users write; the runtime knows the full one (``CUDAExecutionProvider``). Both are
accepted everywhere.
"""

from __future__ import annotations

from graphopt.errors import UnknownNameError, UsageError

_FULL = {
    "cpu": "CPUExecutionProvider",
    "cuda": "CUDAExecutionProvider",
    "tensorrt": "TensorrtExecutionProvider",
    "openvino": "OpenVINOExecutionProvider",
    "coreml": "CoreMLExecutionProvider",
    "dml": "DmlExecutionProvider",
    "qnn": "QNNExecutionProvider",
}
_PACKAGE = {
    "cuda": "onnxruntime-gpu",
    "tensorrt": "onnxruntime-gpu, and TensorRT",
    "openvino": "onnxruntime-openvino",
    "coreml": "onnxruntime on macOS",
    "dml": "onnxruntime-directml on Windows",
    "qnn": "onnxruntime-qnn",
}


def short_name(provider: str) -> str:
    """The short name of a provider; a full name without one is returned unchanged."""
    return next((short for short, full in _FULL.items() if full == provider), provider)


def full_name(provider: str) -> str:
    """The runtime's name of a provider, whether or not it is installed.

    Args:
        provider: A short or a full name.

    Raises:
        UnknownNameError: The runtime has no such provider.
    """
    if provider.lower() in _FULL:
        return _FULL[provider.lower()]
    import onnxruntime

    if provider in onnxruntime.get_all_providers():
        return provider
    raise UnknownNameError("provider", provider, _FULL)


def available() -> list[str]:
    """The short names of the providers installed here, best first (the runtime's own order)."""
    import onnxruntime

    return [short_name(name) for name in onnxruntime.get_available_providers()]


def require(provider: str) -> str:
    """The runtime's name of a provider that is installed here.

    Args:
        provider: A short or a full name.

    Raises:
        UnknownNameError: The runtime has no such provider.
        UsageError: It has, but not in the package installed here.
    """
    full = full_name(provider)
    short = short_name(full)
    if short in available():
        return full
    package = _PACKAGE.get(short)
    hint = f"install {package}" if package else "this build of onnxruntime has: " + ", ".join(available())
    raise UsageError(f"provider {short} is not available on this machine", hint)
