"""Models of operator sets that are older than graphopt knows, converted to one that it knows."""

from __future__ import annotations

from pathlib import Path

import onnx
from onnx import ModelProto

from graphopt.errors import ModelError
from graphopt.onnxio.read import OLDEST_OPSET

_TARGET = 13
"""The first with all axes as operands that have one today; beyond it the converter of the onnx package knows fewer operators."""


def upgraded(source: str | Path | ModelProto) -> str | Path | ModelProto:
    """A model of an old operator set, converted; any other as it is.

    Raises:
        ModelError: The model can't be read, or the onnx package can't convert it.
    """
    try:
        known = source if isinstance(source, ModelProto) else onnx.load(source, load_external_data=False)
    except Exception:  # whatever protobuf says: loading says it better
        return source
    version = next((o.version for o in known.opset_import if o.domain in ("", "ai.onnx")), 1)
    if version >= OLDEST_OPSET:
        return source
    name = "" if isinstance(source, ModelProto) else f"{source}: "
    try:
        whole = source if isinstance(source, ModelProto) else onnx.load(source)
        return onnx.version_converter.convert_version(whole, _TARGET)
    except Exception as error:  # the converter is C++ and raises what it likes
        reason = " ".join(str(error).split()) or type(error).__name__
        raise ModelError(f"{name}opset {version} can't be converted to {_TARGET}: {reason}") from error
