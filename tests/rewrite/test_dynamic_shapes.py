"""A dense layer and a split into heads as TensorFlow exports them: the computed shapes go, for every size of the inputs."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto

from graphopt.ir.delta import RefusedError
from graphopt.ir.simplify import simplify
from graphopt.onnxio.emit import emit
from graphopt.onnxio.load import load
from graphopt.onnxio.save import to_proto
from graphopt.rewrite.apply import apply
from graphopt.rewrite.library import load_library
from graphopt.rewrite.sites import Sites
from tests.onnxio.models import F, model, node, normal, run, same, weight

LIBRARY = load_library()
I32, I64 = TensorProto.INT32, TensorProto.INT64


def tensordot(x: str, y: str, w: str, width: str):
    """``x @ w`` by a product of two dimensions, every size computed from the shape of ``x``."""
    return [
        node("Shape", [x], [f"{y}.shape"]),
        node("Cast", [f"{y}.shape"], [f"{y}.dims"], to=I32),
        node("Gather", [f"{y}.dims", "front"], [f"{y}.free"]),
        node("Gather", [f"{y}.dims", "back"], [f"{y}.inner"]),
        node("ReduceProd", [f"{y}.free"], [f"{y}.rows"], axes=[0], keepdims=0),
        node("ReduceProd", [f"{y}.inner"], [f"{y}.columns"], axes=[0], keepdims=0),
        node("Unsqueeze", [f"{y}.rows"], [f"{y}.r"], axes=[0]),
        node("Unsqueeze", [f"{y}.columns"], [f"{y}.c"], axes=[0]),
        node("Concat", [f"{y}.r", f"{y}.c"], [f"{y}.matrix"], axis=0),
        node("Cast", [f"{y}.matrix"], [f"{y}.matrix64"], to=I64),
        node("Reshape", [x, f"{y}.matrix64"], [f"{y}.flat"]),
        node("MatMul", [f"{y}.flat", w], [f"{y}.product"]),
        node("Concat", [f"{y}.free", width], [f"{y}.result"], axis=0),
        node("Cast", [f"{y}.result"], [f"{y}.result64"], to=I64),
        node("Reshape", [f"{y}.product", f"{y}.result64"], [y]),
    ]


def exported():
    rng = np.random.default_rng(0)
    nodes = [
        *tensordot("x", "d", "w", "eight"),
        node("Add", ["d", "b"], ["p"]),
        *tensordot("p", "e", "v", "eight"),
        node("Slice", ["d.shape"], ["batch"], starts=[0], ends=[1]),
        node("Concat", ["batch", "open", "heads"], ["split"], axis=0),
        node("Reshape", ["e", "split"], ["h"]),
        node("Transpose", ["h"], ["t"], perm=[0, 2, 1, 3]),
    ]
    weights = [
        weight("w", normal(rng, 6, 8)), weight("v", normal(rng, 8, 8)), weight("b", normal(rng, 8)),
        weight("front", np.array([0, 1], np.int32)), weight("back", np.array([2], np.int32)),
        weight("eight", np.array([8], np.int32)), weight("open", np.array([-1])), weight("heads", np.array([2, 4])),
    ]  # fmt: skip
    return model(nodes, [("x", F, ["B", "S", 6])], [("t", F, None)], weights, opset=9)


def optimised(proto):
    """The model after everything that the shape family prefers."""
    loaded = load(proto)
    graph = simplify(loaded.graph)
    rules = LIBRARY.without(r.id for r in LIBRARY.rules if r.family not in ("shape", "identity"))
    sites, refused = Sites.of(graph, rules), set()
    while matches := [
        sites.matches[k] for k in sorted(sites.matches) if sites.matches[k].preferred and k not in refused
    ]:
        key = next(k for k in sorted(sites.matches) if sites.matches[k] is matches[0])
        before = graph.hash
        try:
            graph, delta = apply(graph, matches[0])
        except RefusedError:
            refused.add(key)
            continue
        sites = sites.after(graph, delta)
        if graph.hash == before:
            refused.add(key)
    return to_proto(emit(loaded, graph))


@pytest.fixture(scope="module")
def pair():
    proto = exported()
    return proto, optimised(proto)


def test_nothing_computes_a_shape_any_more(pair):
    assert [n.op_type for n in pair[1].graph.node] == ["MatMul", "Add", "MatMul", "Reshape", "Transpose"]


@pytest.mark.parametrize("batch", [1, 2, 3])
@pytest.mark.parametrize("length", [1, 2, 5, 8])
def test_outputs_are_the_same_for_every_size(pair, batch, length):
    feeds = {"x": normal(np.random.default_rng(1), batch, length, 6)}
    same(run(pair[0], feeds), run(pair[1], feeds))
