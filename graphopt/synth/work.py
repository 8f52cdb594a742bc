"""The parts of a run that other processes do: each a function of its task alone."""

from __future__ import annotations

import itertools
import os
import platform
import re
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import lru_cache
from typing import Any

from graphopt.errors import GraphoptError
from graphopt.ir.delta import RefusedError
from graphopt.prover.attack import Counterexample
from graphopt.prover.cases import Case, Instance, operands, written_case
from graphopt.prover.evidence import Verdict, check_rule
from graphopt.prover.instances import instances
from graphopt.prover.symbolic import agrees, judge
from graphopt.rewrite.examples import Operand
from graphopt.rewrite.schema import Rule
from graphopt.runtime.environment import peak_memory
from graphopt.synth.bank import Bank
from graphopt.synth.draft import one_rule, weakened
from graphopt.synth.generalise import LIMIT, SECONDS, diverse, generalise
from graphopt.synth.graphs import Rewriter, canonical, saves
from graphopt.synth.journal import in_time
from graphopt.synth.operators import BINARY, OPSET, REDUCE, UNARY
from graphopt.synth.pairs import Pair, Pairs
from graphopt.synth.worlds import World

STEPS = 3
"""Applications of other rules by which a rule is superfluous."""
ATTACK = 100
"""Instances at which a rule that is to be kept has to hold."""
_ATTACK_SEED = 21
# Instances of a rule that is to be dropped, and those of them at which it has to follow from others.
_DRAWN, _ELSEWHERE = 300, 40
LARGER = 2
"""Operators of a law's side beyond the depth, those counted twice whose result is used twice."""
Group = list[Any]
"""Pairs of one skeleton in the form of :meth:`Pair.to_json`."""


_BORN = time.time_ns()


@dataclass(frozen=True)
class Usage:
    """What a process has needed so far.

    Attributes:
        process: Which one; no two have the same name.
        bytes: At most so much memory at a time.
        seconds: Processor time.
    """

    process: str
    bytes: int
    seconds: float

    @staticmethod
    def now() -> Usage:
        """Of this process."""
        return Usage(f"{platform.node()}:{os.getpid()}:{_BORN}", peak_memory() or 0, time.process_time())


@dataclass(frozen=True)
class Enumerated:
    """What was made in a world.

    Attributes:
        world: Its name.
        terms: Graphs.
        classes: Different fingerprints.
        pairs: Candidate pairs.
        cut: Numbers of operators at which the limit was reached.
        groups: Pairs by skeleton, a few of each.
        usage: Of the process.
    """

    world: str
    terms: int
    classes: int
    pairs: int
    cut: list[int]
    groups: list[Group]
    usage: Usage


def enumerate_world(task: tuple[World, int, int, int, float | None]) -> Enumerated:
    """Enumerate a world: its graphs, their fingerprints, and the pairs of equal ones.

    Args:
        task: The world, the depth, the seed, the limit on graphs of one size, and when nobody waits for it any more.

    Raises:
        OutOfTime: That is now.
    """
    world, depth, seed, limit, until = task
    bank = Bank(world, seed, limit)
    pairs = Pairs(bank)
    groups: dict[Any, list[Pair]] = {}
    count = 0

    def add(pair: Pair) -> None:
        nonlocal count
        count += 1
        if max(pair.before.size, pair.after.size) > depth + LARGER or not pair.about(world.about):
            return
        held = groups.setdefault(pair.skeleton(), [])
        held.append(pair)
        if len(held) > 60:
            held[:] = diverse(held)

    most = world.depth(depth)
    for size in range(1, most + 1):
        for index in bank.grow(size, size == most):
            in_time(until)
            for pair in pairs.of(index):
                add(pair)
    for pair in pairs.of_splits():
        add(pair)
    few = [[p.to_json() for p in diverse(held)] for held in groups.values()]
    return Enumerated(world.name, len(bank.terms), len(bank.classes), count, bank.cut, few, Usage.now())


def paying(groups: list[Group]) -> tuple[list[bool], Usage]:
    """For each group whether the rewrite can ever save anything."""
    return [any(_saves(Pair.from_json(data)) for data in group) for group in groups], Usage.now()


def _saves(pair: Pair) -> bool:
    try:
        return saves(pair)
    except RefusedError:
        return False  # a graph that ONNX does not allow


@lru_cache(maxsize=2)
def _rewriter(rules: tuple[str, ...]) -> Rewriter:
    return Rewriter([named_rule(text, f"kept-{i}") for i, text in enumerate(rules)])


@lru_cache(maxsize=4096)
def named_rule(text: str, id: str) -> Rule:
    """A rule of a template that holds ``ID`` and ``DOC``."""
    return one_rule(text.replace("id: ID", f"id: {id}", 1))


@dataclass(frozen=True)
class Proved:
    """What became of a group.

    Attributes:
        derived: It followed from the rules given.
        found: Outcome, text, message, evidence and pairs of each rule that was tried.
        usage: Of the process.
    """

    derived: bool
    found: list[dict[str, Any]]
    usage: Usage


ToProve = tuple[Group, list[str], int, list[Case], float | None]
"""A group, rules, the seed, instances at which rules of this group are known to fail, and when nobody waits for it any more."""


def prove_group(task: ToProve) -> Proved:
    """Generalise and prove a group, unless it follows from the rules given.

    Raises:
        OutOfTime: Nobody waits for it any more.
    """
    group, rules, seed, refuted, until = task
    in_time(until)
    rewriter = _rewriter(tuple(rules))
    left = [p for p in diverse([Pair.from_json(data) for data in group]) if not _derived(rewriter, p)]
    if not left:
        return Proved(True, [], Usage.now())
    found = [
        {
            "outcome": f.outcome,
            "text": f.text,
            "message": f.message,
            "pairs": [p.to_json() for p in f.pairs],
            "verdict": None if f.verdict is None else asdict(f.verdict),
            "fixed": dict(f.fixed),
        }
        for f in generalise(left, seed, refuted, until)
    ]
    return Proved(False, found, Usage.now())


def _derived(rewriter: Rewriter, pair: Pair) -> bool:
    try:
        return bool(rewriter.derives(pair, STEPS))
    except (RefusedError, GraphoptError):
        return True


@dataclass(frozen=True)
class Attacked:
    """What became of a rule that is to be kept at many more instances.

    Attributes:
        message: Why it falls, empty if it stands.
        refuted: Where it falls, in the form of its examples.
        usage: Of the process.
        text: The rule with a weaker claim, where it stands with that alone.
        verdict: The evidence of this.
    """

    message: str
    refuted: Case
    usage: Usage
    text: str = ""
    verdict: Mapping[str, Any] = field(default_factory=dict)


def attack(task: tuple[str, int]) -> Attacked:
    """Attack a rule that is to be kept.

    Args:
        task: The rule, and which attack it is: each has other instances.
    """
    text, turn = task
    rule, seed = named_rule(text, "kept"), _ATTACK_SEED + turn
    for instance in instances(rule, seed=seed, limit=ATTACK, tries=8 * ATTACK):
        # What the prover can't decide at some further instance does not speak against the rule.
        found = None if agrees(instance, seed) else judge(instance, rule, seed, use_order=False)
        if isinstance(found, Counterexample):
            return Attacked(f"counterexample: {found}", written_case(instance.case), Usage.now())
    return Attacked("", {}, Usage.now())


def check(task: tuple[str, int]) -> Attacked:
    """Check a rule that is to be kept as ``graphopt rules check`` will.

    Where the runtime alone speaks against it, as with the sign of a zero, no condition is to blame but the claim.
    """
    text = task[0]
    verdict = check_rule(named_rule(text, "kept"))
    if verdict.loads:
        return Attacked("", {}, Usage.now())
    weaker = weakened(text)
    again = check_rule(named_rule(weaker, "kept")) if weaker != text else verdict
    if again.loads:
        return Attacked("", {}, Usage.now(), weaker, asdict(again))
    return Attacked(verdict.message or verdict.verdict, dict(verdict.refuted or {}), Usage.now())


def derivable(rules: Sequence[tuple[str, str]], pairs: Sequence[Pair], text: str) -> bool:
    """Whether some rules make another one superfluous: they lead from one side to the other wherever it does.

    Args:
        rules: The rules by id and text.
        pairs: Those that the other rule came from.
        text: The other rule. What follows for the single numbers of its pairs may not for rows or columns that it holds for as well.
    """
    rewriter = Rewriter([named_rule(rule, id) for id, rule in rules])
    return all(_derived(rewriter, p) for p in pairs) and all(_follows(rewriter, i) for i in _elsewhere(text))


def _elsewhere(text: str) -> list[Instance]:
    """Instances of a rule that are as plain as the pairs are, of other ranks, attributes and dimensions of 1."""
    drawn = instances(named_rule(text, "kept"), seed=_ATTACK_SEED, limit=_DRAWN, tries=4 * _DRAWN)
    able = [i for i in drawn if i.before.opset == OPSET and all(map(_plain, operands(i.case)))]
    unlike: dict[Any, Instance] = {}
    for instance in able:
        ones = tuple((d == 1 for d in o.dims) if o.data is None else o.data for o in operands(instance.case))
        unlike.setdefault((tuple(map(_tupled, ones)), instance.attributes), instance)
    return list(unlike.values())[:_ELSEWHERE]


def _tupled(value: Any) -> Any:
    return value if isinstance(value, int | float) else tuple(map(_tupled, value))


def _plain(operand: Operand) -> bool:
    if operand.data is not None:
        return operand.dtype == "i64"
    return operand.dtype == "f32" and not operand.const and all(isinstance(d, int) and d > 0 for d in operand.dims)


def _follows(rewriter: Rewriter, instance: Instance) -> bool:
    before, after = instance.before, instance.after
    try:
        return canonical(before) == canonical(after) or bool(rewriter.path(before, after, STEPS))
    except (RefusedError, GraphoptError):
        return True


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
    """One rule for a group of :func:`mergeable`, ``Relu|Tanh:op``, if one is proved.

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
