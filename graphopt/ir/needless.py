"""What a graph reads without need: tensors of which only the size is asked, which is known, and states that say what goes without saying."""

from __future__ import annotations

from contextlib import suppress

from graphopt.ir import ops
from graphopt.ir.constants import small_array
from graphopt.ir.edit import Edit, RefusedError
from graphopt.ir.graph import Graph, Node

_STATES = {"LSTM": (5, 6), "GRU": (5,), "RNN": (5,)}
"""Where operators take states that are zeros where none is given."""
_KEEPS_ZEROS = frozenset({"Identity", "Reshape", "Squeeze", "Unsqueeze", "Transpose", "Slice", "Expand", "Tile", "Gather", "Split"})  # fmt: skip
"""Operators that make nothing but zeros of zeros."""


def sized(graph: Graph) -> Graph:
    """A graph in which a size that is known is a number, and no operator: what it is asked of has one reader less, or none."""
    edit = Edit(graph)
    for node in graph.in_order():
        key, of = node.outputs[0] if node.outputs else None, node.inputs[0] if node.inputs else None
        if node.op not in ops.OF_SHAPES or node.domain or key is None or of is None or graph.values[of].const:
            continue
        # An output of the graph and what a body reads keep their names, for which a constant would need an Identity.
        named = key in graph.output_keys or any(graph.nodes[user].captures for user in graph.users[key])
        array = None if named or not edit.readable(key) else small_array(graph, key)
        if array is not None:
            with suppress(RefusedError):
                edit.alias(key, edit.constant(array, graph.values[key].name))
    return edit.commit()[0]


def stateless(graph: Graph) -> Graph:
    """A graph whose recurrent layers are given no states of zeros, which cost a chain of operators where the batch is open."""
    for id in [node.id for node in graph.nodes.values() if node.op in _STATES and not node.domain]:
        node = graph.nodes.get(id)
        if node is None:
            continue
        idle = [i for i in _STATES[node.op] if i < len(node.inputs) and _zeros(graph, node.inputs[i])]
        if idle:
            inputs = [None if i in idle else key for i, key in enumerate(node.inputs)]
            while inputs[-1] is None:
                inputs.pop()
            edit = Edit(graph)
            edit.exchange(node, node.but(inputs=tuple(inputs)))
            graph = edit.commit()[0]
    return graph


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
    return maker.op in _KEEPS_ZEROS and _zeros(graph, maker.inputs[0])


def _fills_with_zeros(node: Node) -> bool:
    value = node.attributes.get("value")
    return value is None or not any(value.numpy().tobytes())
