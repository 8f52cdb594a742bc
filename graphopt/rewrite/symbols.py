"""What the operators of the rule language do, with symbols among their operands, how large their results may get, and what they raise that can't say."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

ITEMS = 1 << 16
"""Items of a list, elements of a constant that a rule writes down."""
STEPS = 1 << 20
"""Items that all loops and ranges of one match may go through."""
BITS = 256
"""Of a whole number."""
OPERANDS = 256
"""Of a node, among which a pattern looks for some: each of them is another match, and names all the others."""


class Unknown(Exception):
    """The graph does not say."""


class TooLargeError(Unknown):
    """What an expression computes would be too large; the message says what."""


def bounded(value: Any) -> Any:
    """A result, unless it is a whole number too large to be one of a tensor.

    Raises:
        TooLargeError: It is.
    """
    if type(value) is int and value.bit_length() > BITS:
        raise TooLargeError(f"a whole number of more than {BITS} bits")
    return value


def leaves(value: Any) -> int:
    """Elements of nested lists.

    Raises:
        TooLargeError: There are more than :data:`ITEMS`.
    """
    if not isinstance(value, list | tuple):
        return 1
    n = 0
    for item in value:
        n += leaves(item) if isinstance(item, list | tuple) else 1
        if n > ITEMS:
            raise TooLargeError(f"lists of more than {ITEMS} items")
    return n


def plus(a: Any, b: Any) -> Any:
    """``a + b``; raises as :func:`bounded` does, of lists."""
    made = a + b
    if isinstance(made, list | tuple | str) and len(made) > ITEMS:
        raise TooLargeError(f"lists of more than {ITEMS} items")
    return made


def times(a: Any, b: Any) -> Any:
    """``a * b``; raises as :func:`bounded` does, of lists."""
    for items, n in ((a, b), (b, a)):
        if isinstance(items, list | tuple | str) and isinstance(n, int):
            size = max(len(items), 0 if isinstance(items, str) else leaves(items))
            if size * n > ITEMS:
                raise TooLargeError(f"lists of more than {ITEMS} items")
    return a * b


def power(a: Any, b: Any) -> Any:
    """``a ** b``; raises as :func:`bounded` does, before it computes."""
    if isinstance(a, int) and isinstance(b, int) and b > 0 and (a.bit_length() - 1) * b >= BITS:
        raise TooLargeError(f"a whole number of more than {BITS} bits")
    made = a**b
    if isinstance(made, complex):
        raise Unknown
    return made


def remainder(a: Any, b: Any) -> Any:
    """``a % b`` of numbers."""
    if isinstance(a, str):
        raise Unknown  # Python would format it
    return a % b


class Symbol:
    """A symbolic or unknown dimension: equal to itself when named, undecidable against anything else."""

    __slots__ = ("name",)

    def __init__(self, name: str | None) -> None:
        self.name = name

    def __repr__(self) -> str:
        return self.name or "?"


def items_of(value: Any) -> Any:
    """What a list, a tuple or a text holds.

    Raises:
        Unknown: It is something else.
    """
    if isinstance(value, (list, tuple, str)):
        return value
    raise Unknown


def equal(a: Any, b: Any) -> bool:
    """Equality that knows symbols: elementwise on sequences.

    Raises:
        Unknown: It depends on what a symbol stands for.
    """
    if type(a) is int and type(b) is int:  # most of what is compared
        return a == b
    if isinstance(a, Symbol) or isinstance(b, Symbol):
        if isinstance(a, Symbol) and isinstance(b, Symbol) and a.name is not None and a.name == b.name:
            return True
        raise Unknown
    if isinstance(a, (list, tuple)) and isinstance(b, (list, tuple)):
        if len(a) != len(b):
            return False
        doubt = False
        for x, y in zip(a, b, strict=True):
            try:
                if not equal(x, y):
                    return False
            except Unknown:
                doubt = True
        if doubt:
            raise Unknown
        return True
    return bool(a == b)


def _ordered(compare: Callable[[Any, Any], bool]) -> Callable[[Any, Any], bool]:
    def run(a: Any, b: Any) -> bool:
        if not isinstance(a, int | float) or not isinstance(b, int | float):
            raise Unknown
        return compare(a, b)

    return run


def any_holds(test: Callable[[Any], bool], items: Iterable[Any]) -> bool:
    """Whether a test holds of some item, whatever the others are.

    Raises:
        Unknown: It holds of none that can be decided, and some can't.
    """
    doubt = False
    for item in items:
        try:
            if test(item):
                return True
        except Unknown:
            doubt = True
    if doubt:
        raise Unknown
    return False


def _contains(a: Any, b: Any) -> bool:
    return any_holds(partial(equal, a), items_of(b))


COMPARE: dict[type, Callable[[Any, Any], bool]] = {
    ast.Eq: equal,
    ast.NotEq: lambda a, b: not equal(a, b),
    ast.Lt: _ordered(operator.lt),
    ast.LtE: _ordered(operator.le),
    ast.Gt: _ordered(operator.gt),
    ast.GtE: _ordered(operator.ge),
    ast.In: _contains,
    ast.NotIn: lambda a, b: not _contains(a, b),
    ast.Is: operator.is_,
    ast.IsNot: operator.is_not,
}


BINARY: dict[type, Callable[[Any, Any], Any]] = {
    ast.Add: plus,
    ast.Sub: operator.sub,
    ast.Mult: times,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: remainder,
    ast.Pow: power,
}
OF_INTEGERS: dict[type, Callable[[int, int], int]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}
"""Those whose result is an integer not much longer than both operands: it need not be foreseen that it would be too large."""
