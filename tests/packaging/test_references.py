"""What docstrings and comments refer to by role, such as a function by its name, is there."""

from __future__ import annotations

import ast
import re
import sys
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

import graphopt

PACKAGE = Path(graphopt.__file__).parent
ROLE = re.compile(r":(?:func|class|mod|data|meth|attr):`~?([\w.]+)(?:\(\))?`")


@dataclass
class Module:
    """What a module defines: names, with the place that an imported one comes from, and classes with their members."""

    package: str
    text: str
    names: dict[str, str] = field(default_factory=dict)
    members: dict[str, set[str]] = field(default_factory=dict)


def read(path: Path) -> tuple[str, Module]:
    parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
    name = ".".join(parts).removesuffix(".__init__")
    text = path.read_text(encoding="utf-8")
    found, tree = Module(name if path.name == "__init__.py" else name.rpartition(".")[0], text), ast.parse(text)
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found.names |= {a.asname or a.name: a.name for a in node.names}
        elif isinstance(node, ast.ImportFrom):
            found.names |= {a.asname or a.name: f"{node.module}.{a.name}" for a in node.names}
    found.names |= {made: "" for node in tree.body for made in bound(node)}
    for node in tree.body:
        if isinstance(node, ast.ClassDef):
            told = set(re.findall(r"^ +(\w+): ", ast.get_docstring(node, clean=False) or "", re.MULTILINE))
            inside = {n.attr for n in ast.walk(node) if isinstance(n, ast.Attribute)}
            found.members[node.name] = told | inside | {made for each in node.body for made in bound(each)}
    return name, found


def bound(node: ast.stmt) -> set[str]:
    """Names that a statement binds."""
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        return {node.name}
    return {n.id for n in ast.walk(node) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}


@cache
def modules() -> dict[str, Module]:
    return dict(map(read, PACKAGE.rglob("*.py")))


def exists(full: str) -> bool:
    """Whether a full name is that of a module, of something in one, or of a member of a class; others' names are believed."""
    if full.partition(".")[0] != "graphopt" or full in modules():
        return True
    place, _, name = full.rpartition(".")
    if place in modules():
        return name in modules()[place].names
    place, _, kind = place.rpartition(".")
    if place not in modules():
        return False
    origin = modules()[place].names.get(kind)
    return exists(f"{origin}.{name}") if origin else name in modules()[place].members.get(kind, ())


def resolves(target: str, name: str, module: Module) -> bool:
    head, _, rest = target.partition(".")
    if head == "graphopt" or head in sys.stdlib_module_names:
        return exists(target)
    origin = module.names.get(head) or f"{name}.{head}"
    near = [f"{origin}.{rest}".rstrip("."), f"{module.package}.{target}"]
    return any(map(exists, near)) or any(target in members for members in module.members.values())


def test_references_lead_somewhere():
    wrong = [
        f"{name}: {target}"
        for name, module in modules().items()
        for target in ROLE.findall(module.text)
        if not resolves(target, name, module)
    ]
    assert not wrong


def test_what_is_not_there_is_noticed():
    name, module = "graphopt.api", modules()["graphopt.api"]
    assert resolves("optimize", name, module) and resolves("graphopt.config.Settings", name, module)
    assert resolves("Settings.budget", name, module) and resolves("Path.resolve", name, module)
    for gone in ("optimise", "graphopt.confg", "graphopt.config.Setting", "Verification.trails"):
        assert not resolves(gone, name, module)
