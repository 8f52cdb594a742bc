"""Evidence for rules: what is checked, what came of it, and the lock file that records it.

A rule loads when its verdict is ``proved`` or ``tested`` for its present text. Every rule must pass the lint, its examples
in the runtime (float32, several seeds; approximations on extreme inputs too) and the attack on the instances of its
bounded family; ``proved`` says that all these instances were proved besides.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from graphopt.equivalence.instances import written_case
from graphopt.equivalence.sides import extremes, worst_difference
from graphopt.equivalence.symbolic import METHODS, Proof, prove
from graphopt.errors import RuleError
from graphopt.execution import make_executor
from graphopt.onnxio.save import write_text
from graphopt.rewrite.library import lint_rule, read_evidence
from graphopt.rewrite.schema import Rule, read_rules

SEEDS = (0, 1, 2)
VERDICTS = ("proved", "tested", "failed", "timeout", "unsupported")
_FEW = 4  # instances; a rule that matches fewer in its family is tested at best


@dataclass(frozen=True)
class Verdict:
    """What is known of a rule.

    Attributes:
        rule: Rule id.
        hash: Hash of the rule's text.
        verdict: One of :data:`VERDICTS`.
        method: How it was found, ``terms 31, field 9``.
        assignments: Instances (shapes and attributes) that were evaluated.
        domain: What was varied.
        false_accept: Bound on the chance that a false instance passed; 0 where no random field element was used.
        cases: Example and seed combinations compared in the runtime.
        worst: Largest error seen there, relative to the largest element of the reference.
        message: Why the rule failed, or why it is not proved.
        refuted: The instance of a counterexample, in the form of ``examples``.
    """

    rule: str
    hash: str
    verdict: str
    method: str = ""
    assignments: int = 0
    domain: str = ""
    false_accept: float = 0.0
    cases: int = 0
    worst: float = 0.0
    message: str = ""
    refuted: Mapping[str, Any] | None = None


def check_rule(
    rule: Rule, *, seeds: Sequence[int] = SEEDS, limit: int = 40, tries: int = 300, seconds: float = 60.0
) -> Verdict:
    """Lint a rule, run its examples, and try to prove it.

    Args:
        rule: The rule.
        seeds: Of the inputs of its examples; the first also of the proof.
        limit: Instances to prove it at.
        tries: Variations of the examples made for them.
        seconds: Time limit of the proof.
    """
    found = lint_rule(rule)
    if found:
        return Verdict(rule.id, rule.hash, "failed", "lint", message="; ".join(found))
    worst, cases, message = worst_difference(rule, seeds)
    if not message and rule.claim == "approx":
        message = extremes(rule)
    proof = prove(rule, seed=seeds[0], limit=limit, tries=tries, seconds=seconds)
    if message and proof.counterexample is None:
        return Verdict(
            rule.id, rule.hash, "failed", "examples in the runtime", cases=cases, worst=worst, message=message
        )
    return _verdict(rule, proof, cases, worst)


def _verdict(rule: Rule, proof: Proof, cases: int, worst: float) -> Verdict:
    outcome, message = proof.outcome, proof.open
    if outcome == "proved" and proof.instances < _FEW:
        outcome, message = "tested", f"only {proof.instances} instances"
    if outcome == "unsupported" and cases:
        outcome = "tested"
    refuted = None
    if proof.counterexample is not None:
        message = f"counterexample: {proof.counterexample}"
        refuted = written_case(proof.counterexample.instance)
    method = ", ".join(f"{name} {proof.methods[name]}" for name in (*METHODS, "floats") if proof.methods.get(name))
    domain = f"{proof.shapes} shape and {proof.attributes} attribute assignments, dimensions 1 to 7 and those of the examples"
    chance = proof.false_accept if proof.methods.get("field") else 0.0
    return Verdict(
        rule.id,
        rule.hash,
        outcome,
        method or "examples in the runtime",
        proof.instances,
        domain,
        chance,
        cases,
        worst,
        message,
        refuted,
    )


def check_files(work: Sequence[tuple[Path, str]], jobs: int = 1) -> Iterator[tuple[Path, Verdict]]:
    """Check rules of files, in that order, in several processes.

    Args:
        work: File and rule id.
        jobs: Processes; 1 for this one.
    """
    few = jobs == 1 or len(work) < 2 * jobs  # not worth starting a process
    with make_executor("inline" if few else "processes", jobs) as executor:
        yield from executor.map(_check_one, work)


def _check_one(item: tuple[Path, str]) -> tuple[Path, Verdict]:
    file, ident = item
    return file, check_rule(_rules_of(file)[ident])


@lru_cache
def _rules_of(file: Path) -> dict[str, Rule]:
    return {rule.id: rule for rule in read_rules(file)}


def write_evidence(path: Path, verdicts: Sequence[Verdict], known: Collection[str] | None = None) -> None:
    """Record verdicts in a lock file, whole or not at all. Rules that may not load lose their entry.

    Args:
        path: The lock file of a folder of rules.
        verdicts: What was found.
        known: Ids of all rules in the folder, where entries of other rules should go.
    """
    try:
        held: dict[str, Any] = dict(read_evidence(path))
    except RuleError:
        held = {}  # damaged: what is known is written anew
    for v in verdicts:
        held.pop(v.rule, None)
        if v.verdict in ("proved", "tested"):
            held[v.rule] = _entry(v)
    rules = {name: held[name] for name in sorted(held) if known is None or name in known}
    if not rules and not path.exists():
        return
    write_text(path, json.dumps({"schema": "graphopt.evidence/2", "rules": rules}, indent=1) + "\n")


def _entry(v: Verdict) -> dict[str, Any]:
    entry = {
        "hash": v.hash,
        "verdict": v.verdict,
        "method": v.method,
        "assignments": v.assignments,
        "domain": v.domain,
        "false_accept": float(f"{v.false_accept:.1e}"),
        "runtime_cases": v.cases,
        "seeds": list(SEEDS),
    }
    return {**entry, "open": v.message} if v.message else entry
