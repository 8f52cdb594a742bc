"""How far a rule's rounding takes the result from the pattern's, at the sizes that the rule is for."""

from __future__ import annotations

import numpy as np

from graphopt.errors import RuleError
from graphopt.prover.cases import build_instance, parse_case
from graphopt.prover.sides import Sides
from graphopt.rewrite.schema import Rule


def rounding_error(rule: Rule, seed: int = 0) -> float | None:
    """The largest difference between both sides on ordinary contents, relative to the largest result.

    Args:
        rule: A rule; it is measured at its examples under ``measure``, operands drawn from the standard normal distribution.
        seed: Of the contents.

    Returns:
        The error at the worst of the examples, ``None`` for a rule without such examples.

    Raises:
        RuleError: An example does not match.
    """
    found: list[float] = []
    rng = np.random.default_rng(seed)
    for number, case in enumerate(rule.examples.get("measure", ())):
        instance = build_instance(rule, parse_case(rule, case))
        if instance is None:
            raise RuleError(f"measure {number} of {rule.id} does not match", rule.where_at)
        sides = Sides(instance)
        sizes = dict.fromkeys(instance.symbols, 1)
        feeds = sides.named(
            {key: rng.standard_normal(sides.shape(key, sizes)).astype(sides.dtype(key)) for key in sides.inputs}
        )
        for before, after in zip(sides.before.run(feeds), sides.after().run(feeds), strict=True):
            found.append(float(np.max(np.abs(after - before)) / np.max(np.abs(before))))
    return max(found, default=None)
