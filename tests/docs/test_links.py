"""Links of the files at the root lead to files and headings that there are; those of the pages are the site's to check."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
LINK = re.compile(r"\]\((?!https?:)([^)#]*)(?:#([^)]*))?\)")


def anchors(text: str) -> set[str]:
    """What the headings of a page are called in links."""
    headings = re.findall(r"^#+ (.*)$", re.sub(r"^```.*?^```", "", text, flags=re.DOTALL | re.MULTILINE), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def lost(text: str, folder: Path) -> list[str]:
    """Links of a text in a folder that lead nowhere."""
    found = []
    for name, anchor in LINK.findall(text):
        path = folder / name if name else None
        there = path is None or path.exists()
        if there and anchor:
            there = anchor in anchors(path.read_text(encoding="utf-8") if path else text)
        if not there:
            found.append(f"{name}#{anchor}")
    return found


@pytest.mark.parametrize("name", ["README.md", "CONTRIBUTING.md", "CHANGELOG.md"])
def test_links_lead_somewhere(name):
    assert lost((ROOT / name).read_text(encoding="utf-8"), ROOT) == []


def test_what_leads_nowhere_is_found():
    text = "# Here\n\n[a](README.md) [b](#here) [c](nowhere.md) [d](#nowhere) [e](docs/results.md#nowhere) [f](https://example.org/x)"
    assert lost(text, ROOT) == ["nowhere.md#", "#nowhere", "docs/results.md#nowhere"]
