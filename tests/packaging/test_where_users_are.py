"""The pre-commit hook, run by pre-commit, and the GitHub Action, its steps run by bash."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import onnx
import pytest
import yaml
from onnx import TensorProto, helper

from tests.packaging.installed import ROOT, call, environment, source_tree

pytestmark = [pytest.mark.slow, pytest.mark.network]
AUTHOR = ("-c", "user.name=A", "-c", "user.email=a@example.org")


def as_fast_as_can_be(path: Path) -> None:
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [8]) for name in "xy")
    graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "relu", [x], [y])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)


def repository(folder: Path) -> Path:
    call("git", "init", "-q", cwd=folder)
    call("git", "add", "-A", cwd=folder)
    call("git", *AUTHOR, "commit", "-qm", "first", cwd=folder)
    return folder


@pytest.mark.slow
def test_the_hook(packages, tmp_path):
    pytest.importorskip("pre_commit", reason="pre-commit is not installed")
    ours = repository(source_tree(tmp_path / "graphopt"))
    theirs = tmp_path / "project"
    theirs.mkdir()
    as_fast_as_can_be(theirs / "good.onnx")
    revision = call("git", "rev-parse", "HEAD", cwd=ours).strip()
    hook = {"id": "graphopt-check", "args": ["--budget", "5", "--threads", "1"]}
    config = {"repos": [{"repo": str(ours), "rev": revision, "hooks": [hook]}]}
    (theirs / ".pre-commit-config.yaml").write_text(yaml.safe_dump(config))
    repository(theirs)

    def run() -> subprocess.CompletedProcess[str]:
        call("git", "add", "-A", cwd=theirs)
        places = {"PRE_COMMIT_HOME": str(tmp_path / "home"), "GRAPHOPT_CACHE_DIR": str(tmp_path / "prices")}
        command = [sys.executable, "-m", "pre_commit", "run", "--all-files", "--color", "never"]
        return subprocess.run(
            command,
            cwd=theirs,
            env=environment(**packages, **places),
            capture_output=True,
            text=True,
            timeout=900,
            check=False,
        )

    assert run().returncode == 0, run().stdout
    shutil.copy(ROOT / "models/demo_regnet.onnx", theirs / "slow.onnx")
    done = run()
    assert done.returncode == 1 and "exit code: 4" in done.stdout.lower(), done.stdout + done.stderr
    assert "error: slow.onnx could be " in done.stdout


@pytest.mark.thorough
def test_the_action(installed, packages, tmp_path):
    """Its own steps, one after the other, as GitHub runs them: variables filled in, then bash."""
    action = yaml.safe_load((ROOT / "action.yml").read_text(encoding="utf-8"))
    assert action["runs"]["using"] == "composite"
    tree = source_tree(tmp_path / "action")
    shutil.copy(ROOT / "models/demo_regnet.onnx", tmp_path / "slow.onnx")
    (tmp_path / "nets").mkdir()
    as_fast_as_can_be(tmp_path / "nets/good.onnx")

    environment_ = installed.copy(tmp_path / "env")

    def run(*, anew: bool = False, **given: str) -> list[int]:
        inputs = {name: str(each["default"]) for name, each in action["inputs"].items()} | given
        codes = []
        for step in action["runs"]["steps"]:
            if "run" not in step:
                assert step["uses"].startswith("actions/setup-python@")
                continue
            assert "${{" not in step["run"], "an input in a script is a script"
            if step["name"] == "Install graphopt" and not anew:
                continue  # it depends on no input
            variables = {
                name: value.replace("${{ github.action_path }}", str(tree)).replace("${{ inputs.models }}", inputs["models"])
                .replace("${{ inputs.args }}", inputs["args"])
                for name, value in step["env"].items()
            }  # fmt: skip
            assert not any("${{" in value for value in variables.values())
            codes.append(
                environment_.shell(f"set -eo pipefail\n{step['run']}", tmp_path, **packages, **variables).returncode
            )
        return codes

    assert run(models="nets/*.onnx nets/good.onnx", args="--budget 3", anew=True) == [0, 0]
    assert run(models="slow.onnx nets", args="--budget 5 --threads 1") == [4]
    assert run(models="nets/*.onnx; touch injected") == [2]
    assert not os.path.exists(tmp_path / "injected")
