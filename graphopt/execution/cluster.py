"""A Ray cluster, local or remote."""

from __future__ import annotations

import importlib.util
import logging
import os
import socket
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from graphopt.errors import MissingExtraError, UsageError
from graphopt.execution.base import AHEAD, RETRIES, Result, Task, in_order, lost
from graphopt.scratch import Closing

_REACH_S = 5.0


class Ray(Closing):
    """Runs tasks on a Ray cluster. Ray itself starts a task again whose worker or node is lost.

    Args:
        workers: Tasks at the same time.
        address: Of the cluster; by default the one that ``RAY_ADDRESS`` names, else a local one that ends with this object.

    Raises:
        MissingExtraError: Ray is not installed.
        UsageError: There is no cluster at the address.
    """

    def __init__(self, workers: int, address: str | None = None) -> None:
        if importlib.util.find_spec("ray") is None:
            raise MissingExtraError("ray", "ray")
        # What failed is raised where it is collected; tasks that nobody waits for any more may fail as they like.
        os.environ.setdefault("RAY_IGNORE_UNHANDLED_ERRORS", "1")
        import ray

        self.workers = workers
        self._ray = ray
        self._ours = not ray.is_initialized()
        if address is not None:
            _reach(address)
        if self._ours:
            options = {"address": address} if address else {"num_cpus": workers, "include_dashboard": False}
            try:
                ray.init(log_to_driver=False, logging_level=logging.ERROR, **options)
            except ConnectionError as error:
                raise UsageError(f"no Ray cluster at {address}: {error}", "start one with: ray start --head") from error

    def map(self, work: Callable[[Task], Result], tasks: Iterable[Task]) -> Iterator[Result]:
        """See :class:`graphopt.execution.base.Executor`."""
        remote = self._ray.remote(max_retries=RETRIES - 1, num_cpus=1)(work)
        errors = self._ray.exceptions

        def collect(handle: Any, task: Task) -> Result:
            try:
                found: Result = self._ray.get(handle)
                return found
            except errors.RayTaskError as error:
                raise error.cause from None
            except errors.WorkerCrashedError as error:
                raise lost(task) from error

        return in_order(remote.remote, collect, tasks, AHEAD * self.workers)

    def close(self) -> None:
        """See :class:`graphopt.execution.base.Executor`."""
        if self._ours:
            self._ray.shutdown()


def _reach(address: str) -> None:
    """Fail soon where Ray itself would try for minutes to find a cluster at an address.

    Raises:
        UsageError: Nobody listens there.
    """
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if not port.isdigit():
        return  # "auto" and "local" are Ray's own
    try:
        socket.create_connection((host, int(port)), timeout=_REACH_S).close()
    except OSError as error:
        raise UsageError(f"no Ray cluster at {address}: {error}", "start one with: ray start --head") from error
