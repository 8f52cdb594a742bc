"""Evidence for rules: what is checked, what came of it, and the lock file that records it.

A rule loads when its verdict is ``proved`` or ``attacked`` for its present text; :mod:`graphopt.prover.proof` says
what these mean.
"""

from __future__ import annotations

import json
import traceback
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

from graphopt.errors import RuleError, unexpected
from graphopt.execution import WorkerLostError, make_executor
from graphopt.files import write_text
from graphopt.prover.cases import written_case
from graphopt.prover.proof import ATTACKED, PROVED, TRIES, Proof, prove
from graphopt.prover.rounding import rounding_error
from graphopt.prover.schemas import unknown_operators
from graphopt.prover.symbolic import METHODS
from graphopt.rewrite.library import VERDICTS as LOADING
from graphopt.rewrite.library import lint_rule, read_evidence
from graphopt.rewrite.schema import Rule, parse_file, rule_text

_GENERIC_SECONDS = 3.0
VERDICTS = (*LOADING, "failed", "timeout", "unsupported")


@dataclass(frozen=True)
class Verdict:
    """What is known of a rule.

    Attributes:
        rule: Rule id.
        hash: Hash of the rule's text.
        verdict: One of :data:`VERDICTS`.
        method: How it was found, ``terms 31, field 9``.
        proved: Instances (shapes, attributes, contents of constants, dtypes, operator sets) that were proved.
        attacked: Instances at which both sides were run in the runtime.
        runs: Contents on which they were compared there.
        family: What the instances cover, in words.
        false_accept: Bound on the chance that a false instance passed as proved; 0 where no random field element was used.
        worst: Largest error seen, relative to the largest element of the pattern's result.
        message: Why the rule failed, or why it is not proved.
        refuted: The instance of a counterexample, in the form of ``examples``.
        seed: Of the instances and contents.
        all_sizes: Whether the rule is proved for all sizes of at least 1, at the ranks and attributes of its examples.
        details: The traceback, where the check itself failed.
        error: Rounding error at the rule's examples under ``measure``, relative to the largest result; None without such.
    """

    rule: str
    hash: str
    verdict: str
    method: str = ""
    proved: int = 0
    attacked: int = 0
    runs: int = 0
    family: str = ""
    false_accept: float = 0.0
    worst: float = 0.0
    message: str = ""
    refuted: Mapping[str, Any] | None = None
    seed: int = 0
    details: str = ""
    all_sizes: bool = False
    error: float | None = None

    @property
    def loads(self) -> bool:
        """Whether a rule of this verdict may be used."""
        return self.verdict in LOADING


def check_rule(
    rule: Rule,
    *,
    seed: int = 0,
    limit: int = PROVED,
    attacks: int = ATTACKED,
    tries: int = TRIES,
    seconds: float = 60.0,
    generic: bool = True,
) -> Verdict:
    """Lint a rule, attack it, and try to prove it.

    Args:
        rule: The rule.
        seed: Of instances and contents.
        limit: Instances to prove it at.
        attacks: Instances to attack it at.
        tries: Variations of the examples made for them.
        seconds: Processor time for the attack and the proof.
        generic: Whether to look for a proof for all sizes as well.
    """
    found = lint_rule(rule) + unknown_operators(rule)
    if found:
        return Verdict(rule.id, rule.hash, "failed", "lint", message="; ".join(found))
    made = _verdict(rule, prove(rule, seed=seed, limit=limit, attacks=attacks, tries=tries, seconds=seconds), seed)
    if not made.loads:
        return made
    made = replace(made, error=rounding_error(rule, seed))
    return replace(made, all_sizes=_for_all_sizes(rule)) if generic else made


def _for_all_sizes(rule: Rule) -> bool:
    try:
        from graphopt.prover.generic import prove_generic
    except ImportError:  # it needs z3
        return False
    return prove_generic(rule, seconds=_GENERIC_SECONDS).complete


def _verdict(rule: Rule, proof: Proof, seed: int) -> Verdict:
    message, refuted = proof.open, None
    if proof.counterexample is not None:
        message = f"counterexample: {proof.counterexample}"
        refuted = written_case(proof.counterexample.instance)
    method = ", ".join(f"{name} {proof.methods[name]}" for name in (*METHODS, "attack") if proof.methods.get(name))
    return Verdict(
        rule.id,
        rule.hash,
        proof.outcome,
        method,
        proof.proved,
        proof.attacked,
        proof.runs,
        proof.family,
        proof.false_accept,
        proof.worst,
        message,
        refuted,
        seed,
    )


def check_files(work: Sequence[tuple[Path, str]], jobs: int = 1, seed: int = 0) -> Iterator[tuple[Path, Verdict]]:
    """Check rules of files, in that order, in several processes.

    Args:
        work: File and rule id.
        jobs: Processes.
        seed: Of instances and contents.

    Raises:
        RuleError: A file is no longer what it was when the rules in it were named.
    """
    # As they are now: the work may take an hour, and what is written meanwhile is another text.
    texts = {file: rule_text(file) for file in {file for file, _ in work}}
    for file, ident in work:
        if ident not in _rules_of(file, texts[file]):
            raise RuleError(f"rule {ident!r} is no longer there", str(file), "check again when the file is written")
    done = 0
    while done < len(work):
        # In a process of its own even if it is one rule: the runtime may end it.
        try:
            with make_executor("processes", jobs) as executor:
                for found in executor.map(partial(_check_one, seed), [(*each, texts[each[0]]) for each in work[done:]]):
                    done += 1
                    yield found
        except WorkerLostError:
            # It is the first that has no result yet.
            file, ident = work[done]
            rule = _rules_of(file, texts[file])[ident]
            done += 1
            yield (
                file,
                Verdict(rule.id, rule.hash, "failed", "none", message="onnxruntime ends the process that checks it"),
            )


def _check_one(seed: int, item: tuple[Path, str, str]) -> tuple[Path, Verdict]:
    file, ident, text = item
    rule = _rules_of(file, text)[ident]
    try:
        return file, check_rule(rule, seed=seed)
    except Exception as error:  # a mistake of ours; the other rules are checked nevertheless
        details = traceback.format_exc()
        return file, Verdict(rule.id, rule.hash, "failed", "none", message=unexpected(error), details=details)


@lru_cache
def _rules_of(file: Path, text: str) -> dict[str, Rule]:
    return {rule.id: rule for rule in parse_file(text, str(file))[0]}


def write_evidence(path: Path, verdicts: Sequence[Verdict], known: Collection[str] | None = None) -> None:
    """Record verdicts in a lock file, whole or not at all; arguments as for :func:`evidence_text`."""
    text = evidence_text(path, verdicts, known)
    if text:
        write_text(path, text)


def evidence_text(path: Path, verdicts: Sequence[Verdict], known: Collection[str] | None = None) -> str:
    """A lock file with verdicts; empty where there is neither an entry nor a file. Rules that may not load lose their entry.

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
        if v.loads:
            held[v.rule] = _entry(v)
    rules = {name: held[name] for name in sorted(held) if known is None or name in known}
    if not rules and not path.exists():
        return ""
    return json.dumps({"schema": "graphopt.evidence/3", "rules": rules}, indent=1) + "\n"


def _entry(v: Verdict) -> dict[str, Any]:
    entry = {
        "hash": v.hash,
        "verdict": v.verdict,
        "method": v.method,
        "proved": v.proved,
        "attacked": v.attacked,
        "runs": v.runs,
        "family": v.family,
        "all_sizes": v.all_sizes,
        "false_accept": float(f"{v.false_accept:.1e}"),
        "worst": float(f"{v.worst:.1e}"),
        "seed": v.seed,
    }
    if v.error is not None:
        entry["error"] = float(f"{v.error:.1e}")
    return {**entry, "open": v.message} if v.message else entry
