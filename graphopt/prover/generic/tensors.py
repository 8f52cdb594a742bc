"""Tensors of any size: a shape of whole numbers that are not known, and the element at any index.

Operators are functions of a :class:`Call`, as in :mod:`graphopt.prover.semantics`, whose elementwise operators are
used as they are, on one element.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from graphopt.ir import ops
from graphopt.ir.types import FLOATS
from graphopt.prover.generic.facts import Facts, OpenError
from graphopt.prover.generic.propositions import Cond, either, eq
from graphopt.prover.generic.reals import Reals
from graphopt.prover.generic.sizes import ONE as UNIT
from graphopt.prover.generic.sizes import Int, whole
from graphopt.prover.generic.terms import Real

Index = tuple[Int, ...]
Shape = tuple[Int, ...]


@dataclass(frozen=True, eq=False)
class Tensor:
    """A tensor.

    Attributes:
        dtype: Short name of its element type.
        shape: Its dimensions.
        at: The element at an index: a Real, or a condition where the dtype is ``bool``.
        const: Whether it is known before the model runs.
        ints: Elements in row-major order, of an integer tensor whose elements are whole numbers known here.
        fill: The number that all elements are, if one is.
        key: Of the value in the graph of the rule's example, where it is one.
    """

    dtype: str
    shape: Shape
    at: Callable[[Index], Any]
    const: bool = False
    ints: tuple[Int, ...] | None = None
    fill: float | None = None
    key: int | None = None

    @property
    def rank(self) -> int:
        """Number of dimensions."""
        return len(self.shape)

    @property
    def numbers(self) -> list[int]:
        """Content of an integer tensor that has to be numbers."""
        if self.ints is None:
            raise OpenError("an integer operand whose content is not known")
        found = [i.number for i in self.ints]
        if None in found:
            raise OpenError("an integer operand that has to be numbers")
        return [n for n in found if n is not None]


@dataclass
class Scope:
    """Where operators are evaluated.

    Attributes:
        facts: What is known.
        algebra: Arithmetic of elements.
        opset: Version of the operator set.
        after: Whether it is the replacement, which has to be defined wherever the pattern is.
    """

    facts: Facts
    algebra: Reals
    opset: int
    after: bool = False

    def require(self, cond: Cond, what: str, *, checked: bool = False) -> None:
        """What an operator needs in order to be defined.

        Args:
            cond: The condition.
            what: What is wrong where it does not hold.
            checked: The engine refuses a rewrite that does not meet it, where all dimensions are numbers.
        """
        if not self.after or (checked and not cond.leaves & self.facts.named):
            self.facts.assume(cond)
        elif not self.facts.prove(cond):
            raise OpenError(f"the replacement may be undefined: {what}")


@dataclass(frozen=True)
class Call:
    """One operator applied to tensors of any size."""

    op: str
    x: Sequence[Tensor | None]
    attributes: Mapping[str, Any]
    scope: Scope
    outputs: int
    domain: str = ""

    @property
    def facts(self) -> Facts:
        """What is known."""
        return self.scope.facts

    @property
    def d(self) -> Reals:
        """Arithmetic of elements."""
        return self.scope.algebra

    def __getitem__(self, name: str) -> Any:
        found = self.attributes.get(name)
        if found is not None:
            return found
        spatial = self.arg(0).rank - 2 if self.x else None
        return ops.default(self.op, name, opset=self.scope.opset, spatial_rank=spatial, domain=self.domain)

    def arg(self, i: int) -> Tensor:
        """An operand that must be there."""
        found = self.x[i] if i < len(self.x) else None
        if found is None:
            raise OpenError(f"{self.op} without operand {i}")
        return found

    def opt(self, i: int) -> Tensor | None:
        """An operand that may be absent."""
        return self.x[i] if i < len(self.x) else None

    def axis(self, value: Any, rank: int) -> int:
        """An axis from the front."""
        if isinstance(value, Int):
            value = value.number
        if type(value) is not int or not -rank <= value < rank:
            raise OpenError(f"{self.op}: axis {value} of a tensor of rank {rank}")
        return int(value) % rank

    def axes(self, values: Iterable[Any], rank: int) -> list[int]:
        """Axes from the front, none of them twice: the runtime refuses that, or takes it in a way of its own."""
        found = [self.axis(value, rank) for value in values]
        if len(set(found)) != len(found):
            raise OpenError(f"{self.op} names an axis twice")
        return found

    def result(
        self,
        shape: Sequence[Int],
        at: Callable[[Index], Any],
        dtype: str | None = None,
        ints: tuple[Int, ...] | None = None,
        fill: float | None = None,
    ) -> Tensor:
        """A tensor, constant if all operands are."""
        const = all(t is None or t.const for t in self.x)
        return Tensor(dtype or self.arg(0).dtype, tuple(shape), at, const, ints, fill)


Result = Tensor | list[Tensor]
Semantics = Callable[[Call], Result]
TENSOR_OPERATORS: dict[tuple[str, str], Semantics] = {}


def operator(*names: str, domain: str = "") -> Callable[[Semantics], Semantics]:
    """Register the semantics of operators."""

    def register(function: Semantics) -> Semantics:
        TENSOR_OPERATORS.update({(domain, name): function for name in names})
        return function

    return register


def joint_shape(call: Call, shapes: Sequence[Shape]) -> Shape:
    """The shape that shapes broadcast to."""
    rank = max(len(s) for s in shapes)
    out = []
    for axis in range(rank):
        dims = [s[axis - rank + len(s)] for s in shapes if axis - rank + len(s) >= 0]
        out.append(joint_dimension(call, dims))
    return tuple(out)


def joint_dimension(call: Call, dims: Sequence[Int]) -> Int:
    """The dimension that dimensions are stretched to."""
    facts = call.facts
    dims = list(dict.fromkeys(facts.norm(d) for d in dims))
    checked = call.op != "PRelu"  # ONNX's shape inference looks at its first operand alone
    for i, a in enumerate(dims):
        for b in dims[:i]:
            if a != UNIT and b != UNIT:
                call.scope.require(
                    either(eq(a, 1), eq(b, 1), eq(a, b)), f"{call.op} of dimensions {a} and {b}", checked=checked
                )
    sure = [d for d in dims if d != UNIT and facts.prove(~eq(d, 1))]
    for d in sure[1:]:
        facts.prove(eq(d, sure[0]))  # and it is noted
    return facts.wide([facts.norm(d) for d in dims])


def stretched(call: Call, x: Tensor, index: Index, shape: Shape) -> Any:
    """The element of an operand that is stretched to a shape."""
    lead = len(shape) - x.rank
    facts = call.facts
    return x.at(tuple(facts.stretched(index[lead + a], d, shape[lead + a]) for a, d in enumerate(x.shape)))


def constant_ints(scope: Scope, ints: Sequence[Int], shape: Shape, dtype: str = "i64") -> Tensor:
    """A tensor of whole numbers."""
    items = tuple(ints)

    if len(items) == 1:
        return Tensor(dtype, shape, lambda index: scope.algebra.size(items[0]), True, items)

    def at(index: Index) -> Real:
        position: Int = whole(0)
        for i, n in zip(index, shape, strict=True):
            position = position * n + i
        if position.number is not None:
            return scope.algebra.size(items[position.number])
        for place, item in enumerate(items[:-1]):
            if scope.facts.decide(eq(position, place)):
                return scope.algebra.size(item)
        return scope.algebra.size(items[-1])

    return Tensor(dtype, shape, at, True, items)


def constant(scope: Scope, dtype: str, shape: Shape, value: float) -> Tensor:
    """A tensor of one number."""
    if dtype == "bool":
        return Tensor(dtype, shape, lambda index: bool(value), True, None, value)
    sizes = [d.number for d in shape]
    count = math.prod(n for n in sizes if n is not None)
    ints = (whole(int(value)),) * count if dtype not in FLOATS and None not in sizes else None
    return Tensor(dtype, shape, lambda index: scope.algebra.const(value), True, ints, value)
