"""Text, numbers and files on the way out."""

from __future__ import annotations

import io
import json
import os
import stat
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

from graphopt import files, wording
from graphopt.cli import screen
from graphopt.errors import GraphoptError


@pytest.mark.parametrize(
    ("value", "text"),
    [(None, "-"), (0.1234, "0.123 ms"), (4.5678, "4.57 ms"), (181.4, "181 ms")],
)
def test_milliseconds(value, text):
    assert wording.milliseconds(value) == text


@pytest.mark.parametrize(("value", "text"), [(None, "-"), (3.21, "3.2 s"), (119.9, "119.9 s"), (300, "5.0 min")])
def test_seconds(value, text):
    assert wording.seconds(value) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "-"),
        (0, "0 B"),
        (999, "999 B"),
        (1500, "1.5 kB"),
        (2e6, "2.0 MB"),
        (3.25e9, "3.2 GB"),
        (5e12, "5000.0 GB"),
    ],
)
def test_size(value, text):
    assert wording.size(value) == text


@pytest.mark.parametrize(
    ("before", "after", "text"),
    [(10, 8, "-20.0 %"), (10, 10, "same"), (8, 10, "+25.0 %"), (0, 3, ""), (None, 3, ""), (1e6, 999_999, "0.0 %")],
)
def test_change(before, after, text):
    assert wording.change(before, after) == text


def test_one_line():
    assert wording.one_line(" two\n\tlines ") == "two lines"
    assert "\x1b" not in wording.one_line("\x1b[2J")
    assert wording.one_line("größe 大") == "größe 大"
    assert wording.one_line("abcdefghij", 8) == "abcde..."


def test_markup_in_names_is_printed_as_it_is(capsys):
    out = screen.console(stderr=False)
    names = screen.table("node")
    names.add_row("[red]layer[0]/conv:smile:")
    out.print(names)
    assert "[red]layer[0]/conv:smile:" in capsys.readouterr().out


def test_json_of_what_json_cannot_hold(capsys):
    document = {
        "nan": float("nan"),
        "list": (np.float32(1.5), np.int64(2), np.float64("inf")),
        "flag": np.bool_(True),
        "none": None,
        1: {"deep": "ü"},
    }
    screen.write_json(document, "-")
    text = capsys.readouterr().out
    assert text.isascii()
    assert json.loads(text) == {
        "nan": None,
        "list": [1.5, 2, None],
        "flag": True,
        "none": None,
        "1": {"deep": "ü"},
    }


def test_files_are_written_whole_or_not_at_all(tmp_path, monkeypatch):
    path = tmp_path / "report.json"
    files.write_text(path, "first")
    assert path.read_text() == "first"
    if os.name != "nt":
        plain = tmp_path / "plain"
        plain.touch()
        assert stat.S_IMODE(path.stat().st_mode) == stat.S_IMODE(plain.stat().st_mode)
        plain.unlink()

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "replace", full)
    with pytest.raises(GraphoptError, match="no space"):
        files.write_text(path, "second")
    assert [entry.name for entry in tmp_path.iterdir()] == ["report.json"]
    assert path.read_text() == "first"


def test_a_name_is_broken_behind_its_hyphens():
    rows = screen.table("rule", "times", numbers=1)
    rows.add_row(screen.breakable("merge-conv-groups-to-block\x1b[2J"), "100000000000")
    shown = Console(width=36, file=io.StringIO())
    shown.print(rows)
    lines = [line.split() for line in shown.file.getvalue().splitlines()]
    assert lines[2:4] == [["merge-conv-groups-to-", "100000000000"], ["block\ufffd[2J"]]


@pytest.mark.parametrize(("value", "text"), [(1.234, "+1.23"), (-0.5, "-0.50"), (-0.001, "0.00"), (0.0, "0.00")])
def test_zero_has_no_sign(value, text):
    assert wording.signed(value, 2) == text
