"""What was computed once: a dictionary that can't grow without end. And the collector of what nobody needs any more, held off."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TypeVar

K = TypeVar("K")
V = TypeVar("V")


class Memo(dict[K, V]):
    """A dictionary of at most ``limit`` entries: a full one begins anew, which costs less than to keep book of what is used.

    Args:
        limit: Entries at most.
    """

    def __init__(self, limit: int = 100_000) -> None:
        super().__init__()
        self.limit = limit

    def __setitem__(self, key: K, value: V) -> None:
        if len(self) >= self.limit:
            self.clear()
        super().__setitem__(key, value)


@contextmanager
def collector_paused() -> Iterator[None]:
    """Keep Python's cycle collector away from work on graphs.

    Graphs share structure and have no cycles, so reference counts free them; a collection walks hundreds of thousands of
    objects in the middle of a step that takes a fraction of a millisecond, and again and again while they are made.
    """
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()
