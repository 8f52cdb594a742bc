"""Which nodes the CPU provider has a kernel for, from the runtime's own list.

ONNX allows an operator for types that the runtime has no kernel for (GlobalAveragePool of float64): a model with such a
node does not open. An operator that ONNX defines as a function of others is taken apart when it has no kernel, where the operators of
that function are those of the model's operator set and have kernels themselves: that is asked of the runtime, once for each such node. float16
is computed in float32 where only that has a kernel.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Any

from onnx import ModelProto, ValueInfoProto, helper

from graphopt.errors import SessionError
from graphopt.ir.delta import Delta
from graphopt.ir.graph import Graph, Node
from graphopt.ir.infer import type_proto
from graphopt.ir.schema import TYPE_STRINGS, formal, schema_of
from graphopt.ir.types import DTYPES, ValueType
from graphopt.runtime.providers import CPU

_BUILT_IN = {CPU, "AzureExecutionProvider"}
"""The providers of the CPU's package; the second calls a service."""


def unsupported(graph: Graph, nodes: Iterable[Node] | None = None) -> str:
    """The first node that the CPU provider has no kernel for, as text; empty where it has one for each.

    Args:
        graph: The graph.
        nodes: Which of its nodes to look at; all by default.
    """
    for node in graph.nodes.values() if nodes is None else nodes:
        if not node.opaque and not _runs(graph, node):
            types = ", ".join(str(graph.type(k).dtype) for k in node.inputs if k is not None)
            return (
                f"onnxruntime has no kernel for {node.op} of {types} in operator set {graph.opsets.get(node.domain, 1)}"
            )
    return ""


def complaint(graph: Graph, delta: Delta) -> str:
    """The first of the nodes that an edit added for which there is no kernel, or a wrong one; empty where there is none."""
    if any(_loses_texts(graph, node) for node in delta.added):
        return "onnxruntime's Gather copies the first text alone of those that lie together"
    return unsupported(graph, delta.added)


def _loses_texts(graph: Graph, node: Node) -> bool:
    """Whether a Gather takes several texts at each index: along no last axis, unless those behind it have one place each."""
    if node.op != "Gather" or node.domain or node.opaque or node.inputs[0] is None:
        return False
    x, axis = graph.type(node.inputs[0]), node.attributes.get("axis", 0)
    if x.dtype != "str":
        return False
    return x.shape is None or any(d != 1 for d in x.shape[axis % len(x.shape) + 1 :])


def _runs(graph: Graph, node: Node) -> bool:
    types = tuple(None if k is None else graph.type(k).dtype for k in node.inputs)
    results = tuple(None if k is None else graph.type(k).dtype for k in node.outputs)
    return has_kernel(node.op, node.domain, graph.opsets.get(node.domain, 1), types, results)


@lru_cache(maxsize=1 << 14)
def has_kernel(
    op: str, domain: str, version: int, operands: tuple[str | None, ...], results: tuple[str | None, ...]
) -> bool:
    """Whether the CPU provider runs an operator on operands of these dtypes; yes where the runtime does not say that it doesn't.

    Args:
        op: Operator type.
        domain: Operator domain.
        version: Version of the domain's operator set.
        operands: Dtype of each operand, ``None`` where it is left out or not known.
        results: Dtype of each result.
    """
    listed = _kernels()
    if listed is None:
        return _opens(op, domain, version, operands, results)
    kernels = listed.get((domain, op))
    schema = schema_of(op, domain, version)
    if schema is None:  # a contributed operator
        asked = _asked(op, domain, operands)
        return not kernels or any(_takes(kernel, version, asked) for kernel in kernels)
    given = [(formal(schema, i), dtype) for i, dtype in enumerate(operands)]
    given += [(schema.outputs[min(i, len(schema.outputs) - 1)], dtype) for i, dtype in enumerate(results)]
    wanted: dict[str, set[str]] = defaultdict(set)
    for parameter, dtype in given:
        if parameter is not None and dtype in TYPE_STRINGS:
            wanted[parameter.type_str].add(str(dtype))
            wanted[parameter.name].add(str(dtype))
    if any(_takes(kernel, schema.since_version, wanted) for kernel in kernels or ()):
        return True
    composed = schema.has_function or schema.has_context_dependent_function
    return composed and _opens(op, domain, version, operands, results)


def _asked(op: str, domain: str, operands: Sequence[str | None]) -> dict[str, set[str]]:
    """Dtypes by the type parameters of the runtime's own schema; of an operator of other packages nothing is asked."""
    found: dict[str, set[str]] = defaultdict(set)
    for parameter, dtype in zip(_contributed().get((domain, op), ()), operands, strict=False):
        if dtype in TYPE_STRINGS:
            found[parameter].add(str(dtype))
    return found


@lru_cache(maxsize=1)
def _contributed() -> dict[tuple[str, str], list[str]]:
    """The type parameters of the operands of the runtime's own operators."""
    from graphopt.runtime.ort import contributed_schemas

    try:
        schemas = contributed_schemas()
    except ImportError:  # a runtime that was built without them
        return {}
    return {(each.domain, each.name): [operand.typeStr for operand in each.inputs] for each in schemas}


def _opens(
    op: str, domain: str, version: int, operands: tuple[str | None, ...], results: tuple[str | None, ...]
) -> bool:
    """Whether the runtime finds kernels for a model of one node; yes where it has another complaint."""
    from graphopt.runtime.session import LoadableModel, Session, SessionConfig

    model = ModelProto(ir_version=8)
    model.opset_import.add(domain=domain, version=version)
    graph = model.graph
    ins = [f"x{i}" if dtype in DTYPES else "" for i, dtype in enumerate(operands)]
    outs = [f"y{i}" if dtype in DTYPES else "" for i, dtype in enumerate(results)]
    graph.node.append(helper.make_node(op, ins, outs, domain=domain))
    for values, names, dtypes in ((graph.input, ins, operands), (graph.output, outs, results)):
        values.extend(
            ValueInfoProto(name=name, type=type_proto(ValueType(dtype)))
            for name, dtype in zip(names, dtypes, strict=True)
            if name
        )
    try:
        Session(LoadableModel(model.SerializeToString()), SessionConfig(level="disabled")).close()
    except SessionError as error:
        return "Could not find an implementation" not in str(error)
    return True


def _takes(kernel: Any, since: int, wanted: dict[str, set[str]]) -> bool:
    first, last = kernel.version_range
    if not first <= since <= last:
        return False
    for name, allowed in kernel.type_constraints.items():
        for dtype in wanted.get(name, ()):
            if TYPE_STRINGS[dtype] not in allowed and not (dtype == "f16" and TYPE_STRINGS["f32"] in allowed):
                return False
    return True


@lru_cache(maxsize=1)
def _kernels() -> dict[tuple[str, str], list[Any]] | None:
    """The CPU provider's kernels by domain and operator, ``None`` where the runtime can't be asked for them.

    Before 1.26 it lists those of all providers or of none. To list them it loads the libraries of those that lie in libraries of
    their own, and where one does not load (TensorRT comes with every package for CUDA, and is rarely there) it ends the process.
    """
    from graphopt.runtime.ort import onnxruntime

    binding = onnxruntime.capi.onnxruntime_pybind11_state
    if hasattr(binding, "get_registered_ep_kernel_defs"):
        listed = binding.get_registered_ep_kernel_defs(CPU)
    elif hasattr(binding, "get_all_opkernel_def") and set(onnxruntime.get_available_providers()) <= _BUILT_IN:
        listed = [kernel for kernel in binding.get_all_opkernel_def() if kernel.provider == CPU]
    else:
        return None
    found: dict[tuple[str, str], list[Any]] = defaultdict(list)
    for kernel in listed:
        found[(kernel.domain, kernel.op_name)].append(kernel)
    return found
