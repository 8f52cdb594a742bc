"""The page of an evaluation of agents: the tables and curves of the other files, in the form of every report."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from graphopt.report.evaluation import about, budget_words, reached, savings, summary, summary_words, timings
from graphopt.report.plots import draw_curves
from graphopt.report.view import Page, Subject, Table
from graphopt.rl.evaluation.scores import STAGES, Evaluation


def write_evaluation_page(found: Evaluation, path: Path) -> None:
    """Write an evaluation as a page.

    Raises:
        GraphoptError: The file can't be written.
    """
    from graphopt.report.render import write_page  # brings the template engine, which only a page needs

    write_page(evaluation_page(found), path)


def evaluation_page(found: Evaluation) -> Page:
    """An evaluation as a page: what came of all budgets, then each stage."""
    tables = [_table("Summary", *summary(found), note=summary_words(found))]
    for section in found.sections():
        title = f"Stage {section.stage}, {STAGES[section.stage]}: {section.algorithm}, {budget_words(found, section)}"
        tables.append(_table(title, *savings(section), note="Predicted saving in per cent."))
    if found.timings:
        note, heads, rows = timings(found)
        tables.append(_table("Measured on the unseen families", heads, rows, note=note))
    if found.reaches:
        note, heads, rows = reached(found)
        tables.append(_table("Sample efficiency", heads, rows, note=note))
    first, *more = about(found)
    notes = tuple(line.removeprefix("- ") for text in more for line in text.splitlines())
    drawing = draw_curves(found.curves) if found.curves else ""
    name = f"Agents for task {found.task}"
    return Page(name, (Subject(name, first.replace("`", ""), notes=notes, tables=tuple(tables), drawing=drawing),))


def _table(title: str, heads: Sequence[str], rows: Sequence[Sequence[str]], note: str = "") -> Table:
    return Table(
        title, tuple(heads), tuple(tuple(cell.replace("**", "") for cell in row) for row in rows), note.replace("`", "")
    )
