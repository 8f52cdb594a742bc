"""Opening a model for a user: how a session is configured, at which sizes it runs, and on which inputs."""

from __future__ import annotations

import re
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
from onnx import ModelProto

from graphopt.config import Settings, provider_name
from graphopt.errors import (
    CrashError,
    InputsNeededError,
    SessionError,
    UnknownNameError,
    UsageError,
    expect_path,
    reason,
)
from graphopt.ir.graph import Graph
from graphopt.ir.infer import called
from graphopt.onnxio.emit import Emitted, emit
from graphopt.onnxio.load import Model
from graphopt.onnxio.save import LARGEST_PROTOBUF
from graphopt.onnxio.testdata import declared
from graphopt.runtime import guard
from graphopt.runtime.binding import TensorSpec
from graphopt.runtime.environment import default_threads, usable_cores
from graphopt.runtime.feeds import Fill, Range, chosen_dims, flag_ways, make_feeds, measured_sizes, named, shaped
from graphopt.runtime.given import Given, read_inputs
from graphopt.runtime.log import node_of
from graphopt.runtime.session import LoadableModel, Session, SessionConfig
from graphopt.runtime.sizes import Symbols, filled
from graphopt.search.arena import loadable
from graphopt.verification.reference import sizes_wanted
from graphopt.verification.sizes import size_hints
from graphopt.wording import plural

_UNSUPPORTED = re.compile(r"\bnot (yet )?(be )?(supported|implemented)\b|\bnot support\b", re.IGNORECASE)
_LOOKS_UP = frozenset({"Gather", "GatherElements", "GatherND", "ScatterElements", "ScatterND"})


class ThreadsWarning(UserWarning):
    """More threads were asked for than there are processors, or the runtime takes more by itself than this process may use."""


def check_model(name: str, model: Any) -> None:
    """See that an argument is a model.

    Raises:
        UsageError: It is not.
    """
    expect_path(name, model, "a path or an onnx.ModelProto", ModelProto)


def session_config(
    provider: str = "cpu",
    provider_options: Mapping[str, Any] | None = None,
    threads: int = 0,
    custom_ops: Sequence[str] = (),
) -> SessionConfig:
    """How to open a model for a user: the provider by its short name, its options as texts, 0 threads for the runtime's default.

    Raises:
        UsageError: There is no such library of custom operators.
    """
    options = {key: str(value) for key, value in (provider_options or {}).items()}
    cores = usable_cores()
    if threads > cores:
        # Each takes memory and spins: a hundred thousand of them take minutes to start.
        _warn(f"{threads} threads asked for, and {cores} used: as many as processors")
        threads = cores
    elif not threads and default_threads() > cores:
        _warn(
            f"ONNX Runtime takes {default_threads()} threads by itself, and this process may use {plural(cores, 'processor')}: choose "
            f"--threads {cores}, and as many where the model will run"
        )
    libraries = tuple(_library(name) for name in custom_ops)
    return SessionConfig(provider_name(provider), threads, provider_options=options, custom_ops=libraries)


def config_of(settings: Settings) -> SessionConfig:
    """How to open a model as some settings want it; raises as :func:`session_config`."""
    return session_config(settings.provider, settings.provider_options, settings.threads, settings.custom_ops)


def _library(name: str) -> str:
    """The file of a library of custom operators, which a package may know."""
    if Path(name).is_file():
        return str(Path(name).resolve())
    why = "there is no such file"
    if name.isidentifier():
        try:
            return str(import_module(name).get_library_path())
        except Exception as error:  # an import may end in any
            why = reason(error)
    raise UsageError(
        f"no library of custom operators {name!r}: {why}",
        "name a file (.so, .dylib, .dll), or an installed package that has get_library_path(), such as onnxruntime_extensions",
    )


def _warn(text: str) -> None:
    warnings.warn(text, ThreadsWarning, stacklevel=3)


def as_given(source: str | Path | ModelProto, loaded: Model) -> LoadableModel | Path:
    """A model as its user has it, for the runtime: the file, not what was read from it."""
    if not isinstance(source, ModelProto):
        return Path(source)
    if source.ByteSize() > LARGEST_PROTOBUF:
        return loadable(loaded, emit(loaded, loaded.graph))
    return LoadableModel(source.SerializeToString())


def given_inputs(inputs: str | Path | Mapping[str, Any] | None, model: Model) -> Given:
    """Sets of inputs that a user gives, as arrays, a file or a folder; one of none where there are none."""
    if isinstance(inputs, str | Path):
        return tuple(read_inputs(Path(inputs), declared(model.proto.graph)))
    return (dict(inputs or {}),)


def first_run(
    original: Model,
    config: SessionConfig,
    ranges: Mapping[str, Range],
    given: Given,
    dims: Mapping[str, int],
    seed: int,
    shapes: Mapping[str, Sequence[int]] | None = None,
) -> tuple[float, dict[str, Any]]:
    """Seconds of one inference, and inputs that the model accepts: the first set that was given, completed.

    The others are looked at, and run where they are complete.

    Raises:
        UsageError: A set has inputs that the model has not, or of another type or shape.
        SessionError: The model can't be opened, or fails on the inputs.
    """
    overrides = given[0] if given else {}
    name = str(original.path or "the model")
    emitted = _all_named(emit(original, original.graph))
    with guard.open_guarded(loadable(original, emitted), config, name=name) as session:
        found, dims = shaped(session.input_specs, shapes or {}, dims)
        hints = size_hints(original.graph)
        specs = named(hints.completed(found))
        choices = Symbols.choices(specs, dims, overrides, hints)
        errors: list[tuple[SessionError, dict[str, Any]]] = []

        accepted: dict[str, Any] = {}

        def tried(sizes: Mapping[str, int], flags: int, fill: Fill) -> bool:
            nonlocal accepted
            feeds: dict[str, Any] = {}
            try:
                feeds = make_feeds(
                    specs, seed=seed, ranges=ranges, overrides=overrides, dims=sizes, flags=flags, fill=fill
                )
                session.run(feeds)
            except SessionError as error:
                errors.append((error, feeds))
                guard.revive(session)
                return False
            accepted = feeds
            return True

        def runs(sizes: Mapping[str, int], fill: Fill) -> bool:
            return any(tried(sizes, flags, fill) for flags in flag_ways(specs))

        if filled([spec for spec in specs if spec.name not in overrides], choices, runs) is None:
            plain, free = not isinstance(errors[0][0], CrashError | InputsNeededError), choices[-1].free
            shapeless = [name for name in _shapeless(original.graph) if name not in {*overrides, *(shapes or {})}]
            blamed, wanted = blamed_inputs(original.graph, str(errors[0][0])), sizes_wanted(free, shapeless)
            # Zeros say nothing of what may have to be a size or a count.
            counts = any(spec.name in blamed and spec.dtype in ("int32", "int64") for spec in specs)
            zeros = plain and not (free or shapeless or overrides or counts) and _fails_on_zeros(session, errors[0][1])
            raise _fails_everywhere(errors, wanted, blamed, given=bool(overrides), zeros=zeros)
        _see_others(session, specs, given, dims)
        return session.clock(accepted), accepted


def _all_named(emitted: Emitted) -> Emitted:
    """A model of which every node has a name, for what the runtime says of it: that of an output where it had none, unless another node is called so."""
    if all(node.name for node in emitted.proto.graph.node):
        return emitted
    proto = ModelProto()
    proto.CopyFrom(emitted.proto)
    taken = {"", *(node.name for node in proto.graph.node)}
    for node in proto.graph.node:
        node.name = node.name or next((name for name in node.output if name not in taken), "")
    return replace(emitted, proto=proto)


def _see_others(
    session: guard.Guarded | Session, specs: Sequence[TensorSpec], given: Given, dims: Mapping[str, int]
) -> None:
    """See that a model takes the further sets of inputs that were given."""
    for number, overrides in enumerate(given[1:], 2):
        try:
            known = [spec.name for spec in specs]
            for name in overrides:
                if name not in known:
                    raise UnknownNameError("input", name, known)
            sizes = chosen_dims(specs, dims, overrides)
            if all(name in overrides for name in known):
                session.run(make_feeds(specs, dims=sizes, overrides=overrides))
        except UsageError as error:
            raise UsageError(f"set {number} of the inputs: {error}", error.hint) from error
        except SessionError as error:
            text = f"the original model fails on set {number} of the inputs: {error}"
            raise InputsNeededError(text, "check --inputs") from error


def _fails_everywhere(
    errors: Sequence[tuple[SessionError, dict[str, Any]]],
    wanted: str,
    blamed: Sequence[str],
    *,
    given: bool,
    zeros: bool,
) -> SessionError:
    """What to say of a model that runs at none of the sizes tried: what it says at the likeliest, and what would help."""
    error, feeds = errors[0]
    if isinstance(error, InputsNeededError):
        return error  # they can't be made up
    choose = f"choose sizes with {wanted}, or " if wanted else ""
    failed: SessionError
    if isinstance(error, CrashError):
        failed = CrashError(
            str(error), f"if it runs on real inputs, {choose}give them with --inputs, a file .npz or a folder"
        )
    else:
        hint = choose + ("check --inputs" if given else "give real ones with --inputs, a file .npz or a folder")
        if _UNSUPPORTED.search(str(error)):
            hint = "the runtime says that it has no kernel for this, which other sizes and inputs hardly change: look at the node named"
        elif zeros:
            hint = "it fails on zeros as well, so the fault is likely in the model: look at the node named"
        elif blamed:
            hint += f"; what it fails on comes of {', '.join(blamed[:6])}{' ...' if len(blamed) > 6 else ''}"
        tried = f", nor at {len(errors) - 1} other choices of sizes" if len(errors) > 1 else ""
        whose = "the inputs given" if given else "made-up inputs"
        text = f"the original model fails on {whose} ({_sketch(feeds)}){tried}: {error}"
        failed = InputsNeededError(text, hint)
    failed.__cause__ = error
    return failed


def blamed_inputs(graph: Graph, message: str) -> list[str]:
    """The inputs that what a node complains of is computed of: the indices of one that looks up, else all its operands."""
    name = node_of(message)
    named_so = (node for node in graph.nodes.values() if node.name == name)
    makes_it = (
        n for n in graph.nodes.values() for key in n.outputs if key is not None and graph.values[key].name == name
    )
    node = next(named_so, next(makes_it, None)) if name else None
    if node is None:
        return []
    stack = [key for key in (node.inputs[1:2] if node.op in _LOOKS_UP else node.inputs) if key is not None]
    seen = set(stack)
    while stack:
        producer = graph.producer(stack.pop())
        for key in producer.inputs if producer is not None else ():
            if key is not None and key not in seen:
                seen.add(key)
                stack.append(key)
    return [graph.values[key].name for key in graph.inputs if key in seen]


def _shapeless(graph: Graph) -> list[str]:
    """The inputs of which not even the number of dimensions is declared."""
    types = ((graph.values[key].name, graph.type(key)) for key in graph.inputs)
    return [name for name, type in types if type.shape is None and not type.other]


def _fails_on_zeros(session: guard.Guarded | Session, feeds: Mapping[str, Any]) -> bool:
    """Whether a model fails on zeros, too, which are legal as indices of any table and as lengths of most things."""
    arrays = {name: a for name, a in feeds.items() if isinstance(a, np.ndarray) and a.dtype.kind in "fiub"}
    numbers = {**feeds, **{name: np.zeros_like(a) for name, a in arrays.items()}}
    try:
        session.run(numbers)
    except SessionError:
        return True
    return False


def _sketch(feeds: Mapping[str, Any]) -> str:
    def told(value: Any) -> str:
        if value is None:
            return "none"
        if isinstance(value, list | tuple):
            return f"{len(value)} of {told(value[0])}" if value else "an empty list"
        return f"{np.asarray(value).dtype}{list(np.shape(value))}"

    return ", ".join(f"{name} {told(value)}" for name, value in feeds.items())


def open_sizes(model: Model, feeds: Mapping[str, Any]) -> dict[str, int]:
    """The sizes that some inputs give to the dimensions which a model leaves open."""
    return measured_sizes(_specs(model), feeds)


def open_names(model: Model) -> set[str]:
    """What those dimensions are called, as far as the model declares them."""
    return {dim for spec in named(_specs(model)) for dim in spec.shape if isinstance(dim, str)}


def _specs(model: Model) -> list[TensorSpec]:
    graph = model.graph
    return [
        TensorSpec(
            graph.values[key].name, "", graph.type(key).shape or (), "other" if graph.type(key).other else "tensor"
        )
        for key in graph.inputs
    ]


def shaped_sizes(model: Model, feeds: Mapping[str, Any], shapes: Mapping[str, Sequence[int]]) -> dict[str, int]:
    """Those of them that the shapes chosen for whole inputs give."""
    return open_sizes(model, {name: feeds[name] for name in shapes if name in feeds})


def bound_sizes(specialised: Model, original: Model) -> dict[str, int]:
    """Which symbol of the original stands for which number in the specialised model."""
    if specialised is original:
        return {}
    found: dict[str, int] = {}
    numbers = {i.name: i.type.tensor_type.shape.dim for i in specialised.proto.graph.input}
    for info in original.proto.graph.input:
        for axis, (before, after) in enumerate(
            zip(info.type.tensor_type.shape.dim, numbers.get(info.name, ()), strict=False)
        ):
            name = called(info.name, axis, before)
            if name is not None and called(info.name, axis, after) is None:
                found[name] = after.dim_value
    return found
