"""Sizes for the symbols of a model: some that it runs at, and others, to see that it computes the same at those.

A symbol says nothing of the sizes that a model takes: a sum with a constant of twelve takes twelve or one. So sizes are tried, those
that the graph hints at first, and what the runtime accepts is kept.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from graphopt.runtime.feeds import addends, bind_dims, default_size, unnamed_size
from graphopt.runtime.session import TensorSpec

Sizes = dict[str, int]
Runs = Callable[[Sizes], bool]
"""Whether a model runs at these sizes."""

SECONDS = 5.0
"""For a search: of sizes that run, and of others."""
_TRIED = (1, 2, 3, 4, 5, 6, 7, 9, 12, 16, 32, 64, 128, 224, 256, 512)
_PRIMES = (3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37, 41, 43, 47)
_LARGE = 64  # sizes from here on are those of images: what halves them again and again takes multiples of 32
_STRIDE = 32


def named(specs: Sequence[TensorSpec]) -> list[TensorSpec]:
    """Inputs of which every dimension is a number or a symbol: one without a name is called ``x[0]``."""
    return [
        replace(s, shape=tuple(f"{s.name}[{i}]" if d is None else d for i, d in enumerate(s.shape)))
        if None in s.shape
        else s
        for s in specs
    ]


@dataclass(frozen=True)
class Symbols:
    """The sizes that may be chosen.

    Attributes:
        free: The symbols that nobody has chosen a size of.
        start: Where to begin: likely sizes of those, and the sizes that were chosen.
        hints: Sizes that the graph speaks of, by symbol.
    """

    free: tuple[str, ...]
    start: Sizes
    hints: Mapping[str, Sequence[int]] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        specs: Sequence[TensorSpec],
        dims: Mapping[str, int] | None = None,
        overrides: Mapping[str, Any] | None = None,
        hints: Mapping[str, Sequence[int]] | None = None,
    ) -> Symbols:
        """The symbols of some inputs.

        Args:
            specs: The inputs, see :func:`named`.
            dims: Sizes that the caller has chosen.
            overrides: Arrays that the caller has chosen; the symbols of their shapes are taken.
            hints: Sizes that the graph speaks of.

        Raises:
            UnknownNameError: ``dims`` names no symbol.
            UsageError: A size is negative, or an override does not fit.
        """
        dims, overrides = dims or {}, overrides or {}
        bound = bind_dims(specs, dims, overrides)
        taken = {d for s in specs if s.name in overrides for d in s.shape}
        likely: Sizes = {}
        for spec in specs:
            for axis, dim in enumerate(spec.shape):
                for part in addends(dim) if isinstance(dim, str) else ():
                    if not part.isdigit() and part not in dims and part not in taken and dim not in dims:
                        whole = f"{spec.name}[{axis}]"
                        likely.setdefault(part, unnamed_size(spec, axis) if part == whole else default_size(part))
        given = {name: size for name, size in bound.items() if name in dims or name in taken}
        return cls(tuple(likely), {**likely, **given}, hints or {})


def first_that_run(symbols: Symbols, runs: Runs, seconds: float = SECONDS) -> Sizes | None:
    """Sizes that a model runs at, likely ones if they do; ``None`` when none was found in time."""
    began, seen = time.monotonic(), list[Sizes]()
    for sizes in _proposals(symbols):
        if sizes in seen:
            continue
        if seen and time.monotonic() - began > seconds:
            break
        seen.append(sizes)
        if runs(sizes):
            return sizes
    return None


def _proposals(symbols: Symbols) -> Iterator[Sizes]:
    free, start, hints = symbols.free, symbols.start, symbols.hints
    yield start
    if not free:
        return
    hinted = {s: hints[s][0] for s in free if hints.get(s)}
    yield {**start, **hinted}
    for size in (*sorted({h for s in free for h in hints.get(s, ())}), *_TRIED):
        yield {**start, **dict.fromkeys(free, size)}
        yield {**start, **dict.fromkeys(free, size), **hinted}
    for symbol in free:
        for size in (*hints.get(symbol, ()), *_TRIED):
            yield {**start, **hinted, symbol: size}
            yield {**start, symbol: size}


def others(symbols: Symbols, base: Sizes, runs: Runs, seconds: float = SECONDS) -> list[Sizes]:
    """More sizes that a model runs at: each symbol at another size than in ``base``, and each at 1, as far as that runs.

    Symbols get sizes that differ from each other, where the model takes that: what is equal by chance hides mistakes.
    """
    deadline = time.monotonic() + seconds

    def tried(sizes: Sizes) -> bool:
        return time.monotonic() < deadline and runs(sizes)

    if not symbols.free:
        return []
    found: list[Sizes] = []
    for sizes in (_another(symbols, base, tried), _ones(symbols, base, tried)):
        if sizes is not None and sizes != base and sizes not in found:
            found.append(sizes)
    return found


def _another(symbols: Symbols, base: Sizes, runs: Runs) -> Sizes | None:
    free = symbols.free
    distinct = {**base, **{s: _different(base[s], i) for i, s in enumerate(free)}}
    if runs(distinct):
        return distinct
    for size in (2, 3, 4, 5, 16, 2 * max(base[s] for s in free)):
        same = {**base, **dict.fromkeys(free, size)}
        if all(base[s] != size for s in free) and runs(same):
            return same
    return _one_by_one(base, {s: [_different(base[s], i), *_near(symbols, base, s)] for i, s in enumerate(free)}, runs)


def _ones(symbols: Symbols, base: Sizes, runs: Runs) -> Sizes | None:
    ones = {**base, **dict.fromkeys(symbols.free, 1)}
    if ones == base or runs(ones):
        return ones
    return _one_by_one(base, {s: [1] for s in symbols.free if base[s] != 1}, runs)


def _one_by_one(base: Sizes, choices: Mapping[str, Sequence[int]], runs: Runs) -> Sizes | None:
    """Change symbol after symbol, as far as the model runs."""
    sizes = dict(base)
    for symbol, options in choices.items():
        for size in dict.fromkeys(options):
            if size != base[symbol] and size > 0 and runs({**sizes, symbol: size}):
                sizes[symbol] = size
                break
    return sizes if sizes != base else None


def _different(size: int, index: int) -> int:
    """Another size than ``size``, for each index its own."""
    if size >= _LARGE:
        smaller = size - _STRIDE * (index + 1)
        return smaller if smaller >= _STRIDE else size + _STRIDE * (index + 1)
    rest = [p for p in _PRIMES if p != size]
    return rest[index] if index < len(rest) else size + 50 + index


def _near(symbols: Symbols, base: Sizes, symbol: str) -> list[int]:
    size = base[symbol]
    return [*symbols.hints.get(symbol, ()), 2, size // 2, 2 * size, size + 1, size - 1, 3 * size]
