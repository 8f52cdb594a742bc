"""The corpus command on a folder: what it says of models, and that it goes on where it was ended."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import parser

from tests.corpus.__main__ import built
from tests.corpus.recipes import PRODUCERS, recipes
from tests.corpus.table import markdown, table
from tests.corpus.trial import Outcome

LOOK_UP = "c = Constant<value_floats = [1.0, 2.0]>() k = Constant<value_int = 9>() s = Shape(x) j = Mul(s, k) y = Gather(c, j)"
MODELS = {
    "fine": ("float[n, 4] x", "r = Relu(x) s = Relu(r) y = Identity(s)"),
    "slow": ("float[n] x", LOOK_UP.replace("Gather(c, j)", "Identity(x)")),
    "unrunnable": ("float[n] x", LOOK_UP),
}  # fmt: skip


def write(folder: Path) -> None:
    folder.mkdir()
    for name, (inputs, body) in MODELS.items():
        text = f'<ir_version: 8, opset_import: ["": 17]> g ({inputs}) => (float y) {{ {body} }}'
        onnx.save(parser.parse_model(text), folder / f"{name}.onnx")
    np.savez(folder / "fine.npz", x=np.ones((3, 4), np.float32))
    np.savez(folder / "unrunnable.npz", x=np.ones(3, np.float32))


def corpus(*arguments: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tests.corpus", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, cwd=Path(__file__).parents[2], check=False)


def test_a_folder_goes_through_and_the_journal_is_gone_on_with(tmp_path):
    write(tmp_path / "models")
    first = corpus(tmp_path / "models", "--work", tmp_path / "work", "--only", "[fu]*")
    journal = tmp_path / "work" / "journal.jsonl"
    found = {each["name"]: each for each in map(json.loads, journal.read_text().splitlines())}
    assert first.returncode == 0 and {n: e["status"] for n, e in found.items()} == {
        "fine": "same",
        "unrunnable": "unrunnable",
    }
    assert (
        found["fine"]["rules"] > 0
        and found["fine"]["peak"] > 0
        and found["fine"]["nodes"][1] < found["fine"]["nodes"][0]
    )
    # The second run has one model left; it is not given the time to end.
    second = corpus(tmp_path / "models", "--work", tmp_path / "work", "--seconds", 0.001)
    assert second.returncode == 1 and "no end within" in second.stdout
    assert [json.loads(line)["name"] for line in journal.read_text().splitlines()] == ["fine", "unrunnable", "slow"]


def test_a_producer_that_ends_says_why(tmp_path):
    python = tmp_path / "python"
    python.write_text("#!/bin/sh\necho no room >&2\nexit 3\n")
    python.chmod(0o755)
    assert [*built("skl2onnx", ["one", "two"], tmp_path / "models", str(python))] == [
        (name, "its producer's process ended: no room") for name in ("one", "two")
    ]


def test_tables_count_what_happened():
    outcomes = [
        Outcome("a", "x", "same", growth=1.1),
        Outcome("a", "y", "refused", "no"),
        Outcome("b", "z", "changed", "y differs"),
    ]
    assert "| a | 2 | 1 | 1 | 0 |" in markdown(outcomes) and "| all | 3 | 1 | 1 | 1 |" in markdown(outcomes)
    assert "refused: a/y: no" in table(outcomes) and "changed: b/z: y differs" in table(outcomes)


@pytest.mark.parametrize("producer", [p for p in PRODUCERS if p != "suite"])
def test_every_producer_has_models_of_names_that_are_file_names(producer):
    names = list(recipes(producer))
    assert names and all("/" not in name for name in names)
