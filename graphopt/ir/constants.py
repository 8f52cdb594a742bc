"""Constants that no file holds: arrays that a rule or the engine made, and the bytes of lazy ones; and what is known of results before they are one.

A rule that merges two weights adds a Concat of two constants. The search only needs its shape; here, when a model is
measured or saved, it becomes an array. The runtime computes it (:mod:`graphopt.ir.kernels`), as it would have computed the node:
other implementations of ONNX differ from it for some operators and operator sets. One session does many constants.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from onnx import NodeProto, TensorProto, helper

from graphopt.ir import kernels, ops
from graphopt.ir.agreement import Below, disagreement
from graphopt.ir.content import LIMIT, Content, content
from graphopt.ir.delta import RefusedError
from graphopt.ir.graph import QUANTISATION, UNIT, Graph, Node, Tensor, Value
from graphopt.ir.infer import InferenceError, infer, make_node, refined, shape_data
from graphopt.ir.memo import Memo
from graphopt.ir.schema import complaint
from graphopt.ir.tensors import InMemory, to_tensor_proto
from graphopt.ir.types import BITS, BY_NAME, DTYPES, NUMPY_NAMES, UNKNOWN, Array, ValueType, digest

SMALL = 1 << 16  # bytes; constants up to this size may be read by any of a rule's conditions
READABLE = 1 << 23  # bytes; up to this size min_of and its like look at a constant, so it is known by its whole content
_BATCH = 1 << 26  # bytes of results of one session
_INLINE = 1 << 10  # bytes; what is larger is read where it lies, what is smaller some kernels want to know beforehand


class NotConstantError(Exception):
    """The value depends on the model's inputs, or the runtime has no kernel for an operator on its way."""


class NotYetKnownError(NotConstantError):
    """The graph does not know enough of what the value is computed from: an equal graph may know more."""


class ArrayData:
    """Bytes of a constant that a rule or the engine made.

    Args:
        array: The content.
        meant: The number that it stands for, where the rule says so: 0.1 is none of the numbers of a float16.
    """

    def __init__(self, array: Array, meant: float | None = None) -> None:
        self._array, self.meant = array, meant

    @property
    def nbytes(self) -> int:
        """Size in bytes."""
        return int(self._array.nbytes)

    def numpy(self) -> Array:
        """The array itself."""
        return self._array


def tensor_of(array: Array, meant: float | None = None) -> Tensor:
    """A tensor known by its content; ``meant`` as in :class:`ArrayData`.

    Raises:
        RefusedError: ONNX has no such dtype.
    """
    row = BY_NAME.get(array.dtype.name)
    if row is None or not (row.native and row.bits):
        raise RefusedError(f"no ONNX dtype for {array.dtype}")
    key = digest("tensor", row.short, array.shape, array.tobytes())
    return Tensor(key, ValueType(row.short, tuple(array.shape)), ArrayData(array, meant))


_small: Memo[tuple[int, int, int], Array | None] = Memo()


def evaluate(graph: Graph, key: int, memo: Mapping[int, Array] | None = None) -> Array:
    """The content of a constant value.

    Args:
        graph: Where the value lives.
        key: The value.
        memo: Contents that are known, by key.

    Raises:
        NotConstantError: It is not constant or can't be computed.
    """
    known = memo or {}
    return known[key] if key in known else _run(graph, [key], known)[key]


def evaluate_all(graph: Graph, keys: Iterable[int], memo: Mapping[int, Array] | None = None) -> dict[int, Array]:
    """The contents of constant values; of those that can be computed.

    Args:
        graph: Where the values live.
        keys: The values.
        memo: Contents that are known, by key.
    """
    known = memo or {}
    found: dict[int, Array] = {}
    batch, size = list[int](), 0
    for key in keys:
        n = graph.type(key).nbytes or 0
        if batch and size + n > _BATCH:
            found |= _attempt(graph, batch, known)
            batch, size = [], 0
        batch.append(key)
        size += n
    return found | _attempt(graph, batch, known)


def _attempt(graph: Graph, keys: list[int], memo: Mapping[int, Array]) -> dict[int, Array]:
    """The contents of those values that can be computed: what one node spoils is halved until it stands alone."""
    if not keys:
        return {}
    try:
        return _run(graph, keys, memo)
    except NotConstantError:
        middle = len(keys) // 2
        return _attempt(graph, keys[:middle], memo) | _attempt(graph, keys[middle:], memo) if middle else {}


def _run(graph: Graph, keys: list[int], memo: Mapping[int, Array]) -> dict[int, Array]:
    """The contents of constant values, by one session."""
    nodes, leaves = _cone(graph, keys, memo)
    for node in nodes:
        _check_division(graph, node, memo)
    wanted = [key for key in dict.fromkeys(keys) if key not in leaves]
    found = {key: leaves[key] for key in keys if key in leaves}
    if not wanted:
        return found
    names = {key: f"v{i}" for i, key in enumerate(leaves)}
    protos: list[NodeProto] = []
    for i, node in enumerate(nodes):
        names.update({key: f"n{i}_{j}" for j, key in enumerate(node.outputs) if key is not None})
        protos.append(_proto(graph, node, names, i))
    inline = {key for key, array in leaves.items() if _is_inline(array)}
    inputs = [
        helper.make_tensor_value_info(names[key], BY_NAME[array.dtype.name].code, array.shape)
        for key, array in leaves.items()
        if key not in inline
    ]
    proto = helper.make_model(
        helper.make_graph(
            protos,
            "constants",
            inputs,
            [_declared(graph, key, names[key]) for key in wanted],
            [_inline(leaves[key], names[key]) for key in leaves if key in inline],
        ),
        opset_imports=[helper.make_opsetid(domain, version) for domain, version in graph.opsets.items()],
        ir_version=8,
    )
    try:
        results = kernels.run(
            proto.SerializeToString(), {names[key]: array for key, array in leaves.items() if key not in inline}
        )
    except kernels.KernelError as error:
        raise NotConstantError(str(error)) from error
    for key, array in zip(wanted, results, strict=True):
        type = graph.type(key)
        if not isinstance(array, np.ndarray) or (type.static and array.shape != type.shape):
            raise NotConstantError(f"{graph.values[key].name}: not of the inferred shape")
        found[key] = array
    return found


def _cone(graph: Graph, keys: Iterable[int], memo: Mapping[int, Array]) -> tuple[list[Node], dict[int, Array]]:
    """The nodes that compute some constants, operands first, and the contents that they start from."""
    nodes: dict[int, Node] = {}
    leaves: dict[int, Array] = {}
    stack = [(key, False) for key in keys]
    while stack:
        key, ready = stack.pop()
        if key in leaves:
            continue
        value = graph.values[key]
        if key in memo:
            leaves[key] = memo[key]
        elif value.tensor is not None:
            leaves[key] = value.tensor.numpy()
        elif not value.const or value.producer is None:
            raise NotYetKnownError(value.name)
        elif value.producer in nodes:
            continue
        else:
            node = graph.nodes[value.producer]
            if _shape_only(node):
                leaves[key] = _shape(graph, node)
            elif ready:
                nodes[node.id] = node
            else:
                stack.append((key, True))
                stack.extend((k, False) for k in node.inputs if k is not None)
    return list(nodes.values()), leaves


def _check_division(graph: Graph, node: Node, memo: Mapping[int, Array]) -> None:
    """Whole numbers that can't be divided end the process inside the runtime: they are left alone."""
    if node.op not in ("Div", "Mod") or node.domain or len(node.inputs) != 2 or None in node.inputs:
        return
    (over, under), dtype = node.inputs, graph.type(node.outputs[0]).dtype if node.outputs[0] is not None else None
    assert over is not None and under is not None
    if dtype is None or dtype[0] not in "iu":
        return
    divisor = evaluate(graph, under, memo)
    if not divisor.all():
        raise NotConstantError(f"{node.op}: division by zero")
    if dtype[0] == "i" and (divisor == -1).any():
        dividend = evaluate(graph, over, memo)
        if (dividend == np.iinfo(dividend.dtype).min).any():
            raise NotConstantError(f"{node.op}: the result does not fit {dtype}")


def _proto(graph: Graph, node: Node, names: Mapping[int, str], index: int) -> NodeProto:
    ins = ["" if key is None else names[key] for key in node.inputs]
    # An output that nothing reads has a name all the same: not every operator may leave one out.
    outs = [f"n{index}_{j}" if key is None else names[key] for j, key in enumerate(node.outputs)]
    try:
        return make_node(node.op, node.domain, graph.opsets.get(node.domain, 1), ins, outs, node.attributes)
    except (TypeError, ValueError) as error:
        raise NotConstantError(f"{node.op}: {error}") from error


def _is_inline(array: Array) -> bool:
    """Whether a constant goes into the model; of numpy's own types only small ones do."""
    return array.nbytes <= _INLINE or array.dtype.name not in NUMPY_NAMES.values()


def _inline(array: Array, name: str) -> TensorProto:
    dense = np.ascontiguousarray(array).reshape(array.shape)
    return to_tensor_proto(InMemory(dense), name)


def _declared(graph: Graph, key: int, name: str) -> Any:
    """A result as the model declares it; the runtime infers what is not said here."""
    type = graph.type(key)
    if type.dtype is None:
        return helper.make_empty_tensor_value_info(name)
    return helper.make_tensor_value_info(name, DTYPES[type.dtype], None)


def _shape_only(node: Node) -> bool:
    return node.op in ops.OF_SHAPES and node.domain == ""


def _shape(graph: Graph, node: Node) -> Array:
    key = node.inputs[0]
    shape = graph.type(key).shape if key is not None else None
    if shape is None:
        raise NotYetKnownError(node.name)
    if node.op == "Shape":
        shape = shape[slice(node.attributes.get("start", 0), node.attributes.get("end"))]
    sizes = [d for d in shape if isinstance(d, int)]
    if len(sizes) != len(shape):
        raise NotYetKnownError(node.name)
    return np.array(sizes if node.op == "Shape" else math.prod(sizes), dtype=np.int64)


def small_array(graph: Graph, key: int | None) -> Array | None:
    """The content of a constant of at most :data:`SMALL` bytes, ``None`` for anything else (memoised by origin and key)."""
    if key is None:
        return None
    value = graph.values[key]
    if not value.const:
        return None
    n = value.type.nbytes
    if n is None or n > SMALL:
        return None
    slot = _slot(graph, value)
    if slot not in _small:
        try:
            followed = _followed(graph, value)
            _small[slot] = evaluate(graph, key) if followed is None else followed
        except NotYetKnownError:
            return None  # keys are those of all equal graphs: one that knows more, as a simplified one does, asks again
        except NotConstantError:
            _small[slot] = None
    return _small[slot]


def _slot(graph: Graph, value: Value) -> tuple[int, int, int]:
    return (graph.origin, value.key, 0 if value.tensor is None else value.tensor.key)


def readable_array(graph: Graph, key: int) -> Array | None:
    """The content of a constant of at most :data:`READABLE` bytes, ``None`` for anything else; computed each time."""
    n = graph.type(key).nbytes
    if not graph.is_const(key) or n is None or n > READABLE:
        return None
    try:
        return evaluate(graph, key)
    except NotConstantError:
        return None


def _followed(graph: Graph, value: Value) -> Array | None:
    """A small integer constant by shape arithmetic, where that knows it: opening a session takes a hundred times as long."""
    type = value.type
    if value.producer is None or type.dtype not in ("i64", "i32") or not type.static or (type.elements or 0) > LIMIT:
        return None
    node = graph.nodes[value.producer]
    if node.domain or node.outputs[:1] != (value.key,):
        return None
    operands = [None if k is None else graph.values[k] for k in node.inputs]
    # Only what is known already: a chain of any length is one session.
    at_hand = (
        v is None or v.tensor is not None or _slot(graph, v) in _small or node.op in ops.OF_SHAPES for v in operands
    )
    if not all(at_hand):
        return None
    known = [None if v is None else known_content(graph, v.key) for v in operands]
    found = content(node.op, node.attributes, [None if v is None else v.type for v in operands], known, type)
    limit = 1 << (BITS[type.dtype] - 1)
    if found is None or not all(isinstance(d, int) and -limit <= d < limit for d in found):
        return None
    return np.array(found, NUMPY_NAMES[type.dtype]).reshape(tuple(int(str(d)) for d in type.shape or ()))


def known_of(
    view: Graph, node: Node, outputs: Sequence[Value | None], opsets: Mapping[str, int]
) -> tuple[bool, list[ValueType], Content | None]:
    """Whether a node's outputs are constant, their types and the first one's elements.

    Args:
        view: Where the operands are.
        node: The node.
        outputs: What is known of its outputs so far, ``None`` for one that is left out.
        opsets: Operator-set version by domain.
    """
    declared = [UNKNOWN if v is None else v.type for v in outputs]
    unit = node.opaque in (QUANTISATION, UNIT)  # operators like any other, but that what they make stays as it is
    if (node.opaque or node.salt) and not unit:
        return any(v is not None and v.const for v in outputs), declared, None
    operands = [None if k is None else view.values[k] for k in node.inputs]
    const = (
        any(v is not None and v.const for v in outputs)
        if unit
        else all(v is None or v.const for v in operands)
        and ops.pure(node.op, node.domain, node.attributes, len(node.inputs))
    )
    if node.op in ops.OF_SHAPES and operands and operands[0] is not None:
        const = const or operands[0].type.static
    types = [None if v is None else v.type for v in operands]
    known = [known_content(view, k) for k in node.inputs]
    if not all(t.static for v, t in zip(outputs, declared, strict=True) if v is not None):
        data = shape_operands(view, node.op, node.inputs)
        version = opsets.get(node.domain, 1)
        try:
            found = infer(node.op, node.domain, version, node.attributes, types, data, len(node.outputs), known)
        except InferenceError:
            return const, declared, None
        declared = [refined(a, b) for a, b in zip(declared, found, strict=True)]
    if node.domain or not declared:
        return const, declared, None
    return const, declared, content(node.op, node.attributes, types, known, declared[0])


def typed(
    view: Graph,
    op: str,
    domain: str,
    attributes: Mapping[str, Any],
    inputs: Sequence[int | None],
    n: int,
    granted: Below | None,
) -> tuple[tuple[ValueType, ...], Content | None]:
    """Types of the ``n`` outputs of a new node, and what is known of the elements of the first.

    Args:
        view: Where the operands are.
        op: Operator type.
        domain: Its domain.
        attributes: Attribute values.
        inputs: Keys of the operands.
        n: Number of outputs.
        granted: What the node may take for granted about dimensions; ``None`` for any.

    Raises:
        RefusedError: It contradicts the schema, or asks for more than is granted.
    """
    types = [None if k is None else view.values[k].type for k in inputs]
    data = shape_operands(view, op, inputs)
    known = [known_content(view, k) for k in inputs]
    version = view.opsets.get(domain, 1)
    given = [name for name, value in attributes.items() if value is not None]
    wrong = complaint(op, domain, version, given, [None if t is None else t.dtype or "" for t in types])
    if wrong := wrong or disagreement(op, domain, version, attributes, types, granted):
        raise RefusedError(wrong)
    try:
        found = infer(op, domain, version, attributes, types, data, n, known)
    except InferenceError as error:
        raise RefusedError(str(error)) from error
    return found, None if domain or not found else content(op, attributes, types, known, found[0])


def known_content(graph: Graph, key: int | None) -> Content | None:
    """What is known of the elements of a small integer vector or number, constant or not."""
    if key is None:
        return None
    value, type = graph.values[key], graph.values[key].type
    if not value.const or type.dtype == "f32" or not shape_data(type) or (type.elements or 0) > LIMIT:
        return value.content
    if value.tensor is None and len(type.shape or ()) > 1:
        return value.content  # no shape, so not worth being computed
    array = small_array(graph, key)
    return value.content if array is None else tuple(array.ravel().tolist())


def shape_operands(graph: Graph, op: str, inputs: Sequence[int | None]) -> list[Array | None]:
    """What is given to the inference of an operator: its operands that may steer a shape, the floats of a Range among them."""
    floats = op == "Range" and all(k is not None and graph.type(k).dtype in ("f32", "f64") for k in inputs)
    if not floats or len(inputs) != 3:
        return [_shape_operand(graph, key) for key in inputs]
    start, limit, delta = bounds = [small_array(graph, key) for key in inputs]
    if start is None or limit is None or delta is None or not start.size == limit.size == delta.size == 1:
        return [None, None, None]
    # ONNX subtracts as double, the runtime in the type itself: rounded, that may be a step more or less.
    exact = limit.item() - start.item() == (limit - start).item()
    return bounds if exact else [None, None, None]


def _shape_operand(graph: Graph, key: int | None) -> Array | None:
    """What is given to the inference of an operand that may steer a shape: its content, constant or followed to numbers."""
    if key is None:
        return None
    value = graph.values[key]
    if not shape_data(value.type):
        return None
    if value.const:
        return small_array(graph, key)
    known, shape = value.content, value.type.shape
    if known is None or not all(isinstance(d, int) for d in known) or value.type.elements != len(known):
        return None
    return np.array(known, NUMPY_NAMES[str(value.type.dtype)]).reshape(tuple(int(str(d)) for d in shape or ()))
