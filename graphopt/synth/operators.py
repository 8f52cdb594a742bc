"""The operators that the generator builds graphs of, and the attributes that it tries for each.

An operator is applied in a *form*: values for its attributes and for those operands that are constant numbers (axes of a
reduction, sizes of a Split). A form is a tuple of :class:`Param`; everything downstream treats the two kinds alike, and the
rule that is made in the end captures them as variables where it can.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from graphopt.ir import ops
from graphopt.ir.infer import InferenceError, infer
from graphopt.ir.types import Array, ValueType
from graphopt.prover.domains import Domain
from graphopt.prover.evaluate import compute
from graphopt.prover.semantics import Call

Shape = tuple[int, ...]

OPSET = 18
"""Version of the operator set in which graphs are built: the first in which all reductions take their axes as an operand."""


@dataclass(frozen=True, slots=True)
class Param:
    """An attribute, or an operand that is a constant number.

    Attributes:
        name: Name of the attribute or of the operand.
        kind: What it means: ``axis``, ``axes``, ``perm``, ``sizes``, ``dims``, ``position``, ``flag``, ``factor``,
            ``groups``, ``window`` or ``number``.
        value: An integer, a number or a tuple of integers.
        operand: Whether it is an operand.
    """

    name: str
    kind: str
    value: Any
    operand: bool = False


Form = tuple[Param, ...]


def attributes(form: Form) -> dict[str, Any]:
    """The attributes of a node in this form."""
    return {p.name: p.value for p in form if not p.operand}


def constants(form: Form) -> list[Array]:
    """The constant operands of a node in this form, which follow the others."""
    return [np.array(p.value, np.float32 if p.kind == "number" else np.int64) for p in form if p.operand]


@dataclass(frozen=True)
class Operator:
    """What the generator knows of an operator.

    Attributes:
        name: Operator type.
        arities: Numbers of operands it is tried with, constants not counted.
        forms: Forms for operands of some shapes; it need not check that the shapes fit. The last argument is the world's sizes.
        pointwise: Whether operands with a leading dimension more give the results of each part, so that many can be computed at once.
        outputs: Number of results.
    """

    name: str
    arities: tuple[int, ...]
    forms: Callable[[Sequence[Shape], frozenset[int]], Iterator[Form]]
    pointwise: bool = False
    outputs: int = 1

    @property
    def commutative(self) -> bool:
        """Whether two operands may change places."""
        return self.name in ops.COMMUTATIVE


def _plain(shapes: Sequence[Shape], sizes: frozenset[int]) -> Iterator[Form]:
    yield ()


def _square(shapes: Sequence[Shape], sizes: frozenset[int]) -> Iterator[Form]:
    yield (Param("exponent", "number", 2.0, True),)


_PERMS = ((0, 2, 1, 3), (0, 1, 3, 2), (0, 2, 3, 1), (0, 3, 1, 2), (1, 0, 2, 3))


def _transpose(shapes: Sequence[Shape], sizes: frozenset[int]) -> Iterator[Form]:
    rank = len(shapes[0])
    perms = _PERMS if rank == 4 else itertools.permutations(range(rank)) if rank in (2, 3) else ()
    for perm in perms:
        # Where only dimensions of 1 change places, the elements stay where they are.
        moved = [axis for axis in perm if shapes[0][axis] != 1]
        if moved != sorted(moved):
            yield (Param("perm", "perm", perm),)


def _reduce(shapes: Sequence[Shape], sizes: frozenset[int]) -> Iterator[Form]:
    rank = len(shapes[0])
    for axes in [*((a,) for a in range(rank)), *([(rank - 2, rank - 1)] if rank > 2 else [])]:
        # What is reduced over one element is the element.
        for keep in (1, 0) if all(shapes[0][a] > 1 for a in axes) else ():
            yield (Param("keepdims", "flag", keep), Param("axes", "axes", axes, True))


def _softmax(shapes: Sequence[Shape], sizes: frozenset[int]) -> Iterator[Form]:
    for axis, n in enumerate(shapes[0]):
        if n > 1:
            yield (Param("axis", "axis", axis),)


def _concat(shapes: Sequence[Shape], sizes: frozenset[int]) -> Iterator[Form]:
    rank = len(shapes[0])
    if all(len(s) == rank for s in shapes):
        for axis in range(rank):
            if len({s[:axis] + s[axis + 1 :] for s in shapes}) == 1:
                yield (Param("axis", "axis", axis),)


def _split(shapes: Sequence[Shape], sizes: frozenset[int]) -> Iterator[Form]:
    # In the middle, where Concat joins what is equally large: a cut elsewhere makes laws of parts of parts. How large the
    # pieces are is not what a rule says in the end.
    for axis, n in enumerate(shapes[0]):
        if n % 2 == 0 and n // 2 in sizes:
            yield (Param("axis", "axis", axis), Param("split", "sizes", (n // 2, n // 2), True))


def _slice(shapes: Sequence[Shape], sizes: frozenset[int]) -> Iterator[Form]:
    for axis, n in enumerate(shapes[0]):
        for start, end in ((0, n // 2), (n // 2, n)) if n > 1 else ():
            yield (
                Param("starts", "position", (start,), True),
                Param("ends", "position", (end,), True),
                Param("axes", "axes", (axis,), True),
            )


def _squeeze(shapes: Sequence[Shape], sizes: frozenset[int]) -> Iterator[Form]:
    for axis, n in enumerate(shapes[0]):
        if n == 1:
            yield (Param("axes", "axes", (axis,), True),)


def _unsqueeze(shapes: Sequence[Shape], sizes: frozenset[int]) -> Iterator[Form]:
    if len(shapes[0]) < 4:
        for axis in range(len(shapes[0]) + 1):
            yield (Param("axes", "axes", (axis,), True),)


def _reshape(shapes: Sequence[Shape], sizes: frozenset[int]) -> Iterator[Form]:
    shape = shapes[0]
    merged = [(*shape[:i], shape[i] * shape[i + 1], *shape[i + 2 :]) for i in range(len(shape) - 1)]
    apart = [
        (*shape[:i], k, n // k, *shape[i + 1 :])
        for i, n in enumerate(shape)
        for k in sorted(sizes)
        if len(shape) < 4 and n > 4 and n % k == 0 and n // k in sizes
    ]
    flat = [(math.prod(shape),)] if len(shape) > 2 else []
    for dims in dict.fromkeys([*merged, *apart, *flat]):
        yield (Param("shape", "dims", dims, True),)


def _layer_norm(shapes: Sequence[Shape], sizes: frozenset[int]) -> Iterator[Form]:
    if shapes[0] and all(s == shapes[0][-1:] for s in shapes[1:]):
        yield (Param("axis", "axis", -1),)


def _batch_norm(shapes: Sequence[Shape], sizes: frozenset[int]) -> Iterator[Form]:
    if len(shapes[0]) >= 2 and all(s == shapes[0][1:2] for s in shapes[1:]):
        yield ()


def _matmul(shapes: Sequence[Shape], sizes: frozenset[int]) -> Iterator[Form]:
    if min(len(s) for s in shapes) >= 2:
        yield ()


_UNSCALED = (Param("alpha", "factor", 1.0), Param("beta", "factor", 1.0))


def _gemm(shapes: Sequence[Shape], sizes: frozenset[int]) -> Iterator[Form]:
    if len(shapes[0]) == len(shapes[1]) == 2:
        # Other factors and a transposed left operand are rare; what holds with them, the conditions find out.
        for b in (0, 1):
            yield (*_UNSCALED, Param("transA", "flag", 0), Param("transB", "flag", b))


def _conv(shapes: Sequence[Shape], sizes: frozenset[int]) -> Iterator[Form]:
    x, w = shapes[:2]
    if len(x) != 4 or len(w) != 4 or w[2] != w[3] or x[1] % w[1] or w[0] % (x[1] // w[1]):
        return
    if len(shapes) == 3 and shapes[2] != w[:1]:
        return
    for pad in {1: (0,), 3: (1, 0)}.get(w[2], ()):
        if w[2] - 2 * pad <= min(x[2:]):
            yield (Param("group", "groups", x[1] // w[1]), Param("pads", "window", (pad,) * 4))


def _pool(shapes: Sequence[Shape], sizes: frozenset[int]) -> Iterator[Form]:
    if len(shapes[0]) == 4:
        # Windows that do not all hold the whole image.
        for kernel, pad, stride in ((3, 1, 1), (2, 0, 2), (2, 0, 1), (3, 0, 1)):
            if kernel - pad <= min(shapes[0][2:]) - (pad > 0):
                yield (
                    Param("kernel_shape", "window", (kernel,) * 2),
                    Param("pads", "window", (pad,) * 4),
                    Param("strides", "window", (stride,) * 2),
                )


def _image(shapes: Sequence[Shape], sizes: frozenset[int]) -> Iterator[Form]:
    if len(shapes[0]) == 4 and min(shapes[0][2:]) > 1:
        yield ()


UNARY = ("Neg", "Relu", "Sigmoid", "Tanh", "Exp", "Sqrt", "Reciprocal")
BINARY = ("Add", "Sub", "Mul", "Div")
POOLS = ("MaxPool", "AveragePool", "GlobalAveragePool")
REDUCE = ("ReduceSum", "ReduceMean", "ReduceMax")

TABLE: Mapping[str, Operator] = {
    operator.name: operator
    for operator in (
        *(Operator(name, (1,), _plain, pointwise=True) for name in UNARY),
        Operator("Pow", (1,), _square, pointwise=True),
        *(Operator(name, (2,), _plain, pointwise=True) for name in BINARY),
        Operator("MatMul", (2,), _matmul, pointwise=True),
        Operator("Gemm", (3,), _gemm),
        Operator("Conv", (2, 3), _conv),
        Operator("Softmax", (1,), _softmax),
        *(Operator(name, (1,), _reduce) for name in REDUCE),
        Operator("LayerNormalization", (2, 3), _layer_norm),
        Operator("BatchNormalization", (5,), _batch_norm),
        Operator("Transpose", (1,), _transpose),
        Operator("Reshape", (1,), _reshape),
        Operator("Concat", (2,), _concat),
        Operator("Split", (1,), _split, outputs=2),
        Operator("Slice", (1,), _slice),
        Operator("Squeeze", (1,), _squeeze),
        Operator("Unsqueeze", (1,), _unsqueeze),
        Operator("AveragePool", (1,), _pool),
        Operator("MaxPool", (1,), _pool),
        Operator("GlobalAveragePool", (1,), _image),
    )
}
"""Every operator by name."""


@lru_cache(maxsize=1 << 16)
def results(name: str, form: Form, shapes: tuple[Shape, ...]) -> tuple[Shape, ...]:
    """Shapes of an operator's results, empty where ONNX does not allow it."""
    fixed = constants(form)
    types = [ValueType("f32", s) for s in shapes]
    types += [ValueType("f32" if a.dtype == np.float32 else "i64", a.shape) for a in fixed]
    data = [None] * len(shapes) + [a if a.dtype == np.int64 else None for a in fixed]
    # Where a Slice begins and ends is believed of contents only.
    contents = [None if a is None else tuple(a.tolist()) for a in data]
    try:
        made = infer(name, "", OPSET, attributes(form), types, data, TABLE[name].outputs, contents)
    except InferenceError:
        return ()
    return tuple(t.shape for t in made) if all(t.static for t in made) else ()  # type: ignore[misc]


def apply(name: str, form: Form, operands: Sequence[Array], domain: Domain) -> list[Array]:
    """An operator's results over a domain of elements.

    Raises:
        ContradictionError: The operands do not fit.
        UnsupportedError: The prover knows no such form of the operator.
    """
    fixed = constants(form)
    given = [domain.constant(a) if a.dtype == np.float32 else a for a in fixed]
    dtypes = ["f32"] * len(operands) + ["f32" if a.dtype == np.float32 else "i64" for a in fixed]
    known = [None] * len(operands) + list(fixed)
    to = ["f32"] * TABLE[name].outputs
    return compute(Call(name, domain, [*operands, *given], attributes(form), OPSET, to, dtypes, known))
