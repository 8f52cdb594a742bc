"""Small models by hand, and ways to take them through graphopt and through the runtime."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
from onnx import GraphProto, ModelProto, NodeProto, TensorProto, helper, numpy_helper

from graphopt.ir.delta import RefusedError
from graphopt.ir.graph import Graph
from graphopt.ir.simplify import simplify
from graphopt.onnxio.emit import emit
from graphopt.onnxio.load import Model, load
from graphopt.onnxio.save import save
from graphopt.rewrite.apply import apply
from graphopt.rewrite.library import Library
from graphopt.rewrite.schema import parse_rules
from graphopt.rewrite.sites import Sites
from tests.ir.check import problems

F, INT, B = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL

Typed = tuple[str, int, Sequence[int | str | None] | None]
"""Name, element type and shape of a graph input or output."""

node = helper.make_node
Arrays = Mapping[str, Any]


def weight(name: str, array: Any) -> TensorProto:
    """An initializer with its bytes in ``raw_data``."""
    return numpy_helper.from_array(np.asarray(array), name)


def body(
    nodes: Sequence[NodeProto],
    outputs: Iterable[Typed],
    inputs: Iterable[Typed] = (),
    weights: Sequence[TensorProto] = (),
) -> GraphProto:
    """The body of an If, Loop or Scan."""
    typed = helper.make_tensor_value_info
    return helper.make_graph(nodes, "body", [typed(*i) for i in inputs], [typed(*o) for o in outputs], weights)


def model(
    nodes: Sequence[NodeProto],
    inputs: Iterable[Typed],
    outputs: Iterable[Typed],
    weights: Sequence[TensorProto] = (),
    *,
    opset: int = 17,
    ir_version: int = 8,
    domains: Mapping[str, int] | None = None,
    functions: Sequence[onnx.FunctionProto] = (),
) -> ModelProto:
    """A model."""
    typed = helper.make_tensor_value_info
    graph = helper.make_graph(nodes, "g", [typed(*i) for i in inputs], [typed(*o) for o in outputs], weights)
    imports = [helper.make_opsetid(d, v) for d, v in {"": opset, **(domains or {})}.items()]
    return helper.make_model(graph, opset_imports=imports, ir_version=ir_version, functions=functions)


def library(*rules: str) -> Library:
    """A library of rules given as YAML mappings."""
    text = "".join("  - " + textwrap.indent(textwrap.dedent(rule).strip(), "    ").strip() + "\n" for rule in rules)
    return Library(tuple(parse_rules(f"family: test\ndoc: for tests\nrules:\n{text}", "test.yaml")))


def rule(id: str, match: Sequence[str], replace: Sequence[str], **parts: Any) -> str:
    """A rule as YAML; further parts are lists of lines, or a mapping for ``let``."""
    lines = [f"id: {id}", "doc: for tests", f"equal: {parts.pop('equal', 'real')}"]
    if "roots" in parts:
        lines.append(f"roots: {parts.pop('roots')}")
    lets = parts.pop("let", {})
    for part, items in {"match": match, "replace": replace, **parts}.items():
        lines += [f"{part}:"] + [f"  - '{item}'" for item in items]
    lines += ["let:"] + [f"  {name}: '{text}'" for name, text in lets.items()] if lets else []
    return "\n".join(lines)


DROP_IDENTITY = rule("drop-identity", ["y = Identity(x)"], ["y = x"], equal="exact")


def rewritten(graph: Graph, rules: Library, limit: int = 50) -> tuple[Graph, int]:
    """The graph after applying whatever matches, first come first served, and the number of rewrites."""
    sites, done = Sites.of(graph, rules), 0
    refused: set[Any] = set()
    while done < limit and (keys := sorted(k for k in sites.matches if k not in refused)):
        try:
            graph, delta = apply(graph, sites.matches[keys[0]])
        except RefusedError:
            refused.add(keys[0])
            continue
        sites, done = sites.after(graph, delta), done + 1
        assert problems(graph) == []
    return graph, done


def run(source: ModelProto | Path, feeds: Arrays, optimised: bool = False) -> list[Any]:
    """The runtime's outputs, its own optimiser off unless asked for."""
    levels = onnxruntime.GraphOptimizationLevel
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = levels.ORT_ENABLE_ALL if optimised else levels.ORT_DISABLE_ALL
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    data: Any = str(source) if isinstance(source, Path) else source.SerializeToString()
    session = onnxruntime.InferenceSession(data, options, providers=["CPUExecutionProvider"])
    return list(session.run(None, dict(feeds)))


def same(a: Sequence[Any], b: Sequence[Any], rtol: float = 1e-5, atol: float = 1e-5) -> None:
    """Both hold equal arrays."""
    assert len(a) == len(b)
    for x, y in zip(a, b, strict=True):
        np.testing.assert_allclose(np.asarray(x), np.asarray(y), rtol=rtol, atol=atol, strict=True)


def through(
    source: ModelProto | Path,
    folder: Path,
    rules: Library | None = None,
    *,
    edit: Callable[[Graph], Graph] | None = None,
    max_bytes: int | None = None,
    external: bool = False,
    simplified: bool = True,
    **options: Any,
) -> tuple[Path, Model, Graph]:
    """Load, simplify, rewrite and save a model; the file, the loaded model and the last graph."""
    if isinstance(source, ModelProto):
        path = folder / "in.onnx"
        path.write_bytes(source.SerializeToString())
        source = path
    loaded = load(source, **options)
    graph = loaded.graph
    assert problems(graph) == []
    if simplified:
        graph = simplify(graph)
        assert problems(graph) == []
    if rules is not None:
        graph, _ = rewritten(graph, rules)
    if edit is not None:
        graph = edit(graph)
        assert problems(graph) == []
    out = folder / "out.onnx"
    save(emit(loaded, graph, max_bytes=max_bytes), out, external=external)
    return out, loaded, graph


def identical(a: ModelProto, b: ModelProto) -> bool:
    """Whether two models are equal to the last bit of their canonical serialisation."""
    return a.SerializeToString(deterministic=True) == b.SerializeToString(deterministic=True)


def normal(rng: np.random.Generator, *shape: int) -> np.ndarray[Any, np.dtype[np.float32]]:
    """Random float32."""
    return rng.standard_normal(shape).astype(np.float32)
