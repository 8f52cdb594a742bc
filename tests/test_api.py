"""The recipes of graphopt.api on real models."""

from __future__ import annotations

import copy
import json
import pickle
import tempfile
import warnings
from dataclasses import replace
from functools import partial
from operator import attrgetter
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import graphopt
from graphopt import errors, retrace
from graphopt.api import explain_model, inspect_model
from graphopt.benchmark.results import Bench, Case
from graphopt.errors import UnknownNameError
from graphopt.onnxio.emit import emit
from graphopt.runtime.environment import block_size

HALF_BLOCKS = 128 // block_size()
"""Groups of 64 channels that are half a block each: the runtime is slow with them, whatever the processor."""


def grouped(path, groups=HALF_BLOCKS, channels=64, size=40):
    """Three grouped convolutions with half a block of channels a group: slow in the runtime until pairs of groups are merged."""
    rng = np.random.default_rng(0)
    nodes, weights, name = [], [], "x"
    for i in range(3):
        weight = rng.standard_normal((channels, channels // groups, 3, 3)).astype(np.float32) / 8
        weights.append(numpy_helper.from_array(weight, f"w{i}"))
        nodes.append(
            helper.make_node("Conv", [name, f"w{i}"], [f"c{i}"], group=groups, pads=[1, 1, 1, 1], name=f"conv{i}")
        )
        nodes.append(helper.make_node("Relu", [f"c{i}"], [f"r{i}"], name=f"relu{i}"))
        name = f"r{i}"
    shape = ["batch", channels, size, size]
    graph = helper.make_graph(
        nodes, "grouped", [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)], weights,
    )  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    model.metadata_props.add(key="owner", value="someone")
    onnx.save(model, path)
    return path


@pytest.fixture(scope="module")
def optimised(tmp_path_factory):
    folder = tmp_path_factory.mktemp("api")
    source, out, trace = grouped(folder / "m.onnx"), folder / "m.opt.onnx", folder / "trace.json"
    return source, out, trace, graphopt.optimize(source, output=out, trace=trace, measure=False, rules=["grouped-conv"])


def test_merges_groups_and_keeps_the_interface(optimised):
    source, out, _, result = optimised
    before, after = onnx.load(source), onnx.load(out)
    onnx.checker.check_model(after)
    assert after.graph.input == before.graph.input
    assert after.graph.output == before.graph.output
    assert after.opset_import == before.opset_import and after.ir_version == before.ir_version
    groups = [a.i for n in after.graph.node if n.op_type == "Conv" for a in n.attribute if a.name == "group"]
    assert max(groups) < HALF_BLOCKS
    assert result.report["verified"]["passed"]
    assert sum(result.report["rules"].values()) == len(result.report["steps"]) == 3


def test_report_is_json_and_complete(optimised):
    report = json.loads(json.dumps(optimised[3].report))
    assert report["schema"] == "graphopt.report/1"
    for key in ("input", "output", "strategy", "provider", "threads", "seed", "latency", "kept_original", "verified", "nodes",
                "steps", "search", "environment"):  # fmt: skip
        assert key in report
    assert set(report["steps"][0]) == {"rule", "family", "site", "cost_before", "cost_after"}


def test_what_was_done_is_in_the_file_and_explained(optimised):
    _, out, _, result = optimised
    metadata = {e.key: e.value for e in onnx.load(out).metadata_props}
    assert metadata["owner"] == "someone"
    assert json.loads(metadata["graphopt.rules"]) == result.report["rules"]
    told = explain_model(out)
    assert {r: len(n) for r, n in told["rules"].items()} == result.report["rules"]


def test_sizes_stand_beside_the_latency_that_they_are_of(optimised):
    result = optimised[3]
    assert "graphopt.sizes" not in result.metadata  # nothing was measured
    latency = {"baseline_ms": 2.0, "optimized_ms": 1.0, "speedup": 2.0, "ci95": [1.9, 2.1]}
    measured = replace(result, report={**result.report, "latency": latency})
    assert json.loads(measured.metadata["graphopt.sizes"]) == {"batch": 1}
    assert "graphopt.sizes" not in replace(measured, report={**measured.report, "sizes": {}}).metadata


def test_model_of_the_result_is_what_was_saved(optimised):
    _, out, _, result = optimised
    assert result.model.SerializeToString(deterministic=True) == onnx.load(out).SerializeToString(deterministic=True)


def test_trace_tells_every_step(optimised):
    _, _, trace, result = optimised
    data = json.loads(trace.read_text())
    assert [s["rule"] for s in data["steps"]] == [s["rule"] for s in result.report["steps"]]
    assert data["model"] and data["rules"] and data["about"]["stop_reason"]


def test_a_model_without_sites_is_written_unchanged(tmp_path):
    node = helper.make_node("Erf", ["x"], ["y"])
    info = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [3]) for n in "xy"]
    model = helper.make_model(
        helper.make_graph([node], "g", info[:1], info[1:]), opset_imports=[helper.make_opsetid("", 17)], ir_version=8
    )
    onnx.save(model, tmp_path / "m.onnx")
    result = graphopt.optimize(tmp_path / "m.onnx", output=tmp_path / "o.onnx", measure=False)
    assert result.report["kept_original"]
    assert (tmp_path / "o.onnx").read_bytes() == (tmp_path / "m.onnx").read_bytes()


def test_measured_result_is_never_claimed_to_be_slower(tmp_path):
    result = graphopt.optimize(grouped(tmp_path / "m.onnx"), rules=["grouped-conv"], budget=6, dims={"batch": 2})
    report = result.report
    if report["kept_original"]:
        assert report["rules"] == {}
    else:
        assert report["latency"]["ci95"][0] > 1
    assert [d.dim_value for d in result.model.graph.input[0].type.tensor_type.shape.dim][:1] in ([2], [0])


def test_unknown_strategy_and_rule_are_usage_errors(tmp_path):
    source = grouped(tmp_path / "m.onnx")
    with pytest.raises(UnknownNameError, match="strategy 'gredy'") as error:
        graphopt.optimize(source, strategy="gredy")
    assert error.value.hint == "did you mean 'greedy'?"
    with pytest.raises(UnknownNameError):
        graphopt.optimize(source, rules=["no-such-family"])


def test_verify_tells_a_wrong_model(tmp_path):
    source = grouped(tmp_path / "m.onnx")
    wrong = onnx.load(source)
    weight = numpy_helper.to_array(wrong.graph.initializer[1]).copy()
    weight[0] *= 1.5
    wrong.graph.initializer[1].CopyFrom(numpy_helper.from_array(weight, "w1"))
    assert graphopt.verify(source, source).passed
    assert not graphopt.verify(source, wrong).passed


def test_inspect_names_operators_and_time(tmp_path):
    told = inspect_model(grouped(tmp_path / "m.onnx"))
    assert told["operators"] == {"Conv": 3, "Relu": 3}
    assert told["inputs"]["x"] == "f32[batch,64,40,40]"
    assert told["profile"] and sum(k["ms"] for k in told["profile"]) > 0


def test_more_threads_than_processors_are_cut_down():
    from graphopt.api import ThreadsWarning, session_config
    from graphopt.runtime.environment import usable_cores

    with pytest.warns(ThreadsWarning, match="100000 threads asked for"):
        assert session_config(threads=100_000).threads == usable_cores()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert session_config(threads=usable_cores()).threads == usable_cores()


def test_a_model_of_which_nothing_is_left_takes_next_to_no_time(tmp_path):
    ones = numpy_helper.from_array(np.full(4, 2, np.int32), "ones")
    info = [helper.make_tensor_value_info(n, TensorProto.INT32, [4]) for n in "xy"]
    nodes = [helper.make_node("Mod", ["ones", "ones"], ["z"]), helper.make_node("Add", ["z", "x"], ["y"])]
    model = helper.make_model(
        helper.make_graph(nodes, "g", info[:1], info[1:], [ones]),
        opset_imports=[helper.make_opsetid("", 17)],
        ir_version=8,
    )
    onnx.save(model, tmp_path / "m.onnx")
    graphopt.optimize(tmp_path / "m.onnx", output=tmp_path / "o.onnx", budget=2)
    assert graphopt.verify(tmp_path / "m.onnx", tmp_path / "o.onnx").passed


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"threads": -1}, "threads must be a whole number of at least 0, not -1"),
        ({"budget": -1}, "budget must be a number above 0, not -1"),
        ({"rules": "identity"}, "rules must be a list of names, not 'identity'"),
        ({"exclude": "identity"}, "exclude must be a list of names"),
        ({"dims": {"batch": 0}}, "dims must be a table of sizes of at least 1"),
        ({"at": {"batch": 1}}, "at must be a list of tables of sizes"),
        ({"rtol": -1.0}, "rtol must be a number of at least 0"),
        ({"alpha": 0.5}, "alpha must be a number of at least 1"),
        ({"seed": "x"}, "seed must be a whole number"),
        ({"measure": "yes"}, "measure must be"),
        ({"report": 5}, "report must be a path, not int"),
        ({"report": ""}, "report must be a path, not ''"),
        ({"inputs": ""}, "inputs must be a path or a mapping of arrays by input name, not ''"),
        ({"sharing": [""]}, "sharing must be a list of paths"),
        ({"output": "o\0"}, r"output must be a path, not 'o\\x00'"),
        ({"trace": Path("o\0")}, r"trace must be a path, not .*Path\('o\\x00'\)"),
        (
            {"inputs": Path("o\0")},
            r"inputs must be a path or a mapping of arrays by input name, not .*Path\('o\\x00'\)",
        ),
        ({"agent": "o\0", "strategy": "rl"}, r"agent must be a name in quotes, not 'o\\x00'"),
        ({"trace": "no/such/folder/t.json"}, "trace: no such folder"),
        ({"output": "m.onnx"}, "output: m.onnx is the model, which is never overwritten"),
        ({"output": "x.onnx", "report": "x.onnx"}, "report: x.onnx is to hold the output as well"),
        ({"inputs": "m.onnx", "trace": "./m.onnx"}, "trace: m.onnx is the model, which is never overwritten"),
        ({"inputs": "in.npz", "trace": "./in.npz"}, "trace: in.npz is the file of inputs, which is never overwritten"),
        ({"rules": ["mine.yaml"], "report": "evidence.lock"}, "report: evidence.lock is the evidence of mine.yaml"),
        ({"rules": ["."], "report": "mine.yaml"}, "report: mine.yaml is part of the folder of rules ."),
        ({"inputs": ".", "trace": "in.npz"}, "trace: in.npz is part of the folder of inputs"),
        ({"agent": ".", "strategy": "rl", "trace": "manifest.json"}, "trace: manifest.json is part of the agent"),
        ({"report": "graphopt.toml"}, "report: graphopt.toml is the file of settings"),
        (
            {"rules": ["mine.yaml"], "report": "mine.yaml"},
            "report: mine.yaml is the file of rules mine.yaml, which is never overwritten",
        ),
    ],
)
def test_a_wrong_argument_is_named_at_once(arguments, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names = ("m.onnx", "in.npz", "mine.yaml", "evidence.lock", "manifest.json", "graphopt.toml")
    for name in names:
        (tmp_path / name).write_bytes(b"never read")
    with pytest.raises(graphopt.UsageError, match=message):
        graphopt.optimize("m.onnx", **arguments)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == dict.fromkeys(names, b"never read")


def test_none_is_no_model():
    for call in (graphopt.optimize, graphopt.inspect, graphopt.explain, lambda model: graphopt.verify(model, model)):
        with pytest.raises(graphopt.UsageError, match=r"must be a path or an onnx\.ModelProto, not NoneType"):
            call(None)
    with pytest.raises(graphopt.UsageError, match="threads must be"):
        graphopt.verify("a.onnx", "b.onnx", threads=-1)


def emitted_of(path):
    loaded = graphopt.load(path)
    return emit(loaded, loaded.graph)


def result_of(path, method, *arguments):
    return attrgetter(method)(graphopt.optimize(path, strategy="none", measure=False))(*arguments)


def test_no_models_to_share_weights_with_is_nothing_to_say(tmp_path):
    source = grouped(tmp_path / "m.onnx", size=8)
    for sharing in (None, [], (), [str(tmp_path / "other.onnx")]):
        graphopt.optimize(source, output=tmp_path / "o.onnx", sharing=sharing, measure=False, strategy="none")
    assert (tmp_path / "o.onnx").is_file()


def test_a_result_that_is_held_keeps_no_file(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    held = graphopt.optimize(grouped(tmp_path / "m.onnx"), measure=False, rules=["grouped-conv"])
    assert not held.report["kept_original"]
    assert not [path for path in tmp_path.glob("graphopt-*/**/*") if path.is_file() and path.name != ".lock"]
    held.save(tmp_path / "out.onnx")
    assert (tmp_path / "out.onnx").exists()


def test_what_ends_in_the_middle_leaves_no_file(tmp_path):
    source, seen = grouped(tmp_path / "m.onnx"), []

    def stop(told):
        seen.extend(path.name for path in tmp_path.iterdir() if path != source)
        if seen:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt) as held:  # as a notebook holds it, with its traceback
        graphopt.optimize(source, output=tmp_path / "o.onnx", rules=["grouped-conv"], progress=stop)
    assert seen and list(tmp_path.iterdir()) == [source], held


def test_a_result_says_that_it_stays_in_its_process(optimised):
    for way in (pickle.dumps, copy.deepcopy):
        with pytest.raises(TypeError, match="hand over its report"):
            way(optimised[-1])


def test_a_parsed_model_has_no_path(tmp_path):
    parsed = onnx.load(grouped(tmp_path / "m.onnx"))
    assert inspect_model(parsed)["path"] is None and explain_model(parsed)["path"] is None


def test_what_is_given_back_is_short_in_a_console(optimised, tmp_path):
    source, _, trace, result = optimised
    replayed = graphopt.replay(trace, source)
    assert repr(replayed) == "<Replayed 3 of 3 steps, 6 to 6 nodes>"
    assert (
        repr(replayed.loaded)
        == repr(graphopt.load(source))
        == f"<Model m.onnx: 6 nodes, {replayed.loaded.nbytes / 1e3:.1f} kB>"
    )
    assert repr(result.trace) == "<Trace of 3 steps>"
    assert all(len(repr(each)) < 300 for each in (result, graphopt.verify(source, source), replayed.emitted))
    assert repr(Bench((Case("a", "a", "cpu", 1, ()),), 0.1, True)) == "<Bench a: 1 case, ended early>"


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: graphopt.load(None), "source must be a path, bytes or an onnx.ModelProto, not NoneType"),
        (lambda: graphopt.save(None, "x.onnx"), "emitted must be an Emitted"),
        (lambda: graphopt.optimize("m.onnx", {"threads": 1}), "settings must be a graphopt.config.Settings, not dict"),
        (lambda: graphopt.bench("m.onnx"), "models must be a list of paths and names of the zoo, not str"),
        (lambda: graphopt.bench(["m.onnx"], 5), "plan must be a graphopt.Plan, not int"),
        (lambda: graphopt.bench([]), "models must name one at least"),
        (lambda: graphopt.optimize_many("m.onnx", "out"), "models must be a list of paths, not str"),
        (lambda: graphopt.optimize_many([5], "out"), "each of models must be a path, not int"),
        (lambda: graphopt.optimize_many([""], "out"), "each of models must be a path, not ''"),
        (lambda: graphopt.optimize_many(["m.onnx"], ""), "out must be a path, not ''"),
        (lambda: graphopt.optimize(Path("m\0")), "model must be a path or an onnx.ModelProto, not "),
        (lambda: graphopt.replay(Path("m\0"), "m"), "trace must be a path, not "),
        (lambda: graphopt.optimize(""), "model must be a path or an onnx.ModelProto, not ''"),
        (lambda: graphopt.optimize_many([], "out"), "models must name one at least"),
        (lambda: graphopt.optimize_many(["m.onnx"], 3), "out must be a path, not int"),
        (lambda: graphopt.optimize_many(["m.onnx"], "out", {"threads": 1}), "settings must be a graphopt.Settings, not dict"),
        (lambda: graphopt.optimize_many(["m.onnx"], "out", on_done=5), "on_done must be a function, not 5"),
        (lambda: graphopt.replay(None, "m.onnx"), "trace must be a path, not NoneType"),
        (lambda: graphopt.replay("t.json", None), "model must be a path or an onnx.ModelProto, not NoneType"),
        *((partial(graphopt.replay, "t.json", "m.onnx", steps=steps), f"steps must be a whole number of at least 0, not {steps!r}")
          for steps in ("x", -1, 1.5)),
        (lambda: graphopt.bisect("t.json", "m.onnx", threads=-1), "threads must be a whole number of at least 0, not -1"),
        (lambda: graphopt.bisect("t.json", "m.onnx", seed="x"), "seed must be a whole number of at least 0, not 'x'"),
        (lambda: graphopt.bisect("t.json", "m.onnx", seconds=-1), "seconds must be a number of at least 0, not -1"),
        (lambda: graphopt.bisect("t.json", "m.onnx", slower="no"), "slower must be true or false, not 'no'"),
        (lambda: retrace.stages("t.json", "m.onnx", seconds=-1), "seconds must be a number of at least 0, not -1"),
        (lambda: retrace.stages("t.json", "m.onnx", threads=-1), "threads must be a whole number of at least 0, not -1"),
        *((partial(call, *models, inputs=inputs), f"inputs must be a path or a mapping of arrays by input name, not {inputs!r}")
          for call, models in ((graphopt.optimize, ["m.onnx"]), (graphopt.inspect, ["m.onnx"]), (graphopt.verify, ["m.onnx"] * 2))
          for inputs in (5, [1, 2], {5: 1})),
        (lambda: graphopt.bench(["m.onnx"], graphopt.Plan(inputs=5)), "inputs must be a path or a mapping of arrays"),
        *((partial(graphopt.inspect, "m.onnx", runs=runs), f"runs must be a whole number of at least 1, not {runs!r}") for runs in ("x", 0)),
        *((partial(graphopt.optimize, "m.onnx", **{name: 5}), f"{name} must be a function, not 5") for name in ("progress", "interrupted")),
        *((partial(graphopt.bench, ["m.onnx"], **{name: 5}), f"{name} must be a function, not 5")
          for name in ("progress", "interrupted", "on_case", "on_result")),
        *((partial(graphopt.optimize, "m.onnx", sharing=sharing), "sharing must be a list of paths, not ") for sharing in ("x.onnx", 5, [5])),
        (lambda: graphopt.bench([5]), "each of models must be a path or a name of the zoo, not int"),
        (lambda: graphopt.load("m.onnx", dims={3: 1}), "unknown dimension 3"),
        (lambda: graphopt.load("m.onnx", input_shapes={3: [1]}), "unknown input 3"),
        (lambda: graphopt.bench(["m.onnx"], graphopt.Plan(levels="all")), "levels must be a list of names, not 'all'"),
        (lambda: graphopt.bench(["m.onnx"], graphopt.Plan(against=(5,))), "against must be a list of names, not (5,)"),
        (lambda: graphopt.load("m.onnx", dims=5), "dims must be sizes by name, not int"),
        (lambda: graphopt.load("m.onnx", dims={"batch": "x"}), "'batch': a dimension can't be 'x'"),
        (lambda: graphopt.load("m.onnx", input_shapes=5), "input_shapes must be shapes by name, not int"),
        (lambda: graphopt.load("m.onnx", input_shapes={"x": 5}), "input_shapes: 'x' must be a list of sizes, not int"),
        (lambda: graphopt.load("m.onnx", freeze_initializers="no"), "freeze_initializers must be true or false, not str"),
        (lambda: graphopt.save(emitted_of("m.onnx"), "o.onnx", external="no"), "external must be true or false, not str"),
        (lambda: graphopt.save(emitted_of("m.onnx"), "o.onnx", metadata=5), "metadata must be texts by name, not int"),
        (lambda: graphopt.save(emitted_of("m.onnx"), "o.onnx", metadata={"a": 5}), "metadata: 'a' must be a text, not int"),
        (lambda: graphopt.bisect("no.json", "m.onnx"), "no.json: no such file or directory"),
        *((partial(result_of, "m.onnx", method, 5), "path must be a path, not int") for method in ("save", "write_page", "trace.write")),
        *((partial(result_of, "m.onnx", method, "no/o"), "no/o: can't be written: no such file or directory")
          for method in ("save", "write_page", "trace.write")),
        (lambda: graphopt.save(emitted_of("m.onnx"), "no/o.onnx"), "no/o.onnx: can't be written: no such file or directory"),
        (lambda: graphopt.optimize("m.onnx", inputs="no.npz"), "can't read inputs from no.npz: no such file or directory"),
    ],
)  # fmt: skip
def test_what_is_none_of_its_kind_is_named(call, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    grouped(tmp_path / "m.onnx")
    with pytest.raises(graphopt.GraphoptError) as error:
        call()
    assert message in str(error.value)


def test_a_replay_never_writes_over_its_input(optimised, tmp_path):
    source = optimised[0]
    before = source.read_bytes()
    graphopt.optimize(source, trace=tmp_path / "t.json", measure=False, rules=["grouped-conv"])
    with pytest.raises(graphopt.UsageError, match="is the model, which is never overwritten"):
        graphopt.replay(tmp_path / "t.json", source, output=str(source))
    assert source.read_bytes() == before
    graphopt.replay(str(tmp_path / "t.json"), source, output=str(tmp_path / "again.onnx"))
    assert (tmp_path / "again.onnx").is_file()


def test_a_result_is_never_saved_over_its_input(tmp_path):
    source = grouped(tmp_path / "m.onnx", size=8)
    before = source.read_bytes()
    (tmp_path / "link.onnx").symlink_to(source)
    for rules in (["grouped-conv"], ["identity"]):  # of the second nothing comes, and the input is kept
        result = graphopt.optimize(source, rules=rules, measure=False)
        for path in (source, str(tmp_path / "link.onnx")):
            for save in (result.save, result.write_page, partial(graphopt.save, result.emitted)):
                with pytest.raises(graphopt.UsageError, match="is the input, which is never overwritten"):
                    save(path)
    assert source.read_bytes() == before and (tmp_path / "link.onnx").is_symlink()


def test_weights_are_never_overwritten(tmp_path):
    source, weights = tmp_path / "m.onnx", tmp_path / "m.data"
    onnx.save(onnx.load(grouped(source, size=8)), source, save_as_external_data=True, location=weights.name)
    before = weights.read_bytes()
    with pytest.raises(graphopt.UsageError, match="overwrite weights of the input"):
        graphopt.optimize(source, rules=["grouped-conv"], measure=False).save(weights)
    for target in ("output", "trace", "report"):
        with pytest.raises(graphopt.UsageError, match="overwrite weights of the input"):
            graphopt.optimize(source, rules=["grouped-conv"], measure=False, **{target: weights})
    assert weights.read_bytes() == before


@pytest.mark.parametrize("rules", [["grouped-conv"], ["identity"]])
def test_nothing_is_made_of_an_input_that_has_changed(tmp_path, rules):
    source = grouped(tmp_path / "m.onnx", size=8)
    result = graphopt.optimize(source, rules=rules, measure=False)
    grouped(tmp_path / "other.onnx", channels=32, groups=HALF_BLOCKS // 2, size=8).replace(source)
    changed = pytest.raises(graphopt.ModelError, match=r"m\.onnx has changed since it was read")
    with changed:
        result.save(tmp_path / "out.onnx")
    if result.emitted.files:  # of the first, all weights were computed
        with changed:
            graphopt.save(result.emitted, tmp_path / "out.onnx")
        with changed:
            assert result.model
    assert bool(result.emitted.files) == (rules == ["identity"])
    assert not (tmp_path / "out.onnx").exists()


def test_paths_may_be_texts(optimised, tmp_path):
    source = optimised[0]
    result = graphopt.optimize(
        str(source), output=str(tmp_path / "o.onnx"), trace=str(tmp_path / "t.json"), report=str(tmp_path / "r.html"),
        measure=False, rules=["grouped-conv"],
    )  # fmt: skip
    assert all((tmp_path / name).is_file() for name in ("o.onnx", "t.json", "r.html"))
    result.write_page(str(tmp_path / "again.html"))
    result.trace.write(str(tmp_path / "again.json"))
    assert (tmp_path / "again.html").is_file() and (tmp_path / "again.json").is_file()
    assert result.speedup is None
    assert repr(result) == "<Result m.onnx: not measured, 6 to 6 nodes, 3 rewrites, verified>"
    assert "<td>3 rewrites</td>" in result._repr_html_() and len(result._repr_html_()) < 500


def test_the_package_lists_what_it_has():
    assert set(dir(graphopt)) >= {
        "optimize",
        "optimize_many",
        "Settings",
        "inspect",
        "explain",
        "verify",
        "bench",
        "GraphoptError",
        "ModelError",
    }
    assert "import_module" not in dir(graphopt)
    for name in dir(graphopt):
        assert getattr(graphopt, name) is not None
    assert issubclass(graphopt.ModelError, graphopt.GraphoptError)
    kinds = {name: each for name, each in vars(errors).items() if isinstance(each, type)}
    ours = {name: each for name, each in kinds.items() if issubclass(each, graphopt.GraphoptError)}
    assert len(ours) > 12 and {name: getattr(graphopt, name, None) for name in ours} == ours
    assert set(ours) <= set(dir(graphopt))


def test_open_dimensions_are_measured_at_every_set_of_sizes(optimised, tmp_path):
    source = optimised[0]
    result = graphopt.optimize(source, at=[{"batch": 1}, {"batch": 2}], budget=6, rules=["grouped-conv"])
    told = result.report
    assert told["sizes"] == {"batch": 1} and told["sizes_assumed"] == []
    assert [there["sizes"] for there in told["elsewhere"]] == [{"batch": 2}]
    assert told["elsewhere"][0]["speedup"] > 0 and told["verified"]["trials"] == 6
    latency = told["latency"]
    assert latency["baseline_ms"] / latency["optimized_ms"] == pytest.approx(latency["speedup"])
    dims = result.model.graph.input[0].type.tensor_type.shape.dim
    assert dims[0].dim_param == "batch"


def test_a_size_and_a_shape_that_contradict_each_other_are_refused(optimised):
    """A comparison, and a benchmark, took the shape and said nothing of the size."""
    chosen = {"dims": {"batch": 3}, "input_shapes": {"x": (2, 64, 40, 40)}}
    for call in (graphopt.optimize, graphopt.inspect, lambda model, **sizes: graphopt.verify(model, model, **sizes)):
        with pytest.raises(graphopt.UsageError, match="dimension 'batch' would be both 3 and 2"):
            call(optimised[0], **chosen)
    assert graphopt.verify(optimised[0], optimised[0], **chosen | {"dims": {"batch": 2}}).passed


def test_sizes_nobody_chose_are_said_to_be_assumed(optimised):
    told = graphopt.inspect(optimised[0])
    assert told["sizes"] == {"batch": 1}
    assert inspect_model(optimised[0], input_shapes={"x": (2, 64, 40, 40)})["sizes"] == {}
