"""The grid: every rank of every operand with every attribute, all sizes alike, where types do not tell one axis from another.

What :mod:`graphopt.prover.instances` draws goes far, and meets such a combination by chance. Here they are gone through: a factor
whose only axis may be any of two, a flag that drops the other one.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from graphopt.prover.attributes import Change, axes_in, same
from graphopt.prover.beside import beside
from graphopt.prover.cases import Case, Instance, Place, operands, parse_case, places, put, size_of
from graphopt.prover.contents import mapped, reshaped, squared
from graphopt.prover.instances import matches
from graphopt.prover.schemas import readers
from graphopt.prover.variation import Variation
from graphopt.rewrite.examples import Operand
from graphopt.rewrite.schema import Rule

SIZE = 2
"""Of every dimension."""
_MOST = 3
"""Rank of an operand at most, unless an example has more."""
_THROUGH = 4000
"""Points of a grid that are gone through in a random order; of more, some are drawn."""
_ELEMENTS, _LARGEST = 128, 4096
_AXES = ([0], [1], [-1], [0, 1], [1, 0])
_SHAPED = frozenset({"Reshape", "Expand", "ConstantOfShape"})
_PLACES = [[0, 1], [0, 0]]
_TARGETS = ([4], [2, 2], [2, -1], [-1], [2, 2, 2], [1, 2, 2])


def grid(rule: Rule, *, seed: int = 0, tries: int = 4000) -> Iterator[Instance]:
    """Instances of a rule at points of the grids around its examples, in turn, and then at what stands beside these.

    Args:
        rule: The rule.
        seed: Of the choice, where there are more points than are tried.
        tries: Points that are tried at most.
    """
    rng = np.random.default_rng(seed)
    examples = [parse_case(rule, c) for kind in ("accept", "reject") for c in rule.examples[kind]]
    vary = Variation(rule, rng, examples)
    seen: set[str] = set()
    blind = itertools.count()
    around = [_around(vary, case, rng) for example in examples for case in _starts(vary, example)]
    points = (case for turn in itertools.zip_longest(*around) for case in turn if case is not None)
    accepted = len(rule.examples["accept"])
    more = itertools.chain(
        (case for example in examples[:accepted] for case in beside(vary, example)),
        # A rejecting example is one number from a match, perhaps, and may have what no accepting one has.
        (case for example in examples[accepted:] for case in vary.contents(example)),
    )
    limited = (((case, _ELEMENTS) for case in itertools.islice(points, tries)), ((case, _LARGEST) for case in more))
    for case, most in itertools.chain(*limited):
        text = repr(sorted(case.items(), key=lambda item: item[0]))
        if text not in seen:
            seen.add(text)
            small = all(size_of(operand) <= most for operand in operands(case))
            yield from matches(rule, case, blind) if small else ()


def _starts(vary: Variation, example: Case) -> list[Case]:
    """An example with all sizes alike, as it is, and with other floats in its constants than those that its author chose."""
    alike = squared(example, SIZE)
    free = vary.loosened(alike)
    return [alike, example, *([free] if free != alike else [])]


def _around(vary: Variation, case: Case, rng: np.random.Generator) -> Iterator[Case]:
    """The points around a case; without an end where there are too many to go through."""
    factors: list[list[Change]] = [
        [partial(_at, place, other) for other in _shapes(vary, place[0], operand, case)]
        for place, operand in places(case)
    ]
    factors = [_together(vary, case), *factors, *vary.choices(case)]
    if math.prod(map(len, factors)) <= _THROUGH:
        every = list(itertools.product(*factors))
        points: Any = (every[i] for i in rng.permutation(len(every)))
    else:
        points = (tuple(_drawn(f, rng) for f in factors) for _ in itertools.count())
    for point in points:
        made = case
        for change in point:
            made = change(made)
        yield made


def _together(vary: Variation, case: Case) -> list[Change]:
    """Every number that an axis has, in constants too, gets another one: conditions say that two name the same axis."""
    held = {case[v] for v in axes_in(vary.rule, case)}
    return [same, *(partial(_renumbered, {old: new}) for old in sorted(held) for new in (0, 1, -1, -2) if new != old)]


def _renumbered(to: dict[int, int], case: Case) -> Case:
    made = {
        name: value if isinstance(value, Operand | list) or name == "opset" else mapped(value, to)
        for name, value in case.items()
    }
    for place, operand in places(case):
        if isinstance(operand.data, list):
            made = put(made, place, replace(operand, data=mapped(operand.data, to)))
    return made


def _at(place: Place, operand: Operand, case: Case) -> Case:
    return put(case, place, operand)


def _drawn(factor: list[Change], rng: np.random.Generator) -> Change:
    """One of the values of a factor, as often as not that of the example: of all others at once little fits together."""
    return factor[0 if rng.random() < 0.5 else int(rng.integers(len(factor)))]


def _shapes(vary: Variation, name: str, operand: Operand, case: Case) -> list[Operand]:
    """An operand of every rank, a single number of every rank as such too; a constant that lists axes, sizes or places, with others."""
    if operand.dtype in ("i64", "i32") and isinstance(operand.data, list):
        sizes = {d: SIZE for o in operands(case) for d in o.dims if isinstance(d, int) and d > 1}
        target = any(op in _SHAPED for _, op, _, _ in readers(vary.rule, name))
        lists = [mapped(operand.data, sizes), *(_TARGETS if target else _AXES)]
        found = [replace(operand, data=data, dims=(len(data),)) for data in lists if data != operand.data]
        more = [] if target else [replace(operand, data=0, dims=()), replace(operand, data=_PLACES, dims=(2, 2))]
        return [operand, *found, *more]
    most, single = max(len(operand.dims), _MOST), size_of(operand) == 1
    ranks = [rank for rank in range(most + 1) if rank != len(operand.dims)]
    ones = [reshaped(operand, (1,) * rank) for rank in ranks if rank] if single else []
    return [operand, *(reshaped(operand, (SIZE,) * rank) for rank in ranks), *ones]
