"""Attention as exporters spell it becomes the runtime's operator, and its Transposes go."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from onnx import ModelProto, helper, numpy_helper
from onnxruntime import InferenceSession

from graphopt import optimize

_TOKENS, _HEADS, _WIDTH = 256, 4, 16
_FEW, _MODEL = 16, _HEADS * _WIDTH


class _Draft:
    def __init__(self) -> None:
        self.nodes: list = []
        self.constants: list = []

    def __call__(self, op: str, *operands, **attributes) -> str:
        names = [x if isinstance(x, str) else self._constant(x) for x in operands]
        self.nodes.append(helper.make_node(op, names, [f"v{len(self.nodes)}"], **attributes))
        return f"v{len(self.nodes) - 1}"

    def _constant(self, x) -> str:
        array = np.array(x, np.float32 if isinstance(x, float) else None)
        self.constants.append(numpy_helper.from_array(array, f"c{len(self.constants)}"))
        return self.constants[-1].name

    def model(self, result: str, opset: int) -> ModelProto:
        full = [1, _TOKENS, _HEADS * _WIDTH]
        inputs = [helper.make_tensor_value_info(x, 1, full) for x in "qkv"]
        graph = helper.make_graph(
            self.nodes, "g", inputs, [helper.make_tensor_value_info(result, 1, full)], self.constants
        )
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10)


def _eager(d: _Draft) -> str:
    q, k, v = (d("Reshape", x, [1, _TOKENS, _HEADS, _WIDTH]) for x in "qkv")
    scores = d("MatMul", d("Transpose", q, perm=[0, 2, 1, 3]), d("Transpose", k, perm=[0, 2, 3, 1]))
    weights = d("Softmax", d("Mul", scores, 0.25), axis=-1)
    return d("MatMul", weights, d("Transpose", v, perm=[0, 2, 1, 3]))


def _scaled_on_both_sides(d: _Draft) -> str:
    q, k, v = (d("Transpose", d("Reshape", x, [1, _TOKENS, _HEADS, _WIDTH]), perm=[0, 2, 1, 3]) for x in "qkv")
    flat = d("Transpose", d("Reshape", k, [-1, _TOKENS, _WIDTH]), perm=[0, 2, 1])
    keys = d("Mul", d("Reshape", flat, [1, _HEADS, _WIDTH, _TOKENS]), 0.5)
    return d("MatMul", d("Softmax", d("MatMul", d("Mul", q, 0.5), keys), axis=-1), v)


def _guarded(d: _Draft) -> str:
    q, k, v = (d("Transpose", d("Reshape", x, [1, _TOKENS, _HEADS, _WIDTH]), perm=[0, 2, 1, 3]) for x in "qkv")
    scores = d("MatMul", q, d("Transpose", k, perm=[0, 1, 3, 2]))
    mask = np.zeros((_TOKENS, _TOKENS), np.float32)
    weights = d("Softmax", d("Add", scores, mask), axis=-1)
    return d("MatMul", d("Where", d("IsNaN", weights), 0.0, weights), v)


def _masked_out(d: _Draft) -> str:
    """As torch writes it where nothing is known of the mask: of a row that it leaves nothing of, the guard makes zeros."""
    q, k, v = (d("Transpose", d("Reshape", x, [1, _TOKENS, _HEADS, _WIDTH]), perm=[0, 2, 1, 3]) for x in "qkv")
    scores = d("MatMul", q, d("Transpose", k, perm=[0, 1, 3, 2]))
    mask = np.zeros((1, 1, _TOKENS, _TOKENS), np.float32)
    mask[..., 1:, :3] = -np.inf
    mask[..., 0, :] = -np.inf
    weights = d("Softmax", d("Add", scores, mask), axis=-1)
    return d("MatMul", d("Where", d("IsNaN", weights), 0.0, weights), v)


def _operators(spelling, opset: int, **options) -> list[str]:
    d = _Draft()
    made = d("Transpose", spelling(d), perm=[0, 2, 1, 3])
    model = d.model(d("Reshape", made, [1, _TOKENS, _HEADS * _WIDTH]), opset)
    families = ["attention", "layout", "identity"]
    found = optimize(model, rules=families, strategy="greedy", measure=False, **options)
    assert found.report["verified"] is None or found.report["verified"]["passed"]
    return [node.op_type for node in found.model.graph.node]


@pytest.mark.parametrize("spelling", [_eager, _scaled_on_both_sides, _guarded], ids=lambda f: f.__name__)
def test_it_is_one_operator(spelling):
    assert _operators(spelling, 17) == ["MultiHeadAttention"]


def _separate(d: _Draft) -> tuple[str, str, str]:
    q, k, v = (d("Add", d("MatMul", "x", _weights(_MODEL, i)), _weights(1, i)) for i in range(3))
    heads = [d("Reshape", x, [1, _FEW, _HEADS, _WIDTH]) for x in (q, k, v)]
    return tuple(d("Transpose", x, perm=[0, 2, 1, 3]) for x in heads)


def _turned_by_torch(d: _Draft) -> tuple[str, str, str]:
    """``torch.nn.MultiheadAttention``: tokens before examples, and an axis of three that is brought to the front."""
    rows = d("Reshape", "x", [_FEW, 1, _MODEL])
    made = d("Reshape", d("Add", d("MatMul", rows, _weights(3 * _MODEL)), _weights(3)), [1, _FEW, 1, 3, _MODEL])
    turned = d("Squeeze", d("Transpose", made, perm=[3, 1, 2, 0, 4]), [3])
    parts = [d("Reshape", d("Gather", turned, np.int64(i), axis=0), [1, _FEW, _HEADS, _WIDTH]) for i in range(3)]
    return tuple(d("Transpose", x, perm=[0, 2, 1, 3]) for x in parts)


def _turned_by_timm(d: _Draft) -> tuple[str, str, str]:
    made = d("Reshape", d("Add", d("MatMul", "x", _weights(3 * _MODEL)), _weights(3)), [1, _FEW, 3, _HEADS, _WIDTH])
    turned = d("Transpose", made, perm=[2, 0, 3, 1, 4])
    return tuple(d("Gather", turned, np.int64(i), axis=0) for i in range(3))


def _weights(n: int, seed: int = 0) -> np.ndarray:
    """A matrix from the model's width to ``n``; a bias for as many parts as ``n`` is, where that is small."""
    shape = (_MODEL, n) if n >= _MODEL else (n * _MODEL,)
    return np.random.default_rng(seed).normal(0, 0.1, shape).astype(np.float32)


@pytest.mark.parametrize("projections", [_separate, _turned_by_torch, _turned_by_timm], ids=lambda f: f.__name__)
def test_projections_go_with_it(projections):
    d = _Draft()
    q, k, v = projections(d)
    scores = d("Mul", d("MatMul", q, d("Transpose", k, perm=[0, 1, 3, 2])), 0.25)
    made = d("Transpose", d("MatMul", d("Softmax", scores, axis=-1), v), perm=[0, 2, 1, 3])
    full = [1, _FEW, _MODEL]
    graph = helper.make_graph(
        [*d.nodes, helper.make_node("Reshape", [made, d._constant(full)], ["y"])], "g",
        [helper.make_tensor_value_info("x", 1, full)], [helper.make_tensor_value_info("y", 1, full)], d.constants,
    )  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=10)
    families = ["attention", "packed-attention", "layout", "identity"]
    found = optimize(model, rules=families, strategy="backtracking", measure=False)
    assert found.report["verified"]["passed"]
    assert [n.op_type for n in found.model.graph.node if n.op_type != "Concat"] == ["Attention"]


def test_a_portable_model_gets_the_standard_operator():
    assert "Attention" in _operators(_eager, 23, portable=True)
    assert "Softmax" in _operators(_eager, 17, portable=True)


@pytest.mark.parametrize("opset", [17, 18])
def test_the_guard_of_masked_rows_hides_no_nan_of_the_values(opset):
    """It moves behind the product, where a NaN may be one of the values: that reached the outputs, and has to."""
    d = _Draft()
    made = d("Transpose", _masked_out(d), perm=[0, 2, 1, 3])
    model = d.model(d("Reshape", made, [1, _TOKENS, _HEADS * _WIDTH]), opset)
    found = optimize(model, rules=["attention"], strategy="greedy", measure=False)
    operators = [node.op_type for node in found.model.graph.node]
    assert operators.count("Where") == 1 and "IsNaN" not in operators
    feeds = {
        x: np.random.default_rng(i).standard_normal((1, _TOKENS, 64)).astype(np.float32) for i, x in enumerate("qkv")
    }
    feeds["v"][0, 5, 0] = np.nan
    sessions = (
        InferenceSession(m.SerializeToString(), providers=["CPUExecutionProvider"]) for m in (model, found.model)
    )
    before, after = (session.run(None, feeds)[0] for session in sessions)
    assert np.isnan(before[0, 1:, 0]).all() and np.isnan(after[0, 1:, 0]).all()
    np.testing.assert_allclose(after[..., 1:], before[..., 1:], rtol=0, atol=1e-5)
    assert not after[0, 0, 1:].any()


def _filled(d: _Draft) -> str:
    """nanoGPT: scores of later tokens are filled with minus infinity."""
    q, k, v = (d("Transpose", d("Reshape", x, [1, _TOKENS, _HEADS, _WIDTH]), perm=[0, 2, 1, 3]) for x in "qkv")
    scores = d("Mul", d("MatMul", q, d("Transpose", k, perm=[0, 1, 3, 2])), 0.25)
    later = ~np.tri(_TOKENS, dtype=bool)[None, None]
    return d("MatMul", d("Softmax", d("Where", later, -np.inf, scores), axis=-1), v)


def _causal(d: _Draft) -> str:
    """torch from operator set 23 on, which leaves the scale out."""
    q, k, v = (d("Transpose", d("Reshape", x, [1, _TOKENS, _HEADS, _WIDTH]), perm=[0, 2, 1, 3]) for x in "qkv")
    return d("Attention", q, k, v, is_causal=1, softcap=0.0, qk_matmul_output_mode=0)


@pytest.mark.parametrize(("spelling", "opset"), [(_filled, 17), (_causal, 23)])
def test_what_looks_back_is_computed_in_halves(spelling, opset):
    d = _Draft()
    made = d("Reshape", d("Transpose", spelling(d), perm=[0, 2, 1, 3]), [1, _TOKENS, _HEADS * _WIDTH])
    model = d.model(made, opset)
    found = optimize(model, rules=["attention", "causal", "layout", "identity"], strategy="backtracking", measure=False)
    assert found.report["verified"]["passed"]
    left = Counter(node.op_type for node in found.model.graph.node)
    assert left["Softmax"] + left["MultiHeadAttention"] > 1 and left["Where"] + left["Attention"] == 0, left
