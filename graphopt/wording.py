"""Names and numbers as people read them, on a screen or a page."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

_SHOWN = 6  # operators that a provider leaves to others


def one_line(text: str, limit: int | None = None) -> str:
    """`text` without line breaks and control characters, at most `limit` characters long.

    A file name or a name in a model can contain an escape sequence; the terminal must not obey it.
    """
    safe = "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in " ".join(text.split()))
    return safe if limit is None or len(safe) <= limit else safe[: limit - 3] + "..."


def printable(text: str) -> str:
    """`text` with its line breaks, but without what a terminal would obey."""
    return "\n".join(
        "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in line) for line in text.split("\n")
    )


def cell(value: Any) -> Any:
    """A value for a CSV table: a text that a spreadsheet would take for a formula is marked as text by an apostrophe."""
    if not isinstance(value, str) or not value.startswith(("=", "+", "-", "@", "\t", "\r")):
        return value
    try:
        float(value)
    except ValueError:
        return f"'{value}"
    return value


def csv_table(heads: Sequence[str], rows: Iterable[Mapping[str, Any]]) -> str:
    """Rows of values as CSV, with a head."""
    text = io.StringIO()
    writer = csv.DictWriter(text, list(heads), lineterminator="\n")
    writer.writeheader()
    writer.writerows({head: cell(value) for head, value in row.items()} for row in rows)
    return text.getvalue()


def milliseconds(value: float | None) -> str:
    """A latency with three significant digits."""
    if value is None:
        return "-"
    digits = 3 if value < 1 else 2 if value < 100 else 0
    return f"{value:.{digits}f} ms"


def seconds(value: float | None) -> str:
    """A duration of a search."""
    if value is None:
        return "-"
    return f"{value:.1f} s" if value < 120 else f"{value / 60:.1f} min"


def size(value: float | None) -> str:
    """A number of bytes in decimal units, as file managers show it."""
    if value is None:
        return "-"
    if value < 1000:
        return f"{value:.0f} B"
    for unit in ("kB", "MB", "GB"):
        value /= 1000
        if value < 1000 or unit == "GB":
            break
    return f"{value:.1f} {unit}"


def signed(value: float, digits: int) -> str:
    """A number with its sign, which what rounds to zero has none of."""
    text = f"{value:+.{digits}f}"
    return text if float(text) else text[1:]


def change(before: float | None, after: float | None) -> str:
    """How much `after` differs from `before`, as a signed percentage."""
    if before is None or after is None or not before:
        return ""
    return "same" if after == before else f"{signed((after / before - 1) * 100, 1)} %"


def percent(share: float, digits: int = 0) -> str:
    """A share of a whole, in per cent."""
    return f"{100 * share:.{digits}f} %"


def plural(count: int, noun: str) -> str:
    """A number with its noun."""
    return f"{count} {noun}" + ("" if count == 1 else "s")


def threads(used: int, *, all_cores: bool) -> str:
    """A number of threads: ``all cores: 8`` where the runtime chose it, else ``4 threads``."""
    return f"all cores: {used}" if all_cores else plural(used, "thread")


def sized(sizes: Mapping[str, int]) -> str:
    """Sizes of dimensions: ``batch=1, seq=8``."""
    return ", ".join(f"{one_line(name, 40)}={size}" for name, size in sizes.items())


def measured_at(told: Mapping[str, Any], option: str = "--at and --dim") -> str:
    """At which sizes a JSON report was measured, and whether someone chose them; empty where none is open."""
    sizes, assumed = told.get("sizes") or {}, told.get("sizes_assumed") or []
    if not sizes:
        return ""
    if not assumed:
        return sized(sizes)
    said = "assumed" if len(assumed) == len(sizes) else f"{', '.join(one_line(name, 40) for name in assumed)} assumed"
    return f"{sized(sizes)} ({said}; see {option})"


def tie(told: Mapping[str, Any]) -> str:
    """What is better about the model of a JSON report that is no faster: ``as fast, 27 % of the nodes, opens 2.1 times as fast``."""
    nodes, opening = told["nodes"], told.get("opening")
    text = f"as fast, {percent(nodes['after'] / max(1, nodes['before']))} of the nodes"
    return text + (f", opens {opening['ratio']:.1f} times as fast" if opening else "")


def lost(told: Mapping[str, Any]) -> str:
    """Why a JSON report is about the normal form: what the search found, measured."""
    return f"the normal form: what the search found measured {measured(told)}"


def slower_at(elsewhere: Sequence[Mapping[str, Any]]) -> str:
    """The first of the measurements of a JSON report at other sizes that is surely below 1, at which sizes that is; empty where none is."""
    return next((measured(told) for told in elsewhere if told["ci95"][1] < 1), "")


def interval(ends: Sequence[float]) -> str:
    """The interval of a ratio: ``1.921 to 2.049``."""
    return f"{ends[0]:.3f} to {ends[1]:.3f}"


def measured(told: Mapping[str, Any]) -> str:
    """A ratio of a JSON report and its interval, at which sizes where that is said."""
    there = f" at {sized(told['sizes'])}" if told.get("sizes") else ""
    return f"{told['speedup']:.3f}x{there} (95 % interval {interval(told['ci95'])})"


def effort(told: Mapping[str, Any]) -> str:
    """What an optimisation could spend, and who of it what."""
    plan, limit = told["plan"], told["seconds"]
    if limit is None:
        return (
            f"counted, not timed: {told['kernels']} kernels, {told['candidates']} candidates and {told['rounds']} rounds of "
            "comparisons at most"
        )
    names = ("pricing", "search", "comparing")
    shares = ", ".join(f"{100 * plan[name]:.0f} % {name}" for name in names)
    return f"{seconds(limit)}: at most {shares}; at least {100 * plan['verdict']:.0f} % the last measurement"


def placed(nodes: Mapping[str, int], elsewhere: Mapping[str, int] | None = None) -> str:
    """Which provider runs how many nodes, and the operators that the one asked for leaves to others."""
    text = ", ".join(f"{provider} {plural(count, 'node')}" for provider, count in nodes.items()) or "no nodes"
    left = [one_line(op, 40) + (f" x{count}" if count > 1 else "") for op, count in (elsewhere or {}).items()]
    more = f" and {plural(len(left) - _SHOWN, 'operator')} more" if len(left) > _SHOWN else ""
    return text + (f" ({', '.join(left[:_SHOWN])}{more})" if left else "")


def placement(told: Mapping[str, Any]) -> str:
    """Where a JSON report says that nodes run: by which provider how many, and what the one asked for leaves to others."""
    before, after = told["before"], told["after"]
    text = placed(after, told["elsewhere"])
    return text if before == after else f"{placed(before)}; afterwards {text}"


def timing(told: Mapping[str, Any]) -> str:
    """What the latencies of a JSON report include."""
    if told["device"] != "cpu":
        return f"inputs and outputs stay on {told['device']}: copies from and to the host are not counted"
    if told["copies"]:
        return "inputs and outputs are in the host's memory: the provider's copies from and to its device are counted"
    return "inputs and outputs are in the host's memory, where the provider works"


def dimensions(tried: Sequence[Mapping[str, int]]) -> str:
    """The sizes at which something was tried: ``batch 1, 3; seq 8, 5, 1``."""
    names = dict.fromkeys(name for each in tried for name in each)
    rows = {name: dict.fromkeys(each[name] for each in tried if name in each) for name in names}
    return "; ".join(f"{name} {', '.join(map(str, row))}" for name, row in rows.items())
