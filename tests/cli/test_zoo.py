"""`graphopt zoo`: what there is, and files on disk."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path

import onnx
import pytest

from graphopt import zoo


def test_list(cli):
    outcome = cli("zoo", "list")
    assert outcome.code == 0
    assert not outcome.err
    assert all(name in outcome.out for name in zoo.names())
    document = json.loads(cli("zoo", "list", "--json", "-").out)
    assert document["schema"] == "graphopt.zoo/1"
    assert [model["name"] for model in document["models"]] == zoo.names()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["resnet51"], "resnet51"),
        (["resnet50@layer=3"], "layer"),
        (["resnet50@size=big"], "size=big"),
        (["resnet50", "--exporter", "jax"], "jax"),
        (["resnet50", "bert"], "bert"),
        (["resnet50", "--seed", "-1"], "--seed must be a whole number of at least 0, not -1"),
    ],
)
def test_wrong_names(cli, tmp_path, arguments, message):
    outcome = cli("zoo", "build", *arguments, "--out", ".")
    assert outcome.code == 2
    assert message in outcome.error_lines()[0]
    assert not list(tmp_path.iterdir())


def test_a_file_is_no_folder_to_build_in(cli, model):
    outcome = cli("zoo", "build", "tiny_bert", "--out", model)
    assert outcome.code == 2 and outcome.error_lines() == [f"error: {model} is not a folder"]


def test_without_torch(cli, monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    outcome = cli("zoo", "build", "tiny_bert", "--out", ".")
    assert outcome.code == 2
    assert outcome.error_lines() == ["error: torch is not installed", "hint: pip install '.[zoo]' in graphopt's folder"]


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("torchvision") is None, reason="needs the zoo extra")
def test_build_prints_where_the_file_is(cli, tmp_path):
    outcome = cli("zoo", "build", "tiny_resnext", "--exporter", "legacy", "--out", tmp_path / "models")
    assert outcome.code == 0, outcome.err
    path = Path(outcome.out.strip())
    assert path.parent == tmp_path / "models"
    assert onnx.load(path).graph.node
