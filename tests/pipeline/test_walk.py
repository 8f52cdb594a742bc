"""The walk of `optimize`: told as it is, and taken with settings as an object, as keywords, or both."""

from __future__ import annotations

import re
from importlib import import_module
from pathlib import Path

import onnx
import pytest
from onnx import TensorProto, helper

import graphopt
from graphopt.config import Settings, changed_settings

ROOT = Path(__file__).resolve().parents[2]


def test_the_seven_steps_of_the_map_exist():
    text = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    steps = re.findall(r"^\| (\d) \w+ \| (.+?) \|", text, re.MULTILINE)
    assert [number for number, _ in steps] == list("1234567")
    for _, places in steps:
        for place in re.findall(r"`([\w/]+)\.(\w+)`", places):
            module, name = place
            assert hasattr(import_module("graphopt." + module.replace("/", ".")), name), place


@pytest.fixture
def source(tmp_path):
    nodes = [helper.make_node("Identity", ["x"], ["a"]), helper.make_node("Erf", ["a"], ["y"])]
    info = [helper.make_tensor_value_info(n, TensorProto.FLOAT, ["n", 4]) for n in "xy"]
    graph = helper.make_graph(nodes, "g", info[:1], info[1:])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), tmp_path / "m.onnx")
    return tmp_path / "m.onnx"


def test_settings_as_an_object_and_as_keywords(source):
    settings = Settings(measure=False, strategy="greedy", rules=("identity",), dims={"n": 3})
    told = graphopt.optimize(source, settings).report
    assert told["strategy"] == "greedy" and told["latency"] is None
    other = graphopt.optimize(source, settings, strategy="backtracking", dims=None)
    assert other.report["strategy"] == "backtracking" and other.report["sizes"] == {"n": 1}
    assert other.trace.settings == changed_settings(
        settings, {"strategy": "auto", "dims": None, "measure": True}
    )  # what a trace holds; the rest stands for the default


def test_a_setting_that_does_not_exist_is_named(source):
    with pytest.raises(graphopt.UsageError, match="unknown setting 'thread'") as error:
        graphopt.optimize(source, thread=2)
    assert error.value.hint == "did you mean 'threads'?"
    with pytest.raises(graphopt.UsageError, match="threads must be a whole number"):
        graphopt.optimize(source, Settings(threads=-1))
    assert "threads: Threads within an operator; 0 for all cores" in Settings.__doc__


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"cost_model": "kernels"}, "cost model 'kernels'"),
        ({"cost_model": "operators"}, "cost model 'operators' needs prices"),
        ({"strategy": "beams"}, "strategy 'beams'"),
        ({"agent": "here"}, "an agent belongs to strategy rl or world-model, not to auto"),
    ],
)
def test_names_are_checked_against_the_tables(source, changes, message):
    with pytest.raises(graphopt.UsageError, match=message):
        graphopt.optimize(source, **changes)


def test_another_cost_model_prices_the_search(source):
    told = graphopt.optimize(source, cost_model="analytic", measure=False, rules=["identity"]).report
    assert told["steps"] and told["effort"]["kernels"]
