"""The domain of z3's real terms, for laws that need an order: Relu, Max, Clip, Where and what is made of them.

An element is a z3 term; a claim is proved where z3 finds no assignment under which the two sides differ. Functions that
z3 does not know are uninterpreted, with what is needed of their range and sign.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import z3

from graphopt.ir.types import Array
from graphopt.prover.domains import EVEN, ODD, WHOLE
from graphopt.prover.numbers import meant
from graphopt.prover.semantics import UnsupportedError


def _each(function: Any, inputs: int) -> Any:
    ufunc = np.frompyfunc(function, inputs, 1)
    return lambda *arrays: np.asarray(ufunc(*arrays), object)


def _max(a: Any, b: Any) -> Any:
    return a if a is b else z3.If(a >= b, a, b)


def _min(a: Any, b: Any) -> Any:
    return a if a is b else z3.If(a <= b, a, b)


class Order:
    """Real terms.

    Attributes:
        facts: What is known of the terms made so far: ranges of functions, what a root is.
        needs: What must hold for them to be defined: denominators that are not zero, roots of no negative number.
    """

    name = "order"

    def __init__(self, seed: int = 0) -> None:
        self.seed = seed
        self.facts: list[Any] = []
        self.needs: list[Any] = []
        self._functions: dict[str, Any] = {}
        self._roots: dict[Any, Any] = {}
        self._add = _each(lambda a, b: a + b, 2)
        self._mul = _each(lambda a, b: a * b, 2)
        self._neg = _each(lambda a: -a, 1)
        self._div = _each(self._quotient, 2)
        self._max, self._min = _each(_max, 2), _each(_min, 2)
        self._less, self._equal = _each(lambda a, b: a < b, 2), _each(lambda a, b: a == b, 2)
        self._if = _each(lambda c, a, b: z3.If(_truth(c), a, b), 3)

    def holds(self, a: Array) -> bool:
        return a.dtype == object and not (a.size and z3.is_bool(a.flat[0]))

    def fresh(self, name: str, shape: tuple[int, ...]) -> Array:
        made = np.empty(shape, object)
        for index in np.ndindex(*shape):
            made[index] = z3.Real(f"{name}[{','.join(map(str, index))}]")
        return made

    def constant(self, values: Array) -> Array:
        values = np.asarray(values, np.float64)
        made = np.empty(values.shape, object)
        for index in np.ndindex(*values.shape):
            made[index] = self._number(float(values[index]))
        return made

    def _number(self, value: float) -> Any:
        exact = meant(value)
        if exact is None:
            raise UnsupportedError("z3 knows no infinite numbers")
        term = z3.Q(exact.rational.numerator, exact.rational.denominator)
        for name, power in (("2", exact.root2), ("pi", exact.rootpi)):
            root = self._root(z3.RealVal(2)) if name == "2" else z3.Real("root of pi")
            for _ in range(abs(power)):
                term = term * root if power > 0 else term / root
        return z3.simplify(term) if not (exact.root2 or exact.rootpi) else term

    def add(self, a: Array, b: Array) -> Array:
        return np.asarray(self._add(a, b), object)

    def neg(self, a: Array) -> Array:
        return np.asarray(self._neg(a), object)

    def mul(self, a: Array, b: Array) -> Array:
        return np.asarray(self._mul(a, b), object)

    def _quotient(self, a: Any, b: Any) -> Any:
        if not z3.is_rational_value(b):
            self.needs.append(b != 0)
        return a / b

    def div(self, a: Array, b: Array) -> Array:
        return np.asarray(self._div(a, b), object)

    def max(self, a: Array, b: Array) -> Array:
        return np.asarray(self._max(a, b), object)

    def min(self, a: Array, b: Array) -> Array:
        return np.asarray(self._min(a, b), object)

    def less(self, a: Array, b: Array) -> Array:
        return np.asarray(self._less(a, b), object)

    def equal(self, a: Array, b: Array) -> Array:
        return np.asarray(self._equal(a, b), object)

    def select(self, condition: Array, a: Array, b: Array) -> Array:
        return np.asarray(self._if(condition, a, b), object)

    def _root(self, x: Any) -> Any:
        """The square root: the number that is not negative and has x for its square, where x is not negative."""
        held = self._roots.get(x)
        if held is None:
            held = self._roots[x] = z3.FreshReal("root")
            self.facts.append(z3.Implies(x >= 0, z3.And(held >= 0, held * held == x)))
            self.needs.append(x >= 0)
        return held

    def func(self, name: str, *operands: Array) -> Array:
        if name == "abs":
            return np.asarray(self.max(operands[0], self.neg(operands[0])), object)
        if name == "sign":
            return np.asarray(
                _each(lambda x: z3.If(x > 0, 1.0, z3.If(x < 0, -1.0, z3.RealVal(0))), 1)(operands[0]), object
            )
        if name == "sqrt":
            return np.asarray(_each(self._root, 1)(operands[0]), object)
        if name == "floor":
            return np.asarray(_each(lambda x: z3.ToReal(z3.ToInt(x)), 1)(operands[0]), object)
        if name == "ceil":
            return np.asarray(_each(lambda x: -z3.ToReal(z3.ToInt(-x)), 1)(operands[0]), object)
        return np.asarray(_each(lambda *xs: self._apply(name, *xs), len(operands))(*operands), object)

    def _apply(self, name: str, *xs: Any) -> Any:
        f = self._functions.setdefault(name, z3.Function(name, *[z3.RealSort()] * len(xs), z3.RealSort()))
        y = f(*xs)
        if name == "exp":
            self.facts.append(y > 0)
        elif name == "sigmoid":
            self.facts += [y > 0, y < 1]
        elif name == "tanh":
            self.facts += [y > -1, y < 1]
        elif name == "log" and z3.is_app(xs[0]) and xs[0].decl().kind() == z3.Z3_OP_ADD:
            self.facts.append(z3.Implies(xs[0] > 1, y > 0))
        if name in ODD:
            self.facts.append(f(-xs[0]) == -y)
        if name in EVEN:
            self.facts.append(f(-xs[0]) == y)
        if name in WHOLE:
            self.facts += [f(y) == y, z3.ToReal(z3.ToInt(y)) == y]
        return y


def _truth(condition: Any) -> Any:
    return condition if z3.is_expr(condition) else z3.BoolVal(bool(condition))


def refute(
    domain: Order, left: Array, right: Array, defined: Sequence[Any], asked: Sequence[Any], milliseconds: int
) -> tuple[str, dict[str, float]]:
    """Ask z3 for an assignment under which two arrays differ, or the second is not defined.

    Args:
        domain: The domain that made the terms.
        left: The first.
        right: The second.
        defined: What makes the first defined.
        asked: What makes the second defined.
        milliseconds: Time limit of a question.

    Returns:
        ``("proved", {})``, ``("differs", values by element name)`` or ``("unknown", {})``.
    """
    solver = z3.Solver()
    solver.set("timeout", milliseconds)
    solver.add(*domain.facts, *defined)
    different = [
        a != b
        for a, b in zip(left.flat, right.flat, strict=True)
        if not (a is b or (z3.is_expr(a) and z3.is_expr(b) and a.eq(b)))
    ]
    known = {d.get_id() for d in defined if z3.is_expr(d)}
    undefined = [z3.Not(n) for n in asked if z3.is_expr(n) and n.get_id() not in known]
    for question in (*undefined, *different):
        solver.push()
        solver.add(question)
        found = solver.check()
        if found == z3.sat:
            model = solver.model()
            values = {str(d): _float(model[d]) for d in model.decls() if d.arity() == 0 and str(d).endswith("]")}
            return "differs", values
        if found == z3.unknown:
            return "unknown", {}
        solver.pop()
    return "proved", {}


def _float(value: Any) -> float:
    if z3.is_algebraic_value(value):
        value = value.approx(12)
    return float(value.as_fraction()) if z3.is_rational_value(value) else 0.0
