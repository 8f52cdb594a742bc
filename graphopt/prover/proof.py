"""The verdict on a rule: attacked at every instance of its family, and proved at as many.

proved    at every instance that was looked at, for every content of the operands, and no attack found a difference
attacked  no attack found a difference, but some instance is not proved for every content
failed    there is a counterexample
"""

from __future__ import annotations

import itertools
import math
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from graphopt.prover.attack import Attack, Counterexample, attack
from graphopt.prover.cases import Instance, operands
from graphopt.prover.examples import shrunk
from graphopt.prover.grid import grid
from graphopt.prover.instances import by_size, drawn
from graphopt.prover.residues import PRIMES
from graphopt.prover.symbolic import OUTSIDE, UNDECIDED, judge
from graphopt.rewrite.examples import DEFAULT_OPSET
from graphopt.rewrite.schema import Rule

ATTACKED = 256
"""Instances of a rule that are attacked."""
PROVED = 40
"""Of these, instances that are to be proved as well."""
TRIES = 4000
"""Variations of a rule's examples that are made for them."""
_FEW = 8  # instances; a rule that matches fewer has not been looked at
_DEGREE = 1000  # of the polynomials compared; see false_accept


@dataclass(frozen=True)
class Proof:
    """What the prover found.

    Attributes:
        outcome: ``proved``, ``attacked``, ``failed``, ``timeout``, or ``unsupported`` where there was too little to go by.
        methods: How many instances each method proved; ``attack`` counts those that none did.
        attacked: Instances at which both sides were run.
        runs: Contents on which they were compared.
        worst: Largest error seen, relative to the largest element of the pattern's result.
        family: What the instances cover, in words.
        open: Why some instance is not proved; empty when all are.
        counterexample: Of a failed rule.
    """

    outcome: str
    methods: Mapping[str, int]
    attacked: int
    runs: int
    worst: float
    family: str
    open: str = ""
    counterexample: Counterexample | None = None

    @property
    def proved(self) -> int:
        """Instances that were proved."""
        return sum(n for name, n in self.methods.items() if name != "attack")

    @property
    def false_accept(self) -> float:
        """Bound on the chance that a wrong instance passed (Schwartz-Zippel for degree 1000, over both primes)."""
        return math.prod(_DEGREE / prime for prime in PRIMES) * self.methods.get("field", 0)


def prove(
    rule: Rule,
    *,
    seed: int = 0,
    limit: int = PROVED,
    attacks: int = ATTACKED,
    tries: int = TRIES,
    seconds: float = 60.0,
) -> Proof:
    """Try to refute a rule, and to prove it, at the instances of its family.

    Args:
        rule: The rule.
        seed: Of the instances, contents and random elements.
        limit: Instances to prove it at.
        attacks: Instances to attack it at.
        tries: Variations of the examples made for them, and points of the grid.
        seconds: Processor time for the whole rule; a rule that takes longer has timed out.
    """
    deadline = time.process_time() + seconds  # what else runs on the machine decides nothing
    found = _Found(rule, seed)
    # Attacked as they are drawn: what the runtime does not take does not count.
    family = ((instance, False) for instance in drawn(rule, seed=seed, tries=tries))
    points = ((instance, True) for instance in grid(rule, seed=seed, tries=tries))
    for instance, brief in itertools.chain(itertools.takewhile(lambda _: found.attacked < attacks, family), points):
        if time.process_time() > deadline:
            return found.proof("timeout", f"{seconds:g} s were over after {found.attacked} instances")
        found.attack(instance, brief)
        if found.wrong is not None:
            return found.proof("failed")
    ran, others = found.shares()
    chosen = [*_spread(ran, limit), *_spread(others, limit - min(limit, len(ran)))]
    looked = set(chosen)
    for instance in (*chosen, *(instance for instance in ran if instance not in looked)):
        if instance not in looked and found.judged >= min(_FEW, limit):
            break  # the others are for rules of which hardly any instance fits where its symbols have sizes
        if time.process_time() > deadline:
            return found.proof("timeout", f"{seconds:g} s were over with {found.judged} instances proved")
        found.judge(instance)
        if found.wrong is not None:
            return found.proof("failed")
    if found.attacked < _FEW:
        return found.proof("unsupported", f"only {found.attacked} instances that the runtime takes, to go by")
    if found.judged < _FEW:
        return found.proof(
            "attacked", found.open or f"only {found.judged} instances have elements to prove something of"
        )
    return found.proof("attacked" if found.methods["attack"] else "proved", found.open)


def _spread(family: Sequence[Instance], wanted: int) -> Sequence[Instance]:
    """As many of a family as are wanted, at equal distances."""
    count = len(family)
    return family if count <= wanted else [family[i * count // wanted] for i in range(wanted)]


class _Found:
    """What was found so far about a rule."""

    def __init__(self, rule: Rule, seed: int) -> None:
        self.rule, self.seed = rule, seed
        self.attacks: dict[Instance, Attack] = {}
        self.methods: Counter[str] = Counter()
        self.attacked = self.runs = self.judged = 0
        self.outside = 0
        self.worst = 0.0
        self.open = ""
        self.undecided = 0  # instances on which z3 ran out of time: it will on others
        self.wrong: Counterexample | None = None

    def attack(self, instance: Instance, brief: bool = False) -> None:
        """Run both sides of an instance; on few contents where it's there for its shapes, which are proved elsewhere."""
        made = attack(instance, self.rule, self.seed, brief)
        if not brief:
            self.attacks[instance] = made
        self.attacked += made.runs > 0
        self.runs += made.runs
        self.worst = max(self.worst, made.worst)
        if made.wrong is not None:
            self.wrong = shrunk(self.rule, made.wrong, self.seed)

    def shares(self) -> tuple[list[Instance], list[Instance]]:
        """Instances with elements to prove something of: those that the runtime took, and those that it did not; the smallest first."""
        held = [instance for instance in self.attacks if not any(0 in o.dims for o in operands(instance.case))]
        ran = [instance for instance in held if self.attacks[instance].runs]
        others = [instance for instance in held if not self.attacks[instance].runs]
        return by_size(ran), by_size(others)

    def judge(self, instance: Instance) -> None:
        """Prove an instance for every content."""
        made = self.attacks[instance]
        signs = (0,) if made.runs else (0, 1, -1)
        verdict = judge(instance, self.rule, self.seed, self.undecided < 2, signs)
        if isinstance(verdict, Counterexample):
            self.wrong = replace(verdict, instance=instance.case)
            return
        method, why = verdict
        if made.doubt and method not in ("undefined", "large"):
            method, why = "floats", made.doubt
        if why == OUTSIDE:  # no part of what is claimed to be proved, and said so
            self.outside += 1
        if method in ("undefined", "large") or why == OUTSIDE:
            return
        self.undecided += why == UNDECIDED
        self.judged += 1
        self.methods["attack" if method == "floats" else method] += 1
        if method == "floats":
            self.open = self.open or why

    def proof(self, outcome: str, why: str = "") -> Proof:
        """All of it."""
        family = described(list(self.attacks))
        if self.outside:
            family += "; shapes and positions that are known (others were attacked only)"
        return Proof(outcome, dict(self.methods), self.attacked, self.runs, self.worst, family, why, self.wrong)


def described(family: Sequence[Instance]) -> str:
    """What a family of instances covers: dtypes, ranks, sizes, operator sets and attributes."""
    every = [o for instance in family for o in operands(instance.case)]
    if not every:
        return "nothing"
    ranks = sorted({len(o.dims) for o in every})
    sizes = sorted({d for o in every for d in o.dims if isinstance(d, int)})
    symbols = any(isinstance(d, str) for o in every for d in o.dims)
    opsets = sorted({int(i.case.get("opset", DEFAULT_OPSET)) for i in family})
    shown = [
        f"dtypes {', '.join(sorted({o.dtype for o in every}))}",
        f"ranks {_range(ranks)}",
        f"sizes {_range(sizes)}{' and symbols' if symbols else ''}",
        f"operator sets {_range(opsets)}",
    ]
    return "; ".join([*shown, *_attributes(family)])


def _attributes(family: Sequence[Instance]) -> list[str]:
    """Attributes and operators with how many values each took."""
    taken: dict[str, set[str]] = {}
    for instance in family:
        for name, value in instance.case.items():
            if name == "opset" or any(
                value is o or (isinstance(value, list) and o in value) for o in operands({name: value})
            ):
                continue
            items: Any = value.items() if isinstance(value, Mapping) else [(name, value)]
            for key, held in items:
                taken.setdefault(key, set()).add(str(held))
    return [
        f"{name} {min(held)}" if len(held) == 1 else f"{len(held)} values of {name}"
        for name, held in sorted(taken.items())
    ]


def _range(numbers: Sequence[int]) -> str:
    if not numbers:
        return "none"
    return str(numbers[0]) if numbers[0] == numbers[-1] else f"{numbers[0]} to {numbers[-1]}"
