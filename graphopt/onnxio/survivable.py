"""Operators of which ONNX's own inference may end the process, inferred in a way that does not.

A Pad that cuts off more than there is, and a Conv or a pool with a kernel larger than its operand, are given a size below 0, which only
the inference of a whole model comes to know; operators of strings and trees take an operand for one of a known type, which what an operator
without inference makes is not (a forest of the first version of its domain). The operators that read it are therefore called by another name there, ours,
of which the inference is that of ONNX where no size is below 0 and no type is missing, and says nothing elsewhere.
"""

from __future__ import annotations

import atexit
import threading
from collections.abc import Iterable, Sequence
from functools import cache

from onnx import FunctionProto, ModelProto, NodeProto, TensorProto, defs, helper

from graphopt.onnxio.bodies import graphs, with_inner
from graphopt.onnxio.read import ML, STANDARD

_DOMAINS = {"": "graphopt.guarded", ML: "graphopt.guarded.ml"}  # registered in this process alone, and never written
_OURS = "Guarded"  # ONNX's reference evaluator, and onnxscript by it, can't be imported where a name is of two domains
GUARDED = {
    "Slice": "",
    "GatherND": "",
    "RegexFullMatch": "",
    "LabelEncoder": ML,
    "DictVectorizer": ML,
    "TreeEnsemble": ML,
}
"""Operators of which ONNX's inference ends the process where a size is below 0 or the type of an operand is not known, with their domains."""
_registering = threading.Lock()


def guard(proto: ModelProto) -> None:
    """Give another domain to the nodes that ONNX's inference of this model may not survive."""
    bodies = [*graphs(proto.graph)]
    _guard([node for graph in bodies for node in graph.node], [t for graph in bodies for t in graph.initializer], proto)
    for function in proto.functions:
        _guard(list(with_inner(function.node)), (), function)


def _guard(nodes: Sequence[NodeProto], weights: Iterable[TensorProto], owner: ModelProto | FunctionProto) -> None:
    guarded = [node for node in nodes if GUARDED.get(node.op_type) == _plain(node.domain) and node.input]
    versions = {_plain(o.domain): o.version for o in reversed(owner.opset_import)}
    if not guarded:
        return
    _register()
    vectors = _vectors(nodes, weights, versions.get("", 0))
    used = set[str]()
    for node in guarded:
        domain = _plain(node.domain)
        if domain in versions and (node.op_type != "Slice" or node.input[0] not in vectors):
            node.domain, node.op_type = _DOMAINS[domain], _OURS + node.op_type
            used.add(domain)
    owner.opset_import.extend(helper.make_opsetid(_DOMAINS[domain], versions[domain]) for domain in sorted(used))


def _plain(domain: str) -> str:
    return "" if domain in STANDARD else domain


def _vectors(nodes: Sequence[NodeProto], weights: Iterable[TensorProto], version: int) -> set[str]:
    """Values of shape arithmetic, which never are of a length below 0: ONNX follows their elements, through Slices as they are.

    A name of several scopes is none of them.
    """
    found = {t.name for t in weights if len(t.dims) < 2 and min(t.dims, default=0) >= 0}
    made: set[str] = {*found}
    for node in nodes:  # in topological order
        held = [a.t for a in node.attribute if a.name == "value"]
        follows = (
            node.op_type in ("Shape", "Size")
            or (node.op_type == "Constant" and all(len(t.dims) < 2 and min(t.dims, default=0) >= 0 for t in held))
            or (_follows(node.op_type, version) and found.issuperset(filter(None, node.input)))
        )
        if node.domain in STANDARD and follows:
            found.update(set(node.output) - made)
        else:
            found.difference_update(node.output)
        made.update(node.output)
    return found


@cache
def _follows(op: str, version: int) -> bool:
    """Whether ONNX follows the elements of vectors through an operator."""
    try:
        return bool(defs.get_schema(op, version, "").has_data_propagation_function)
    except defs.SchemaError:
        return False


def _register() -> None:
    """Make the guarded operators known, once for each version that they have, whichever thread comes first."""
    with _registering:
        _register_once()


@cache
def _register_once() -> None:
    for schema in defs.get_all_schemas_with_history():
        if GUARDED.get(schema.name) == schema.domain and schema.has_type_and_shape_inference_function:
            domain = _DOMAINS[schema.domain]
            guarded = defs.OpSchema(_OURS + schema.name, domain, schema.since_version)
            guarded.set_type_and_shape_inference_function(_survivable(schema))
            defs.register_schema(guarded)
            # Where onnx is built with pybind11 (1.19), a function of Python's that outlives the interpreter keeps the process from ending.
            atexit.register(defs.deregister_schema, guarded.name, schema.since_version, domain)


def _survivable(schema: defs.OpSchema):  # type: ignore[no-untyped-def]
    infer = schema.get_type_and_shape_inference_function()

    def inferred(context):  # type: ignore[no-untyped-def]
        types = [context.get_input_type(i) for i in range(context.get_num_inputs())]
        if types[0] is None:
            return
        if any(dim.dim_value < 0 for type in types if type is not None for dim in type.tensor_type.shape.dim):
            return
        try:
            infer(context)
        except Exception:
            return  # as ONNX takes it: what a node makes is not known, and the others' inference goes on

    return inferred
