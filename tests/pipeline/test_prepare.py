"""What a budget in seconds leaves for search and measurement, and when it is said that it can't be held."""

from __future__ import annotations

import time
import warnings

import numpy as np
import onnx
import pytest
from onnx import helper

import graphopt
from graphopt.config import Settings
from graphopt.pipeline.prepare import BudgetWarning, _foresee, _left
from tests.runtime.models import F, placeholder, proto
from tests.test_api import grouped


@pytest.mark.parametrize(
    ("budget", "spent", "opening", "run", "left", "said"),
    [
        (10.0, 2.0, 0.01, 0.01, 8.0, ""),
        (10.0, 8.0, 0.01, 0.01, 5.0, "up to 13 s are expected (8.0 s to read it"),
        (2.0, 1.0, 2.4, 0.05, 2.0, "up to 38 s are expected (1.0 s to read it and run it once, 2.4 s to open it"),
        (60.0, 1.0, 0.5, 0.01, 59.0, ""),
    ],
)  # fmt: skip
def test_what_a_budget_leaves(budget, spent, opening, run, left, said):
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        assert _left(Settings(budget=budget), spent, opening, run, told=False) == left
    assert [said in str(w.message) for w in told] == ([True] if said else [])
    assert _left(Settings(), 100.0, 100.0, 100.0, told=False) is None
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # once is enough
        _left(Settings(budget=budget), spent, opening, run, told=True)


def test_a_budget_that_is_far_too_short_is_told_before_anything_that_takes_long(tmp_path):
    nodes = [helper.make_node("Tanh", [f"t{i}"], [f"t{i + 1}"]) for i in range(5000)]
    onnx.save(proto(nodes, [("t0", F, [4])], [("t5000", F, [4])]), tmp_path / "chain.onnx")
    began, heard = time.monotonic(), list[float]()
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        graphopt.optimize(
            tmp_path / "chain.onnx", budget=0.5, measure=False, strategy="none",
            progress=lambda p: heard.append(time.monotonic() - began if told else 0.0),
        )  # fmt: skip
    assert [w.category for w in told] == [BudgetWarning]
    assert "0.5 s is too short for a model of 5000 nodes: up to 2 s are expected, 2 s of them to read it" in str(
        told[0].message
    )
    assert len([t for t in heard if not t]) == 2  # the rules, the model: then it was told


def test_bytes_are_foreseen_as_well():
    model = proto([helper.make_node("Add", ["x", "w"], ["y"])], [("x", F, [1])], [("y", F, [10**9])])
    model.graph.initializer.append(placeholder("w", F, [10**9]))
    with pytest.warns(BudgetWarning, match=r"1 node and 4\.0 GB: up to 34 s"):
        assert _foresee(Settings(budget=10.0), model)
    assert not _foresee(Settings(budget=40.0), model) and not _foresee(Settings(), model)


def test_a_budget_that_is_too_short_is_told_at_once(tmp_path):
    source = grouped(tmp_path / "m.onnx")
    heard: list[str] = []
    with pytest.warns(BudgetWarning, match=r"a budget of 0\.02 s is too short .* expected") as told:
        graphopt.optimize(source, budget=0.02, progress=lambda p: heard.append(f"{len(told)} {p.message}"))
    assert len(told) == 1
    assert next(line for line in heard if "pricing" in line).startswith("1 ")


def test_images_for_which_there_is_not_the_memory_become_smaller():
    """What the model makes has the size of an image to the third power: 500 TB of 224 x 224, 64 MiB of 16 x 16."""
    nodes = [
        helper.make_node("Size", ["x"], ["n"]),
        helper.make_node("Reshape", ["n", "one"], ["n1"]),
        helper.make_node("Concat", ["n1", "n1", "n1"], ["cube"], axis=0),
        helper.make_node("ReduceMax", ["x"], ["most"], keepdims=0),
        helper.make_node("Expand", ["most", "cube"], ["large"]),
        helper.make_node("ReduceMax", ["large"], ["m"], keepdims=0),
        helper.make_node("Identity", ["m"], ["y"]),
    ]
    model = proto(nodes, [("x", F, [1, 1, "H", "W"])], [("y", F, [])], {"one": np.array([1])})
    report = graphopt.optimize(model, strategy="none", measure=False).report
    assert report["sizes"] == {"H": 16, "W": 16} and report["sizes_assumed"] == ["H", "W"]
    assert {"H": 16, "W": 16} in report["verified"]["sizes"]
