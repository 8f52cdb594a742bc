"""From a view to one HTML file that needs no network: tables by a template, charts and graphs by embedded scripts.

Names in a model are anybody's text. The template engine escapes whatever it writes, the data of the charts are JSON without a
character that HTML knows, and the page's content security policy lets no script run but ours and nothing be fetched.
"""

from __future__ import annotations

import base64
import hashlib
import json
import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

import jinja2
import numpy as np
from markupsafe import Markup

from graphopt import wording
from graphopt.files import write_text
from graphopt.report.view import GraphView, Page, StepRow, Subject, Table, Variant
from graphopt.runtime.timing import Ratio

SAMPLES = 400
"""Points of a distribution that a chart draws at most; quantiles are of all samples."""

_PERCENTILES = ((50, 1), (90, 10), (95, 20), (99, 100))
"""Percentiles in the table, and how many samples each needs to mean anything."""

_PARTS = files("graphopt.report") / "page"
_VENDORED = ("d3.min.js", "plot.umd.min.js", "dagre.min.js")
_OWN = ("dom.js", "charts.js", "map.js", "closeup.js", "graph.js", "page.js")


def write_page(page: Page, path: Path) -> None:
    """Write a page, whole or not at all.

    Raises:
        GraphoptError: The file can't be written.
    """
    write_text(path, render(page))


def render(page: Page) -> str:
    """The page as HTML."""
    scripts = [_script(f"vendor/{name}", f"vendor/{name.partition('.')[0]}.LICENSE") for name in _VENDORED]
    scripts += [_script(name) for name in _OWN]
    engine = jinja2.Environment(
        loader=jinja2.FunctionLoader(_text),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=lambda value: wording.one_line(value) if type(value) is str else value,
    )
    engine.filters.update(
        ms=wording.milliseconds,
        size=wording.size,
        seconds=wording.seconds,
        percentiles=_percentiles,
        ratio=_ratio,
        rules=_rules,
        families=_families,
        image=_image,
        numbers=_numbers,
        signed=wording.signed,
    )
    return engine.get_template("page.html").render(
        page=page,
        style=Markup(_text("style.css")),
        scripts=scripts,
        policy=" ".join(f"'sha256-{_digest(script)}'" for script in scripts),
        data=Markup(_json({"subjects": [_subject(subject) for subject in page.subjects]})),
        percentiles=[f"P{percentile}" for percentile, _ in _PERCENTILES],
    )


def _text(name: str) -> str:
    return (_PARTS / name).read_text(encoding="utf-8")


def _script(name: str, licence: str | None = None) -> Markup:
    """A script as it is embedded: with its licence, and without a pointer to a source map that nobody ships."""
    lines = [line for line in _text(name).splitlines() if not line.startswith("//# sourceMappingURL=")]
    if licence is not None:
        lines = ["/*!", f"{name.rpartition('/')[2]}", *_text(licence).splitlines(), "*/", *lines]
    return Markup("\n".join(lines) + "\n")


def _digest(script: str) -> str:
    return base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()


def _json(document: Any) -> str:
    """JSON that can stand inside a script element, whatever text is in it."""
    text = json.dumps(document, separators=(",", ":"), allow_nan=False)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _number(value: float | None, digits: int = 6) -> float | None:
    """A number with so many significant digits; nothing for what JSON has no word for."""
    return float(f"{value:.{digits}g}") if value is not None and math.isfinite(value) else None


# -- what the tables show ---------------------------------------------------------------------------------------------


def _numbers(table: Table) -> list[bool]:
    """Which columns of a table hold numbers, which stand at the right; the first holds names."""
    columns = [[row[i] for row in table.rows if row[i]] for i in range(len(table.heads))]
    return [i > 0 and all(cell.lstrip("+-")[:1].isdigit() for cell in cells) for i, cells in enumerate(columns)]


def _percentiles(variant: Variant) -> list[str]:
    """The percentiles of a variant's samples, as far as there are enough samples."""
    samples = _finite(variant.samples)
    return [
        wording.milliseconds(float(np.percentile(samples, percentile))) if len(samples) >= needed else ""
        for percentile, needed in _PERCENTILES
    ]


def _ratio(ratio: Ratio) -> str:
    return f"{ratio.value:.3f}\N{MULTIPLICATION SIGN} ({ratio.low:.3f} to {ratio.high:.3f})"


def _image(svg: str) -> str:
    """A drawing as the address of an image: its styles are its own there, and no script of it would run."""
    return f"data:image/svg+xml;base64,{base64.b64encode(svg.encode()).decode()}"


@dataclass(frozen=True)
class _Rule:
    """The steps of a rule: how many, and the predicted milliseconds that they save together."""

    name: str
    family: str
    steps: int
    saving: float
    share: float


@dataclass(frozen=True)
class _Family:
    """A family's gain as a share of the time without it, predicted and measured (with the ends of its interval)."""

    name: str
    predicted: float | None
    measured: tuple[float, float, float] | None
    fate: str


def _rules(subject: Subject) -> list[_Rule]:
    """The steps summed up by rule, the largest predicted saving first."""
    by_rule: dict[str, list[StepRow]] = defaultdict(list)
    for step in subject.steps:
        by_rule[step.rule].append(step)
    rows = []
    for name, steps in by_rule.items():
        saving = sum(step.before - step.after for step in steps)
        rows.append(_Rule(name, steps[0].family, len(steps), saving, saving / (_start(subject) or math.inf)))
    return sorted(rows, key=lambda row: (-row.saving, row.name))


def _start(subject: Subject) -> float:
    """Predicted milliseconds before the first step that was priced; 0 where none was."""
    return next((step.before for step in subject.steps if step.before), 0.0)


def _families(subject: Subject) -> list[_Family]:
    saving: dict[str, float] = defaultdict(float)
    for step in subject.steps:
        if step.family:
            saving[step.family] += step.before - step.after
    start = _start(subject)
    verdicts = {row.name: row for row in subject.families}
    rows = []
    for name in dict.fromkeys([*saving, *verdicts]):
        verdict = verdicts.get(name)
        measured = None if verdict is None or verdict.measured is None else _saved(verdict.measured)
        # A family that was taken back has no steps left whose prices could be summed up.
        predicted = saving[name] / start if name in saving and start else None
        rows.append(_Family(name, predicted, measured, "kept" if verdict is None else verdict.fate))
    return sorted(rows, key=lambda row: (-(row.predicted or 0.0), row.name))


def _saved(ratio: Ratio) -> tuple[float, float, float]:
    """A ratio and its interval as shares of the baseline's time: what is twice as fast saves a half of it."""
    value, low, high = (1 - 1 / each for each in (ratio.value, ratio.low, ratio.high))
    return value, low, high


# -- what the scripts draw --------------------------------------------------------------------------------------------


def _subject(subject: Subject) -> dict[str, Any]:
    return {
        "name": subject.name,
        "variants": [_variant(variant) for variant in subject.variants],
        "curves": [
            {
                "name": curve.name,
                "points": [[_number(s, 4), _number(ms)] for s, ms in curve.points],
                "seconds": _number(curve.seconds, 4),
            }
            for curve in subject.curves
        ],
        "families": [
            {
                "name": row.name,
                "predicted": _number(row.predicted),
                "measured": row.measured and [_number(each) for each in row.measured],
                "fate": row.fate,
            }
            for row in _families(subject)
        ],
        "steps": _steps(subject.steps),
        "graph": None if subject.graph is None else _graph(subject.graph),
    }


def _variant(variant: Variant) -> dict[str, Any]:
    samples = _finite(variant.samples)
    return {
        "name": variant.name,
        "baseline": variant.baseline,
        "samples": [_number(ms, 5) for ms in _thinned(samples)],
        "count": len(samples),
        "ratio": _triple(variant.ratio),
        "verdict": variant.ratio.verdict if variant.ratio else None,
        "operators": [
            [row.op_type, row.count, _number(row.ms, 5)] for row in variant.operators if math.isfinite(row.ms)
        ],
    }


def _triple(ratio: Ratio | None) -> list[float | None] | None:
    """A ratio and the ends of its interval; nothing where one of them is no number."""
    numbers = () if ratio is None else (ratio.value, ratio.low, ratio.high)
    return [_number(each) for each in numbers] if numbers and all(map(math.isfinite, numbers)) else None


def _finite(samples: Sequence[float]) -> list[float]:
    return [ms for ms in samples if math.isfinite(ms)]


def _thinned(samples: Sequence[float]) -> Sequence[float]:
    """At most so many samples of the same distribution: evenly spaced order statistics, both ends included."""
    if len(samples) <= SAMPLES:
        return samples
    ranks = np.linspace(0, len(samples) - 1, SAMPLES).round().astype(int)
    return [float(ms) for ms in np.sort(samples)[ranks]]


class _Strings:
    """Each text once, referred to by its number: operators, attributes and rules repeat a thousand times."""

    def __init__(self) -> None:
        self.numbers: dict[str, int] = {}

    def __call__(self, text: str) -> int:
        return self.numbers.setdefault(text, len(self.numbers))


def _steps(steps: Sequence[StepRow]) -> dict[str, Any]:
    strings = _Strings()
    rows = [[strings(s.rule), s.place, _number(s.before), _number(s.after), s.change] for s in steps]
    return {"strings": list(strings.numbers), "rows": rows}


def _graph(graph: GraphView) -> dict[str, Any]:
    """The graph as rows; ``graph.js`` says what stands where."""
    strings = _Strings()
    nodes = []
    for node in graph.nodes:
        before, after = (None if w is None else [w.inputs, w.outputs] for w in (node.before, node.after))
        nodes.append(
            [
                node.name,
                strings(node.op),
                strings(node.attributes),
                before,
                0 if before == after else after,
                None if node.rule is None else strings(node.rule),
                node.change,
                node.column,
                node.lane,
            ]
        )
    return {
        "names": [graph.before, graph.after],
        "values": [
            [value.name, strings(value.type), value.input + 2 * value.output[0] + 4 * value.output[1]]
            for value in graph.values
        ],
        "nodes": nodes,
        "changes": [[[strings(r) for r in c.rules], c.removed, c.added, c.kind] for c in graph.changes],
        "strings": list(strings.numbers),
    }
