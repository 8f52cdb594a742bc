"""Decoders' attention: a cache goes into the runtime's operator, shared keys are not copied, biases are added up once."""

from __future__ import annotations

import numpy as np
import onnxruntime as ort
import pytest
from onnx import ModelProto, helper, numpy_helper

from graphopt import optimize

_BATCH, _HEADS, _SHARED, _WIDTH, _PAST = 2, 8, 2, 16, 255
_FAMILIES = ["attention", "attention-cache", "grouped-queries", "layout", "identity", "shape"]


class _Draft:
    def __init__(self, **inputs: list) -> None:
        self.inputs, self.nodes, self.constants = inputs, [], []

    def __call__(self, op: str, *operands, **attributes) -> str:
        names = [x if isinstance(x, str) else self._constant(x) for x in operands]
        self.nodes.append(helper.make_node(op, names, [f"v{len(self.nodes)}"], **attributes))
        return f"v{len(self.nodes) - 1}"

    def _constant(self, x) -> str:
        array = x if isinstance(x, np.ndarray) else np.array(x, np.float32 if isinstance(x, float) else None)
        self.constants.append(numpy_helper.from_array(array, f"c{len(self.constants)}"))
        return self.constants[-1].name

    def model(self, *results: str) -> ModelProto:
        inputs = [helper.make_tensor_value_info(x, 1, dims) for x, dims in self.inputs.items()]
        outputs = [helper.make_tensor_value_info(x, 1, None) for x in results]
        graph = helper.make_graph(self.nodes, "g", inputs, outputs, self.constants)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=10)


def _optimized(model: ModelProto, batch: int = _BATCH, rows: int = 1, **options) -> list[str]:
    """Operators of what is left, which computes the same."""
    found = optimize(model, rules=_FAMILIES, strategy="greedy", measure=False, **options)
    rng = np.random.default_rng(0)
    sizes = {"B": batch, "S": rows, "P": _PAST, "T": _PAST + rows}
    feeds = {
        i.name: rng.standard_normal([sizes.get(d.dim_param, d.dim_value) for d in i.type.tensor_type.shape.dim])
        for i in model.graph.input
    }
    feeds = {name: array.astype(np.float32) for name, array in feeds.items()}
    before, after = (
        ort.InferenceSession(m.SerializeToString(), providers=["CPUExecutionProvider"]).run(None, feeds)
        for m in (model, found.model)
    )
    for a, b in zip(before, after, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)
    return [node.op_type for node in found.model.graph.node]


def _cached(batch, past, axis: int = 2, order: tuple[int, int] = (0, 1)) -> ModelProto:
    """One step of a decoder with a cache, its mask and its scale."""
    state, cache = [batch, 1, _HEADS * _WIDTH], [batch, _HEADS, past, _WIDTH]
    total = "T" if isinstance(past, str) else past + 1
    d = _Draft(q=state, k=state, v=state, pk=cache, pv=cache, mask=[batch, 1, 1, total])
    q, k, v = (d("Transpose", d("Reshape", x, [0, 0, _HEADS, _WIDTH]), perm=[0, 2, 1, 3]) for x in "qkv")
    keys, values = (d("Concat", *[(p, x)[i] for i in order], axis=axis) for p, x in (("pk", k), ("pv", v)))
    scores = d("Mul", d("MatMul", q, d("Transpose", keys, perm=[0, 1, 3, 2])), 0.25)
    weights = d("Softmax", d("Add", scores, "mask"), axis=-1)
    made = d("Transpose", d("MatMul", weights, values), perm=[0, 2, 1, 3])
    return d.model(d("Reshape", made, [0, 0, _HEADS * _WIDTH]), keys, values)


def _grouped(batch, rows, merged: bool = False, tiled: bool = False) -> ModelProto:
    """Queries of which some share keys and values, which are written out for each."""
    total = "T" if isinstance(rows, str) else _PAST + rows
    cache = [batch, _SHARED, total, _WIDTH]
    d = _Draft(q=[batch, _HEADS, rows, _WIDTH], k=cache, v=cache)
    times = _HEADS // _SHARED

    def repeated(x: str, shape: list) -> str:
        one = [1, times, 1, 1, 1] if tiled else [1, 1, times, 1, 1]
        return d("Reshape", d("Expand", d("Unsqueeze", x, [1 if tiled else 2]), one), shape)

    if merged:
        flat = d("Transpose", repeated("k", [-1, total, _WIDTH]), perm=[0, 2, 1])
        keys = d("Reshape", flat, [batch, _HEADS, _WIDTH, total])
    else:
        keys = d("Transpose", repeated("k", [0, _HEADS, -1, _WIDTH]), perm=[0, 1, 3, 2])
    weights = d("Softmax", d("MatMul", "q", keys), axis=-1)
    return d.model(d("MatMul", weights, repeated("v", [0, _HEADS, -1, _WIDTH])))


@pytest.mark.parametrize("model", [_cached(_BATCH, _PAST), _cached("B", _PAST)], ids=["fixed", "batch"])
def test_a_cache_goes_into_the_operator(model):
    left = _optimized(model)
    assert left.count("MultiHeadAttention") == 1
    assert not {"Concat", "Softmax", "MatMul", "Transpose"} & set(left)


def test_new_keys_before_the_old_are_no_cache():
    assert "Concat" in _optimized(_cached(_BATCH, _PAST, order=(1, 0)))


@pytest.mark.parametrize(
    "model", [_grouped(_BATCH, 1), _grouped("B", 1), _grouped(_BATCH, 16), _grouped(_BATCH, 1, merged=True)]
)
def test_shared_keys_are_not_copied(model):
    rows = model.graph.input[0].type.tensor_type.shape.dim[2].dim_value
    assert not {"Expand", "Unsqueeze"} & set(_optimized(model, rows=rows))


@pytest.mark.parametrize("rows", [1, 5])
def test_shared_keys_are_not_copied_for_any_number_of_queries(rows):
    left = _optimized(_grouped("B", "S"), rows=rows, at=({"B": 1, "S": rows, "T": 2048},))
    assert "Expand" not in left
    assert "Shape" in left


def test_keys_that_take_turns_stay():
    # Heads 0, 2, 4 ... share the first keys: what lies beneath each other would not be a group.
    assert _optimized(_grouped(_BATCH, 1, tiled=True)).count("Expand") == 2


def test_biases_are_added_up_once():
    heads, tokens = [_BATCH, _HEADS, 64, _WIDTH], 64
    d = _Draft(q=heads, k=heads, v=heads, mask=[_BATCH, 1, 1, tokens], position=[1, _HEADS, tokens, tokens])
    last = "q"
    for _ in range(3):
        scores = d("Add", d("MatMul", last, d("Transpose", "k", perm=[0, 1, 3, 2])), "position")
        last = d("MatMul", d("Softmax", d("Add", scores, "mask"), axis=-1), "v")
    assert _optimized(d.model(last)).count("Add") == 1 + 3
