"""Element algebras in which both sides of a rule are evaluated.

An array of any domain is a numpy array, so that operators which only move elements are written once, with numpy's own
indexing. What differs is arithmetic:

    Floats  float64 numbers: finds a counterexample, proves nothing
    Terms   64-bit hashes of expressions: equal hashes are the same operations on the same operands, bit for bit

Residues modulo two primes are in :mod:`graphopt.prover.residues`, the order domain, over z3, in :mod:`graphopt.prover.order`.

Transcendental functions are uninterpreted: a keyed hash of their operand, made odd or even where they are. Maximum and
minimum follow a random total order of the elements: laws of lattices hold, nothing else does.
"""

from __future__ import annotations

import hashlib
import math
from abc import ABC, abstractmethod
from typing import Any, Protocol

import numpy as np
from ml_dtypes import bfloat16

from graphopt.ir.types import FLOATS, NUMPY_NAMES, Array

ODD = frozenset({"sin", "erf", "sign", "tanh"})
EVEN = frozenset({"cos", "abs of an integer"})  # (the square of an integer may wrap, and be negative)
WHOLE = frozenset({"floor", "ceil", "round"})  # they give whole numbers, and change nothing about one
QUANTISE = "quantise:"
"""And the type: rounded to a whole number, moved by the second operand and kept in the range of the type."""


class Domain(Protocol):
    """Arithmetic on arrays of elements. Operands broadcast as in numpy."""

    name: str
    seed: int

    def holds(self, a: Array) -> bool:
        """Whether an array is of this domain (and not concrete integers or truth values)."""
        ...

    def fresh(self, name: str, shape: tuple[int, ...]) -> Array:
        """Independent elements; the same for the same name."""
        ...

    def constant(self, values: Array) -> Array:
        """Numbers as elements."""
        ...

    def add(self, a: Array, b: Array) -> Array:
        """Sum."""
        ...

    def neg(self, a: Array) -> Array:
        """Negative."""
        ...

    def mul(self, a: Array, b: Array) -> Array:
        """Product."""
        ...

    def div(self, a: Array, b: Array) -> Array:
        """Quotient."""
        ...

    def max(self, a: Array, b: Array) -> Array:
        """The larger element."""
        ...

    def min(self, a: Array, b: Array) -> Array:
        """The smaller element."""
        ...

    def less(self, a: Array, b: Array) -> Array:
        """Truth values of a < b."""
        ...

    def equal(self, a: Array, b: Array) -> Array:
        """Truth values of a == b."""
        ...

    def select(self, condition: Array, a: Array, b: Array) -> Array:
        """Elements of a where the condition holds, else b."""
        ...

    def func(self, name: str, *operands: Array) -> Array:
        """A named function of real numbers, elementwise."""
        ...


def seed_of(*parts: Any) -> int:
    """A seed that follows from some values, the same in every process."""
    return int.from_bytes(hashlib.blake2b(repr(parts).encode(), digest_size=8).digest(), "little")


_GOLDEN, _FIRST, _SECOND = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
_30, _27, _31 = np.uint64(30), np.uint64(27), np.uint64(31)


def mix(*arrays: Array | int) -> Array:
    """A 64-bit hash of the operands, elementwise (the finalizer of splitmix64, chained)."""
    result: Any = _GOLDEN
    with np.errstate(over="ignore"):
        for array in arrays:
            z = (result ^ (array if isinstance(array, np.ndarray) else np.uint64(array))) + _GOLDEN
            z = (z ^ (z >> _30)) * _FIRST
            z = (z ^ (z >> _27)) * _SECOND
            result = z ^ (z >> _31)
    return np.asarray(result)


class Floats:
    """float64 numbers between an eighth of the largest and the largest in size, of the given sign, 0 for either."""

    name = "floats"

    def __init__(self, seed: int, sign: int = 0, largest: float = 2.0) -> None:
        self.seed, self.sign, self.largest = seed, sign, largest

    def holds(self, a: Array) -> bool:
        return bool(a.dtype == np.float64)

    def fresh(self, name: str, shape: tuple[int, ...]) -> Array:
        rng = np.random.default_rng(seed_of(self.seed, name))
        sign = self.sign or rng.choice([-1.0, 1.0], shape)
        return np.asarray(rng.uniform(self.largest / 8, self.largest, shape) * sign)

    def constant(self, values: Array) -> Array:
        return np.asarray(values, np.float64)

    def add(self, a: Array, b: Array) -> Array:
        return np.asarray(a + b)

    def neg(self, a: Array) -> Array:
        return np.asarray(-a)

    def mul(self, a: Array, b: Array) -> Array:
        return np.asarray(a * b)

    def div(self, a: Array, b: Array) -> Array:
        return np.asarray(a / b)

    def max(self, a: Array, b: Array) -> Array:
        return np.maximum(a, b)

    def min(self, a: Array, b: Array) -> Array:
        return np.minimum(a, b)

    def less(self, a: Array, b: Array) -> Array:
        return np.asarray(a < b)

    def equal(self, a: Array, b: Array) -> Array:
        return np.asarray(a == b)

    def select(self, condition: Array, a: Array, b: Array) -> Array:
        return np.where(condition, a, b)

    def func(self, name: str, *operands: Array) -> Array:
        x = operands[0]
        if name == "erf":
            return np.asarray(np.vectorize(math.erf, otypes=[np.float64])(x))
        if name == "sigmoid":
            return np.asarray(1 / (1 + np.exp(-x)))
        if name == "pow":
            return np.asarray(np.power(x, operands[1]))
        if name == "dropout":
            return np.asarray(2 * x)
        if name.startswith("cast:"):
            target = name.rpartition(":")[2]
            if target[0] in "iu":
                return np.asarray(x).astype(np.int64).astype(NUMPY_NAMES[target])
            return np.asarray(x.astype(bfloat16 if target == "bf16" else NUMPY_NAMES[target]), np.float64)
        if name.startswith(QUANTISE):
            dtype = NUMPY_NAMES[name.removeprefix(QUANTISE)]
            ends = np.iinfo(dtype)
            return np.asarray(np.clip(np.rint(x) + operands[1], ends.min, ends.max)).astype(dtype)
        made: Any = getattr(np, name)
        return np.asarray(made(x))


def fresh(domain: Domain, name: str, shape: tuple[int, ...], dtype: str) -> Array:
    """Elements of an operand: floats as its type holds them, or a cast to that type and back would change them."""
    made = domain.fresh(name, shape)
    return domain.func(f"cast:{dtype}", made) if isinstance(domain, Floats) and dtype in ("f16", "bf16") else made


# Types that hold every value of another.
WIDER: dict[str, frozenset[str]] = {
    "f16": frozenset({"f32", "f64"}), "bf16": frozenset({"f32", "f64"}), "f32": frozenset({"f64"}),
    "i8": frozenset({"i16", "i32", "i64", "f16", "bf16", "f32", "f64"}), "i16": frozenset({"i32", "i64", "f32", "f64"}),
    "u8": frozenset({"u16", "u32", "u64", "i16", "i32", "i64", "f16", "bf16", "f32", "f64"}),
    "u16": frozenset({"u32", "u64", "i32", "i64", "f32", "f64"}), "i32": frozenset({"i64", "f64"}),
    "u32": frozenset({"u64", "i64", "f64"}),
}  # fmt: skip


class RandomOrder(ABC):
    """Maximum and minimum by a random total order: of all laws, those of lattices hold.

    A false law may hold in one order by chance: of nine elements and a constant, the constant is seldom the largest. So an
    order is drawn many times, and whether most elements lie above or below the constants is part of what is drawn.

    Attributes:
        ordered: Whether two elements were compared.
        reals: Whether a float that is cast to a wider type stays the same element, as a real number does.
    """

    reals = False

    @abstractmethod
    def func(self, name: str, *operands: Array) -> Array:
        """See :class:`Domain`."""

    def __init__(self) -> None:
        self.ordered = False
        self._draw, self._high = 0, 0.5
        self._fixed: set[int] = set()
        self._widened: dict[Any, tuple[str, str, Any]] = {}

    def cast(self, a: Array, source: str, target: str) -> Array:
        """Elements of another type. A type that holds all values of the one before is as good as that, on the way on."""
        wider = target in WIDER.get(source, ())
        same = wider and self.reals and {source, target} <= FLOATS
        made = a.copy() if same else self.func(f"cast:{source}:{target}", a)
        flat, given = made.reshape(-1), np.broadcast_to(a, made.shape).reshape(-1)
        keys, origins = flat.tolist(), given.tolist()
        for i, key in enumerate(origins):
            before = self._widened.get(key)
            if before is None or before[1] != source or not _same_on_the_way(before[0], source, target):
                continue
            direct = before[2] if before[0] == target else self.cast(_one(before[2], a.dtype), before[0], target)[0]
            flat[i] = direct
        if wider:
            self._widened.update((key, (source, target, origin)) for key, origin in zip(keys, origins, strict=True))
        return made

    def reorder(self, draw: int) -> None:
        """Take another order; the elements stay the same."""
        self._draw, self._high = draw, (0.5, 0.05, 0.95)[draw % 3]

    def _ranked(self, hashed: Array, element: Array) -> Array:
        """Ranks: whether an element lies high decides first."""
        coin = (mix(6, hashed, self._draw) >> np.uint64(11)) / 2.0**53
        fixed = np.logical_or.reduce([element == f for f in self._fixed]) if self._fixed else False
        high = coin < np.where(fixed, 0.5, self._high)
        return np.asarray(mix(7, hashed, self._draw) >> np.uint64(1) | high.astype(np.uint64) << np.uint64(63))

    @abstractmethod
    def _rank(self, a: Array) -> Array: ...

    @abstractmethod
    def select(self, condition: Array, a: Array, b: Array) -> Array: ...

    def max(self, a: Array, b: Array) -> Array:
        return self.select(self.less(a, b), b, a)

    def min(self, a: Array, b: Array) -> Array:
        return self.select(self.less(a, b), a, b)

    def less(self, a: Array, b: Array) -> Array:
        self.ordered = True
        return np.asarray(self._rank(a) < self._rank(b))

    def extreme(self, a: Array, axis: int, largest: bool) -> Array:
        """The largest or the smallest elements along an axis, which is dropped."""
        self.ordered = True
        rank = self._rank(a)
        at = np.expand_dims(rank.argmax(axis) if largest else rank.argmin(axis), axis)
        return np.take_along_axis(a, at, axis).squeeze(axis)


def _same_on_the_way(first: str, middle: str, last: str) -> bool:
    """Whether a cast by way of a type that holds all values of the first is the direct one.

    A number that is out of range for a cast of floats to integers is undefined, and wraps between integers.
    """
    wraps = first[0] in "iu" and middle[0] not in "iu" and last[0] in "iu"
    return not wraps or first == last or last in WIDER.get(first, ())


def _one(element: Any, dtype: Any) -> Array:
    return np.array([element], dtype)


_TERM = np.dtype([("h", "u8")])
_SIGN = np.uint64(1 << 63)
_SIZE = np.uint64((1 << 63) - 1)


class Terms(RandomOrder):
    """Hashes of expressions, with the laws that floating-point numbers obey exactly.

    Those are: commutativity, the rules of signs (the top bit is the sign), and 0 and 1 as neutral elements. Signed zeros
    are not told apart.
    """

    name = "terms"

    def __init__(self, seed: int) -> None:
        super().__init__()
        self.seed = seed
        self._whole: set[int] = set()
        self._one = self.constant(np.array(1.0))["h"]

    def holds(self, a: Array) -> bool:
        return bool(a.dtype == _TERM)

    def fresh(self, name: str, shape: tuple[int, ...]) -> Array:
        rng = np.random.default_rng(seed_of(self.seed, name))
        return _terms(rng.integers(1, 2**64, shape, np.uint64, endpoint=False))

    def constant(self, values: Array) -> Array:
        values = np.asarray(values, np.float64)
        size = mix(np.abs(values).view(np.uint64) if values.shape else np.abs(values).reshape(1).view(np.uint64)[0], 1)
        hashed = (np.asarray(size) & _SIZE) | np.where(values < 0, _SIGN, np.uint64(0))
        made = np.where(values == 0, np.uint64(0), hashed)
        self._fixed.update(np.unique(made).tolist())
        return _terms(made)

    def add(self, a: Array, b: Array) -> Array:
        x, y = np.broadcast_arrays(a["h"], b["h"])
        first = (x & _SIZE) < (y & _SIZE)
        low, high = np.where(first, x, y), np.where(first, y, x)
        sign = low & _SIGN
        made = (mix(2, low ^ sign, high ^ sign) & _SIZE) ^ sign
        made = np.where((low ^ high) == _SIGN, np.uint64(0), made)
        return _terms(np.where(low == 0, high, made))

    def neg(self, a: Array) -> Array:
        x = a["h"]
        return _terms(np.where(x == 0, x, x ^ _SIGN))

    def mul(self, a: Array, b: Array) -> Array:
        x, y = np.broadcast_arrays(a["h"], b["h"])
        sign = (x ^ y) & _SIGN
        p, q = x & _SIZE, y & _SIZE
        made = mix(3, np.minimum(p, q), np.maximum(p, q)) & _SIZE
        made = np.where(p == self._one, q, np.where(q == self._one, p, made))
        return _terms(np.where(made == 0, made, made ^ sign))

    def div(self, a: Array, b: Array) -> Array:
        x, y = np.broadcast_arrays(a["h"], b["h"])
        p, q = x & _SIZE, y & _SIZE
        made = np.where(q == self._one, p, mix(4, p, q) & _SIZE)
        return _terms(np.where(made == 0, made, made ^ ((x ^ y) & _SIGN)))

    def _rank(self, a: Array) -> Array:
        return self._ranked(mix(5, a["h"], self.seed), a["h"])

    def equal(self, a: Array, b: Array) -> Array:
        return np.asarray(a["h"] == b["h"])

    def select(self, condition: Array, a: Array, b: Array) -> Array:
        return _terms(np.where(condition, a["h"], b["h"]))

    def func(self, name: str, *operands: Array) -> Array:
        x = operands[0]["h"]
        tag = seed_of(name)
        if name in ODD:
            return _terms((mix(tag, x & _SIZE) & _SIZE) ^ (x & _SIGN))
        if name in EVEN:
            return _terms(mix(tag, x & _SIZE))
        if name == "abs":
            return _terms(x & _SIZE)
        if name == "pow":
            power = operands[1]["h"]
            return _terms(np.where(power == self._one, x, mix(tag, x, power)))
        made = mix(tag, *[o["h"] for o in operands])
        if name in WHOLE:
            made = np.where(np.isin(x, list(self._whole)) if self._whole else False, x, made)
            self._whole.update(int(h) for h in np.unique(made))
        return _terms(made)


def _terms(hashes: Array) -> Array:
    made = np.empty(np.shape(hashes), _TERM)
    made["h"] = hashes
    return made
