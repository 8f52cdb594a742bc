"""Learning curves with their intervals, as an SVG file of its own that can be read on a light and on a dark page."""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape
from pathlib import Path

from graphopt.files import write_text
from graphopt.rl.evaluation.scores import Curve

_WIDTH, _HEIGHT, _ACROSS = 330, 250, 3  # pixels of a panel, and panels side by side
_LEFT, _RIGHT, _TOP, _BOTTOM = 52, 12, 34, 44
_COLOURS = 6
# Those of the pages (graphopt/report/page/style.css): each stands out from its background by 3:1 or more.
_STYLE = """
svg { --back: #ffffff; --grid: #d0d7de; --text: #1a1f26;
  --c0: #0072b2; --c1: #c04a00; --c2: #00785a; --c3: #a8497f; --c4: #8a6d00; --c5: #3f4fb0; }
@media (prefers-color-scheme: dark) { svg { --back: #0f1318; --grid: #333d48; --text: #e8ebef;
  --c0: #56b4e9; --c1: #ff9a52; --c2: #2ecfa0; --c3: #e29ac3; --c4: #e8cf4a; --c5: #a3aef5; } }
.back { fill: var(--back); } text { fill: var(--text); } .grid { stroke: var(--grid); fill: none; }
.line { fill: none; stroke-width: 2; } .band { fill-opacity: 0.2; stroke: none; }
"""
_DASHES = ("", "6 3", "2 3")  # for the seventh curve and on
_TITLES = {"saving": "saving of the episodes, %", "best": "best saving met, mean over models, %"}


def write_curves(curves: Sequence[Curve], path: Path) -> None:
    """Write what :func:`draw_curves` draws.

    Args:
        curves: The curves.
        path: The SVG file.

    Raises:
        GraphoptError: The file can't be written.
    """
    write_text(path, draw_curves(curves))


def draw_curves(curves: Sequence[Curve]) -> str:
    """A panel for each measure with a line and a band for each algorithm, as SVG."""
    names = list(dict.fromkeys(curve.algorithm for curve in curves))
    measures = list(dict.fromkeys(curve.measure for curve in curves))
    marks = {name: (f"var(--c{i % _COLOURS})", _DASHES[i // _COLOURS % len(_DASHES)]) for i, name in enumerate(names)}
    drawn = []
    for i, measure in enumerate(measures):
        place = f"translate({i % _ACROSS * _WIDTH},{i // _ACROSS * _HEIGHT})"
        panel = _panel(_title(measure), [c for c in curves if c.measure == measure], marks, f"clip{i}")
        drawn.append(f'<g transform="{place}">{panel}</g>')
    columns, rows = max(1, min(_ACROSS, len(measures))), max(1, math.ceil(len(measures) / _ACROSS))
    height = rows * _HEIGHT + 28
    for i, name in enumerate(names):
        colour, dashes = marks[name]
        runs = max(curve.runs for curve in curves if curve.algorithm == name)
        label = f"{name}, {runs} run{'' if runs == 1 else 's'}" + (
            ", band: 95 % interval of the mean" if runs > 1 else ""
        )
        drawn.append(
            f'<g transform="translate({_LEFT + i * 320},{height - 14})"><path class="line" d="M0,-4H22" stroke="{colour}" '
            f'stroke-dasharray="{dashes}"/><text x="28">{escape(label)}</text></g>'
        )
    width = max(columns * _WIDTH, _LEFT + 320 * len(names))
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="sans-serif" font-size="12">'
        f'<style>{_STYLE}</style><rect class="back" width="100%" height="100%"/>{"".join(drawn)}</svg>\n'
    )


def _title(measure: str) -> str:
    kind, _, model = measure.partition("/")
    return f"{model}: {'best ' if kind == 'best' else ''}saving, %" if model else _TITLES[kind]


def _panel(title: str, curves: Sequence[Curve], marks: dict[str, tuple[str, str]], clip: str) -> str:
    steps = [max(1, s) for curve in curves for s, _ in curve.points]
    means = [e.mean for curve in curves for _, e in curve.points]
    x0, x1 = math.log10(min(steps)), math.log10(max(steps))
    x1 = max(x1, x0 + 0.1)
    high = max(means)
    # What agents do before they have learned anything would take all the room; where they end is always shown.
    low = min(max(min(means), -abs(high)), *(curve.points[-1][1].mean for curve in curves), high - 0.1)
    high, low = high + 0.06 * (high - low), low - 0.06 * (high - low)
    inner = _WIDTH - _LEFT - _RIGHT, _HEIGHT - _TOP - _BOTTOM

    def x(s: float) -> float:
        return _LEFT + (math.log10(max(1, s)) - x0) / (x1 - x0) * inner[0]

    def y(value: float) -> float:
        # Far below the panel is far enough: renderers have trouble with very large numbers.
        return _TOP + min(10.0, (high - value) / (high - low)) * inner[1]

    parts = [
        f'<text x="{_LEFT}" y="20" font-weight="bold">{escape(title)}</text>',
        f'<clipPath id="{clip}"><rect x="{_LEFT}" y="{_TOP}" width="{inner[0]}" height="{inner[1]}"/></clipPath>',
    ]
    for value in _ticks(low, high):
        parts.append(
            f'<path class="grid" d="M{_LEFT},{y(value):.1f}h{inner[0]}"/>'
            f'<text x="{_LEFT - 6}" y="{y(value) + 4:.1f}" text-anchor="end">{value:g}</text>'
        )
    bottom = _TOP + inner[1]
    for s in _decades(x0, x1):
        parts.append(
            f'<path class="grid" d="M{x(s):.1f},{_TOP}v{inner[1]}"/>'
            f'<text x="{x(s):.1f}" y="{bottom + 16}" text-anchor="middle">{_short(s)}</text>'
        )
    parts.append(
        f'<text x="{_LEFT + inner[0] / 2}" y="{bottom + 34}" text-anchor="middle">real environment steps</text>'
        f'<g clip-path="url(#{clip})">'
    )
    for curve in curves:
        colour, dashes = marks[curve.algorithm]
        if curve.runs > 1:
            above = [f"{x(s):.1f},{max(0.0, y(e.high)):.1f}" for s, e in curve.points]
            below = [f"{x(s):.1f},{y(e.low):.1f}" for s, e in reversed(curve.points)]
            parts.append(f'<path class="band" fill="{colour}" d="M{"L".join([*above, *below])}z"/>')
        line = "L".join(f"{x(s):.1f},{y(e.mean):.1f}" for s, e in curve.points)
        last = curve.points[-1]
        about = f"{curve.algorithm}: {last[1].mean:.2f} after {last[0]} steps"
        parts.append(
            f'<path class="line" stroke="{colour}" stroke-dasharray="{dashes}" d="M{line}"><title>{escape(about)}</title></path>'
        )
    parts.append("</g>")
    return "".join(parts)


def _ticks(low: float, high: float) -> list[float]:
    """Four to eight round numbers."""
    size = 10 ** math.floor(math.log10((high - low) / 4))
    step = next(size * f for f in (1, 2, 5, 10) if (high - low) / (size * f) <= 8)
    return [round(i * step, 9) for i in range(math.ceil(low / step), math.floor(high / step) + 1)]


def _decades(x0: float, x1: float) -> list[float]:
    """Round numbers of steps between two powers of ten."""
    ticks = [
        d * 10.0**e for e in range(math.floor(x0), math.ceil(x1) + 1) for d in ((1, 2, 5) if x1 - x0 < 2 else (1,))
    ]
    return [t for t in ticks if x0 <= math.log10(t) <= x1] or [10**x1]


def _short(steps: float) -> str:
    for size, unit in ((1e6, "M"), (1e3, "k")):
        if steps >= size:
            return f"{steps / size:.3g}{unit}"
    return f"{steps:.0f}"
