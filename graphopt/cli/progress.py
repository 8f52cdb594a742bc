"""What the user sees and can do while a search runs: a line of progress, and Ctrl-C to stop with the best so far."""

from __future__ import annotations

import math
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Self

from graphopt.cli.screen import console
from graphopt.cli.signals import Stoppable, say
from graphopt.wording import one_line

if TYPE_CHECKING:
    from rich.progress import ProgressColumn

    from graphopt.pipeline.context import Progress


_EVERY = 60.0
"""Seconds between lines about long work where there is no terminal."""


class _Drawn:
    """What rich draws on stderr between entering and leaving a block; nothing, or a line now and then, where stderr is no terminal.

    Args:
        columns: Of the line.
        shown: Draw it, if stderr is a terminal.
        often: Times a second that it is drawn anew.
    """

    _said = -math.inf

    def __init__(self, *columns: ProgressColumn, shown: bool, often: float) -> None:
        from rich.progress import Progress as Line

        self._shown = shown
        self._console = screen = console(least=1)  # what is drawn again and again must know where lines end
        self._line = Line(
            *columns,
            console=screen,
            transient=True,
            refresh_per_second=often,
            disable=not (shown and screen.is_terminal),
        )

    def __enter__(self) -> Self:
        if not self._line.disable:  # older releases of rich print an empty line even when disabled
            try:
                self._line.start()
            except BaseException:
                self._line.stop()  # Ctrl-C in the middle of it: a thread that draws on would spoil what is said of it
                raise
        return self

    def __exit__(self, *raised: object) -> None:
        if not self._line.disable:
            self._line.stop()

    def _say(self, text: str, every: float) -> None:
        """Print a line where nothing can be drawn, if so many seconds have passed since the last."""
        if self._shown and not self._console.is_terminal and time.monotonic() - self._said >= every:
            self._said = time.monotonic()
            self._console.print(one_line(text), no_wrap=True, overflow="ellipsis")

    @contextmanager
    def hidden(self) -> Iterator[None]:
        """A block in which other things are printed: the line is away meanwhile."""
        if self._line.disable:
            yield
            return
        self._line.stop()
        yield
        self._line.start()


def _spinner() -> tuple[ProgressColumn, ProgressColumn, ProgressColumn]:
    """Something that turns, what is being done, and for how long."""
    from rich.progress import SpinnerColumn, TextColumn, TimeElapsedColumn

    return SpinnerColumn("line"), TextColumn("{task.description}", markup=False), TimeElapsedColumn()


class Waiting(_Drawn):
    """A spinner on stderr while something loads; nothing where stderr is no terminal."""

    def __init__(self, what: str, *, shown: bool = True) -> None:
        super().__init__(*_spinner(), shown=shown, often=4)
        self._task = self._line.add_task(one_line(what, 60), total=None)


class SearchProgress(_Drawn):
    """Shows `Progress` reports on stderr: as one moving line on a terminal, as plain lines with ``-v``.

    Args:
        shown: Show the moving line, if stderr is a terminal.
        verbose: Print each new message on a line of its own.
    """

    def __init__(self, *, shown: bool, verbose: bool) -> None:
        from rich.progress import ProgressColumn, Task, TextColumn
        from rich.text import Text

        progress = self

        class Share(ProgressColumn):
            """The part of the budget that is used, which goes on between two reports."""

            def render(self, task: Task) -> Text:
                return Text(progress.share(task.elapsed or 0.0))

        spinner, message, elapsed = _spinner()
        columns = spinner, message, TextColumn("{task.fields[best]}", markup=False), Share(), elapsed
        super().__init__(*columns, shown=shown, often=4)  # drawing takes time from what is being measured
        self._verbose = verbose
        self._last = ""
        self._done: float | None = None  # part of the work
        self._budget: tuple[float, float] | None = None  # when it began, on the line's clock, and its seconds
        self._task = self._line.add_task("starting", total=None, best="")

    def __call__(self, report: Progress) -> None:
        """Show one report of the library."""
        text = one_line(report.message or report.stage, 60)
        if self._verbose and text != self._last:
            self._console.print(text, soft_wrap=True)
        self._last = text
        self._done = report.fraction
        if report.budget is not None and report.fraction is not None:
            now = self._line.tasks[0].elapsed or 0.0
            self._budget = (now - report.fraction * report.budget, report.budget)
        best = "" if report.best is None else f"best {report.best:.3f}x"
        self._line.update(self._task, description=text, best=best)

    def share(self, elapsed: float) -> str:
        """Which part of the budget is used after so many seconds: ``37 % of 12 s``; of the work, where there is none: ``37 %``."""
        if self._budget is None:
            return "" if self._done is None else f"{self._done:.0%}"
        began, seconds = self._budget
        return f"{min(1.0, max(0.0, elapsed - began) / seconds):.0%} of {seconds:.0f} s"


class StepProgress(_Drawn):
    """A bar on stderr for a known number of steps; where stderr is no terminal a line for each, or every so many seconds how many are done."""

    def __init__(self, steps: int, *, shown: bool = True, what: str = "", every: float = 0.0) -> None:
        from rich.progress import BarColumn, MofNCompleteColumn

        _, message, elapsed = _spinner()
        super().__init__(BarColumn(), MofNCompleteColumn(), elapsed, message, shown=shown, often=10)
        self._task = self._line.add_task("", total=steps)
        self._what, self._every = what, every
        self._said = time.monotonic() - (0.0 if every else math.inf)

    def __call__(self, done: str) -> None:
        """One step is done."""
        self._line.update(self._task, advance=1, description=done)
        task = self._line.tasks[0]
        self._say(
            f"{task.completed:g} of {task.total:g} {self._what}, the last {done}" if self._what else done, self._every
        )


class WorkProgress(_Drawn):
    """Tells on stderr of work that takes hours: one moving line on a terminal, a line every minute elsewhere."""

    def __init__(self, *, shown: bool) -> None:
        super().__init__(*_spinner(), shown=shown, often=2)
        self._task = self._line.add_task("starting", total=None)

    def __call__(self, stage: str) -> None:
        """What is being done."""
        self._line.update(self._task, description=one_line(stage))
        self._say(stage, _EVERY)


class Interrupt(Stoppable):
    """Turns the first Ctrl-C into a request to stop, which the search asks for by calling this object.

    A second Ctrl-C aborts as usual, and so does the first before there is anything to end with. Where Ctrl-C is ignored
    (under nohup, for example) it stays ignored.

    Args:
        result: What the command then ends with.
        begun: Whether there is something to end with from the start.
    """

    def __init__(self, result: str = "the best so far", *, begun: bool = True) -> None:
        super().__init__(begun=begun)
        self._result = result
        self._previous: Any = None

    def __call__(self) -> bool:
        """Whether the user wants to stop."""
        return self.requested

    def __enter__(self) -> Self:
        self._previous = signal.getsignal(signal.SIGINT)
        if self._previous is not signal.SIG_IGN:
            self.listen()
            signal.signal(signal.SIGINT, self.handle)
        return self

    def __exit__(self, *raised: object) -> None:
        signal.signal(signal.SIGINT, self._previous)
        self.leave()

    def announce(self) -> None:
        """Say what will happen."""
        say(f"\nstopping with {self._result}; Ctrl-C again aborts\n")
