"""Who computes constants: the runtime that will run the model, so that a folded constant is what the node would have made.

The graph stands below the runtime and must not import it. Whoever ties the package together says here how constants are computed,
and nothing is imported before the first one is.
"""

from __future__ import annotations

TYPE_CHECKING = False  # see graphopt/__init__.py, which imports this
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

    import numpy as np

    Kernels = Callable[[bytes, Mapping[str, np.ndarray[Any, Any]]], list[np.ndarray[Any, Any]]]
    """Runs a serialised model on its inputs and returns its outputs; raises :class:`KernelError` where it can't."""

_source: Callable[[], Kernels] | None = None


class KernelError(Exception):
    """The runtime can't compute these constants: it has no kernel for them, or the nodes are not valid."""


def provide(source: Callable[[], Kernels]) -> None:
    """Say where kernels come from.

    Args:
        source: Gives them, when a constant is first computed.
    """
    global _source
    _source = source


def run(model: bytes, feeds: Mapping[str, np.ndarray[Any, Any]]) -> list[np.ndarray[Any, Any]]:
    """The outputs of a model of constants.

    Raises:
        KernelError: There is none to compute them, or it can't.
    """
    if _source is None:
        raise KernelError("nothing computes constants here")
    return _source()(model, feeds)
