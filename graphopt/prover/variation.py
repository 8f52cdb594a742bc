"""Ways to change a case of a rule: each gives all cases that differ from it in one respect, or draws one that differs in several."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache, partial
from typing import Any

import numpy as np

from graphopt.ir.types import FLOATS, NUMPY_NAMES
from graphopt.prover.attributes import Change, given, operator_of, opset_of, same, since, within
from graphopt.prover.cases import Case, contents_read, operands, places, put
from graphopt.prover.contents import (
    SYMBOLS,
    fitting,
    halved,
    hidden,
    largest,
    mapped,
    named,
    refilled,
    reshaped,
    retyped,
    squared,
)
from graphopt.prover.schemas import (
    MEANINGLESS,
    OPSETS,
    attributes_of,
    dtypes_of,
    first_with,
    lengths_of,
    most_operands,
    opsets_of,
    readers,
    said_by,
    values_of,
)
from graphopt.prover.values import FACTORS, MOST_TIMES, SHAPES, makes_sums
from graphopt.rewrite.examples import DEFAULT_OPSET, Operand
from graphopt.rewrite.pattern import Line
from graphopt.rewrite.schema import Rule

_WEIGHTED = frozenset({"MatMul", "Gemm", "Conv", "ConvTranspose", "Einsum"})
_VALUED = 12  # drawn of each of four forms of an example
_TOGETHER = 64  # choices of operators for all nodes of a pattern that are gone through
_SIZES = (1, 2, 3, 4, 5, 6, 7)
_MANY = 64  # of the operands that a rule names, those that are tried
_LONGEST = 512  # of the sizes that a rule names, those that are tried beside other dimensions


class Variation:
    """Ways to change a case. Each way gives a list of new cases, perhaps empty.

    Args:
        rule: The rule.
        rng: For what is drawn.
        examples: All the rule's examples.
    """

    def __init__(self, rule: Rule, rng: np.random.Generator, examples: list[Case]) -> None:
        self.rule, self.rng, self.examples = rule, rng, examples
        self._dtypes_of = cache(partial(dtypes_of, rule))
        self.captured = [(a, v, line) for line in rule.match for a, v in line.captures]
        self.items = [i for line in rule.match for _, many in line.lists for i in many if isinstance(i, str)]
        self.rests = [(line.rest, line) for line in rule.match if line.rest and line.rest != "_"]
        self.operators = [(line.op_variable, line) for line in rule.match if line.op_variable]
        self.optional = sorted({o.name for line in rule.match for o in line.operands if o.kind == "optional"})
        self.opsets, self.read, self.lengths = opsets_of(rule), contents_read(rule), lengths_of(rule)
        self._sums = rule.claim == "real" and makes_sums(rule)
        self.said = sorted(n for n in said_by(rule) if type(n) in (int, float))
        ways: list[Callable[[Case], list[Case]]] = [self._sizes, self._singles, self._ranks, self._symbols]
        ways += [self._dtypes, self._opsets, self._constness, self.contents, self._zeros, self._spread]
        ways += [self.optionals] * bool(self.optional) + [self._variadics] + [self._operator] * bool(self.operators)
        ways += [self._attributes] * bool(self.captured or self.rests or self.items)
        self.ways = ways
        # Only where several things change together, and much is drawn.
        self.drawn: list[Callable[[Case], list[Case]]] = [self._rename, self._equal, self._cube, self._measure]
        self.drawn += [self._alike] * (len(self.captured) > 1)

    def singles(self, case: Case) -> list[Case]:
        """All cases that differ from one in a single respect, the ways of differing in turn."""
        found = [way(case) for way in self.ways]
        for made in found:
            self.rng.shuffle(made)
        return [c for group in itertools.zip_longest(*found) for c in group if c is not None]

    def __call__(self, case: Case) -> Case:
        """A case with one change, drawn."""
        ways = self.drawn if self.rng.random() < 0.45 else self.ways
        made = self._pick(ways)(case)
        return self._pick(made) if made else case

    def _pick(self, items: Any) -> Any:
        return items[int(self.rng.integers(len(items)))]

    # -- operands -------------------------------------------------------------------------------------------------

    def _each(self, case: Case, change: Callable[[Operand], Operand]) -> Case:
        for place, operand in places(case):
            case = put(case, place, change(operand))
        return case

    def _resized(self, case: Case, to: dict[Any, Any]) -> Case:
        """A case with dimensions of some sizes changed everywhere; constants take no symbols."""

        def resized(operand: Operand) -> Operand:
            dims = tuple(to.get(d, d) for d in operand.dims)
            fits = not (operand.const and any(isinstance(d, str) for d in dims))
            return reshaped(operand, dims) if fits else operand

        return self._each(case, resized)

    def _sizes(self, case: Case) -> list[Case]:
        """Dimensions of one size get another one, everywhere."""
        sizes = sorted({d for o in operands(case) for d in o.dims}, key=str)
        # Where one dimension is very long the others are 1, or operands were too large.
        others = {to: dict.fromkeys(sizes, 1) if to > _LONGEST else {} for to in self.lengths}
        return [self._resized(case, {**others[to], size: to}) for size in sizes for to in self.lengths if to != size]

    def _singles(self, case: Case) -> list[Case]:
        """One dimension of one operand changes alone."""
        made = []
        for place, operand in places(case):
            for i, dim in enumerate(operand.dims):
                for to in (1, 5, *(() if operand.const else ("S",))):
                    if dim != to:
                        dims = (*operand.dims[:i], to, *operand.dims[i + 1 :])
                        made.append(put(case, place, reshaped(operand, dims)))
        return made

    def _ranks(self, case: Case) -> list[Case]:
        """One operand, or all of them, get a dimension more or less."""
        every = [o for o in operands(case) if o.dtype in FLOATS or o.data is None]
        most = max((len(o.dims) for o in every), default=0)
        made = []
        for size in (2, 1):
            made.append(self._each(case, lambda o, n=size: reshaped(o, (n, *o.dims)) if len(o.dims) == most else o))  # type: ignore[misc]
        made.append(self._each(case, lambda o: reshaped(o, o.dims[1:]) if len(o.dims) == most else o))
        for place, operand in places(case):
            dims = operand.dims
            forms = [(2, *dims), (1, *dims), (*dims, 1), (*dims, 3), ()] + ([dims[1:], dims[:-1]] if dims else [])
            made += [put(case, place, reshaped(operand, form)) for form in forms]
        return made

    def _symbols(self, case: Case) -> list[Case]:
        """Dimensions become symbols: all of one size, each for itself, all at the front."""
        free = [(p, o) for p, o in places(case) if not o.const]
        sizes = sorted({d for _, o in free for d in o.dims if isinstance(d, int)})
        made = [self._resized(case, {size: "S"}) for size in sizes]
        made.append(self._resized(case, dict(zip(sizes, SYMBOLS, strict=False))))
        front = case
        for place, operand in free:
            front = put(front, place, replace(operand, dims=("S", *operand.dims[1:]) if operand.dims else ()))
        made += [hidden(case), hidden(case, ones=False, unknown=True), front]
        symbols = sorted({d for _, o in free for d in o.dims if isinstance(d, str)})
        return made + [self._resized(case, {symbol: to}) for symbol in symbols for to in (1, 4)]

    def symbolised(self, case: Case) -> Case:
        """A case with symbols for the sizes of all operands that are no constants, equal ones for equal sizes or not."""
        return named(case, FLOATS) if self.rng.random() < 0.5 else hidden(case, FLOATS, ones=False)

    def loosened(self, case: Case) -> Case:
        """A case whose floating-point constants may hold anything: what examples say is round."""
        return self._each(case, lambda o: replace(o, data=None) if o.const and o.dtype in FLOATS else o)

    def squared(self, case: Case) -> Case:
        """A case in which all sizes but 1 are one: types do not tell a matrix from its transpose then."""
        return squared(case, int(self._pick((2, 3))))

    def freed(self, case: Case) -> list[Case]:
        """Each value of each attribute with a constant that may hold anything: what a sign does may show in one mode only."""
        chosen = [(place, o) for place, o in places(case) if o.const and o.dtype in FLOATS and o.data is not None]
        free = [put(case, place, replace(o, data=None)) for place, o in chosen]
        made = [change(c) for c in free for changes in self.choices(c) for change in changes[1:]]
        self.rng.shuffle(made)
        return made

    def valued(self, case: Case) -> list[Case]:
        """Captured attributes together, drawn: one value for all of a name, or one for each; at several shapes of the operands."""
        if len(self.captured) < 2:
            return []
        deeper = self._ranks(case)[0]
        bases = [base for base in (case, deeper, self.squared(case), self.squared(deeper)) for _ in range(_VALUED)]
        return [self._valued(base) for base in bases]

    def _valued(self, case: Case) -> Case:
        made = {**case}
        alike = self.rng.random() < 0.5
        drawn: dict[str, Any] = {}
        for attribute, variable, line in self.captured:
            values = self._values(made, *operator_of(made, line), attribute, made.get(variable))
            if values:
                value = self._pick(values)
                made[variable] = drawn.setdefault(attribute, value) if alike else value
        return made

    def choices(self, case: Case) -> Iterator[list[Change]]:
        """What each attribute and each operator of a case may be, as changes of a case; none of it stands first."""
        for attribute, variable, line in self.captured:
            if variable in case:
                values = self._values(case, *operator_of(case, line), attribute, case[variable])
                yield [same, *(partial(given, variable, value, 0) for value in values if value != case[variable])]
        for rest, line in self.rests:
            yield from ([same, *changes] for changes in self._rest(case, rest, line))
        for name, line in self.operators:
            yield [same, *(partial(given, name, f"{d}.{op}" if d else op, 0) for d, op in line.ops)]

    def _zeros(self, case: Case) -> list[Case]:
        """Dimensions of one size become empty."""
        sizes = sorted({d for o in operands(case) for d in o.dims if isinstance(d, int)})
        alone = [
            put(case, place, reshaped(operand, (*operand.dims[:i], 0, *operand.dims[i + 1 :])))
            for place, operand in places(case)
            if not operand.const
            for i in range(len(operand.dims))
        ]
        return [self._resized(case, {size: 0}) for size in sizes] + alone

    def _dtypes(self, case: Case) -> list[Case]:
        """Operands of one dtype get another one: all of them, or one alone."""
        opset = opset_of(case)
        made = []
        held = sorted({o.dtype for o in operands(case)})
        for dtype in held:
            of = [name for (name, _), o in places(case) if o.dtype == dtype]
            for to in dict.fromkeys(t for name in of for t in self._dtypes_of(name, opset)):
                if to != dtype and all(retyped(o, to) is not None for o in operands(case) if o.dtype == dtype):
                    made.append(self._each(case, lambda o, d=dtype, t=to: retyped(o, t) or o if o.dtype == d else o))  # type: ignore[misc]
        for place, operand in places(case):
            for to in self._dtypes_of(place[0], OPSETS[1]):
                other = retyped(operand, to)
                if to != operand.dtype and other is not None:
                    # A type that an operator takes later comes with the operator set that allows it.
                    first = first_with(opset, lambda version, n=place[0], t=to: t in self._dtypes_of(n, version))  # type: ignore[misc]
                    made.append(since(first, put(case, place, other)))
        return [halved(c) for c in made]

    def _constness(self, case: Case) -> list[Case]:
        """One operand becomes a constant, or stops to be one."""
        return [
            put(case, place, replace(o, const=not o.const, data=None))
            for place, o in places(case)
            if o.dtype in NUMPY_NAMES and all(isinstance(d, int) for d in o.dims)
        ]

    def contents(self, case: Case) -> list[Case]:
        """A constant takes contents of each class: zeros, ones, negative, large, not all the same."""
        made = []
        for place, operand in places(case):
            if operand.const:
                used = [(op, position) for _, op, position, _ in readers(self.rule, place[0])]
                steers = any((self._sums or at in SHAPES.get(op, ())) and op != "Slice" for op, at in used)
                # Weights keep their size: of a single large one little is left by any other way to sum products.
                weighs, grows = (any(op in ops for op, _ in used) for ops in (_WEIGHTED, FACTORS))
                looked = place[0] in self.read  # of other constants infinite results say nothing
                said, exact = self.said if looked else [], looked and self.rule.claim == "exact"
                others = refilled(operand, self.rng, said, not steers, not weighs, exact)
                made += [put(case, place, o) for o in others if not (grows and largest(o) > MOST_TIMES)]
        return made

    def _spread(self, case: Case) -> list[Case]:
        """A constant gets all dimensions of another operand, or a single element in one of several shapes."""
        made = []
        shapes = {o.dims for o in operands(case)} | {(), (1,), (1, 1), (1, 1, 1)}
        for place, operand in places(case):
            plain = operand.data is None or not isinstance(operand.data, list)
            if operand.const and plain:
                fits = [s for s in shapes if all(isinstance(d, int) for d in s) and s != operand.dims]
                made += [put(case, place, reshaped(operand, s)) for s in sorted(fits, key=repr)]
        return made

    def optionals(self, case: Case) -> list[Case]:
        """Each optional operand is left out, or given in every type that may fit."""
        made = []
        for name in self.optional:
            if name in case:
                made.append({k: v for k, v in case.items() if k != name})
            opset = first_with(opset_of(case), partial(self._takes, name))
            known = (e[name] for e in self.examples if isinstance(e.get(name), Operand))
            others = fitting(operands(case), self._dtypes_of(name, opset))
            made += [since(opset, {**case, name: o}) for o in (*known, *others)]
        return made

    def _takes(self, name: str, opset: int) -> bool:
        """Whether an operator takes so many operands in an operator set that it may be given this one."""
        return any(most_operands(domain, op, opset) > position for domain, op, position, _ in readers(self.rule, name))

    def _variadics(self, case: Case) -> list[Case]:
        """A variadic operand gets fewer elements, or more, of the same type or of another size."""
        made = []
        counts = (5, *(n + d for n in self.said if type(n) is int and 1 < n <= _MANY for d in (0, 1)))
        for name, held in case.items():
            if not isinstance(held, list) or name not in self.rule.leaves:
                continue
            if not held:
                made += [{**case, name: [o] * n} for o in operands(case) for n in (1, 2)]
            made += [{**case, name: held[:-1]}, {**case, name: held[:1]}, {**case, name: held[::-1]}]
            for operand in held[:1]:
                made += [{**case, name: [*held, operand]}, *({**case, name: [operand] * n} for n in counts)]
                for i in range(len(operand.dims)):
                    dims = (*operand.dims[:i], 4, *operand.dims[i + 1 :])
                    made.append({**case, name: [*held, reshaped(operand, dims)]})
        return made

    # -- attributes, operators, operator sets ---------------------------------------------------------------------

    def _opsets(self, case: Case) -> list[Case]:
        """Every operator set at which an operator of the rule changed."""
        return [{**case, "opset": version} for version in self.opsets]

    def _operator(self, case: Case) -> list[Case]:
        """Each operator that the pattern allows, with the attributes that it needs; of several nodes all together, unless they are many."""
        together = math.prod(len(line.ops) for _, line in self.operators) <= _TOGETHER
        made = [case]
        for name, line in self.operators:
            chosen = [self._operated(c, name, line, *op) for c in (made if together else [case]) for op in line.ops]
            made = chosen if together else made + chosen
        return made

    def _operated(self, case: Case, name: str, line: Line, domain: str, op: str) -> Case:
        chosen = {**case, name: f"{domain}.{op}" if domain else op}
        if chosen[name] != case.get(name) and line.rest and line.rest != "_":
            # What was written for another operator means nothing for this one.
            chosen[line.rest] = {}
            needed = [n for n, a in attributes_of(domain, op, DEFAULT_OPSET).items() if a.required]
            for attribute in needed:
                values = self._values(chosen, domain, op, attribute, None)
                chosen[line.rest][attribute] = self._pick(values) if values else 1
        return chosen

    def _attributes(self, case: Case) -> list[Case]:
        """Every attribute that the pattern captures takes every value, and is left out."""
        made = []
        for attribute, variable, line in self.captured:
            domain, op = operator_of(case, line)
            held = case.get(variable)
            opset = self._opset_with(case, domain, op, attribute)
            made += [
                given(variable, v, opset, case) for v in self._values(case, domain, op, attribute, held) if v != held
            ]
            if variable in case:
                made.append({k: v for k, v in case.items() if k != variable})
        # What a flag says that is neither 0 nor 1 shows only where types allow both.
        made += [self.squared(c) for c in made]
        made += [{**case, item: n} for item in self.items for n in (-2, -1, 0, 1, 2, 3) if n != case.get(item)]
        for rest, line in self.rests:
            made += [change(case) for changes in self._rest(case, rest, line) for change in changes]
        return made

    def _rest(self, case: Case, rest: str, line: Any) -> Iterator[list[Change]]:
        """Each attribute that a pattern does not name, those of later operator sets too, with other values than it has, or left out."""
        domain, op = operator_of(case, line)
        held = case.get(rest) or {}
        named = {a for a, _ in (*line.attributes, *line.captures, *line.lists)}
        known = attributes_of(domain, op, opset_of(case)).keys() | attributes_of(domain, op, OPSETS[1]).keys()
        for attribute in sorted({*known, *held} - named - MEANINGLESS.get(op, frozenset())):
            values = [
                v for v in self._values(case, domain, op, attribute, held.get(attribute)) if v != held.get(attribute)
            ]
            opset = self._opset_with(case, domain, op, attribute)
            yield [partial(within, rest, attribute, v, opset) for v in (*values, *[None] * (attribute in held))]

    def _opset_with(self, case: Case, domain: str, op: str, attribute: str) -> int:
        """The operator set of a case, or the next in which an operator has an attribute."""
        return first_with(opset_of(case), lambda opset: attribute in attributes_of(domain, op, opset))

    def _values(self, case: Case, domain: str, op: str, attribute: str, held: Any) -> list[Any]:
        known = attributes_of(domain, op, self._opset_with(case, domain, op, attribute)).get(attribute)
        rank = max((len(o.dims) for o in operands(case)), default=2)
        kind, words = (None, ()) if known is None else (known.type, known.words)
        return values_of(attribute, kind, held, rank, max(rank - 2, 1), self.rng, self.said, words)

    # -- several things together ----------------------------------------------------------------------------------

    def _rename(self, case: Case) -> list[Case]:
        """Some sizes get others everywhere, small integers in data and attributes perhaps with them."""
        sizes = sorted({d for o in operands(case) for d in o.dims if isinstance(d, int)})
        chosen = [s for s in sizes if self.rng.random() < 0.5] or sizes[:1]
        to = {s: int(self._pick(_SIZES)) for s in chosen}
        with_data = self.rng.random() < 0.5

        def renamed(operand: Operand) -> Operand:
            dims = tuple(to.get(d, d) if isinstance(d, int) else d for d in operand.dims)
            data = mapped(operand.data, to) if with_data and operand.dtype == "i64" else operand.data
            return replace(operand, dims=dims, data=data)

        made = self._each(case, renamed)
        if with_data and self.rng.random() < 0.5:
            for name in [*(r for r, _ in self.rests), *(v for _, v, _ in self.captured)]:
                if name in made:
                    made[name] = mapped(made[name], to)
        return [made]

    def _equal(self, case: Case) -> list[Case]:
        """Sizes become equal: types do not tell a matrix from its transpose then."""
        sizes = sorted({d for o in operands(case) for d in o.dims if isinstance(d, int) and d > 1})
        chosen = sizes if self.rng.random() < 0.7 else [s for s in sizes if self.rng.random() < 0.6]
        return [self._resized(case, dict.fromkeys(chosen, int(self._pick((2, 3)))))]

    def _cube(self, case: Case) -> list[Case]:
        """Operands get ranks by chance, and all dimensions are one number or 1: then types give no mistake away.

        Axes and attributes are drawn anew as well.
        """
        size = int(self._pick((2, 3)))

        def cubed(operand: Operand) -> Operand:
            if operand.data is not None or operand.dtype == "i64":
                return replace(operand, data=drawn(operand.data)) if self.rng.random() < 0.5 else operand
            rank = len(operand.dims) if self.rng.random() < 0.5 else int(self.rng.integers(4))
            return replace(operand, dims=tuple(1 if self.rng.random() < 0.15 else size for _ in range(rank)))

        def drawn(data: Any) -> Any:
            axes = isinstance(data, list) and data and all(type(d) is int for d in data)
            return self.rng.permutation(4)[: len(data)].tolist() if axes and len(data) < 4 else data

        made = self._each(case, cubed)
        for attribute, variable, line in self.captured:
            if variable in made and self.rng.random() < 0.4:
                values = self._values(made, *operator_of(made, line), attribute, made[variable])
                made[variable] = self._pick(values) if values else made[variable]
        return [made]

    def _measure(self, case: Case) -> list[Case]:
        """The numbers in an integer constant become dimensions of operands along one axis, as sizes of a Split are."""
        made = []
        for place, operand in places(case):
            if operand.dtype != "i64" or not isinstance(operand.data, list) or len(operand.dims) != 1:
                continue
            axis = int(self.rng.integers(-2, 2))
            others = [o.dims[axis] for _, o in places(case) if o is not operand and -len(o.dims) <= axis < len(o.dims)]
            sizes = [d for d in others if isinstance(d, int)]
            if sizes:
                data = [int(self._pick(sizes)) for _ in operand.data]
                made.append(put(case, place, replace(operand, data=data)))
        return made

    def _alike(self, case: Case) -> list[Case]:
        """Attributes of one name get one value: a condition that two are equal has to be seen to suffice."""
        attribute, variable, line = self._pick(self.captured)
        values = self._values(case, *operator_of(case, line), attribute, case.get(variable))
        if not values:
            return []
        value = self._pick(values)
        return [{**case, **{name: value for other, name, _ in self.captured if other == attribute and name in case}}]
