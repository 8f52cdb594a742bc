"""Changes of a case that only fit together.

Sizes with the shapes and attributes that repeat them, a permutation with the rank it is for, an older operator set with
the attributes that operands were then, an equation with its operands.

A change of one part alone does not match there, so that what a rule says of the others would never be asked.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from graphopt.ir.types import FLOATS
from graphopt.prover.attributes import orders_in
from graphopt.prover.cases import Case, Place, contents_read, held, operands, places, put
from graphopt.prover.contents import hidden, mapped, reshaped, squared
from graphopt.prover.images import fitting_images
from graphopt.prover.schemas import OPSETS, attributes_of, most_operands, said_by, values_of
from graphopt.rewrite.examples import DEFAULT_OPSET, Operand
from graphopt.rewrite.pattern import Line
from graphopt.rewrite.schema import Rule

_MOST = 400
"""Cases that one kind of change makes of one example, drawn where there are more."""
_MOST_ELEMENTS = 4096
_OLD = 8  # drawn for each operator set
_UNEVEN = 32  # draws of all floats that a rule computes with
_NO_SIZE = 2**31  # an end of a Slice that means all of it, and has no double in its type
_LONGEST = 64  # of the numbers that conditions name, those that sizes outgrow
_FEW = 8  # permutations drawn of a target that got longer
_LETTERS = {"i": 2, "j": 3, "k": 4, "b": 2, "a": 3, "n": 2, "c": 3}
_EQUATIONS = (
    "ij,jk->ik", "ij,kj->ik", "ij,jk->ki", "ji,jk->ik", "i,j->ij", "i,i->i", "i,i->", "ij,ij->ij", "ij,ij->i", "ij,ij->", "ij,j->i",
    "bij,bjk->bik", "bij,bkj->bik", "bij,jk->bik", "bij,bij->b", "ij,jk", "ba,ac", "ij->ji", "ij->i", "ij->j", "ij->", "ij->ij", "ii->i",
    "kj,ji", "cb,ba", "ij", "ba", "bij->bji", "i->i", "...ij,...jk->...ik", "...i->...", "ij,jk,kb->ib",
)  # fmt: skip
_COLUMNS: tuple[tuple[tuple[int, ...], list[int], list[int], dict[str, list[int]]], ...] = (
    # Operands and attributes of Col2Im: columns, image, block.
    ((1, 4, 9), [4, 4], [2, 2], {}), ((1, 4, 4), [4, 4], [2, 2], {"strides": [2, 2]}), ((2, 4, 4), [3, 3], [2, 2], {}),
    ((1, 6, 6), [3, 4], [2, 3], {}), ((1, 4, 16), [3, 3], [2, 2], {"pads": [1, 1, 1, 1]}), ((1, 4, 4), [4, 4], [2, 2], {"dilations": [2, 2]}),
)  # fmt: skip


def coupled(rule: Rule, case: Case, rng: np.random.Generator) -> list[Case]:
    """Cases that differ from one in several parts at once, each kind of change in turn; those to be tried first at the end."""
    kinds = [
        _scaled(rule, case, rng),
        _both_grown(rule, case, rng),
        _permuted(rule, case, rng),
        _aged(rule, case, rng),
        _quoted(rule, case),
        _equations(rule, case),
        _columns(rule, case),
        _split(rule, case, rng),
        _exchanged(case),
        _equalled(rule, case),
        _uneven(rule, case, rng),
        _paired(case, rng),
        _parted(rule, case),
        _stretched(case),
        _counted(rule, case),
        _filled(rule, case),
        _reordered(rule, case),
    ]
    drawn = [list(kind) for kind in kinds]
    for kind in drawn:
        rng.shuffle(kind)
    turns = [case for turn in itertools.zip_longest(*drawn) for case in turn if case is not None]
    return [*reversed(turns), *_renamed(rule, case), *_copied(rule, case), *fitting_images(rule, case)]


def _drawn(choices: list[list[Any]], rng: np.random.Generator) -> Iterator[tuple[Any, ...]]:
    """One of each of several lists: all combinations, or some."""
    if math.prod(map(len, choices)) <= _MOST:
        yield from itertools.product(*choices)
        return
    for _ in range(_MOST):
        yield tuple(many[int(rng.integers(len(many)))] for many in choices)


# -- sizes --------------------------------------------------------------------------------------------------------


def _scaled(rule: Rule, case: Case, rng: np.random.Generator) -> Iterator[Case]:
    """One number of each part, or none, is multiplied by two or three: what a factor of a size goes through."""
    parts = [*_slots(rule, case)]
    for factor in (2, 3):
        changes = [[None, *(_multiplied(case, slot, factor) for slot in slots)] for slots in parts]
        for chosen in _drawn(changes, rng):
            if any(change is not None for change in chosen):
                made = case
                for change in chosen:
                    made = made if change is None else change(made)
                yield made


def _both_grown(rule: Rule, case: Case, rng: np.random.Generator) -> Iterator[Case]:
    """Two numbers of a target that are 1 become 2, and one number of each other part is multiplied by four, or none: which of the two comes first is told."""
    parts = [*_slots(rule, case)]
    for place, target in _targets(rule, case):
        others = [[None, *(_multiplied(case, slot, 4) for slot in slots)] for slots in parts if slots[0][0] != place]
        for pair in itertools.combinations([i for i, n in enumerate(target.data) if n == 1], 2):
            grown = replace(target, data=[2 if i in pair else n for i, n in enumerate(target.data)])
            for chosen in _drawn(others, rng):
                made = put(case, place, grown)
                for change in chosen:
                    made = made if change is None else change(made)
                yield made


def _counted(rule: Rule, case: Case) -> Iterator[Case]:
    """Attributes take the whole numbers of the rule's conditions, with sizes to fit: as many groups or blocks want as many channels."""
    sizes = sorted({d for o in operands(case) for d in o.dims if isinstance(d, int) and d > 1})
    variables = [v for line in rule.match for _, v in line.captures if type(case.get(v)) is int]
    for n in sorted(n for n in said_by(rule) if type(n) is int and n > 2 and n * n <= _MOST):
        for size, to in itertools.product(sizes, (n, 2 * n, 2 * n * n)):
            made = case
            for place, operand in places(case):
                made = put(made, place, reshaped(operand, tuple(to if d == size else d for d in operand.dims)))
            yield from ({**made, variable: n} for variable in variables)


def _filled(rule: Rule, case: Case) -> Iterator[Case]:
    """Two sizes take the factors of a whole number that the rule's conditions name: as many elements as they speak of."""
    sizes = sorted({d for o in operands(case) for d in o.dims if isinstance(d, int)})
    named = sorted(n for n in said_by(rule) if type(n) is int and 3 < n <= _MOST_ELEMENTS)
    factors = [(k, n // k) for n in named for k in range(2, n) if n % k == 0]
    for (one, two), (a, b) in itertools.product(itertools.combinations(sizes, 2), factors):
        made, to = case, dict[Any, Any]({one: a, two: b})
        for place, operand in places(case):
            made = put(made, place, reshaped(operand, tuple(to.get(d, d) for d in operand.dims)))
        yield made


def _reordered(rule: Rule, case: Case) -> Iterator[Case]:
    """Items of a list attribute change places, and the elements of a constant as long become different."""
    for many in (many for line in rule.match for _, many in line.lists):
        for one, two in itertools.combinations([i for i in many if isinstance(i, str) and i in case], 2):
            made = {**case, one: case[two], two: case[one]}
            yield made
            for place, operand in places(case):
                if isinstance(operand.data, list) and len(operand.data) == len(many):
                    yield put(made, place, replace(operand, data=[*range(1, len(many) + 1)]))


def _renamed(rule: Rule, case: Case) -> Iterator[Case]:
    """One size is another one wherever it stands: in dimensions, and in the constants that repeat it, or say what place is the last."""
    sizes = sorted({d for operand in operands(case) for d in operand.dims if isinstance(d, int) and d > 0})
    named = sorted(2 * n for n in said_by(rule) if type(n) is int and 2 < n <= _LONGEST)
    # Another, or twice the size: as many channels again for as many groups. And beyond what conditions name.
    for old, new in [(size, other) for size in sizes for other in (*named, 3, 2, 2 * size)]:
        for to in ({old: new, old - 1: new - 1}, {old: new}):
            made = case
            for place, operand in places(case):
                if operand.dtype in ("i64", "i32") and operand.data is not None:
                    made = put(made, place, replace(operand, data=mapped(operand.data, to)))
                else:
                    made = put(made, place, reshaped(operand, tuple(new if d == old else d for d in operand.dims)))
            if made != case:
                yield made


def _slots(rule: Rule, case: Case) -> Iterator[list[tuple[Any, ...]]]:
    """For each part of a case the places of its numbers: dimensions, elements of an integer constant, attributes."""
    for place, operand in places(case):
        dims = [(place, "dims", i) for i, d in enumerate(operand.dims) if isinstance(d, int) and d > 0]
        data = operand.data if operand.dtype in ("i64", "i32") and isinstance(operand.data, list) else []
        listed = [(place, "data", i) for i, n in enumerate(data) if isinstance(n, int) and 0 < n < _NO_SIZE]
        yield from (slots for slots in (listed or dims,) if slots)
    for name, value in case.items():
        if name in rule.leaves or name == "opset":
            continue
        if isinstance(value, dict):
            numbers = [((name, key), "attribute", 0) for key, n in value.items() if type(n) is int and n > 0]
        else:
            numbers = [((name, None), "attribute", 0)] if type(value) is int and value > 0 else []
        yield from ([slot] for slot in numbers)


def _multiplied(case: Case, slot: tuple[Any, ...], factor: int) -> Callable[[Case], Case]:
    """What multiplies a number of a case, in this case or in one whose other parts have changed."""
    place, kind, i = slot
    name, key = place
    if kind == "attribute":
        if key is None:
            return lambda made: {**made, name: made[name] * factor}
        return lambda made: {**made, name: {**made[name], key: made[name][key] * factor}}
    operand = held(case, place)
    numbers = list(operand.dims if kind == "dims" else operand.data)
    numbers[i] *= factor
    changed = reshaped(operand, tuple(numbers)) if kind == "dims" else replace(operand, data=numbers)
    return lambda made: put(made, place, changed)


def _permuted(rule: Rule, case: Case, rng: np.random.Generator) -> Iterator[Case]:
    """Permutations of two to four axes, with operands of as many, all of one size or each of its own."""
    names = orders_in(rule, case)
    if not names:
        return
    old = {len(case[name]) for name in names}
    for rank in (2, 3, 4):
        for perm in itertools.permutations(range(rank)):
            inverse = [perm.index(i) for i in range(rank)]
            for dims in ((2,) * rank, (3, 3, 3, 3)[:rank], (2, 3, 4, 5)[:rank]):
                made = {**case, **{n: [list(perm), inverse][int(rng.integers(2))] for n in names}, names[0]: list(perm)}
                for place, operand in places(case):
                    if len(operand.dims) in old:
                        made = put(made, place, reshaped(operand, dims))
                yield made


def _split(rule: Rule, case: Case, rng: np.random.Generator) -> Iterator[Case]:
    """A dimension that a constant names falls into two, or gets a 1 beside it; permutations are of one axis more then."""
    perms = orders_in(rule, case)
    for place, target in _targets(rule, case):
        for i, n in enumerate(target.data):
            pairs = [(1, n), (n, 1)] + [(k, n // k) for k in (2, 3) if n > 0 and n % k == 0 and n > k]
            pairs += [(k, -1) for k in (2, 3) if n == -1]
            for pair in pairs:
                data = [*target.data[:i], *pair, *target.data[i + 1 :]]
                made = put(case, place, replace(target, data=data, dims=(len(data),)))
                yield made
                old = [p for p in perms if len(case[p]) == len(target.data)]
                orders = list(itertools.permutations(range(len(data)))) if old else []
                for k in rng.permutation(len(orders))[:_FEW]:
                    yield {**made, **{name: list(orders[k]) for name in old}}


def _parted(rule: Rule, case: Case) -> Iterator[Case]:
    """A Split along each axis, in parts that add up to a dimension that may be there."""
    for line in rule.match:
        sizes = case.get(line.operands[1].name) if ("", "Split") in line.ops and len(line.operands) > 1 else None
        axis = dict(line.captures).get("axis")
        if not isinstance(sizes, Operand) or not isinstance(sizes.data, list) or axis not in case:
            continue
        count = len(sizes.data)
        totals = sorted({d for o in operands(case) for d in o.dims if isinstance(d, int) and d >= count})
        for along, total in itertools.product(range(-3, 4), totals):
            data = [*[1] * (count - 1), total - count + 1]
            yield put({**case, axis: along}, (line.operands[1].name, None), replace(sizes, data=data))


def _copied(rule: Rule, case: Case) -> Iterator[Case]:
    """Each entry of the target of a Reshape as 0 or -1, which copy or infer a dimension; of operands that hide their sizes, too."""
    for place, target in _targets(rule, case):
        for i, number in itertools.product(range(len(target.data)), (0, -1)):
            made = put(case, place, replace(target, data=[*target.data[:i], number, *target.data[i + 1 :]]))
            if made != case:
                yield made
                yield hidden(made)


def _targets(rule: Rule, case: Case) -> Iterator[tuple[Place, Operand]]:
    """The constants that say the shape of a Reshape, with their places."""
    names = {o.name for line in rule.match if line.ops == (("", "Reshape"),) for o in line.operands[1:]}
    for place, operand in places(case):
        if place[0] in names and operand.const and isinstance(operand.data, list):
            yield place, operand


def _stretched(case: Case) -> Iterator[Case]:
    """Where all sizes are one, so that it fits any axis, one operand along each of the last ones."""
    for size in (2, 3):
        square = squared(case, size)
        for place, operand in places(square):
            for dims in ((size,), (size, 1), (size, 1, 1), (1, size), (size, size)):
                if operand.dims != dims and len(operand.dims) <= len(dims):
                    yield put(square, place, reshaped(operand, dims))


def _exchanged(case: Case) -> Iterator[Case]:
    """Two operands of one kind change places."""
    for (one, a), (two, b) in itertools.combinations(places(case), 2):
        if a != b and (a.dtype, a.const) == (b.dtype, b.const):
            yield put(put(case, one, b), two, a)


def _equalled(rule: Rule, case: Case) -> Iterator[Case]:
    """Of the constants that a condition looks at, two hold the same, and a third one something else: what is equal may be a pair of several."""
    read = contents_read(rule)
    plain = [(p, o) for p, o in places(case) if p[0] in read and o.const and type(o.data) in (int, float)]
    for (one, a), (two, b) in itertools.permutations(plain, 2):
        if (a.dtype, a.dims) == (b.dtype, b.dims) and a.data != b.data:
            made = put(case, two, a)
            yield made
            yield from (
                put(made, place, replace(o, data=o.data + n))
                for place, o in plain
                if place not in (one, two)
                for n in (1, 40)
            )


def _uneven(rule: Rule, case: Case, rng: np.random.Generator) -> Iterator[Case]:
    """The floats that a rule computes with, drawn together: of round ones, sixteenths among them, quotients lose no digit."""
    read = contents_read(rule)
    numbers = [(p, o) for p, o in places(case) if p[0] in read and o.const and o.dtype in FLOATS]
    numbers = [(p, o) for p, o in numbers if type(o.data) in (int, float)]
    for _ in range(_UNEVEN if len(numbers) > 1 else 0):
        made = case
        for place, operand in numbers:
            drawn = round(float(rng.choice((1.0, 10.0)) * rng.uniform(0.3, 6.0)), 1)
            made = put(made, place, replace(operand, data=math.copysign(drawn, operand.data)))
        yield made


def _paired(case: Case, rng: np.random.Generator) -> Iterator[Case]:
    """Two numbers of integer constants together, from the front and from the end: where a Slice begins and where it ends."""
    listed = [(place, o) for place, o in places(case) if o.const and o.dtype in ("i64", "i32")]
    slots = [(p, i) for p, o in listed if isinstance(o.data, list) and len(o.dims) == 1 for i in range(len(o.data))]
    pairs, numbers = [*itertools.combinations(slots, 2)], [*range(-3, 4)]
    for pair, *chosen in _drawn([pairs, numbers, numbers], rng) if pairs else ():
        made = case
        for (place, i), n in zip(pair, chosen, strict=True):
            operand = held(made, place)
            made = put(made, place, replace(operand, data=[*operand.data[:i], n, *operand.data[i + 1 :]]))
        yield made


# -- operator sets ------------------------------------------------------------------------------------------------


def _aged(rule: Rule, case: Case, rng: np.random.Generator) -> Iterator[Case]:
    """Operator sets in which an operator of the pattern had attributes that it has no longer, operands given instead left out."""
    for opset in range(OPSETS[0], DEFAULT_OPSET):
        for _ in range(_OLD):
            made, found = {**case, "opset": opset}, False
            for line in rule.match:
                if line.rest and line.rest != "_" and len(line.ops) == 1:
                    found |= _age(made, line, opset, rng)
            if found:
                yield made


def _age(case: Case, line: Line, opset: int, rng: np.random.Generator) -> bool:
    ((domain, op),) = line.ops
    old, new = attributes_of(domain, op, opset), attributes_of(domain, op, DEFAULT_OPSET)
    gone = sorted(set(old) - set(new) - {a for a, _ in (*line.attributes, *line.captures, *line.lists)})
    if not gone:
        return False
    for operand in line.operands[most_operands(domain, op, opset) :]:
        if operand.kind == "optional":
            case.pop(operand.name, None)
    rank = max((len(o.dims) for o in operands(case)), default=2)
    length = int(rng.integers(1, rank + 1))
    rest = dict(case.get(line.rest) or {})
    for name in gone:
        if old[name].required or rng.random() < 0.5:
            rest[name] = _old_value(op, name, old[name], rank, length, rng)
    case[line.rest] = rest
    return True


def _old_value(op: str, name: str, attribute: Any, rank: int, length: int, rng: np.random.Generator) -> Any:
    if op in ("Pad", "Slice"):
        low, high, count = {
            "pads": (0, 3, 2 * rank),
            "starts": (-2, 3, length),
            "ends": (-1, 120, length),
            "axes": (0, rank, length),
        }.get(name, (0, 0, 0))
        if name == "axes":
            return sorted(int(i) for i in rng.permutation(rank)[:count])
        if count:
            return [int(n) for n in rng.integers(low, high, count)]
    values = values_of(name, attribute.type, None, rank, max(rank - 2, 1), rng, words=attribute.words)
    return values[int(rng.integers(len(values)))] if values else 1


# -- attributes that say what operands look like ------------------------------------------------------------------


def _quoted(rule: Rule, case: Case) -> Iterator[Case]:
    """Strings that a condition names, as the value of each attribute that is one; with operands of one size, too."""
    words = sorted(w for w in said_by(rule) if isinstance(w, str))
    for line in rule.match:
        for _, variable in line.captures:
            if isinstance(case.get(variable), str):
                for word in words:
                    made = {**case, variable: word}
                    yield made
                    yield _cubed(made)


def _cubed(case: Case) -> Case:
    for place, operand in places(case):
        case = put(case, place, reshaped(operand, (3,) * len(operand.dims)))
    return case


def _equations(rule: Rule, case: Case) -> Iterator[Case]:
    """Equations of an Einsum with operands that fit, of different sizes and of one."""
    for line in rule.match:
        variables = [v for a, v in line.captures if a == "equation"]
        free = [o.name for o in line.operands if isinstance(case.get(o.name), Operand)]
        if ("", "Einsum") not in line.ops or not variables or len(free) < len(line.operands):
            continue
        for equation in _EQUATIONS:
            terms = equation.partition("->")[0].split(",")
            if len(terms) != len(free):
                continue
            for sizes in (_LETTERS, dict.fromkeys(_LETTERS, 3)):
                made = {**case, variables[0]: equation}
                for name, term in zip(free, terms, strict=True):
                    dims = tuple(n for c in term.replace("...", "n") for n in (sizes[c],))
                    made = put(made, (name, None), reshaped(made[name], dims))
                yield made


def _columns(rule: Rule, case: Case) -> Iterator[Case]:
    """Columns, image and block of a Col2Im that fit."""
    for line in rule.match:
        names = [o.name for o in line.operands]
        if ("", "Col2Im") in line.ops and all(isinstance(case.get(n), Operand) for n in names):
            x, image, block = (case[n] for n in names)
            for dims, size, window, attributes in _COLUMNS:
                made = {**case, "opset": 18} | ({line.rest: attributes} if line.rest and line.rest != "_" else {})
                yield made | {
                    names[0]: replace(x, dims=dims),
                    names[1]: replace(image, data=size),
                    names[2]: replace(block, data=window),
                }
