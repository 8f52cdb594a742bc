"""What is dear to make is made once in a run of the tests, by the worker that wants it first, and shared by all."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

try:
    import fcntl
except ImportError:  # not a Unix: each worker makes its own
    fcntl = None  # type: ignore[assignment]


def once(factory: pytest.TempPathFactory, name: str, make: Callable[[Path], object]) -> Path:
    """A folder that all workers of a run share, who must only read it.

    Args:
        factory: The run's temporary folders.
        name: Of the folder; nothing else may be called so.
        make: Fills the folder, which is empty; called by one worker, while the others that want it wait.
    """
    own = factory.getbasetemp()
    folder = (own.parent if fcntl is not None and "PYTEST_XDIST_WORKER" in os.environ else own) / name
    made = folder.with_name(f"{name}.made")
    with folder.with_name(f"{name}.lock").open("w") as lock:
        if fcntl is not None:
            fcntl.flock(lock, fcntl.LOCK_EX)
        if not made.exists():
            shutil.rmtree(folder, ignore_errors=True)  # of one that failed
            folder.mkdir()
            make(folder)
            made.touch()
    return folder
