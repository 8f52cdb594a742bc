"""Numbers in the lines of rules: the constants that they match, and those that they become."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from graphopt.ir.constants import small_array
from graphopt.ir.delta import RefusedError
from graphopt.ir.edit import Edit
from graphopt.ir.graph import Graph
from graphopt.ir.infer import parameters
from graphopt.ir.types import NUMPY_NAMES

_CLOSE = 1e-5
_COARSE = 2.0**-8  # half a unit in the last place of a bfloat16: what rounding to a 16-bit type costs at most


def is_number(graph: Graph, key: int | None, number: float, exact: bool = False) -> bool:
    """Whether a value is a constant of one element that is the number, up to a relative 1e-5.

    In a 16-bit type it may be what the number rounds to there, unless that is much further off (0 for 1e-9, say).

    Args:
        graph: The graph.
        key: The value.
        number: The number.
        exact: Whether it must be the number itself, a zero of its sign, or what that rounds to in the value's type.
    """
    if key is None or not graph.values[key].const or graph.values[key].type.elements != 1:
        return False
    array = small_array(graph, key)
    if array is None or (array.dtype.kind not in "fiu" and array.dtype.name != "bfloat16"):
        return False
    found = float(array.ravel()[0])
    off = abs(found - number)
    if found == number or (not exact and off <= _CLOSE * abs(number)):
        return not exact or math.copysign(1.0, found) == math.copysign(1.0, number)
    rounds = exact or array.dtype.name in ("float16", "bfloat16")
    return rounds and off <= _COARSE * abs(number) and found == float(np.array(number).astype(array.dtype))


def constant(
    edit: Edit,
    op: str,
    domain: str,
    operands: Sequence[int | float | None],
    outputs: Sequence[int | None] = (),
) -> list[int | None]:
    """The operands of a node to be, numbers among them made constants of no dimension.

    A number takes the dtype of an operand, or of a result that stays, that ONNX's schema gives the same type parameter:
    in ``Where(cond, x, 0.0)`` that of ``x``. Where it is tied to none, the dtype of the first operand, or else int64,
    whichever the schema allows.

    Args:
        edit: The edit that will add the node.
        op: Operator type.
        domain: Operator domain.
        operands: Keys, ``None`` for those left out, and numbers (as ``float``).
        outputs: Keys of results whose types are known.

    Raises:
        RefusedError: No dtype is to be had, or it can't hold the number.
    """
    return [
        _constant(edit, _dtype(edit, op, domain, operands, outputs, at), given) if isinstance(given, float) else given
        for at, given in enumerate(operands)
    ]


def _dtype(
    edit: Edit,
    op: str,
    domain: str,
    operands: Sequence[int | float | None],
    outputs: Sequence[int | None],
    at: int,
) -> str:
    """Of the number at a position."""
    known = [edit.type(key).dtype if isinstance(key, int) else None for key in operands]
    first = next((dtype for dtype in known if dtype is not None), None)
    version = edit.graph.opsets.get(domain, 1)
    formal = parameters(op, domain, version, len(operands), len(outputs))
    if formal is None:
        if first is None:
            raise RefusedError(f"{op}: nothing tells the dtype of a number")
        return first
    inputs, results = formal
    wanted = inputs[at]
    if len(wanted.dtypes) == 1:
        return next(iter(wanted.dtypes))
    made = [edit.type(key).dtype if key is not None else None for key in outputs]
    for dtype, other in (*zip(known, inputs, strict=True), *zip(made, results, strict=True)):
        if dtype is not None and wanted.name and other.name == wanted.name:
            return dtype
    for dtype in (first, "i64"):
        if dtype in wanted.dtypes:
            return dtype
    raise RefusedError(f"{op}: nothing tells the dtype of a number")


def _constant(edit: Edit, dtype: str, number: float) -> int:
    name = NUMPY_NAMES.get(dtype)
    if name is None:
        raise RefusedError(f"a number needs a dtype that numpy has, not {dtype}")
    with np.errstate(over="ignore", invalid="ignore"):
        array = np.array(number).astype(name)
    if array.dtype.kind in "fc":
        if math.isfinite(number) and not np.isfinite(array):
            raise RefusedError(f"{number:g} is too large for {dtype}")
        return edit.constant(array, meant=number)
    if float(array) != number:
        raise RefusedError(f"{number:g} is no {dtype}")
    return edit.constant(array)
