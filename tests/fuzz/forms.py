"""Forms that a whole model takes: a part of it in a body or in a function of its own, weights that are sparse."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from onnx import ModelProto, NodeProto, TensorProto, helper, numpy_helper

from graphopt.errors import GraphoptError
from graphopt.runtime.session import LoadableModel, Session
from tests.fuzz.draft import PLAIN, Draft

_SHARE = 0.12  # of the models that have a body or a function
_SPARSE = 0.03


def formed(draft: Draft, model: ModelProto) -> ModelProto:
    """A model in another form, now and then; as it is, where the runtime does not open that."""
    kind = draft.choice(("If", "Loop", "function")) if draft.chance(_SHARE) else ""
    sparse = draft.chance(_SPARSE)
    if not kind and not sparse:
        return model
    made = ModelProto()
    made.CopyFrom(model)
    inputs = len(draft.inputs)
    if kind:
        # The branches of an If may call their values alike; what is in a body may hold one itself.
        _enclose(draft, made, kind, ("t_", "t_" if draft.chance(0.5) else "e_"))
        if draft.chance(0.3):
            _enclose(draft, made, draft.choice(("If", "Loop", "function")), ("u_", "o_"))
    if sparse:
        _thin(made)
    try:
        with Session(LoadableModel(made.SerializeToString()), PLAIN):
            return made
    except GraphoptError:
        del draft.inputs[inputs:]
        return model


def reads(node: NodeProto) -> set[str]:
    """What a node reads, its bodies' outer values among it."""
    found = {name for name in node.input if name}
    for attribute in node.attribute:
        for body in (attribute.g, *attribute.graphs):
            own = {i.name for i in body.input} | {t.name for t in body.initializer}
            own |= {o for n in body.node for o in n.output}
            found |= set().union(*map(reads, body.node), {o.name for o in body.output}) - own
    return found


def _enclose(draft: Draft, model: ModelProto, kind: str, prefixes: tuple[str, str]) -> None:
    """Put the last nodes of a model into both branches of an If, the body of a Loop, or a function."""
    graph = model.graph
    nodes = list(graph.node)
    first = draft.number(0, len(nodes) - 1)
    tail = nodes[first:]
    made = {o for n in tail for o in n.output if o}
    outputs = [o.name for o in graph.output if o.name in made]
    types = {o.name: o.type.tensor_type.elem_type for o in graph.output}
    if not outputs:
        return
    del graph.node[first:]
    if kind == "function":
        name = f"part{len(model.functions)}"
        outside = sorted(set().union(*map(reads, tail)) - made)
        model.functions.append(helper.make_function("own", name, outside, outputs, tail, model.opset_import))
        if len(model.functions) == 1:
            model.opset_import.append(helper.make_opsetid("own", 1))
        graph.node.append(helper.make_node(name, outside, outputs, domain="own"))
        return
    bodies = [helper.make_graph(*_renamed(tail, made, outputs, types, prefix)) for prefix in prefixes]
    if kind == "If":
        if draft.chance(0.4):
            condition = draft.name()
            graph.initializer.append(numpy_helper.from_array(np.array(draft.chance(0.5)), condition))
        else:
            condition = draft.input([], "bool")
            graph.input.append(helper.make_tensor_value_info(condition, TensorProto.BOOL, []))
        graph.node.append(helper.make_node("If", [condition], outputs, then_branch=bodies[0], else_branch=bodies[1]))
        return
    body, times, prefix = bodies[0], draft.name(), prefixes[0]
    body.input.extend([helper.make_tensor_value_info(prefix + "i", TensorProto.INT64, []),
                       helper.make_tensor_value_info(prefix + "c", TensorProto.BOOL, [])])  # fmt: skip
    body.node.append(helper.make_node("Identity", [prefix + "c"], [prefix + "d"]))
    body.output.insert(0, helper.make_tensor_value_info(prefix + "d", TensorProto.BOOL, []))
    graph.initializer.append(numpy_helper.from_array(np.array(draft.number(1, 2), np.int64), times))
    graph.node.append(helper.make_node("Loop", [times, ""], outputs, body=body))


def _renamed(
    nodes: Sequence[NodeProto], made: set[str], outputs: Sequence[str], types: dict[str, int], prefix: str
) -> tuple[list[NodeProto], str, list[object], list[object]]:
    """Nodes whose results have other names, as a graph is made of them."""
    copies = []
    for node in nodes:
        copy = NodeProto()
        copy.CopyFrom(node)
        _read_renamed(copy, made, prefix)
        copy.output[:] = [prefix + o if o else o for o in node.output]
        copies.append(copy)
    infos: list[object] = [helper.make_tensor_value_info(prefix + o, types[o], None) for o in outputs]
    return copies, "body", [], infos


def _read_renamed(node: NodeProto, made: set[str], prefix: str) -> None:
    """Make a node, and the nodes of its bodies, read what was renamed."""
    node.input[:] = [prefix + i if i in made else i for i in node.input]
    for attribute in node.attribute:
        for inner in attribute.g.node:
            _read_renamed(inner, made, prefix)


def _thin(model: ModelProto) -> None:
    """Make some weights sparse."""
    graph = model.graph
    given = {i.name for i in graph.input} | {o.name for o in graph.output}
    for tensor in list(graph.initializer):
        array = numpy_helper.to_array(tensor)
        if array.dtype.kind != "f" or not array.ndim or tensor.name in given:
            continue
        where = np.flatnonzero(array)
        values = numpy_helper.from_array(array.ravel()[where], tensor.name)
        indices = numpy_helper.from_array(where.astype(np.int64), tensor.name + "_indices")
        graph.sparse_initializer.append(helper.make_sparse_tensor(values, indices, list(array.shape)))
        graph.initializer.remove(tensor)
