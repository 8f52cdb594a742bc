"""What stands beside a rule's examples, and chance meets seldom: the parts of a case that show nothing but together.

A text of a later operator set with the contents that constants may have there; elements of a vector that are not alike; weights whose
content is given, which kernels lay out in a way of their own as soon as they are constants of the model.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from graphopt.ir.types import FLOATS, NUMPY_NAMES
from graphopt.prover.alternatives import alternatives
from graphopt.prover.attributes import axes_in, given, operator_of, opset_of, since, within
from graphopt.prover.cases import Case, Place, operands, places, put, size_of
from graphopt.prover.contents import LEVELS, edges_apart, halved, read_alone, reshaped, retyped, squared, uneven
from graphopt.prover.fitted import fitted
from graphopt.prover.jointly import jointly
from graphopt.prover.rearranged import LEAST, given_to, lists, rearranged
from graphopt.prover.schemas import OPSETS, TYPES, dtypes_of, first_with, readers, spoken
from graphopt.prover.tied import tied
from graphopt.prover.variation import Variation
from graphopt.rewrite.examples import Operand

_HELD = 24  # contents of constants that are drawn beside each text
_PLACES = dict.fromkeys(("Gather", "GatherElements", "GatherND", "ScatterElements", "ScatterND"), slice(1, 2))
_NONE = slice(0, 0)
_TABLE = [[0, 1], [0, 0]]
"""Places that stand in two dimensions, and are others when these are exchanged."""
_AWKWARD = ((1.6, 6.7), (6.7, 7.1), (1.3, 7.6), (3.3, 7.1), (5.7, 6.1))
"""Pairs of which sums, products and quotients are mostly off by a last place of float32 when they are undone: one of ten pairs of tenths moves a bound."""
_SIZES = 4  # of which numbers are made
_MANY = 8  # elements along each dimension
_SMALL = (2, 1, 3, 0, -1)
_LARGEST = 4096  # elements of a constant whose content is given


def beside(vary: Variation, case: Case) -> Iterator[Case]:
    """The cases beside one.

    Args:
        vary: Ways to change a case of the rule.
        case: An example that the rule accepts.
    """
    yield from _given(vary, case)
    for base in (case, squared(case, 2)):
        yield from uneven(vary.rule, base)
    yield from edges_apart(vary.rule, case)
    yield from tied(vary.rule, case)
    yield from _rounded(vary, case)
    yield from _placed(vary, case)
    yield from _lain(case)
    yield from _single(case)
    yield from _deeper(case)
    yield from _turned(vary, case)
    yield from _spoken(vary, case)
    yield from _typed(vary, case)
    yield from fitted(vary, case)
    yield from rearranged(vary, case)
    yield from _itemised(vary, case)
    yield from _numbered(vary, case)
    yield from alternatives(vary, case, _typed(vary, case))
    yield from jointly(vary, case)


def _given(vary: Variation, case: Case) -> Iterator[Case]:
    """Operands as constants of given content: each alone, all, and all but those that come first, these with other attributes as well."""
    free = [(p, o) for p, o in places(case) if o.data is None and o.dtype in (FLOATS | LEVELS) & NUMPY_NAMES.keys()]
    free = [(p, o) for p, o in free if all(isinstance(d, int) for d in o.dims) and 0 < size_of(o) <= _LARGEST]
    weights = [(p, o) for p, o in free if all(position for _, _, position, _ in readers(vary.rule, p[0]))]
    for chosen in ([f] for f in free) if len(free) > 1 else ():
        yield _filled(vary, case, chosen)
    yield _filled(vary, case, free)
    yield (made := _filled(vary, case, weights))
    # Which kernel takes them is for an attribute to say, of operators that the runtime has for the sake of its kernels.
    if any(domain for line in vary.rule.match for domain, _ in line.ops):
        yield from (change(made) for changes in vary.choices(made) for change in changes[1:])


def _rounded(vary: Variation, case: Case) -> Iterator[Case]:
    """Floats that conditions look at, two at least, of which whatever is made is rounded: on one side earlier."""
    numbers = [(p, o) for p, o in read_alone(vary.rule, case) if o.dtype in FLOATS]
    for pair in (p for each in _AWKWARD for p in (each, each[::-1])) if len(numbers) > 1 else ():
        made = case
        for i, (place, operand) in enumerate(numbers):
            made = put(made, place, replace(operand, data=pair[i % 2]))
        yield squared(made, _MANY)  # elements enough to meet each number beside those of the rule


def _itemised(vary: Variation, case: Case) -> Iterator[Case]:
    """One item of a list alone is another small number: conditions may look at the others only."""
    for attribute, names, numbers in lists(vary, case):
        for i, n in itertools.product(range(len(numbers)), _SMALL):
            if n != numbers[i] and n >= LEAST.get(attribute, n):
                yield {**case, **given_to(names, [*numbers[:i], n, *numbers[i + 1 :]])}


def _placed(vary: Variation, case: Case) -> Iterator[Case]:
    """Constants that say places hold such as are there along any axis, with each value of each attribute: other axes have fewer places."""
    names = {o.name for line in vary.rule.match for _, op in line.ops for o in line.operands[_PLACES.get(op, _NONE)]}
    axes = axes_in(vary.rule, case)
    for base in (case, squared(case, 2)) if names else ():
        listed = [(p, o) for p, o in places(base) if p[0] in names and o.const]
        listed = [(p, o) for p, o in listed if all(isinstance(d, int) for d in o.dims)]
        for count in (1, 2):
            made = _counting(base, listed, 0, count)
            yield made
            yield from (change(made) for changes in vary.choices(made) for change in changes[1:])
        # With an axis more among places, what stands behind it has one number from the front and another from the end.
        made = _counting(base, listed, 1, 2)
        tables = [put(made, place, replace(operand, dims=(2, 2), data=_TABLE)) for place, operand in listed]
        yield from (table | dict.fromkeys(axes, axis) for table in tables for axis in (0, 1, -1, -2))


def _counting(case: Case, listed: list[tuple[Place, Operand]], first: int, count: int) -> Case:
    """Constants that count on from a number, round and round."""
    for place, operand in listed:
        dims: Any = operand.dims
        data: Any = ((np.arange(size_of(operand)) + first) % count).reshape(dims).tolist()
        case = put(case, place, replace(operand, data=data))
    return case


def _lain(case: Case) -> Iterator[Case]:
    """Operands of a single axis that have it elsewhere, where all sizes are one: as many elements, which types do not tell apart."""
    for base in (squared(case, 2), squared(case, 3)):
        for place, operand in places(base):
            rank = len(operand.dims)
            sizes = [d for d in operand.dims if d != 1]
            for axis in range(rank) if rank > 1 and len(sizes) == 1 else ():
                dims = tuple(sizes[0] if i == axis else 1 for i in range(rank))
                if dims != operand.dims:
                    yield put(base, place, reshaped(operand, dims))


def _single(case: Case) -> Iterator[Case]:
    """Operands of one shape have a single element, all of them: a condition that only compares their shapes holds, and nothing else is as small."""
    alike: dict[Any, list[tuple[Place, Operand]]] = {}
    for place, operand in places(case):
        if operand.dims and not isinstance(operand.data, list):
            alike.setdefault(operand.dims, []).append((place, operand))
    for dims, found in alike.items():
        made = case
        for place, operand in found if len(found) > 1 else ():
            made = put(made, place, reshaped(operand, (1,) * len(dims)))
        if made is not case:
            yield made


def _deeper(case: Case) -> Iterator[Case]:
    """One operand has two axes more: with one more, the others' first axis may still be one of those that are spoken of."""
    base = squared(case, 2)
    for place, operand in places(base):
        if operand.data is None and operand.dims:
            yield put(base, place, reshaped(operand, (2, 2, *operand.dims)))


def _turned(vary: Variation, case: Case) -> Iterator[Case]:
    """A list turned round, as axes may be, beside one whose items differ: how much to do along each."""
    captured = [(v, case.get(v)) for _, v, _ in vary.captured]
    attributes = [(name, value) for name, value in captured if isinstance(value, list) and len(value) > 1]
    listed = [(p, o) for p, o in places(case) if o.const and isinstance(o.data, list) and len(o.data) > 1]
    turned = [{**case, name: value[::-1]} for name, value in attributes]
    turned += [put(case, place, replace(o, data=o.data[::-1])) for place, o in listed if isinstance(o.data, list)]
    for made in turned:
        for place, operand in listed:
            if len(operand.dims) == 1 and made.get(place[0]) == case.get(place[0]):
                other = put(made, place, replace(operand, data=[*range(1, size_of(operand) + 1)]))
                yield from (other, squared(other, 3))


def _numbered(vary: Variation, case: Case) -> Iterator[Case]:
    """Operands that may be left out and are whole numbers, one and two of them given: a size of the others, its half or its double."""
    sizes = sorted({d for o in operands(case) for d in o.dims if isinstance(d, int) and d > 1})[:_SIZES]
    numbers = list(dict.fromkeys(n for size in sizes for n in (size, size // 2, 2 * size)))
    taken = {n: dtypes_of(vary.rule, n, opset_of(case)) for n in vary.optional if n not in case}
    absent = [name for name, dtypes in taken.items() if "i64" in dtypes and FLOATS.isdisjoint(dtypes)]
    for names in (*itertools.combinations(absent, 1), *itertools.combinations(absent, 2)):
        for chosen in itertools.product(numbers, repeat=len(names)):
            yield {**case, **{name: Operand("i64", (), True, n) for name, n in zip(names, chosen, strict=True)}}


def _filled(vary: Variation, case: Case, chosen: list[tuple[Place, Operand]]) -> Case:
    for place, operand in chosen:
        dims: Any = operand.dims
        if operand.dtype in FLOATS:
            data = vary.rng.uniform(-2.0, 2.0, dims).round(3)
        else:
            info = np.iinfo(NUMPY_NAMES[operand.dtype])
            data = vary.rng.integers(info.min, info.max, dims, endpoint=True)
        case = put(case, place, replace(operand, const=True, data=np.asarray(data).tolist()))
    return case


def _spoken(vary: Variation, case: Case) -> Iterator[Case]:
    """Each text that an attribute may be, in an operator set that has it, with other contents of the constants that conditions look at."""
    for made in _texts(vary, case):
        yield made
        held = [c for c in vary.contents(made) if any(c[name] != made[name] for name in vary.read & made.keys())]
        vary.rng.shuffle(held)
        yield from held[:_HELD]


def _texts(vary: Variation, case: Case) -> Iterator[Case]:
    """Another text for each attribute that is one, or for each item of a list of them."""
    slots = [(attribute, line, case.get(v), partial(given, v)) for attribute, v, line in vary.captured]
    for rest, line in vary.rests:
        slots += [(a, line, now, partial(within, rest, a)) for a, now in sorted((case.get(rest) or {}).items())]
    for attribute, line, now, change in slots:
        for word, opset in spoken(*operator_of(case, line), attribute, opset_of(case)).items():
            texts = [[*now[:i], word, *now[i + 1 :]] for i in range(len(now))] if isinstance(now, list) else [word]
            yield from (change(text, opset, case) for text in texts if text != now)


def _typed(vary: Variation, case: Case) -> Iterator[Case]:
    """Operands of one or two types have others, in an operator set that allows both; those of one beside each type that a Cast may make of it."""
    read = [(place, operand.dtype) for place, operand in places(case)]
    newest = max(opset_of(case), OPSETS[1])
    versions = range(opset_of(case), newest + 1)
    allowed = {
        (name, v): frozenset(dtypes_of(vary.rule, name, v)) for name in {p[0] for p, _ in read} for v in versions
    }
    others = {dtype: set[str]() for _, dtype in read}
    for (name, _), dtype in read:
        others[dtype] |= allowed[name, newest] - {dtype}
    pairs = itertools.combinations_with_replacement(sorted(others), 2)
    changes = ({one: t, two: u} for one, two in pairs for t in sorted(others[one]) for u in sorted(others[two]))
    cast = [v for attribute, v, _ in vary.captured if attribute == "to" and v in case]
    for to in {tuple(sorted(change.items())): change for change in changes}.values():
        wanted = [(name, to[dtype]) for (name, _), dtype in read if dtype in to]
        first = first_with(opset_of(case), lambda v, w=wanted: all(t in allowed[n, v] for n, t in w))  # type: ignore[misc]
        made = since(first, case)
        for place, operand in places(case):
            made = put(made, place, retyped(operand, to.get(operand.dtype, operand.dtype)) or operand)
        yield (made := halved(made))
        yield from ({**made, name: number} for name in cast if len(to) == 1 for number in TYPES)
