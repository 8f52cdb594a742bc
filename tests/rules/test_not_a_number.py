"""A NaN among the inputs stays a NaN in the outputs: whoever looks for one must find it behind a rule as well.

But of rows that a mask leaves nothing of: a guard makes 0 of them before the product with the values, or behind it, where it hides a NaN of theirs. And of
keys that a mask hides from some queries with a number as low as -1e30: those need not see them, so a NaN is found in the rows of the others alone.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from graphopt.errors import SessionError
from graphopt.ir.types import Array
from graphopt.prover.bindings import bindings
from graphopt.prover.cases import Instance, build_instance, parse_case
from graphopt.prover.sides import Sides
from graphopt.prover.values import ORDINARY, content, uses
from graphopt.rewrite.library import load_library
from graphopt.rewrite.schema import Rule

_REAL = [rule for rule in load_library(evidence=False).rules if rule.claim == "real"]
"""What claims to be exact is attacked with NaN; a claim about real numbers says nothing of it, and yet should not hide it."""
_OWN_WAY = frozenset({"ArgMax", "ArgMin", "TopK", "MaxPool", "GlobalMaxPool", "ReduceMax", "ReduceMin", "Relu", "Clip"})
"""Operators that this runtime's kernels take a NaN through or not, depending on where it lies and on how they are spelled."""


def _instances(rule: Rule) -> Iterator[Instance]:
    for case in rule.examples["accept"]:
        instance = build_instance(rule, parse_case(rule, case))
        if instance is not None:
            yield instance


def _masks_rows(instance: Instance) -> bool:
    """Whether a constant is infinite: of rows that a mask leaves nothing of, a guard makes 0 before the product with the values or behind it."""
    tensors = (value.tensor for value in instance.before.values.values() if value.tensor is not None)
    return any(
        np.isinf(array).any() for array in map(np.asarray, (t.numpy() for t in tensors)) if array.dtype.kind == "f"
    )


def _hides(instance: Instance) -> bool:
    """Whether a constant is a mask that hides what it is added to, as minus infinity would, with a finite number."""
    tensors = (value.tensor for value in instance.before.values.values() if value.tensor is not None)
    arrays = [array for array in map(np.asarray, (t.numpy() for t in tensors)) if array.dtype.kind == "f"]
    return any(array.ndim > 1 and array.min(initial=0) <= -1e30 for array in arrays)


def _feeds(instance: Instance, sides: Sides) -> Iterator[dict[int, Array]]:
    """Ordinary contents with a NaN in one place of one operand that is no weight."""
    bind, used = bindings(instance)[0], uses(instance.before, instance.after)
    names = {key: instance.before.values[key].name for key in sides.inputs}
    made = {
        key: content(ORDINARY, names[key], 0, sides.dtype(key), sides.shape(key, bind), used.get(key, ""), np.inf)
        for key in sides.inputs
    }
    for key in instance.before.inputs:
        for place in (0, -1) if made[key].dtype.kind == "f" and made[key].size else ():
            changed = made[key].copy()
            changed.flat[place] = np.nan
            yield {**made, key: changed}


@pytest.mark.parametrize("rule", _REAL, ids=lambda rule: rule.id)
def test_a_nan_does_not_vanish(rule: Rule) -> None:
    compared = 0
    for instance in _instances(rule):
        if any(node.op in _OWN_WAY for node in instance.before.nodes.values()) or _masks_rows(instance):
            continue
        try:
            sides = Sides(instance)
            after = sides.after()
        except SessionError:  # no kernel for this instance, as the engine would have found
            continue
        with sides.before as before, after:
            for feeds in _feeds(instance, sides):
                named = sides.named(feeds)
                try:
                    lefts = before.run(named)
                except SessionError:  # sizes of symbols that do not fit each other
                    continue
                for left, right in zip(lefts, after.run(named), strict=True):
                    if np.asarray(left).dtype.kind == "f":
                        there = np.isnan(left)
                        compared += np.count_nonzero(there)
                        gone = there & ~np.isnan(right)
                        assert not (gone.all() if _hides(instance) and there.any() else gone.any()), instance.shapes
    if not compared:
        pytest.skip("no NaN comes out of its examples")
