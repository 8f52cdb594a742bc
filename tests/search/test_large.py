"""Weights in files are read by the runtime itself, and copied piece by piece: no second copy of them is in memory."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import helper

from graphopt.onnxio.emit import emit
from graphopt.onnxio.load import load
from graphopt.onnxio.save import save
from graphopt.runtime import guard
from graphopt.runtime.session import Session, SessionConfig
from graphopt.search.arena import loadable
from tests.runtime.models import F, proto

WIDTH, LAYERS = 4096, 5
FEEDS = {"x": np.ones((1, 64), np.float32)}


def chain(folder, width, layers, *, external):
    """Products with square matrices."""
    rng = np.random.default_rng(0)
    square = rng.standard_normal((width, width), np.float32) / np.float32(width**0.5)
    weights = {f"w{i}": np.roll(square, i, axis=0) for i in range(layers)}
    nodes = [helper.make_node("MatMul", [f"t{i}", f"w{i}"], [f"t{i + 1}"]) for i in range(layers)]
    model = proto(nodes, [("t0", F, [1, width])], [(f"t{layers}", F, [1, width])], weights)
    onnx.save(model, folder / "m.onnx", save_as_external_data=external, location="m.data", size_threshold=0)
    return folder / "m.onnx"


@pytest.mark.parametrize("external", [True, False])
def test_a_session_holds_weights_once(tmp_path, external):
    model = load(chain(tmp_path, WIDTH, LAYERS, external=external))
    feeds = {"t0": np.ones((1, WIDTH), np.float32)}
    bare = guard.peak_memory(loadable(*small(tmp_path)), SessionConfig(), {"t0": np.ones((1, 64), np.float32)})
    peak = guard.peak_memory(loadable(model, emit(model, model.graph)), SessionConfig(), feeds)
    assert bare is not None and peak is not None
    assert peak - bare < 1.5 * model.nbytes  # one tensor is under way while it is read


def small(folder):
    (folder / "small").mkdir()
    model = load(chain(folder / "small", 64, 2, external=True))
    return model, emit(model, model.graph)


@pytest.mark.parametrize("external", [True, False])
def test_a_model_behind_a_link_is_opened_where_it_lies(tmp_path, external):
    (tmp_path / "blobs").mkdir()
    source = chain(tmp_path / "blobs", 64, 2, external=external)
    if external:
        (tmp_path / "link").symlink_to(source.parent)
        path = tmp_path / "link" / "m.onnx"
    else:
        path = tmp_path / "m.onnx"
        path.symlink_to(source)
    model = load(path)
    there = loadable(model, emit(model, model.graph))
    assert not there.tensors and there.base_dir == source.parent.resolve()
    Session(there).run({"t0": FEEDS["x"]})


def test_what_is_written_is_read_in_pieces(tmp_path):
    model = load(chain(tmp_path, 256, 3, external=True))
    emitted = emit(model, model.graph)
    for name, external in (("one.onnx", False), ("two.onnx", True)):
        mapped = [t for t in emitted.tensors.values() if "raw" in vars(t)]
        for tensor in mapped:
            del tensor.raw  # what loading looked at
        save(emitted, tmp_path / name, external=external)
        assert not any("raw" in vars(t) for t in emitted.tensors.values())
        expected = onnx.load(tmp_path / "m.onnx").graph.initializer
        for ours, theirs in zip(onnx.load(tmp_path / name).graph.initializer, expected, strict=True):
            assert np.array_equal(onnx.numpy_helper.to_array(ours), onnx.numpy_helper.to_array(theirs))
