"""Pairs of graphs with equal fingerprints: the candidates for rules.

A pair says that one graph may be replaced by another. Pairs are taken within the classes of a :class:`Bank`, each member
with the smallest one whose inputs it has, and for the two results of a Split with what else computes both. What is common
to the two sides inside is replaced by an input, where they are equal all the same (Parker 2021, figure 3.2: a common
subgraph); a common operator at the root does not come up, because graphs are built of representatives only.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from graphopt.synth.bank import Bank, Term, Value
from graphopt.synth.operators import TABLE, Form, Param, Shape

Ref = str | float | tuple[int, int]
"""An input by name, a number, or a result of a node: its place in the side and which of its results."""

_COMMON = "adeho"  # names of what both sides have in common; no world has inputs of these names
_COMBINATIONS = 6  # of other ways to compute the two results of a Split


@dataclass(frozen=True, slots=True)
class Node:
    """One operator of a side.

    Attributes:
        op: Operator type.
        form: Attributes and constant operands.
        operands: What it reads, constants left out.
    """

    op: str
    form: Form
    operands: tuple[Ref, ...]


@dataclass(frozen=True, slots=True)
class Side:
    """One of the two graphs.

    Attributes:
        nodes: Each after those it reads.
        roots: What it computes.
    """

    nodes: tuple[Node, ...]
    roots: tuple[Ref, ...]

    @property
    def inputs(self) -> tuple[str, ...]:
        """Names of the inputs, in order of appearance."""
        read = [r for node in self.nodes for r in node.operands] + list(self.roots)
        return tuple(dict.fromkeys(r for r in read if isinstance(r, str)))

    @property
    def size(self) -> int:
        """Operators, counted as often as their result is used."""

        def of(ref: Ref) -> int:
            return 1 + sum(map(of, self.nodes[ref[0]].operands)) if isinstance(ref, tuple) else 0

        own = {r[0] for r in self.roots if isinstance(r, tuple)}
        # Results of one Split are used together.
        return sum(of(next(r for r in self.roots if isinstance(r, tuple) and r[0] == n)) for n in own)


@dataclass(frozen=True, slots=True)
class Pair:
    """A graph and what may replace it.

    Attributes:
        shapes: Shape of each input of ``before``.
        before: The graph.
        after: The other one.
    """

    shapes: Mapping[str, Shape]
    before: Side
    after: Side

    @property
    def size(self) -> int:
        """Operators of both sides together, those whose result is used twice counted twice.

        So a law with two inputs is as large as what it becomes when they are the same.
        """
        return self.before.size + self.after.size

    @property
    def nodes(self) -> tuple[Node, ...]:
        """Those of both sides."""
        return (*self.before.nodes, *self.after.nodes)

    @property
    def ops(self) -> frozenset[str]:
        """Operators of both sides."""
        return frozenset(node.op for node in self.nodes)

    def about(self, ops: Collection[str]) -> bool:
        """Whether one of some operators is in it, if there are any."""
        return not ops or not self.ops.isdisjoint(ops)

    def skeleton(self) -> tuple[Any, ...]:
        """The pair without names, shapes and attributes: equal for instances of one law."""
        number = {name: i for i, name in enumerate(self.before.inputs)}

        def bare(side: Side) -> tuple[Any, ...]:
            def of(ref: Ref) -> Any:
                return f"i{number[ref]}" if isinstance(ref, str) else ref

            nodes = tuple((n.op, *map(of, n.operands)) for n in side.nodes)
            return nodes, tuple(map(of, side.roots))

        return bare(self.before), bare(self.after)

    def to_json(self) -> list[Any]:
        """For checkpoints and for other processes."""

        def plain(side: Side) -> list[Any]:
            nodes = [
                [n.op, [[p.name, p.kind, p.value, p.operand] for p in n.form], list(n.operands)] for n in side.nodes
            ]
            return [nodes, list(side.roots)]

        return [dict(self.shapes), plain(self.before), plain(self.after)]

    @staticmethod
    def from_json(data: Sequence[Any]) -> Pair:
        """What :meth:`to_json` gave."""

        def tupled(value: Any) -> Any:
            return tuple(value) if isinstance(value, list) else value

        def side(given: Sequence[Any]) -> Side:
            nodes = tuple(
                Node(op, tuple(Param(n, k, tupled(v), o) for n, k, v, o in form), tuple(map(tupled, operands)))
                for op, form, operands in given[0]
            )
            return Side(nodes, tuple(map(tupled, given[1])))

        shapes, before, after = data
        return Pair({name: tuple(shape) for name, shape in shapes.items()}, side(before), side(after))


class Pairs:
    """The pairs of a bank."""

    def __init__(self, bank: Bank) -> None:
        self.bank = bank
        self._seen: set[tuple[Any, ...]] = set()

    def of(self, index: int) -> Iterator[Pair]:
        """Pairs of a value with a smaller member of its class, in both directions where inputs allow it."""
        value = self.bank.values[index]
        for other in self.bank.members(index):
            if other == index:
                return
            if not self.bank.values[other].leaves & ~value.leaves:
                yield from self._pairs([value], [self.bank.values[other]])
                if not value.leaves & ~self.bank.values[other].leaves:
                    yield from self._pairs([self.bank.values[other]], [value])
                return

    def of_splits(self) -> Iterator[Pair]:
        """Other ways to compute both results of a Split, each with the Split. The other direction is two pairs of :meth:`of`."""
        values = self.bank.values
        for term in self.bank.terms:
            if len(term.results) < 2:
                continue
            own = [values[r] for r in term.results]
            members = [[values[m] for m in self._smallest(r) if values[m].term != own[0].term] for r in term.results]
            ways = [w for w in itertools.product(*members) if not own[0].leaves & ~(w[0].leaves | w[1].leaves)]
            ways.sort(key=lambda w: (len(w[0].terms | w[1].terms), w[0].index, w[1].index))
            for way in ways[:_COMBINATIONS]:
                yield from self._pairs(list(way), own)

    def _smallest(self, index: int) -> list[int]:
        """The members of a value's class with the fewest operators."""
        members = self.bank.members(index)
        least = len(self.bank.values[members[0]].terms)
        return [m for m in members if len(self.bank.values[m].terms) == least]

    def _pairs(self, values: list[Value], others: list[Value]) -> Iterator[Pair]:
        if frozenset().union(*(v.terms for v in values)) <= frozenset().union(*(v.terms for v in others)):
            return  # nothing would go
        pair = self._pair(values, others, self._common(values, others))
        if pair is not None:
            key = (tuple(sorted(pair.shapes.items())), pair.before, pair.after)
            if key not in self._seen:
                self._seen.add(key)
                yield pair

    def _common(self, values: list[Value], others: list[Value]) -> list[int]:
        """Inner values of both sides that may be anything: with random elements in their place, the sides are still equal."""
        bank = self.bank
        terms = frozenset().union(*(v.terms for v in values)) & frozenset().union(*(v.terms for v in others))
        numbers = sorted(bank.numbers_of(values) & bank.numbers_of(others))
        # The outermost of what is common, all of it at once; if that is too much, piece by piece.
        inner = frozenset(t for term in terms for o in bank.terms[term].operands for t in bank.values[o].terms)
        outer = [r for t in sorted(terms - inner) for r in bank.terms[t].results]
        for cut in [
            numbers + outer,
            numbers,
            outer,
            *([r] for t in sorted(terms, reverse=True) for r in bank.terms[t].results),
        ]:
            if cut and bank.same_without(values, others, cut):
                return cut
        return []

    def _pair(self, values: list[Value], others: list[Value], cut: Sequence[int]) -> Pair | None:
        names: dict[int, str] = {}
        taken: dict[Any, int] = defaultdict(int)
        shapes: dict[str, Shape] = {}
        before = self._side(values, cut, names, taken, shapes, True)
        after = before and self._side(others, cut, names, taken, shapes, False)
        if before is None or after is None or not before.nodes or before == after:
            return None
        return Pair(shapes, before, after)

    def _side(
        self,
        roots: list[Value],
        cut: Sequence[int],
        names: dict[int, str],
        taken: dict[Any, int],
        shapes: dict[str, Shape],
        name_new: bool,
    ) -> Side | None:
        """A side with its inputs named in order of appearance; ``None`` if it reads what the other side does not."""
        bank = self.bank
        nodes: list[Node] = []
        place: dict[int, int] = {}

        def ref(index: int) -> Ref | None:
            value = bank.values[index]
            if value.term < 0 or index in cut:
                if not value.leaves and index not in cut:
                    return bank.number(index)
                if index not in names:
                    if not name_new:
                        return None
                    common = next((c for c in _COMMON if c not in shapes), f"{_COMMON[0]}{len(shapes)}")
                    name = common if index in cut else bank.name(index, taken)
                    names[index] = name
                    shapes[name] = value.shape
                return names[index]
            if value.term not in place:
                term = bank.terms[value.term]
                operands = [ref(o) for o in self._ordered(term, cut)]
                if any(o is None for o in operands):
                    return None
                place[value.term] = len(nodes)
                nodes.append(Node(term.op, term.form, tuple(o for o in operands if o is not None)))
            return place[value.term], value.out

        found = [ref(v.index) for v in roots]
        if any(r is None or isinstance(r, float) for r in found):
            return None
        return Side(tuple(nodes), tuple(r for r in found if r is not None))

    def _ordered(self, term: Term, cut: Sequence[int]) -> Sequence[int]:
        """A term's operands: those that may change places in one order, numbers last and inputs before what is computed."""
        if not TABLE[term.op].commutative:
            return term.operands
        values = self.bank.values

        def key(v: int) -> tuple[bool, bool, int]:
            return not values[v].leaves and v not in cut, values[v].term >= 0 and v not in cut, v

        return sorted(term.operands, key=key)
