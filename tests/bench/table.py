"""A table of a benchmark that takes a while: each row is shown as soon as it is known."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path


def show(head: Sequence[str], rows: Iterable[Sequence[str]], file: Path | None = None) -> None:
    """Print a Markdown table row by row, and write it when it is whole."""
    lines = [f"| {' | '.join(head)} |", f"|{'---|' * len(head)}"]
    print("\n".join(lines), flush=True)
    for row in rows:
        lines.append(f"| {' | '.join(row)} |")
        print(lines[-1], flush=True)
    if file:
        file.write_text("\n".join(lines) + "\n", encoding="utf-8")
