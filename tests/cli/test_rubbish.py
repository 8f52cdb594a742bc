"""Bad input of every kind: one line on stderr, the right exit code, no traceback and no file left behind."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from tests.cli.test_bench import QUICK
from tests.verification.test_sizes import CRASH, CRASHES, proto

FLOAT = TensorProto.FLOAT


def _model(*nodes: onnx.NodeProto, opset: int = 17, domain: str = "") -> onnx.ModelProto:
    graph = helper.make_graph(
        list(nodes),
        "g",
        [helper.make_tensor_value_info("x", FLOAT, [2, 3])],
        [helper.make_tensor_value_info("y", FLOAT, [2, 3])],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid(domain, opset)], ir_version=8)


def truncated(path: Path, good: bytes) -> None:
    path.write_bytes(good[: len(good) * 2 // 3])


def no_weights(path: Path, good: bytes) -> None:
    """The file of the weights was not copied along."""
    path.write_bytes(good)
    onnx.save(onnx.load(path), path, save_as_external_data=True, location="weights.bin", size_threshold=0)
    (path.parent / "weights.bin").unlink()


def short_weights(path: Path, good: bytes) -> None:
    path.write_bytes(good)
    onnx.save(onnx.load(path), path, save_as_external_data=True, location="weights.bin", size_threshold=0)
    data = (path.parent / "weights.bin").read_bytes()
    (path.parent / "weights.bin").write_bytes(data[: len(data) // 2])


def escaping_weights(path: Path, good: bytes) -> None:
    """External data must stay in the model's folder."""
    proto = onnx.load_from_string(good)
    for tensor in proto.graph.initializer:
        onnx.external_data_helper.set_external_data(tensor, location="../../../etc/passwd")
        tensor.ClearField("raw_data")
    path.write_bytes(proto.SerializeToString())


def no_such_operator(path: Path, good: bytes) -> None:
    path.write_bytes(_model(helper.make_node("Frobnicate", ["x"], ["y"])).SerializeToString())


def missing_input(path: Path, good: bytes) -> None:
    path.write_bytes(_model(helper.make_node("Relu", ["nowhere"], ["y"])).SerializeToString())


def cycle(path: Path, good: bytes) -> None:
    nodes = [helper.make_node("Add", ["x", "b"], ["a"]), helper.make_node("Add", ["a", "x"], ["b"])]
    path.write_bytes(_model(*nodes, helper.make_node("Relu", ["b"], ["y"])).SerializeToString())


def defined_twice(path: Path, good: bytes) -> None:
    nodes = [helper.make_node("Relu", ["x"], ["y"]), helper.make_node("Neg", ["x"], ["y"])]
    path.write_bytes(_model(*nodes).SerializeToString())


def from_the_future(path: Path, good: bytes) -> None:
    path.write_bytes(_model(helper.make_node("Relu", ["x"], ["y"]), opset=999).SerializeToString())


def no_opset(path: Path, good: bytes) -> None:
    proto = _model(helper.make_node("Relu", ["x"], ["y"]))
    del proto.opset_import[:]
    path.write_bytes(proto.SerializeToString())


FILES = {
    "empty": lambda path, good: path.write_bytes(b""),
    "text": lambda path, good: path.write_text("# not a model\n"),
    "zeros": lambda path, good: path.write_bytes(bytes(1000)),
    "noise": lambda path, good: path.write_bytes(np.random.default_rng(0).bytes(5000)),
    "truncated": truncated,
    "no_weights": no_weights,
    "short_weights": short_weights,
    "escaping_weights": escaping_weights,
    "no_such_operator": no_such_operator,
    "missing_input": missing_input,
    "cycle": cycle,
    "defined_twice": defined_twice,
    "from_the_future": from_the_future,
    "no_opset": no_opset,
}


@pytest.mark.parametrize("kind", FILES)
@pytest.mark.parametrize("command", ["optimize", "inspect", "verify", "explain"])
def test_bad_models(cli, model, command, kind):
    bad = model.with_name("bad.onnx")
    FILES[kind](bad, model.read_bytes())
    before = sorted(path.name for path in model.parent.iterdir())
    others = [model] if command == "verify" else []
    outcome = cli(command, bad, *others)
    if command in ("explain", "inspect") and outcome.code == 0:
        # What these show needs no weights and no session, so a defect there may go unnoticed.
        assert kind not in ("empty", "text", "zeros", "noise", "truncated")
    else:
        assert outcome.code in (1, 2)
        assert "bad.onnx" in outcome.error_lines()[0] or kind not in ("empty", "text", "noise", "truncated")
        assert not outcome.out
    assert sorted(path.name for path in model.parent.iterdir()) == before


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["--provider", "gpu"], 2, "gpu"),
        (["--provider", "tensorrt"], 2, "tensorrt"),
        (["--strategy", "magic"], 2, "magic"),
        (["--rules", "no-such-family"], 2, "no-such-family"),
        (["--rules", "no/such/file.yaml"], 2, "no/such/file.yaml"),
        (["--exclude", "no-such-rule"], 2, "no-such-rule"),
        (["--dim", "batch=2"], 2, "batch"),
        (["--input-shape", "image:1x3"], 2, "image"),
        (["--inputs", "text.npz"], 2, "text.npz"),
        (["--inputs", "names.npz"], 2, "wrong_name"),
        (["--inputs", "shape.npz"], 2, "x"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_bad_arguments(cli, model, arguments, code, message):
    folder = model.parent
    (folder / "text.npz").write_text("no arrays in here")
    np.savez(folder / "names.npz", wrong_name=np.zeros((1, 4, 12, 12), np.float32))
    np.savez(folder / "shape.npz", x=np.zeros((3, 3), np.float32))
    before = sorted(path.name for path in folder.iterdir())
    outcome = cli("optimize", model, *arguments)
    assert outcome.code in (1, code)
    assert message in outcome.error_lines()[0]
    assert not outcome.out
    assert sorted(path.name for path in folder.iterdir()) == before


@pytest.mark.parametrize(
    "text",
    ["", "- 3", "id: [", "- id: a\n  match: [y = Relu(x)]\n", "- id: a\n  surprise: 1\n", "\t", "%YAML 9.9\n---\n"],
)
def test_bad_rule_files(cli, model, text):
    rules = model.with_name("mine.yaml")
    rules.write_text(text)
    outcome = cli("rules", "check", rules)
    assert "Traceback" not in outcome.err and "internal error" not in outcome.err
    if text:
        assert outcome.code in (1, 2)
        assert "mine.yaml" in outcome.err
    outcome = cli("optimize", model, "--rules", rules, "--dry-run")
    assert "Traceback" not in outcome.err and "internal error" not in outcome.err


def test_a_full_disk(cli, model, monkeypatch):
    """Nothing half-written stays when there is no space for the result."""
    import os

    real = os.replace

    def full(source, target, **options):
        if str(target).endswith(".opt.onnx"):
            raise OSError(28, "No space left on device", str(target))
        return real(source, target, **options)

    monkeypatch.setattr(os, "replace", full)
    before = sorted(path.name for path in model.parent.iterdir())
    outcome = cli("optimize", model, "--no-measure")
    assert outcome.code == 1
    assert "space" in outcome.error_lines()[0]
    assert sorted(path.name for path in model.parent.iterdir()) == before


def test_a_fault_of_the_model_is_no_matter_of_inputs(cli, model):
    proto = onnx.load(model)
    proto.graph.node[0].attribute.append(helper.make_attribute("group", 0))
    onnx.save(proto, model)
    lines = cli("optimize", model).error_lines()
    assert "group" in lines[0] and "--inputs" not in lines[1] and "fault is likely in the model" in lines[1]


def test_an_archive_without_arrays_is_not_random_inputs(cli, model, tmp_path):
    np.savez(tmp_path / "none.npz")
    outcome = cli("verify", model, model, "--inputs", "none.npz")
    assert outcome.code == 2 and "none.npz holds no array" in outcome.error_lines()[0]


@CRASHES
@pytest.mark.parametrize(
    "arguments",
    [("optimize",), ("inspect",), ("verify", "crash.onnx"), ("bench", "net.onnx", *QUICK)],
    ids=lambda a: a[0],
)
def test_a_model_that_ends_the_process_of_the_runtime(process, model, tmp_path, arguments):
    """Of several models the others are measured, and no temporary folder stays."""
    body = f"o = Constant<value_ints = [1]>() i = Cast<to = 7>(x) b = Equal(i, i) {CRASH}"
    onnx.save(proto("float[1] x", "float[1] c", body), tmp_path / "crash.onnx")
    (tmp_path / "tmp").mkdir()
    command, *more = arguments
    outcome = process(command, "crash.onnx", *more, "--threads", "1", TMPDIR=str(tmp_path / "tmp"))
    assert outcome.code == 1
    (line,) = [line for line in outcome.error_lines() if line.startswith("error: ")]
    assert "crash.onnx: ONNX Runtime crashes (SIGFPE)" in line
    if command == "bench":
        assert "1 of 2 models" in line and "net.onnx (cpu, 1 thread): 4 sessions, 20 rounds" in outcome.out
    else:
        assert not outcome.out
    assert not list((tmp_path / "tmp").iterdir())
    assert sorted(path.name for path in tmp_path.iterdir()) == ["crash.onnx", "net.onnx", "tmp"]
