"""A static shape for every value, also where a shape is only known when the model runs.

Exporters leave many shapes open that follow from the inputs: a Reshape whose target is computed, an Expand of a mask. Here
the inputs get sizes and everything else is inferred from them, node by node, with the content of computed constants.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import prod

from graphopt.cost.windows import VIEWS
from graphopt.ir.constants import small_array
from graphopt.ir.graph import Graph, Node
from graphopt.ir.infer import InferenceError, infer, shape_data
from graphopt.ir.types import BITS, TIMES, UNKNOWN, ValueType
from graphopt.runtime.feeds import default_size

ASSUMED = 128
"""The size of a dimension of which nothing is known, its name included."""

_DEEP = 200  # values resolved one inside the other; more only happens when a graph was not resolved in order


class Shapes:
    """Static types by value, remembered by key: a key stands for the same expression in every graph of a search.

    Args:
        dims: Known sizes of symbolic dimensions by name.
    """

    def __init__(self, dims: Mapping[str, int] | None = None) -> None:
        self.dims = dict(dims or {})
        self._types: dict[int, ValueType] = {}

    def resolve(self, graph: Graph) -> None:
        """Learn the shapes of a whole graph, each after those it depends on."""
        if any(value.type.shape is None or not value.type.static for value in graph.values.values()):
            for node in graph.in_order():
                for key in node.outputs:
                    if key is not None:
                        self.type(graph, key)

    def type(self, graph: Graph, key: int) -> ValueType:
        """Dtype and static shape of a value.

        A symbol that can't be inferred has its known size, else what its name says, as where inputs are made up; the first dimension
        without a name is of 1, what else is not known of :data:`ASSUMED`, an unknown rank of 0.
        """
        found = self._types.get(key)
        if found is None:
            found = self._types[key] = self._resolve(graph, key, 0)
        return found

    def shape(self, graph: Graph, key: int) -> tuple[int, ...]:
        """Static shape of a value."""
        return self.type(graph, key).shape  # type: ignore[return-value]

    def nbytes(self, graph: Graph, key: int) -> int:
        """Size of a value in bytes; strings and unknown types count 8 bytes an element."""
        type = self.type(graph, key)
        return ((type.elements or 0) * BITS.get(type.dtype or "", 64) + 7) // 8

    def map_size(self, graph: Graph, key: int) -> tuple[int, int]:
        """Size of a feature map in bytes, and its channels, those of all images of a batch."""
        return self.nbytes(graph, key), prod(self.shape(graph, key)[:2])

    def live_bytes(self, graph: Graph) -> int:
        """Bytes of computed values that are alive at once, at most, where each node writes to memory of its own and views cost nothing."""
        outputs = {key for _, key in graph.outputs}
        shown: dict[int, int] = {}  # by a computed value: itself, or what it is a view of
        left: dict[int, int] = {}  # nodes that still read a value or a view of it
        alive = most = 0
        for node in graph.in_order():
            if graph.is_lazy(node):
                continue
            read = {shown[key] for key in node.inputs if key is not None and key in shown}
            made = [key for key in node.outputs if key is not None]
            for key in made:
                first = node.inputs[0] if node.inputs else None
                view = node.op in VIEWS and first is not None and first in shown
                shown[key] = shown[first] if view and first is not None else key
                alive += 0 if view else self.nbytes(graph, key)
                left[shown[key]] = left.get(shown[key], 0) + len(graph.users[key]) + (key in outputs)
            most = max(most, alive)
            for key in read:
                left[key] -= 1
            alive -= sum(self.nbytes(graph, key) for key in {*read, *made} if left.get(key) == 0)
        return most

    def _resolve(self, graph: Graph, key: int, depth: int) -> ValueType:
        type = graph.type(key)
        if type.static or type.other is not None:
            return type if type.other is None else ValueType(None, (), type.other)
        node = graph.producer(key)
        if node is not None and depth < _DEEP:
            for out, inferred in zip(node.outputs, self._infer(graph, node, depth + 1), strict=True):
                if out == key and inferred.static and type.dtype in (None, inferred.dtype):
                    return inferred
        return ValueType(type.dtype, tuple(self._size(d, axis) for axis, d in enumerate(type.shape or ())))

    def _infer(self, graph: Graph, node: Node, depth: int) -> tuple[ValueType, ...]:
        unknown = (UNKNOWN,) * len(node.outputs)
        if node.opaque:
            return unknown
        types: list[ValueType | None] = []
        for key in node.inputs:
            if key is not None and key not in self._types:
                self._types[key] = self._resolve(graph, key, depth)
            types.append(None if key is None else self._types[key])
        data = [
            small_array(graph, key) if key is not None and type is not None and shape_data(type) else None
            for key, type in zip(node.inputs, types, strict=True)
        ]
        version = graph.opsets.get(node.domain, 1)
        try:
            return infer(node.op, node.domain, version, node.attributes, types, data, len(node.outputs))
        except InferenceError:
            return unknown  # the assumed sizes do not fit together

    def _size(self, dim: int | str | None, axis: int) -> int:
        if isinstance(dim, int):
            return dim
        if dim is None:
            return 1 if axis == 0 else ASSUMED
        if dim in self.dims:
            return self.dims[dim]
        if TIMES in dim:
            return prod(int(part) if part.isdecimal() else self._size(part, axis) for part in dim.split(TIMES))
        if "+" in dim:
            return sum(
                int(part) if part.isdigit() else self._size(part, axis) for part in map(str.strip, dim.split("+"))
            )
        return default_size(dim, ASSUMED)
