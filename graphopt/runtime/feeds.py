"""Made-up inputs for a session: legal, reproducible, and the same whatever the order of the inputs.

Floats are standard normal, integers stay within a range the caller knows or within {0, 1} (legal for token and
class ids of any table), symbolic dimensions get the same size everywhere. Inputs that many models have, masks, positions,
lengths, are what their names say (:mod:`graphopt.runtime.interfaces`), words and categories those that the model knows. Sequences hold three or four tensors,
optionals are there or not. What can't be guessed, maps and the like, is refused with the name of the input.
"""

from __future__ import annotations

import math
import re
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from graphopt.errors import InputsNeededError, UnknownNameError, UsageError
from graphopt.ir.types import BY_NAME, Array, dim_name, numpy_dtype
from graphopt.runtime.binding import TensorSpec
from graphopt.runtime.environment import free_memory
from graphopt.runtime.interfaces import elements, recognise, table, variable
from graphopt.runtime.ties import Linear, addends, evaluated, linear, solve
from graphopt.runtime.vocabulary import Vocabulary

_ONE = ("batch", "beam", "num_return")
_BATCH_NAMES = {"n", "b", "bs", "bsz", "nbatch"}
_TOKENS = ("seq", "token", "past")
_IMAGE_NAMES = {"height", "width", "h", "w"}
_IMAGE_SIZE = 224  # ImageNet's
_CHANNELS = (1, 3, 4)  # of an image, where they come last
_COUNTED = re.compile(r"(unk__|p2o\.DynamicDimension\.|s)\d+")
"""Names by which tf2onnx, Paddle and torch number the dimensions that have none."""
_DEFAULT_SIZE = 8  # of a symbol whose name says nothing: small, and what halves it three times finds something
_RANK = 64  # numpy's limit
_WORK = 8  # bytes at least that an element takes while it is made up
_MOST = 1 << 40  # bytes, where the system does not say how many are free
_IDS = 2  # numbers of a class or word, in a table of any size
_FLAGS = 3  # of which every combination is tried
_WORDS = ("alpha", "beta", "gamma", "delta")

Bound = float | tuple[float, ...]
Interval = tuple[Bound, Bound]
"""Inclusive low and exclusive high of the elements of an input; tuples are of each element of the last dimension."""
Range = Interval | Vocabulary
"""What the elements of an input may be."""

FILLS = (None, (1, True), (1, False), (0, False))
"""What whole numbers are where random ones do not run: all the same, of vectors of declared length alone or of all inputs."""
Fill = tuple[int, bool] | None


def make_feeds(
    specs: Sequence[TensorSpec],
    *,
    seed: int = 0,
    ranges: Mapping[str, Range] | None = None,
    dims: Mapping[str, int] | None = None,
    overrides: Mapping[str, Array] | None = None,
    scale: float = 1.0,
    flags: int = 0,
    fill: Fill = None,
    reach: int = _IDS,
) -> dict[str, Array]:
    """Make an array for every input.

    Args:
        specs: The inputs, as ``Session.input_specs``.
        seed: Different seeds give different values, the same seed the same.
        ranges: Inclusive low and exclusive high for the integers (or floats) of an input, of all or of each, or elements to choose from.
        dims: Sizes of symbolic dimensions by name.
        overrides: Arrays to use as they are.
        scale: Standard deviation of the floats.
        flags: Which of the inputs of one truth value are true: bit by bit, in their order.
        fill: One number for whole numbers of 32 and 64 bits in place of random ones, see :data:`FILLS`.
        reach: Exclusive high of whole numbers of 32 and 64 bits of which nothing is known.

    Returns:
        An array for each input, by name.

    Raises:
        UnknownNameError: ``ranges`` or ``overrides`` names no input, or ``dims`` no symbolic dimension.
        UsageError: An override has the wrong dtype or shape, or a size or a range is empty.
        InputsNeededError: An input is a sequence, an optional, a map or a sparse tensor.
    """
    ranges, overrides = ranges or {}, overrides or {}
    names = [spec.name for spec in specs]
    for given in (*ranges, *overrides):
        if given not in names:
            raise UnknownNameError("input", given, names)
    for name, known in ranges.items():
        if not isinstance(known, Vocabulary) and np.any(np.greater_equal(*known)):
            raise UsageError(f"range of input {name!r} is empty: {known[0]} to {known[1]} (exclusive)")
    specs = named(specs)
    sizes = bind_dims(specs, dims or {}, overrides)
    shapes = _shapes(specs, sizes, overrides)
    interface = recognise(specs)
    flagged = flag_inputs(specs)
    feeds: dict[str, Any] = {}
    for spec in specs:
        name = spec.name
        if name in overrides:
            feeds[name] = _as_declared(spec, overrides[name])
            continue
        usual = None if spec.element else elements(interface, name, shapes, numpy_dtype(spec.dtype))
        if usual is not None:
            feeds[name] = _within(usual, ranges.get(name))
        elif spec.element is not None and not (name in flagged and not flags >> flagged.index(name) & 1):
            feeds[name] = _held(spec, shapes[name], seed, scale, reach)
        elif spec.element is not None:
            feeds[name] = None
        elif name in flagged:
            feeds[name] = np.full(shapes[name], bool(flags >> flagged.index(name) & 1))
        elif fill is not None and _fillable(spec, vectors=fill[1]):
            feeds[name] = np.full(shapes[name], fill[0], numpy_dtype(spec.dtype))
        else:
            # One stream for each name: adding an input to a model leaves the values of the others alone.
            rng = np.random.default_rng((seed, zlib.crc32(name.encode())))
            limits = None if interface.values.get(name) == "mask" else ranges.get(name)
            feeds[name] = _values(spec, shapes[name], rng, limits, scale, reach)
    return feeds


def _fillable(spec: TensorSpec, *, vectors: bool) -> bool:
    """Whether an input holds sizes, counts or indices, as it seems; ``vectors``: sizes or counts."""
    few = len(spec.shape) < 2 and not any(isinstance(dim, str) for dim in spec.shape)
    return spec.dtype in ("int64", "int32") and (few or not vectors)


def fills(specs: Iterable[TensorSpec]) -> list[Fill]:
    """The fills that make a difference to some inputs."""
    specs = list(specs)
    return [fill for fill in FILLS if fill is None or any(_fillable(s, vectors=fill[1]) for s in specs)]


def _held(spec: TensorSpec, shape: tuple[int, ...], seed: int, scale: float, reach: int) -> Any:
    """A tensor for an optional; for a sequence three or four of them, by the seed."""
    assert spec.element is not None
    count = 1 if spec.kind == "optional" else 3 + seed % 2
    made = [
        _values(
            spec.element, shape, np.random.default_rng((seed, zlib.crc32(spec.name.encode()), n)), None, scale, reach
        )
        for n in range(count)
    ]
    return made[0] if spec.kind == "optional" else made


def flag_inputs(specs: Iterable[TensorSpec]) -> list[str]:
    """The inputs that are switches between ways to run a model: one truth value, or an optional, which is there or not."""
    return [
        spec.name
        for spec in specs
        if (spec.dtype == "bool" and spec.shape in ((), (1,))) or (spec.kind == "optional" and spec.element is not None)
    ]


def flag_ways(specs: Iterable[TensorSpec]) -> range:
    """The settings of the first few flags, as ``make_feeds`` takes them; one where there is no flag."""
    return range(2 ** min(_FLAGS, len(flag_inputs(specs))))


def _shapes(
    specs: Sequence[TensorSpec], sizes: Mapping[str, int], overrides: Mapping[str, Array]
) -> dict[str, tuple[int, ...]]:
    """The shape of every tensor.

    Raises:
        InputsNeededError: An input is no tensor, or too large.
    """
    shapes: dict[str, tuple[int, ...]] = {}
    for spec in specs:
        if spec.name in overrides:
            if spec.kind == "tensor":
                shapes[spec.name] = np.shape(overrides[spec.name])
        elif spec.kind != "tensor" and spec.element is None:
            raise InputsNeededError(
                f"input {spec.name!r} is of type {spec.dtype}, which can't be made up",
                "pass it with --inputs, a folder with input_N.pb",
            )
        else:
            shapes[spec.name] = tuple(sizes[dim] if isinstance(dim, str) else dim or 0 for dim in spec.shape)
            _require_room(spec, shapes[spec.name])
    return shapes


def _within(known: Array, limits: Range | None) -> Array:
    """Integers kept to a range."""
    return (
        known
        if limits is None or isinstance(limits, Vocabulary)
        else np.clip(known, limits[0], np.subtract(limits[1], 1)).astype(known.dtype)
    )


def _require_room(spec: TensorSpec, shape: tuple[int, ...]) -> None:
    """Refuse to make up what no memory can hold.

    Raises:
        InputsNeededError: It is too large.
    """
    if len(shape) > _RANK:
        raise InputsNeededError(f"input {spec.name!r} has {len(shape)} dimensions; at most {_RANK} can be made up")
    count, free = math.prod(shape), free_memory()
    if count * _WORK > (free if free is not None else _MOST):
        raise InputsNeededError(
            f"input {spec.name!r} of shape {list(shape)} is too large to make up: {count:.2g} elements",
            "give smaller sizes with --dim or --input-shape",
        )


def bind_dims(
    specs: Iterable[TensorSpec], dims: Mapping[str, int], overrides: Mapping[str, Array] | None = None
) -> dict[str, int]:
    """A size for every symbolic dimension.

    Args:
        specs: The inputs.
        dims: Sizes chosen by the caller.
        overrides: Arrays chosen by the caller; they fix the sizes of their own symbols.

    Returns:
        Sizes by symbol. What depends on others, as ``past + 1`` or the length of a mask, follows them where the caller has
        not chosen it.

    Raises:
        UnknownNameError: ``dims`` names no symbol of these inputs.
        UsageError: A size is negative, or an override does not fit.
    """
    specs = list(specs)
    sizes = chosen_dims(specs, dims, overrides)
    symbols = {dim: None for spec in specs for dim in spec.shape if isinstance(dim, str)}
    if all(symbol in sizes for symbol in symbols):
        return sizes
    tied, usual = ties(specs, sizes, recognise(specs).equations(specs)), likely_sizes(specs)
    return whole({**{name: size for name, size in usual.items() if name not in tied}, **sizes}, tied)


def chosen_dims(
    specs: Sequence[TensorSpec], dims: Mapping[str, int], overrides: Mapping[str, Array] | None = None
) -> dict[str, int]:
    """The sizes that the caller has chosen, by symbol; see :func:`bind_dims`."""
    symbols = {dim: None for spec in specs for dim in spec.shape if isinstance(dim, str)}
    parts = {part for symbol in symbols for part in addends(symbol)}
    sizes: dict[str, int] = {}
    for name, size in dims.items():
        if name not in symbols and name not in parts:
            raise UnknownNameError("dimension", name, symbols)
        if size < 0:
            raise UsageError(f"size of dimension {name!r} is negative: {size}")
        sizes[name] = size
    for spec in specs:
        if overrides and spec.name in overrides and spec.kind == "tensor":
            _check_override(spec, _as_declared(spec, overrides[spec.name]), sizes)
    return sizes


def likely_sizes(specs: Sequence[TensorSpec]) -> dict[str, int]:
    """A likely size for every symbol, and for the symbols in those that are sums."""
    known = recognise(specs).likely(specs)
    found: dict[str, int] = {}
    for spec in specs:
        for axis, dim in enumerate(spec.shape):
            for part in (dim, *addends(dim)) if isinstance(dim, str) else ():
                unnamed = part == dim_name(spec.name, axis) or _COUNTED.fullmatch(part)
                by_place = unnamed_size(spec, axis) if unnamed or _of_image(spec, axis) else _DEFAULT_SIZE
                by_name = by_place if unnamed else default_size(part, by_place)
                found.setdefault(part, known[part][0] if part in known else by_name)
    return found


def whole(sizes: Mapping[str, int], tied: Mapping[str, Linear]) -> dict[str, int]:
    """Sizes with those that depend on them."""
    found = {name: evaluated(sum, sizes) for name, sum in tied.items() if name not in sizes}
    return {**sizes, **{name: max(0, size) for name, size in found.items() if size is not None}}


def ties(
    specs: Iterable[TensorSpec], chosen: Mapping[str, int], more: Iterable[tuple[Linear, Linear]] = ()
) -> dict[str, Linear]:
    """The symbols that depend on others.

    Args:
        specs: The inputs.
        chosen: Sizes that are chosen.
        more: What is known of sizes besides, the surest first.
    """
    more = list(more)
    roles = {name for each in more for side in each for name in side if name.startswith(variable("")[0])}
    written = {dim for spec in specs for dim in spec.shape if isinstance(dim, str) and linear(dim) != {dim: 1}}
    given: list[tuple[Linear, Linear]] = [({name: 1}, {"": size}) for name, size in chosen.items()]
    sums: list[tuple[Linear, Linear]] = [({dim: 1}, linear(dim)) for dim in sorted(written)]
    return solve([*given, *sums, *more], roles)


def shaped(
    specs: Sequence[TensorSpec], shapes: Mapping[str, Sequence[int]], dims: Mapping[str, int]
) -> tuple[Sequence[TensorSpec], dict[str, int]]:
    """Inputs with shapes in place of those that they declare, and the sizes of the symbols that are left.

    Args:
        specs: The inputs.
        shapes: Shapes of some of them.
        dims: Sizes of symbols; those that only shaped inputs have are settled by the shapes.

    Raises:
        UnknownNameError: A shape is of no input.
        UsageError: A shape contradicts what is declared, another shape, or the size of a symbol.
    """
    by_name, before = {spec.name: spec for spec in specs}, {spec.name: spec for spec in named(specs)}
    bound: dict[str, int] = {}
    for name, shape in shapes.items():
        if name not in by_name:
            raise UnknownNameError("input", name, by_name)
        declared = before[name].shape
        if declared and len(declared) != len(shape):
            raise UsageError(f"input {name!r} has rank {len(declared)}, the given shape has rank {len(shape)}")
        for dim, size in zip(declared, shape, strict=False):
            wanted = bound.setdefault(dim, size) if isinstance(dim, str) else dim
            if wanted is not None and wanted != size:
                raise UsageError(f"input {name!r}: dimension {dim} is {wanted}, not {size}")
        by_name[name] = replace(by_name[name], shape=tuple(shape))
    for name, size in dims.items():
        if bound.get(name, size) != size:
            raise UsageError(f"dimension {name!r} would be both {size} and {bound[name]}")
    made = [by_name[spec.name] for spec in specs]
    left = {dim for spec in named(made) for dim in spec.shape}
    settled = {dim for spec in before.values() for dim in spec.shape} - left
    sizes = {name: size for name, size in bound.items() if name in left}
    return made, {**sizes, **{name: size for name, size in dims.items() if name not in settled}}


def named(specs: Iterable[TensorSpec]) -> list[TensorSpec]:
    """Inputs of which every dimension is a number or a symbol: one without a name is called ``x[0]``."""
    return [
        replace(s, shape=tuple(dim_name(s.name, i) if d is None else d for i, d in enumerate(s.shape)))
        if None in s.shape
        else s
        for s in specs
    ]


def measured_sizes(specs: Sequence[TensorSpec], feeds: Mapping[str, Array]) -> dict[str, int]:
    """The size of every dimension that a model leaves open, as some inputs have it.

    Returns:
        Sizes by symbol, and by ``input[axis]`` where a dimension has no name.
    """
    sizes: dict[str, int] = {}
    for spec in specs:
        shape = np.shape(feeds[spec.name]) if spec.name in feeds and spec.kind == "tensor" else ()
        declared = spec.shape if len(spec.shape) == len(shape) else (None,) * len(shape)
        for axis, (dim, size) in enumerate(zip(declared, shape, strict=True)):
            if not isinstance(dim, int):
                sizes[dim or dim_name(spec.name, axis)] = size
    return sizes


def default_size(symbol: str, otherwise: int = _DEFAULT_SIZE) -> int:
    """A likely size for a symbol by its name, ``otherwise`` where that says nothing."""
    name = symbol.lower()
    if name in _BATCH_NAMES or any(word in name for word in _ONE):
        return 1
    if any(word in name for word in _TOKENS):
        return table().sizes["past" if "past" in name else "sequence"][0]
    return _IMAGE_SIZE if name in _IMAGE_NAMES else otherwise


def _of_image(spec: TensorSpec, axis: int) -> bool:
    """Whether a dimension is a side of an image of three colours, whatever it is called."""
    if len(spec.shape) != 4 or 3 not in (spec.shape[1], spec.shape[3]):
        return False
    return axis in ((2, 3) if spec.shape[1] == 3 else (1, 2))


def unnamed_size(spec: TensorSpec, axis: int) -> int:
    """A likely size for a dimension that has no name."""
    if axis == 0:
        return 1
    if len(spec.shape) == 4:  # most likely an image: channels, height, width
        return 3 if axis == 1 and spec.shape[3] not in _CHANNELS else _IMAGE_SIZE
    return _DEFAULT_SIZE


def _as_declared(spec: TensorSpec, value: Any) -> Any:
    """Raw elements of a type that numpy lacks, as ``np.load`` returns them, under their declared type."""
    if spec.kind != "tensor":
        return value
    array, declared = np.asarray(value), numpy_dtype(spec.dtype)
    raw = not spec.native and array.dtype.kind in "Vu" and array.dtype.itemsize == declared.itemsize
    return array.view(declared) if raw and array.dtype != declared else array


def _check_override(spec: TensorSpec, array: Array, sizes: dict[str, int]) -> None:
    """Check dtype and shape, and bind the symbols of the shape."""
    expected = numpy_dtype(spec.dtype)
    strings = spec.dtype == "str" and array.dtype.kind in "OUS"
    if array.dtype != expected and not strings:
        raise UsageError(f"input {spec.name!r} is {array.dtype}, the model wants {spec.dtype}")
    if len(array.shape) != len(spec.shape):
        raise UsageError(f"input {spec.name!r} has shape {array.shape}, the model wants {_shape_text(spec)}")
    for size, dim in zip(array.shape, spec.shape, strict=True):
        wanted = sizes.setdefault(dim, size) if isinstance(dim, str) else dim
        if wanted is not None and wanted != size:
            where = f"{_shape_text(spec)} with {dim} = {wanted}" if isinstance(dim, str) else _shape_text(spec)
            raise UsageError(f"input {spec.name!r} has shape {array.shape}, the model wants {where}")


def _shape_text(spec: TensorSpec) -> str:
    return "(" + ", ".join("?" if dim is None else str(dim) for dim in spec.shape) + ")"


def _values(
    spec: TensorSpec, shape: tuple[int, ...], rng: np.random.Generator, limits: Range | None, scale: float, reach: int
) -> Array:
    dtype = numpy_dtype(spec.dtype)
    if isinstance(limits, Vocabulary):
        return limits.put(_values(spec, shape, rng, None, scale, reach), rng)
    if limits is not None and isinstance(limits[0], tuple) and shape[-1:] != (len(limits[0]),):
        limits = None  # these are of another shape
    if spec.dtype == "str":
        words: Array = rng.choice(np.array(_WORDS, dtype=object), size=shape)
        return np.asarray(words, dtype=object).reshape(shape)
    if BY_NAME[spec.dtype].bits < 8:
        raise InputsNeededError(f"input {spec.name!r} is of type {spec.dtype}, which can't be passed from Python")
    if limits is None and "mask" in spec.name.lower() and spec.shape:
        return _mask(shape, dtype)
    if spec.dtype == "bool":
        return rng.integers(0, 2, shape).astype(np.bool_)
    if dtype.kind in "iu":
        # Of 8 and 16 bits they are pixels or quantised values (no index is); wider integers are usually ids or positions.
        whole = (np.iinfo(dtype).min, np.iinfo(dtype).max + 1) if dtype.itemsize <= 2 else (0, reach)
        low, high = (np.asarray(bound, np.int64) for bound in limits or whole)
        return np.asarray(rng.integers(low, high, shape)).astype(dtype)
    if limits is not None:
        return np.asarray(rng.uniform(*limits, shape)).astype(dtype)
    if dtype.kind == "c":
        return np.asarray(scale * (rng.standard_normal(shape) + 1j * rng.standard_normal(shape))).astype(dtype)
    return np.asarray(scale * rng.standard_normal(shape)).astype(dtype)


def _mask(shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
    """Ones, and zeros in the last quarter of the last axis: attention to a prefix, as after padding."""
    mask = np.ones(shape, dtype)
    padded = shape[-1] // 4
    if padded:
        mask[..., -padded:] = 0
    return mask
