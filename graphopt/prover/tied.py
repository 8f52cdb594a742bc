"""Pairs of numbers that keep what an example has between them: a condition that ties one to the other does not hold when either changes alone.

An author who writes that two bounds are as far from zero thinks of whole ones, and one whose factors undo each other thinks of one and one.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import replace

from graphopt.ir.types import FLOATS
from graphopt.prover.cases import Case, Place, held, put
from graphopt.prover.contents import read_alone
from graphopt.rewrite.examples import Operand
from graphopt.rewrite.schema import Rule

_FLOATS = (0.5, -0.5, 0.25, 1.5, -1.5, 2.0, -2.0, 3.0)
"""Halves among them, and both signs; none larger than the numbers that any content has."""
_WHOLE = (1, -1, 2, -2, 3, -3, 4, 7)


def tied(rule: Rule, case: Case) -> Iterator[Case]:
    """Cases with two numbers of which conditions speak in one breath, that have the sum, difference, product or quotient of the example's.

    Args:
        rule: The rule.
        case: An example that the rule accepts.
    """
    asked = {v for line in rule.match for _, v in line.captures if type(case.get(v)) is float}
    numbers: list[tuple[Place, float]] = [((v, None), case[v]) for v in sorted(asked)]
    for place, o in read_alone(rule, case):
        if type(o.data) in (int, float) and math.isfinite(o.data):
            numbers.append((place, float(o.data) if o.dtype in FLOATS else o.data))
    for (one, a), (two, b) in itertools.permutations(numbers, 2):
        if type(a) is type(b) and any({one[0], two[0]} <= e.names for e in rule.where):
            whole = type(a) is int
            for n in _WHOLE if whole else _FLOATS:
                for other in _partners(a, b, n):
                    if not whole or other == int(other):
                        yield _with(_with(case, one, n), two, int(other) if whole else other)


def _with(case: Case, place: Place, number: float) -> Case:
    here = held(case, place)
    return put(case, place, replace(here, data=number)) if isinstance(here, Operand) else {**case, place[0]: number}


def _partners(a: float, b: float, n: float) -> list[float]:
    """What goes with n, which is not 0, as b goes with a, in each sense."""
    return list(dict.fromkeys([a + b - n, b - a + n, a * b / n, *([b / a * n] if a else [])]))
