"""The commands on real files, end to end: optimise, verify, inspect and explain."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper

import graphopt
from graphopt.config import agents_dir
from tests.cli.conftest import ROOT, weights
from tests.cli.test_bench import QUICK

CHOSEN = {"x[0]": 2, "x[1]": 3}

RULE = """\
family: mine
doc: A family of one.
rules:
  - id: drop-double-neg
    doc: two negations cancel
    equal: exact
    match:
      - y = Neg(x)
      - z = Neg(y)
    replace:
      - z = x
    examples:
      accept: [{x: 4x5xf32}]
      reject: []
"""

KEYS = {
    "schema",
    "input",
    "output",
    "strategy",
    "provider",
    "threads",
    "seed",
    "latency",
    "kept_original",
    "verified",
    "nodes",
    "size",
    "rules",
    "steps",
    "search",
    "environment",
    "families",
    "warnings",
}


@pytest.fixture
def negations(tmp_path: Path) -> Path:
    """Three pairs of negations around a Relu, with a symbolic batch."""
    names = ["x", "a", "b", "c", "d", "e", "f", "y"]
    ops = ["Neg", "Neg", "Relu", "Neg", "Neg", "Neg", "Neg"]
    nodes = [
        helper.make_node(op, [source], [target], name=f"n{i}")
        for i, (op, source, target) in enumerate(zip(ops, names[:-1], names[1:], strict=True))
    ]
    shape = ["batch", 1000]
    graph = helper.make_graph(
        nodes,
        "negations",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, shape)],
    )
    path = tmp_path / "negations.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return path


@pytest.fixture
def rules(cli, tmp_path: Path) -> Path:
    path = tmp_path / "mine.yaml"
    path.write_text(RULE, encoding="utf-8")
    assert cli("rules", "check", path, "--update").code == 0
    return path


def run(path: Path, values: np.ndarray) -> np.ndarray:
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    (result,) = session.run(None, {"x": values})
    return np.asarray(result)


def test_optimize(cli, negations, rules):
    before = negations.read_bytes()
    outcome = cli("optimize", negations, "--rules", rules, "--no-measure", "--json", "-", "--trace", "trace.json")
    assert outcome.code == 0, outcome.err
    report = json.loads(outcome.out)
    output = negations.with_name("negations.opt.onnx")
    assert report.keys() >= KEYS
    assert report["schema"] == "graphopt.report/1"
    assert (report["input"], report["output"]) == (str(negations), str(output))
    assert report["rules"] == {"drop-double-neg": 3}
    assert report["nodes"]["before"] == 7 and report["nodes"]["after"] == 1
    assert report["verified"]["passed"]
    assert report["latency"] is None and not report["kept_original"]
    assert len(report["steps"]) == 3 and report["steps"][0].keys() >= {"rule", "site", "cost_before", "cost_after"}
    assert report["search"].keys() >= {"candidates", "seconds", "stop_reason"}
    costs = [step["cost_before"] for step in report["steps"]], [step["cost_after"] for step in report["steps"]]
    assert report["search"]["predicted"] == pytest.approx(max(costs[0]) / min(costs[1])) and max(costs[0]) > min(
        costs[1]
    )
    assert "drop-double-neg x3" in outcome.err
    assert json.loads((negations.parent / "trace.json").read_text())["steps"]
    values = np.random.default_rng(0).normal(size=(3, 1000)).astype(np.float32)
    np.testing.assert_array_equal(run(output, values), run(negations, values))
    assert negations.read_bytes() == before

    assert cli("verify", negations, output).code == 0
    explained = cli("explain", output)
    assert explained.code == 0, explained.err
    assert "graphopt" in explained.out


def test_rules_are_counted_whoever_writes_the_file(cli, negations, rules):
    result = graphopt.optimize(negations, rules=[str(rules)], measure=False)
    for times, write in enumerate((None, "saved.onnx", "again.onnx")):
        if write is not None:
            result.save(write)
        (listed,) = json.loads(cli("rules", "list", "--rules", rules, "--json", "-").out)["rules"]
        assert listed["used"] == 3 * times
    assert cli("optimize", negations, "--rules", rules, "--no-measure").code == 0
    (listed,) = json.loads(cli("rules", "list", "--rules", rules, "--json", "-").out)["rules"]
    assert listed["used"] == 9


def test_optimize_measured(cli, negations, rules):
    outcome = cli("optimize", negations, "--rules", rules, "--dim", "batch=512", "--budget", "8", "--json", "r.json")
    assert outcome.code == 0, outcome.err
    report = json.loads((negations.parent / "r.json").read_text())
    assert negations.with_name("negations.opt.onnx").exists()
    latency = report["latency"]
    if latency is None:  # on a busy machine the prices may say that nothing pays
        assert report["kept_original"]
        return
    assert latency["ci95"][0] <= latency["speedup"] <= latency["ci95"][1]
    assert latency["rounds"] > 0 and latency["baseline_ms"] > 0 and latency["optimized_ms"] > 0
    assert report["kept_original"] == (latency["ci95"][0] <= 1)


def test_a_dry_run_writes_nothing(cli, negations, rules):
    before = sorted(negations.parent.iterdir())
    outcome = cli("optimize", negations, "--rules", rules, "--no-measure", "--dry-run", "--json", "-")
    assert outcome.code == 0, outcome.err
    assert json.loads(outcome.out)["output"] is None
    assert sorted(negations.parent.iterdir()) == before


def test_without_an_applicable_rule_the_model_is_copied(cli, model, rules):
    outcome = cli("optimize", model, "--rules", rules, "--json", "-")
    assert outcome.code == 0, outcome.err
    report = json.loads(outcome.out)
    assert report["kept_original"] and report["rules"] == {} and report["steps"] == []
    assert model.with_name("net.opt.onnx").read_bytes() == model.read_bytes()
    shown = " ".join(outcome.err.split())
    assert "no rewrite pays" in shown and "the same as the input" in shown


def test_a_converted_model_is_called_so_and_written_again(cli, tmp_path):
    """The second time there is a file in the place of the output, for which the input was read without a conversion."""
    info = [onnx.helper.make_tensor_value_info(n, onnx.TensorProto.FLOAT, [2, 3]) for n in "xy"]
    graph = onnx.helper.make_graph([onnx.helper.make_node("Relu", ["x"], ["y"])], "g", info[:1], info[1:])
    old = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 6)], ir_version=3)
    onnx.save(old, tmp_path / "old.onnx")
    for _ in range(2):
        outcome = cli("optimize", "old.onnx", "--upgrade", "--strategy", "none", "--no-measure")
        assert outcome.code == 0, outcome.err
        shown = " ".join(outcome.err.split())
        assert "old.opt.onnx, the input in a later operator set" in shown and "bench old.opt.onnx" in shown
    assert cli("inspect", "old.opt.onnx").code == 0


def test_weights_that_are_inputs_too_are_told_of_and_may_be_frozen(cli, tmp_path):
    """Older exporters of torch list all of them, and what a caller may replace neither this program nor the runtime may fold."""
    proto = onnx.parser.parse_model("""<ir_version: 7, opset_import: ["": 13]>
      g (float[2, 3] x, float[3] w, float[3] b) => (float[2, 3] y) <float[3] w = {1, 2, 3}, float[3] b = {3, 4, 5}> {
        p = Add(x, w) y = Add(p, b)
      }""")
    onnx.save(proto, tmp_path / "net.onnx")
    plain = cli("optimize", "net.onnx", "--strategy", "none", "--no-measure")
    assert "2 weights can be replaced by a caller" in plain.err and "--freeze-initializers" in plain.err
    frozen = cli("optimize", "net.onnx", "--strategy", "none", "--no-measure", "--freeze-initializers")
    assert "can be replaced" not in frozen.err
    made = onnx.load(tmp_path / "net.opt.onnx").graph
    assert [n.op_type for n in made.node] == ["Add"] and [i.name for i in made.input] == ["x"]
    told = cli("inspect", "net.onnx").out
    assert "x: f32[2,3]" in told and "and 2 weights, which a caller may replace" in told and "w: f32" not in told
    assert graphopt.inspect(tmp_path / "net.onnx")["defaults"] == ["w", "b"]


def test_a_dimension_without_a_name_is_fixed_by_what_the_screen_calls_it(cli, tmp_path):
    proto = onnx.parser.parse_model("""<ir_version: 7, opset_import: ["": 13]>
      g (float[?, 3, ?] x) => (float[?, ?, 3] y) { a = Relu(x) b = Relu(a) y = Transpose<perm = [0, 2, 1]>(b) }""")
    onnx.save(proto, tmp_path / "net.onnx")
    done = cli("optimize", "net.onnx", "--strategy", "none", "--no-measure", "--dim", "x[2]=5", "--json", "told.json")
    told = json.loads((tmp_path / "told.json").read_text())
    assert done.code == 0 and told["sizes"] == {"x[0]": 1, "x[2]": 5} and told["sizes_assumed"] == ["x[0]"]
    made = graphopt.load(tmp_path / "net.opt.onnx").graph
    assert made.type(made.inputs[0]).shape == ("x[0]", 3, 5)
    assert cli("verify", "net.onnx", "net.opt.onnx", "--dim", "x[2]=5").code == 0
    assert "unknown dimension 'x[1]'" in cli("optimize", "net.onnx", "--dim", "x[1]=3").err


@pytest.mark.parametrize(
    "arguments",
    [["-o", "weights.bin"], ["--json", "weights.bin", "--dry-run"], ["--trace", "weights.bin"]],
    ids=" ".join,
)
def test_weights_of_the_input_are_not_overwritten(cli, model, arguments):
    onnx.save(onnx.load(model), model, save_as_external_data=True, location="weights.bin", size_threshold=0)
    before = {path.name: path.read_bytes() for path in model.parent.iterdir()}
    outcome = cli("optimize", model, *arguments)
    assert outcome.code == 2
    assert "weights of the input" in outcome.error_lines()[0]
    assert {path.name: path.read_bytes() for path in model.parent.iterdir()} == before


@pytest.mark.parametrize("command", ["inspect", "explain", "verify"])
def test_reports_spare_models_and_weights(cli, model, command):
    onnx.save(onnx.load(model), model, save_as_external_data=True, location="weights.bin", size_threshold=0)
    before = {path.name: path.read_bytes() for path in model.parent.iterdir()}
    models = [model, model] if command == "verify" else [model]
    for target in ("weights.bin", "net.onnx"):
        outcome = cli(command, *models, "--json", target)
        assert outcome.code == 2
        outcome.error_lines()
    assert {path.name: path.read_bytes() for path in model.parent.iterdir()} == before


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("verify net.onnx net.onnx --inputs in.npz --json in.npz", "in.npz is the file of inputs"),
        ("inspect net.onnx --inputs sets --json sets/1.npz", "sets/1.npz is part of the folder of inputs"),
        ("inspect net.onnx --json graphopt.toml", "graphopt.toml is the file of settings"),
        ("optimize net.onnx --rules mine.yaml --trace mine.yaml", "mine.yaml is the file of rules mine.yaml"),
        ("optimize net.onnx --rules mine.yaml --report evidence.lock", "evidence.lock is the evidence of mine.yaml"),
        ("optimize net.onnx --agent agent -o agent/manifest.json", "agent/manifest.json is part of the agent"),
        (
            "optimize net.onnx copy.onnx --rules mine.yaml --out-dir out --json mine.yaml",
            "mine.yaml is the file of rules",
        ),
        ("rules check mine.yaml --json mine.yaml", "mine.yaml is the file of rules mine.yaml"),
        ("rules check . --json mine.yaml", "mine.yaml is part of the folder of rules ."),
        ("rules list --rules mine.yaml --json mine.yaml", "mine.yaml is the file of rules mine.yaml"),
        ("rules stats net.onnx --rules mine.yaml --json mine.yaml", "mine.yaml is the file of rules mine.yaml"),
        ("bench net.onnx --rules mine.yaml --json mine.yaml", "mine.yaml is the file of rules mine.yaml"),
        ("bench net.onnx --against copy.onnx --csv copy.onnx", "copy.onnx is the model copy.onnx"),
        ("cost calibrate net.onnx --rules mine.yaml --svg mine.yaml", "mine.yaml is the file of rules mine.yaml"),
        ("evaluate-agent agent --json agent/manifest.json", "agent/manifest.json is part of the agent agent"),
        ("evaluate-agent agent --json agent/progress.csv", "agent/progress.csv is part of the agent agent"),
        ("cost export graphopt.toml", "graphopt.toml is the file of settings"),
        ("cost show --json graphopt.toml", "graphopt.toml is the file of settings"),
        ("zoo list --json graphopt.toml", "graphopt.toml is the file of settings"),
        ("rules generate --ops Relu --json graphopt.toml", "graphopt.toml is the file of settings"),
        ("replay mine.yaml net.onnx -o graphopt.toml", "graphopt.toml is the file of settings"),
        ("zoo list --json kernels.sqlite", "kernels.sqlite is the store of kernel times"),
    ],
)
def test_what_a_command_reads_it_does_not_overwrite(cli, model, command, said, fresh_cache):
    folder = model.parent
    (folder / "sets").mkdir()
    for path in (folder / "in.npz", folder / "sets" / "1.npz"):
        np.savez(path, x=np.ones((1, 4, 12, 12), np.float32))
    (folder / "mine.yaml").write_text(RULE, encoding="utf-8")
    (folder / "evidence.lock").write_text("{}", encoding="utf-8")
    (folder / "graphopt.toml").write_text("threads = 1", encoding="utf-8")
    shutil.copy(model, folder / "copy.onnx")
    shutil.copytree(agents_dir() / "rl", folder / "agent")
    (folder / "agent" / "progress.csv").touch()
    (folder / "kernels.sqlite").symlink_to(fresh_cache / "kernels.sqlite")
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    outcome = cli(*command.split())
    assert outcome.code == 2
    assert said in outcome.error_lines()[0] and "never overwritten" in outcome.error_lines()[0]
    assert {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()} == before


def test_a_report_may_lie_beside_what_is_read(cli, model):
    folder = model.parent / "sets"
    folder.mkdir()
    np.savez(folder / "1.npz", x=np.ones((1, 4, 12, 12), np.float32))
    for _ in range(2):
        assert cli("inspect", model, "--inputs", "sets", "--json", "sets/report.json").code == 0
    shutil.copy(model, folder / "model.onnx")
    for _ in range(2):
        options = ("--inputs", "sets", "--strategy", "none", "--no-measure", "-q")
        assert cli("optimize", "sets/model.onnx", *options).code == 0


@pytest.mark.parametrize("fixed", [["--dim", "batch=2"], ["--input-shape", "x:2x4x12x12"]])
def test_one_dimension_has_one_size(cli, dynamic_model, fixed):
    outcome = cli("optimize", dynamic_model, "--at", "batch=2", "--at", "batch=1", *fixed, "--dry-run", "--no-measure")
    assert outcome.code == 2
    assert outcome.error_lines()[0] == f"error: batch can't be both 1 (--at) and 2 ({fixed[0]})"
    same = cli("optimize", dynamic_model, "--at", "batch=2", *fixed, "--dry-run", "--no-measure", "--strategy", "none")
    assert same.code == 0


NEARLY = """\
family: mine
doc: Two steps that are off by some thousandths each.
rules:
  - id: no-sums
    doc: in the normal form
    equal: real
    always: true
    match:
      - y = Add(x, c)
      - z = Sub(y, c)
    where:
      - dtype(x) == "f32" and is_const(c) and shape(c) == ()
    replace:
      - z = x
    examples:
      accept: [{x: 4x5xf32, c: const f32}]
      reject: [{x: 4x5xf32, c: f32}]
  - id: one-absolute
    doc: found by the search
    equal: approx(1e-2)
    match:
      - a = Abs(x)
      - b = Abs(a)
      - c = Abs(b)
    replace:
      - a = Abs(x)
      - c = Mul(a, 1.002)
    examples:
      accept: [{x: 4x5xf32}]
      reject: []
"""


def test_what_was_accepted_by_way_of_the_normal_form_can_be_saved(cli, tmp_path):
    (tmp_path / "mine.yaml").write_text(NEARLY, encoding="utf-8")
    checked = cli("rules", "check", "mine.yaml", "--update")
    assert checked.code == 0, checked.err + checked.out
    nodes = [helper.make_node("Clip", ["x", "low", "high"], ["a"])]
    nodes += [helper.make_node(op, [a, "far"], [b]) for op, a, b in (("Add", "a", "b"), ("Sub", "b", "c"))]
    nodes += [helper.make_node("Abs", [a], [b]) for a, b in ("cd", "de", "ey")]
    nodes += [
        helper.make_node("QuantizeLinear", ["x", "s"], ["q"]),
        helper.make_node("DequantizeLinear", ["q", "s"], ["z"]),
    ]
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [64, 1000]) for name in "xyz"]
    numbers = {"s": 0.1, "low": -1.003, "high": 1.003, "far": 65536.0}
    constants = [helper.make_tensor(name, TensorProto.FLOAT, [], [number]) for name, number in numbers.items()]
    made = helper.make_graph(nodes, "quantised", ends[:1], ends[1:], constants)
    onnx.save(helper.make_model(made, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), tmp_path / "m.onnx")
    result = graphopt.optimize("m.onnx", rules=["mine.yaml"], output="a.onnx", rtol=0.0, atol=4.5e-3, measure=False)
    assert result.report["rules"] == {"no-sums": 1, "one-absolute": 1}
    direct = graphopt.verify("m.onnx", "a.onnx", rtol=0.0, atol=4.5e-3)
    assert not direct.passed and result.report["verified"]["max_abs"] >= direct.max_abs
    result.save("b.onnx")
    assert (tmp_path / "b.onnx").read_bytes() == (tmp_path / "a.onnx").read_bytes()


def test_an_optimised_model_may_be_written_again(cli, model):
    onnx.save(onnx.load(model), model, save_as_external_data=True, location="weights.bin", size_threshold=0)
    for _ in range(2):
        assert cli("optimize", model, "-o", "again.onnx", "--no-measure").code == 0


@pytest.mark.skipif(os.name == "nt", reason="/dev/stdout of Unix")
@pytest.mark.parametrize(("kind", "external"), [("pipe", False), ("appended", True)])
def test_a_model_goes_to_standard_output(model, tmp_path, kind, external):
    if external:
        onnx.save(onnx.load(model), model, save_as_external_data=True, location="weights.bin", size_threshold=0)
    command = [sys.executable, "-m", "graphopt", "optimize", model, "-o", "/dev/stdout", "--no-measure"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    log, before = tmp_path / "log", b"" if kind == "pipe" else b"what was there\n"
    log.write_bytes(before)
    with log.open("ab") as file:
        where = subprocess.PIPE if kind == "pipe" else file
        done = subprocess.run(
            command, stdout=where, stderr=subprocess.PIPE, cwd=tmp_path, env=environment, check=False
        )  # fmt: skip
    assert done.returncode == 0, done.stderr
    found = done.stdout or log.read_bytes()
    assert found.startswith(before)
    alone = tmp_path / "elsewhere" / "m.onnx"
    alone.parent.mkdir()
    alone.write_bytes(found[len(before) :])
    values = np.random.default_rng(0).normal(size=(1, 4, 12, 12)).astype(np.float32)
    np.testing.assert_allclose(run(alone, values), run(model, values), rtol=1e-4, atol=1e-5)
    assert len(onnx.load(alone).graph.node) < len(onnx.load(model).graph.node)


def test_real_inputs(cli, negations, rules):
    np.savez(negations.parent / "data.npz", x=np.ones((2, 1000), np.float32))
    outcome = cli("optimize", negations, "--rules", rules, "--no-measure", "--inputs", "data.npz")
    assert outcome.code == 0, outcome.err


@pytest.fixture
def shapeless(tmp_path: Path) -> Path:
    """A model that says of its input not even how many dimensions it has."""
    nodes = [helper.make_node("Identity", ["x"], ["i"]), helper.make_node("MatMul", ["i", "w"], ["y"])]
    info = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in "xy"]
    graph = helper.make_graph(nodes, "g", info[:1], info[1:], [weights("w", 3, 4)])
    path = tmp_path / "shapeless.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return path


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("inspect",), lambda told: told["inputs"] == {"x": "f32[2,3]"} and told["profile"]),
        (("verify", "shapeless.onnx"), lambda told: told["passed"]),
        (("optimize", "--no-measure"), lambda told: (told["sizes"], told["sizes_assumed"]) == (CHOSEN, [])),
        (("bench", *QUICK), lambda told: (told["cases"][0]["sizes"], told["cases"][0]["assumed"]) == (CHOSEN, [])),
    ],
    ids=lambda value: value[0] if isinstance(value, tuple) else "",
)
def test_a_model_without_shapes_is_given_some(cli, shapeless, arguments, told):
    command, *more = arguments
    done = cli(command, shapeless, *more, "--input-shape", "x:2x3", "--json", "t.json")
    assert done.code == 0, done.err
    assert told(json.loads(shapeless.with_name("t.json").read_text()))
    done = cli(command, shapeless, *more)
    said = " ".join(done.error_lines()) if command != "inspect" else done.out
    assert done.code == (command != "inspect") and "--input-shape x:AxB" in said and "likely in the model" not in said


def test_a_size_that_a_shape_gives_is_not_assumed(cli, dynamic_model):
    for command, *more in (("optimize", "--no-measure"), ("bench", *QUICK)):
        done = cli(command, dynamic_model, *more, "--input-shape", "x:2x4x12x12", "--json", "t.json")
        assert done.code == 0, done.err
        told = json.loads(dynamic_model.with_name("t.json").read_text())
        told = told["cases"][0] if command == "bench" else told
        assert told["sizes"] == {"batch": 2} and not (told.get("assumed") or told.get("sizes_assumed"))


def test_verify_same(cli, model, tmp_path):
    outcome = cli("verify", model, model, "--json", "-")
    assert outcome.code == 0
    document = json.loads(outcome.out)
    assert document["schema"] == "graphopt.verification/1"
    assert document["passed"] and document["trials"] >= 1
    assert "the outputs agree" in outcome.err


def test_verify_says_how_little_was_compared(cli, tmp_path):
    """Two models that draw random numbers of other laws agree in types and shapes, and that is all there is to say."""
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [8]) for name in "xy")
    for op in ("RandomNormalLike", "RandomUniformLike"):
        graph = helper.make_graph([helper.make_node(op, ["x"], ["y"])], "g", [x], [y])
        proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
        onnx.save(proto, tmp_path / f"{op}.onnx")
    done = cli("verify", "RandomNormalLike.onnx", "RandomUniformLike.onnx")
    assert done.code == 0
    assert "but non-deterministic, so that only types and shapes were compared: y" in " ".join(done.err.split())


def test_verify_tries_the_sizes_that_the_other_model_tells_apart(cli, tmp_path):
    head = '<ir_version: 7, opset_import: ["": 15]> g (float[n, 3] x) => (float[n, 3] y) <int64[1] limit = {7}> '
    beyond = "{s = Shape<start=0, end=1>(x) b = Greater(s, limit) f = Cast<to=1>(b) y = Add(x, f)}"
    for name, body in (("plain", "{y = Identity(x)}"), ("other", beyond)):
        onnx.save(onnx.parser.parse_model(head + body), tmp_path / f"{name}.onnx")
    assert cli("verify", "plain.onnx", "other.onnx").code == 3
    assert cli("verify", "other.onnx", "plain.onnx").code == 3


def test_the_sizes_of_at_are_told_as_verified(cli, dynamic_model):
    """The file leaves them open, so at which it was compared is worth knowing."""
    sets = ("--at", "batch=2", "--at", "batch=3")
    done = cli("optimize", dynamic_model, *sets, "--no-measure", "--dry-run", "--json", "at.json")
    assert done.code == 0, done.err
    told = json.loads(dynamic_model.with_name("at.json").read_text())
    assert told["verified"]["sizes"] == [{"batch": 2}, {"batch": 3}]
    assert "trials at batch 2, 3" in " ".join((done.out + done.err).split())


@pytest.mark.parametrize("sizes", [("2", "8"), ("8", "2")])
def test_what_says_little_at_any_of_several_sizes_is_told(cli, tmp_path, sizes):
    """Of several sets of --at the note of the first alone was: at two rows nothing is left to compare, at eight there is."""
    onnx.save(onnx.parser.parse_model("""<ir_version: 7, opset_import: ["": 15]>
        g (float[n, 3] x) => (float[m, 3] y) <int64[1] four = {4}, int64[1] end = {100}, int64[1] axis = {0}> {
            p = Transpose<perm=[1, 0]>(x) q = Transpose<perm=[1, 0]>(p) r = Neg(q) y = Slice(r, four, end, axis)
        }"""), tmp_path / "rows.onnx")  # fmt: skip
    sets = [text for n in sizes for text in ("--at", f"n={n}")]
    done = cli("optimize", "rows.onnx", *sets, "--no-measure", "--dry-run", "--json", "rows.json")
    assert done.code == 0, done.err
    told = json.loads((tmp_path / "rows.json").read_text())["verified"]
    assert told["sizes"] == [{"n": int(n)} for n in sizes]
    assert told["message"].count("empty, all zero or nowhere finite in every trial, which proves little: y") == 1


def test_the_sizes_that_were_verified_are_told(cli, dynamic_model, tmp_path):
    assert re.search(r"sizes +batch 1, \d", cli("verify", dynamic_model, dynamic_model).err)
    outcome = cli("optimize", dynamic_model, "--no-measure", "-o", tmp_path / "out.onnx")
    assert re.search(r"verified same outputs .* at batch 1, \d", " ".join((outcome.out + outcome.err).split()))


@pytest.mark.parametrize("quiet", [[], ["-q"]])
def test_verify_different(cli, model, other_model, quiet):
    outcome = cli("verify", model, other_model, "--json", "verdict.json", *quiet)
    assert outcome.code == 3
    assert "y" in outcome.error_lines()[0]
    assert not outcome.out
    assert json.loads((model.parent / "verdict.json").read_text())["passed"] is False


def test_verify_with_room_for_error(cli, model, other_model):
    assert cli("verify", model, other_model, "--atol", "1000").code == 0


def test_verify_different_signatures(cli, model, negations):
    outcome = cli("verify", model, negations)
    assert outcome.code in (1, 2, 3)
    outcome.error_lines()


def test_inspect(cli, dynamic_model):
    outcome = cli("inspect", dynamic_model, "--dim", "batch=2", "--json", "-")
    assert outcome.code == 0, outcome.err
    report = json.loads(outcome.out)
    assert report["nodes"] == 5
    assert report["operators"]["Conv"] == 1
    assert report["profile"]
    shown = cli("inspect", dynamic_model)
    assert shown.code == 0
    assert not shown.err
    for text in ("BatchNormalization", "x: ", "share", "opset"):
        assert text in shown.out
    assert "profiled with batch=1 (assumed; see --dim)" in " ".join(shown.out.split())
    np.savez(dynamic_model.with_name("data.npz"), x=np.ones((3, 4, 12, 12), np.float32))
    shown = cli("inspect", dynamic_model, "--inputs", "data.npz")
    assert "profiled with batch=3 nodes" in " ".join(shown.out.split()).replace("operator ", "")


def test_nodes_in_bodies_count_everywhere(cli, tmp_path):
    """What `optimize` says of an If, `inspect`, `explain` and `replay` say: "2 of 1 nodes were made by rules" was no answer."""
    onnx.save(onnx.parser.parse_model("""<ir_version: 7, opset_import: ["": 15]>
        g (float[1, 64] x, bool f) => (float[1, 64] y) <float one = {1}> {
            y = If(f) <
                then_branch = t () => (float[1, 64] a) {p = Mul(x, one) q = Transpose<perm=[1, 0]>(p) a = Transpose<perm=[1, 0]>(q)},
                else_branch = e () => (float[1, 64] c) {r = Transpose<perm=[1, 0]>(x) d = Transpose<perm=[1, 0]>(r) c = Neg(d)}>
        }"""), tmp_path / "if.onnx")  # fmt: skip
    run = ("--no-measure", "--trace", "t.json", "--json", "r.json", "-o", "out.onnx")
    assert cli("optimize", "if.onnx", *run).code == 0
    nodes = json.loads((tmp_path / "r.json").read_text())["nodes"]
    assert nodes["before"] == 7 > nodes["after"]
    for name, count in (("if.onnx", nodes["before"]), ("out.onnx", nodes["after"])):
        told = json.loads(cli("inspect", name, "--json", "-").out)
        assert told["nodes"] == count == sum(told["operators"].values())
    assert json.loads(cli("explain", "out.onnx", "--json", "-").out)["nodes"] == nodes["after"]
    replayed = " ".join(cli("replay", "t.json", "if.onnx").err.split())
    assert f"nodes {nodes['before']} before, {nodes['after']} after" in replayed


def test_inspect_says_what_is_left_alone_and_why(cli, tmp_path):
    value = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [4]) for name in "xyz"]
    flag = helper.make_tensor_value_info("flag", TensorProto.BOOL, [])
    bodies = [
        helper.make_graph([helper.make_node(op, ["x"], [name])], name, [], [helper.make_empty_tensor_value_info(name)])
        for op, name in (("Relu", "t"), ("Neg", "e"))
    ]
    node = helper.make_node("If", ["flag"], ["y"], then_branch=bodies[0], else_branch=bodies[1])
    graph = helper.make_graph([node], "g", [value[0], flag], [value[1]])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), tmp_path / "if.onnx")
    report = json.loads(cli("inspect", "if.onnx", "--json", "-").out)
    assert report["opaque"]
    shown = cli("inspect", "if.onnx")
    assert next(iter(report["opaque"])) in " ".join(shown.out.split())


def test_inspect_tells_of_a_model_that_the_runtime_does_not_open(cli, tmp_path):
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [4]) for name in "xy"]
    graph = helper.make_graph([helper.make_node("Own", ["x"], ["y"], domain="my.ops")], "g", values[:1], values[1:])
    imports = [helper.make_opsetid("", 17), helper.make_opsetid("my.ops", 1)]
    onnx.save(helper.make_model(graph, opset_imports=imports, ir_version=8), tmp_path / "own.onnx")
    report = json.loads(cli("inspect", "own.onnx", "--json", "-").out)
    assert report["opaque"] == {"custom domain my.ops": 1} and report["profile"] is None
    assert "--custom-ops" in report["unprofiled"]


@pytest.mark.parametrize("option", ["--seconds", "--threads"])
def test_explain_measures_steps_of_a_trace_only(cli, model, option):
    outcome = cli("explain", model, option, 1)
    assert outcome.code == 2 and outcome.error_lines()[0].startswith(
        "error: --seconds, --threads and --inputs are about"
    )


def test_explain_a_model_that_nobody_optimised(cli, model):
    outcome = cli("explain", model)
    assert outcome.code == 0
    assert "none of the 5 nodes" in outcome.out


@pytest.mark.parametrize("sizes", ["[]", "{", '{"\\u001b[31m": "\\u001b[31m"}'])
def test_explain_survives_edited_metadata(cli, model, sizes):
    proto, edited = onnx.load(model), {"graphopt.latency": "[]", "graphopt.environment": "{", "graphopt.sizes": sizes}
    for key, value in {"graphopt.version": "\x1b[31m", **edited}.items():
        proto.metadata_props.add(key=key, value=value)
    onnx.save(proto, model)
    outcome = cli("explain", model)
    assert outcome.code == 0
    assert "\x1b" not in outcome.out


def test_explain_says_at_which_sizes_a_latency_was_measured(cli, model):
    proto = onnx.load(model)
    proto.metadata_props.add(key="graphopt.sizes", value='{"batch": 1, "seq": 8}')
    onnx.save(proto, model)
    assert "measured with batch=1, seq=8" in cli("explain", model).out
