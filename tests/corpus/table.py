"""The outcomes of a corpus as tables."""

from __future__ import annotations

from collections.abc import Sequence

from tests.corpus.trial import BAD, Outcome

_COLUMNS = ("models", "same", "refused", "changed", "died", "error", "unrunnable", "growth", "seconds", "peak, MB")


def _rows(outcomes: Sequence[Outcome]) -> list[list[str]]:
    rows: list[list[str]] = []
    producers = sorted({o.producer for o in outcomes})
    for producer in (*producers, "all"):
        these = [o for o in outcomes if producer in (o.producer, "all") and o.status != "unbuilt"]
        if these:
            counts = [sum(o.status == status for o in these) for status in _COLUMNS[1:7]]
            growth, seconds, peak = (
                max(o.growth for o in these),
                max(o.seconds for o in these),
                max(o.peak for o in these),
            )
            rows.append([producer, *map(str, [len(these), *counts]), f"{growth:.2f}", f"{seconds:.0f}", f"{peak / 1e6:.0f}"])  # fmt: skip
    return rows


def table(outcomes: Sequence[Outcome]) -> str:
    """For people: a line per producer, then whatever was not as it should be."""
    lines = [" ".join(f"{cell:>10}" for cell in ["", *_COLUMNS])]
    lines += [" ".join(f"{cell:>10}" for cell in row) for row in _rows(outcomes)]
    for status in ("refused", *BAD):
        lines += [f"{status}: {o.producer}/{o.name}: {o.note}" for o in outcomes if o.status == status]
    lines += [f"taken back: {o.producer}/{o.name}: {'; '.join(o.taken_back)}" for o in outcomes if o.taken_back]
    return "\n".join(lines)


def markdown(outcomes: Sequence[Outcome]) -> str:
    """The lines per producer as Markdown."""
    rows = [["producer", *_COLUMNS], ["---", *["---:"] * len(_COLUMNS)], *_rows(outcomes)]
    return "".join(f"| {' | '.join(row)} |\n" for row in rows)
