"""A share of the mutated files that ``python -m tests.hostile.readers`` feeds to each reader, and those that once did harm."""

from __future__ import annotations

import json

import onnx
import pytest

from graphopt.errors import ModelError
from graphopt.ir.infer import InferenceError, infer
from graphopt.ir.types import ValueType
from graphopt.onnxio.load import load
from graphopt.search.trace import TraceError, read_trace
from tests.hostile.readers import READERS, block, complaint, made


@pytest.mark.parametrize("name", READERS)
def test_no_mutated_file_is_more_than_an_error(name):
    assert block(name, 1, 0, 150) == []


def test_names_in_a_store_that_are_no_text(tmp_path):
    data = READERS["store"].seeds()[0]
    assert (
        complaint("store", data.replace(b"tablemeasurements", b"tablemeasure\xff\xfe\xfd\xfc\xfb", 1), tmp_path) == ""
    )


def weightless(**entries):
    """A model whose weight lies in a file."""
    model = onnx.ModelProto.FromString(READERS["model"].seeds()[2])
    del model.graph.initializer[0].external_data[:]
    for key, value in entries.items():
        model.graph.initializer[0].external_data.add(key=key, value=value)
    return model.SerializeToString()


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (weightless(location="x" * 3000), "can't be read: file name too long"),
        (weightless(location="not text").replace(b"not text", b"\xff\xfe  text"), "not UTF-8 text"),
        (weightless(location="m.data", offset="one"), "must be numbers"),
    ],
)
def test_where_weights_lie_is_told_wrong(data, message, tmp_path):
    (tmp_path / "m.onnx").write_bytes(data)
    with pytest.raises(ModelError, match=message) as caught:
        load(tmp_path / "m.onnx")
    assert len(str(caught.value)) < 500


def test_an_attribute_of_another_type_is_an_error_of_inference():
    with pytest.raises(InferenceError, match="Gather"):
        infer("Gather", "", 18, {"axis": ("a",)}, [ValueType("f32", (2, 2)), ValueType("i64", (1,))], [None, None], 1)


def test_a_number_that_no_float_holds(tmp_path):
    trace = json.loads(READERS["trace"].seeds()[0])
    trace["steps"][0]["cost_before"] = 10**400
    (tmp_path / "t.json").write_text(json.dumps(trace))
    with pytest.raises(TraceError, match="too large a number"):
        read_trace(tmp_path / "t.json")


def test_most_are_changed_and_some_are_still_read(tmp_path):
    """Mutations that all failed at the first byte, or changed nothing, would test little."""
    for name, reader in READERS.items():
        inputs = [made(name, 2, index) for index in range(100)]
        assert sum(data not in reader.seeds() for data in inputs) > 80
        assert made(name, 2, 5) == inputs[5]
        read = 0
        for data in inputs:
            (tmp_path / reader.file).write_bytes(data)
            try:
                reader.read(tmp_path / reader.file)
                read += 1
            except Exception:
                pass
            for file in tmp_path.iterdir():
                file.unlink()
        assert read > 3 and (read < 100 or name in ("rules", "store")), name  # of these, what is wrong is told besides
