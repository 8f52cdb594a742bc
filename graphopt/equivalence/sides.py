"""Both sides of a rule's examples in the runtime, on the same inputs."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from onnx import ModelProto, helper

from graphopt.errors import GraphoptError
from graphopt.ir.check import problems
from graphopt.ir.edit import RefusedError
from graphopt.ir.graph import Graph
from graphopt.ir.infer import type_proto
from graphopt.ir.types import NUMPY_NAMES, ValueType
from graphopt.onnxio.emit import emit
from graphopt.onnxio.load import Model
from graphopt.rewrite.apply import apply
from graphopt.rewrite.examples import Example, build_example, random_array
from graphopt.rewrite.schema import Rule
from graphopt.runtime.session import LoadableModel, Session, SessionConfig

Array = np.ndarray[Any, Any]

_SYMBOL_SIZE = 3
_TOLERANCE = {"exact": 0.0, "real": 2e-5}
_HALF = 1e-2  # what either side may lose where an example computes in 16 bits
# Inputs that approximations meet: ordinary, tiny, denormal, huge, and no numbers at all.
_EXTREMES = (0.0, 1.0, -1.0, 3.0, -3.0, 9.0, -9.0, 30.0, -30.0, 150.0, -150.0, 250.0, 1e-6, -1e-6, 1e-30, 1e-40,
             -1e-40, 1e4, -1e4, 1e30, -1e30,
             np.inf, -np.inf, np.nan)  # fmt: skip


class UndefinedError(GraphoptError):
    """The pattern itself does not run on these inputs."""


def worst_difference(rule: Rule, seeds: Sequence[int]) -> tuple[float, int, str]:
    """The largest relative error over a rule's examples, how many were compared, and what is wrong if anything is."""
    claimed = rule.bound if rule.claim == "approx" else _TOLERANCE[rule.claim]
    worst, cases = 0.0, 0
    for index, case in enumerate(rule.examples["accept"]):
        limit = max(claimed, _HALF) if claimed and "f16" in str(case) else claimed
        for seed in seeds:
            try:
                error = compare_sides(rule, case, seed)
            except (GraphoptError, RefusedError) as problem:
                return worst, cases, f"accept {index}: {problem}"
            if not error <= limit:
                return (
                    error,
                    cases,
                    f"accept {index}, seed {seed}: the sides differ by {error:.3g}, claimed {limit:.3g}",
                )
            worst, cases = max(worst, error), cases + 1
    return worst, cases, ""


def extremes(rule: Rule) -> str:
    """What is wrong with an approximation on extreme inputs; empty when it keeps its bound.

    Each element is compared by itself, relative to the reference there. An operand may be infinite or undefined on both
    sides only. Where the rule names a domain, inputs stay inside.
    """
    pool = np.array(_EXTREMES, np.float32)
    pool = pool if rule.domain is None else pool[np.abs(pool) <= rule.domain]
    for index, case in enumerate(rule.examples["accept"]):
        example = build_example(rule, case)
        if example.match is None:
            continue
        rewritten, _ = apply(example.graph, example.match)
        for seed in range(8):
            feeds = _feeds(example.graph, seed)
            rng = np.random.default_rng(seed)
            feeds = {
                k: rng.choice(pool, a.shape).astype(a.dtype) if a.dtype.kind == "f" else a for k, a in feeds.items()
            }
            before, after = _run(example, example.graph, feeds), _run(example, rewritten, feeds)
            for a, b in zip(before, after, strict=True):
                with np.errstate(all="ignore"):
                    near = np.abs(a - b) <= rule.bound * np.maximum(np.abs(a), 1.0)
                wrong = ~(near | (a == b) | (np.isnan(a) & np.isnan(b)))
                if wrong.any():
                    at = tuple(int(i) for i in np.argwhere(wrong)[0])
                    return f"accept {index}, extreme inputs: {a[at]:.6g} against {b[at]:.6g} at {list(at)}"
    return ""


def compare_sides(rule: Rule, case: Mapping[str, Any], seed: int) -> float:
    """The largest difference between pattern and replacement, relative to the pattern's largest output.

    Raises:
        UndefinedError: The pattern does not run.
        GraphoptError: The replacement does not run, or the rewritten graph is invalid.
        RefusedError: The engine refuses the rewrite.
    """
    example = build_example(rule, case, seed=seed)
    if example.match is None:
        raise GraphoptError("the example does not match")
    rewritten, _ = apply(example.graph, example.match)
    wrong = problems(rewritten)
    if wrong:
        raise GraphoptError(f"the rewritten graph is invalid: {wrong[0]}")
    feeds = _feeds(example.graph, seed)
    try:
        before = _run(example, example.graph, feeds)
    except GraphoptError as error:
        raise UndefinedError(f"the pattern does not run: {error}") from error
    after = _run(example, rewritten, feeds)
    return max(_difference(a, b) for a, b in zip(before, after, strict=True))


def _feeds(graph: Graph, seed: int) -> dict[str, Array]:
    feeds = {}
    for key in graph.inputs:
        value = graph.values[key]
        name_seed = int.from_bytes(hashlib.blake2b(value.name.encode(), digest_size=4).digest(), "little")
        rng = np.random.default_rng((seed, name_seed))
        shape = tuple(d if isinstance(d, int) else _SYMBOL_SIZE for d in value.type.shape or ())
        feeds[value.name] = random_array(np.dtype(NUMPY_NAMES[value.type.dtype or "f32"]), shape, rng)
    return feeds


def _run(example: Example, graph: Graph, feeds: Mapping[str, Any]) -> list[Array]:
    """Outputs of a graph in the runtime, its own optimiser switched off."""
    base = example.graph
    proto = ModelProto(ir_version=10)
    proto.graph.name = "example"
    for domain, version in base.opsets.items():
        proto.opset_import.append(helper.make_opsetid(domain, version))
    for key in base.inputs:
        info = proto.graph.input.add(name=base.values[key].name)
        info.type.CopyFrom(type_proto(base.values[key].type))
    for name, key in base.outputs:
        type = base.type(key)
        info = proto.graph.output.add(name=name)
        info.type.CopyFrom(type_proto(ValueType(type.dtype)))
    model = Model(_empty(base), proto, {})
    emitted = emit(model, graph)
    loadable = LoadableModel(emitted.proto.SerializeToString(), emitted.arrays())
    with Session(loadable, SessionConfig(level="disabled")) as session:
        return [np.asarray(a) for a in session.run(feeds)]


def _empty(graph: Graph) -> Graph:
    """The inputs of a graph alone: what an example's model was before it had nodes."""
    values = {k: graph.values[k] for k in graph.inputs}
    return Graph({}, values, dict.fromkeys(values, ()), {}, graph.inputs, (), graph.opsets, 0)


def _difference(a: Array, b: Array) -> float:
    if a.shape != b.shape or a.dtype != b.dtype:
        return float("inf")
    if a.dtype.kind not in "fc":
        return 0.0 if np.array_equal(a, b) else float("inf")
    x, y = a.astype(np.float64), b.astype(np.float64)
    if not np.array_equal(np.isnan(x), np.isnan(y)):
        return float("inf")
    finite = np.isfinite(x) & np.isfinite(y)
    same = np.array_equal(x[~finite & ~np.isnan(x)], y[~finite & ~np.isnan(x)])
    if not same:
        return float("inf")
    if not finite.any():
        return 0.0
    scale = float(np.abs(x[finite]).max())
    return float(np.abs(x[finite] - y[finite]).max()) / (scale or 1.0)
