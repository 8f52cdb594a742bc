"""How large the values of an expression may get, and what it raises that can't say or would say too much."""

from __future__ import annotations

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
