"""Values where a session wants them: converted between numpy and the runtime, and bound to inputs and outputs.

A run through bound values has its inputs on the device beforehand and leaves its outputs there, so a stopwatch around it
sees the model and no copies. That goes for providers whose inputs lie in memory of their own (CUDA, TensorRT, DirectML);
the others take them from the host, and what they copy is part of every run of theirs.
"""

from __future__ import annotations

import ctypes
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from graphopt.errors import UnsupportedModelError
from graphopt.ir.types import BY_CODE, BY_NAME, BY_RUNTIME, Array, numpy_dtype
from graphopt.runtime.ort import onnxruntime

_ELEMENT = re.compile(r"(?:seq|optional)\(tensor\((\w+)\)\)")


@dataclass(frozen=True)
class TensorSpec:
    """An input or output of a session.

    Attributes:
        name: Its name.
        dtype: Name of the element type (``float32``, ``bfloat16``, ``str``); the runtime's type string if ``kind``
            is not ``tensor``.
        shape: A size, a symbol or None (unknown) for each dimension; of a sequence or an optional those of its tensors, where known.
        kind: ``tensor``, ``sequence``, ``optional``, ``map`` or ``sparse``.
        known_as: What it would be called elsewhere, by the operand that it is; for the table of interfaces.
    """

    name: str
    dtype: str
    shape: tuple[int | str | None, ...]
    kind: str = "tensor"
    known_as: str = ""

    @property
    def element(self) -> TensorSpec | None:
        """A tensor as a sequence or an optional holds them; ``None`` where it can't be passed."""
        inner = _ELEMENT.fullmatch(self.dtype)
        kind = BY_RUNTIME.get(inner[1]) if inner is not None else None
        return TensorSpec(self.name, kind.name, self.shape) if kind is not None and kind.native else None

    @property
    def native(self) -> bool:
        """Whether the runtime's binding takes and returns it as it is; strings count, bfloat16 does not."""
        return self.kind != "tensor" or BY_NAME[self.dtype].native


class Memory(NamedTuple):
    """A place for values.

    Attributes:
        kind: The runtime's name of the kind of device, such as ``cuda``.
        id: Which device of that kind.
    """

    kind: str
    id: int = 0

    def __str__(self) -> str:
        return self.kind if self == HOST else f"{self.kind}:{self.id}"


HOST = Memory("cpu")


class Places(NamedTuple):
    """Where a session's inputs and outputs are when it runs on bound values, in the model's order."""

    inputs: tuple[Memory, ...]
    outputs: tuple[Memory, ...]


def places(session: Any, inputs: Sequence[TensorSpec], outputs: Sequence[TensorSpec], memory: Memory) -> Places:
    """Where to bind the inputs and outputs of a session.

    Not all of a GPU's inputs belong on it: the runtime reads shapes and the like on the host, and an operator that the
    provider leaves to the CPU wants its inputs there.

    Args:
        session: The runtime's own session.
        inputs: Its inputs.
        outputs: Its outputs.
        memory: The memory of its provider.
    """
    if memory == HOST:
        return Places((HOST,) * len(inputs), (HOST,) * len(outputs))
    return Places(
        tuple(
            memory if spec.native and _of_device(info) else HOST
            for spec, info in zip(inputs, session.get_input_memory_infos(), strict=True)
        ),
        tuple(memory if _of_device(info) else HOST for info in session.get_output_memory_infos()),
    )


def bound_run(
    session: Any, feeds: Mapping[str, Any], inputs: Sequence[TensorSpec], outputs: Sequence[TensorSpec], where: Places
) -> Callable[[], None]:
    """Bind values once, and return a function that runs the session on them and drops the outputs.

    Args:
        session: The runtime's own session.
        feeds: Its inputs, tensors all; copied to where they belong now.
        inputs: What is known of them.
        outputs: What is known of the outputs; the runtime allocates them where they belong.
        where: See :func:`places`.
    """
    binding = session.io_binding()
    values: dict[str, Any] = {}
    for spec, memory in zip(inputs, where.inputs, strict=True):
        if spec.name in feeds:
            values[spec.name] = to_runtime(feeds[spec.name], spec, memory)
            binding.bind_ortvalue_input(spec.name, values[spec.name])

    # An output that a model lists twice is bound once: the binding knows it by its name.
    bound = {spec.name: (spec, memory) for spec, memory in zip(outputs, where.outputs, strict=True)}

    def bind_outputs() -> None:
        for spec, memory in bound.values():
            binding.bind_output(spec.name, memory.kind, memory.id)

    bind_outputs()
    reused: bool | None = None

    # The default keeps the inputs' memory alive: the binding holds bare pointers to it.
    def run(_inputs: dict[str, Any] = values) -> None:
        nonlocal reused
        if reused is False:
            bind_outputs()
        session.run_with_iobinding(binding)
        binding.synchronize_outputs()  # a device has its kernels launched: without this the clock would not see them end
        if reused is None:
            # A run gets the tensors that the last one left, and is refused where they are not of the shape that the model declares.
            made = zip(bound.values(), binding.get_outputs(), strict=True)
            reused = all(_as_declared(spec, value.shape()) for (spec, _), value in made)

    return run


def _as_declared(spec: TensorSpec, shape: Sequence[int]) -> bool:
    return len(spec.shape) == len(shape) and all(
        d == n for d, n in zip(spec.shape, shape, strict=True) if isinstance(d, int)
    )


def to_runtime(value: Any, spec: TensorSpec, memory: Memory = HOST) -> Any:
    """A runtime tensor with the elements of an array; on the host it borrows the array's memory.

    Raises:
        ValueError: The array is of another type than the model wants, or of one that can't be passed.
    """
    array = np.asarray(value)
    expected = numpy_dtype(spec.dtype)
    if array.dtype != expected:
        raise ValueError(f"input {spec.name} is {array.dtype}, the model wants {spec.dtype}")
    if BY_NAME[spec.dtype].bits < 8:
        raise ValueError(f"input {spec.name}: {spec.dtype} inputs can't be passed from Python")
    if spec.native:
        return onnxruntime.OrtValue.ortvalue_from_numpy(_contiguous(array), memory.kind, memory.id)
    return borrowed(array, BY_NAME[spec.dtype].code)


def borrowed(array: Array, code: int) -> Any:
    """A runtime tensor that borrows the array's memory, read as the given element type."""
    return onnxruntime.OrtValue.ortvalue_from_numpy_with_onnx_type(_contiguous(array), code)


def dense(outputs: list[Any], names: Sequence[str]) -> list[Any]:
    """Outputs as they came; a sparse tensor, which no declared type tells of, can neither be compared nor handed to another process.

    Raises:
        UnsupportedModelError: One is a sparse tensor.
    """
    for name, value in zip(names, outputs, strict=False):
        if type(value).__name__ == "SparseTensor":  # the class of the binding, which has no public name
            raise UnsupportedModelError(f"output {name!r} is a sparse tensor, which can't be compared")
    return outputs


def to_numpy(value: Any) -> Array:
    """Copy a runtime tensor out, also where its element type is not one of numpy's own."""
    kind = BY_CODE[value.element_type()]
    if kind.native:
        native: Array = value.numpy()
        return native
    shape = tuple(value.shape())
    count = int(np.prod(shape, dtype=np.int64))
    if kind.bits < 8:  # stay packed: nothing here looks inside them
        raw = ctypes.string_at(value.data_ptr(), (count * kind.bits + 7) // 8)
        return np.frombuffer(raw, dtype=np.uint8)
    raw = ctypes.string_at(value.data_ptr(), count * kind.bits // 8)
    return np.frombuffer(raw, dtype=numpy_dtype(kind.name)).reshape(shape)


def _contiguous(array: Array) -> Array:
    """The array with its elements in row-major order; the runtime reads from the pointer on and ignores strides."""
    return array if array.flags.c_contiguous else np.ascontiguousarray(array)


def _of_device(info: Any) -> bool:
    """Whether a session keeps a value in its device's own memory; pinned memory is the host's."""
    name = info.name.lower()
    return name != "cpu" and "pinned" not in name
