"""What the commands share on the way out: consoles, tables, JSON and whole files.

Messages, progress and the result of `graphopt optimize` go to stderr. Stdout carries what a command was asked to
list, or, with ``--json -``, the JSON document and nothing else.
"""

from __future__ import annotations

import json
import math
import os
import shlex
import sys
import textwrap
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from graphopt.errors import GraphoptError
from graphopt.files import write_text
from graphopt.wording import one_line

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text


class Lasting:
    """A stream that can be written whatever becomes of it: what it has no room for, or nobody reads, is lost and nothing else.

    Messages are told on the way to a model, which took long to find: a full disk, or a ``tee`` that Ctrl-C has ended, must not cost it.

    Attributes:
        lost: Whether something could not be written.
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream, self.lost = stream, False

    def write(self, text: str) -> int:
        """Write as far as possible; how much there was to write."""
        try:
            self._stream.write(text)
        except OSError:
            self.lost = True
        return len(text)

    def flush(self) -> None:
        """Write what is kept back."""
        try:
            self._stream.flush()
        except OSError:
            self.lost = True

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


_LEAST = 60  # columns in which facts, and tables of a few numbers, lose nothing


def console(*, stderr: bool = True, least: int = _LEAST) -> Console:
    """A console that prints text as it is: a model's names may look like markup.

    Args:
        stderr: Print to stderr rather than to stdout.
        least: Columns to print for where there are fewer: the terminal breaks lines then, and nothing is cut.
    """
    from rich.console import Console

    class Screen(Console):
        def on_broken_pipe(self) -> None:
            raise  # what rich does ends the process, though there may be files to write yet

    result = Screen(stderr=stderr, markup=False, emoji=False, highlight=False)
    if not result.is_terminal and "COLUMNS" not in os.environ:
        result.width = 1000  # one line for each row, for grep and the like
    result.width = max(result.width, least)
    return result


def word(path: str) -> str:
    """A path as one word of a command, and no option of it."""
    return shlex.quote(f"./{one_line(path)}" if path.startswith("-") else one_line(path))


def breakable(text: str) -> Text:
    """A name, safe to print, that is broken behind its hyphens where there is no room for it."""
    from rich.containers import Lines
    from rich.text import Text

    class Name(Text):
        def wrap(self, console: Console, width: int, **kind: Any) -> Lines:
            parts = textwrap.wrap(self.plain, max(1, width), break_on_hyphens=True) or [""]
            return Lines(Text(part, style=self.style) for part in parts)

    return Name(one_line(text))


def table(*columns: str, whole: bool = False, numbers: int = 0) -> Table:
    """A plain table.

    Args:
        columns: The heads of the columns.
        whole: Never break the first column: it holds names that people copy.
        numbers: How many columns, counted from the last, are aligned to the right.
    """
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    result = Table(box=SIMPLE_HEAD, show_edge=False, pad_edge=False, header_style="bold")
    for index, name in enumerate(columns):
        right = index >= len(columns) - numbers
        fixed = right or (whole and index == 0)
        result.add_column(name, justify="right" if right else "left", overflow="fold", no_wrap=fixed)
    return result


def facts() -> Table:
    """A table of two columns without a head: names of facts, and the facts."""
    from rich.table import Table

    result = Table.grid(padding=(0, 2))
    result.add_column(style="bold", no_wrap=True)
    result.add_column(overflow="fold")
    return result


def write_json(document: Mapping[str, Any], target: str) -> None:
    """Write `document` to the file `target`, or to stdout if it is ``-``."""
    text = json.dumps(_finite(document), indent=2) + "\n"
    if target == "-":
        sys.stdout.write(text)
        sys.stdout.flush()
    else:
        write_text(Path(target), text)


def each(*actions: Callable[[], object] | None) -> None:
    """Do one thing after the other, whatever became of those before.

    Raises:
        GraphoptError: One failed.
        OSError: One failed.
        ExceptionGroup: Several failed.
    """
    failed: list[Exception] = []
    for action in actions:
        try:
            if action is not None:
                action()
        except (GraphoptError, OSError) as error:
            failed.append(error)
        except ExceptionGroup as several:  # of one that is made of several
            failed += several.exceptions
    if len(failed) > 1:
        raise ExceptionGroup("several outputs can't be written", failed)
    if failed:
        raise failed[0]


def present(show: Callable[[], object] | None, document: Mapping[str, Any], json: str | None) -> None:
    """Tell what a command found: to people, unless the document takes the screen's place, then as the document.

    In this order, for what took long to find out must not be lost with a document that finds no room.

    Args:
        show: Prints it; ``None`` where nobody wants to see it.
        document: The same for programs.
        json: Where the document goes, as ``--json`` says.

    Raises:
        GraphoptError: One of the two failed.
        OSError: One of the two failed.
        ExceptionGroup: Both did.
    """
    each(None if json == "-" else show, None if json is None else lambda: write_json(document, json))


def _finite(value: Any) -> Any:
    """`value` with null for numbers that JSON cannot hold, and paths and the like as text."""
    if isinstance(value, Mapping):
        return {str(key): _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_finite(item) for item in value]
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if value is None or isinstance(value, bool | int | str):
        return value
    if hasattr(value, "item"):
        return _finite(value.item())  # a NumPy scalar
    return str(value)
