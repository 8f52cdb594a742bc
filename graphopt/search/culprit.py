"""Which of the steps of an optimisation did harm: by halving, as a graph can be made again after any number of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Culprit:
    """A step that did harm.

    Attributes:
        step: Its number, from 1.
        rule: Its rule.
        family: The family of the rule.
        node: Name of the value that it redefined.
        message: What is wrong after it.
    """

    step: int
    rule: str
    family: str
    node: str
    message: str


def first_harm(steps: int, harm: Callable[[int, int], str], wrong: str = "") -> tuple[int, str, int]:
    """The first step after which something is wrong.

    Args:
        steps: How many there are.
        harm: Says what is wrong after so many steps (the second number) that was not after as many as the first; empty for nothing.
        wrong: What is wrong after all of them, if that has been asked.

    Returns:
        Its number, from 1 (0 for no step), what is wrong after it, and how often ``harm`` was asked.
    """
    low, high, asked = 0, steps, 0
    if not wrong:
        wrong, asked = (harm(low, high) if high else ""), 1
    if not wrong:
        return 0, "", asked
    while high - low > 1:
        middle, asked = (low + high) // 2, asked + 1
        found = harm(low, middle)
        if found:
            high, wrong = middle, found
        else:
            low = middle
    return high, wrong, asked
