"""Every error graphopt raises on purpose, each with an exit code and a hint.

    GraphoptError                exit 1  something failed; the message says what and where
    +-- UsageError               exit 2  the command or the call was wrong
    |   +-- UnknownNameError     exit 2  a provider, dimension, rule, model ... that does not exist
    |   +-- MissingExtraError    exit 2  an optional dependency is not installed
    |   +-- RuntimePackageError  exit 2  no package of ONNX Runtime is installed, or two that overwrite each other
    +-- ModelError               exit 1  the model can't be read, or is not valid ONNX
    |   +-- UnsupportedModelError  exit 1  valid, but beyond what graphopt handles
    +-- RuleError                exit 1  a rule file is wrong (file, line, column)
    +-- SessionError             exit 1  the runtime refused to build or run a session
    |   +-- InputsNeededError    exit 1  the model fails on made-up inputs: real ones are needed
    |   +-- CrashError           exit 1  the model takes the runtime down, or has no end
    +-- OutputsDifferError       exit 3  two models that should agree do not
    +-- TooSlowError             exit 4  a model gains less than was asked for
    +-- UnfinishedError          exit 130  Ctrl-C left some of the work for another run

What only one part of graphopt raises stands beside that part, and is a ``GraphoptError`` too: ``TraceError`` of a file of steps, ``TaskError`` and
``CheckpointError`` of agents.

The command line prints ``str(error)`` on one line, then ``hint:`` and the hint, and exits with ``exit_code``.
"""

from __future__ import annotations

import difflib
import errno
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

_LISTED = 12
"""Names that a hint lists."""


class GraphoptError(Exception):
    """Base of all deliberate errors.

    Args:
        message: What went wrong and where, on one line.
        hint: What the user can do about it, on one line.
    """

    exit_code = 1

    def __init__(self, message: str, hint: str | None = None) -> None:
        super().__init__(" ".join(message.split()))
        self.hint = hint

    def __reduce__(self) -> Any:
        # Subclasses take other arguments than the message, which is all that an exception would be made of again.
        return _again, (type(self), str(self), self.hint)


def _again(kind: type[GraphoptError], message: str, hint: str | None) -> GraphoptError:
    error = kind.__new__(kind)
    GraphoptError.__init__(error, message, hint)
    return error


class UsageError(GraphoptError):
    """The command line or the call does not make sense."""

    exit_code = 2


class UnknownNameError(UsageError):
    """A name that should be one of a known set is not.

    Args:
        kind: What the name was to be, for example ``provider``.
        name: What was given.
        known: The names that would have been accepted.
        see: The command that lists them, where they can be too many for a line.
    """

    def __init__(self, kind: str, name: str, known: Iterable[str], see: str = "") -> None:
        names = sorted(known)
        if near := nearest(str(name), names):  # of a table of sizes any key may be given
            hint = near
        elif see and len(names) > _LISTED:
            hint = f"see {see}"
        elif names:
            hint = "known: " + ", ".join(names[:_LISTED]) + (" ..." if len(names) > _LISTED else "")
        else:
            hint = f"there is no {kind} at all"
        super().__init__(f"unknown {kind} {name!r}", hint)


class MissingExtraError(UsageError):
    """An optional dependency is needed and absent.

    Args:
        extra: The extra of the ``graphopt`` distribution that brings it.
        module: The module that could not be imported.
    """

    def __init__(self, extra: str, module: str) -> None:
        super().__init__(f"{module} is not installed", install(extra))


def install(extra: str) -> str:
    """What to type to get an extra: no index has graphopt, so it is installed from its own folder."""
    return f"pip install '.[{extra}]' in graphopt's folder"


class RuntimePackageError(UsageError):
    """ONNX Runtime is not installed, can't be imported, or is installed twice over."""


class ModelError(GraphoptError):
    """The model cannot be read or is not valid ONNX."""


class UnsupportedModelError(ModelError):
    """The model is valid but uses something graphopt refuses to touch."""


class RuleError(GraphoptError):
    """A rule file is wrong.

    Args:
        message: What is wrong.
        where: ``file:line:column`` of the offending text.
        hint: The nearest known name, or what to write instead.

    Attributes:
        where: As given.
        rule: Id of the rule that is wrong; empty where it has none, or the whole file is wrong.
        others: What else is wrong, where everything was looked for.
    """

    def __init__(self, message: str, where: str = "", hint: str | None = None) -> None:
        super().__init__(f"{where}: {message}" if where else message, hint)
        self.where = where
        self.rule = ""
        self.others: tuple[RuleError, ...] = ()

    @staticmethod
    def of(errors: Sequence[RuleError]) -> RuleError:
        """One error that stands for several (at least one)."""
        first = errors[0]
        first.others = tuple(errors[1:])
        return first


class SessionError(GraphoptError):
    """The runtime refused to build or to run a session."""


class InputsNeededError(SessionError):
    """The original model fails on made-up inputs; the caller must supply real ones."""


class CrashError(SessionError):
    """The runtime crashed on a model, or did not come to an end."""


class OutputsDifferError(GraphoptError):
    """The optimised model does not compute what the original computes."""

    exit_code = 3


class TooSlowError(GraphoptError):
    """A model gains less than was asked for."""

    exit_code = 4


class UnfinishedError(GraphoptError):
    """Ctrl-C ended the work before all of it was done; what was done is kept, and another run goes on."""

    exit_code = 130


def nearest(name: str, known: Iterable[str]) -> str | None:
    """What to ask whoever has misspelt a known name; ``None`` where none is like it."""
    near = difflib.get_close_matches(name, list(known), n=1)
    return f"did you mean {near[0]!r}?" if near else None


def unexpected(error: BaseException) -> str:
    """An exception that nobody meant to raise, on one line."""
    return " ".join(f"unexpected {type(error).__name__}: {error}".split()).rstrip(": ")


def reason(error: Exception) -> str:
    """Why the system refused something, as part of a sentence; names in it stay as they are."""
    text = getattr(error, "strerror", None) or str(error)
    return text[:1].lower() + text[1:]


def refusal(error: OSError) -> str:
    """What the system refused, and of which files, where it names any."""
    names = " -> ".join(str(name) for name in (error.filename, error.filename2) if name is not None)
    return os.strerror(error.errno or 0).lower() + (f": {names}" if names else "")


def unprinted(error: OSError) -> str:
    """That stdout can't be written, and why."""
    return f"stdout: can't be written: {'it is closed' if error.errno == errno.EBADF else reason(error)}"


def expect(name: str, value: object, kinds: type | tuple[type, ...], what: str) -> None:
    """See that an argument is of some type.

    Args:
        name: The argument's name.
        value: What was given.
        kinds: Of which types it may be.
        what: The same in words.

    Raises:
        UsageError: It is not.
    """
    if not isinstance(value, kinds):
        raise UsageError(f"{name} must be {what}, not {type(value).__name__}")


def expect_path(name: str, value: object, what: str = "a path", also: type | tuple[type, ...] = ()) -> None:
    """See that an argument is a path that a file can have, or of one of the types that it may have besides; as :func:`expect`."""
    expect(name, value, (str, Path, *(also if isinstance(also, tuple) else (also,))), what)
    if isinstance(value, str | Path) and not is_path(value):
        raise UsageError(f"{name} must be {what}, not {value!r}")


def is_path(value: object) -> bool:
    """Whether a value is a path that a file can have: an empty text would be the current folder."""
    return isinstance(value, str | Path) and value != "" and "\0" not in str(value)
