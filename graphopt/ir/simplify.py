"""What the engine does to a graph before any rule.

Equal nodes and constants become one, what nothing reads goes, and types and constness are carried through once more, node by
node: unlike inference over the whole model, this evaluates constants on the way, so that the shape arithmetic of an exporter
turns into numbers as soon as the shapes it asks about are known.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace

import numpy as np

from graphopt.ir import ops
from graphopt.ir.constants import SMALL, known_of, small_array, tensor_of
from graphopt.ir.content import merged
from graphopt.ir.delta import RefusedError
from graphopt.ir.edit import Edit
from graphopt.ir.graph import Graph, Node, Value, build, expression_id
from graphopt.ir.memo import collector_paused
from graphopt.ir.types import Dim, ValueType, merge

_STATES = {"LSTM": (5, 6), "GRU": (5,), "RNN": (5,)}
"""Where operators take states that are zeros where none is given."""
_KEEPS_ZEROS = frozenset({"Identity", "Reshape", "Squeeze", "Unsqueeze", "Transpose", "Slice", "Expand", "Tile", "Gather", "Split"})  # fmt: skip
"""Operators that make nothing but zeros of zeros, whatever their other operands."""
_PARTS_OF_SHAPES = 15
"""The operator set from which on a Shape may be asked for some dimensions."""
_TAKES_OUT = frozenset({"SequenceAt", "OptionalGetElement", "OptionalHasElement"})


@collector_paused()
def simplify(graph: Graph) -> Graph:
    """An equal graph without duplicates and dead nodes; ``graph`` itself when there is nothing to do.

    Loading keeps equal nodes apart, so that an untouched model is written back as it was.
    """
    live = _live(graph)
    stands_for: dict[int, int] = {}
    values: dict[int, Value] = {}
    tensors: dict[int, int] = {}
    for key, value in graph.values.items():
        if value.producer is not None:
            continue
        if value.tensor is not None:
            if not any(u in live for u in graph.users[key]) and key not in graph.output_keys:
                continue
            if (value.type.nbytes or SMALL + 1) <= SMALL and not _captured(graph, key):
                first = tensors.setdefault(value.tensor.key, key)
                stands_for[key] = first
                if first != key:
                    continue
        values[key] = value
    nodes: list[Node] = []
    by_id: dict[int, Node] = {}
    changed = False
    view = Graph(by_id, values, {}, {}, (), (), graph.opsets, 0, graph.origin)
    for node in graph.in_order():
        if node.id not in live:
            continue
        inputs = tuple(None if k is None else stands_for.get(k, k) for k in node.inputs)
        salt = (
            0 if not node.opaque and ops.pure(node.op, node.domain, node.attributes, len(node.operands)) else node.salt
        )
        twin = by_id.get(expression_id(node.op, node.domain, node.attributes, inputs, salt))
        if twin is not None and len(twin.outputs) == len(node.outputs) and _may_be_one(values, graph, twin, node):
            for mine, theirs in zip(node.outputs, twin.outputs, strict=True):
                if mine is not None and theirs is not None:
                    stands_for[mine] = theirs
            continue
        if twin is not None:
            salt = node.salt or len(nodes) + 1
        new = node.but(inputs=inputs, salt=salt)
        by_id[new.id] = new
        nodes.append(new)
        const, types, elements = known_of(
            view, new, [None if k is None else graph.values[k] for k in node.outputs], graph.opsets
        )
        for out, type in zip(node.outputs, types, strict=True):
            if out is not None:
                old = graph.values[out]
                known = merged(elements, old.content) if out == node.outputs[0] and not const else None
                values[out] = replace(old, producer=new.id, const=const, type=type, content=known)
                changed = changed or (const, type, known) != (old.const, old.type, old.content)
    if not changed and len(nodes) == len(graph.nodes) and len(values) == len(graph.values):
        return graph
    outputs = tuple((name, stands_for.get(key, key)) for name, key in graph.outputs)
    return build(nodes, values, graph.inputs, outputs, graph.opsets, graph.origin)


def unpacked(graph: Graph) -> Graph:
    """A graph in which what is taken out of a sequence at a known place, or of an optional, is read from where it was put in."""
    for key in [node.outputs[0] for node in graph.in_order() if node.op in _TAKES_OUT and not node.domain]:
        node = None if key is None else graph.producer(key)
        if key is None or node is None:
            continue
        edit = Edit(graph)
        element = _put_in(graph, node)
        if element is not None and node.op == "OptionalHasElement":
            element = edit.constant(np.array(True), graph.values[key].name)
        if element is not None:
            graph = _replaced(edit, key, element)
    return graph


def _replaced(edit: Edit, key: int, by: int) -> Graph:
    """The graph of an edit with one value in another's place; as it was where that is refused, for the edit is half done then."""
    with suppress(RefusedError):
        edit.alias(key, by)
        return edit.commit()[0]
    return edit.graph


def _put_in(graph: Graph, node: Node) -> int | None:
    """What was put into the sequence or optional that an operator asks, at its place; ``None`` where that is not known."""
    packed = None if node.inputs[0] is None else graph.producer(node.inputs[0])
    if packed is None or packed.domain:
        return None
    if node.op != "SequenceAt":
        return packed.inputs[0] if packed.op == "Optional" and packed.inputs else None
    place = small_array(graph, node.inputs[1])
    if packed.op != "SequenceConstruct" or place is None:
        return None
    count, at = len(packed.inputs), int(place.item())
    return packed.inputs[at] if -count <= at < count else None


def alike(graph: Graph) -> Graph:
    """A graph in which small constants that are computed to the same numbers are one, and so is what layers make of them."""
    same_type = dict[ValueType, list[int]]()
    for value in graph.values.values():
        if value.tensor is not None:
            same_type.setdefault(value.type, []).append(value.key)
    computed = set[int]()
    for node in graph.in_order():
        made = node.outputs[0] if graph.is_lazy(node) and len(node.outputs) == 1 else None
        if made is None or made in graph.output_keys or _captured(graph, made):
            continue
        if not all(graph.is_lazy(graph.nodes[user]) for user in graph.users[made]):
            same_type.setdefault(graph.type(made), []).append(made)
            computed.add(made)
    for keys in (keys for keys in same_type.values() if len(keys) > 1 and not computed.isdisjoint(keys)):
        first = dict[int, int]()
        for key in keys:
            array = small_array(graph, key) if key in graph.values else None
            twin = None if array is None else first.setdefault(tensor_of(array).key, key)
            if twin is not None and key in computed and key != twin and twin in graph.values:
                graph = _replaced(Edit(graph), key, twin)
    return graph


def sized(graph: Graph) -> Graph:
    """A graph in which a size that is known is a number, and no operator: what it is asked of has one reader less, or none."""
    for first in [node.outputs[0] for node in graph.in_order() if node.op in ops.OF_SHAPES and not node.domain]:
        node = None if first is None or first not in graph.values else graph.producer(first)
        key, of = (node.outputs[0], node.inputs[0]) if node is not None and node.inputs else (None, None)
        if key is None or of is None or graph.values[of].const:
            continue
        # An output of the graph and what a body reads keep their names, for which a constant would need an Identity.
        named = key in graph.output_keys or _captured(graph, key)
        array = None if named else small_array(graph, key)
        if array is not None:
            edit = Edit(graph)
            graph = _replaced(edit, key, edit.constant(array, graph.values[key].name))
    return graph


def asked_of_inputs(graph: Graph) -> Graph:
    """A graph in which a size that an input has, too, is asked of that input, and not of what was made of it.

    Exporters ask every layer's own tensors. So there are as many chains as layers, none equal to another, and what is built of them (a causal
    mask) is built as often; and each keeps what it asks from being rewritten.
    """
    places = dict[Dim, tuple[int, int]]()
    for given in graph.inputs:
        for axis, dim in enumerate(graph.type(given).shape or ()):
            if isinstance(dim, str):
                places.setdefault(dim, (given, axis))
    inner = set[int]()
    for first in [node.outputs[0] for node in graph.in_order() if not node.domain] if places else ():
        node = None if first is None or first not in graph.values else graph.producer(first)
        if node is None or (key := node.outputs[0]) is None:
            continue
        value = graph.values[key]
        made = node.inputs[0] not in graph.inputs if node.op in ops.OF_SHAPES else not inner.isdisjoint(node.inputs)
        if value.const or value.content is None or not made:
            continue
        inner.add(key)
        place = places.get(value.content[0]) if len(value.content) == 1 else None
        rank = len(value.type.shape) if value.type.shape is not None and value.type.dtype == "i64" else None
        if place is None or rank not in (0, 1) or key in graph.output_keys or _captured(graph, key):
            continue
        edit = Edit(graph)
        with suppress(RefusedError):  # of what asks for the size
            graph = _replaced(edit, key, _size(edit, *place, rank))
    return graph


def _size(edit: Edit, of: int, axis: int, rank: int) -> int:
    """One size of an input, as a number or as a list of one."""
    if rank and edit.graph.opset >= _PARTS_OF_SHAPES:
        return edit.add("Shape", (of,), {"start": axis, "end": axis + 1})[0]
    whole = edit.add("Shape", (of,))[0]
    return edit.add("Gather", (whole, edit.constant(np.array([axis] if rank else axis, np.int64))), {"axis": 0})[0]


def stateless(graph: Graph) -> Graph:
    """A graph whose recurrent layers are given no states of zeros, which cost a chain of operators where the batch is open."""
    edit = Edit(graph)
    for node in graph.nodes.values():
        states = _STATES.get(node.op, ()) if not node.domain else ()
        idle = [i for i in states if i < len(node.inputs) and _zeros(graph, node.inputs[i])]
        if idle:
            inputs = [None if i in idle else key for i, key in enumerate(node.inputs)]
            while inputs[-1] is None:
                inputs.pop()
            edit.exchange(node, node.but(inputs=tuple(inputs)))
    return edit.commit()[0]


def _zeros(graph: Graph, key: int | None) -> bool:
    """Whether a value is known to hold positive zeros alone, however many: by its content, or by what makes it."""
    array = small_array(graph, key)
    if array is not None:
        return array.size > 0 and not any(array.tobytes())
    maker = None if key is None else graph.producer(key)
    if maker is None or maker.domain or maker.opaque:
        return False
    if maker.op == "ConstantOfShape":
        return _fills_with_zeros(maker)
    if maker.op == "Concat":
        return all(_zeros(graph, part) for part in maker.inputs)
    return maker.op in _KEEPS_ZEROS and _zeros(graph, maker.inputs[0])


def _fills_with_zeros(node: Node) -> bool:
    value = node.attributes.get("value")
    return value is None or not any(value.numpy().tobytes())


def _live(graph: Graph) -> set[int]:
    """Nodes that an output depends on, and custom operators, which may act on the world."""
    stack = [graph.values[k].producer for k in graph.output_keys]
    stack += [n.id for n in graph.nodes.values() if n.acts]
    live: set[int] = set()
    while stack:
        id = stack.pop()
        if id is None or id in live:
            continue
        live.add(id)
        stack.extend(graph.values[k].producer for k in graph.nodes[id].inputs if k is not None)
    return live


def _captured(graph: Graph, key: int) -> bool:
    return any(graph.nodes[u].captures for u in graph.users[key])


def _may_be_one(values: dict[int, Value], graph: Graph, a: Node, b: Node) -> bool:
    """Whether the outputs of equal nodes agree in their types, and one node does not need more copies than the other node is worth.

    A graph output that is another's copy is an Identity in the file.
    """
    copies = 0
    for x, y in zip(a.outputs, b.outputs, strict=True):
        if (x is None) != (y is None):
            return False
        if x is not None and y is not None:
            copies += x in graph.output_keys and y in graph.output_keys
            if merge(values[x].type, graph.values[y].type) is None:
                return False
    return copies <= 1
