"""A file that is no model, or half of one, is refused in one line, whatever is wrong with it."""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from onnx import ModelProto, TensorProto, helper

from graphopt.errors import GraphoptError, ModelError
from graphopt.ir.simplify import simplify
from graphopt.onnxio.emit import emit
from graphopt.onnxio.load import load
from graphopt.onnxio.read import upgraded
from graphopt.onnxio.save import save
from tests.ir.check import problems
from tests.onnxio.models import F, body, model, node, normal, weight
from tests.permissions import anyones_folder, permissions_apply


def typical() -> bytes:
    """A bit of everything: weights of both sizes, a Constant, a body, a function, strings, symbols."""
    rng = np.random.default_rng(0)
    branch = body([node("Add", ["h", "b"], ["t"])], [("t", F, ["N", 32])], weights=[weight("b", normal(rng, 32))])
    function = helper.make_function(
        "f", "Twice", ["a"], ["r"], [node("Add", ["a", "a"], ["r"])], [helper.make_opsetid("", 17)]
    )
    proto = model(
        [
            node("MatMul", ["x", "w"], ["h"], name="first"),
            node("Constant", [], ["shape"], value=weight("", np.array([-1, 32]))),
            node("If", ["c"], ["i"], then_branch=branch, else_branch=branch),
            node("Twice", ["i"], ["j"], domain="f"),
            node("Reshape", ["j", "shape"], ["k"]),
            node("LeakyRelu", ["k"], ["y"], alpha=0.5),
        ],
        [("x", F, ["N", 32]), ("c", TensorProto.BOOL, [])],
        [("y", F, ["N", 32])],
        [weight("w", normal(rng, 32, 32)), helper.make_tensor("s", TensorProto.STRING, [1], [b"text"])],
        domains={"f": 1},
        functions=[function],
    )
    return proto.SerializeToString()


def _whole(path: Path) -> Path:
    path.write_bytes(typical())
    return path


def _text(path: Path) -> Path:
    path.write_text("this is no model\n" * 100)
    return path


def _random(path: Path, seed: int) -> Path:
    path.write_bytes(random.Random(seed).randbytes(5000))
    return path


def _empty(path: Path) -> Path:
    path.touch()
    return path


def _folder(path: Path) -> Path:
    path.mkdir()
    return path


def _link(path: Path) -> Path:
    path.symlink_to("nowhere")
    return path


def _pytorch(path: Path) -> Path:
    path.write_bytes(b"PK\x03\x04" + bytes(1000))
    return path


def _no_graph(path: Path) -> Path:
    path.write_bytes(ModelProto(ir_version=8, producer_name="me").SerializeToString())
    return path


FILES: dict[str, tuple[Callable[[Path], Path], str]] = {
    "missing": (lambda path: path, "no such file"),
    "a broken link": (_link, "no such file"),
    "empty": (_empty, "the file is empty"),
    "a folder": (_folder, "is a directory, not a model file"),
    "text": (_text, "not an ONNX model"),
    "an archive": (_pytorch, r"not .* ONNX model"),
    "no graph": (_no_graph, "it has no graph"),
    **{f"random {seed}": (lambda path, seed=seed: _random(path, seed), "ONNX model") for seed in range(20)},
}


@pytest.mark.parametrize("name", FILES)
def test_refused_in_one_line(name: str, tmp_path: Path) -> None:
    make, message = FILES[name]
    path = make(tmp_path / "m.onnx")
    with pytest.raises(ModelError, match=message) as caught:
        load(path)
    assert str(caught.value).startswith(f"{path}: ")
    assert "\n" not in str(caught.value)


@pytest.mark.skipif(os.name == "nt", reason="pipes of Unix")
@pytest.mark.parametrize("upgrade", [False, True])
def test_what_is_no_file_is_not_called_empty(tmp_path: Path, upgrade: bool) -> None:
    os.mkfifo(tmp_path / "pipe")  # nobody writes into it: opening it would wait for ever
    for path in (tmp_path / "pipe", Path("/dev/zero")):
        with pytest.raises(ModelError, match="is a pipe or a device, not a file") as caught:
            load(upgraded(path) if upgrade else path)
        assert caught.value.hint == "copy it to a file first"


@pytest.mark.skipif(os.name == "nt", reason="permissions of Unix")
def test_unreadable() -> None:
    with anyones_folder() as folder:
        path = _whole(folder / "m.onnx")
        load(path)
        path.chmod(0)
        with permissions_apply(), pytest.raises(ModelError, match="can't be read"):
            load(path)


@pytest.mark.parametrize("tenth", range(10))
def test_truncated(tenth: int, tmp_path: Path) -> None:
    whole = typical()
    path = tmp_path / "m.onnx"
    path.write_bytes(whole[: len(whole) * tenth // 10])
    with pytest.raises(ModelError, match=r"empty|truncated"):
        load(path)
    with pytest.raises(ModelError):
        load(path.read_bytes())


def test_cut_off_anywhere(tmp_path: Path) -> None:
    """Cut between two fields it may still be a protobuf, and even a model that says less."""
    whole = typical()
    path = tmp_path / "m.onnx"
    for length in [*range(0, len(whole), 97), *range(len(whole) - 60, len(whole))]:
        path.write_bytes(whole[:length])
        _either_way(path, tmp_path)


def _mangle(data: bytes, changes: list[tuple[int, int, int]]) -> bytes:
    out = bytearray(data)
    for kind, where, what in changes:
        position = where % len(out)
        if kind == 0:
            out[position] = what
        elif kind == 1:
            out[position] ^= 1 << what % 8
        elif kind == 2:
            del out[position : position + 1 + what % 7]
        else:
            out[position:position] = bytes([what]) * (1 + what % 3)
        out = out or bytearray(b"\0")
    return bytes(out)


def _either_way(path: Path, folder: Path) -> None:
    """The model is refused, or is sound all the way through."""
    try:
        loaded = load(path)
    except GraphoptError as error:
        assert "\n" not in str(error)
        return
    graph = simplify(loaded.graph)
    assert problems(loaded.graph) == []
    assert problems(graph) == []
    save(emit(loaded, graph, max_bytes=10**6), folder / "out.onnx")
    load(folder / "out.onnx")


@settings(max_examples=400, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 10**6), st.integers(0, 255)), min_size=1, max_size=4))
def test_flipped_bytes(tmp_path: Path, changes: list[tuple[int, int, int]]) -> None:
    path = tmp_path / "m.onnx"
    path.write_bytes(_mangle(typical(), changes))
    _either_way(path, tmp_path)


def _tensor(**fields: object) -> TensorProto:
    tensor = TensorProto(name="w", data_type=F, dims=[2])
    for name, value in fields.items():
        if isinstance(value, list):
            getattr(tensor, name)[:] = value
        else:
            setattr(tensor, name, value)
    return tensor


def _malformed() -> Iterator[tuple[str, TensorProto]]:
    yield "too few bytes", _tensor(raw_data=b"1234567")
    yield "too many bytes", _tensor(raw_data=bytes(12))
    yield "too few numbers", _tensor(float_data=[1.0])
    yield "too many numbers", _tensor(float_data=[1.0, 2.0, 3.0])
    yield "no content", _tensor()
    yield "no dtype", _tensor(data_type=0, raw_data=bytes(8))
    yield "an unknown dtype", _tensor(data_type=99, raw_data=bytes(8))
    yield "a negative dimension", _tensor(dims=[-1], raw_data=bytes(8))
    yield "missing strings", _tensor(data_type=TensorProto.STRING, string_data=[b"a"])
    yield "large and too short", _tensor(dims=[1000], raw_data=bytes(3999))


@pytest.mark.parametrize(("name", "tensor"), [*_malformed()], ids=[name for name, _ in _malformed()])
@pytest.mark.parametrize("place", ["initializer", "constant", "attribute"])
def test_malformed_tensors(name: str, tensor: TensorProto, place: str, tmp_path: Path) -> None:
    source = {
        "initializer": node("Identity", ["w"], ["v"]),
        "constant": node("Constant", [], ["v"], value=tensor),
        "attribute": node("ConstantOfShape", ["s"], ["v"], value=tensor),
    }[place]
    weights = [weight("s", np.array([2])), *([tensor] if place == "initializer" else [])]
    proto = model([source, node("Identity", ["v"], ["y"])], [("x", F, [2])], [("y", tensor.data_type, None)], weights)
    path = tmp_path / "m.onnx"
    path.write_bytes(proto.SerializeToString())
    with pytest.raises(ModelError, match="w"):
        load(path)
    with pytest.raises(ModelError, match="w"):
        load(proto)


def test_names_must_be_text(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    for old in (b"first", b"MatMul", b"\x01h", b"alpha", b"Twice"):
        assert old in typical()
        path.write_bytes(typical().replace(old, old[:-1] + b"\xff"))
        with pytest.raises(ModelError, match="not UTF-8"):
            load(path)
    (function,) = ModelProto.FromString(typical()).functions
    inside, old = function.SerializeToString(), function.node[0].op_type.encode()
    path.write_bytes(typical().replace(inside, inside.replace(old, old[:-1] + b"\xff")))
    with pytest.raises(ModelError, match="not UTF-8"):
        load(path)
