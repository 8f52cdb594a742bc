"""PPO: the arithmetic, and that it learns."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("torch_geometric")

from graphopt.rl.play import MemorylessPolicy, Scores, Trajectory, play  # noqa: E402
from graphopt.rl.task import Task  # noqa: E402
from graphopt.rl.task_environment import TaskEnvironment  # noqa: E402
from graphopt.rl.training.controller import Controller, Shape, TorchPolicy  # noqa: E402
from graphopt.rl.training.ppo import METRICS, PPO, PPOLearner, Samples, advantages  # noqa: E402
from graphopt.rl.training.train import train  # noqa: E402
from graphopt.rl.training.training_run import Run  # noqa: E402


def episode(rewards: list[float], values: list[float], terminated: bool, model: str = "m") -> Trajectory:
    n = len(rewards)
    return Trajectory(
        model, np.zeros(n, np.int64), np.array(rewards), np.zeros(n), np.array(values), (), terminated, sum(rewards)
    )


def test_truncation_bootstraps_and_stop_does_not() -> None:
    cut = episode([1.0, 2.0], [0.0, 0.0, 10.0], terminated=False)
    found, returns = advantages(cut, gamma=1.0, lam=1.0)
    assert returns.tolist() == [13.0, 12.0] and found.tolist() == [13.0, 12.0]
    ended = episode([1.0, 2.0], [0.0, 0.0, 0.0], terminated=True)
    assert advantages(ended, 1.0, 1.0)[1].tolist() == [3.0, 2.0]


def test_advantages_by_hand() -> None:
    played = episode([1.0, 0.0, 2.0], [0.5, 0.25, 1.0, 4.0], terminated=False)
    gamma, lam = 0.9, 0.8
    last = 2.0 + gamma * 4.0 - 1.0
    middle = 0.0 + gamma * 1.0 - 0.25 + gamma * lam * last
    first = 1.0 + gamma * 0.25 - 0.5 + gamma * lam * middle
    found, returns = advantages(played, gamma, lam)
    assert found == pytest.approx([first, middle, last])
    assert returns == pytest.approx([first + 0.5, middle + 0.25, last + 1.0])


def test_the_last_value_is_the_policys_own_only_where_the_budget_cut_off(toy_environment: TaskEnvironment) -> None:
    class Always(MemorylessPolicy):
        def __call__(self, observations, lanes):
            return Scores(
                [np.where(np.arange(len(o.mask)) == 0, stop, 0.0) for o in observations],
                np.full(len(observations), 7.0),
            )

    stop = 50.0
    (ended,) = play([toy_environment], Always(), [None])
    assert ended.terminated and ended.values.tolist() == [7.0, 0.0]
    stop = -50.0
    (other,) = play([toy_environment], Always(), [None])
    assert other.terminated  # nothing but STOP is left in the end
    (cut,) = play([toy_environment], Always(), [None], go_on=iter([True, False]).__next__)
    assert not cut.terminated and cut.values.tolist() == [7.0, 7.0]


def test_models_of_different_gain_count_alike() -> None:
    large = [episode([50.0], [0.0, 0.0], True, "large"), episode([-50.0], [0.0, 0.0], True, "large")]
    small = [episode([0.5], [0.0, 0.0], True, "small"), episode([-0.5], [0.0, 0.0], True, "small")]
    samples = Samples.of([*large, *small], PPO())
    assert np.allclose(np.abs(samples.advantages), [1, 1, 1, 1], atol=0.1)


def test_an_update_trains_every_part_and_reports_every_metric(toy: Task, toy_environment: TaskEnvironment) -> None:
    torch.manual_seed(0)
    rules = toy_environment.problem.library.rules
    controller = Controller(Shape.of(toy, 16, 2))
    learner = PPOLearner(controller, rules, PPO(learning_rate=1e-2, target_kl=9.0))
    before = {name: p.detach().clone() for name, p in controller.named_parameters()}
    for i in range(2):  # the heads start at zero, so that nothing behind them moves at first
        played = play(
            [toy_environment] * 4, TorchPolicy(controller, rules), [np.random.default_rng([i, j]) for j in range(4)]
        )
        metrics = learner.learn(played, np.random.default_rng(i), 0.5)
    moved = {name.partition(".")[0] for name, p in controller.named_parameters() if not torch.equal(p, before[name])}
    assert moved == {"operators", "encoder", "rules", "stop", "heads"}
    still = [
        n for n, p in controller.named_parameters() if n.startswith("encoder.rounds") and torch.equal(p, before[n])
    ]
    # The last block's edges feed nothing but the whole, and the last nodes only the actions: both count.
    assert not still
    assert set(metrics) == set(METRICS) and all(np.isfinite(v) for v in metrics.values())
    import graphopt.rl.training.ppo

    assert all(f"``{name}``" in (graphopt.rl.training.ppo.__doc__ or "") for name in METRICS)


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.thorough) for seed in range(1, 5))])
def test_it_finds_what_lies_behind_a_costly_step(toy: Task, tmp_path: Path, seed: int) -> None:
    manifest = train(Run(toy, tmp_path / "agent", preset="debug", seed=seed, steps=1000))
    assert manifest.results["model"]["greedy"] == pytest.approx(25.0)
