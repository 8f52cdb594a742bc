"""What an edit changed, or that it was refused."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from graphopt.ir.graph import Node


class RefusedError(Exception):
    """The rewrite would break an invariant; the graph is left as it was."""


@dataclass(frozen=True, slots=True)
class Delta:
    """What an edit changed.

    Attributes:
        added: New nodes (a node whose inputs or outputs changed counts as removed and added).
        removed: Nodes that are gone.
        touched: Ids of remaining nodes whose outputs are read by other nodes than before, or whose operands or outputs are known better.
    """

    added: tuple[Node, ...]
    removed: tuple[Node, ...]
    touched: tuple[int, ...]

    @property
    def changed(self) -> bool:
        """Whether the edit did anything."""
        return bool(self.added or self.removed)


NO_CHANGE = Delta((), (), ())


def together(deltas: Iterable[Delta]) -> Delta:
    """What a sequence of edits changed; what one of them added and a later one removed stands in both lists."""
    deltas = list(deltas)
    return Delta(
        tuple(n for d in deltas for n in d.added),
        tuple(n for d in deltas for n in d.removed),
        tuple(i for d in deltas for i in d.touched),
    )
