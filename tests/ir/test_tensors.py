"""Constants of every type: in a file, in the model and computed they have the same bytes and the same elements."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from graphopt.ir.tensors import InFile, InMemory, InModel, to_tensor_proto
from graphopt.ir.types import BITS, DTYPES

SHAPES = [(), (0,), (1,), (3,), (2, 3), (5, 7)]


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("dtype", [name for name in DTYPES if name != "str"])
def test_the_same_from_everywhere(dtype: str, shape: tuple[int, ...], tmp_path: Path) -> None:
    code, size = DTYPES[dtype], int(np.prod(shape))
    length = -(-size * BITS[dtype] // 8)
    content = np.random.default_rng(0).integers(0, 2 if dtype == "bool" else 256, length, np.uint8).tobytes()
    if size * BITS[dtype] % 8:  # the rest of the last byte is nothing
        content = content[:-1] + bytes([content[-1] & ((1 << size * BITS[dtype] % 8) - 1)])
    (tmp_path / "weights").write_bytes(b"abc" + content + b"more")
    proto = TensorProto(name="w", data_type=code, dims=shape, raw_data=content)
    expected = numpy_helper.to_array(proto)
    in_file, in_model = InFile(tmp_path / "weights", 3, code, shape), InModel(proto)
    for tensor in (in_file, in_model, InMemory(expected)):
        assert (tensor.dtype, tensor.shape, tensor.nbytes) == (code, shape, length)
        assert tensor.tobytes() == content
        assert tensor.numpy().dtype == expected.dtype == helper.tensor_dtype_to_np_dtype(code)
        assert tensor.numpy().tobytes() == expected.tobytes()
        written = to_tensor_proto(tensor, "other")
        assert (written.name, written.raw_data, list(written.dims)) == ("other", content, list(shape))


def test_strings_need_not_be_text() -> None:
    proto = helper.make_tensor("s", TensorProto.STRING, [2, 1], [b"a", b"\xff"])
    tensor = InModel(proto)
    assert tensor.numpy().tolist() == [[b"a"], [b"\xff"]]
    assert list(to_tensor_proto(InMemory(tensor.numpy()), "t").string_data) == [b"a", b"\xff"]


def test_what_looks_at_a_model_loads_no_computer_algebra() -> None:
    code = "import graphopt.api, sys; sys.exit(' '.join({'sympy', 'onnx_ir', 'torch', 'jinja2', 'z3'} & set(sys.modules)) or 0)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
