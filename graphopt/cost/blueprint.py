"""What a window looks like apart from its place in the graph.

Equal blueprints in different layers, or in different models, are one window to measure: operators, attributes, types and
wiring count, names and weights do not. Of constants the content counts where it steers the kernel (axes, shapes, a
scale), else only the type.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from graphopt.cost.shapes import Shapes
from graphopt.cost.windows import CONVOLUTIONS, NORMALISATIONS, POINTWISE, PRODUCTS, Window
from graphopt.ir import ops
from graphopt.ir.constants import readable_array, small_array
from graphopt.ir.delta import Delta
from graphopt.ir.graph import Graph, Node, Opaque, Tensor
from graphopt.ir.memo import Memo
from graphopt.ir.types import ValueType

_NUMERIC = CONVOLUTIONS | PRODUCTS | POINTWISE | NORMALISATIONS | {"InstanceNormalization", "GroupNormalization"}
METHOD = 5
"""Raised whenever windows are measured differently, so that no process takes an old time for a new one."""
BLOCKED = -1
"""Mark of an operand that arrives in the runtime's blocked convolution layout and is used in it."""
_FEW = 8  # elements; float constants of operators outside _NUMERIC (the scales of a Resize) count up to here
LOW, HIGH = -104.0, -87.5
"""Where the exponential of a float32 is denormal."""
PARTS = 8
"""Shares are told apart in steps of an eighth: the price of a window need not know more."""
_STEPS = 5  # operators between mask and product at most: exporters write reshapes on either side of the Softmax
_BETWEEN = frozenset({"Reshape", "Transpose", "Unsqueeze", "Squeeze", "Identity", "Flatten"})
_memo: Memo[tuple[int, int], tuple[int, int]] = Memo()
_digests: Memo[tuple[int, int], str] = Memo()


@dataclass(frozen=True, eq=False)
class Blueprint:
    """A window with its surroundings named.

    Attributes:
        nodes: The nodes, in canonical order.
        externals: Keys of the values that come from outside, and their static types.
        constants: Keys of the constant operands, and whether their content counts.
        outputs: Keys of the values that are read outside.
        marks: What is special about an external: :data:`BLOCKED`, or the eighths of it that are denormal; and what whole numbers an external
            was dequantised from, or an output is quantised to (:func:`graphopt.cost.windows.kind`).
        signature: Equal for windows that cost the same.
        measurable: Whether a model of it can be built.
    """

    nodes: tuple[Node, ...]
    externals: dict[int, ValueType]
    constants: dict[int, bool]
    outputs: tuple[int, ...]
    marks: Mapping[int, int]
    signature: str
    measurable: bool


def blueprint(
    graph: Graph, window: Window, shapes: Shapes, marks: Iterable[tuple[int, int]] = (), packs: bool = False
) -> Blueprint:
    """Describe a window.

    Args:
        graph: Where it stands.
        window: The nodes.
        shapes: Static shapes of its values.
        marks: By operand from outside, see :attr:`Blueprint.marks`.
        packs: Whether the provider packs the constant weights of products when a session opens, as the CPU's does. Which way round
            a Gemm reads one makes no difference then, and two measurements of one kernel would only differ by noise.
    """
    special = dict(marks)
    nodes = tuple(graph.nodes[id] for id in window.nodes)
    made: dict[int, tuple[int, int]] = {}
    externals: dict[int, ValueType] = {}
    constants: dict[int, bool] = {}
    measurable = True
    rows: list[Any] = []
    outputs: list[int] = []
    members = set(window.nodes)
    for index, node in enumerate(nodes):
        operands: list[Any] = []
        turned = packs and _turned(graph, node)
        if node.captures or not ops.known_domain(node.domain):
            measurable = False  # a custom operator may end the process on inputs that are made up
        for at, key in enumerate(node.inputs):
            if key is None:
                operands.append(None)
                continue
            if key in made:
                operands.append(made[key])
                continue
            value = graph.values[key]
            if value.const:
                counts = _content_counts(node, value.type, at)
                text = _content(graph, key) if counts else ""
                if text is None:
                    measurable = False
                constants[key] = constants.get(key, False) or counts
                type = shapes.type(graph, key)
                if turned and key == node.inputs[1]:
                    type = ValueType(type.dtype, (type.shape or ())[::-1])
                operands.append(("const", list(constants).index(key), str(type), text))
                continue
            if key not in externals:
                externals[key] = shapes.type(graph, key)
                measurable = measurable and value.type.shape is not None and value.type.dtype is not None
            operands.append(("in", list(externals).index(key), str(externals[key]), special.get(key, 0)))
        seen: list[int] = []
        for slot, key in enumerate(node.outputs):
            if key is None:
                seen.append(False)
                continue
            made[key] = (index, slot)
            outside = key in graph.output_keys or any(user not in members for user in graph.users[key])
            seen.append(special.get(key, outside))
            if outside:
                outputs.append(key)
        said = ops.said(node.op, node.domain, node.attributes)
        attributes = [(name, _attribute(value)) for name, value in said if not (turned and name == "transB")]
        rows.append((node.op, node.domain, graph.opsets.get(node.domain, 1), attributes, operands, seen))
    if not outputs:
        # Nothing reads it, but it runs (a custom operator may act on the world).
        outputs = [key for key in nodes[-1].outputs if key is not None][:1]
        measurable = measurable and bool(outputs)
    signature = hashlib.blake2b(repr((METHOD, rows)).encode(), digest_size=12).hexdigest()
    return Blueprint(nodes, externals, constants, tuple(outputs), special, signature, measurable)


def _turned(graph: Graph, node: Node) -> bool:
    """Whether a Gemm reads a constant weight, which could as well be stored the other way round, by its columns."""
    if (node.op, node.domain) != ("Gemm", "") or not node.attributes.get("transB"):
        return False
    weight = node.inputs[1]
    return weight is not None and graph.values[weight].const and graph.type(weight).dtype == "f32"


def _content_counts(node: Node, type: ValueType, at: int) -> bool:
    """Whether the numbers in a constant, not only their count, decide what the kernel does."""
    if at == ops.SCORE_BIAS.get((node.domain, node.op)):
        # The exponential of what a mask hides is denormal on its way to zero: attention takes twice as long.
        return True
    n = type.elements
    if n is None or n <= 1 or type.dtype not in ("f32", "f64", "f16", "bf16"):
        return True
    return node.op not in _NUMERIC and n <= _FEW


def _content(graph: Graph, key: int) -> str | None:
    """A digest of a constant's content, ``None`` when it can't be read here."""
    array = small_array(graph, key)
    if array is None:
        value = graph.values[key]
        return _digest(graph, key) if value.tensor is None else f"{value.tensor.key:x}"
    if array.dtype == object:
        return repr(array.tolist())
    return hashlib.blake2b(array.tobytes(), digest_size=8).hexdigest()


def _digest(graph: Graph, key: int) -> str | None:
    """The same of a large constant that is computed, as the part of a mask is."""
    at = (graph.origin, key)
    if at not in _digests:
        array = readable_array(graph, key)
        if array is None:
            return None
        _digests[at] = hashlib.blake2b(array.tobytes(), digest_size=8).hexdigest()
    return _digests[at]


def _attribute(value: Any) -> str:
    if isinstance(value, Tensor):
        return f"{value.type} {value.key:x}"
    return f"{value.key:x}" if isinstance(value, Opaque) else repr(value)


def denormal_shares(graph: Graph, window: Window) -> tuple[tuple[int, int], ...]:
    """The operands of a window's product that are partly denormal: key, and how many eighths of them.

    A processor multiplies denormal numbers a hundred times slower than others. The usual source is attention with a finite mask:
    softmax(score - 100) is about 1e-44, below the smallest normal float32 and above zero, and the product after it pays for every one.
    Only the numbers tell, not the shapes, so the mask is looked at. A Softmax pays for all that is masked, itself: of its operand the mark says how many eighths
    are as low.
    """
    head = graph.nodes[window.head]
    if head.op == "Softmax" and head.inputs[0] is not None:
        hidden = _masks(graph, head.inputs[0])[1]
        return ((head.inputs[0], hidden),) if hidden else ()
    if head.op not in ("MatMul", "FusedMatMul"):
        return ()
    found = [(key, _share(graph, key)) for key in dict.fromkeys(head.inputs) if key is not None]
    return tuple((key, share) for key, share in found if share)


def denormal_readers(graph: Graph, delta: Delta) -> set[int]:
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
        found.update(node.id for node in ahead if node.op in ("MatMul", "FusedMatMul", "Softmax"))
        step = ahead
    return found


def _share(graph: Graph, key: int) -> int:
    """Eighths of a value that are denormal, 0 unless it is the softmax of masked scores."""
    node = graph.producer(key)
    if node is None or node.op != "Softmax":
        return 0
    return 0 if node.inputs[0] is None else _masks(graph, node.inputs[0])[0]


def _masks(graph: Graph, scores: int) -> tuple[int, int]:
    """Eighths of scores of which the exponential is denormal, and of those that it makes denormal or zero, by the constant mask that is added to them."""
    node = graph.producer(scores)
    for _ in range(_STEPS - 1):
        if node is None or node.op not in _BETWEEN or node.inputs[0] is None:
            break
        node = graph.producer(node.inputs[0])
    if node is None or node.op != "Add":
        return 0, 0
    found = [_masked(graph, k) for k in node.inputs if k is not None and graph.values[k].const]
    return max((share for share, _ in found), default=0), max((hidden for _, hidden in found), default=0)


def _masked(graph: Graph, key: int) -> tuple[int, int]:
    """Eighths of a constant that the exponential makes denormal, and denormal or zero; at least one where there are any."""
    at = (graph.origin, key)
    if at not in _memo:
        array = readable_array(graph, key)
        array = np.zeros(0) if array is None else array
        numeric = array.dtype.kind == "f" and array.size > 1
        shares = [float(np.mean(part)) if numeric else 0.0 for part in ((array > LOW) & (array < HIGH), array < HIGH)]
        first, second = (min(PARTS, max(1, round(share * PARTS))) if share > 0 else 0 for share in shares)
        _memo[at] = first, second
    return _memo[at]
