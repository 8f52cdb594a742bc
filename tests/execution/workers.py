"""What the tests hand to workers."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path


def square(x: int) -> int:
    time.sleep(0.01 * (x % 3))  # later tasks finish first
    return x * x


def fail(x: int) -> int:
    if x == 3:
        raise ValueError(f"no {x}")
    return x


def die_once(task: tuple[Path, int]) -> int:
    """End the worker, if it is not the test's own process, the first time that this task is tried."""
    marker, x = task
    if x == 2 and not marker.exists():
        marker.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return x


def die(x: int) -> int:
    os.kill(os.getpid(), signal.SIGKILL)
    return x


def pid(x: int) -> int:
    return os.getpid()
