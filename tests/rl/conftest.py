"""The toy: three absolute values whose cheapest form lies behind a dearer one. 4 x 4 x 4 states, the best saves 25 %."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from graphopt.rl.task import Source, Task, load_task
from graphopt.rl.task_environment import TaskEnvironment
from graphopt.rl.training.environments import environment_of

HERE = Path(__file__).parent
DEMO = HERE.parents[1] / "models" / "demo_regnet.onnx"


@pytest.fixture(scope="session")
def toy() -> Task:
    return load_task(HERE / "toy" / "toy.yaml")


@pytest.fixture(scope="session")
def toy_environment(toy: Task) -> TaskEnvironment:
    return environment_of(toy, toy.graphs.train[0], None)


@pytest.fixture(scope="session")
def demo() -> Task:
    """The shipped task on the committed model, with estimated prices so that it is the same on every machine."""
    task = load_task("cost")
    return replace(
        task, graphs=replace(task.graphs, train=(Source(str(DEMO)),)), pricing=replace(task.pricing, model="analytic")
    )


@pytest.fixture(scope="session")
def demo_environment(demo: Task) -> TaskEnvironment:
    return environment_of(demo, demo.graphs.train[0], None)
