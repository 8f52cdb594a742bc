"""What the user sees and can do while a search runs: a line of progress, and Ctrl-C to stop with the best so far."""

from __future__ import annotations

import math
import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from graphopt.cli.screen import console, one_line
from graphopt.cli.signals import Stoppable

if TYPE_CHECKING:
    from rich.progress import Progress as Line

    from graphopt.api import Progress


_EVERY = 60.0
"""Seconds between lines about long work where there is no terminal."""


class _Drawn:
    """What rich draws on stderr between entering and leaving a block."""

    _line: Line

    def __enter__(self) -> Self:
        """Start to draw."""
        if not self._line.disable:  # older releases of rich print an empty line even when disabled
            self._line.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Remove the line."""
        if not self._line.disable:
            self._line.stop()

    @contextmanager
    def hidden(self) -> Iterator[None]:
        """A block in which other things are printed: the line is away meanwhile."""
        if self._line.disable:
            yield
            return
        self._line.stop()
        yield
        self._line.start()


class SearchProgress(_Drawn):
    """Shows `Progress` reports on stderr: as one moving line on a terminal, as plain lines with ``-v``.

    Args:
        shown: Show the moving line, if stderr is a terminal.
        verbose: Print each new message on a line of its own.
    """

    def __init__(self, *, shown: bool, verbose: bool) -> None:
        from rich.progress import Progress as Line
        from rich.progress import SpinnerColumn, TextColumn, TimeElapsedColumn

        self._console = console()
        self._verbose = verbose
        self._last = ""
        self._line = Line(
            SpinnerColumn("line"),
            TextColumn("{task.description}", markup=False),
            TextColumn("{task.fields[best]}", markup=False),
            TimeElapsedColumn(),
            console=self._console,
            transient=True,
            refresh_per_second=4,  # drawing takes time from what is being measured
            disable=not (shown and self._console.is_terminal),
        )
        self._task = self._line.add_task("starting", total=None, best="")

    def __call__(self, report: Progress) -> None:
        """Show one report of the library."""
        text = one_line(report.message or report.stage, 60)
        if self._verbose and text != self._last:
            self._console.print(text, soft_wrap=True)
        self._last = text
        used = "" if report.fraction is None else f"{report.fraction:.0%}"
        best = "" if report.best is None else f"best {report.best:.3f}x"
        self._line.update(self._task, description=text, best=" ".join(filter(None, [best, used])))


class StepProgress(_Drawn):
    """A bar on stderr for a known number of steps; nothing where stderr is no terminal.

    Args:
        steps: How many there are.
        shown: Show the bar, if stderr is a terminal.
    """

    def __init__(self, steps: int, *, shown: bool = True) -> None:
        from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
        from rich.progress import Progress as Line

        screen = console()
        self._line = Line(
            BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TextColumn("{task.description}", markup=False),
            console=screen, transient=True, disable=not (shown and screen.is_terminal),
        )  # fmt: skip
        self._task = self._line.add_task("", total=steps)

    def __call__(self, done: str) -> None:
        """One step is done."""
        self._line.update(self._task, advance=1, description=done)


class WorkProgress(_Drawn):
    """Tells on stderr of work that takes hours: one moving line on a terminal, a line every minute elsewhere.

    Args:
        shown: Show it at all.
    """

    def __init__(self, *, shown: bool) -> None:
        from rich.progress import Progress as Line
        from rich.progress import SpinnerColumn, TextColumn, TimeElapsedColumn

        screen = self._console = console()
        self._logged = shown and not screen.is_terminal
        self._last = -math.inf
        self._line = Line(
            SpinnerColumn("line"), TextColumn("{task.description}", markup=False), TimeElapsedColumn(),
            console=screen, transient=True, refresh_per_second=2, disable=not (shown and screen.is_terminal),
        )  # fmt: skip
        self._task = self._line.add_task("starting", total=None)

    def __call__(self, stage: str) -> None:
        """What is being done."""
        self._line.update(self._task, description=one_line(stage))
        if self._logged and time.monotonic() - self._last >= _EVERY:
            self._last = time.monotonic()
            self._console.print(one_line(stage), soft_wrap=True)


class Interrupt(Stoppable):
    """Turns the first Ctrl-C into a request to stop, which the search asks for by calling this object.

    A second Ctrl-C aborts as usual. Where Ctrl-C is ignored (under nohup, for example) it stays ignored.

    Args:
        result: What the command then ends with.
    """

    def __init__(self, result: str = "the best so far") -> None:
        super().__init__()
        self._result = result
        self._previous: Any = None

    def __call__(self) -> bool:
        """Whether the user wants to stop."""
        return self.requested

    def __enter__(self) -> Self:
        """Listen to Ctrl-C."""
        self._previous = signal.getsignal(signal.SIGINT)
        if self._previous is not signal.SIG_IGN:
            self.listen()
            signal.signal(signal.SIGINT, self.handle)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Hand Ctrl-C back."""
        signal.signal(signal.SIGINT, self._previous)
        self.leave()

    def announce(self) -> None:
        """Say what will happen."""
        # Straight to the descriptor: the signal may have come in the middle of a print.
        os.write(2, f"\nstopping with {self._result}; Ctrl-C again aborts\n".encode())
