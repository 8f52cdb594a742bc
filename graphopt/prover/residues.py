"""Residues modulo two primes: equal residues of random elements are the same real function, up to a small probability.

(Schwartz 1980, Zippel 1979.) The exponential is a homomorphism: an element is a pair of residues modulo p and q with
q | p - 1, and exp(x) is a q-th root of unity to the power of x modulo q (Mirage, Wu et al. 2024), so that
exp(x + y) = exp(x) exp(y) and what is made of it (sigmoid, tanh, softmax) obey their laws.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from graphopt.ir.types import Array
from graphopt.prover.domains import EVEN, ODD, WHOLE, RandomOrder, mix, seed_of
from graphopt.prover.numbers import meant

# p and q = (p - 1) / 2 are prime, and 2 is a square modulo both, so that the root of 2 exists.
PRIMES = (2147480927, 2147479823)
_PAIR = np.dtype([("p", "i8"), ("q", "i8")])


class Field(RandomOrder):
    """Pairs of residues modulo p and modulo q = (p - 1) / 2.

    Only residues modulo p decide whether two elements are the same: those modulo q are there for exponents.
    """

    name = "field"
    reals = True

    def __init__(self, seed: int, prime: int = 0) -> None:
        super().__init__()
        self.seed = seed
        self.p = PRIMES[prime]
        self.q = (self.p - 1) // 2
        rng = np.random.default_rng(seed_of(seed, "field"))
        self._omega = pow(int(rng.integers(2, self.p - 1)), 2, self.p)  # of order q
        self._rootpi = _pair(np.array(rng.integers(2, self.p)), np.array(rng.integers(2, self.q)))
        self._logs: dict[tuple[int, int], tuple[int, int]] = {}
        self._whole: set[int] = set()

    def holds(self, a: Array) -> bool:
        return bool(a.dtype == _PAIR)

    def fresh(self, name: str, shape: tuple[int, ...]) -> Array:
        rng = np.random.default_rng(seed_of(self.seed, name))
        return _pair(rng.integers(1, self.p, shape), rng.integers(1, self.q, shape))

    def constant(self, values: Array) -> Array:
        values = np.asarray(values, np.float64)
        different, where = np.unique(values, return_inverse=True)
        made = np.empty(different.shape, _PAIR)
        for i, value in enumerate(different.tolist()):
            made[i] = self._number(value)
        self._fixed.update(made["p"].tolist())
        return made[where].reshape(values.shape)

    def _number(self, value: float) -> Any:
        exact = meant(value)
        if exact is None:
            return self.func(f"constant:{value}", _pair(np.array(1), np.array(1)))
        top, bottom = exact.rational.numerator, exact.rational.denominator
        x = _pair(np.array(top * pow(bottom, -1, self.p) % self.p), np.array(top * pow(bottom, -1, self.q) % self.q))
        for root, power in (
            (self.func("sqrt", _pair(np.array(2), np.array(2))), exact.root2),
            (self._rootpi, exact.rootpi),
        ):
            for _ in range(abs(power)):
                x = self.mul(x, root) if power > 0 else self.div(x, root)
        return x

    def add(self, a: Array, b: Array) -> Array:
        return _pair((a["p"] + b["p"]) % self.p, (a["q"] + b["q"]) % self.q)

    def total(self, a: Array, axis: int) -> Array:
        """The sum along an axis, which is dropped."""
        return _pair(a["p"].sum(axis) % self.p, a["q"].sum(axis) % self.q)

    def neg(self, a: Array) -> Array:
        return _pair(-a["p"] % self.p, -a["q"] % self.q)

    def mul(self, a: Array, b: Array) -> Array:
        return _pair(a["p"] * b["p"] % self.p, a["q"] * b["q"] % self.q)

    def div(self, a: Array, b: Array) -> Array:
        inverse = _pair(_power(b["p"], self.p - 2, self.p), _power(b["q"], self.q - 2, self.q))
        return self.mul(a, inverse)

    def _rank(self, a: Array) -> Array:
        return self._ranked(mix(5, a["p"].astype(np.uint64), a["q"].astype(np.uint64), self.seed), a["p"])

    def equal(self, a: Array, b: Array) -> Array:
        return np.asarray(a["p"] == b["p"])

    def select(self, condition: Array, a: Array, b: Array) -> Array:
        return _pair(np.where(condition, a["p"], b["p"]), np.where(condition, a["q"], b["q"]))

    def func(self, name: str, *operands: Array) -> Array:
        x = operands[0]
        one = _pair(np.array(1), np.array(1))
        if name == "exp":
            made = _pair(_powers(self._omega, x["q"], self.p), self._hash("exp", x)["q"])
            self._logs.update(zip(map(tuple, made.ravel().tolist()), map(tuple, x.ravel().tolist()), strict=True))
            return made
        if name == "log":
            made = self._hash("log", x)
            for i, pair in enumerate(map(tuple, x.ravel().tolist())):
                if pair in self._logs:
                    made.reshape(-1)[i] = self._logs[pair]
            return made
        if name == "sqrt":
            # To the power of (p + 1) / 4: multiplicative, and a root of every square, up to the sign.
            return _pair(_power(x["p"], (self.p + 1) // 4, self.p), _power(x["q"], (self.q + 1) // 4, self.q))
        if name == "sigmoid":
            return self.div(one, self.add(one, self.func("exp", self.neg(x))))
        if name == "tanh":
            e = self.func("exp", self.add(x, x))
            return self.div(self.add(e, self.neg(one)), self.add(e, one))
        if name == "abs":
            return self.max(x, self.neg(x))
        if name in ODD or name in EVEN:
            flip = x["p"] > self.p // 2
            made = self._hash(name, self.select(flip, self.neg(x), x))
            return self.select(flip, self.neg(made), made) if name in ODD else made
        made = self._hash(name, *operands)
        if name in WHOLE:
            made = self.select(np.isin(x["p"], list(self._whole)), x, made) if self._whole else made
            self._whole.update(int(p) for p in np.unique(made["p"]))
        return made

    def _hash(self, name: str, *operands: Array) -> Array:
        parts = [o[c].astype(np.uint64) for o in operands for c in ("p", "q")]
        made = mix(seed_of(name, self.seed), *parts)
        return _pair((made % np.uint64(self.p)).astype(np.int64), (mix(made) % np.uint64(self.q)).astype(np.int64))


def _pair(p: Array, q: Array) -> Array:
    made = np.empty(np.broadcast_shapes(np.shape(p), np.shape(q)), _PAIR)
    made["p"], made["q"] = p, q
    return made


def _power(base: Array, exponent: int, modulus: int) -> Array:
    result, square = np.ones_like(base), base % modulus
    while exponent:
        if exponent & 1:
            result = result * square % modulus
        square = square * square % modulus
        exponent >>= 1
    return result


def _powers(base: int, exponents: Array, modulus: int) -> Array:
    result, square, left = np.ones_like(exponents), base, exponents.copy()
    while np.any(left):
        result = np.where(left & 1, result * square % modulus, result)
        square = square * square % modulus
        left >>= 1
    return result
