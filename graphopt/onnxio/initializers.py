"""Tensors of a model, which lie in it or in a file (memory-mapped, and not read), and attributes of its nodes."""

from __future__ import annotations

import hashlib
from collections.abc import Sized
from pathlib import Path
from typing import Any

import numpy as np
from onnx import AttributeProto, ModelProto, NodeProto, TensorProto

from graphopt.errors import ModelError, reason
from graphopt.files import from_utf8, resolved, weight_folders
from graphopt.ir.constants import READABLE, tensor_of
from graphopt.ir.graph import Opaque, Tensor
from graphopt.ir.tensors import STRING, Constant, InFile, InModel, Stamp, files_of
from graphopt.ir.types import DTYPE_NAMES, ValueType, digest
from graphopt.onnxio import wire
from graphopt.onnxio.bodies import graphs
from graphopt.wording import one_line

MOST_DIMENSIONS = 64
"""Of a tensor: more are beyond the runtime, and beyond numpy."""


def nested(proto: ModelProto) -> list[TensorProto]:
    """The external data of bodies and attributes."""
    tensors: list[TensorProto] = []
    for graph in graphs(proto.graph):
        tensors += [] if graph is proto.graph else graph.initializer
        tensors += [s.values for s in graph.sparse_initializer]
        for node in graph.node:
            for a in node.attribute:
                tensors += [a.t] if a.type == AttributeProto.TENSOR else a.tensors
    return [tensor for tensor in tensors if tensor.data_location == TensorProto.EXTERNAL]


def read_nested(proto: ModelProto, path: Path | None) -> set[tuple[Path, Stamp]]:
    """Take the external data of bodies and attributes into the model, which may be saved in another folder.

    (Those of the main graph's initializers, which can be large, stay where they are.)

    Returns:
        The files that they lay in.
    """
    found = list[Constant]()
    for tensor in nested(proto):
        found.append(tensor_at(tensor, path))
        data = found[-1].tobytes()
        tensor.ClearField("external_data")
        tensor.ClearField("data_location")
        tensor.raw_data = data
    return files_of(found)


def tensor_at(proto: TensorProto, path: Path | None) -> InFile | InModel:
    """The tensor of an initializer: memory-mapped when it lies in a file."""
    what = f"initializer {proto.name!r}"
    if DTYPE_NAMES.get(proto.data_type) is None or any(d < 0 for d in proto.dims):
        raise ModelError(f"{what} has no valid type: dtype {proto.data_type}, dimensions {list(proto.dims)}")
    if len(proto.dims) > MOST_DIMENSIONS:
        raise ModelError(f"{what} has {len(proto.dims)} dimensions; at most {MOST_DIMENSIONS} can be handled")
    if proto.data_location != TensorProto.EXTERNAL:
        return _inline(proto)
    if proto.data_type == STRING:
        raise ModelError(f"{what} has texts in a file of its own, which ONNX does not allow")
    entries = {e.key: e.value for e in proto.external_data}
    if not all(isinstance(text, str) for entry in entries.items() for text in entry):
        raise ModelError(f"external data of {what}: not UTF-8 text")  # what is none comes out of protobuf as bytes
    inside = wire.inside(proto)
    if not inside and sum(e.key == "location" for e in proto.external_data) > 1:
        raise ModelError(f"external data of {what}: two locations are given")  # readers differ in which they take
    name = entries.get("location", "")
    try:
        offset = int(entries.get("offset", 0))
        length = int(entries["length"]) if "length" in entries else None
    except ValueError:
        raise ModelError(f"external data of {what}: offset and length must be numbers") from None
    if path is None:
        raise ModelError(f"{what} is in a file of its own", "load the model from its path")
    if "\0" in name:
        raise ModelError(f"external data of {what}: no file has a name like {name!r}")
    file = path if inside else path.parent / from_utf8(name)
    try:
        if not inside and not any(resolved(file).is_relative_to(folder) for folder in weight_folders(path)):
            raise ModelError(f"external data file {name!r} of {what} lies outside the model's folder", "put it there")
        if not file.is_file():
            raise ModelError(f"external data file {name!r} of {what} is missing")
    except OSError as error:
        text = f"external data of {what}: {one_line(name, 80)!r} can't be read: {reason(error)}"
        raise ModelError(text) from error
    tensor = InFile(file.absolute(), offset, proto.data_type, tuple(proto.dims))
    if length not in (None, tensor.nbytes):
        raise ModelError(f"{what} has {length} bytes, its type says {tensor.nbytes}")
    if offset < 0 or offset + tensor.nbytes > tensor.stamp.size:
        raise ModelError(f"external data file {file.name!r} is too short for {what}")
    return tensor


def _inline(proto: TensorProto) -> InModel:
    """A tensor whose data stand in the model, checked to be whole."""
    tensor = InModel(proto)
    try:
        if proto.HasField("raw_data"):
            whole = len(proto.raw_data) == tensor.nbytes
        else:
            whole = tensor.numpy().shape == tuple(proto.dims) and (not tensor.size or any(_lists(proto)))
    except Exception as error:
        # onnx raises TypeError, ValueError and errors of its own for data that don't fit their type.
        raise ModelError(f"tensor {proto.name!r} is malformed: {error}") from error
    if not whole:
        raise ModelError(f"tensor {proto.name!r} is malformed: its data don't fill its dimensions {list(proto.dims)}")
    return tensor


def _lists(proto: TensorProto) -> tuple[Sized, ...]:
    """Where a tensor may hold its data, besides ``raw_data``."""
    return (
        proto.float_data,
        proto.int32_data,
        proto.string_data,
        proto.int64_data,
        proto.double_data,
        proto.uint64_data,
    )


def tensor_type(tensor: Constant) -> ValueType:
    """The type of a constant."""
    return ValueType(DTYPE_NAMES.get(tensor.dtype), tensor.shape)


def identify(tensor: Constant) -> Tensor:
    """A tensor known by its content, or, when large, by its type and samples of its content."""
    type = tensor_type(tensor)
    content: Any
    if tensor.dtype == STRING:
        content = tuple(np.asarray(tensor.numpy()).ravel().tolist())
    elif tensor.nbytes <= READABLE:
        content = hashlib.blake2b(tensor.tobytes(), digest_size=16).digest()
    else:
        flat = tensor.numpy().reshape(-1)
        step = max(1, flat.size // 4)
        content = tuple(flat[i : i + 64].tobytes() for i in range(0, flat.size, step))
    return Tensor(digest("tensor", str(type), content), type, tensor)


def constant_of(node: NodeProto) -> Tensor | None:
    """The tensor of a Constant node, ``None`` for a form that stays opaque."""
    if len(node.attribute) != 1 or len(node.output) != 1 or not node.output[0]:
        return None
    a = node.attribute[0]
    if a.name == "value" and a.type == AttributeProto.TENSOR:
        return identify(tensor_at(a.t, None))
    arrays: dict[str, Any] = {
        "value_float": lambda: np.array(a.f, np.float32),
        "value_floats": lambda: np.array(a.floats, np.float32),
        "value_int": lambda: np.array(a.i, np.int64),
        "value_ints": lambda: np.array(a.ints, np.int64),
    }
    return tensor_of(arrays[a.name]()) if a.name in arrays else None


def attribute_of(a: AttributeProto) -> Any:
    """An attribute as nodes of the graph hold it."""
    kind = a.type
    if a.ref_attr_name:
        return Opaque(digest("ref", a.ref_attr_name), a)
    if kind == AttributeProto.INT:
        return int(a.i)
    if kind == AttributeProto.FLOAT:
        return float(a.f)
    if kind == AttributeProto.STRING:
        return a.s.decode("utf-8", "surrogateescape")
    if kind == AttributeProto.INTS:
        return tuple(a.ints)
    if kind == AttributeProto.FLOATS:
        return tuple(a.floats)
    if kind == AttributeProto.STRINGS:
        return tuple(s.decode("utf-8", "surrogateescape") for s in a.strings)
    if kind == AttributeProto.TENSOR:
        return identify(tensor_at(a.t, None))
    return Opaque(digest("attribute", a.SerializeToString(deterministic=True)), a)
