"""Types of the values of a model, as far as they can be believed."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping

from onnx import GraphProto, ModelProto, NodeProto, TensorProto, ValueInfoProto, helper, numpy_helper, shape_inference

from graphopt.ir.doubts import MISREAD, MISTAKEN, believed, doubtful_by_itself, read
from graphopt.ir.infer import attribute, dim_of, value_type
from graphopt.ir.types import BITS, DTYPE_NAMES, UNKNOWN, Dim, ValueType, dim_name, known, merge, product
from graphopt.onnxio.bodies import captured, every_node, graphs, put_in_order, within
from graphopt.onnxio.initializers import attribute_of
from graphopt.onnxio.read import STANDARD, function_sizes, opsets_of
from graphopt.onnxio.survivable import GUARDED, guard

_BOUNDS = 8  # elements of the bounds of a Slice
_STRETCHING = ("Einsum", "PRelu", "Attention")  # mistaken for some operands, whose shapes nobody knows in a body
_SIZED_BY_FLOATS = ("Range", "Resize", "Upsample")


def types_of(proto: ModelProto) -> dict[str, ValueType]:
    """Types of all values; what nobody can tell is absent."""
    types = _types(proto)
    symbols = {d for i in proto.graph.input for d in types[i.name].shape or () if isinstance(d, str)}
    return _trusted(proto, {name: _multiplied(type, symbols) for name, type in types.items()})


def _multiplied(type: ValueType, symbols: Container[Dim]) -> ValueType:
    """A type whose products of an input's sizes, which torch declares as ``4*batch``, are those that inference finds, too."""
    if not any(isinstance(d, str) and "*" in d for d in type.shape or ()):
        return type

    def read(dim: Dim) -> Dim:
        if not isinstance(dim, str) or dim in symbols:
            return dim
        parts = [part.strip() for part in dim.split("*")]
        if not all(part in symbols or part.isdecimal() for part in parts):
            return dim
        return product(part if part in symbols else int(part) for part in parts)

    return ValueType(type.dtype, tuple(map(read, type.shape or ())))


def _types(proto: ModelProto) -> dict[str, ValueType]:
    """Types of all values, by ONNX's own inference; what it can't tell is absent."""
    weights = {t.name: t for t in proto.graph.initializer}
    unnamed = [(at, *each) for at, info in enumerate(proto.graph.input) for each in unnamed_axes(info).items()]
    whole = ModelProto()
    whole.CopyFrom(proto)
    # What inference has not seen yet it takes for absent: the axes of a Slice, so that it cuts others.
    put_in_order(whole.graph)
    _dense(whole)
    _drop_endless_functions(whole)
    nodes = list(every_node(whole))
    version = opsets_of(proto).get("", 1)
    for node in nodes:
        if node.op_type in MISREAD and node.domain in STANDARD:
            _reread(node, version)
    if any(node.op_type in GUARDED for node in nodes):
        guard(whole)
    # Of an initializer that is an output inference believes what the output declares: without a shape, a Slice by it is wrong.
    for output in whole.graph.output:
        if output.name in weights:
            tensor = weights[output.name]
            output.CopyFrom(helper.make_tensor_value_info(output.name, tensor.data_type, tensor.dims))
    # What has no name can't be followed: a dimension of an input is called as it is where inputs are made up.
    called: dict[str, str] = {}
    for at, axis, name in unnamed:
        dim = whole.graph.input[at].type.tensor_type.shape.dim[axis]
        dim.dim_param = called.setdefault(str(dim_of(dim) or name), name)
    # What is inferred of the others does not replace a name that says nothing.
    for info in [*whole.graph.value_info, *whole.graph.output]:
        for dim in info.type.tensor_type.shape.dim:
            if not known(dim_of(dim)):
                dim.Clear()
    inner, outputs = _contradicted(whole)
    if inner:
        whole.graph.ClearField("value_info")
    for output in whole.graph.output:
        if output.name in outputs:
            output.type.tensor_type.ClearField("shape")
    g = _inferred(whole)
    # `extract_model` tells of its inputs in both.
    found = {i.name: value_type(i.type) for i in [*g.value_info, *g.input]}
    for i in g.output:
        type = value_type(i.type)
        found[i.name] = merge(found[i.name], type) or type if i.name in found else type
    return found


def _drop_endless_functions(proto: ModelProto) -> None:
    """Keep functions that call themselves from inference: before onnx 1.22 it follows them until the process ends."""
    sizes = function_sizes(proto)
    kept = [f for f in proto.functions if (f.domain, f.name, f.overload) in sizes]
    if len(kept) < len(proto.functions):
        del proto.functions[:]
        proto.functions.extend(kept)


def _reread(node: NodeProto, version: int) -> None:
    """Give a node the attributes of which inference makes what the runtime does of its own."""
    given = {a.name: attribute_of(a) for a in node.attribute}
    wanted = read(node.op_type, "", given)
    kept = [a for a in node.attribute if wanted.get(a.name) == given[a.name]]
    made = [
        attribute(node.op_type, "", version, n, v) for n, v in wanted.items() if v is not None and given.get(n) != v
    ]
    if made or len(kept) < len(given):
        del node.attribute[:]
        node.attribute.extend([*kept, *made])


def _dense(proto: ModelProto) -> None:
    """Tell inference of weights that are sparse as of any others: the shape of those it takes for none, so that what stretches over them has a wrong one."""
    for place, graph in enumerate(list(graphs(proto.graph))):
        told = graph.value_info if place else graph.input
        told.extend(
            helper.make_tensor_value_info(s.values.name, s.values.data_type, s.dims) for s in graph.sparse_initializer
        )
        graph.ClearField("sparse_initializer")


def _inferred(proto: ModelProto) -> GraphProto:
    """A graph with what follows from it by ONNX's own inference."""
    try:
        return shape_inference.infer_shapes(proto, data_prop=True).graph
    except Exception:
        # It gives up on some valid models (unknown operators in bodies); the declared types remain.
        return proto.graph


def _contradicted(proto: ModelProto) -> tuple[bool, set[str]]:
    """Whether what a model declares of its inner values contradicts what follows from its inputs, and the outputs of which that is so.

    Who gives an input another size, or a symbol in place of one, often leaves the others as they were; and ONNX and the runtime believe them.
    """
    bare = ModelProto()
    bare.CopyFrom(proto)
    bare.graph.ClearField("value_info")
    weights = {t.name for t in proto.graph.initializer}
    for output in bare.graph.output:
        if output.name not in weights and output.type.HasField("tensor_type"):
            output.type.tensor_type.ClearField("shape")
    g = _inferred(bare)
    follows = {i.name: value_type(i.type) for i in [*g.value_info, *g.output]}
    symbols = {d for i in g.input for d in value_type(i.type).shape or () if isinstance(d, str)}

    def wrong(info: ValueInfoProto) -> bool:
        return contradicts(value_type(info.type), follows.get(info.name, UNKNOWN), symbols)

    return any(map(wrong, proto.graph.value_info)), {i.name for i in proto.graph.output if wrong(i)}


def contradicts(declared: ValueType, follows: ValueType, symbols: Container[Dim]) -> bool:
    """Whether a declared shape is another than the one that follows from the inputs; ``symbols``, those of the inputs, stand for any size."""
    a, b = declared.shape, follows.shape
    if a is None or b is None:
        return False
    return len(a) != len(b) or any(
        isinstance(x, int) and (y in symbols or (isinstance(y, int) and x != y)) for x, y in zip(a, b, strict=True)
    )


def unnamed_axes(info: ValueInfoProto) -> dict[int, str]:
    """The axes of an input of which a model tells neither a size nor a name that someone chose, and what they are called here."""
    dims = value_type(info.type).shape or ()
    return {axis: dim_name(info.name, axis) for axis, dim in enumerate(dims) if not known(dim)}


def _trusted(proto: ModelProto, types: dict[str, ValueType]) -> dict[str, ValueType]:
    """Types without what follows from an inference that the runtime does not share (see :mod:`graphopt.ir.doubts`).

    The runtime does not believe the content of a tensor that a caller may replace, either. Of values that depend on such a node only the dtype is kept, whatever the file declares: the
    exporter asked the same inference. :func:`graphopt.ir.simplify.simplify` infers their shapes anew, node by node.
    """
    versions = opsets_of(proto)
    contents = _small_integers(proto) if any(node.op_type == "Slice" for node in proto.graph.node) else {}
    weights = {t.name: ValueType(DTYPE_NAMES.get(t.data_type), tuple(t.dims)) for t in proto.graph.initializer}
    told = {**types, **weights}
    sizes = overridable(proto)
    doubted = {
        name
        for node in proto.graph.node
        if _mistaken(node, told, versions, contents)
        or _sized(node, told, sizes)
        or _narrowed(node, told)
        or _squeezed(node, told)
        or _mistaken_within(node, versions)
        for name in node.output
    }
    before = 0
    while len(doubted) > before:  # once for a model whose nodes are in order
        before = len(doubted)
        for node in proto.graph.node:
            if not doubted.isdisjoint(node.input) or not doubted.isdisjoint(captured(node)):
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


def overridable(proto: ModelProto) -> set[str]:
    """The initializers that a caller may replace: before IR version 4 every one is an input, and a constant all the same."""
    inputs = {i.name for i in proto.graph.input} if proto.ir_version >= 4 else set()
    return {t.name for t in proto.graph.initializer if t.name in inputs}


def _sized(node: NodeProto, types: Mapping[str, ValueType], names: Iterable[str]) -> bool:
    """Whether an operand may decide on a shape that is one of some names: integers, and the floats of some operators."""
    return any(
        len(types[name].shape or ()) < 2 and (types[name].dtype in ("i64", "i32") or node.op_type in _SIZED_BY_FLOATS)
        for name in set(names).intersection(node.input)
    )


def _narrowed(node: NodeProto, types: Mapping[str, ValueType]) -> bool:
    """Whether sizes become truths or numbers of few bits: what follows from them ONNX infers from the sizes themselves."""
    if node.op_type != "Cast" or node.domain not in STANDARD or not node.input or not node.output:
        return False
    before, after = types.get(node.input[0], UNKNOWN), types.get(node.output[0], UNKNOWN)
    return before.dtype in ("i64", "i32") and len(before.shape or ()) < 2 and BITS.get(after.dtype or "", 64) < 32


def _squeezed(node: NodeProto, types: Mapping[str, ValueType]) -> bool:
    """Whether a Squeeze takes out whatever is of length 1, which sizes that are open may be: torch declares what it saw at others."""
    if node.op_type != "Squeeze" or node.domain not in STANDARD or not node.input:
        return False
    shape = types.get(node.input[0], UNKNOWN).shape
    return (
        not any(node.input[1:])
        and all(a.name != "axes" for a in node.attribute)
        and (shape is None or not all(isinstance(d, int) for d in shape))
    )


def _mistaken(
    node: NodeProto,
    types: Mapping[str, ValueType],
    versions: Mapping[str, int],
    contents: Mapping[str, tuple[int, ...]],
) -> bool:
    domain = "" if node.domain == "ai.onnx" else node.domain
    if node.op_type not in MISTAKEN or domain:
        return False
    attributes = {a.name: attribute_of(a) for a in node.attribute}
    operands, made = [types.get(n) for n in node.input], tuple(types.get(n, UNKNOWN) for n in node.output)
    held = [contents.get(n) for n in node.input]
    return believed(node.op_type, domain, versions.get(domain, 1), attributes, operands, held, made) != made


def _mistaken_within(node: NodeProto, versions: Mapping[str, int]) -> bool:
    """Whether a body holds a node of which ONNX may infer what the runtime does not make: its outputs have what that infers."""
    version = versions.get("", 1)
    return any(
        inner.op_type in _STRETCHING
        or doubtful_by_itself(inner.op_type, "", version, {a.name: attribute_of(a) for a in inner.attribute})
        for inner in within(node)
        if inner.op_type in MISTAKEN and inner.domain in STANDARD
    )


def _dtype_alone(type: ValueType) -> ValueType:
    if type.other is not None or type.shape is None:
        return type
    return ValueType(type.dtype)
