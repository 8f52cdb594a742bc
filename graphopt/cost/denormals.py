"""Operands full of denormal numbers, which a processor multiplies a hundred times slower than others.

The usual source is attention with a finite mask: softmax(score - 100) is about 1e-44, below the smallest normal float32 and
above zero, and the product after it pays for every one. Only the numbers tell, not the shapes, so the mask is looked at.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from graphopt.cost.windows import Window
from graphopt.ir.constants import READABLE, NotConstantError, evaluate
from graphopt.ir.edit import Delta
from graphopt.ir.graph import Graph, Node
from graphopt.ir.memo import Memo

LOW, HIGH = -104.0, -87.5
"""Where the exponential of a float32 is denormal."""
PARTS = 8
"""Shares are told apart in steps of an eighth: the price of a window need not know more."""
_STEPS = 5  # operators between mask and product at most: exporters write reshapes on either side of the Softmax
_BETWEEN = frozenset({"Reshape", "Transpose", "Unsqueeze", "Squeeze", "Identity", "Flatten"})
_memo: Memo[int, int] = Memo()


def shares(graph: Graph, window: Window) -> tuple[tuple[int, int], ...]:
    """The operands of a window's product that are partly denormal: key, and how many eighths of them."""
    head = graph.nodes[window.head]
    if head.op not in ("MatMul", "FusedMatMul"):
        return ()
    found = [(key, _share(graph, key)) for key in dict.fromkeys(head.inputs) if key is not None]
    return tuple((key, share) for key, share in found if share)


def readers(graph: Graph, delta: Delta) -> set[int]:
    """Products whose operands may hold other numbers after an edit: the mask is a few steps before the product."""
    found: set[int] = set()
    step: Iterable[Node] = delta.added
    for _ in range(_STEPS):
        ahead: list[Node] = []
        for node in step:
            if node.op in ("Add", "Softmax") or node.op in _BETWEEN:
                ahead.extend(
                    graph.nodes[u] for key in node.outputs if key is not None for u in graph.users.get(key, ())
                )
        found.update(node.id for node in ahead if node.op in ("MatMul", "FusedMatMul"))
        step = ahead
    return found


def _share(graph: Graph, key: int) -> int:
    """Eighths of a value that are denormal, 0 unless it is the softmax of masked scores."""
    node = graph.producer(key)
    if node is None or node.op != "Softmax":
        return 0
    for _ in range(_STEPS):
        before = node.inputs[0]
        node = graph.producer(before) if before is not None else None
        if node is None or node.op not in _BETWEEN:
            break
    if node is None or node.op != "Add":
        return 0
    return max((_masked(graph, k) for k in node.inputs if k is not None and graph.values[k].const), default=0)


def _masked(graph: Graph, key: int) -> int:
    """Eighths of a constant that the exponential makes denormal, at least one if there are any."""
    if key not in _memo:
        size = graph.type(key).nbytes
        try:
            array = evaluate(graph, key) if size is not None and size <= READABLE else np.zeros(0)
        except NotConstantError:
            array = np.zeros(0)
        numeric = array.dtype.kind == "f" and array.size > 1
        share = float(np.mean((array > LOW) & (array < HIGH))) if numeric else 0.0
        _memo[key] = min(PARTS, max(1, round(share * PARTS))) if share > 0 else 0
    return _memo[key]
