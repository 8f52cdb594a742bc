"""Files that nobody writes by accident: one clear line each."""

from __future__ import annotations

import os
import subprocess
import sys

import onnx
import pytest
from onnx import TensorProto, helper

from tests.cli.conftest import ROOT

F = TensorProto.FLOAT


def saved(path, shape, weight: TensorProto):
    graph = helper.make_graph(
        [helper.make_node("Add", ["x", "w"], ["y"])], "g", [helper.make_tensor_value_info("x", F, shape)],
        [helper.make_tensor_value_info("y", F, None)], [weight],
    )  # fmt: skip
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return path


def of_rank(rank: int, size: int) -> TensorProto:
    return TensorProto(name="w", data_type=F, dims=[1] * (rank - 1) + [size], raw_data=bytes(4 * size))


def elsewhere(location: str) -> TensorProto:
    weight = TensorProto(name="w", data_type=F, dims=[8], data_location=TensorProto.EXTERNAL)
    weight.external_data.add(key="location", value=location)
    return weight


@pytest.mark.parametrize("command", ["optimize", "inspect"])
@pytest.mark.parametrize(
    ("shape", "weight", "text"),
    [
        ([8], of_rank(5000, 8), "5000 dimensions"),
        ([8], of_rank(5000, 1000), "5000 dimensions"),
        ([8], elsewhere("a\0b"), "no file has a name like"),
        ([2**30, 2**30], of_rank(1, 1), "too large to make up: 1.2e+18 elements"),
        ([1] * 5000, of_rank(1, 1), "dimensions"),
    ],
)
def test_models(cli, tmp_path, command, shape, weight, text):
    outcome = cli(command, saved(tmp_path / "m.onnx", shape, weight))
    said = " ".join((outcome.err + outcome.out).split())
    assert text in said and "internal error" not in said
    assert outcome.code == 1 or command == "inspect"


@pytest.mark.parametrize(
    ("arguments", "where"),
    [
        (["optimize", ""], "after optimize"),
        (["optimize", "m.onnx", "--report", ""], "after --report"),
        (["optimize", "m.onnx", "--out-dir="], "as --out-dir="),
        (["optimize", "m.onnx", "--budget", ""], "after --budget"),
        (["train-agent", "--models", "m.onnx", "--out", ""], "after --out"),
        (["verify", "m.onnx", ""], "after m.onnx"),
    ],
)
def test_an_empty_text_is_not_the_current_folder(cli, tmp_path, model, arguments, where):
    model.rename(tmp_path / "m.onnx")
    before = list(tmp_path.rglob("*"))
    outcome = cli(*arguments)
    assert outcome.code == 2
    assert outcome.error_lines()[0] == f"error: an empty text is given {where}"
    assert list(tmp_path.rglob("*")) == before


def test_a_model_that_is_not_there_has_a_neighbour(cli, tmp_path, model):
    model.rename(tmp_path / "mine.onnx")
    assert cli("optimize", "mina.onnx", "-o", "out.onnx").error_lines()[1] == "hint: did you mean mine.onnx?"


@pytest.mark.parametrize("text", ["[" * 100_000, '{"a":' * 100_000])
def test_json_without_a_bottom(cli, tmp_path, model, text):
    (tmp_path / "deep.json").write_text(text)
    agent = tmp_path / "agent"
    agent.mkdir()
    (agent / "manifest.json").write_text(text)
    for arguments in (
        ["replay", "deep.json", model],
        ["cost", "import", "deep.json"],
        ["optimize", model, "--strategy", "rl", "--agent", "agent"],
    ):
        outcome = cli(*arguments)
        assert outcome.code in (1, 2) and "nested too deeply" in outcome.error_lines()[0]


def test_the_home_of_nobody(cli, model, monkeypatch):
    monkeypatch.setenv("GRAPHOPT_CACHE_DIR", "~no-such-user/cache")
    outcome = cli("optimize", model)
    assert outcome.code == 2 and "GRAPHOPT_CACHE_DIR: ~no-such-user" in outcome.error_lines()[0]


@pytest.mark.parametrize("chosen", ["~/cache", ""])
def test_a_cache_folder_of_a_user_without_a_home(cli, model, monkeypatch, tmp_path, chosen):
    def nobody(uid):
        raise KeyError(f"getpwuid(): uid not found: {uid}")

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("pwd.getpwuid", nobody)  # as in a container that runs as a user of no name
    for name in ("HOME", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("GRAPHOPT_CACHE_DIR", chosen)
    outcome = cli("optimize", model)
    assert outcome.code == 2 and "the home directory is not known" in outcome.error_lines()[0]
    assert "GRAPHOPT_CACHE_DIR" in outcome.err and not (tmp_path / "~").exists()


@pytest.mark.parametrize("command", ["optimize", "bench"])
def test_a_strategy_whose_extra_is_missing(cli, model, monkeypatch, command):
    monkeypatch.setattr("graphopt.registry.find_spec", lambda name: None)
    outcome = cli(command, model, "--strategy", "egraph")
    assert outcome.code == 2 and outcome.error_lines()[0] == "error: scipy is not installed"
    assert "hint: pip install '.[egraph]' in graphopt's folder" in outcome.err


@pytest.mark.skipif(sys.platform != "linux", reason="names of any bytes")
@pytest.mark.parametrize("name", [b"\xff/m.onnx", b"\xff/\xfe.onnx"])
@pytest.mark.parametrize("size", [4, 4096])  # the larger weight is left in its file
def test_names_that_are_no_utf8(cli, tmp_path, size, name):
    model = saved(tmp_path / "net.onnx", [1, size], of_rank(2, size))
    (tmp_path / os.fsdecode(b"\xff")).mkdir()
    odd = model.rename(tmp_path / os.fsdecode(name))
    assert cli("optimize", odd, "-o", tmp_path / "o.onnx").error_lines()[0].endswith("a name in UTF-8")
    good = odd.rename(tmp_path / "m.onnx")
    outcome = cli("optimize", good, "--no-measure", "-o", tmp_path / os.fsdecode(b"\xff/o.onnx"))
    assert outcome.code == 2 and outcome.error_lines()[1] == "hint: rename it"
    assert not list((tmp_path / os.fsdecode(b"\xff")).iterdir())


@pytest.mark.skipif(sys.platform != "linux", reason="names of any bytes")
def test_names_in_another_encoding_than_that_of_the_locale(tmp_path, model):
    odd = model.rename(tmp_path / "模型.onnx")
    plain = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    command = [sys.executable, "-m", "graphopt", "verify", odd, odd]
    done = subprocess.run(command, env={**os.environ, **plain}, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.skipif(sys.platform != "linux", reason="names of any bytes")
def test_weights_of_names_that_the_locale_has_not(process, tmp_path):
    plain = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    saved(tmp_path / "net.onnx", [1, 4096], of_rank(2, 4096))
    onnx.save(onnx.load(tmp_path / "net.onnx"), tmp_path / "模型.onnx", save_as_external_data=True, location="重量.bin")
    for arguments in (["-o", "新.onnx"], ["--out-dir", "新"]):
        outcome = process("optimize", "模型.onnx", *arguments, "--no-measure", **plain)
        assert outcome.code == 0, outcome.err
    for made in ("新.onnx", "新/模型.onnx"):
        assert process("verify", "模型.onnx", made).code == 0
    (tmp_path / "规则").mkdir()
    for name in ("flat.yaml", "evidence.lock"):
        (tmp_path / "规则" / name).write_bytes((ROOT / "rules" / name).read_bytes())
    assert process("rules", "list", "--rules", "规则", **plain).code == 0


@pytest.mark.parametrize("json", ["in/net.onnx", "in/w.data", "in/config.json", "out/net.onnx", "out/config.json"])
def test_the_report_of_many_models_takes_the_place_of_nothing(cli, tmp_path, model, json):
    (tmp_path / "in").mkdir()
    (tmp_path / "out").mkdir()
    onnx.save(
        onnx.load(model), tmp_path / "in/net.onnx", save_as_external_data=True, location="w.data", size_threshold=0
    )
    (tmp_path / "in/config.json").write_text("{}")
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    for models in ("in", "in/*.onnx") if "config" not in json else ("in",):
        outcome = cli("optimize", models, "--out-dir", "out", "--json", json)
        assert outcome.code == 2 and json in outcome.error_lines()[0]
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before


def test_files_may_grow_without_end(cli, model):
    outcome = cli("optimize", model, "--no-measure", "--max-growth", "1e308", "--max-memory-growth", "1e308")
    assert outcome.code == 0, outcome.err


def test_a_warning_that_is_an_error_is_a_line(tmp_path):
    command = [sys.executable, "-W", "error", "-m", "graphopt", "providers"]
    environment = {**os.environ, "GRAPHOPT_THREDS": "1", "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 1 and done.stderr.splitlines() == [
        "error: unknown variable 'GRAPHOPT_THREDS', which has no effect: did you mean 'GRAPHOPT_THREADS'?",
        "hint: a warning is an error by -W or PYTHONWARNINGS",
    ]


@pytest.mark.skipif(os.name == "nt", reason="a folder in use can't be removed")
def test_a_current_folder_that_is_gone(tmp_path, model):
    done = subprocess.run(
        ["sh", "-c", 'mkdir gone && cd gone && rmdir ../gone && exec "$@"', "sh", sys.executable, "-m", "graphopt", "inspect", model],
        capture_output=True, text=True, cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(ROOT)}, timeout=120, check=False,
    )  # fmt: skip
    assert done.stderr.splitlines() == ["error: the current folder is no longer there", "hint: go to another one"]
    assert done.returncode == 1


def of_signature(inputs, outputs, *, ir_version=8):
    def infos(names):
        return [helper.make_tensor_value_info(name, F, [4]) for name in names]

    graph = helper.make_graph([helper.make_node("Neg", ["x"], ["y"])], "g", infos(inputs), infos(outputs))
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=ir_version)


def test_an_output_that_is_listed_twice(cli, tmp_path):
    proto = of_signature("x", "yy")
    proto.graph.node.insert(0, helper.make_node("Identity", ["x"], ["i"]))
    proto.graph.node[1].input[0] = "i"
    onnx.save(proto, tmp_path / "m.onnx")
    outcome = cli("optimize", "m.onnx", "--threads", "1", "--no-measure")
    assert outcome.code == 0, outcome.err
    made = onnx.load(tmp_path / "m.opt.onnx").graph
    assert [node.op_type for node in made.node] == ["Neg"] and [info.name for info in made.output] == ["y", "y"]
    assert cli("verify", "m.onnx", "m.opt.onnx").code == 0
    assert cli("optimize", "m.onnx", "--threads", "1", "--budget", "2").code == 0


def test_a_format_newer_than_the_runtime_says_what_to_do(cli, tmp_path):
    onnx.save(of_signature("x", "y", ir_version=99), tmp_path / "m.onnx")
    outcome = cli("optimize", "m.onnx", "--threads", "1")
    assert outcome.code == 1 and outcome.error_lines()[1].startswith("hint: upgrade onnxruntime")


def test_weights_at_an_absolute_path_say_what_to_do(cli, tmp_path):
    (tmp_path / "w.bin").write_bytes(bytes(32))
    onnx_file = saved(tmp_path / "m.onnx", [8], elsewhere(str(tmp_path / "w.bin")))
    outcome = cli("optimize", onnx_file, "--threads", "1", "--no-measure")
    assert outcome.code == 0 or outcome.error_lines()[1].startswith("hint: name the file relative")
