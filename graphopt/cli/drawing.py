"""A rule's two sides as small dataflow graphs in text.

Each line of a side is a row, makers before readers. On the left of the rows run rails, one from each row to the rows
that read what it makes::

    ╭─┬─○ m = MatMul(x, a)        a rail starts (╭ ┬)
    ├─│─○ n = Relu(m)             is read and goes on (├ ┼), or passes by (│)
    ╰─┴─● y = Add(m, n)           is read for the last time (╰ ┴)

A filled circle makes a value that the rule redefines. Operands from outside are named in the text; those that several
rows read have a row and a rail of their own, for what is shared is often the point of a rule.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from graphopt.wording import one_line

if TYPE_CHECKING:
    from graphopt.rewrite.pattern import Line
    from graphopt.rewrite.schema import Rule

ARROW = "=>"
_GAP = "   "
_ASCII = str.maketrans("╭╰├┬┴┼│─○●", ",`++++|-o*")


@dataclass(eq=False)
class _Row:
    text: str
    mark: str = ""
    makes: tuple[str, ...] = ()
    reads: frozenset[str] = frozenset()
    readers: list[int] = field(default_factory=list)
    column: int = -1


def draw_rule(rule: Rule, width: int, *, ascii: bool = False) -> list[str]:
    """The pattern and the replacement of a rule: side by side where they fit into `width`, else one above the other."""
    before, after = (draw(lines, rule.roots, ascii=ascii) for lines in (rule.match, rule.replace))
    left = max(map(len, before))
    if left + len(_GAP + ARROW + _GAP) + max(map(len, after)) > width:
        return [*before, "", f"  {ARROW}", "", *after]
    height = max(len(before), len(after))
    middle = (min(len(before), len(after)) - 1) // 2
    rows = []
    for i in range(height):
        one, other = (side[i] if i < len(side) else "" for side in (before, after))
        rows.append(f"{one:{left}}{_GAP}{ARROW if i == middle else '  '}{_GAP}{other}".rstrip())
    return rows


def draw(lines: Sequence[Line], results: Collection[str], *, ascii: bool = False) -> list[str]:
    """One side of a rule: its lines, in any order; ``results`` are the names that the rule redefines."""
    rows = _rows(lines, results)
    for number, row in enumerate(rows):
        for other in rows[:number]:
            if row.reads.intersection(other.makes):
                other.readers.append(number)
    width = _columns(rows)
    drawn = [_rails(rows, number, width) + row.mark + one_line(row.text) for number, row in enumerate(rows)]
    return [row.translate(_ASCII) for row in drawn] if ascii else drawn


def _rows(lines: Sequence[Line], results: Collection[str]) -> list[_Row]:
    """The lines, makers before readers, and the shared operands, each above its first reader."""
    made = {name for line in lines for name in line.outputs}
    use: dict[str, int] = {}
    for line in lines:
        for name in _reads(line):
            use[name] = use.get(name, 0) + 1
    shared = {name for name, count in use.items() if count > 1 and name not in made}
    rows: list[_Row] = []
    known: set[str] = set()
    todo = list(lines)
    while todo:
        # Rules are checked when they are read, so some line is always ready; if not, the order as written must do.
        line = next((each for each in todo if not (_reads(each) & made) - known), todo[0])
        todo.remove(line)
        for operand in line.operands:
            if operand.name in shared:
                shared.remove(operand.name)
                rows.append(_Row(operand.name, " ", (operand.name,)))
        mark = "● " if any(name in results for name in line.outputs) else "○ "
        rows.append(_Row(line.text, mark, line.outputs, _reads(line)))
        known.update(line.outputs)
    return rows


def _reads(line: Line) -> frozenset[str]:
    names = {operand.name for operand in line.operands} | {line.alias}
    return frozenset(names - {"", "_"})


def _columns(rows: Sequence[_Row]) -> int:
    """Give each row that has readers the leftmost free column for its rail; returns how many columns there are."""
    width = 0
    for number, row in enumerate(rows):
        if not row.readers:
            continue
        # A rail that ends in this row still takes its place there, lest the new one look like its continuation.
        taken = {other.column for other in rows[:number] if other.readers and other.readers[-1] >= number}
        row.column = next(c for c in range(len(rows)) if c not in taken)
        width = max(width, row.column + 1)
    return width


def _rails(rows: Sequence[_Row], number: int, width: int) -> str:
    """What stands on the left of a row."""
    active = {r.column: r for r in rows[:number] if r.readers and r.readers[-1] >= number}
    read = {column for column, rail in active.items() if number in rail.readers}
    touched = read | ({rows[number].column} if rows[number].readers else set())
    if not touched:
        return "".join("│ " if column in active else "  " for column in range(width))
    first = min(touched)
    out = ""
    for column in range(width):
        if column not in touched:
            out += "│" if column in active else "─" if column > first else " "
        elif column not in read:
            out += "╭" if column == first else "┬"
        elif active[column].readers[-1] == number:
            out += "╰" if column == first else "┴"
        else:
            out += "├" if column == first else "┼"
        out += "─" if column >= first else " "
    return out
