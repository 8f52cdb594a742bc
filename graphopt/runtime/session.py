"""Open a model in ONNX Runtime and run it.

A model is a file, or a :class:`LoadableModel`: a protobuf whose large weights are left out and handed over as
arrays, so that trying a variant of a model costs neither a copy of its weights nor a temporary file. The runtime
copies each array once while it builds a session (and lets the copy go where a kernel packs its weights), so the
arrays may be read-only, unaligned views of a memory-mapped file and may be released once the session is open.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from graphopt.config import provider_name
from graphopt.errors import GraphoptError, SessionError, UnknownNameError, UsageError
from graphopt.files import in_utf8
from graphopt.ir.kernels import KernelError
from graphopt.ir.types import BY_CODE, BY_RUNTIME, NAMELESS, Array
from graphopt.runtime import providers
from graphopt.runtime.binding import HOST, Memory, TensorSpec, borrowed, bound_run, dense, places, to_numpy, to_runtime
from graphopt.runtime.log import FATAL_ONLY, first_complaint, one_line
from graphopt.runtime.ort import onnxruntime
from graphopt.runtime.placement import Placement, assigned
from graphopt.scratch import Closing

if TYPE_CHECKING:
    from onnx import GraphProto

_binding = onnxruntime.capi.onnxruntime_pybind11_state
_LEVELS = {
    "all": onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL,
    "extended": onnxruntime.GraphOptimizationLevel.ORT_ENABLE_EXTENDED,
    "basic": onnxruntime.GraphOptimizationLevel.ORT_ENABLE_BASIC,
    "disabled": onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL,
}
LEVELS = tuple(_LEVELS)
_SPIN = "session.intra_op.spin_duration_us", "session.inter_op.spin_duration_us"
_SPIN_SINCE = 1, 27
SPIN_S = 2e-3
"""How long a measured session's threads wait for work before they sleep. The runs of a turn, and the operators of a run, follow each other
faster: within a turn the threads are as awake as they are with the runtime's own limit, which is tens of milliseconds."""

_RECORDING = ("enable_cuda_graph", "trt_cuda_graph_enable", "enable_graph_capture")  # of CUDA, TensorRT and DirectML

# What it says of a provider whose libraries are not there, where it does not open on the CPU instead.
_NOT_STARTED = ("GPU requirements page", "Error creating execution provider")

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

    @classmethod
    def probe(cls, graph: GraphProto) -> LoadableModel:
        """A few standard operators that tell something of the machine, in a form that every supported runtime reads."""
        from onnx import helper

        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
        return cls(model.SerializeToString())


Model = LoadableModel | Path


@dataclass(frozen=True)
class SessionConfig:
    """How to open a session.

    Attributes:
        provider: Short or full name of the execution provider; the CPU takes what it leaves.
        threads: Threads within an operator, on the processor; 0 leaves their number, and which core each keeps to, to the runtime.
        level: The runtime's own graph optimisation: ``all``, ``extended``, ``basic`` or ``disabled``.
        provider_options: Options of the execution provider.
        profile: Prefix of the profile file to write, or None for no profile.
        save_optimized: File to write the graph to that the runtime really runs, or None.
        entries: Further session configuration entries.
        required: Whether the provider has to take a node of the model at least.
        parallel: Threads between operators: above 1, operators that do not depend on each other run at the same time.
        arena: Whether the CPU provider keeps freed memory for itself.
        pattern: Whether the memory of a run is planned from that of the first.
        custom_ops: Files of shared libraries of custom operators.
    """

    provider: str = "cpu"
    threads: int = 1
    level: str = "all"
    provider_options: Mapping[str, str] = field(default_factory=dict)
    profile: Path | None = None
    save_optimized: Path | None = None
    entries: Mapping[str, str] = field(default_factory=dict)
    required: bool = True
    parallel: int = 1
    arena: bool = True
    pattern: bool = True
    custom_ops: Sequence[str] = ()


_ADVICE = {
    "max supported IR version": "upgrade onnxruntime, or save the model with an older ir_version",
    "Absolute path not allowed": "name the file relative to the model's folder, and put it there",
    "two nodes with same node name": "give them names of their own, or none",
    "is not a registered function/op": "if a library of custom operators has it, name that with --custom-ops",
}
"""What to do about models that the runtime does not open, by its words."""


def spinning(config: SessionConfig, seconds: float) -> SessionConfig:
    """A session whose threads wait awake for so long before they sleep, unless it was told another time or the runtime can't be told."""
    if tuple(map(int, re.findall(r"\d+", onnxruntime.__version__)[:2])) < _SPIN_SINCE:
        return config
    return replace(config, entries={**dict.fromkeys(_SPIN, _microseconds(seconds)), **config.entries})


def spins(config: SessionConfig, seconds: float) -> bool:
    """Whether a session is told to wait for so long."""
    return config.entries.get(_SPIN[0]) == _microseconds(seconds)


def _microseconds(seconds: float) -> str:
    return str(round(seconds * 1e6))


def _advice(complaint: str) -> str | None:
    """What to do about a model that the runtime does not open, where that is known."""
    return next((advice for words, advice in _ADVICE.items() if words in complaint), None)


class Session(Closing):
    """A model opened in the runtime.

    Args:
        model: A file, or a model in memory.
        config: Provider, threads and optimisation level.

    Attributes:
        input_specs: What is known of its inputs.
        output_specs: What is known of its outputs.
        output_names: Names of the outputs.
        placement: Where its nodes run, and how it is timed; without nodes on the CPU provider, which takes them all.

    Raises:
        UnknownNameError: The provider or the level does not exist, or ``tensors`` names no placeholder.
        UsageError: The provider is not installed, or takes no options.
        SessionError: The runtime refuses the model, or the provider does not start, or takes no node of the model
            (unless it need not).
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
                    "session.model_external_initializers_file_folder_path", in_utf8(model.base_dir)
                )
        else:
            source = in_utf8(model)
        if self._provider != providers.CPU:
            # What providers say when they start goes to the log of the process, which may be another program's: it is left alone
            # where only the CPU is used, because nobody can ask how loud it was.
            onnxruntime.set_default_logger_severity(FATAL_ONLY)
        chosen: list[Any] | None = None

        def build() -> Any:
            # Without enable_fallback=False the binding prints to stdout and tries again on the CPU.
            return onnxruntime.InferenceSession(source, options, providers=chosen, enable_fallback=False)

        try:
            chosen = providers.choose(options, self._provider, config.provider_options, config.threads)
            self._session = build()
        except _RUNTIME_ERRORS as error:
            text = one_line(error)
            if any(words in text for words in _NOT_STARTED):
                raise providers.did_not_start(self._provider, text) from error
            raise SessionError(f"onnxruntime can't open the model: {text}", _advice(text)) from error
        if self._provider not in self._session.get_providers():
            raise providers.did_not_start(self._provider, first_complaint(build))
        del values
        nodes, elsewhere = self._placed()
        self.input_specs = [_spec(argument) for argument in self._session.get_inputs()]
        self.output_specs = [_spec(argument) for argument in self._session.get_outputs()]
        self.output_names = [spec.name for spec in self.output_specs]
        self._native = all(spec.native for spec in self.input_specs + self.output_specs)
        self._bindable = all(
            spec.kind == "tensor" and spec.dtype != "str" for spec in self.input_specs + self.output_specs
        )
        self._afresh = _afresh(config)
        memory = self._memory()
        self._places = places(self._session, self.input_specs, self.output_specs, memory)
        self.placement = Placement(
            nodes,
            elsewhere,
            device=str(memory if memory in self._places.inputs + self._places.outputs else HOST),
            copies=not providers.on_host(self._provider, config.provider_options)
            and (memory == HOST or not self._bindable or not self._native),
        )

    def run(self, feeds: Mapping[str, Any]) -> list[Any]:
        """Run once.

        Args:
            feeds: An array for each input (a list or dict for sequences and maps).

        Returns:
            The outputs, in the model's order: arrays, lists, dicts or None.

        Raises:
            SessionError: The runtime fails, or an input is missing or of the wrong type or shape.
            UnsupportedModelError: An output is a sparse tensor, whatever it was declared.
        """
        try:
            if self._native:
                result: list[Any] = self._open().run(None, dict(feeds), self._afresh)
                return dense(result, self.output_names)
            values = {spec.name: to_runtime(feeds[spec.name], spec) for spec in self.input_specs if spec.name in feeds}
            outputs = self._open().run_with_ort_values(self.output_names, values, self._afresh)
            return [
                to_numpy(value) if spec.kind == "tensor" else value.numpy()
                for value, spec in zip(outputs, self.output_specs, strict=True)
            ]
        except _RUNTIME_ERRORS as error:
            raise SessionError(f"onnxruntime can't run the model: {one_line(error)}") from error

    def prepare(self, feeds: Mapping[str, Any]) -> Callable[[], None]:
        """Bind inputs once and return a function that runs the model on them and drops the outputs.

        The inputs are converted, copied to the provider's device if it has memory of its own, and the outputs left
        there, all outside of the returned function: it costs about two microseconds over the model itself and is what
        a stopwatch should see. (Strings, sequences and the like can't be bound: a model of those is run as it is.)

        Raises:
            SessionError: As for :meth:`run`, here or when the returned function is called.
        """
        session = self._open()
        if not self._bindable:
            frozen = dict(feeds)
            return self._guarded(lambda: session.run(None, frozen))
        try:
            return self._guarded(bound_run(session, feeds, self.input_specs, self.output_specs, self._places))
        except _RUNTIME_ERRORS as error:
            raise SessionError(f"onnxruntime can't run the model: {one_line(error)}") from error

    def clock(self, feeds: Mapping[str, Any]) -> float:
        """Seconds of one run.

        Raises:
            SessionError: As for :meth:`run`.
        """
        run = self.prepare(feeds)
        begin = time.perf_counter()
        run()
        return time.perf_counter() - begin

    def end_profiling(self) -> Path:
        """Stop profiling and return the file that was written; the config must have asked for a profile."""
        return Path(self._open().end_profiling())

    def close(self) -> None:
        """Release the session and its memory; closing twice is harmless."""
        self._session = None

    def _open(self) -> Any:
        if self._session is None:
            raise SessionError("the session is closed")
        return self._session

    def _guarded(self, call: Callable[[], Any]) -> Callable[[], None]:
        def guarded() -> None:
            try:
                call()
            except _RUNTIME_ERRORS as error:
                raise SessionError(f"onnxruntime can't run the model: {one_line(error)}") from error

        return guarded

    def _placed(self) -> tuple[dict[str, int], dict[str, int]]:
        """Nodes by provider, and what runs elsewhere; a session that moved to the CPU as a whole is refused."""
        if self._provider == providers.CPU:
            return {}, {}
        nodes, elsewhere = assigned(self._session, self._provider)
        short = provider_name(self._provider)
        if self.config.required and nodes and short not in nodes:
            raise SessionError(
                f"provider {short} takes no node of this model: all of it would run on the CPU", "choose provider cpu"
            )
        return nodes, elsewhere

    def _memory(self) -> Memory:
        """The memory that the provider computes on."""
        kind = providers.traits(self._provider).memory
        if kind == HOST.kind:
            return HOST
        return Memory(kind, int(self.config.provider_options.get("device_id", "0")))


def recorded(config: SessionConfig) -> bool:
    """Whether the provider records a run, and plays it back afterwards (a CUDA graph)."""
    return any(config.provider_options.get(option, "0").lower() not in ("0", "false") for option in _RECORDING)


def _afresh(config: SessionConfig) -> Any:
    """How to run what is not bound: a recorded run reads and writes where it did, wherever the new inputs are."""
    if not recorded(config):
        return None
    options = onnxruntime.RunOptions()
    options.add_run_config_entry("gpu_graph_id", "-1")
    return options


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
    options.log_severity_level = FATAL_ONLY
    if config.profile is not None:
        options.enable_profiling = True
        options.profile_file_prefix = str(config.profile)
    if config.save_optimized is not None:
        options.optimized_model_filepath = str(config.save_optimized)
    if providers.full_name(config.provider) != providers.CPU:
        options.add_session_config_entry("session.record_ep_graph_assignment_info", "1")
    for key, value in config.entries.items():
        options.add_session_config_entry(key, value)
    for library in config.custom_ops:
        try:
            options.register_custom_ops_library(library)
        except _RUNTIME_ERRORS as error:
            raise SessionError(f"onnxruntime can't load custom operators from {library}: {one_line(error)}") from error
    return options


def _prepare(model: LoadableModel) -> tuple[bytes, dict[str, onnxruntime.OrtValue]]:
    """The protobuf to open, and the runtime values that fill its placeholders."""
    if not model.tensors:
        return model.proto, {}
    import onnx

    from graphopt.ir.tensors import packed

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
            values[name] = borrowed(array, kind.code)
            continue
        # Strings and packed types have no array that the runtime could borrow: they go into the protobuf.
        inlined = True
        tensor.ClearField("data_location")
        tensor.ClearField("external_data")
        if kind.name == "str":
            tensor.string_data.extend(text.encode() if isinstance(text, str) else text for text in array.ravel())
        else:
            # Raw bytes are packed already.
            tensor.raw_data = array.tobytes() if array.dtype == np.uint8 else packed(array, tensor.data_type)
    return (proto.SerializeToString() if inlined else model.proto), values


def fold(model: bytes, feeds: Mapping[str, Array]) -> list[Array]:
    """Compute constants: run a model of them once, on the CPU with the runtime's own optimiser off.

    Args:
        model: A serialised ``ModelProto``.
        feeds: Its inputs, which the runtime reads where they lie: large constants are passed so, and not copied.

    Raises:
        KernelError: The runtime has no kernel for a node, or refuses the model.
    """
    try:
        # Memory goes back as soon as a value has been read: a session lives for one run.
        with Session(LoadableModel(model), SessionConfig(level="disabled", arena=False, pattern=False)) as session:
            return session.run(feeds)
    except GraphoptError as error:
        raise KernelError(str(error)) from error


_KINDS = {"tensor": "tensor", "seq": "sequence", "optional": "optional", "map": "map", "sparse_tensor": "sparse"}


def _spec(argument: Any) -> TensorSpec:
    outer, _, inner = argument.type.partition("(")
    kind = _KINDS[outer]
    if kind not in ("tensor", "optional"):
        return TensorSpec(argument.name, argument.type, (), kind)  # the runtime tells no shapes
    shape: Sequence[Any] = argument.shape or ()
    dims = tuple(map(_size, shape))
    if kind == "optional":
        return TensorSpec(argument.name, argument.type, dims, kind)
    return TensorSpec(argument.name, BY_RUNTIME[inner.removesuffix(")")].name, dims, kind)


def _size(dim: Any) -> int | str | None:
    """What the runtime says of a dimension: its size, its name or nothing."""
    if isinstance(dim, int):
        return dim if dim >= 0 else None
    return dim if dim and dim not in NAMELESS else None
