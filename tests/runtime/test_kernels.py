"""Which operators run is what the runtime itself says."""

from __future__ import annotations

import onnx
import pytest
from onnx import helper

from graphopt.errors import SessionError
from graphopt.ir.types import DTYPES
from graphopt.runtime import kernels
from graphopt.runtime.kernels import has_kernel
from graphopt.runtime.session import LoadableModel, Session

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
