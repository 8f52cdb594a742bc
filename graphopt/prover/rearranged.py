"""Constants and lists of other content of which conditions on the whole say the same.

A sum, a product, the extremes, a trace, or that a list reads the same from behind, do not say which element is which: the elements of an
example change places, what one gets another one loses, signs turn in pairs, and halves mirror one another in every way that there is. Where two constants or
lists are the same in the example, one changes alone, and both of them together.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from graphopt.ir.types import FLOATS, Array
from graphopt.prover.cases import Case, Place, held, places, put, size_of
from graphopt.prover.contents import reshaped, squared
from graphopt.prover.variation import Variation

_LARGEST = 64  # elements of a constant that is rearranged
_PAIRS = 40  # of elements between which something is moved, drawn where there are more
_SHUFFLES = 4
_ENDS = 2
_MORE = 7.0  # what a constant has where it got larger
LEAST = {"strides": 1, "dilations": 1, "kernel_shape": 1, "pads": 0, "output_padding": 0}
"""Of what lists hold: with less, kernels divide by zero, or crop."""
_TYPES = FLOATS | {"i32", "i64", "bool"}


def rearranged(vary: Variation, case: Case) -> Iterator[Case]:
    """A case with another content of each constant of several elements that conditions look at, and of each list that is an attribute.

    Args:
        vary: Ways to change a case of the rule.
        case: An example that the rule accepts.
    """
    for place, operand in places(case):
        if place[0] not in vary.read or not operand.const or operand.data is None or operand.dtype not in _TYPES:
            continue
        if not all(isinstance(d, int) for d in operand.dims) or not 1 < size_of(operand) <= _LARGEST:
            continue
        kind: Any = {"bool": bool}.get(operand.dtype, np.float64 if operand.dtype in FLOATS else object)
        dims: Any = operand.dims
        given = np.broadcast_to(np.asarray(operand.data, kind), dims)
        given = given if kind is bool else given.astype(object)  # Python's numbers, which know whether they are whole
        seen = [given.tolist()]
        twins = [p for p, o in places(case) if o == operand and p[0] in vary.read and p != place]
        for made in (*_moved(given, vary.rng), *_mirrored(given, vary.rng)):
            data = made.tolist()
            if data not in seen:
                seen.append(data)
                other = put(case, place, replace(operand, data=data))
                yield other
                # What conditions hold equal changes only where the others do.
                for twin in twins:
                    other = put(other, twin, replace(operand, data=data))
                yield from (other,) if twins else ()
        several = twins if operand.dtype != "bool" and size_of(operand) > _ENDS + 1 else []
        yield from (_inside_out(case, place, twin) for twin in several)
    yield from _grown(vary, case)
    listed = [*lists(vary, case)]
    for attribute, names, numbers in listed:
        alike = [found for found in listed if found[0] == attribute and found[2] == numbers]
        for made in _moved(np.asarray(numbers, object), vary.rng):
            items = made.tolist()
            if items != numbers and min(items) >= LEAST.get(attribute, min(items)):
                for chosen in ([names], [twin for _, twin, _ in alike])[: len(alike)]:
                    held = {k: v for n in chosen for k, v in given_to(n, items).items()}
                    yield from ({**base, **held} for base in (case, squared(case, 2), squared(case, 3)))


def _grown(vary: Variation, case: Case) -> Iterator[Case]:
    """One size is larger by one wherever it stands, and constants whose content is given have another number there: conditions may ask for the first ones."""
    known = [(p, o) for p, o in places(case) if p[0] in vary.read and o.const and isinstance(o.data, list)]
    known = [(p, o) for p, o in known if o.dtype in FLOATS and np.shape(o.data) == o.dims and size_of(o) <= _LARGEST]
    for size in sorted({d for _, o in known for d in o.dims if isinstance(d, int)}):
        made = case
        for place, operand in places(case):
            dims = tuple(size + 1 if d == size else d for d in operand.dims)
            other = reshaped(operand, dims)
            if (place, operand) in known:
                more = [(0, int(d == size)) for d in operand.dims]
                other = replace(operand, dims=dims, data=np.pad(operand.data, more, constant_values=_MORE).tolist())
            made = put(made, place, other)
        yield made


def _inside_out(case: Case, one: Place, two: Place) -> Case:
    """Two constants of the same elements, with the same extremes at both ends, of which two in between have changed places."""
    operand = held(case, one)
    kind = float if operand.dtype in FLOATS else int
    rising = [kind(n) for n in range(size_of(operand))]
    other = [rising[0], rising[2], rising[1], *rising[3:]]
    made = case
    for place, data in ((one, rising), (two, other)):
        made = put(made, place, replace(operand, data=np.reshape(np.asarray(data, object), operand.dims).tolist()))
    return made


def given_to(names: list[str], items: list[int]) -> dict[str, Any]:
    """What the variables of a list hold: the list, or an item each."""
    return {names[0]: items} if len(names) == 1 else dict(zip(names, items, strict=True))


def lists(vary: Variation, case: Case) -> Iterator[tuple[str, list[str], list[int]]]:
    """The attributes that are lists of whole numbers, each with the variable that holds it, or with those that hold its items."""
    for attribute, variable, _ in vary.captured:
        if isinstance(case.get(variable), list) and case[variable] and all(type(n) is int for n in case[variable]):
            yield attribute, [variable], case[variable]
    for attribute, many in (found for line in vary.rule.match for found in line.lists):
        names = [i for i in dict.fromkeys(many) if isinstance(i, str) and type(case.get(i)) is int]
        if len(names) > 1:
            yield attribute, names, [case[i] for i in names]


def _moved(given: Array, rng: np.random.Generator) -> Iterator[Array]:
    """The same elements elsewhere, and others with the same sum, the same product or the same squares."""
    for axis in range(given.ndim):
        yield np.flip(given, axis)
        yield np.roll(given, 1, axis)
    yield np.flip(given)
    if given.ndim > 1 and given.shape[-1] == given.shape[-2]:
        yield given.swapaxes(-1, -2)
    for _ in range(_SHUFFLES):
        yield rng.permutation(given.reshape(-1)).reshape(given.shape)
    pairs = list(itertools.combinations(range(given.size), 2))
    chosen = pairs if len(pairs) <= _PAIRS else [pairs[int(i)] for i in rng.permutation(len(pairs))[:_PAIRS]]
    for pair in chosen:
        a, b = (given.reshape(-1)[i] for i in pair)
        for both in ((b, a), *(_exchanged(a, b) if given.dtype == object else ())):
            made = given.reshape(-1).copy()
            made[[*pair]] = both
            yield made.reshape(given.shape)


def _exchanged(a: Any, b: Any) -> Iterator[tuple[Any, Any]]:
    """Pairs of numbers that have the sum of two, their product, or their squares."""
    yield from ((a + 1, b - 1), (a - 1, b + 1), (a + b, b - b), (-a, -b), (-a, b))
    yield from ((a * b, type(a)(1)), (type(b)(1), a * b))
    for x, y in ((a, b), (b, a)):
        if type(y) is float or y % 2 == 0:
            yield from ((2 * x, y / 2 if type(y) is float else y // 2),)


def _mirrored(given: Array, rng: np.random.Generator) -> Iterator[Array]:
    """Elements that are drawn, and mirrored along one axis, along all, or at the diagonal; and rows or columns that are alike."""
    if given.dtype == bool:
        return
    whole = all(type(x) is int for x in given.reshape(-1))
    drawn = rng.integers(1, 9, given.shape)
    drawn = (drawn if whole else drawn / 2).astype(object)
    flat = drawn.reshape(-1)
    yield np.asarray([flat[min(i, flat.size - 1 - i)] for i in range(flat.size)], object).reshape(given.shape)
    for axis in range(given.ndim):
        n = given.shape[axis]
        yield drawn.take([min(i, n - 1 - i) for i in range(n)], axis)
        yield np.broadcast_to(drawn.take([0], axis), given.shape)
    if given.ndim > 1 and given.shape[-1] == given.shape[-2]:
        lower = np.tril(np.ones(given.shape[-2:], bool))
        for sign in (1, -1):
            yield np.where(lower, drawn, sign * drawn.swapaxes(-1, -2))
