"""Every command of the README and of the pages of commands, in a clean environment with nothing but the wheel."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from tests.packaging.installed import ROOT, call, environment, source_tree

pytestmark = [pytest.mark.slow, pytest.mark.network, pytest.mark.release]
PAGES = {
    name: (ROOT / name).read_text(encoding="utf-8")
    for name in ("README.md", "docs/reference/commands.md", "docs/how-to/providers.md", "docs/how-to/bench.md")
}
PYTHON = ("README.md", "docs/reference/python.md")


def blocks(text: str) -> list[tuple[str, str]]:
    """The language and the lines of each fenced block."""
    return re.findall(r"^```(\w*)\n(.*?)^```", text, re.DOTALL | re.MULTILINE)


def commands(text: str) -> list[str]:
    return [
        line.split(" # ")[0].strip()
        for language, block in blocks(text)
        if language != "python"
        for line in block.splitlines()
        if line.startswith(("graphopt ", "python -m graphopt "))
    ]


# Each once, in the order of the pages: what a command writes may be what a later one reads.
COMMANDS = [*dict.fromkeys(command for page in PAGES.values() for command in commands(page))]
# What needs more than the wheel says so in a line: the command, and what it says.
NEEDS = {
    "graphopt train-agent --models model.onnx --out agent": "pip install '.[train]'",
    "graphopt evaluate-agent agent": "pip install '.[zoo]'",
    "graphopt zoo build regnet_y_400mf": "pip install '.[zoo]'",
    "graphopt optimize model.onnx --provider openvino --provider-option device_type=CPU": "openvino",
    "graphopt optimize model.onnx --provider cuda --provider-option device_id=1": "cuda",
    "graphopt bench model.onnx resnet50 --against onnxsim,onnxslim,onnxscript --json bench.json --csv bench.csv": "zoo",
}
# Whether there is something to gain is a matter of the machine.
MAY_FAIL = {
    "graphopt optimize --check models/*.onnx": 4,
    "graphopt bench model.onnx --against original --level all --fail-under 1.05": 4,
}


# Its budget is in minutes.
SHORTER = {"graphopt rules generate --ops matmul --budget 10": "graphopt rules generate --ops matmul --budget 0.2"}


def small_model() -> onnx.ModelProto:
    """Three products of one matrix, as of queries, keys and values, with open dimensions: something to gain, in milliseconds."""
    rng, width = np.random.default_rng(0), 64
    weights = [numpy_helper.from_array(rng.normal(size=(width, width)).astype(np.float32), name) for name in "qkv"]
    nodes = [helper.make_node("Identity", ["x"], ["h"])]
    nodes += [helper.make_node("MatMul", ["h", name], [f"{name}y"]) for name in "qkv"]
    nodes += [helper.make_node("Sum", ["qy", "ky", "vy"], ["s"]), helper.make_node("Relu", ["s"], ["y"])]
    shape = ["batch", "seq", width]
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name in "xy")
    graph = helper.make_graph(nodes, "small", [x], [y], weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


@pytest.fixture(scope="module")
def folder(installed, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the commands find: models, inputs, a rule, an agent, a trace."""
    here = tmp_path_factory.mktemp("readme")
    for name in ("model.onnx", "a.onnx", "b.onnx", "mine.onnx", "models/one.onnx", "models/two.onnx"):
        (here / name).parent.mkdir(exist_ok=True)
        onnx.save(small_model(), here / name)
    shutil.copytree(here / "models", here / "whisper")
    (here / "whisper/config.json").write_text("{}")
    (here / "graphopt.toml").write_text("[profiles.edge]\nthreads = 1\n")
    np.savez(here / "real.npz", x=np.zeros((2, 3, 64), np.float32))
    shutil.copytree(ROOT / "models/agents/rl", here / "agent")
    shutil.copy(ROOT / "rules/pow.yaml", here / "my-rules.yaml")
    done = installed.shell("graphopt optimize model.onnx --budget 2 --trace t.json", here)
    assert done.returncode == 0, done.stderr
    return here


@pytest.mark.parametrize("command", COMMANDS)
def test_command(installed, folder, command):
    done = installed.shell(SHORTER.get(command, command), folder)
    told = done.stdout + done.stderr
    assert "Traceback" not in told and "internal error" not in told, told
    if command in NEEDS:
        assert done.returncode in (1, 2) and NEEDS[command] in told.lower(), told
    else:
        assert done.returncode in (0, MAY_FAIL.get(command, 0)), told


def test_exceptions_are_commands():
    assert len(COMMANDS) > 40 and {*NEEDS, *MAY_FAIL, *SHORTER} <= {*COMMANDS}
    assert all(map(commands, PAGES.values()))


@pytest.mark.parametrize("page", PYTHON)
def test_python(installed, folder, page):
    """The Python of a page does what it says."""
    programs = [block for language, block in blocks((ROOT / page).read_text(encoding="utf-8")) if language == "python"]
    assert programs
    for program in programs:
        (folder / "readme.py").write_text(program)
        done = installed.shell("python readme.py", folder)
        assert done.returncode == 0 and "<Result model.onnx: " in done.stdout, done.stderr


def test_make_demo(tmp_path):
    tree = source_tree(tmp_path / "clone")
    call("make", "demo", "DEMO_ARGS=--budget 5", cwd=tree, **environment(GRAPHOPT_CACHE_DIR=str(tmp_path / "prices")))
    assert (tree / "build/demo.opt.onnx").stat().st_size and (tree / "build/demo.html").stat().st_size


def test_extras_are_those_of_the_project():
    import tomllib

    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    for name in ("README.md", "docs/how-to/providers.md"):
        found = re.findall(r"pip install '\.\[([a-z,]+)\]'", PAGES[name])
        named = {extra for extras in found for extra in extras.split(",")}
        assert named and named <= set(declared), name


def test_a_shell_completes(installed, tmp_path):
    """What bash asks when a tab is pressed."""
    asked = {"_GRAPHOPT_COMPLETE": "complete_bash", "COMP_WORDS": "graphopt optimize --strategy gr", "COMP_CWORD": "3"}
    assert installed.shell("graphopt", tmp_path, **asked).stdout.split() == ["greedy"]
    asked |= {"COMP_WORDS": "graphopt opt", "COMP_CWORD": "1"}
    assert installed.shell("graphopt", tmp_path, **asked).stdout.split() == ["optimize"]
    # With something after it, bash does not make way for the command, which asks its parent which shell it is.
    assert "_GRAPHOPT_COMPLETE" in installed.shell("graphopt --show-completion; true", tmp_path).stdout
