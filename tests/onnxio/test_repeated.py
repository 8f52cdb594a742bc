"""A field that stands more than once in the file is read as protobuf reads it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

from graphopt.api import optimize, verify
from graphopt.onnxio.load import load

N = 32


def field(number: int, content: bytes) -> bytes:
    out, length = bytearray([number << 3 | 2]), len(content)
    while length > 127:
        out.append(length & 127 | 128)
        length >>= 7
    return bytes([*out, length]) + content


def model(path: Path, tensor: bytes) -> Path:
    """x @ w behind an Identity that a rule removes; the initializer's bytes as they are given."""
    info = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [2, N]) for n in "xy"]
    nodes = [helper.make_node("Identity", ["x"], ["i"]), helper.make_node("MatMul", ["i", "w"], ["y"])]
    graph = helper.make_graph(nodes, "g", info[:1], info[1:])
    rest = helper.make_model(
        helper.make_graph([], "g", [], []), opset_imports=[helper.make_opsetid("", 17)], ir_version=8
    )
    rest.ClearField("graph")
    path.write_bytes(rest.SerializeToString() + field(7, graph.SerializeToString() + field(5, tensor)))
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


@pytest.mark.parametrize(
    "tensor",
    [
        lambda bare, right, wrong: wrong + bare + right,
        lambda bare, right, wrong: wrong + wrong + bare + right + located(0),
        lambda bare, right, wrong: wrong + located(1) + bare + right + located(0),
        lambda bare, right, wrong: bare + wrong + right + located(0, 7),  # a value that the enumeration lacks
    ],
)
def test_the_last_counts(tmp_path, tensor):
    bare, right, wrong, array = pieces()
    path = model(tmp_path / "m.onnx", tensor(bare, right, wrong))
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


def test_what_is_verified_are_the_files(tmp_path, monkeypatch):
    """A fault in reading that makes the loaded model another one is found, and nothing is written."""
    from graphopt.errors import OutputsDifferError
    from graphopt.onnxio import wire

    bare, right, wrong, _ = pieces()
    path = model(tmp_path / "m.onnx", bare + right)
    plain = wire.skeleton

    def faulty(buffer, threshold):
        proto = onnx.ModelProto.FromString(plain(buffer, threshold))
        for entry in proto.graph.initializer[0].external_data:
            if entry.key == "offset":
                entry.value = str(int(entry.value) - 4)  # one element too early
        return proto.SerializeToString()

    monkeypatch.setattr(wire, "skeleton", faulty)
    with pytest.raises(OutputsDifferError):
        optimize(path, output=tmp_path / "out.onnx", measure=False)
    assert [p.name for p in tmp_path.iterdir()] == ["m.onnx"]
    model(tmp_path / "b.onnx", bare + wrong)
    assert not verify(path, tmp_path / "b.onnx").passed
