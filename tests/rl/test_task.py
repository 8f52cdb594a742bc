"""Tasks are read strictly, with file, line and column of what is wrong."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from graphopt.errors import UnknownNameError
from graphopt.rl.task import Source, TaskError, load_task, parse_task, shipped


@pytest.mark.parametrize("name", sorted(shipped()))
def test_shipped_tasks_load_and_survive_json(name: str) -> None:
    task = load_task(name)
    assert task.name == name and task.doc and task.graphs.train
    assert parse_task(json.dumps(task.json()), "manifest") == task


@pytest.mark.parametrize(
    ("text", "message", "hint"),
    [
        ("name: x\nreword: []", "t.yaml:2:1: unknown key 'reword'", "did you mean 'reward'?"),
        ("doc: x", "t.yaml:1:1: 'name' is missing", None),
        ("name: x\nbudget: ten", "t.yaml:2:9: expected a whole number of at least 1, not 'ten'", None),
        ("name: x\nbudget: 0", "t.yaml:2:9: expected a whole number", None),
        ("name: x\nreward: [{term: speed}]", "t.yaml:2:17: 'speed' is none of cost", "known"),
        ("name: x\nreward: []", "t.yaml:2:9: expected at least one term", "known"),
        ("name: x\nreward: [{term: cost, weight: .nan}]", "t.yaml:2:31: expected a number", None),
        ("name: x\nreward: [{term: cost, weight: nan}]", "t.yaml:2:31: expected a finite number", None),
        ("name: x\nreward: [{weight: 1}]", "t.yaml:2:10: 'term' is missing", None),
        ("name: x\nfeatures: {node: [operator, prize]}", "t.yaml:2:29: 'prize' is none of", "did you mean 'price'?"),
        ("name: x\nfeatures: {node: [price, price]}", "t.yaml:2:18: a name is given twice", None),
        ("name: x\nactions: {places: klass}", "t.yaml:2:19: 'klass' is none of", "did you mean 'class'?"),
        ("name: x\nactions: {revisit: maybe}", "t.yaml:2:20: 'maybe' is none of true, false", "known"),
        ("name: x\nname: y", "t.yaml:2:1: 'name' is given twice", None),
        ("name: x\ngraphs: {train: squeezenet}", "t.yaml:2:17: expected a list", None),
        ("name: x\ngraphs: {train: [{dims: {n: 1}}]}", "t.yaml:2:18: 'model' is missing", None),
        ("name: [x", "t.yaml:2:1: not valid YAML", None),
        ("- x", "t.yaml:1:1: expected 'name: value' lines", None),
        ("", "t.yaml", None),
    ],
)
def test_mistakes_are_named_with_their_place(text: str, message: str, hint: str | None) -> None:
    with pytest.raises(TaskError) as caught:
        parse_task(text, "t.yaml")
    assert str(caught.value).startswith(message)
    assert (hint is None) or (caught.value.hint or "").startswith(hint)


def test_paths_are_relative_to_the_file_and_names_are_not(tmp_path: Path) -> None:
    text = "name: x\nrules: [own.yaml, conv]\ngraphs: {train: [a.onnx, bert_base, {model: b.onnx, dims: {n: 2}}]}"
    (tmp_path / "t.yaml").write_text(text)
    task = load_task(tmp_path / "t.yaml")
    assert task.rules == (str(tmp_path / "own.yaml"), "conv")
    assert [s.model for s in task.graphs.train] == [str(tmp_path / "a.onnx"), "bert_base", str(tmp_path / "b.onnx")]
    assert task.graphs.train[2].name == "b,n=2"


def test_a_task_means_the_same_files_wherever_one_goes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "tasks").mkdir()
    (tmp_path / "tasks" / "t.yaml").write_text("name: x\nrules: [own.yaml]\ngraphs: {train: [a.onnx]}")
    monkeypatch.chdir(tmp_path)
    assert load_task("tasks/t.yaml") == load_task(tmp_path / "tasks" / "t.yaml")


def test_stages_add_graphs() -> None:
    graphs = parse_task(
        "name: x\ngraphs: {train: [a], shapes: [b], family: [c], held_out: [d], stage: shapes}", "t"
    ).graphs
    assert graphs.pool == (Source("a"), Source("b")) and graphs.warm_up == 4
    assert parse_task("name: x\ngraphs: {train: [a], shapes: [b]}", "t").graphs.pool == (Source("a"),)


def test_tasks_that_do_not_exist(tmp_path: Path) -> None:
    with pytest.raises(UnknownNameError, match="unknown task 'cots'"):
        load_task("cots")
    with pytest.raises(TaskError, match="can't be read"):
        load_task(tmp_path / "none.yaml")
    (tmp_path / "binary.yaml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(TaskError, match="not UTF-8"):
        load_task(tmp_path / "binary.yaml")
