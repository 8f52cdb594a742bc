"""Where work runs, apart from what the work is: in this process, in local processes, or on a Ray cluster.

An algorithm hands tasks to an :class:`Executor` and gets their results in the order of the tasks. A task says all that its
result depends on (a seed, weights, a model), so the result is the same wherever it runs, and a task whose worker was lost is
simply run again. The idea is RLgraph's (Schaarschmidt et al., 2019): execution is a component of its own.
"""

from __future__ import annotations

import importlib.util
import itertools
import logging
import multiprocessing
import os
import signal
import socket
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from multiprocessing.connection import wait
from types import TracebackType
from typing import Any, Protocol, Self, TypeVar

from graphopt.errors import GraphoptError, MissingExtraError, UnknownNameError, UsageError
from graphopt.scratch import Closing

Task = TypeVar("Task")
Result = TypeVar("Result")
Handle = TypeVar("Handle")

KINDS = ("inline", "processes", "ray")
WORKERS = 2
"""Tasks at the same time where nobody says how many."""
RETRIES = 3
"""How often a task may take its worker down before it is given up."""
AHEAD = 2
"""Tasks handed out at a time, for each worker: enough to keep all busy, few enough to keep memory bounded."""
_REACH_S = 5.0  # in which a cluster must answer


class WorkerLostError(GraphoptError):
    """A task lost its worker again and again: it is the task that ends it."""


def lost(task: object) -> WorkerLostError:
    """The error for a task that can't be run."""
    return WorkerLostError(
        f"a task took down {RETRIES} workers: {str(task)[:200]}",
        "the usual cause is a lack of memory; try fewer workers",
    )


class Executor(Protocol):
    """Runs tasks.

    Attributes:
        workers: Tasks that run at the same time.
    """

    workers: int

    def map(self, work: Callable[[Task], Result], tasks: Iterable[Task]) -> Iterator[Result]:
        """The results, in the order of the tasks, which are drawn as workers get free.

        Args:
            work: A function at the top level of a module; its errors are raised here.
            tasks: Arguments that can be pickled.

        Raises:
            WorkerLostError: A task took down :data:`RETRIES` workers.
        """
        ...

    def close(self) -> None:
        """Let the workers go; tasks that still run are abandoned."""
        ...

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


class Inline(Closing):
    """Runs tasks one after the other in this process."""

    workers = 1

    def map(self, work: Callable[[Task], Result], tasks: Iterable[Task]) -> Iterator[Result]:
        """See :class:`Executor`."""
        return map(work, tasks)


def in_order(
    submit: Callable[[Task], Handle], collect: Callable[[Handle, Task], Result], tasks: Iterable[Task], ahead: int
) -> Iterator[Result]:
    """Keep ``ahead`` tasks under way and yield results in the order of the tasks.

    Args:
        submit: Hands out a task.
        collect: Waits for a task that was handed out.
        tasks: The tasks.
        ahead: How many may be under way.
    """
    left = iter(tasks)
    pending = deque((task, submit(task)) for task in itertools.islice(left, ahead))
    while pending:
        task, handle = pending.popleft()
        result = collect(handle, task)
        pending.extend((task, submit(task)) for task in itertools.islice(left, 1))
        yield result


class Processes(Closing):
    """Runs tasks in local processes, which live until :meth:`close`; what a task caches in its module stays there.

    Args:
        workers: How many.
    """

    def __init__(self, workers: int) -> None:
        self.workers = workers
        self._pool: ProcessPoolExecutor | None = None

    def map(self, work: Callable[[Task], Result], tasks: Iterable[Task]) -> Iterator[Result]:
        """See :class:`Executor`."""

        def submit(task: Task) -> tuple[ProcessPoolExecutor, Future[Result]]:
            try:
                with _deaf():  # Python's own process that is started here opens the ears again
                    pool = self._running()
                with _deaf():
                    return pool, pool.submit(work, task)
            except BrokenProcessPool:
                self._pool = None
                return submit(task)

        def collect(handle: tuple[ProcessPoolExecutor, Future[Result]], task: Task) -> Result:
            for _ in range(RETRIES):
                pool, future = handle
                try:
                    return future.result()
                except BrokenProcessPool:
                    # A lost process breaks its pool and with it all that was under way there: each task comes by here
                    # in its turn and is handed to the next pool.
                    if self._pool is pool:
                        self._pool = None
                    handle = submit(task)
            raise lost(task)

        return in_order(submit, collect, tasks, AHEAD * self.workers)

    def close(self) -> None:
        """See :class:`Executor`."""
        if self._pool is not None:
            # Only Python 3.14 has a public way; after `shutdown` the pool no longer knows its processes.
            for process in list((self._pool._processes or {}).values()):
                process.terminate()
            # Waited for: a pool that is still closing when Python exits prints a traceback.
            self._pool.shutdown(wait=True, cancel_futures=True)
            self._pool = None

    def _running(self) -> ProcessPoolExecutor:
        if self._pool is None:
            # Spawned, because a fork would copy the thread pools of the runtime and of torch in whatever state they are.
            context = multiprocessing.get_context("spawn")
            self._pool = ProcessPoolExecutor(self.workers, mp_context=context, initializer=_settle)
        return self._pool


@contextmanager
def _deaf() -> Iterator[None]:
    """A block in which processes are started: deaf to Ctrl-C from their first moment, not only when they have settled.

    To the end of the terminal as well, which reaches the whole group: Python's own process beside them would leave its work behind.
    """
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGHUP})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _settle() -> None:
    """Prepare a worker: Ctrl-C is the parent's business, and whoever has lost the parent ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = multiprocessing.parent_process()
    if parent is not None:
        threading.Thread(target=lambda: (wait([parent.sentinel]), os._exit(1)), daemon=True).start()


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
        """See :class:`Executor`."""
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
        """See :class:`Executor`."""
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


def has_workers(kind: str, workers: int | None) -> None:
    """See that whoever asks for a number of workers has said where they are.

    Raises:
        UsageError: One was given, and everything runs in this process.
    """
    if workers is not None and kind == "inline":
        raise UsageError("--workers belongs to the executor processes or ray, not to inline")


def make_executor(kind: str = "inline", workers: int | None = None, address: str | None = None) -> Executor:
    """An executor by name.

    Args:
        kind: One of :data:`KINDS`.
        workers: Tasks at the same time, 2 by default; ``inline`` runs one.
        address: Of a Ray cluster; by default the one that ``RAY_ADDRESS`` names, else a local one of this process.

    Raises:
        UsageError: There is no such executor, or no worker.
        MissingExtraError: Ray is not installed.
    """
    if kind not in KINDS:
        raise UnknownNameError("executor", kind, KINDS)
    if workers is not None and workers < 1:
        raise UsageError(f"an executor needs at least one worker, not {workers}")
    if address is not None and kind != "ray":
        raise UsageError(f"an address belongs to the executor ray, not to {kind}")
    if kind == "inline":
        return Inline()
    if kind == "processes":
        return Processes(workers or WORKERS)
    return Ray(workers or WORKERS, address)
