"""Standard streams that were closed, as a service or a ``>&-`` does: the command runs as with any other, unless it has something to print."""

from __future__ import annotations

import os
import subprocess
import sys

import onnx
import pytest

from tests.cli.conftest import ROOT

pytestmark = pytest.mark.skipif(os.name == "nt", reason="redirections of a Unix shell")


def closed(folder, streams, *arguments):
    """The command in a shell that closes some of its streams."""
    return subprocess.run(
        ["sh", "-c", f'"$@" {streams}', "sh", sys.executable, "-m", "graphopt", *map(str, arguments)],
        capture_output=True, text=True, cwd=folder, env={**os.environ, "PYTHONPATH": str(ROOT)}, timeout=120, check=False,
    )  # fmt: skip


@pytest.mark.parametrize("streams", [">&-", "2>&-", "<&- >&- 2>&-"])
def test_it_works_without_them(tmp_path, model, streams):
    done = closed(tmp_path, streams, "optimize", model, "-o", "out.onnx", "--no-measure", "--json", "out.json")
    assert (done.returncode, "Traceback" in done.stderr) == (0, False), done.stderr
    # Nothing that was meant for the screen went into a file that had its number.
    onnx.checker.check_model(tmp_path / "out.onnx")
    assert (tmp_path / "out.json").read_text().startswith("{")


def test_errors_keep_their_code(tmp_path):
    done = closed(tmp_path, ">&-", "inspect", "nowhere.onnx")
    assert done.returncode == 2 and done.stderr.startswith("error: no such file: nowhere.onnx")
    assert closed(tmp_path, ">&- 2>&-", "inspect", "nowhere.onnx").returncode == 2


@pytest.mark.parametrize(
    "command",
    ["inspect net.onnx --json -", "optimize net.onnx --no-measure --json -", "rules list", "--help", "cost export -"],
)
def test_what_is_to_be_printed_is_not_lost_unseen(tmp_path, model, command):
    done = closed(tmp_path, ">&-", *command.split())
    errors = [line for line in done.stderr.splitlines() if line.startswith("error: ")]
    assert done.returncode == 1 and errors == ["error: stdout: can't be written: it is closed"]
    assert (tmp_path / "net.opt.onnx").exists() == command.startswith("optimize")
