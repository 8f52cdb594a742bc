"""What the names of a rule are bound to where sizes are not known."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from graphopt.ir.graph import Graph
from graphopt.ir.types import Shape
from graphopt.prover.generic.facts import Facts, OpenError
from graphopt.prover.generic.propositions import Cond, eq, ge
from graphopt.prover.generic.sizes import Int, whole
from graphopt.prover.generic.tensors import Scope
from graphopt.rewrite.expr import Env, Unknown
from graphopt.rewrite.symbols import Symbol

_RAW = -(10**40)  # what C code that looks past the methods would see: nothing that works


@dataclass(frozen=True)
class Broken:
    """What the pattern computes where it can't be followed; no harm where the conditions exclude it."""

    error: OpenError
    shape: Shape | None = None  # what the engine knows of the example's
    known: bool = True  # whether that is known here


class Several:
    """What a constant of more than one element holds: no number."""

    def __eq__(self, other: object) -> bool:
        return False

    __hash__ = None  # type: ignore[assignment]


class Missing:
    """An optional operand that is absent."""

    key = None


MISSING = Missing()


@dataclass
class World:
    """What expressions may look at; in the place of the graph in :class:`graphopt.rewrite.expr.Env`.

    Attributes:
        scope: Where operators are evaluated.
        graph: The rule's example, for what does not depend on sizes.
        sure: Whether a dimension was met, since this was last reset, of which the engine knows only the name.
        raised: What a function raised of its own accord: the engine's would.
        sized: Whether a size was met.
    """

    scope: Scope
    graph: Graph
    sure: bool = False
    raised: Unknown | None = None
    sized: bool = False

    @property
    def facts(self) -> Facts:
        """What is known."""
        return self.scope.facts


class Size(int):
    """A dimension that is some number."""

    p: Int
    facts: Facts

    def __new__(cls, p: Int, facts: Facts) -> Size:
        """A size as an int that can't be used as one behind the back of its methods."""
        made = int.__new__(cls, _RAW)
        made.p, made.facts = p, facts
        return made

    def _with(self, other: Any, change: Callable[[Int, Int], Int]) -> Any:
        if isinstance(other, bool) or not isinstance(other, int):
            if isinstance(other, float):
                raise OpenError("a size in a floating-point number")
            return NotImplemented
        return known(change(self.p, inner(other)), self.facts)

    def __add__(self, other: Any) -> Any:
        return self._with(other, lambda a, b: a + b)

    __radd__ = __add__

    def __sub__(self, other: Any) -> Any:
        return self._with(other, lambda a, b: a - b)

    def __rsub__(self, other: Any) -> Any:
        return self._with(other, lambda a, b: b - a)

    def __mul__(self, other: Any) -> Any:
        if isinstance(other, tuple | list):
            raise OpenError("a list repeated as often as a size says")
        return self._with(other, lambda a, b: a * b)

    __rmul__ = __mul__

    def _quotient(self, a: Int, b: Int) -> Int:
        if not self.facts.prove(ge(b, 1)):
            raise OpenError(f"the quotient of {a} by {b}")
        return self.facts.quotient(self.facts.norm(a), self.facts.norm(b))

    def __floordiv__(self, other: Any) -> Any:
        return self._with(other, self._quotient)

    def __rfloordiv__(self, other: Any) -> Any:
        return self._with(other, lambda a, b: self._quotient(b, a))

    def __mod__(self, other: Any) -> Any:
        return self._with(other, lambda a, b: a - b * self._quotient(a, b))

    def __rmod__(self, other: Any) -> Any:
        return self._with(other, lambda a, b: b - a * self._quotient(b, a))

    def __neg__(self) -> Any:
        return known(-self.p, self.facts)

    def __abs__(self) -> Any:
        return self if self >= 0 else -self

    def _open(self, *_: Any) -> Any:
        raise OpenError("a size where a number is needed")

    __truediv__ = __rtruediv__ = __pow__ = __rpow__ = __index__ = __int__ = __float__ = __divmod__ = __lshift__ = _open

    def _decide(self, other: Any, make: Callable[[Int, Int], Cond]) -> Any:
        if not isinstance(other, int):
            if isinstance(other, float):
                raise OpenError("a size compared with a floating-point number")
            return NotImplemented
        return self.facts.decide(make(self.p, inner(other)))

    def __eq__(self, other: object) -> Any:
        return self._decide(other, eq)

    def __ne__(self, other: object) -> Any:
        found = self._decide(other, eq)
        return found if found is NotImplemented else not found

    def __lt__(self, other: Any) -> Any:
        return self._decide(other, lambda a, b: ge(b, a + 1))

    def __le__(self, other: Any) -> Any:
        return self._decide(other, lambda a, b: ge(b, a))

    def __gt__(self, other: Any) -> Any:
        return self._decide(other, lambda a, b: ge(a, b + 1))

    def __ge__(self, other: Any) -> Any:
        return self._decide(other, ge)

    def __bool__(self) -> bool:
        return self.facts.decide(~eq(self.p, 0))

    def __hash__(self) -> int:
        return hash(str(self.p))

    def __repr__(self) -> str:
        return str(self.p)


def inner(value: int) -> Int:
    """A number or a size as a polynomial."""
    return value.p if isinstance(value, Size) else whole(int(value))


def known(p: Int, facts: Facts) -> int:
    """A polynomial as a number, where it is one, or as a size."""
    p = facts.norm(p)
    n = p.number
    return Size(p, facts) if n is None else n


def outer(env: Env, p: Int) -> Any:
    """A dimension as the engine knows it: a number, or a name."""
    world: World = env.graph  # type: ignore[assignment]
    p = _stretched(world.facts, world.facts.norm(p))
    if p.leaves & world.facts.named:
        world.sure = True
        return Symbol(str(p))
    world.sized = world.sized or p.number is None
    return known(p, world.facts)


def _stretched(facts: Facts, p: Int) -> Int:
    """A dimension in which no name is stretched to what may be a number: where it is one, the engine knows it."""
    for _ in range(8):
        wide = [a for a in p.atoms if a.kind == "wide" and a.leaves & facts.named]
        numbers = [d for a in wide for d in sorted(a.args[0], key=str) if not d.leaves & facts.named]
        if not numbers:
            return p
        facts.decide(eq(numbers[0], 1))
        p = facts.norm(p)
    raise OpenError("a dimension stretched to many")
