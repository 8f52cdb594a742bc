"""Enumerate the graphs of a world bottom-up, each with its fingerprint.

A *term* is an operator applied to values of terms made before; equal terms are one term. Its fingerprint is its value on
random elements of two prime fields (:class:`graphopt.prover.residues.Field`, with the prover's own semantics): equal
fingerprints make a class, and larger terms are built from one representative of each class only. Whatever a term over
another member says follows from the two members being equal and the term over the representative, so nothing is lost but
laws that follow from smaller ones.

A value costs what its fingerprint costs, because its operands' elements are kept; those of the largest terms are not,
since nothing is built on them.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from graphopt.ir.types import Array
from graphopt.prover.residues import PRIMES, Field
from graphopt.prover.semantics import ContradictionError, UnsupportedError
from graphopt.synth.operators import TABLE, Form, Shape, apply, results
from graphopt.synth.worlds import World

_ELEMENTS = 512  # of a value, at most
_CHUNK = 256  # terms computed at once
_MEMBERS = 8  # of a class that are remembered
_CUTS = frozenset({"Split", "Slice"})
_ORDERS = frozenset({"Relu", "MaxPool", "ReduceMax"})
_CONFIRMATIONS = 6  # draws of random elements that two values must agree on where elements are compared


@dataclass(frozen=True, slots=True)
class Value:
    """A result of a term, or an input.

    Attributes:
        index: Its number in the bank.
        term: The term, -1 for an input or a number.
        out: Which result of the term.
        shape: Its shape.
        leaves: Inputs that it depends on, as bits; none for a number.
        terms: The terms that compute it.
    """

    index: int
    term: int
    out: int
    shape: Shape
    leaves: int
    terms: frozenset[int]


@dataclass(frozen=True, slots=True)
class Term:
    """An operator applied to values.

    Attributes:
        op: Operator type.
        form: Its attributes and constant operands.
        operands: Numbers of the values.
        results: Numbers of its own values.
    """

    op: str
    form: Form
    operands: tuple[int, ...]
    results: tuple[int, ...]


class Bank:
    """The terms of a world.

    Args:
        world: Inputs and operators.
        seed: Of the random elements.
        limit: Terms of one number of operators that are made at most.

    Attributes:
        cut: Numbers of operators at which the limit was reached.
        classes: Values by fingerprint, the first few in order; the first is what larger terms are built from.
    """

    def __init__(self, world: World, seed: int = 0, limit: int = 400_000) -> None:
        self.world, self.limit = world, limit
        self.values: list[Value] = []
        self.terms: list[Term] = []
        self.classes: dict[bytes, list[int]] = {}
        self.cut: list[int] = []
        self._fields = [Field(len(PRIMES) * seed + i, i) for i in range(len(PRIMES))]
        self._ordered: set[int] = set()  # terms that compare elements
        self._class: list[bytes] = []
        self._data: dict[int, tuple[Array, ...]] = {}
        self._roles = _roles(world)
        self._fresh: dict[int, list[int]] = defaultdict(list)  # representatives by number of operators
        for i, (name, shape) in enumerate(world.leaves):
            self._leaf(shape, 1 << i, tuple(f.fresh(name, shape) for f in self._fields))
        for number in world.numbers:
            self._leaf((), 0, tuple(f.constant(np.array(number)) for f in self._fields))

    def _leaf(self, shape: Shape, bit: int, data: tuple[Array, ...]) -> None:
        value = Value(len(self.values), -1, 0, shape, bit, frozenset())
        self.values.append(value)
        self._data[value.index] = data
        self._represent(value, _fingerprint(shape, data))

    def _represent(self, value: Value, fingerprint: bytes) -> bool:
        """Enter a value into its class; whether it represents it."""
        key = fingerprint
        while key in self.classes and not self._confirmed(value, self.values[self.classes[key][0]]):
            key = hashlib.blake2b(key, digest_size=16).digest()
        members = self.classes.setdefault(key, [])
        self._class.append(key)
        if len(members) < _MEMBERS:
            members.append(value.index)
        if members[0] != value.index:
            return False
        self._fresh[len(value.terms)].append(value.index)
        return True

    def members(self, index: int) -> Sequence[int]:
        """The first few values of a value's class, in the order in which they were made."""
        return self.classes[self._class[index]]

    def numbers_of(self, values: Sequence[Value]) -> set[int]:
        """The numbers that some values are computed from."""
        read = {o for v in values for t in v.terms for o in self.terms[t].operands}
        return {o for o in read if self.values[o].term < 0 and not self.values[o].leaves}

    def number(self, index: int) -> float:
        """The number that a value without inputs is."""
        return self.world.numbers[index - len(self.world.leaves)]

    def name(self, index: int, taken: dict[Any, int]) -> str:
        """A name for an input: that of the first one of its kind that is not taken."""
        role, group = self._roles[index]
        taken[role] += 1
        return self.world.leaves[group[taken[role] - 1]][0]

    def same_without(self, values: Sequence[Value], others: Sequence[Value], cut: Sequence[int]) -> bool:
        """Whether values still agree, each with its counterpart, when some inside them are replaced by random elements."""
        return all(self._agree(values, others, cut, draw) for draw in range(_CONFIRMATIONS))

    def _agree(self, values: Sequence[Value], others: Sequence[Value], cut: Sequence[int], draw: int) -> bool:
        """Whether values agree on new random elements."""
        fields = [Field(self._fields[-1].seed + 1 + draw, draw % len(PRIMES))]
        known: dict[int, tuple[Array, ...]] = {
            n: (fields[0].fresh(name, shape),) for n, (name, shape) in enumerate(self.world.leaves)
        }
        known |= {n + len(known): (fields[0].constant(np.array(x)),) for n, x in enumerate(self.world.numbers)}
        known |= {c: (fields[0].fresh(f"cut {c}", self.values[c].shape),) for c in cut}
        try:
            made = [
                (self._again(v.index, known, fields), self._again(o.index, known, fields))
                for v, o in zip(values, others, strict=True)
            ]
        except (ContradictionError, UnsupportedError):
            return False
        return all(np.array_equal(a["p"], b["p"]) for (a,), (b,) in made)

    def _again(self, index: int, known: dict[int, tuple[Array, ...]], fields: Sequence[Field]) -> tuple[Array, ...]:
        """Elements of a value, computed from inputs or from inner values that are given."""
        if index in known:
            return known[index]
        term = self.terms[self.values[index].term]
        operands = [self._again(o, known, fields) for o in term.operands]
        made = [apply(term.op, term.form, [o[i] for o in operands], f) for i, f in enumerate(fields)]
        for out, r in enumerate(term.results):
            known.setdefault(r, tuple(m[out] for m in made))  # what is given stays
        return known[index]

    def _confirmed(self, value: Value, other: Value) -> bool:
        """Whether a value belongs to the class of another one.

        Among a few elements a random order may make Relu the identity: where there is an order, more elements are asked.
        """
        if not self._ordered & (value.terms | other.terms):
            return True
        return all(self._agree([value], [other], (), draw) for draw in range(_CONFIRMATIONS))

    def grow(self, size: int, last: bool) -> Iterator[int]:
        """Make all terms of ``size`` operators; the numbers of the values, in the order in which they are made.

        Args:
            size: Operators, those of the operands included.
            last: Nothing will be built on these.
        """
        made = 0
        for op in self.world.ops:
            groups: dict[tuple[Form, tuple[Shape, ...]], list[tuple[int, ...]]] = defaultdict(list)
            for operands in self._operands(op, size, last):
                shapes = tuple(self.values[v].shape for v in operands)
                for form in TABLE[op].forms(shapes, self.world.sizes):
                    groups[form, shapes].append(operands)
            for (form, shapes), rows in groups.items():
                outs = results(op, form, shapes)
                if not outs or any(prod(s) > _ELEMENTS or len(s) > 4 for s in outs):
                    continue
                for start in range(0, len(rows), _CHUNK):
                    if made >= self.limit:
                        if size not in self.cut:
                            self.cut.append(size)
                        return
                    chunk = rows[start : start + _CHUNK]
                    made += len(chunk)
                    yield from self._make(op, form, outs, chunk, last)

    def _make(
        self, op: str, form: Form, shapes: tuple[Shape, ...], rows: list[tuple[int, ...]], last: bool
    ) -> Iterator[int]:
        for operands, made in zip(rows, self._compute(op, form, rows), strict=True):
            if made is None or any(_constant(array, PRIMES[0]) for array in made[0]):
                continue
            index = len(self.terms)
            inner = frozenset().union(*(self.values[v].terms for v in operands)) | {index}
            leaves = 0
            for v in operands:
                leaves |= self.values[v].leaves
            if op in _ORDERS:
                self._ordered.add(index)
            first = len(self.values)
            self.terms.append(Term(op, form, operands, tuple(range(first, first + len(shapes)))))
            for out, shape in enumerate(shapes):
                value = Value(len(self.values), index, out, shape, leaves, inner)
                self.values.append(value)
                data = tuple(field[out] for field in made)
                if self._represent(value, _fingerprint(shape, data)) and not last:
                    self._data[value.index] = data
                yield value.index

    def _compute(self, op: str, form: Form, rows: list[tuple[int, ...]]) -> Iterator[list[list[Array]] | None]:
        """For each row of operands the results over each field, ``None`` where the field divides by zero."""
        if op in ("Div", "Reciprocal"):
            keep = [all((self._data[row[-1]][i]["p"] != 0).all() for i in range(len(PRIMES))) for row in rows]
        else:
            keep = [True] * len(rows)
        good = [row for row, kept in zip(rows, keep, strict=True) if kept]
        computed = iter(self._together(op, form, good) if TABLE[op].pointwise else self._apart(op, form, good))
        for kept in keep:
            yield next(computed) if kept else None

    def _apart(self, op: str, form: Form, rows: list[tuple[int, ...]]) -> Iterator[list[list[Array]] | None]:
        for row in rows:
            try:
                yield [apply(op, form, [self._data[v][i] for v in row], f) for i, f in enumerate(self._fields)]
            except (ContradictionError, UnsupportedError):
                yield None

    def _together(self, op: str, form: Form, rows: list[tuple[int, ...]]) -> Iterator[list[list[Array]] | None]:
        """Operands of one shape stacked along a new first axis, and computed at once."""
        if not rows:
            return
        rank = max(len(self.values[v].shape) for v in rows[0])
        made = []
        for i, field in enumerate(self._fields):
            stacked = []
            for k, v in enumerate(rows[0]):
                shape = self.values[v].shape
                whole = np.stack([self._data[row[k]][i] for row in rows])
                stacked.append(whole.reshape(len(rows), *(1,) * (rank - len(shape)), *shape))
            made.append(apply(op, form, stacked, field)[0])
        for n in range(len(rows)):
            yield [[m[n]] for m in made]

    def _operands(self, op: str, size: int, last: bool) -> Iterator[tuple[int, ...]]:
        """Operands with which the operator makes a term of exactly ``size`` operators."""
        slots = [self._bits(names) for names in self.world.slots.get(op, ())]
        once = last and not self.world.any_order
        for arity in TABLE[op].arities:
            for found in self._choose(op, arity, size - 1, (), frozenset(), slots):
                leaves = [self.values[v].leaves for v in found]
                if any(leaves) and not (once and self._renamed(found)) and not self._useless(op, found):
                    yield found

    def _useless(self, op: str, operands: tuple[int, ...]) -> bool:
        """Whether something is joined with itself or with a part of itself, or a part is cut from a part.

        Nobody builds such graphs, and there are a hundred laws about which part of which part they hold.
        """
        if op in _CUTS:
            return self._cut_from(operands[0]) is not None
        if op != "Concat":
            return False
        pieces = [p for v in operands for p in self._pieces(v)]
        return len(set(pieces)) < len(pieces) or any(self._cut_from(p) in pieces for p in pieces)

    def _pieces(self, index: int) -> list[int]:
        """The values that a value is a concatenation of: itself where it is none."""
        term = self.values[index].term
        if term < 0 or self.terms[term].op != "Concat":
            return [index]
        return [p for v in self.terms[term].operands for p in self._pieces(v)]

    def _cut_from(self, index: int) -> int | None:
        """The value that a value is a part of, if it was cut from one."""
        term = self.values[index].term
        return self.terms[term].operands[0] if term >= 0 and self.terms[term].op in _CUTS else None

    def _bits(self, names: str) -> int:
        return sum(1 << i for i, (leaf, _) in enumerate(self.world.leaves) if leaf in names)

    def _choose(
        self, op: str, left: int, inner: int, chosen: tuple[int, ...], terms: frozenset[int], slots: Sequence[int]
    ) -> Iterator[tuple[int, ...]]:
        if left == 0:
            if len(terms) == inner:
                yield chosen
            return
        least = chosen[-1] if chosen and TABLE[op].commutative else -1
        need = slots[len(chosen)] if len(chosen) < len(slots) else 0
        for v in self._candidates(left, inner, terms):
            value = self.values[v]
            if v < least or (need and not value.leaves & need):
                continue
            union = terms | value.terms
            if len(union) <= inner:
                yield from self._choose(op, left - 1, inner, (*chosen, v), union, slots)

    def _candidates(self, left: int, inner: int, terms: frozenset[int]) -> Iterator[int]:
        """Representatives that may be the next operand."""
        room = inner - len(terms)
        if room == 0:
            # Nothing new: inputs, and what the terms chosen already give.
            yield from self._fresh[0]
            inside = sorted(r for t in terms for r in self.terms[t].results)
            yield from (v for v in inside if v in self._data)
            return
        smallest = room if left == 1 else 0
        for size in range(smallest, inner + 1):
            yield from self._fresh[size]

    def _renamed(self, operands: tuple[int, ...]) -> bool:
        """Whether inputs of one shape appear in another order than they stand in the world: another term is the same."""
        order: list[int] = []
        seen: set[int] = set()
        stack = list(reversed(operands))
        while stack:
            value = self.values[stack.pop()]
            if value.index in seen:
                continue
            seen.add(value.index)
            if value.term >= 0:
                stack.extend(reversed(self.terms[value.term].operands))
            elif value.leaves:
                order.append(value.index)
        reached: dict[Any, int] = {}
        for leaf in order:
            role, group = self._roles[leaf]
            if group.index(leaf) != reached.get(role, 0):
                return True
            reached[role] = reached.get(role, 0) + 1
        return False


def _roles(world: World) -> list[tuple[Any, list[int]]]:
    """For each input a name of what it may be exchanged with, and the inputs of that name."""

    # Inputs of one shape that some operator takes for different operands are no more alike than those of different shapes.
    def role(name: str) -> str:
        return next((names for slots in world.slots.values() for names in slots if name in names), "")

    keys = [(shape, role(name)) for name, shape in world.leaves]
    return [(key, [i for i, other in enumerate(keys) if other == key]) for key in keys]


def _constant(array: Array, prime: int) -> bool:
    """Whether the elements do not depend on the inputs: no graph that was simplified holds such a thing."""
    first = int(array["p"].flat[0]) if array.size else 0
    small = min(first, prime - first) <= 4
    return small if array.size <= 1 else bool((array["p"] == first).all())


def _fingerprint(shape: Shape, data: Sequence[Array]) -> bytes:
    hashed = hashlib.blake2b(repr(shape).encode(), digest_size=16)
    for array in data:
        hashed.update(np.ascontiguousarray(array["p"]).tobytes())
    return hashed.digest()
