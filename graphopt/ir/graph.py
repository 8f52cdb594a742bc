"""Nodes, values and the immutable graph.

A value is known by a *key*: the hash of the expression that first defined it. A rewrite redefines a value with an equal
expression and leaves its key, so nothing downstream changes. A node is known by the hash of its operator, attributes and
input keys: two nodes that compute the same thing are one node.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Protocol

import numpy as np
from immutables import Map

from graphopt.ir import ops
from graphopt.ir.types import Dim, ValueType, digest

QUANTISATION = "quantisation"
"""Why nodes are opaque that quantise or take it back: they and their neighbours are units that the runtime fuses."""
QUANTISING = ("QuantizeLinear", "DequantizeLinear", "DynamicQuantizeLinear")
"""The operators that do."""
UNIT = "quantised neighbour"
"""Why the others of a unit are opaque."""


class TensorData(Protocol):
    """The bytes of a constant, read only when asked for (those of ``ir.tensors`` satisfy it)."""

    @property
    def nbytes(self) -> int:
        """Size in bytes."""
        ...

    def numpy(self) -> np.ndarray[Any, Any]:
        """The content."""
        ...


@dataclass(frozen=True, slots=True)
class Tensor:
    """A constant's identity and where its bytes are.

    Attributes:
        key: Hash of the content when small, of its name, dtype and shape when large.
        type: Dtype and static shape.
        data: The bytes, possibly memory-mapped.
    """

    key: int
    type: ValueType
    data: TensorData

    def numpy(self) -> np.ndarray[Any, Any]:
        """The array; a view where the data allow it."""
        return self.data.numpy()

    def __repr__(self) -> str:
        return f"Tensor({self.key:x})"


@dataclass(frozen=True, slots=True)
class Opaque:
    """An attribute that rules can't read (a body, a sparse tensor, a type): its hash and its serialised form."""

    key: int
    payload: Any

    def __repr__(self) -> str:
        return f"Opaque({self.key:x})"


Attributes = Mapping[str, Any]


class Node:
    """One operator application. Immutable; shared between graphs.

    Attributes:
        id: Hash of operator, domain, attributes and input keys (and of a salt when the node is not a pure function).
        op: Operator type.
        domain: Operator domain, ``""`` for ONNX's own.
        attributes: Values are ``int``, ``float``, ``str``, tuples of these, :class:`Tensor` or :class:`Opaque`.
        inputs: Keys; ``None`` for an omitted optional input. The last ``captures`` of them are not operands but
            outer values that a body (If, Loop, Scan) reads by name.
        outputs: Keys; ``None`` for an omitted or no longer used output.
        name: The ONNX node name, a label only.
        rule: The rule that made the node, ``None`` for a node of the original model.
        source: The original serialised node, copied on save so that nothing of it is lost.
        opaque: Why no rule may look at it (``""`` for an ordinary node).
        captures: Names under which a body reads the trailing inputs.
        sig: Hash of id and outputs: this node's share of the graph's hash.
    """

    __slots__ = (
        "attributes",
        "captures",
        "domain",
        "id",
        "inputs",
        "name",
        "op",
        "opaque",
        "outputs",
        "rule",
        "salt",
        "sig",
        "source",
    )

    def __init__(
        self,
        op: str,
        inputs: tuple[int | None, ...],
        outputs: tuple[int | None, ...],
        attributes: Attributes | None = None,
        *,
        domain: str = "",
        name: str = "",
        rule: str | None = None,
        source: Any = None,
        opaque: str = "",
        captures: tuple[str, ...] = (),
        salt: int = 0,
        id: int | None = None,
    ) -> None:
        self.op, self.domain, self.inputs, self.outputs = op, domain, inputs, outputs
        self.attributes: Attributes = attributes or {}
        self.name, self.rule, self.source = name, rule, source
        self.opaque, self.captures, self.salt = opaque, captures, salt
        self.id = expression_id(op, domain, self.attributes, inputs, salt) if id is None else id
        # `or 0`: the hash of None differs between processes.
        self.sig = hash((self.id, *[key or 0 for key in outputs])) & (2**64 - 1)

    def but(self, **changes: Any) -> Node:
        """The same node with other inputs, outputs, salt ...: another expression, unless its ``id`` is given."""
        fields = {name: getattr(self, name) for name in Node.__slots__ if name not in ("id", "sig")}
        return Node(**{**fields, **changes})

    def with_outputs(self, outputs: tuple[int | None, ...]) -> Node:
        """The same expression under other output keys."""
        return self.but(outputs=outputs, id=self.id)

    @property
    def operands(self) -> tuple[int | None, ...]:
        """The inputs without the captured outer values."""
        return self.inputs[: len(self.inputs) - len(self.captures)] if self.captures else self.inputs

    @property
    def outer(self) -> dict[str, int | None]:
        """The outer values that bodies read, by the name that they have there."""
        return dict(zip(self.captures, self.inputs[len(self.operands) :], strict=True))

    @property
    def acts(self) -> bool:
        """Whether it may act on the world, so that it must run though nothing reads it: custom operators may."""
        return bool(self.salt) and not ops.known_domain(self.domain)

    @property
    def hidden(self) -> bool:
        """Whether the node is not for every rule to match. Operators of quantisation are, and a unit's others are for rules that name those."""
        return bool(self.opaque) and self.opaque != QUANTISATION

    def __repr__(self) -> str:
        return f"Node({self.domain + '.' if self.domain else ''}{self.op} {self.id:016x})"


@dataclass(frozen=True, slots=True)
class Value:
    """A value of the graph.

    Attributes:
        key: Its identity.
        name: Its ONNX name, a label.
        type: Dtype and shape.
        const: Known before the model runs: a tensor, or computed from constants alone (a lazy constant).
        tensor: The bytes of an initializer or of a Constant node.
        producer: Id of the node that computes it, ``None`` for inputs and tensors.
        content: What is known of the elements of a small integer tensor that the model computes (see :mod:`graphopt.ir.content`).
        default: Whether it is an input for which the model has a tensor of its own, which only a caller may replace.
    """

    key: int
    name: str
    type: ValueType
    const: bool = False
    tensor: Tensor | None = None
    producer: int | None = None
    content: tuple[Dim, ...] | None = None
    default: bool = False

    @property
    def known(self) -> tuple[bool, ValueType, tuple[Dim, ...] | None]:
        """What is known of it before the model runs: whether it is constant, its type, its elements."""
        return self.const, self.type, self.content


@dataclass(frozen=True)
class Graph:
    """An immutable dataflow graph; edit it with :class:`graphopt.ir.edit.Edit`.

    Attributes:
        nodes: Node by id.
        values: Value by key.
        users: Ids of the nodes that read a value (a node that reads it twice stands there once).
        order: A topological rank of each node: smaller than that of every node that depends on it.
        inputs: Keys of the graph inputs.
        outputs: Name and key of each graph output; the name never changes, the key may.
        opsets: Operator-set version by domain.
        hash: Commutative hash of the live nodes: equal for graphs that differ in the order of independent rewrites.
        origin: What it was made of, see :func:`origin_of`. Rewrites leave it as it is.
    """

    nodes: Mapping[int, Node]
    values: Mapping[int, Value]
    users: Mapping[int, tuple[int, ...]]
    order: Mapping[int, float]
    inputs: tuple[int, ...]
    outputs: tuple[tuple[str, int], ...]
    opsets: Mapping[str, int]
    hash: int
    origin: int = 0

    @cached_property
    def output_keys(self) -> frozenset[int]:
        """Keys of the graph outputs."""
        return frozenset(key for _, key in self.outputs)

    @cached_property
    def symbols(self) -> frozenset[str]:
        """Names of the sizes that inputs leave open."""
        return frozenset(d for key in self.inputs for d in self.type(key).shape or () if isinstance(d, str))

    @property
    def opset(self) -> int:
        """Version of ONNX's own operator set."""
        return self.opsets.get("", 1)

    def producer(self, key: int | None) -> Node | None:
        """The node that computes a value, ``None`` for inputs and tensors."""
        if key is None:
            return None
        node = self.values[key].producer
        return None if node is None else self.nodes[node]

    def type(self, key: int) -> ValueType:
        """Dtype and shape of a value."""
        return self.values[key].type

    def is_const(self, key: int | None) -> bool:
        """Whether a value is known before the model runs (an omitted operand is)."""
        return key is None or self.values[key].const

    def is_lazy(self, node: Node) -> bool:
        """Whether a node only computes constants, so that it never runs (one without outputs acts on the world)."""
        made = [key for key in node.outputs if key is not None]
        return bool(made) and all(self.values[key].const for key in made)

    def in_order(self) -> Iterator[Node]:
        """Nodes, each after those it depends on; the same order for the same graph."""
        order = self.order
        return iter([self.nodes[i] for i in sorted(self.nodes, key=lambda i: (order[i], i))])

    def live_nodes(self) -> int:
        """Number of nodes that run (lazy constants do not)."""
        return sum(1 for node in self.nodes.values() if not self.is_lazy(node))


def expression_id(op: str, domain: str, attributes: Attributes, inputs: tuple[int | None, ...], salt: int = 0) -> int:
    """The id of a node: a hash of what it computes."""
    items = ops.said(op, domain, attributes) if attributes else []
    return digest(op, domain, items, inputs, salt)


def output_key(node_id: int, index: int) -> int:
    """The key of a value that a node is the first to define."""
    return digest(node_id, index)


def build(
    nodes: list[Node],
    values: dict[int, Value],
    inputs: tuple[int, ...],
    outputs: tuple[tuple[str, int], ...],
    opsets: Mapping[str, int],
    origin: int | None = None,
) -> Graph:
    """A graph from nodes in topological order and all their values (``producer`` and ``users`` are derived here).

    Without an ``origin`` that it has from another graph it has its own.
    """
    users: dict[int, list[int]] = {key: [] for key in values}
    by_id: dict[int, Node] = {}
    for node in nodes:
        by_id[node.id] = node
        for key in dict.fromkeys(k for k in node.inputs if k is not None):
            users[key].append(node.id)
        for out in node.outputs:
            if out is not None:
                values[out] = replace(values[out], producer=node.id)
    return Graph(
        nodes=Map(by_id),
        values=Map(values),
        users=Map({key: tuple(ids) for key, ids in users.items()}),
        order=Map({node.id: float(i) for i, node in enumerate(nodes)}),
        inputs=inputs,
        outputs=outputs,
        opsets=dict(opsets),
        hash=graph_hash(by_id.values(), outputs),
        origin=origin_of(values.values(), opsets) if origin is None else origin,
    )


def origin_of(values: Iterable[Value], opsets: Mapping[str, int]) -> int:
    """What is remembered of the content of a key holds for this origin alone.

    A key says what a value is computed from, by name: in another model the weight, the input or the operator of that name may be another one.
    """
    told = sorted((v.key, str(v.type), 0 if v.tensor is None else v.tensor.key) for v in values)
    return digest(sorted(opsets.items()), told)


def graph_hash(nodes: Iterable[Node], outputs: tuple[tuple[str, int], ...]) -> int:
    """The commutative sum that :attr:`Graph.hash` holds."""
    return (sum(node.sig for node in nodes) + hash_outputs(outputs)) & (2**64 - 1)


def hash_outputs(outputs: tuple[tuple[str, int], ...]) -> int:
    """The graph outputs' share of the hash: which value each output is."""
    return hash(tuple(key for _, key in outputs)) & (2**64 - 1)
