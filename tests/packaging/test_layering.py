"""Who may import what: the floors of the package, the owners of third-party libraries, the declared dependencies.

The linter bans the same libraries with a reason each; it cannot tell our own packages apart, which this can.
"""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from pathlib import Path

import pytest

from tests.alone import alone

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "graphopt"

# A package imports only from lower floors, never from a sibling on its own.
FLOORS = [
    {"errors", "wording", "documents", "version"},
    {"kinds", "scratch", "registry"},
    {"settings"},
    {"config"},
    {"files"},
    {"ir"},
    {"onnxio", "rewrite"},
    {"runtime", "execution"},
    {"cost", "verification", "prover", "zoo"},
    {"search", "synth"},
    {"rl"},
    {"report"},
    {"pipeline"},
    {"api"},
    {"retrace", "experiments", "benchmark", "many"},
    {"cli", "integrations"},
    {"__main__", "__init__"},
]

# Rooms of a package, the lowest first: each imports lower ones only; "" are the package's own modules.
ROOMS = {"rl": ("", "training", "evaluation")}

# What serves experiments, and who alone may import it: nothing that `graphopt optimize` runs.
EXPERIMENTS = {
    "rl.training": ("rl/training/", "rl/evaluation/", "benchmark/agents.py", "cli/train.py"),
    "rl.evaluation": (
        "rl/evaluation/",
        "report/evaluation.py",
        "report/evaluation_page.py",
        "report/plots.py",
        "benchmark/agents.py",
        "cli/evaluate.py",
    ),
    "experiments": ("experiments/", "cli/cost.py", "cli/rules.py"),
    "synth": ("synth/", "cli/generate.py"),
    "prover": ("prover/", "synth/", "cli/check.py"),
    "zoo": ("zoo/", "rl/training/", "benchmark/run.py", "cli/zoo.py", "cli/paths.py"),  # the last for the names alone
}

# Only these import the library; a prefix stands for everything below it.
OWNERS = {
    # The API takes and returns models as protobufs; rules and windows are run as small models.
    "onnx": (
        "onnxio/",
        "ir/infer.py",
        "ir/schema.py",
        "ir/constants.py",
        "ir/tensors.py",
        "runtime/",
        "zoo/",
        "api.py",
        "pipeline/",
        "retrace.py",
        "cost/micro.py",
        "prover/sides.py",
        "prover/schemas.py",
    ),
    "onnx_ir": (),
    "google": ("onnxio/", "runtime/", "zoo/"),
    "onnxruntime": ("runtime/ort.py", "zoo/reduced.py"),  # the second its tools, once the first has looked after it
    "onnxscript": ("zoo/",),
    "torch": ("rl/training/", "zoo/"),
    "torch_geometric": ("rl/training/",),
    "torchvision": ("zoo/",),
    "transformers": ("zoo/",),
    "gymnasium": ("rl/training/", "rl/__init__.py"),
    "safetensors": ("rl/training/", "zoo/"),
    "tensorboard": ("rl/training/",),
    "ray": ("execution.py",),
    "scipy": ("search/extraction.py",),
    "z3": ("prover/",),
    "olive": ("integrations/olive.py",),
    "typer": ("cli/",),
    "rich": ("cli/",),
    "jinja2": ("report/",),
    "markupsafe": ("report/",),
}

# Import names that differ from the name of the distribution.
DISTRIBUTIONS = {
    "z3": "z3-solver",
    "olive": "olive-ai",
    "google": "protobuf",
    "yaml": "pyyaml",
    "torch_geometric": "torch-geometric",
}

MODULES = sorted(PACKAGE.rglob("*.py"))


def imports(path: Path) -> list[tuple[int, str, bool]]:
    """Line, imported module and whether it is imported when the module loads, for every import in a file."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    found = []

    def visit(node: ast.AST, eager: bool) -> None:
        for child in ast.iter_child_nodes(node):
            inner = eager and not isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
            if isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test):
                inner = False
            if isinstance(child, ast.Import):
                found.extend((child.lineno, alias.name, inner) for alias in child.names)
            elif isinstance(child, ast.ImportFrom):
                assert child.level == 0, f"{path}:{child.lineno}: relative import"
                # `from graphopt import api` imports a module, `from graphopt.api import optimize` a name from one.
                names = [f".{alias.name}" for alias in child.names] if child.module == "graphopt" else [""]
                found.extend((child.lineno, f"{child.module}{name}", inner) for name in names)
            visit(child, inner)

    visit(tree, True)
    return found


def floor(part: str) -> int:
    for number, parts in enumerate(FLOORS):
        if part in parts:
            return number
    raise AssertionError(f"graphopt.{part} has no floor: add it to FLOORS")


def room(package: str, names: list[str]) -> int:
    """Where a module stands in its package, given the names below the package's own."""
    rooms = ROOMS.get(package, ("",))
    return rooms.index(names[0]) if names and names[0] in rooms else 0


def part_of(path: Path) -> str:
    relative = path.relative_to(PACKAGE)
    return relative.parts[0] if len(relative.parts) > 1 else relative.stem


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_imports(path):
    relative = path.relative_to(PACKAGE).as_posix()
    own = part_of(path)
    wrong = []
    for line, name, eager in imports(path):
        top, _, rest = name.partition(".")
        if top == "graphopt":
            other = rest.partition(".")[0]
            if other and not other.startswith("_") and other != own and floor(other) >= floor(own):
                wrong.append(f"{relative}:{line}: {own} may not import {other}, which is not below it")
            if other == own and room(own, rest.split(".")[1:]) > room(own, relative.split("/")[1:-1]):
                wrong.append(f"{relative}:{line}: {rest} is above it in {own}")
            for kept, users in EXPERIMENTS.items():
                if f"{rest}.".startswith(f"{kept}.") and not relative.startswith(users):
                    wrong.append(f"{relative}:{line}: {kept} serves experiments: only {', '.join(users)} may import it")
        elif top in OWNERS and not relative.startswith(OWNERS[top]):
            wrong.append(f"{relative}:{line}: only {', '.join(OWNERS[top])} may import {top}")
        if top in OPTIONAL and eager and relative.startswith(("cli/", "zoo/__init__", "zoo/registry")):
            wrong.append(f"{relative}:{line}: {top} is optional: import it where it is used")
    assert not wrong, "\n".join(wrong)


def _requirements(lines: list[str]) -> set[str]:
    return {re.split(r"[^A-Za-z0-9_.-]", line)[0].lower().replace("_", "-") for line in lines}


PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
BASE = _requirements(PROJECT["dependencies"])
EXTRAS = {name: _requirements(lines) for name, lines in PROJECT["optional-dependencies"].items()}
OPTIONAL = {"torch", "torch_geometric", "torchvision", "transformers", "onnxscript", "gymnasium", "ray", "scipy", "z3"}


def test_values_are_computed_by_the_runtime_alone():
    # ONNX's reference evaluator differs from it in a dozen operators and operator sets.
    assert [path for path in MODULES if "onnx.reference" in path.read_text(encoding="utf-8")] == []


def test_every_library_is_declared():
    declared = BASE.union(*(EXTRAS[name] for name in EXTRAS if name != "dev"))
    missing = set()
    for path in MODULES:
        for _, name, _ in imports(path):
            top = name.partition(".")[0]
            distribution = DISTRIBUTIONS.get(top, top).lower().replace("_", "-")
            if top != "graphopt" and top not in sys.stdlib_module_names and distribution not in declared:
                missing.add(top)
    assert not missing


def test_base_dependencies_are_light():
    heavy = {"torch", "torchvision", "torch-geometric", "transformers", "ray", "gymnasium", "tensorboard", "pandas"}
    assert not BASE & heavy


RUNTIMES = {"cpu", "gpu", "openvino", "directml", "qnn"}


def test_a_package_of_the_runtime_is_chosen_and_never_forced():
    def runtimes(names: set[str]) -> set[str]:
        operators = {"onnxruntime-extensions"}  # a library of them, beside any runtime
        return {name for name in names if name.startswith("onnxruntime")} - operators

    assert not runtimes(BASE)
    assert {name for name, extra in EXTRAS.items() if runtimes(extra)} == RUNTIMES
    # One each; only a plug-in goes beside the runtime that it is plugged into.
    assert all(len(runtimes(EXTRAS[name])) == 1 for name in RUNTIMES - {"qnn"})
    assert runtimes(EXTRAS["qnn"]) == {"onnxruntime", "onnxruntime-qnn"}


def test_import_of_the_package_is_light():
    code = "import sys, graphopt; print(*sorted({name.partition('.')[0] for name in sys.modules}))"
    done = alone(code)
    assert done.returncode == 0, done.stderr
    assert not set(done.stdout.split()) & (OPTIONAL | {"onnx", "onnxruntime", "numpy", "typer", "rich"})


def test_a_search_loads_nothing_of_agents_and_experiments():
    apart = ("gymnasium", "graphopt.rl", *(f"graphopt.{name}" for name in EXPERIMENTS))
    code = (
        "import sys\n"
        "from graphopt.cli.main import run\n"
        "code = run(['optimize', 'models/demo_regnet.onnx', '--dry-run', '--no-measure', '-q', '--strategy', 'greedy'])\n"
        f"print(code, *[name for name in sys.modules if name.startswith({apart})])\n"
    )
    done = alone(code)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["0"]


def test_the_linter_bans_the_same_libraries():
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    tidy = tomllib.loads(text)["tool"]["ruff"]["lint"]["flake8-tidy-imports"]
    for name, ban in tidy["banned-api"].items():
        assert name in OWNERS or name == "click"
        assert len(ban["msg"].split()) >= 5, f"the ban of {name} gives no reason"


def test_one_version_everywhere():
    import graphopt

    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert PROJECT["version"] == graphopt.__version__
    assert f"## {graphopt.__version__}" in changelog
