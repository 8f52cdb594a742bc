"""The sizes of symbolic dimensions at which an instance is run."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

from graphopt.ir.graph import Graph
from graphopt.ir.types import Shape
from graphopt.prover.cases import Instance, operands
from graphopt.prover.values import own_numbers

_SIZES = (3, 5, 2, 7)
_MOST_BINDINGS = 10
_BEYOND = {"i8": 901, "u8": 901, "f16": 2101, "bf16": 901, "i16": 70_001, "u16": 70_001}
"""Odd numbers: of the even ones between 2,048 and 4,096 float16 has all."""
_MOST_ELEMENTS = 1 << 20  # of an operand
_LARGEST = 4096  # size of a symbolic dimension


def bindings(instance: Instance) -> list[dict[str, int]]:
    """Sizes of the symbolic dimensions: those that are known to fit, different ones, all 1, all alike, each alone 1 or empty, all empty."""
    names = instance.symbols
    if not names:
        return [{}]
    different = {name: _SIZES[i % len(_SIZES)] + 4 * (i // len(_SIZES)) for i, name in enumerate(names)}
    made = [different, dict.fromkeys(names, 1), dict.fromkeys(names, 2)]
    if instance.sizes:
        made.insert(0, {**different, **instance.sizes})
    made += [{**different, name: 1} for name in names] + [{**different, name: 0} for name in names]
    # A size beyond a number that the case or the rule knows: a Slice to 1000 is not always the whole.
    known = {abs(n) for n in _integers(o.data for o in operands(instance.case) if o.dtype in ("i64", "i32"))}
    known.update(abs(int(n)) for n in own_numbers((instance.before, instance.after), instance.symbolic))
    beyond = [2 * n if 2 * n <= _LARGEST else n + 1 for n in known if max(different.values()) <= n <= _LARGEST]
    narrow = _narrow(instance.before, instance.after)
    if narrow:
        made[1:1] = [{**different, name: narrow} for name in dict.fromkeys((names[0], names[-1]))]
    made[2:2] = [{**different, name: n} for name in names[:2] for n in sorted(beyond)[:2]]
    shapes = [o.dims for o in operands(instance.case)]
    made = [m for m in made if all(_elements(dims, m) <= _MOST_ELEMENTS for dims in shapes)]
    return [*made, dict.fromkeys(names, 0)][:_MOST_BINDINGS]


def _elements(dims: Shape, sizes: Mapping[str, int]) -> int:
    return math.prod(d if isinstance(d, int) else sizes.get(str(d), 1) for d in dims)


def _narrow(*graphs: Graph) -> int:
    """A size, or a place, that the narrowest type of a rule which its operands don't have can't hold; 0 without one."""
    held = {graph.type(key).dtype for graph in graphs for key in graph.inputs}
    nodes = [(graph, node) for graph in graphs for node in graph.nodes.values()]
    made = {graph.type(out).dtype for graph, node in nodes for out in node.outputs if out is not None}
    return max((_BEYOND.get(str(dtype), 0) for dtype in made - held), default=0)


def _integers(data: Any) -> Iterator[int]:
    if isinstance(data, int):
        yield data
    elif data is not None and not isinstance(data, float):
        for item in data:
            yield from _integers(item)
