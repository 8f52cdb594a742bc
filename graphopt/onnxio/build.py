"""From the nodes of a model to those of a graph."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from onnx import GraphProto, ModelProto, NodeProto

from graphopt.errors import ModelError
from graphopt.ir import ops
from graphopt.ir.agreement import MISTAKEN_SLICE
from graphopt.ir.graph import (
    QUANTISATION,
    QUANTISING,
    UNIT,
    Graph,
    Node,
    Opaque,
    Value,
    build,
    expression_id,
    output_key,
)
from graphopt.ir.infer import value_type
from graphopt.ir.tensors import Constant
from graphopt.ir.types import UNKNOWN, ValueType, digest
from graphopt.onnxio.bodies import CONTROL, HAS_BODY, captured, order_of, within
from graphopt.onnxio.declared import overridable, types_of, unnamed_axes
from graphopt.onnxio.initializers import attribute_of, constant_of, identify
from graphopt.onnxio.read import STANDARD, opsets_of

_CONTROL = (*CONTROL, "SequenceMap")
_SEEN_THROUGH = ("Identity", "Dropout")  # by the runtime, which takes them away before it fuses units
_CONTAINERS = (
    "SequenceConstruct", "SequenceEmpty", "SplitToSequence", "ConcatFromSequence", "Optional", "OptionalGetElement",
    "OptionalHasElement", "ZipMap", "DictVectorizer", "CastMap",
)  # fmt: skip


def graph_of(proto: ModelProto, tensors: Mapping[str, Constant]) -> Graph:
    """The graph of a model.

    Args:
        proto: The model.
        tensors: Tensor of each initializer.

    Raises:
        ModelError: A value is defined twice or by nothing, or there is a cycle.
    """
    made = _Builder(proto, tensors)
    for index, place in enumerate(order_of(proto.graph)):
        made.add(index, proto.graph.node[place])
    nodes = _guard_quantised(made.nodes, made.values)
    outputs: list[tuple[str, int]] = []
    for info in proto.graph.output:
        if info.name not in made.scope:
            raise ModelError(f"output {info.name!r} is defined by nothing")
        outputs.append((info.name, made.scope[info.name]))
    opsets = opsets_of(proto)
    opsets.setdefault("com.microsoft", 1)
    return build(nodes, made.values, tuple(made.inputs), tuple(outputs), opsets)


class _Builder:
    """The graph as far as it has been made.

    Args:
        proto: The model.
        tensors: Tensor of each initializer.

    Attributes:
        values: By key.
        scope: Key of each value, by name.
        inputs: Keys of the inputs.
        nodes: In order.
    """

    def __init__(self, proto: ModelProto, tensors: Mapping[str, Constant]) -> None:
        self.values: dict[int, Value] = {}
        self.scope: dict[str, int] = {}
        self.inputs: list[int] = []
        self.nodes: list[Node] = []
        self._types = types_of(proto)
        self._fragile = _mistakes_slices(proto, self._types)
        self._functions = {(f.domain, f.name) for f in proto.functions}
        self._seen: set[int] = set()
        self._source = g = proto.graph
        defaults = overridable(proto)
        sparse_ones = {sparse.values.name for sparse in g.sparse_initializer}  # the runtime lets nobody replace them
        for info in g.input:
            if info.name in sparse_ones or (info.name in tensors and info.name not in defaults):
                continue
            type = self._types.get(info.name, value_type(info.type))
            key = digest("input", info.name, str(type))
            self._define(info.name, Value(key, info.name, type, default=info.name in defaults))
            self.inputs.append(self.scope[info.name])
        for name, tensor in tensors.items():
            if name in self.scope:
                continue
            data = identify(tensor)
            self._define(name, Value(digest("init", name, data.key), name, data.type, True, data))
        for sparse in g.sparse_initializer:
            name = sparse.values.name
            self._define(name, Value(digest("sparse", name), name, UNKNOWN))
            self.inputs.append(self.scope[name])

    def add(self, index: int, source: NodeProto) -> None:
        """Add the node that comes next, ``index`` being its place."""
        captures = tuple(sorted(captured(source)))
        scope, values = self.scope, self.values
        try:
            ins = tuple(scope[i] if i else None for i in source.input) + tuple(scope[c] for c in captures)
        except KeyError as error:
            raise ModelError(f"node {source.name or source.op_type!r} reads {error}, which nothing defines") from None
        if source.op_type == "Constant" and source.domain in STANDARD:
            data = constant_of(source)
            if data is not None:
                name = source.output[0]
                self._define(name, Value(digest("init", name, data.key), name, data.type, True, data))
                return
        domain = "" if source.domain == "ai.onnx" else source.domain
        attributes = ops.plain(source.op_type, domain, {a.name: attribute_of(a) for a in source.attribute})
        why = _opaque(source, self._functions, attributes, [values[k] for k in ins if k is not None]) or self._fragile
        pure = not why and ops.pure(source.op_type, domain, attributes, len(source.input))
        while ins and ins[-1] is None:
            ins = ins[:-1]
        node_id = expression_id(source.op_type, domain, attributes, ins)
        salt = index + 1 if not pure or node_id in self._seen else 0
        if salt:
            node_id = expression_id(source.op_type, domain, attributes, ins, salt)
        self._seen.add(node_id)
        const = pure and all(values[k].const for k in ins if k is not None)
        if source.op_type in ops.OF_SHAPES and pure and ins and ins[0] is not None:
            const = const or values[ins[0]].type.static
        outs = tuple(output_key(node_id, i) if name else None for i, name in enumerate(source.output))
        for key, name in zip(outs, source.output, strict=True):
            if key is not None:
                self._define(name, Value(key, name, self._types.get(name, UNKNOWN), const, None, node_id))
        self.nodes.append(
            Node(
                source.op_type,
                ins,
                outs,
                attributes,
                domain=domain,
                name=source.name,
                source=source,
                opaque=why,
                captures=captures,
                salt=salt,
                id=node_id,
            )
        )

    def _define(self, name: str, value: Value) -> None:
        if name in self.scope:
            who = " and by ".join(_definers(self._source, name))
            raise ModelError(f"value {name!r} is defined twice: by {who}")
        self.scope[name] = value.key
        self.values[value.key] = value


def _definers(graph: GraphProto, name: str) -> list[str]:
    """Whatever defines a value in a graph, in its order."""
    found = ["an input" for each in graph.input if each.name == name]
    found += ["a weight" for each in graph.initializer if each.name == name]
    for number, node in enumerate(graph.node):
        label = repr(node.name) if node.name else f"number {number + 1}"
        found += [f"node {label} ({node.op_type})" for output in node.output if output == name]
    return found


def _opaque(
    node: NodeProto,
    functions: set[tuple[str, str]],
    attributes: Mapping[str, Any],
    operands: Iterable[Value],
) -> str:
    """Why no rule may look at a node; empty for an ordinary one."""
    if (node.domain, node.op_type) in functions:
        return "model-local function"
    if not ops.known_domain(node.domain):
        return f"custom domain {node.domain}"
    if any(isinstance(v, Opaque) for v in attributes.values()):
        if node.op_type not in _CONTROL or node.domain not in STANDARD:
            return "unusual attribute"
        calls = {(n.domain, n.op_type) for n in within(node)}
        return HAS_BODY if calls.isdisjoint(functions) else "has a body that calls functions"
    if node.op_type in QUANTISING:
        return QUANTISATION
    if any(v.type.other is not None for v in operands) or node.op_type in _CONTAINERS:
        return "sequence, optional or map"
    return ""


def _mistakes_slices(proto: ModelProto, types: Mapping[str, ValueType]) -> str:
    """Why no rule may look at any node of a model; empty for most.

    At operator set 10 the runtime takes a cut symbol for the same size, and gives the result of a Slice the memory of something of that
    size, if there is any by then. Whether there is depends on everything else in the graph.
    """
    if not any(o.version == 10 for o in proto.opset_import if o.domain in STANDARD):
        return ""
    cut = [
        types.get(n.input[0], UNKNOWN)
        for n in proto.graph.node
        if n.op_type == "Slice" and n.domain in STANDARD and n.input
    ]
    open_ones = [type for type in cut if not type.static]
    fed = [types.get(i.name, UNKNOWN) for i in proto.graph.input] if open_ones else []
    ours = {name for i in proto.graph.input for name in unnamed_axes(i).values()}  # the runtime has no such symbols
    symbols = any(isinstance(d, str) and d not in ours for type in (*open_ones, *fed) for d in type.shape or ())
    return MISTAKEN_SLICE if symbols else ""


def _guard_quantised(nodes: list[Node], values: dict[int, Value]) -> list[Node]:
    """Mark the neighbours of quantisation nodes opaque too: the runtime fuses the whole unit, which must stay whole."""
    loose, tied = set[int | None](), set[int | None]()
    for node in nodes:
        if node.op == "DequantizeLinear" or (node.op in _SEEN_THROUGH and not loose.isdisjoint(node.inputs)):
            loose.update(node.outputs)
    for node in reversed(nodes):
        if node.op == "QuantizeLinear":
            # A scale that is computed is as good as data; one that is handed on from a constant, as exporters do that share them, is a constant.
            tied.update(key for i, key in enumerate(node.inputs) if i == 0 or key is None or not values[key].const)
        elif node.op in _SEEN_THROUGH and not tied.isdisjoint(node.outputs):
            tied.update(node.inputs[:1])
    loose.discard(None)
    tied.discard(None)
    result: list[Node] = []
    for node in nodes:
        if not node.opaque and not (loose.isdisjoint(node.inputs) and tied.isdisjoint(node.outputs)):
            node = node.but(opaque=UNIT, id=node.id)
            for key in node.outputs:
                if key is not None:
                    values[key] = replace(values[key], const=False)
        result.append(node)
    return result
