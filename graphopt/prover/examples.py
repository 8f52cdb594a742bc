"""One example of a rule looked at: how far its sides are apart, and the smallest case at which they still differ."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from graphopt.errors import GraphoptError, SessionError
from graphopt.ir.types import Array
from graphopt.prover.attack import Attack, Counterexample, Trial, attack
from graphopt.prover.bindings import bindings
from graphopt.prover.cases import Case, build_instance, instance_of, operands, parse_case
from graphopt.prover.evaluate import overhangs
from graphopt.prover.sides import PLAIN, Sides
from graphopt.prover.values import ORDINARY
from graphopt.rewrite.examples import Operand, build_example
from graphopt.rewrite.schema import Rule
from graphopt.runtime.session import SessionConfig


class UndefinedError(GraphoptError):
    """The pattern itself does not run on these inputs, or nobody says what it makes of them."""


def compare_sides(rule: Rule, case: Mapping[str, Any], seed: int, config: SessionConfig = PLAIN) -> float:
    """The largest difference between pattern and replacement, relative to the pattern's largest output.

    Args:
        rule: The rule.
        case: One of its examples.
        seed: Of the contents.
        config: Where both run.

    Raises:
        UndefinedError: The pattern does not run, or has a window larger than its image.
        GraphoptError: The case does not match, or the replacement does not run.
        RefusedError: The engine refuses the rewrite.
    """
    example = build_example(rule, case, seed=seed)
    if example.match is None:
        raise GraphoptError("the example does not match")
    instance = instance_of(rule, parse_case(rule, case), example)
    try:
        sides = Sides(instance, config)
    except SessionError as error:
        raise UndefinedError(f"the pattern does not run: {error}") from error
    with sides.before as before:
        feeds = Trial(rule, sides, before, Attack(), seed).feeds(bindings(instance)[0], ORDINARY)
        if overhangs(instance.before, instance.symbolic, feeds):
            raise UndefinedError("a window is larger than its image")
        named = sides.named(feeds)
        try:
            left = before.run(named)
        except SessionError as error:
            raise UndefinedError(f"the pattern does not run: {error}") from error
        with sides.after() as after:
            right = after.run(named)
    return max(_distance(np.asarray(a), np.asarray(b)) for a, b in zip(left, right, strict=True))


def _distance(a: Array, b: Array) -> float:
    if a.shape != b.shape or a.dtype != b.dtype:
        return float("inf")
    if a.dtype.kind not in "fc":
        return 0.0 if np.array_equal(a, b) else float("inf")
    x, y = a.astype(np.float64), b.astype(np.float64)
    finite = np.isfinite(x) & np.isfinite(y)
    if not np.array_equal(x[~finite], y[~finite], equal_nan=True):
        return float("inf")
    scale = float(np.abs(x[finite]).max(initial=0.0))
    return float(np.abs(x[finite] - y[finite]).max(initial=0.0)) / (scale or 1.0)


def shrunk(rule: Rule, wrong: Counterexample, seed: int, tries: int = 60) -> Counterexample:
    """A counterexample of fewer elements, where sizes can be made smaller and the sides still differ."""
    best, left = wrong, tries
    smaller = True
    while smaller and left > 0:
        smaller = False
        for case in _smaller(best.instance):
            left -= 1
            made = build_instance(rule, case)
            found = None if made is None else attack(made, rule, seed).wrong
            if found is not None:
                best, smaller = found, True
                break
            if left <= 0:
                break
    return best


def _smaller(case: Case) -> Iterator[Case]:
    """Cases of which one size is less, everywhere."""
    sizes = sorted({d for o in operands(case) for d in o.dims if isinstance(d, int) and d > 1}, reverse=True)
    for size in sizes:
        for to in (1, size - 1):
            if any(isinstance(o.data, list) and size in o.dims for o in operands(case)):
                continue

            def resized(value: Any, size: int = size, to: int = to) -> Any:
                if isinstance(value, list):
                    return [resized(v) for v in value]
                if not isinstance(value, Operand):
                    return value
                return replace(value, dims=tuple(to if d == size else d for d in value.dims))

            yield {name: resized(value) for name, value in case.items()}
