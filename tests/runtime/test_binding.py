"""Runs on bound values: the path that a GPU takes, on the CPU."""

from __future__ import annotations

import gc

import ml_dtypes
import numpy as np
import onnxruntime
import pytest
from onnx import helper

from graphopt.runtime.binding import HOST, Memory, Places, TensorSpec, bound_run, places, to_runtime
from graphopt.runtime.session import Session
from tests.runtime.models import F, chain, model


def test_the_name_of_a_place():
    assert str(HOST) == "cpu" and str(Memory("cuda")) == "cuda:0" and str(Memory("cuda", 1)) == "cuda:1"


def test_a_bound_run_computes_on_the_values_it_was_bound_to():
    # y = x + 1 into an output that is bound beforehand: what the run leaves there can be looked at.
    graph = model(
        [helper.make_node("Add", ["x", "one"], ["y"])],
        [("x", F, [3])],
        [("y", F, [3])],
        {"one": np.ones(1, np.float32)},
    )
    with Session(graph) as session:
        bindings = []

        class Watched:
            """The runtime's session, but for the binding it hands out, which is kept to be looked at."""

            def __getattr__(self, name):
                return getattr(session._session, name)

            def io_binding(self):
                bindings.append(session._session.io_binding())
                return bindings[-1]

        feeds = {"x": np.arange(3, dtype=np.float32)}
        where = Places((Memory("cpu", 0),), (Memory("cpu", 0),))
        run = bound_run(Watched(), feeds, session.input_specs, session.output_specs, where)
        gc.collect()
        for _ in range(3):
            run()
        (output,) = bindings[0].get_outputs()
    assert output.device_name() == "cpu" and output.numpy().tolist() == [1, 2, 3]


def test_values_that_live_on_the_host_stay_there():
    """A session says where it wants each input: shapes for a GPU's kernels, and here everything, are the host's."""
    with Session(chain(2)) as session:
        found = places(session._session, session.input_specs, session.output_specs, Memory("cuda"))
        assert found == Places((HOST,), (HOST,))
        assert places(session._session, session.input_specs, session.output_specs, HOST) == found


@pytest.mark.parametrize("dtype", [np.float32, np.float16, np.float64, np.int64, np.uint8, np.bool_])
def test_arrays_become_tensors_on_the_device(dtype):
    array = np.arange(6).reshape(2, 3).astype(dtype)
    spec = TensorSpec("x", array.dtype.name, (2, 3))
    for view in (array, array.T.copy().T, np.asfortranarray(array)):
        value = to_runtime(view, spec, Memory("cpu", 0))
        assert isinstance(value, onnxruntime.OrtValue) and value.device_name() == "cpu"
        assert (value.numpy() == array).all() and value.numpy().dtype == array.dtype
    scalar = to_runtime(array[0, 0], TensorSpec("x", array.dtype.name, ()), Memory("cpu", 0))
    assert scalar.shape() == []


def test_types_that_numpy_lacks_stay_on_the_host():
    value = to_runtime(np.ones(3, ml_dtypes.bfloat16), TensorSpec("x", "bfloat16", (3,)), Memory("cuda"))
    assert value.device_name() == "cpu"


def test_a_wrong_type_is_refused():
    with pytest.raises(ValueError, match="input x is float64, the model wants float32"):
        to_runtime(np.ones(3), TensorSpec("x", "float32", (3,)))
