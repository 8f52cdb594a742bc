"""``graphopt rules``: read and check the library of rewrite rules, and see what it does on a model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from graphopt.cli import options, paths
from graphopt.cli.check import check_rules
from graphopt.cli.generate import generate_rules
from graphopt.cli.screen import breakable, console, each, facts, present, table
from graphopt.wording import change, milliseconds, one_line, percent, plural, printable

if TYPE_CHECKING:
    from rich.table import Table

    from graphopt.experiments.stats import RuleStats, Stats
    from graphopt.rewrite.schema import Rule

SEARCH = 20.0
"""Seconds that the greedy search of `graphopt rules stats` may take unless the user says otherwise."""
WIDEST = 140
"""Columns beyond which the two sides of a rule are drawn one above the other, however wide the screen."""
PROOF = (
    "verdict",
    "method",
    "open",
    "family",
    "proved",
    "attacked",
    "runs",
    "all_sizes",
    "worst",
    "error",
    "false_accept",
    "seed",
    "hash",
)
"""What is shown of a rule's recorded evidence, where it has it."""

Evidence = Mapping[str, Mapping[str, Any]]

app = typer.Typer(
    help="List, show, check and generate rewrite rules, and count what they do.",
    no_args_is_help=True,
    rich_markup_mode=None,
)
app.command("check")(check_rules)
app.command("generate", short_help="Find rules: enumerate graphs, pair, prove, prune.")(generate_rules)


@app.command("list", short_help="List the rules that graphopt uses.")
@options.with_settings("rules", "exclude", "provider", "portable", "max_error")
def list_rules(
    given: Any = None,
    json: options.Json = None,
) -> None:
    """List the rules that `graphopt optimize` uses with the same options, and how often they were applied in files it wrote."""
    from graphopt.config import load_settings

    settings = load_settings(given)
    paths.report_file(json, {}, paths.also_read(rules=settings.rules))

    from graphopt.cli.progress import Waiting
    from graphopt.errors import RuleError

    problems: list[RuleError] = []
    with Waiting("reading the rules"):
        from graphopt.cost.store import Store
        from graphopt.rewrite.library import load_library
        from graphopt.runtime.providers import full_name

        full_name(settings.provider)  # one that does not exist has no rules of its own
        s = settings  # read without the pipeline, which needs a runtime
        library = load_library(s.rules, s.exclude, s.provider, s.portable, max_error=s.max_error, problems=problems)
        evidence = _evidence(library.rules)
        with Store() as store:
            uses = store.uses()
    rows = [
        {
            "id": r.id,
            "family": r.family,
            "claim": _claim(r),
            "verdict": _verdict(r, evidence),
            "all_sizes": bool(evidence.get(r.id, {}).get("all_sizes")),
            "hash": r.hash,
            "used": uses.get(r.id, 0),
            "doc": r.doc,
        }
        for r in library.rules
    ]

    def show() -> None:
        screen = console(stderr=False)
        if library.rules:
            screen.print(_by_family(library.rules, evidence, uses, screen.width))
            screen.print(_shares(library.rules, evidence))

    def refuse() -> None:
        if problems:  # what loads was listed; `graphopt optimize` would refuse all of it
            raise RuleError.of(problems)

    each(lambda: present(show, {"schema": "graphopt.rules/2", "hash": library.hash, "rules": rows}, json), refuse)


@app.command("show", short_help="Show what a rule does, where, and its proof.")
def show_rule(
    rule: Annotated[
        str,
        typer.Argument(metavar="RULE", help="The id of a rule.", show_default=False, autocompletion=options.rule_ids),
    ],
    rules: options.Rules = None,
) -> None:
    """Show what a rule replaces by what, where, and how it was checked."""
    from graphopt.cli.progress import Waiting
    from graphopt.errors import RuleError, UnknownNameError

    problems: list[RuleError] = []
    with Waiting("reading the rules"):
        from graphopt.cli.drawing import draw_rule
        from graphopt.rewrite.library import load_library

        # A rule whose evidence is missing can't be used, but it can be looked at.
        known = load_library(tuple(rules or ()), evidence=False, problems=problems).by_id
    if rule not in known:
        wrong = [p for p in problems if p.rule in ("", rule)]
        if wrong:
            raise RuleError.of(wrong)
        raise UnknownNameError("rule", rule, known, "graphopt rules list")
    chosen = known[rule]
    about = facts()
    about.add_row("rule", breakable(chosen.id))
    about.add_row("family", chosen.family)
    about.add_row("doc", one_line(chosen.doc))
    about.add_row("claim", _claim(chosen))
    if chosen.providers:
        about.add_row("providers", ", ".join(chosen.providers))
    about.add_row("file", one_line(chosen.where_at))
    screen = console(stderr=False, least=40)  # there both sides are drawn, one below the other
    screen.print(about)
    screen.print()
    plain = not screen.encoding.lower().startswith("utf")
    for line in draw_rule(chosen, min(screen.width, WIDEST), ascii=plain):
        screen.print(printable(line), soft_wrap=True)
    screen.print()
    screen.print(_conditions(chosen))
    screen.print()
    screen.print(_proof(chosen, _evidence([chosen]).get(chosen.id)))


@app.command("stats")
@options.with_settings(
    "rules",
    "exclude",
    "provider",
    "provider_options",
    "custom_ops",
    "threads",
    "portable",
    "max_error",
    "dims",
    "input_shapes",
)
def rule_stats(
    model: options.Model,
    given: Any = None,
    budget: Annotated[
        float | None, options.option("--budget", metavar="SECONDS", help="Limit of the greedy search (default 20).")
    ] = None,
    measure: Annotated[
        bool | None,
        options.option("--measure/--no-measure", help="Measure new kernels rather than estimate them (default: yes)."),
    ] = None,
    everything: Annotated[bool, options.option("--all", help="Show the rules that match nowhere as well.")] = False,
    json: options.Json = None,
) -> None:
    """Count what each rule finds, does and saves on a model.

    Nodes it is tried on, matches found, matches its hints prefer, milliseconds of matching; then how often the greedy
    search applies it, and how many microseconds that is predicted to save.
    """
    from graphopt.config import load_settings

    paths.existing_file(model)
    settings = load_settings({**given, "budget": budget, "measure": measure})
    paths.report_file(json, {"the model": model}, paths.also_read(rules=settings.rules))

    from graphopt.cli.progress import Waiting

    with Waiting("counting what each rule does"):
        from graphopt.experiments.stats import model_stats
        from graphopt.pipeline.prepare import load_rules

        seconds = SEARCH if settings.budget is None else settings.budget
        found = model_stats(model, load_rules(settings), settings, seconds=seconds)
    present(lambda: _show_stats(found, everything=everything), _stats_document(model, found), json)


def _by_family(rules: Sequence[Rule], evidence: Evidence, uses: Mapping[str, int], width: int) -> Table:
    """One line for each rule under the name of its family; what it does is cut to what fits into `width`."""
    columns = {
        "rule": {rule.id: f"  {rule.id}" for rule in rules},
        "claim": {rule.id: rule.claim for rule in rules},
        "verdict": {rule.id: _verdict(rule, evidence) or "-" for rule in rules},
        "used": {rule.id: str(uses.get(rule.id, "")) for rule in rules},
    }
    widths = {name: max(map(len, (name, *texts.values()))) + len("   ") for name, texts in columns.items()}
    least = 10  # characters of a law; with fewer it says nothing
    if width - sum(widths.values()) < least:
        del columns["used"], widths["used"]  # a narrow screen
    room = max(width - sum(widths.values()), least)
    result = table(*columns, "law", whole=True)
    if widths["rule"] > width // 2:  # the others would have no room beside such ids
        result.columns[0].no_wrap = False
        result.columns[0].max_width = width - room - sum(widths.values()) + widths["rule"]
    for family in sorted({rule.family for rule in rules}):
        result.add_row(family, style="bold")
        for rule in rules:
            if rule.family == family:
                result.add_row(*(texts[rule.id] for texts in columns.values()), one_line(rule.doc, room))
    return result


def _shares(rules: Sequence[Rule], evidence: Evidence) -> str:
    """How many of the rules are proved, how many attacked without success, and how many are proved for all sizes."""
    verdicts = [_verdict(rule, evidence) for rule in rules]
    proved = verdicts.count("proved")
    general = sum(bool(evidence.get(rule.id, {}).get("all_sizes")) for rule in rules)
    return (
        f"{plural(len(rules), 'rule')}: {proved} proved ({percent(proved / len(rules))}), {verdicts.count('attacked')} "
        f"attacked; {general} ({percent(general / len(rules))}) for all sizes"
    )


def _evidence(rules: Sequence[Rule]) -> Evidence:
    """What the files beside the rules record, by rule id."""
    from graphopt.rewrite.library import LOCK, file_of, read_evidence

    folders = {rule.id: file_of(rule).parent for rule in rules}
    locks = {folder: read_evidence(folder / LOCK) for folder in set(folders.values())}
    return {id: locks[folder][id] for id, folder in folders.items() if id in locks[folder]}


def _verdict(rule: Rule, evidence: Evidence) -> str | None:
    """The recorded verdict on a rule's present text."""
    entry = evidence.get(rule.id)
    return None if entry is None or entry.get("hash") != rule.hash else str(entry.get("verdict"))


def _conditions(rule: Rule) -> Table:
    """Where a rule is true, where it is likely to pay, what it computes first, and who uses it if not every search."""
    result = facts()
    for name, texts in {
        "where": [e.text for e in rule.where] or ["everywhere"],
        "prefer": [e.text for e in rule.prefer] or ["where a saving is predicted"],
        "let": [f"{name} = {e.text}" for name, e in rule.let],
    }.items():
        for number, text in enumerate(texts):
            result.add_row("" if number else name, one_line(text))
    if rule.always:
        result.add_row("used", "in the normal form, without a price")
    elif rule.last:
        result.add_row("used", "in the form in which a model is written")
    elif rule.hinted:
        result.add_row("used", "by a search only where 'prefer' holds")
    return result


def _proof(rule: Rule, entry: Mapping[str, Any] | None) -> Table:
    """What is recorded of how a rule was checked."""
    from graphopt.rewrite.library import file_of

    result = facts()
    if entry is None:
        result.add_row("proof", "none recorded, so the rule does not load")
        result.add_row("", f"record it: graphopt rules check {file_of(rule)} --update")
        return result
    if entry.get("hash") != rule.hash:
        result.add_row("proof", "of another text than the present one, so the rule does not load")
        result.add_row("", f"renew it: graphopt rules check {file_of(rule)} --update")
    for key in PROOF:
        if entry.get(key) is not None:
            result.add_row(key.replace("_", " "), one_line(_plain(entry[key])))
    return result


def _plain(value: Any) -> str:
    """A value of the evidence file as people read it; what it holds depends on how a rule was checked."""
    if isinstance(value, Mapping):
        return ", ".join(f"{key} {_plain(item)}" for key, item in value.items())
    if isinstance(value, list):
        return ", ".join(map(_plain, value)) or "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:g}" if isinstance(value, float) else str(value)


def _stats_document(model: Path, found: Stats) -> dict[str, Any]:
    return {
        "schema": "graphopt.rule-stats/1",
        "model": str(model),
        "nodes": found.nodes,
        "predicted_ms": {"before": found.before, "after": found.after},
        "estimated_kernels": found.estimated,
        "stop_reason": found.outcome.stop_reason,
        "rules": [
            {
                "id": entry.tally.rule.id,
                "family": entry.tally.rule.family,
                "tries": entry.tally.tries,
                "hits": entry.tally.hits,
                "preferred": entry.tally.preferred,
                "match_ms": entry.tally.seconds * 1e3,
                "applied": entry.applied,
                "gain_us": entry.gain * 1e3,
            }
            for entry in found.rules
        ],
    }


def _show_stats(found: Stats, *, everything: bool) -> None:
    """Print what the rules did: those that were applied first, then those that match most often."""
    # Short enough that most ids stay in one piece on 80 columns.
    result = table("rule", "tries", "hits", "preferred", "ms", "applied", "gain us", numbers=6)

    def place(entry: RuleStats) -> tuple[bool, float, int, int, str]:
        return not entry.applied, -entry.gain, -entry.tally.hits, -entry.tally.tries, entry.tally.rule.id

    for entry in sorted(found.rules, key=place):
        if everything or entry.applied or entry.tally.hits:
            result.add_row(breakable(entry.tally.rule.id), *_numbers([entry]))
    shown = result.row_count
    result.add_section()
    result.add_row(f"all {plural(len(found.rules), 'rule')}", *_numbers(found.rules))
    screen = console(stderr=False)
    screen.print(result)
    screen.print()
    summary = facts()
    summary.add_row("nodes", str(found.nodes))
    summary.add_row(
        "predicted",
        f"{milliseconds(found.before)} before, {milliseconds(found.after)} after the greedy search "
        f"({change(found.before, found.after)})",
    )
    if found.estimated:
        summary.add_row("", f"the prices of {found.estimated} kernels are estimates")
    summary.add_row("search", f"ended: {found.outcome.stop_reason}")
    if shown < len(found.rules):
        summary.add_row("not shown", f"{plural(len(found.rules) - shown, 'rule')} without a match (--all shows them)")
    screen.print(summary)


def _numbers(entries: Sequence[RuleStats]) -> tuple[str, ...]:
    """The numbers of one rule, or their sums over several."""
    tallies = [entry.tally for entry in entries]
    applied = sum(entry.applied for entry in entries)
    return (
        str(sum(t.tries for t in tallies)),
        str(sum(t.hits for t in tallies)),
        str(sum(t.preferred for t in tallies)),
        f"{sum(t.seconds for t in tallies) * 1e3:.2f}",
        str(applied),
        f"{sum(entry.gain for entry in entries) * 1e3:z.1f}" if applied else "-",
    )


def _claim(rule: Rule) -> str:
    return f"approx({rule.bound:g})" if rule.claim == "approx" else rule.claim
