"""A failing model made small: outputs go, nodes go, what they made becomes an input, as long as it fails in the same way."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from onnx import ModelProto, helper

from graphopt.rewrite.library import Library
from tests.fuzz.draft import DTYPES, Input, code
from tests.fuzz.forms import reads
from tests.fuzz.trial import CHANGED, CRASHED, Case, Verdict, asked, trial

_ROUNDS = 60
SEEDS = 3


def fails(case: Case, library: Library, rule: str, outcome: str) -> Verdict | None:
    """How a model fails, if it does: by this rule at some place, or (without one) before any rule."""
    known = library.by_id.get(rule)
    library = library if known is None and rule else Library((known,) if known is not None else (), library.ending)
    for seed in range(SEEDS if rule else 1):
        verdict = trial(case, library, seed, only=rule or "-")
        if verdict is not None and verdict.outcome == outcome and verdict.rule in (rule, "simplify", ""):
            return verdict
    return None


def shrunk(case: Case, library: Library, rule: str, outcome: str) -> Case:
    """The smallest case found that fails in the same way; the case itself where it does not fail again."""
    if outcome not in (CHANGED, CRASHED) or fails(case, library, rule, outcome) is None:
        return case
    for _ in range(_ROUNDS):
        for smaller in _smaller(case):
            if fails(smaller, library, rule, outcome) is not None:
                case = smaller
                break
        else:
            break
    return case


def _smaller(case: Case) -> Iterator[Case]:
    graph = case.model.graph
    if len(graph.output) > 1:
        for output in graph.output:
            yield _kept(case, [output.name], {})
        for output in graph.output:
            yield _kept(case, [o.name for o in graph.output if o is not output], {})
    made = [o for n in graph.node for o in n.output if o and n.op_type != "Constant"]
    shapes = _observed(case, made)
    outputs = [o.name for o in graph.output]
    for name in reversed(made):  # what was computed is given instead
        if name not in outputs and name in shapes:
            yield _kept(case, outputs, {name: shapes[name]})
    for name in made:  # the model ends earlier
        if name not in outputs:
            yield _kept(case, [name], {})
    if len(case.bindings) > 1:
        for binding in case.bindings:
            yield Case(case.model, case.inputs, (binding,), case.planted)


def _kept(case: Case, outputs: Sequence[str], given: Mapping[str, Input]) -> Case:
    """The part of a model that some outputs need, with some values given."""
    model = ModelProto()
    model.CopyFrom(case.model)
    graph = model.graph
    needed, nodes = set(outputs), []
    for node in reversed(case.model.graph.node):
        if needed & set(node.output) - set(given):
            nodes.append(node)
            needed |= reads(node)
    inputs = [*(i for i in case.inputs if i.name in needed), *(i for n, i in given.items() if n in needed)]
    declared = {i.name: i for i in case.model.graph.input}
    infos = {o.name: o for o in case.model.graph.output}
    for field in ("node", "input", "output", "initializer", "value_info"):
        graph.ClearField(field)
    graph.node.extend(nodes[::-1])
    graph.initializer.extend(t for t in case.model.graph.initializer if t.name in needed)
    weights = {t.name for t in graph.initializer}
    graph.input.extend(
        declared.get(i.name) or helper.make_tensor_value_info(i.name, _number(i.dtype), i.dims) for i in inputs
    )
    graph.input.extend(declared[n] for n in sorted(weights) if n in declared)
    types = _types(case, [o for o in outputs if o not in infos])
    graph.output.extend(infos.get(o) or types[o] for o in outputs if o in infos or o in types)
    return Case(model, tuple(inputs), case.bindings, case.planted)


def _number(dtype: str) -> int:
    return code(np.dtype(dtype)) if dtype != "bfloat16" else 16


def _types(case: Case, names: Sequence[str]) -> dict[str, Any]:
    for made in asked(case.model, names, case.feeds()) if names else []:
        if made is not None:
            return {n: helper.make_tensor_value_info(n, code(a.dtype), None) for n, a in zip(names, made, strict=True)}
    return {}


def _observed(case: Case, names: Sequence[str]) -> dict[str, Input]:
    """Each value as an input: a dimension that is the same everywhere is a number, one that goes with a symbol that symbol."""
    rows = asked(case.model, names, case.feeds())
    usable = [i for i, made in enumerate(rows) if made is not None]
    found: dict[str, Input] = {}
    if not usable:
        return found
    symbols = {s: tuple(case.bindings[i].get(s, -1) for i in usable) for s in case.bindings[usable[0]]}
    for place, name in enumerate(names):
        arrays = [rows[i][place] for i in usable]  # type: ignore[index]
        dims: list[int | str] = []
        for sizes in zip(*(a.shape for a in arrays), strict=False):
            same = [s for s, row in symbols.items() if row == sizes]
            dims.append(sizes[0] if len(set(sizes)) == 1 else same[0] if same else "")
        if "" not in dims and arrays[0].dtype.name in DTYPES and len(dims) == arrays[0].ndim:
            found[name] = Input(name, arrays[0].dtype.name, tuple(dims))
    return found
