"""Generalise a pair to a rule: the widest conditions under which it is proved.

The draft of a rule is tried without conditions at instances that vary shapes, ranks, attributes, element types and
operator-set versions (the prover's own, :mod:`graphopt.equivalence.instances`). Each is judged by the prover; conditions
are chosen by what fails; with them, other instances are made, until nothing fails any more. What comes out is checked as any
rule is: its form, its examples in the runtime, and a proof with other random elements.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from graphopt.equivalence.evidence import Verdict, check_rule
from graphopt.equivalence.instances import Case, Instance, instance_of, parse_case, variations
from graphopt.equivalence.sides import compare_sides
from graphopt.equivalence.symbolic import Counterexample, judge
from graphopt.errors import GraphoptError
from graphopt.ir.edit import RefusedError
from graphopt.rewrite.examples import Operand, build_example
from graphopt.rewrite.expr import Env, Expression, Unknown
from graphopt.rewrite.schema import Rule
from graphopt.synth.conditions import FAILS, HOLDS, REFUSED, UNKNOWN, Trial, candidates, choose, required
from graphopt.synth.draft import Draft, one_rule
from graphopt.synth.operators import OPSET
from graphopt.synth.pairs import Pair
from graphopt.synth.replacement import drafts, styles

POOL = 100
"""Instances at which a draft is tried to find its conditions."""
TRIES = 800
ROUNDS = 6
SEEDS = (11, 12, 13)
_SEARCHES = 4  # for an instance such as the one at which a proof failed
_MEMBERS = 6  # pairs of a skeleton that are looked at
_LOOKED_AT = 3  # instances that are tried as a further example
LIMIT = 80
"""Instances of the proof: nobody has looked at the law before."""
SECONDS = 120.0  # for one proof; far more than any needs, so that a slow machine proves the same
MOVES = frozenset({"Transpose", "Reshape", "Concat", "Split", "Slice", "Squeeze", "Unsqueeze"})
"""Operators that move elements of any type."""
EXACT = MOVES | {"Neg", "Relu", "MaxPool", "ReduceMax"}
"""Operators that compute nothing: only among these are results the same bit for bit."""


@dataclass(frozen=True)
class Found:
    """What became of a skeleton, or of a part of its pairs.

    Attributes:
        outcome: ``proved``, ``rejected`` or ``timeout``.
        text: The rule in YAML with ``ID`` and ``DOC`` for its name and description, if it is proved.
        pairs: The pairs that it came from.
        message: Why it was rejected.
        verdict: The evidence, of a proved rule.
    """

    outcome: str
    pairs: tuple[Pair, ...]
    text: str = ""
    message: str = ""
    verdict: Verdict | None = None

    @property
    def rule(self) -> Rule:
        """The rule, if it is proved."""
        return one_rule(self.text)


def generalise(pairs: Sequence[Pair], seed: int = 0) -> list[Found]:
    """Rules for the pairs of one skeleton.

    Args:
        pairs: The instances that were enumerated.
        seed: Of instances and of random elements.
    """
    chosen = diverse(pairs)
    found: list[Found] = []
    for style in styles(chosen[0]):
        left = [p for p in chosen if not any(f.outcome == "proved" and p in f.pairs for f in found)]
        for draft in drafts(left, style):
            made = _prove(draft, seed)
            if made.outcome == "proved" or style == "plain":
                found.append(made)
    return found or [Found("rejected", tuple(chosen), message="its attributes can't be expressed")]


def diverse(pairs: Sequence[Pair]) -> list[Pair]:
    """A few pairs that differ in attributes, then in ranks, then in shapes."""
    first: dict[Any, Pair] = {}
    for look in (_forms, _ranks, _shapes):
        for pair in pairs:
            first.setdefault((look.__name__, look(pair)), pair)
    return list({id(p): p for p in first.values()}.values())[:_MEMBERS]


def _forms(pair: Pair) -> Any:
    return tuple(n.form for n in (*pair.before.nodes, *pair.after.nodes))


def _ranks(pair: Pair) -> Any:
    return tuple(len(pair.shapes[name]) for name in pair.before.inputs)


def _shapes(pair: Pair) -> Any:
    return tuple(pair.shapes[name] for name in pair.before.inputs)


def _prove(draft: Draft, seed: int) -> Found:
    accept = [draft.pattern.case(p) for p in draft.pairs]
    try:
        bare = draft.rule(accept=accept)
    except GraphoptError as error:
        return Found("rejected", draft.pairs, message=str(error))
    pool = _Pool(bare, seed)
    for case in accept:
        pool.add(parse_case(bare, case))
    seeds = len(pool.trials)
    if not seeds or any(t.outcome != HOLDS for t in pool.trials):
        return Found("rejected", draft.pairs, message=pool.wrong or "an instance of its own can't be evaluated")
    pool.vary(bare, seed, POOL)
    fixed, conditions = required(draft), candidates(draft)
    made: _Written | None = None
    for round in range(ROUNDS):
        while made is None or made.stale:
            where = choose(conditions, fixed, pool.trials, seeds)
            if where is None:
                return Found("rejected", draft.pairs, message=pool.wrong)
            made = _written(draft, fixed, where, conditions, pool.trials, seeds)
            if made.stale & {e.text for e in fixed}:
                return Found("rejected", draft.pairs, message="no instance shows what a condition is for")
            conditions = [e for e in conditions if e.text not in made.stale]
        if pool.vary(made.rule, seed + 100 + round, POOL // 2):
            made = None
            continue
        text = made.text
        verdict = check_rule(one_rule(text), seeds=SEEDS, limit=LIMIT, tries=8 * LIMIT, seconds=SECONDS)
        if verdict.verdict == "failed" and "equal: exact" in text:
            text = text.replace("equal: exact", "equal: real", 1)
            verdict = check_rule(one_rule(text), seeds=SEEDS, limit=LIMIT, tries=8 * LIMIT, seconds=SECONDS)
        if verdict.verdict == "proved":
            return Found("proved", draft.pairs, text, "", verdict)
        if verdict.verdict == "timeout":
            return Found("timeout", draft.pairs, message=verdict.message)
        # What the proof came across, the conditions have to exclude.
        if not any(pool.vary(made.rule, seed, POOL) for seed in range(SEEDS[0], SEEDS[0] + _SEARCHES)):
            return Found("rejected", draft.pairs, message=verdict.message)
        made = None
    return Found("rejected", draft.pairs, message=f"there is always another counterexample: {pool.wrong}")


class _Pool:
    """Instances of a draft without conditions, judged.

    Args:
        rule: The draft.
        seed: Of random elements.

    Attributes:
        trials: The instances at which something is known.
        wrong: The first failure.
    """

    def __init__(self, rule: Rule, seed: int) -> None:
        self.rule, self.seed = rule, seed
        self.trials: list[Trial] = []
        self.wrong = ""
        self._undecided = 0
        self._seen: set[str] = set()

    def vary(self, rule: Rule, seed: int, limit: int) -> bool:
        """Judge up to ``limit`` variations of a rule's examples; whether the rule fails at one of them."""
        failed, judged = False, 0
        for case in variations(rule, seed=seed, tries=TRIES):
            if judged >= limit:
                break
            outcome, env = self.add(case)
            judged += outcome not in ("", UNKNOWN)
            failed = failed or (outcome == FAILS and env is not None and all(e.holds(env) for e in rule.where))
        return failed

    def add(self, case: Case) -> tuple[str, Env | None]:
        """Judge a case: whether the law holds there, fails, or the engine refuses it; empty where it says nothing."""
        text = repr(sorted(case.items()))
        if text in self._seen:
            return "", None
        self._seen.add(text)
        try:
            example = build_example(self.rule, case)
        except (GraphoptError, ValueError, TypeError, IndexError, ArithmeticError):
            return "", None  # the variation makes no sense
        if example.match is None:
            return "", None
        env = Env(example.graph, example.match.names)
        try:
            outcome = self._judge(instance_of(self.rule, case, example))
        except (RefusedError, Unknown, ValueError, TypeError, IndexError, ArithmeticError):
            outcome = REFUSED
        self.trials.append(Trial(case, env, outcome))
        return outcome, env

    def _judge(self, instance: Instance) -> str:
        verdict = judge(instance, self.rule, self.seed, use_order=self._undecided < 2)
        if isinstance(verdict, Counterexample):
            self.wrong = self.wrong or f"counterexample: {verdict}"
            return FAILS
        method, why = verdict
        if method in ("undefined", "large"):
            return UNKNOWN
        if method == "floats":
            self._undecided += 1
            self.wrong = self.wrong or f"not proved: {why}"
            return FAILS
        return HOLDS


@dataclass(frozen=True)
class _Written:
    """A rule with conditions and examples.

    Attributes:
        rule: With a variable for every attribute.
        text: In YAML, with numbers for attributes that the conditions leave no choice of.
        stale: Conditions for which no rejecting example was found, so that they have to go.
    """

    rule: Rule
    text: str
    stale: frozenset[str] = frozenset()


def _written(
    draft: Draft,
    fixed: Sequence[Expression],
    where: list[str],
    conditions: Sequence[Expression],
    trials: Sequence[Trial],
    seeds: int,
) -> _Written:
    """The rule with its conditions, for each an instance that fails on it alone, and examples that it accepts."""
    chosen = {e.text: e for e in fixed} | {e.text: e for e in conditions if e.text in where}
    if _needs_floats(draft) and not any(text.startswith("is_float") for text in where):
        floats = conditions[0]
        whole = [t for t in trials if not t.satisfies(floats) and all(t.satisfies(e) for e in chosen.values())]
        if whole:
            chosen = {floats.text: floats, **chosen}
    accept = [_plain(t.case) for t in trials[: 2 if seeds > 1 else 1]]
    rule = draft.rule(list(chosen), accept)
    able = [
        t for t in trials[seeds:] if t.outcome == HOLDS and all(t.satisfies(e) for e in chosen.values()) and not _odd(t)
    ]
    # One that looks unlike those enumerated: with a symbolic dimension, if there is one that the runtime takes.
    able.sort(key=lambda t: (not _symbolic(t), *_simplicity(t)))
    accept += [_plain(t.case) for t in able[:_LOOKED_AT] if _runs(rule, t)][:1]
    reject: dict[str, Case] = {}
    for index, (text, condition) in enumerate(chosen.items()):
        before = list(chosen.values())[:index]
        failing = [t for t in trials if not t.satisfies(condition) and all(t.satisfies(e) for e in before)]
        failing.sort(key=lambda t: (t.outcome != FAILS, *_simplicity(t)))
        # Operands that may change places can match in another way than the one that was looked at.
        example = next((t for t in failing if build_example(rule, t.case).failing == index), None)
        if example is not None:
            reject[text] = _plain(example.case)
    rule = one_rule(draft.text("draft", "draft", "real", list(chosen), accept, list(reject.values())))
    fix = _fixed(draft, list(chosen))
    left = [text for text in chosen if text not in fix.values()]
    draft = replace(draft, fix={variable: text.split()[-1] for variable, text in fix.items()})
    used = {node.op for side in (draft.pairs[0].before, draft.pairs[0].after) for node in side.nodes}
    claim = "exact" if used <= EXACT else "real"
    text = draft.text("ID", "DOC", claim, left, accept, [reject[t] for t in left if t in reject])
    return _Written(rule, text, frozenset(chosen) - frozenset(reject))


def _fixed(draft: Draft, where: Sequence[str]) -> dict[str, str]:
    """Attributes that a condition leaves no choice of, and the condition."""
    found: dict[str, str] = {}
    for slot in draft.slots:
        about = [text for text in where if re.search(rf"\b{slot.variable}\b", text)]
        if (
            slot.kind in ("flag", "factor", "groups")
            and len(about) == 1
            and re.fullmatch(rf"{slot.variable} == \d+", about[0])
        ):
            found[slot.variable] = about[0]
    return found


def _runs(rule: Rule, trial: Trial) -> bool:
    """Whether the runtime computes both sides of an instance; what it gives for a symbolic size may not fit."""
    try:
        return compare_sides(rule, _plain(trial.case), 0) < 1.0
    except (GraphoptError, RefusedError):
        return False


def _needs_floats(draft: Draft) -> bool:
    """Whether the replacement uses an operator for which the runtime may have no kernel for integers, unlike the pattern."""
    before, after = ({n.op for n in side.nodes} for side in (draft.pairs[0].before, draft.pairs[0].after))
    return not after <= before | MOVES | {"Add", "Sub", "Mul"}


def _symbolic(trial: Trial) -> bool:
    return any(isinstance(d, str) for o in trial.case.values() if isinstance(o, Operand) for d in o.dims)


def _odd(trial: Trial) -> bool:
    """Whether the runtime may lack something for an instance: another element type, an older operator set."""
    operands = [o for o in trial.case.values() if isinstance(o, Operand)]
    return (
        any(o.dtype != ("i64" if o.data is not None else "f32") for o in operands) or trial.case.get("opset") != OPSET
    )


def _simplicity(trial: Trial) -> tuple[bool, int, str]:
    operands = [o for o in trial.case.values() if isinstance(o, Operand)]
    return _odd(trial), sum(len(o.dims) + o.const for o in operands), repr(trial.case)


def _plain(case: Mapping[str, Any]) -> Case:
    return {name: str(value) if isinstance(value, Operand) else value for name, value in case.items()}
