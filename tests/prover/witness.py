"""Runs both sides of a rule in ONNX Runtime at a witness: a case at which they differ, whatever a prover says.

``wrong/witnesses.yaml`` gives each wrong rule one::

    rule-id:
      case: {x: Nx3xf32, opset: 13}   # as in a rule's examples
      sizes: {N: 1}                   # what symbols stand for; 3 otherwise
      values: {x: large}              # numbers, filling or nested, or one of CLASSES; random otherwise
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import yaml

from graphopt.errors import SessionError
from graphopt.ir.graph import Graph
from graphopt.ir.types import NUMPY_NAMES
from graphopt.prover.sides import as_model
from graphopt.rewrite.apply import apply
from graphopt.rewrite.examples import Example, build_example, random_array
from graphopt.rewrite.schema import Rule, read_rules
from graphopt.runtime.session import Session, SessionConfig

FOLDER = Path(__file__).parent / "wrong"
REAL = 1e-3
"""Difference, relative to the largest element of the pattern's result, that refutes a claim about real numbers."""
ROUNDING = 1e-4
"""Difference that an author takes for rounding in his own examples."""
_ULPS = 16
"""Both are at least so many units in the last place of the result's dtype."""

Array = np.ndarray[Any, Any]


def _large(a: Array) -> Array:
    return a * {2: 1e4, 4: 1e30, 8: 1e200}[a.dtype.itemsize]


def _fill(value: float) -> Any:
    return lambda a: np.full_like(a, value)


def _some(value: float) -> Any:
    def put(a: Array) -> Array:
        a = a.copy()
        a.reshape(-1)[::2] = value
        return a

    return put


CLASSES: dict[str, Any] = {
    "nan": _some(float("nan")),
    "inf": _some(float("inf")),
    "-inf": _some(-float("inf")),
    "-0": _fill(-0.0),
    "zero": _fill(0),
    "large": _large,
    "hundreds": lambda a: a * 100,
    "subnormal": _fill(1e-40),
    "negative": lambda a: -np.abs(a),
    "positive": np.abs,
    "rising": lambda a: np.arange(a.size).reshape(a.shape),
    "highest": lambda a: np.full_like(a, np.iinfo(a.dtype).max),
    "lowest": lambda a: np.full_like(a, np.iinfo(a.dtype).min),
}
"""Classes of values: what they make of random elements."""


@dataclass(frozen=True)
class Witness:
    """Where a rule is wrong.

    Attributes:
        case: As in the rule's examples.
        sizes: What symbols stand for.
        values: Inputs that are not random.
    """

    case: Mapping[str, Any]
    sizes: Mapping[str, int] = field(default_factory=dict)
    values: Mapping[str, Any] = field(default_factory=dict)


def _run(example: Example, graph: Graph, feeds: Mapping[str, Any]) -> list[Any]:
    """Outputs of a graph in the runtime, its own optimiser switched off."""
    with Session(as_model(graph, example.graph, example.graph.inputs), SessionConfig(level="disabled")) as session:
        return [np.asarray(a) for a in session.run(feeds)]


@cache
def wrong_rules() -> list[Rule]:
    """The corpus, in the order of its files."""
    return [rule for path in sorted(FOLDER.glob("*.yaml")) if path.stem != "witnesses" for rule in read_rules(path)]


def witnesses() -> dict[str, Witness]:
    """The witness of each rule, by id."""
    found = yaml.load((FOLDER / "witnesses.yaml").read_text(encoding="utf-8"), Loader=yaml.CBaseLoader)
    return {ident: Witness(**given) for ident, given in found.items()}


def difference(rule: Rule, witness: Witness, seed: int = 0) -> str:
    """How the two sides differ in the claimed sense, ``""`` where they don't.

    Raises:
        RefusedError: The engine does not carry out the rewrite.
        SessionError: The pattern does not run, or the runtime has no kernel for the replacement, which is not the rule's fault.
        AssertionError: The rule does not match.
    """
    example = build_example(rule, witness.case, seed=seed)
    assert example.match is not None, f"{rule.id} does not match: condition {example.failing}"
    after, _ = apply(example.graph, example.match)
    feeds = _feeds(example.graph, witness, seed)
    left = _run(example, example.graph, feeds)
    try:
        right = _run(example, after, feeds)
    except SessionError as error:
        if "Could not find an implementation" in str(error):
            raise
        return f"the replacement does not run: {str(error).splitlines()[0]}"
    limit = 0.0 if rule.claim == "exact" else 2 * rule.bound or REAL
    return next((d for a, b in zip(left, right, strict=True) if (d := _between(a, b, limit))), "")


def agree(rule: Rule, case: Mapping[str, Any], seed: int) -> bool:
    """Whether the author of a rule sees no difference at an accepting example: none but rounding where that is allowed."""
    example = build_example(rule, case, seed=seed)
    assert example.match is not None, f"{rule.id}: {case} does not match: condition {example.failing}"
    after, _ = apply(example.graph, example.match)
    feeds = _feeds(example.graph, Witness(case), seed)
    left, right = _run(example, example.graph, feeds), _run(example, after, feeds)
    limit = 0.0 if rule.claim == "exact" else max(ROUNDING, rule.bound)
    return all(_looks_equal(a, b, limit) for a, b in zip(left, right, strict=True))


def _looks_equal(a: Array, b: Array, limit: float) -> bool:
    if a.shape != b.shape or a.dtype != b.dtype:
        return False
    x, y = _wide(a), _wide(b)
    if x.dtype.kind != "f" or not x.size:
        return np.array_equal(x, y)
    finite = np.isfinite(x) & np.isfinite(y)
    limit = limit and max(limit, _ULPS * _unit(a)) * np.abs(x[finite]).max(initial=0)
    near = np.abs(x - y)[finite] <= limit
    return bool(near.all()) and np.array_equal(x[~finite], y[~finite], equal_nan=True)


def _feeds(graph: Graph, witness: Witness, seed: int) -> dict[str, Array]:
    rng = np.random.default_rng(seed)
    feeds = {}
    for key in graph.inputs:
        value = graph.values[key]
        dims = value.type.shape or ()
        shape = tuple(d if isinstance(d, int) else int(witness.sizes.get(str(d), 3)) for d in dims)
        name = value.type.dtype or ""
        dtype = np.dtype(ml_dtypes.bfloat16 if name == "bf16" else NUMPY_NAMES[name])
        made = random_array(np.dtype("float32") if name == "bf16" else dtype, shape, rng)
        given = witness.values.get(value.name)
        if isinstance(given, str) and given in CLASSES:
            made = CLASSES[given](made)
        elif given is not None:
            made = np.broadcast_to(_numbers(given, dtype), shape)
        feeds[value.name] = np.ascontiguousarray(made.astype(dtype)).reshape(shape)
    return feeds


def _numbers(given: Any, dtype: np.dtype[Any]) -> Array:
    if isinstance(given, list):
        return np.array([_numbers(item, dtype) for item in given], dtype)
    if dtype.kind == "b":
        return np.array(given in ("1", "true"))
    return np.array(float(given) if dtype.kind in "fV" else int(given)).astype(dtype)


def _wide(a: Array) -> Array:
    return a if a.dtype.kind in "biuOSU" else a.astype(np.float64)


def _between(a: Array, b: Array, limit: float) -> str:
    if a.shape != b.shape:
        return f"shapes {a.shape} and {b.shape}"
    if a.dtype != b.dtype:
        return f"dtypes {a.dtype} and {b.dtype}"
    x, y = _wide(a), _wide(b)
    if x.dtype.kind != "f":
        return "" if np.array_equal(x, y) else f"{_at(x, y, x != y)}"
    if not limit:
        other = ~((x == y) & (np.signbit(x) == np.signbit(y)) | (np.isnan(x) & np.isnan(y)))
        return _at(x, y, other) if other.any() else ""
    # Outside the real numbers such a claim says nothing: the pattern's result must be one.
    if x.size == 0 or not np.isfinite(x).all():
        return ""
    apart = ~(np.abs(x - y) <= max(limit, _ULPS * _unit(a)) * np.abs(x).max())
    return _at(x, y, apart) if apart.any() else ""


def _unit(a: Array) -> float:
    """Relative distance of neighbours in a float dtype."""
    return float(ml_dtypes.finfo(a.dtype).eps) if a.dtype.kind in "fV" else 0.0


def _at(x: Array, y: Array, where: Array) -> str:
    place = tuple(int(i) for i in np.argwhere(where)[0])
    return f"{x[place]} and {y[place]} at {place}"
