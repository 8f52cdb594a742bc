"""Which operators run is what the runtime itself says."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import helper, parser

from graphopt.errors import SessionError
from graphopt.ir.delta import RefusedError
from graphopt.ir.simplify import simplify
from graphopt.ir.types import DTYPES
from graphopt.onnxio.load import load
from graphopt.rewrite.library import load_library
from graphopt.rewrite.sites import Sites
from graphopt.runtime import kernels
from graphopt.runtime.kernels import has_kernel
from graphopt.runtime.session import LoadableModel, Session, SessionConfig
from graphopt.search.cleaning import alone

FUNCTIONS = ["Relu", "LeakyRelu", "HardSwish", "Softplus", "Elu", "Mish", "Gelu", "ReduceSumSquare"]


@pytest.mark.parametrize("dtype", ["f64", "i64", "i32", "bf16"])
@pytest.mark.parametrize("op", FUNCTIONS)
def test_a_function_runs_where_its_operators_do(op: str, dtype: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of Relu's function for operator set 18 the runtime makes nothing from 19 on, and Erf, of which Gelu is made, is there for float32 alone.

    The answer is the same where the runtime lists no kernels.
    """
    for version in range(onnx.defs.get_schema(op).since_version, 25):
        x, y = (helper.make_tensor_value_info(name, DTYPES[dtype], [2, 3]) for name in "xy")
        graph = helper.make_graph([helper.make_node(op, ["x"], ["y"])], "g", [x], [y])
        proto = helper.make_model(graph, ir_version=8, opset_imports=[helper.make_opsetid("", version)])
        try:
            Session(LoadableModel(proto.SerializeToString())).close()
            runs = True
        except SessionError as error:
            if "Could not find an implementation" not in str(error):
                continue  # no such type
            runs = False
        assert has_kernel(op, "", version, (dtype,), (dtype,)) is runs, version
        with monkeypatch.context() as unlisted:
            unlisted.setattr(kernels, "_kernels", lambda: None)
            assert has_kernel.__wrapped__(op, "", version, (dtype,), (dtype,)) is runs, version


def test_a_gather_of_several_texts_is_never_made():
    """The runtime copies the first of them alone."""

    def model(axis: int):
        return parser.parse_model(f"""<ir_version: 8, opset_import: ["": 17]> g (string[2, 3] x) => (string[n, m] y)
        <int64[2] i = {{1, 0}}> {{ y = Gather<axis = {axis}>(x, i) }}""")

    texts = np.array([["a", "b", "c"], ["d", "e", "f"]], object)
    for axis in (0, 1):
        with Session(LoadableModel(model(axis).SerializeToString()), SessionConfig(level="disabled")) as session:
            (made,) = session.run({"x": texts})
        assert np.array_equal(made, np.take(texts, [1, 0], axis)) is bool(axis)
    (match,) = (
        m for m in Sites.of(simplify(load(model(1)).graph), load_library()) if m.rule.id == "gather-along-last-axis"
    )
    with pytest.raises(RefusedError, match="the first text"):
        alone(simplify(load(model(1)).graph), match)


def test_operands_of_a_contributed_operator_have_types_of_their_own():
    """The first operand of most is of type T; here it is the tokens, and T the embeddings."""
    ids, table = "i32", "f32"
    embedded = (ids, None, table, table, None, table, table)
    assert has_kernel("EmbedLayerNormalization", "com.microsoft", 1, embedded, (table, ids))
    assert not has_kernel(
        "EmbedLayerNormalization", "com.microsoft", 1, (ids, None, *["i64"] * 2, None, table, table), (table, ids)
    )
    assert has_kernel("SkipLayerNormalization", "com.microsoft", 1, (table,) * 3, (table,))
    assert not has_kernel("SkipLayerNormalization", "com.microsoft", 1, ("i64",) * 3, ("i64",))
    assert has_kernel("QGemm", "com.microsoft", 1, ("u8", table, "u8", "i8", table, "i8"), (table,))
    assert has_kernel("NoSuchThing", "com.example", 1, (table,), (table,))
