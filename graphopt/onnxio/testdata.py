"""Inputs as the ONNX project writes test data: a protobuf for each, numbered in the order of the model's inputs."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from onnx import GraphProto, OptionalProto, SequenceProto, TensorProto, ValueInfoProto, numpy_helper

from graphopt.errors import UsageError

NAME = re.compile(r"input_(\d{1,9})\.pb")
"""Names of such files."""


def declared(graph: GraphProto) -> list[ValueInfoProto]:
    """The inputs of a graph, without those that have a default."""
    defaults = {each.name for each in graph.initializer}
    return [each for each in graph.input if each.name not in defaults]


def read_message(path: Path, inputs: Sequence[ValueInfoProto]) -> tuple[str, Any]:
    """Read an input.

    Args:
        path: A file called ``input_N.pb``.
        inputs: Those of the model, see :func:`declared`.

    Returns:
        The name of input ``N``, and its array; a list for a sequence, ``None`` for an optional that is empty.

    Raises:
        UsageError: The model has no such input, or the file holds nothing of its type.
        OSError: The file can't be read.
    """
    match = NAME.fullmatch(path.name)
    assert match is not None
    if int(match[1]) >= len(inputs):
        names = ", ".join(repr(each.name) for each in inputs) or "none"
        raise UsageError(f"{path}: the model has {len(inputs)} inputs, counted from 0: {names}")
    info = inputs[int(match[1])]
    kind = (info.type.WhichOneof("value") or "tensor_type").removesuffix("_type")
    content = path.read_bytes()
    try:
        if kind == "sequence":
            return info.name, numpy_helper.to_list(SequenceProto.FromString(content))
        if kind == "optional":
            return info.name, numpy_helper.to_optional(OptionalProto.FromString(content))
        tensor = TensorProto.FromString(content)
        if tensor.data_location == TensorProto.EXTERNAL:
            raise UsageError(f"{path}: its data lie in a file of their own", "write the tensor with its data")
        return info.name, numpy_helper.to_array(tensor)
    except UsageError:
        raise
    except Exception as error:
        # protobuf, onnx and numpy each have errors of their own for what is no such value.
        raise UsageError(f"can't read inputs from {path}: no {kind}: {error or type(error).__name__}") from error
