"""No room for an output: what was found is told first, the others are written, and each failure is a line of its own."""

from __future__ import annotations

import json
import os
import shutil
import signal
import stat
import subprocess
import sys

import onnx
import pytest

from tests.cli.conftest import ROOT
from tests.faults import POWERLESS

pytestmark = pytest.mark.skipif(os.name == "nt", reason="limits of Unix")

LIMITED = """
import resource, sys
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[1]),) * 2)
del sys.argv[1]
from graphopt.__main__ import main
main()
"""


def limited(folder, size, *arguments):
    """The command where no file can be larger than ``size`` bytes."""
    return subprocess.run(
        [sys.executable, "-c", LIMITED, str(size), *map(str, arguments)], capture_output=True, text=True, cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT), "COLUMNS": "200"}, timeout=120, check=False,
    )  # fmt: skip


def test_a_page_that_does_not_fit(tmp_path, model):
    done = limited(
        tmp_path,
        40_000,
        "optimize",
        model,
        "--json",
        "out.json",
        "--report",
        "out.html",
        "--trace",
        "out.trace",
        "--budget",
        "2",
    )
    lines = done.stderr.splitlines()
    assert done.returncode == 1
    assert lines[-2:-1] == ["error: out.html: can't be written: file too large"], done.stderr
    assert lines[-1].startswith("hint: free some")
    assert any(line.startswith("verified") or line.startswith("speed") for line in lines)
    assert json.loads((tmp_path / "out.json").read_text())["schema"] == "graphopt.report/1"
    assert json.loads((tmp_path / "out.trace").read_text())["schema"]
    assert (tmp_path / "net.opt.onnx").stat().st_size and not (tmp_path / "out.html").exists()


def test_each_failure_is_a_line(cli, tmp_path, model):
    for name in ("out.json", "out.html"):
        os.mkfifo(tmp_path / name)
    outcome = cli("optimize", model, "--json", "out.json", "--report", "out.html", "--no-measure")
    shown = outcome.err.splitlines()
    assert shown[-2:] == [f"error: {name}: can't be written: nobody reads from it" for name in ("out.json", "out.html")]
    assert any(line.startswith("written") for line in shown) and outcome.code == 1
    assert sorted(path.name for path in tmp_path.iterdir()) == ["net.onnx", "net.opt.onnx", "out.html", "out.json"]


def test_no_room_for_temporary_files(tmp_path, model):
    done = limited(tmp_path, 1000, "optimize", model, "--no-measure")
    lines = done.stderr.splitlines()
    assert done.returncode == 1 and lines[-2].startswith("error: ") and "TMPDIR" in lines[-1], done.stderr
    assert "internal" not in done.stderr


def test_a_bench_is_shown_though_its_results_find_no_room(cli, tmp_path, model):
    for name in ("out.json", "out.html"):
        os.mkfifo(tmp_path / name)
    outcome = cli(
        "bench", model, model, "--level", "all", "--against", "original", "--strategy", "none", "--rounds", "20",
        "--json", "out.json", "--html", "out.html",
    )  # fmt: skip
    assert outcome.out.count("baseline") == 2
    errors = [line.split(": can't")[0] for line in outcome.err.splitlines() if line.startswith("error: ")]
    assert errors == ["error: out.json", "error: out.html"] and outcome.code == 1


CANT = "error: out.json: can't be written: nobody reads from it"


@pytest.mark.parametrize(
    ("command", "shown"),
    [
        ("inspect net.onnx", "kernel, as the runtime"),
        ("verify net.onnx net.onnx", "the outputs agree"),
        ("explain net.onnx", "none of the 5 nodes"),
        ("explain net.onnx --trace t.json --seconds 0", "predicted"),
        ("bisect t.json net.onnx", "no step does harm"),
        ("rules list", "pad-into-conv"),
        ("rules stats net.onnx --budget 1 --no-measure", "gain us"),
        ("rules check flat.yaml", "unchanged since checked"),
        ("providers", "works"),
        ("cost show", "kernels"),
        ("cost calibrate net.onnx --graphs 2 --seconds 0", "nothing was corrected"),
        ("zoo list", "resnet50"),
    ],
    ids=lambda value: value if value.count(" ") else None,
)
def test_what_was_found_is_shown_though_its_document_finds_no_room(cli, tmp_path, model, command, shown):
    if "t.json" in command:
        assert cli("optimize", model, "--no-measure", "--strategy", "none", "--trace", "t.json").code == 0
    if "flat.yaml" in command:
        for name in ("flat.yaml", "evidence.lock"):
            shutil.copy(ROOT / "rules" / name, tmp_path)
    os.mkfifo(tmp_path / "out.json")
    outcome = cli(*command.split(), "--json", "out.json")
    assert outcome.code == 1 and outcome.err.splitlines()[-1] == CANT
    assert shown in outcome.out + outcome.err


def test_outputs_that_differ_are_told_beside_a_document_that_finds_no_room(cli, tmp_path, model, other_model):
    os.mkfifo(tmp_path / "out.json")
    outcome = cli("verify", model, other_model, "--json", "out.json")
    assert outcome.code == 3
    assert outcome.err.startswith("error: output 'y'") and outcome.err.splitlines()[-1] == CANT


def test_rules_that_do_not_load_are_told_beside_a_document_that_finds_no_room(cli, tmp_path):
    os.mkfifo(tmp_path / "out.json")
    (tmp_path / "wrong.yaml").write_text("[")
    errors = cli("rules", "list", "--rules", "wrong.yaml", "--json", "out.json").err.splitlines()
    assert errors[0] == CANT and errors[1].startswith("error: wrong.yaml")


def test_a_calibration_is_shown_though_neither_its_document_nor_its_drawing_finds_room(cli, tmp_path, model):
    for name in ("out.json", "out.svg"):
        os.mkfifo(tmp_path / name)
    asked = "cost", "calibrate", model, "--graphs", "3", "--seconds", "0", "--json", "out.json", "--svg", "out.svg"
    outcome = cli(*asked)
    assert "rank correlation" in outcome.out and "nothing was corrected" in outcome.err
    assert outcome.err.splitlines()[-2:] == [CANT, CANT.replace("json", "svg")] and outcome.code == 1


@pytest.mark.parametrize("prelude", ["", POWERLESS], ids=["as-it-is", "without-the-powers-of-root"])
def test_devices_stay_devices(tmp_path, model, prelude):
    nodes = {}
    for name, minor in (("null", 3), ("full", 7)):  # of a private folder: what /dev/null and /dev/full are
        nodes[name] = tmp_path / name
        try:
            os.mknod(nodes[name], stat.S_IFCHR | 0o666, os.makedev(1, minor))
            nodes[name].chmod(0o666)
            nodes[name].open("wb").close()
        except PermissionError:
            pytest.skip("only root makes devices, and not in every container")
    code = prelude + "from graphopt.__main__ import main; main()"
    arguments = [
        "optimize",
        model,
        "-o",
        nodes["null"],
        "--json",
        nodes["full"],
        "--trace",
        nodes["null"],
        "--no-measure",
    ]
    done = subprocess.run(
        [sys.executable, "-c", code, *map(str, arguments)], capture_output=True, text=True, cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)}, timeout=120, check=False,
    )  # fmt: skip
    errors = [line for line in done.stderr.splitlines() if line.startswith("error: ")]
    assert errors == [f"error: {nodes['full']}: can't be written: no space left on device"], done.stderr
    assert done.returncode == 1 and all(stat.S_ISCHR(node.stat().st_mode) for node in nodes.values())
    assert sorted(path.name for path in tmp_path.iterdir()) == ["full", "net.onnx", "null"]


def redirected(folder, stream, *arguments):
    """The command with a stream of a disk that is full."""
    return subprocess.run(
        ["sh", "-c", f'"$@" {stream}/dev/full', "sh", sys.executable, "-m", "graphopt", *map(str, arguments)],
        capture_output=True, text=True, cwd=folder, timeout=120, check=False,
        env={**os.environ, "PYTHONPATH": str(ROOT), "GRAPHOPT_OF_NO_USE": "1"},  # so that something is warned of
    )  # fmt: skip


@pytest.mark.parametrize("command", ["--help", "rules list", "inspect net.onnx --threads 1 --json -"])
def test_no_room_for_what_is_printed(tmp_path, model, command):
    done = redirected(tmp_path, ">", *command.split())
    assert (done.returncode, done.stderr.splitlines()[1:]) == (
        1,
        ["error: stdout: can't be written: no space left on device"],
    )


def test_a_model_is_not_lost_because_a_warning_finds_no_room(tmp_path, model):
    assert redirected(tmp_path, "2>", "optimize", model, "--no-measure").returncode == 1
    assert (tmp_path / "net.opt.onnx").stat().st_size


@pytest.mark.parametrize(
    "streams", ["2>/dev/full", ">/dev/full 2>/dev/full", "2>&1 | head -1", "2>&1 >/dev/full | true"]
)
def test_a_model_is_not_lost_because_a_line_of_the_log_finds_no_room(tmp_path, model, streams):
    command = f'"$@" {streams}'
    done = subprocess.run(
        ["bash", "-c", f"set -o pipefail; {command}", "sh", sys.executable, "-m", "graphopt", "optimize", model,
         "-v", "--no-measure", "--json", "out.json", "--trace", "out.trace"],
        capture_output=True, text=True, cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(ROOT)}, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 1 and not done.stderr
    onnx.checker.check_model(tmp_path / "net.opt.onnx")
    assert json.loads((tmp_path / "out.json").read_text())["output"] and (tmp_path / "out.trace").stat().st_size


@pytest.mark.parametrize("streams", [">/dev/full", "| true"])
def test_a_bench_is_written_though_nobody_reads_its_table(tmp_path, model, streams):
    done = subprocess.run(
        ["bash", "-c", f'set -o pipefail; "$@" {streams}', "sh", sys.executable, "-m", "graphopt", "bench", model, model,
         "--level", "all", "--against", "original", "--strategy", "none", "--rounds", "20", "--json", "out.json"],
        capture_output=True, text=True, cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(ROOT)}, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 1 and "internal" not in done.stderr
    assert len(json.loads((tmp_path / "out.json").read_text())["cases"]) == 2


def test_ctrl_c_that_ends_the_reader_too_keeps_the_best_so_far(tmp_path, model):
    """As in ``graphopt optimize net.onnx 2>&1 | tee log``: the terminal sends the signal to both."""
    with subprocess.Popen(
        [sys.executable, "-m", "graphopt", "optimize", model, "-v", "--budget", "60", "--json", "out.json"],
        stderr=subprocess.PIPE, text=True, cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(ROOT)},
    ) as running:  # fmt: skip
        assert running.stderr is not None
        assert any("measuring what was found" in line for line in running.stderr)
        running.stderr.close()
        running.send_signal(signal.SIGINT)
        assert running.wait(60) == 1
    onnx.checker.check_model(tmp_path / "net.opt.onnx")
    assert json.loads((tmp_path / "out.json").read_text())["seconds"] < 40
