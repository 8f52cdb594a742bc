"""How slow a machine is, for what must not take longer than so many seconds of a processor; and work counted without a clock."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from functools import cache

_USUAL_S = 0.25
"""Seconds of a processor that these imports take at best."""


def processor_s(work: Callable[[], object]) -> float:
    """Seconds of the processor that the child processes of some work take."""
    before = os.times()
    work()
    after = os.times()
    return after.children_user + after.children_system - before.children_user - before.children_system


def slowness_now() -> float:
    """How many times as long as usual a processor takes for a given piece of work at this moment; at least 1."""
    command = [sys.executable, "-c", "import onnx, onnxruntime, typer, rich.console"]
    return max(1.0, processor_s(lambda: subprocess.run(command, check=True)) / _USUAL_S)


@cache
def slowness() -> float:
    """How many times as long as usual a processor takes, others' work beside it included: the least of three."""
    return min(slowness_now() for _ in range(3))


def calls(work: Callable[[], object]) -> int:
    """How many functions, built-in ones included, some work calls: a measure of it that no other program changes."""
    made = 0

    def count(frame: object, event: str, argument: object) -> None:
        nonlocal made
        made += event in ("call", "c_call")

    before = sys.getprofile()
    sys.setprofile(count)
    try:
        work()
    finally:
        sys.setprofile(before)
    return made
