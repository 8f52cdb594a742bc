"""The staged protocol: what is compared with what, how runs are pooled, and what learning curves say."""

from __future__ import annotations

import csv
import shutil
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from graphopt.benchmark.agents import time_agents
from graphopt.cost.store import Store
from graphopt.errors import UsageError
from graphopt.report.evaluation import summary, to_csv, to_markdown
from graphopt.report.plots import draw_curves
from graphopt.rl.evaluation.graph_runs import UNTRAINED, Agent, GraphRuns, SearchRun, searches
from graphopt.rl.evaluation.learning_curves import Learning, curves, reaches, read_learning
from graphopt.rl.evaluation.protocol import EvaluationPlan, Evaluator, read_agents
from graphopt.rl.evaluation.scores import BUDGETS, OWN, STEPS, TRAINING, Evaluation, Score, Section, Trained, estimate
from graphopt.rl.manifest import PRICES, CheckpointError, read_manifest
from graphopt.rl.task import Source, Task
from graphopt.rl.task_environment import TaskEnvironment
from graphopt.runtime import guard
from graphopt.runtime.environment import machine_of
from graphopt.runtime.session import SessionConfig
from tests.rl.conftest import DEMO

QUICK = EvaluationPlan(stages=(1, 2), seeds=5, rollouts=2, cap=0.5)

SEARCHES, CHANCE = ([rival.label for rival in searches(chance=chance)] for chance in (False, True))


@pytest.fixture(scope="module")
def folders(toy: Task, tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Two agents of the toy task that learned for a moment."""
    pytest.importorskip("torch")
    pytest.importorskip("torch_geometric")
    from graphopt.rl.training.train import train
    from graphopt.rl.training.training_run import Run

    out = tmp_path_factory.mktemp("agents")
    for seed in (1, 2):
        train(Run(toy, out / f"s{seed}", preset="debug", steps=60, seed=seed))
    return [out / "s1", out / "s2"]


def evaluated(evaluator: Evaluator) -> Evaluation:
    return list(evaluator.run())[-1]


# -- the protocol ---------------------------------------------------------------------------------------------------


def test_searches_get_what_the_agent_used(folders: list[Path]) -> None:
    told: list[str] = []
    evaluator = Evaluator(read_agents(folders), QUICK, told.append)
    found = evaluated(evaluator)
    assert len(told) == evaluator.size == 2 * (1 + len(BUDGETS))
    assert {s.stage for s in found.scores} == {1, 2}
    ours = [s for s in found.scores if s.budget == OWN and s.stage == 2]
    assert [(Path(s.run).name, s.seed) for s in ours] == [
        ("s1", 0),
        ("s1", 1),
        ("s1", 2),
        ("s2", 3),
        ("s2", 4),
        ("s2", 5),
    ]
    for section in found.sections():
        assert section.strategies == ["ppo", *SEARCHES, *CHANCE, UNTRAINED]
        for name in ("ppo", *CHANCE, UNTRAINED):
            assert len(section.of(name, "model")) == (1 if section.stage == 1 else 6)
        assert all(len(section.of(name, "model")) == 1 for name in SEARCHES)
    steps = [s for s in found.scores if s.budget == STEPS and s.stage == 2]
    mean = sum(max(s.candidates, s.steps or 0) for s in ours) / len(ours)
    assert [s.strategy for s in steps if s.allowed is None] == ["greedy"]
    assert all(mean <= s.allowed < mean + 1 and s.candidates <= s.allowed for s in steps if s.allowed is not None)
    assert all(3 <= (s.steps or 0) <= 3 * 8 for s in ours)  # three episodes of at most eight steps

    # The toy's cheapest form lies behind a step that costs five per cent: only a search that lets it pass gets there.
    alone = {(s.strategy, s.budget): s.saving for s in found.scores if s.stage == 2 and s.seed is None}
    assert alone["greedy", STEPS] == pytest.approx(10) and alone["backtracking 1", TRAINING] == pytest.approx(10)
    assert alone["backtracking 1.1", TRAINING] > 14
    assert all(s.saving <= 25 + 1e-9 for s in found.scores)
    assert found.graphs == 1 and found.training_seconds("ppo") > 0 and not found.notices and not found.interrupted


def test_the_same_seeds_give_the_same_scores(folders: list[Path]) -> None:
    one, two = (evaluated(Evaluator(read_agents(folders[:1]), replace(QUICK, stages=(1,)))) for _ in range(2))
    assert [s.saving for s in one.scores if s.budget in (OWN, STEPS)] == [
        s.saving for s in two.scores if s.budget in (OWN, STEPS)
    ]


def test_the_seconds_of_an_agent_are_without_the_start_of_the_process_that_runs_it(
    folders: list[Path], toy_environment: TaskEnvironment, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[object] = []
    spawn = guard.spawn
    monkeypatch.setattr(guard, "spawn", lambda *told, **how: started.append(told) or spawn(*told, **how))
    guard._end()  # as in a command that has just begun
    runs = GraphRuns("toy", toy_environment.problem, toy_environment.start, 2, lambda: False)
    assert len(started) == 1
    score = runs.agent(1, read_agents(folders[:1])[0], 0)
    assert score is not None and len(started) == 1


def test_an_interruption_keeps_what_there_is(folders: list[Path]) -> None:
    told: list[str] = []
    evaluator = Evaluator(read_agents(folders[:1]), QUICK, told.append, lambda: len(told) >= 2)
    found = evaluated(evaluator)
    assert found.interrupted and {s.strategy for s in found.scores if s.stage == 1} == {
        "ppo",
        *SEARCHES,
        *CHANCE,
        UNTRAINED,
    }
    assert {s.budget for s in found.scores} == {OWN, STEPS}
    assert "ended early" in to_markdown(found) and len(to_csv(found).splitlines()) == 1 + len(found.scores)


def with_graphs(folder: Path, **graphs: object) -> list[Agent]:
    manifest = read_manifest(folder)
    task = replace(manifest.task, graphs=replace(manifest.task.graphs, **graphs))
    return [Agent(folder, replace(manifest, task=task))]


def test_stages_without_graphs_and_known_graphs_are_told(folders: list[Path]) -> None:
    agents = with_graphs(folders[0], held_out=(Source(str(DEMO)),), shapes=(Source(str(DEMO)),), stage="shapes")
    evaluator = Evaluator(agents, replace(QUICK, stages=(3, 4, 5)))
    assert set(evaluator.stages) == {3, 5} and list(evaluator.sources) == ["demo_regnet"]
    notices = evaluator.found.notices
    assert "stage 4 (new graphs of the families) is left out: the task names no graph for it" in notices
    assert any(n.startswith("stage 3 (new shapes) is not new to the agents") for n in notices)


def test_a_graph_that_cannot_be_loaded_is_left_out(folders: list[Path], tmp_path: Path) -> None:
    broken = tmp_path / "broken.onnx"
    broken.write_bytes(b"junk")
    task = read_manifest(folders[0]).task
    plan = replace(QUICK, stages=(2, 5))
    found = evaluated(Evaluator(with_graphs(folders[0], held_out=(Source(str(broken)),)), plan))
    assert {s.model for s in found.scores} == {task.graphs.train[0].name}
    assert any(n.startswith("broken was left out: ") for n in found.notices)
    with pytest.raises(UsageError, match=r"gone\.onnx"):
        Evaluator(with_graphs(folders[0], held_out=(Source("gone.onnx"),)), plan)
    with pytest.raises(UsageError, match="no graph for these stages"):
        Evaluator(read_agents(folders[:1]), replace(QUICK, stages=(5,)))


def test_plans_are_measured_against_auto(folders: list[Path], toy: Task) -> None:
    (timing,) = time_agents(toy, toy.graphs.train[0], {"ppo": folders[0]}, None, 0.2, rollouts=2)
    assert timing.model == "model" and timing.seconds > 0 and timing.auto_seconds > 0
    for ratio in (timing.speedup, timing.auto, timing.over_auto):
        assert 0 < ratio.low <= ratio.value <= ratio.high
    assert time_agents(toy, toy.graphs.train[0], {"ppo": folders[0]}, None, 0.2, interrupted=lambda: True) == []
    found = Evaluation("toy", (Trained("a", "ppo", 0, 1, 1.0),), timings=(timing, timing))
    ((name, means, times),) = found.timing_means()
    assert (
        name == "ppo" and means[0] == pytest.approx(timing.speedup.value) and times[0] == pytest.approx(timing.seconds)
    )
    assert f"**{means[2]:.3f}**" in to_markdown(found)


def test_a_run_stands_for_another_only_if_its_budget_made_no_difference() -> None:
    cut = SearchRun(100, None, False, 1.0, 100, 2.0, "candidate budget used up")
    assert cut.stands_for(100, None) and not cut.stands_for(200, None) and not cut.stands_for(None, 50.0)
    free = replace(cut, ended=True, candidates=30)
    assert free.stands_for(200, None) and free.stands_for(None, 50.0)
    assert not free.stands_for(50, None) and not free.stands_for(None, 5.0)
    felt = replace(free, candidates=80)  # perhaps a round of it was cut short
    assert not felt.stands_for(2000, None) and not felt.stands_for(None, 500.0)


def test_runs_have_other_prices_where_a_kernel_has(folders: list[Path], tmp_path: Path) -> None:
    here = machine_of(SessionConfig(threads=1))
    agents = []
    for folder, speedup in zip(folders, (1.1, 1.2), strict=True):
        copied = shutil.copytree(folder, tmp_path / folder.name)
        manifest = read_manifest(copied)
        task = replace(manifest.task, pricing=replace(manifest.task.pricing, model="kernel", prices={}))
        agents.append(Agent(copied, replace(manifest, task=task)))
        with Store(copied / PRICES) as store:
            store.put_many(here, {"speedup:1:2": speedup})  # of whole graphs, where the reward measured them
    evaluator = Evaluator(agents, QUICK)
    assert evaluator.prices is None and any("holds kernel prices" in n for n in evaluator.found.notices)
    for agent in agents:
        with Store(agent.folder / PRICES) as store:
            store.put_many(here, {"kernel": 1.0})
    evaluator = Evaluator(agents, QUICK)
    assert evaluator.prices == agents[0].folder / PRICES and not evaluator.found.notices
    with Store(agents[1].folder / PRICES) as store:
        store.put_many(here, {"another": 1.0})
    assert any("was trained with other prices" in n for n in Evaluator(agents, QUICK).found.notices)


# -- statistics -----------------------------------------------------------------------------------------------------


def score(strategy: str, saving: float, *, model: str = "m", run: str = "", seed: int | None = 0) -> Score:
    budget = OWN if run else STEPS
    return Score(
        2, model, strategy, "ppo", budget, run, seed, saving, 10, 5 if run else None, 1.0, None if run else 10.0, "",
        saving - 1.5 if run else None,
    )  # fmt: skip


def test_intervals_are_over_training_runs() -> None:
    found = estimate([1.0, 2.0, 3.0])
    assert found is not None and found.mean == 2 and found.high - 2 == pytest.approx(4.303 / 3**0.5)
    assert estimate([]) is None and estimate([3.0]) == estimate([3.0]) and estimate([3.0]).low == 3.0  # type: ignore[union-attr]

    seeds = [score("ppo", value, run="a", seed=i) for i, value in enumerate((1.0, 3.0))]
    one = Section(2, "ppo", STEPS, seeds).saving("ppo", "m")
    assert one is not None and (one.mean, one.count) == (2.0, 2)
    more = [score("ppo", value, run="b", seed=i) for i, value in enumerate((5.0, 7.0))]
    two = Section(2, "ppo", STEPS, [*seeds, *more]).saving("ppo", "m")
    assert two is not None and (two.mean, two.count) == (4.0, 2) and two.low < 2  # of 2 and 6, not of four values


def test_an_agent_is_counted_against_the_best_of_a_kind() -> None:
    scores = [
        score("ppo", 5.0, run="a"), score("ppo", 5.0, run="a", model="n"),
        score("backtracking 1", 4.0, seed=None), score("backtracking 1.1", 6.0, seed=None),
        score("backtracking 1", 5.005, seed=None, model="n"), score("backtracking 1.1", 3.0, seed=None, model="n"),
    ]  # fmt: skip
    section = Section(2, "ppo", STEPS, scores)
    assert section.rivals == {"backtracking": ["backtracking 1", "backtracking 1.1"]}
    assert section.at_least("backtracking 1") == (2, 2) and section.at_least(*section.rivals["backtracking"]) == (1, 2)
    assert section.mean("backtracking 1.1") == estimate([4.5]) and section.allowed("m") == 10
    assert section.mean("greedy") is None
    found = Evaluation("t", (Trained("a", "ppo", 0, 7, 1.0),), tuple(scores))
    heads, ((stage, agent, saves, steps, *_),) = summary(found)
    assert (stage, agent, saves, steps) == ("2", "ppo", "5.00", "1/2") and heads[3] == "real steps"
    assert "| m | 5 | 10 | 5.00 | 3.50 | 4.00 | **6.00** |" in to_markdown(found)


def test_a_graph_named_like_a_formula_is_text_in_a_table() -> None:
    found = Evaluation("t", (), (score("ppo", -5.0, model="=1+1", run="@a"),))
    (row,) = csv.DictReader(to_csv(found).splitlines())
    assert (row["model"], row["run"], row["saving"]) == ("'=1+1", "'@a", "-5.0")


# -- learning curves ------------------------------------------------------------------------------------------------


def run(algorithm: str, pace: int, top: float = 10.0) -> Learning:
    """One that gains linearly until it is at the top."""
    steps = list(range(pace, 21 * pace, pace))
    return Learning(algorithm, steps, {"best": [min(top, top * i / 10) for i in range(1, 21)]})


def test_curves_and_when_an_algorithm_is_as_good_as_ppo() -> None:
    runs = [run("ppo", 100), run("ppo", 100, 10.0), run("world-model", 10), run("world-model", 10, 11.0)]
    ppo, world = curves(runs)
    assert (ppo.algorithm, ppo.runs, world.runs) == ("ppo", 2, 2)
    assert ppo.points[0][0] == 100 and ppo.points[-1] == (2000, estimate([10.0, 10.0]))
    assert world.points[-1][1].mean == pytest.approx(10.5)
    itself, faster = reaches(runs)
    assert (itself.steps, itself.fewer.value, itself.target) == (1000, 1.0, 10.0)
    assert faster.steps == 100 and faster.fewer.value == 10.0 and faster.reached == faster.runs == 2
    assert faster.fewer.low <= 10 <= faster.fewer.high
    (_, never) = reaches([run("ppo", 100), run("world-model", 10, 5.0)])
    assert never.steps is None and never.fewer.value == 0 and never.reached == 0
    assert reaches([run("world-model", 10)]) == []


def test_progress_is_read_with_a_column_for_each_model_where_there_is_one(tmp_path: Path) -> None:
    assert read_learning(tmp_path, "ppo") is None
    rows = [
        {"iteration": i, "steps": 10 * i, "return": 0, "saving": i, "best": i, "best/net": "" if i == 1 else 2 * i}
        for i in range(1, 31)
    ]
    with (tmp_path / "progress.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    learning = read_learning(tmp_path, "ppo")
    assert learning is not None and set(learning.columns) == {"saving", "best", "best/net"}
    assert learning.columns["saving"][-1] == pytest.approx(25.5)  # mean of the last ten
    assert learning.at("best", 5) == 1 and learning.at("best", 25) == 2 and learning.at("best/net", 10) == 0
    (tmp_path / "progress.csv").write_text("steps,best\nmany,1\n")
    with pytest.raises(CheckpointError, match="not the progress of a training run"):
        read_learning(tmp_path, "ppo")


@pytest.mark.parametrize("value", [lambda i: 0.0, lambda i: -300.0 + i, lambda i: 5.0 * i], ids=["zero", "bad", "good"])
def test_curves_are_drawn_whatever_they_show(value: Callable[[int], float], tmp_path: Path) -> None:
    names = [f"<{i}>" for i in range(7)]
    runs = [
        Learning(
            name,
            [10 * k for k in range(1, 6)],
            {m: [value(k) for k in range(5)] for m in ("saving", "best", "best/a&b")},
        )
        for name in names * 2
    ]
    tree = ElementTree.fromstring(draw_curves(curves(runs)))
    space = {"s": "http://www.w3.org/2000/svg"}
    lines = tree.findall(".//s:g[@clip-path]/s:path[@class='line']", space)
    assert len(lines) == 3 * len(names) and len(tree.findall(".//s:path[@class='band']", space)) == len(lines)
    texts = [t.text or "" for t in tree.findall(".//s:text", space)]
    assert "a&b: best saving, %" in texts and any(t.startswith("<6>, 2 runs") for t in texts)
    assert not any("nan" in str(p.get("d")) or "inf" in str(p.get("d")) for p in tree.findall(".//s:path", space))
