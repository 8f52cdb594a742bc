"""What several parts of a case say together, drawn out of few numbers.

Conditions on the extremes of constants, or on what different elements they have, are met by vectors that no change of one constant alone makes: where all of
them are single numbers in the example, all become as long. The items of lists that speak of windows want each other's values for a result of the
same size; an axis that is put in elsewhere wants the sizes that are named beside it in another order; a zero that is left in a list may be none where
sizes are not known.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, cast

import numpy as np

from graphopt.ir.types import FLOATS, NUMPY_NAMES
from graphopt.prover.attributes import axes_in, orders_in
from graphopt.prover.cases import Case, Place, held, operands, places, put, size_of
from graphopt.prover.contents import LEVELS, SYMBOLS, hidden, read_alone, reshaped, squared
from graphopt.prover.fitted import COERCED
from graphopt.prover.images import kernels
from graphopt.prover.rearranged import LEAST, given_to, lists
from graphopt.prover.variation import Variation
from graphopt.rewrite.examples import Operand

_LENGTH = 2  # of the vectors: enough for one element to be unlike the other
_VECTORS = 128  # draws of all constants of a rule
_WINDOWS = 128  # draws of the lists of all windows, the windows and the images
_IMAGES = (4, 5, 6, 7)
_ITEMS: dict[str, tuple[int, ...]] = {
    "kernel_shape": (1, 2, 3), "strides": (1, 2, 3), "dilations": (1, 2), "pads": (0, 1), "output_padding": (0, 1),
}  # fmt: skip
_RANK = 5  # of permutations of more axes than images have
_MOVED = 128  # axes in other places, drawn where there are more
_SMALL = (-1, 0, 1, 2)
_LONG = 64  # of sizes that conditions name, those at which sums may no longer be whole


def jointly(vary: Variation, case: Case) -> Iterator[Case]:
    """The cases that differ from one in several numbers at once.

    Args:
        vary: Ways to change a case of the rule.
        case: An example that the rule accepts.
    """
    yield from _as_vectors(vary, case)
    yield from _as_windows(vary, case)
    yield from _of_more_axes(vary, case)
    yield from _put_elsewhere(vary, case)
    yield from _where_sizes_hide(vary, case)
    yield from _of_more_repeats(vary, case)
    yield from _in_blocks(vary, case)
    yield from _scaled_alike(case)
    yield from _of_more_places(vary, case)


def lengthened(vary: Variation, case: Case) -> Iterator[Case]:
    """Optional operands at the ends of a type of few bits, beside sizes as large as conditions name: a product has one bit more with its zero point."""
    sizes = sorted({d for o in operands(case) for d in o.dims if isinstance(d, int)})
    lengths = [to for to in vary.lengths if to > _LONG]
    for given in vary.optionals(case) if lengths else ():
        for name in given.keys() - case.keys():
            operand = given[name]
            if isinstance(operand, Operand) and operand.dtype in LEVELS and operand.data in _ends(operand.dtype):
                for size, to in itertools.product(sizes, lengths):
                    yield from _resized(given, size, to)


def _ends(dtype: str) -> tuple[int, int]:
    info = np.iinfo(NUMPY_NAMES[dtype])
    return int(info.min), int(info.max)


def _resized(case: Case, size: int, to: int) -> Iterator[Case]:
    """Dimensions of one size get another one in two operands, once in each: what is summed over."""
    slots = [(place, i) for place, o in places(case) for i, d in enumerate(o.dims) if d == size]
    for pair in itertools.combinations(slots, 2):
        made = case
        for place, i in pair if pair[0][0] != pair[1][0] else ():
            dims = held(made, place).dims
            made = put(made, place, reshaped(held(made, place), (*dims[:i], to, *dims[i + 1 :])))
        if made is not case:
            yield made


def _as_vectors(vary: Variation, case: Case) -> Iterator[Case]:
    """Constants of one number that conditions look at as vectors: of their own numbers and those beside them, and pairs in which one is tied to the other, in both orders."""
    base = squared(case, _LENGTH)
    single = [(place, o) for place, o in read_alone(vary.rule, base) if type(o.data) in (int, float)]
    alike: dict[str, list[tuple[Place, Operand]]] = {}
    for place, operand in single:
        alike.setdefault(operand.dtype, []).append((place, operand))
    groups = [group for group in alike.values() if len(group) > 1]
    if not groups:
        return
    repeated = base
    for place, operand in single:
        repeated = _vector(repeated, place, operand, [operand.data] * _LENGTH)
    for (one, a), (two, b) in (pair for group in groups for pair in itertools.combinations(group, 2)):
        for more, other in _partners(a, b):
            for data in ([b.data, other], [other, b.data]):
                for start in (base, repeated) if len(single) > 2 else (base,):
                    yield _vector(_vector(start, one, a, [a.data, more]), two, b, data)
    # What a sum or a product of several says, all of them double, or their squares, say as well, one the other way round.
    for group, power in itertools.product((g for g in groups if len(g) > 2), (False, True)):
        rising = [(p, o, [o.data, o.data**2 if power else 2 * o.data]) for p, o in group]
        for turned, _, _ in rising if all(o.dtype in FLOATS for _, o in group) else ():
            made = base
            for place, operand, data in rising:
                made = _vector(made, place, operand, data[::-1] if place == turned else data)
            yield made
    for turn in range(_VECTORS):
        made = base
        for group in groups:
            pool = list(dict.fromkeys(n for _, o in group for n in (o.data, *_beside(o, [p.data for _, p in group]))))
            for place, operand in group:
                first = operand.data if vary.rng.random() < 0.5 else pool[int(vary.rng.integers(len(pool)))]
                data = [first, pool[int(vary.rng.integers(len(pool)))]]
                vary.rng.shuffle(data)
                if turn % 2 or vary.rng.random() < 0.7:
                    made = _vector(made, place, operand, data)
        yield made


def _partners(one: Operand, two: Operand) -> Iterator[tuple[Any, Any]]:
    """A second number for each of two constants, that has the difference, sum, product or quotient of the first ones."""
    a: Any = one.data
    b: Any = two.data
    if one.dtype in FLOATS:
        yield from ((a + 1, b + 1), (a + 1, b - 1), (2 * a, b / 2), (2 * a, 2 * b))
        return
    least, most = _ends(one.dtype)
    for x, y in ((a + 1, b + 1), (a + 1, b - 1), (2 * a, b // 2), (2 * a, 2 * b)):
        if least <= min(x, y) and max(x, y) <= most:
            yield x, y


def _beside(operand: Operand, numbers: list[Any]) -> list[Any]:
    """Numbers beside some, between two of them and beyond, as far as the type of an operand has them."""
    if operand.dtype in FLOATS:
        return [m for n in numbers for m in (2.0 * n, n / 2, n + 0.25)]
    least, most = _ends(operand.dtype)
    return [m for n in numbers for m in (n - 1, n + 1) if least <= m <= most]


def _vector(case: Case, place: Place, operand: Operand, data: list[Any]) -> Case:
    return put(case, place, replace(operand, dims=(len(data),), data=data))


def _as_windows(vary: Variation, case: Case) -> Iterator[Case]:
    """All lists of windows drawn, and with them the windows and the images: results of the same size are made in many ways."""
    case = {**{rest: {} for rest, _ in vary.rests}, **case}
    listed = [found for found in lists(vary, case) if found[0] in _ITEMS]
    weights = {weight for _, weight, _ in kernels(vary.rule, case) if weight}
    if not listed:
        return
    for _ in range(_WINDOWS):
        made, alike = case, vary.rng.random() < 0.5
        for place, operand in places(case):
            if len(operand.dims) > 2 and operand.data is None:
                choices = _ITEMS["kernel_shape"] if place[0] in weights else _IMAGES
                sides = _drawn(vary, choices, len(operand.dims) - 2)
                made = put(made, place, reshaped(operand, (*operand.dims[:2], *sides)))
        for attribute, names, numbers in listed:
            # Half of the time only some of the lists, or they seldom fit.
            if alike or vary.rng.random() < 0.5:
                items = _drawn(vary, _ITEMS[attribute], len(numbers))
                made = {**made, **given_to(names, [max(n, LEAST[attribute]) for n in items])}
        yield made


def _drawn(vary: Variation, choices: tuple[int, ...], count: int) -> list[int]:
    return [int(n) for n in vary.rng.choice(choices, count)]


def _of_more_axes(vary: Variation, case: Case) -> Iterator[Case]:
    """Permutations of five axes, with operands of as many, where others undo them but for two axes: what is said of the ends and the middle says less there."""
    names = orders_in(vary.rule, case)
    old = {len(case[name]) for name in names}
    if not names or old == {_RANK}:
        return
    deep = case
    for place, operand in places(case):
        if len(operand.dims) in old and operand.data is None:
            deep = put(deep, place, reshaped(operand, (_LENGTH,) * _RANK))
    axes = axes_in(vary.rule, case)
    coerced = any(op in COERCED for line in vary.rule.match for _, op in line.ops)
    for perm in itertools.permutations(range(_RANK)):
        inverse = [perm.index(i) for i in range(_RANK)]
        i, j = (int(n) for n in vary.rng.permutation(_RANK)[:2])
        nearly = [inverse[{i: j, j: i}.get(k, k)] for k in range(_RANK)]
        for others in ([*perm], inverse, nearly) if len(names) > 1 else ([*perm],):
            made = {**deep, **dict.fromkeys(names, others), names[0]: [*perm]}
            yield {**made, **dict.fromkeys(axes, int(vary.rng.integers(_RANK)))}
            if coerced and axes:
                yield from ({**made, **dict.fromkeys(axes, axis), "opset": 11} for axis in range(1, _RANK - 1))


def _put_elsewhere(vary: Variation, case: Case) -> Iterator[Case]:
    """An axis that a constant names is another one, and two sizes that another constant names change places."""
    listed = [(p, o) for p, o in places(case) if o.const and o.dtype == "i64" and isinstance(o.data, list)]
    listed = [(p, o) for p, o in listed if len(o.dims) == 1]
    made = []
    for place, operand in listed:
        if len(operand.data) != 1 or not isinstance(operand.data, list):
            continue
        for other, sizes in listed:
            data: Any = sizes.data
            for i, j in itertools.combinations(range(len(data)), 2) if other != place else ():
                turned = [data[{i: j, j: i}.get(k, k)] for k in range(len(data))]
                made += [
                    put(put(case, place, replace(operand, data=[axis])), other, replace(sizes, data=turned))
                    for axis in range(-2, 4)
                    if turned != data
                ]
    yield from (made[int(i)] for i in vary.rng.permutation(len(made))[:_MOVED])


def _where_sizes_hide(vary: Variation, case: Case) -> Iterator[Case]:
    """One item of a constant list of whole numbers is another small one where sizes are symbols: types refuse most of it where they are known."""
    for place, operand in places(case):
        if place[0] in vary.read and operand.const and operand.dtype == "i64" and isinstance(operand.data, list):
            bases = [hidden(case), *_leading(case)]
            for i, n in itertools.product(range(len(operand.data)), _SMALL):
                data = [*operand.data[:i], n, *operand.data[i + 1 :]]
                if n != operand.data[i] and len(operand.dims) == 1:
                    yield from (put(base, place, replace(held(base, place), data=data)) for base in bases)


def _leading(case: Case) -> Iterator[Case]:
    """The cases with a symbol along one axis of all operands that are no constants."""
    rank = max((len(o.dims) for o in operands(case) if not o.const), default=0)
    for axis in range(rank):
        made = case
        for place, o in places(case):
            if not o.const and axis < len(o.dims):
                made = put(made, place, replace(o, dims=(*o.dims[:axis], SYMBOLS[0], *o.dims[axis + 1 :])))
        yield made


def _of_more_repeats(vary: Variation, case: Case) -> Iterator[Case]:
    """Permutations of three and four axes beside lists of a number for each axis, which are as long then and whose numbers differ."""
    names = orders_in(vary.rule, case)
    old = {len(case[name]) for name in names}
    listed = [(p, o) for p, o in places(case) if o.const and o.dtype == "i64" and isinstance(o.data, list)]
    listed = [(p, o) for p, o in listed if len(o.dims) == 1 and size_of(o) in old]
    for rank in (3, 4) if listed else ():
        deep = case
        for place, operand in places(case):
            if len(operand.dims) in old and operand.data is None:
                deep = put(deep, place, reshaped(operand, (_LENGTH,) * rank))
        for perm in itertools.permutations(range(rank)):
            made = deep | {name: [*perm] for name in names}
            for place, operand in listed:
                data = [int(n) for n in vary.rng.integers(1, 4, rank)]
                made = put(made, place, replace(operand, dims=(rank,), data=data))
            yield made


def _in_blocks(vary: Variation, case: Case) -> Iterator[Case]:
    """Blocks of channels of each size, with as many channels as all of them together want."""
    blocks = [v for attribute, v, _ in vary.captured if attribute == "blocksize" and v in case]
    for sizes in itertools.product((1, 2, 3), repeat=len(blocks)) if blocks else ():
        for more in (1, 2):
            made = {**case, **dict(zip(blocks, sizes, strict=True))}
            for place, o in places(case):
                if len(o.dims) == 4:
                    side, channels = math.prod(sizes), more * math.prod(sizes) ** 2
                    for dims in ((o.dims[0], channels, 1, 2), (o.dims[0], more, side, side)):
                        yield put(made, place, reshaped(o, dims))


def _scaled_alike(case: Case) -> Iterator[Case]:
    """One number in lists of floats is another one wherever it stands, between whole ones too: scales of images that are not made twice as large."""
    listed = [(p, o) for p, o in places(case) if o.const and o.dtype in FLOATS and isinstance(o.data, list)]
    listed = [(p, o) for p, o in listed if len(o.dims) == 1]
    for i, factor in itertools.product(range(max((size_of(o) for _, o in listed), default=0)), (1.5, 1.25, 3.0)):
        made = squared(case, _IMAGES[0])
        for place, o in listed:
            items: Any = o.data
            made = put(made, place, replace(o, data=[n * factor if k == i else n for k, n in enumerate(items)]))
        yield made
    for number in sorted({n for _, o in listed for n in cast(list[float], o.data)}):
        for to, size in itertools.product((1.5 * number, number + 0.5, 0.75 * number, number + 1), _IMAGES):
            made = squared(case, size)
            for place, o in listed:
                data: Any = o.data
                made = put(made, place, replace(o, data=[to if n == number else n for n in data]))
            yield made


def _of_more_places(vary: Variation, case: Case) -> Iterator[Case]:
    """Tables of places with more rows and columns that count along either axis, but for two places that are exchanged: few places say all of two by two."""
    tables = [(p, o) for p, o in places(case) if p[0] in vary.read and o.const and o.dtype in ("i64", "i32")]
    for place, table in ((p, o) for p, o in tables if len(o.dims) == 2 and isinstance(o.data, list)):
        for dims, axis in itertools.product(((2, 3), (3, 2), (3, 3)), (0, 1)):
            made = case
            for other, o in places(case):
                made = put(made, other, reshaped(o, dims)) if o.dims == table.dims and other != place else made
            flat = np.indices(dims)[axis].reshape(-1)
            for pair in itertools.combinations(range(flat.size), 2):
                moved = flat.copy()
                moved[[*pair]] = flat[[*pair[::-1]]]
                yield put(made, place, replace(table, dims=dims, data=moved.reshape(dims).tolist()))
