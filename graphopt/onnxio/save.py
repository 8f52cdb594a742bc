"""Write a model: whole or not at all, weights streamed from where they lie."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path

from onnx import ModelProto, TensorProto

from graphopt.errors import GraphoptError
from graphopt.onnxio import wire
from graphopt.onnxio.emit import Emitted

LARGEST_PROTOBUF = 2**31 - 1
_PAGE = 4096
_CHUNK = 1 << 24


def save(emitted: Emitted, path: Path, *, external: bool = False, metadata: Mapping[str, str] | None = None) -> None:
    """Write the model.

    Args:
        emitted: The model.
        path: Where to; replaced at once when everything is written.
        external: Keep large weights in ``<name>.data`` beside the model. Done anyway when one file would exceed 2 GB.
        metadata: Entries to set in the model's ``metadata_props``.

    Raises:
        GraphoptError: The file can't be written.
    """
    proto = with_metadata(emitted.proto, metadata or {})
    try:
        if external or emitted.nbytes > LARGEST_PROTOBUF:
            _save_external(proto, emitted, path)
        else:
            _replace(path, chunks(proto, emitted))
    except OSError as error:
        raise GraphoptError(f"{path}: can't be written: {error.strerror or error}") from error


def chunks(proto: ModelProto, emitted: Emitted) -> Iterable[bytes]:
    """The serialised model, piece by piece."""
    readers = {name: tensor.tobytes for name, tensor in emitted.tensors.items()}
    return wire.joined(proto, readers, {name: int(t.nbytes) for name, t in emitted.tensors.items()})


def to_proto(emitted: Emitted, metadata: Mapping[str, str] | None = None) -> ModelProto:
    """The whole model as one protobuf, weights included."""
    proto = with_metadata(emitted.proto, metadata or {})
    for tensor in proto.graph.initializer:
        if tensor.name in emitted.tensors:
            wire.internalise(tensor)
            tensor.raw_data = emitted.tensors[tensor.name].tobytes()
    return proto


def with_metadata(proto: ModelProto, metadata: Mapping[str, str]) -> ModelProto:
    """A copy of the skeleton with entries of ``metadata_props`` set."""
    copy = ModelProto()
    copy.CopyFrom(proto)
    entries = {e.key: e for e in copy.metadata_props}
    for key, value in metadata.items():
        if key in entries:
            entries[key].value = value
        else:
            copy.metadata_props.add(key=key, value=value)
    return copy


def copy(source: Path, path: Path) -> None:
    """Copy a file, whole or not at all.

    Raises:
        GraphoptError: One of the files can't be read or written.
    """
    try:
        with source.open("rb") as file:
            _replace(path, iter(lambda: file.read(_CHUNK), b""))
    except OSError as error:
        raise GraphoptError(f"{path}: can't be written: {error.strerror or error}") from error


def write_text(path: Path, text: str) -> None:
    """Write a text file, whole or not at all.

    Raises:
        GraphoptError: The file can't be written.
    """
    try:
        _replace(path, [text.encode()])
    except OSError as error:
        raise GraphoptError(f"{path}: can't be written: {error.strerror or error}") from error


def _save_external(proto: ModelProto, emitted: Emitted, path: Path) -> None:
    data = path.with_name(path.name + ".data")
    offset = 0
    places: list[tuple[str, int]] = []
    for tensor in proto.graph.initializer:
        if tensor.name not in emitted.tensors:
            continue
        size = int(emitted.tensors[tensor.name].nbytes)
        offset = -(-offset // _PAGE) * _PAGE  # page-aligned, so that readers can map it
        tensor.ClearField("external_data")
        tensor.data_location = TensorProto.EXTERNAL
        for key, value in (("location", data.name), ("offset", str(offset)), ("length", str(size))):
            tensor.external_data.add(key=key, value=value)
        places.append((tensor.name, offset))
        offset += size

    def content() -> Iterable[bytes]:
        position = 0
        for name, start in places:
            yield b"\0" * (start - position)
            yield emitted.tensors[name].tobytes()
            position = start + int(emitted.tensors[name].nbytes)

    _replace(data, content())
    _replace(path, [proto.SerializeToString()])


def _replace(path: Path, pieces: Iterable[bytes]) -> None:
    handle, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            for piece in pieces:
                file.write(piece)
        mask = os.umask(0)
        os.umask(mask)
        Path(name).chmod(0o666 & ~mask)
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
