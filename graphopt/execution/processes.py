"""Local worker processes."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from multiprocessing.connection import wait

from graphopt.execution.base import AHEAD, RETRIES, Result, Task, in_order, lost
from graphopt.scratch import Closing


class Processes(Closing):
    """Runs tasks in local processes, which live until :meth:`close`; what a task caches in its module stays there.

    Args:
        workers: How many.
    """

    def __init__(self, workers: int) -> None:
        self.workers = workers
        self._pool: ProcessPoolExecutor | None = None

    def map(self, work: Callable[[Task], Result], tasks: Iterable[Task]) -> Iterator[Result]:
        """See :class:`graphopt.execution.base.Executor`."""

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
        """See :class:`graphopt.execution.base.Executor`."""
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
