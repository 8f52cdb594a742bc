"""Sizes for the symbols of a model: some that it runs at, and others, to see that it computes the same at those.

A symbol says nothing of the sizes that a model takes: a sum with a constant of twelve takes twelve or one. So sizes are tried, those
that the graph hints at first, and what the runtime accepts is kept.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from graphopt.runtime.binding import TensorSpec
from graphopt.runtime.feeds import Fill, chosen_dims, fills, likely_sizes, ties, whole
from graphopt.runtime.interfaces import recognise
from graphopt.runtime.ties import Linear

Sizes = dict[str, int]
Runs = Callable[[Sizes], bool]
"""Whether a model runs at these sizes."""

SECONDS = 5.0
"""For a search: of sizes that run, and of others."""
_TRIED = (1, 2, 3, 4, 5, 6, 7, 9, 12, 16, 32, 64, 128, 224, 256, 512)
_FEW = 10  # of those are small
_LONG = (2048, 16384)  # samples of a sound, of which a window of a spectrum takes thousands
_PRIMES = (3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37, 41, 43, 47)
_LARGE = 64  # sizes from here on are those of images and texts
_STRIDE = 32  # what halves an image again and again takes multiples of it
_BOUNDS = 3  # that are tried for each symbol
_SHORT = 0.05  # seconds of an inference that may be made a few times more
_SMALLER = (64, 16)  # than those of images, where attention from pixel to pixel takes more memory than there is


@dataclass(frozen=True)
class Hints:
    """What a graph says of the sizes of its symbols.

    Attributes:
        sizes: For each symbol the sizes that operators seem to ask of it, those of the most operators first.
        equal: Sums that operators hold against each other.
        bounds: Numbers that sizes are held against, the largest first: above one the model may compute something else.
        elements: Shapes of the tensors in sequences, by input: what the runtime does not tell.
        known_as: Names that inputs would have elsewhere, by the operands that they are.
        known: Sizes at which the model has run: where to begin.
    """

    sizes: Mapping[str, Sequence[int]] = field(default_factory=dict)
    equal: Sequence[tuple[Linear, Linear]] = ()
    bounds: Sequence[int] = ()
    elements: Mapping[str, tuple[int | str | None, ...]] = field(default_factory=dict)
    known_as: Mapping[str, str] = field(default_factory=dict)
    known: Mapping[str, int] = field(default_factory=dict)

    def completed(self, specs: Iterable[TensorSpec]) -> list[TensorSpec]:
        """Inputs with the shapes of what sequences hold, see :attr:`elements`, and what they would be called elsewhere."""
        return [
            replace(
                s,
                shape=self.elements[s.name] if s.kind == "sequence" and s.name in self.elements else s.shape,
                known_as=self.known_as.get(s.name, ""),
            )
            for s in specs
        ]


@dataclass(frozen=True)
class Symbols:
    """The sizes that may be chosen.

    Attributes:
        free: The symbols that nobody has chosen a size of.
        start: Where to begin: likely sizes of those, and the sizes that were chosen.
        hints: Sizes to try, by symbol, besides the likely one.
        tied: The symbols that depend on others, and how.
        empty: Those of the free ones that may well be 0: what is past.
        bounds: What sizes are held against, see :class:`Hints`.
    """

    free: tuple[str, ...]
    start: Sizes
    hints: Mapping[str, Sequence[int]] = field(default_factory=dict)
    tied: Mapping[str, Linear] = field(default_factory=dict)
    empty: tuple[str, ...] = ()
    bounds: Sequence[int] = ()

    @classmethod
    def of(
        cls,
        specs: Sequence[TensorSpec],
        dims: Mapping[str, int] | None = None,
        overrides: Mapping[str, Any] | None = None,
        hints: Hints | None = None,
        equal: Sequence[tuple[Linear, Linear]] = (),
    ) -> Symbols:
        """The symbols of some inputs.

        Args:
            specs: The inputs, see :func:`graphopt.runtime.feeds.named`.
            dims: Sizes that the caller has chosen.
            overrides: Arrays that the caller has chosen; the symbols of their shapes are taken.
            hints: Sizes that the graph speaks of.
            equal: Sums that are taken to be equal.

        Raises:
            UnknownNameError: ``dims`` names no symbol.
            UsageError: A size is negative, or an override does not fit.
        """
        hints, given = hints or Hints(), chosen_dims(specs, dims or {}, overrides)
        tied = ties(specs, given, equal)
        interface, usual = recognise(specs), likely_sizes(specs)
        roles, known = interface.role_of(specs), interface.likely(specs)
        free = tuple(s for s in usual if s not in given and s not in tied)
        options = {s: [*hints.sizes.get(s, ()), *known.get(s, ())[1:]] for s in free}
        for name, sum in tied.items():
            if len(sum) == 1 and (other := next(iter(sum))) in options:
                options[other] += [size for size in hints.sizes.get(name, ()) if size not in options[other]]
        past = tuple(s for s in free if roles.get(s, s.lower()).startswith("past"))
        return cls(
            free, {**{s: hints.known.get(s, usual[s]) for s in free}, **given}, options, tied, past, hints.bounds
        )

    @classmethod
    def choices(
        cls,
        specs: Sequence[TensorSpec],
        dims: Mapping[str, int] | None = None,
        overrides: Mapping[str, Any] | None = None,
        hints: Hints | None = None,
    ) -> list[Symbols]:
        """What to try one after the other: all that seems to depend on each other does, what the names say alone, nothing."""
        names, used = list(recognise(specs).equations(specs)), list((hints or Hints()).equal)
        found: list[Symbols] = []
        for equal in ([*names, *used], names, []):
            each = cls.of(specs, dims, overrides, hints, equal)
            if all(each.tied != other.tied for other in found):
                found.append(each)
        return found

    def whole(self, sizes: Mapping[str, int]) -> Sizes:
        """Sizes with those that depend on them."""
        return whole({name: size for name, size in sizes.items() if name not in self.tied}, self.tied)


def fitting(choices: Sequence[Symbols], runs: Runs, seconds: float = SECONDS) -> tuple[Symbols, Sizes] | None:
    """The first of some choices with sizes that a model runs at."""
    for symbols in choices:
        sizes = first_that_run(symbols, runs, seconds)
        if sizes is not None:
            return symbols, sizes
    return None


def filled(
    specs: Sequence[TensorSpec], choices: Sequence[Symbols], runs: Callable[[Sizes, Fill], bool]
) -> tuple[Symbols, Sizes, Fill] | None:
    """The first of some choices with sizes that a model runs at, and what its whole numbers are there."""
    for fill in fills(specs):

        def runs_so(sizes: Sizes, fill: Fill = fill) -> bool:
            return runs(sizes, fill)

        found = fitting(choices, runs_so, SECONDS if fill is None else SECONDS / 5)
        if found is not None:
            return *found, fill
    return None


def first_that_run(symbols: Symbols, runs: Runs, seconds: float = SECONDS) -> Sizes | None:
    """Sizes that a model runs at, likely ones if they do; ``None`` when none was found in time.

    However long large sizes took to fail, smaller ones are tried.
    """
    began, seen = time.monotonic(), list[Sizes]()
    smaller = [symbols.whole(sizes) for sizes in _smaller(symbols)]
    for proposal in _proposals(symbols):
        sizes = symbols.whole(proposal)
        if sizes in seen:
            continue
        if seen and time.monotonic() - began > seconds and sizes not in smaller:
            continue
        seen.append(sizes)
        if runs(sizes):
            return sizes
    return None


def _proposals(symbols: Symbols) -> Iterator[Sizes]:
    free, start, hints = symbols.free, symbols.start, symbols.hints
    yield start
    if not free:
        return
    hinted = _hinted(symbols)
    yield {**start, **hinted}
    yield from _smaller(symbols)
    # Small ones first: what does not run at many sizes takes long to say so at large ones.
    for tried in (_TRIED[:_FEW], _TRIED[_FEW:]):
        for size in (
            *sorted({h for s in free for h in hints.get(s, ()) if (h <= _TRIED[_FEW - 1]) == (tried[0] == 1)}),
            *tried,
        ):
            yield {**start, **dict.fromkeys(free, size)}
            yield {**start, **dict.fromkeys(free, size), **hinted}
        for symbol in free:
            for size in (*hints.get(symbol, ()), *tried):
                yield {**start, **hinted, symbol: size}
                yield {**start, symbol: size}
    for symbol in free:
        for size in _LONG:
            yield {**start, symbol: size}


def _hinted(symbols: Symbols) -> Sizes:
    return {s: symbols.hints[s][0] for s in symbols.free if symbols.hints.get(s)}


def _smaller(symbols: Symbols) -> list[Sizes]:
    """Smaller sizes in place of those of images."""
    start = symbols.start
    large = [s for s in symbols.free if start[s] > _LARGE]
    return [{**start, **_hinted(symbols), **dict.fromkeys(large, size)} for size in _SMALLER if large]


def others(symbols: Symbols, base: Sizes, runs: Runs, seconds: float = SECONDS) -> list[Sizes]:
    """More sizes that a model runs at: each symbol at another size than in ``base``, small, at 1, without a past, and beyond bounds.

    Symbols get sizes that differ from each other, where the model takes that: what is equal by chance hides mistakes.
    """
    deadline, longest = time.monotonic() + seconds, 0.0

    def tried(sizes: Sizes) -> bool:
        nonlocal longest
        began = _clocks()
        ran = time.monotonic() < deadline and runs(symbols.whole(sizes))
        longest = max(longest, _since(began))
        return ran

    if not symbols.free:
        return []
    found: list[Sizes] = []
    for find in (_another, _small, _ones, _empty, _beyond):
        if find is _beyond and longest > _SHORT:
            break
        sizes = find(symbols, base, tried)
        each = None if sizes is None else symbols.whole(sizes)
        if each is not None and each != base and each not in found:
            found.append(each)
    return found


def _another(symbols: Symbols, base: Sizes, runs: Runs) -> Sizes | None:
    free = symbols.free
    large = any(base[s] >= _LARGE for s in free)
    for different in (_odd, _different) if large else (_different,):
        distinct = {**base, **{s: different(base[s], i) for i, s in enumerate(free)}}
        if runs(distinct):
            return distinct
    for size in (2, 3, 4, 5, 16, 2 * max(base[s] for s in free)):
        same = {**base, **dict.fromkeys(free, size)}
        if all(base[s] != size for s in free) and runs(same):
            return same
    return _one_by_one(base, {s: [_different(base[s], i), *_near(symbols, base, s)] for i, s in enumerate(free)}, runs)


def _small(symbols: Symbols, base: Sizes, runs: Runs) -> Sizes | None:
    """Small sizes in place of large ones: what is cut at ten, say, is not cut there."""
    small = {s: _PRIMES[i % len(_PRIMES)] for i, s in enumerate(symbols.free) if base[s] >= _LARGE}
    return {**base, **small} if small and runs({**base, **small}) else None


def _ones(symbols: Symbols, base: Sizes, runs: Runs) -> Sizes | None:
    ones = {**base, **dict.fromkeys(symbols.free, 1)}
    if ones == base or runs(ones):
        return ones
    return _one_by_one(base, {s: [1] for s in symbols.free if base[s] != 1}, runs)


def _empty(symbols: Symbols, base: Sizes, runs: Runs) -> Sizes | None:
    none = {**base, **dict.fromkeys(symbols.empty, 0)}
    return none if symbols.empty and runs(none) else None


def _beyond(symbols: Symbols, base: Sizes, runs: Runs) -> Sizes | None:
    """Symbols above the largest bound that they can pass, the last first; nothing where that takes long.

    Below a bound, a model that clips there and one that does not are the same.
    """

    def seconds(sizes: Sizes) -> float:
        began = _clocks()
        return _since(began) if runs(sizes) else math.inf

    if not symbols.bounds or (took := seconds(base)) > _SHORT:
        return None
    sizes = dict(base)
    for i, symbol in reversed(list(enumerate(symbols.free))):
        above = [bound + 1 + i for bound in symbols.bounds if bound >= base[symbol]]
        # Twice as many elements take twice as long at least.
        for size in [n for n in above if took * n / max(1, base[symbol]) <= _SHORT][:_BOUNDS]:
            larger = {**sizes, symbol: size}
            if (then := seconds(larger)) <= _SHORT:
                sizes, took = larger, then
                break
    return sizes if sizes != base else None


def _clocks() -> tuple[float, float]:
    return time.monotonic(), time.process_time()


def _since(began: tuple[float, float]) -> float:
    """Seconds that were worked since then: by the clock, or less where other programs had the processor meanwhile."""
    return min(now - then for now, then in zip(_clocks(), began, strict=True))


def _one_by_one(base: Sizes, choices: Mapping[str, Sequence[int]], runs: Runs) -> Sizes | None:
    """Change symbol after symbol, as far as the model runs."""
    sizes = dict(base)
    for symbol, options in choices.items():
        for size in dict.fromkeys(options):
            if size != base[symbol] and size > 0 and runs({**sizes, symbol: size}):
                sizes[symbol] = size
                break
    return sizes if sizes != base else None


def _odd(size: int, index: int) -> int:
    """As :func:`_different`, and no multiple of anything where ``size`` is large: halved again and again it is rounded."""
    return size // 4 * 2 + 1 + 2 * index if size >= _LARGE else _different(size, index)


def _different(size: int, index: int) -> int:
    """Another size than ``size``, for each index its own; an even one for an odd one, and the other way round."""
    if size >= _LARGE:
        below = [size - _STRIDE * (i + 1) for i in range(size // _STRIDE - 1)]
        return below[index] if index < len(below) else size + _STRIDE * (index - len(below) + 1)
    rest = [2 * p for p in (2, *_PRIMES)] if size % 2 else _PRIMES
    return rest[index] if index < len(rest) else size + 51 + 2 * index


def _near(symbols: Symbols, base: Sizes, symbol: str) -> list[int]:
    size = base[symbol]
    return [*symbols.hints.get(symbol, ()), 2, size // 2, 2 * size, size + 1, size - 1, 3 * size]
