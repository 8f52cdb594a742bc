"""Ctrl-C, SIGTERM and the end of the terminal (SIGHUP) end the command, whatever it is doing.

Python hands a signal to the main thread between two of its own instructions, so a call into the runtime that takes minutes is deaf
to it. The signal's number however is written to a pipe at once, and a thread reads it there: if the main thread has not ended the
process a while later, this thread does, after everything that is temporary has been removed.
"""

from __future__ import annotations

import atexit
import os
import signal
import sys
import threading
from contextlib import suppress
from types import FrameType, TracebackType
from typing import NoReturn

from graphopt import scratch
from graphopt.errors import unprinted

GRACE_S = 2.0
"""Seconds for the main thread to put things in order and end."""

_ENDING = (signal.SIGTERM, getattr(signal, "SIGHUP", signal.SIGTERM))  # Windows has no SIGHUP
_listener: Stoppable | None = None
_received = 0


class Stoppable:
    """What the first Ctrl-C only asks to stop.

    Args:
        begun: Whether there is something to stop from the start.

    Attributes:
        begun: Whether there is something to stop; before, a Ctrl-C ends the command.
        requested: Whether it was asked.
    """

    def __init__(self, *, begun: bool = True) -> None:
        self.requested, self.begun = False, begun
        self._handled = self._heard = 0
        self._first = threading.Lock()

    def listen(self) -> None:
        """Be the one who is asked."""
        global _listener
        _listener = self

    def leave(self) -> None:
        """Be it no longer."""
        global _listener
        _listener = None

    def hear(self) -> bool:
        """A Ctrl-C has come, says the thread that listens: whether it is more than a request."""
        self._heard += self._weight()
        if self._heard > 1:
            return True
        self._ask()
        return False

    def handle(self, number: int, frame: FrameType | None) -> None:
        """A Ctrl-C has come, and the main thread has come to it; of several, it may be the first.

        Raises:
            KeyboardInterrupt: It is more than a request.
        """
        self._handled += self._weight()
        if max(self._handled, self._heard) > 1:
            _interrupt(number, frame)
        self._ask()

    def announce(self) -> None:
        """Say what will happen."""

    def _weight(self) -> int:
        return 1 if self.begun else 2  # with nothing to stop, the first is as good as the second

    def _ask(self) -> None:
        if self._first.acquire(blocking=False):
            self.requested = True
            self.announce()


def watch() -> None:
    """Listen from now on."""
    reads, writes = os.pipe()
    os.set_blocking(writes, False)
    signal.set_wakeup_fd(writes, warn_on_full_buffer=False)
    threading.Thread(target=_listen, args=(reads,), daemon=True, name="signals").start()
    sys.unraisablehook, sys.excepthook = _lost, _printed
    if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
        signal.signal(signal.SIGINT, _interrupt)
    for number in _ENDING:
        if signal.getsignal(number) is not signal.SIG_IGN:  # as nohup has it
            signal.signal(number, _terminate)


def received() -> int:
    """The signal that was to end the command, 0 for none: what it raises may come out as something else, as where it hits an import."""
    return _received


def forget() -> None:
    """What was received has been dealt with."""
    global _received
    _received = 0


def leave(code: int) -> NoReturn:
    """End the process: the work is done, and a signal need not wait for anything."""
    for number in (signal.SIGINT, *_ENDING):
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, lambda number, frame: end(number))
    try:
        sys.stdout.flush()
    except OSError as error:
        code = code or 1
        if not isinstance(error, BrokenPipeError):
            say(f"error: {unprinted(error)}\n")
    with suppress(OSError, ValueError):
        sys.stderr.flush()
    # Python takes half a second to take everything down piece by piece, and a KeyboardInterrupt that has long been dealt
    # with can make it end with another code.
    atexit._run_exitfuncs()
    os._exit(code)


def end(number: int) -> NoReturn:
    """End the process without unwinding, and leave nothing behind."""
    scratch.abandon()
    # A line that moves hides the cursor.
    say("\r\x1b[K\x1b[?25h" if sys.stderr.isatty() else "")
    if number == signal.SIGINT:
        say("error: aborted by Ctrl-C\n")
    os._exit(128 + number)


def say(text: str) -> None:
    """Write to stderr straight away: a signal may have come in the middle of a print. Its reader may have ended by the same one."""
    with suppress(OSError):
        os.write(2, text.encode())


def _terminate(number: int, frame: FrameType | None) -> None:
    global _received
    _received = number
    sys.exit(128 + number)  # an exception, so that temporary files are removed on the way out


def _interrupt(number: int, frame: FrameType | None) -> None:
    global _received
    _received = number
    raise KeyboardInterrupt


def _lost(unraisable: sys.UnraisableHookArgs) -> None:
    """What a signal raised has hit a destructor, where Python prints it and goes on."""
    if _received and isinstance(unraisable.exc_value, KeyboardInterrupt | SystemExit):
        end(_received)
    sys.__unraisablehook__(unraisable)


def _printed(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    """What a signal raised while a library in C imports numpy is printed there, and goes on as another error."""
    if not (_received and issubclass(kind, KeyboardInterrupt | SystemExit)):
        sys.__excepthook__(kind, error, trace)


def _listen(reads: int) -> None:
    while True:
        for number in os.read(reads, 64):
            listener = _listener
            if number == signal.SIGINT and listener is not None and not listener.hear():
                continue
            if number in (signal.SIGINT, *_ENDING):
                timer = threading.Timer(GRACE_S, end, (number,))
                timer.daemon = True
                timer.start()
