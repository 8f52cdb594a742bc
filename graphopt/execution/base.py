"""The protocol of executors, and the choice among them."""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from types import TracebackType
from typing import Protocol, Self, TypeVar

from graphopt.errors import GraphoptError
from graphopt.scratch import Closing

Task = TypeVar("Task")
Result = TypeVar("Result")
Handle = TypeVar("Handle")

KINDS = ("inline", "processes", "ray")
RETRIES = 3
"""How often a task may take its worker down before it is given up."""
AHEAD = 2
"""Tasks handed out at a time, for each worker: enough to keep all busy, few enough to keep memory bounded."""


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
