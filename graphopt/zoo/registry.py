"""What models the zoo has, and how a name is read.

Imports neither torch nor any model library: listing and describing are instant. A name may carry overrides of the
entry's numeric parameters: ``bert_base@layers=48`` or ``resnext50@size=160,width=8``.
"""

from __future__ import annotations

import math
import zlib
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from graphopt.errors import UnknownNameError, UsageError
from graphopt.zoo.spec import Number, ZooModel
from graphopt.zoo.table import MODELS

_REGISTRY = {model.name: model for model in MODELS}


def names() -> list[str]:
    """The names of all models, in the order of the registry."""
    return list(_REGISTRY)


def describe(name: str) -> ZooModel:
    """The entry for a name, with the overrides it carries applied.

    Args:
        name: ``NAME`` or ``NAME@KEY=VALUE,KEY=VALUE``. ``batch=0`` asks for a symbolic batch dimension, ``seq=0`` and ``past=0`` for
            symbolic lengths.

    Returns:
        The entry under its canonical name: overrides sorted, those equal to the default dropped.

    Raises:
        UnknownNameError: No such model, or no such parameter.
        UsageError: An override is not ``KEY=NUMBER``, or not a whole number where one is needed.
    """
    base, _, overrides = name.partition("@")
    if base not in _REGISTRY:
        raise UnknownNameError("zoo model", base, _REGISTRY)
    model = _REGISTRY[base]
    changed: dict[str, Number] = {}
    for item in overrides.split(",") if overrides else ():
        key, _, text = item.partition("=")
        if key not in model.params:
            raise UnknownNameError(f"parameter of {base}", key, model.params)
        value = _number(item, text, model.params[key])
        if value != model.params[key]:
            changed[key] = value
    if not changed:
        return model
    suffix = ",".join(f"{key}={changed[key]}" for key in sorted(changed))
    return replace(model, name=f"{base}@{suffix}", params={**model.params, **changed})


def _number(item: str, text: str, default: Number) -> Number:
    whole = isinstance(default, int)
    try:
        value: Number = int(text) if whole else float(text)
    except ValueError:
        kind = "a whole number" if whole else "a number"
        raise UsageError(
            f"{item!r} in a zoo name: expected KEY=VALUE with {kind}", "example: bert_base@layers=48"
        ) from None
    if not 0 <= value < math.inf:
        raise UsageError(f"{item!r} in a zoo name: expected a number that is finite and not negative")
    return value


def example_inputs(name: str, seed: int = 0) -> dict[str, npt.NDArray[Any]]:
    """Random inputs that a model of the zoo accepts, without building it.

    Args:
        name: As for :func:`describe`.
        seed: Same seed, same arrays.

    Returns:
        One array per input: standard normal where floating, uniform over the valid range where integer.
    """
    feeds: dict[str, npt.NDArray[Any]] = {}
    for spec in describe(name).input_specs():
        shape = tuple(int(d) for d in spec.shape)
        # Seeded by the input's own name: adding an input to a model leaves the others as they were.
        rng = np.random.default_rng([seed, zlib.crc32(spec.name.encode())])
        if np.issubdtype(np.dtype(spec.dtype), np.integer):
            feeds[spec.name] = rng.integers(spec.low, int(spec.high), shape).astype(spec.dtype)
        else:
            feeds[spec.name] = rng.standard_normal(shape).astype(spec.dtype)
    return feeds
