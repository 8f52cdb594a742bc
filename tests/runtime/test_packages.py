"""The runtime's packages: none, two that overwrite each other, the ruin that uninstalling one of two leaves.

Each is a folder of links to what is installed here, so that the process under test sees the real packages, or their lack.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import onnxruntime
import pytest

from graphopt.runtime import packages

ROOT = Path(__file__).resolve().parents[2]
MODEL = ROOT / "models" / "demo_regnet.onnx"
RUNTIME = Path(onnxruntime.__file__).parent

pytestmark = pytest.mark.skipif(os.name == "nt", reason="makes symbolic links")


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """A folder of packages: all that is installed here but the runtime's."""
    folder = tmp_path / "site"
    folder.mkdir()
    for place in map(Path, sys.path):
        for entry in place.iterdir() if place.name in ("site-packages", "dist-packages") else ():
            if not entry.name.lower().startswith(("onnxruntime", "ort_")) and not (folder / entry.name).exists():
                (folder / entry.name).symlink_to(entry)
    return folder


def add_package(site: Path, name: str, version: str = "1.31.1") -> None:
    """What pip notes down when it installs a package of the runtime."""
    info = site / f"{name.replace('-', '_')}-{version}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    (info / "RECORD").write_text(f"onnxruntime/__init__.py,,\nonnxruntime/capi/__init__.py,,\n{info.name}/RECORD,,\n")


def graphopt(site: Path, *arguments: object) -> tuple[int, str, list[str]]:
    """Exit code, stdout and the lines of stderr of the command, run with the packages of `site` only."""
    done = subprocess.run(
        [sys.executable, "-S", "-m", "graphopt", *map(str, arguments)],
        cwd=site.parent,
        env={**os.environ, "PYTHONPATH": f"{site}{os.pathsep}{ROOT}"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    return done.returncode, done.stdout, done.stderr.splitlines()


def test_what_is_installed_here():
    found = packages.installed()
    assert found and packages.conflict(found) is None
    owner = packages.owner(found)
    assert owner is not None and owner.name.startswith("onnxruntime") and owner.version == onnxruntime.__version__
    assert Path(owner.folder) == RUNTIME.parent.resolve()


def test_the_arrangement_itself_works(site):
    (site / "onnxruntime").symlink_to(RUNTIME)
    add_package(site, "onnxruntime")
    add_package(site, "onnxruntime-extensions", "0.14.0")
    (site / "onnxruntime_extensions-0.14.0.dist-info" / "RECORD").write_text("onnxruntime_extensions/__init__.py,,\n")
    code, out, err = graphopt(site, "inspect", MODEL)
    assert code == 0 and "Conv" in out, err


def test_none(site):
    code, _, err = graphopt(site, "optimize", MODEL, "-o", "out.onnx")
    assert (code, err[0]) == (2, "error: onnxruntime is not installed")
    assert len(err) == 2 and err[1].startswith("hint: pip install onnxruntime, or")
    assert graphopt(site, "rules", "list")[0] == 0  # needs no runtime

    code, out, err = graphopt(site, "providers")
    assert code == 2 and out.count("not installed") == 7 and "pip install onnxruntime-openvino" in out
    assert err[0] == "error: onnxruntime is not installed"


def test_two_in_one_place(site):
    (site / "onnxruntime").symlink_to(RUNTIME)
    for name in ("onnxruntime", "onnxruntime-gpu"):
        add_package(site, name)
    for command in (["optimize", MODEL, "-o", "out.onnx"], ["providers"]):
        code, out, err = graphopt(site, *command)
        assert code == 2 and not out
        assert err == [
            "error: onnxruntime and onnxruntime-gpu are installed together, but they overwrite each other's files",
            "hint: pip uninstall -y onnxruntime onnxruntime-gpu, then install the one you want, "
            "such as pip install onnxruntime-gpu",
        ]


def test_two_in_places_of_their_own(site, tmp_path):
    """A virtual environment that sees the system's packages: the first on the path is used, whole."""
    other = tmp_path / "system"
    other.mkdir()
    for place, name in ((site, "onnxruntime"), (other, "onnxruntime-gpu")):
        (place / "onnxruntime").symlink_to(RUNTIME)
        add_package(place, name)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, (site, other, ROOT)))}
    code = "from graphopt.runtime import ort, packages; print(packages.owner(packages.installed()).name)"
    done = subprocess.run(
        [sys.executable, "-S", "-c", code], env=environment, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "onnxruntime"


def test_what_is_left_when_one_of_two_is_uninstalled(site):
    (site / "onnxruntime" / "capi").mkdir(parents=True)
    add_package(site, "onnxruntime-openvino")
    code, _, err = graphopt(site, "inspect", MODEL)
    assert code == 2
    assert err == [
        "error: onnxruntime is broken: files are missing",
        "hint: pip install --force-reinstall onnxruntime-openvino",
    ]


def test_a_package_that_does_not_load(site):
    (site / "onnxruntime" / "capi").mkdir(parents=True)
    for folder in (RUNTIME, RUNTIME / "capi"):
        for entry in folder.iterdir():
            if entry.name != "capi" and "pybind11_state" not in entry.name:
                (site / "onnxruntime" / entry.relative_to(RUNTIME)).symlink_to(entry)
    add_package(site, "onnxruntime")
    code, _, err = graphopt(site, "inspect", MODEL)
    assert code == 2 and len(err) == 2
    assert err[0].startswith("error: onnxruntime 1.31.1 can't be imported: ") and "pybind11_state" in err[0]
    assert err[1].startswith("hint: pip install --force-reinstall onnxruntime, and")
