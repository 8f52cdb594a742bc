"""How the results of a benchmark look on a screen: a table for each case, as wide as there is room, and one over all."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from statistics import geometric_mean
from typing import TYPE_CHECKING

from graphopt.benchmark.results import Bench, Case, Tuning, Variant
from graphopt.cli.screen import facts, table
from graphopt.runtime.timing import Ratio
from graphopt.wording import measured_at, milliseconds, one_line, placed, seconds, size, threads, timing

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

_SIGNS = {"faster": "+", "slower": "-", "equal": "=", "unclear": "?"}
_STYLES = {"faster": "green", "slower": "red"}
_GAP = 3  # what rich puts between two columns

Cell = Callable[[Variant], str]

# Head, cell, and which columns go first where there is no room for all (0: always there).
_COLUMNS: tuple[tuple[str, Cell, int], ...] = (
    ("variant", lambda v: one_line(v.name, 40), 0),
    ("speed", lambda v: "1" if v.ratio is None and v.status == "measured" else _number(v.ratio), 0),
    ("95 % interval", lambda v: _interval(v.ratio), 0),
    ("verdict", lambda v: v.ratio.verdict if v.ratio else "baseline" if v.status == "measured" else v.status, 0),
    ("P50", lambda v: milliseconds(v.latency.p50_ms) if v.latency else "", 0),
    ("P90", lambda v: milliseconds(v.latency.p90_ms) if v.latency else "", 5),
    ("P95", lambda v: milliseconds(v.latency.p95_ms) if v.latency else "", 6),
    ("P99", lambda v: milliseconds(v.latency.p99_ms) if v.latency else "", 1),
    ("opening", lambda v: milliseconds(v.open_ms) if v.open_ms is not None else "", 4),
    ("file", lambda v: size(v.size) if v.size is not None else "", 3),
    ("memory", lambda v: size(v.peak) if v.peak is not None else "", 2),
    ("nodes", lambda v: "" if v.nodes is None else str(v.nodes), 7),
    ("made in", lambda v: seconds(v.optimise_s) if v.optimise_s is not None else "", 8),
    ("error", lambda v: f"{v.check.max_rel:.0e}" if v.check and v.check.max_rel else "", 9),
)


def show_case(case: Case, screen: Console, precision: float) -> None:
    """Print a case: how it was measured, its table, what to know about it, and settings of the session if there are any."""
    screen.print()
    if case.baseline.status == "failed":
        screen.print(
            f"{one_line(_label(case))}: failed: {one_line(case.baseline.message)}", style="red", soft_wrap=True
        )
        return
    screen.print(
        f"{one_line(_label(case))}: {case.sessions} sessions, {case.rounds} rounds in {seconds(case.measured_s)}",
        style="bold",
    )
    shown, left_out = _heads(case, screen.width)
    screen.print(_table(case, shown))
    notes = _notes(case, precision)
    if left_out:
        notes.append(("not shown", f"{', '.join(left_out)}: a wider screen shows them, as does --csv -"))
    if notes:
        screen.print()
        told = facts()
        for name, text in notes:
            told.add_row(name, one_line(text))
        screen.print(told)
    if case.tuning is not None:
        _show_tuning(case.tuning, screen)


def show_summary(bench: Bench, screen: Console) -> None:
    """Print one table over all cases: a row for each, a column for each variant, and the geometric means."""
    names = list(dict.fromkeys(v.name for case in bench.cases for v in case.variants if v.kind != "level"))
    alike = len({(case.provider, case.threads) for case in bench.cases}) == 1
    result = table("model", "best level", *names, numbers=1 + len(names))
    ratios: dict[str, list[float]] = {name: [] for name in names}
    for case in bench.cases:
        found = {v.name: v for v in case.variants}
        best = next((v.ratio for v in case.of_kind("level") if v.level == case.best_level), None)
        all_levels = "failed" if case.baseline.status == "failed" else "all"
        cells = [all_levels if best is None else f"{case.best_level} {_signed(best)}"]
        for name in names:
            ratio = found[name].ratio if name in found else None
            cells.append(_signed(ratio) if ratio else found[name].status if name in found else "")
            if ratio is not None:
                ratios[name].append(ratio.value)
        result.add_row(one_line(case.model if alike else _label(case)), *cells)
    if alike:  # a mean over providers or numbers of threads would say nothing
        means = [f"{geometric_mean(each):.3f}  " if each else "" for each in ratios.values()]
        result.add_section()
        result.add_row("geometric mean", "", *means)
    screen.print()
    screen.print("Speed over the original under ORT_ENABLE_ALL", style="bold")
    screen.print(result)
    screen.print("+ faster, - slower, = equal, ? unclear", style="dim")


def _heads(case: Case, width: int) -> tuple[list[str], list[str]]:
    """The columns that fit, the most important first, and those that say something and don't."""
    cells = {head: [cell(v) for v in case.variants] for head, cell, _ in _COLUMNS}
    # Of names in the first column there must be something left in any case.
    room = width - sum(_width(head, cells[head]) + _GAP for head, _, rank in _COLUMNS if rank == 0)
    shown = {head for head, _, rank in _COLUMNS if rank == 0}
    for head, _, rank in sorted(_COLUMNS, key=lambda column: column[2]):
        needed = _width(head, cells[head]) + _GAP
        if rank and any(cells[head]) and needed <= room:
            room -= needed
            shown.add(head)
    return (
        [head for head in cells if head in shown],
        [head for head, texts in cells.items() if head not in shown and any(texts)],
    )


def _table(case: Case, heads: Sequence[str]) -> Table:
    """The variants, with some columns."""
    cells = {head: [cell(v) for v in case.variants] for head, cell, _ in _COLUMNS}
    result = table(*heads)
    for column, head in zip(result.columns, heads, strict=True):
        column.no_wrap = head != "variant"
        column.justify = "left" if head in ("variant", "verdict") else "right"
    for index, variant in enumerate(case.variants):
        style = _STYLES.get(variant.ratio.verdict) if variant.ratio else None
        result.add_row(*(cells[head][index] for head in heads), style=style)
    return result


def _notes(case: Case, precision: float) -> list[tuple[str, str]]:
    """What a reader should know besides the numbers."""
    notes = []
    sizes = measured_at({"sizes": case.sizes, "sizes_assumed": case.assumed}, "--dim")
    if sizes:
        notes.append(("measured", f"with {sizes}"))
    where = case.baseline.placed
    if where is not None:
        ours = [v for v in case.of_kind("graphopt") if v.placed is not None and v.placed.nodes != where.nodes]
        notes.append(("placement", placed(where.nodes, where.elsewhere)))
        notes += [("placement", f"{v.name}: {placed(v.placed.nodes, v.placed.elsewhere)}") for v in ours if v.placed]
        notes.append(("timing", timing({"device": where.device, "copies": where.copies})))
    if case.best_level != "all":
        best = next(v for v in case.of_kind("level") if v.level == case.best_level)
        over = [
            f"{v.name} {v.over_best.value:.3f} ({_interval(v.over_best)})"
            for v in case.of_kind("graphopt")
            if v.over_best is not None
        ]
        text = f"level {best.level} beats all on this model ({_number(best.ratio)})"
        notes.append(("baseline", text + (f"; over it: {', '.join(over)}" if over else "")))
    for v in case.variants:
        if v.status != "measured":
            notes.append((v.name, f"{v.status}: {v.message}" if v.message else v.status))
        elif v.search is not None and v.search.kept_original:
            notes.append((v.name, "found nothing that is faster with certainty: this is the input, unchanged"))
        elif v.message:
            notes.append((v.name, v.message))
    if case.noisy:
        notes.append(
            (
                "noisy",
                f"not within {100 * precision:g} % or not told from 1, with more time neither: {', '.join(case.noisy)}",
            )
        )
    return notes


def _show_tuning(tuning: Tuning, screen: Console) -> None:
    """Print the settings that were tried, and those worth using as Python and as JSON."""
    result = table(f"setting, on {tuning.variant}", "speed", "95 % interval", "verdict", numbers=0)
    for trial in tuning.tried:
        verdict = trial.ratio.verdict + (f", {trial.message}" if trial.message else "")
        style = _STYLES.get(trial.ratio.verdict)
        result.add_row(trial.name, _number(trial.ratio), _interval(trial.ratio), one_line(verdict, 60), style=style)
    screen.print()
    screen.print(result)
    screen.print()
    if not tuning.advised or tuning.ratio is None:
        screen.print("no setting of the session is faster with certainty: leave them as they are")
        return
    screen.print(
        f"worth using: {', '.join(tuning.advised)}: {_number(tuning.ratio)} ({_interval(tuning.ratio)})", style="bold"
    )
    screen.print()
    screen.print(tuning.python, soft_wrap=True)
    screen.print(json.dumps(tuning.options), soft_wrap=True)


def _width(head: str, cells: Sequence[str]) -> int:
    return max(len(head), *map(len, cells))


def _label(case: Case) -> str:
    return f"{case.model} ({case.provider}, {threads(case.threads, all_cores=case.all_cores)})"


def _number(ratio: Ratio | None) -> str:
    return "" if ratio is None else f"{ratio.value:.3f}"


def _interval(ratio: Ratio | None) -> str:
    return "" if ratio is None else f"{ratio.low:.3f} - {ratio.high:.3f}"


def _signed(ratio: Ratio) -> str:
    return f"{ratio.value:.3f} {_SIGNS[ratio.verdict]}"
