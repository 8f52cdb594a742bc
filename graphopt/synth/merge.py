"""Make one rule of several that differ in one operator: ``Relu|Tanh:op``."""

from __future__ import annotations

import itertools
import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from graphopt.errors import GraphoptError
from graphopt.prover.evidence import Verdict, check_rule
from graphopt.synth.draft import one_rule
from graphopt.synth.generalise import LIMIT, SECONDS
from graphopt.synth.operators import BINARY, REDUCE, UNARY

_ALIKE = (UNARY, BINARY, REDUCE, ("MaxPool", "AveragePool"))
"""Operators that may stand for each other: of the same form."""
_VARIABLE = "op"


@dataclass(frozen=True)
class Merged:
    """A rule for several operators.

    Attributes:
        ops: The operators.
        text: In YAML, with ``ID`` and ``DOC``.
        members: Places of the rules that it replaces.
        verdict: Its evidence.
    """

    ops: tuple[str, ...]
    text: str
    members: tuple[int, ...]
    verdict: Verdict


def mergeable(texts: Sequence[str]) -> list[tuple[tuple[str, ...], tuple[int, ...]]]:
    """Groups of rules that differ in one operator: the operators and the places of their rules, largest groups first."""
    groups: dict[Any, dict[str, int]] = defaultdict(dict)
    for place, text in enumerate(texts):
        lines = _lines(text)
        for alike in _ALIKE:
            for op in alike:
                bare = re.sub(rf"\b{op}\b", "OP", lines)
                if bare != lines:
                    groups[alike, bare].setdefault(op, place)
    found = [(tuple(g), tuple(g.values())) for g in groups.values() if len(g) > 1]
    found.sort(key=lambda item: (-len(item[1]), item[1]))
    chosen: list[tuple[tuple[str, ...], tuple[int, ...]]] = []
    taken: set[int] = set()
    for ops, places in found:
        if taken.isdisjoint(places):
            taken.update(places)
            chosen.append((ops, places))
    return chosen


def merge(task: tuple[tuple[str, ...], tuple[int, ...], list[str]]) -> Merged | None:
    """One rule for a group of :func:`mergeable`, if one is proved.

    Args:
        task: The operators, the places of their rules, and the rules.
    """
    ops, places, texts = task
    # The conditions of one of them, those of the strictest first.
    for text, op in sorted(zip(texts, ops, strict=True), key=lambda item: -item[0].count("\n")):
        made = _together(text, op, dict(zip(ops, texts, strict=True)))
        try:
            verdict = check_rule(one_rule(made), limit=LIMIT, attacks=2 * LIMIT, tries=8 * LIMIT, seconds=SECONDS)
        except GraphoptError:
            continue
        if verdict.verdict == "proved":
            return Merged(ops, made, places, verdict)
    return None


def _lines(text: str) -> str:
    """The lines of a rule that say what it does, without its conditions and examples."""
    head = text.partition("    examples:\n")[0]
    return re.sub(r"    where:\n(      - .*\n)+", "", head.partition("    match:\n")[2])


def _together(text: str, op: str, texts: Mapping[str, str]) -> str:
    """A rule with an operator replaced by the choice among all, and the examples of all."""
    head = text.partition("    examples:\n")[0]
    before, _, after = head.partition("    replace:\n")
    names = "|".join(sorted(texts))
    before = re.sub(rf"= {op}\b", f"= {names}:{_VARIABLE}", before)
    after = re.sub(rf"= {op}\b", f"= ${_VARIABLE}", after)
    accept = [case for name, other in texts.items() for case in _cases(other, "accept", name)[: 1 if name != op else 3]]
    reject = _cases(text, "reject", op)
    lines = ["    examples:", "      accept:", *(f"        - {c}" for c in accept)]
    lines += ["      reject:", *(f"        - {c}" for c in reject)] if reject else []
    return f"{before}    replace:\n{after}" + "\n".join(lines) + "\n"


def _cases(text: str, kind: str, op: str) -> list[str]:
    """The examples of a kind that a rule has, each with the operator."""
    examples = text.partition("    examples:\n")[2].partition(f"      {kind}:\n")[2].splitlines()
    cases = itertools.takewhile(lambda line: line.startswith("        - "), examples)
    return [case.removeprefix("        - ").removesuffix("}") + f", {_VARIABLE}: {op}}}" for case in cases]
