"""The page that an optimisation writes: what it claims, and that it claims no more than was measured."""

from __future__ import annotations

import dataclasses
import json
import re
from pathlib import Path

import onnx
import pytest
from onnx import TensorProto, helper

import graphopt
from graphopt.report.optimization import environment_of, subject_of
from graphopt.runtime.timing import Paired, Ratio
from tests.test_api import grouped


def page(path: Path) -> tuple[str, dict]:
    """The text of a page's head, and the data of its only subject."""
    text = path.read_text(encoding="utf-8")
    (summary,) = re.findall(r'<p class="summary">(.*?)</p>', text, re.DOTALL)
    (data,) = re.findall(r'<script type="application/json" id="data">(.*?)</script>', text, re.DOTALL)
    (subject,) = json.loads(data)["subjects"]
    return summary, subject


@pytest.fixture
def source(tmp_path, fresh_cache, monkeypatch):
    monkeypatch.setenv("GRAPHOPT_CACHE_DIR", str(fresh_cache))  # made-up measurements are learnt from, too
    return grouped(tmp_path / "m.onnx")


def optimise(source, **options):
    target = source.with_name("page.html")
    result = graphopt.optimize(source, rules=["grouped-conv"], report=target, budget=1, **options)
    return result.report, *page(target)


def test_measured(source):
    told, summary, subject = optimise(source)
    latency = told["latency"]
    for text in (
        f"{latency['speedup']:.3f} times as fast", f"{latency['ci95'][0]:.3f} to {latency['ci95'][1]:.3f}",
        f"{latency['rounds']} rounds", "ORT_ENABLE_ALL", "cpu provider", "1 thread", told["environment"]["onnxruntime"],
        "Outputs agree on 3 sets of inputs",
    ):  # fmt: skip
        assert text in summary, text
    original, other = subject["variants"]
    assert original["count"] == other["count"] == latency["rounds"]
    assert original["operators"] and other["operators"]
    assert other["ratio"] == pytest.approx([latency["speedup"], *latency["ci95"]], rel=1e-5)
    # Every step leads to the place that it changed.
    rows = subject["steps"]["rows"]
    assert len(rows) == len(told["steps"]) == 3
    assert sorted(row[4] for row in rows) == [0, 1, 2]
    for curve in subject["curves"]:
        costs = [cost for _, cost in curve["points"]]
        assert costs == sorted(costs, reverse=True) and curve["seconds"] >= curve["points"][-1][0]


def test_not_measured(source):
    told, summary, subject = optimise(source, measure=False)
    assert "not measured: every gain on this page is predicted" in summary
    assert subject["variants"] == [] and len(subject["graph"]["changes"]) == 3
    # From the price of the original to that of the last step.
    (curve,) = subject["curves"]
    assert curve["points"][0][1] == pytest.approx(told["steps"][0]["cost_before"], rel=1e-5)
    assert curve["points"][-1][1] == pytest.approx(told["steps"][-1]["cost_after"], rel=1e-5)


def test_measured_and_kept(source, monkeypatch):
    monkeypatch.setattr(
        "graphopt.pipeline.judge.verdict", lambda *_: Paired(4.0, 3.9, Ratio.of(1.01, (0.99, 1.03)), 20, 4)
    )
    told, summary, subject = optimise(source)
    assert told["kept_original"]
    assert "is kept as it is, because the best candidate ran 1.010 times as fast" in summary
    assert "not surely faster" in summary
    # What was tried is shown, and called what it is.
    assert subject["graph"]["names"] == ["original", "candidate, not written"]
    assert subject["variants"][1]["verdict"] == "equal" and len(subject["graph"]["changes"]) == 3


def test_noise_is_called_noise(source, monkeypatch):
    monkeypatch.setattr(
        "graphopt.pipeline.judge.verdict", lambda *_: Paired(4.0, 2.9, Ratio.of(1.58, (0.94, 2.67)), 20, 4)
    )
    told, summary, subject = optimise(source)
    assert told["kept_original"] and told["latency"]["verdict"] == subject["variants"][1]["verdict"] == "unclear"
    assert "which is too noisy to tell" in summary
    (warning,) = (each for each in told["warnings"] if "the machine" in each)  # it may speak of other programs as well
    assert "too noisy to tell: the best candidate measured 1.58x (0.94 to 2.67)" in warning and "--budget" in warning
    # The pair beside a ratio divides to it.
    assert told["latency"]["baseline_ms"] / told["latency"]["optimized_ms"] == pytest.approx(1.58)


def test_nothing_found(tmp_path):
    info = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [3]) for n in "xy"]
    graph = helper.make_graph([helper.make_node("Erf", ["x"], ["y"])], "g", info[:1], info[1:])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), tmp_path / "m.onnx")
    told, summary, subject = optimise(tmp_path / "m.onnx")
    assert told["kept_original"] and "nothing was measured" in summary
    assert subject["graph"]["changes"] == [] and subject["curves"] == [] and subject["variants"] == []


def test_after_an_interrupt_nothing_is_profiled(source, monkeypatch):
    def stop(report):
        interrupts.append(report.stage == "measure")

    interrupts: list[bool] = []
    _, _, subject = optimise(source, progress=stop, interrupted=lambda: any(interrupts))
    assert [variant["operators"] for variant in subject["variants"]] == [[], []]


def test_another_provider_is_told_of(source):
    result = graphopt.optimize(source, rules=["grouped-conv"], measure=False)
    nodes = {"openvino": 5, "cpu": 1}
    told = {
        **result.report,
        "placement": {"before": nodes, "after": nodes, "elsewhere": {"Erf": 1}},
        "timing": {"device": "gpu:0", "copies": False},
        "environment": {
            **result.report["environment"],
            "provider_options": {"device_type": "GPU"},
            "device": "Some GPU",
        },
    }
    subject = subject_of(told, result.found)
    assert dict(subject.facts)["Where nodes run"] == "openvino 5 nodes, cpu 1 node (Erf)"
    assert "copies from and to the host are not counted" in subject.summary and "Some GPU" in subject.summary
    assert dict(environment_of(told))["Options of the provider"] == "device_type=GPU"


def test_sizes_are_told_and_each_set_with_its_ratio(source):
    result = graphopt.optimize(source, rules=["grouped-conv"], measure=False)
    there = {"sizes": {"batch": 4}, "speedup": 1.2, "ci95": [1.1, 1.3], "verdict": "faster"}
    told = {**result.report, "sizes": {"batch": 1, "seq": 8}, "sizes_assumed": ["seq"], "elsewhere": [there]}
    found = dataclasses.replace(result.found, paired=Paired(4.0, 3.0, Ratio.of(1.33, (1.3, 1.36)), 20, 4))
    subject = subject_of(told, found)
    facts = dict(subject.facts)
    assert facts["Measured with"] == "batch=1, seq=8 (seq assumed; see --at and --dim)"
    assert facts["At batch=4"] == "1.200\N{MULTIPLICATION SIGN} (1.100 to 1.300), faster"
    assert "; measured with batch=1, seq=8." in subject.summary
