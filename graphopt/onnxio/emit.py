"""Turn a graph back into ONNX nodes and initializers.

The skeleton of the loaded model is the starting point, so whatever no rewrite touched leaves as it came: original nodes
are copied from their protobufs, weights are passed on by reference. Lazy constants become arrays here, unless the file
would grow too much; then the nodes that compute them stay, and the runtime folds them when it builds its session.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from onnx import GraphProto, ModelProto, NodeProto, TensorProto, ValueInfoProto, helper

from graphopt.ir.graph import Graph, Node
from graphopt.ir.infer import SCALING, make_node, type_proto, value_type
from graphopt.ir.ops import RECURRENT
from graphopt.ir.tensors import STRING, Constant, InFile, InMemory, InModel, Stamp, files_of, to_tensor_proto
from graphopt.ir.types import UNKNOWN
from graphopt.onnxio.bodies import bodies, names_in, names_within, settle, unshadow, with_inner
from graphopt.onnxio.declared import contradicts
from graphopt.onnxio.fold import fold
from graphopt.onnxio.load import Model
from graphopt.onnxio.read import INLINE
from graphopt.wording import plural, size

_INSIDE = 16 << 20  # bytes of weights that lie in bodies: they are held in memory
RULE_NOTE = "graphopt rule: "
"""Prefix of the ``doc_string`` of a node that a rule made; :func:`rule_of` reads it back."""


@dataclass(frozen=True, eq=False)
class Emitted:
    """A model in two parts.

    Attributes:
        proto: The model; large initializers are external placeholders.
        tensors: Tensor of each placeholder, by initializer name.
        unfolded: Names of constants left to be computed, because folding them would grow the file too much.
        source: The file of the model that it was made of; ``None`` where that was none.
        read: The files in which that model keeps weights, also those of which nothing is left here.
    """

    proto: ModelProto
    tensors: Mapping[str, Constant]
    unfolded: tuple[str, ...] = ()
    source: Path | None = None
    read: frozenset[tuple[Path, Stamp]] = frozenset()

    def __repr__(self) -> str:
        return f"<Emitted {plural(len(self.proto.graph.node), 'node')}, {size(self.nbytes)}>"

    @property
    def nbytes(self) -> int:
        """Size of the model with its weights."""
        return self.proto.ByteSize() + sum(int(t.nbytes) for t in self.tensors.values())

    @property
    def files(self) -> set[tuple[Path, Stamp]]:
        """The files in which its weights lie, as they were when the model was read."""
        return files_of(self.tensors.values())

    def arrays(self) -> dict[str, np.ndarray[Any, Any]]:
        """The content of each placeholder; views of the file where the weights lie in one."""
        return {name: tensor.numpy() for name, tensor in self.tensors.items()}


def emit(model: Model, graph: Graph, *, max_bytes: int | None = None, taken: Iterable[str] | None = None) -> Emitted:
    """The ONNX form of ``graph``.

    Args:
        model: What the graph was loaded from.
        graph: ``model.graph`` or a graph derived from it.
        max_bytes: How large the whole model may be; constants whose folding would exceed it stay computed. ``None``
            folds whatever a rule made and leaves what was computed in the original model, but for a few bytes.
        taken: Names that nothing new may have, besides those of the model, if this is a body; ``None`` for a whole model.

    Returns:
        The model; exactly the loaded one when ``graph`` is ``model.graph``.
    """
    if graph is model.graph:
        return Emitted(model.proto, _placeholders(model.proto, model.tensors), source=model.path, read=model.weights)
    return _Emitter(model, graph, max_bytes, taken).run()


def rule_of(node: NodeProto) -> str | None:
    """The rule that made a node of an optimised model, ``None`` for an original one."""
    note: str | bytes = node.doc_string  # bytes where it is no UTF-8
    return note[len(RULE_NOTE) :] if isinstance(note, str) and note.startswith(RULE_NOTE) else None


def _placeholders(proto: ModelProto, tensors: Mapping[str, Constant]) -> dict[str, Constant]:
    return {t.name: tensors[t.name] for t in proto.graph.initializer if t.data_location == TensorProto.EXTERNAL}


class _Emitter:
    def __init__(self, model: Model, graph: Graph, max_bytes: int | None, taken: Iterable[str] | None) -> None:
        self.model, self.graph, self.max_bytes = model, graph, max_bytes
        self.folded: dict[int, Constant] = {}
        self.unfolded: tuple[int, ...] = ()
        self.needed: set[int] = set()
        self.names: dict[int, str] = {}
        self.taken: set[str] = set(taken or ())
        self.whole = taken is None

    def run(self) -> Emitted:
        arrays, self.unfolded = fold(self.model, self.graph, self.max_bytes)
        self.folded = {key: _computed(array) for key, array in arrays.items()}
        self._name()
        model, graph = self.model, self.graph
        proto = ModelProto()
        proto.CopyFrom(_without_graph_lists(model.proto))
        g = proto.graph
        tensors: dict[str, Constant] = {}
        nodes: list[NodeProto] = []
        used = self._used()
        modern = proto.ir_version >= 4

        inputs = {self.names[k] for k in graph.inputs}
        for initializer in model.proto.graph.initializer:
            value = graph.values.get(self._original.get(initializer.name, -1))
            kept = value is not None and value.tensor is not None and value.key in used
            if not kept and initializer.name not in inputs:
                continue
            g.initializer.append(initializer)
            if initializer.data_location == TensorProto.EXTERNAL:
                tensors[initializer.name] = model.tensors[initializer.name]
        present = {t.name for t in g.initializer}
        weights = {t.name for t in model.proto.graph.initializer}
        g.input.extend(i for i in model.proto.graph.input if i.name not in weights or i.name in present)

        for key in sorted(used, key=lambda k: self.names[k]):
            value = graph.values[key]
            if key in self.folded:
                tensor = self.folded[key]
            elif value.tensor is not None and self.names[key] not in present:
                tensor = _constant(value.tensor.data)
            else:
                continue
            self._store(g, nodes, tensors, self.names[key], tensor, modern)

        nodes.extend(self._nodes())
        g.node.extend(nodes)
        made = {o for n in nodes for o in n.output}
        types = {self.names[key]: graph.type(key) for key in used}
        g.value_info.extend(
            i
            for i in model.proto.graph.value_info
            if i.name in made and not contradicts(value_type(i.type), types.get(i.name, UNKNOWN), graph.symbols)
        )
        g.value_info.extend(self._scaled({i.name for i in (*g.value_info, *g.output)}))
        self._import_domains(proto, nodes)
        opaque = (node.source for node in graph.nodes.values() if node.opaque and node.source is not None)
        if self.whole and any(True for source in opaque for _ in bodies(source)):
            unshadow(g)
            tensors = self._settled(g, tensors) if modern else tensors
        return Emitted(
            proto, tensors, tuple(self.names[k] for k in self.unfolded if k in used), model.path, model.weights
        )

    def _settled(self, g: GraphProto, tensors: dict[str, Constant]) -> dict[str, Constant]:
        """Lay weights into the bodies that alone read them; returns the tensors of those that are left."""

        def whole(tensor: TensorProto) -> TensorProto:
            return to_tensor_proto(tensors[tensor.name], tensor.name) if tensor.name in tensors else tensor

        settle(g, {t.name for t in g.initializer}, whole, _INSIDE)
        return {t.name: tensors[t.name] for t in g.initializer if t.name in tensors}

    # -- constants ------------------------------------------------------------------------------------------------

    def _used(self) -> set[int]:
        """Keys that the emitted nodes and outputs read or make.

        What only constants read that are numbers now is left out, be it computed anew in every run: the shape of a Gather, say, that is known.
        """
        graph = self.graph
        used: set[int] = set()
        stack = list(graph.output_keys)
        for node in graph.nodes.values():
            idle = not any(key is not None and (graph.users[key] or key in graph.output_keys) for key in node.outputs)
            if node.acts or (idle and not graph.is_lazy(node)):  # what the original computes for nothing stays
                self._need(node, stack, used)
        while stack:
            key = stack.pop()
            used.add(key)
            maker = None if key in self.folded else graph.producer(key)
            if maker is not None and maker.id not in self.needed:
                self._need(maker, stack, used)
        return used

    def _need(self, node: Node, stack: list[int], used: set[int]) -> None:
        self.needed.add(node.id)
        stack.extend(k for k in node.inputs if k is not None)
        used.update(k for k in node.outputs if k is not None)

    def _store(
        self,
        g: GraphProto,
        nodes: list[NodeProto],
        tensors: dict[str, Constant],
        name: str,
        tensor: Constant,
        modern: bool,
    ) -> None:
        if not modern:
            # Before IR version 4 an initializer must be an input too; a Constant node needs no such thing.
            value = to_tensor_proto(tensor, name)
            nodes.append(helper.make_node("Constant", [], [name], value=value))
        elif tensor.nbytes < INLINE or tensor.dtype == STRING:
            value = to_tensor_proto(tensor, name)
            g.initializer.append(value)
        else:
            value = g.initializer.add(
                name=name, data_type=int(tensor.dtype), dims=list(tensor.shape), data_location=TensorProto.EXTERNAL
            )
            value.external_data.add(key="location", value="<array>")
            tensors[name] = tensor

    # -- names ----------------------------------------------------------------------------------------------------

    def _name(self) -> None:
        """A unique name for each value: that by which the model or a body knows it, or the original one where there is one."""
        graph = self.graph
        self.taken |= set(names_in(self.model.proto.graph))
        for node in graph.nodes.values():
            if node.source is not None and node.captures:
                self.taken.update(names_within(node.source))
        self._original = {v.name: k for k, v in self.model.graph.values.items()}
        pinned = {name for node in graph.nodes.values() for name in node.captures}
        for key, value in graph.values.items():
            self.names[key] = value.name if self._original.get(value.name) == key else self._fresh(value.name)
        self.extra: list[tuple[str, str]] = []
        inputs = set(graph.inputs)
        claimed = {key for name, key in graph.outputs if self.names[key] == name}

        known_before = set(self._original.values())

        def renamed(key: int, name: str, constant: bool = False) -> bool:
            free = key not in claimed and key not in inputs
            free = free and (graph.values[key].tensor is None or (constant and key not in known_before))
            if not free or self.names[key] in pinned:
                return False
            self.names[key] = name
            claimed.add(key)
            return True

        for name, key in graph.outputs:
            if self.names[key] != name and not renamed(key, name):
                self.extra.append((self.names[key], name))
        known = {*self.names.values(), *(name for name, _ in graph.outputs)}
        for node in graph.in_order():
            for name, read in node.outer.items():
                if read is not None and name not in known and renamed(read, name, constant=True):
                    known.add(name)

    def _fresh(self, label: str) -> str:
        name, n = label, 1
        while name in self.taken:
            name, n = f"{label}_{n}", n + 1
        self.taken.add(name)
        return name

    # -- nodes ----------------------------------------------------------------------------------------------------

    def _nodes(self) -> Iterator[NodeProto]:
        graph = self.graph
        emitted_names: set[str] = set()
        for node in graph.in_order():
            if node.id not in self.needed:
                continue
            for name, key in node.outer.items():
                # A body reads an outer value by name; when a rewrite put another value there, the name must live on.
                if key is not None and self.names[key] != name and name not in emitted_names:
                    emitted_names.add(name)
                    yield helper.make_node("Identity", [self.names[key]], [name])
            yield self._node(node)
        for source, name in self.extra:
            if name not in emitted_names:
                yield helper.make_node("Identity", [source], [name])

    def _scaled(self, declared: Container[str]) -> Iterator[ValueInfoProto]:
        """Shapes of Resizes that leave a symbol as it is.

        The runtime takes another symbol there. A product with such a result, of sizes that are equal in truth, it then computes outside of
        its blocked layout.
        """
        graph = self.graph
        for node in graph.in_order():
            key = node.outputs[0] if node.id in self.needed and node.op in SCALING and not node.domain else None
            if key is None or key in self.folded or self.names[key] in declared:
                continue
            type = graph.type(key)
            shape = type.shape or ()
            if (
                type.dtype
                and not type.static
                and shape
                and all(isinstance(d, int) or d in graph.symbols for d in shape)
            ):
                yield helper.make_value_info(self.names[key], type_proto(type))

    def _node(self, node: Node) -> NodeProto:
        ins = ["" if k is None else self.names[k] for k in node.operands]
        outs = [self._result(node, i) for i in range(len(node.outputs))]
        if node.source is not None:
            proto = NodeProto()
            proto.CopyFrom(node.source)
            if len(ins) < len(proto.input):
                ins += [""] * (len(proto.input) - len(ins))
            proto.input[:] = ins
            proto.output[:] = outs
            return proto
        proto = make_node(node.op, node.domain, self.graph.opsets.get(node.domain, 1), ins, outs, node.attributes)
        proto.name = self._fresh(node.name or f"{outs[0]}/{node.op}")
        proto.doc_string = f"{RULE_NOTE}{node.rule}" if node.rule else ""
        return proto

    def _result(self, node: Node, index: int) -> str:
        """The name of an output; empty where the original node leaves it out, or nothing needs it of a recurrent layer."""
        key = node.outputs[index]
        idle = key is None or not (self.graph.users[key] or key in self.graph.output_keys)
        if idle and node.op in RECURRENT and not node.domain:
            return ""
        if key is not None and key not in self.folded:
            return self.names[key]
        if key is not None:  # a constant by now, while another output has to be computed
            return self._fresh(f"{self.names[key]}_computed")
        # What a rewrite defines elsewhere keeps some name here: not every operator may leave an output out (Split may not).
        label = f"{node.op}_{node.id & 0xFFFFFF:06x}_{index}" if node.source is None else node.source.output[index]
        return self._fresh(label) if label else ""

    def _import_domains(self, proto: ModelProto, nodes: list[NodeProto]) -> None:
        known = {"" if o.domain == "ai.onnx" else o.domain for o in proto.opset_import}
        used = {node.domain for node in with_inner(nodes)}
        for domain in sorted(used - known - {"ai.onnx"}):
            if domain:
                proto.opset_import.append(helper.make_opsetid(domain, self.graph.opsets.get(domain, 1)))


def _without_graph_lists(proto: ModelProto) -> ModelProto:
    bare = ModelProto()
    bare.CopyFrom(proto)
    for field in ("node", "initializer", "input", "value_info"):
        bare.graph.ClearField(field)
    return bare


def _constant(data: Any) -> Constant:
    """The bytes of a constant of the graph: where they lie in a file or a model, or the array that was computed."""
    return data if isinstance(data, InFile | InModel | InMemory) else _computed(data.numpy())


def _computed(array: np.ndarray[Any, Any]) -> InMemory:
    return InMemory(np.ascontiguousarray(array).reshape(array.shape))
