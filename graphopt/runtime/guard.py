"""Sessions in a process of their own, for models that nobody knows yet.

A model can take the runtime down with it: a division of integers by zero ends the process, a loop may have no end, a shape may ask
for all memory. So a model is opened and run for the first time in a child process with limits of time and memory, and whatever
happens there is an error here. The child is started once, early (:func:`start`), and serves session after session; one that
crashed is replaced. It ends with this process, however that ends.

What is timed runs in this process; it has been run over there before.

Where there are no Unix sockets to hand over (Windows), and where this process knows of no Python to start
(:func:`python`), sessions are opened in this process.
"""

from __future__ import annotations

import atexit
import os
import pickle
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from graphopt import scratch
from graphopt.errors import CrashError, GraphoptError, UsageError, reason
from graphopt.scratch import Closing

if TYPE_CHECKING:
    from graphopt.runtime.binding import TensorSpec
    from graphopt.runtime.placement import Placement
    from graphopt.runtime.session import Model, Session, SessionConfig

LIMIT_S = 600.0
"""Seconds that opening a model, or a run of it, may take where nothing is known of it."""

_HEAD = struct.Struct("<Q")
_START = "from graphopt.runtime import guarded; guarded.main()"

_NAME_ONE = "name a Python that is, by multiprocessing.set_executable"

_lock = threading.RLock()
_child: _Child | None = None


def python() -> str | None:
    """The program that is Python; ``None`` where this process knows of none.

    What :data:`sys.executable` names is another program, or nothing, where Python is a part of that program. Whoever embeds it names one
    as for :mod:`multiprocessing`. A program into which Python was frozen would begin anew if it was started as Python: it is none.
    """
    spawning = sys.modules.get("multiprocessing.spawn")  # who has named one has imported it
    chosen = sys.executable if spawning is None else spawning.get_executable()
    name = os.fsdecode(chosen) if chosen else ""
    return None if not name or (getattr(sys, "frozen", False) and name == sys.executable) else name


def command(code: str, *arguments: str) -> list[str]:
    """The command that runs a line of code in a Python that looks for modules where we do, wherever graphopt was found.

    The places stand in the code, so that nothing has to be imported to read them: the folder that the command runs in, where Python looks
    first by itself, may have a ``json.py`` of its own. What is no text among them, such as a ``Path``, Python passes over, and so does this.

    Raises:
        UsageError: This process knows of no Python.
    """
    program = python()
    if program is None:
        raise UsageError("there is no Python to start a process with: sys.executable is none", _NAME_ONE)
    places = [place for place in sys.path if isinstance(place, str)]
    return [program, "-c", f"import sys; sys.path[:] = {places!a}; {code}", *arguments]


def spawn(code: str, *arguments: str, **how: Any) -> subprocess.Popen[Any]:
    """Start the process of :func:`command`; ``how`` is said to :class:`subprocess.Popen`.

    Raises:
        UsageError: This process knows of no Python.
        GraphoptError: What it takes for one can't be started.
    """
    line = command(code, *arguments)
    try:
        return subprocess.Popen(line, **how)
    except OSError as error:
        hint = _NAME_ONE if isinstance(error, FileNotFoundError | PermissionError) else None
        raise GraphoptError(f"no process can be started with {line[0]}: {reason(error)}", hint) from error


def stdout_for_answers() -> IO[str]:
    """The stdout of a process that was started here; from now on only answers go there: what the runtime prints is a complaint."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    return answers


def start() -> None:
    """Start the child now, so that it is ready when it is needed."""
    with suppress(OSError, GraphoptError), _lock:  # whoever needs it will say why it can't be started
        if _possible():
            _running()


def ready() -> None:
    """Wait until the child is there: what is timed over there is not its start."""
    peak()


def peak() -> int | None:
    """Peak memory of the child so far, in bytes: no session that it had took more; ``None`` where nobody knows."""
    with suppress(OSError, _EndedError, GraphoptError), _lock:
        if _possible():
            found: int | None = _running().ask(("peak",), LIMIT_S)
            return found
    return None


def open_guarded(
    model: Model, config: SessionConfig | None = None, *, name: str = "", seconds: float = LIMIT_S
) -> Guarded | Session:
    """Open a model in the child.

    Args:
        model: The model.
        config: How to open it.
        name: What errors call it; a file's own name by default.
        seconds: Limit of opening it and of each run.

    Raises:
        CrashError: The runtime crashed, or did not end in time.
        GraphoptError: As for :class:`graphopt.runtime.session.Session`.
    """
    from graphopt.runtime import session

    config = config or session.SessionConfig()
    if not _possible():
        return session.Session(model, config)
    return Guarded(model, config, name or (str(model) if isinstance(model, Path) else "the model"), seconds)


def peak_memory(model: Model, config: SessionConfig, feeds: Mapping[str, Any], seconds: float = LIMIT_S) -> int | None:
    """Peak memory of a process that does nothing but open a model and run it once.

    Args:
        model: The model.
        config: How to open it.
        feeds: Its inputs.
        seconds: Limit of opening it and of the run.

    Returns:
        Bytes; ``None`` where the system does not tell, or where the model does not get that far.
    """
    if not _possible():
        return None
    child = _Child()  # one of its own: the peak of a process is that of all it has done
    try:
        number = child.ask(("open", _payload(model), config), seconds)["number"]
        child.ask(("run", number, dict(feeds)), seconds)
        peak: int | None = child.ask(("peak",), seconds)
    except (_EndedError, GraphoptError):
        return None
    finally:
        child.end()
    return peak


def revive(session: Guarded | Session) -> None:
    """Make a session usable again that a crash may have ended; see :meth:`Guarded.revive`."""
    if isinstance(session, Guarded):
        session.revive()


class Guarded(Closing):
    """A session in the child, from our side: as :class:`graphopt.runtime.session.Session`, as far as it goes.

    Attributes:
        config: How it was opened.
        input_specs: What is known of its inputs.
        output_specs: What is known of its outputs.
        output_names: Names of the outputs.
        placement: Where its nodes run.
    """

    config: SessionConfig
    input_specs: list[TensorSpec]
    output_specs: list[TensorSpec]
    output_names: list[str]
    placement: Placement

    def __init__(self, model: Model, config: SessionConfig, name: str, seconds: float) -> None:
        self.config, self._model, self._name, self._seconds = config, model, name, seconds
        self._open()

    def _open(self) -> None:
        with _lock:
            self._child = _running()
            about = self._ask("open", "opens", _payload(self._model), self.config)
        self._number: int = about.pop("number")
        vars(self).update(about)

    def revive(self) -> None:
        """Open the model again, in another child, if its session has ended with a crash.

        Raises:
            CrashError: The runtime crashed, or did not end in time.
            SessionError: The runtime refuses the model.
        """
        if not self._child.alive:
            self._open()

    def run(self, feeds: Mapping[str, Any]) -> list[Any]:
        """Run once; see :meth:`graphopt.runtime.session.Session.run`.

        Raises:
            CrashError: The runtime crashed, or did not end in time.
            SessionError: The runtime fails.
        """
        outputs: list[Any] = self._ask("run", "runs", self._number, dict(feeds))
        return outputs

    def clock(self, feeds: Mapping[str, Any]) -> float:
        """Seconds of one run.

        Raises:
            CrashError: The runtime crashed, or did not end in time.
            SessionError: The runtime fails.
        """
        taken: float = self._ask("clock", "runs", self._number, dict(feeds))
        return taken

    def close(self) -> None:
        """Release the session; closing twice is harmless."""
        if self._child.alive:
            with suppress(CrashError):
                self._ask("close", "closes", self._number)

    def _ask(self, request: str, doing: str, *arguments: Any) -> Any:
        with _lock:
            try:
                return self._child.ask((request, *arguments), self._seconds)
            except _EndedError as error:
                raise CrashError(f"{self._name}: ONNX Runtime {error} when it {doing} this model") from None


class _EndedError(Exception):
    """The child is no more; the message says what became of it."""


class _Child:
    """The child process, from our side."""

    def __init__(self) -> None:
        self._socket, theirs = socket.socketpair()
        with theirs:
            # Its stdin is never written to: it ends when we do, however we do. Ctrl-C is meant for us alone.
            self._process = spawn(
                _START,
                str(theirs.fileno()),
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=None if os.environ.get("GRAPHOPT_DEBUG") else subprocess.DEVNULL,
                pass_fds=(theirs.fileno(),),
                start_new_session=True,
            )
        self._greeted = False
        self.pid = os.getpid()
        scratch.on_abandon(self, self._process.kill)

    @property
    def alive(self) -> bool:
        """Whether it is there to be asked."""
        return self._socket.fileno() >= 0 and self.pid == os.getpid()

    def ask(self, request: Any, seconds: float) -> Any:
        """Its answer; what it raises is raised here.

        Raises:
            _EndedError: It is no more.
            GraphoptError: It has never come to be.
        """
        if not self.alive:
            raise _EndedError("was ended by an earlier request")
        try:
            deadline = time.monotonic() + seconds
            send(self._socket, request)
            self._greeted = self._greeted or receive(self._socket, deadline)
            failed, answer = receive(self._socket, deadline)
        except TimeoutError:
            self.end()
            raise _EndedError(f"does not end within {seconds:.0f} s") from None
        except (EOFError, OSError):
            fate = self._fate()
            if not self._greeted and (self._process.returncode or 0) >= 0:
                raise GraphoptError(
                    f"the process that opens models first does not start: {python()} {fate}",
                    f"GRAPHOPT_DEBUG=1 shows what it says; if it is no Python, {_NAME_ONE}",
                ) from None
            raise _EndedError(fate) from None
        except BaseException:
            self.end()  # half an answer may be under way
            raise
        if failed:
            raise answer
        return answer

    def end(self) -> None:
        """End it."""
        scratch.settled(self)
        self._socket.close()
        if self.pid == os.getpid():
            with suppress(OSError):
                self._process.kill()
            with suppress(OSError), self._process:
                pass  # waits, and closes its stdin

    def _fate(self) -> str:
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(1.0)  # the socket closes a moment before the process has ended
        code = self._process.poll()
        self.end()
        if code is None or code >= 0:
            return f"ended the process (exit code {code})"
        if -code == signal.SIGKILL:
            return "was killed, most likely for lack of memory,"
        with suppress(ValueError):
            return f"crashes ({signal.Signals(-code).name})"
        return f"crashes (signal {-code})"


def _possible() -> bool:
    return hasattr(socket, "AF_UNIX") and python() is not None


def _running() -> _Child:
    global _child
    if _child is None or not _child.alive:
        _child = _Child()
    return _child


def _end() -> None:
    if _child is not None:
        _child.end()


def _unlock() -> None:
    """In a forked process nobody is left to open a lock that another thread held."""
    global _lock
    _lock = threading.RLock()


atexit.register(_end)
if hasattr(os, "register_at_fork"):  # not on Windows, which does not fork
    os.register_at_fork(after_in_child=_unlock)


def _payload(model: Model) -> Any:
    """A model as it is sent: with its arrays, which are few; weights that lie in files are read over there."""
    if isinstance(model, Path):
        return str(model.absolute())
    return model.proto, dict(model.tensors), model.base_dir


def send(to: socket.socket, message: Any) -> None:
    """Send a message."""
    content = pickle.dumps(message, protocol=5)
    to.settimeout(None)
    to.sendall(_HEAD.pack(len(content)))
    to.sendall(content)


def receive(source: socket.socket, deadline: float | None = None) -> Any:
    """The next message.

    Raises:
        EOFError: The other side is gone.
        TimeoutError: The time of the monotonic clock is over.
    """
    (size,) = _HEAD.unpack(_exactly(source, _HEAD.size, deadline))
    return pickle.loads(_exactly(source, size, deadline))


def _exactly(source: socket.socket, size: int, deadline: float | None) -> bytearray:
    content = bytearray(size)
    view, done = memoryview(content), 0
    while done < size:
        source.settimeout(None if deadline is None else max(1e-3, deadline - time.monotonic()))
        got = source.recv_into(view[done:])
        if not got:
            raise EOFError
        done += got
    return content
