"""Convolutions and pools with images and kernels that fit: groups, windows that keep an image's size, pads that the runtime computes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from graphopt.prover.attributes import attribute_of, told
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
_SIDES = {"kernel_shape": 2, "strides": 1, "dilations": 1, "pads": 0, "output_padding": 0}
"""Attributes with a number for each side of an image, or two, and what they say of one more."""


def fitting_images(rule: Rule, case: Case) -> Iterator[Case]:
    """Cases of other windows, groups or pads, with operands of the sizes that these ask for."""
    # An example may leave out what it has no attributes for, and the pattern takes others nevertheless.
    case = {**{line.rest: {} for line in rule.match if line.rest and line.rest != "_"}, **case}
    yield from _padded(rule, case)
    yield from _same(rule, case)
    yield from _strided(rule, case)
    yield from _grouped(rule, case)
    yield from _cropped(rule, case)
    yield from _deeper(rule, case)
    yield from _oblong(rule, case)
    yield from _moved(rule, case)
    yield from _sided(rule, case)
    yield from _shaped(rule, case)


def _cropped(rule: Rule, case: Case) -> Iterator[Case]:
    """Images resized together with what lies around them, which is a number that an attribute gives."""
    for line in rule.match:
        if ("", "Resize") not in line.ops or len(line.operands) < 2:
            continue
        roi = line.operands[1].name
        if roi in rule.leaves:
            rank = max(len(operand.dims) for operand in operands(case))
            around = Operand("f32", (2 * rank,), True, [*[-0.5] * rank, *[1.5] * rank])
            for told_of in ({}, {"extrapolation_value": -2.5}, {"extrapolation_value": 2.5}):
                how = {"coordinate_transformation_mode": "tf_crop_and_resize", **told_of}
                made = told({**case, roi: around}, line, how)
                yield from (made,) if made is not None else ()


def _deeper(rule: Rule, case: Case) -> Iterator[Case]:
    """Images, kernels and all lists that speak of their sides, of one side more before the others: windows over volumes."""
    rank = max((len(o.dims) for o in operands(case)), default=0)
    lines = [line for line in rule.match if (_CONVOLUTIONS | _POOLS) & {*line.ops}]
    if rank < 3 or not lines:
        return
    kernels = {line.operands[1].name for line in lines if _CONVOLUTIONS & {*line.ops} and len(line.operands) > 1}
    deep = case
    for place, o in places(case):
        if len(o.dims) == rank:
            deep = put(deep, place, reshaped(o, (*o.dims[:2], 2 if place[0] in kernels else 4, *o.dims[2:])))
    for stride in (1, 2):
        made = deep
        for line in lines:
            held = {a: case.get(v) for a, v in line.captures} | dict(case.get(line.rest or "") or {})
            lists = {a: v for a, v in held.items() if a in _SIDES and isinstance(v, list) and v}
            longer = {a: _longer(v, stride if a == "strides" else _SIDES[a], a == "pads") for a, v in lists.items()}
            made = told(made, line, longer) or made
        yield made
        # An axis that counted from behind is none of an image is one of a volume.
        yield {**made, **{v: 2 for line in rule.match for a, v in line.captures if a == "axis" and v in made}}


def _said(line: Line, case: Case, attribute: str) -> list[int]:
    """A list that the node of a line has as an attribute in a case; empty where it has none, or one that is not known."""
    listed = dict(line.lists).get(attribute)
    if listed:
        value: Any = [case.get(item) if isinstance(item, str) else _number(item.text) for item in listed]
    else:
        value = attribute_of(case, line, attribute)
    return value if isinstance(value, list) and all(type(n) is int for n in value) else []


def _number(text: str) -> int | None:
    return int(text) if text.lstrip("-").isdigit() else None


def kernels(rule: Rule, case: Case) -> Iterator[tuple[Line, str | None, list[int]]]:
    """The convolutions and pools of a pattern: the operand that holds the weights, and the sides of the window."""
    for line in rule.match:
        if _CONVOLUTIONS & {*line.ops} and len(line.operands) > 1:
            weight = case.get(line.operands[1].name)
            sides = list(weight.dims[2:]) if isinstance(weight, Operand) else []
            yield line, line.operands[1].name if sides else None, [d for d in sides if isinstance(d, int)]
        elif _POOLS & {*line.ops}:
            yield line, None, _said(line, case, "kernel_shape")


def _oblong(rule: Rule, case: Case) -> Iterator[Case]:
    """One side of all windows is longer or shorter: of a square window a rule may ask one side for what both should have."""
    most = max((len(sides) for _, _, sides in kernels(rule, case)), default=0)
    for side, more in ((side, more) for side in range(most) if most > 1 for more in (-1, 1)):
        made = case
        for line, weight, sides in kernels(rule, case):
            made = _windowed(made, line, weight, [max(1, n + more) if i == side else n for i, n in enumerate(sides)])
        if made != case:
            yield made


def _windowed(case: Case, line: Line, weight: str | None, window: list[int]) -> Case:
    """A case in which a convolution or a pool has another window, and strides as long where they were as long."""
    operand = case.get(weight) if weight else None
    made = case
    if isinstance(operand, Operand) and len(operand.dims) == len(window) + 2:
        made = put(made, (str(weight), None), reshaped(operand, (*operand.dims[:2], *window)))
    # A Conv need not say what its weights say.
    if not weight or _said(line, case, "kernel_shape"):
        wanted = {"kernel_shape": window}
        if _said(line, case, "strides") == _said(line, case, "kernel_shape"):
            wanted["strides"] = window
        made = told(made, line, wanted) or made
    return made


def _sided(rule: Rule, case: Case) -> Iterator[Case]:
    """Windows along one side of an image alone, with zeros before it or behind it along that side: the others have none, and no need of any."""
    most = max((len(sides) for _, _, sides in kernels(rule, case)), default=0)
    for side, end in ((side, end) for side in range(most) if most > 1 for end in (0, 1)):
        made = case
        for line, weight, sides in kernels(rule, case):
            n = len(sides)
            made = _windowed(made, line, weight, [2 if i == side else 1 for i in range(n)])
            made = told(made, line, {"pads": [int(i == side + end * n) for i in range(2 * n)]}) or made
        if made != case:
            yield made


def _moved(rule: Rule, case: Case) -> Iterator[Case]:
    """As many zeros around an image, all of them before it or behind it, along one side or all: sizes do not tell them apart."""
    padded = [(line, pads) for line, _, _ in kernels(rule, case) if (pads := _said(line, case, "pads"))]
    most = max((len(pads) // 2 for _, pads in padded), default=0)
    for sides in (range(most), *((side,) for side in range(most) if most > 1)):
        for before in (False, True):
            made = case
            for line, held in padded:
                half = len(held) // 2
                both = [a + b for a, b in zip(held[:half], held[half:], strict=False)]
                first = [(both[i] if before else 0) if i in sides else held[i] for i in range(half)]
                pads = [*first, *(b - f for b, f in zip(both, first, strict=True))]
                made = told(made, line, {"pads": pads}) or made
            if made != case:
                yield made


def _shaped(rule: Rule, case: Case) -> Iterator[Case]:
    """Transposed convolutions that are told the size of the result, from which the runtime computes the pads, whatever is given."""
    for line, weight, sides in kernels(rule, case):
        # What comes before it mostly leaves an image as large as it was.
        image = max((o for p, o in places(case) if p[0] != weight), key=lambda o: len(o.dims), default=None)
        if ("", "ConvTranspose") not in line.ops or image is None:
            continue
        strides = _said(line, case, "strides") or [1] * len(sides)
        sizes = zip(image.dims[2:], strides, sides, strict=False)
        full = [(d - 1) * stride + side for d, stride, side in sizes if isinstance(d, int)]
        for less in range(4):
            dims = [n - less for n in full]
            made = told(case, line, {"output_shape": dims}) if min(dims, default=0) > 0 else None
            yield from (made,) if made is not None else ()


def _longer(sides: list[Any], first: int, twice: bool) -> list[Any]:
    half = len(sides) // 2
    return [first, *sides[:half], first, *sides[half:]] if twice else [first, *sides]


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
        # Between one group and as many as there are channels, a kernel has several of both.
        channels = {o.dims[1] for p, o in places(made) if p[0] not in weights and len(o.dims) > 2}
        for count in sorted(c for c in channels if isinstance(c, int) and c % groups == 0):
            fewer = made
            for place, o in places(made):
                if place[0] in weights and len(o.dims) > 2:
                    fewer = put(fewer, place, reshaped(o, (o.dims[0], count // groups, *o.dims[2:])))
            yield fewer


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


def _strided(rule: Rule, case: Case) -> Iterator[Case]:
    """Zeros around an image that make up for a stride of two: the result is as large as the image, and is something else."""
    for line, weight, sides in kernels(rule, case):
        image = max((o for p, o in places(case) if p[0] != weight), key=lambda o: len(o.dims), default=None)
        if image is None or ("", "ConvTranspose") in line.ops or len(image.dims) != len(sides) + 2:
            continue
        for size in (2, 3, 4):
            # A pool takes fewer zeros than its window is long.
            window = sides if weight else [max(n, size) for n in sides]
            both = [size - 2 + n for n in window]
            wanted = {"pads": [*(n // 2 for n in both), *(n - n // 2 for n in both)], "strides": [2] * len(window)}
            made = told(case, line, wanted if weight else wanted | {"kernel_shape": window})
            if made is not None:
                for place, o in places(case):
                    if o.dims == image.dims and place[0] != weight:
                        made = put(made, place, reshaped(o, (*o.dims[:2], *[size] * len(window))))
                yield made


def _pooled_rank(line: Line, case: Case) -> int:
    """Spatial dimensions of a pool, as its window in the case says."""
    window = attribute_of(case, line, "kernel_shape")
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
