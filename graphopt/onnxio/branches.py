"""An If that always takes one branch gives way to it."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace

from immutables import Map

from graphopt.ir.agreement import MISTAKEN_SLICE
from graphopt.ir.delta import RefusedError
from graphopt.ir.edit import Edit
from graphopt.ir.graph import QUANTISATION, UNIT, Graph, Node, Value, expression_id, output_key
from graphopt.ir.simplify import unpacked
from graphopt.ir.types import UNKNOWN, ValueType, digest, known
from graphopt.onnxio.bodies import HAS_BODY, names_within
from graphopt.onnxio.inside import elements_of, open_body


def decided(graph: Graph) -> Graph:
    """A graph in which a branch stands in the place of each If that always takes it, and of those in the branch.

    The first comes first: what it gives may be of a known shape then, by which a later one is decided.
    """
    made = [node.outputs[0] for node in graph.in_order() if node.op == "If" and node.opaque == HAS_BODY][::-1]
    while made:
        key = made.pop()
        owner = graph.producer(key) if key in graph.values else None
        taken = None if owner is None else _known(graph, owner.inputs[0])
        if key is None or owner is None or taken is None:
            continue
        body = open_body(graph, (graph.values[key].name, "then_branch" if taken else "else_branch"), set())
        branch = None if body is None else unpacked(body.graph)
        if branch is not None and all(map(_movable, branch.nodes.values())):
            with suppress(RefusedError):
                graph, found = _instead(_undeclared(graph, owner), owner, branch)
                made += reversed(found)
    return graph


def _known(graph: Graph, key: int | None) -> bool | None:
    """What a condition always is, if anything."""
    told = elements_of(graph, key)
    return None if told is None or len(told) != 1 or not isinstance(told[0], int) else bool(told[0])


def _movable(node: Node) -> bool:
    """Whether a node of a branch may stand beside its If: not where what the runtime makes of it depends on its neighbours."""
    return node.opaque not in (QUANTISATION, UNIT, MISTAKEN_SLICE)


def _instead(graph: Graph, owner: Node, branch: Graph) -> tuple[Graph, list[int | None]]:
    """A graph with a branch in the place of its If, and the first outputs of those that were in the branch.

    Raises:
        RefusedError: The If declares other types than the branch has, a constant is sparse or of a type that numpy lacks, or what a
            body in the branch reads has the name of something else.
    """
    edit = Edit(graph)
    here: dict[int | None, int | None] = {None: None}
    outer = owner.outer
    for key in branch.inputs:
        name = branch.values[key].name
        if name not in outer:
            raise RefusedError(f"{name} is sparse")
        here[key] = outer[name]
    for key, value in branch.values.items():
        around = graph.values.get(outer.get(value.name) or 0)
        if value.tensor is not None:
            same = around is not None and around.tensor is value.tensor
            here[key] = outer[value.name] if same else edit.constant(value.tensor.numpy(), value.name)
    found = list[int | None]()
    foreign: set[str] | None = None
    for node in branch.in_order():
        inputs, outputs = [here[key] for key in node.inputs], [None] * len(node.outputs)
        if node.opaque or node.salt:
            foreign = _names(graph, owner) if foreign is None else foreign
            if not foreign.isdisjoint(set(node.captures).difference(outer)):
                raise RefusedError("a name has two meanings")
            keys = _moved(edit, node, inputs, branch, owner)
            found += keys[:1] if node.op == "If" and node.opaque == HAS_BODY else []
        else:
            keys = [*edit.add(node.op, inputs, node.attributes, domain=node.domain, outputs=outputs, name=node.name)]
        here.update((key, made) for key, made in zip(node.outputs, keys, strict=True) if key is not None)
    for root, (_, key) in zip(owner.outputs, branch.outputs, strict=False):
        target = here[key]
        if root is not None and target is not None:
            edit.alias(root, target)
    return edit.commit()[0], found


def _undeclared(graph: Graph, owner: Node) -> Graph:
    """A graph that takes a symbol of no input, which exporters invent for an If that gives an output, for what it says: nothing."""
    values = dict[int, Value]()
    for key in owner.outputs:
        type = UNKNOWN if key is None else graph.type(key)
        if key in graph.output_keys and key is not None and type.shape is not None:
            shape = tuple(None if isinstance(dim, str) and dim not in graph.symbols else dim for dim in type.shape)
            values[key] = replace(graph.values[key], type=replace(type, shape=shape))
    return replace(graph, values=Map(graph.values).update(values)) if values else graph


def _names(graph: Graph, owner: Node) -> set[str]:
    """Names of values of a graph, and of all that is in its bodies but those of one node."""
    found = {value.name for value in graph.values.values()}
    for node in graph.nodes.values():
        if node.opaque == HAS_BODY and node is not owner:
            found.update(names_within(node.source))
    return found


def _moved(edit: Edit, node: Node, inputs: list[int | None], branch: Graph, owner: Node) -> list[int | None]:
    """Put a node of a branch beside the If: one that no rule looks at, or that is not the same as its equal."""
    salt = digest("moved", owner.id, node.id)
    id = expression_id(node.op, node.domain, node.attributes, tuple(inputs), salt)
    keys = [None if key is None else output_key(id, i) for i, key in enumerate(node.outputs)]
    values = [branch.values.get(key or 0) for key in node.outputs]
    types, names = zip(*[(UNKNOWN, "") if v is None else (_told(v.type), v.name) for v in values], strict=True)
    edit.adopt(node.but(inputs=tuple(inputs), outputs=tuple(keys), salt=salt), types, names)
    return keys


def _told(type: ValueType) -> ValueType:
    """A type of a branch, as the graph around may know it: inference makes up the same symbols there, for other sizes."""
    return type if type.shape is None else replace(type, shape=tuple(dim if known(dim) else None for dim in type.shape))
