"""Agents in use are given the model as it is, whatever their training began with; and they come of any model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import onnx
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("torch_geometric")

from graphopt.rl.agent import EPISODES_PER_ROUND, Untrained  # noqa: E402
from graphopt.rl.play import TEMPERATURES, ScriptedPolicy, Trajectory  # noqa: E402
from graphopt.rl.task import Source, Task  # noqa: E402
from graphopt.rl.task_environment import TaskEnvironment  # noqa: E402
from graphopt.rl.training import train as training  # noqa: E402
from graphopt.rl.training.rollout import Job, rollout  # noqa: E402
from graphopt.rl.training.training_run import Run  # noqa: E402
from graphopt.search.problem import Budget  # noqa: E402


@pytest.fixture
def started(toy: Task) -> Task:
    """The toy, with random rewrites before an episode of training."""
    return replace(toy, graphs=replace(toy.graphs, stage="start", start_steps=3))


class Idle(Untrained):
    """Stops at once, always."""

    def policy(self, environment: TaskEnvironment) -> ScriptedPolicy:
        return ScriptedPolicy([()] * EPISODES_PER_ROUND)


def test_an_agent_in_use_makes_no_rewrite_that_it_did_not_choose(
    started: Task, toy_environment: TaskEnvironment
) -> None:
    for seed in range(4):  # some of which draw rewrites that save
        idle = Idle(started, seed=seed)
        plans = idle._played(toy_environment.problem, toy_environment.start, Budget())
        assert [plan.steps for plan in plans] == [()] and idle.steps == EPISODES_PER_ROUND


def test_training_begins_at_random_and_its_evaluation_with_the_model(
    started: Task, toy_environment: TaskEnvironment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    nodes = len(toy_environment.root.observation.nodes)  # every rewrite of the toy brings one more
    begun: dict[bool, set[bool]] = {
        False: set(),
        True: set(),
    }  # whether it is evaluated: whether episodes begin with the model

    def watched(job: Job) -> Sequence[Trajectory]:
        played = rollout(job)
        begun[job.temperatures == TEMPERATURES] |= {len(t.observations[0].nodes) == nodes for t in played}
        return played

    monkeypatch.setattr(training, "rollout", watched)
    training.train(Run(started, tmp_path / "agent", preset="debug", steps=30))
    assert begun == {False: {True, False}, True: {True}}


@pytest.mark.parametrize("operator", ["Identity", "Sin"])
def test_an_agent_comes_of_a_model_of_no_node_or_one(operator: str, toy: Task, tmp_path: Path) -> None:
    """There is no edge for pre-training then, and no node to score beside STOP."""
    x, y = (onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [3]) for name in "xy")
    graph = onnx.helper.make_graph([onnx.helper.make_node(operator, ["x"], ["y"])], "g", [x], [y])
    opset = onnx.helper.make_opsetid("", 17)
    onnx.save(onnx.helper.make_model(graph, opset_imports=[opset], ir_version=8), tmp_path / "lone.onnx")
    task = replace(toy, graphs=replace(toy.graphs, train=(Source(str(tmp_path / "lone.onnx")),)))
    found = training.train(Run(task, tmp_path / "agent", preset="debug", steps=8, pretrain=2))
    assert found.results["lone"]["best"] == 0.0 and "pretraining" not in found.settings
