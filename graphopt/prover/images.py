"""Convolutions and pools with images and kernels that fit: groups, windows that keep an image's size, pads that the runtime computes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from graphopt.prover.cases import Case, operands, places, put
from graphopt.prover.contents import reshaped
from graphopt.rewrite.examples import Operand
from graphopt.rewrite.pattern import Line
from graphopt.rewrite.schema import Rule

_CONVOLUTIONS = frozenset({("", "Conv"), ("", "ConvTranspose")})
_SAME: tuple[tuple[int, tuple[int, int], dict[str, int]], ...] = (
    (3, (1, 1), {}), (2, (0, 1), {}), (3, (2, 2), {"dilations": 2}), (5, (2, 2), {}), (1, (0, 0), {}),
)  # fmt: skip
"""Size of a window, zeros before and after, and what else: with stride 1 the result is as large as the image."""
_POOLS = frozenset({("", "MaxPool"), ("", "AveragePool"), ("", "LpPool")})


def fitting_images(rule: Rule, case: Case) -> Iterator[Case]:
    """Cases of other windows, groups or pads, with operands of the sizes that these ask for."""
    # An example may leave out what it has no attributes for, and the pattern takes others nevertheless.
    case = {**{line.rest: {} for line in rule.match if line.rest and line.rest != "_"}, **case}
    yield from _padded(rule, case)
    yield from _same(rule, case)
    yield from _grouped(rule, case)
    yield from _cropped(rule, case)


def _cropped(rule: Rule, case: Case) -> Iterator[Case]:
    """Images resized together with what lies around them, which is a number that an attribute gives."""
    for line in rule.match:
        if ("", "Resize") not in line.ops or len(line.operands) < 2 or not isinstance(case.get(line.rest), dict):
            continue
        roi = line.operands[1].name
        if roi in rule.leaves:
            rank = max(len(operand.dims) for operand in operands(case))
            around = Operand("f32", (2 * rank,), True, [*[-0.5] * rank, *[1.5] * rank])
            for number in (-2.5, 2.5):
                how = {"coordinate_transformation_mode": "tf_crop_and_resize", "extrapolation_value": number}
                yield {**case, roi: around, line.rest: {**case[line.rest], **how}}


def _grouped(rule: Rule, case: Case) -> Iterator[Case]:
    """Convolutions of two and three groups: of an image with more channels, or of kernels with fewer."""
    lines = [line for line in rule.match if _CONVOLUTIONS & {*line.ops} and len(line.operands) > 1]
    weights = {line.operands[1].name for line in lines}
    for groups in (3, 2):
        made = {**case}
        for line in lines:
            held = made.get(line.rest)
            if isinstance(held, dict) and "group" not in {a for a, _ in (*line.attributes, *line.captures)}:
                made[line.rest] = {**held, "group": groups}
            made.update({v: groups for a, v in line.captures if a == "group"})
        if made == case:
            continue
        images, kernels = made, made
        for place, o in places(made):
            if place[0] in weights and len(o.dims) > 2 and isinstance(o.dims[1], int) and o.dims[1] % groups == 0:
                kernels = put(kernels, place, reshaped(o, (o.dims[0], o.dims[1] // groups, *o.dims[2:])))
            elif place[0] not in weights and len(o.dims) > 2 and isinstance(o.dims[1], int):
                images = put(images, place, reshaped(o, (o.dims[0], o.dims[1] * groups, *o.dims[2:])))
        yield from (images, kernels)


def _same(rule: Rule, case: Case) -> Iterator[Case]:
    """Windows that leave an image as large as it was, larger than one element."""
    for size, (before, after), more in _SAME:
        made = {**case}
        for line in rule.match:
            conv = bool(_CONVOLUTIONS & {*line.ops}) and len(line.operands) > 1
            kernel = case.get(line.operands[1].name) if conv else None
            rank = len(kernel.dims) - 2 if isinstance(kernel, Operand) else _pooled_rank(line, case)
            if rank < 1 or not (conv or _POOLS & {*line.ops}):
                continue
            if isinstance(kernel, Operand):
                made = put(made, (line.operands[1].name, None), reshaped(kernel, (*kernel.dims[:2], *(size,) * rank)))
            wanted: dict[str, Any] = {"pads": [before] * rank + [after] * rank, "strides": [1] * rank}
            wanted |= {name: [n] * rank for name, n in more.items()}
            wanted |= {} if conv else {"kernel_shape": [size] * rank}
            captured = dict(line.captures)
            rest = made.get(line.rest) if line.rest else None
            for name, value in wanted.items():
                if name in captured:
                    made[captured[name]] = value
                elif isinstance(rest, dict) and (name in rest or name != "strides"):
                    rest = made[line.rest] = {**{k: v for k, v in rest.items() if k != "auto_pad"}, name: value}
        if made != case:
            yield made


def _pooled_rank(line: Line, case: Case) -> int:
    """Spatial dimensions of a pool, as its window in the case says."""
    window = case.get(dict(line.captures).get("kernel_shape", ""))
    rest = case.get(line.rest) if line.rest else None
    window = rest.get("kernel_shape", window) if isinstance(rest, dict) else window
    return len(window) if isinstance(window, list) else 0


def _padded(rule: Rule, case: Case) -> Iterator[Case]:
    """Windows whose pads the runtime computes, which excludes pads that are given."""
    for line in rule.match:
        captured = dict(line.captures)
        held = case.get(line.rest) if line.rest else None
        if "pads" in captured and isinstance(held, dict) and "auto_pad" not in captured:
            bare = {k: v for k, v in case.items() if k != captured["pads"]}
            for way in ("VALID", "SAME_LOWER", "SAME_UPPER"):
                yield {**bare, line.rest: {**{k: v for k, v in held.items() if k != "pads"}, "auto_pad": way}}
