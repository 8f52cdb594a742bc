"""The agents that come with graphopt: found without being named, small, and used without torch."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

import graphopt
from graphopt.config import agents_dir
from graphopt.errors import UsageError
from graphopt.pipeline.strategies import STRATEGIES
from graphopt.rl.manifest import read_manifest
from graphopt.rl.task import Source, parse_task
from graphopt.rl.training.learners import LEARNERS
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
def test_it_is_small_and_says_how_it_was_trained(strategy: str) -> None:
    folder = agents_dir() / strategy
    manifest = read_manifest(folder)
    assert manifest.results and manifest.steps > 0 and manifest.task.graphs.held_out
    assert sum(path.stat().st_size for path in folder.iterdir()) < 5e6


@pytest.mark.parametrize("strategy", LEARNED)
def test_its_task_reads_as_tasks_are_written_today(strategy: str) -> None:
    folder = agents_dir() / strategy
    assert '"draw": 101' in (folder / "manifest.json").read_text()  # a list of prices that was drawn: no longer a thing
    task = read_manifest(folder).task
    assert task.graphs.shapes == (Source("bert_base@seq=64"), Source("regnet_y_400mf@size=160"))
    assert parse_task(json.dumps(task.json()), "t") == task


def test_each_algorithm_has_a_strategy() -> None:
    assert tuple(spec.strategy for spec in LEARNERS.all()) == LEARNED == ("rl", "world-model")


def test_an_agent_of_another_strategy_is_refused() -> None:
    with pytest.raises(UsageError, match="holds an agent of strategy world-model, not of rl"):
        graphopt.optimize(DEMO, strategy="rl", agent=agents_dir() / "world-model")
