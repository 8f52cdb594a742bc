"""The ``graphopt`` command, and what ``python -m graphopt`` does."""

from __future__ import annotations

import os
import signal
import sys
from contextlib import suppress
from types import FrameType


def _end(number: int, frame: FrameType | None) -> None:
    """End at once: nothing is there yet that would have to be put in order."""
    if number == signal.SIGINT:
        with suppress(OSError):
            os.write(2, b"error: aborted by Ctrl-C\n")
    os._exit(128 + number)


def _open_streams() -> None:
    """Put something in the place of standard streams that were closed, as by ``>&-``.

    Else the next file that is opened takes the number, and what is meant for the screen goes into it. What is written to a
    stdout that was closed is an error, as it is for other commands: a document that goes there must not be lost unseen.
    """
    for number, (name, mode) in enumerate((("stdin", "r"), ("stdout", "w"), ("stderr", "w"))):
        try:
            os.fstat(number)
        except OSError:
            nothing = os.open(os.devnull, os.O_RDONLY if name == "stdout" else os.O_RDWR)
            os.dup2(nothing, number)
            if nothing != number:
                os.close(nothing)
            os.set_inheritable(number, True)
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(number, mode, encoding="utf-8", closefd=False))


def main() -> None:
    """Run the command line of this process and exit."""
    _open_streams()
    # Before anything else is imported, which takes a while: a signal then would end in a traceback.
    for number in {signal.SIGINT, signal.SIGTERM, getattr(signal, "SIGHUP", signal.SIGTERM)}:
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, _end)
    from graphopt.cli.main import main as run

    run()


if __name__ == "__main__":
    main()
