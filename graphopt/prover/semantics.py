"""What ONNX operators compute, over any domain of elements.

Arithmetic is written with the domain's operations; integers and truth values are concrete numpy arrays and computed as
such. Each function takes a :class:`Call` and returns one array, or a list of them where the operator has several outputs.
The definitions follow https://onnx.ai/onnx/operators. Here are the elementwise operators; ``linear`` has reductions and
products, ``windows`` convolution and pooling, ``movement`` what only moves elements, ``resizing`` what lies between them, ``spectral``
Fourier transforms.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any

import numpy as np

from graphopt.ir import ops
from graphopt.ir.types import ELEMENT_TYPES, Array
from graphopt.prover.domains import WIDER, Domain, RandomOrder


class UnsupportedError(Exception):
    """The operator, or this use of it, has no semantics here."""


class ContradictionError(Exception):
    """The operands do not fit the operator: shapes that do not broadcast, positions outside a tensor."""


class WindowError(ContradictionError):
    """A window is larger than its image and the zeros around it."""


@dataclass(frozen=True)
class Call:
    """One operator applied.

    Attributes:
        op: Operator type.
        d: The domain of elements.
        x: Operands, ``None`` for an omitted one.
        attributes: As the node holds them.
        opset: Version of ONNX's operator set.
        to: Dtype names of the outputs.
        of: Dtype names of the operands.
        known: Content of those operands that are constants of known content.
        domain: Operator domain.
    """

    op: str
    d: Domain
    x: Sequence[Array | None]
    attributes: Mapping[str, Any]
    opset: int
    to: Sequence[str | None]
    of: Sequence[str | None]
    known: Sequence[Array | None] = ()
    domain: str = ""

    def __getitem__(self, name: str) -> Any:
        """An attribute, its default where the node leaves it out."""
        found = self.attributes.get(name)
        if found is not None:
            return found
        spatial = self.arg(0).ndim - 2 if self.x else None
        return ops.default(self.op, name, opset=self.opset, spatial_rank=spatial, domain=self.domain)

    def arg(self, i: int) -> Array:
        """An operand that must be there."""
        found = self.x[i] if i < len(self.x) else None
        if found is None:
            raise UnsupportedError(f"{self.op} without operand {i}")
        return found

    def opt(self, i: int) -> Array | None:
        """An operand that may be absent."""
        return self.x[i] if i < len(self.x) else None

    @property
    def integers(self) -> bool:
        """Whether the first operand holds integers (as elements, or as they are)."""
        return bool(self.of and self.of[0] and self.of[0][0] in "iu")

    def number(self, value: float) -> Array:
        """A number as an element."""
        return self.d.constant(np.array(value, np.float64))


def front(axis: int, rank: int) -> int:
    """An axis counted from the front."""
    if not -rank <= axis < rank:
        raise ContradictionError(f"axis {axis} of a tensor of rank {rank}")
    return axis % rank


Result = Array | list[Array]
Semantics = Callable[[Call], Result]
OPERATORS: dict[tuple[str, str], Semantics] = {}
"""By domain and operator type."""


def operator(*names: str, domain: str = "") -> Callable[[Semantics], Semantics]:
    """Register the semantics of operators."""

    def register(function: Semantics) -> Semantics:
        OPERATORS.update({(domain, name): function for name in names})
        return function

    return register


# Elementwise --------------------------------------------------------------------------------------------------------


def _concrete(c: Call) -> bool:
    return all(a is None or not c.d.holds(a) for a in c.x)


_NUMPY: dict[str, Any] = {
    "Add": np.add,
    "Sub": np.subtract,
    "Mul": np.multiply,
    "Max": np.maximum,
    "Min": np.minimum,
    "Neg": np.negative,
    "Abs": np.abs,
    "Sign": np.sign,
    "And": np.logical_and,
    "Or": np.logical_or,
    "Xor": np.logical_xor,
    "Not": np.logical_not,
    "Greater": np.greater,
    "Less": np.less,
    "GreaterOrEqual": np.greater_equal,
    "LessOrEqual": np.less_equal,
    "Equal": np.equal,
    "Pow": np.power,
    "Sum": np.add,
    "Mod": np.mod,
}


def truncated(a: Array, b: Array) -> Array:
    """Integer division as in C, which is not defined for a divisor of 0, nor for the least number over -1."""
    if np.any(b == 0):
        raise ContradictionError("a division by zero")
    if np.issubdtype(a.dtype, np.signedinteger) and np.any((a == np.iinfo(a.dtype).min) & (b == -1)):
        raise ContradictionError("a quotient that its type can't hold")
    quotient = np.floor_divide(a, b)
    return np.asarray(np.where((quotient < 0) & (quotient * b != a), quotient + 1, quotient)).astype(
        np.result_type(a, b)
    )


@operator(*_NUMPY, "Div", "Mean")
def _elementwise(c: Call) -> Result:
    if _concrete(c):
        arrays = [c.arg(i) for i in range(len(c.x))]
        if c.op == "Div":
            return truncated(*arrays)
        if c.op == "Mod":
            truncated(*np.broadcast_arrays(*arrays))  # undefined where the quotient is
        if c.op == "Pow" and np.any(arrays[1] < 0):
            raise ContradictionError("Pow of integers that has no integer for a result")
        if c.op == "Mean" or (c.op == "Mod" and c["fmod"]):
            raise UnsupportedError(f"{c.op} of integers")
        with np.errstate(all="ignore"):
            made = (
                _NUMPY[c.op](arrays[0])
                if len(arrays) == 1 and c.op not in ("Max", "Min", "Sum")
                else reduce(_NUMPY[c.op], arrays)
            )
        return np.asarray(made)
    return _arithmetic(c)


def _arithmetic(c: Call) -> Array:
    d, x = c.d, c.arg(0)
    match c.op:
        case "Neg":
            return d.neg(x)
        case "Abs":
            return d.func("abs of an integer" if c.integers else "abs", x)
        case "Sign":
            return d.func("sign of an integer" if c.integers else "sign", x)
        case "Max" | "Min":
            return reduce(d.max if c.op == "Max" else d.min, [c.arg(i) for i in range(len(c.x))])
        case "Sum":
            return reduce(d.add, [c.arg(i) for i in range(len(c.x))])
        case "Mean":
            if c.integers:
                raise UnsupportedError("Mean of integers")
            return d.div(reduce(d.add, [c.arg(i) for i in range(len(c.x))]), c.number(len(c.x)))
    y = c.arg(1)
    match c.op:
        case "Add":
            return d.add(x, y)
        case "Sub":
            return d.add(x, d.neg(y))
        case "Mul":
            return d.mul(x, y)
        case "Div":
            return d.func("quotient of integers", x, y) if c.integers else d.div(x, y)
        case "Greater":
            return d.less(y, x)
        case "Less":
            return d.less(x, y)
        case "GreaterOrEqual":
            return np.asarray(~d.less(x, y)) if x.dtype != object else _not(d.less(x, y))
        case "LessOrEqual":
            return np.asarray(~d.less(y, x)) if x.dtype != object else _not(d.less(y, x))
        case "Equal":
            return d.equal(x, y)
        case "Pow":
            return _power(c)
    raise UnsupportedError(c.op)


def _not(a: Array) -> Array:
    import z3

    return np.asarray(np.frompyfunc(z3.Not, 1, 1)(a), object)


def _power(c: Call) -> Array:
    """Exponents that are known and whole numbers of quarters become products and roots."""
    d, x, y, exponents = c.d, c.arg(0), c.arg(1), c.known[1]
    if c.integers and (exponents is None or np.any(exponents < 0) or np.any(exponents != np.floor(exponents))):
        raise UnsupportedError("Pow of integers")
    if exponents is None or np.unique(exponents).size > 4:
        return d.func("pow", x, y if d.holds(y) else d.constant(y))
    shape = np.broadcast_shapes(x.shape, exponents.shape)
    x, exponents = np.broadcast_to(x, shape), np.broadcast_to(exponents, shape)
    result: Array | None = None
    for e in np.unique(exponents).tolist():
        if 4 * e != int(4 * e) or abs(e) > 16:
            made = d.func("pow", x, np.broadcast_to(c.number(e), shape))
        else:
            base, times = x, abs(e)
            while times != int(times):
                base, times = d.func("sqrt", base), 2 * times
            made = reduce(d.mul, [base] * int(times)) if times else np.broadcast_to(c.number(1), shape)
            made = d.div(np.broadcast_to(c.number(1), shape), made) if e < 0 else made
        result = made if result is None else np.where(exponents == e, made, result)
    if result is None:
        raise UnsupportedError("Pow of nothing")
    return result


@operator("Exp", "Log", "Sqrt", "Erf", "Sin", "Cos", "Floor", "Ceil", "Round", "Tanh", "Sigmoid")
def _function(c: Call) -> Result:
    return c.d.func(c.op.lower(), c.arg(0))


@operator("Reciprocal")
def _reciprocal(c: Call) -> Result:
    return c.d.div(c.number(1), c.arg(0))


def _relu(c: Call, x: Array) -> Array:
    return c.d.max(x, c.number(0))


@operator("Relu")
def _relu_op(c: Call) -> Result:
    return _relu(c, c.arg(0)) if c.d.holds(c.arg(0)) else np.maximum(c.arg(0), 0)


def _bent(c: Call, below: Array) -> Array:
    """The operand where it is not negative, else ``below``."""
    x = c.arg(0)
    return c.d.select(c.d.less(x, c.number(0)), below, x)


@operator("LeakyRelu")
def _leaky(c: Call) -> Result:
    return _bent(c, c.d.mul(c.number(c["alpha"]), c.arg(0)))


@operator("PRelu")
def _prelu(c: Call) -> Result:
    return _bent(c, c.d.mul(c.arg(1), c.arg(0)))


def _expm1(c: Call, x: Array) -> Array:
    return c.d.add(c.d.func("exp", x), c.number(-1))


@operator("Elu")
def _elu(c: Call) -> Result:
    return _bent(c, c.d.mul(c.number(c["alpha"]), _expm1(c, c.arg(0))))


@operator("Celu")
def _celu(c: Call) -> Result:
    alpha = c.number(c.attributes.get("alpha", 1.0))
    return _bent(c, c.d.mul(alpha, _expm1(c, c.d.div(c.arg(0), alpha))))


@operator("Selu")
def _selu(c: Call) -> Result:
    below = c.d.mul(c.number(c["alpha"]), _expm1(c, c.arg(0)))
    return c.d.mul(c.number(c["gamma"]), _bent(c, below))


@operator("ThresholdedRelu")
def _thresholded(c: Call) -> Result:
    above = c.d.less(c.number(c["alpha"]), c.arg(0))
    return c.d.select(above, c.arg(0), c.number(0))


def _hard_sigmoid(c: Call, x: Array, alpha: float, beta: float) -> Array:
    line = c.d.add(c.d.mul(c.number(alpha), x), c.number(beta))
    return c.d.max(c.number(0), c.d.min(c.number(1), line))


@operator("HardSigmoid")
def _hard_sigmoid_op(c: Call) -> Result:
    return _hard_sigmoid(c, c.arg(0), c["alpha"], c["beta"])


@operator("HardSwish")
def _hard_swish(c: Call) -> Result:
    return c.d.mul(c.arg(0), _hard_sigmoid(c, c.arg(0), 1 / 6, 0.5))


@operator("Clip")
def _clip(c: Call) -> Result:
    x, low, high = c.arg(0), c.opt(1), c.opt(2)
    if c.opset < 11:
        low = c.number(c.attributes["min"]) if "min" in c.attributes else None
        high = c.number(c.attributes["max"]) if "max" in c.attributes else None
    # Infinite bounds are none.
    low = None if len(c.known) > 1 and c.known[1] is not None and np.all(c.known[1] == -np.inf) else low
    high = None if len(c.known) > 2 and c.known[2] is not None and np.all(c.known[2] == np.inf) else high
    if any(b is not None and (b.size != 1 or b.ndim > 1) for b in (low, high)):
        raise ContradictionError("Clip: a bound that is no number")
    low, high = (None if b is None else b.reshape(()) for b in (low, high))
    greater, smaller = (c.d.max, c.d.min) if c.d.holds(x) else (np.maximum, np.minimum)
    x = x if low is None else greater(x, low)
    return x if high is None else smaller(x, high)


def _softplus(c: Call, x: Array) -> Array:
    return c.d.func("log", c.d.add(c.d.func("exp", x), c.number(1)))


@operator("Softplus")
def _softplus_op(c: Call) -> Result:
    return _softplus(c, c.arg(0))


@operator("Softsign")
def _softsign(c: Call) -> Result:
    return c.d.div(c.arg(0), c.d.add(c.number(1), c.d.func("abs", c.arg(0))))


@operator("Mish")
def _mish(c: Call) -> Result:
    return c.d.mul(c.arg(0), c.d.func("tanh", _softplus(c, c.arg(0))))


@operator("Swish")
def _swish(c: Call) -> Result:
    return c.d.mul(c.arg(0), c.d.func("sigmoid", c.d.mul(c.number(c["alpha"]), c.arg(0))))


@operator("QuickGelu", domain="com.microsoft")
def _quick_gelu(c: Call) -> Result:
    return c.d.mul(c.arg(0), c.d.func("sigmoid", c.d.mul(c.number(c["alpha"]), c.arg(0))))


@operator("Gelu")
def _gelu(c: Call) -> Result:
    d, x = c.d, c.arg(0)
    if c["approximate"] == "tanh":
        cube = d.mul(d.mul(x, x), x)
        inner = d.mul(c.number(np.sqrt(2 / np.pi)), d.add(x, d.mul(c.number(0.044715), cube)))
        bent = d.func("tanh", inner)
    else:
        bent = d.func("erf", d.mul(x, c.number(1 / np.sqrt(2))))
    return d.mul(c.number(0.5), d.mul(x, d.add(c.number(1), bent)))


@operator("Gelu", domain="com.microsoft")
def _contributed_gelu(c: Call) -> Result:
    return _gelu(Call("Gelu", c.d, c.x[:1], {}, c.opset, c.to, c.of))


@operator("FastGelu", domain="com.microsoft")
def _fast_gelu(c: Call) -> Result:
    bias = c.opt(1)
    x = c.arg(0) if bias is None else c.d.add(c.arg(0), bias)
    return _gelu(Call("Gelu", c.d, [x], {"approximate": "tanh"}, c.opset, c.to, c.of))


@operator("Where")
def _where(c: Call) -> Result:
    condition, a, b = c.arg(0), c.arg(1), c.arg(2)
    if c.d.holds(a):
        return c.d.select(*np.broadcast_arrays(condition, a, b))
    return np.where(condition, a, b)


_FLOATS = {"f16", "bf16", "f32", "f64"}
_NUMPY_INT = {
    row.short: np.dtype(row.name)
    for row in ELEMENT_TYPES
    if row.native and np.dtype(row.name).kind in "iub"  # whole numbers, with sign or without, and bool
}


@operator("Cast", "CastLike")
def _cast(c: Call) -> Result:
    x, source, target = c.arg(0), str(c.of[0]), str(c.to[0])
    if not {source, target} <= {*_FLOATS, *_NUMPY_INT}:
        raise UnsupportedError(f"Cast of {source} to {target}")
    if not c.d.holds(x):
        if target in _NUMPY_INT:
            return x.astype(_NUMPY_INT[target])
        return c.d.constant(x)
    if source == target:
        return x
    if target == "bool":
        equal = c.d.equal(x, c.number(0))
        return np.asarray(~equal) if equal.dtype != object else _not(equal)
    if isinstance(c.d, RandomOrder):
        return c.d.cast(x, source, target)
    # Every float of the narrower type is one of the wider; the other way it is rounded, which is no real function's business.
    return (
        x
        if target in WIDER.get(source, ()) and target in _FLOATS and source in _FLOATS
        else c.d.func(f"cast:{target}", x)
    )
