"""What was computed once: a dictionary that can't grow without end."""

from __future__ import annotations

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
