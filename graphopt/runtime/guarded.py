"""The child process of :mod:`graphopt.runtime.guard`: opens models and runs them, and may be killed by them."""

from __future__ import annotations

import itertools
import os
import socket
import sys
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any

from graphopt.errors import GraphoptError, SessionError
from graphopt.runtime.environment import free_memory, peak_memory
from graphopt.runtime.guard import receive, send
from graphopt.runtime.session import LoadableModel, Session, SessionConfig

_LEAST = 1 << 28  # bytes beyond what is free: the child has taken some of it itself


def main() -> None:
    """Be the process: its argument is the number of a socket."""
    threading.Thread(target=_end_with_parent, daemon=True).start()
    with socket.socket(fileno=int(sys.argv[1])) as connection, suppress(EOFError, OSError):
        _serve(connection)
    os._exit(0)  # at once: there is nothing to put in order


def _end_with_parent() -> None:
    """Nothing ever comes: the end of the file is that of the parent. A run that has no end must not outlive it."""
    sys.stdin.buffer.read()
    os._exit(1)


def _serve(connection: socket.socket) -> None:
    sessions: dict[int, Session] = {}
    numbers = itertools.count()
    send(connection, True)  # it is there
    while True:
        request, *arguments = receive(connection)
        answer: Any = None
        failed = False
        try:
            if request == "open":
                number = next(numbers)
                sessions[number], answer = _open(*arguments)
                answer["number"] = number
            elif request == "close":
                sessions.pop(arguments[0]).close()
            elif request == "run":
                answer = sessions[arguments[0]].run(arguments[1])
            elif request == "clock":
                answer = sessions[arguments[0]].clock(*arguments[1:])
            elif request == "peak":
                answer = peak_memory()
        except GraphoptError as error:
            failed, answer = True, error
        except MemoryError:
            failed, answer = True, SessionError("there is not enough memory to open or run the model")
        except Exception as error:  # the parent's to judge
            failed, answer = True, SessionError(f"{type(error).__name__}: {error}")
        send(connection, (failed, answer))


def _open(payload: Any, config: SessionConfig) -> tuple[Session, dict[str, Any]]:
    _limit(0 if config.provider != "cpu" else None)  # drivers of devices reserve more than there is
    model: LoadableModel | Path
    if isinstance(payload, str):
        model = Path(payload)
    else:
        proto, tensors, base_dir = payload
        model = LoadableModel(proto, tensors, base_dir)
    session = Session(model, config)
    return session, {
        "input_specs": session.input_specs,
        "output_specs": session.output_specs,
        "output_names": session.output_names,
        "placement": session.placement,
    }


def _limit(bytes_: int | None = None) -> None:
    """Bound this process's memory by what is free, so that a model that asks for more gets an error; 0 for no bound."""
    try:
        import resource
    except ImportError:
        return
    with suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # a dump of a crash would take the memory's size on the disk
    if sys.platform == "linux":
        _, hard = resource.getrlimit(resource.RLIMIT_DATA)
        free = bytes_ if bytes_ is not None else free_memory()
        with suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_DATA, (free + _LEAST if free else hard, hard))
