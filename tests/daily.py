"""Of many cases that are alike a part is tried each day, another one the next; all of them are by ``-m thorough``."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from datetime import date
from typing import Any

import pytest

DAY = "TESTS_DAY"
"""Variable that holds the number of the day, so that workers agree at midnight, and a run of yesterday can be had again."""


def day() -> int:
    """The number of the day."""
    return int(os.environ.setdefault(DAY, str(date.today().toordinal())))


def part(cases: Iterable[Any], of: int, name: Callable[[Any], str]) -> list[Any]:
    """Cases for ``parametrize``, of which every so many-th is tried today and the others are ``thorough``.

    Args:
        cases: All of them.
        of: Days after which each was tried.
        name: What a case is called.
    """
    return [
        pytest.param(case, id=name(case), marks=() if (number + day()) % of == 0 else pytest.mark.thorough)
        for number, case in enumerate(cases)
    ]


def turn(number: int, of: int) -> pytest.MarkDecorator:
    """The mark of one of so many dear tests that take turns: ``slow`` on its day, ``thorough`` on the others."""
    return pytest.mark.slow if (number + day()) % of == 0 else pytest.mark.thorough
