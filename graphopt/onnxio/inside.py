"""Bodies of control flow as graphs of their own, in which captured values are inputs of known type.

What a body declares of shapes is not believed: exporters write those of a loop's first turn. Only element types are, and what follows
from captured values; and the shapes of what a loop carries, as far as they are after a turn what they were before it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from immutables import Map
from onnx import AttributeProto, GraphProto, ModelProto, NodeProto, helper

from graphopt.errors import ModelError
from graphopt.ir.constants import known_content, small_array
from graphopt.ir.content import LIMIT, Content
from graphopt.ir.delta import Delta
from graphopt.ir.edit import Edit
from graphopt.ir.graph import Graph, Node, Value, origin_of
from graphopt.ir.infer import type_proto, value_type
from graphopt.ir.simplify import simplify
from graphopt.ir.types import Shape, ValueType, known
from graphopt.onnxio.bodies import HAS_BODY, captured, free_names, graphs, names_within
from graphopt.onnxio.emit import Emitted, emit
from graphopt.onnxio.initializers import attribute_of
from graphopt.onnxio.load import Model, load
from graphopt.onnxio.save import to_proto

_LARGEST = 16 << 20  # bytes of a body with its weights: each step writes it anew
_NODES = 2000  # of a body
_TURNS = 5  # in which shapes that are carried settle, or are given up

Path = tuple[str, ...]
"""Where a body is: the first output of the node that has it, and the attribute; and so on, for a body within it."""


def body_paths(graph: Graph, taken: set[str]) -> Iterator[Path]:
    """Where the bodies are, those within others after them."""
    for node in graph.in_order():
        value = next((graph.values[key].name for key in node.outputs if key is not None), None)
        if node.opaque != HAS_BODY or value is None:
            continue
        for attribute in node.source.attribute:
            if attribute.type == AttributeProto.GRAPH:
                yield value, attribute.name
                body = open_body(graph, (value, attribute.name), taken)
                for path in () if body is None else body_paths(body.graph, body.taken):
                    yield value, attribute.name, *path


@dataclass(frozen=True, eq=False)
class Body:
    """A body, opened.

    Attributes:
        owner: The node that has it.
        attribute: Its name there.
        model: The body as a model.
        graph: Its graph, simplified.
        taken: Names of values that nothing new in it may have.
    """

    owner: Node
    attribute: str
    model: Model
    graph: Graph
    taken: set[str]

    def put_back(self, graph: Graph, inner: Graph) -> tuple[Graph, Delta, int]:
        """The graph around it with another graph in its place, what changed, and how many nodes the body has more, constants aside."""
        source = NodeProto()
        source.CopyFrom(self.owner.source)
        body = next(a.g for a in source.attribute if a.name == self.attribute)
        was = GraphProto()
        was.CopyFrom(body)
        # What no rule had a hand in is folded as far as that takes no room.
        ruled, free = any(node.rule for node in inner.nodes.values()), free_names(was)
        limit = _room(self.graph, was, free) if ruled else None
        body.CopyFrom(to_proto(_but(emit(self.model, inner, max_bytes=limit, taken=self.taken), free)).graph)
        for field in ("input", "output", "value_info"):
            body.ClearField(field)
        body.input.extend(was.input)
        body.output.extend(was.output)
        # Before IR version 4 an initializer has to be an input, too: new ones come as nodes.
        old = {tensor.name for tensor in was.initializer}
        nodes = [helper.make_node("Constant", [], [t.name], value=t) for t in body.initializer if t.name not in old]
        kept = [tensor for tensor in body.initializer if tensor.name in old]
        nodes += body.node
        body.ClearField("initializer")
        body.ClearField("node")
        body.initializer.extend(kept)
        body.node.extend(nodes)
        made = {name for node in nodes for name in node.output}
        body.value_info.extend(info for info in was.value_info if info.name in made)
        return *self._exchanged(graph, source), _running(body) - _running(was)

    def _exchanged(self, graph: Graph, source: NodeProto) -> tuple[Graph, Delta]:
        """The graph around it with another form of its owner."""
        owner = self.owner
        read = captured(source)
        outer = {name: key for name, key in owner.outer.items() if name in read}
        attributes = {a.name: attribute_of(a) for a in source.attribute}
        inputs = (*owner.operands, *outer.values())
        edit = Edit(graph)
        edit.exchange(owner, owner.but(attributes=attributes, inputs=inputs, captures=tuple(outer), source=source))
        return edit.commit()


def open_body(graph: Graph, path: Path, taken: set[str]) -> Body | None:
    """The body at a path of one node; ``None`` where there is none, or one that is too large or can't be read."""
    value, name = path
    owner = next(
        (
            n
            for n in graph.nodes.values()
            if n.opaque == HAS_BODY and next((graph.values[k].name for k in n.outputs if k is not None), None) == value
        ),
        None,
    )
    body = None if owner is None else next((a.g for a in owner.source.attribute if a.name == name), None)
    if owner is None or body is None or len(body.node) > _NODES or body.ByteSize() > _LARGEST:
        return None
    proto = ModelProto(ir_version=10)
    for domain, version in graph.opsets.items():
        proto.opset_import.add(domain=domain, version=version)
    proto.graph.CopyFrom(body)
    proto.graph.ClearField("value_info")
    for info in [*proto.graph.input, *proto.graph.output]:
        if info.type.HasField("tensor_type"):
            info.type.tensor_type.ClearField("shape")
    first, free = _first_turn(graph, owner), free_names(body)
    for captured_name, key in owner.outer.items():
        if captured_name in free and key is not None:
            proto.graph.input.add(name=captured_name).type.CopyFrom(type_proto(graph.type(key)))
    try:
        model = _with_shapes(proto, *(first if len(first[0]) == len(body.input) else ([], range(0), 0)))
    except ModelError:
        return None
    around = taken | {each.name for each in graph.values.values()} | set(names_within(owner.source))
    return Body(owner, name, model, simplify(_informed(model.graph, graph, owner)), around)


def _informed(inner: Graph, graph: Graph, owner: Node) -> Graph:
    """The graph of a body that knows of what it captures what the graph around it does: the weights, and elements of small values."""
    outer, values = owner.outer, dict[int, Value]()
    for key in inner.inputs:
        around = graph.values.get(outer.get(inner.values[key].name) or 0)
        if around is not None and around.tensor is not None:
            values[key] = replace(inner.values[key], type=around.type, const=True, tensor=around.tensor)
        elif (told := elements_of(graph, None if around is None else around.key)) is not None:
            values[key] = replace(inner.values[key], content=tuple(dim if known(dim) else None for dim in told))
    inputs = tuple(key for key in inner.inputs if key not in values or not values[key].const)
    if not values:
        return inner
    known_here = Map(inner.values).update(values)
    return replace(inner, values=known_here, inputs=inputs, origin=origin_of(known_here.values(), inner.opsets))


def elements_of(graph: Graph, key: int | None) -> Content | None:
    """What is known of the elements of a small value, of a constant condition as well."""
    array = None if key is None or graph.type(key).dtype != "bool" else small_array(graph, key)
    return known_content(graph, key) if array is None or array.size > LIMIT else tuple(map(int, array.ravel()))


def _room(graph: Graph, body: GraphProto, free: set[str]) -> int:
    """Bytes that a body may have with all that it captures of weights: a tenth more than it has, and a mebibyte."""
    tensors = [value.tensor for value in graph.values.values() if value.tensor is not None and value.name in free]
    return int(1.1 * (body.ByteSize() + sum(tensor.data.nbytes for tensor in tensors))) + (1 << 20)


def _but(emitted: Emitted, names: set[str]) -> Emitted:
    """A body without the weights that the graph around it has."""
    own = [tensor for tensor in emitted.proto.graph.initializer if tensor.name not in names]
    emitted.proto.graph.ClearField("initializer")
    emitted.proto.graph.initializer.extend(own)
    return replace(emitted, tensors={name: data for name, data in emitted.tensors.items() if name not in names})


def _running(body: GraphProto) -> int:
    return sum(node.op_type != "Constant" for graph in graphs(body) for node in graph.node)


def _first_turn(graph: Graph, owner: Node) -> tuple[list[Shape | None], range, int]:
    """Shapes of a body's inputs in the first turn, which of them are carried, and the first output that is."""
    shapes = [None if key is None else graph.type(key).shape for key in owner.operands]
    if owner.op == "Loop":  # its own counter and condition may have a dimension of 1
        return [None, None, *shapes[2:]], range(2, len(shapes)), 1
    if owner.op != "Scan" or graph.opsets.get("", 0) < 9:
        return [], range(0), 0
    count = int(owner.attributes["num_scan_inputs"])
    states = len(shapes) - count
    axes = [int(axis) for axis in owner.attributes.get("scan_input_axes", (0,) * count)]
    slices = [
        None if shape is None else _without(shape, axis) for shape, axis in zip(shapes[states:], axes, strict=True)
    ]
    return [*shapes[:states], *slices], range(states), 0


def _without(shape: Shape, axis: int) -> Shape | None:
    if not -len(shape) <= axis < len(shape):
        return None
    return tuple(dim for i, dim in enumerate(shape) if i != axis % len(shape))


def _with_shapes(proto: ModelProto, shapes: list[Shape | None], carried: range, out: int) -> Model:
    """A body whose inputs have shapes that hold in every turn: what is carried has them after a turn as well.

    Args:
        proto: The body, without shapes.
        shapes: Shapes of its inputs in the first turn, as far as they are known.
        carried: Which of the inputs are carried from turn to turn.
        out: The first output that is.

    Raises:
        ModelError: It can't be read.
    """
    believed = list(shapes)
    for turn in range(_TURNS):
        for info, shape in zip(proto.graph.input, believed, strict=False):
            if info.type.HasField("tensor_type"):
                info.type.CopyFrom(type_proto(ValueType(value_type(info.type).dtype, shape)))
        model = load(proto)
        after = [model.graph.type(key).shape for _, key in model.graph.outputs]
        held = list(believed)
        for i in carried:
            held[i] = _common(believed[i], after[out + i - carried.start]) if turn < _TURNS - 2 else None
        if held == believed:
            break
        believed = held
    return model


def _common(one: Shape | None, two: Shape | None) -> Shape | None:
    """What two shapes have in common."""
    if one is None or two is None or len(one) != len(two):
        return None
    return tuple(a if a == b else None for a, b in zip(one, two, strict=True))
