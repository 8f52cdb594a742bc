"""A model as it was read: parsed, checked, and brought to the sizes that were asked for."""

from __future__ import annotations

import mmap
import stat
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from numbers import Integral
from pathlib import Path
from typing import Any

import onnx
import onnx.inliner
from google.protobuf.message import DecodeError
from onnx import FunctionProto, ModelProto, NodeProto, OperatorSetIdProto, TensorShapeProto

from graphopt.errors import ModelError, UnknownNameError, UnsupportedModelError, UsageError, expect, reason
from graphopt.ir.infer import called
from graphopt.ir.schema import RISKY, deadly
from graphopt.onnxio import wire
from graphopt.onnxio.bodies import every_node, graphs, with_inner
from graphopt.onnxio.initializers import attribute_of
from graphopt.wording import one_line

OLDEST_OPSET = 7
INLINE = 1024
"""Bytes; smaller initializers stay in the skeleton."""
STANDARD = ("", "ai.onnx")
ML, _HIDDEN = "ai.onnx.ml", "graphopt.hidden"
_RUNTIMES = ("ai.onnx", "com.microsoft", "com.ms")
"""How domains of operators begin that ONNX Runtime has kernels for."""
_MOST_INLINED = 1_000_000
"""Nodes that calls of functions may stand for: where each of twelve calls the next one ten times it is a million million, and ONNX's inference goes through all."""
_UPGRADED = 13
"""The first operator set with all axes as operands that have one today; beyond it the converter of the onnx package knows fewer operators."""


def upgraded(source: str | Path | ModelProto) -> str | Path | ModelProto:
    """A model of an old operator set, converted; any other as it is.

    Raises:
        ModelError: The model can't be read, or the onnx package can't convert it.
    """
    if not isinstance(source, ModelProto) and not Path(source).is_file():
        return source  # loading says it better
    try:
        known = source if isinstance(source, ModelProto) else onnx.load(source, load_external_data=False)
    except Exception:  # whatever protobuf says: loading says it better
        return source
    if not _too_old(known):
        return source
    version = _opset(known)
    name = "" if isinstance(source, ModelProto) else f"{source}: "
    try:
        whole = source if isinstance(source, ModelProto) else onnx.load(source)
        return _converted(whole)
    except Exception as error:  # the converter is C++ and raises what it likes
        what = one_line(str(error)) or type(error).__name__
        raise ModelError(f"{name}opset {version} can't be converted to {_UPGRADED}: {what}") from error


def _converted(proto: ModelProto) -> ModelProto:
    """A model of the standard operator set that others are brought to; what is of other domains, the converter does not see what it makes.

    It infers types, and of operators of ``ai.onnx.ml`` that may end the process (see :mod:`graphopt.onnxio.survivable`).
    """
    _rename(proto, ML, _HIDDEN)
    try:
        converted = onnx.version_converter.convert_version(proto, _UPGRADED)
    finally:
        _rename(proto, _HIDDEN, ML)  # it is the caller's, and too large for a copy
    _rename(converted, _HIDDEN, ML)
    return converted


def _rename(proto: ModelProto, old: str, new: str) -> None:
    """Call a domain of operators otherwise."""
    named: list[OperatorSetIdProto | NodeProto] = [*proto.opset_import]
    for graph in graphs(proto.graph):
        named.extend(graph.node)
    for each in named:
        if each.domain == old:
            each.domain = new


def read_model(source: str | Path | bytes | ModelProto, path: Path | None) -> ModelProto:
    """The skeleton of a model: without the bytes of its larger weights, which stay in the file."""
    if isinstance(source, ModelProto):
        proto = ModelProto()
        proto.CopyFrom(source)
        return proto
    if path is None:
        assert isinstance(source, bytes)
        return _parse(source)
    try:
        about = path.stat()
        if not stat.S_ISREG(about.st_mode) and not stat.S_ISDIR(about.st_mode):
            raise ModelError("is a pipe or a device, not a file", "copy it to a file first")
        with path.open("rb") as file:
            if about.st_size == 0:
                raise ModelError("the file is empty")
            with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as view:
                content = wire.skeleton(view, INLINE)
    except FileNotFoundError:
        raise ModelError("no such file") from None
    except IsADirectoryError:
        raise ModelError("is a directory, not a model file") from None
    except OSError as error:
        raise ModelError(f"can't be read: {reason(error)}") from error
    return _parse(content)


def _parse(content: bytes) -> ModelProto:
    try:
        return ModelProto.FromString(content)
    except DecodeError as error:
        raise ModelError("not an ONNX model, or a truncated one") from error


def validate(proto: ModelProto) -> None:
    """Refuse what is no model, or one of an operator set that nobody here knows."""
    if not proto.HasField("graph") or not (proto.ir_version or proto.opset_import):
        raise ModelError("not an ONNX model: it has no graph")
    # What is no UTF-8 comes out of protobuf as bytes.
    if not all(isinstance(text, str) for text in _texts(proto)):
        raise ModelError("not a valid ONNX model: a name in it is not UTF-8 text")
    version, newest = _opset(proto), onnx.defs.onnx_opset_version()
    if version > newest:
        raise UnsupportedModelError(
            f"opset {version} is newer than the newest known, {newest}", "upgrade onnx and onnxruntime"
        )
    if _too_old(proto):
        raise UnsupportedModelError(
            f"opset {version} is older than {OLDEST_OPSET}",
            "`graphopt optimize --upgrade` converts it, and so does onnx.version_converter.convert_version",
        )
    if not proto.graph.output:
        raise ModelError("the graph has no output")
    _survivable(proto)


def inlined(proto: ModelProto) -> ModelProto:
    """A model whose calls of local functions are the nodes of these, which is what the runtime runs.

    A function stays that is in a domain of the runtime's own (it may have a kernel of that name), that is written in another version of an
    operator set, that calls itself, or of which a caller leaves it open whether a default holds.

    Raises:
        ModelError: The calls are of more nodes than can be.
    """
    sizes = function_sizes(proto)
    calls = (_called(node) for graph in graphs(proto.graph) for node in graph.node)
    if sum(sizes.get(function, 0) for function in calls) > _MOST_INLINED:
        raise ModelError(f"its functions call each other so often that it has more than {_MOST_INLINED:,} nodes")
    _agree_on_versions(proto)
    versions = {o.domain: o.version for o in proto.opset_import}
    staying = {
        (f.domain, f.name)
        for f in proto.functions
        if _name(f) not in sizes
        or f.domain.startswith(_RUNTIMES)
        or f.domain == ""
        or any(versions.get(o.domain, o.version) != o.version for o in f.opset_import)
    }
    staying |= _left_open(proto)
    chosen = [name for name in dict.fromkeys((domain, name) for domain, name, _ in sizes) if name not in staying]
    _say_defaults(proto, chosen)
    try:
        return onnx.inliner.inline_selected_functions(proto, chosen) if chosen else proto
    except Exception:  # it is C++ and raises what it likes
        return proto


def _agree_on_versions(proto: ModelProto) -> None:
    """Give domains of nothing but local functions the model's version wherever they are imported: nothing depends on it, and exporters give each its own."""
    local = {_name(f) for f in proto.functions}
    meant = {node.domain for node in every_node(proto) if _called(node) not in local}
    versions = {o.domain: o.version for o in proto.opset_import if o.domain not in meant}
    for function in proto.functions:
        for imported in function.opset_import:
            imported.version = versions.get(imported.domain, imported.version)


def _left_open(proto: ModelProto) -> set[tuple[str, str]]:
    """The functions that others call with an attribute of their own that may be absent: the default holds then, which onnx's inliner forgets."""
    defaults = {_name(f): {a.name for a in f.attribute_proto} for f in proto.functions if f.attribute_proto}
    return {
        (node.domain, node.op_type)
        for f in proto.functions
        for node in with_inner(f.node if defaults else ())
        for a in node.attribute
        if a.ref_attr_name in f.attribute and a.name in defaults.get(_called(node), ())
    }


def _say_defaults(proto: ModelProto, chosen: Sequence[tuple[str, str]]) -> None:
    """Have each call of some local functions say the attributes that it leaves to their defaults, which onnx's inliner forgets."""
    defaults = {
        _name(f): f.attribute_proto for f in proto.functions if f.attribute_proto and (f.domain, f.name) in chosen
    }
    if not defaults:
        return
    for node in every_node(proto):
        said = {a.name for a in node.attribute}
        node.attribute.extend(a for a in defaults.get(_called(node), ()) if a.name not in said)


Function = tuple[str, str, str]
"""Domain, name and overload of a local function."""


def opsets_of(proto: ModelProto) -> dict[str, int]:
    """The versions of a model's operator sets by domain; ONNX's own is the empty one."""
    return {"" if o.domain in STANDARD else o.domain: o.version for o in proto.opset_import}


def function_sizes(proto: ModelProto) -> dict[Function, int]:
    """Of how many nodes a call of each local function is; those are absent that call themselves, if through others."""
    calls: dict[Function, list[Function]] = {}
    for function in proto.functions:
        calls.setdefault(_name(function), []).extend(map(_called, with_inner(function.node)))
    sizes: dict[Function, int] = {}
    while ready := [each for each in calls if each not in sizes and sizes.keys() >= calls.keys() & set(calls[each])]:
        sizes |= {each: sum(sizes.get(called, 1) for called in calls[each]) for each in ready}
    return sizes


def _name(function: FunctionProto) -> Function:
    return function.domain, function.name, function.overload


def _called(node: NodeProto) -> Function:
    return node.domain, node.op_type, node.overload


def _opset(proto: ModelProto) -> int:
    """Version of the standard operator set; 1 where a model names none."""
    return opsets_of(proto).get("", 1)


def _too_old(proto: ModelProto) -> bool:
    """Whether it has standard operators of a set from before :data:`OLDEST_OPSET`; models of other domains alone may name none."""
    return _opset(proto) < OLDEST_OPSET and any(n.domain in STANDARD for n in proto.graph.node)


def _survivable(proto: ModelProto) -> None:
    """Refuse nodes that end the process when ONNX infers their shapes, and forget dimensions that do: negative ones."""
    for node in every_node(proto):
        if node.op_type in RISKY:
            given = {a.name: attribute_of(a) for a in node.attribute}
            wrong = deadly(node.op_type, node.domain, given, len(node.output))
            if wrong:
                raise ModelError(f"node {node.name or ', '.join(node.output)!r}: {wrong}")
    for graph in graphs(proto.graph):
        for info in (*graph.input, *graph.output, *graph.value_info):
            for dim in info.type.tensor_type.shape.dim if info.type.HasField("tensor_type") else ():
                if dim.dim_value < 0:
                    dim.Clear()


def _texts(proto: ModelProto) -> Iterator[str]:
    """Whatever names something in a model."""
    yield from (o.domain for o in proto.opset_import)
    for function in proto.functions:
        yield from (function.domain, function.name, *function.input, *function.output, *function.attribute)
    yield from chain.from_iterable(map(_words, every_node(proto)))
    for graph in graphs(proto.graph):
        declared = [*graph.input, *graph.output, *graph.value_info]
        yield from (i.name for i in declared)
        yield from (t.name for t in graph.initializer)
        yield from (d.dim_param for i in declared for d in i.type.tensor_type.shape.dim)
        yield from (s.values.name for s in graph.sparse_initializer)


def _words(node: NodeProto) -> tuple[str, ...]:
    """Whatever names something in a node."""
    return (node.name, node.op_type, node.domain, *node.input, *node.output, *(a.name for a in node.attribute))


def freeze(proto: ModelProto) -> None:
    """Drop the inputs that are also initializers."""
    if proto.ir_version < 4:
        return  # initializers are constants already, and must be inputs all the same
    names = {t.name for t in proto.graph.initializer}
    kept = [i for i in proto.graph.input if i.name not in names]
    del proto.graph.input[:]
    proto.graph.input.extend(kept)


def specialise(proto: ModelProto, dims: Mapping[str, int], shapes: Mapping[str, Sequence[int]]) -> None:
    """Put numbers in place of symbols, everywhere that a declared type names them."""
    if not dims and not shapes:
        return
    for name, shape in shapes.items():
        expect(f"input_shapes: {name!r}", shape, (list, tuple), "a list of sizes")
    inputs = {i.name: i for i in proto.graph.input}
    bound = dict(dims)
    names = {called(i.name, *each) for i in proto.graph.input for each in enumerate(i.type.tensor_type.shape.dim)}
    for name in dims:
        if name not in names:
            raise UnknownNameError("dimension", name, filter(None, names))
    sizes: list[tuple[str, Any]] = [*dims.items(), *((name, size) for name, shape in shapes.items() for size in shape)]
    for name, size in sizes:
        if not isinstance(size, Integral) or size < 0:
            raise UsageError(f"{name!r}: a dimension can't be {size!r}")
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
        for axis, (dim, size) in enumerate(zip(declared, shape, strict=True)):
            symbol = called(name, axis, dim)
            if symbol is None and dim.dim_value != size:
                raise UsageError(f"input {name!r} has a fixed dimension {dim.dim_value}, not {size}")
            if symbol is not None and bound.setdefault(symbol, size) != size:
                raise UsageError(f"dimension {symbol!r} would be both {bound[symbol]} and {size}")
    for info in [*proto.graph.input, *proto.graph.output, *proto.graph.value_info]:
        for axis, dim in enumerate(info.type.tensor_type.shape.dim):
            symbol = called(info.name, axis, dim)
            if symbol in bound:
                dim.dim_value = bound[symbol]
