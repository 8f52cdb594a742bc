"""Is what was proved for all sizes true at sizes drawn at random? Asked of the engine and of float64 numbers."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from graphopt.prover.attack import Counterexample
from graphopt.prover.cases import Case, build_instance, parse_case
from graphopt.prover.generic.prover import AS_GIVEN, assignment
from graphopt.prover.symbolic import judge
from graphopt.rewrite.examples import Operand
from graphopt.rewrite.schema import Rule


def resized(case: Case, rng: np.random.Generator, as_given: bool = False) -> Case:
    """A case with other dimensions: of one size another one everywhere, and perhaps one by itself.

    Sizes in constants change with them, unless they are to stay as given.
    """
    made = copy.deepcopy(case)
    to = {n: int(rng.choice((1, 1, 2, 3, 4, 5, 6))) for n in range(1, 10)}
    mapped = rng.random() < 0.6 and not as_given

    def one(name: str, operand: Operand) -> Operand:
        if isinstance(operand.data, list):
            if operand.dtype != "i64" or not mapped:
                return operand
            return replace(operand, data=[to.get(n, n) if isinstance(n, int) and n > 0 else n for n in operand.data])
        dims = [to.get(d, d) if isinstance(d, int) else d for d in operand.dims]
        if dims and rng.random() < 0.25:
            at = int(rng.integers(len(dims)))
            dims[at] = int(rng.choice((1, 2, 3, 4))) if isinstance(dims[at], int) else dims[at]
        return replace(operand, dims=tuple(dims))

    for name, value in made.items():
        if isinstance(value, Operand):
            made[name] = one(name, value)
        elif isinstance(value, list) and all(isinstance(v, Operand) for v in value):
            made[name] = [one(name, v) for v in value]
    return made


def counterexamples(rule: Rule, proved: tuple[str, ...], *, tries: int = 30, seed: int = 0) -> Iterator[Counterexample]:
    """Where a rule is false at the ranks and attributes that were said to be proved for all sizes."""
    rng = np.random.default_rng(seed)
    cases: dict[str, Any] = {}
    for kind in ("accept", "reject"):
        for example in rule.examples[kind]:
            case = parse_case(rule, example)
            cases.setdefault(assignment(case), case)
    for text in proved:
        for _ in range(tries):
            case = resized(cases[text.removesuffix(AS_GIVEN)], rng, text.endswith(AS_GIVEN))
            instance = build_instance(rule, case)
            if instance is None:
                continue
            found = judge(instance, rule, seed, use_order=False)
            if isinstance(found, Counterexample):
                yield found
