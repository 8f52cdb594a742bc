"""The documentation site: built strictly, so that a link that leads nowhere is an error."""

from __future__ import annotations

import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

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


@pytest.fixture(scope="module")
def gallery() -> Path:
    """The pages of the gallery, made by its own command where they are not there yet."""
    folder = ROOT / "build/gallery"
    command = [sys.executable, "docs/gallery.py", str(folder)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=1200, check=False)
    assert done.returncode == 0, done.stderr
    return folder


def test_the_gallery(tmp_path, gallery):
    assert build(ROOT, tmp_path / "site").returncode == 0
    shown = {page.name: page.read_text(encoding="utf-8") for page in (tmp_path / "site/gallery").glob("*.html")}
    index = shown.pop("index.html")
    assert len(shown) == 3 and shown.keys() == {page.name for page in gallery.glob("*.html")}
    for name, page in shown.items():
        assert f'href="{name}"' in index and name.removesuffix(".html") in page and "ORT_ENABLE_ALL" in page


def test_the_site(tmp_path, gallery):
    done = build(ROOT, tmp_path / "site")
    assert done.returncode == 0, done.stderr
    page = (tmp_path / "site/reference/python/index.html").read_text(encoding="utf-8")
    assert "Rewrite a model so that ONNX Runtime runs it faster" in page and "interrupted" in page
    # A page needs no network: whatever it loads lies beside it.
    for file in (tmp_path / "site").rglob("*.html"):
        text = file.read_text(encoding="utf-8")
        assert not any(f'{what}="http' in text for what in ("script src", "img src", 'link rel="stylesheet" href')), (
            file
        )


@pytest.mark.parametrize("link", ["[lost](nowhere.md)", "[lost](settings.md#nowhere)", "::: graphopt.api.nothing"])
def test_what_leads_nowhere_is_an_error(tmp_path, gallery, link):
    shutil.copytree(gallery, tmp_path / "build/gallery")
    for name in ("docs", "graphopt"):
        shutil.copytree(ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "mkdocs.yml", tmp_path)
    page = tmp_path / "docs/index.md"
    page.write_text(f"{page.read_text(encoding='utf-8')}\n\n{link}\n", encoding="utf-8")
    assert build(tmp_path, tmp_path / "site").returncode != 0
