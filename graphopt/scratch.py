"""What does not outlive a block (:class:`Closing`), and temporary folders that do not outlive their process, however it ends.

All of these lie in one folder of the process, ``graphopt-XXXX`` in the system's place for such things, which holds a locked file
as long as the process lives. Whoever is killed leaves its folder behind with a lock that nobody holds: the next process removes it. (A
number of a process would not do: in a container every process may be number 7.)

A process that must end at once (:mod:`graphopt.cli.signals`) calls :func:`abandon` first.
"""

from __future__ import annotations

import atexit
import errno
import os
import shutil
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from importlib import import_module
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Self

from graphopt.errors import GraphoptError, reason

fcntl: Any
try:
    fcntl = import_module("fcntl")
except ImportError:  # Windows: nothing is locked there, and what a killed process leaves stays
    fcntl = None

PREFIX = "graphopt-"
_LOCK = ".lock"

_root: tuple[Path, IO[bytes]] | None = None
_making = threading.Lock()  # of several threads that ask at the same time one makes the folder
_last_resort: dict[object, Callable[[], None]] = {}


class Closing:
    """Closed at the end of a ``with`` block."""

    def close(self) -> None:
        """Let go of what is held; nothing here."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


@contextmanager
def folder(what: str) -> Iterator[Path]:
    """A temporary folder for the duration of a block.

    Args:
        what: What it is for, as a part of its name.

    Raises:
        GraphoptError: There is no place for one.
    """
    try:
        path = Path(tempfile.mkdtemp(prefix=f"{what}-", dir=_own()))
    except OSError as error:
        raise GraphoptError(
            f"no temporary folder can be made: {reason(error)}", "set TMPDIR to a folder with some space"
        ) from error
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


def locked(file: IO[bytes] | int) -> bool:
    """Lock an open file or folder until it is closed (or this process ends); false if another holds it.

    Where nothing can be locked, as in some network file systems, it is true as well: whoever waited for a lock there would wait for ever.
    """
    return _lock(file) is not False


def _lock(file: IO[bytes] | int) -> bool | None:
    """Whether a lock was had; ``None`` where there are none."""
    if fcntl is None:
        return None
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return True
    except OSError as error:
        return False if error.errno in (errno.EWOULDBLOCK, errno.EAGAIN, errno.EACCES) else None


def if_forsaken(path: Path, action: Callable[[], object]) -> None:
    """Do something to a file that its writer locks, if it is there and nobody has it locked; nobody can lock it meanwhile.

    Nothing is done where nothing can be locked: nobody knows there whose file it is.
    """
    with suppress(OSError):
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        with os.fdopen(descriptor, "rb") as file:
            if _lock(file):
                action()


def is_forsaken(path: Path) -> bool:
    """Whether nobody has a file locked that is there; where nothing is locked nobody knows, and it counts as forsaken."""
    found = [fcntl is None]
    if_forsaken(path, lambda: found.append(True))
    return any(found)


def on_abandon(key: object, action: Callable[[], None]) -> None:
    """Have something done by :func:`abandon`, until :func:`settled`."""
    _last_resort[key] = action


def settled(key: object) -> None:
    """Nothing is left to do for ``key``."""
    _last_resort.pop(key, None)


def abandon() -> None:
    """Leave nothing behind: for a process that ends without unwinding, from whatever thread."""
    # The last is the first: a model goes before its weights, which stay while it names them.
    for action in reversed(list(_last_resort.values())):
        with suppress(Exception):
            action()
    _remove_own()


def _own() -> Path:
    """This process's folder, made when it is first asked for; those of dead processes are removed then."""
    global _root
    with _making:
        if _root is None or not _root[0].is_dir():
            base = Path(tempfile.gettempdir())
            _sweep(base)
            while True:
                path = Path(tempfile.mkdtemp(prefix=PREFIX, dir=base))
                lock = (path / _LOCK).open("wb")
                # Between being made and being locked another process may have taken it for one that was left behind.
                if locked(lock) and (path / _LOCK).exists():
                    break
                lock.close()
            _root = path, lock
        return _root[0]


def _sweep(base: Path) -> None:
    """Remove the folders of processes that are no more."""
    with suppress(OSError):
        for entry in os.scandir(base):
            # Without a lock in it the folder is younger than its lock, or not one of these.
            if entry.name.startswith(PREFIX) and entry.is_dir(follow_symlinks=False):
                with suppress(OSError):
                    ours = not hasattr(os, "getuid") or entry.stat(follow_symlinks=False).st_uid == os.getuid()
                    if ours:
                        if_forsaken(Path(entry.path) / _LOCK, partial(shutil.rmtree, entry.path, ignore_errors=True))


def _remove_own() -> None:
    if _root is not None:
        shutil.rmtree(_root[0], ignore_errors=True)
        _root[1].close()


def _begin_anew() -> None:
    """A forked process has a folder of its own, and what its parent has begun is not its to end."""
    global _root, _making
    if _root is not None:
        _root[1].close()
    _root, _making = None, threading.Lock()
    _last_resort.clear()


atexit.register(abandon)
if hasattr(os, "register_at_fork"):  # not on Windows, which does not fork
    os.register_at_fork(after_in_child=_begin_anew)
