"""Charts as SVG images of their own, which can be read on a light and on a dark page: learning curves, and predictions against the clock."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from graphopt.rl.evaluation.scores import Curve

_WIDTH, _HEIGHT, _ACROSS = 330, 250, 3  # pixels of a panel, and panels side by side
_SIDE, _LEGEND = 560, 210  # pixels of a scatter, and of the names beside it
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
# For when the colours run out.
_DASHES = ("", "6 3", "2 3")
_SHAPES = ("M-4,0a4,4 0 1,0 8,0a4,4 0 1,0 -8,0", "M-4,-4h8v8h-8z", "M0,-5L5,4H-5z", "M0,-5L5,0L0,5L-5,0z")
_TITLES = {"saving": "saving of the episodes, %", "best": "best saving met, mean over models, %"}


@dataclass(frozen=True)
class _Axis:
    """Where values lie: ``low`` and ``high`` (logarithms where ``log``) at ``start`` and ``length`` pixels further."""

    low: float
    high: float
    start: float
    length: float
    log: bool = True

    def at(self, value: float) -> float:
        """Far outside is far enough: renderers have trouble with very large numbers."""
        place = math.log10(value) if self.log else value
        return self.start + max(-10.0, min(10.0, (place - self.low) / (self.high - self.low))) * self.length

    def ticks(self) -> list[float]:
        """Round numbers."""
        if not self.log:  # four to eight
            size = 10 ** math.floor(math.log10((self.high - self.low) / 4))
            step = next(size * f for f in (1, 2, 5, 10) if (self.high - self.low) / (size * f) <= 8)
            return [round(i * step, 9) for i in range(math.ceil(self.low / step), math.floor(self.high / step) + 1)]
        digits = (1, 2, 5) if self.high - self.low < 2 else (1,)
        powers = range(math.floor(self.low), math.ceil(self.high) + 1)
        found = [d * 10.0**e for e in powers for d in digits]
        return [t for t in found if self.low <= math.log10(t) <= self.high] or [10**self.high]


def draw_curves(curves: Sequence[Curve]) -> str:
    """A panel for each measure with a line and a band for each algorithm, as SVG."""
    names = list(dict.fromkeys(curve.algorithm for curve in curves))
    measures = list(dict.fromkeys(curve.measure for curve in curves))
    marks = {name: (_colour(i), _DASHES[i // _COLOURS % len(_DASHES)]) for i, name in enumerate(names)}
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
        band = ", band: 95 % interval of the mean" if runs > 1 else ""
        label = f"{name}, {runs} run{'' if runs == 1 else 's'}{band}"
        drawn.append(
            f'<g transform="translate({_LEFT + i * 320},{height - 14})"><path class="line" d="M0,-4H22" stroke="{colour}" '
            f'stroke-dasharray="{dashes}"/><text x="28">{escape(label)}</text></g>'
        )
    return _image(max(columns * _WIDTH, _LEFT + 320 * len(names)), height, drawn)


def draw_scatter(points: Sequence[tuple[str, float, float]]) -> str:
    """Points on logarithmic axes with the line on which they would lie if every prediction were right, as SVG.

    Args:
        points: Name of the model, measured milliseconds, predicted milliseconds.
    """
    values = [ms for _, measured, predicted in points for ms in (measured, predicted)]
    low, high = math.log10(min(values)) - 0.1, math.log10(max(values)) + 0.1
    inner, bottom = _SIDE - _LEFT - _RIGHT, _SIDE - _BOTTOM
    x, y = _Axis(low, high, _LEFT, inner), _Axis(low, high, bottom, -inner)
    drawn = [
        *_grid(x, y, "measured, ms"),
        f'<path class="grid" d="M{_LEFT},{bottom}L{_LEFT + inner},{bottom - inner}"/>',
    ]
    drawn.append(f'<text x="{_LEFT - 40}" y="{bottom - inner - 8}">predicted, ms</text>')
    names = list(dict.fromkeys(name for name, _, _ in points))
    marks = {name: (_SHAPES[i // _COLOURS % len(_SHAPES)], _colour(i)) for i, name in enumerate(names)}
    for name, measured, predicted in points:
        shape, colour = marks[name]
        drawn.append(
            f'<path transform="translate({x.at(measured):.1f},{y.at(predicted):.1f})" d="{shape}" fill="{colour}" fill-opacity="0.6">'
            f"<title>{escape(name)}: {predicted:.3g} ms predicted, {measured:.3g} ms measured</title></path>"
        )
    for i, (name, (shape, colour)) in enumerate(marks.items()):
        place = f"translate({_SIDE + 10},{_TOP + 18 * i})"
        drawn.append(
            f'<g transform="{place}"><path d="{shape}" fill="{colour}"/><text x="12" y="4">{escape(name)}</text></g>'
        )
    return _image(_SIDE + _LEGEND, max(_SIDE, _TOP + 18 * len(names) + 10), drawn)


def _image(width: int, height: int, drawn: Sequence[str]) -> str:
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="sans-serif" font-size="12">'
        f'<style>{_STYLE}</style><rect class="back" width="100%" height="100%"/>{"".join(drawn)}</svg>\n'
    )


def _colour(i: int) -> str:
    return f"var(--c{i % _COLOURS})"


def _title(measure: str) -> str:
    kind, _, model = measure.partition("/")
    return f"{model}: {'best ' if kind == 'best' else ''}saving, %" if model else _TITLES[kind]


def _grid(x: _Axis, y: _Axis, label: str) -> list[str]:
    """Lines at round numbers, with the numbers."""
    parts = [
        f'<path class="grid" d="M{x.start},{y.at(value):.1f}h{x.length}"/>'
        f'<text x="{x.start - 6}" y="{y.at(value) + 4:.1f}" text-anchor="end">{value:g}</text>'
        for value in y.ticks()
    ]
    parts += [
        f'<path class="grid" d="M{x.at(value):.1f},{y.start}v{y.length}"/>'
        f'<text x="{x.at(value):.1f}" y="{y.start + 16}" text-anchor="middle">{_short(value)}</text>'
        for value in x.ticks()
    ]
    return [*parts, f'<text x="{x.start + x.length / 2}" y="{y.start + 34}" text-anchor="middle">{label}</text>']


def _panel(title: str, curves: Sequence[Curve], marks: dict[str, tuple[str, str]], clip: str) -> str:
    steps = [max(1, s) for curve in curves for s, _ in curve.points]
    means = [e.mean for curve in curves for _, e in curve.points]
    x0 = math.log10(min(steps))
    high = max(means)
    # What agents do before they have learned anything would take all the room; where they end is always shown.
    low = min(max(min(means), -abs(high)), *(curve.points[-1][1].mean for curve in curves), high - 0.1)
    high, low = high + 0.06 * (high - low), low - 0.06 * (high - low)
    width, height = _WIDTH - _LEFT - _RIGHT, _HEIGHT - _TOP - _BOTTOM
    x = _Axis(x0, max(math.log10(max(steps)), x0 + 0.1), _LEFT, width)
    y = _Axis(low, high, _TOP + height, -height, log=False)
    parts = [
        f'<text x="{_LEFT}" y="20" font-weight="bold">{escape(title)}</text>',
        f'<clipPath id="{clip}"><rect x="{_LEFT}" y="{_TOP}" width="{width}" height="{height}"/></clipPath>',
        *_grid(x, y, "real environment steps"),
        f'<g clip-path="url(#{clip})">',
    ]
    for curve in curves:
        colour, dashes = marks[curve.algorithm]
        points = [(f"{x.at(max(1, s)):.1f}", e) for s, e in curve.points]
        if curve.runs > 1:
            band = [f"{s},{y.at(e.high):.1f}" for s, e in points] + [f"{s},{y.at(e.low):.1f}" for s, e in points[::-1]]
            parts.append(f'<path class="band" fill="{colour}" d="M{"L".join(band)}z"/>')
        line = "L".join(f"{s},{y.at(e.mean):.1f}" for s, e in points)
        last, end = curve.points[-1]
        about = f"{curve.algorithm}: {end.mean:.2f} after {last} steps"
        parts.append(
            f'<path class="line" stroke="{colour}" stroke-dasharray="{dashes}" d="M{line}"><title>{escape(about)}</title></path>'
        )
    return "".join([*parts, "</g>"])


def _short(value: float) -> str:
    for size, unit in ((1e6, "M"), (1e3, "k")):
        if value >= size:
            return f"{value / size:.3g}{unit}"
    return f"{value:g}"
