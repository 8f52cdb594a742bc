"""Scaled dot-product attention over any domain of elements: ONNX's operator and ONNX Runtime's own."""

from __future__ import annotations

import numpy as np

from graphopt.ir.types import Array
from graphopt.prover.linear import lowered, matmul, total
from graphopt.prover.semantics import Call, ContradictionError, Result, UnsupportedError, operator

_FLOATS = ("f32", "f16")
"""What the runtime's own operators take: those of float16 are computed in float32 where a provider has no kernel for it."""


def attention(c: Call, q: Array, k: Array, v: Array, scale: float, bias: Array | None) -> Array:
    """Softmax of the scaled products of queries and keys, plus a bias, times the values.

    Args:
        c: The call, for its domain.
        q: [batch, heads, queries, width].
        k: [batch, heads, keys, width].
        v: [batch, heads, keys, width of values].
        scale: Factor of the products.
        bias: Added to the scaled products, of a shape that broadcasts to theirs.
    """
    d = c.d
    scores = matmul(c, q, np.swapaxes(k, -1, -2))
    scores = scores if scale == 1 else d.mul(scores, c.number(scale))
    if bias is not None:
        if np.broadcast_shapes(scores.shape, bias.shape) != scores.shape:
            raise ContradictionError("a bias larger than the scores")
        scores = d.add(scores, bias)
    # As Softmax does it: the exponential of a large score is no number.
    scores, _ = lowered(c, scores, (scores.ndim - 1,))
    e = d.func("exp", scores)
    return matmul(c, d.div(e, np.expand_dims(total(c, e, e.ndim - 1), -1)), v)


def _heads(x: Array, n: int) -> Array:
    """[batch, tokens, heads * width] as [batch, heads, tokens, width]."""
    if x.ndim != 3 or n <= 0 or x.shape[2] % n:
        raise ContradictionError(f"{n} heads of {x.shape}")
    return x.reshape(*x.shape[:2], n, x.shape[2] // n).transpose(0, 2, 1, 3)


def _joined(x: Array) -> Array:
    """[batch, heads, tokens, width] as [batch, tokens, heads * width]."""
    x = x.transpose(0, 2, 1, 3)
    return x.reshape(*x.shape[:2], x.shape[2] * x.shape[3])


@operator("MultiHeadAttention", domain="com.microsoft")
def _multi_head(c: Call) -> Result:
    if c.attributes.get("unidirectional", 0) or any(c.opt(i) is not None for i in (3, 4, 8, 9)) or len(c.to) > 3:
        raise UnsupportedError("this form of MultiHeadAttention")
    if c.of[0] not in _FLOATS:
        raise UnsupportedError(f"MultiHeadAttention of {c.of[0]}")
    n = int(c.attributes["num_heads"])
    q, past, present = _heads(c.arg(0), n), c.opt(6), len(c.to) > 1
    if c.arg(1).ndim == 4 and (past is not None or present):
        raise UnsupportedError("keys that lie head by head, and a cache")
    k, v = (x if x.ndim == 4 else _heads(x, n) for x in (c.arg(1), c.arg(2)))
    if (past is None) != (c.opt(7) is None):
        raise ContradictionError("half a cache")
    if past is not None:
        k, v = _after(past, k), _after(c.arg(7), v)
    if q.shape[0] != k.shape[0] or k.shape[:3] != v.shape[:3] or (c.arg(1).ndim == 4 and k.shape != v.shape):
        raise ContradictionError("queries, keys and values that do not fit")
    made = _contributed(c, q, k, v)
    return [made, k, v][: len(c.to)] if present else made


@operator("Attention", domain="com.microsoft")
def _packed(c: Call) -> Result:
    others = any(value for name, value in c.attributes.items() if name not in ("scale", "num_heads"))
    if others or len(c.to) > 1 or any(c.opt(i) is not None for i in (3, 4, 6)):
        raise UnsupportedError("this form of com.microsoft.Attention")
    if c.of[0] not in _FLOATS:
        raise UnsupportedError(f"com.microsoft.Attention of {c.of[0]}")
    x, w, shift, n = c.arg(0), c.arg(1), c.opt(2), int(c.attributes["num_heads"])
    if x.ndim != 3 or w.ndim != 2 or w.shape[0] != x.shape[2] or w.shape[1] % 3:
        raise ContradictionError("weights that do not fit")
    if shift is not None and shift.shape != w.shape[1:]:
        raise ContradictionError("a bias that does not fit")
    made = matmul(c, x, w)
    made = made if shift is None else c.d.add(made, shift)
    q, k, v = (_heads(part, n) for part in np.split(made, 3, 2))
    return _contributed(c, q, k, v)


def _contributed(c: Call, q: Array, k: Array, v: Array) -> Array:
    """What the runtime's own operators make of heads: the bias of the scores is their sixth operand, and a scale of 0 is one that is left out."""
    bias = c.opt(5)
    if bias is not None and not (
        bias.ndim == 4
        and bias.shape[2:] == (q.shape[2], k.shape[2])
        and bias.shape[0] in (1, q.shape[0])
        and bias.shape[1] in (1, q.shape[1])
    ):
        raise ContradictionError("a bias whose shape the operator does not take")
    scale = float(c.attributes.get("scale") or 0.0) or float(q.shape[3]) ** -0.5
    return _joined(attention(c, q, k, v, scale, bias))


def _after(past: Array, new: Array) -> Array:
    """Keys or values, [batch, heads, tokens, width] each, behind those of the cache."""
    if past.ndim != 4 or past.shape[:2] + past.shape[3:] != new.shape[:2] + new.shape[3:]:
        raise ContradictionError("a cache that does not fit")
    return np.concatenate([past, new], 2)


@operator("Attention")
def _attention(c: Call) -> Result:
    others = any(value for name, value in c.attributes.items() if name not in ("scale", "q_num_heads", "kv_num_heads"))
    if len(c.to) > 1 or others or any(x is not None for x in c.x[4:]):
        raise UnsupportedError("this form of Attention")
    q, k, v, joined = c.arg(0), c.arg(1), c.arg(2), c.arg(0).ndim == 3
    if joined:
        n, m = int(c.attributes["q_num_heads"]), int(c.attributes["kv_num_heads"])
        q, k, v = _heads(q, n), _heads(k, m), _heads(v, m)
    if q.ndim != 4 or k.ndim != 4 or v.ndim != 4 or q.shape[1] % max(k.shape[1], 1) or k.shape[:3] != v.shape[:3]:
        raise ContradictionError("queries, keys and values that do not fit")
    times = q.shape[1] // max(k.shape[1], 1)
    k, v = np.repeat(k, times, 1), np.repeat(v, times, 1)
    bias = c.opt(3)
    if bias is not None and not c.d.holds(bias):
        raise UnsupportedError("Attention with a mask of truth values")
    scale = c.attributes.get("scale")
    made = attention(c, q, k, v, float(q.shape[3]) ** -0.5 if scale is None else float(scale), bias)
    return _joined(made) if joined else made
