"""A setting is declared once; options, variables, keys and the page come from there."""

from __future__ import annotations

from pathlib import Path

from graphopt.registry import mentioned
from graphopt.settings import DECLARED, page

ROOT = Path(__file__).resolve().parents[2]


def test_the_page_is_what_is_declared():
    assert (ROOT / "docs" / "settings.md").read_text(encoding="utf-8") == page(), "python -m graphopt.settings > it"


def test_every_setting_is_an_option_with_its_text(cli):
    shown = " ".join(cli("optimize", "--help").out.split()).replace("- ", "-")
    for name, told in DECLARED.items():
        assert f"--{told.flag or name.replace('_', '-')}" in shown
        assert told.doc.format(**mentioned()).replace("- ", "-") in shown, name
