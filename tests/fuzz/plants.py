"""Patterns of rules, planted in a draft: at variations of their examples, whether the rule matches there or not."""

from __future__ import annotations

import itertools
from functools import lru_cache
from typing import Any

import numpy as np
from onnx import NodeProto

from graphopt.errors import GraphoptError
from graphopt.ir.delta import RefusedError
from graphopt.ir.graph import Graph
from graphopt.ir.infer import make_node
from graphopt.ir.types import NUMPY_NAMES
from graphopt.prover.cases import parse_case
from graphopt.prover.instances import variations
from graphopt.rewrite.examples import build_example
from graphopt.rewrite.expr import Unknown
from graphopt.rewrite.schema import Rule
from tests.fuzz.draft import DTYPES, Draft
from tests.fuzz.quantised import quantised

_SEEDS = 4
_TRIES = 24
_WIDER = {"uint8": "uint16", "int8": "int16"}
_FAILURES = (GraphoptError, RefusedError, Unknown, ArithmeticError, ValueError, TypeError, LookupError, AttributeError)


@lru_cache(maxsize=4096)
def _cases(rule: Rule, seed: int) -> list[Any]:
    """Variations of a rule's examples; the same for the same seed, so that a model is made again from its seed."""
    made = list(itertools.islice(variations(rule, seed=seed, tries=_TRIES), _TRIES))
    return made or [parse_case(rule, case) for case in rule.examples["accept"]]


def plant(draft: Draft, rule: Rule, settle: bool = False) -> bool:
    """Plant a rule's pattern; ``settle``: the draft takes on the operator set of the instance.

    Returns:
        Whether the runtime runs it.
    """
    accepts = [parse_case(rule, case) for case in rule.examples["accept"]]
    case = dict(
        draft.choice(accepts) if draft.chance(0.35) else draft.choice(_cases(rule, draft.number(0, _SEEDS - 1)))
    )
    if settle:
        draft.opset = max(7, min(25, int(case.get("opset", draft.opset))))
        draft.opset = max(draft.opset, 21 if draft.chance(0.15) else 0)
    case["opset"] = draft.opset
    try:
        graph = build_example(rule, case, seed=draft.number(0, 99)).graph
    except _FAILURES:
        return False
    return _adopt(draft, graph, rule.id)


def _adopt(draft: Draft, graph: Graph, rule: str) -> bool:
    """Put the nodes of a graph into the draft, its inputs in place of values that are there, where that fits."""
    before = (
        list(draft.inputs),
        dict(draft.arrays),
        dict(draft.sizes),
        set(draft.constants),
        dict(draft.weights),
        list(draft.nodes),
    )
    names: dict[int, str] = {}
    floats: set[str] = set()
    swap = (
        draft.choice(DTYPES[:6]) if draft.chance(0.16) and not draft.half else None
    )  # another dtype for all that is float32
    half = draft.half or swap == "float16"
    wider = _WIDER if draft.opset >= 21 and draft.chance(0.4 if half else 0.1) else {}  # 16 bits for all that has 8
    for key, value in graph.values.items():
        if value.tensor is not None:
            array = value.tensor.numpy()
            array = array.astype(wider.get(array.dtype.name, array.dtype))
            names[key] = draft.const(
                array.astype(swap) if swap in ("float64", "float16") and array.dtype == np.float32 else array
            )
    for key in graph.inputs:
        type = graph.type(key)
        if type.dtype not in NUMPY_NAMES or type.shape is None:
            return _back(draft, before)
        dtype = wider.get(NUMPY_NAMES[type.dtype], NUMPY_NAMES[type.dtype])
        dtype = swap if swap in ("float64", "float16") and dtype == "float32" else dtype
        if dtype not in DTYPES:
            return _back(draft, before)
        dims = [d if isinstance(d, int) else draft.symbol(str(d)) for d in type.shape]
        names[key] = _operand(draft, dims, dtype)
    made: list[NodeProto] = []
    outputs: list[str] = []
    for node in graph.in_order():
        for key in node.outputs:
            if key is not None:
                names[key] = draft.name()
                outputs.append(names[key])
                if graph.type(key).dtype in ("f16", "f32", "f64", "bf16"):
                    floats.add(names[key])
        ins = ["" if key is None else names[key] for key in node.inputs]
        outs = ["" if key is None else names[key] for key in node.outputs]
        made.append(make_node(node.op, node.domain, graph.opsets.get(node.domain, 1), ins, outs, node.attributes))
    if not draft.adopt(made, outputs, floats):
        return _back(draft, before)
    draft.planted.append(rule)
    return True


def _operand(draft: Draft, dims: list[Any], dtype: str) -> str:
    """A value of this type that is there, or a new input, now and then behind an operator."""
    sizes = tuple(draft.sizes[d] if isinstance(d, str) else d for d in dims)
    dtype = draft.real().name if dtype == "float32" else dtype
    fits = [
        n for n, a in draft.arrays.items() if a.dtype.name == dtype and a.shape == sizes and n not in draft.constants
    ]
    if fits and draft.chance(0.5):
        return str(draft.choice(fits))
    name = draft.input(dims, "float32" if dtype == draft.real().name else dtype)
    if draft.chance(0.08) and (unit := quantised(draft, name)):
        return unit
    if draft.chance(0.3):
        made = draft.add(draft.choice(("Neg", "Relu", "Abs", "Identity")), [name])
        name = made[0] if made else name
    return name


def _back(draft: Draft, before: Any) -> bool:
    """Forget a plant that does not run."""
    draft.inputs, draft.arrays, draft.sizes, draft.constants, draft.weights, draft.nodes = before
    return False
