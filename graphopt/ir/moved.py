"""Constants that were only moved: rules that turn a weight round and back again come back to the weight.

Rewrites that undo each other leave a Transpose of a Transpose, or a Split of a Concat, on a constant. Such chains cost nothing when
the model runs, but a graph with them has another hash than the graph without, so a search would take it for a new one and go
round in circles. So they are shortened as they arise: values are only moved, never computed, and stay the same to the last bit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import accumulate, pairwise
from typing import Any, Protocol

import numpy as np

from graphopt.ir.graph import Node
from graphopt.ir.types import ValueType

_RESHAPES = frozenset({"Reshape", "Squeeze", "Unsqueeze", "Flatten"})
MOVES = _RESHAPES | {"Transpose", "Concat", "Split"}
"""Operators that a chain may consist of."""


class _Builder(Protocol):
    """What is asked of the graph under construction: of :class:`graphopt.ir.edit.Edit`."""

    def add(self, op: str, inputs: Sequence[int | None], attributes: Mapping[str, Any] | None = None) -> list[int]: ...
    def constant(self, array: np.ndarray[Any, Any], name: str = "") -> int: ...
    def maker(self, key: int) -> Node | None: ...
    def readable(self, key: int) -> bool: ...
    def type(self, key: int) -> ValueType: ...


def shortened(
    edit: _Builder,
    op: str,
    inputs: Sequence[int | None],
    attributes: Mapping[str, Any],
    types: Callable[[], Sequence[ValueType]],
) -> list[int] | None:
    """The outputs of an operator of :data:`MOVES` on constants, by a shorter way.

    Args:
        edit: The graph under construction, which may get other nodes instead.
        op: The operator.
        inputs: Its operands, all constant.
        attributes: Its attributes.
        types: Infers its outputs.

    Returns:
        A key for each output; ``None`` when there is no shorter way.
    """
    keys = [key for key in inputs if key is not None]
    if op == "Transpose":
        return _transposed(edit, keys[0], attributes)
    if op == "Concat":
        return _joined(edit, keys, attributes)
    made = types()
    if not all(type.static and 0 not in (type.shape or ()) for type in made):
        return None
    return _parted(edit, keys[0], attributes, made) if op == "Split" else _reshaped(edit, keys[0], made[0])


def _transposed(edit: _Builder, key: int, attributes: Mapping[str, Any]) -> list[int] | None:
    rank = _rank(edit, key)
    if rank is None:
        return None
    order = _order(attributes, rank)
    if sorted(order) != list(range(rank)):
        return None
    before = _moving(edit, key, "Transpose")
    if before is not None:
        key, inner = _source(before), _order(before.attributes, rank)
        order = tuple(inner[axis] for axis in order)
    if order == tuple(range(rank)):
        return [key]
    return None if before is None else edit.add("Transpose", [key], {"perm": order})


def _order(attributes: Mapping[str, Any], rank: int) -> tuple[int, ...]:
    return tuple(attributes.get("perm") or range(rank)[::-1])


def _reshaped(edit: _Builder, key: int, type: ValueType) -> list[int] | None:
    chain = [key]
    while before := _moving(edit, chain[-1], *_RESHAPES):
        chain.append(_source(before))
    for source in chain:
        if edit.type(source) == type:
            return [source]
    if len(chain) == 1:
        return None
    return edit.add("Reshape", [chain[-1], edit.constant(np.array(type.shape, np.int64))])


def _joined(edit: _Builder, keys: Sequence[int], attributes: Mapping[str, Any]) -> list[int] | None:
    axis = _axis(edit, keys[0], attributes.get("axis")) if keys else None
    if axis is None:
        return None
    flat = [part for key in keys for part in _parts(edit, key, axis)]
    whole = list(_wholes(edit, flat, axis))
    if len(whole) == 1:
        return whole
    return None if whole == list(keys) else edit.add("Concat", whole, {"axis": axis})


def _axis(edit: _Builder, key: int, axis: int | None) -> int | None:
    """An axis counted from the front; ``None`` where the value has none such: then inference says what is wrong."""
    rank = _rank(edit, key)
    if rank is None or axis is None or not -rank <= axis < rank:
        return None
    return axis % rank


def _parts(edit: _Builder, key: int, axis: int) -> Sequence[int]:
    """What a value was joined of along an axis, or the value itself."""
    before = _moving(edit, key, "Concat")
    if before is None or _axis(edit, key, before.attributes.get("axis")) != axis:
        return [key]
    return [part for part in before.inputs if part is not None]


def _wholes(edit: _Builder, keys: Sequence[int], axis: int) -> Iterator[int]:
    """The same values, where all that a Split made stands in order what it was made of."""
    at = 0
    while at < len(keys):
        before = _moving(edit, keys[at], "Split")
        made = () if before is None else before.outputs
        if before is not None and tuple(keys[at : at + len(made)]) == made:
            source = _source(before)
            if _axis(edit, source, before.attributes.get("axis", 0)) == axis:
                yield source
                at += len(made)
                continue
        yield keys[at]
        at += 1


def _parted(edit: _Builder, key: int, attributes: Mapping[str, Any], types: Sequence[ValueType]) -> list[int] | None:
    axis = _axis(edit, key, attributes.get("axis", 0))
    parts = [key] if axis is None else _parts(edit, key, axis)
    if axis is None or len(parts) == 1:
        return None
    ends = _ends([edit.type(part) for part in parts], axis)
    cuts = _ends(types, axis)
    if ends is None or cuts is None or not set(cuts) <= set(ends):
        return None
    groups = [parts[ends.index(low) + 1 if low else 0 : ends.index(high) + 1] for low, high in pairwise([0, *cuts])]
    return [group[0] if len(group) == 1 else edit.add("Concat", group, {"axis": axis})[0] for group in groups]


def _rank(edit: _Builder, key: int) -> int | None:
    shape = edit.type(key).shape
    return None if shape is None else len(shape)


def _ends(types: Sequence[ValueType], axis: int) -> list[int] | None:
    """Where along an axis each of some pieces ends; ``None`` if that can't be told."""
    sizes = [type.shape[axis] for type in types if type.shape is not None]
    whole = [size for size in sizes if isinstance(size, int) and size > 0]
    return list(accumulate(whole)) if len(whole) == len(types) else None


def _moving(edit: _Builder, key: int, *ops: str) -> Node | None:
    """The operator that made a constant, if it is one of these and what it moved is at hand."""
    node = edit.maker(key)
    if node is None or node.op not in ops or node.domain or node.opaque:
        return None
    return node if all(k is None or edit.readable(k) for k in node.inputs) else None


def _source(node: Node) -> int:
    """What an operator moved."""
    (key, *_) = node.inputs
    assert key is not None
    return key
