"""Numeric evidence for a rule: both sides of each accepting example run in the runtime on the same inputs."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
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
from graphopt.onnxio.save import write_text
from graphopt.rewrite.apply import apply
from graphopt.rewrite.examples import Example, build_example, random_array
from graphopt.rewrite.library import lint_rule
from graphopt.rewrite.schema import Rule
from graphopt.runtime.session import LoadableModel, Session, SessionConfig

SEEDS = (0, 1, 2)
_SYMBOL_SIZE = 3
_TOLERANCE = {"exact": 0.0, "real": 2e-5}


@dataclass(frozen=True)
class Verdict:
    """What is known of a rule.

    Attributes:
        rule: Rule id.
        hash: Hash of the rule's text.
        verdict: ``tested`` or ``failed``.
        method: How it was found.
        cases: Example and seed combinations that were compared.
        worst: Largest error seen, relative to the largest element of the reference.
        message: Why it failed.
    """

    rule: str
    hash: str
    verdict: str
    method: str
    cases: int
    worst: float
    message: str = ""


def check_rule(rule: Rule, seeds: Sequence[int] = SEEDS) -> Verdict:
    """Lint a rule and compare both sides of its examples."""
    method = "examples in the runtime"
    found = lint_rule(rule)
    if found:
        return Verdict(rule.id, rule.hash, "failed", "lint", 0, 0.0, "; ".join(found))
    worst, cases = 0.0, 0
    for index, case in enumerate(rule.examples["accept"]):
        for seed in seeds:
            try:
                error = compare_sides(rule, case, seed)
            except (GraphoptError, RefusedError) as problem:
                return Verdict(rule.id, rule.hash, "failed", method, cases, worst, f"accept {index}: {problem}")
            limit = rule.bound if rule.claim == "approx" else _TOLERANCE[rule.claim]
            if not error <= limit:
                message = f"accept {index}, seed {seed}: the sides differ by {error:.3g}, claimed {limit:.3g}"
                return Verdict(rule.id, rule.hash, "failed", method, cases, error, message)
            worst, cases = max(worst, error), cases + 1
    return Verdict(rule.id, rule.hash, "tested", method, cases, worst)


def compare_sides(rule: Rule, case: Mapping[str, Any], seed: int) -> float:
    """The largest difference between pattern and replacement, relative to the pattern's largest output.

    Raises:
        GraphoptError: A side does not run, or the rewritten graph is invalid.
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
    before, after = _run(example, example.graph, feeds), _run(example, rewritten, feeds)
    return max(_difference(a, b) for a, b in zip(before, after, strict=True))


def write_evidence(path: Path, verdicts: Sequence[Verdict], known: Collection[str] | None = None) -> None:
    """Record verdicts in a lock file, whole or not at all.

    Args:
        path: The lock file of a folder of rules.
        verdicts: What was found.
        known: Ids of all rules in the folder, where entries of other rules should go.
    """
    try:
        held = json.loads(path.read_text(encoding="utf-8")).get("rules", {})
    except (FileNotFoundError, ValueError):
        held = {}
    for v in verdicts:
        held[v.rule] = {
            "hash": v.hash,
            "verdict": v.verdict,
            "method": v.method,
            "cases": v.cases,
            "seeds": list(SEEDS),
        }
    rules = {name: held[name] for name in sorted(held) if known is None or name in known}
    write_text(path, json.dumps({"schema": "graphopt.evidence/1", "rules": rules}, indent=1) + "\n")


def _feeds(graph: Graph, seed: int) -> dict[str, np.ndarray[Any, Any]]:
    feeds = {}
    for key in graph.inputs:
        value = graph.values[key]
        name_seed = int.from_bytes(hashlib.blake2b(value.name.encode(), digest_size=4).digest(), "little")
        rng = np.random.default_rng((seed, name_seed))
        shape = tuple(d if isinstance(d, int) else _SYMBOL_SIZE for d in value.type.shape or ())
        feeds[value.name] = random_array(np.dtype(NUMPY_NAMES[value.type.dtype or "f32"]), shape, rng)
    return feeds


def _run(example: Example, graph: Graph, feeds: Mapping[str, Any]) -> list[np.ndarray[Any, Any]]:
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


def _difference(a: np.ndarray[Any, Any], b: np.ndarray[Any, Any]) -> float:
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
