"""The bounded family of shapes, attributes, contents, dtypes and operator sets at which a rule is tried.

A rule's own examples are where it starts: accepting ones, and rejecting ones too, because a rule whose ``where`` is too
weak matches exactly those. What may vary about them comes from the operators' schemas (:mod:`graphopt.equivalence.schemas`).
First each thing alone is changed in every way, then several at random; and what the rule matches becomes a start of
its own. Instances are small: no operand has more than a few thousand elements.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from graphopt.equivalence.cases import Case, Instance, build_instance, operands, parse_case, size_of
from graphopt.equivalence.schemas import attributes_of, dtypes_of, opsets_of, readers, values_of
from graphopt.equivalence.values import SHAPES
from graphopt.ir.types import FLOATS, NUMPY_NAMES
from graphopt.rewrite.examples import DEFAULT_OPSET, Operand
from graphopt.rewrite.schema import Rule

_LARGEST = 2048
_SIZES = (1, 2, 3, 4, 5, 6, 7)
_SYMBOLS = ("S", "T", "U", "V", "W", "P", "Q", "R")
_BLOCKS = (16, 8, 1)
_SYMBOLIC = 0.5
"""Share of the cases with one change that are tried with symbols for sizes as well."""
_ANY = 0.2
"""Share of them that are tried with constants of any content."""
_SQUARE = 0.35
"""Share of them that are tried with one size for all dimensions."""

Place = tuple[str, int | None]
"""Where an operand stands in a case: its name, and its index in a variadic operand."""


def instances(rule: Rule, *, seed: int = 0, limit: int = 40, tries: int = 300) -> list[Instance]:
    """Different instances of a rule, the smallest first.

    Args:
        rule: The rule.
        seed: Of the variation.
        limit: How many are wanted.
        tries: How many variations are made for it, at most.
    """
    found: dict[str, Instance] = {}
    matched: list[Case] = []
    for attempt, case in enumerate(variations(rule, seed=seed, tries=tries, matched=matched)):
        if len(found) >= limit:
            break
        made = build_instance(rule, case, _BLOCKS[attempt % 8 - 5] if attempt % 8 > 5 else _BLOCKS[0])
        if made is not None:
            found[repr(case)] = made
            matched.append(case)
    return sorted(found.values(), key=lambda i: (i.elements, repr(i.case)))


def variations(rule: Rule, *, seed: int = 0, tries: int = 300, matched: list[Case] | None = None) -> Iterator[Case]:
    """A rule's examples and different variations of them, whether the rule matches there or not.

    Args:
        rule: The rule.
        seed: Of the variation.
        tries: How many variations are made, at most.
        matched: Cases that the rule was found to match, to go on from; the caller adds to it.
    """
    rng = np.random.default_rng(seed)
    accepts = [parse_case(rule, c) for c in rule.examples["accept"]]
    rejects = [parse_case(rule, c) for c in rule.examples["reject"]]
    seen: set[str] = set()
    cases = _cases(Variation(rule, rng, [*accepts, *rejects]), accepts, rejects, [] if matched is None else matched)
    given = len(accepts) + len(rejects)
    for i, case in enumerate(itertools.islice(cases, tries + given)):
        text = repr(sorted(case.items(), key=lambda item: item[0]))
        if text not in seen and (i < given or not any(size_of(o) > _LARGEST for o in operands(case))):
            seen.add(text)
            yield case


def _cases(vary: Variation, accepts: list[Case], rejects: list[Case], matched: list[Case]) -> Iterator[Case]:
    yield from accepts
    yield from rejects
    rng = vary.rng
    single = [vary.singles(case) for case in accepts]
    rng.shuffle(single)
    alone = [case for group in itertools.zip_longest(*single) for case in group if case is not None]
    seeds = [*accepts, *accepts, *rejects]
    while seeds:
        # What changes one thing alone, and of the rest one that changes several.
        if alone and rng.random() < 0.7:
            case = alone.pop(0)
            yield case
            # Known sizes give away what symbols hide: that the replacement has another shape.
            if rng.random() < _SYMBOLIC:
                yield vary.symbolised(case)
            if rng.random() < _ANY:
                yield vary.loosened(case)
            if rng.random() < _SQUARE:
                yield vary.squared(case)
            continue
        pool = matched if matched and rng.random() < 0.5 else seeds
        case = dict(pool[int(rng.integers(len(pool)))])
        for _ in range(int(rng.integers(1, 4))):
            case = vary(case)
        yield case


class Variation:
    """Ways to change a case. Each way gives a list of new cases, perhaps empty.

    Args:
        rule: The rule.
        rng: For what is drawn.
        examples: All the rule's examples.
    """

    def __init__(self, rule: Rule, rng: np.random.Generator, examples: list[Case]) -> None:
        self.rule, self.rng, self.examples = rule, rng, examples
        self.captured = [(a, v, line) for line in rule.match for a, v in line.captures]
        self.items = [i for line in rule.match for _, many in line.lists for i in many if isinstance(i, str)]
        self.rests = [(line.rest, line) for line in rule.match if line.rest and line.rest != "_"]
        self.operators = [(line.op_variable, line) for line in rule.match if line.op_variable]
        self.optional = sorted({o.name for line in rule.match for o in line.operands if o.kind == "optional"})
        self.opsets = opsets_of(rule)
        ways: list[Callable[[Case], list[Case]]] = [
            self._sizes,
            self._singles,
            self._ranks,
            self._symbols,
            self._dtypes,
            self._opsets,
            self._constness,
        ]
        ways += [self._contents, self._zeros, self._spread]
        ways += [self._optionals] * bool(self.optional) + [self._variadics] + [self._operator] * bool(self.operators)
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

    def _places(self, case: Case) -> list[tuple[Place, Operand]]:
        found: list[tuple[Place, Operand]] = []
        for name, value in case.items():
            if isinstance(value, Operand):
                found.append(((name, None), value))
            elif isinstance(value, list):
                found += [((name, i), v) for i, v in enumerate(value) if isinstance(v, Operand)]
        return found

    def _put(self, case: Case, place: Place, operand: Operand) -> Case:
        name, index = place
        if index is None:
            return {**case, name: operand}
        return {**case, name: [operand if i == index else v for i, v in enumerate(case[name])]}

    def _each(self, case: Case, change: Callable[[Operand], Operand]) -> Case:
        for place, operand in self._places(case):
            case = self._put(case, place, change(operand))
        return case

    def _resized(self, case: Case, to: dict[Any, Any]) -> Case:
        """A case with dimensions of some sizes changed everywhere; constants take no symbols."""

        def resized(operand: Operand) -> Operand:
            dims = tuple(to.get(d, d) for d in operand.dims)
            fits = not (operand.const and any(isinstance(d, str) for d in dims))
            return _reshaped(operand, dims) if fits else operand

        return self._each(case, resized)

    def _sizes(self, case: Case) -> list[Case]:
        """Dimensions of one size get another one, everywhere."""
        sizes = sorted({d for o in operands(case) for d in o.dims}, key=str)
        return [self._resized(case, {size: to}) for size in sizes for to in (1, 2, 5, 3) if to != size]

    def _singles(self, case: Case) -> list[Case]:
        """One dimension of one operand changes alone."""
        made = []
        for place, operand in self._places(case):
            for i, dim in enumerate(operand.dims):
                for to in (1, 5, *(() if operand.const else ("S",))):
                    if dim != to:
                        dims = (*operand.dims[:i], to, *operand.dims[i + 1 :])
                        made.append(self._put(case, place, _reshaped(operand, dims)))
        return made

    def _ranks(self, case: Case) -> list[Case]:
        """One operand, or all of them, get a dimension more or less."""
        every = [o for o in operands(case) if o.dtype in FLOATS or o.data is None]
        most = max((len(o.dims) for o in every), default=0)
        made = []
        for size in (2, 1):
            made.append(self._each(case, lambda o, n=size: _reshaped(o, (n, *o.dims)) if len(o.dims) == most else o))  # type: ignore[misc]
        made.append(self._each(case, lambda o: _reshaped(o, o.dims[1:]) if len(o.dims) == most else o))
        for place, operand in self._places(case):
            dims = operand.dims
            forms = [(2, *dims), (1, *dims), (*dims, 1), (*dims, 3), ()] + ([dims[1:], dims[:-1]] if dims else [])
            made += [self._put(case, place, _reshaped(operand, form)) for form in forms]
        return made

    def _symbols(self, case: Case) -> list[Case]:
        """Dimensions become symbols: all of one size, each for itself, all at the front."""
        free = [(p, o) for p, o in self._places(case) if not o.const]
        sizes = sorted({d for _, o in free for d in o.dims if isinstance(d, int)})
        named = dict(zip(sizes, _SYMBOLS, strict=False))
        made = [self._resized(case, {size: "S"}) for size in sizes]
        made.append(self._resized(case, named))
        names = itertools.cycle(_SYMBOLS)
        unique = front = case
        for place, operand in free:
            unique = self._put(unique, place, replace(operand, dims=tuple(next(names) for _ in operand.dims)))
            front = self._put(front, place, replace(operand, dims=("S", *operand.dims[1:]) if operand.dims else ()))
        made += [unique, front]
        symbols = sorted({d for _, o in free for d in o.dims if isinstance(d, str)})
        return made + [self._resized(case, {symbol: to}) for symbol in symbols for to in (1, 4)]

    def symbolised(self, case: Case) -> Case:
        """A case with symbols for the sizes of all operands that are no constants, equal ones for equal sizes or not."""
        free = [(p, o) for p, o in self._places(case) if not o.const and o.dtype in FLOATS]
        sizes = sorted({d for _, o in free for d in o.dims if isinstance(d, int) and d != 1})
        named = dict(zip(sizes, _SYMBOLS, strict=False))
        names = itertools.cycle(_SYMBOLS)
        alike = self.rng.random() < 0.5
        for place, operand in free:
            dims = tuple(
                (named.get(d, d) if isinstance(d, int) else d) if alike or d == 1 else next(names) for d in operand.dims
            )
            case = self._put(case, place, replace(operand, dims=dims))
        return case

    def loosened(self, case: Case) -> Case:
        """A case whose floating-point constants may hold anything: what examples say is round."""
        return self._each(case, lambda o: replace(o, data=None) if o.const and o.dtype in FLOATS else o)

    def squared(self, case: Case) -> Case:
        """A case in which all sizes but 1 are one: types do not tell a matrix from its transpose then."""
        size = int(self._pick((2, 3)))
        return self._each(
            case, lambda o: _reshaped(o, tuple(size if isinstance(d, int) and d > 1 else d for d in o.dims))
        )

    def _zeros(self, case: Case) -> list[Case]:
        """Dimensions of one size become empty."""
        sizes = sorted({d for o in operands(case) for d in o.dims if isinstance(d, int)})
        alone = [
            self._put(case, place, _reshaped(operand, (*operand.dims[:i], 0, *operand.dims[i + 1 :])))
            for place, operand in self._places(case) if not operand.const
            for i in range(len(operand.dims))
        ]  # fmt: skip
        return [self._resized(case, {size: 0}) for size in sizes] + alone

    def _dtypes(self, case: Case) -> list[Case]:
        """Operands of one dtype get another one: all of them, or one alone."""
        opset = int(case.get("opset", DEFAULT_OPSET))
        made = []
        held = sorted({o.dtype for o in operands(case)})
        for dtype in held:
            of = [name for (name, _), o in self._places(case) if o.dtype == dtype]
            targets = dict.fromkeys(t for name in of for t in dtypes_of(self.rule, name, opset))
            for to in targets:
                changed = [_retyped(o, to) for _, o in self._places(case) if o.dtype == dtype]
                if to != dtype and all(o is not None for o in changed):
                    made.append(self._each(case, lambda o, d=dtype, t=to: _retyped(o, t) or o if o.dtype == d else o))  # type: ignore[misc]
        for place, operand in self._places(case):
            for to in dtypes_of(self.rule, place[0], opset):
                other = _retyped(operand, to)
                if to != operand.dtype and other is not None:
                    made.append(self._put(case, place, other))
        return [_halved(c) for c in made]

    def _constness(self, case: Case) -> list[Case]:
        """One operand becomes a constant, or stops to be one."""
        return [
            self._put(case, place, replace(o, const=not o.const, data=None))
            for place, o in self._places(case) if all(isinstance(d, int) for d in o.dims)
        ]  # fmt: skip

    def _contents(self, case: Case) -> list[Case]:
        """A constant takes contents of each class: zeros, ones, negative, large, not all the same."""
        made = []
        for place, operand in self._places(case):
            if operand.const:
                steers = any(position in SHAPES.get(op, ()) and op != "Slice"
                             for _, op, position, _ in readers(self.rule, place[0]))  # fmt: skip
                made += [self._put(case, place, other) for other in _refilled(operand, self.rng, not steers)]
        return made

    def _spread(self, case: Case) -> list[Case]:
        """A constant gets all dimensions of another operand, or a single element in one of several shapes."""
        made = []
        shapes = {o.dims for o in operands(case)} | {(), (1,), (1, 1), (1, 1, 1)}
        for place, operand in self._places(case):
            plain = operand.data is None or not isinstance(operand.data, list)
            if operand.const and plain:
                fits = [s for s in shapes if all(isinstance(d, int) for d in s) and s != operand.dims]
                made += [self._put(case, place, _reshaped(operand, s)) for s in sorted(fits, key=repr)]
        return made

    def _optionals(self, case: Case) -> list[Case]:
        """Each optional operand is left out, or given in every type that may fit."""
        made = []
        for name in self.optional:
            if name in case:
                made.append({k: v for k, v in case.items() if k != name})
            made += [{**case, name: o} for o in self._fitting(case, name)]
        return made

    def _fitting(self, case: Case, name: str) -> Iterator[Operand]:
        yield from (e[name] for e in self.examples if isinstance(e.get(name), Operand))
        others = [o for o in operands(case) if o.dtype in FLOATS] or operands(case)
        opset = int(case.get("opset", DEFAULT_OPSET))
        dtypes = dtypes_of(self.rule, name, opset)
        dtype = next((o.dtype for o in others if o.dtype in dtypes), None) or next(iter(dtypes), "f32")
        sizes = sorted({d for o in others for d in o.dims if isinstance(d, int)})
        shapes: dict[tuple[Any, ...], None] = dict.fromkeys([(), (1,), *((d,) for d in sizes)])
        shapes |= dict.fromkeys(o.dims for o in others)
        for dims in shapes:
            if dtype in FLOATS:
                yield Operand(dtype, dims)
                if all(isinstance(d, int) for d in dims):
                    yield Operand(dtype, dims, True)
        if dtype in FLOATS:
            yield from (Operand(dtype, (), True, n) for n in (0.0, -1.0, 0.5, 6.0))
            return
        numbers: tuple[Any, ...] = (True, False) if dtype == "bool" else (0, 1, -1, 2)
        yield from (Operand(dtype, (), True, n) for n in numbers)
        yield from (Operand(dtype, (1,), True, [n]) for n in numbers)
        if dtype != "bool":
            yield from (Operand(dtype, (2,), True, d) for d in ([0, 1], [-1, -2]))

    def _variadics(self, case: Case) -> list[Case]:
        """A variadic operand gets fewer elements, or more, of the same type or of another size."""
        made = []
        for name, held in case.items():
            if not isinstance(held, list) or name not in self.rule.leaves:
                continue
            made += [{**case, name: held[:-1]}, {**case, name: held[:1]}, {**case, name: held[::-1]}]
            for operand in held[:1]:
                made += [{**case, name: [*held, operand]}, {**case, name: [operand] * 5}]
                for i in range(len(operand.dims)):
                    dims = (*operand.dims[:i], 4, *operand.dims[i + 1 :])
                    made.append({**case, name: [*held, _reshaped(operand, dims)]})
        return made

    # -- attributes, operators, operator sets ---------------------------------------------------------------------

    def _opsets(self, case: Case) -> list[Case]:
        """Every operator set at which an operator of the rule changed."""
        return [{**case, "opset": version} for version in self.opsets]

    def _operator(self, case: Case) -> list[Case]:
        """Each operator that the pattern allows, with the attributes that it needs."""
        made = []
        for name, line in self.operators:
            for domain, op in line.ops:
                chosen = {**case, name: f"{domain}.{op}" if domain else op}
                if line.rest and line.rest != "_":
                    # What was written for another operator means nothing for this one.
                    chosen[line.rest] = {}
                    needed = [n for n, a in attributes_of(domain, op, DEFAULT_OPSET).items() if a.required]
                    for attribute in needed:
                        values = self._values(chosen, domain, op, attribute, None)
                        chosen[line.rest][attribute] = self._pick(values) if values else 1
                made.append(chosen)
        return made

    def _attributes(self, case: Case) -> list[Case]:
        """Every attribute that the pattern captures takes every value, and is left out."""
        made = []
        for attribute, variable, line in self.captured:
            domain, op = self._chosen(case, line)
            held = case.get(variable)
            made += [{**case, variable: v} for v in self._values(case, domain, op, attribute, held) if v != held]
            if variable in case:
                made.append({k: v for k, v in case.items() if k != variable})
        made += [{**case, item: n} for item in self.items for n in (-2, -1, 0, 1, 2, 3) if n != case.get(item)]
        for rest, line in self.rests:
            domain, op = self._chosen(case, line)
            held = dict(case.get(rest) or {})
            named = {a for a, _ in (*line.attributes, *line.captures, *line.lists)}
            known = attributes_of(domain, op, int(case.get("opset", DEFAULT_OPSET)))
            for attribute in sorted({*known, *held} - named):
                for value in self._values(case, domain, op, attribute, held.get(attribute)):
                    if value != held.get(attribute):
                        made.append({**case, rest: {**held, attribute: value}})
                if attribute in held:
                    made.append({**case, rest: {k: v for k, v in held.items() if k != attribute}})
        return made

    def _chosen(self, case: Case, line: Any) -> tuple[str, str]:
        if not line.op_variable or case.get(line.op_variable) is None:
            return line.ops[0] if line.ops else ("", "")
        domain, _, op = str(case[line.op_variable]).rpartition(".")
        return domain, op

    def _values(self, case: Case, domain: str, op: str, attribute: str, held: Any) -> list[Any]:
        known = attributes_of(domain, op, int(case.get("opset", DEFAULT_OPSET))).get(attribute)
        rank = max((len(o.dims) for o in operands(case)), default=2)
        kind = None if known is None else known.type
        return values_of(attribute, kind, held, rank, max(rank - 2, 1), self.rng)

    # -- several things together ----------------------------------------------------------------------------------

    def _rename(self, case: Case) -> list[Case]:
        """Some sizes get others everywhere, small integers in data and attributes perhaps with them."""
        sizes = sorted({d for o in operands(case) for d in o.dims if isinstance(d, int)})
        chosen = [s for s in sizes if self.rng.random() < 0.5] or sizes[:1]
        to = {s: int(self._pick(_SIZES)) for s in chosen}
        with_data = self.rng.random() < 0.5

        def renamed(operand: Operand) -> Operand:
            dims = tuple(to.get(d, d) if isinstance(d, int) else d for d in operand.dims)
            data = _mapped(operand.data, to) if with_data and operand.dtype == "i64" else operand.data
            return replace(operand, dims=dims, data=data)

        made = self._each(case, renamed)
        if with_data and self.rng.random() < 0.5:
            for name in [*(r for r, _ in self.rests), *(v for _, v, _ in self.captured)]:
                if name in made:
                    made[name] = _mapped(made[name], to)
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
                values = self._values(made, *self._chosen(made, line), attribute, made[variable])
                made[variable] = self._pick(values) if values else made[variable]
        return [made]

    def _measure(self, case: Case) -> list[Case]:
        """The numbers in an integer constant become dimensions of operands along one axis, as sizes of a Split are."""
        made = []
        for place, operand in self._places(case):
            if operand.dtype != "i64" or not isinstance(operand.data, list) or len(operand.dims) != 1:
                continue
            axis = int(self.rng.integers(-2, 2))
            others = [
                o.dims[axis] for _, o in self._places(case) if o is not operand and -len(o.dims) <= axis < len(o.dims)
            ]
            sizes = [d for d in others if isinstance(d, int)]
            if sizes:
                data = [int(self._pick(sizes)) for _ in operand.data]
                made.append(self._put(case, place, replace(operand, data=data)))
        return made

    def _alike(self, case: Case) -> list[Case]:
        """Attributes of one name get one value: a condition that two are equal has to be seen to suffice."""
        attribute, variable, line = self._pick(self.captured)
        values = self._values(case, *self._chosen(case, line), attribute, case.get(variable))
        if not values:
            return []
        value = self._pick(values)
        return [{**case, **{name: value for other, name, _ in self.captured if other == attribute and name in case}}]


def _reshaped(operand: Operand, dims: tuple[Any, ...]) -> Operand:
    """An operand of other dimensions; content that is listed is cut or repeated to fit one dimension."""
    data = operand.data
    if isinstance(data, list):
        if len(dims) != 1 or not isinstance(dims[0], int) or not data:
            return replace(operand, dims=dims, data=None) if operand.dtype in FLOATS else operand
        flat = data if not isinstance(data[0], list) else None
        data = None if flat is None else [flat[i % len(flat)] for i in range(dims[0])]
    return replace(operand, dims=dims, data=data)


def _retyped(operand: Operand, to: str) -> Operand | None:
    """An operand of another dtype; ``None`` where it can't hold the content."""
    if operand.data is None or (to in FLOATS and operand.dtype in FLOATS):
        return replace(operand, dtype=to)
    if to not in FLOATS and not _whole(operand.data):
        return None
    if to == "bool" or operand.dtype == "bool":
        return None
    if to.startswith("u") and _least(operand.data) < 0:
        return None
    return replace(operand, dtype=to, data=_integers(operand.data) if to not in FLOATS else operand.data)


def _halved(case: Case) -> Case:
    """Attributes rounded to float16 where an operand has that type: what is compared is the law, not how numbers round."""
    if not any(o.dtype == "f16" for o in operands(case)):
        return case
    return {k: float(np.float16(v)) if isinstance(v, float) else v for k, v in case.items()}


def _refilled(operand: Operand, rng: np.random.Generator, ends: bool) -> Iterator[Operand]:
    """A constant with contents of every class; those at the ends of an integer type's range only where asked for."""
    count = size_of(operand)
    if operand.dtype in FLOATS:
        yield from (replace(operand, data=n) for n in (0.0, 1.0, -1.0, 0.5, 0.1, -2.5, 1e4))
        if count > 1 and len(operand.dims) == 1:
            yield replace(operand, data=[float(rng.integers(-3, 4)) for _ in range(count)])
            yield replace(operand, data=[0.0, *[1.0] * (count - 1)])
            yield replace(operand, data=[*[1.0] * (count - 1), -1.0])
        if operand.data is not None:
            yield replace(operand, data=None)
        return
    if operand.dtype == "bool":
        yield from (replace(operand, data=n) for n in (True, False))
        return
    numbers = (0, 1, 2, 3, 100) if operand.dtype.startswith("u") else (-1, 0, 1, 2, -2, 3, -3, 100)
    if ends:
        info = np.iinfo(NUMPY_NAMES[operand.dtype])
        numbers = (*numbers, int(info.max), int(info.min), int(info.max) // 2 + 1)
    data = operand.data
    if isinstance(data, list) and data and not isinstance(data[0], list):
        for i in range(len(data)):
            for n in numbers:
                if n != data[i]:
                    yield replace(operand, data=[*data[:i], n, *data[i + 1 :]])
        yield replace(operand, data=data[::-1])
        if len(operand.dims) == 1:
            yield replace(operand, data=data[:-1], dims=(len(data) - 1,))
            yield from (replace(operand, data=[*data, n], dims=(len(data) + 1,)) for n in numbers[:4])
        return
    yield from (replace(operand, data=n) for n in numbers if n != data)
    if count > 1 and len(operand.dims) == 1:
        yield replace(operand, data=[int(rng.choice(numbers)) for _ in range(count)])


def _whole(data: Any) -> bool:
    return all(map(_whole, data)) if isinstance(data, list) else float(data).is_integer()


def _least(data: Any) -> float:
    return min(map(_least, data), default=0) if isinstance(data, list) else float(data)


def _integers(data: Any) -> Any:
    return [_integers(d) for d in data] if isinstance(data, list) else int(data)


def _mapped(data: Any, to: dict[int, int]) -> Any:
    if isinstance(data, list):
        return [_mapped(d, to) for d in data]
    if isinstance(data, dict):
        return {k: _mapped(v, to) for k, v in data.items()}
    return to.get(data, data) if isinstance(data, int) and not isinstance(data, bool) else data
