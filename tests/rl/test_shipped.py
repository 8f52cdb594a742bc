"""The agents that come with graphopt: found without being named, small, and used without torch."""

from __future__ import annotations

import dataclasses
import json
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto, helper

import graphopt
from graphopt.config import agents_dir
from graphopt.errors import CrashError, UsageError
from graphopt.pipeline.strategies import STRATEGIES
from graphopt.registry import strategy_of
from graphopt.rewrite.library import load_library
from graphopt.rl import agent
from graphopt.rl.manifest import read_manifest
from graphopt.rl.rule_features import RuleBatch
from graphopt.rl.task import Source, parse_task
from graphopt.rl.training.learners import LEARNERS
from graphopt.runtime import guard
from tests import hazards
from tests.rl.conftest import DEMO, HERE

LEARNED = tuple(name for name in STRATEGIES if "agent" in STRATEGIES.get(name).options)


@pytest.mark.parametrize("strategy", LEARNED)
def test_it_works_without_being_named_and_without_torch(strategy: str, tmp_path: Path) -> None:
    code = (
        "import sys\n"
        "from graphopt.cli.main import run\n"
        f"code = run(['optimize', {str(DEMO)!r}, '-o', {str(tmp_path / 'out.onnx')!r}, '--strategy', {strategy!r},\n"
        "            '--no-measure', '--json', '-', '-q'])\n"
        "assert not {'torch', 'torch_geometric', 'safetensors'} & set(sys.modules)\n"
        "assert not [name for name in sys.modules if name.startswith(('graphopt.rl.training', 'graphopt.rl.evaluation'))]\n"
        "sys.exit(code)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=HERE.parents[1])
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report["strategy"] == strategy and not report["kept_original"]
    assert any("conv-groups" in rule for rule in report["rules"])  # what makes this model fast


@pytest.mark.parametrize("strategy", LEARNED)
def test_a_model_that_computes_nothing_is_no_error(strategy: str, tmp_path: Path) -> None:
    """Its normal form has no node, and the networks take no graph without one."""
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [3]) for name in "xy")
    graph = helper.make_graph([helper.make_node("Identity", ["x"], ["y"])], "g", [x], [y])
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    graphopt.optimize(proto, output=tmp_path / "out.onnx", strategy=strategy, measure=False)
    assert (tmp_path / "out.onnx").is_file()


@pytest.mark.parametrize("strategy", LEARNED)
def test_it_is_small_and_says_how_it_was_trained(strategy: str) -> None:
    folder = agents_dir() / strategy
    manifest = read_manifest(folder)
    assert manifest.results and manifest.steps > 0 and manifest.task.graphs.held_out
    assert sum(path.stat().st_size for path in folder.iterdir()) < 5e6


@pytest.mark.parametrize("strategy", LEARNED)
def test_its_task_reads_as_tasks_are_written(strategy: str) -> None:
    task = read_manifest(agents_dir() / strategy).task
    assert task.graphs.shapes == (Source("bert_base@seq=64"), Source("regnet_y_400mf@size=160"))
    assert parse_task(json.dumps(task.json()), "t") == task


def test_each_algorithm_has_a_strategy() -> None:
    assert tuple(strategy_of(spec.name) for spec in LEARNERS.all()) == LEARNED == ("rl", "world-model")


def test_an_agent_of_another_strategy_is_refused() -> None:
    with pytest.raises(UsageError, match="holds an agent of strategy world-model, not of rl"):
        graphopt.optimize(DEMO, strategy="rl", agent=agents_dir() / "world-model")


@pytest.fixture
def elsewhere(tmp_path: Path) -> Path:
    """The agent of ``rl`` as if it had come from somebody else."""
    return Path(shutil.copytree(agents_dir() / "rl", tmp_path / "agent"))


def test_the_networks_of_others_may_not_take_the_process_with_them(elsewhere: Path, monkeypatch) -> None:
    hazards.stored(hazards.exploding(), elsewhere / agent.ENCODER)
    monkeypatch.setattr(agent, "_NETWORK_S", 2.0)
    with pytest.raises(CrashError, match=r"encoder\.onnx: ONNX Runtime does not end within 2 s when it opens"):
        graphopt.optimize(DEMO, strategy="rl", agent=elsewhere, measure=False, rules=["grouped-conv"])


def test_a_network_outlives_the_child_that_a_model_has_ended(elsewhere: Path) -> None:
    batch = RuleBatch.of(load_library().rules)
    feeds = {f.name: getattr(batch, f.name) for f in dataclasses.fields(batch)}
    network, here = agent._Network(elsewhere / agent.RULES), agent._Network(agents_dir() / "rl" / agent.RULES)
    (before,) = network.run(feeds)
    session = guard.open_guarded(hazards.stored(hazards.endless(), elsewhere / "loop.onnx"), seconds=0.5)
    with pytest.raises(CrashError):
        session.run({"x": np.ones(4, np.float32)})
    (after,) = network.run(feeds)
    np.testing.assert_array_equal(before, after)
    np.testing.assert_array_equal(before, here.run(feeds)[0])
    assert not isinstance(here._session, guard.Guarded)
