"""Models whose operators a shared library brings: onnxruntime-extensions, as deployments use it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import onnxruntime_extensions
import pytest
from onnx import TensorProto

import graphopt
from graphopt.benchmark.tune import as_python
from graphopt.errors import CrashError, SessionError, UsageError
from graphopt.pipeline.opening import session_config
from graphopt.retrace import stages
from tests.onnxio.models import F, model, node, weight

PACKAGE = "onnxruntime_extensions"
DOMAINS = {"ai.onnx.contrib": 1, "com.microsoft.extensions": 1}


def parted() -> onnx.ModelProto:
    """The negative and the positive part of what an addition of nothing makes, added up; the negative one twice."""
    nodes = [
        node("Add", ["x", "zero"], ["a"]),
        node("NegPos", ["a"], ["low", "high"], domain="ai.onnx.contrib"),
        node("NegPos", ["a"], ["same", "alike"], domain="ai.onnx.contrib"),
        node("Add", ["low", "high"], ["b"]),
        node("Add", ["b", "same"], ["y"]),
    ]  # fmt: skip
    return model(nodes, [("x", F, [2, 3])], [("y", F, [2, 3])], [weight("zero", np.zeros(3, np.float32))], domains=DOMAINS)  # fmt: skip


def image() -> onnx.ModelProto:
    """A photograph on its way to a network, as ``onnxruntime_extensions.tools`` puts it before one."""
    nodes = [
        node("DecodeImage", ["image"], ["pixels"], domain="com.microsoft.extensions"),
        node("Cast", ["pixels"], ["f"], to=F), node("Sub", ["f", "zero"], ["g"]), node("Div", ["g", "scale"], ["y"]),
    ]  # fmt: skip
    weights = [weight("zero", np.float32(0)), weight("scale", np.float32(256))]
    return model(nodes, [("image", TensorProto.UINT8, ["bytes"])], [("y", F, ["H", "W", 3])], weights, domains=DOMAINS)


def jpeg() -> np.ndarray:
    """The bytes of a photograph."""
    encode = node("EncodeImage", ["pixels"], ["image"], domain="com.microsoft.extensions", format="jpg")
    byte = TensorProto.UINT8
    encoder = model([encode], [("pixels", byte, [8, 12, 3])], [("image", byte, ["bytes"])], domains=DOMAINS)
    return run(encoder.SerializeToString(), {"pixels": np.random.default_rng(0).integers(0, 255, (8, 12, 3), np.uint8)})


def run(source: Path | bytes, feeds: dict[str, np.ndarray]) -> np.ndarray:
    options = onnxruntime.SessionOptions()
    options.register_custom_ops_library(onnxruntime_extensions.get_library_path())
    return onnxruntime.InferenceSession(source, options).run(None, feeds)[0]


@pytest.mark.parametrize("library", [PACKAGE, onnxruntime_extensions.get_library_path()])
def test_custom_operators_stay_and_what_is_around_them_is_rewritten(tmp_path: Path, library: str) -> None:
    source, target = tmp_path / "m.onnx", tmp_path / "o.onnx"
    onnx.save(parted(), source)
    report = graphopt.optimize(source, output=target, custom_ops=[library], measure=False).report
    assert [n.op_type for n in onnx.load(target).graph.node] == ["NegPos", "NegPos", "Add", "Add"]
    assert report["rules"] == {"drop-zero": 1}
    assert graphopt.verify(source, target, custom_ops=[library]).passed
    feeds = {"x": np.random.default_rng(0).standard_normal((2, 3)).astype(np.float32)}
    np.testing.assert_array_equal(run(target, feeds), run(source, feeds))


def test_an_operator_that_ends_the_process_on_other_bytes_is_given_real_ones_alone(tmp_path: Path) -> None:
    """The library's decoder does, on what is no image; prices of kernels are found on numbers that are made up."""
    source, target, trace = tmp_path / "m.onnx", tmp_path / "o.onnx", tmp_path / "t.json"
    onnx.save(image(), source)
    report = graphopt.optimize(
        source, output=target, trace=trace, custom_ops=[PACKAGE], inputs={"image": jpeg()}, threads=1, budget=20.0
    ).report
    assert report["verified"] and report["sizes"] == {"bytes": len(jpeg())}
    np.testing.assert_array_equal(run(target, {"image": jpeg()}), run(source, {"image": jpeg()}))
    assert graphopt.bisect(trace, source, inputs={"image": jpeg()}).step is None
    assert all(stage.measured for stage in stages(trace, source, inputs={"image": jpeg()}, seconds=0.1))
    with pytest.raises(CrashError):
        graphopt.bisect(trace, source)


def test_a_library_that_is_missing_is_asked_for(tmp_path: Path) -> None:
    with pytest.raises(SessionError, match="not a registered function") as missing:
        graphopt.optimize(parted(), measure=False)
    assert "--custom-ops" in missing.value.hint
    for name, why in (("numpy", "no attribute"), ("none_such", "no module"), ("./none.so", "no such file")):
        with pytest.raises(UsageError, match=f"no library of custom operators '{name}': .*{why}"):
            graphopt.optimize(parted(), custom_ops=[name], measure=False)
    (tmp_path / "none.so").write_bytes(b"none")
    with pytest.raises(SessionError, match=r"can't load custom operators from .*none\.so"):
        graphopt.optimize(parted(), custom_ops=[str(tmp_path / "none.so")], measure=False)


def test_the_python_that_opens_a_session_registers_it() -> None:
    text = as_python(session_config(custom_ops=[PACKAGE]))
    assert f"options.register_custom_ops_library({onnxruntime_extensions.get_library_path()!r})" in text
