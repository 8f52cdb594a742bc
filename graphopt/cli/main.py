"""The ``graphopt`` command: its subcommands, and the one place where errors become messages and exit codes.

Nothing here, nor at the top of a command's module, imports onnx, onnxruntime or torch: ``graphopt --help`` has to
answer at once. The commands import what they need when they run.
"""

from __future__ import annotations

import errno
import os
import re
import sys
import traceback
import warnings
from collections.abc import Sequence
from contextlib import redirect_stderr
from typing import Annotated, Any, TextIO, cast

import typer

from graphopt.cli import (
    bench,
    cost,
    evaluate,
    explain,
    inspect,
    optimize,
    providers,
    replay,
    rules,
    signals,
    train,
    verify,
    zoo,
)
from graphopt.cli.options import Command
from graphopt.cli.screen import Lasting
from graphopt.config import name_unknown
from graphopt.errors import GraphoptError, RuleError, UsageError, refusal, unprinted
from graphopt.version import __version__
from graphopt.wording import one_line

EXIT_FAILURE = 1
EXIT_INTERRUPTED = 130  # what shells report for a command that Ctrl-C ended

app = typer.Typer(
    name="graphopt",
    epilog="Exit codes: 0 done, 1 failure, 2 wrong usage, 3 outputs differ, 4 too slow, 130 aborted.",
    no_args_is_help=True,
    # Plain help: it fits 80 columns, pipes into a pager, and needs no import of rich.
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
app.command("optimize", cls=Command, short_help="Make a model faster.")(optimize.optimize)
app.command("inspect", short_help="Show what a model consists of and where its time goes.")(inspect.inspect)
app.command("verify", short_help="Check that two models compute the same.")(verify.verify)
app.command("bench", cls=Command, short_help="Measure what graphopt and others gain.")(bench.bench)
app.add_typer(rules.app, name="rules", short_help="List, show, check, count and generate rewrite rules.")
app.command("explain", short_help="Show which rule made which node.")(explain.explain)
app.command("replay", short_help="Make the steps of a trace again.")(replay.replay)
app.command("bisect", short_help="Find the step of a trace that did harm.")(replay.bisect)
app.command("providers", short_help="List what this machine can run models on.")(providers.providers)
app.command("train-agent", cls=Command, short_help="Train an agent that rewrites models.")(train.train_agent)
app.command("evaluate-agent", short_help="Compare trained agents with search.")(evaluate.evaluate_agent)
app.add_typer(cost.app, name="cost")
app.add_typer(zoo.app, name="zoo")


def _print_version(wanted: bool) -> None:
    if wanted:
        print(f"graphopt {__version__}")
        raise typer.Exit


@app.callback()
def root(
    version: Annotated[
        bool, typer.Option("--version", help="Show the version and exit.", is_eager=True, callback=_print_version)
    ] = False,
) -> None:
    """Rewrite an ONNX model until ONNX Runtime runs it faster, and prove it."""


def main() -> None:
    """Run the command line of this process and exit."""
    signals.watch()
    try:
        code = run(sys.argv[1:])
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else EXIT_FAILURE
    signals.leave(code)


def run(arguments: Sequence[str]) -> int:
    """Run one command line: what follows ``graphopt``.

    Returns:
        The exit code: 0 done, 1 failure, 2 wrong usage, 3 outputs differ, 4 slower than ``--fail-under``, 130 aborted by
        Ctrl-C. What is done, of which something could not be said, is a failure.
    """
    stderr = Lasting(sys.stderr)
    with redirect_stderr(cast("TextIO", stderr)):
        code = _run(arguments)
        stderr.flush()
    return code or (EXIT_FAILURE if stderr.lost else 0)


def _run(arguments: Sequence[str]) -> int:
    for stream in (sys.stdout, sys.stderr):
        # A model may name its nodes in any script; a terminal that can't show it is no reason to fail.
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")
    _told.clear()
    try:
        with warnings.catch_warnings():
            warnings.showwarning = _warn
            # Whether the command reads settings or not; but not into the line that a shell completes.
            if not {"-q", "--quiet"} & set(arguments) and "_GRAPHOPT_COMPLETE" not in os.environ:
                name_unknown(os.environ)
            _see_given(arguments)
            code = app(args=list(arguments), prog_name="graphopt", standalone_mode=False)
    except KeyboardInterrupt:
        code = EXIT_INTERRUPTED
    except BrokenPipeError:
        _give_up_stdout()  # the reader went away, as `head` does
        return EXIT_FAILURE
    except Exception as error:
        if os.environ.get("GRAPHOPT_DEBUG"):
            traceback.print_exc()
        if not signals.received():
            return _report(error)
        code = 128 + signals.received()
    finally:
        signals.forget()
    if code == EXIT_INTERRUPTED:
        _say("error: aborted by Ctrl-C")
    return code if isinstance(code, int) else 0


def _see_given(arguments: Sequence[str]) -> None:
    """See that no argument is an empty text: nothing has that for a name, and as a path it would be the current folder.

    Raises:
        UsageError: One is.
    """
    for before, text in zip(("graphopt", *arguments), arguments, strict=False):
        if not text or _ASSIGNED_NOTHING.fullmatch(text):
            raise UsageError(
                f"an empty text is given {f'after {before}' if not text else f'as {text}'}",
                "leave it out, or give a value: is a variable of the shell empty?",
            )


_ASSIGNED_NOTHING = re.compile("--[a-z-]+=")
_told: set[str] = set()
"""Warnings that were printed: the same one comes from each of several stores or sessions."""


def _warn(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    file: TextIO | None = None,
    line: str | None = None,
) -> None:
    """Print a warning of our own as a line. Those of libraries are for developers, who ask for them with -W."""
    text = f"warning: {message}"
    if (category.__module__.partition(".")[0] == "graphopt" or sys.warnoptions) and text not in _told:
        _told.add(text)
        _say(text)


def _report(error: Exception) -> int:
    """Print `error` as a line, and a line with what to do about it if that is known. Returns the exit code."""
    if isinstance(error, ExceptionGroup):
        codes = [_report(each) for each in error.exceptions]
        return codes[0]
    if isinstance(error, GraphoptError):
        for one in (error, *(error.others if isinstance(error, RuleError) else ())):
            _say(f"error: {one}")
            if one.hint:
                _say(f"hint: {one.hint}")
        return error.exit_code
    if isinstance(error, typer.TyperException):
        return _report_usage(error)
    if isinstance(error, Warning):
        _say(f"error: {error}")
        _say("hint: a warning is an error by -W or PYTHONWARNINGS")
        return EXIT_FAILURE
    if isinstance(error, MemoryError):
        _say("error: out of memory")
        _say("hint: close other programs, or give smaller --input-shape or --dim sizes")
        return EXIT_FAILURE
    if isinstance(error, OSError) and error.errno is not None:
        return _report_refused(error)
    if isinstance(error, typer.Abort):
        _say("error: aborted by Ctrl-C")
        return EXIT_INTERRUPTED
    message = f"{type(error).__name__}: {error}"
    _say(f"internal error: {one_line(message, 300)}; run with GRAPHOPT_DEBUG=1 for the traceback")
    return EXIT_FAILURE


def _report_refused(error: OSError) -> int:
    """Print what the system refused; where it names no file, that was the current folder, or room for stdout."""
    unnamed, full = error.filename is None, error.errno in (errno.ENOSPC, errno.EDQUOT)
    if unnamed and isinstance(error, FileNotFoundError):
        _say("error: the current folder is no longer there")
        _say("hint: go to another one")
    elif unnamed and (full or error.errno == errno.EBADF):
        _say(f"error: {unprinted(error)}")
        _give_up_stdout()
    else:
        _say(f"error: {refusal(error)}")
        if full:
            _say("hint: free some space, or choose another place with -o")
    return UsageError.exit_code if error.errno == errno.ENAMETOOLONG else EXIT_FAILURE


def _give_up_stdout() -> None:
    """Python flushes stdout once more at exit, where that would fail again: give it somewhere to go."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _report_usage(error: typer.TyperException) -> int:
    """Print what typer found wrong with the arguments in the form of all other errors."""
    context = getattr(error, "ctx", None)
    message = error.format_message()
    if type(error).__name__ == "NoArgsIsHelpError":
        # The "message" is the help page, which rich has printed already.
        if message.strip():
            _say(message, lines=True)
        return error.exit_code
    message = _misread(error) or message
    _say(f"error: {message[:1].lower()}{message[1:]}".rstrip("."))
    _say(f"hint: see {context.command_path if context is not None else 'graphopt'} --help")
    return error.exit_code


_WANTED = {"float_parsing": "a number", "int_parsing": "a whole number"}
"""What a value should have been, by what the library that reads values calls the mistake."""


def _misread(error: typer.TyperException) -> str:
    """Which option was given what, and what it should be; empty where that is not what is wrong, or not known."""
    cause: Any = error.__cause__
    parameter: Any = getattr(error, "param", None)
    for found in cause.errors() if parameter is not None and hasattr(cause, "errors") else ():
        if wanted := _WANTED.get(found["type"]):
            return f"{parameter.opts[0]} must be {wanted}, not {found['input']}"
    return ""


def _say(text: str, *, lines: bool = False) -> None:
    print(text if lines else one_line(text), file=sys.stderr)
