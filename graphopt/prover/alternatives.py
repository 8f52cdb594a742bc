"""What conditions allow besides what a rule's examples are: the other side of an ``or``, and operands that need not be there.

That side may ask something of several constants at once, or of a constant in another type, and what it gives away for it may show at
another value of an attribute only. An operand that no example has may have a content of which conditions tell only a part.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import cast

import numpy as np

from graphopt.ir.types import FLOATS
from graphopt.prover.cases import Case, Place, attempt, places, put, size_of
from graphopt.prover.contents import uneven
from graphopt.prover.variation import Variation
from graphopt.rewrite.examples import Operand

_FILLINGS = (0.0, 1.0, -1.0)
_ODD = ((1.0, 0.0), (0.0, 1.0), (0.0, -1e4))
"""What all elements of a constant are, and what the first or the last is: of a mask, most likely."""
_NAMED = 6  # numbers of conditions that fill constants as well
_MOST = 3  # constants that are filled together
_LARGEST = 4096  # elements of one
_DRAWN = 256
_CONTENTS = 2048  # of operands that an example leaves out; of weights in several types there are ten thousand


def alternatives(vary: Variation, case: Case, typed: Iterable[Case]) -> Iterator[Case]:
    """Cases that meet another part of what conditions allow.

    Args:
        vary: Ways to change a case of the rule.
        case: An example that the rule accepts.
        typed: The example with operands of other types.
    """
    either = any(" or " in e.text or " if " in e.text for e in vary.rule.where)
    yield from _drawn(vary, _filled(vary, case, either))
    if either:
        others = list(typed)
        yield from _drawn(vary, (made for base in others for made in _filled(vary, base, either)))
        yield from _drawn(vary, _typed(vary, [made for made in others if attempt(vary.rule, made) is not None]))
        yield from _drawn(vary, (made for base in uneven(vary.rule, case) for made in _attributed(vary, base)))
    yield from _present(vary, case)


def _drawn(vary: Variation, cases: Iterable[Case]) -> Iterator[Case]:
    every = list(cases)
    yield from (every[i] for i in vary.rng.permutation(len(every))[:_DRAWN])


def _filled(vary: Variation, case: Case, either: bool) -> Iterator[Case]:
    """Constants of floats that conditions look at, each filled with a simple number or with one element unlike the others; beside each value of each attribute."""
    chosen = [(p, o) for p, o in places(case) if p[0] in vary.read and o.const and o.dtype in FLOATS]
    chosen = [(p, o) for p, o in chosen if 0 < size_of(o) <= _LARGEST][:_MOST]
    if len(chosen) > 1 or (chosen and either):
        numbers = dict.fromkeys((*_FILLINGS, *map(float, vary.said[-_NAMED:] if either else ())))
        for many in itertools.product(*(_fillings(operand, numbers) for _, operand in chosen)):
            made = case
            for (place, _), operand in zip(chosen, many, strict=True):
                made = put(made, place, operand)
            yield made
            if either and all(type(operand.data) is float for operand in many):
                yield from _attributed(vary, made)


def _fillings(operand: Operand, numbers: Iterable[float]) -> list[Operand]:
    made, dims = [replace(operand, data=number) for number in numbers], cast(tuple[int, ...], operand.dims)
    for most, one in _ODD if size_of(operand) > 1 else ():
        for at in (0, -1):
            flat = np.full(size_of(operand), most)
            flat[at] = one
            made.append(replace(operand, data=flat.reshape(dims).tolist()))
    return made


def _attributed(vary: Variation, case: Case) -> Iterator[Case]:
    """A case with each value of each attribute."""
    return (change(case) for changes in vary.choices(case) for change in changes[1:])


def _typed(vary: Variation, typed: Iterable[Case]) -> Iterator[Case]:
    """Cases of other types with other contents of the constants that conditions look at."""
    for case in typed:
        held = vary.read & case.keys()
        yield from (made for made in vary.contents(case) if any(made[name] != case[name] for name in held))


def _present(vary: Variation, case: Case) -> Iterator[Case]:
    """Optional operands that an example leaves out, each alone, with other contents and beside each value of each attribute."""
    filled: list[Case] = []
    for given in vary.optionals(case):
        for name in given.keys() - case.keys() - {"opset"}:
            fits = attempt(vary.rule, given) is not None
            if fits:
                yield given
                yield from _attributed(vary, given)
            if name in vary.read and given[name].const:
                # What conditions ask of it may be met by other contents only.
                zeros = replace(given[name], data=0.0 if given[name].dtype in FLOATS else 0)
                others = [zeros, *(c[name] for c in vary.contents({name: zeros})), *_uneven(vary, given, name, zeros)]
                filled += (put(given, (name, None), operand) for operand in others)
    chosen = np.random.default_rng(len(filled)).permutation(len(filled))[:_CONTENTS]
    yield from (filled[i] for i in sorted(chosen))


def _uneven(vary: Variation, case: Case, name: str, zeros: Operand) -> Iterator[Operand]:
    """Contents of a constant of which one element is unlike the others."""
    place: Place = (name, None)
    found = (dict(places(made))[place] for made in uneven(vary.rule, put(case, place, zeros)))
    return (operand for operand in found if operand.data != zeros.data)
