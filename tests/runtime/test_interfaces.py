"""What the names of inputs say: which dimensions are the same or sums of others, and what the elements are."""

from __future__ import annotations

from itertools import product

import onnx
import pytest

from graphopt.runtime.binding import TensorSpec
from graphopt.runtime.feeds import flag_ways, make_feeds, named
from graphopt.runtime.interfaces import recognise, table
from graphopt.runtime.sizes import Symbols, fitting, others
from graphopt.runtime.ties import addends, evaluated, linear, solve
from graphopt.verification.numeric import verify_models


def test_sums_are_read_and_what_is_none_is_one_symbol():
    assert linear("past + 1") == {"past": 1, "": 1} and linear("2*n") == {"n": 2} and linear(7) == {"": 7}
    assert linear("s0 + s1 + s0") == {"s0": 2, "s1": 1}
    assert linear("floor(h/2 + 1)") == {"floor(h/2 + 1)": 1} and addends("max(1, n + 2)") == ["max(1, n + 2)"]


def test_equations_are_solved_and_what_contradicts_is_left_out():
    solved = solve(
        [
            ({"t": 1}, {"p": 1, "s": 1}),
            ({"u": 1}, {"p": 1}),
            ({"u": 1}, {"": 4}),
            ({"p": 1}, {"": 5}),
            ({"v": 2}, {"s": 1}),
        ]
    )
    assert evaluated(solved["p"], {}) == evaluated(solved["u"], {}) == 4
    assert evaluated(solved["t"], {"v": 3}) == 10  # s is twice v


def decoder(batch="b0", mask=("b1", "m"), past=("p0", "p1"), heads=2):
    caches = [
        TensorSpec(f"past_key_values.{i}.{w}", "float32", (batch, heads, p, 4))
        for i, p in enumerate(past)
        for w in ("key", "value")
    ]
    return [
        TensorSpec("input_ids", "int64", (batch, "s")), TensorSpec("attention_mask", "int64", mask),
        TensorSpec("position_ids", "int64", (batch, "s")), *caches,
    ]  # fmt: skip


def test_a_decoder_has_three_sizes_whatever_its_symbols_are_called():
    choices = Symbols.choices(decoder())
    assert choices[0].free == ("b0", "s", "p0") and choices[0].empty == ("p0",)
    found = fitting(choices, lambda sizes: sizes["m"] == sizes["s"] + sizes["p0"] and sizes["b0"] == sizes["b1"])
    assert found is not None and found[1] == {"b0": 1, "b1": 1, "s": 1, "p0": 128, "p1": 128, "m": 129}
    more = others(*found, lambda sizes: True)
    assert {sizes["p0"] for sizes in more} == {69, 7, 1, 0} and all(
        sizes["m"] == sizes["s"] + sizes["p1"] for sizes in more
    )


def test_sequences_are_a_step_beside_a_past_alone():
    """A decoder with a cache takes most of its time for one token after the other; sounds are a second long."""
    start = Symbols.choices(
        [TensorSpec("tokens", "int64", ("n", "a")), TensorSpec("input_values", "float32", ("n", "b"))]
    )
    assert start[0].start == {"n": 1, "a": 128, "b": 16000}
    assert Symbols.choices(decoder())[0].start["s"] == 1


def test_dimensions_without_a_name_follow_as_well():
    feeds = make_feeds(decoder(batch=None, mask=(None, None), past=(None, None)), dims={"s": 3})
    assert feeds["attention_mask"].shape == (1, 131) and feeds["past_key_values.1.key"].shape == (1, 2, 128, 4)
    assert feeds["position_ids"].tolist() == [[128, 129, 130]]


def test_a_number_in_one_place_is_the_size_in_all():
    specs = [TensorSpec("input_ids", "int64", (4, 1)), *decoder(batch="b")[1:2], *decoder(batch="b")[3:]]
    feeds = make_feeds(specs)
    assert feeds["attention_mask"].shape == (4, 129) and feeds["past_key_values.0.value"].shape[0] == 4


def test_what_the_caller_chooses_counts_more_than_a_name():
    sizes = Symbols.choices(named(decoder()), {"m": 20, "s": 2})[0]
    assert sizes.whole(sizes.start)["p0"] == 18
    assert Symbols.choices(named(decoder()), {"m": 5, "s": 2, "p0": 9})[0].whole({"b0": 1})["b1"] == 1


def test_names_that_mislead_are_given_up():
    specs = [TensorSpec("input_ids", "int64", ("n", "s")), TensorSpec("attention_mask", "int64", ("n", "m"))]
    found = fitting(Symbols.choices(specs), lambda sizes: sizes["m"] == 2 * sizes["s"])
    assert found is not None and found[1]["m"] == 2 * found[1]["s"]


def test_an_encoder_beside_a_decoder_has_a_length_of_its_own():
    names = ("input_ids", "attention_mask", "decoder_input_ids", "decoder_attention_mask")
    specs = [TensorSpec(name, "int64", ("n", f"d{i}")) for i, name in enumerate(names)]
    assert Symbols.choices(specs)[0].free == ("n", "d0", "d2")


@pytest.mark.parametrize(
    ("name", "shape", "wanted"),
    [
        ("position_ids", ("b", "s"), [[128, 129, 130, 131]]), ("cache_position", ("s",), [128, 129, 130, 131]), ("seqlens_k", ("b",), [131]),
        ("seqlens_k", ("b", 1), [[131]]), ("total_sequence_length", (), 132), ("past_seq_len", (1,), [128]),
    ],
)  # fmt: skip
def test_positions_and_lengths_say_what_is_there(name, shape, wanted):
    specs = [
        *decoder("b", ("b", "m"), ("p", "p"))[:2],
        *decoder("b", ("b", "m"), ("p", "p"))[3:],
        TensorSpec(name, "int32", shape),
    ]
    made = make_feeds(specs, dims={"s": 4})
    assert made[name].tolist() == wanted and made[name].dtype == "int32"


def test_lengths_of_sequences():
    specs = [TensorSpec("input_ids", "int64", ("n", "s")), TensorSpec("input_lengths", "int64", ("n",))]
    assert make_feeds(specs, dims={"n": 2, "s": 5})["input_lengths"].tolist() == [5, 5]


def test_flags_are_tried_both_ways():
    specs = [TensorSpec("use_cache_branch", "bool", (1,)), TensorSpec("training", "bool", ())]
    made = [make_feeds(specs, flags=flags) for flags in flag_ways(specs)]
    assert {(bool(m["use_cache_branch"][0]), bool(m["training"])) for m in made} == set(
        product((False, True), repeat=2)
    )
    assert list(flag_ways([TensorSpec("mask", "bool", (3,))])) == [0]


@pytest.mark.parametrize("fails", [False, True])
def test_a_model_that_runs_with_a_flag_one_way_is_compared_that_way_else_both(tmp_path, fails):
    lost = "i = Constant<value_int = 99>() t = Gather(x, i) z = Add(x, t)" if fails else "z = Neg(x)"
    # Merging the branches is wrong where the flag is set.
    text = """<ir_version: 8, opset_import: ["": 17]> g (float[n] x, bool[1] use_cache_branch) => (float[n] y) {{
        y = If(use_cache_branch) <then_branch = a () => (float[n] z) {{ {0} }}, else_branch = b () => (float[n] w) {{ w = Abs(x) }}> }}"""
    one, two = tmp_path / "one.onnx", tmp_path / "two.onnx"
    onnx.save(onnx.parser.parse_model(text.format(lost)), one)
    onnx.save(onnx.parser.parse_model(text.format("z = Abs(x)")), two)
    found = verify_models(one, two)
    assert found.passed is fails and not verify_models(two, one).passed


def test_a_position_stays_within_its_table():
    specs = decoder("b", ("b", "m"), ("p", "p"))
    made = make_feeds(specs, ranges={"position_ids": (0, 130)}, dims={"s": 4})
    assert made["position_ids"].tolist() == [[128, 129, 129, 129]]


def test_the_table_speaks_of_roles_that_it_knows():
    roles = {role for entry in table().entries for role in entry.axes} - {"-", *table().sums}
    assert roles <= set(table().sizes) and {part for parts in table().sums.values() for part in parts} <= roles
    kinds = {"", "mask", "positions", "past", "total", "last", "lengths", "longer", "one", "zero"}
    assert {entry.values for entry in table().entries} <= kinds
    assert not recognise([TensorSpec("x", "float32", (1, 2))]).roles


def test_a_search_for_a_text_may_make_it_longer():
    counts = [TensorSpec(name, "int32", (1,)) for name in ("max_length", "min_length", "num_beams")]
    specs = [TensorSpec("input_ids", "int32", ("b", "s")), *counts, TensorSpec("length_penalty", "float32", (1,))]
    made = make_feeds(specs, dims={"s": 5})
    assert made["max_length"].item() > 5 and made["num_beams"].item() == made["min_length"].item() == 1
    assert made["length_penalty"].tolist() == [1.0]
