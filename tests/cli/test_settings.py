"""A setting is declared once; options, variables, keys and the page come from there."""

from __future__ import annotations

import json
import re
from pathlib import Path

from graphopt.registry import mentioned
from graphopt.runtime.environment import default_threads
from graphopt.settings import DECLARED, page

ROOT = Path(__file__).resolve().parents[2]


def test_the_page_is_what_is_declared():
    assert (ROOT / "docs" / "settings.md").read_text(encoding="utf-8") == page(), "python -m graphopt.settings > it"


def test_every_setting_is_an_option_with_its_text(cli):
    shown = " ".join(cli("optimize", "--help").out.split()).replace("- ", "-")
    for name, told in DECLARED.items():
        assert f"--{told.flag or name.replace('_', '-')}" in shown
        assert told.doc.format(**mentioned()).replace("- ", "-") in shown, name


def test_all_cores_are_the_default_and_said(process, cli, model):
    options = ("--strategy", "greedy", "--budget", "2")
    done = process("optimize", model, "-o", "out.onnx", *options, "--json", "out.json")
    assert done.code == 0 and f"all cores: {default_threads()}" in done.err
    told = json.loads((model.parent / "out.json").read_text())
    here = default_threads()
    assert (told["threads"], told["all_cores"], told["environment"]["threads"]) == (here, True, here)
    one = cli("optimize", model, "-o", "one.onnx", *options, "--threads", "1", "--json", "one.json")
    told = json.loads((model.parent / "one.json").read_text())
    assert (told["threads"], told["all_cores"]) == (1, False)
    assert re.search(r"threads +1\n", re.sub(" +\n", "\n", one.err))
