"""The frame around the commands: start-up, help, and errors turned into a line and an exit code."""

from __future__ import annotations

import errno
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import graphopt
from graphopt.cli import main as main_module
from graphopt.errors import GraphoptError, OutputsDifferError, UnknownNameError
from tests.pace import processor_s, slowness_now

COMMANDS = [
    [],
    ["optimize"],
    ["inspect"],
    ["verify"],
    ["rules"],
    ["rules", "list"],
    ["rules", "show"],
    ["rules", "check"],
    ["explain"],
    ["evaluate-agent"],
    ["zoo"],
    ["zoo", "list"],
    ["zoo", "build"],
]


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_help(cli, command):
    outcome = cli(*command, "--help")
    assert outcome.code == 0
    assert outcome.out.startswith(f"Usage: graphopt {' '.join(command)}".rstrip())
    assert not outcome.err


def test_help_fits_80_columns(cli, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    for command in COMMANDS:
        assert max(map(len, cli(*command, "--help").out.splitlines())) <= 80


def test_help_tells_of_each_command_in_whole_words(cli, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    for command in ([], ["rules"], ["zoo"], ["cost"]):
        assert not [line for line in cli(*command, "--help").out.splitlines()[1:] if line.endswith("...")]


def test_help_loads_nothing_heavy():
    code = (
        "import sys, contextlib, io\n"
        "from graphopt.cli.main import run\n"
        "for command in [[], ['optimize'], ['rules', 'list']]:\n"
        "    with contextlib.redirect_stdout(io.StringIO()):\n"
        "        assert run([*command, '--help']) == 0\n"
        "print(*sorted({name.partition('.')[0] for name in sys.modules}))\n"
    )
    root = Path(main_module.__file__).parents[2]
    done = subprocess.run([sys.executable, "-c", code], cwd=root, capture_output=True, text=True, check=True)
    heavy = {"torch", "onnxruntime", "onnx", "onnx_ir", "numpy", "ray", "torch_geometric", "rich", "yaml"}
    assert not heavy & set(done.stdout.split())


def usual_seconds(process, *arguments: str | Path) -> float:
    """Seconds of a usual, idle processor that a command takes with its children: the best of a few, each beside a known piece of work."""

    def run() -> None:
        assert process(*arguments).code == 0

    return min(processor_s(run) / slowness_now() for _ in range(3))


def test_help_is_quick(process):
    assert usual_seconds(process, "--help") < 0.5


def test_a_small_model_is_looked_at_within_a_second(process, model):
    assert usual_seconds(process, "inspect", model) < 1.0


def test_to_look_at_a_model_takes_neither_rules_nor_reports(model):
    code = (
        f"import sys; from graphopt import inspect, verify, explain; inspect({str(model)!r}); explain({str(model)!r})\n"
        f"verify({str(model)!r}, {str(model)!r}); print(*sys.modules)"
    )
    root = Path(main_module.__file__).parents[2]
    done = subprocess.run([sys.executable, "-c", code], cwd=root, capture_output=True, text=True, check=True)
    heavy = {"graphopt.rewrite.library", "graphopt.report", "graphopt.rl", "jinja2", "gymnasium", "sqlite3"}
    assert not heavy & set(done.stdout.split())


def test_no_command_shows_help(cli):
    outcome = cli()
    assert outcome.code == 2
    assert "Usage: graphopt" in outcome.out + outcome.err


@pytest.mark.parametrize(
    "command",
    [
        "rules show pad-into-conv", "rules check none.yaml", "explain net.onnx", "replay t.json net.onnx",
        "bisect t.json net.onnx", "zoo list", "cost show", "providers", "train-agent --resume none", "evaluate-agent none",
        "rules list", "inspect net.onnx", "optimise",
    ],
)  # fmt: skip
def test_a_misspelt_variable_is_named_by_every_command_once(cli, model, monkeypatch, command):
    monkeypatch.setenv("GRAPHOPT_THREDS", "4")
    warning = "warning: unknown variable 'GRAPHOPT_THREDS', which has no effect: did you mean 'GRAPHOPT_THREADS'?"
    assert cli(*command.split()).err.splitlines().count(warning) == 1


def test_a_misspelt_variable_is_none_of_the_errors_that_quiet_leaves(cli, model, monkeypatch):
    monkeypatch.setenv("GRAPHOPT_THREDS", "4")
    for command in (("verify", model, model), ("replay", "none.json", model)):
        assert "GRAPHOPT_THREDS" not in cli(*command, "-q").err


def test_a_misspelt_variable_is_not_said_into_a_line_that_a_shell_completes(process):
    asked = {"_GRAPHOPT_COMPLETE": "complete_bash", "COMP_WORDS": "graphopt insp", "COMP_CWORD": "1"}
    outcome = process(GRAPHOPT_THREDS="4", **asked)
    assert "inspect" in outcome.out and not outcome.err


def test_version(cli):
    outcome = cli("--version")
    assert (outcome.code, outcome.out) == (0, f"graphopt {graphopt.__version__}\n")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["optimise"], "optimise"),
        (["optimize"], "MODEL"),
        (["verify", "a.onnx", "b.onnx", "c.onnx"], "c.onnx"),
        (["optimize", "a.onnx", "--treads", "2"], "--treads"),
        (["optimize", "a.onnx", "--threads", "two"], "--threads"),
        (["optimize", "a.onnx", "--budget"], "--budget"),
        (["rules", "lost"], "lost"),
        (["zoo", "build"], "NAME"),
    ],
    ids=" ".join,
)
def test_wrong_arguments(cli, arguments, message):
    outcome = cli(*arguments)
    assert outcome.code == 2
    assert message in outcome.error_lines()[0]
    assert "--help" in outcome.error_lines()[1]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["optimize", "a.onnx", "--threads", "two"], "--threads must be a whole number, not two"),
        (["optimize", "a.onnx", "--budget", "1m"], "--budget must be a number, not 1m"),
        (["rules", "check", "--jobs", "0"], "--jobs must be a whole number of at least 1, not 0"),
        (["explain", "a.onnx", "--seconds", "-1"], "--seconds must be a number of at least 0, not -1.0"),
        (["cost", "calibrate", "a.onnx", "--graphs", "1"], "--graphs must be a whole number of at least 2, not 1"),
    ],
    ids=" ".join,
)
def test_a_value_that_is_wrong_is_told_with_its_option(cli, arguments, message):
    outcome = cli(*arguments)
    assert outcome.code == 2 and outcome.error_lines()[0] == f"error: {message}"


@pytest.mark.parametrize(
    ("raised", "code", "lines"),
    [
        (GraphoptError("it broke"), 1, ["error: it broke"]),
        (GraphoptError("it broke", "mend it"), 1, ["error: it broke", "hint: mend it"]),
        (GraphoptError("in \x1b[31mred"), 1, ["error: in \ufffd[31mred"]),
        (
            UnknownNameError("rule", "fuse", ["fuse-bn"]),
            2,
            ["error: unknown rule 'fuse'", "hint: did you mean 'fuse-bn'?"],
        ),
        (OutputsDifferError("they differ"), 3, ["error: they differ"]),
        (
            MemoryError(),
            1,
            ["error: out of memory", "hint: close other programs, or give smaller --input-shape or --dim sizes"],
        ),
        (
            OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "out.onnx"),
            1,
            ["error: no space left on device: out.onnx", "hint: free some space, or choose another place with -o"],
        ),
        (PermissionError(errno.EACCES, "", "m.onnx"), 1, ["error: permission denied: m.onnx"]),
        (
            ValueError("first\nsecond"),
            1,
            ["internal error: ValueError: first second; run with GRAPHOPT_DEBUG=1 for the traceback"],
        ),
        (KeyboardInterrupt(), 130, ["error: aborted by Ctrl-C"]),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, BaseException) else "",
)
def test_errors_become_lines_and_exit_codes(cli, model, monkeypatch, raised, code, lines):
    def fail(*_):
        raise raised

    monkeypatch.setattr("graphopt.cli.paths.existing_file", fail)
    outcome = cli("optimize", model)
    assert outcome.code == code
    assert outcome.err.splitlines() == lines
    assert not outcome.out


def test_traceback_on_request(cli, model, monkeypatch):
    def fail(*_):
        raise ValueError("surprise")

    monkeypatch.setattr("graphopt.cli.paths.existing_file", fail)
    monkeypatch.setenv("GRAPHOPT_DEBUG", "1")
    outcome = cli("optimize", model)
    assert outcome.code == 1
    assert outcome.err.startswith("Traceback")
    assert re.search(r"^internal error: ValueError: surprise", outcome.err, re.MULTILINE)


def test_reader_that_goes_away(tmp_path):
    """`graphopt zoo list | head -1` says nothing about broken pipes."""
    root = Path(main_module.__file__).parents[2]
    shell = f"'{sys.executable}' -m graphopt zoo list | head -1 >/dev/null"
    done = subprocess.run(["sh", "-c", shell], cwd=root, capture_output=True, text=True, check=False)
    assert not done.stderr
