"""``graphopt rules``: read and check the library of rewrite rules."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from graphopt.cli import options, paths
from graphopt.cli.screen import console, facts, one_line, table, write_json

if TYPE_CHECKING:
    from rich.table import Table

    from graphopt.rewrite.schema import Rule

app = typer.Typer(help="List, show and check rewrite rules.", no_args_is_help=True, rich_markup_mode=None)


@app.command("list")
def list_rules(
    rules: options.Rules = None,
    exclude: options.Exclude = None,
    provider: options.Provider = None,
    portable: options.Portable = None,
    json: options.Json = None,
) -> None:
    """List the rules that `graphopt optimize` uses with the same options."""
    from graphopt.config import load_settings

    settings = load_settings(
        {"rules": rules or None, "exclude": exclude or None, "provider": provider, "portable": portable}
    )

    from graphopt.rewrite.library import load_library

    library = load_library(settings.rules, settings.exclude, settings.provider, settings.portable)
    if json is not None:
        rows = [{"id": r.id, "family": r.family, "equal": _claim(r), "doc": r.doc} for r in library.rules]
        write_json({"schema": "graphopt.rules/1", "hash": library.hash, "rules": rows}, json)
    if json != "-":
        screen = console(stderr=False)
        screen.print(_by_family(library.rules, screen.width))


@app.command("show")
def show_rule(
    rule: Annotated[str, typer.Argument(metavar="RULE", help="The id of a rule.", show_default=False)],
    rules: options.Rules = None,
) -> None:
    """Show what one rule replaces by what, and under which conditions."""
    from graphopt.errors import UnknownNameError
    from graphopt.rewrite.library import load_library

    # A rule whose evidence is missing can't be used, but it can be looked at.
    known = load_library(tuple(rules or ()), evidence=False).by_id
    if rule not in known:
        raise UnknownNameError("rule", rule, known)
    chosen = known[rule]
    about = facts()
    about.add_row("rule", chosen.id)
    about.add_row("family", chosen.family)
    about.add_row("doc", chosen.doc)
    about.add_row("equal", _claim(chosen))
    if chosen.providers:
        about.add_row("providers", ", ".join(chosen.providers))
    about.add_row("file", chosen.where_at)
    screen = console(stderr=False)
    screen.print(about)
    screen.print()
    screen.print(chosen.source, soft_wrap=True)


@app.command("check")
def check_rules(
    files: Annotated[
        list[Path] | None,
        typer.Argument(metavar="FILE", help="Rule files or folders (default: graphopt's).", show_default=False),
    ] = None,
    rule: Annotated[
        list[str] | None, typer.Option("--rule", metavar="RULE", help="Only these rules.", show_default=False)
    ] = None,
    update: Annotated[bool, typer.Option("--update", help="Record the evidence, so that the rules load.")] = False,
    json: options.Json = None,
) -> None:
    """Check rules: their form, and that both sides of every example agree. Exits with 1 if one fails."""
    from graphopt.config import rules_dir
    from graphopt.equivalence.rules import check_rule, write_evidence
    from graphopt.errors import UnknownNameError
    from graphopt.rewrite.library import LOCK, lint, read_evidence, rule_files
    from graphopt.rewrite.schema import read_rules

    chosen = [path if path.is_dir() else paths.existing_file(path) for path in files or [rules_dir()]]
    screen = console()
    problems = [p for p in lint(chosen) if not p.rule or not rule or p.rule in rule]
    for problem in problems:
        screen.print(str(problem), soft_wrap=True)
    if problems:
        raise typer.Exit(1)
    loaded = {file: read_rules(file) for file in rule_files(chosen)}
    known = {r.id for rules in loaded.values() for r in rules}
    for name in rule or ():
        if name not in known:
            raise UnknownNameError("rule", name, known)
    verdicts = []
    for file, rules in loaded.items():
        found = [check_rule(r) for r in rules if not rule or r.id in rule]
        verdicts += found
        for verdict in found:
            if verdict.verdict == "failed":
                screen.print(f"{file}: {verdict.rule}: {verdict.message}", soft_wrap=True)
        if update:
            whole = (
                {r.id for f in loaded if f.parent == file.parent for r in loaded[f]} if file.parent in chosen else None
            )
            write_evidence(file.parent / LOCK, [v for v in found if v.verdict != "failed"], whole)
    if json is not None:
        rows = [
            {"id": v.rule, "hash": v.hash, "verdict": v.verdict, "cases": v.cases, "worst": v.worst} for v in verdicts
        ]
        write_json({"schema": "graphopt.check/1", "rules": rows}, json)
    failed = sum(v.verdict == "failed" for v in verdicts)
    missing = [] if update else [
        r.id for file, rules in loaded.items() for r in rules
        if (not rule or r.id in rule) and read_evidence(file.parent / LOCK).get(r.id, {}).get("hash") != r.hash
    ]  # fmt: skip
    screen.print(
        f"{len(verdicts) - failed} tested, {failed} failed"
        + (f", {len(missing)} without recorded evidence" if missing else "")
    )
    if missing:
        screen.print(
            f"record it with --update: {', '.join(missing[:5])}{' ...' if len(missing) > 5 else ''}", soft_wrap=True
        )
    if failed or missing:
        raise typer.Exit(1)


def _by_family(rules: Sequence[Rule], width: int) -> Table:
    """One line for each rule under the name of its family; what it does is cut to what fits into `width`."""
    result = table("rule", "equal", "what it does", whole=True)
    room = width - max((len(rule.id) for rule in rules), default=0) - len("  " + "approx" + 2 * "   ")
    for family in sorted({rule.family for rule in rules}):
        result.add_row(family, style="bold")
        for rule in rules:
            if rule.family == family:
                result.add_row(f"  {rule.id}", rule.claim, one_line(rule.doc, max(room, len("what it does"))))
    return result


def _claim(rule: Rule) -> str:
    return f"approx({rule.bound:g})" if rule.claim == "approx" else rule.claim
