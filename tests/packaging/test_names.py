"""One name, one thing: no two public classes share a name, nor do two modules of different packages."""

from __future__ import annotations

import ast
from collections import Counter
from pathlib import Path

PACKAGE = Path(__file__).resolve().parents[2] / "graphopt"

# What is still called alike, and how many there are: these numbers only ever fall, and an entry goes when it is 1.
CLASSES = {
    "Call": 2,
    "Culprit": 2,
    "Draft": 2,
    "Found": 2,
    "Node": 2,
    "Operand": 2,
    "Operator": 2,
    "Plan": 3,
    "Step": 3,
    "Table": 2,
    "Tensor": 2,
    "TensorSpec": 2,
    "Trial": 3,
    "Value": 2,
    "Variant": 2,
    "World": 2,
}
MODULES = {
    "emit": 2,
    "examples": 2,
    "kernels": 2,
    "layout": 2,
    "schema": 2,
    "sizes": 3,
    "strategies": 2,
    "tensors": 2,
    "text": 2,
    "windows": 2,
}


def shared(names: list[str]) -> dict[str, int]:
    return {name: count for name, count in sorted(Counter(names).items()) if count > 1}


def test_no_two_public_classes_share_a_name():
    names = []
    for path in PACKAGE.rglob("*.py"):
        body = ast.parse(path.read_text(encoding="utf-8")).body
        names += [node.name for node in body if isinstance(node, ast.ClassDef) and not node.name.startswith("_")]
    assert shared(names) == CLASSES


def test_no_two_modules_of_sibling_packages_share_a_name():
    inside = [path.relative_to(PACKAGE) for path in PACKAGE.rglob("*.py") if path.parent != PACKAGE]
    # The modules of the command line are called like their commands.
    names = [path.stem for path in inside if path.stem != "__init__" and path.parts[0] != "cli"]
    assert shared(names) == MODULES
