"""The documentation site: built strictly, so that a link that leads nowhere is an error."""

from __future__ import annotations

import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.once import once

ROOT = Path(__file__).resolve().parents[2]
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        not all(find_spec(name) for name in ("mkdocs", "material", "mkdocstrings")),
        reason="the site's tools are not installed: pip install '.[docs]'",
    ),
]


def build(tree: Path, site: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(site)]
    return subprocess.run(command, cwd=tree, capture_output=True, text=True, timeout=600, check=False)


def copied(tree: Path, gallery: Path) -> Path:
    """A tree of what the site is built from, with the pages of the gallery."""
    shutil.copytree(gallery, tree / "build/gallery")
    for name in ("docs", "graphopt"):
        shutil.copytree(ROOT / name, tree / name, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "mkdocs.yml", tree)
    return tree


@pytest.fixture(scope="module")
def gallery(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The pages of the gallery, made by its own command in a second each: not those of a site that is shown."""

    def make(folder: Path) -> None:
        command = [sys.executable, "docs/gallery.py", str(folder), "1"]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=1200, check=False)
        assert done.returncode == 0, done.stderr

    return once(tmp_path_factory, "gallery", make)


@pytest.fixture(scope="module")
def site(gallery: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site as it is."""

    def make(folder: Path) -> None:
        done = build(copied(folder / "tree", gallery), folder / "site")
        assert done.returncode == 0, done.stderr

    return once(tmp_path_factory, "built", make) / "site"


def test_the_gallery(site, gallery):
    shown = {page.name: page.read_text(encoding="utf-8") for page in (site / "gallery").glob("*.html")}
    index = shown.pop("index.html")
    assert len(shown) == 3 and shown.keys() == {page.name for page in gallery.glob("*.html")}
    for name, page in shown.items():
        assert f'href="{name}"' in index and name.removesuffix(".html") in page and "ORT_ENABLE_ALL" in page


def test_the_site(site):
    page = (site / "reference/python/index.html").read_text(encoding="utf-8")
    assert "Rewrite a model so that ONNX Runtime runs it faster" in page and "interrupted" in page
    # A page needs no network: whatever it loads lies beside it.
    for file in site.rglob("*.html"):
        text = file.read_text(encoding="utf-8")
        assert not any(f'{what}="http' in text for what in ("script src", "img src", 'link rel="stylesheet" href')), (
            file
        )


# What mkdocstrings does not find ends the build at once; links are all told at its end.
@pytest.mark.parametrize(
    ("lines", "named"),
    [
        ("[lost](nowhere.md) [lost](settings.md#nowhere)", ("nowhere.md", "settings.md#nowhere")),
        ("::: graphopt.api.nothing", ("graphopt.api.nothing",)),
    ],
    ids=["links", "reference"],
)
def test_what_leads_nowhere_is_an_error(tmp_path, gallery, lines, named):
    copied(tmp_path, gallery)
    page = tmp_path / "docs/index.md"
    page.write_text(f"{page.read_text(encoding='utf-8')}\n\n{lines}\n", encoding="utf-8")
    done = build(tmp_path, tmp_path / "site")
    assert done.returncode != 0
    for each in named:
        assert any(each in line and line.startswith(("WARNING", "ERROR")) for line in done.stderr.splitlines()), (
            done.stderr
        )
