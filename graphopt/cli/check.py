"""``graphopt rules check``: prove rules, and record the evidence without which they do not load."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from graphopt.cli import options, paths
from graphopt.cli.progress import StepProgress, Waiting
from graphopt.cli.screen import console, write_json
from graphopt.kinds import integer
from graphopt.wording import plural, printable

_EVERY = 5.0
"""Seconds between lines of progress where there is no terminal."""

if TYPE_CHECKING:
    from rich.console import Console

    from graphopt.prover.evidence import Verdict
    from graphopt.rewrite.library import Mistake
    from graphopt.rewrite.schema import Rule


def check_rules(
    files: Annotated[
        list[Path] | None,
        typer.Argument(metavar="FILE", help="Rule files or folders (default: graphopt's).", show_default=False),
    ] = None,
    rule: Annotated[
        list[str] | None,
        typer.Option(
            "--rule",
            metavar="RULE",
            help="Only these rules, checked or not.",
            show_default=False,
            autocompletion=options.rule_ids,
        ),
    ] = None,
    everything: Annotated[
        bool, typer.Option("--all", help="Also rules that have evidence for their present text (default: only others).")
    ] = False,
    update: Annotated[bool, typer.Option("--update", help="Record the evidence, so that the rules load.")] = False,
    jobs: Annotated[
        int,
        options.option("--jobs", metavar="N", kind=integer(1), help="Processes to share the work among (default 2)."),
    ] = 2,
    seed: Annotated[
        int,
        options.option(
            "--seed",
            metavar="N",
            kind=integer(0),
            help="Of the instances and contents: another one asks anew (default 0).",
        ),
    ] = 0,
    verbose: Annotated[
        bool, options.option("--verbose", "-v", help="Show the tracebacks of unexpected errors.")
    ] = False,
    json: options.Json = None,
) -> None:
    """Prove rules, or refute them with a counterexample. Exits with 1 if one fails or lacks recorded evidence."""
    from graphopt.config import rules_dir
    from graphopt.errors import UnknownNameError

    chosen = [path if path.is_dir() else paths.existing_file(path) for path in files or [rules_dir()]]
    paths.report_file(json, {}, paths.also_read(rules=chosen))
    screen = console()
    with Waiting("reading the rules"):
        from graphopt.prover.evidence import check_files, write_evidence
        from graphopt.rewrite.library import LOCK, lint, read_evidence, rule_files
        from graphopt.rewrite.schema import read_file

        problems = lint(chosen)
        loaded = {file: read_file(file)[0] for file in rule_files(chosen)}
    known = {r.id for rules in loaded.values() for r in rules}
    for name in rule or ():
        if name not in known | {p.rule for p in problems}:
            _tell_unread(screen, problems)
            raise UnknownNameError("rule", name, known)
    unread = [p for p in problems if p.rule not in known and (not p.rule or not rule or p.rule in rule)]
    faults: dict[str, list[Mistake]] = {}
    for problem in problems:
        if problem.rule in known and (not rule or problem.rule in rule):
            faults.setdefault(problem.rule, []).append(problem)
    for problem in (*unread, *(p for many in faults.values() for p in many)):
        _tell(screen, str(problem), problem.details if verbose else "")
    locks = {file: read_evidence(file.parent / LOCK) for file in loaded}
    stale = {r.id for file, rules in loaded.items() for r in rules if locks[file].get(r.id, {}).get("hash") != r.hash}
    work = [
        (file, r.id)
        for file, rules in loaded.items()
        for r in rules
        if r.id not in faults and (r.id in rule if rule else everything or r.id in stale)
    ]
    good = sum(r.id not in faults for rules in loaded.values() for r in rules)
    unchanged = 0 if rule or everything else good - len(work)

    verdicts = {file: [_faulty(r, faults[r.id]) for r in rules if r.id in faults] for file, rules in loaded.items()}
    with StepProgress(len(work), what="rules", every=_EVERY) as progress:
        for file, verdict in check_files(work, jobs, seed):
            verdicts[file].append(verdict)
            progress(verdict.rule)
            if not verdict.loads:
                text = f"{file}: {verdict.rule}: {verdict.verdict}: {verdict.message}"
                _tell(screen, text, verdict.details if verbose else "")
    if update:
        for folder in {file.parent for file in loaded}:
            inside = [file for file in loaded if file.parent == folder]
            # What a file that can't be read whole holds is not known, so nothing is dropped then.
            unknown = any(Path(p.where.rsplit(":", 2)[0]) in inside for p in problems if p.rule not in known)
            whole = {r.id for file in inside for r in loaded[file]} if folder in chosen and not unknown else None
            if whole is not None:  # nor is what has come meanwhile: of a rule that another check has recorded
                whole |= set(read_evidence(folder / LOCK)) - set(locks[inside[0]])
            write_evidence(folder / LOCK, [v for file in inside for v in verdicts[file]], whole)
    found = [v for file in loaded for v in verdicts[file]]
    missing = [] if update else sorted(v.rule for v in found if v.loads and v.rule in stale)
    _sum_up(screen, found, missing, len(unread), unchanged)
    if json is not None:
        write_json(_document(found, unread), json)
    if missing or unread or not all(v.loads for v in found):
        raise typer.Exit(1)


def _tell_unread(screen: Console, problems: Iterable[Mistake]) -> None:
    """What is wrong with files as a whole: a rule that was not found may be in one."""
    for problem in problems:
        if not problem.rule:
            _tell(screen, str(problem), "")


def _tell(screen: Console, text: str, details: str) -> None:
    screen.print(printable(text + (f"\n{details.rstrip()}" if details else "")), soft_wrap=True, markup=False)


def _faulty(rule: Rule, faults: Sequence[Mistake]) -> Verdict:
    """The verdict on a rule that the linter refused; nothing else is tried on it."""
    from graphopt.prover.evidence import Verdict

    return Verdict(rule.id, rule.hash, "failed", "lint", message="; ".join(p.message for p in faults))


def _document(found: Sequence[Verdict], unread: Sequence[Mistake]) -> dict[str, Any]:
    rows = [
        {
            "id": v.rule,
            "hash": v.hash,
            "verdict": v.verdict,
            "method": v.method,
            "proved": v.proved,
            "attacked": v.attacked,
            "runs": v.runs,
            "family": v.family,
            "all_sizes": v.all_sizes,
            "false_accept": v.false_accept,
            "worst": v.worst,
            "error": v.error,
            "message": v.message,
        }
        for v in found
    ]
    wrong = [{"id": p.rule, "where": p.where, "message": p.message} for p in unread]
    return {"schema": "graphopt.check/3", "rules": rows, "unread": wrong}


def _sum_up(screen: Console, found: Sequence[Verdict], missing: Sequence[str], unread: int, unchanged: int) -> None:
    """The last lines: how many rules got which verdict, and what is left to do."""
    from graphopt.errors import install
    from graphopt.prover.evidence import VERDICTS
    from graphopt.rewrite.library import VERDICTS as LOADING

    counts = Counter(v.verdict for v in found)
    shown = ", ".join(f"{counts[name]} {name}" for name in VERDICTS if counts[name] or name in LOADING)
    if any("needs z3" in v.message for v in found):
        screen.print(f"z3 is not installed, so some rules are only attacked: {install('prove')}", markup=False)
    if unread:
        shown += f"; {unread} {'mistake' if unread == 1 else 'mistakes'} in what could not be read"
    unsaid = f"; {plural(unchanged, 'rule')} unchanged since checked (--all checks them again)" if unchanged else ""
    screen.print(shown + (f"; {len(missing)} without recorded evidence" if missing else "") + unsaid)
    if missing:
        screen.print(
            f"record it with --update: {', '.join(missing[:5])}{' ...' if len(missing) > 5 else ''}", soft_wrap=True
        )
