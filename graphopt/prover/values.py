"""Contents of operands by class: what both sides of a rule are run on.

A rule that claims to be exact meets zeros of both signs, infinities, NaN and subnormal numbers. One that claims to be the
same function of real numbers meets zeros, equal elements, negative numbers alone, small numbers on a large offset, and a
ladder of magnitudes. Integers go over the whole range of their type, unless they say a shape or a divisor.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import isqrt, prod
from typing import Any

import numpy as np

from graphopt.ir.graph import Graph, Node
from graphopt.ir.types import FLOATS, NUMPY_NAMES, Array
from graphopt.prover.domains import WIDER
from graphopt.prover.hazards import COUNTING
from graphopt.rewrite.schema import Rule

_SPECIAL = (0.0, -0.0, 1.0, -1.0, np.inf, -np.inf, np.nan, 0.5, -2.5, 3.0, 120.0, -120.0,
            2049.0, 16777217.0, 1 + 1e-12, 1 + 2.0**-11 + 2.0**-30)  # fmt: skip
"""The last four are other numbers in float16 and in float32; the last of all is another float16 by way of float32."""
_EXTREME = (0.0, 1.0, -1.0, 3.0, -3.0, 9.0, -9.0, 30.0, -30.0, 150.0, -150.0, 250.0, 1e-6, -1e-6, 1e-30, 1e-40, -1e-40,
            1e4, -1e4, 1e30, -1e30, 3e38, -3e38, 1e-45, 4.2e-45, np.inf, -np.inf, np.nan)  # fmt: skip


@dataclass(frozen=True)
class Fill:
    """A class of contents.

    Attributes:
        name: What it is called in a counterexample.
        magnitude: Size of the floats; 0 where they are drawn from a pool.
        pool: Floats to draw from.
        sign: 1 or -1 for numbers of one sign.
        offset: Added to all floats of an array.
        outlier: What one of the floats is multiplied by; 0 for none.
        integers: ``small``, ``full`` (range of the type), ``between`` (of all sizes up to its ends), ``ends`` (and what is
            near 0), ``top`` (the largest alone: of small ones no sum outgrows what floats count to) or ``own``.
        truth: ``True`` or ``False`` for all truth values; ``None`` for either.
        finite: Whether all floats are, and of moderate size: what an integer can be made of.
        alike: Whether operands of one shape hold nearly the same, so that their difference is small.
        within: The size of the largest integer.
        own: The integers to draw from, where they are ``own``.
        rising: Whether floats rise from element to element: the largest stands in the last place.
        beyond: Integers are this one or some of the next, in types that have it, also those of which others are counted; 0 for none.
    """

    name: str
    magnitude: float = 0.0
    pool: tuple[float, ...] = ()
    sign: int = 0
    offset: float = 0.0
    outlier: float = 0.0
    integers: str = "small"
    truth: bool | None = None
    finite: bool = True
    alike: bool = False
    within: float = np.inf
    own: tuple[int, ...] = ()
    rising: bool = False
    beyond: int = 0

    @property
    def largest(self) -> float:
        """The size of the largest float that may be among them."""
        return max(map(abs, self.pool), default=2 * self.magnitude * max(self.outlier, 1.0)) + abs(self.offset)

    def floats(self, shape: tuple[int, ...], rng: np.random.Generator) -> Array:
        """Floats, as float64."""
        if self.rising:
            return np.arange(prod(shape), dtype=np.float64).reshape(shape)
        if self.pool:
            return np.asarray(rng.choice(np.array(self.pool), shape))
        made = rng.uniform(0.25, 2.0, shape) * self.magnitude
        if self.outlier and made.size:
            made.reshape(-1)[int(rng.integers(made.size))] *= self.outlier
        return np.asarray(made * (self.sign or rng.choice([-1.0, 1.0], shape)) + self.offset)

    def whole(self, dtype: Any, shape: tuple[int, ...], rng: np.random.Generator, use: str) -> Array:
        """Integers; ``use`` is ``shape``, ``divisor``, ``count`` or empty."""
        info = np.iinfo(dtype)
        if use in ("", "count") and 0 < self.beyond < info.max - 4:
            return np.asarray(self.beyond + rng.integers(0, 4, shape)).astype(dtype)
        if use == "shape" or (use == "count" and self.integers == "small"):
            low, high = ((0, 3), (-2, 3), (1, 4), (2, 8))[int(rng.integers(4))]
            return np.asarray(rng.integers(max(low, info.min), high, shape)).astype(dtype)
        if use == "count" and self.integers != "small":
            chosen = (_LONG,) if self.integers == "ends" else (0, 1, 2, 7, 300, _LONG)
            return np.asarray(rng.choice(chosen, shape)).astype(dtype)
        if use == "divisor" and self.integers != "small":
            made = rng.integers(info.min, info.max, shape, dtype, endpoint=True)
            return np.where((made == 0) | (made == np.array(-1).astype(dtype)), np.array(3, dtype), made)
        if use == "divisor":
            made = np.asarray(rng.integers(1, 8, shape))
            return (made * rng.choice([-1, 1], shape) if info.min < 0 else made).astype(dtype)
        made = self._any(dtype, info, shape, rng)
        return made if self.within >= info.max else np.clip(made, max(int(-self.within), info.min), int(self.within))

    def _any(self, dtype: Any, info: Any, shape: tuple[int, ...], rng: np.random.Generator) -> Array:
        if self.integers == "full":
            return np.asarray(rng.integers(info.min, info.max, shape, dtype, endpoint=True))
        if self.integers == "between":
            size = 2.0 ** rng.uniform(2, info.bits - 1, shape)
            return np.asarray(size * rng.choice([-1.0, 1.0] if info.min else [1.0], shape)).astype(dtype)
        if self.integers == "top":
            return np.asarray(info.max - rng.integers(0, 3, shape).astype(dtype))
        if self.integers == "own":
            own = [n for v in self.own for n in (v, -v) if info.min <= n <= info.max]
            return np.asarray(rng.choice(np.array(own or [0], dtype), shape))
        if self.integers == "ends":
            ends = [info.min, info.max, info.max - 1, 0, 1, max(info.min, -1), *([_TWICE] * (info.bits == 64))]
            return np.asarray(rng.choice(np.array(ends, dtype), shape))
        return np.asarray(rng.integers(max(-4, info.min), 5, shape)).astype(dtype)


_SUPPLY = 1024  # floats drawn at once: drawing some costs less than to begin
_TWICE = 2**60 + 2**36 + 1  # another float32 by way of float64
_HALF = 30.0  # largest float16 under a claim about real numbers: sums of some products of it are numbers still
_COUNTED = 53  # bits up to which a float64 counts
_LONG = 2100  # more than float16 counts to
_APART = 1e-4  # of operands that are nearly equal

SIGNS = "zeros of both signs"
ORDINARY = Fill("ordinary numbers", 1.0)
_TIES = Fill("small whole numbers", pool=(-2.0, -1.0, 0.0, 1.0, 2.0), integers="full", truth=True)
_NEGATIVE = Fill("negative numbers", 1.0, sign=-1, truth=False)
_POSITIVE = Fill("positive numbers", 1.0, sign=1, integers="top")
_COMMON = (
    ORDINARY,
    _TIES,
    _NEGATIVE,
    _POSITIVE,
    Fill("zeros", pool=(0.0,), integers="ends"),
    Fill("large numbers", 1e3, integers="ends"),
    Fill("small numbers", 1e-3, integers="between"),
)
EXACT = (
    *_COMMON,
    Fill("special numbers", pool=_SPECIAL, integers="ends", finite=False),
    Fill(SIGNS, pool=(0.0, -0.0)),
    Fill("extreme numbers", pool=_EXTREME, finite=False),
    Fill("huge numbers", 1e30, finite=False),
)
REAL = (
    *_COMMON,
    Fill("numbers around 30", 5.0, sign=1, offset=25.0),
    Fill("numbers around -30", 5.0, sign=-1, offset=-25.0),
    Fill("numbers near 1000", 1.0, offset=1e3),
    Fill("huge numbers", 1e10, finite=False),
    Fill("tiny numbers", 1e-8),
    Fill("operands that are nearly equal", 1.0, alike=True),
)


NARROWED = (
    Fill("numbers that cancel", pool=(1e8, -1e8, 1.0, 0.5), finite=False),
    Fill("numbers whose squares overflow", 1e25, finite=False),
    Fill("numbers of very different size", pool=(1e50, 1e-50, 1e25, 1e-25), finite=False),
)
"""For rules that leave a wider type out, which may have been there for its range or its digits."""


BEYOND_FLOAT32 = Fill("numbers beyond float32", pool=(1e60, -1e60, 1e-60, -1e-60, 1.0), finite=False)
"""What float64 has and a narrower type makes infinity, or nothing, of."""


SUMMED = (
    Fill("enormous numbers", 1e25, finite=False),
    Fill("numbers near the largest", 1e33, finite=False),
    Fill("numbers of which one is large", 1.0, outlier=1e8, finite=False),
)
"""For patterns that take no products, nor quotients. The squares of the first overflow, which another grouping may take in passing; less does of the second.
What a result does not depend on, and a replacement adds and subtracts again, takes the result's digits along, as it may in a product by fewer ones.
"""
_FEW = 64  # bytes of a constant that a rule names
_NOBODY = 1e9  # numbers beyond are infinities in disguise
BESIDE = 2.0**-10
"""How far from a number that a rule names another is, in proportion: as a float32 either may be on the other side."""
OWN, NEXT_TO = "numbers of the rule", "numbers next to those of the rule"
PLACES = {"bf16": 2.0**-7, "f16": 2.0**-10, "f32": 2.0**-23, "f64": 2.0**-52}
"""Distance of neighbours from 1 to 2; two over it is the number up to which the type counts."""
_LAST = (PLACES["f32"], PLACES["f64"])
_NEARLY_TWO = 1.9375  # a product of less than 2 has fewer digits behind the point as soon as it is 1 or more
_COMPARED = ("ArgMax", "ArgMin", "TopK", "Hardmax", "Unique", "Equal", "Less", "Greater")
"""What operators are called, at first, whose result tells two numbers apart, however near they are."""
_REDUCED = frozenset({"ReduceSum", "ReduceMean", "ReduceL1", "ReduceProd", "ReduceSumSquare"})
"""Of integers the runtime makes them in float64, and stops at the ends of the type."""
_PRODUCTS = frozenset({"MatMul", "Gemm", "Conv", "ConvTranspose", "Einsum", "Div", "Reciprocal", "Pow"})


def multiplies(graph: Graph) -> bool:
    """Whether a graph takes sums of products, quotients, or powers, but for those below a square, which hold what a square does not."""
    return any(node.op in _PRODUCTS and not _below_square(graph, node) for node in graph.nodes.values())


def _below_square(graph: Graph, node: Node) -> bool:
    exponent = graph.values[node.inputs[1]].tensor if node.op == "Pow" and node.inputs[1] is not None else None
    return exponent is not None and bool(((exponent.numpy() >= -1) & (exponent.numpy() < 2)).all())


def compares(graph: Graph) -> bool:
    """Whether an operator of a graph tells two numbers apart, however near they are."""
    return any(node.op.startswith(_COMPARED) for node in graph.nodes.values())


def makes_sums(rule: Rule) -> bool:
    """Whether a side of a rule makes sums, which of integers a claim about real numbers asks only while they are whole numbers in float64."""
    return any(op in _REDUCED for line in (*rule.match, *rule.replace) for _, op in line.ops)


def limits(*graphs: Graph) -> Callable[[np.dtype[Any], tuple[int, ...]], float]:
    """The largest numbers that operands of a dtype and a shape hold under a claim about real numbers: none becomes infinite by being stored.

    Where a graph reduces integers, sums of some products of them are whole numbers still, however many there are.
    """
    reduces = any(node.op in _REDUCED for graph in graphs for node in graph.nodes.values())
    # What the pattern has made wider before it is summed up has room, which a replacement must not lack.
    summed = _summed_in(graphs[0])
    products = any(node.op in _PRODUCTS | {"Mul", "ReduceProd", "ReduceSumSquare"} for node in graphs[0].nodes.values())

    def limit(dtype: np.dtype[Any], shape: tuple[int, ...]) -> float:
        if dtype.kind == "f":
            return _HALF if dtype.itemsize == 2 else float(np.finfo(dtype).max)
        if not reduces or dtype.kind not in "iu" or dtype.itemsize < 4:
            return np.inf
        if summed > 8 * dtype.itemsize and not products:
            room = 2**_COUNTED // max(prod(shape), 1)
            return np.inf if room > np.iinfo(dtype).max else room
        return isqrt(2 ** min(8 * dtype.itemsize - 1, _COUNTED) // max(prod(shape), 1))

    return limit


def _summed_in(graph: Graph) -> int:
    """Bits of the narrowest integers that a graph reduces; 0 where it reduces none."""
    dtypes = [
        graph.type(key).dtype for node in graph.nodes.values() if node.op in _REDUCED for key in node.inputs[:1] if key
    ]
    return min((8 * np.dtype(NUMPY_NAMES[d]).itemsize for d in dtypes if d is not None and d[0] in "iu"), default=0)


def extreme(domain: float | None) -> Fill:
    """What approximations meet, element by element: tiny, denormal, huge, and no numbers at all."""
    # At the very end of the range the halves of a sum overflow: of no account to an approximation.
    kept = tuple(v for v in _EXTREME if (domain is None or abs(v) <= domain) and not 1e38 < abs(v) < np.inf)
    return Fill("extreme numbers", pool=kept, finite=False, within=np.inf if domain is None else domain)


@lru_cache(maxsize=4096)
def content(
    fill: Fill, name: str, seed: int, dtype: np.dtype[Any], shape: tuple[int, ...], use: str, limit: float
) -> Array:
    """What an operand holds; the same in every process.

    Args:
        fill: The class of contents.
        name: Name of the operand.
        seed: Of the random numbers.
        dtype: Its dtype.
        shape: Its shape.
        use: What integers are for: ``shape``, ``divisor``, ``count`` or nothing special.
        limit: The largest number.
    """
    if dtype.kind == "f":
        made = _floats(fill, name, shape, seed)
        with np.errstate(over="ignore"):
            if fill.alike:
                made = _floats(fill, "", shape, seed) * (1 + _APART * made)
            made = np.asarray(np.clip(made, -limit, limit)).astype(dtype)
        made.flags.writeable = False
        return made
    rng = rng_of(name, seed, len(fill.name))
    if dtype.kind == "b":
        made = np.full(shape, fill.truth) if fill.truth is not None else rng.integers(0, 2, shape) > 0
    else:
        made = fill.whole(dtype, shape, rng, use)
        if limit < np.inf and not use and not fill.own:  # the rest, as all would be alike at the limit
            made = np.fmod(made, np.array(int(limit) + 1, dtype))
    made = np.asarray(made)
    made.flags.writeable = False
    return made


def _floats(fill: Fill, name: str, shape: tuple[int, ...], seed: int) -> Array:
    """Floats of a class for an operand: what is small is cut from the same numbers."""
    count = prod(shape)
    if count > _SUPPLY or fill.outlier:
        return fill.floats(shape, rng_of(name, seed, len(fill.name)))
    return _supply(fill, name, seed)[:count].reshape(shape)


@lru_cache(maxsize=2048)
def _supply(fill: Fill, name: str, seed: int) -> Array:
    return fill.floats((_SUPPLY,), rng_of(name, seed, len(fill.name)))


def rng_of(name: str, *seed: int) -> np.random.Generator:
    """Random numbers of an operand, the same in every process."""
    own = int.from_bytes(hashlib.blake2b(name.encode(), digest_size=4).digest(), "little")
    return np.random.default_rng((*seed, own))


# Operands that say where, or how large a result is: an integer of full range there would ask for all memory there is.
SHAPES: dict[str, tuple[int, ...]] = {
    "Reshape": (1,), "Expand": (1,), "Tile": (1,), "ConstantOfShape": (0,), "Pad": (1, 3), "Resize": (2, 3),
    "OneHot": (1,), "TopK": (1,), "Split": (1,), "CenterCropPad": (1,), "Squeeze": (1,), "Unsqueeze": (1,), "Slice": (1, 2, 3, 4),
    "Gather": (1,), "GatherElements": (1,), "GatherND": (1,), "ScatterND": (1,), "ScatterElements": (1,), "CumSum": (1,),
    "ReverseSequence": (1,), "Trilu": (1,), "Col2Im": (1, 2), "Upsample": (1,), "DFT": (1, 2), "EyeLike": (), "AffineGrid": (1,), "MaxUnpool": (2,), "STFT": (1, 3),
    "ReduceSum": (1,), "ReduceMean": (1,), "ReduceMax": (1,), "ReduceMin": (1,), "ReduceProd": (1,), "ReduceL1": (1,),
    "ReduceL2": (1,), "ReduceLogSum": (1,), "ReduceLogSumExp": (1,), "ReduceSumSquare": (1,), "Pow": (1,),
}  # fmt: skip


def uses(*graphs: Graph, only: str = "") -> dict[int, str]:
    """What integers of the graphs are for: ``shape``, ``divisor`` or ``count`` by key, through whatever computes them.

    Args:
        graphs: The graphs.
        only: The use to look for; either by default.
    """
    found: dict[int, str] = {}
    for graph in graphs:
        for node in graph.nodes.values():
            for i in range(len(node.inputs) * (node.op in COUNTING)):
                _mark(graph, node, i, only or "count", found)
    for graph in graphs:
        for node in graph.nodes.values():
            for i in SHAPES.get(node.op, ()):
                _mark(graph, node, i, "shape", found)
            if node.op in ("Div", "Mod") and only != "shape":
                _mark(graph, node, 1, "divisor", found)
    return found


FACTORS = {"Resize": 2, "Upsample": 1, "RoiAlign": 1}
"""Operands that say how many times as large a result is, of four axes a thousand times as large no memory holds any, or how large a region: of
one of a thousand pixels RoiAlign takes so many samples that a run lasts ten seconds."""
MOST_TIMES = 20.0


def factors(*graphs: Graph) -> Collection[int]:
    """Keys of what says how large a result or a region is, through whatever computes it."""
    found: dict[int, str] = {}
    for graph in graphs:
        for node in graph.nodes.values():
            if node.op in FACTORS:
                _mark(graph, node, FACTORS[node.op], "shape", found)
    return found.keys()


def _mark(graph: Graph, node: Node, operand: int, use: str, found: dict[int, str]) -> None:
    stack = [node.inputs[operand]] if operand < len(node.inputs) else []
    while stack:
        key = stack.pop()
        if key is None or found.get(key) in (use, "shape"):
            continue
        found[key] = use
        maker = graph.values[key].producer
        if maker is not None:
            stack += graph.nodes[maker].inputs


def widened(graph: Graph) -> bool:
    """Whether a graph computes in a wider floating-point type than it was given, or gives back."""
    cast = ("Cast", "CastLike")
    return any(
        (node.op in cast and str(graph.type(key).dtype) in WIDER.get(str(graph.type(out).dtype), ()))
        or (node.op in cast and str(graph.type(out).dtype) in WIDER.get(str(graph.type(key).dtype), ()))
        for node in graph.nodes.values()
        for key, out in zip(node.inputs[:1], node.outputs[:1], strict=True)
        if key is not None and out is not None and graph.type(key).dtype in FLOATS and graph.type(out).dtype in FLOATS
    )


_ROUNDED = ("Cast", "CastLike")
"""What makes integers of floats and does not stop at the ends of the type: a number out of range becomes anything."""


def cast_operands(graph: Graph) -> dict[int, str]:
    """The floats that are cast to integers, by key, and the type of these."""
    return {node.inputs[0]: to for node, to in _integers_of_floats(graph) if node.op in _ROUNDED and node.inputs[0]}


def makes_integers(graph: Graph) -> bool:
    """Whether floats become integers somewhere: what no number is, or out of range, there is undefined."""
    return any(True for _ in _integers_of_floats(graph))


def _integers_of_floats(graph: Graph) -> Iterator[tuple[Node, str]]:
    for node in graph.nodes.values():
        if node.op in (*_ROUNDED, "QuantizeLinear", "DynamicQuantizeLinear") and node.outputs and node.inputs:
            of, to = (None if key is None else graph.type(key).dtype for key in (node.inputs[0], node.outputs[0]))
            if of in FLOATS and to is not None and to[0] in "iu":
                yield node, to


def own_numbers(rule_graphs: Sequence[Graph], given: Collection[int]) -> tuple[float, ...]:
    """Numbers that a rule names, in few constants or attributes of its own.

    Args:
        rule_graphs: Its pattern and its replacement.
        given: Keys of constants that stand for any content.
    """
    found: set[float] = set()
    for graph in rule_graphs:
        for key, value in graph.values.items():
            if value.tensor is not None and key not in given and (value.type.nbytes or 0) <= _FEW:
                content = np.asarray(value.tensor.numpy())
                found.update(content.ravel().astype(float).tolist() if content.dtype.kind in "fiu" else ())
        for node in graph.nodes.values():
            found.update(v for v in node.attributes.values() if type(v) is float)
    return tuple(sorted(v for v in found if v and np.isfinite(v) and abs(v) < _NOBODY))


def around(numbers: Sequence[float]) -> Fill:
    """Contents at, beside and about some numbers: a threshold that a rule names is where its two sides part."""
    sizes = sorted({abs(v) for v in numbers})
    beside = tuple(v * factor for v in sizes for factor in (1.0, 1 - BESIDE, 1 + BESIDE, 0.5, 1.5))
    whole = tuple(sorted({n + d for n in map(round, sizes) for d in (-1, 0, 1)}))
    return Fill(OWN, pool=(*beside, *(-v for v in beside)), integers="own", own=whole)


def next_to(numbers: Sequence[float]) -> Fill:
    """The numbers of each type that follow some numbers: a bound moved through an operator that rounds is off by one of them."""
    factors = (1.0, *(1 + sign * place for place in _LAST for sign in (-1, 1)))
    return Fill(NEXT_TO, pool=tuple(v * factor for v in numbers for factor in factors))


def neighbours(graph: Graph) -> tuple[Fill, ...]:
    """Numbers that follow one another in a type of the operands: what rounds makes one number of two, of which an operator that compares took one."""
    used = PLACES.keys() & {str(graph.type(key).dtype) for key in graph.inputs}
    pools = {t: tuple(_NEARLY_TWO + n * PLACES[t] for n in range(4)) for t in sorted(used)}
    return tuple(Fill(f"neighbours in {t}", pool=pool) for t, pool in pools.items())


def of_range(dtypes: Collection[str]) -> Fill:
    """Floats up to the ends of the narrowest of some types of integers."""
    kinds = [np.iinfo(NUMPY_NAMES[d]) for d in dtypes]
    low, high = max(float(k.min) for k in kinds), min(float(k.max) for k in kinds)
    # The type of the floats may have no number as near to the end as that.
    sizes = [s for bits in (7, 8, 15, 16, 24, 31, 32, 53) for s in (2.0**bits - 1, 2.0**bits, 2.0**bits + 1)]
    inside = [s for s in (*sizes, 0.99 * high) if s <= 0.99 * high] + [0.0, 0.5, 1.5, high / 2]
    pool = (*inside, *(-s for s in inside if -s >= 0.99 * low))
    return Fill("numbers of the range of integers", pool=pool)
