"""``graphopt replay`` and ``graphopt bisect`` as commands."""

from __future__ import annotations

import json

import pytest

from tests.test_api import grouped


@pytest.fixture
def optimised(cli, tmp_path):
    source = grouped(tmp_path / "m.onnx")
    done = cli(
        "optimize",
        source,
        "-o",
        tmp_path / "a.onnx",
        "--trace",
        tmp_path / "t.json",
        "--no-measure",
        "--rules",
        "grouped-conv",
    )
    assert done.code == 0, done.err
    return source, tmp_path


def test_replay(cli, optimised):
    source, folder = optimised
    done = cli("replay", folder / "t.json", source, "-o", folder / "b.onnx")
    assert done.code == 0, done.err
    assert "3 of 3" in done.err
    assert (folder / "a.onnx").read_bytes() == (folder / "b.onnx").read_bytes()


def test_replay_of_some_steps(cli, optimised):
    source, folder = optimised
    done = cli("replay", folder / "t.json", source, "--steps", "1")
    assert done.code == 0 and "1 of 3" in done.err


def test_bisect(cli, optimised):
    source, folder = optimised
    done = cli("bisect", folder / "t.json", source, "--json", "-")
    assert done.code == 0, done.err
    assert json.loads(done.out)["step"] is None
    for _ in range(2):  # the second time the report is there already
        assert cli("bisect", folder / "t.json", source, "--json", folder / "r.json").code == 0


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["replay", "none.json", "m.onnx"], 2),
        (["replay", "m.onnx", "m.onnx"], 1),
        (["replay", "t.json", "m.onnx", "-o", "m.onnx"], 2),
        (["replay", "t.json", "m.onnx", "-o", "t.json"], 2),
        (["replay", "t.json", "m.onnx", "-o", "no/such/folder.onnx"], 2),
        (["bisect", "t.json", "m.onnx", "--json", "m.onnx"], 2),
        (["bisect", "t.json", "m.onnx", "--json", "t.json"], 2),
        (["replay", "t.json", "m.onnx", "--steps", "-1"], 2),
        (["replay", "t.json", "a.onnx"], 1),
        (["bisect", "m.onnx", "m.onnx"], 1),
    ],
)
def test_rubbish_is_one_line(cli, optimised, monkeypatch, arguments, code):
    _, folder = optimised
    monkeypatch.chdir(folder)
    before = (folder / "m.onnx").read_bytes()
    done = cli(*arguments)
    assert done.code == code, done.err
    assert done.err.startswith("error: ")
    assert "Traceback" not in done.err
    assert (folder / "m.onnx").read_bytes() == before
