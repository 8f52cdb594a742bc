"""Turn an ONNX model into a graph.

Everything of the model that the graph does not hold (functions, metadata, sparse initializers, training information)
stays in the parsed skeleton, from which :mod:`graphopt.onnxio.emit` starts again. Weights of a file are never read here:
they are memory-mapped where they lie.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import NoneType
from typing import Any

import numpy as np
from onnx import ModelProto, TensorProto

from graphopt.errors import ModelError, expect, expect_path
from graphopt.ir.graph import Graph
from graphopt.ir.memo import collector_paused
from graphopt.ir.tensors import Constant, InFile, Stamp, files_of
from graphopt.onnxio import wire
from graphopt.onnxio.build import graph_of
from graphopt.onnxio.initializers import nested, read_nested, tensor_at
from graphopt.onnxio.read import freeze, inlined, read_model, specialise, validate
from graphopt.wording import plural, size


@dataclass(frozen=True, eq=False, repr=False)
class Model:
    """A loaded model.

    Attributes:
        graph: What rules work on.
        proto: The model without the bytes of its larger weights; never changed.
        tensors: Tensor of each initializer of the main graph.
        path: The file, ``None`` for a model given as a protobuf.
        stamp: That of the file as it was read.
        arrays: Content of the smaller lazy constants evaluated so far, by value key (shared by all graphs derived from this one).
        nested: The files of what ``proto`` has taken in, as they were when it was read: weights of bodies and attributes, and all
            files of a model that was converted.
    """

    graph: Graph
    proto: ModelProto
    tensors: Mapping[str, Constant]
    path: Path | None = None
    stamp: Stamp | None = None
    arrays: dict[int, np.ndarray[Any, Any]] = field(default_factory=dict)
    nested: frozenset[tuple[Path, Stamp]] = frozenset()

    def __repr__(self) -> str:
        name = self.path.name if self.path else "in memory"
        return f"<Model {name}: {plural(len(self.proto.graph.node), 'node')}, {size(self.nbytes)}>"

    @property
    def base_dir(self) -> Path | None:
        """Where relative external data lie."""
        return None if self.path is None else self.path.parent

    @property
    def files(self) -> set[tuple[Path, Stamp]]:
        """The files that it lies in, as they were when it was read."""
        own = set() if self.path is None or self.stamp is None else {(self.path, self.stamp)}
        return own | self.weights

    @property
    def weights(self) -> frozenset[tuple[Path, Stamp]]:
        """The files in which it keeps weights, as they were when it was read."""
        return self.nested | files_of(self.tensors.values())

    @property
    def nbytes(self) -> int:
        """Size of the model with its weights, as one file would have it."""
        external = sum(int(t.nbytes) for t in self.tensors.values() if isinstance(t, InFile))
        return self.proto.ByteSize() + external

    @property
    def external(self) -> bool:
        """Whether initializers of the main graph lie in files of their own."""
        return any(t.data_location == TensorProto.EXTERNAL and not wire.inside(t) for t in self.proto.graph.initializer)

    @property
    def whole(self) -> bool:
        """Whether the file alone is the model, wherever it is copied to."""
        return self.path is not None and not self.external and not self.nested


def load(
    source: str | Path | bytes | ModelProto,
    *,
    freeze_initializers: bool = False,
    dims: Mapping[str, int] | None = None,
    input_shapes: Mapping[str, Sequence[int]] | None = None,
    seen: Callable[[ModelProto], None] | None = None,
) -> Model:
    """Load a model.

    Args:
        source: A file, a serialised model or a parsed one.
        freeze_initializers: Treat initializers that are also graph inputs as constants and drop those inputs.
        dims: Sizes for symbolic dimensions, by name.
        input_shapes: Shapes for whole inputs, by name.
        seen: Is shown the model without its weights before anything that takes long.

    Raises:
        ModelError: No such file, not ONNX, truncated, invalid, or external data missing.
        UnsupportedModelError: An operator-set version that graphopt does not know.
        UnknownNameError: A dimension or an input that the model does not have.
        UsageError: The source is none of these, or another argument is wrong; the message names it.
    """
    expect_path("source", source, "a path, bytes or an onnx.ModelProto", (bytes, ModelProto))
    expect("freeze_initializers", freeze_initializers, bool, "true or false")
    expect("dims", dims, (Mapping, NoneType), "sizes by name")
    expect("input_shapes", input_shapes, (Mapping, NoneType), "shapes by name")
    path = Path(source) if isinstance(source, str | Path) else None
    try:
        proto = read_model(source, path)
        stamp = None if path is None else Stamp.of(path)
        validate(proto)
        if seen is not None:
            seen(proto)
        proto = inlined(proto)
        within = frozenset(read_nested(proto, path))
        if freeze_initializers:
            freeze(proto)
        specialise(proto, dims or {}, input_shapes or {})
        tensors: dict[str, Constant] = {}
        for t in proto.graph.initializer:
            if t.name in tensors:
                raise ModelError(f"initializer {t.name!r} is defined twice")
            tensors[t.name] = tensor_at(t, path)
        with collector_paused():
            return Model(graph_of(proto, tensors), proto, tensors, path, stamp, nested=within)
    except ModelError as error:
        raise type(error)(f"{path}: {error}" if path else str(error), error.hint) from error


def external_files(path: Path) -> set[Path]:
    """The files in which a model keeps weights, those of its bodies among them.

    Raises:
        ModelError: The model can't be read, or a file is missing or too short.
    """
    proto = read_model(path, path)
    within = (tensor_at(tensor, path) for tensor in nested(proto))
    return {tensor.path for tensor in (*_external(proto, path), *within) if isinstance(tensor, InFile)}


def external_tensors(path: Path) -> list[InFile]:
    """The weights that the main graph of a model keeps in files of their own.

    Raises:
        ModelError: The model can't be read, or a file is missing or too short.
    """
    return _external(read_model(path, path), path)


def _external(proto: ModelProto, path: Path) -> list[InFile]:
    found = (t for t in proto.graph.initializer if t.data_location == TensorProto.EXTERNAL)
    return [t for t in (tensor_at(t, path) for t in found if not wire.inside(t)) if isinstance(t, InFile)]
