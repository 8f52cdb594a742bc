"""Training: the same episodes everywhere, exact resumption, whole checkpoints, an agent that needs no torch."""

from __future__ import annotations

import csv
import json
import os
import shutil
import signal
import subprocess
import sys
from collections import Counter
from dataclasses import replace
from itertools import chain
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("torch_geometric")

from graphopt.cost.store import Store  # noqa: E402
from graphopt.errors import GraphoptError, MissingExtraError, UnknownNameError, UsageError  # noqa: E402
from graphopt.execution import KINDS, make_executor  # noqa: E402
from graphopt.files import alone  # noqa: E402
from graphopt.rl.agent import AgentNotice, Learned, RuntimePolicy, Untrained, unknown_rules  # noqa: E402
from graphopt.rl.manifest import CheckpointError, read_manifest  # noqa: E402
from graphopt.rl.play import Trajectory, UniformPolicy, play  # noqa: E402
from graphopt.rl.task import RewardTerm, Source, Task  # noqa: E402
from graphopt.rl.task_environment import LRUCache, TaskEnvironment  # noqa: E402
from graphopt.rl.training import environments  # noqa: E402
from graphopt.rl.training.checkpoint import read_progress, save, tensors_of, write_progress  # noqa: E402  # noqa: E402
from graphopt.rl.training.controller import Controller, Shape  # noqa: E402
from graphopt.rl.training.environments import open_environment  # noqa: E402
from graphopt.rl.training.learners import LEARNERS  # noqa: E402
from graphopt.rl.training.rollout import Job, rollout  # noqa: E402
from graphopt.rl.training.train import resume, sources_of, train  # noqa: E402
from graphopt.rl.training.training_run import DYNAMICS, Run  # noqa: E402
from graphopt.rl.training.world_model import WorldShape  # noqa: E402
from graphopt.search.greedy import Greedy  # noqa: E402
from graphopt.search.problem import Budget  # noqa: E402
from graphopt.search.trace import carry_out  # noqa: E402
from tests.rl.conftest import DEMO, HERE  # noqa: E402
from tests.share import part  # noqa: E402

ROOT = HERE.parents[1]
ROUNDS = {f"{n} episodes played" for n in (3, 6, 9)}


@pytest.fixture(scope="module")
def agent(demo: Task, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A hardly trained agent."""
    out = tmp_path_factory.mktemp("runs") / "agent"
    train(Run(demo, out, preset="debug", steps=60, pretrain=3))
    return out


def same(a: Trajectory, b: Trajectory) -> bool:
    arrays = ("actions", "rewards", "log_probs", "values")
    return (
        a.model == b.model
        and a.terminated == b.terminated
        and all(np.array_equal(getattr(a, name), getattr(b, name)) for name in arrays)
        and all(
            np.array_equal(x.nodes, y.nodes)
            and np.array_equal(x.links, y.links)
            and np.array_equal(x.actions, y.actions)
            for x, y in zip(a.observations, b.observations, strict=True)
        )
    )


@pytest.mark.slow
@pytest.mark.parametrize("kind", part([kind for kind in KINDS if kind != "inline"], 2, str))
def test_the_same_seeds_give_the_same_episodes_on_every_executor(demo: Task, kind: str) -> None:
    if kind == "ray":
        pytest.importorskip("ray")
    torch.manual_seed(1)
    shape = Shape.of(demo, 16, 2)
    weights = {name: t.numpy() for name, t in Controller(shape).state_dict().items()}
    jobs = [
        Job(demo, demo.graphs.train * 2, ((i, 0), None if i == 1 else (i, 1)), None, shape, weights) for i in range(3)
    ]
    here = [t for group in map(rollout, jobs) for t in group]
    with make_executor(kind, workers=1) as executor:
        there = [t for group in executor.map(rollout, jobs) for t in group]
    assert len(here) == len(there) == 6
    assert all(same(a, b) for a, b in zip(here, there, strict=True))
    assert len({a.actions.tobytes() for a in here}) > 2


@pytest.mark.slow
@pytest.mark.parametrize("algorithm", part(LEARNERS.names(), 2, str))
def test_a_run_that_was_killed_comes_to_the_same_figures(toy: Task, tmp_path: Path, algorithm: str) -> None:
    broken, whole = tmp_path / "broken", tmp_path / "whole"
    done = subprocess.run(
        [sys.executable, "-m", "tests.rl.jobs", str(broken), algorithm, "4"],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert done.returncode == -signal.SIGKILL
    assert read_manifest(broken).iteration == 3
    resumed = resume(broken)
    unbroken = train(Run(toy, whole, algorithm, preset="debug", steps=200))
    assert resumed.iteration == unbroken.iteration > 4
    assert resumed.results == unbroken.results and resumed.best == unbroken.best

    def figures(folder: Path) -> list[dict[str, str]]:
        return list(csv.DictReader((folder / "progress.csv").read_text().splitlines()))

    assert figures(broken) == figures(whole)
    a, b = tensors_of(broken, resumed), tensors_of(whole, unbroken)
    assert a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)


def test_an_interrupted_run_goes_on(toy: Task, tmp_path: Path) -> None:
    asked = iter([False, False, True])
    stopped = train(Run(toy, tmp_path / "a", preset="debug", steps=200), interrupted=lambda: next(asked))
    assert stopped.iteration == 2 and not stopped.results
    with pytest.raises(UsageError, match="holds an agent already"):
        train(Run(toy, tmp_path / "a", preset="debug"))
    done = resume(tmp_path / "a", steps=100)
    assert done.steps >= 100 and done.results
    again = resume(tmp_path / "a", steps=100)  # nothing is left to do, nor to count
    assert again == done == read_manifest(tmp_path / "a")
    more = resume(tmp_path / "a", steps=400, interrupted=iter([False, True]).__next__)
    assert more.iteration == done.iteration + 1 and not more.results


def test_an_evaluation_needs_no_environments_of_its_own(
    toy: Task, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened, real = [], environments.open_environment
    monkeypatch.setattr(environments, "_ENVIRONMENTS", LRUCache(24))
    monkeypatch.setattr(environments, "open_environment", lambda *how: opened.append(how[1].name) or real(*how))
    warm = replace(toy, graphs=replace(toy.graphs, stage="start", start_steps=2))
    assert warm.graphs.warm_up
    done = train(Run(warm, tmp_path / "a", preset="debug", steps=40))
    assert done.results and sorted(opened) == sorted(source.name for source in warm.graphs.pool)


@pytest.mark.parametrize("count", [6, 8, 18])
def test_all_models_are_played_as_often_and_as_often_first(toy: Task, count: int) -> None:
    for models in range(1, 40):
        pool = tuple(Source(f"{n}.onnx") for n in range(models))
        task = replace(toy, graphs=replace(toy.graphs, train=pool))
        rounds = [[source.model for source in sources_of(task, k, count)] for k in range(models)]
        played = Counter(chain.from_iterable(rounds))
        assert played == {source.model: count for source in pool}
        assert {each[0] for each in rounds} == set(played)


def test_progress_is_written_before_the_manifest_that_counts_its_lines(
    toy: Task, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*args: object) -> None:
        raise GraphoptError("the disk is full")

    seen = iter([False, False, True])
    train(Run(toy, tmp_path, preset="debug", steps=2000), interrupted=lambda: next(seen))
    with monkeypatch.context() as patched:
        patched.setattr("graphopt.rl.training.checkpoint.save", fail)
        with pytest.raises(GraphoptError, match="full"):
            resume(tmp_path, interrupted=iter([False, True]).__next__)
    assert read_manifest(tmp_path).iteration == 2
    assert [row["iteration"] for row in read_progress(tmp_path, 9)] == [1, 2, 3]
    resume(tmp_path, interrupted=iter([False, False, True]).__next__)
    assert [row["iteration"] for row in read_progress(tmp_path, 9)] == [1, 2, 3, 4]


def test_progress_of_another_version_and_damaged_progress(tmp_path: Path) -> None:
    rows = [{"iteration": 1, "steps": 9, "old": 2.0}, {"iteration": 2, "steps": 18, "new": 0.5}]
    write_progress(tmp_path, rows)
    assert read_progress(tmp_path, 2) == rows
    for text in ("iteration,steps\nx,1\n", "steps\n1\n", "iteration\n1,2,3\n", "iteration,steps\n1\n", "\0,\n\xff"):
        (tmp_path / "progress.csv").write_text(text, encoding="latin-1")
        with pytest.raises(CheckpointError, match="not the progress of a training run"):
            read_progress(tmp_path, 2)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({}, "lacks 'preset'"),
        ({"preset": "debug", "pretrain": "x"}, "'pretrain'"),
        ({"preset": [], "pretrain": 0}, "'preset'"),
    ],
)
def test_a_manifest_with_damaged_settings_is_named(
    tmp_path: Path, agent: Path, settings: dict[str, object], message: str
) -> None:
    manifest = replace(read_manifest(agent), settings=settings)
    with pytest.raises(CheckpointError, match=f"not a whole manifest: the settings.*{message}"):
        Run.of(manifest, tmp_path)


@pytest.mark.parametrize("dynamics", [None, *part(DYNAMICS, 2, str)])
def test_both_paths_choose_the_same_actions(
    agent: Path, demo: Task, demo_environment: TaskEnvironment, dynamics: str | None, tmp_path: Path
) -> None:
    if dynamics is not None:
        agent = tmp_path / "dreamer"
        train(Run(demo, agent, "world-model", preset="debug", steps=60, dynamics=dynamics))
    manifest = read_manifest(agent)
    sizes = dict(manifest.settings["shape"])
    shape = WorldShape(**{**sizes, "seen": Shape(**sizes["seen"])}) if dynamics else Shape(**sizes)
    network = shape.network()
    tensors = tensors_of(agent, manifest)
    network.load_state_dict({n.removeprefix("agent."): t for n, t in tensors.items() if n.startswith("agent.")})
    rules = demo_environment.problem.library.rules
    in_torch, in_runtime = shape.policy(network, rules), RuntimePolicy(agent, rules)
    seeds = [None, *(np.random.default_rng([5, i]) for i in range(6))]
    again = [None, *(np.random.default_rng([5, i]) for i in range(6))]
    first = play([demo_environment] * 7, in_torch, seeds)
    second = play([demo_environment] * 7, in_runtime, again)
    for a, b in zip(first, second, strict=True):
        assert a.actions.tolist() == b.actions.tolist()
        assert np.allclose(a.log_probs, b.log_probs, atol=1e-4) and np.allclose(a.values, b.values, atol=1e-3)


def test_the_strategy_needs_no_torch(agent: Path, tmp_path: Path) -> None:
    code = (
        "import sys\n"
        "from graphopt.cli.main import run\n"
        f"code = run(['optimize', {str(DEMO)!r}, '-o', {str(tmp_path / 'out.onnx')!r}, '--strategy', 'rl',\n"
        f"            '--agent', {str(agent)!r}, '--no-measure', '--json', '-', '-q'])\n"
        "assert not {'torch', 'torch_geometric', 'safetensors'} & set(sys.modules)\n"
        "sys.exit(code)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=True)
    report = json.loads(done.stdout)
    assert report["strategy"] == "rl" and report["search"]["stop_reason"] in ROUNDS
    assert (tmp_path / "out.onnx").exists()


def test_the_strategy_keeps_to_its_budget_and_offers_the_best_first(
    agent: Path, demo_environment: TaskEnvironment
) -> None:
    start = demo_environment.start
    found = Learned(agent).run(demo_environment.problem, start, Budget())
    costs = [o.state.cost for o in (found, *found.others)]
    assert costs == sorted(costs) and costs[0] < start.cost
    assert Learned(agent).run(demo_environment.problem, start, Budget()).state.graph.hash == found.state.graph.hash
    short = Learned(agent).run(demo_environment.problem, start, Budget(candidates=1))
    assert short.stop_reason == "candidate budget used up" and short.candidates < found.candidates


@pytest.mark.parametrize("budget", [1, 3, 40])
def test_all_that_an_agent_has_priced_is_counted(
    demo_environment: TaskEnvironment, budget: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the last step before the end of an episode has priced, too: searches get as much."""
    made: list[TaskEnvironment] = []

    class Kept(TaskEnvironment):
        def __init__(self, *arguments: object) -> None:
            super().__init__(*arguments)  # type: ignore[arg-type]
            made.append(self)

    monkeypatch.setattr("graphopt.rl.agent.TaskEnvironment", Kept)
    untrained, spent = Untrained(replace(demo_environment.task, budget=budget)), Budget()
    untrained._played(demo_environment.problem, demo_environment.start, spent)
    assert spent.spent == made[0].candidates > 0


class Aimless(Untrained):
    """Stops at once when asked for what is likeliest, else does anything."""

    def policy(self, environment: TaskEnvironment) -> UniformPolicy:
        return UniformPolicy()


def test_episodes_are_played_while_they_find_something_better(toy: Task) -> None:
    environment = open_environment(toy, toy.graphs.train[0], Store(None))
    played = set()
    for seed in range(6):
        found = Aimless(toy, rollouts=8, seed=seed).run(environment.problem, environment.start, Budget())
        played.add(found.stop_reason)
    assert len(played) > 1 and played <= ROUNDS


def test_an_agent_that_was_paid_for_measured_time_is_used_without_measuring(demo_environment: TaskEnvironment) -> None:
    problem, start = demo_environment.problem, demo_environment.start
    measured = replace(demo_environment.task, reward=(RewardTerm("latency"),))
    found = Untrained(measured).run(problem, start, Budget())
    assert found.state.graph.hash == Untrained(demo_environment.task).run(problem, start, Budget()).state.graph.hash


def test_search_finishes_the_plan_of_an_agent(agent: Path, demo_environment: TaskEnvironment) -> None:
    learned = Learned(agent, rollouts=0)
    found = learned.run(demo_environment.problem, demo_environment.start, Budget())
    assert found.state.cost <= learned.alone <= demo_environment.start.cost
    again = Greedy().run(demo_environment.problem, found.state, Budget())
    assert again.state.cost >= found.state.cost - 1e-9
    problem = demo_environment.problem
    made = carry_out(demo_environment.start.graph, problem.library, problem.block, found.steps)
    assert made.hash == found.state.graph.hash


def test_a_rule_that_the_agent_never_met_is_named_and_used(agent: Path, demo: Task, tmp_path: Path) -> None:

    from graphopt.cost.store import Store
    from graphopt.rewrite.library import Library, load_library
    from graphopt.rewrite.schema import parse_rules

    text = (
        "family: mine\ndoc: Added by a user.\nrules:\n  - id: relu-is-max\n    doc: Relu is the maximum with 0.\n"
        "    equal: exact\n    match: ['y = Relu(x)']\n    replace: ['y = Max(x, 0)']\n"
        "    examples: {accept: [{x: 3xf32}]}\n"
    )
    added = parse_rules(text, "mine.yaml")
    library = load_library(evidence=False)
    with Store(tmp_path / "s.sqlite") as store:
        environment = open_environment(demo, demo.graphs.train[0], store, Library((*added, *library.rules)))
        with pytest.warns(AgentNotice, match="was not trained with relu-is-max"):
            found = Learned(agent, rollouts=12).run(environment.problem, environment.start, Budget())
        assert found.candidates > 0
        policy = RuntimePolicy(agent, environment.problem.library.rules)
        seen = environment.root.observation
        new = np.flatnonzero(seen.rules == 0)
        assert len(new) and np.isfinite(policy([seen], [0]).logits[0][new]).all()
        # With nothing but the new rule it is the one that is used.
        alone = open_environment(demo, demo.graphs.train[0], store, Library(tuple(added)))
        steps = play([alone], RuntimePolicy(agent, added), [np.random.default_rng(0)])[0]
        assert steps.steps >= 1
        edited = replace(library.rules[0], bound=0.5)
        assert unknown_rules(read_manifest(agent), Library((edited, library.rules[1]))) == [edited.id]


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"algorithm": "ppoo"}, UnknownNameError, "unknown algorithm 'ppoo'"),
        ({"preset": "smal"}, UnknownNameError, "unknown preset 'smal'"),
        ({"device": "tpu"}, UnknownNameError, "unknown device 'tpu'"),
        ({"executor": "threads"}, UnknownNameError, "unknown executor 'threads'"),
        ({"steps": 0}, UsageError, "--steps must be above 0"),
        ({"dynamics": "deterministic"}, UsageError, "--dynamics belongs to the algorithm world-model"),
        ({"algorithm": "world-model", "dynamics": "rnn"}, UnknownNameError, "unknown dynamics 'rnn'"),
        ({"algorithm": "world-model", "temperature": -1.0}, UsageError, "--temperature must be between 0 and 10"),
        ({"minutes": float("nan")}, UsageError, "--minutes must be above 0"),
        ({"seed": -1}, UsageError, "--seed must be a whole number from 0 to"),
        ({"seed": 2**63}, UsageError, "--seed must be a whole number from 0 to"),
    ],
)
def test_runs_that_make_no_sense(toy: Task, tmp_path: Path, changes: dict, error: type, message: str) -> None:
    with pytest.raises(error, match=message):
        train(Run(toy, tmp_path / "a", **{"preset": "debug", **changes}))


def test_folders_that_hold_no_agent(tmp_path: Path, agent: Path) -> None:
    with pytest.raises(CheckpointError, match="no agent"):
        resume(tmp_path)
    (tmp_path / "manifest.json").write_text("{")
    with pytest.raises(CheckpointError, match="not a manifest"):
        Learned(tmp_path)
    (tmp_path / "manifest.json").write_text('{"schema": "graphopt.agent/9"}')
    with pytest.raises(CheckpointError, match=r"graphopt\.agent/9"):
        Learned(tmp_path)
    (tmp_path / "manifest.json").write_text((agent / "manifest.json").read_text())
    with pytest.raises(CheckpointError, match="can't be read"):
        resume(tmp_path)
    (tmp_path / "manifest.json").write_text('{"schema": "graphopt.agent/1", "task": {"name": "x"}}')
    with pytest.raises(CheckpointError, match="not a whole manifest"):
        Learned(tmp_path)


def test_held_out_models_are_not_built_to_train(toy: Task, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The zoo's libraries are another extra than those of training."""

    def build(name: str) -> Path:
        raise MissingExtraError("zoo", "torchvision")

    monkeypatch.setattr("graphopt.rl.training.environments.build", build)
    graphs = replace(toy.graphs, held_out=(Source("gpt2"),))
    assert train(Run(replace(toy, graphs=graphs), tmp_path / "a", preset="debug", steps=20)).results
    with pytest.raises(MissingExtraError):
        train(Run(replace(toy, graphs=replace(toy.graphs, train=(Source("gpt2"),))), tmp_path / "b", preset="debug"))
    for name, message in (("gone.onnx", "neither a file nor a model"), ("gpt2@heads=x", "heads=x")):
        missing = replace(toy, graphs=replace(toy.graphs, held_out=(Source(name),)))
        with pytest.raises(UsageError, match=message):
            train(Run(missing, tmp_path / "c", preset="debug"))


def test_tensorboard_sees_what_the_progress_tells(agent: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    logs = EventAccumulator(str(agent / "logs"))
    logs.Reload()
    (row, *_) = read_progress(agent)
    assert {*logs.Tags()["scalars"]} == {*row, "rate"} - {"iteration", "steps"}


def test_missing_libraries_are_named(toy: Task, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("graphopt.registry.find_spec", lambda name: None)
    with pytest.raises(MissingExtraError, match="torch is not installed"):
        train(Run(toy, tmp_path / "a"))


@pytest.mark.parametrize(
    "name", ["weights-7.safetensors", "encoder.onnx", "memory.onnx", "prices.sqlite", "progress.csv"]
)
def test_nothing_of_others_is_lost_in_the_folder_of_a_run(toy: Task, tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text("theirs")
    with pytest.raises(UsageError, match=f"{name} is there and not of a training run"):
        train(Run(toy, tmp_path, preset="debug", steps=20))
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {name: "theirs"}


def test_files_that_are_called_much_like_those_of_a_run_stay(toy: Task, tmp_path: Path) -> None:
    (tmp_path / "weights-best.safetensors").write_text("theirs")
    train(Run(toy, tmp_path, preset="debug", steps=20))
    assert (tmp_path / "weights-best.safetensors").read_text() == "theirs"


def test_a_run_that_was_killed_before_its_first_checkpoint_begins_anew(toy: Task, tmp_path: Path) -> None:
    with Store(tmp_path / "prices.sqlite") as left:
        left.put_many("a", {"b": 1.0})
    (tmp_path / "weights-0.safetensors").write_text("")
    assert train(Run(toy, tmp_path, preset="debug", steps=20)).results
    with Store(tmp_path / "prices.sqlite") as kept:
        assert not kept.all("a")


@pytest.mark.skipif(os.name == "nt", reason="there a folder can't be locked")
def test_a_run_has_its_folder_to_itself(toy: Task, agent: Path, tmp_path: Path) -> None:
    """Two would remove each other's weights, and make one agent of the parts of two."""
    before = {path.name: path.read_bytes() for path in agent.iterdir() if path.is_file()}
    with alone(agent, ""), pytest.raises(UsageError, match="another graphopt is writing to"):
        resume(agent)
    assert {path.name: path.read_bytes() for path in agent.iterdir() if path.is_file()} == before
    new = tmp_path / "new"
    new.mkdir()
    with alone(new, ""), pytest.raises(UsageError, match="another graphopt is writing to"):
        train(Run(toy, new, preset="debug", steps=20))
    assert not [*new.iterdir()]


def test_a_checkpoint_has_the_rights_of_a_new_file_and_takes_away_what_was_cut_short(
    agent: Path, tmp_path: Path
) -> None:
    for name in (".weights-3.safetensors", ".weights-4.safetensors.0a1b2c3d.graphopt", "weights-5.safetensors"):
        (tmp_path / name).touch()
    (tmp_path / "weights-best.safetensors").touch()
    made = save(tmp_path, read_manifest(agent), {"a": torch.zeros(2)})
    assert {path.name for path in tmp_path.iterdir()} == {made.weights, "weights-best.safetensors", "manifest.json"}
    assert len({path.stat().st_mode for path in tmp_path.iterdir()}) == 1


def test_a_run_does_not_go_on_by_other_prices(agent: Path, tmp_path: Path) -> None:
    shutil.copytree(agent, tmp_path / "copy")
    (tmp_path / "copy" / "prices.sqlite").write_text("damaged")
    with pytest.raises(CheckpointError, match=r"prices\.sqlite: not the prices"):
        resume(tmp_path / "copy", steps=1)
