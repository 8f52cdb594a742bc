"""The bytes of lazy constants.

A rule that merges two weights adds a Concat of two constants. The search only needs its shape; here, when a model is
measured or saved, it becomes an array. ONNX's reference implementation evaluates the operators, one node at a time.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from onnx import helper
from onnx.reference import ReferenceEvaluator

from graphopt.ir.content import LIMIT, Content
from graphopt.ir.graph import Graph, Node
from graphopt.ir.infer import make_node, shape_data

Array = np.ndarray[Any, Any]

SMALL = 1 << 16  # bytes; constants up to this size may be read by any of a rule's conditions
READABLE = 1 << 23  # bytes; up to this size min_of and its like look at a constant, so it is known by its whole content


class NotConstantError(Exception):
    """The value depends on the model's inputs, or an operator on its way has no reference implementation."""


_small: dict[tuple[int, int], Array | None] = {}


def evaluate(graph: Graph, key: int, memo: dict[int, Array] | None = None) -> Array:
    """The content of a constant value.

    Args:
        graph: Where the value lives.
        key: The value.
        memo: Results to reuse and to add to, by key.

    Raises:
        NotConstantError: It is not constant or can't be evaluated here.
    """
    memo = {} if memo is None else memo
    stack = [key]
    while stack:
        top = stack[-1]
        if top in memo:
            stack.pop()
            continue
        value = graph.values[top]
        if value.tensor is not None:
            memo[top] = value.tensor.numpy()
            continue
        if not value.const or value.producer is None:
            raise NotConstantError(value.name)
        node = graph.nodes[value.producer]
        missing = [k for k in node.inputs if k is not None and k not in memo and not _shape_only(node)]
        if missing:
            stack.extend(missing)
            continue
        for out, array in zip(node.outputs, evaluate_node(graph, node, memo), strict=True):
            if out is None:
                continue
            type = graph.values[out].type
            if type.static and array.shape != type.shape:
                # ONNX's reference implementation and its inference disagree on a few old operators: neither is trusted.
                raise NotConstantError(f"{node.op}: shape {array.shape} instead of {type.shape}")
            memo[out] = array
    return memo[key]


def _shape_only(node: Node) -> bool:
    return node.op in ("Shape", "Size")


def evaluate_node(graph: Graph, node: Node, memo: dict[int, Array]) -> list[Array]:
    """The outputs of one node whose inputs are in ``memo``."""
    if node.op in ("Shape", "Size") and node.domain == "":
        return [_shape(graph, node)]
    names = ["" if k is None else f"i{i}" for i, k in enumerate(node.inputs)]
    outs = [f"o{i}" for i in range(len(node.outputs))]
    try:
        proto = make_node(node.op, node.domain, graph.opsets.get(node.domain, 1), names, outs, node.attributes)
        runner = ReferenceEvaluator(
            helper.make_graph([proto], "g", [helper.make_empty_tensor_value_info(n) for n in names if n],
                              [helper.make_empty_tensor_value_info(o) for o in outs]),
            opsets=dict(graph.opsets),
        )  # fmt: skip
        feeds = {n: memo[k] for n, k in zip(names, node.inputs, strict=True) if k is not None}
        with np.errstate(all="ignore"):
            results = runner.run(None, feeds)
    except Exception as error:
        # The reference implementation raises anything from KeyError to AssertionError for what it lacks.
        raise NotConstantError(f"{node.op}: {error}") from error
    return [np.asarray(r) for r in results]


def _shape(graph: Graph, node: Node) -> Array:
    key = node.inputs[0]
    shape = graph.type(key).shape if key is not None else None
    if shape is None:
        raise NotConstantError(node.name)
    if node.op == "Shape":
        shape = shape[slice(node.attributes.get("start", 0), node.attributes.get("end"))]
    sizes = [d for d in shape if isinstance(d, int)]
    if len(sizes) != len(shape):
        raise NotConstantError(node.name)
    return np.array(sizes if node.op == "Shape" else math.prod(sizes), dtype=np.int64)


def small_array(graph: Graph, key: int | None) -> Array | None:
    """The content of a constant of at most :data:`SMALL` bytes, ``None`` for anything else (memoised by key)."""
    if key is None:
        return None
    value = graph.values[key]
    if not value.const:
        return None
    n = value.type.nbytes
    if n is None or n > SMALL:
        return None
    slot = (key, value.tensor.key if value.tensor is not None else 0)
    if slot not in _small:
        if len(_small) > 100_000:
            _small.clear()
        try:
            _small[slot] = evaluate(graph, key)
        except NotConstantError:
            _small[slot] = None
    return _small[slot]


def known_content(graph: Graph, key: int | None) -> Content | None:
    """What is known of the elements of a small integer tensor, constant or not."""
    if key is None:
        return None
    value = graph.values[key]
    if not value.const or value.type.dtype == "f32" or not shape_data(value.type) or (value.type.elements or 0) > LIMIT:
        return value.content
    array = small_array(graph, key)
    return value.content if array is None else tuple(array.ravel().tolist())
