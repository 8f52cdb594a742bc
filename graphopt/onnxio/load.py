"""Turn an ONNX model into a graph.

Everything of the model that the graph does not hold (functions, metadata, sparse initializers, training information)
stays in the parsed skeleton, from which :mod:`graphopt.onnxio.emit` starts again. Weights of a file are never read here:
they are memory-mapped where they lie.
"""

from __future__ import annotations

import hashlib
import heapq
import mmap
from collections.abc import Iterable, Iterator, Mapping, Sequence, Sized
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from google.protobuf.message import DecodeError
from onnx import (
    AttributeProto,
    GraphProto,
    ModelProto,
    NodeProto,
    TensorProto,
    TensorShapeProto,
    helper,
    numpy_helper,
    shape_inference,
)

from graphopt.errors import ModelError, UnknownNameError, UnsupportedModelError, UsageError
from graphopt.ir import ops
from graphopt.ir.constants import READABLE
from graphopt.ir.doubts import MISTAKEN, believed
from graphopt.ir.edit import tensor_of
from graphopt.ir.graph import Graph, Node, Opaque, Tensor, Value, build, expression_id, output_key
from graphopt.ir.infer import value_type
from graphopt.ir.tensors import STRING, Constant, InFile, InModel
from graphopt.ir.types import DTYPE_NAMES, UNKNOWN, ValueType, digest, merge
from graphopt.onnxio import wire

OLDEST_OPSET = 7
MOST_DIMENSIONS = 64
"""Of a tensor: more are beyond the runtime, and beyond numpy."""
_BOUNDS = 8  # elements of the bounds of a Slice
INLINE = 1024  # bytes; smaller initializers stay in the skeleton
_STANDARD = ("", "ai.onnx")
_KNOWN_DOMAINS = ("", "ai.onnx", "ai.onnx.ml", "com.microsoft")
_QUANTIZE = ("QuantizeLinear", "DequantizeLinear", "DynamicQuantizeLinear")
_CONTAINERS = (
    "SequenceConstruct", "SequenceEmpty", "SplitToSequence", "ConcatFromSequence", "Optional", "OptionalGetElement",
    "OptionalHasElement", "ZipMap", "DictVectorizer", "CastMap",
)  # fmt: skip


@dataclass(frozen=True, eq=False)
class Model:
    """A loaded model.

    Attributes:
        graph: What rules work on.
        proto: The model without the bytes of its larger weights; never changed.
        tensors: Tensor of each initializer of the main graph.
        path: The file, ``None`` for a model given as a protobuf.
        arrays: Content of the smaller lazy constants evaluated so far, by value key (shared by all graphs derived from this one).
    """

    graph: Graph
    proto: ModelProto
    tensors: Mapping[str, Constant]
    path: Path | None = None
    arrays: dict[int, np.ndarray[Any, Any]] = field(default_factory=dict)

    @property
    def base_dir(self) -> Path | None:
        """Where relative external data lie."""
        return None if self.path is None else self.path.parent

    @property
    def nbytes(self) -> int:
        """Size of the model with its weights, as one file would have it."""
        external = sum(int(t.nbytes) for t in self.tensors.values() if isinstance(t, InFile))
        return self.proto.ByteSize() + external

    @property
    def external(self) -> bool:
        """Whether the model keeps weights in files of their own."""
        return any(t.data_location == TensorProto.EXTERNAL and not wire.inside(t) for t in self.proto.graph.initializer)


def load(
    source: str | Path | bytes | ModelProto,
    *,
    freeze_initializers: bool = False,
    dims: Mapping[str, int] | None = None,
    input_shapes: Mapping[str, Sequence[int]] | None = None,
) -> Model:
    """Load a model.

    Args:
        source: A file, a serialised model or a parsed one.
        freeze_initializers: Treat initializers that are also graph inputs as constants and drop those inputs.
        dims: Sizes for symbolic dimensions, by name.
        input_shapes: Shapes for whole inputs, by name.

    Raises:
        ModelError: No such file, not ONNX, truncated, invalid, or external data missing.
        UnsupportedModelError: An operator-set version that graphopt does not know.
        UnknownNameError: A dimension or an input that the model does not have.
    """
    path = Path(source) if isinstance(source, str | Path) else None
    try:
        proto = _read(source, path)
        _validate(proto)
        _read_nested(proto, path)
        if freeze_initializers:
            _freeze(proto)
        _specialise(proto, dims or {}, input_shapes or {})
        tensors: dict[str, Constant] = {}
        for t in proto.graph.initializer:
            if t.name in tensors:
                raise ModelError(f"initializer {t.name!r} is defined twice")
            tensors[t.name] = _tensor(t, path)
        return Model(_graph(proto, tensors, path), proto, tensors, path)
    except ModelError as error:
        raise type(error)(f"{path}: {error}" if path else str(error), error.hint) from error


def _read(source: str | Path | bytes | ModelProto, path: Path | None) -> ModelProto:
    if isinstance(source, ModelProto):
        proto = ModelProto()
        proto.CopyFrom(source)
        return proto
    if path is None:
        assert isinstance(source, bytes)
        return _parse(source)
    try:
        with path.open("rb") as file:
            if path.stat().st_size == 0:
                raise ModelError("the file is empty")
            with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as view:
                content = wire.skeleton(view, INLINE)
    except FileNotFoundError:
        raise ModelError("no such file") from None
    except IsADirectoryError:
        raise ModelError("is a directory, not a model file") from None
    except OSError as error:
        raise ModelError(f"can't be read: {error.strerror or error}") from error
    return _parse(content)


def _parse(content: bytes) -> ModelProto:
    try:
        return ModelProto.FromString(content)
    except DecodeError as error:
        raise ModelError("not an ONNX model, or a truncated one") from error


def _validate(proto: ModelProto) -> None:
    if not proto.HasField("graph") or not (proto.ir_version or proto.opset_import):
        raise ModelError("not an ONNX model: it has no graph")
    # What is no UTF-8 comes out of protobuf as bytes.
    if not all(isinstance(text, str) for text in _texts(proto)):
        raise ModelError("not a valid ONNX model: a name in it is not UTF-8 text")
    versions = {o.domain: o.version for o in proto.opset_import}
    version = versions.get("", versions.get("ai.onnx", 1))
    newest = onnx.defs.onnx_opset_version()
    standard = any(n.domain in _STANDARD for n in proto.graph.node)
    if version > newest:
        raise UnsupportedModelError(
            f"opset {version} is newer than the newest known, {newest}", "upgrade onnx and onnxruntime"
        )
    if version < OLDEST_OPSET and standard:
        raise UnsupportedModelError(
            f"opset {version} is older than {OLDEST_OPSET}",
            "`graphopt optimize --upgrade` converts it, and so does onnx.version_converter.convert_version",
        )
    if not proto.graph.output:
        raise ModelError("the graph has no output")


def _texts(proto: ModelProto) -> Iterator[str]:
    """Whatever names something in a model."""
    yield from (o.domain for o in proto.opset_import)
    for function in proto.functions:
        yield from (function.domain, function.name)
    for graph in _graphs(proto.graph):
        declared = [*graph.input, *graph.output, *graph.value_info]
        yield from (i.name for i in declared)
        yield from (t.name for t in graph.initializer)
        yield from (d.dim_param for i in declared for d in i.type.tensor_type.shape.dim)
        yield from (s.values.name for s in graph.sparse_initializer)
        for node in graph.node:
            yield from (node.name, node.op_type, node.domain, *node.input, *node.output)
            yield from (a.name for a in node.attribute)


def _graphs(graph: GraphProto) -> Iterator[GraphProto]:
    """A graph and the bodies in it."""
    yield graph
    for node in graph.node:
        for attribute in node.attribute:
            for body in [attribute.g] if attribute.type == AttributeProto.GRAPH else attribute.graphs:
                yield from _graphs(body)


def _read_nested(proto: ModelProto, path: Path | None) -> None:
    """Take the external data of bodies and attributes into the model, which may be saved in another folder.

    (Those of the main graph's initializers, which can be large, stay where they are.)
    """
    tensors: list[TensorProto] = []
    for graph in _graphs(proto.graph):
        tensors += [] if graph is proto.graph else graph.initializer
        tensors += [s.values for s in graph.sparse_initializer]
        for node in graph.node:
            for a in node.attribute:
                tensors += [a.t] if a.type == AttributeProto.TENSOR else a.tensors
    for tensor in tensors:
        if tensor.data_location == TensorProto.EXTERNAL:
            data = _tensor(tensor, path).tobytes()
            tensor.ClearField("external_data")
            tensor.ClearField("data_location")
            tensor.raw_data = data


def _freeze(proto: ModelProto) -> None:
    if proto.ir_version < 4:
        return  # initializers are constants already, and must be inputs all the same
    names = {t.name for t in proto.graph.initializer}
    kept = [i for i in proto.graph.input if i.name not in names]
    del proto.graph.input[:]
    proto.graph.input.extend(kept)


def _specialise(proto: ModelProto, dims: Mapping[str, int], shapes: Mapping[str, Sequence[int]]) -> None:
    """Put numbers in place of symbols, everywhere that a declared type names them."""
    if not dims and not shapes:
        return
    inputs = {i.name: i for i in proto.graph.input}
    bound = dict(dims)
    known = {
        d.dim_param
        for i in proto.graph.input
        for d in i.type.tensor_type.shape.dim
        if d.WhichOneof("value") == "dim_param"
    }
    for name in dims:
        if name not in known:
            raise UnknownNameError("dimension", name, known)
    for name, size in [*dims.items(), *((name, size) for name, shape in shapes.items() for size in shape)]:
        if size < 0:
            raise UsageError(f"{name!r}: a dimension can't be {size}")
    for name, shape in shapes.items():
        if name not in inputs:
            raise UnknownNameError("input", name, inputs)
        if inputs[name].type.WhichOneof("value") not in (None, "tensor_type"):
            raise UsageError(f"input {name!r} is no tensor: it has no shape")
        tensor = inputs[name].type.tensor_type
        if not tensor.HasField("shape"):
            tensor.shape.dim.extend(TensorShapeProto.Dimension() for _ in shape)
        declared = tensor.shape.dim
        if len(declared) != len(shape):
            raise UsageError(f"input {name!r} has rank {len(declared)}, the given shape has rank {len(shape)}")
        for dim, size in zip(declared, shape, strict=True):
            if dim.WhichOneof("value") == "dim_value" and dim.dim_value != size:
                raise UsageError(f"input {name!r} has a fixed dimension {dim.dim_value}, not {size}")
            if dim.WhichOneof("value") == "dim_param":
                if bound.get(dim.dim_param, size) != size:
                    raise UsageError(f"dimension {dim.dim_param!r} would be both {bound[dim.dim_param]} and {size}")
                bound[dim.dim_param] = size
            dim.dim_value = size
    for info in [*proto.graph.input, *proto.graph.output, *proto.graph.value_info]:
        for dim in info.type.tensor_type.shape.dim:
            if dim.WhichOneof("value") == "dim_param" and dim.dim_param in bound:
                dim.dim_value = bound[dim.dim_param]


def _tensor(proto: TensorProto, path: Path | None) -> InFile | InModel:
    """The tensor of an initializer: memory-mapped when it lies in a file."""
    what = f"initializer {proto.name!r}"
    if DTYPE_NAMES.get(proto.data_type) is None or any(d < 0 for d in proto.dims):
        raise ModelError(f"{what} has no valid type: dtype {proto.data_type}, dimensions {list(proto.dims)}")
    if len(proto.dims) > MOST_DIMENSIONS:
        raise ModelError(f"{what} has {len(proto.dims)} dimensions; at most {MOST_DIMENSIONS} can be handled")
    if proto.data_location != TensorProto.EXTERNAL:
        return _inline(proto)
    entries = {e.key: e.value for e in proto.external_data}
    inside = wire.inside(proto)
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
    file = path if inside else path.parent / name
    if not inside and not file.resolve().is_relative_to(path.parent.resolve()):
        raise ModelError(f"external data file {name!r} of {what} lies outside the model's folder", "put it there")
    if not file.is_file():
        raise ModelError(f"external data file {name!r} of {what} is missing")
    tensor = InFile(file.absolute(), offset, proto.data_type, tuple(proto.dims))
    if length not in (None, tensor.nbytes):
        raise ModelError(f"{what} has {length} bytes, its type says {tensor.nbytes}")
    if offset < 0 or offset + tensor.nbytes > file.stat().st_size:
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
        proto.float_data, proto.int32_data, proto.string_data, proto.int64_data, proto.double_data, proto.uint64_data,
    )  # fmt: skip


def tensor_type(tensor: Constant) -> ValueType:
    """The type of a constant."""
    return ValueType(DTYPE_NAMES.get(tensor.dtype), tensor.shape)


def _identify(tensor: Constant) -> Tensor:
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


def _definers(graph: GraphProto, name: str) -> list[str]:
    """Whatever defines a value in a graph, in its order."""
    found = ["an input" for each in graph.input if each.name == name]
    found += ["a weight" for each in graph.initializer if each.name == name]
    for number, node in enumerate(graph.node):
        label = repr(node.name) if node.name else f"number {number + 1}"
        found += [f"node {label} ({node.op_type})" for output in node.output if output == name]
    return found


def _graph(proto: ModelProto, tensors: Mapping[str, Constant], path: Path | None) -> Graph:
    g = proto.graph
    types = _trusted(proto, _types(proto))
    values: dict[int, Value] = {}
    scope: dict[str, int] = {}

    def define(name: str, value: Value) -> None:
        if name in scope:
            who = " and by ".join(_definers(g, name))
            raise ModelError(f"value {name!r} is defined twice: by {who}")
        scope[name] = value.key
        values[value.key] = value

    # Before IR version 4 every initializer is also an input, and the runtime treats it as a constant all the same.
    overridable = {i.name for i in g.input} if proto.ir_version >= 4 else set()
    inputs: list[int] = []
    for info in g.input:
        if info.name in tensors and info.name not in overridable:
            continue
        type = types.get(info.name, value_type(info.type))
        define(info.name, Value(digest("input", info.name, str(type)), info.name, type))
        inputs.append(scope[info.name])
    for name, tensor in tensors.items():
        if name in scope:
            continue
        data = _identify(tensor)
        define(name, Value(digest("init", name, data.key), name, data.type, True, data))
    for sparse in g.sparse_initializer:
        name = sparse.values.name
        define(name, Value(digest("sparse", name), name, UNKNOWN))
        inputs.append(scope[name])

    functions = {(f.domain, f.name) for f in proto.functions}
    nodes: list[Node] = []
    seen: set[int] = set()
    producers = {o for n in g.node for o in n.output if o}
    for index, source in enumerate(_sorted(g, scope, producers)):
        captures = tuple(sorted(_captured(source)))
        try:
            ins = tuple(scope[i] if i else None for i in source.input) + tuple(scope[c] for c in captures)
        except KeyError as error:
            raise ModelError(f"node {source.name or source.op_type!r} reads {error}, which nothing defines") from None
        if source.op_type == "Constant" and source.domain in _STANDARD:
            tensor = _constant(source)
            if tensor is not None:
                data = _identify(tensor) if not isinstance(tensor, Tensor) else tensor
                key = digest("init", source.output[0], data.key)
                define(source.output[0], Value(key, source.output[0], data.type, True, data, source=source))
                continue
        attributes = {a.name: _attribute(a) for a in source.attribute}
        domain = "" if source.domain == "ai.onnx" else source.domain
        why = _opaque(source, functions, attributes, [values[k] for k in ins if k is not None], nodes, values)
        pure = not why and ops.pure(source.op_type, domain, attributes, len(source.input))
        while ins and ins[-1] is None:
            ins = ins[:-1]
        node_id = expression_id(source.op_type, domain, attributes, ins)
        salt = index + 1 if not pure or node_id in seen else 0
        if salt:
            node_id = expression_id(source.op_type, domain, attributes, ins, salt)
        seen.add(node_id)
        const = pure and all(values[k].const for k in ins if k is not None)
        if source.op_type == "Shape" and pure and ins and ins[0] is not None:
            const = const or values[ins[0]].type.static
        outs: list[int | None] = []
        for i, name in enumerate(source.output):
            outs.append(output_key(node_id, i) if name else None)
            if name:
                key = output_key(node_id, i)
                define(name, Value(key, name, types.get(name, UNKNOWN), const, None, node_id))
        node = Node(
            source.op_type, ins, tuple(outs), attributes, domain=domain, name=source.name, source=source, opaque=why,
            captures=captures, salt=salt, id=node_id,
        )  # fmt: skip
        nodes.append(node)
    nodes = _guard_quantised(nodes, values)
    outputs: list[tuple[str, int]] = []
    for info in g.output:
        if info.name not in scope:
            raise ModelError(f"output {info.name!r} is defined by nothing")
        outputs.append((info.name, scope[info.name]))
    opsets = {"" if o.domain == "ai.onnx" else o.domain: o.version for o in proto.opset_import}
    opsets.setdefault("com.microsoft", 1)
    return build(nodes, values, tuple(inputs), tuple(outputs), opsets)


def _types(proto: ModelProto) -> dict[str, ValueType]:
    """Types of all values, by ONNX's own inference; what it can't tell is absent."""
    weights = {t.name: t for t in proto.graph.initializer}
    published = [o.name for o in proto.graph.output if o.name in weights]
    whole = proto
    if published:
        # Of an initializer that is an output inference believes what the output declares: without a shape, a Slice by it is wrong.
        whole = ModelProto()
        whole.CopyFrom(proto)
        for output in whole.graph.output:
            if output.name in weights:
                tensor = weights[output.name]
                output.CopyFrom(helper.make_tensor_value_info(output.name, tensor.data_type, tensor.dims))
    try:
        inferred = shape_inference.infer_shapes(whole, data_prop=True)
    except Exception:
        # Inference gives up on some valid models (unknown operators in bodies); the declared types remain.
        inferred = proto
    g = inferred.graph
    found = {i.name: value_type(i.type) for i in [*g.input, *g.value_info]}
    for i in g.output:
        type = value_type(i.type)
        found[i.name] = merge(found[i.name], type) or type if i.name in found else type
    return found


def _trusted(proto: ModelProto, types: dict[str, ValueType]) -> dict[str, ValueType]:
    """Types without what follows from an inference that the runtime does not share (see :mod:`graphopt.ir.doubts`).

    Of values that depend on such a node only the dtype is kept, whatever the file declares: the
    exporter asked the same inference. :func:`graphopt.ir.simplify.simplify` infers their shapes anew, node by node.
    """
    versions = {"" if o.domain == "ai.onnx" else o.domain: o.version for o in proto.opset_import}
    contents = _small_integers(proto) if any(node.op_type == "Slice" for node in proto.graph.node) else {}
    weights = {t.name: ValueType(DTYPE_NAMES.get(t.data_type), tuple(t.dims)) for t in proto.graph.initializer}
    told = {**types, **weights}
    doubted = {name for node in proto.graph.node if _mistaken(node, told, versions, contents) for name in node.output}
    known = 0
    while len(doubted) > known:  # once for a model whose nodes are in order
        known = len(doubted)
        for node in proto.graph.node:
            if not doubted.isdisjoint(node.input) or not doubted.isdisjoint(_captured(node)):
                doubted.update(node.output)
    return {name: _dtype_alone(type) if name in doubted else type for name, type in types.items()}


def _small_integers(proto: ModelProto) -> dict[str, tuple[int, ...]]:
    """The bounds of Slices and the like: constants of a few integers, by name."""
    tensors = {t.name: t for t in proto.graph.initializer}
    tensors.update(
        (node.output[0], a.t)
        for node in proto.graph.node
        if node.op_type == "Constant" and node.output
        for a in node.attribute
        if a.name == "value"
    )
    few = {
        n: t for n, t in tensors.items() if t.data_type in (TensorProto.INT64, TensorProto.INT32) and len(t.dims) < 2
    }
    return {
        name: tuple(int(v) for v in numpy_helper.to_array(t).ravel())
        for name, t in few.items()
        if sum(t.dims) <= _BOUNDS and t.data_location != TensorProto.EXTERNAL
    }


def _mistaken(
    node: NodeProto,
    types: Mapping[str, ValueType],
    versions: Mapping[str, int],
    contents: Mapping[str, tuple[int, ...]],
) -> bool:
    domain = "" if node.domain == "ai.onnx" else node.domain
    if node.op_type not in MISTAKEN or domain:
        return False
    attributes = {a.name: _attribute(a) for a in node.attribute}
    operands, made = [types.get(n) for n in node.input], tuple(types.get(n, UNKNOWN) for n in node.output)
    known = [contents.get(n) for n in node.input]
    return believed(node.op_type, domain, versions.get(domain, 1), attributes, operands, known, made) != made


def _dtype_alone(type: ValueType) -> ValueType:
    if type.other is not None or type.shape is None:
        return type
    return ValueType(type.dtype)


def _sorted(g: GraphProto, scope: Mapping[str, int], producers: set[str]) -> list[NodeProto]:
    """The nodes in topological order, as they stand where that is one already."""
    readers: dict[str, list[int]] = {}
    missing: list[int] = []
    for index, node in enumerate(g.node):
        needs = {n for n in {*node.input} | _captured(node) if n in producers and n not in scope}
        missing.append(len(needs))
        for name in needs:
            readers.setdefault(name, []).append(index)
    ready = [index for index, n in enumerate(missing) if n == 0]  # ascending, so a heap already
    result: list[NodeProto] = []
    while ready:
        node = g.node[heapq.heappop(ready)]
        result.append(node)
        for name in node.output:
            for index in readers.pop(name, ()):
                missing[index] -= 1
                if missing[index] == 0:
                    heapq.heappush(ready, index)
    if len(result) != len(missing):
        stuck = next(g.node[index] for index, n in enumerate(missing) if n > 0)
        raise ModelError(f"the graph has a cycle through node {stuck.name or stuck.op_type!r}")
    return result


def _captured(node: NodeProto) -> set[str]:
    """Names of outer values that the bodies of a node read."""
    found: set[str] = set()
    for attribute in node.attribute:
        bodies = [attribute.g] if attribute.type == AttributeProto.GRAPH else attribute.graphs
        for body in bodies:
            found |= _free(body)
    return found


def _free(body: GraphProto) -> set[str]:
    own = (
        {i.name for i in body.input}
        | {t.name for t in body.initializer}
        | {s.values.name for s in body.sparse_initializer}
    )
    read: set[str] = set()
    for node in body.node:
        own.update(node.output)
    for node in body.node:
        read.update(i for i in node.input if i)
        read |= _captured(node)
    read.update(o.name for o in body.output)
    return read - own


def _constant(node: NodeProto) -> Any:
    """The tensor of a Constant node, ``None`` for a form that stays opaque."""
    if len(node.attribute) != 1 or len(node.output) != 1 or not node.output[0]:
        return None
    a = node.attribute[0]
    if a.name == "value" and a.type == AttributeProto.TENSOR:
        return _tensor(a.t, None)
    arrays: dict[str, Any] = {
        "value_float": lambda: np.array(a.f, np.float32),
        "value_floats": lambda: np.array(a.floats, np.float32),
        "value_int": lambda: np.array(a.i, np.int64),
        "value_ints": lambda: np.array(a.ints, np.int64),
    }
    return tensor_of(arrays[a.name]()) if a.name in arrays else None


def _attribute(a: AttributeProto) -> Any:
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
        return _identify(_tensor(a.t, None))
    return Opaque(digest("attribute", a.SerializeToString(deterministic=True)), a)


def _opaque(
    node: NodeProto,
    functions: set[tuple[str, str]],
    attributes: Mapping[str, Any],
    operands: Iterable[Value],
    nodes: list[Node],
    values: Mapping[int, Value],
) -> str:
    """Why no rule may look at a node; empty for an ordinary one."""
    if (node.domain, node.op_type) in functions:
        return "model-local function"
    if node.domain not in _KNOWN_DOMAINS:
        return f"custom domain {node.domain}"
    if any(isinstance(v, Opaque) for v in attributes.values()):
        return "has a body" if node.op_type in ("If", "Loop", "Scan", "SequenceMap") else "unusual attribute"
    if node.op_type in _QUANTIZE:
        return "quantisation"
    if any(v.type.other is not None for v in operands) or node.op_type in _CONTAINERS:
        return "sequence, optional or map"
    return ""


def _guard_quantised(nodes: list[Node], values: dict[int, Value]) -> list[Node]:
    """Mark the neighbours of quantisation nodes opaque too: the runtime fuses the whole unit, which must stay whole."""
    made = {k: n for n in nodes for k in n.outputs if k is not None}
    quantised = {k for n in nodes if n.op == "QuantizeLinear" for k in n.inputs if k is not None}
    result: list[Node] = []
    for node in nodes:
        fed = any(made[k].op == "DequantizeLinear" for k in node.inputs if k in made)
        if not node.opaque and (fed or any(k in quantised for k in node.outputs)):
            node = Node(
                node.op, node.inputs, node.outputs, node.attributes, domain=node.domain, name=node.name,
                source=node.source, opaque="quantised neighbour", captures=node.captures, salt=node.salt, id=node.id,
            )  # fmt: skip
            for key in node.outputs:
                if key is not None:
                    values[key] = replace(values[key], const=False)
        result.append(node)
    return result
