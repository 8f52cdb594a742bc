"""How graphopt is installed is said alike everywhere: from its folder, for no index has it, with extras that there are."""

from __future__ import annotations

import ast
import re
import tomllib
from pathlib import Path

import pytest

from graphopt import registry
from graphopt.errors import MissingExtraError, install

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "graphopt"
EXTRAS = set(tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"])
TEXTS = [ROOT / name for name in ("README.md", "CONTRIBUTING.md", "action.yml", "pyproject.toml")]
TEXTS += [*(ROOT / "docs").rglob("*.md"), *PACKAGE.rglob("*.py"), *PACKAGE.rglob("*.yaml"), *PACKAGE.rglob("*.html")]


def wrong(text: str) -> list[str]:
    """What of the commands of a text names graphopt on an index, an extra that there is not, or is no word to a shell."""
    found = []
    for command in re.findall(r"pip install ((?:\[[\w,{}]+\]|[^,;:()#`\n\[])*)", text):
        names = [word.strip("'\"") for word in command.split()]
        found += [name for name in names if re.match(r"graphopt($|[\[=<>~])", name)]
        found += [
            extra for extras in re.findall(r"\.\[([\w,]+)\]", command) for extra in set(extras.split(",")) - EXTRAS
        ]
        found += re.findall(r"(?<!['\w])\.\[[\w,]+\](?!')", command)  # shells read brackets as a pattern
    return found


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("pip install graphopt", ["graphopt"]),
        ("`pip install 'graphopt[train]'` brings torch", ["graphopt[train]"]),
        ("pip install -e '.[trian,dev]'", ["trian"]),
        ("pip install .[cpu]", [".[cpu]"]),
        ("pip install '.[cpu,train]' in graphopt's folder, pip install onnxsim", []),
    ],
)
def test_what_is_wrong_is_found(text, found):
    assert wrong(text) == found


def test_installing_names_the_local_form():
    assert {
        path.relative_to(ROOT).as_posix(): found for path in TEXTS if (found := wrong(path.read_text("utf-8")))
    } == {}
    assert sum("'.[" in path.read_text("utf-8") for path in TEXTS) >= 5


def test_every_hint_about_an_extra_is_the_one_form():
    """Only ``install`` spells it, and whoever calls it or raises the error names an extra that there is."""
    named = set()
    for path in PACKAGE.rglob("*.py"):
        text = path.read_text(encoding="utf-8")
        assert "pip install '.[" not in text or path.name == "errors.py", path
        for node in ast.walk(ast.parse(text)):
            called = node.func.id if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) else ""
            if called in ("MissingExtraError", "install") and path.name != "errors.py":
                named |= {part.value for part in ast.walk(node.args[0]) if isinstance(part, ast.Constant)}
    named |= set(registry.EXTRA_OF.values())
    assert {"egraph", "prove", "ray", "train", "zoo"} <= named <= EXTRAS
    for extra in named:
        assert (
            MissingExtraError(extra, "torch").hint == install(extra) == f"pip install '.[{extra}]' in graphopt's folder"
        )
