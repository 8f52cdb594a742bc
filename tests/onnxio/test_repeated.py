"""A field that stands more than once in the file is read as protobuf reads it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

from graphopt.api import optimize, verify
from graphopt.errors import ModelError, OutputsDifferError
from graphopt.onnxio import wire
from graphopt.onnxio.load import load

N = 32
ROW = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[N]).SerializeToString()


def field(number: int, content: bytes) -> bytes:
    out, length = bytearray([number << 3 | 2]), len(content)
    while length > 127:
        out.append(length & 127 | 128)
        length >>= 7
    return bytes([*out, length]) + content


def model(path: Path, *tensors: bytes, apart: bool = False) -> Path:
    """x @ w behind an Identity that a rule removes; the initializers' bytes as they are given, in a second graph if ``apart``."""
    info = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [2, N]) for n in "xy"]
    nodes = [helper.make_node("Identity", ["x"], ["i"]), helper.make_node("MatMul", ["i", "w"], ["y"])]
    graph = helper.make_graph(nodes, "g", info[:1], info[1:])
    rest = helper.make_model(
        helper.make_graph([], "g", [], []), opset_imports=[helper.make_opsetid("", 17)], ir_version=8
    )
    rest.ClearField("graph")
    nodes, weights = graph.SerializeToString(), b"".join(field(5, tensor) for tensor in tensors)
    whole = field(7, nodes) + field(7, weights) if apart else field(7, nodes + weights)
    path.write_bytes(rest.SerializeToString() + whole)
    return path


def pieces() -> tuple[bytes, bytes, bytes, np.ndarray]:
    """A tensor without data, its data, other data, and the array."""
    rng = np.random.default_rng(0)
    array, other = (rng.standard_normal((N, N)).astype(np.float32) for _ in range(2))
    bare = numpy_helper.from_array(array, "w")
    bare.ClearField("raw_data")
    one, two = (TensorProto(raw_data=a.tobytes()).SerializeToString() for a in (array, other))
    return bare.SerializeToString(), one, two, array


def located(*codes: int) -> bytes:
    return b"".join(bytes([14 << 3, code]) for code in codes)


def external(**entries: object) -> bytes:
    tensor = TensorProto()
    for key, value in entries.items():
        tensor.external_data.add(key=key, value=str(value))
    return tensor.SerializeToString()


AT = external(location="w.bin", offset=0)


def in_file(path: Path) -> None:
    """Other data and then the data, in a file of their own."""
    _, right, wrong, _ = pieces()
    path.write_bytes(b"".join(TensorProto.FromString(data).raw_data for data in (wrong, right)))


TENSORS = [
    lambda bare, right, wrong: wrong + bare + right,
    lambda bare, right, wrong: wrong + wrong + bare + right + located(0),
    lambda bare, right, wrong: wrong + located(1) + bare + right + located(0),
    lambda bare, right, wrong: bare + wrong + right + located(0, 7),  # a value that the enumeration lacks
    lambda bare, right, wrong: TensorProto(name="v", data_type=TensorProto.INT32).SerializeToString() + bare + right,
    lambda bare, right, wrong: ROW + TensorProto(dims=[N]).SerializeToString() + right,  # dimensions add up
    lambda bare, right, wrong: bare + AT + external(offset=N * N * 4, length=N * N * 4) + located(0, 1),
    lambda bare, right, wrong: bare + wrong + AT + external(offset=N * N * 4) + located(1),
    lambda bare, right, wrong: bare + AT + right + external(offset=0) + located(1, 0),
    lambda bare, right, wrong: bare + AT + right,  # said to lie elsewhere, and not located there
]


@pytest.mark.parametrize(
    ("tensor", "apart"), [*((tensor, False) for tensor in TENSORS), *((tensor, True) for tensor in TENSORS[::4])]
)
def test_the_last_counts(tmp_path, tensor, apart):
    bare, right, wrong, array = pieces()
    in_file(tmp_path / "w.bin")
    path = model(tmp_path / "m.onnx", tensor(bare, right, wrong), apart=apart)
    np.testing.assert_array_equal(numpy_helper.to_array(onnx.load(path).graph.initializer[0]), array)
    x = np.ones((2, N), np.float32)
    expected = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"]).run(None, {"x": x})
    np.testing.assert_array_equal(load(path).tensors["w"].numpy(), array)
    out = tmp_path / "out.onnx"
    result = optimize(path, output=out, measure=False)
    assert not result.report["kept_original"]
    found = onnxruntime.InferenceSession(out, providers=["CPUExecutionProvider"]).run(None, {"x": x})
    np.testing.assert_allclose(found[0], expected[0], rtol=1e-5)
    assert verify(path, out).passed


@pytest.mark.parametrize("apart", [False, True], ids=["", "graph twice"])
@pytest.mark.parametrize(
    ("tensors", "message"),
    [
        (lambda bare, right, wrong: [bare + wrong, bare + right], "'w' is defined twice"),
        (
            lambda bare, right, wrong: [
                bare + external(location="v.bin", offset=0) + external(location="w.bin") + located(1)
            ],
            "'w': two locations are given",
        ),
    ],
)
def test_what_readers_take_differently_is_refused(tmp_path, tensors, message, apart):
    bare, right, wrong, _ = pieces()
    for name in ("v.bin", "w.bin"):
        in_file(tmp_path / name)
    path = model(tmp_path / "m.onnx", *tensors(bare, right, wrong), apart=apart)
    with pytest.raises(ModelError, match=message):
        optimize(path, output=tmp_path / "out.onnx", measure=False)
    assert not (tmp_path / "out.onnx").exists()


def early(monkeypatch):
    """Reading: one element too early."""
    plain = wire.skeleton

    def faulty(buffer, threshold):
        proto = onnx.ModelProto.FromString(plain(buffer, threshold))
        for entry in proto.graph.initializer[0].external_data:
            if entry.key == "offset":
                entry.value = str(int(entry.value) - 4)
        return proto.SerializeToString()

    monkeypatch.setattr(wire, "skeleton", faulty)


def zeros(monkeypatch):
    """Writing: weights of nothing but zeros."""
    plain = wire.joined
    nothing = {"w": lambda: [bytes(N * N * 4)]}
    monkeypatch.setattr(wire, "joined", lambda model, data, sizes: plain(model, nothing, sizes))


@pytest.mark.parametrize("fault", [early, zeros])
def test_what_is_verified_are_the_files(tmp_path, monkeypatch, fault):
    """A fault in reading or writing that makes the model another one is found, and nothing is written."""
    bare, right, wrong, _ = pieces()
    path = model(tmp_path / "m.onnx", bare + right)
    fault(monkeypatch)
    with pytest.raises(OutputsDifferError):
        optimize(path, output=tmp_path / "out.onnx", measure=False)
    assert [p.name for p in tmp_path.iterdir()] == ["m.onnx"]
    model(tmp_path / "b.onnx", bare + wrong)
    assert not verify(path, tmp_path / "b.onnx").passed


def test_two_files_that_read_alike_are_compared_as_files(tmp_path, monkeypatch):
    bare, right, wrong, _ = pieces()
    one, other = model(tmp_path / "a.onnx", bare + right), model(tmp_path / "b.onnx", bare + wrong)
    monkeypatch.setattr("graphopt.api.load", lambda path: load(one))
    assert verify(one, one).passed and not verify(one, other).passed
