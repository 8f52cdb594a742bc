"""Constants: where their bytes lie, and how they become arrays. Nothing is read before it is asked for."""

from __future__ import annotations

import mmap
from collections.abc import Iterable, Iterator
from functools import cached_property
from pathlib import Path
from typing import NamedTuple, Protocol
from weakref import WeakValueDictionary

import numpy as np
from onnx import TensorProto, helper, numpy_helper

from graphopt.errors import ModelError, reason
from graphopt.ir.types import BITS, DTYPE_NAMES, Array

STRING = int(TensorProto.STRING)
_PIECE = 1 << 24  # bytes


class Stamp(NamedTuple):
    """What tells whether a file is still the one that was read: another file differs in it, and so does one that was written to."""

    device: int
    inode: int
    size: int
    mtime_ns: int

    @staticmethod
    def of(path: Path) -> Stamp:
        """That of a file as it is now.

        Raises:
            OSError: There is none.
        """
        found = path.stat()
        return Stamp(found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns)


class Constant(Protocol):
    """A tensor of known type.

    Attributes:
        dtype: ``TensorProto.DataType`` number.
        shape: Its dimensions.
    """

    @property
    def dtype(self) -> int: ...  # noqa: D102

    @property
    def shape(self) -> tuple[int, ...]: ...  # noqa: D102

    @property
    def nbytes(self) -> int:
        """Bytes as ONNX stores them: elements of less than a byte are packed, strings count nothing."""
        ...

    def numpy(self) -> Array:
        """Its elements; types that numpy lacks come as those of ml_dtypes, strings as objects."""
        ...

    def tobytes(self) -> bytes:
        """As ``raw_data`` holds them."""
        ...

    def pieces(self) -> Iterator[bytes]:
        """The same piece by piece, so that a large one is never all in memory where it lies in a file."""
        ...


class _Typed:
    def __init__(self, dtype: int, shape: tuple[int, ...]) -> None:
        self.dtype, self.shape = dtype, shape

    @property
    def size(self) -> int:
        """Number of elements."""
        count = 1
        for dim in self.shape:
            count *= dim
        return count

    @property
    def nbytes(self) -> int:
        """See :class:`Constant`."""
        return 0 if self.dtype == STRING else -(-self.size * BITS[DTYPE_NAMES[self.dtype]] // 8)

    def tobytes(self) -> bytes:
        """See :class:`Constant`."""
        raise NotImplementedError

    def pieces(self) -> Iterator[bytes]:
        """See :class:`Constant`."""
        yield self.tobytes()


class InModel(_Typed):
    """A tensor whose data stand in the model."""

    def __init__(self, proto: TensorProto) -> None:
        super().__init__(proto.data_type, tuple(proto.dims))
        self.proto = proto

    def numpy(self) -> Array:
        """See :class:`Constant`."""
        if self.dtype == STRING:  # bytes: they need not be UTF-8
            found = np.empty(len(self.proto.string_data), dtype=object)
            found[:] = list(self.proto.string_data)
            return found.reshape(self.shape)
        return np.asarray(numpy_helper.to_array(self.proto))

    def tobytes(self) -> bytes:
        """See :class:`Constant`."""
        return self.proto.raw_data if self.proto.HasField("raw_data") else packed(self.numpy(), self.dtype)


_maps: WeakValueDictionary[tuple[Path, Stamp], mmap.mmap] = WeakValueDictionary()


def _mapped(path: Path, stamp: Stamp) -> mmap.mmap:
    """A file, mapped once for all tensors in it: each mapping holds a descriptor, of which a process has a thousand."""
    found = _maps.get((path, stamp))
    if found is None:
        with path.open("rb") as file:
            _maps[path, stamp] = found = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    return found


class InFile(_Typed):
    """A tensor in a part of a file, which is mapped when it is first looked at.

    Attributes:
        path: The file.
        offset: Where the tensor begins, in bytes.
        stamp: That of the file as the tensor was found in it.
    """

    def __init__(self, path: Path, offset: int, dtype: int, shape: tuple[int, ...]) -> None:
        super().__init__(dtype, shape)
        self.path, self.offset, self.stamp = path, offset, Stamp.of(path)

    @property
    def whole_bytes(self) -> bool:
        """Whether it has elements, and each is of one byte or more."""
        return bool(self.nbytes) and BITS[DTYPE_NAMES[self.dtype]] >= 8

    @cached_property
    def raw(self) -> Array:
        """The bytes, mapped."""
        if not self.nbytes:
            return np.zeros(0, np.uint8)
        return np.frombuffer(_mapped(self.path, self.stamp), np.uint8, self.nbytes, self.offset)

    def numpy(self) -> Array:
        """See :class:`Constant`; read-only."""
        return _unpacked(self.raw, self.dtype, self.shape)

    def tobytes(self) -> bytes:
        """See :class:`Constant`."""
        return self.raw.tobytes()

    def pieces(self) -> Iterator[bytes]:
        """See :class:`Constant`; read, not mapped: what is mapped counts as memory until it is let go."""
        left = self.nbytes
        with self.path.open("rb") as file:
            file.seek(self.offset)
            while left:
                piece = file.read(min(left, _PIECE))
                if not piece:
                    raise OSError(f"{self.path} became shorter while it was read")
                left -= len(piece)
                yield piece


class InMemory(_Typed):
    """An array that was computed."""

    def __init__(self, array: Array) -> None:
        strings = array.dtype.kind in "OUS"
        super().__init__(STRING if strings else int(helper.np_dtype_to_tensor_dtype(array.dtype)), array.shape)
        self._array = array

    def numpy(self) -> Array:
        """See :class:`Constant`."""
        return self._array

    def tobytes(self) -> bytes:
        """See :class:`Constant`."""
        return packed(self._array, self.dtype)


def files_of(tensors: Iterable[Constant]) -> set[tuple[Path, Stamp]]:
    """The files in which some tensors lie, as they were when the tensors were found in them."""
    return {(tensor.path, tensor.stamp) for tensor in tensors if isinstance(tensor, InFile)}


def see_unchanged(files: Iterable[tuple[Path, Stamp]]) -> None:
    """See that files are still those that were read: tensors are known by their places in them, where now anything may lie.

    Raises:
        ModelError: One is another by now, or gone.
    """
    for path, stamp in files:
        try:
            changed = Stamp.of(path) != stamp
        except OSError as error:
            raise ModelError(
                f"{path} can't be read any more: {reason(error)}", "it has to stay until all is written"
            ) from error
        if changed:
            raise ModelError(f"{path} has changed since it was read", "load or optimise it again")


def to_tensor_proto(constant: Constant, name: str) -> TensorProto:
    """A tensor as ONNX writes it into a model."""
    if isinstance(constant, InModel):
        proto = TensorProto()
        proto.CopyFrom(constant.proto)
        proto.name = name
        return proto
    proto = TensorProto(name=name, data_type=constant.dtype, dims=constant.shape)
    if constant.dtype == STRING:
        texts = constant.numpy().ravel().tolist()
        proto.string_data.extend(text if isinstance(text, bytes) else str(text).encode() for text in texts)
    else:
        proto.raw_data = constant.tobytes()
    return proto


def packed(array: Array, dtype: int) -> bytes:
    """The bytes of elements of a ``TensorProto.DataType``; those of 2 or 4 bits lie together, low bits first."""
    bits = BITS[DTYPE_NAMES[dtype]]
    if bits >= 8:
        return array.tobytes()
    each = 8 // bits
    flat = np.ascontiguousarray(array).reshape(-1).view(np.uint8) & ((1 << bits) - 1)
    padded = np.zeros(-(-flat.size // each) * each, np.uint8)
    padded[: flat.size] = flat
    made = np.zeros(padded.size // each, np.uint8)
    for place in range(each):
        made |= padded[place::each] << (place * bits)
    return made.tobytes()


def _unpacked(content: Array, dtype: int, shape: tuple[int, ...]) -> Array:
    kind, bits = helper.tensor_dtype_to_np_dtype(dtype), BITS[DTYPE_NAMES[dtype]]
    if bits >= 8:
        return content.view(kind).reshape(shape)
    proto = TensorProto(data_type=dtype, dims=shape, raw_data=content.tobytes())
    return np.asarray(numpy_helper.to_array(proto))
