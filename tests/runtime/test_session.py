"""Sessions: weights from memory, types numpy lacks, errors on one line."""

from __future__ import annotations

import gc
import mmap

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from graphopt.errors import SessionError, UnknownNameError, UsageError
from graphopt.runtime.session import LoadableModel, Session, SessionConfig, recorded
from tests.alone import alone
from tests.runtime.models import LONG, TEXT, F, chain, model, placeholder, proto


def add(code, array, dims, **kwargs):
    """y = x + w, with w handed over from memory."""
    return model(
        [helper.make_node("Add", ["x", "w"], ["y"])],
        [("x", code, dims)],
        [("y", code, dims)],
        {"w": placeholder("w", code, dims)},
        tensors={"w": array},
        **kwargs,
    )


def test_specs_and_run():
    graph = model(
        [helper.make_node("Identity", ["x"], ["y"]), helper.make_node("Identity", ["s"], ["t"])],
        [("x", F, ["batch", None, 3]), ("s", TEXT, [])],
        [("y", F, ["batch", None, 3]), ("t", TEXT, [])],
    )
    with Session(graph) as session:
        x, s = session.input_specs
        assert (x.name, x.dtype, x.shape, x.kind) == ("x", "float32", ("batch", None, 3), "tensor")
        assert (s.name, s.dtype, s.shape, s.kind) == ("s", "str", (), "tensor")
        assert session.output_names == ["y", "t"]
        value = np.ones((2, 5, 3), np.float32)
        y, t = session.run({"x": value, "s": np.array("hello", dtype=object)})
    assert (y == value).all() and t == "hello"


def test_specs_of_sequences_optionals_and_maps():
    tensor = helper.make_tensor_type_proto(F, [2])
    sequence = helper.make_value_info("x", helper.make_sequence_type_proto(tensor))
    graph = model([helper.make_node("ConcatFromSequence", ["x"], ["y"], axis=0)], [sequence], [("y", F, None)])
    with Session(graph) as session:
        assert session.input_specs[0].kind == "sequence"
        assert session.input_specs[0].dtype == "seq(tensor(float))"
        (y,) = session.run({"x": [np.zeros(2, np.float32), np.ones(2, np.float32)]})
        session.prepare({"x": [np.zeros(2, np.float32)]})()
    assert y.tolist() == [0, 0, 1, 1]


@pytest.mark.parametrize("size", [3, 4096])  # below and above the size that the runtime keeps inline
def test_weights_from_memory_need_not_outlive_the_opening(size):
    weight = np.arange(size, dtype=np.float32)
    session = Session(add(F, weight, [size]))
    weight[:] = -1
    del weight
    gc.collect()
    assert (session.run({"x": np.zeros(size, np.float32)})[0] == np.arange(size)).all()


def test_weights_from_a_read_only_unaligned_map(tmp_path):
    data = np.arange(5000, dtype=np.float32)
    (tmp_path / "w.bin").write_bytes(b"\x00" * 3 + data.tobytes())
    with open(tmp_path / "w.bin", "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
        view = np.frombuffer(mapped, np.float32, 5000, offset=3)
        assert not view.flags.aligned and not view.flags.writeable
        with Session(add(F, view, [5000])) as session:
            assert (session.run({"x": np.zeros(5000, np.float32)})[0] == data).all()
        del view


def test_weights_with_strides_arrive_in_order():
    weight = np.arange(12, dtype=np.float32).reshape(3, 4).T
    with Session(add(F, weight, [4, 3])) as session:
        assert (session.run({"x": np.zeros((4, 3), np.float32)})[0] == weight).all()


@pytest.mark.parametrize("raw", [False, True])
@pytest.mark.parametrize(
    ("code", "dtype", "bits"),
    [
        (TensorProto.FLOAT16, np.float16, np.uint16),
        (TensorProto.BFLOAT16, ml_dtypes.bfloat16, np.uint16),
        (TensorProto.FLOAT8E4M3FN, ml_dtypes.float8_e4m3fn, np.uint8),
    ],
)
def test_weights_of_narrow_floats_arrive_bit_for_bit(code, dtype, bits, raw):
    weight = np.random.default_rng(0).standard_normal(200).astype(dtype)
    graph = model(
        [helper.make_node("Cast", ["w"], ["v"], to=F), helper.make_node("Add", ["x", "v"], ["y"])],
        [("x", F, [200])],
        [("y", F, [200])],
        {"w": placeholder("w", code, [200])},
        opset=19,
        tensors={"w": weight.view(bits) if raw else weight},
    )
    with Session(graph) as session:
        assert (session.run({"x": np.zeros(200, np.float32)})[0] == weight.astype(np.float32)).all()


@pytest.mark.parametrize("packed", [False, True])
def test_weights_of_four_bits(packed):
    weight = np.array([-8, -1, 0, 3, 7], dtype=ml_dtypes.int4)
    scale = np.float32(0.5)
    graph = model(
        [helper.make_node("DequantizeLinear", ["w", "s"], ["v"]), helper.make_node("Add", ["x", "v"], ["y"])],
        [("x", F, [5])],
        [("y", F, [5])],
        {"w": placeholder("w", TensorProto.INT4, [5]), "s": np.array(scale)},
        opset=21,
        tensors={"w": np.array([0xF8, 0x30, 0x07], np.uint8) if packed else weight},
    )
    with Session(graph) as session:
        (y,) = session.run({"x": np.zeros(5, np.float32)})
    assert y.tolist() == [-4, -0.5, 0, 1.5, 3.5]


def test_weights_of_strings():
    graph = model(
        [helper.make_node("Equal", ["x", "w"], ["y"])],
        [("x", TEXT, [2])],
        [("y", TensorProto.BOOL, [2])],
        {"w": placeholder("w", TEXT, [2])},
        opset=19,
        tensors={"w": np.array(["a", "b"], dtype=object)},
    )
    with Session(graph) as session:
        assert session.run({"x": np.array(["a", "c"])})[0].tolist() == [True, False]


def test_external_data_beside_the_weights_in_memory(tmp_path):
    data = np.arange(64, dtype=np.float32)
    (tmp_path / "v.bin").write_bytes(data.tobytes())
    nodes = [helper.make_node("Add", ["x", "w"], ["h"]), helper.make_node("Add", ["h", "v"], ["y"])]
    weights = {"w": placeholder("w", F, [64]), "v": placeholder("v", F, [64], "v.bin")}
    graph = proto(nodes, [("x", F, [64])], [("y", F, [64])], weights)
    loadable = LoadableModel(graph.SerializeToString(), {"w": np.ones(64, np.float32)}, tmp_path)
    with Session(loadable) as session:
        assert (session.run({"x": np.zeros(64, np.float32)})[0] == data + 1).all()


def test_a_model_file_with_external_data(tmp_path):
    weight = np.arange(64, dtype=np.float32)
    graph = proto([helper.make_node("Add", ["x", "w"], ["y"])], [("x", F, [64])], [("y", F, [64])], {"w": weight})
    onnx.save(graph, tmp_path / "m.onnx", save_as_external_data=True, location="m.data", size_threshold=0)
    with Session(tmp_path / "m.onnx") as session:
        assert (session.run({"x": weight})[0] == 2 * weight).all()


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16, ml_dtypes.float8_e5m2])
def test_inputs_and_outputs_of_narrow_floats(dtype):
    name = np.dtype(dtype).name
    code = next(c for c, n in ((10, "float16"), (16, "bfloat16"), (19, "float8_e5m2")) if n == name)
    graph = model([helper.make_node("Identity", ["x"], ["y"])], [("x", code, [2, 3])], [("y", code, [2, 3])], opset=19)
    value = np.arange(6).reshape(2, 3).astype(dtype)
    with Session(graph) as session:
        assert session.input_specs[0].dtype == name
        (y,) = session.run({"x": value})
        session.prepare({"x": value})()
    assert y.dtype == dtype and (y == value).all()


def test_a_prepared_run_keeps_its_inputs_alive():
    graph = chain(1, width=512, rows=512)
    with Session(graph) as session:
        run = session.prepare({"x": np.ones((512, 512), np.float32).T})
        gc.collect()
        for _ in range(3):
            run()


def test_prepared_run_allows_a_data_dependent_shape():
    graph = model([helper.make_node("NonZero", ["x"], ["y"])], [("x", F, [4])], [("y", LONG, [1, None])])
    with Session(graph) as session:
        run = session.prepare({"x": np.array([1, 0, 2, 0], np.float32)})
        run()
        run()


def test_prepared_run_allows_an_output_of_another_shape_than_declared():
    # The older exporter of torch declares what it ran on, and whoever makes a batch symbolic often does so for inputs alone.
    graph = model([helper.make_node("Relu", ["x"], ["y"])], [("x", F, ["n", 4])], [("y", F, [2, 4])])
    with Session(graph) as session:
        run = session.prepare({"x": np.ones((3, 4), np.float32)})
        for _ in range(3):
            run()


@pytest.mark.parametrize("level", ["all", "extended", "basic", "disabled"])
def test_levels(level):
    with Session(chain(2), SessionConfig(level=level, threads=2)) as session:
        assert session.run({"x": np.ones((4, 64), np.float32)})[0].shape == (4, 64)


def test_extra_entries_reach_the_runtime():
    entries = {"session.disable_prepacking": "1"}
    with Session(chain(1), SessionConfig(entries=entries)) as session:
        assert session._session.get_session_options().get_session_config_entry("session.disable_prepacking") == "1"


def test_unknown_level_and_negative_threads():
    with pytest.raises(UnknownNameError, match="optimisation level 'al'"):
        Session(chain(1), SessionConfig(level="al"))
    with pytest.raises(UsageError, match="threads"):
        Session(chain(1), SessionConfig(threads=-1))


def test_weight_without_a_placeholder():
    graph = LoadableModel(chain(1).proto, {"w0": np.ones((64, 64), np.float32)})
    with pytest.raises(UnknownNameError, match="initializer placeholder 'w0'"):
        Session(graph)


def test_weight_of_the_wrong_shape():
    with pytest.raises(SessionError, match="can't open"):
        Session(add(F, np.ones(7, np.float32), [8]))


@pytest.mark.parametrize(
    "graph",
    [
        LoadableModel(b"junk"),
        LoadableModel(b""),
        model([helper.make_node("Bogus", ["x"], ["y"], domain="d")], [("x", F, [1])], [("y", F, [1])]),
    ],
)
def test_a_model_that_does_not_open_is_one_clean_line(graph, capfd):
    with pytest.raises(SessionError) as error:
        Session(graph)
    assert "\n" not in str(error.value) and "ONNXRuntimeError" not in str(error.value)
    assert capfd.readouterr() == ("", "")


def test_missing_file(tmp_path):
    with pytest.raises(SessionError, match="doesn't exist"):
        Session(tmp_path / "none.onnx")


def test_a_failing_run_is_one_clean_line(capfd):
    nodes = [helper.make_node("Reshape", ["x", "s"], ["y"], name="bend")]
    graph = model(nodes, [("x", F, ["n"]), ("s", LONG, [2])], [("y", F, None)])
    feeds = {"x": np.zeros(4, np.float32), "s": np.array([3, 3])}
    with Session(graph) as session:
        for call in (session.run, lambda f: session.prepare(f)()):
            with pytest.raises(SessionError, match=r"Input shape:\{4\}, requested shape:\{3,3\}") as error:
                call(feeds)
            text = str(error.value)
            assert "bend" in text and "onnxruntime_src" not in text and "::" not in text
        with pytest.raises(SessionError, match="Unexpected input data type"):
            session.run({**feeds, "x": np.zeros(4)})
        with pytest.raises(SessionError, match="missing from input feed"):
            session.run({})
    assert capfd.readouterr() == ("", "")


def test_a_closed_session_says_so():
    session = Session(chain(1))
    session.close()
    session.close()
    with pytest.raises(SessionError, match="closed"):
        session.run({})


def test_inputs_that_are_also_weights_need_no_feed():
    weight = numpy_helper.from_array(np.ones(2, np.float32), "w")
    graph = proto(
        [helper.make_node("Add", ["x", "w"], ["y"])], [("x", F, [2]), ("w", F, [2])], [("y", F, [2])], {"w": weight}
    )
    with Session(LoadableModel(graph.SerializeToString())) as session:
        assert [spec.name for spec in session.input_specs] == ["x"]
        assert session.run({"x": np.ones(2, np.float32)})[0].tolist() == [2, 2]


@pytest.mark.parametrize(
    ("provider", "given", "expected"),
    [
        ("cuda", {}, False),
        ("cuda", {"enable_cuda_graph": "0"}, False),
        ("cuda", {"enable_cuda_graph": "1"}, True),
        ("tensorrt", {"trt_cuda_graph_enable": "True"}, True),
    ],
)
def test_what_a_provider_records(provider, given, expected):
    assert recorded(SessionConfig(provider, provider_options=given)) is expected


def test_the_log_of_the_program_around_us_is_left_alone():
    """Its own sessions go on to warn as they did: how loud the runtime's log was nobody can ask, so nobody could restore it."""
    code = (
        "import numpy as np, onnxruntime\n"
        "from graphopt.runtime.session import Session\n"
        "from tests.runtime.models import F, chain, proto\n"
        "from onnx import helper\n"
        "Session(chain(1)).close()\n"
        "spare = proto([helper.make_node('Relu', ['x'], ['y'])], [('x', F, [2])], [('y', F, [2])], {'spare': np.ones(3, np.float32)})\n"
        "onnxruntime.InferenceSession(spare.SerializeToString(), providers=['CPUExecutionProvider'])"
    )
    done = alone(code)
    assert done.returncode == 0 and "Removing initializer 'spare'" in done.stderr, done.stderr
