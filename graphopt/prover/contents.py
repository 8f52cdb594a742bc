"""An operand of a case changed: other dimensions, another dtype, contents of every class."""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from graphopt.ir.types import DTYPES, FLOATS, MADE_UP, NUMPY_NAMES
from graphopt.prover.cases import Case, Place, attempt, contents_read, held, operands, places, put, size_of
from graphopt.prover.schemas import OPSETS, attributes_of
from graphopt.prover.values import BESIDE
from graphopt.rewrite.examples import Operand
from graphopt.rewrite.pattern import Line
from graphopt.rewrite.schema import Rule

SYMBOLS = ("S", "T", "U", "V", "W", "P", "Q", "R", "K", "L", "I", "J")
_UNEVEN = (1.000005, 1.3, 17.9)  # what a comparison with a tolerance takes for 1, and what is a power of nothing

_ENDS = (1e-45, 3e38)
_UNCOUNTED = (2**11 + 1, 2**24 + 1, 2**53 + 1)  # the first whole numbers that float16, float32 and float64 do not have
LEVELS = frozenset({"i8", "u8", "i16", "u16"})  # what floats are quantised to
_MANY, _DRAWN = 64, 12  # elements of a list that change one by one; of more, those that are drawn
_ROOM = 16  # elements along each dimension, of which some are as large as such a product
_BITS = 20  # of the distance at which the last whole number that conditions allow is looked for
_STEPS, _HALVES = 6, 20  # how far from a number, and how closely, the end of what conditions allow is looked for


def reshaped(operand: Operand, dims: tuple[Any, ...]) -> Operand:
    """An operand of other dimensions; content that is listed is cut or repeated to fit one dimension."""
    data = operand.data
    if isinstance(data, list):
        if len(dims) != 1 or not isinstance(dims[0], int) or not data:
            return replace(operand, dims=dims, data=None) if operand.dtype in FLOATS else operand
        flat = data if not isinstance(data[0], list) else None
        data = None if flat is None else [flat[i % len(flat)] for i in range(dims[0])]
    return replace(operand, dims=dims, data=data)


def named(case: Case, dtypes: Collection[str] = DTYPES.keys()) -> Case:
    """A symbol for each size but 1, of all operands of some dtypes that are no constants."""
    free = _free(case, dtypes)
    sizes = sorted({d for _, operand in free for d in operand.dims if isinstance(d, int) and d != 1})
    names: dict[Any, Any] = dict(zip(sizes, SYMBOLS, strict=False))
    for place, operand in free:
        case = put(case, place, replace(operand, dims=tuple(names.get(d, d) for d in operand.dims)))
    return case


def hidden(case: Case, dtypes: Collection[str] = DTYPES.keys(), *, ones: bool = True, unknown: bool = False) -> Case:
    """A symbol of its own for each dimension of each operand of some dtypes that is no constant.

    Args:
        case: The case.
        dtypes: Of the operands.
        ones: Whether dimensions of 1 are hidden as well.
        unknown: Whether the symbols are such as nobody chose: nothing is known of the dimensions then.
    """
    names = map(f"{MADE_UP}{{}}".format, itertools.count()) if unknown else itertools.cycle(SYMBOLS)
    for place, operand in _free(case, dtypes):
        dims = tuple(next(names) if ones or d != 1 else d for d in operand.dims)
        case = put(case, place, replace(operand, dims=dims))
    return case


def each_hidden(case: Case) -> Iterator[Case]:
    """The cases of which one dimension of one operand alone has a symbol."""
    for place, operand in _free(case, DTYPES.keys()):
        for i, d in enumerate(operand.dims):
            if d != 1:
                yield put(case, place, replace(operand, dims=(*operand.dims[:i], SYMBOLS[0], *operand.dims[i + 1 :])))


def squared(case: Case, size: int) -> Case:
    """All sizes but 1 are one: types do not tell a matrix from its transpose then."""
    for place, operand in places(case):
        dims = tuple(size if isinstance(d, int) and d > 1 else d for d in operand.dims)
        case = put(case, place, reshaped(operand, dims))
    return case


def _free(case: Case, dtypes: Collection[str]) -> list[tuple[Place, Operand]]:
    return [(place, o) for place, o in places(case) if not o.const and o.dtype in dtypes]


def sizes_behind(case: Case, other: Case) -> dict[str, int]:
    """The sizes in a case for which another one has symbols."""
    pairs = zip(operands(case), operands(other), strict=True)
    dims = [pair for a, b in pairs for pair in zip(a.dims, b.dims, strict=True)]
    return {symbol: size for size, symbol in dims if isinstance(symbol, str) and isinstance(size, int)}


def retyped(operand: Operand, to: str) -> Operand | None:
    """An operand of another dtype, fractions as the next whole numbers away from zero; ``None`` where it can't hold the content."""
    if operand.data is None or (to in FLOATS and operand.dtype in FLOATS):
        return replace(operand, dtype=to)
    if operand.dtype == "bool":
        return None
    if to == "bool":
        return replace(operand, dtype=to, data=_truths(operand.data)) if _within(operand.data, 0, 1) else None
    if to in FLOATS:
        return replace(operand, dtype=to)
    data, info = _integers(operand.data), np.iinfo(NUMPY_NAMES[to])
    return replace(operand, dtype=to, data=data) if _within(data, int(info.min), int(info.max)) else None


def halved(case: Case) -> Case:
    """Attributes rounded to float16 where an operand has that type: what is compared is the law, not how numbers round."""
    if not any(o.dtype == "f16" for o in operands(case)):
        return case
    with np.errstate(over="ignore"):
        return {k: float(np.float16(v)) if isinstance(v, float) else v for k, v in case.items()}


def refilled(
    operand: Operand, rng: np.random.Generator, said: Sequence[float], ends: bool, mask: bool, exact: bool
) -> Iterator[Operand]:
    """A constant with contents of every class.

    Args:
        operand: The constant.
        rng: For what is drawn.
        said: Numbers that the rule's conditions speak of.
        ends: Whether integers at the ends of their type's range are among them.
        mask: Whether one is that takes a single place out, as a mask of attention does.
        exact: Whether floats are that lose their digits, or become infinite, by what is done to them.
    """
    count = size_of(operand)
    if operand.dtype in FLOATS:
        near = (float(m) for n in said for m in (n, n - 1, n + 1, n / 2, *(n * (1 + d) for d in (-BESIDE, BESIDE))))
        floats = dict.fromkeys(
            (0.0, 1.0, -1.0, 0.5, 0.1, -2.5, 2.0, 3.0, 6.0, 1e4, *_UNEVEN, *(_ENDS if exact else ()), *near)
        )
        yield from (replace(operand, data=n) for n in floats)
        yield from _negative_zeros(operand, count) if exact else ()
        if count > 1 and len(operand.dims) == 1:
            yield from (
                replace(operand, data=rng.integers(low, low + 4, count).astype(float).tolist()) for low in (-3, -1, 0)
            )
            yield replace(operand, data=[0.0, *[1.0] * (count - 1)])
            yield replace(operand, data=[*[1.0] * (count - 1), -1.0])
        if isinstance(operand.data, list) and len(operand.dims) == 1:
            # Between two whole numbers, or below 1, as the scale of a Resize may be.
            for i, n in enumerate(operand.data):
                for part in (n + 0.5, n + 0.3, 0.5, 0.3):
                    yield replace(operand, data=[*operand.data[:i], part, *operand.data[i + 1 :]])
        if count > 1 and mask:
            yield replace(operand, data=_nested([0.0] * (count - 1) + [-1e4], operand.dims))
        if operand.data is not None:
            yield replace(operand, data=None)
        if isinstance(operand.data, list) and count > 1:
            # A mask: the same numbers elsewhere, and minus infinity everywhere.
            flat = np.array(operand.data, np.float64)
            yield from (replace(operand, data=rng.permuted(flat).tolist()) for _ in range(8))
            yield from (replace(operand, data=float(n)) for n in np.unique(flat[np.isinf(flat)]))
        return
    if operand.dtype == "bool":
        yield from _booleans(operand, count)
        return
    numbers: tuple[int, ...] = (
        (0, 1, 2, 3, 5, 6, 100) if operand.dtype.startswith("u") else (-1, 0, 1, 2, -2, 3, -3, 5, 6, 100)
    )
    if ends:
        info = np.iinfo(NUMPY_NAMES[operand.dtype])
        beside = (int(n) + d for n in said for d in (0, -1, 1) if info.min <= n + d <= info.max)
        odd = (n for n in _UNCOUNTED if n <= info.max)
        numbers = (*numbers, int(info.max), int(info.min), int(info.max) // 2 + 1, *odd, *beside)
    data = operand.data
    if isinstance(data, list) and data:
        given, shape = np.ravel(data).tolist(), np.shape(data)  # dimensions that were changed alone say something else
        for i in _some(len(given), rng):
            for n in numbers:
                if n != given[i]:
                    yield replace(operand, data=_nested([*given[:i], n, *given[i + 1 :]], shape))
        yield replace(operand, data=_nested(given[::-1], shape))
        if len(operand.dims) == 1:
            yield replace(operand, data=data[:-1], dims=(len(data) - 1,))
            yield from (replace(operand, data=[*data, n], dims=(len(data) + 1,)) for n in numbers[:4])
        return
    yield from (replace(operand, data=n) for n in numbers if n != data)
    if type(data) is int and count > 1:
        for n in {max(data - 1, min(numbers)), 0, 1} - {data}:
            yield replace(operand, data=_nested([*[data] * (count - 1), n], operand.dims))
            yield replace(operand, data=_nested([n, *[data] * (count - 1)], operand.dims))
    if count > 1:
        yield replace(operand, data=_nested(rng.choice(numbers, count).tolist(), operand.dims))


def _some(count: int, rng: np.random.Generator) -> Sequence[int]:
    """Places of elements that change: all of a few, and of many both ends and what is drawn between them."""
    if count <= _MANY:
        return range(count)
    return sorted({0, 1, count - 2, count - 1, *(int(i) for i in rng.integers(count, size=_DRAWN))})


def _negative_zeros(operand: Operand, count: int) -> Iterator[Operand]:
    """Zeros that conditions take for zero, and that are not the same."""
    yield replace(operand, data=-0.0)
    if count > 1:
        yield replace(operand, data=_nested([0.0, *[-0.0] * (count - 1)], operand.dims))


def _booleans(operand: Operand, count: int) -> Iterator[Operand]:
    """A constant that is true, one that is false, and those of which the last element differs."""
    yield from (replace(operand, data=n) for n in (True, False))
    for n in (True, False) if count > 1 else ():
        yield replace(operand, data=_nested([*[n] * (count - 1), not n], operand.dims))


def uneven(rule: Rule, case: Case) -> Iterator[Case]:
    """Cases with a constant that conditions look at as long as some dimension, its elements not alike: what holds for one need not for all."""
    lengths = sorted({d for o in operands(case) for d in o.dims if isinstance(d, int) and d > 1})
    for place, operand in read_alone(rule, case):
        one, count = operand.data, size_of(operand)
        shapes = [*((n,) for n in lengths), *([operand.dims] if len(operand.dims) > 1 and count > 1 else [])]
        for dims, other in itertools.product(shapes, _others(operand)):
            n = math.prod(d for d in dims if isinstance(d, int))
            for data in ([one, *[other] * (n - 1)], [*[other] * (n - 1), one], [other, *[one] * (n - 1)]):
                made = put(case, place, replace(operand, data=_nested(data, dims), dims=dims))
                yield made
                if len(dims) == 1 and size_of(operand) == 1:
                    yield from _as_many(rule, made, place, dims)


def _as_many(rule: Rule, case: Case, place: Place, dims: tuple[Any, ...]) -> Iterator[Case]:
    """A case in which the single numbers that nodes take beside a constant, and beside those, are as many: of scales with zero points."""
    single = {p[0]: (p, o) for p, o in places(case) if o.const and size_of(o) == 1 and p != place}
    lines = [{operand.name for operand in line.operands} for line in rule.match]
    together = {place[0]}
    for _ in lines:
        together |= {name for line in lines if line & together for name in line & single.keys()}
    made = case
    for other, operand in (single[name] for name in sorted(together & single.keys())):
        data = None if operand.data is None else np.ravel(operand.data).tolist() * dims[0]
        made = put(made, other, replace(operand, data=data, dims=dims))
    if made is not case:
        yield made


def read_alone(rule: Rule, case: Case) -> list[tuple[Place, Operand]]:
    """Constants of one number that a rule looks at."""
    read = contents_read(rule)
    return [
        (place, replace(o, data=np.ravel(o.data).tolist()[0]))
        for place, o in places(case)
        if place[0] in read and o.const and o.data is not None and len({*np.ravel(o.data).tolist()}) == 1
    ]


def _others(operand: Operand) -> list[Any]:
    """Numbers other than that of a constant, as far as its type has them."""
    one = operand.data
    if operand.dtype == "bool":
        return [not one]
    if operand.dtype in FLOATS:
        return [1.5 * one or 0.5, -one or -0.5, *([0.0, one / 2] if one else [2.0])]
    info = np.iinfo(NUMPY_NAMES[operand.dtype])
    return [n for n in (one + 3, one - 1, int(info.max), int(info.min)) if n != one and info.min <= n <= info.max]


def edges(rule: Rule, case: Case) -> Iterator[Case]:
    """Cases with the floats that conditions look at, at the ends of what these allow: each alone, and all together.

    What a tolerance hides on small numbers shows only there, far from a zero point at the end of its type, or in half precision.
    """
    read, asked = contents_read(rule), {name for e in rule.where for name in e.names}
    numbers: list[Place] = [
        p for p, o in places(case) if p[0] in read and o.const and o.dtype in FLOATS and type(o.data) in (int, float)
    ]
    captured = (v for line in rule.match for _, v in line.captures if v in asked)
    numbers += [(v, None) for v in captured if type(case.get(v)) is float]
    for base in _bases(case) if numbers else ():
        for place in numbers:
            yield from _ends(rule, base, place, (-1, 1))
        for sign in (-1, 1) if len(numbers) > 1 else ():
            made = base
            for place in numbers:
                made = next(_ends(rule, made, place, (sign,)), made)
            yield made


def _bases(case: Case) -> Iterator[Case]:
    """A case, with its zero points at either end of their type, and in half precision."""
    yield case
    zeros = [(p, o) for p, o in places(case) if o.const and o.dtype in LEVELS and type(o.data) is int]
    for end in ("min", "max") if zeros else ():
        made = case
        for place, zero in zeros:
            made = put(made, place, replace(zero, data=int(getattr(np.iinfo(NUMPY_NAMES[zero.dtype]), end))))
        yield made
    made = case
    for place, operand in places(case):
        made = put(made, place, replace(operand, dtype="f16") if operand.dtype == "f32" else operand)
    yield halved(made)


def edges_apart(rule: Rule, case: Case) -> Iterator[Case]:
    """Cases with one element of a vector of floats at an end of what conditions allow, and the others as they are.

    A single number that they look at is made a vector of each length as well, and an attribute may be written as a whole number.
    """
    whole = [v for line in rule.match for a, v in line.captures if type(case.get(v)) is int and _takes_floats(line, a)]
    if whole:
        yield from edges(rule, {**case, **{v: float(case[v]) for v in whole}})
    read = contents_read(rule)
    lengths = sorted({d for o in operands(case) for d in o.dims if isinstance(d, int) and d > 1})
    vectors = [
        put(case, p, replace(o, data=[o.data] * n, dims=(n,))) for p, o in read_alone(rule, case) for n in lengths
    ]
    for made in (case, *vectors):
        for place, o in places(made):
            if place[0] in read and o.const and o.dtype in FLOATS and isinstance(o.data, list) and len(o.dims) == 1:
                for i in sorted({0, len(o.data) - 1} if o.data else {}):
                    yield from _ends(rule, made, place, (-1, 1), i)
    asked = {name for e in rule.where for name in e.names}
    counts: list[Place] = [
        p for p, o in read_alone(rule, case) if type(o.data) is int and type(held(case, p).data) is int
    ]
    counts += [(v, None) for line in rule.match for _, v in line.captures if v in asked and type(case.get(v)) is int]
    for place in counts:
        yield from _last_whole(rule, case, place, (-1, 1))
    # A product of two is beyond the ends of a type where neither alone is.
    for sign in (-1, 1) if len(counts) > 1 else ():
        made = case
        for place in counts:
            made = next(_last_whole(rule, made, place, (sign,)), made)
        yield from (made, squared(made, _ROOM))


def _last_whole(rule: Rule, case: Case, place: Place, signs: tuple[int, ...]) -> Iterator[Case]:
    """The last whole numbers at which a rule matches, before it ceases to as one of a case grows or shrinks."""
    here = held(case, place)
    number = here.data if isinstance(here, Operand) else here

    def at(n: Any) -> Case:
        return put(case, place, replace(here, data=n) if isinstance(here, Operand) else n)

    for sign in signs:
        inside = number
        outside = next((n for k in range(_BITS) if attempt(rule, at(n := number + sign * 2**k)) is None), None)
        while outside is not None and abs(outside - inside) > 1:
            middle = (inside + outside) // 2
            inside, outside = (inside, middle) if attempt(rule, at(middle)) is None else (middle, outside)
        if inside != number:
            yield at(inside)


def _takes_floats(line: Line, attribute: str) -> bool:
    """Whether an attribute of a line is a float by the operator's description."""
    known = (attributes_of(domain, op, OPSETS[1]).get(attribute) for domain, op in line.ops)
    return any(a is not None and a.type.name == "FLOAT" for a in known)


def _ends(rule: Rule, case: Case, place: Place, signs: tuple[int, ...], i: int | None = None) -> Iterator[Case]:
    """The last numbers at which a rule matches, before it ceases to as one of a case, or of a vector in it, grows or shrinks."""
    here = held(case, place)
    data = here.data if isinstance(here, Operand) else here
    number = float(data if i is None else data[i])

    def at(n: Any) -> Case:
        made: Any = n if i is None else [*data[:i], n, *data[i + 1 :]]
        return halved(put(case, place, replace(here, data=made) if isinstance(here, Operand) else made))

    for sign in signs:
        steps = (sign * (abs(number) or 1.0) * 4.0**k for k in range(-_STEPS, _STEPS + 1))
        tried = [(n, attempt(rule, at(n)) is not None) for n in (number, *(number + step for step in steps))]
        for (near, one), (far, other) in itertools.pairwise(tried):
            if one == other:
                continue
            inside, outside = (near, far) if one else (far, near)
            for _ in range(_HALVES):
                middle = (inside + outside) / 2
                inside, outside = (middle, outside) if attempt(rule, at(middle)) is not None else (inside, middle)
            # A bound of 0 asks for a sign, and is no tolerance: what is next to it is no number that anyone computes with.
            if inside != number and abs(inside) > (abs(number) or 1.0) * 4.0**-_STEPS:
                yield at(inside)


def fitting(others: Sequence[Operand], dtypes: Sequence[str]) -> Iterator[Operand]:
    """What an operand that is absent may be: of each shape that goes with the others, and numbers of each class.

    Args:
        others: The operands that are there.
        dtypes: That it may have, common ones first.
    """
    # Zero points have each the type of what they are of, which may be two.
    found = list(dict.fromkeys(o.dtype for o in others if o.dtype in dtypes)) or [next(iter(dtypes), "f32")]
    others = [o for o in others if o.dtype in FLOATS] or others
    for dtype in found:
        yield from _of_type(others, dtype)


def _of_type(others: Sequence[Operand], dtype: str) -> Iterator[Operand]:
    sizes = sorted({d for o in others for d in o.dims if isinstance(d, int)})
    shapes: dict[tuple[Any, ...], None] = dict.fromkeys([(), (1,), *((d,) for d in sizes)])
    shapes |= dict.fromkeys(o.dims for o in others)
    # The biases of a recurrent layer are two for each row of its weights.
    shapes |= {(o.dims[0], 2 * o.dims[1]): None for o in others if len(o.dims) == 3 and isinstance(o.dims[1], int)}
    for dims in shapes:
        if dtype in FLOATS:
            yield Operand(dtype, dims)
            if all(isinstance(d, int) for d in dims):
                yield Operand(dtype, dims, True)
    if dtype in FLOATS:
        yield from (Operand(dtype, (), True, n) for n in (0.0, -1.0, 0.5, 6.0))
        return
    ends: Any = np.iinfo(NUMPY_NAMES[dtype]) if dtype in LEVELS else None
    numbers: tuple[Any, ...] = (True, False) if dtype == "bool" else (0, 1, -1, 2)
    numbers += (int(ends.min), int(ends.max)) if ends else ()
    yield from (Operand(dtype, (), True, n) for n in numbers)
    yield from (Operand(dtype, (1,), True, [n]) for n in numbers)
    if dtype != "bool":
        yield from (Operand(dtype, (2,), True, d) for d in ([0, 1], [-1, -2]))


def _nested(flat: list[Any], dims: tuple[Any, ...]) -> Any:
    """A flat list as lists of lists."""
    return np.reshape(np.asarray(flat, object), dims).tolist()


def _within(data: Any, least: int, most: int) -> bool:
    return all(_within(d, least, most) for d in data) if isinstance(data, list) else least <= data <= most


def largest(operand: Operand) -> float:
    """The size of the largest number that an operand is known to hold; 0 where it holds any."""
    return 0.0 if operand.data is None else float(np.abs(np.asarray(operand.data, np.float64)).max(initial=0.0))


def _truths(data: Any) -> Any:
    return [_truths(d) for d in data] if isinstance(data, list) else bool(data)


def _integers(data: Any) -> Any:
    if isinstance(data, list):
        return [_integers(d) for d in data]
    return int(math.copysign(math.ceil(abs(data)), data)) if math.isfinite(data) else int(1e30)


def mapped(data: Any, to: dict[int, int]) -> Any:
    """Numbers of one size replaced by another, however deep they lie."""
    if isinstance(data, list):
        return [mapped(d, to) for d in data]
    if isinstance(data, dict):
        return {k: mapped(v, to) for k, v in data.items()}
    return to.get(data, data) if isinstance(data, int) and not isinstance(data, bool) else data
