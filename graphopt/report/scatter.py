"""A scatter plot of predicted against measured times, as an SVG file of its own."""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape
from pathlib import Path

from graphopt.files import write_text

_SIDE, _EDGE, _LEGEND = 560, 56, 210  # pixels
# Okabe and Ito's colours, which the colour-blind can tell apart, and shapes for when they run out.
_COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000")
_SHAPES = ("M-4,0a4,4 0 1,0 8,0a4,4 0 1,0 -8,0", "M-4,-4h8v8h-8z", "M0,-5L5,4H-5z", "M0,-5L5,0L0,5L-5,0z")


def write_scatter(points: Sequence[tuple[str, float, float]], path: Path) -> None:
    """Draw points on logarithmic axes with the line on which they would lie if every prediction were right.

    Args:
        points: Name of the model, measured milliseconds, predicted milliseconds.
        path: The SVG file.

    Raises:
        GraphoptError: The file can't be written.
    """
    values = [ms for _, measured, predicted in points for ms in (measured, predicted)]
    low, high = math.log10(min(values)) - 0.1, math.log10(max(values)) + 0.1

    def at(ms: float) -> float:
        return (math.log10(ms) - low) / (high - low) * (_SIDE - 2 * _EDGE)

    def x(ms: float) -> float:
        return _EDGE + at(ms)

    def y(ms: float) -> float:
        return _SIDE - _EDGE - at(ms)

    ticks = [d * 10.0**e for e in range(math.floor(low), math.ceil(high)) for d in (1, 2, 5)]
    ends = 10**low, 10**high
    drawn = [f'<path d="M{x(ends[0]):.1f},{y(ends[0]):.1f}L{x(ends[1]):.1f},{y(ends[1]):.1f}" stroke="#888"/>']
    for ms in ticks:
        if ends[0] <= ms <= ends[1]:
            drawn.append(
                f'<path d="M{x(ms):.1f},{y(ends[0]):.1f}V{y(ends[1]):.1f}M{x(ends[0]):.1f},{y(ms):.1f}H{x(ends[1]):.1f}" stroke="#ddd"/>'
                f'<text x="{x(ms):.1f}" y="{_SIDE - _EDGE + 18}" text-anchor="middle">{ms:g}</text>'
                f'<text x="{_EDGE - 6}" y="{y(ms) + 4:.1f}" text-anchor="end">{ms:g}</text>'
            )
    names = list(dict.fromkeys(name for name, _, _ in points))
    marks = {n: (_SHAPES[i // len(_COLOURS) % len(_SHAPES)], _COLOURS[i % len(_COLOURS)]) for i, n in enumerate(names)}
    for name, measured, predicted in points:
        shape, colour = marks[name]
        drawn.append(
            f'<path transform="translate({x(measured):.1f},{y(predicted):.1f})" d="{shape}" fill="{colour}" fill-opacity="0.6">'
            f"<title>{escape(name)}: {predicted:.3g} ms predicted, {measured:.3g} ms measured</title></path>"
        )
    for i, name in enumerate(names):
        shape, colour = marks[name]
        place = f"translate({_SIDE},{_EDGE + 18 * i})"
        drawn.append(
            f'<g transform="{place}"><path d="{shape}" fill="{colour}"/><text x="12" y="4">{escape(name)}</text></g>'
        )
    middle = _SIDE / 2
    height = max(_SIDE, _EDGE + 18 * len(names) + 10)
    write_text(
        path,
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_SIDE + _LEGEND} {height}" font-family="sans-serif" font-size="12" fill="none">'
        f'<rect width="100%" height="100%" fill="white"/><g fill="#222">{"".join(drawn)}'
        f'<text x="{middle}" y="{_SIDE - 10}" text-anchor="middle">measured, ms</text>'
        f'<text transform="translate(14,{middle}) rotate(-90)" text-anchor="middle">predicted, ms</text></g></svg>\n',
    )
