"""Made-up inputs: types, ranges, dimensions, overrides and what can't be made up."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from onnx import TensorProto, helper

from graphopt.errors import InputsNeededError, UnknownNameError, UsageError
from graphopt.ir.types import ELEMENT_TYPES, numpy_dtype
from graphopt.runtime.binding import TensorSpec
from graphopt.runtime.feeds import FILLS, bind_dims, fills, make_feeds
from graphopt.runtime.given import load_npz, read_inputs
from graphopt.runtime.session import Session
from tests.runtime.models import model, of_map


def one(spec, **kwargs):
    return make_feeds([spec], **kwargs)[spec.name]


@pytest.mark.parametrize("row", [row for row in ELEMENT_TYPES if row.bits != 2 and row.bits != 4], ids=lambda r: r.name)
def test_every_type_has_its_dtype_and_shape(row):
    value = one(TensorSpec("x", row.name, (2, 3)))
    assert value.shape == (2, 3) and value.dtype == numpy_dtype(row.name)


def test_scalars_of_every_kind():
    for name in ("float32", "int64", "bool", "str", "uint8"):
        value = one(TensorSpec("x", name, ()))
        assert isinstance(value, np.ndarray) and value.shape == ()


def test_floats_are_standard_normal_and_scale():
    spec = TensorSpec("x", "float32", (100, 100))
    value = one(spec)
    assert abs(value.mean()) < 0.05 and abs(value.std() - 1) < 0.05
    assert one(spec, scale=4.0) == pytest.approx(4 * value, rel=1e-6)


def test_seeds_and_names_give_each_input_values_of_its_own():
    x, y = TensorSpec("x", "float32", (50,)), TensorSpec("y", "float32", (50,))
    both = make_feeds([x, y], seed=3)
    assert (both["x"] == make_feeds([y, x], seed=3)["x"]).all()
    assert (both["x"] == one(x, seed=3)).all()
    assert (both["x"] != both["y"]).any()
    assert (both["x"] != one(x, seed=4)).any()


def test_integers():
    ids = TensorSpec("ids", "int64", (1000,))
    assert set(one(ids).tolist()) == {0, 1}
    assert set(one(ids, ranges={"ids": (3, 6)}).tolist()) == {3, 4, 5}
    pixels = one(TensorSpec("image", "uint8", (1000,)))
    assert pixels.min() < 10 and pixels.max() > 245
    levels = one(TensorSpec("levels", "int16", (1000,)))
    assert levels.min() < -30000 and levels.max() > 30000
    assert set(one(ids, reach=4).tolist()) == {0, 1, 2, 3}
    assert set(one(ids, reach=9, ranges={"ids": (3, 6)}).tolist()) == {3, 4, 5}


def test_range_of_floats():
    value = one(TensorSpec("x", "float32", (1000,)), ranges={"x": (5, 7)})
    assert value.min() >= 5 and value.max() <= 7


@pytest.mark.parametrize("dtype", ["int64", "float32", "bool"])
def test_masks_are_ones_with_padding(dtype):
    mask = one(TensorSpec("attention_mask", dtype, (2, 8)))
    assert mask.astype(int).tolist() == [[1, 1, 1, 1, 1, 1, 0, 0]] * 2


def test_a_range_beats_the_name_mask():
    assert one(TensorSpec("mask_ids", "int64", (9,)), ranges={"mask_ids": (7, 8)}).tolist() == [7] * 9


def test_symbols_get_the_same_size_everywhere():
    specs = [TensorSpec("a", "int64", ("batch", "seq")), TensorSpec("b", "float32", ("batch", "seq", 4))]
    feeds = make_feeds(specs, dims={"seq": 5})
    assert feeds["a"].shape == (1, 5) and feeds["b"].shape == (1, 5, 4)


@pytest.mark.parametrize(
    ("shape", "size"),
    [
        (("batch_size", 3), (1, 3)),
        (("N", "C"), (1, 8)),
        ((None, 7), (1, 7)),
        ((None, None), (1, 8)),
        ((None, None, None, None), (1, 3, 224, 224)),
        (("batch", 3, "height", "width"), (1, 3, 224, 224)),
        ((1, 3, "shape_h", "shape_w"), (1, 3, 224, 224)),
        (("batch", "rows", "columns", 3), (1, 224, 224, 3)),
        (("batch", 3, "seq", "K"), (1, 3, 128, 224)),
        (("batch", 12, "rows", "columns"), (1, 12, 8, 8)),
        ((None, None, None, 3), (1, 224, 224, 3)),
        (("unk__12", 40), (1, 40)),
        (("p2o.DynamicDimension.0", 3, "p2o.DynamicDimension.1", "p2o.DynamicDimension.2"), (1, 3, 224, 224)),
        (("s77", "s27"), (1, 8)),
        (("sequence",), (128,)),
        (("batch", "past_len"), (1, 128)),
        (("num_return_sequences", "beam_tokens"), (1, 1)),
    ],
)
def test_default_sizes(shape, size):
    assert one(TensorSpec("x", "float32", shape)).shape == size


def test_sums_follow_their_parts():
    specs = [
        TensorSpec("ids", "int64", ("batch", "seq")),
        TensorSpec("past", "float32", ("batch", "past_len")),
        TensorSpec("mask", "int64", ("batch", "past_len + seq")),
        TensorSpec("next", "int64", ("batch", "past_len + 1")),
    ]
    feeds = make_feeds(specs, dims={"past_len": 6, "seq": 3})
    assert feeds["mask"].shape == (1, 9) and feeds["next"].shape == (1, 7)
    assert bind_dims(specs, {"past_len + 1": 20})["past_len + 1"] == 20


def test_an_override_binds_its_symbols():
    specs = [TensorSpec("a", "int64", ("batch", "seq")), TensorSpec("b", "float32", ("batch", "seq"))]
    given = np.arange(12).reshape(2, 6)
    feeds = make_feeds(specs, overrides={"a": given})
    assert (feeds["a"] == given).all() and feeds["b"].shape == (2, 6)


@pytest.mark.parametrize(
    ("array", "message"),
    [
        (np.zeros((2, 3), np.int32), "is int32, the model wants int64"),
        (np.zeros((2,), np.int64), r"shape \(2,\), the model wants \(batch, 3\)"),
        (np.zeros((2, 4), np.int64), r"shape \(2, 4\), the model wants \(batch, 3\)"),
    ],
)
def test_wrong_overrides(array, message):
    with pytest.raises(UsageError, match=message):
        one(TensorSpec("x", "int64", ("batch", 3)), overrides={"x": array})


def test_overrides_that_disagree():
    specs = [TensorSpec("a", "int64", ("n",)), TensorSpec("b", "int64", ("n",))]
    with pytest.raises(UsageError, match="with n = 2"):
        make_feeds(specs, overrides={"a": np.zeros(2, np.int64), "b": np.zeros(3, np.int64)})
    with pytest.raises(UsageError, match="with n = 5"):
        make_feeds(specs, overrides={"a": np.zeros(2, np.int64)}, dims={"n": 5})


def test_unknown_names():
    spec = TensorSpec("pixels", "float32", ("batch",))
    with pytest.raises(UnknownNameError, match="unknown input 'pixel'") as error:
        one(spec, overrides={"pixel": np.zeros(1)})
    assert error.value.hint == "did you mean 'pixels'?"
    with pytest.raises(UnknownNameError, match="unknown input"):
        one(spec, ranges={"z": (0, 1)})
    with pytest.raises(UnknownNameError, match="unknown dimension 'batches'"):
        one(spec, dims={"batches": 2})


def test_impossible_sizes_and_ranges():
    spec = TensorSpec("x", "int64", ("n",))
    with pytest.raises(UsageError, match="negative"):
        one(spec, dims={"n": -1})
    with pytest.raises(UsageError, match="empty"):
        one(spec, ranges={"x": (3, 3)})
    assert one(spec, dims={"n": 0}).shape == (0,)


def test_maps_cannot_be_made_up_but_given():
    with Session(of_map()) as session:
        with pytest.raises(InputsNeededError, match="input 'm'") as error:
            make_feeds(session.input_specs)
        assert "--inputs" in error.value.hint
        assert session.run(make_feeds(session.input_specs, overrides={"m": {2: 5.0}}))[0].tolist() == [[0, 5]]


def test_whole_numbers_are_filled_with_one_number_where_random_ones_do_not_run():
    ids, shape = TensorSpec("ids", "int64", ("b", 3)), TensorSpec("shape", "int32", (2,))
    assert fills([TensorSpec("x", "float32", (2,))]) == [None] and fills([ids]) == [None, (1, False), (0, False)]
    assert fills([ids, shape]) == list(FILLS)
    made = make_feeds([ids, shape], fill=(1, True), ranges={"shape": (4, 9)})
    assert made["shape"].tolist() == [1, 1] and (made["ids"] == make_feeds([ids])["ids"]).all()
    assert not make_feeds([ids, shape], fill=(0, False))["ids"].any()


def test_strings_run():
    text = TensorProto.STRING
    graph = model([helper.make_node("Identity", ["x"], ["y"])], [("x", text, [3])], [("y", text, [3])])
    with Session(graph) as session:
        made = make_feeds(session.input_specs)
        assert session.run(made)[0].tolist() == made["x"].tolist()
        given = make_feeds(session.input_specs, overrides={"x": np.array(["a", "b", "c"])})
        assert session.run(given)[0].tolist() == ["a", "b", "c"]


def test_npz(tmp_path):
    half = np.ones(3, ml_dtypes.bfloat16)
    np.savez(tmp_path / "in.npz", x=np.arange(3), h=half)
    arrays = load_npz(tmp_path / "in.npz")
    specs = [TensorSpec("x", "int64", (3,)), TensorSpec("h", "bfloat16", (3,))]
    feeds = make_feeds(specs, overrides=arrays)
    assert feeds["x"].tolist() == [0, 1, 2] and feeds["h"].dtype == half.dtype and (feeds["h"] == half).all()


@pytest.mark.parametrize("content", [None, b"", b"junk", b"\x93NUMPY"])
def test_rubbish_npz(tmp_path, content):
    path = tmp_path / "in.npz"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(UsageError, match=r"can't read inputs from .*in\.npz"):
        load_npz(path)


@pytest.mark.parametrize("name", ["m.onnx", "x.npz", "folder/x.npy"])
def test_a_file_of_another_kind_is_not_advised_to_be_unpickled(tmp_path, name):
    path = tmp_path / name
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(b"\x08\x08 a model, say")
    with pytest.raises(UsageError) as error:
        read_inputs(tmp_path / name.split("/")[0], ())
    assert str(error.value) == f"can't read inputs from {path}: it holds no plain arrays"


def test_npz_that_is_one_array_or_pickled(tmp_path):
    np.save(tmp_path / "a.npy", np.zeros(3))
    with pytest.raises(UsageError):
        load_npz(tmp_path / "a.npy")
    np.savez(tmp_path / "b.npz", x=np.array([object()]))
    with pytest.raises(UsageError):
        load_npz(tmp_path / "b.npz")
