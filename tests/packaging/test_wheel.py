"""The wheel: what is in it, and that it works where the source tree is not."""

from __future__ import annotations

import json
import sys
import zipfile
from functools import partial
from pathlib import Path

import pytest

from tests.packaging.installed import BARE, BIN, ROOT, call

RULES = sorted(path.relative_to(ROOT / "rules").as_posix() for path in (ROOT / "rules").rglob("*") if path.is_file())
AGENTS = {
    path.relative_to(ROOT / "models").as_posix() for path in (ROOT / "models/agents").rglob("*") if path.is_file()
}

pytestmark = [pytest.mark.slow, pytest.mark.network]


def test_contents(wheel):
    names = set(zipfile.ZipFile(wheel).namelist())
    assert {name.removeprefix("graphopt/_data/rules/") for name in names if "_data/rules/" in name} == set(RULES)
    assert AGENTS and {name.removeprefix("graphopt/_data/") for name in names if "_data/agents/" in name} == AGENTS
    sources = {path.relative_to(ROOT).as_posix() for path in (ROOT / "graphopt").rglob("*.py")}
    page = {path.relative_to(ROOT).as_posix() for path in (ROOT / "graphopt/report/page").rglob("*") if path.is_file()}
    assert page and sources | page | {"graphopt/py.typed"} <= names
    info = {name for name in names if name.partition("/")[0].endswith(".dist-info")}
    assert {name.partition("/")[0] for name in names - info} == {"graphopt"}


def test_without_a_runtime(installed):
    """What needs none works, and the rest says what to install."""
    said = json.loads(installed.bare.read_text(encoding="utf-8"))
    (listed, *_), (code, _, error) = (said[line] for line in BARE)
    assert listed == 0
    assert code == 2 and "error: onnxruntime is not installed\nhint: pip install onnxruntime" in error


def test_installed_elsewhere(installed, tmp_path):
    """The path of a user: install it into a clean environment and make a model faster."""
    run = partial(call, GRAPHOPT_CACHE_DIR=str(tmp_path / "cache"))
    scripts = installed.folder / BIN
    python = scripts / "python"
    where = Path(run(python, "-c", "import graphopt; print(graphopt.__file__)", cwd=tmp_path).strip())
    assert where.is_relative_to(installed.folder)
    packages = {
        entry["name"].lower() for entry in json.loads(run(python, "-m", "pip", "list", "--format=json", cwd=tmp_path))
    }
    assert not packages & {"torch", "ray", "transformers", "pytest"}

    graphopt = scripts / "graphopt"
    assert run(graphopt, "--version", cwd=tmp_path).split()[0] == "graphopt"
    rules = json.loads(run(graphopt, "rules", "list", "--json", "-", cwd=tmp_path))["rules"]
    assert rules

    models = sorted(path for path in (ROOT / "models").glob("*.onnx") if not path.name.endswith(".opt.onnx"))
    assert models, "no committed model"
    output = tmp_path / "out.onnx"
    report = json.loads(
        run(
            *(graphopt, "optimize", models[0], "-o", output, "--budget", "5", "--json", "-"),
            *("--report", "page.html"),
            cwd=tmp_path,
        )
    )
    assert output.stat().st_size > 0
    assert "dagre" in (tmp_path / "page.html").read_text(encoding="utf-8")
    assert report["verified"]["passed"]
    run(graphopt, "verify", models[0], output, cwd=tmp_path)


@pytest.mark.release
def test_pipx(wheel, tmp_path):
    """As an application of its own, by the real pipx."""
    call(sys.executable, "-m", "venv", "--without-pip", "env", cwd=tmp_path)
    scripts = tmp_path / "env" / BIN
    call(sys.executable, "-m", "pip", "--python", scripts / "python", "install", "--quiet", "pipx", cwd=tmp_path)
    places = {
        "PIPX_HOME": str(tmp_path / "home"),
        "PIPX_BIN_DIR": str(tmp_path / "bin"),
        "PIPX_MAN_DIR": str(tmp_path / "man"),
    }
    call(scripts / "pipx", "install", f"graphopt[cpu] @ {wheel.as_uri()}", cwd=tmp_path, **places)
    assert call(tmp_path / "bin/graphopt", "--version", cwd=tmp_path).startswith("graphopt ")
    assert "cpu" in call(tmp_path / "bin/graphopt", "providers", cwd=tmp_path)
