"""Where work runs, apart from what the work is: in this process, in local processes, or on a Ray cluster.

An algorithm hands tasks to an :class:`Executor` and gets their results in the order of the tasks. A task says all that its
result depends on (a seed, weights, a model), so the result is the same wherever it runs, and a task whose worker was lost is
simply run again. The idea is RLgraph's (Schaarschmidt et al., 2019): execution is a component of its own.
"""

from __future__ import annotations

from graphopt.errors import UnknownNameError, UsageError
from graphopt.execution.base import KINDS, Executor, Inline, WorkerLostError

__all__ = ["KINDS", "Executor", "WorkerLostError", "make_executor"]


def make_executor(kind: str = "inline", workers: int = 2, address: str | None = None) -> Executor:
    """An executor by name.

    Args:
        kind: One of :data:`KINDS`.
        workers: Tasks at the same time; ``inline`` runs one.
        address: Of a Ray cluster; by default the one that ``RAY_ADDRESS`` names, else a local one of this process.

    Raises:
        UsageError: There is no such executor, or no worker.
        MissingExtraError: Ray is not installed.
    """
    if kind not in KINDS:
        raise UnknownNameError("executor", kind, KINDS)
    if workers < 1:
        raise UsageError(f"an executor needs at least one worker, not {workers}")
    if address is not None and kind != "ray":
        raise UsageError(f"an address belongs to the executor ray, not to {kind}")
    if kind == "inline":
        return Inline()
    if kind == "processes":
        from graphopt.execution.processes import Processes

        return Processes(workers)
    from graphopt.execution.cluster import Ray

    return Ray(workers, address)
