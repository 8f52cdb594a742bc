"""ONNX Runtime itself: the only module that imports it, and says what to do where that can't work.

    from graphopt.runtime.ort import onnxruntime

graphopt does not depend on a package of the runtime, because nobody can have two (:mod:`graphopt.runtime.packages`) and
only its user knows which one this machine needs.
"""

from __future__ import annotations

import os
from typing import Any

from graphopt.errors import RuntimePackageError
from graphopt.runtime import packages

_TELEMETRY = ("ORT_DISABLE_TELEMETRY", "ORT_TELEMETRY_DISABLED")
_INSTALL = "pip install onnxruntime, or for other hardware what graphopt providers names"


def _load() -> Any:
    present = packages.installed()
    conflict = packages.conflict(present)
    if conflict is not None:
        raise conflict
    package = packages.owner(present)
    for variable in _TELEMETRY:
        os.environ.setdefault(variable, "1")
    try:
        import onnxruntime
    except ImportError as error:
        if package is None:
            raise RuntimePackageError("onnxruntime is not installed", _INSTALL) from error
        raise RuntimePackageError(
            f"{package.name} {package.version} can't be imported: {error}",
            f"pip install --force-reinstall {package.name}, and the libraries that it asks for",
        ) from error
    if not hasattr(onnxruntime, "InferenceSession"):
        # What is left of the folder after one of two packages was uninstalled: Python takes it for a package.
        name = package.name if package else "onnxruntime"
        raise RuntimePackageError("onnxruntime is broken: files are missing", f"pip install --force-reinstall {name}")
    return onnxruntime


onnxruntime = _load()


def contributed_schemas() -> list[Any]:
    """The runtime's schemas of operators that are its own; of ONNX's the onnx package has those of every version."""
    from onnxruntime.capi.onnxruntime_pybind11_state import get_all_operator_schema

    return [schema for schema in get_all_operator_schema() if schema.domain not in ("", "ai.onnx.ml")]
