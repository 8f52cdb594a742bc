"""Open a model in ONNX Runtime and run it.

A model is a file, or a :class:`LoadableModel`: a protobuf whose large weights are left out and handed over as
arrays, so that trying a variant of a model costs neither a copy of its weights nor a temporary file. The runtime
copies each array once while it builds a session (and lets the copy go where a kernel packs its weights), so the
arrays may be read-only, unaligned views of a memory-mapped file and may be released once the session is open.
"""

from __future__ import annotations

import ctypes
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np
import onnxruntime
from onnxruntime.capi import onnxruntime_pybind11_state as _binding

from graphopt.errors import SessionError, UnknownNameError, UsageError
from graphopt.runtime import providers
from graphopt.runtime.dtypes import BY_CODE, BY_NAME, BY_RUNTIME, Array, numpy_dtype

_LEVELS = {
    "all": onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL,
    "extended": onnxruntime.GraphOptimizationLevel.ORT_ENABLE_EXTENDED,
    "basic": onnxruntime.GraphOptimizationLevel.ORT_ENABLE_BASIC,
    "disabled": onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL,
}
LEVELS = tuple(_LEVELS)

# The runtime's status exceptions share no base but Exception; the binding adds Python's own.
_RUNTIME_ERRORS: tuple[type[Exception], ...] = (
    *(
        value
        for value in vars(_binding).values()
        if isinstance(value, type) and issubclass(value, Exception) and value.__module__ == _binding.__name__
    ),
    RuntimeError,
    ValueError,
    TypeError,
)

_FATAL_ONLY = 4  # log severity: what goes wrong reaches the caller as an exception, so the log adds only noise


@dataclass(frozen=True, eq=False)
class LoadableModel:
    """A model in memory.

    Attributes:
        proto: A serialised ``ModelProto``. Initializers of the main graph may be external placeholders: right name,
            type and dims, ``data_location`` EXTERNAL and any ``location``.
        tensors: The data of placeholders by initializer name, of the declared shape. Types that numpy lacks come as
            ml_dtypes arrays, or raw: unsigned integers of the same width, and packed bytes for types below 8 bits.
        base_dir: The folder that holds the data files of external initializers which are not in ``tensors``.
    """

    proto: bytes
    tensors: Mapping[str, Array] = field(default_factory=dict)
    base_dir: Path | None = None


Model = LoadableModel | Path


@dataclass(frozen=True)
class SessionConfig:
    """How to open a session.

    Attributes:
        provider: Short or full name of the execution provider; the CPU takes what it leaves.
        threads: Threads within an operator; 0 leaves the number to the runtime.
        level: The runtime's own graph optimisation: ``all``, ``extended``, ``basic`` or ``disabled``.
        provider_options: Options of the execution provider.
        profile: Prefix of the profile file to write, or None for no profile.
        save_optimized: File to write the graph to that the runtime really runs, or None.
        entries: Further session configuration entries.
        parallel: Threads between operators: above 1, operators that do not depend on each other run at the same time.
        arena: Whether the CPU provider keeps freed memory for itself.
        pattern: Whether the memory of a run is planned from that of the first.
    """

    provider: str = "cpu"
    threads: int = 1
    level: str = "all"
    provider_options: Mapping[str, str] = field(default_factory=dict)
    profile: Path | None = None
    save_optimized: Path | None = None
    entries: Mapping[str, str] = field(default_factory=dict)
    parallel: int = 1
    arena: bool = True
    pattern: bool = True


@dataclass(frozen=True)
class TensorSpec:
    """An input or output of a session.

    Attributes:
        name: Its name.
        dtype: Name of the element type (``float32``, ``bfloat16``, ``str``); the runtime's type string if ``kind``
            is not ``tensor``.
        shape: A size, a symbol or None (unknown) for each dimension.
        kind: ``tensor``, ``sequence``, ``optional``, ``map`` or ``sparse``.
    """

    name: str
    dtype: str
    shape: tuple[int | str | None, ...]
    kind: str = "tensor"

    @property
    def native(self) -> bool:
        """Whether the runtime's binding takes and returns it as it is; strings count, bfloat16 does not."""
        return self.kind != "tensor" or BY_NAME[self.dtype].native


class Session:
    """A model opened in the runtime.

    Args:
        model: A file, or a model in memory.
        config: Provider, threads and optimisation level.

    Raises:
        UnknownNameError: The provider or the level does not exist, or ``tensors`` names no placeholder.
        UsageError: The provider is not installed.
        SessionError: The runtime refuses the model, or runs none of it on the provider.
    """

    def __init__(self, model: Model, config: SessionConfig | None = None) -> None:
        self.config = config = config or SessionConfig()
        self._provider = providers.require(config.provider)
        options = _options(config)
        # The runtime copies these while it builds the session: they need not outlive this call.
        values: dict[str, onnxruntime.OrtValue] = {}
        source: str | bytes
        if isinstance(model, LoadableModel):
            source, values = _prepare(model)
            options.add_external_initializers(list(values), list(values.values()))
            if model.base_dir is not None:
                options.add_session_config_entry(
                    "session.model_external_initializers_file_folder_path", str(model.base_dir)
                )
        else:
            source = str(model)
        chosen: list[Any] = [(self._provider, dict(config.provider_options))]
        if self._provider != "CPUExecutionProvider":
            chosen.append("CPUExecutionProvider")
        onnxruntime.set_default_logger_severity(_FATAL_ONLY)
        try:
            # Without enable_fallback=False the binding prints to stdout and tries again on the CPU.
            self._session = onnxruntime.InferenceSession(source, options, providers=chosen, enable_fallback=False)
        except _RUNTIME_ERRORS as error:
            raise SessionError(f"onnxruntime can't open the model: {one_line(error)}") from error
        del values
        self._require_provider()
        self.input_specs = [_spec(argument) for argument in self._session.get_inputs()]
        self.output_specs = [_spec(argument) for argument in self._session.get_outputs()]
        self.output_names = [spec.name for spec in self.output_specs]
        self._native = all(spec.native for spec in self.input_specs + self.output_specs)

    def run(self, feeds: Mapping[str, Any]) -> list[Any]:
        """Run once.

        Args:
            feeds: An array for each input (a list or dict for sequences and maps).

        Returns:
            The outputs, in the model's order: arrays, lists, dicts or None.

        Raises:
            SessionError: The runtime fails, or an input is missing or of the wrong type or shape.
        """
        try:
            if self._native:
                result: list[Any] = self._open().run(None, dict(feeds))
                return result
            values = {spec.name: _ort_value(feeds[spec.name], spec) for spec in self.input_specs if spec.name in feeds}
            outputs = self._open().run_with_ort_values(self.output_names, values)
            return [
                _array(value) if spec.kind == "tensor" else value.numpy()
                for value, spec in zip(outputs, self.output_specs, strict=True)
            ]
        except _RUNTIME_ERRORS as error:
            raise SessionError(f"onnxruntime can't run the model: {one_line(error)}") from error

    def prepare(self, feeds: Mapping[str, Any]) -> Callable[[], None]:
        """Bind inputs once and return a function that runs the model on them and drops the outputs.

        The inputs are converted and the outputs allocated outside of the returned function, so that it costs about
        two microseconds over the model itself; this is what a stopwatch should see.

        Raises:
            SessionError: As for :meth:`run`, here or when the returned function is called.
        """
        session = self._open()
        if any(spec.kind != "tensor" or spec.dtype == "str" for spec in self.input_specs + self.output_specs):
            frozen = dict(feeds)

            def run_plain() -> None:
                session.run(None, frozen)

            return self._guarded(run_plain)
        binding = session.io_binding()
        values: dict[str, onnxruntime.OrtValue] = {}

        def bind() -> None:
            for spec in self.input_specs:
                if spec.name in feeds:
                    values[spec.name] = _ort_value(feeds[spec.name], spec)
                    binding.bind_ortvalue_input(spec.name, values[spec.name])
            for name in self.output_names:
                binding.bind_output(name, "cpu")

        # The default keeps the inputs' memory alive: the binding holds bare pointers to it.
        def run_bound(_inputs: dict[str, onnxruntime.OrtValue] = values) -> None:
            session.run_with_iobinding(binding)

        self._guarded(bind)()
        return self._guarded(run_bound)

    def end_profiling(self) -> Path:
        """Stop profiling and return the file that was written; the config must have asked for a profile."""
        return Path(self._open().end_profiling())

    def close(self) -> None:
        """Release the session and its memory; closing twice is harmless."""
        self._session = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _open(self) -> Any:
        if self._session is None:
            raise SessionError("the session is closed")
        return self._session

    def _guarded(self, call: Callable[[], None]) -> Callable[[], None]:
        def guarded() -> None:
            try:
                call()
            except _RUNTIME_ERRORS as error:
                raise SessionError(f"onnxruntime can't run the model: {one_line(error)}") from error

        return guarded

    def _require_provider(self) -> None:
        """Refuse a session that the runtime quietly moved to the CPU as a whole."""
        if self._provider == "CPUExecutionProvider":
            return
        short = providers.short_name(self._provider)
        if self._provider not in self._session.get_providers():
            raise SessionError(
                f"provider {short} failed to start and the runtime fell back to the CPU",
                "check its driver and libraries, or choose provider cpu",
            )
        if not hasattr(self._session, "get_provider_graph_assignment_info"):  # before onnxruntime 1.24
            return
        assigned = {part.ep_name for part in self._session.get_provider_graph_assignment_info()}
        if assigned and self._provider not in assigned:
            raise SessionError(
                f"provider {short} took no node of this model: all of it would run on the CPU", "choose provider cpu"
            )


def one_line(error: BaseException) -> str:
    """The message of a runtime error without its status prefix, source location and C++ signature."""
    text = " ".join(str(error).split())
    text = re.sub(r"\[ONNXRuntimeError\] : \d+ : [A-Z_]+ : ", "", text)
    text = re.sub(r"\S+\.(?:cc|cpp|h|hpp|cu):\d+ ", "@@", text)
    text = re.sub(r"@@[^@()]*\((?:[^()]|\([^()]*\))*\)(?: const)?(?: \[with [^\]]*\])?(?:::<lambda[^>]*>)? ?", "", text)
    return text.replace("@@", "").strip() or type(error).__name__


def _options(config: SessionConfig) -> Any:
    if config.level not in _LEVELS:
        raise UnknownNameError("optimisation level", config.level, _LEVELS)
    if config.threads < 0:
        raise UsageError(f"threads must not be negative, got {config.threads}")
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = _LEVELS[config.level]
    options.intra_op_num_threads = config.threads
    options.inter_op_num_threads = config.parallel
    mode = onnxruntime.ExecutionMode
    options.execution_mode = mode.ORT_PARALLEL if config.parallel > 1 else mode.ORT_SEQUENTIAL
    options.enable_cpu_mem_arena = config.arena
    options.enable_mem_pattern = config.pattern
    options.log_severity_level = _FATAL_ONLY
    if config.profile is not None:
        options.enable_profiling = True
        options.profile_file_prefix = str(config.profile)
    if config.save_optimized is not None:
        options.optimized_model_filepath = str(config.save_optimized)
    if providers.full_name(config.provider) != "CPUExecutionProvider":
        options.add_session_config_entry("session.record_ep_graph_assignment_info", "1")
    for key, value in config.entries.items():
        options.add_session_config_entry(key, value)
    return options


def _prepare(model: LoadableModel) -> tuple[bytes, dict[str, onnxruntime.OrtValue]]:
    """The protobuf to open, and the runtime values that fill its placeholders."""
    if not model.tensors:
        return model.proto, {}
    import onnx

    proto = onnx.load_model_from_string(model.proto)
    placeholders = {
        tensor.name: tensor for tensor in proto.graph.initializer if tensor.data_location == onnx.TensorProto.EXTERNAL
    }
    values: dict[str, onnxruntime.OrtValue] = {}
    inlined = False
    for name, array in model.tensors.items():
        if name not in placeholders:
            raise UnknownNameError("initializer placeholder", name, placeholders)
        tensor = placeholders[name]
        kind = BY_CODE[tensor.data_type]
        if kind.bits >= 8:
            values[name] = _from_array(array, kind.code)
            continue
        # Strings and packed types have no array that the runtime could borrow: they go into the protobuf.
        inlined = True
        tensor.ClearField("data_location")
        tensor.ClearField("external_data")
        if kind.name == "str":
            tensor.string_data.extend(text.encode() if isinstance(text, str) else text for text in array.ravel())
        else:
            tensor.raw_data = pack(array, kind.bits).tobytes()
    return (proto.SerializeToString() if inlined else model.proto), values


def pack(array: Array, bits: int) -> Array:
    """Pack elements of 2 or 4 bits into bytes, low bits first; bytes (raw ``uint8``) are taken as packed already."""
    if array.dtype == np.uint8:
        return array.ravel()
    per_byte = 8 // bits
    codes = array.ravel().view(np.uint8) & ((1 << bits) - 1)
    codes = np.concatenate([codes, np.zeros(-len(codes) % per_byte, np.uint8)]).reshape(-1, per_byte)
    shifts = np.arange(per_byte, dtype=np.uint8) * np.uint8(bits)
    packed: Array = np.bitwise_or.reduce(codes << shifts, axis=1).astype(np.uint8)
    return packed


def _from_array(array: Array, code: int) -> onnxruntime.OrtValue:
    """A runtime value that borrows the array's memory, read as the given element type."""
    # The binding reads the pointer as dense row-major memory and ignores strides.
    dense = array if array.flags.c_contiguous else np.ascontiguousarray(array)
    return onnxruntime.OrtValue.ortvalue_from_numpy_with_onnx_type(dense, code)


def _ort_value(value: Any, spec: TensorSpec) -> onnxruntime.OrtValue:
    array = np.asarray(value)
    expected = numpy_dtype(spec.dtype)
    if array.dtype != expected:
        raise ValueError(f"input {spec.name} is {array.dtype}, the model wants {spec.dtype}")
    if BY_NAME[spec.dtype].bits < 8:
        raise ValueError(f"input {spec.name}: {spec.dtype} inputs can't be passed from Python")
    return _from_array(array, BY_NAME[spec.dtype].code)


def _array(value: onnxruntime.OrtValue) -> Array:
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


_KINDS = {"tensor": "tensor", "seq": "sequence", "optional": "optional", "map": "map", "sparse_tensor": "sparse"}


def _spec(argument: Any) -> TensorSpec:
    outer, _, inner = argument.type.partition("(")
    kind = _KINDS[outer]
    if kind != "tensor":
        return TensorSpec(argument.name, argument.type, (), kind)
    shape: Sequence[Any] = argument.shape or ()
    dims = tuple(
        dim if isinstance(dim, int) and dim >= 0 else dim if isinstance(dim, str) and dim else None for dim in shape
    )
    return TensorSpec(argument.name, BY_RUNTIME[inner.removesuffix(")")].name, dims, kind)
