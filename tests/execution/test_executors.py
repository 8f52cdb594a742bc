"""The executors give the same results in the same order, survive lost workers and pass errors on."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from graphopt.errors import MissingExtraError, UnknownNameError, UsageError
from graphopt.execution import KINDS, Executor, WorkerLostError, make_executor
from tests.execution.workers import die, die_once, fail, pid, square


@pytest.fixture(scope="module", params=KINDS)
def executor(request: pytest.FixtureRequest) -> Iterator[Executor]:
    if request.param == "ray":
        pytest.importorskip("ray")
    with make_executor(request.param, workers=2) as made:
        yield made


def test_results_come_in_the_order_of_the_tasks(executor: Executor) -> None:
    assert list(executor.map(square, range(20))) == [x * x for x in range(20)]


def test_tasks_are_drawn_as_they_are_needed(executor: Executor) -> None:
    drawn = []

    def tasks() -> Iterator[int]:
        for x in range(100):
            drawn.append(x)
            yield x

    results = executor.map(square, tasks())
    assert next(results) == 0
    assert len(drawn) <= 2 * executor.workers + 1
    assert list(results) == [x * x for x in range(1, 100)]


def test_errors_of_a_task_are_raised_with_their_type(executor: Executor) -> None:
    results = executor.map(fail, range(5))
    assert [next(results) for _ in range(3)] == [0, 1, 2]
    with pytest.raises(ValueError, match="no 3"):
        next(results)
    assert list(executor.map(fail, [7])) == [7]


def test_the_work_of_a_lost_worker_is_done_again(executor: Executor, tmp_path: Path) -> None:
    if executor.workers == 1:
        marker = tmp_path / "inline"
        marker.touch()  # there is no worker to lose
    else:
        marker = tmp_path / "died"
    assert list(executor.map(die_once, [(marker, x) for x in range(8)])) == list(range(8))
    assert marker.exists()


def test_a_task_that_always_ends_its_worker_is_an_error() -> None:
    with make_executor("processes", workers=2) as processes:
        with pytest.raises(WorkerLostError, match="took down 3 workers"):
            list(processes.map(die, [1]))
        assert list(processes.map(square, [3])) == [9]


def test_a_task_that_always_ends_its_worker_is_an_error_on_ray() -> None:
    pytest.importorskip("ray")
    with make_executor("ray", workers=1) as cluster, pytest.raises(WorkerLostError, match="took down 3 workers"):
        list(cluster.map(die, [1]))


def test_ray_keeps_to_itself_what_nobody_collects(tmp_path: Path) -> None:
    pytest.importorskip("ray")
    abandoned = (
        "import time\n"
        "from graphopt.execution import make_executor\n"
        "from tests.execution.workers import fail\n"
        "with make_executor('ray', workers=2) as cluster:\n"
        "    try:\n"
        "        list(cluster.map(fail, [3] * 4))\n"
        "    except ValueError:\n"
        "        time.sleep(2)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", abandoned], cwd=Path(__file__).parents[2], capture_output=True, text=True, timeout=120
    )
    assert (done.returncode, "Unhandled" in done.stderr) == (0, False), done.stderr


def test_processes_are_used_and_kept() -> None:
    with make_executor("processes", workers=1) as processes:
        first, second = set(processes.map(pid, range(3))), set(processes.map(pid, range(3)))
        assert first == second and os.getpid() not in first and len(first) == 1
        worker = psutil.Process(first.pop())
    worker.wait(timeout=20)


def test_workers_end_when_their_parent_is_killed(tmp_path: Path) -> None:
    code = (
        "import time\n"
        "from graphopt.execution import make_executor\n"
        "from tests.execution.workers import pid\n"
        "if __name__ == '__main__':\n"
        "    with make_executor('processes', 1) as e:\n"
        "        print(*e.map(pid, [0]), flush=True)\n"
        "        time.sleep(60)\n"
    )
    script = tmp_path / "parent.py"
    script.write_text(code)
    root = Path(__file__).parents[2]
    with subprocess.Popen(
        [sys.executable, str(script)], stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": str(root)}
    ) as parent:
        assert parent.stdout is not None
        worker = psutil.Process(int(parent.stdout.readline()))
        parent.kill()
        worker.wait(timeout=20)


def test_bad_arguments() -> None:
    with pytest.raises(UnknownNameError, match="unknown executor 'proceses'"):
        make_executor("proceses")
    with pytest.raises(UsageError, match="at least one worker"):
        make_executor("processes", 0)
    with pytest.raises(UsageError, match="belongs to the executor ray"):
        make_executor("inline", address="auto")


def test_ray_without_a_cluster_at_the_address_is_one_line() -> None:
    ray = pytest.importorskip("ray")
    ray.shutdown()  # what an earlier test of this process may have left running
    with pytest.raises(UsageError, match=r"no Ray cluster at 127\.0\.0\.1:1"):
        make_executor("ray", address="127.0.0.1:1")


def test_ray_that_is_not_installed_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name, *a: None)
    with pytest.raises(MissingExtraError, match="ray is not installed"):
        make_executor("ray")
