"""``graphopt rules check``: prove rules, and record the evidence without which they do not load."""

from __future__ import annotations

import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from graphopt.cli import options, paths
from graphopt.cli.progress import StepProgress
from graphopt.cli.screen import console, one_line, plural, printable, write_json

_EVERY = 5.0
"""Seconds between lines of progress where there is no terminal."""

if TYPE_CHECKING:
    from graphopt.equivalence.evidence import Verdict


class _Lines:
    """Tells how far a long check is where there is no terminal to draw on."""

    def __init__(self, steps: int, *, shown: bool) -> None:
        self._steps, self._shown, self._done, self._last = steps, shown, 0, time.monotonic()

    def __call__(self, rule: str) -> None:
        """One more rule is done."""
        self._done += 1
        if self._shown and time.monotonic() - self._last >= _EVERY:
            self._last = time.monotonic()
            console().print(f"{self._done} of {self._steps} rules, the last {rule}", soft_wrap=True)


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
    changed: Annotated[bool, typer.Option("--changed", help="What is done without --all.", hidden=True)] = False,
    update: Annotated[bool, typer.Option("--update", help="Record the evidence, so that the rules load.")] = False,
    jobs: Annotated[int, typer.Option("--jobs", min=1, help="Processes to share the work among.")] = 2,
    json: options.Json = None,
) -> None:
    """Prove rules, or refute them with a counterexample. Exits with 1 if one fails or lacks recorded evidence."""
    from graphopt.config import rules_dir
    from graphopt.equivalence.evidence import VERDICTS, check_files, write_evidence
    from graphopt.errors import UnknownNameError, install
    from graphopt.rewrite.library import LOCK, lint, read_evidence, rule_files
    from graphopt.rewrite.library import VERDICTS as LOADING
    from graphopt.rewrite.schema import read_rules

    chosen = [path if path.is_dir() else paths.existing_file(path) for path in files or [rules_dir()]]
    screen = console()
    problems = [p for p in lint(chosen) if not p.rule or not rule or p.rule in rule]
    for problem in problems:
        screen.print(one_line(str(problem), 1000), soft_wrap=True)
    if problems:
        raise typer.Exit(1)
    loaded = {file: read_rules(file) for file in rule_files(chosen)}
    known = {r.id for rules in loaded.values() for r in rules}
    for name in rule or ():
        if name not in known:
            raise UnknownNameError("rule", name, known)
    locks = {file: read_evidence(file.parent / LOCK) for file in loaded}
    stale = {r.id for file, rules in loaded.items() for r in rules if locks[file].get(r.id, {}).get("hash") != r.hash}
    work = [(file, r.id) for file, rules in loaded.items() for r in rules
            if (r.id in rule if rule else everything or r.id in stale)]  # fmt: skip
    unchanged = 0 if rule or everything else sum(map(len, loaded.values())) - len(work)
    lines = _Lines(len(work), shown=not screen.is_terminal)

    verdicts: dict[Path, list[Verdict]] = {file: [] for file in loaded}
    with StepProgress(len(work)) as progress:
        for file, verdict in check_files(work, jobs):
            verdicts[file].append(verdict)
            progress(verdict.rule)
            lines(verdict.rule)
            if not verdict.loads:
                text = f"{file}: {verdict.rule}: {verdict.verdict}: {verdict.message}"
                screen.print(printable(text), soft_wrap=True)
    if update:
        for folder in {file.parent for file in loaded}:
            inside = [file for file in loaded if file.parent == folder]
            whole = {r.id for file in inside for r in loaded[file]} if folder in chosen else None
            write_evidence(folder / LOCK, [v for file in inside for v in verdicts[file]], whole)
    found = [v for file in loaded for v in verdicts[file]]
    if json is not None:
        rows = [
            {"id": v.rule, "hash": v.hash, "verdict": v.verdict, "method": v.method, "proved": v.proved,
             "attacked": v.attacked, "runs": v.runs, "family": v.family, "false_accept": v.false_accept,
             "worst": v.worst, "message": v.message}
            for v in found
        ]  # fmt: skip
        write_json({"schema": "graphopt.check/3", "rules": rows}, json)
    counts = Counter(v.verdict for v in found)
    shown = ", ".join(f"{counts[name]} {name}" for name in VERDICTS if counts[name] or name in LOADING)
    if any("needs z3" in v.message for v in found):
        screen.print(f"z3 is not installed, so some rules are only attacked: {install('prove')}", markup=False)
    missing = [] if update else sorted(stale & {ident for _, ident in work})
    unsaid = f"; {plural(unchanged, 'rule')} unchanged since checked (--all checks them again)" if unchanged else ""
    screen.print(shown + (f"; {len(missing)} without recorded evidence" if missing else "") + unsaid)
    if missing:
        screen.print(
            f"record it with --update: {', '.join(missing[:5])}{' ...' if len(missing) > 5 else ''}", soft_wrap=True
        )
    if missing or any(counts[name] for name in ("failed", "timeout", "unsupported")):
        raise typer.Exit(1)
