"""What all tests share."""

from __future__ import annotations

import signal
import threading


def pytest_configure() -> None:
    """Ctrl-C means what it means in a terminal, also where a shell started the suite in the background and ignores it."""
    if threading.current_thread() is threading.main_thread() and signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
