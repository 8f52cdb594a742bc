"""How large things are, and how far one has to read: modules, functions, circles, and the files that `optimize` enters."""

from __future__ import annotations

import ast
import json
import os
import re
import subprocess
import sys
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "graphopt"

MODULE_LINES, BODY_LINES = 450, 60
ENTERED = 111
"""Files whose functions a greedy `optimize` calls; where it only reads a class or a constant, it is not counted."""


@cache
def trees() -> dict[Path, ast.Module]:
    """The package's files, parsed."""
    return {path: ast.parse(path.read_text(encoding="utf-8")) for path in sorted(PACKAGE.rglob("*.py"))}


def test_no_module_is_too_long():
    lines = {p.relative_to(PACKAGE).as_posix(): len(p.read_text(encoding="utf-8").splitlines()) for p in trees()}
    assert {name: n for name, n in lines.items() if n > MODULE_LINES} == {}


def body_lines(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Lines of a function, without signature and docstring."""
    body = function.body[1:] if ast.get_docstring(function, clean=False) is not None else function.body
    assert function.end_lineno is not None
    return function.end_lineno - body[0].lineno + 1 if body else 0


def test_no_function_is_too_long():
    long = {}
    for path, tree in trees().items():
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and body_lines(node) > BODY_LINES:
                long[f"{path.relative_to(PACKAGE)}:{node.lineno} {node.name}"] = body_lines(node)
    assert long == {}


def test_only_tables_are_laid_out_by_hand():
    """`fmt: skip` keeps the formatter from tables of constants, whose columns say something; code it lays out everywhere."""
    found = {}
    for path, tree in trees().items():
        tables = [
            range(n.lineno, (n.end_lineno or 0) + 1) for n in tree.body if isinstance(n, ast.Assign | ast.AnnAssign)
        ]
        lines = enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        marked = [n for n, line in lines if "fmt: skip" in line and not any(n in table for table in tables)]
        if marked:
            found[path.relative_to(PACKAGE).as_posix()] = marked
    assert found == {}


def test_no_files_import_each_other():
    """Not in a circle of any length; neither inside of functions, nor for the sake of types."""
    names = {".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): path for path in trees()}
    below = {}
    for name, path in names.items():
        found = set()
        for node in ast.walk(trees()[path]):
            if isinstance(node, ast.Import):
                found.update(alias.name for alias in node.names)
            elif isinstance(node, ast.ImportFrom):
                # `from graphopt.ir import ops` imports a module, `from graphopt.ir.graph import Graph` a name of one.
                inner = {f"{node.module}.{alias.name}" for alias in node.names}
                found |= inner & names.keys() or {str(node.module)}
        below[name] = found & names.keys()
    while leaves := {name for name, found in below.items() if not found & below.keys()}:
        for name in leaves:
            del below[name]
    assert {name: sorted(found & below.keys()) for name, found in below.items()} == {}, "a circle, or what reads it"


WALK = """
import json, sys, threading
from pathlib import Path

entered, root = {}, sys.argv[1]

def hear(frame, event, argument):
    code = frame.f_code
    if event == "call" and code.co_flags & 1 and code.co_filename.startswith(root):  # 1: not the body of a class
        entered.setdefault(f"{code.co_filename.removeprefix(root)}:{code.co_name}")

threading.setprofile(hear)
sys.setprofile(hear)
from graphopt.cli.main import run
code = run(sys.argv[2:])
sys.setprofile(None)
print(json.dumps([code, list(entered)]))
"""


def test_the_walk_of_optimize_is_the_one_of_the_map(tmp_path):
    options = ["-o", str(tmp_path / "out.onnx"), "--strategy", "greedy", "--budget", "4", "-q"]
    command = [sys.executable, "-c", WALK, f"{PACKAGE}/", "optimize", "models/demo_regnet.onnx", *options]
    fresh = {**os.environ, "GRAPHOPT_CACHE_DIR": str(tmp_path)}  # nothing is measured yet: the whole walk
    done = subprocess.run(command, cwd=ROOT, env=fresh, capture_output=True, text=True, check=True)
    code, entered = json.loads(done.stdout)
    assert code == 0
    rows = re.findall(r"^\| [1-7] \w+ \| (.+?) \|", (ROOT / "docs/architecture.md").read_text(encoding="utf-8"), re.M)
    steps = re.findall(r"`([\w/]+)\.([a-z]\w*)`", " ".join(rows))
    places = [entered.index(f"{module}.py:{name}") for module, name in steps]
    assert len(steps) >= 7 and places == sorted(places), "the map names them in another order"
    assert len({each.partition(":")[0] for each in entered}) <= ENTERED
