"""Comparing values under a tolerance."""

from __future__ import annotations

import math

import ml_dtypes
import numpy as np
import pytest

from graphopt.verification.compare import RTOL, Tolerance, compare, default_rtol

PLAIN = Tolerance()


def f32(*values):
    return np.array(values, np.float32)


def test_same():
    found = compare(f32(1, 2), f32(1, 2), PLAIN)
    assert found.passed and found.max_abs == found.max_rel == 0 and found.message == ""


def test_the_scale_is_that_of_the_largest_element():
    assert compare(f32(1e-3, 100), f32(2e-3, 100), PLAIN).passed
    assert not compare(f32(1e-3, 1), f32(2e-3, 1), PLAIN).passed


def test_error_is_reported_both_ways():
    found = compare(f32(0, 4), f32(1, 4), PLAIN)
    assert not found.passed and found.max_abs == 1 and found.max_rel == 0.25
    assert "off by 1 where values reach 4" in found.message


@pytest.mark.parametrize(("dtype", "name"), [(np.float16, "float16"), (ml_dtypes.bfloat16, "bfloat16"),
                                             (np.float32, "float32"), (np.float64, "float64")])  # fmt: skip
def test_default_tolerance_follows_the_type(dtype, name):
    one = np.ones(3, dtype)
    inside, outside = 1 + 0.8 * RTOL[name], 1 + 3 * RTOL[name]
    assert compare(one, (one * inside).astype(dtype), PLAIN).passed
    assert not compare(one, (one * outside).astype(dtype), PLAIN).passed
    assert default_rtol("complex64") == RTOL["float32"] and default_rtol("float8_e5m2") == RTOL["quantized"]


def test_chosen_tolerances():
    reference, value = f32(1, 10), f32(1.5, 10)
    assert compare(reference, value, Tolerance(rtol=0.06)).passed
    assert not compare(reference, value, Tolerance(rtol=0.04)).passed
    assert compare(reference, value, Tolerance(rtol=0.0, atol=0.51)).passed
    assert not compare(reference, value, Tolerance(rtol=0.0, atol=0.49)).passed
    assert compare(f32(0, 0), f32(0, 1e-9), Tolerance(atol=1e-8)).passed
    assert not compare(f32(0, 0), f32(0, 1e-9), PLAIN).passed


def test_not_a_number_and_infinity_stay_where_they_are():
    nan, inf = np.nan, np.inf
    same = f32(nan, inf, -inf, 1)
    assert compare(same, same.copy(), PLAIN).passed
    assert compare(f32(nan, inf), f32(nan, inf), PLAIN).passed
    for changed in (f32(1, inf, -inf, 1), f32(nan, -inf, -inf, 1), f32(nan, 1e30, -inf, 1), f32(nan, inf, -inf, nan)):
        found = compare(same, changed, PLAIN)
        assert not found.passed and "1 of 4 elements are finite in one" in found.message
        assert math.isinf(found.max_abs)


def test_infinite_elements_do_not_hide_errors_of_finite_ones():
    assert not compare(f32(np.inf, 1), f32(np.inf, 2), PLAIN).passed


def test_complex_numbers():
    value = np.array([1 + 1j, 2], np.complex64)
    assert compare(value, value * np.complex64(1 + 1e-6), PLAIN).passed
    assert not compare(value, value.conj(), PLAIN).passed


@pytest.mark.parametrize("dtype", [np.bool_, np.int64, np.uint64, np.int8])
def test_integers_and_booleans_are_exact(dtype):
    reference = np.array([0, 1, 1], dtype)
    found = compare(reference, np.array([0, 1, 0], dtype), PLAIN)
    assert not found.passed and found.flips == 1 and "1 of 3 elements differ" in found.message
    assert compare(reference, np.array([0, 1, 0], dtype), Tolerance(flips=1)).passed
    assert compare(reference, reference.copy(), PLAIN).passed


def test_extreme_integers_do_not_overflow():
    low, high = np.iinfo(np.int64).min, np.iinfo(np.int64).max
    assert compare(np.array([low]), np.array([high]), PLAIN).max_abs == pytest.approx(2.0**64)


def test_quantised_levels_only_if_asked_for():
    reference, one, two = (np.array([v], np.uint8) for v in (7, 8, 9))
    assert not compare(reference, one, PLAIN).passed
    assert compare(reference, one, Tolerance(levels=1)).passed
    assert not compare(reference, two, Tolerance(levels=1)).passed
    assert not compare(reference.astype(np.int32), one.astype(np.int32), Tolerance(levels=1)).passed


def test_strings():
    assert compare(np.array(["a", "b"], object), np.array(["a", "b"], object), PLAIN).passed
    assert not compare(np.array(["a", "b"], object), np.array(["a", "c"], object), PLAIN).passed


def test_types_and_shapes():
    assert compare(f32(1), np.ones(1), PLAIN).message == "type float32 became float64"
    assert compare(f32(1), f32(1, 2), PLAIN).message == "shape [1] became [2]"
    assert compare(np.zeros((0, 3), np.float32), np.zeros((0, 3), np.float32), PLAIN).passed


def test_containers():
    reference = [f32(1), {"a": f32(2), "b": 3.0}, None]
    assert compare(reference, [f32(1), {"a": f32(2), "b": 3.0}, None], PLAIN).passed
    found = compare(reference, [f32(1), {"a": f32(9), "b": 3.0}, None], PLAIN)
    assert not found.passed and found.message.startswith("element 1: element 'a': off by 7")
    assert not compare(reference, reference[:2], PLAIN).passed
    assert not compare(reference, [f32(1), [f32(2)], None], PLAIN).passed
    assert not compare(reference, [f32(1), {"a": f32(2), "c": 3.0}, None], PLAIN).passed
    assert not compare(None, f32(1), PLAIN).passed and not compare(f32(1), None, PLAIN).passed


def test_structure_only():
    tolerance = Tolerance(structure_only=True)
    assert compare(f32(1), f32(2), tolerance).passed
    assert compare([f32(1)], [f32(2), f32(3)], tolerance).passed
    assert not compare(f32(1), f32(1, 2), tolerance).passed
    assert not compare(f32(1), np.ones(1), tolerance).passed


def test_worse_joins():
    good, bad = compare(f32(1), f32(1), PLAIN), compare(f32(1), f32(3), PLAIN)
    assert good.worse(bad) == bad.worse(good) == bad


@pytest.mark.parametrize("fill", [-1e4, -1e9, 1e30, float(np.finfo(np.float32).min)])
def test_what_stands_in_place_of_a_number_does_not_hide_errors_of_others(fill):
    assert not compare(f32(fill, 1), f32(fill, -1), PLAIN).passed
    assert compare(f32(fill, 1), f32(fill, 1.00005), PLAIN).passed
    assert compare(f32(3e4, 1), f32(3.0001e4, 2), PLAIN).passed, "the largest term of a sum"
    assert not compare(f32(fill, 1), f32(fill * 0.99, 1), PLAIN).passed


def test_what_flips_goes_no_further_than_is_said():
    reference, value = np.array([1, 2, 3]), np.array([1, 2, 9])
    assert compare(reference, value, Tolerance(flips=1)).passed
    assert compare(reference, value, Tolerance(flips=1, jump=6)).passed
    assert not compare(reference, value, Tolerance(flips=1, jump=5)).passed
