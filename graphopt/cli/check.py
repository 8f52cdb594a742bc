"""``graphopt rules check``: prove rules, and record the evidence without which they do not load."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from graphopt.cli import options, paths
from graphopt.cli.progress import StepProgress
from graphopt.cli.screen import console, write_json

if TYPE_CHECKING:
    from rich.console import Console

    from graphopt.equivalence.evidence import Verdict
    from graphopt.rewrite.library import Problem
    from graphopt.rewrite.schema import Rule


def check_rules(
    files: Annotated[
        list[Path] | None,
        typer.Argument(metavar="FILE", help="Rule files or folders (default: graphopt's).", show_default=False),
    ] = None,
    rule: Annotated[
        list[str] | None, typer.Option("--rule", metavar="RULE", help="Only these rules.", show_default=False)
    ] = None,
    changed: Annotated[bool, typer.Option("--changed", help="Only rules whose text has no evidence yet.")] = False,
    update: Annotated[bool, typer.Option("--update", help="Record the evidence, so that the rules load.")] = False,
    jobs: Annotated[int, typer.Option("--jobs", min=1, help="Processes to share the work among.")] = 2,
    verbose: Annotated[
        bool, options.option("--verbose", "-v", help="Show the tracebacks of unexpected errors.")
    ] = False,
    json: options.Json = None,
) -> None:
    """Prove rules, or refute them with a counterexample. Exits with 1 if one fails or lacks recorded evidence."""
    from graphopt.config import rules_dir
    from graphopt.equivalence.evidence import check_files, write_evidence
    from graphopt.errors import UnknownNameError
    from graphopt.rewrite.library import LOCK, lint, read_evidence, rule_files
    from graphopt.rewrite.schema import read_file

    chosen = [path if path.is_dir() else paths.existing_file(path) for path in files or [rules_dir()]]
    screen = console()
    problems = lint(chosen)
    loaded = {file: read_file(file)[0] for file in rule_files(chosen)}
    known = {r.id for rules in loaded.values() for r in rules}
    for name in rule or ():
        if name not in known | {p.rule for p in problems}:
            raise UnknownNameError("rule", name, known)
    unread = [p for p in problems if p.rule not in known and (not p.rule or not rule or p.rule in rule)]
    faults: dict[str, list[Problem]] = {}
    for problem in problems:
        if problem.rule in known and (not rule or problem.rule in rule):
            faults.setdefault(problem.rule, []).append(problem)
    for problem in (*unread, *(p for many in faults.values() for p in many)):
        _tell(screen, str(problem), problem.details if verbose else "")
    locks = {file: read_evidence(file.parent / LOCK) for file in loaded}
    stale = {r.id for file, rules in loaded.items() for r in rules if locks[file].get(r.id, {}).get("hash") != r.hash}
    work = [(file, r.id) for file, rules in loaded.items() for r in rules
            if r.id not in faults and (not rule or r.id in rule) and (not changed or r.id in stale)]  # fmt: skip

    verdicts = {file: [_faulty(r, faults[r.id]) for r in rules if r.id in faults] for file, rules in loaded.items()}
    with StepProgress(len(work)) as progress:
        for file, verdict in check_files(work, jobs):
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
            write_evidence(folder / LOCK, [v for file in inside for v in verdicts[file]], whole)
    found = [v for file in loaded for v in verdicts[file]]
    if json is not None:
        write_json(_document(found, unread), json)
    missing = [] if update else sorted(stale & {ident for _, ident in work})
    _sum_up(screen, found, missing, len(unread))
    if missing or unread or not all(v.loads for v in found):
        raise typer.Exit(1)


def _tell(screen: Console, text: str, details: str) -> None:
    screen.print(text + (f"\n{details.rstrip()}" if details else ""), soft_wrap=True, markup=False)


def _faulty(rule: Rule, faults: Sequence[Problem]) -> Verdict:
    """The verdict on a rule that the linter refused; nothing else is tried on it."""
    from graphopt.equivalence.evidence import Verdict

    return Verdict(rule.id, rule.hash, "failed", "lint", message="; ".join(p.message for p in faults))


def _document(found: Sequence[Verdict], unread: Sequence[Problem]) -> dict[str, Any]:
    rows = [
        {"id": v.rule, "hash": v.hash, "verdict": v.verdict, "method": v.method, "proved": v.proved, "attacked": v.attacked, "runs": v.runs, "family": v.family,
         "false_accept": v.false_accept, "worst": v.worst, "message": v.message}
        for v in found
    ]  # fmt: skip
    wrong = [{"id": p.rule, "where": p.where, "message": p.message} for p in unread]
    return {"schema": "graphopt.check/3", "rules": rows, "unread": wrong}


def _sum_up(screen: Console, found: Sequence[Verdict], missing: Sequence[str], unread: int) -> None:
    """The last lines: how many rules got which verdict, and what is left to do."""
    from graphopt.equivalence.evidence import VERDICTS
    from graphopt.rewrite.library import VERDICTS as LOADING

    counts = Counter(v.verdict for v in found)
    shown = ", ".join(f"{counts[name]} {name}" for name in VERDICTS if counts[name] or name in LOADING)
    if any("graphopt[prove]" in v.message for v in found):
        screen.print(
            "z3 is not installed, so some rules are only attacked: pip install 'graphopt[prove]'", markup=False
        )
    if unread:
        shown += f"; {unread} {'mistake' if unread == 1 else 'mistakes'} in what could not be read"
    screen.print(shown + (f"; {len(missing)} without recorded evidence" if missing else ""))
    if missing:
        screen.print(
            f"record it with --update: {', '.join(missing[:5])}{' ...' if len(missing) > 5 else ''}", soft_wrap=True
        )
