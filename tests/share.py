"""Of many cases that are alike ``make test`` tries a share, always the same one, and ``make thorough`` the others."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from typing import Any

import pytest


def share() -> int:
    """Which of the shares ``make test`` tries: another one with ``TESTS_SHARE=1`` and so on."""
    return int(os.environ.get("TESTS_SHARE", "0"))


def part(cases: Iterable[Any], of: int, name: Callable[[Any], str]) -> list[Any]:
    """Cases for ``parametrize``, of which every so many-th is tried and the others are ``thorough``.

    Args:
        cases: All of them.
        of: How many shares there are.
        name: What a case is called.
    """
    return [
        pytest.param(case, id=name(case), marks=() if (number + share()) % of == 0 else pytest.mark.thorough)
        for number, case in enumerate(cases)
    ]
