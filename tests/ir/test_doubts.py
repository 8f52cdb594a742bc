"""Shapes that ONNX infers and the runtime does not make are not believed; symbols are sizes of their own."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from onnx import TensorProto, helper, parser

from graphopt.ir.delta import RefusedError
from graphopt.ir.edit import Edit
from graphopt.ir.simplify import simplify
from graphopt.ir.types import ValueType, merge
from graphopt.onnxio.load import load
from graphopt.rewrite.library import load_library
from graphopt.rewrite.sites import Sites
from graphopt.runtime.session import LoadableModel, Session, SessionConfig

SLICED = """<ir_version: 5, opset_import: ["": 10]>
g (float[batch, seq] x) => (float[batch, seq] y) <int64[1] s = {0}, int64[1] e = {10}, int64[1] a = {1}>
{ z = Slice(x, s, e, a) w = Relu(z) y = Relu(w) }"""


def types(proto):
    graph = simplify(load(proto).graph)
    return {value.name: str(value.type) for value in graph.values.values()}


def inferred(text):
    """The types of a model's values where it declares no shapes of its outputs."""
    proto = parser.parse_model(text)
    for output in proto.graph.output:
        output.type.tensor_type.ClearField("shape")
    return types(proto)


def at(opset):
    return SLICED.replace('["": 10]', f'["": {opset}]')


@pytest.mark.parametrize("dtype", ["BOOL", "UINT8"])
def test_a_size_that_became_a_truth_or_a_byte_is_no_size_any_more(dtype):
    """ONNX carries the numbers through a Cast as they are."""
    text = f"""<ir_version: 8, opset_import: ["": 17]>
    g (float[300, 3] x) => (float[a, b] y)
    {{ s = Shape(x) c = Cast<to: int = {getattr(TensorProto, dtype)}>(s) d = Cast<to: int = 7>(c) y = ConstantOfShape(d) }}"""
    made = {"BOOL": "f32[1,1]", "UINT8": "f32[44,3]"}
    assert inferred(text)["y"] == made[dtype]


@pytest.mark.parametrize("opset", [11, 12, 13])
def test_a_cut_axis_keeps_no_symbol(opset):
    found = types(parser.parse_model(at(opset)))
    assert found["z"] == found["w"] == found["y"] == "f32[batch,?]"


@pytest.mark.parametrize(
    ("text", "left_alone"),
    [
        (at(10), True),
        (at(11), False),
        (SLICED.replace("batch, seq", "2, 20"), False),
        (SLICED.replace("float[batch, seq] y", "float[o, p] y").replace("batch", "2").replace("seq", "20"), False),
        (SLICED.replace("batch", "2"), True),
        (SLICED.replace("[batch, seq]", "[]").replace("float[] x", "float[?, ?] x"), False),
    ],
)
def test_a_model_in_which_the_runtime_may_mistake_a_slice_is_left_alone(text, left_alone):
    """Whether it does depends on what lies in memory by then: any rewrite anywhere in the graph may change that."""
    nodes = load(parser.parse_model(text)).graph.nodes.values()
    assert {bool(node.opaque) for node in nodes} == {left_alone}
    assert not left_alone or {"onnxruntime" in node.opaque for node in nodes} == {True}


def test_an_axis_taken_whole_keeps_its_symbol():
    found = types(parser.parse_model(at(12).replace("{10}", "{9223372036854775807}")))
    assert found["z"] == "f32[batch,seq]"


def test_no_rule_drops_a_slice_that_cuts():
    sites = Sites.of(simplify(load(parser.parse_model(at(12))).graph), load_library())
    assert len(list(sites))
    assert "drop-slice" not in {match.rule.id for match in sites}


@pytest.mark.parametrize("opset", [7, 10, 11])
@pytest.mark.parametrize(("op", "known"), [("Squeeze", "f32[2,3]"), ("Unsqueeze", "f32[2,3,1,1]")])
def test_an_axis_counted_from_behind_before_that_was_allowed(op, known, opset):
    text = (
        f'<ir_version: 5, opset_import: ["": {opset}]> g (float[2, 3, 1] x) => (float y) {{ y = {op}<axes = [-1]>(x) }}'
    )
    proto = parser.parse_model(text)
    proto.graph.output[0].type.tensor_type.ClearField("shape")
    assert types(proto)["y"] == (known if opset >= 11 else "f32[?]")


@pytest.mark.parametrize("opset", [11, 13, 21])
@pytest.mark.parametrize(("size", "known"), [("n", "f32[?]"), ("3", "f32[3,4]")])
def test_open_sizes_may_be_what_a_squeeze_takes_out(opset, size, known):
    """As torch declares it, having seen no size of 1: rules then took the Squeeze away."""
    text = f'<ir_version: 8, opset_import: ["": {opset}]> g (float[{size}, 4] x) => (float[{size}, 4] y) {{ y = Squeeze(x) }}'
    assert types(parser.parse_model(text))["y"] == known


@pytest.mark.parametrize("opset", [11, 13, 21])
@pytest.mark.parametrize(("axes", "known"), [((), "f32[?]"), ((1,), "f32[2,1,3]")])
def test_an_empty_list_of_axes_takes_out_all_of_length_one(opset, axes, known):
    listed = ", ".join(map(str, axes))
    given, node = ("", f"y = Squeeze<axes = [{listed}]>(x)") if axes else ("", "y = Squeeze<axes: ints = []>(x)")
    if opset >= 13:
        given, node = f"<int64[{len(axes)}] a = {{{listed}}}>", "y = Squeeze(x, a)"
    text = f'<ir_version: 8, opset_import: ["": {opset}]> g (float[2, 1, 1, 3] x) => (float y) {given} {{ {node} }}'
    proto = parser.parse_model(text)
    proto.graph.output[0].type.tensor_type.ClearField("shape")
    assert types(proto)["y"] == known
    with Session(LoadableModel(proto.SerializeToString()), SessionConfig(level="disabled")) as session:
        made = session.run({"x": np.zeros((2, 1, 1, 3), np.float32)})[0].shape
    assert made == ((2, 1, 3) if axes else (2, 3))


@pytest.mark.parametrize("op", ["MaxPool", "AveragePool"])
@pytest.mark.parametrize("opset", [10, 12, 22])
def test_pools_that_round_up_have_the_shape_that_the_runtime_makes(op, opset):
    wrong, right = [], 0
    for size, kernel, stride, head, tail in itertools.product((3, 4, 7), (2, 3), (2, 3), (0, 1), (0, 1)):
        node = helper.make_node(
            op, ["x"], ["y"], kernel_shape=[kernel], strides=[stride], pads=[head, tail], ceil_mode=1
        )
        graph = helper.make_graph(
            [node], "g", [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 1, size])],
            [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        )  # fmt: skip
        proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)
        with Session(LoadableModel(proto.SerializeToString()), SessionConfig(level="disabled")) as session:
            made = session.run({"x": np.zeros((1, 1, size), np.float32)})[0].shape
        (said,) = (v.type.shape for v in simplify(load(proto).graph).values.values() if v.name == "y")
        assert said is not None and len(said) == 3
        right += said == made
        wrong += [(size, kernel, stride, head, tail)] * any(d not in (None, m) for d, m in zip(said, made, strict=True))
    assert not wrong and right > 20


@pytest.mark.parametrize(
    ("body", "known"),
    [
        (
            'z = Einsum<equation = "bhqk,bhkd->bhqd">(a, b)',
            "f32[?]",
        ),  # ONNX infers a batch of 1, the runtime makes one of 2
        ("z = MatMul(a, b)", "f32[unk__0,2,3,4,5]"),
    ],
)
def test_of_a_body_is_not_believed_what_operands_decide_that_nobody_knows_there(body, known):
    proto = parser.parse_model(f"""<ir_version: 8, opset_import: ["": 18]> g (float[1, 3, 4, 6] a, float[2, 3, 6, 5] b, int64 n) => (float y) {{
      y = Loop(n, "") <body = l (int64 i, bool c) => (bool d, float z) {{ {body} d = Identity(c) }}>
    }}""")
    for output in (proto.graph.output[0], proto.graph.node[0].attribute[0].g.output[1]):
        output.type.tensor_type.ClearField("shape")
    assert types(proto)["y"] == known


@pytest.mark.parametrize("op", ["MaxPool", "AveragePool", "LpPool"])
@pytest.mark.parametrize(("auto_pad", "known"), [("VALID", "f32[1,2,?,?]"), ("NOTSET", "f32[1,2,3,4]")])
def test_a_pool_with_pads_that_finds_its_own_has_an_unknown_shape(op, auto_pad, known):
    proto = parser.parse_model(f"""<ir_version: 8, opset_import: ["": 18]> g (float[1, 2, 6, 7] x) => (float y) {{
      y = {op}<auto_pad = "{auto_pad}", kernel_shape = [3, 3], pads = [1, 1, 1, 1], strides = [2, 2]>(x) }}""")
    proto.graph.output[0].type.tensor_type.ClearField("shape")
    assert types(proto)["y"] == known
    with Session(LoadableModel(proto.SerializeToString()), SessionConfig(level="disabled")) as session:
        made = session.run({"x": np.zeros((1, 2, 6, 7), np.float32)})[0].shape
    assert made == ((1, 2, 2, 3) if auto_pad == "VALID" else (1, 2, 3, 4))


@pytest.mark.parametrize(
    ("a", "b", "both"),
    [
        (("batch", "seq"), ("batch", "seq"), ("batch", "seq")),
        (("batch", "seq"), ("batch", None), ("batch", "seq")),
        (("batch", None), ("batch", 4), ("batch", 4)),
        (("batch", "unk__3"), ("batch", "seq"), ("batch", "seq")),
        (("batch", "seq"), ("batch", "other"), None),
        (("batch", "seq"), ("batch", 10), None),
        (("batch", 10), ("batch", "seq"), None),
    ],
)
def test_symbols_are_sizes_of_their_own(a, b, both):
    found = merge(ValueType("f32", a), ValueType("f32", b))
    assert found == (None if both is None else ValueType("f32", both))


def test_a_root_may_not_get_another_symbol():
    proto = parser.parse_model(
        '<ir_version: 8, opset_import: ["": 17]> g (float[n, 4] a, float[m, 4] b) => (float[n, 4] y, float[m, 4] z)'
        "{ y = Relu(a) z = Neg(b) }"
    )
    graph = simplify(load(proto).graph)
    keys = {value.name: key for key, value in graph.values.items()}
    edit = Edit(graph, "test", [keys["y"]])
    with pytest.raises(RefusedError, match="would become"):
        edit.add("Relu", [keys["b"]], outputs=[keys["y"]])
    with pytest.raises(RefusedError, match="would become"):
        Edit(graph, "test", [keys["y"]]).alias(keys["y"], keys["z"])


def test_names_that_an_exporter_gave_inside_give_way_to_those_of_the_inputs():
    proto = parser.parse_model(
        '<ir_version: 8, opset_import: ["": 17]> g (float[batch, seq] x) => (float[out_0, out_1] y)'
        "<float[Addx_dim_0, Addx_dim_1] z> { z = Neg(x) y = Relu(z) }"
    )
    found = types(proto)
    assert found["z"] == found["y"] == "f32[batch,seq]"


def test_axes_that_are_an_output_without_a_shape():
    found = inferred(
        '<ir_version: 8, opset_import: ["": 17]> g (float[9, 5, 6, 4] x) => (float[9, 5, 6, 1] y, int64 a)'
        "<int64[1] s = {0}, int64[1] e = {1}, int64[1] a = {-1}> { y = Slice(x, s, e, a) }"
    )
    assert found["y"] == "f32[9,5,6,1]"


def test_a_slope_that_stretches_its_operand():
    proto = parser.parse_model(
        '<ir_version: 8, opset_import: ["": 14]> g (float[2, 1, 3] x, float[n, 3] z) => (float[2, 8, 3] y, float[n, 3] w)'
        "<float[8, 1] s = {1, 2, 3, 4, 5, 6, 7, 8}, float[3] t = {1, 2, 3}> { y = PRelu(x, s) w = PRelu(z, t) }"
    )
    found = types(proto)
    assert found["y"] == "f32[2,?,3]" and found["w"] == "f32[n,3]"


@pytest.mark.parametrize(("size", "expected"), [(12, "f32[1,3,12,12]"), (4, "f32[?]")])
def test_a_conv_transpose_that_is_told_to_make_less_than_it_was_given(size, expected):
    """The runtime makes that; ONNX says batch and channels, and nothing of the image."""
    proto = parser.parse_model(
        f'<ir_version: 8, opset_import: ["": 17]> g (float[1, 2, 5, 5] x, float[2, 3, 3, 3] w) => (float y)'
        f"{{ y = ConvTranspose<output_shape = [{size}, {size}], strides = [2, 2]>(x, w) }}"
    )
    assert types(proto)["y"] == expected


def test_a_name_that_onnx_made_up_is_one_size_wherever_it_stands():
    found = inferred(
        '<ir_version: 8, opset_import: ["": 17]> g (float[unk__3, 4] a, float[unk__3, unk__5] b) => (float[p, q] y, float[r, s] z)'
        "{ y = Neg(a) z = Relu(b) }"
    )
    assert found["y"] == "f32[a[0],4]" and found["z"] == "f32[a[0],b[1]]"


def test_an_input_is_what_it_declares_whatever_the_file_says_of_it_as_an_inner_value():
    # `onnx.utils.extract_model` leaves what was said of a value that is an input of the part.
    found = inferred(
        '<ir_version: 8, opset_import: ["": 17]> g (float[unk__3, 4] a) => (float[p, q] y) <float[unk__3, 4] a> { y = Neg(a) }'
    )
    assert found["a"] == found["y"] == "f32[a[0],4]"


def test_sizes_are_followed_through_quantised_units():
    found = inferred(
        '<ir_version: 8, opset_import: ["": 17]> g (float[n, 1, 4, 4] x) => (float[p, q, r, s] y)'
        "<float s = {1}, uint8 z = {0}, float[0] roi = {}, float[4] twice = {1, 1, 2, 2}> {"
        " a = QuantizeLinear(x, s, z) b = DequantizeLinear(a, s, z) c = Resize(b, roi, twice)"
        " d = QuantizeLinear(c, s, z) e = DequantizeLinear(d, s, z) y = Relu(e) }"
    )
    assert found["c"] == found["y"] == "f32[n,1,8,8]"


def test_a_concat_of_sizes_that_may_differ_has_a_size_of_its_own():
    found = inferred(
        '<ir_version: 8, opset_import: ["": 17]> g (float[n, 4] a, float[m, 4] b) => (float[p, 8] y, float[q, 8] z, float[r, 8] w)'
        "{ y = Concat<axis = 1>(a, b) z = Concat<axis = 1>(b, a) v = Neg(a) w = Concat<axis = 1>(v, b) }"
    )
    assert found["y"] == found["w"] != found["z"]
    assert not {"f32[n,8]", "f32[m,8]"} & {found["y"], found["z"]}


def test_backwards_from_behind_the_end():
    found = inferred(
        '<ir_version: 8, opset_import: ["": 17]> g (float[1, 4] x) => (float[1, 4] y, float[1, 4] z)'
        "<int64[1] s = {1}, int64[1] e = {9223372036854775807}, int64[1] a = {-2}, int64[1] p = {-1}, int64[1] q = {-1},"
        "int64[1] f = {-9223372036854775807}> { y = Slice(x, s, e, a, p) z = Slice(x, q, f, a, p) }"
    )
    assert found["y"] == "f32[?,4]" and found["z"] == "f32[1,4]"


def test_an_operator_that_the_operator_set_lacks_is_refused():
    proto = parser.parse_model('<ir_version: 8, opset_import: ["": 7]> g (float[2] x) => (float[2] y) { y = Relu(x) }')
    edit = Edit(load(proto).graph, "test")
    (x,) = edit.graph.inputs
    with pytest.raises(RefusedError, match="not in operator set 7"):
        edit.add("Expand", [x, edit.constant(np.array([4, 2]))])


def test_a_label_of_one_in_one_operand():
    found = inferred(
        '<ir_version: 8, opset_import: ["": 17]> g (float[1, 4, 3, 5] a, float[2, 6, 3, 5] b) => (float[2, 3, 4, 6] y)'
        '{ y = Einsum<equation = "bqhd,bkhd->bhqk">(a, b) }'
    )
    assert found["y"] == "f32[?,3,4,6]"


def test_what_an_ellipsis_stands_for():
    found = inferred(
        '<ir_version: 8, opset_import: ["": 17]> g (float[B, 4, 3, 5] a, float[B, 6, 3, 5] b, float[1, 6, 3, 5] c) => (float[B, 3, 4, 6] x, float[B, 3, 4, 6] y)'
        '{ x = Einsum<equation = "...qhd,...khd->...hqk">(a, b) y = Einsum<equation = "...qhd,...khd->...hqk">(a, c) }'
    )
    assert found["x"] == "f32[B,3,4,6]" and found["y"] == "f32[?,3,4,6]"


def test_what_is_empty_counts_for_nothing_in_a_concat():
    found = inferred(
        '<ir_version: 8, opset_import: ["": 17]> g (float[0, 3] a, float[2, S] b, float[2, 3] c, float[P, 4] d, float[n, 4] e) => '
        "(float[2, 3] x, float[4, 3] y, float[r, 4] z) { x = Concat<axis = 0>(b, a) y = Concat<axis = 0>(b, c) z = Concat<axis = 0>(d, e) }"
    )
    assert found["x"].startswith("f32[2,unk__")  # [2, 1] where S is 1
    assert found["y"] == "f32[4,3]" and found["z"].endswith(",4]")


def test_what_is_empty_says_nothing_of_what_nobody_knows():
    found = inferred(
        '<ir_version: 8, opset_import: ["": 13]> g (float[S, S, B, N] a, float[S, S, B, 0] b) => (float[S, S, C, D] y)'
        "<int64[1] s = {-1}, int64[1] e = {1}, int64[1] k = {3}> { p = Slice(a, s, e, k) y = Concat<axis = 2>(b, p, p) }"
    )
    assert found["y"] == "f32[S,S,?,?]"  # of one element and more where N is 1


def test_a_reshape_to_another_number_of_elements_is_refused():
    proto = parser.parse_model(
        '<ir_version: 8, opset_import: ["": 17]> g (float[8, 0, 3] x) => (float[y] y) { y = Relu(x) }'
    )
    edit = Edit(load(proto).graph, "test")
    (x,) = edit.graph.inputs
    with pytest.raises(RefusedError, match="can't be"):
        edit.add("Reshape", [x, edit.constant(np.array([4, 2, 0, 3]))])  # the 0 stands for x's third dimension


def test_heads_of_unknown_size_are_not_of_size_0():
    found = inferred(
        '<ir_version: 10, opset_import: ["": 23]> g (float[1, 3, 4] q, float[1, 5, 4] k, float[1, 5, V] v) => (float[a, b, c] y) '
        "{ y = Attention <q_num_heads = 2, kv_num_heads = 2> (q, k, v) }"
    )
    assert found["y"] == "f32[1,3,?]"


def test_a_slice_along_axes_that_nobody_knows():
    found = inferred(
        '<ir_version: 8, opset_import: ["": 17]> g (float[S, T] x, int64[1] a) => (float[b, c] y, float[d, e] z) '
        "<int64[1] s = {1}, int64[1] e = {2}> { y = Slice(x, s, e, a) z = Slice(x, s, e) }"
    )
    assert found["y"] == "f32[?,?]" and found["z"] == "f32[?,T]"


@pytest.mark.parametrize(
    ("opset", "inputs", "node", "known"),
    [
        # ONNX's inference takes another default than its definition.
        (17, "float[2,9,1] x", "STFT(x, three, window)", "f32[2,2,3,2]"),
        # A flag is set if it is 1.
        (18, "float[4,5] x", "Reshape<allowzero = 2>(x, zeros)", "f32[4,5]"),
        (17, "float[1,1,5] x", "MaxPool<ceil_mode = 2, kernel_shape = [3], strides = [3]>(x)", "f32[1,1,1]"),
        # Pads that are there are not those that are wanted.
        (
            17,
            "float[1,1,5] x",
            'AveragePool<auto_pad = "SAME_UPPER", kernel_shape = [2], pads = [0, 0]>(x)',
            "f32[1,1,5]",
        ),
        (
            17,
            "float[1,1,8] x",
            'MaxPool<auto_pad = "SAME_UPPER", dilations = [3], kernel_shape = [3]>(x)',
            "f32[1,1,?]",
        ),
        (
            22,
            "float[1,1,8] x",
            'LpPool<auto_pad = "SAME_LOWER", dilations = [3], kernel_shape = [3]>(x)',
            "f32[1,1,?]",
        ),
        (
            13,
            "float[1,1,4] x, float[1,1,3] w",
            'ConvTranspose<auto_pad = "SAME_UPPER", output_padding = [1], strides = [2]>(x, w)',
            "f32[?]",
        ),
        (10, "float[1,1,3,1] x", "Squeeze<axes = [1, 0, 3]>(x)", "f32[3]"),
        (13, "float x", "NonZero(x)", "i64[?]"),
        (20, "float[2,5,1] x, int64 n", "DFT(x, n)", "f32[2,?,2]"),
        (20, "float[2,5,1] x, int64 n", "DFT(x, n, zero)", "f32[?,5,2]"),
        (
            18,
            "float[5,4] x",
            'Resize<axes = [-2, -1], keep_aspect_ratio_policy = "not_smaller">(x, , , sizes)',
            "f32[?]",
        ),
    ],
)
def test_what_the_runtime_makes_is_said_or_left_open(opset, inputs, node, known):
    proto = parser.parse_model(f"""<ir_version: 8, opset_import: ["": {opset}]> g ({inputs}) => (float y)
    <int64 zero = {{0}}, int64 three = {{3}}, float[5] window = {{1, 1, 1, 1, 1}}, int64[2] zeros = {{4, 0}}, int64[2] sizes = {{8, 1}}>
    {{ y = {node} }}""")
    proto.graph.output[0].type.tensor_type.ClearField("shape")
    if "NonZero" in node:
        proto.graph.output[0].type.tensor_type.elem_type = TensorProto.INT64
    assert types(proto)["y"] == known
    feeds = {
        i.name: np.ones([d.dim_value for d in i.type.tensor_type.shape.dim], np.float32) for i in proto.graph.input
    }
    if "n" in feeds:
        feeds["n"] = np.array(7)
    with Session(LoadableModel(proto.SerializeToString()), SessionConfig(level="disabled")) as session:
        made = session.run(feeds)[0].shape
    said = known.partition("[")[2].rstrip("]").split(",")
    assert said == ["?"] or [d if s != "?" else s for s, d in zip(said, map(str, made), strict=True)] == said


def test_of_products_with_the_past_an_attention_has_more():
    found = inferred("""<ir_version: 10, opset_import: ["": 23]>
    g (float[1,2,3,4] q, float[1,2,3,4] k, float[1,2,3,4] v, float[1,2,5,4] a, float[1,2,5,4] b) => (float y, float pk, float pv, float p)
    { y, pk, pv, p = Attention(q, k, v, , a, b) }""")
    assert found["p"] == "f32[1,2,3,?]" and found["pk"] == "f32[1,2,8,4]"


@pytest.mark.parametrize("width", [12, 11])
def test_of_weights_that_are_no_three_parts_an_attention_makes_nothing(width):
    found = inferred(f"""<ir_version: 10, opset_import: ["": 17, "com.microsoft": 1]>
    g (float[2,3,4] x, float[4,{width}] w, float[{width}] b) => (float y)
    {{ y = com.microsoft.Attention<num_heads = 1>(x, w, b) }}""")
    assert ("[2,3,4]" in found["y"]) == (width == 12) and "3,3" not in found["y"]


@pytest.mark.parametrize("keepdims", [0, 1])
def test_of_single_slices_the_axis_may_be_gone(keepdims):
    text = f"""<ir_version: 8, opset_import: ["": 17]> g (float[1, 3] x) => (float y) <int64 one = {{1}}, int64 at = {{0}}>
    {{ q = SplitToSequence<axis = 1, keepdims = {keepdims}>(x, one) y = SequenceAt(q, at) }}"""
    assert inferred(text)["y"] == ("f32[1,1]" if keepdims else "f32[?]")
    with Session(
        LoadableModel(parser.parse_model(text).SerializeToString()), SessionConfig(level="disabled")
    ) as session:
        assert session.run({"x": np.zeros((1, 3), np.float32)})[0].shape == ((1, 1) if keepdims else (1,))
