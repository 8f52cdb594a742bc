"""What a graph says of the elements of its inputs."""

from __future__ import annotations

import onnx
import pytest
from onnx import parser

from graphopt.errors import InputsNeededError
from graphopt.onnxio.load import load
from graphopt.pipeline.opening import first_run, session_config
from graphopt.verification.ranges import input_ranges

TABLE = "c = Constant<value_floats = [0.0, 1.0, 2.0, 3.0, 4.0]>()"
CASES = [
    ("int64[2] i", "y = Gather(c, i)", (0, 5)),
    ("int64[2] i", "k = Constant<value_int = 2>() j = Add(i, k) y = Gather(c, j)", (0, 3)),
    ("int64[2] i", "k = Constant<value_int = 2>() j = Add(k, i) y = Gather(c, j)", (0, 3)),
    ("int64[2] i", "k = Constant<value_ints = [3, 1]>() j = Add(i, k) y = Gather(c, j)", (0, 2)),
    ("int64[2] i", "k = Constant<value_int = 2>() j = Sub(i, k) y = Gather(c, j)", (2, 7)),
    ("int32[2] i", "k = Constant<value_int = 1>() l = Cast<to = 7>(i) j = Add(l, k) m = Cast<to = 6>(j) y = Gather(c, m)", (0, 4)),
    ("int64[2] i", "k = Constant<value_ints = [1, 1]>() j = Concat<axis = 0>(k, i) y = Gather(c, j)", (0, 5)),
    ("int64[2] i", "k = Constant<value_int = 0>() b = Equal(i, k) j = Where(b, k, i) y = Gather(c, j)", (0, 5)),
    ("int64[2] i", "k = Constant<value_int = 1>() s = Gather(i, k) y = Gather(c, s)", (0, 5)),
    ("int64[2] i", "k = Constant<value_int = 3>() j = Add(i, k) a = Gather(c, i) b = Gather(c, j) y = Add(a, b)", (0, 2)),
]  # fmt: skip


def parsed(inputs, body, opset=17):
    return parser.parse_model(f'<ir_version: 8, opset_import: ["": {opset}]> g ({inputs}) => (float y) {{ {body} }}')


@pytest.mark.parametrize(("inputs", "body", "wanted"), CASES)
def test_an_index_stays_within_its_table_however_it_gets_there(inputs, body, wanted):
    model = load(parsed(inputs, f"{TABLE} {body}"))
    found = input_ranges(model.graph)
    assert found == {"i": wanted}
    first_run(model, session_config(), found, (), {}, 0)


OPERANDS = [
    ("int64[3] x, int64[3] i", "q = Div(x, i) y = Cast<to = 1>(q)", (1, 4)),
    ("float[2, 3] x, int64[1] i", "y = Unsqueeze(x, i)", ((0,), (1,))),
    ("float[2, 1, 3] x, int64[1] i", "y = Squeeze(x, i)", ((1,), (2,))),
    ("float[2, 6] x, int64[2] i", "y = Reshape(x, i)", ((3, 4), (4, 5))),
    ("float[3, 1] x, int64[2] i", "y = Expand(x, i)", ((3, 4), (4, 5))),
    ("float[7] x, int64[2] i", "y, z = Split<axis = 0>(x, i)", ((3, 4), (4, 5))),
    ("float[3, 2, 4] x, float[1, 12, 4] w, float[1, 12, 3] r, int32[2] i", 'e = Identity(x) y = LSTM<hidden_size = 3>(x, w, r, "", i)', ((3, 3), (4, 4))),
    ("float[2, 4] x, float[2] i, int64[0] e", 'y = Resize<mode = "nearest">(x, "", i)', ((1.5, 1.0), None)),
    ("float[4] x, float i", "y = Dropout(x, i)", (0, 1)),
]  # fmt: skip


@pytest.mark.parametrize(("inputs", "body", "wanted"), OPERANDS)
def test_what_operators_ask_of_an_operand(inputs, body, wanted):
    proto = parsed(inputs, body)
    if wanted[0] in ((3, 4), (1.5, 1.0)) and "Split" not in body:
        proto.graph.output[0].CopyFrom(onnx.helper.make_tensor_value_info("y", 1, [3, 4]))
    model = load(proto)
    found = input_ranges(model.graph)
    assert found["i"][0] == wanted[0] and wanted[1] in (None, found["i"][1])
    first_run(model, session_config(), found, (), {}, 0)


def test_whole_numbers_of_32_bits_have_no_zero_point():
    model = load(parsed("int32[8] x, float[1] s, int32[1] z", "y = DequantizeLinear(x, s, z)", 19))
    found = input_ranges(model.graph)
    assert found == {"z": (0, 1)}
    first_run(model, session_config(), found, (), {}, 0)


def test_a_refusal_says_which_node_fails_with_which_index_and_what_to_give():
    # An index that the graph says nothing of: it is a product.
    body = f"{TABLE} k = Constant<value_int = 9>() s = Shape(x) j = Mul(s, k) y = Gather(c, j)"
    model = parsed("float[n] x, float[m] z", body)
    model.graph.node[-1].name = "look up"
    with pytest.raises(InputsNeededError, match=r"node 'look up' \(Gather\) fails: .*idx=\d+") as error:
        first_run(load(model), session_config(), {}, (), {}, 0)
    assert "--dim n=N" in str(error.value.hint) and str(error.value.hint).endswith("comes of x")
