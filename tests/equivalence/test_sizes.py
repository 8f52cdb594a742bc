"""What a graph says of the sizes of its symbols."""

from __future__ import annotations

import pytest
from onnx import parser

from graphopt.api import first_run, session_config
from graphopt.equivalence.sizes import size_hints
from graphopt.errors import InputsNeededError
from graphopt.ir.simplify import simplify
from graphopt.onnxio.load import load

CASES = [
    ("Add", "float[n] x", "float[12] c", "y = Add(x, c)", {"n": 12}),
    ("MatMul", "float[b, n] x", "float[300, 2] c", "y = MatMul(x, c)", {"n": 300}),
    ("Gemm", "float[n, b] x", "float[300, 2] c", "y = Gemm<transA = 1>(x, c)", {"n": 300}),
    ("Concat", "float[b, n] x", "float[2, 77] c", "y = Concat<axis = 0>(x, c)", {"n": 77}),
    ("Split", "float[n] x", "float[1] c", "s = Constant<value_ints = [30, 47]>() y, z = Split<axis = 0>(x, s)", {"n": 77}),
    ("Reshape", "float[n, 3] x", "float[1] c", "s = Constant<value_ints = [11, 15]>() y = Reshape(x, s)", {"n": 55}),
    ("Reshape", "float[n] x", "float[1] c", "s = Constant<value_ints = [-1, 51]>() y = Reshape(x, s)", {"n": 51}),
    ("Gather", "float[n] x", "float[1] c", "s = Constant<value_ints = [99]>() y = Gather(x, s)", {"n": 100}),
    ("Conv", "float[1, n, h, h] x", "float[2, 5, 3, 3] c", "y = Conv<kernel_shape = [3, 3]>(x, c)", {"n": 5}),
]  # fmt: skip


def proto(x, c, body):
    return parser.parse_model(
        f'<ir_version: 8, opset_import: ["": 17]> g ({x}, {c}) => (float[?] y) {{ {body} }}'.replace(
            "float[?] y", "float y"
        )
    )


@pytest.mark.parametrize(("op", "x", "c", "body", "hints"), CASES)
def test_hints(op, x, c, body, hints):
    found = size_hints(simplify(load(proto(x, c, body)).graph))
    assert {name: found[name][0] for name in hints} == hints


@pytest.mark.parametrize(("op", "x", "c", "body", "hints"), CASES)
def test_a_model_runs_at_what_its_graph_speaks_of(op, x, c, body, hints):
    _, feeds = first_run(load(proto(x, c, body)), session_config(), {}, {}, {}, 0)
    assert feeds["x"].size > 0


def test_the_option_is_named_where_nothing_runs():
    body = "s = Shape(x) t = Constant<value_ints = [1009]>() e = Equal(s, t) f = Cast<to = 7>(e) z = Sub(f, t) y = Expand(x, z)"
    with pytest.raises(InputsNeededError, match="other choices of sizes") as error:
        first_run(load(proto("float[n] x", "float[1] c", body)), session_config(), {}, {}, {}, 0)
    assert "--dim n=N" in str(error.value.hint)
