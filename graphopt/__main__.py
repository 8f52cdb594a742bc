"""The ``graphopt`` command, and what ``python -m graphopt`` does."""

from __future__ import annotations

import os
import signal
from types import FrameType


def _end(number: int, frame: FrameType | None) -> None:
    """End at once: nothing is there yet that would have to be put in order."""
    if number == signal.SIGINT:
        os.write(2, b"error: aborted by Ctrl-C\n")
    os._exit(128 + number)


def main() -> None:
    """Run the command line of this process and exit."""
    # Before anything else is imported, which takes a while: a signal then would end in a traceback.
    for number in (signal.SIGINT, signal.SIGTERM):
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, _end)
    from graphopt.cli.main import main as run

    run()


if __name__ == "__main__":
    main()
