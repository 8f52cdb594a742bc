"""How to draw a node of each operator: operands and attributes that are legal, mostly."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from graphopt.ir.ops import UNARY
from tests.fuzz.draft import DTYPES, FLOATS, Draft, code, content, numpy_type, schema
from tests.fuzz.quantised import QUANTISED, between

Recipe = Callable[[Draft], Any]
_LOGIC = ("And", "Or", "Xor")
_BINARY = ("Add", "Sub", "Mul", "Div", "Pow", "Max", "Min", "Mod", "PRelu", "Equal", "Less", "Greater", "LessOrEqual",
           "GreaterOrEqual", "BitwiseAnd", "BitwiseOr", "BitwiseXor")  # fmt: skip
_REDUCE = ("ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceProd", "ReduceL1", "ReduceL2", "ReduceLogSumExp",
           "ReduceSumSquare", "ReduceLogSum")  # fmt: skip
_MORE_UNARY = ("Not", "IsNaN", "IsInf", "Atan", "Asinh", "Sinh", "Cosh", "BitwiseNot", "Tan", "Hardmax")
_ALPHA = ("LeakyRelu", "Elu", "Celu", "ThresholdedRelu", "HardSigmoid", "Selu", "Swish")


def _unary(op: str) -> Recipe:
    def recipe(d: Draft) -> Any:
        x = d.pick(kinds="b" if op == "Not" else "fiub" if op == "Identity" else "fi", constant=d.chance(0.05))
        attributes = {"alpha": d.choice((0.5, 2.0, 0.0, 1.0))} if op in _ALPHA and d.chance(0.5) else {}
        return d.add(op, [x], **attributes)

    return recipe


def _binary(op: str) -> Recipe:
    def recipe(d: Draft) -> Any:
        x = d.pick(kinds="b" if op in _LOGIC else "iu" if op.startswith("Bitwise") else "fiu", constant=d.chance(0.1))
        pair = [x, d.partner(x)]
        fmod = {"fmod": 1} if op == "Mod" and d.arrays[x].dtype.kind == "f" else {}
        return d.add(op, pair[::-1] if d.chance(0.4) else pair, **fmod)

    return recipe


def _variadic(op: str) -> Recipe:
    def recipe(d: Draft) -> Any:
        x = d.pick(kinds="f")
        return d.add(op, [x, *(d.partner(x) for _ in range(d.number(0, 2)))])

    return recipe


def _axis(d: Draft, x: str) -> int:
    rank = d.arrays[x].ndim
    axis = d.number(0, max(rank - 1, 0))
    return axis - rank if d.chance(0.4) else axis


def _some_axes(d: Draft, x: str) -> list[int]:
    rank = d.arrays[x].ndim
    axes = [a for a in range(rank) if d.chance(0.5)] or ([_axis(d, x)] if rank else [])
    return [a - rank if a >= 0 and d.chance(0.3) else a for a in axes]


def _with_axes(d: Draft, op: str, x: str, axes: list[int] | None, **attributes: Any) -> Any:
    """A node whose axes are an attribute or an operand, as its operator set says."""
    found = schema(op, d.opset)
    if found is None:
        return None
    if axes is None:
        return d.add(op, [x], **attributes)
    if "axes" in found.attributes:
        return d.add(op, [x], axes=tuple(axes), **attributes)
    return d.add(op, [x, d.ints(*axes)], **attributes)


def _reduce(op: str) -> Recipe:
    def recipe(d: Draft) -> Any:
        x = d.pick(1, kinds="fi")
        keep = {"keepdims": d.number(0, 1)} if d.chance(0.7) else {}
        return _with_axes(d, op, x, _some_axes(d, x) if d.chance(0.85) else None, **keep)

    return recipe


def _arg(op: str) -> Recipe:
    return lambda d: (lambda x: d.add(op, [x], axis=_axis(d, x), keepdims=d.number(0, 1)))(d.pick(1, kinds="fi"))


def _soft(op: str) -> Recipe:
    def recipe(d: Draft) -> Any:
        x = d.pick(1, kinds="f")
        return d.add(op, [x], **({"axis": _axis(d, x)} if d.chance(0.7) else {}))

    return recipe


def _reshape(d: Draft) -> Any:
    x = d.pick(1)
    shape, n = list(d.arrays[x].shape), d.arrays[x].size
    kind = d.number(0, 4)
    if kind == 0:
        target = [-1]
    elif kind == 1:
        target = [0] * (len(shape) - 1) + [-1]
    elif kind == 2 and len(shape) > 1:
        target = [*([0] * (len(shape) - 2)), -1]
    elif kind == 3:
        target = [0, *shape[1:-1], *([1, shape[-1]] if len(shape) > 1 else [])]
    else:
        target = [*shape[:-1], -1, 1] if n else [-1]
    return d.add("Reshape", [x, d.ints(*target)])


def _reshape_to_shape(d: Draft) -> Any:
    x, y = d.pick(1), d.pick(1)
    if d.arrays[x].size != d.arrays[y].size:
        y = x
    made = d.add("Shape", [y])
    return made and d.add("Reshape", [x, made[0]])


def _transpose(d: Draft) -> Any:
    x = d.pick(1)
    perm = tuple(int(i) for i in d.rng.permutation(d.arrays[x].ndim))
    return d.add("Transpose", [x], **({"perm": perm} if d.chance(0.9) else {}))


def _squeeze(d: Draft) -> Any:
    x = d.pick(1)
    ones = [i for i, n in enumerate(d.arrays[x].shape) if n == 1]
    return _with_axes(d, "Squeeze", x, ones[: d.number(1, len(ones))]) if ones else None


def _unsqueeze(d: Draft) -> Any:
    x = d.pick(0, 4)
    return _with_axes(d, "Unsqueeze", x, [d.number(0, d.arrays[x].ndim)])


def _flatten(d: Draft) -> Any:
    x = d.pick(1)
    return d.add("Flatten", [x], axis=d.number(0, d.arrays[x].ndim))


def _expand(d: Draft) -> Any:
    x = d.pick(0, 4)
    shape = [d.number(1, 3) if n == 1 and d.chance(0.6) else 1 if d.chance(0.6) else n for n in d.arrays[x].shape]
    return d.add("Expand", [x, d.ints(*([d.number(1, 2)] if d.chance(0.2) else []), *shape)])


def _tile(d: Draft) -> Any:
    x = d.pick(1, 4)
    return d.add("Tile", [x, d.ints(*(d.choice((1, 1, 2)) for _ in d.arrays[x].shape))])


def _slice(d: Draft) -> Any:
    x = d.pick(1)
    axis = _axis(d, x)
    size = d.arrays[x].shape[axis]
    start, end, step = (
        d.choice((0, 0, 1, -1, -size)),
        d.choice((size, 2**63 - 1, -1, 10, 1, size - 1)),
        d.choice((1, 1, 1, 2, -1)),
    )
    if d.opset < 10:
        return d.add("Slice", [x], axes=(axis,), starts=(start,), ends=(end,))
    more = [d.ints(step)] if step != 1 or d.chance(0.3) else []
    return d.add("Slice", [x, d.ints(start), d.ints(end), d.ints(axis), *more])


def _concat(d: Draft) -> Any:
    x = d.pick(1, constant=d.chance(0.1))
    a, axis = d.arrays[x], _axis(d, x)
    alike = [n for n, b in d.arrays.items() if b.dtype == a.dtype and b.shape == a.shape]
    parts = [x, *(d.choice(alike) for _ in range(d.number(0, 2)))]
    if d.chance(0.3) and not d.sizes:
        parts.insert(d.number(0, len(parts)), d.const(content(d.rng, a.dtype, a.shape)))
    return d.add("Concat", parts, axis=axis)


def _split(d: Draft) -> Any:
    x = d.pick(1)
    axis = _axis(d, x)
    size = d.arrays[x].shape[axis]
    if size < 2:
        return None
    first = d.number(1, size - 1)
    sizes = (first, size - first)
    if d.opset < 13:
        return d.add("Split", [x], 2, axis=axis, split=sizes)
    return d.add("Split", [x, d.ints(*sizes)], 2, axis=axis)


def _gather(d: Draft) -> Any:
    x = d.pick(1, constant=d.chance(0.1))
    axis = _axis(d, x)
    size = max(d.arrays[x].shape[axis], 1)
    shape = d.choice(((), (1,), (2,), (3,), (2, 2)))
    return d.add("Gather", [x, d.const(np.asarray(d.rng.integers(0, size, shape), np.int64))], axis=axis)


def _gather_elements(d: Draft) -> Any:
    x = d.pick(1)
    a, axis = d.arrays[x], _axis(d, x)
    return d.add(
        "GatherElements",
        [x, d.const(np.asarray(d.rng.integers(0, max(a.shape[axis], 1), a.shape), np.int64))],
        axis=axis,
    )


def _pad(d: Draft) -> Any:
    x = d.pick(1, 4, kinds="f")
    n = d.arrays[x].ndim
    pads = [d.choice((0, 0, 1)) for _ in range(2 * n)]
    mode = d.choice(("constant", "constant", "edge", "reflect"))
    if d.opset < 11:
        return d.add("Pad", [x], pads=tuple(pads), mode=mode)
    fill = [d.const(np.array(d.choice((0, 1)), d.arrays[x].dtype))] if mode == "constant" and d.chance(0.4) else []
    return d.add("Pad", [x, d.ints(*pads), *fill], mode=mode)


def _cast(d: Draft) -> Any:
    return d.add("Cast", [d.pick()], to=code(numpy_type(d.choice(DTYPES) if d.chance(0.4) else d.choice(FLOATS[:3]))))


def _clip(d: Draft) -> Any:
    x = d.pick(kinds="fi")
    low, high = sorted((d.choice((-1, 0, 0, 0.5)), d.choice((1, 6, 0.5, 2))))
    if d.opset < 11:
        return d.add("Clip", [x], min=float(low), max=float(high))
    bound = [d.const(np.array(v).astype(d.arrays[x].dtype)) for v in (low, high)]
    return d.add("Clip", [x, bound[0] if d.chance(0.8) else "", bound[1] if d.chance(0.7) else ""])


def _where(d: Draft) -> Any:
    x = d.pick(kinds="fiu")
    a = d.arrays[x]
    masks = [n for n, b in d.arrays.items() if b.dtype == bool and b.shape == a.shape]
    mask = d.choice(masks) if masks else d.const(content(d.rng, np.dtype(bool), a.shape[-1:]))
    return d.add("Where", [mask, x, d.partner(x)])


def _matmul(d: Draft) -> Any:
    x = d.pick(1, 4, kinds="f")
    a = d.arrays[x]
    fits = [n for n, b in d.arrays.items() if b.dtype == a.dtype and b.ndim >= 2 and b.shape[-2] == a.shape[-1]]
    y = d.choice(fits) if fits and d.chance(0.5) else d.const(content(d.rng, a.dtype, (a.shape[-1], d.number(1, 4))))
    return d.add("MatMul", [x, y])


def _gemm(d: Draft) -> Any:
    x = d.pick(2, 2, kinds="f")
    a = d.arrays[x]
    ta, tb, n = d.number(0, 1), d.number(0, 1), d.number(1, 4)
    k = a.shape[0] if ta else a.shape[1]
    w = d.const(content(d.rng, a.dtype, (n, k) if tb else (k, n)))
    c = [d.const(content(d.rng, a.dtype, (n,)))] if d.chance(0.7) or d.opset < 11 else []
    more = {"alpha": d.choice((1.0, 0.5)), "beta": d.choice((1.0, 2.0))} if d.chance(0.4) else {}
    return d.add("Gemm", [x, w, *c], transA=ta, transB=tb, **more)


def _einsum(d: Draft) -> Any:
    x = d.pick(2, 3, kinds="f")
    a = d.arrays[x]
    if a.ndim == 2:
        return d.add(
            "Einsum", [x, d.const(content(d.rng, a.dtype, (d.choice((1, a.shape[1])), 3)))], equation="ij,jk->ik"
        )
    return d.add(
        "Einsum", [x, d.const(content(d.rng, a.dtype, (d.choice((1, a.shape[2])), 3)))], equation="bsd,de->bse"
    )


def _image(d: Draft) -> str:
    images = [n for n, a in d.arrays.items() if a.ndim == 4 and a.dtype == d.real() and n not in d.constants]
    if d.favoured in images:
        return d.favoured
    if images and d.chance(0.8):
        return str(d.choice(images))
    dims = [d.choice((1, 2, "N")), d.choice((1, 2, 4)), *(d.choice((4, 5, 6, 7, "H", "W")) for _ in range(2))]
    return d.input(dims, "float32")


def _conv(d: Draft) -> Any:
    x = _image(d)
    c = d.arrays[x].shape[1]
    group = d.choice([g for g in (1, 1, 2, 4) if c % g == 0])
    k, out = d.choice(((1, 1), (3, 3), (1, 3))), group * d.number(1, 2)
    more = [d.const(content(d.rng, d.real(), (out,)))] if d.chance(0.5) else []
    pads = tuple(n // 2 for n in k) * 2 if d.chance(0.7) else (0, 0, 0, 0)
    strides = {"strides": (2, 2)} if d.chance(0.2) else {}
    w = d.const(content(d.rng, d.real(), (out, c // group, *k)))
    return d.add("Conv", [x, w, *more], pads=pads, group=group, **strides)


def _conv_transpose(d: Draft) -> Any:
    x = _image(d)
    w = d.const(content(d.rng, d.real(), (d.arrays[x].shape[1], d.number(1, 3), 2, 2)))
    return d.add("ConvTranspose", [x, w], strides=(d.number(1, 2),) * 2)


def _pool(op: str) -> Recipe:
    def recipe(d: Draft) -> Any:
        k = d.number(1, 3)
        more: dict[str, Any] = {"strides": (d.number(1, 2),) * 2} if d.chance(0.6) else {}
        if d.chance(0.4) and k > 1:
            more["pads"] = (1, 1, 1, 1)
        if op == "AveragePool" and d.chance(0.4):
            more["count_include_pad"] = 1
        if d.opset >= 10 and d.chance(0.35):
            more["ceil_mode"] = 1
        return d.add(op, [_image(d)], kernel_shape=(k, k), **more)

    return recipe


def _global(op: str) -> Recipe:
    return lambda d: d.add(op, [_image(d)])


def _batch_norm(d: Draft) -> Any:
    x = _image(d) if d.chance(0.7) else d.pick(2, 4, kinds="f")
    a = d.arrays[x]
    few = [d.const(content(d.rng, a.dtype, a.shape[1:2])) for _ in range(3)]
    return d.add(
        "BatchNormalization", [x, *few, d.const(np.abs(content(d.rng, a.dtype, a.shape[1:2])) + a.dtype.type(0.5))]
    )


def _instance_norm(d: Draft) -> Any:
    x = _image(d)
    c = d.arrays[x].shape[1]
    return d.add("InstanceNormalization", [x, *(d.const(content(d.rng, d.real(), (c,))) for _ in range(2))])


def _layer_norm(d: Draft) -> Any:
    x = d.pick(1, 4, kinds="f")
    a, axis = d.arrays[x], -1 if d.chance(0.7) else _axis(d, x)
    shape = a.shape[axis:]
    bias = [d.const(content(d.rng, a.dtype, shape))] if d.chance(0.7) else []
    return d.add("LayerNormalization", [x, d.const(content(d.rng, a.dtype, shape)), *bias], axis=axis)


def _lp_norm(d: Draft) -> Any:
    x = d.pick(1, 4, kinds="f")
    return d.add("LpNormalization", [x], axis=_axis(d, x), p=d.number(1, 2))


def _resize(d: Draft) -> Any:
    if d.opset < 11:
        return None
    scales = d.const(np.array([1, 1, d.choice((1, 2)), d.choice((1, 2))], np.float32), wide=True)
    return d.add("Resize", [_image(d), d.const(np.zeros(0, np.float32), wide=True), scales], mode="nearest")


def _depth(op: str) -> Recipe:
    return lambda d: d.add(op, [_image(d)], blocksize=2)


def _top_k(d: Draft) -> Any:
    x = d.pick(1, kinds="f")
    if d.opset < 10:
        return d.add("TopK", [x], 2, k=1, axis=_axis(d, x))
    return d.add("TopK", [x, d.ints(1)], 2, axis=_axis(d, x))


def _cumsum(d: Draft) -> Any:
    x = d.pick(1, kinds="fi")
    return d.add(
        "CumSum", [x, d.const(np.array(_axis(d, x), np.int64))], exclusive=d.number(0, 1), reverse=d.number(0, 1)
    )


def _trilu(d: Draft) -> Any:
    return d.add("Trilu", [d.pick(2, kinds="fi")], upper=d.number(0, 1))


def _dropout(d: Draft) -> Any:
    return d.add("Dropout", [d.pick(kinds="f")])


def _shape_of(d: Draft) -> Any:
    x = d.pick(1)
    made = d.add("Shape", [x])
    if made is None or d.chance(0.4):
        return made
    i = d.number(0, d.arrays[x].ndim - 1)
    part = d.add("Gather", [made[0], d.ints(i)])
    return part and d.add("Concat", [part[0], d.ints(-1)], axis=0) and d.add("Reshape", [x, list(d.arrays)[-1]])


def _size_of(d: Draft) -> Any:
    return d.add("Size", [d.pick(1)])


def _constant_of_shape(d: Draft) -> Any:
    made = d.add("Shape", [d.pick(1, 3)])
    return made and d.add("ConstantOfShape", made)


def _gelu(d: Draft) -> Any:
    """The long form that exporters write."""
    x = d.pick(1, kinds="f")
    one = {n: d.const(np.array(n).astype(d.arrays[x].dtype)) for n in (1.4142135, 1.0, 0.5)}
    e = d.add("Div", [x, one[1.4142135]])
    e = e and d.add("Erf", e)
    e = e and d.add("Add", [e[0], one[1.0]])
    e = e and d.add("Mul", [x, e[0]])
    return e and d.add("Mul", [e[0], one[0.5]])


def _deep(d: Draft) -> Any:
    """A chain of what only moves elements."""
    made = None
    for _ in range(d.number(2, 3)):
        made = d.choice((_transpose, _reshape, _unsqueeze, _flatten, _slice))(d) or made
    return made


RECIPES: dict[str, Recipe] = {
    **{op: _unary(op) for op in sorted(UNARY - {"Cast"}) + list(_MORE_UNARY)},
    **{op: _binary(op) for op in (*_BINARY, *_LOGIC)},
    **{op: _variadic(op) for op in ("Sum", "Mean")},
    **{op: _reduce(op) for op in _REDUCE},
    **{op: _arg(op) for op in ("ArgMax", "ArgMin")},
    **{op: _soft(op) for op in ("Softmax", "LogSoftmax")},
    "Reshape": _reshape, "Reshape to a shape": _reshape_to_shape, "Transpose": _transpose, "Squeeze": _squeeze,
    "Unsqueeze": _unsqueeze, "Flatten": _flatten, "Expand": _expand, "Tile": _tile, "Slice": _slice, "Concat": _concat,
    "Split": _split, "Gather": _gather, "GatherElements": _gather_elements, "Pad": _pad, "Cast": _cast, "Clip": _clip,
    "Where": _where, "MatMul": _matmul, "Gemm": _gemm, "Einsum": _einsum, "Conv": _conv, "ConvTranspose": _conv_transpose,
    **{op: _pool(op) for op in ("MaxPool", "AveragePool", "LpPool")},
    **{op: _global(op) for op in ("GlobalAveragePool", "GlobalMaxPool")},
    "BatchNormalization": _batch_norm, "InstanceNormalization": _instance_norm, "LayerNormalization": _layer_norm,
    "LpNormalization": _lp_norm, "Resize": _resize, "DepthToSpace": _depth("DepthToSpace"),
    "SpaceToDepth": _depth("SpaceToDepth"), "TopK": _top_k, "CumSum": _cumsum, "Trilu": _trilu, "Dropout": _dropout,
    "Shape": _shape_of, "Size": _size_of, "ConstantOfShape": _constant_of_shape, "Gelu by hand": _gelu, "Chain": _deep,
    **QUANTISED,
}  # fmt: skip
"""Recipe by operator, or by what it makes."""
RECIPES["Between units"] = between(RECIPES)

LIKELY = ("Add", "Mul", "Sub", "Div", "MatMul", "Gemm", "Reshape", "Transpose", "Slice", "Concat", "Split", "Conv", "Relu",
          "Softmax", "ReduceMean", "ReduceSum", "Unsqueeze", "Squeeze", "Cast", "Chain", "Gather", "Where", "Neg", "Between units", "Quantised product",
          "Quantised convolution")  # fmt: skip
"""What rules speak of most: drawn more often."""
NAMES = (*RECIPES, *LIKELY * 2)
