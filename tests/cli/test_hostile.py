"""No content of a file hangs graphopt, fells it, or reaches the terminal raw: each input of ``tests/hostile``, in this process."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.faults import FAULTS, repetition
from tests.hostile.cases import CASES
from tests.hostile.run import Outcome
from tests.hostile.texts import Case
from tests.pace import slowness
from tests.share import part

_LONG = ("model: 20,000 nodes in a row",)


@pytest.mark.parametrize(
    "case",
    [
        pytest.param(c, id=c.name, marks=[pytest.mark.slow, pytest.mark.thorough] if c.name in _LONG else [])
        for c in CASES
    ],
)
def test_hostile_input(
    case: Case,
    cli: Callable[..., object],
    fresh_cache: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    from graphopt.cli.main import run

    monkeypatch.setenv("GRAPHOPT_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("GRAPHOPT_BUDGET", "2")
    arguments = case.build(tmp_path)
    (tmp_path / "cache").mkdir(exist_ok=True)
    (fresh_cache / "rules").rename(tmp_path / "cache" / "rules")
    began = time.process_time()
    code = run(arguments)
    captured = capfd.readouterr()
    said = (captured.out + captured.err).replace(os.fspath(tmp_path), "...")
    assert not Outcome(case, code, (time.process_time() - began) / slowness(), 0, said).wrong, said[-2000:]
    if case.name.startswith(("trace:", "manifest:", "task:", "kernel times:", "inputs:")):
        assert code in (1, 2), said
        assert any(line.startswith("error: ") for line in captured.err.splitlines()), said


def test_there_are_as_many_as_there_were() -> None:
    assert len({case.name for case in CASES}) == len(CASES) >= 150 and len(FAULTS) >= 15


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="looks for processes in /proc")
@pytest.mark.parametrize("kind", part(["disk-full-for-the-model", "kill-9-while-writing"], 2, str))
def test_a_fault_loses_nothing(kind: str) -> None:
    found = repetition(kind, 0)
    assert found.expected and not found.lost and not found.left, found


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ("=1+1", "'=1+1"),
        ("+x", "'+x"),
        ("@a", "'@a"),
        ("-net", "'-net"),
        ("-1.5", "-1.5"),
        (-1.5, -1.5),
        ("net", "net"),
    ],
)
def test_cells_are_no_formulas(value: object, shown: object) -> None:
    from graphopt.wording import cell

    assert cell(value) == shown
