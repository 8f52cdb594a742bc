"""Generalise a pair to a rule: the widest conditions under which it is proved.

The draft of a rule is tried without conditions at instances that vary shapes, ranks, attributes, element types and
operator-set versions (the prover's own, :mod:`graphopt.prover.instances`). Each is judged by the prover; conditions
are chosen by what fails; with them, other instances are made, until nothing fails any more. What comes out is checked as any
rule is: its form, its examples in the runtime, and a proof with other random elements. A counterexample, whenever it is
found, goes back into the choice of conditions.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from graphopt.errors import GraphoptError
from graphopt.ir.delta import RefusedError
from graphopt.prover.attack import Counterexample
from graphopt.prover.cases import Case, Instance, instance_of, parse_case, written_case
from graphopt.prover.evidence import Verdict, check_rule
from graphopt.prover.examples import compare_sides
from graphopt.prover.instances import variations
from graphopt.prover.symbolic import agrees, judge
from graphopt.rewrite.examples import Operand, build_example
from graphopt.rewrite.expr import Env, Expression, Unknown
from graphopt.rewrite.schema import Rule
from graphopt.synth.conditions import FAILS, HOLDS, REFUSED, UNKNOWN, Trial, candidates, choose, required
from graphopt.synth.draft import Draft, one_rule, weakened
from graphopt.synth.journal import in_time
from graphopt.synth.operators import OPSET
from graphopt.synth.pairs import Pair
from graphopt.synth.replacement import drafts, styles

POOL = 100
"""Instances at which a draft is tried to find its conditions."""
TRIES = 800
ROUNDS = 12
"""Choices of conditions, each with the counterexamples to those before."""
ATTACK = 150
"""Instances of a draft with its conditions at which these have to hold before it is proved."""
_EXPLORED = 40  # of these attacks, instances that are judged though the conditions exclude them
_WRONG = 4  # failures after which conditions are chosen again
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
        fixed: Variables of the draft in whose place the rule has numbers.
    """

    outcome: str
    pairs: tuple[Pair, ...]
    text: str = ""
    message: str = ""
    verdict: Verdict | None = None
    fixed: Mapping[str, str] = field(default_factory=dict)

    @property
    def rule(self) -> Rule:
        """The rule, if it is proved."""
        return one_rule(self.text)


def generalise(
    pairs: Sequence[Pair], seed: int = 0, refuted: Sequence[Case] = (), until: float | None = None
) -> list[Found]:
    """Rules for the pairs of one skeleton.

    Args:
        pairs: The instances that were enumerated.
        seed: Of instances and of random elements.
        refuted: Instances at which rules for these pairs are known to fail, with the variables of their drafts.
        until: When nobody waits for them any more; see :func:`graphopt.synth.journal.in_time`.

    Raises:
        OutOfTime: That is now.
    """
    chosen = diverse(pairs)
    found: list[Found] = []
    able = styles(chosen[0])
    for style in able:
        left = [p for p in chosen if not any(f.outcome == "proved" and p in f.pairs for f in found)]
        for draft in drafts(left, style):
            made = _prove(draft, seed, refuted, until)
            if made.outcome == "proved" or style == able[-1]:
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
    return tuple(n.form for n in pair.nodes)


def _ranks(pair: Pair) -> Any:
    return tuple(len(pair.shapes[name]) for name in pair.before.inputs)


def _shapes(pair: Pair) -> Any:
    return tuple(pair.shapes[name] for name in pair.before.inputs)


def _prove(draft: Draft, seed: int, refuted: Sequence[Case], until: float | None) -> Found:
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
    for case in refuted:
        pool.add(parse_case(bare, case), FAILS)
    pool.vary(bare, seed, POOL, POOL, POOL)
    fixed, conditions = required(draft), candidates(draft)
    for round in range(ROUNDS):
        in_time(until)
        made: _Written | None = None
        while made is None or made.stale:
            where = choose(conditions, fixed, pool.trials, seeds)
            if where is None:
                return Found("rejected", draft.pairs, message=pool.wrong)
            made = _written(draft, fixed, where, conditions, pool.trials, seeds)
            if made.stale & {e.text for e in fixed}:
                return Found("rejected", draft.pairs, message="no instance shows what a condition is for")
            conditions = [e for e in conditions if e.text not in made.stale]
        if pool.vary(made.rule, seed + 100 + round, _EXPLORED, ATTACK):
            continue
        text = made.text
        verdict = _checked(text)
        if verdict.verdict == "failed" and weakened(text) != text:
            text = weakened(text)
            verdict = _checked(text)
        if verdict.verdict == "proved":
            return Found("proved", draft.pairs, text, "", verdict, made.fixed)
        if verdict.refuted is None:
            outcome = "timeout" if verdict.verdict == "timeout" else "rejected"
            return Found(outcome, draft.pairs, message=verdict.message)
        pool.refute(parse_case(bare, {**made.fixed, **verdict.refuted}))
    return Found("rejected", draft.pairs, message=f"there is always another counterexample: {pool.wrong}")


def _checked(text: str) -> Verdict:
    return check_rule(one_rule(text), limit=LIMIT, attacks=2 * LIMIT, tries=8 * LIMIT, seconds=SECONDS)


class _Pool:
    """Instances of a draft without conditions, judged.

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

    def vary(self, rule: Rule, seed: int, explored: int, limit: int, wrong: int = _WRONG) -> bool:
        """Judge variations of a rule's examples; whether the rule fails at one of them.

        Args:
            rule: The draft with conditions.
            seed: Of the variations.
            explored: How many are judged whether they satisfy the conditions or not; after these, only those that do.
            limit: How many that satisfy them are judged, at most.
            wrong: Failures after which no more are looked for.
        """
        judged, inside, failed = 0, 0, 0
        for case in variations(rule, seed=seed, tries=TRIES):
            if inside >= limit or failed >= wrong:
                break
            trial = self.add(case, within=rule if judged >= explored else None)
            if trial is not None and trial.outcome != UNKNOWN:
                judged += 1
                applies = all(e.holds(trial.env) for e in rule.where)
                inside += applies
                failed += applies and trial.outcome == FAILS
        return failed > 0

    def add(self, case: Case, outcome: str = "", within: Rule | None = None) -> Trial | None:
        """Judge a case: whether the law holds there, fails, or the engine refuses it; ``None`` where it says nothing.

        Args:
            case: The case.
            outcome: What is known of it already.
            within: A rule that has to apply there.
        """
        text = _text(case)
        if text in self._seen and not outcome:
            return None
        try:
            example = build_example(self.rule, case)
        except (GraphoptError, ValueError, TypeError, IndexError, ArithmeticError):
            return None  # the variation makes no sense
        if example.match is None:
            return None
        env = Env(example.graph, example.match.names)
        if within is not None and not all(e.holds(env) for e in within.where):
            return None
        self._seen.add(text)
        try:
            outcome = outcome or self._judge(instance_of(self.rule, case, example))
        except (RefusedError, Unknown, ValueError, TypeError, IndexError, ArithmeticError):
            outcome = REFUSED
        trial = Trial(case, env, outcome)
        self.trials.append(trial)
        return trial

    def refute(self, case: Case) -> None:
        """Note a case at which the rule fails; where it has been noted, it matched the other way round, as operands of a sum may."""
        if _text(case) in self._seen:
            for one, two in itertools.combinations([name for name in self.rule.leaves if name in case], 2):
                self.add({**case, one: case[two], two: case[one]})
        self.add(case, FAILS)

    def _judge(self, instance: Instance) -> str:
        told = agrees(instance, self.seed)
        if told or (told is False and self.wrong):
            return HOLDS if told else FAILS
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


def _text(case: Case) -> str:
    return repr(sorted(case.items()))


@dataclass(frozen=True)
class _Written:
    """A rule with conditions and examples.

    Attributes:
        rule: With a variable for every attribute.
        text: In YAML, with numbers for attributes that the conditions leave no choice of.
        fixed: These attributes and their numbers.
        stale: Conditions for which no rejecting example was found, so that they have to go.
    """

    rule: Rule
    text: str
    fixed: Mapping[str, str]
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
    accept = [written_case(t.case) for t in trials[: 2 if seeds > 1 else 1]]
    rule = draft.rule(list(chosen), accept)
    able = [
        t for t in trials[seeds:] if t.outcome == HOLDS and all(t.satisfies(e) for e in chosen.values()) and not _odd(t)
    ]
    # One that looks unlike those enumerated: with a symbolic dimension, if there is one that the runtime takes.
    able.sort(key=lambda t: (not _symbolic(t), *_simplicity(t)))
    accept += [written_case(t.case) for t in able[:_LOOKED_AT] if _runs(rule, t)][:1]
    reject: dict[str, Case] = {}
    for index, (text, condition) in enumerate(chosen.items()):
        before = list(chosen.values())[:index]
        failing = [t for t in trials if not t.satisfies(condition) and all(t.satisfies(e) for e in before)]
        failing.sort(key=lambda t: (t.outcome != FAILS, *_simplicity(t)))
        # Operands that may change places can match in another way than the one that was looked at.
        example = next((t for t in failing if build_example(rule, t.case).failing == index), None)
        if example is not None:
            reject[text] = written_case(example.case)
    rule = one_rule(draft.text("draft", "draft", "real", list(chosen), accept, list(reject.values())))
    fix = _fixed(draft, list(chosen))
    left = [text for text in chosen if text not in fix.values()]
    draft = replace(draft, fix={variable: text.split()[-1] for variable, text in fix.items()})
    used = draft.pairs[0].ops
    claim = "exact" if used <= EXACT else "real"
    text = draft.text("ID", "DOC", claim, left, accept, [reject[t] for t in left if t in reject])
    return _Written(rule, text, draft.fix, frozenset(chosen) - frozenset(reject))


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
        return compare_sides(rule, written_case(trial.case), 0) < 1.0
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
