"""What a graph says of the elements of its inputs."""

from __future__ import annotations

import onnx
import pytest
from onnx import parser

from graphopt.errors import InputsNeededError
from graphopt.onnxio.load import load
from graphopt.pipeline.opening import first_run, session_config
from graphopt.runtime.session import LoadableModel
from graphopt.verification.numeric import verify_models
from graphopt.verification.ranges import input_ranges
from graphopt.verification.sizes import size_hints

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
    ("int64[2] i", "k = Constant<value_int = 2>() j = Mul(i, k) y = Gather(c, j)", (0, 3)),
    ("int64[2] i", "k = Constant<value_int = 0>() j = CumSum(i, k) y = Gather(c, j)", (0, 3)),
    ("int64[3] i", "k = Constant<value_int = 0>() o = Constant<value_int = 1>() j = CumSum(i, k) l = Sub(j, o) y = Gather(c, l)", (1, 2)),
    ("int64[2, 1] i", "k = Constant<value_ints = [1]>() j = Add(i, k) y = GatherND(c, j)", (0, 4)),
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
    ("float[1, 2, 6] x, int64[7, 2] i", "y = GatherND(x, i)", ((0, 0), (1, 2))),
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


OPEN = [
    ("float[b, 12, 6] x, int64[2] i, int64[2] k", "y = Col2Im(x, i, k)", 18),
    ("float[1, 12, 15] x, int64[2] i, int64[2] k", "y = Col2Im<pads = [0, 1, 0, 1], strides = [1, 2]>(x, i, k)", 18),
    ("float[6, 4] x, int64[2] i", "s = SplitToSequence<axis = 0>(x, i) y = ConcatFromSequence<axis = 0>(s)", 17),
    ("float[b, 6] x, int64[2] i", "y, z = Split<axis = 1>(x, i)", 17),
    ("float[b, 3, 4] x, int64[2] i", "y = Reshape(x, i)", 17),
    ("float[b, s, 12] x, int64[4] i", "y = Reshape(x, i)", 17),
    ("float[b, s, 12] x, int64[n] i", "y = Reshape(x, i)", 17),
    ("float[b, 3, h, w] x, int64[4] i", 'y = Resize<mode = "nearest">(x, "", "", i)', 17),
    ("float[b, 3, h, w] x, int64[2] i", 'y = Resize<axes = [2, 3]>(x, "", "", i)', 18),
    ("float[b, 3, h, w] x, float[4] i", 'y = Resize<mode = "nearest">(x, "", i)', 17),
    ("float[b, 3, 8, 8] x, float[4] i", "y = Upsample(x, i)", 9),
    ("float[b, 2, 3] x, int64[4] i", "y = AffineGrid(x, i)", 20),
    ("float[1, 1, 2, 2] x, int64[1, 1, 2, 2] j, int64[4] i", "y = MaxUnpool<kernel_shape = [2, 2], strides = [2, 2]>(x, j, i)", 17),
    ("float[1, 3, 4] x, int64[3] lens", "y = ReverseSequence(x, lens)", 17),
    ("float[4] x, int64 i", "y = CumSum(x, i)", 17),
    ("float[3, 4] x, int64[2] i", "c = ConstantOfShape(i) y = Add(c, x)", 17),
    ("float[b, 8] x, int64 i", "s = Constant<value_int = 0>() d = Constant<value_int = 1>() r = Range(s, i, d) f = Cast<to = 1>(r) y = Add(x, f)", 17),
    ("float[b, s] x, int64[2] i", "y, z = Split<axis = 1>(x, i)", 17),  # runs with some numbers only
    ("float[b, 16, 4] x, int64[n] s, int64[n] e, int64[n] i, int64[n] t", "y = Slice(x, s, e, i, t)", 17),
    ("seq(float[]) x, float[4, 5] w", "i = Constant<value_int = -3>() s = SequenceAt(x, i) y = MatMul(s, w)", 17),
    ("seq(float[]) x, float[5, 4] t, int64 i", "s = SequenceInsert(x, t, i) y = ConcatFromSequence<axis = 0>(s)", 17),
]  # fmt: skip


@pytest.mark.parametrize(("inputs", "body", "opset"), OPEN)
def test_operands_that_are_left_to_the_caller_do_not_keep_a_model_from_running(inputs, body, opset):
    model = load(parsed(inputs, body, opset))
    found = input_ranges(model.graph)
    first_run(model, session_config(), found, (), {}, 0)
    given = LoadableModel(model.proto.SerializeToString())
    assert verify_models(given, given, ranges=found, hints=size_hints(model.graph)).passed


GROUPED = "y, k, v = com.microsoft.GroupQueryAttention<num_heads = 4, kv_num_heads = 2>(a, b, c, d, e, f, g)"


def test_operands_say_what_an_input_is_where_its_name_does_not():
    inputs = "float[n, s, 64] a, float[n, s, 32] b, float[n, s, 32] c, float[n, 2, p, 16] d, float[n, 2, p, 16] e, int32[n] f, int32[1] g"
    text = f'<ir_version: 8, opset_import: ["": 17, "com.microsoft": 1]> m ({inputs}) => (float y) {{ {GROUPED} }}'
    model = load(parser.parse_model(text))
    assert size_hints(model.graph).known_as["f"] == "seqlens_k"
    _, feeds = first_run(model, session_config(), {}, (), {}, 0)
    assert feeds["f"].tolist() == [128] and feeds["g"].tolist() == [129]  # one token after 128


def test_a_cache_of_fixed_length_is_not_full():
    inputs = "float[n, s, 8] q, float[n, s, 8] k, float[n, s, 8] v, float[n, 2, m, 4] a, float[n, 2, m, 4] b, int32[1] filled, int32[n, beams, m] i"
    body = 'y, c, d = com.microsoft.MultiHeadAttention<num_heads = 2>(q, k, v, "", "", "", a, b, filled, i)'
    text = f'<ir_version: 8, opset_import: ["": 17, "com.microsoft": 1]> m ({inputs}) => (float y) {{ {body} }}'
    _, feeds = first_run(load(parser.parse_model(text)), session_config(), {}, (), {}, 0)
    assert feeds["filled"].item() < feeds["a"].shape[2] and not feeds["i"].any()


def test_a_node_without_a_name_is_called_by_what_it_makes():
    proto = parsed("float[b, 12] x, int64[3] i, float[4, 5] w", "r = Reshape(x, i) y = MatMul(r, w)")
    with pytest.raises(InputsNeededError, match=r"node 'y' \(MatMul\) fails") as error:
        first_run(load(proto), session_config(), {}, (), {}, 0)
    assert str(error.value.hint).endswith("comes of x, i, w")


def test_a_node_that_fails_on_numbers_that_are_left_open_is_not_said_to_be_faulty():
    proto = parsed("float[1, 16] x, int64[1] i, int64[1] j, float[1, 8] z", "s = Slice(x, i, j) y = Add(s, z)")
    with pytest.raises(InputsNeededError, match=r"node 'y' \(Add\) fails") as error:
        first_run(load(proto), session_config(), {}, (), {}, 0)
    assert str(error.value.hint).endswith("comes of x, i, j, z") and "fault" not in str(error.value.hint)


def test_a_nameless_node_whose_output_is_called_like_another_node():
    """As the runtime writes a model whose casts it has put in itself; nodes get names for its messages, and it takes no name twice."""
    proto = parsed("float[2] x", "a = Neg(x) y = Exp(a)")
    proto.graph.node[1].name = "a"
    _, feeds = first_run(load(proto), session_config(), {}, (), {}, 0)
    assert feeds["x"].shape == (2,)
