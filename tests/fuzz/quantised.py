"""How to draw what is quantised: units of all types, per tensor, per axis and in blocks, and the forms that quantisers write."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import ml_dtypes
import numpy as np
from onnx import NodeProto, helper

from graphopt.ir.infer import make_node
from tests.fuzz.draft import Draft

Recipe = Callable[[Draft], Any]
Array = np.ndarray[Any, Any]
BYTES = (np.dtype("u1"), np.dtype("i1"))
_SINCE = {
    7: BYTES, 19: (np.dtype(ml_dtypes.float8_e4m3fn), np.dtype(ml_dtypes.float8_e5m2)),
    21: (np.dtype("u2"), np.dtype("i2"), np.dtype(ml_dtypes.int4), np.dtype(ml_dtypes.uint4)),
}  # fmt: skip
"""What is quantised to, by the operator set that brings it."""
_INSIDE = ("Add", "Mul", "MaxPool", "AveragePool", "GlobalAveragePool", "Softmax", "Transpose", "Reshape", "Concat", "Relu", "Sigmoid",
           "ReduceMean", "Gather", "Split", "Clip", "Slice", "Squeeze", "Unsqueeze", "Flatten", "MatMul", "Conv", "Resize", "Where",
           "LeakyRelu", "Max", "Pad", "Expand", "Tile")  # fmt: skip
"""Operators that quantisers put between units."""


def _types(d: Draft) -> list[Any]:
    return [
        t for since, types in _SINCE.items() if d.opset >= since for t in types for _ in range(4 if t in BYTES else 1)
    ]


def _ends(dtype: Any) -> tuple[int, int]:
    """The least and the largest number of a type; of floats those that are whole and close together."""
    if dtype.kind in "iu":
        return int(np.iinfo(dtype).min), int(np.iinfo(dtype).max)
    return (0, 15) if dtype.name == "uint4" else (-8, 7)


def numbers(d: Draft, dtype: Any, shape: tuple[int, ...]) -> Array:
    """Any numbers of a type."""
    low, high = _ends(dtype)
    return np.asarray(d.rng.integers(low, high + 1, shape)).astype(dtype)


def _scale(d: Draft, shape: tuple[int, ...], dtype: Any) -> str:
    """Scales: powers of two, most of the time, of which products are exact."""
    made = 2.0 ** d.rng.integers(-6, 1, shape) if d.chance(0.7) else d.rng.choice((0.1, 0.037, 0.9, 1.0), shape)
    return d.const(np.asarray(made).astype(dtype))


def _unit(d: Draft, shape: tuple[int, ...], quantised: Any, real: Any) -> tuple[list[str], dict[str, Any]]:
    """A scale, a zero point or none, and attributes of what quantises a value of some shape."""
    size: tuple[int, ...] = ()
    attributes: dict[str, Any] = {}
    if shape and d.opset >= 13 and d.chance(0.3):
        axis = d.number(0, len(shape) - 1)
        size, attributes = (shape[axis],), {"axis": axis if d.chance(0.6) else axis - len(shape)}
        if d.opset >= 21 and d.chance(0.3) and shape[axis] > 1:
            half = -(-shape[axis] // 2)
            size, attributes["block_size"] = (*shape[:axis], -(-shape[axis] // half), *shape[axis + 1 :]), half
    elif d.chance(0.05):
        size = (1,)
    zero = numbers(d, quantised, size) if d.chance(0.6) and quantised.kind in "iu" else np.zeros(size, quantised)
    return [_scale(d, size, real), d.const(zero)], attributes


def _node(d: Draft, op: str, inputs: list[str], attributes: Mapping[str, Any]) -> NodeProto:
    return make_node(op, "", d.opset, inputs, [d.name()], attributes)


def quantised(d: Draft, x: str) -> str:
    """A value quantised and dequantised; empty where that does not run."""
    a = d.arrays[x]
    if a.dtype.name not in ("float32", "float16"):
        return ""
    how, attributes = _unit(d, a.shape, d.choice(_types(d)), a.dtype)
    first = _node(d, "QuantizeLinear", [x, *how], attributes)
    last = _node(d, "DequantizeLinear", [first.output[0], *how], attributes)
    if a.dtype.name != "float16" and d.arrays[how[1]].dtype.kind in "iu":  # the quantised value may be read as well
        return last.output[0] if d.adopt([first, last], [first.output[0], last.output[0]]) else ""
    return last.output[0] if d.adopt([first, last], [last.output[0]]) else ""


def weight(d: Draft, shape: tuple[int, ...], real: Any) -> str:
    """A constant of few bits, dequantised; empty where that does not run."""
    dtype = d.choice((*_types(d), np.dtype("i4")))
    how, attributes = _unit(d, shape, dtype, real)
    if dtype == np.dtype("i4") or d.chance(0.2):
        how = how[:1]
    small = numbers(d, dtype, shape) if dtype != np.dtype("i4") else np.asarray(d.rng.integers(-99, 100, shape), "i4")
    node = _node(d, "DequantizeLinear", [d.const(small), *how], attributes)
    return node.output[0] if d.adopt([node], node.output) else ""


def given(d: Draft) -> Any:
    """Numbers of 8 or 16 bits, given or computed, dequantised."""
    wide = ("uint16", "int16") if d.opset >= 21 else ()
    kind = d.choice(("uint8", "int8", *wide))
    fits = [n for n, a in d.arrays.items() if a.dtype.name == kind and n not in d.constants]
    dims = [d.choice((1, 2, 3, "N")) for _ in range(d.number(0, 4))]
    x = d.choice(fits) if fits and d.chance(0.5) else d.input(dims, kind)
    how, attributes = _unit(d, d.arrays[x].shape, np.dtype(kind), d.choice((d.real(), d.real(), np.dtype("f2"))))
    node = _node(d, "DequantizeLinear", [x, *how[: d.number(1, 2)]], attributes)
    return d.adopt([node], node.output)


def product(d: Draft) -> Any:
    """A MatMul or Gemm by a weight of few bits."""
    gemm = d.chance(0.4)
    x = d.pick(2 if gemm else 1, 2 if gemm else 4, kinds="f")
    x = quantised(d, x) or x if d.chance(0.6) else x
    a, n, turned = d.arrays[x], d.number(1, 4), d.number(0, 1) if gemm else 0
    w = weight(d, (n, a.shape[-1]) if turned else (a.shape[-1], n), a.dtype)
    if not w:
        return None
    bias = weight(d, (n,), a.dtype) if d.chance(0.5) else ""
    made = d.add("Gemm", [x, w, bias], transB=turned) if gemm else d.add("MatMul", [x, w])
    return made and d.chance(0.5) and quantised(d, made[0])


def convolution(d: Draft) -> Any:
    """A Conv between units, with an activation perhaps."""
    x = d.pick(4, 4, kinds="f")
    x = quantised(d, x) or x
    a = d.arrays[x]
    group = d.choice([g for g in (1, 1, 2, 4) if a.shape[1] % g == 0]) if a.shape[1] else 1
    out = group * d.number(1, 2)
    w = weight(d, (out, a.shape[1] // group, *d.choice(((1, 1), (3, 3)))), a.dtype)
    if not w:
        return None
    bias = weight(d, (out,), a.dtype) if d.chance(0.5) else ""
    made = d.add("Conv", [x, w, bias], group=group, pads=(1, 1, 1, 1))
    made = made and (d.add("Relu", made) if d.chance(0.4) else made)
    return made and quantised(d, made[0])


def dynamic(d: Draft) -> Any:
    """Dynamic quantisation: whole numbers, a Cast, and the scales behind it."""
    conv = d.chance(0.4)
    x = d.pick(4 if conv else 1, 4, kinds="f")
    if d.arrays[x].dtype != np.float32:
        return None
    a, dtype = d.arrays[x], d.choice(BYTES)
    made = d.add("DynamicQuantizeLinear", [x], 3)
    if made is None:
        return None
    shape = (d.number(1, 4), a.shape[1], 1, 1) if conv else (a.shape[-1], d.number(1, 4))
    zero = d.const(numbers(d, dtype, ()) if d.chance(0.5) else np.zeros((), dtype))
    operands = [made[0], d.const(numbers(d, dtype, shape)), made[2], zero]
    whole = d.add("ConvInteger" if conv else "MatMulInteger", operands)
    cast = whole and d.add("Cast", whole, to=1)
    scale = cast and d.add("Mul", [made[1], _scale(d, (1,) if d.chance(0.5) else (), np.dtype("f4"))])
    return scale and d.add("Mul", [cast[0], scale[0]] if d.chance(0.5) else [scale[0], cast[0]])


def whole_numbers(d: Draft) -> Any:
    """The form QOperator: QLinearMatMul, QLinearConv, and the runtime's own QLinearAdd and its like."""
    dtype = d.choice(BYTES)
    op = d.choice(("QLinearMatMul", "QLinearConv", "QLinearAdd", "QLinearMul", "QLinearSigmoid", "QLinearLeakyRelu"))
    rank = 4 if op == "QLinearConv" else d.number(2, 3)
    fits = [n for n, a in d.arrays.items() if a.dtype == dtype and a.ndim == rank and n not in d.constants]
    x = (
        d.choice(fits)
        if fits and d.chance(0.7)
        else d.input([d.choice((1, 2, 3, "N")) for _ in range(rank)], dtype.name)
    )
    shape, scaled = d.arrays[x].shape, lambda: [_scale(d, (), np.dtype("f4")), d.const(numbers(d, dtype, ()))]
    if op == "QLinearConv":
        w = d.const(numbers(d, dtype, (d.number(1, 3), shape[1], 1, d.choice((1, 2)))))
        return d.add(op, [x, *scaled(), w, *scaled(), *scaled()])
    if op == "QLinearMatMul":
        return d.add(op, [x, *scaled(), d.const(numbers(d, dtype, (shape[-1], d.number(1, 4)))), *scaled(), *scaled()])
    if op in ("QLinearAdd", "QLinearMul"):
        y = d.choice((x, d.const(numbers(d, dtype, shape[-1:])), d.const(numbers(d, dtype, ()))))
        return d.add(op, [x, *scaled(), y, *scaled(), *scaled()], domain="com.microsoft")
    return d.add(op, [x, *scaled(), *scaled()], domain="com.microsoft")


def between(recipes: Mapping[str, Recipe]) -> Recipe:
    """An operator between units."""

    def recipe(d: Draft) -> Any:
        x = d.pick(1, 4, kinds="f")
        unit = quantised(d, x)
        if not unit:
            return None
        before, d.favoured = set(d.arrays), unit
        try:
            recipes[d.choice(_INSIDE)](d)
        finally:
            d.favoured = ""
        made = [n for n in d.arrays if n not in before and n not in d.constants]
        return made and quantised(d, made[-1])

    return recipe


def apart(d: Draft) -> Any:
    """Sequences, and values that are optional, between what makes them and what takes them apart."""
    x = d.pick(1, 4, kinds="fi")
    axis = d.number(0, d.arrays[x].ndim - 1)
    (s, y) = d.name(), d.name()
    zero = d.ints(0)
    first = d.choice((
        helper.make_node("SequenceConstruct", [x, x], [s]), helper.make_node("SplitToSequence", [x], [s], axis=axis),
        helper.make_node("Optional", [x], [s]),
    ))  # fmt: skip
    last = helper.make_node("OptionalGetElement", [s], [y])
    if first.op_type != "Optional":
        at = d.const(d.arrays[zero].reshape(()))
        last = d.choice((
            helper.make_node("SequenceAt", [s, at], [y]), helper.make_node("ConcatFromSequence", [s], [y], axis=axis),
        ))  # fmt: skip
    return d.adopt([first, last], [y])


def fused(d: Draft) -> Any:
    """Operators of the runtime's own domain."""
    x = d.pick(2, 4, kinds="f")
    a = d.arrays[x]
    op = d.choice(("Gelu", "FastGelu", "QuickGelu", "BiasGelu", "FusedMatMul", "SkipLayerNormalization", "FusedGemm"))
    vector = d.const(np.asarray(d.rng.integers(-8, 9, a.shape[-1:]) / 8).astype(a.dtype))
    square = d.const(np.asarray(d.rng.integers(-8, 9, (a.shape[-1],) * 2) / 8).astype(a.dtype))
    operands = {"BiasGelu": [x, vector], "FusedMatMul": [x, square], "FusedGemm": [x, square, vector],
                "SkipLayerNormalization": [x, x if d.chance(0.3) else d.partner(x), vector, vector]}  # fmt: skip
    attributes = {"FusedMatMul": {"alpha": 0.5, "transB": d.number(0, 1)}, "FusedGemm": {"activation": "Relu"}}
    return d.add(op, operands.get(op, [x]), domain="com.microsoft", **attributes.get(op, {}))


def cast_like(d: Draft) -> Any:
    """A Cast to the type of another value."""
    return d.add("CastLike", [d.pick(), d.pick()])


QUANTISED: dict[str, Recipe] = {
    "Quantised": lambda d: quantised(d, d.pick(0, 4, kinds="f")), "Dequantised": given, "Quantised product": product,
    "Quantised convolution": convolution, "Dynamic quantisation": dynamic, "QOperator": whole_numbers, "Apart": apart,
    "Fused": fused, "CastLike": cast_like,
}  # fmt: skip
"""Recipes by what they make."""
