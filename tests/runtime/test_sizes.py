"""Sizes for symbols: some that a model runs at, and others to hold against them."""

from __future__ import annotations

import time

import pytest

from graphopt.errors import UnknownNameError
from graphopt.runtime.binding import TensorSpec
from graphopt.runtime.feeds import named
from graphopt.runtime.sizes import Hints, Symbols, first_that_run, others


def symbols(*shape, dims=None, hints=None):
    specs = named([TensorSpec("x", "float32", tuple(shape))])
    return Symbols.of(specs, dims, None, Hints(hints or {}))


def works(seconds):
    until = time.process_time() + seconds
    while time.process_time() < until:
        pass
    return True


def all_of(tried, base):
    return [base, *others(tried, base, lambda sizes: True)]


def test_likely_sizes_first():
    assert first_that_run(symbols("batch", "seq", 4), lambda sizes: True) == {"batch": 1, "seq": 128}
    assert first_that_run(symbols("batch", 3, "height", "width"), lambda sizes: True) == {
        "batch": 1, "height": 224, "width": 224,
    }  # fmt: skip


def test_a_dimension_without_a_name_has_the_name_of_its_place():
    assert first_that_run(symbols(None, 3, None, 7), lambda sizes: True) == {"x[0]": 1, "x[2]": 224}


def test_hints_come_before_numbers():
    tried = []

    def runs(sizes):
        tried.append(sizes)
        return sizes["seq"] == 77 and sizes["n"] == 33

    assert first_that_run(symbols("seq", "n", hints={"seq": [77], "n": [33]}), runs) == {"seq": 77, "n": 33}
    assert len(tried) == 2


def test_smaller_images_come_before_all_else_and_however_long_large_ones_took():
    tried = []

    def runs(sizes):
        tried.append(sizes)
        return sizes["h"] <= 16

    found = first_that_run(symbols("batch", 3, "h", "w", hints={"w": [640]}), runs, seconds=0.0)
    assert found == {"batch": 1, "h": 16, "w": 16}
    assert [sizes["w"] for sizes in tried] == [224, 64, 16]
    assert first_that_run(symbols("batch", 3, "seq"), lambda sizes: sizes["seq"] < 8, seconds=0.0) is None


def test_verification_begins_where_the_model_has_run():
    specs = named([TensorSpec("x", "float32", ("batch", 3, "h"))])
    told = Symbols.of(specs, {"batch": 2}, None, Hints(known={"h": 64, "batch": 1}))
    assert first_that_run(told, lambda sizes: True) == {"batch": 2, "h": 64}


@pytest.mark.parametrize("wanted", [{"p": 1, "q": 1}, {"p": 16, "q": 16}, {"p": 8, "q": 32}, {"p": 12, "q": 8}])
def test_a_short_search_finds(wanted):
    assert first_that_run(symbols("p", "q"), lambda sizes: sizes == wanted) == wanted


def test_a_sound_may_be_longer_than_any_sequence():
    assert first_that_run(symbols("b", "t"), lambda sizes: sizes["b"] < 8 and sizes["t"] > 2000) == {"b": 1, "t": 2048}


def test_what_never_runs_is_given_up():
    tried = []
    assert first_that_run(symbols("a", "b"), lambda sizes: bool(tried.append(sizes))) is None
    assert len(tried) < 200


def test_every_symbol_gets_a_second_size_and_one():
    found = all_of(symbols("batch", "seq", "n"), {"batch": 1, "seq": 8, "n": 8})
    for name in ("batch", "seq", "n"):
        assert len({sizes[name] for sizes in found}) >= 2 and any(sizes[name] == 1 for sizes in found)
    assert any(len(set(sizes.values())) == 3 for sizes in found)  # what is equal by chance hides mistakes


def test_every_symbol_gets_an_even_and_an_odd_size():
    for base in (1, 2, 3, 8, 31):
        found = all_of(symbols("batch", "seq", "n"), dict.fromkeys(("batch", "seq", "n"), base))
        assert all({sizes[name] % 2 for sizes in found[:2]} == {0, 1} for name in ("batch", "seq", "n"))


def test_sizes_beyond_what_sizes_are_held_against():
    specs = named([TensorSpec("x", "float32", ("batch", "seq", "h"))])
    base = {"batch": 1, "seq": 8, "h": 224}
    free = Symbols.of(specs, {}, None, Hints(bounds=(300, 100, 40, 2)))
    assert others(free, base, lambda sizes: True)[-1] == {"batch": 301, "seq": 302, "h": 303}
    # A table of positions ends at one of them; what takes long is not tried at all.
    assert others(free, base, lambda sizes: sizes["seq"] <= 100)[-1] == {"batch": 301, "seq": 42, "h": 303}
    tried = []
    others(free, base, lambda sizes: tried.append(sizes) or works(0.06))
    assert base not in tried and max(sizes["seq"] for sizes in tried) <= 8
    # What others have the processor for meanwhile is not long.
    assert others(free, base, lambda sizes: time.sleep(0.06) is None)[-1]["seq"] > 300


def test_bounds_that_would_take_too_long_stand_in_no_others_way():
    """Three are tried at most: with as many large ones nothing was, though the model is quick above the last."""
    free = Symbols.of([TensorSpec("x", "float32", ("n", 3))], {}, None, Hints(bounds=(512, 511, 510, 7)))
    assert others(free, {"n": 2}, lambda sizes: works(1e-3))[-1] == {"n": 8}


def test_what_was_chosen_stays():
    tried = symbols("batch", "seq", dims={"seq": 6})
    assert tried.free == ("batch",)
    found = all_of(tried, first_that_run(tried, lambda sizes: True))
    assert {sizes["seq"] for sizes in found} == {6} and {sizes["batch"] for sizes in found} == {1, 4}
    with pytest.raises(UnknownNameError):
        symbols("batch", dims={"sequence": 3})


def test_sums_follow_their_parts():
    tried = symbols("past", "past + 1")
    assert tried.free == ("past",)


def test_sizes_that_are_bound_to_each_other():
    base = {"a": 8, "b": 8}
    found = others(symbols("a", "b"), base, lambda sizes: sizes["a"] == sizes["b"])
    assert {sizes["a"] for sizes in found} == {2, 1}


def test_one_symbol_that_takes_one_size():
    base = {"a": 8, "b": 8}
    found = others(symbols("a", "b"), base, lambda sizes: sizes["b"] == 8)
    assert {sizes["a"] for sizes in found} == {3, 1} and {sizes["b"] for sizes in found} == {8}


def test_small_images_differ_by_what_strides_divide_as_well():
    found = others(symbols("n", 3, "h", "w"), {"n": 1, "h": 64, "w": 64}, lambda sizes: sizes["h"] % 32 == 0)
    assert found[0] == {"n": 4, "h": 96, "w": 128}


def test_large_sizes_become_odd_ones_and_small_ones():
    """What is halved again and again is rounded, and what is cut at ten is not cut at five."""
    found = others(symbols("batch", "seq"), {"batch": 1, "seq": 128}, lambda sizes: True)
    assert found == [{"batch": 4, "seq": 67}, {"batch": 1, "seq": 5}, {"batch": 1, "seq": 1}]


def test_images_shrink_by_what_strides_divide():
    found = others(symbols("h", "w"), {"h": 224, "w": 224}, lambda sizes: all(n % 32 == 0 for n in sizes.values()))
    assert found == [{"h": 192, "w": 160}]
