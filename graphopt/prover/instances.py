"""The bounded family of shapes, attributes, contents, dtypes and operator sets at which a rule is tried.

A rule's own examples are where it starts: accepting ones, and rejecting ones too, because a rule whose ``where`` is too
weak matches exactly those. What may vary about them comes from the operators' schemas (:mod:`graphopt.prover.schemas`).
First each thing alone is changed in every way, then several at random; and what the rule matches becomes a start of
its own. Instances are small: no operand has more than a few thousand elements.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from dataclasses import replace

import numpy as np

from graphopt.ir.delta import RefusedError
from graphopt.prover.cases import Case, Instance, attempt, operands, parse_case, size_of
from graphopt.prover.contents import each_hidden, edges, hidden, named, sizes_behind
from graphopt.prover.coupled import coupled
from graphopt.prover.jointly import lengthened
from graphopt.prover.variation import Variation
from graphopt.rewrite.schema import Rule

_LARGEST = 4096
_MANY = 60  # variations from which on the ends of what conditions allow are looked for, which takes hundreds of matches
_BLOCKS = (16, 8, 1)
_SYMBOLIC = 0.5
"""Share of the cases with one change that are tried with symbols for sizes as well."""
_ANY = 0.2
"""Share of them that are tried with constants of any content."""
_JOINT = 0.3
"""Share of the cases in which parts that belong together change together."""
_SQUARE = 0.5
"""Share of them that are tried with one size for all dimensions."""
_REFUSED = 200
"""Cases that the engine refuses which are tried with symbols for all sizes."""
_NUMBERS = frozenset({"is_int", "is_static"})
"""What conditions call where symbols for all sizes leave nothing."""


def instances(rule: Rule, *, seed: int = 0, limit: int = 40, tries: int = 300) -> list[Instance]:
    """Different instances of a rule, the smallest first.

    Args:
        rule: The rule.
        seed: Of the variation.
        limit: How many are wanted.
        tries: How many variations are made for it, at most.
    """
    return by_size(itertools.islice(drawn(rule, seed=seed, tries=tries), limit))


def by_size(family: Iterable[Instance]) -> list[Instance]:
    """Instances, the smallest first."""
    return sorted(family, key=lambda i: (i.elements, repr(i.case)))


def drawn(rule: Rule, *, seed: int = 0, tries: int = 300) -> Iterator[Instance]:
    """Different instances of a rule as they are found; see :func:`variations` for the arguments."""
    matched: list[Case] = []
    blind = itertools.count()
    examples = len(rule.examples["accept"]) + len(rule.examples["reject"])
    for turn, case in enumerate(variations(rule, seed=seed, tries=tries, matched=matched)):
        # An example is one for the first of the blocks: at another its rule may not match at all.
        block = _BLOCKS[turn % 8 - 5] if turn % 8 > 5 and turn >= examples else _BLOCKS[0]
        for made in matches(rule, case, blind, block):
            matched.append(made.case)
            yield made


def matches(rule: Rule, case: Case, blind: Iterator[int], block: int = _BLOCKS[0]) -> Iterator[Instance]:
    """The instance of a case; where the engine refuses the rewrite, those in which it can't know why it should.

    Args:
        rule: The rule.
        case: The case.
        blind: Counts the refusals that were looked at: there may be many.
        block: Channel block of the fast convolution layout.
    """
    made = attempt(rule, case, block)
    if isinstance(made, Instance):
        yield made
    elif isinstance(made, RefusedError) and next(blind) < _REFUSED:
        # By the results' shapes, most likely, which symbols hide, and what nobody knows.
        ways = [named(case), hidden(case), hidden(case, ones=False, unknown=True)]
        found = [(other, attempt(rule, other, block)) for other in ways]
        if not any(isinstance(made, Instance) for _, made in found) and any(e.calls & _NUMBERS for e in rule.where):
            # A condition that asks for one number says nothing of the others.
            found = [(other, attempt(rule, other, block)) for other in each_hidden(case)]
        for other, made in found:
            if isinstance(made, Instance):
                yield replace(made, sizes=sizes_behind(case, other))


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
    vary = Variation(rule, rng, [*accepts, *rejects])
    cases = _cases(vary, accepts, rejects, [] if matched is None else matched, tries >= _MANY)
    given = len(accepts) + len(rejects)
    for i, case in enumerate(itertools.islice(cases, tries + given)):
        text = repr(sorted(case.items(), key=lambda item: item[0]))
        if text not in seen and (i < given or not any(size_of(o) > _LARGEST for o in operands(case))):
            seen.add(text)
            yield case


def _cases(
    vary: Variation, accepts: list[Case], rejects: list[Case], matched: list[Case], many: bool
) -> Iterator[Case]:
    yield from accepts
    yield from rejects
    rng = vary.rng
    ends = edges if many else lambda rule, example: ()
    together = [reversed([*coupled(vary.rule, e, rng), *ends(vary.rule, e), *lengthened(vary, e)]) for e in accepts]
    turns = itertools.zip_longest(*together, *map(vary.valued, accepts), *map(vary.freed, accepts))
    joint = [case for turn in turns for case in turn if case is not None][::-1]
    single = [vary.singles(case) for case in accepts]
    rng.shuffle(single)
    alone = [case for group in itertools.zip_longest(*single) for case in group if case is not None]
    seeds = [*accepts, *accepts, *rejects]
    while seeds:
        if joint and rng.random() < _JOINT:
            yield joint.pop()
            continue
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
