"""Operators of which ONNX's own inference ends the process where a size is below 0, inferred in a way that does not.

A Pad that cuts off more than there is, and a Conv or a pool with a kernel larger than its operand, are given a size below 0, which only
the inference of a whole model comes to know. The operators that read it are therefore called by another domain there, ours, of which
the inference is that of ONNX where no size is below 0, and says nothing elsewhere.
"""

from __future__ import annotations

import atexit
import threading
from collections.abc import Iterable, Sequence
from functools import cache

from onnx import FunctionProto, ModelProto, NodeProto, TensorProto, defs, helper

from graphopt.onnxio.bodies import graphs
from graphopt.onnxio.read import STANDARD

_DOMAIN = "graphopt.guarded"  # registered in this process alone, and never written
GUARDED = ("Slice", "GatherND")
"""Operators of which ONNX's inference ends the process where a size is below 0."""
_registering = threading.Lock()


def guard(proto: ModelProto) -> None:
    """Give another domain to the nodes that ONNX's inference of this model may not survive."""
    bodies = [*graphs(proto.graph)]
    _guard([node for graph in bodies for node in graph.node], [t for graph in bodies for t in graph.initializer], proto)
    for function in proto.functions:
        _guard(function.node, (), function)


def _guard(nodes: Sequence[NodeProto], weights: Iterable[TensorProto], owner: ModelProto | FunctionProto) -> None:
    guarded = [node for node in nodes if node.op_type in GUARDED and node.domain in STANDARD and node.input]
    version = next((o.version for o in owner.opset_import if o.domain in STANDARD), 0)
    if not guarded or not version:
        return
    _register()
    vectors = _vectors(nodes, weights, version)
    for node in guarded:
        if node.op_type != "Slice" or node.input[0] not in vectors:
            node.domain = _DOMAIN
    owner.opset_import.append(helper.make_opsetid(_DOMAIN, version))


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
        if schema.name in GUARDED and schema.domain == "":
            guarded = defs.OpSchema(schema.name, _DOMAIN, schema.since_version)
            guarded.set_type_and_shape_inference_function(_survivable(schema))
            defs.register_schema(guarded)
            # Where onnx is built with pybind11 (1.19), a function of Python's that outlives the interpreter keeps the process from ending.
            atexit.register(defs.deregister_schema, schema.name, schema.since_version, _DOMAIN)


def _survivable(schema: defs.OpSchema):  # type: ignore[no-untyped-def]
    infer = schema.get_type_and_shape_inference_function()

    def inferred(context):  # type: ignore[no-untyped-def]
        types = [context.get_input_type(i) for i in range(context.get_num_inputs())]
        if any(dim.dim_value < 0 for type in types if type is not None for dim in type.tensor_type.shape.dim):
            return
        try:
            infer(context)
        except Exception:
            return  # as ONNX takes it: what a node makes is not known, and the others' inference goes on

    return inferred
