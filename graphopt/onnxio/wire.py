"""The weights of a serialised model, cut out and put back at the level of protobuf's wire format.

Parsing a 400 MB model copies its weights, reading them through Python copies them again. Here the few bytes around each
``raw_data`` field are rewritten so that it looks like external data stored in the same file: the parsed *skeleton* is
small, and the weights stay where they are, memory-mapped. Writing does the reverse and streams.
See https://protobuf.dev/programming-guides/encoding and onnx.proto for the field numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from onnx import ModelProto, TensorProto

from graphopt.errors import ModelError

SELF = "<self>"
"""The ``location`` that marks data lying in the model file itself."""

_SELF_STATED = "<self, stated>"
"""The same for a tensor that says in so many words that its data lie there; saying nothing means the same."""

_MODEL_GRAPH, _GRAPH_INITIALIZER, _TENSOR_RAW, _TENSOR_LOCATION = 7, 5, 9, 14
_VARINT, _I64, _LEN, _I32 = 0, 1, 2, 5
_LOCATIONS = tuple(TensorProto.DataLocation.values())  # of an enumeration, protobuf passes over other values


def skeleton(buffer: Any, threshold: int) -> bytes:
    """The serialised model without the bytes of its larger initializers.

    Args:
        buffer: The file's content (bytes or a memory map).
        threshold: Initializers with at least this many bytes of ``raw_data`` become external data at :data:`SELF`.

    Raises:
        ModelError: The bytes are not a whole protobuf message.
    """
    # A memory map can't be closed while a view of it is alive, and the traceback of an error keeps views alive.
    with memoryview(buffer) as view:
        return b"".join(_model(view, threshold))


def inside(tensor: TensorProto) -> bool:
    """Whether the data of a skeleton's external tensor lie in the model file itself."""
    return any(e.key == "location" and e.value in (SELF, _SELF_STATED) for e in tensor.external_data)


def internalise(tensor: TensorProto) -> None:
    """Let a tensor hold its data itself, as it did before it was cut out."""
    stated = any(e.value == _SELF_STATED for e in tensor.external_data)
    tensor.ClearField("external_data")
    tensor.ClearField("data_location")
    if stated:
        tensor.data_location = TensorProto.DEFAULT


def _model(view: memoryview, threshold: int) -> Iterator[bytes]:
    for number, wire, start, body, end in _fields(view, 0, len(view)):
        if number == _MODEL_GRAPH and wire == _LEN:
            inner = b"".join(_graph(view, body, end, threshold))
            yield _key(_MODEL_GRAPH) + _varint(len(inner)) + inner
        else:
            yield bytes(view[start:end])


def _graph(view: memoryview, begin: int, stop: int, threshold: int) -> Iterator[bytes]:
    for number, wire, start, body, end in _fields(view, begin, stop):
        if number == _GRAPH_INITIALIZER and wire == _LEN and end - body >= threshold:
            inner = b"".join(_tensor(view, body, end, threshold))
            yield _key(_GRAPH_INITIALIZER) + _varint(len(inner)) + inner
        else:
            yield bytes(view[start:end])


def _tensor(view: memoryview, begin: int, stop: int, threshold: int) -> Iterator[bytes]:
    fields = list(_fields(view, begin, stop))
    # Of a field that is there more than once, protobuf takes the last; what does not have the field's type it does not know.
    raws = [(body, end) for number, wire, _, body, end in fields if number == _TENSOR_RAW and wire == _LEN]
    raw = raws[-1] if raws else None
    stated = [
        code
        for number, wire, _, body, end in fields
        if number == _TENSOR_LOCATION and wire == _VARINT
        for code in [_read_varint(view, body, end)[0] & 0xFFFFFFFF]
        if code in _LOCATIONS
    ]
    if raw is None or raw[1] - raw[0] < threshold or stated[-1:] == [TensorProto.EXTERNAL]:
        yield bytes(view[begin:stop])
        return
    for number, _, start, _, end in fields:
        if number not in (_TENSOR_RAW, _TENSOR_LOCATION):
            yield bytes(view[start:end])
    marker = TensorProto(data_location=TensorProto.EXTERNAL)
    for key, value in (
        ("location", _SELF_STATED if stated else SELF),
        ("offset", str(raw[0])),
        ("length", str(raw[1] - raw[0])),
    ):
        marker.external_data.add(key=key, value=value)
    yield marker.SerializeToString()


def _fields(view: memoryview, position: int, stop: int) -> Iterator[tuple[int, int, int, int, int]]:
    """Each field of a message: number, wire type, start of its key, start and end of its payload."""
    while position < stop:
        start = position
        key, position = _read_varint(view, position, stop)
        number, wire = key >> 3, key & 7
        if wire == _LEN:
            length, position = _read_varint(view, position, stop)
            end = position + length
        elif wire == _VARINT:
            _, end = _read_varint(view, position, stop)
        elif wire == _I64:
            end = position + 8
        elif wire == _I32:
            end = position + 4
        else:
            raise ModelError("not an ONNX model: the bytes are no protobuf message")
        if number == 0 or end > stop:
            raise ModelError("not a whole ONNX model: the file is truncated or is something else")
        yield number, wire, start, position, end
        position = end


def _read_varint(view: memoryview, position: int, stop: int) -> tuple[int, int]:
    value = shift = 0
    while position < stop and shift < 70:
        byte = view[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
        shift += 7
    raise ModelError("not a whole ONNX model: the file is truncated or is something else")


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _key(number: int) -> bytes:
    return _varint(number << 3 | _LEN)


def joined(
    model: ModelProto, data: Mapping[str, Callable[[], Iterable[bytes]]], sizes: Mapping[str, int]
) -> Iterator[bytes]:
    """The serialised model with its weights, piece by piece; no piece holds more than one tensor.

    Args:
        model: A skeleton; initializers named in ``data`` carry no bytes of their own.
        data: Reads the raw bytes of an initializer, in pieces.
        sizes: Their length in bytes.
    """
    rest = ModelProto()
    rest.CopyFrom(model)
    rest.ClearField("graph")
    graph = type(model.graph)()
    graph.CopyFrom(model.graph)
    graph.ClearField("initializer")
    body = graph.SerializeToString()
    heads: list[tuple[bytes, str | None]] = []
    total = len(body)
    for tensor in model.graph.initializer:
        if tensor.name in data:
            bare = TensorProto()
            bare.CopyFrom(tensor)
            internalise(bare)
            head = bare.SerializeToString() + _key(_TENSOR_RAW) + _varint(sizes[tensor.name])
            length = len(head) + sizes[tensor.name]
            heads.append((_key(_GRAPH_INITIALIZER) + _varint(length) + head, tensor.name))
            total += len(heads[-1][0]) + sizes[tensor.name]
        else:
            whole = tensor.SerializeToString()
            heads.append((_key(_GRAPH_INITIALIZER) + _varint(len(whole)) + whole, None))
            total += len(heads[-1][0])
    yield rest.SerializeToString()
    yield _key(_MODEL_GRAPH) + _varint(total)
    yield body
    for head, name in heads:
        yield head
        if name is not None:
            yield from data[name]()
