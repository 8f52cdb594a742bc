"""Shape arithmetic: what is known of the elements of small integer tensors before the model runs.

Exporters compute shapes with ordinary operators: the Shape of a tensor, some elements of it, their product, a Concat, a
Reshape. Where a dimension is a symbol no constant folding gets anywhere, but the symbol can be followed: an element is a
number, a symbol or unknown, just as a dimension is. So the Reshape's result has symbols for dimensions instead of nothing.

Computed sizes are taken to be exact in the 32 bits that some exporters compute them in.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from itertools import zip_longest
from typing import Any

from graphopt.ir.ops import BROADCASTING
from graphopt.ir.types import MADE_UP, Dim, Shape, ValueType, factors, product, quotient

Content = tuple[Dim, ...]
"""The elements of an integer tensor in row-major order."""

LIMIT = 64  # elements; nothing longer is shape arithmetic
_END = 2**31 - 1  # exporters write this, or the 64-bit maximum, for "up to the end"
_CUT = f"{MADE_UP}min("
"""How the names begin of sizes that are the lesser of a number above 1 and of another size: equal where the names are, and contradicting nothing."""
_WRAPS = {"i64": 2**63, "i32": 2**31, "bool": 2}
"""Where numbers begin that an element type lacks: what is computed there is another one."""
_SAME_ELEMENTS = frozenset({"Identity", "Cast", "Reshape", "Squeeze", "Unsqueeze", "Flatten"})


def content(
    op: str,
    attributes: Mapping[str, Any],
    types: Sequence[ValueType | None],
    known: Sequence[Content | None],
    result: ValueType,
) -> Content | None:
    """The elements of a node's first output, ``None`` when nothing is known of them.

    Args:
        op: Operator type, of ONNX's own domain.
        attributes: As in :class:`graphopt.ir.graph.Node`.
        types: Type of each input, ``None`` for an omitted one.
        known: Elements of each input, as far as known.
        result: Type of the output.
    """
    if result.dtype not in ("i64", "i32", "bool") or (result.elements is not None and result.elements > LIMIT):
        return None
    found = _content(op, attributes, types, known, result)
    if found is None or len(found) > LIMIT:
        return None
    found = tuple(
        d if not isinstance(d, int) or -_WRAPS[result.dtype] <= d < _WRAPS[result.dtype] else None for d in found
    )
    if all(d is None for d in found):
        return None
    # What contradicts the inferred shape is not to be trusted.
    return found if result.elements in (None, len(found)) else None


def _content(
    op: str,
    attributes: Mapping[str, Any],
    types: Sequence[ValueType | None],
    known: Sequence[Content | None],
    result: ValueType,
) -> Content | None:
    first = types[0] if types else None
    if first is None:
        return None
    if op == "Shape":
        return None if first.shape is None else first.shape[attributes.get("start", 0) : attributes.get("end")]
    if op == "Size":
        return None if first.shape is None else (product(first.shape),)
    if op == "Concat":
        return _concat(types, known)
    if op == "Range" and len(known) == 3:
        return _steps(known)
    if op == "Where" and len(known) == 3:
        return _chosen(types, known)
    if not known or known[0] is None or first.dtype not in ("i64", "i32", "bool"):
        return None
    if op == "Not":
        return tuple(None if d is None else int(not d) for d in known[0])
    if op == "Cast" and result.dtype == "bool":  # a size may be 0
        return tuple(int(d != 0) if isinstance(d, int) else None for d in known[0])
    if op in _SAME_ELEMENTS:
        return known[0]
    if op in _ARITHMETIC and len(known) == 2 and known[1] is not None:
        return _elementwise(op, types, (known[0], known[1]))
    if first.shape is None or len(first.shape) != 1:
        return None
    if op == "Gather":
        return _gather(known[0], known[1])
    if op == "Slice":
        rows = bounds(attributes, types, known)
        return None if rows is None or [axis for axis, *_ in rows] not in ([0], [-1]) else known[0][slice(*rows[0][1:])]
    if op == "ReduceProd" and result.elements == 1:
        return (product(known[0]),)
    return None


def _concat(types: Sequence[ValueType | None], known: Sequence[Content | None]) -> Content | None:
    """Vectors after one another; one of a known length may be unknown itself."""
    parts: list[Dim] = []
    for type, items in zip(types, known, strict=True):
        if type is None or type.shape is None or len(type.shape) != 1:
            return None
        length = type.shape[0]
        if items is None and (not isinstance(length, int) or length > LIMIT):
            return None
        parts.extend(items if items is not None else (None,) * int(length or 0))
    return tuple(parts)


def _gather(items: Content, picks: Content | None) -> Content | None:
    if picks is None or not all(isinstance(i, int) and -len(items) <= i < len(items) for i in picks):
        return None
    return tuple(items[i] for i in picks if isinstance(i, int))


def _plus(a: Dim, b: Dim) -> Dim:
    if isinstance(a, int) and isinstance(b, int):
        return a + b
    return a if b == 0 else b if a == 0 else None


def _minus(a: Dim, b: Dim) -> Dim:
    if isinstance(a, int) and isinstance(b, int):
        return a - b
    return 0 if a is not None and a == b else a if b == 0 else None


def _rest(a: Dim, b: Dim) -> Dim:
    """The rest of a division, of numbers for which all ways to round are one."""
    return a % b if isinstance(a, int) and isinstance(b, int) and a >= 0 and b > 0 else None


def _same(a: Dim, b: Dim) -> Dim:
    """Whether two elements are equal, as 1 or 0; what a size is called is never negative."""
    if a is None or b is None:
        return None
    if a == b or (isinstance(a, int) and isinstance(b, int)):
        return int(a == b)
    return 0 if any(isinstance(x, int) and x < 0 for x in (a, b)) else None


def _over(a: Dim, b: Dim) -> Dim:
    """A quotient of integers, which ONNX rounds towards zero."""
    if isinstance(a, int) and isinstance(b, int):
        return None if b == 0 else abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)
    return quotient(a, b)


def _ordered(holds: Callable[[int, int], bool]) -> Callable[[Dim, Dim], Dim]:
    """Whether one number is greater than another, say, as 1 or 0."""
    return lambda a, b: int(holds(a, b)) if isinstance(a, int) and isinstance(b, int) else None


def _both(a: Dim, b: Dim) -> Dim:
    return 0 if a == 0 or b == 0 else 1 if a == b == 1 else None


def _either(a: Dim, b: Dim) -> Dim:
    return 1 if a == 1 or b == 1 else 0 if a == b == 0 else None


_ARITHMETIC: Mapping[str, Callable[[Dim, Dim], Dim]] = {
    "Add": _plus,
    "Sub": _minus,
    "Mul": lambda a, b: product((a, b)),
    "Div": _over,
    "Equal": _same,
    "Mod": _rest,
    "Greater": _ordered(operator.gt),
    "GreaterOrEqual": _ordered(operator.ge),
    "Less": _ordered(operator.lt),
    "LessOrEqual": _ordered(operator.le),
    "And": _both,
    "Or": _either,
}


def _elementwise(op: str, types: Sequence[ValueType | None], known: tuple[Content, Content]) -> Content | None:
    """An operator on two vectors or numbers of which one may be stretched."""
    if any(t is None or t.shape is None or len(t.shape) > 1 for t in types):
        return None
    n = max(len(known[0]), len(known[1]))
    a, b = (items * n if len(items) == 1 else items for items in known)
    return tuple(_ARITHMETIC[op](x, y) for x, y in zip(a, b, strict=True)) if len(a) == len(b) else None


def _steps(known: Sequence[Content | None]) -> Content | None:
    """A Range of numbers."""
    start, limit, step = (None if k is None or len(k) != 1 else k[0] for k in known)
    if not isinstance(start, int) or not isinstance(limit, int) or not isinstance(step, int) or step == 0:
        return None
    found = range(start, limit, step)
    return tuple(found) if len(found) <= LIMIT else None


def _chosen(types: Sequence[ValueType | None], known: Sequence[Content | None]) -> Content | None:
    """A Where over vectors or numbers: an element of which it is known which one is chosen, or that both are the same."""
    items = [k for k in known if k is not None]
    if len(items) < 3 or any(t is None or t.shape is None or len(t.shape) > 1 for t in types):
        return None
    n = max(map(len, items))
    test, yes, no = (one * n if len(one) == 1 else one for one in items)
    if not len(test) == len(yes) == len(no):
        return None
    rows = zip(test, yes, no, strict=True)
    return tuple((b if t is None else a if t else b) if t is not None or a == b else None for t, a, b in rows)


def bounds(
    attributes: Mapping[str, Any], types: Sequence[ValueType | None], known: Sequence[Content | None]
) -> list[tuple[int, Any, Any, int]] | None:
    """Axis, start, end and step of each axis of a Slice; ``None`` unless they are known to be numbers."""
    rows = _rows(attributes, types, known)
    numbers = rows is not None and all(isinstance(i, int) for row in rows for i in row) and all(row[3] for row in rows)
    return rows if numbers else None


def _rows(
    attributes: Mapping[str, Any], types: Sequence[ValueType | None], known: Sequence[Content | None]
) -> list[tuple[Any, Any, Any, Any]] | None:
    """What is known of axis, start, end and step of each axis of a Slice; ``None`` where it is not even known how many there are."""
    if "starts" in attributes:  # before operator set 10
        given: list[Any] = [attributes["starts"], attributes["ends"], attributes.get("axes"), None]
    else:
        given = [*known[1:], None, None, None][:4]
        if len(known) < 3 or any(k is None for k in known[1:3]):
            return None
        if any(t is not None and k is None for t, k in zip(types[3:5], known[3:5], strict=False)):
            return None  # axes or steps that are given and not known are not those that go without saying
    starts, ends, axes, steps = given
    axes = range(len(starts)) if axes is None else axes
    steps = (1,) * len(starts) if steps is None else steps
    return list(zip(axes, starts, ends, steps, strict=False))


def takes_all(start: int, end: int, step: int) -> bool:
    """Whether a Slice with these bounds leaves an axis of any size as it is."""
    return start == 0 and step == 1 and end >= _END


# Shapes that contents decide ---------------------------------------------------------------------------------------


def shape(
    op: str, attributes: Mapping[str, Any], types: Sequence[ValueType | None], known: Sequence[Content | None]
) -> Shape | None:
    """The shape of a node's first output as far as the content of its operands decides it, else ``None``."""
    first = types[0] if types else None
    if first is None:
        return None
    if op == "Reshape" and len(known) > 1 and known[1] is not None:
        return _reshaped(first.shape, known[1], attributes.get("allowzero", 0) == 1)
    if op == "Flatten" and first.shape is not None:
        return _flat(first.shape, attributes.get("axis", 1))
    if op == "Expand" and first.shape is not None and len(known) > 1 and known[1] is not None:
        return over((first.shape, known[1]))
    if op == "ConstantOfShape" and known[0] is not None:
        return known[0]
    if op == "Range" and len(known) == 3 and first.dtype in ("i64", "i32"):
        return _counted(known)
    if op == "Slice" and first.shape is not None:
        return _sliced(first.shape, attributes, types, known)
    # An axis, before operator set 7, says where the second operand begins.
    if op in BROADCASTING and op != "PRelu" and "axis" not in attributes:
        shapes = [type.shape for type in types if type is not None and type.shape is not None]
        return over(shapes) if len(shapes) == len(types) else None
    return None


def _flat(x: Shape, axis: int) -> Shape:
    axis += len(x) if axis < 0 else 0
    return product(x[:axis]), product(x[axis:])


def _counted(known: Sequence[Content | None]) -> Shape | None:
    """The shape of a Range from zero, one by one, to a size."""
    start, limit, step = known
    return (limit[0],) if start == (0,) and step == (1,) and limit is not None and _counts(limit[0]) else None


def _counts(size: Dim) -> bool:
    return isinstance(size, str) or (isinstance(size, int) and size >= 0)


def _reshaped(x: Shape | None, target: Content, allowzero: bool) -> Shape | None:
    """The shape after a Reshape.

    A computed size that turns out 0 copies a dimension of ``x`` instead. That is believed of a dimension that is 0 then as well; also
    where the size is a factor of that of ``x`` and nothing is left open: an empty ``x`` must become something that is empty.
    """
    total = None if x is None else product(x)
    told = not {-1, None} & set(target)
    dims: list[Dim] = []
    for i, d in enumerate(target):
        if d == 0 and not allowzero:
            dims.append(x[i] if x is not None and i < len(x) else None)
        elif isinstance(d, str) and not allowzero:
            dims.append(d if (told and _vanishes_with(total, d)) or _stays(x, i, d) else None)
        else:
            dims.append(d if isinstance(d, int) and d >= 0 else None)
    unknown = [i for i, d in enumerate(dims) if d is None]
    if len(unknown) == 1:
        others = product(d for d in dims if d is not None)
        # A 0 among the others would leave the last one open; with a -1 the runtime refuses that.
        if target[unknown[0]] == -1 or (isinstance(others, int) and others > 0):
            dims[unknown[0]] = quotient(total, others)
    return tuple(dims)


def _stays(x: Shape | None, i: int, size: str) -> bool:
    """Whether dimension ``i`` of ``x`` is 0 where this size is, or there is none: a 0 that has nothing to copy is refused."""
    return x is not None and (i >= len(x) or _vanishes_with(x[i], size))


def _vanishes_with(total: Dim, part: str) -> bool:
    """Whether a tensor of ``total`` elements is empty when ``part`` is 0."""
    if total is None:
        return False
    whole, pieces = factors(total), factors(part)
    return whole is not None and pieces is not None and set(pieces[1]) <= set(whole[1])


def _sliced(
    x: Shape, attributes: Mapping[str, Any], types: Sequence[ValueType | None], known: Sequence[Content | None]
) -> Shape | None:
    """The shape after a Slice; an axis that is taken whole keeps its symbol."""
    rows = _rows(attributes, types, known)
    if rows is None:
        return None
    dims = list(x)
    for axis, start, end, step in rows:
        if not isinstance(axis, int) or not -len(x) <= axis < len(x):
            return None
        first = start == 0 and step == 1
        if first and isinstance(end, str):
            dims[axis] = _cut(dims[axis], end)
        elif not first or not isinstance(end, int) or not takes_all(start, end, step):
            dims[axis] = None  # a number is known by ONNX's own inference
    return tuple(dims)


# Dimensions that are cut, and laid over each other ------------------------------------------------------------------


def _cut(size: Dim, end: str) -> Dim:
    """The lesser of two sizes: a table of positions of which as many are taken as there are tokens."""
    if size == end:
        return end
    return f"{_CUT}{size},{end})" if isinstance(size, int) and size > 1 else None


def over(shapes: Sequence[Shape]) -> Shape:
    """The shape of what is broadcast, as far as it is known.

    A size that was cut to another one's is 1 where that is, or the cut one's own: laid over it, it is the same or nothing runs.
    """
    dims: list[Dim] = []
    for row in zip_longest(*(reversed(shape) for shape in shapes), fillvalue=1):
        said = {dim for dim in row if dim != 1}
        whole = [dim for dim in said if all(_covers(dim, other) for other in said)]
        dims.append(whole[0] if whole else None if said else 1)
    return tuple(reversed(dims))


def _covers(dim: Dim, other: Dim) -> bool:
    """Whether what is broadcast has the first of two dimensions, neither of them known to be 1, wherever the two can be broadcast."""
    if isinstance(dim, int):
        return dim == other if isinstance(other, int) else dim >= 0
    if dim is None or dim == other:
        return dim is not None
    return isinstance(other, str) and other.startswith(_CUT) and other.partition(",")[2] == f"{dim})"


def merged(a: Content | None, b: Content | None) -> Content | None:
    """What two sources say of the same elements: a number says more than a symbol, a symbol more than nothing."""
    if a is None or b is None or len(a) != len(b):
        return b if a is None else a
    return tuple(
        y if x is None or (isinstance(y, int) and isinstance(x, str)) else x for x, y in zip(a, b, strict=True)
    )
