"""The conditions under which a law may hold, and the choice among them.

A draft without conditions is tried at many instances. Those at which it fails have to be excluded, those at which it holds
should not be: of all conjunctions of conditions that exclude every failure, the one is taken that keeps most of the rest.
No condition asks for a size other than 1: a law that needs one is no law.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from graphopt.rewrite.expr import Env, Expression, compile_expression
from graphopt.rewrite.functions import FUNCTIONS
from graphopt.synth.draft import Draft, Slot

MOST = 6
"""Conditions of a rule, at most."""
_BRANCHES = 5
_EACH, _LETTER = 0.5, 0.01
"""What a condition and a letter of it have to be worth, in instances that it keeps."""
_REFUSED = 0.1
"""What excluding an instance that is refused anyway is worth."""


def candidates(draft: Draft) -> list[Expression]:
    """Conditions on a draft's operands and attributes, the simpler ones first."""
    return [compile_expression(text, FUNCTIONS) for text in dict.fromkeys(_texts(draft))]


def required(draft: Draft) -> list[Expression]:
    """Conditions that every rule of a draft has: sizes, positions and axes are known when the rule is applied.

    What holds for all that a model may compute there, random numbers would hardly ever show.
    """
    slots = [s for s in draft.slots if s.operand and s.kind in ("sizes", "position", "axes")]
    # One condition: where a pattern is symmetric, no instance would show what each of several is for.
    text = " and ".join(f"is_const({s.variable})" for s in slots)
    return [compile_expression(text, FUNCTIONS)] if slots else []


def _texts(draft: Draft) -> Iterator[str]:
    leaves, values = draft.leaves, draft.values
    every = [*leaves, *values]
    yield f"is_float({leaves[0]})"
    yield from (f"opset() >= {n}" for n in (13, 17, 18))
    slots = {kind: [s for s in draft.slots if s.kind == kind] for kind in {s.kind for s in draft.slots}}
    for s in slots.get("flag", []):
        yield from (f"{s.variable} == {n}" for n in (0, 1))
    for s in slots.get("factor", []):
        yield f"{s.variable} == 1"
    for s in slots.get("groups", []):
        yield f"{s.variable} == 1"
        yield from (f"dim({x}, 0) % {s.variable} == 0" for x in leaves)
    for kind in ("flag", "factor", "groups"):
        yield from (f"{s.variable} == {t.variable}" for s, t in itertools.combinations(slots.get(kind, []), 2))
    yield from _ranks(leaves)
    yield from _shapes(leaves, values)
    yield from _axes(draft, every)
    yield from _perms([s.variable for s in slots.get("perm", [])])
    for s in slots.get("window", []):
        if s.name == "pads":
            yield f"all([n == 0 for n in {s.variable}])"
        if s.name == "strides":
            yield f"all([n == 1 for n in {s.variable}])"
    yield from (
        f"{s.variable} == {t.variable}"
        for s, t in itertools.combinations(slots.get("window", []), 2)
        if s.name == t.name
    )
    yield from _positions(draft, slots.get("position", []))
    yield from _literals(draft)


def _positions(draft: Draft, slots: Sequence[Slot]) -> Iterator[str]:
    """Where slices begin and end: at the front, where an operand of a Concat ends, or where another slice of the same axes does.

    The same numbers say nothing for other axes, and few instances would show it.
    """
    for s in slots:
        yield f"all([n == 0 for n in values({s.variable})])"
        for x, t in itertools.product(draft.leaves, (t for t in draft.slots if t.kind == "axis")):
            yield f"values({s.variable}) == (dim({x}, {t.variable}),)"
    over = {s.node: s.variable for s in draft.slots if s.kind == "axes"}
    for (start, end), (other, last) in itertools.permutations(zip(slots[::2], slots[1::2], strict=True), 2):
        axes = f"values({over[start.node]}) == values({over[other.node]})"
        yield f"{axes} and values({end.variable}) == values({other.variable})"
        if start.node < other.node:
            same = [f"values({s.variable}) == values({t.variable})" for s, t in ((start, other), (end, last))]
            yield " and ".join([axes, *same])


def _ranks(leaves: Sequence[str]) -> Iterator[str]:
    for x, y in itertools.combinations(leaves, 2):
        yield f"rank({x}) == rank({y})"
    for x, y in itertools.permutations(leaves, 2):
        yield f"rank({x}) >= rank({y})"
    if len(leaves) > 1:
        yield " and ".join(f"rank({x}) >= 2" for x in leaves)
    for x in leaves:
        yield from (f"rank({x}) >= {n}" for n in (1, 2, 3))
        yield from (f"rank({x}) <= {n}" for n in (1, 2))
        yield from (f"rank({x}) == {n}" for n in (0, 1, 2, 3, 4))
        yield f"size({x}) == 1"


def _shapes(leaves: Sequence[str], values: Sequence[str]) -> Iterator[str]:
    pairs = [*itertools.combinations(leaves, 2), *((x, v) for x in leaves for v in values)]
    yield from (f"shape({x}) == shape({y})" for x, y in pairs)
    for x, y in itertools.permutations(leaves, 2):
        yield f"broadcasts_to(shape({x}), shape({y}))"
    for x, v in itertools.product(leaves, values):
        yield f"broadcasts_to(shape({x}), shape({v}))"
    for x, y in itertools.combinations(leaves, 2):
        yield from (f"dim({x}, {a}) == dim({y}, {b})" for a in (-1, -2, 0) for b in (-1, -2, 0))
        yield f"shape({x})[:-1] == shape({y})[:-1]"
        yield f"shape({x})[:-2] == shape({y})[:-2]"
        yield f"shape({x})[1:] == shape({y})[1:]"
        yield f"shape({x})[2:] == shape({y})[2:]"
        yield f"shape({x})[:1] + shape({x})[2:] == shape({y})[:1] + shape({y})[2:]"
    for x, v in itertools.product(leaves, values):
        yield f"dim({x}, -1) == dim({v}, -1)"
        yield f"dim({x}, -2) == dim({v}, -2)"
        yield f"shape({x})[:-1] == shape({v})[:-1]"
    for x in leaves:
        yield from (f"dim({x}, {a}) == 1" for a in (-1, -2, 0, 1))
        yield f"rank({x}) == 0 or dim({x}, -1) == 1"
        yield f"rank({x}) <= 1 or dim({x}, -2) == 1"
        yield f"is_static({x})"
        yield from (f"is_int(dim({x}, {a}))" for a in (-1, -2, 0))


def _axes(draft: Draft, every: Sequence[str]) -> Iterator[str]:
    axes = {f"axis({s.variable}, rank({s.tensor}))": s for s in draft.slots if s.kind == "axis"}
    for text, s in axes.items():
        yield f"{text} == rank({s.tensor}) - 1"
        yield f"{text} != rank({s.tensor}) - 1"
        yield f"{text} < rank({s.tensor}) - 2"
        yield f"{text} == rank({s.tensor}) - 2"
        yield from (f"{text} == {n}" for n in (0, 1))
        yield from (f"{text} != {n}" for n in (0, 1))
        yield from (f"{s.variable} {sign} 0" for sign in (">=", "<"))
        for x in every:
            if x != s.tensor:
                yield f"rank({x}) == rank({s.tensor})"
            yield f"dim({x}, {s.variable}) == 1"
            if x != s.tensor:
                yield _single(x, text, f"rank({s.tensor})")
        yield from (f"is_int(dim({x}, {s.variable}))" for x in every)
        for x, y in itertools.combinations(every, 2):
            yield f"dim({x}, {s.variable}) == dim({y}, {s.variable})"
    for (a, s), (b, t) in itertools.combinations(axes.items(), 2):
        yield from (f"{s.variable} {sign} {t.variable}" for sign in ("==", "!="))
        yield from (f"{a} {sign} {b}" for sign in ("==", "!=", "<", ">"))
    over = {f"axes(values({s.variable}), rank({s.tensor}))": s for s in draft.slots if s.kind == "axes"}
    for text, s in over.items():
        yield f"len(values({s.variable})) > 0"
        yield f"len(values({s.variable})) == 1"
        yield f"all([a >= 0 for a in values({s.variable})])"
        yield f"all([a < 0 for a in values({s.variable})])"
        yield f"{text} == (rank({s.tensor}) - 1,)"
        yield f"{text} == range(2, rank({s.tensor}))"
        yield f"len({text}) == rank({s.tensor})"
        yield f"all([a > rank({s.tensor}) - 3 for a in {text}])"
        yield f"len([a for a in {text} if a == rank({s.tensor}) - 1]) == 0"
        yield f"len([a for a in {text} if a == rank({s.tensor}) - 2]) == 0"
        for x in every:
            ones = f"all([dim({x}, a) == 1 for a in values({s.variable})])"
            yield ones
            if x != s.tensor:
                yield f"all([{_single(x, 'a', f'rank({s.tensor})')} for a in {text}])"
        for axis in axes:
            yield f"{axis} in {text}"
            yield f"not {axis} in {text}"
    for (a, s), (b, t) in itertools.permutations(over.items(), 2):
        if s.node < t.node:
            yield f"{a} == {b}"
            yield f"values({s.variable}) == values({t.variable})"
            yield f"all([not a in {a} for a in {b}])"
        yield f"min({a} + (9,)) > max({b} + (-1,))"
    for s in (s for s in draft.slots if s.kind == "perm"):
        p = s.variable
        for text, t in axes.items():
            yield f"{p}[{text}] == {text}"
            yield f"{p}[axis({t.variable}, len({p}))] == len({p}) - 1"
        for text, _ in over.items():
            yield f"sorted([q for k, q in enumerate({p}) if not k in {text}]) == [q for k, q in enumerate({p}) if not k in {text}]"
            yield f"[q for q in {p} if not q in {text}] == [k for k in range(len({p})) if not k in {text}]"


def _single(x: str, axis: str, rank: str) -> str:
    """Whether an operand that is broadcast to some rank has one element along an axis, counted from the front."""
    return f"rank({x}) < {rank} - {axis} or dim({x}, {axis} - {rank}) == 1"


def _perms(perms: Sequence[str]) -> Iterator[str]:
    for p in perms:
        yield f"len({p}) == 2"
        yield f"{p} == invert({p})"
        yield f"{p}[-1] == len({p}) - 1"
        yield f"{p}[0] == 0"
        yield f"{p}[:2] == (0, 1)"
        yield f"{p}[:-2] == range(len({p}) - 2)"
        yield f"{p}[-2:] == (len({p}) - 2, len({p}) - 1)"
        yield f"{p} == range(len({p}) - 2) + (len({p}) - 1, len({p}) - 2)"
    for p, q in itertools.combinations(perms, 2):
        yield f"{p} == {q}"
        yield f"{p} == invert({q})"
        yield f"permute({p}, {q}) == range(len({p}))"


def _literals(draft: Draft) -> Iterator[str]:
    """Attributes as in the first instance: the last resort."""
    first = draft.pairs[0]
    for s in draft.slots:
        value = first.before.nodes[s.node].form[s.param].value
        if s.kind in ("axes", "perm", "window"):
            yield f"{f'values({s.variable})' if s.operand else s.variable} == {tuple(value)!r}"
        elif s.kind == "axis":
            yield f"{s.variable} == {value}"


HOLDS, FAILS, REFUSED, UNKNOWN = "holds", "fails", "refused", "unknown"
"""The law is true at an instance, it is not, the engine would refuse the rewrite there, or nothing can be said."""


@dataclass(frozen=True)
class Trial:
    """An instance of a draft and what came of it.

    Attributes:
        case: As in ``examples``.
        env: What the pattern matched.
        outcome: One of :data:`HOLDS`, :data:`FAILS`, :data:`REFUSED` and :data:`UNKNOWN`.
    """

    case: Mapping[str, object]
    env: Env
    outcome: str
    _known: dict[str, bool] = field(default_factory=dict, repr=False)

    def satisfies(self, condition: Expression) -> bool:
        """Whether a condition holds there (remembered: the choice is made again and again)."""
        found = self._known.get(condition.text)
        if found is None:
            found = self._known[condition.text] = condition.holds(self.env)
        return found


def choose(
    conditions: Sequence[Expression], fixed: Sequence[Expression], trials: Sequence[Trial], seeds: int
) -> list[str] | None:
    """The conjunction that no failing trial satisfies and most of the others do.

    What the engine would refuse need not be excluded, but tells conditions that are about the law from those that happen to
    fit; and it is excluded where that costs nothing.

    Args:
        conditions: What may be in it.
        fixed: Conditions that hold anyway.
        trials: The instances, those first that it must not exclude.
        seeds: How many these are.

    Returns:
        Its conditions, each needed; ``None`` when there is none.
    """
    trials = [t for t in trials if all(t.satisfies(e) for e in fixed)]
    good = [t for t in trials if t.outcome == HOLDS]
    bad = [t for t in trials if t.outcome == FAILS] + [t for t in trials if t.outcome == REFUSED]
    fails = sum(t.outcome == FAILS for t in bad)
    kinds: dict[tuple[int, int], str] = {}
    for condition in conditions if bad else ():
        kept = _mask(condition, good)
        if kept & (1 << seeds) - 1 != (1 << seeds) - 1:
            continue
        excluded = (1 << len(bad)) - 1 & ~_mask(condition, bad)
        if excluded:
            kinds.setdefault((kept, excluded), condition.text)
    search = _Search(_useful(kinds), fails)
    search.extend([], (1 << len(good)) - 1, 0)
    if search.best is None:
        return None
    return search.completed()


def _mask(condition: Expression, trials: Sequence[Trial]) -> int:
    mask = 0
    for i, trial in enumerate(trials):
        if trial.satisfies(condition):
            mask |= 1 << i
    return mask


_Kind = tuple[int, int, str]
"""What a condition keeps of the good trials, what it excludes of the bad ones, and its text."""


def _useful(kinds: Mapping[tuple[int, int], str]) -> list[_Kind]:
    """The conditions without those that another one is better than in every respect."""
    left: list[_Kind] = []
    for (kept, excluded), text in sorted(kinds.items(), key=lambda k: (-k[0][0].bit_count(), -k[0][1].bit_count())):
        if not any(kept & ~k == 0 and excluded & ~e == 0 for k, e, _ in left):
            left.append((kept, excluded, text))
    return left


class _Search:
    """The best conjunction.

    Args:
        kinds: The conditions.
        fails: How many of the bad trials, the first ones, have to be excluded.

    Attributes:
        best: Score, conditions, and what they keep and exclude.
    """

    def __init__(self, kinds: Sequence[_Kind], fails: int) -> None:
        self.kinds = kinds
        self.must = (1 << fails) - 1
        self.able = [[kind for kind in kinds if kind[1] >> i & 1] for i in range(fails)]
        self.best: tuple[float, list[_Kind], int, int] | None = None

    def extend(self, chosen: list[_Kind], kept: int, excluded: int) -> None:
        """Add conditions to a conjunction until all failures are excluded."""
        left = self.must & ~excluded
        if not left:
            score = self._score(chosen, kept, excluded)
            if self.best is None or score > self.best[0]:
                self.best = score, chosen, kept, excluded
            return
        if len(chosen) == MOST:
            return
        # The failure that the fewest conditions exclude.
        hardest = min((i for i in range(len(self.able)) if left >> i & 1), key=lambda i: len(self.able[i]))
        tried = sorted(self.able[hardest], key=lambda k: -self._score([*chosen, k], kept & k[0], excluded | k[1]))
        for kind in tried[:_BRANCHES]:
            self.extend([*chosen, kind], kept & kind[0], excluded | kind[1])

    def completed(self) -> list[str]:
        """The best conjunction, with conditions that exclude much of what would be refused, without superfluous ones."""
        assert self.best is not None
        score, chosen, kept, excluded = self.best
        while len(chosen) < MOST:
            further = [(self._score([*chosen, k], kept & k[0], excluded | k[1]), k) for k in self.kinds]
            best, kind = max(further, key=lambda item: item[0], default=(score, None))
            if kind is None or best <= score:
                break
            score, chosen, kept, excluded = best, [*chosen, kind], kept & kind[0], excluded | kind[1]
        for kind in list(chosen):
            others = 0
            for other in chosen:
                others |= other[1] if other is not kind else 0
            if others & excluded == excluded:
                chosen = [k for k in chosen if k is not kind]
        return [text for _, _, text in chosen]

    @staticmethod
    def _score(chosen: Sequence[_Kind], kept: int, excluded: int) -> float:
        letters = sum(len(text) for _, _, text in chosen)
        return kept.bit_count() + _REFUSED * excluded.bit_count() - _EACH * len(chosen) - _LETTER * letters
