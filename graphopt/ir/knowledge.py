"""What is known of a node's outputs, given what is known of its operands."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from graphopt.ir import ops
from graphopt.ir.constants import known_content, shape_operand
from graphopt.ir.content import Content, content
from graphopt.ir.graph import Graph, Node, Value
from graphopt.ir.infer import InferenceError, infer, refined
from graphopt.ir.types import UNKNOWN, ValueType


def known_of(
    view: Graph, node: Node, outputs: Sequence[Value | None], opsets: Mapping[str, int]
) -> tuple[bool, list[ValueType], Content | None]:
    """Whether a node's outputs are constant, their types and the first one's elements.

    Args:
        view: Where the operands are.
        node: The node.
        outputs: What is known of its outputs so far, ``None`` for one that is left out.
        opsets: Operator-set version by domain.
    """
    declared = [UNKNOWN if v is None else v.type for v in outputs]
    if node.opaque or node.salt:
        return any(v is not None and v.const for v in outputs), declared, None
    operands = [None if k is None else view.values[k] for k in node.inputs]
    const = all(v is None or v.const for v in operands) and ops.pure(
        node.op, node.domain, node.attributes, len(node.inputs)
    )
    if node.op == "Shape" and operands and operands[0] is not None:
        const = const or operands[0].type.static
    types = [None if v is None else v.type for v in operands]
    known = [known_content(view, k) for k in node.inputs]
    if not all(t.static for v, t in zip(outputs, declared, strict=True) if v is not None):
        data = [shape_operand(view, k) for k in node.inputs]
        version = opsets.get(node.domain, 1)
        try:
            found = infer(node.op, node.domain, version, node.attributes, types, data, len(node.outputs), known)
        except InferenceError:
            return const, declared, None
        declared = [refined(a, b) for a, b in zip(declared, found, strict=True)]
    if node.domain or not declared:
        return const, declared, None
    return const, declared, content(node.op, node.attributes, types, known, declared[0])
