"""Operators on single elements, for tensors of any size: as :mod:`graphopt.prover.semantics` has them."""

from __future__ import annotations

import operator as operators
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any

import numpy as np

from graphopt.ir.types import FLOATS, Array
from graphopt.prover.generic.facts import OpenError
from graphopt.prover.generic.propositions import eq
from graphopt.prover.generic.reals import Reals
from graphopt.prover.generic.sizes import Int, atom, whole
from graphopt.prover.generic.tensors import Call, Index, Tensor, joint_shape, stretched
from graphopt.prover.generic.terms import ONE, ZERO, Real, joined, negated
from graphopt.prover.semantics import OPERATORS, UnsupportedError
from graphopt.prover.semantics import Call as ElementCall

_COMPARISONS = ("Greater", "Less", "GreaterOrEqual", "LessOrEqual", "Equal")


_RING = frozenset(
    {"Add", "Sub", "Mul", "Neg", "Max", "Min", "Abs", "Sign", "Sum", "Where", "Identity", "Clip", "Relu", *_COMPARISONS}
)


class Elements:
    """One element at a time, as arrays without dimensions, for the elementwise operators of ``semantics``."""

    seed = 0

    def __init__(self, algebra: Reals) -> None:
        self.algebra = algebra
        self.name = "terms" if algebra.exact else "field"

    def holds(self, a: Array) -> bool:
        return isinstance(a.item() if a.dtype == object else None, Real)

    def fresh(self, name: str, shape: tuple[int, ...]) -> Array:
        raise OpenError(f"{name}: an element of its own")

    def constant(self, values: Array) -> Array:
        return boxed(self.algebra.const(float(values)))

    def _each(self, function: Callable[..., Any], *arrays: Array) -> Array:
        return boxed(function(*(a.item() for a in arrays)))

    def add(self, a: Array, b: Array) -> Array:
        return self._each(self.algebra.plus, a, b)

    def neg(self, a: Array) -> Array:
        return self._each(self.algebra.neg, a)

    def mul(self, a: Array, b: Array) -> Array:
        return self._each(self.algebra.times, a, b)

    def div(self, a: Array, b: Array) -> Array:
        return self._each(self.algebra.quotient, a, b)

    def max(self, a: Array, b: Array) -> Array:
        return self._each(self.algebra.max, a, b)

    def min(self, a: Array, b: Array) -> Array:
        return self._each(self.algebra.min, a, b)

    def less(self, a: Array, b: Array) -> Array:
        return self._each(self.algebra.less, a, b)

    def equal(self, a: Array, b: Array) -> Array:
        return self._each(self.algebra.equal, a, b)

    def select(self, condition: Array, a: Array, b: Array) -> Array:
        return self._each(self.algebra.select, condition, a, b)

    def func(self, name: str, *operands: Array) -> Array:
        return boxed(self.algebra.func(name, *(a.item() for a in operands)))


def boxed(thing: Any) -> Array:
    """A 0-d array of one object."""
    made = np.empty((), object)
    made[()] = thing
    return made


def elementwise(call: Call, dtype: str) -> Tensor:
    """An elementwise operator on tensors that broadcast."""
    operands = [x for x in call.x if x is not None]
    shape = joint_shape(call, [x.shape for x in operands])
    if call.op == "PRelu":
        if len(shape) != operands[0].rank:
            raise OpenError("a PRelu whose slope is of a higher rank")
        for a, b in zip(shape, operands[0].shape, strict=True):
            call.scope.require(eq(a, b), "a PRelu whose slope is larger")
    whole_numbers = any(x.dtype not in FLOATS and x.dtype != "bool" for x in operands)
    if whole_numbers and call.op == "Cast":
        return call.result(shape, lambda index: _cast(call, operands[0].at(index), dtype), dtype, operands[0].ints)
    if whole_numbers and call.op not in _RING and call.op not in ("Div", "Mod", "Pow"):
        raise OpenError(f"{call.op} of integers")

    def at(index: Index) -> Any:
        items = [None if x is None else stretched(call, x, index, shape) for x in call.x]
        return _element(call, items, dtype, whole_numbers)

    return call.result(shape, at, dtype, _content(call, operands))


def _element(call: Call, items: Sequence[Any], dtype: str, whole_numbers: bool) -> Any:
    d = call.d
    first = items[0]
    # Sums and products of whole numbers may wrap around: then the order of two is not that of others as far apart.
    ordered = whole_numbers and call.op in (*_COMPARISONS, "Max", "Min", "Clip", "Relu", "Abs", "Sign")
    if ordered and any(isinstance(i, Real) and not plain(i) for i in items):
        raise OpenError(f"{call.op} of sums of integers")
    match call.op:
        case "And" | "Or" | "Xor":
            return joined(call.op.lower(), items)
        case "Not":
            return negated(first)
        case "Greater":
            return d.less(items[1], first)
        case "Less":
            return d.less(first, items[1])
        case "GreaterOrEqual":
            return negated(d.less(first, items[1]))
        case "LessOrEqual":
            return negated(d.less(items[1], first))
        case "Equal" if not isinstance(first, Real):
            raise OpenError("Equal of truth values")
        case "Where" if dtype == "bool":
            raise OpenError("Where of truth values")
        case "Identity":
            return first
        case "Div" | "Mod" | "Pow" if whole_numbers:
            if call.op in ("Div", "Pow") and isinstance(items[1], Real) and items[1] == ONE:
                return first
            return d.of(_function(f"whole {call.op}", items))
        case "Cast" | "CastLike":
            return _cast(call, first, dtype)
    known: list[Array | None] = []
    for x, item in zip(call.x, items, strict=True):
        fill = None if x is None or not x.const else x.fill
        if fill is None and isinstance(item, Real) and x is not None and x.const and item.number is not None:
            fill = float(item.number)
        known.append(None if fill is None else np.array(fill))
    semantics = OPERATORS.get((call.domain, call.op))
    if semantics is None:
        raise OpenError(f"{call.op} has no semantics here")
    made = ElementCall(
        call.op,
        Elements(d),
        [None if i is None else boxed(i) for i in items],
        call.attributes,
        call.scope.opset,
        [dtype],
        [None if x is None else x.dtype for x in call.x],
        known,
    )
    try:
        found = semantics(made)
    except UnsupportedError as error:
        raise OpenError(str(error)) from None
    return (found[0] if isinstance(found, list) else found).item()


def plain(item: Real, inside: bool = False) -> bool:
    """Whether an integer element is a number, an operand's, or chosen among such."""
    if item.number is not None:
        return True
    if any(binders or not factors for factors, binders, _ in item.terms):
        return False
    ((term, c),) = item.terms.items() if len(item.terms) == 1 else ((((), (), frozenset()), Fraction(0)),)
    if abs(c) != 1 or len(term[0]) != 1 or term[0][0][1] != 1:
        return False
    a = term[0][0][0]
    # The negative of the least number wraps around; inside, it is a minimum's.
    return (a.kind == "x" and (c == 1 or inside)) or (a.kind == "max" and all(plain(r, True) for r in a.args[0]))


def _function(name: str, items: Sequence[Any]) -> Any:
    return atom("f", name, *items)


_BITS = {
    "i8": 7,
    "u8": 8,
    "i16": 15,
    "u16": 16,
    "i32": 31,
    "u32": 32,
    "i64": 63,
    "u64": 64,
    "f16": 11,
    "bf16": 8,
    "f32": 24,
    "f64": 53,
}


def _cast(call: Call, item: Any, dtype: str) -> Any:
    d, source = call.d, call.arg(0).dtype
    if source == dtype:
        return item
    if not isinstance(item, Real):
        return d.select(item, ONE, ZERO)
    if dtype == "bool":
        return negated(d.equal(item, ZERO))
    if source not in _BITS or dtype not in _BITS:
        raise OpenError(f"Cast of {source} to {dtype}")
    if isinstance(item, Real) and item.single is not None and item.single.kind == "x":
        source = d.dtypes.get(item.single.args[0], source)  # what was cast to a wider type on the way is as it was
        if source == dtype:
            return item
    floats = source in FLOATS
    one = item.single
    if floats and dtype in FLOATS:
        ranks = {"f16": 1, "bf16": 1, "f32": 2, "f64": 3}
        if ranks[dtype] > ranks[source]:
            return item
    elif not floats and one is not None and one.kind in ("x", "if"):
        # Every number of the narrower type is one of the wider. What whole numbers come to may have wrapped around.
        small = one.kind == "if" and all(r.number in (0, 1) for r in one.args[1:])
        unsigned = (source.startswith("u") and not dtype.startswith("u")) or source[0] == dtype[0] or dtype in FLOATS
        if small or (unsigned and _BITS[source] <= _BITS[dtype]):
            return item
    elif floats and one is not None and one.kind == "if" and all(r.number in (0, 1) for r in one.args[1:]):
        return item
    return d.of(_function(f"cast:{source}:{dtype}", [item]))


def _content(call: Call, operands: Sequence[Tensor]) -> tuple[Int, ...] | None:
    """Elements of a small tensor of whole numbers."""
    if call.op not in ("Add", "Sub", "Mul", "Identity", "Div") or any(x.ints is None or x.rank > 1 for x in operands):
        return None
    lists = [x.ints or () for x in operands]
    n = max(map(len, lists))
    if any(len(items) not in (1, n) for items in lists):
        return None
    rows = [items * n if len(items) == 1 else items for items in lists]
    if call.op == "Identity":
        return tuple(rows[0])
    if call.op == "Div":
        numbers = [(a.number, b.number) for a, b in zip(*rows, strict=True)]
        if any(a is None or b is None or a < 0 or b <= 0 for a, b in numbers):
            return None
        return tuple(whole(int(a or 0) // int(b or 1)) for a, b in numbers)
    done: dict[str, Callable[[Int, Int], Int]] = {"Add": operators.add, "Sub": operators.sub, "Mul": operators.mul}
    return tuple(done[call.op](a, b) for a, b in zip(*rows, strict=True))
