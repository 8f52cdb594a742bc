"""What commands show fits 80 columns, whatever models and rules call things."""

from __future__ import annotations

from pathlib import Path

import onnx
import pytest
from onnx import TensorProto, helper

from graphopt.cli.evaluate import _show
from graphopt.cli.screen import console
from graphopt.rl.evaluation.scores import Evaluation, RatioInterval, Timing, Trained
from tests.cli.conftest import weights
from tests.rl.test_evaluate import score

LONG = "a/name/as/exporters/write/them::" + "decoder.layers.11.self_attn_layer_norm/" * 3
NAME = "an-absolute-value-of-an-absolute-value-is-that-absolute-value-wherever-they-may-stand"
RULE = f"""\
family: a-family-of-rules-with-a-long-name
doc: A family of one.
rules:
  - id: {NAME}
    doc: the sign does not count
    equal: exact
    match: [y = Neg(x), z = Abs(y)]
    replace: [z = Abs(x)]
    prefer: [rank(x) >= 1]
    examples: {{accept: [{{x: 4x5xf32}}], reject: []}}
"""
SHOWN = (
    (("inspect", "long.onnx"), ("opset", "MatMul", "profiled", "share")),
    (("verify", "long.onnx", "opt.onnx"), ("trials", "sizes")),
    (("explain", "opt.onnx"), (*NAME.split("-"), "Abs", "operator", "a/name", "1 of 3 nodes")),
    (("explain", "long.onnx", "--trace", "t.json", "--seconds", "0"), (*NAME.split("-"), "predicted", "a/name", "95 % interval")),
    (("providers",), ("openvino", "installed", "onnxruntime")),
    (("cost", "show"), ("store", "environment", "kernels")),
    (("zoo", "list"), ("bert_base", "family")),
    (("rules", "stats", "long.onnx", "--no-measure", "--rules", "rules.yaml"), (*NAME.split("-"), "tries", "gain us")),
    (("rules", "check", "rules.yaml", "--all", "--jobs", "1"), ("1 proved",)),
    (("rules", "list", "--rules", "rules.yaml"), (*NAME.split("-"), "exact", "proved", "law")),
    (("rules", "show", NAME, "--rules", "rules.yaml"), (*NAME.split("-"), "verdict")),
    (("replay", "t.json", "long.onnx"), ("1 of 1",)),
    (("optimize", "long.onnx", "--rules", "rules.yaml", "--no-measure", "-v"), (*NAME.split("-"), "cost after")),
)  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """A model, what `optimize` makes of it, its trace, and a file of rules."""
    folder = tmp_path_factory.mktemp("width")
    shape = [f"{LONG}batch", 16]
    names = [f"{LONG}{name}" for name in ("x", "a", "b", "c", "w", "y")]
    x, a, b, c, w, y = names
    nodes = [
        helper.make_node("Neg", [x], [a], name=f"{LONG}first"),
        helper.make_node("Abs", [a], [b], name=f"{LONG}second"),
        helper.make_node("MatMul", [b, w], [c], name=f"{LONG}product"),
        helper.make_node("Relu", [c], [y], name=f"{LONG}last"),
    ]
    info = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name in (x, y)]
    graph = helper.make_graph(nodes, "g", info[:1], info[1:], [weights(w, 16, 16)])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(model, folder / "long.onnx")
    (folder / "rules.yaml").write_text(RULE)
    return folder


@pytest.mark.parametrize(("arguments", "words"), SHOWN, ids=lambda value: " ".join(value[:2]))
def test_screens_fit(cli, folder, monkeypatch, arguments, words):
    monkeypatch.chdir(folder)
    monkeypatch.setenv("COLUMNS", "80")
    if not (folder / "opt.onnx").exists():
        assert cli("rules", "check", "rules.yaml", "--update", "--jobs", "1").code == 0
        made = cli(
            "optimize", "long.onnx", "-o", "opt.onnx", "--trace", "t.json", "--rules", "rules.yaml", "--no-measure"
        )
        assert made.code == 0, made.err
    done = cli(*arguments)
    assert done.code == 0, done.err
    shown = (done.out or done.err).splitlines()  # beside a list there are messages, which terminals wrap
    assert [line for line in shown if len(line) > 80] == []
    assert [word for word in words if word not in " ".join(shown)] == []  # nothing is cut to make it fit


@pytest.mark.parametrize("columns", [1, 20, 30])
def test_what_does_not_fit_is_not_cut(cli, model, monkeypatch, columns):
    monkeypatch.setenv("COLUMNS", str(columns))
    done = cli("optimize", model, "--no-measure", "-o", "-o.onnx")
    assert done.code == 0, done.err
    assert "graphopt explain ./-o.onnx" in done.err and "drop-identity x1" in done.err
    assert "kernel, as the runtime fused it" in cli("inspect", model).out


def test_many_strategies_have_a_line_each_where_columns_would_be_split(capsys):
    searches = ("greedy", "backtracking 1.05", "backtracking 1.1", "random", "ils", "beam", "mcts", "untrained")
    scores = (score("ppo", 49.63, run="a"), *(score(each, 49.25, seed=None) for each in searches))
    screen = console(stderr=False)
    screen.width = 80
    _show(Evaluation("t", (Trained("a", "ppo", 0, 7, 1.0),), scores), screen)
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 80
    words = " ".join(lines).split()
    assert {"49.63", "candidates", "untrained", "greedy", "mcts"} <= set(words)
    assert words.count("49.25") == 7 and "best backtracking" in " ".join(words)
    assert "0/0" not in words and words.count("-") == 2  # of two budgets nothing ran


@pytest.mark.parametrize("width", [80, 100, 200])
@pytest.mark.parametrize("name", ["net", LONG])
def test_an_evaluation_fits_and_no_figure_is_cut(capsys, width, name):
    ratio = RatioInterval(1.2345, 1.2, 1.3)
    timings = tuple(Timing(name, algorithm, ratio, ratio, ratio, 12.3, 45.6) for algorithm in ("ppo", "world-model"))
    searches = ("greedy", "backtracking 1.05", "random", "ils")
    scores = (score("ppo", 5.0, run="a", model=name), *(score(each, 4.25, seed=None, model=name) for each in searches))
    screen = console(stderr=False)
    screen.width = width
    _show(Evaluation("t", (Trained("a", "ppo", 0, 7, 1.0),), scores, timings), screen)
    lines = [line for line in capsys.readouterr().out.splitlines() if not line.startswith("Mean saving")]
    assert max(map(len, lines)) <= width
    words = " ".join(lines).split()
    counts = {"4.25": 4, "1.300)": 6, "45.6": 4, "world-model": 2, "searched": 2, "ils": 1}
    assert {word: words.count(word) for word in counts} == counts
