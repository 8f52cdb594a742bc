"""``graphopt evaluate-agent``: its files, its screen, Ctrl-C, and what it says to rubbish."""

from __future__ import annotations

import csv
import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch")
pytest.importorskip("torch_geometric")

ROOT = Path(__file__).resolve().parents[2]
TOY = ROOT / "tests" / "rl" / "toy" / "toy.yaml"
QUICK = ("--rollouts", "2", "--seconds", "0.3")


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A hardly trained agent; its held-out graph is the one that it was trained on."""
    from graphopt.rl.task import load_task
    from graphopt.rl.training.train import Run, train

    out = tmp_path_factory.mktemp("run") / "agent"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GRAPHOPT_CACHE_DIR", str(tmp_path_factory.mktemp("cache")))
        train(Run(load_task(TOY), out, preset="debug", steps=50))
    edit(out, lambda data: data["task"]["graphs"].update(held_out=data["task"]["graphs"]["train"]))
    return out


def edit(folder: Path, change) -> None:
    path = folder / "manifest.json"
    data = json.loads(path.read_text())
    change(data)
    path.write_text(json.dumps(data))


@pytest.fixture
def agent(trained, tmp_path) -> Path:
    shutil.copytree(trained, tmp_path / "agent")
    return tmp_path / "agent"


def test_files_screen_and_document(cli, agent, tmp_path, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    shutil.copytree(agent, tmp_path / "other")
    edit(tmp_path / "other", lambda data: data.update(algorithm="world-model", seed=7))
    done = cli(
        "evaluate-agent", "agent", "other", *QUICK, "--stages", "1,2,3", "--out", "found/deep", "--json", "e.json"
    )
    assert done.code == 0, done.err
    assert "Stage 2, many seeds: predicted saving in per cent" in done.out and "backtracking" in done.out
    assert "stage 3 (new shapes) is left out" in " ".join(done.out.split())
    wide = [line for line in done.out.splitlines() if len(line) > 80]
    assert all(line.startswith("Mean saving, and at equal budgets") for line in wide)  # a sentence, for no terminal
    assert "stage 2: model: world-model" in done.err and "written found/deep" in done.err
    folder = tmp_path / "found" / "deep"
    assert {path.name for path in folder.iterdir()} == {"index.html", "results.csv", "table.md", "curves.svg"}
    page = (folder / "index.html").read_text()
    assert "<title>Agents for task toy - graphopt</title>" in page and "data:image/svg+xml;base64," in page
    assert page.count("<h2>Stage ") == (folder / "table.md").read_text().count("\n### ") > 3
    told = json.loads((tmp_path / "e.json").read_text())
    with (folder / "results.csv").open(newline="") as file:
        lines = list(csv.DictReader(file))
    assert told["schema"] == "graphopt.evaluation/1" and len(lines) == len(told["scores"]) > 2 * 3 * 6
    assert [float(line["saving"]) for line in lines] == [score["saving"] for score in told["scores"]]
    assert {line["strategy"] for line in lines} == {
        "ppo", "world-model", "greedy", "backtracking 1", "backtracking 1.02", "backtracking 1.05", "backtracking 1.1", "random", "ils", "mcts",
        "untrained",
    }  # fmt: skip
    markdown = (folder / "table.md").read_text()
    assert "### world-model, equal seconds with training (" in markdown and "## Sample efficiency" in markdown
    assert [agent["seed"] for agent in told["agents"]] == [0, 7]

    again = cli("evaluate-agent", "agent", *QUICK, "--stages", "1", "--json", "-", "-q")
    assert again.code == 0 and json.loads(again.out)["task"] == "toy" and again.err == ""


@pytest.mark.skipif(os.name == "nt", reason="makes pipes")
def test_tables_are_shown_though_files_find_no_room(cli, agent, tmp_path):
    (tmp_path / "evaluation").mkdir()
    for name in ("evaluation/results.csv", "evaluation/index.html", "e.json"):
        os.mkfifo(tmp_path / name)
    done = cli("evaluate-agent", "agent", *QUICK, "--stages", "1,2", "--json", "e.json")
    assert "Stage 2, many seeds: predicted saving in per cent" in done.out and done.code == 1
    assert [line for line in done.err.splitlines() if line.startswith("error: ")] == [
        f"error: {name}: can't be written: nobody reads from it"
        for name in ("e.json", "evaluation/results.csv", "evaluation/index.html")
    ]
    assert "## Stage 2" in (tmp_path / "evaluation/table.md").read_text() and "written evaluation" not in done.err


def test_ctrl_c_keeps_what_was_found(agent, tmp_path):
    command = [sys.executable, "-m", "graphopt", "evaluate-agent", "agent", *QUICK, "--stages", "5", "--seeds", "1"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    with subprocess.Popen(
        [*command, "--measure", "600"],
        cwd=tmp_path,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stderr is not None
        for line in process.stderr:
            if "measuring" in line:
                break
        process.send_signal(signal.SIGINT)
        out, rest = process.communicate(timeout=60)
    assert process.returncode == 0, rest
    assert "stopping with what was found so far" in rest and "ended early" in out
    text = (tmp_path / "evaluation" / "table.md").read_text()
    assert (
        "the evaluation was ended early" in text and "## Stage 5: unseen families" in text and "## Measured" not in text
    )


def test_ctrl_c_before_anything_was_found_leaves_what_there_was(cli, agent, tmp_path, monkeypatch):
    monkeypatch.setattr("graphopt.cli.progress.Interrupt.__call__", lambda interrupt: True)
    assert cli("evaluate-agent", "agent", *QUICK, "--out", "new/deep").code == 130
    assert not (tmp_path / "new").exists()
    earlier = {"results.csv": "stage,model\n", "table.md": "found earlier"}
    (tmp_path / "old").mkdir()
    for name, text in earlier.items():
        (tmp_path / "old" / name).write_text(text)
    assert cli("evaluate-agent", "agent", *QUICK, "--out", "old").code == 130
    assert {path.name: path.read_text() for path in (tmp_path / "old").iterdir()} == earlier


def test_nothing_of_others_is_overwritten(cli, agent, tmp_path):
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "index.html").write_text("theirs")
    outcome = cli("evaluate-agent", "agent", *QUICK, "--stages", "1", "--out", "site")
    assert outcome.code == 2
    assert outcome.error_lines()[0] == "error: site/index.html is there and not of an evaluation"
    (tmp_path / "evaluation").mkdir()
    outcome = cli("evaluate-agent", "agent", *QUICK, "--stages", "1", "--json", "evaluation/table.md")
    assert outcome.code == 2
    assert "evaluation/table.md is to hold table.md of the evaluation as well" in outcome.error_lines()[0]
    model = tmp_path / "model.onnx"
    model.write_bytes((TOY.parent / "model.onnx").read_bytes())
    edit(agent, lambda data: data["task"]["graphs"].update(train=[{"model": str(model), "dims": {}}]))
    outcome = cli("evaluate-agent", "agent", *QUICK, "--stages", "1", "--json", "model.onnx")
    assert outcome.code == 2 and "is the model" in outcome.error_lines()[0]
    assert [path.name for path in (tmp_path / "site").iterdir()] == ["index.html"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("nowhere",), "error: nowhere: no agent"),
        (("agent", "agent"), "error: agent is given twice"),
        (("agent", "unlike"), "error: agent and unlike have learned different tasks: they differ in budget"),
        (("bare",), "error: bare: encoder.onnx is missing"),
        (("lost",), "error: gone.onnx: neither a file nor a model of the zoo"),
        (("damaged",), "error: damaged/progress.csv: not the progress of a training run"),
        (("agent", "--stages", "6"), "error: no stage 6"),
        (("agent", "--stages", "one"), "error: --stages must be numbers with commas"),
        (("agent", "--stages", "3"), "error: task toy has no graph for these stages"),
        (("agent", "--stages", "1", "--measure", "1"), "error: --measure is for the unseen families"),
        (("agent", "--measure", "nan"), "error: --measure must be above 0"),
        (("agent", "--seeds", "0"), "error: --seeds must be at least 1"),
        (("agent", "--rollouts", "-1"), "error: --rollouts must be at least 0"),
        (("agent", "--seconds", "0"), "error: --seconds must be above 0"),
        (("agent", "--out", "file/found"), "error: file/found: can't be made"),
        (("agent", "--json", "none/e.json"), "error: no such folder: none"),
        ((), "error: missing argument"),
    ],
)
def test_what_makes_no_sense_is_one_line(cli, agent, tmp_path, arguments, message):
    (tmp_path / "file").touch()
    for name in ("unlike", "bare", "lost", "damaged"):
        if name in arguments:
            shutil.copytree(agent, tmp_path / name)
    if "unlike" in arguments:
        edit(tmp_path / "unlike", lambda data: data["task"].update(budget=9))
    if "bare" in arguments:
        (tmp_path / "bare" / "encoder.onnx").unlink()
    if "lost" in arguments:
        edit(
            tmp_path / "lost", lambda data: data["task"]["graphs"].update(held_out=[{"model": "gone.onnx", "dims": {}}])
        )
    if "damaged" in arguments:
        (tmp_path / "damaged" / "progress.csv").write_text("steps,best\nmany,1\n")
    outcome = cli("evaluate-agent", *arguments)
    assert outcome.code in (1, 2)
    assert outcome.error_lines()[0].lower().startswith(message.lower())
    assert not (tmp_path / "evaluation").exists()
