"""Words and categories that encoders know: made-up inputs hold them."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import parser

from graphopt.onnxio.load import load
from graphopt.pipeline.opening import first_run, session_config
from graphopt.runtime.vocabulary import Vocabulary
from graphopt.verification.ranges import input_ranges

AB, CD = '<cats_strings = ["a", "b"], zeros = 0>', '<cats_strings = ["c", "d"], zeros = 0>'
COLUMNS = "k = Constant<value_ints = [0]>() l = Constant<value_ints = [1]>()"
ONE_HOT = "p = ai.onnx.ml.OneHotEncoder{}({}) q = ai.onnx.ml.OneHotEncoder{}({}) y = Concat<axis = -1>(p, q)"


def parsed(inputs, body):
    text = f'<ir_version: 8, opset_import: ["": 17, "ai.onnx.ml": 2]> g ({inputs}) => (float[?, ?, ?] y) {{ {body} }}'
    return load(parser.parse_model(text))


def one_hot(a, b):
    return ONE_HOT.format(AB, a, CD, b)


CASES = {
    "columns": ("string[N, 2] s", f"{COLUMNS} a = Gather<axis = 1>(s, k) b = Gather<axis = 1>(s, l) {one_hot('a', 'b')}",
                {"s": Vocabulary((("a", "b"), ("c", "d")))}),
    "inputs": ("string[N, 1] s, string[N, 1] t", one_hot("s", "t"), {"s": Vocabulary((("a", "b"),)), "t": Vocabulary((("c", "d"),))}),
    "merged": ("string[N, 1] s, string[N, 1] t",
               f"{COLUMNS} m = Concat<axis = 1>(s, t) d = ai.onnx.ml.ArrayFeatureExtractor(m, k) e = ai.onnx.ml.ArrayFeatureExtractor(m, l) "
               f"n = Concat<axis = 1>(e, d) a = ai.onnx.ml.ArrayFeatureExtractor(n, k) b = ai.onnx.ml.ArrayFeatureExtractor(n, l) {one_hot('b', 'a')}",
               {"s": Vocabulary((("a", "b"),)), "t": Vocabulary((("c", "d"),))}),
    "narrowed": ("string[N, 1] s", '''p = ai.onnx.ml.OneHotEncoder<cats_strings = ["a", "b", "c"], zeros = 0>(s)
               q = ai.onnx.ml.OneHotEncoder<cats_strings = ["c", "b"], zeros = 0>(s) y = Concat<axis = -1>(p, q)''', {"s": Vocabulary((("b", "c"),))}),
    "numbers": ("float[N, 3] x", '''k = Constant<value_ints = [2]>() c = Gather<axis = 1>(x, k) i = Cast<to = 7>(c)
               y = ai.onnx.ml.OneHotEncoder<cats_int64s = [4, 7], zeros = 0>(i)''', {"x": Vocabulary(((), (), (4, 7)))}),
    "told apart": ("string[N, 1] s", '''i = ai.onnx.ml.LabelEncoder<keys_strings = ["a", "b"], values_floats = [1.0, 2.0]>(s)
               k = Constant<value_ints = [-1]>() y = Unsqueeze(i, k)''', {"s": Vocabulary((("a", "b", "alpha"),))}),
    "numbers told apart": ("int64[N, 1] i", '''f = ai.onnx.ml.LabelEncoder<keys_int64s = [4, 7], values_floats = [1.0, 2.0]>(i)
               k = Constant<value_ints = [-1]>() y = Unsqueeze(f, k)''', {}),
}  # fmt: skip


@pytest.mark.parametrize(("inputs", "body", "wanted"), CASES.values(), ids=CASES)
def test_inputs_hold_what_encoders_know(inputs, body, wanted):
    model = parsed(inputs, body)
    found = input_ranges(model.graph)
    assert found == wanted
    first_run(model, session_config(), found, (), {}, 0)


def test_what_is_not_of_an_inputs_type_is_not_put_into_it():
    model = parsed("int64[N, 1] i", f"s = Cast<to = 8>(i) {one_hot('s', 's')}")
    assert input_ranges(model.graph) == {}


def test_elements_beside_a_choice_stay_as_they_are():
    given = np.arange(6, dtype=np.float32).reshape(2, 3)
    made = Vocabulary(((), (9, 8), ())).put(given, np.random.default_rng(0))
    assert made.dtype == given.dtype
    assert (made[:, [0, 2]] == given[:, [0, 2]]).all()
    assert np.isin(made[:, 1], (8, 9)).all()
    assert (given == np.arange(6).reshape(2, 3)).all()
