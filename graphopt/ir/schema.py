"""Whether ONNX's schema of an operator set allows a node: the operator, its attributes, operands and their types.

ONNX's inference answers for the shapes of a node, and says nothing of an operator that an operator set does not have, of
an operand too many, or of an attribute that came with a later version. A rule writes for the newest version; here it is
held against that of the model.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

import onnx
import onnx.defs
import onnx.helper

from graphopt.ir.types import ELEMENT_TYPES, ValueType

TYPE_STRINGS = {row.short: f"tensor({row.runtime})" for row in ELEMENT_TYPES}
"""How schemas and kernels write an element type: ``tensor(float)`` for ``f32``."""
DTYPE_OF = {text: name for name, text in TYPE_STRINGS.items()}


@lru_cache(maxsize=4096)
def schema_of(op: str, domain: str, version: int) -> Any | None:
    """ONNX's schema of an operator in a version of its operator set; ``None`` where there is none."""
    try:
        found = onnx.defs.get_schema(op, version, domain)
    except onnx.defs.SchemaError:
        return None
    return None if found.deprecated else found


@lru_cache(maxsize=4096)
def schema_default(op: str, domain: str, attribute: str, version: int) -> Any | None:
    """The default that ONNX's schema of a version of the operator set gives to an attribute; ``None`` where it gives none."""
    schema = schema_of(op, domain, version)
    found = schema.attributes.get(attribute) if schema is not None else None
    if found is None or not found.default_value.name:
        return None
    value = onnx.helper.get_attribute_value(found.default_value)
    return value.decode() if isinstance(value, bytes) else tuple(value) if isinstance(value, list) else value


def formal(schema: Any, i: int) -> Any | None:
    """The formal input that operand ``i`` stands for; ``None`` for one too many."""
    return parameter_at(schema.inputs, i)


def parameter_at(declared: Sequence[Any], i: int) -> Any | None:
    """The formal input or output at a place, of which the last may stand for many; ``None`` beyond."""
    if i < len(declared):
        return declared[i]
    last = declared[-1] if declared else None
    variadic = onnx.defs.OpSchema.FormalParameterOption.Variadic
    return last if last is not None and last.option == variadic else None


def complaint(op: str, domain: str, version: int, attributes: Sequence[str], dtypes: Sequence[str | None]) -> str:
    """What the schema forbids about a node; empty where it allows it, or knows nothing of it.

    Args:
        op: Operator type.
        domain: Operator domain.
        version: Version of the domain's operator set.
        attributes: Names of the attributes that are given.
        dtypes: Of each operand: its dtype, ``""`` where that is not known, ``None`` where the operand is left out.
    """
    return _complaint(op, domain, version, tuple(attributes), tuple(dtypes))


RISKY = frozenset({"Split", "LayerNormalization", "Einsum", "GatherND"})
"""Operators for which :func:`deadly` has an answer."""


def deadly(op: str, domain: str, attributes: Mapping[str, Any], outputs: int) -> str:
    """What ends the process in ONNX's inference (onnx 1.23), or never does; empty for nothing.

    Args:
        op: Operator type.
        domain: Operator domain.
        attributes: By name; strings as text.
        outputs: How many the node has.
    """
    if domain not in ("", "ai.onnx"):
        return ""
    parts, axis, batch = attributes.get("num_outputs"), attributes.get("axis", 0), attributes.get("batch_dims", 0)
    if op == "Split" and isinstance(parts, int) and parts != outputs:
        return f"Split makes {parts} parts and has {outputs} outputs"
    if op == "LayerNormalization" and isinstance(axis, int) and abs(axis) >= 2**31:
        return f"LayerNormalization has no axis {axis}"
    if op == "Einsum" and not str(attributes.get("equation", "")).isascii():
        return "the equation of an Einsum is made of ASCII letters"
    if op == "GatherND" and isinstance(batch, int) and not 0 <= batch < 2**31:
        return f"GatherND has no {batch} batch dimensions"
    return ""


def allowed(schema: Any, parameter: Any) -> Sequence[str]:
    """The types that a parameter may have, as ONNX writes them; its own ``types`` onnx 1.20 can't hand to Python."""
    said = parameter.type_str
    return next((c.allowed_type_strs for c in schema.type_constraints if c.type_param_str == said), [said])


@lru_cache(maxsize=1 << 14)
def _complaint(op: str, domain: str, version: int, attributes: tuple[str, ...], dtypes: tuple[str | None, ...]) -> str:
    if not onnx.defs.has(op, domain=domain):
        return ""  # a contributed operator: the runtime knows it
    schema = schema_of(op, domain, version)
    if schema is None:
        return f"{op} is not in operator set {version}"
    unknown = next((name for name in attributes if name not in schema.attributes), None)
    if unknown is not None:
        return f"{op} has no attribute {unknown!r} in operator set {version}"
    missing = next((name for name, a in schema.attributes.items() if a.required and name not in attributes), None)
    if missing is not None:
        return f"{op} needs the attribute {missing!r} in operator set {version}"
    if not schema.min_input <= len(dtypes) <= schema.max_input:
        return f"{op} can't have {len(dtypes)} operands in operator set {version}"
    bound: dict[str, str] = {}
    for i, dtype in enumerate(dtypes):
        parameter = formal(schema, i)
        if parameter is None:
            return f"{op} can't have {len(dtypes)} operands in operator set {version}"
        if dtype is None:
            if parameter.option == onnx.defs.OpSchema.FormalParameterOption.Single:
                return f"{op} needs its operand {parameter.name!r}"
            continue
        text = TYPE_STRINGS.get(dtype)
        if text is None:
            continue
        if text not in allowed(schema, parameter):
            return f"{op} can't have {parameter.name!r} of {dtype} in operator set {version}"
        if parameter.is_homogeneous and bound.setdefault(parameter.type_str, text) != text:
            return f"{op} can't have operands of both {dtype} and {DTYPE_OF[bound[parameter.type_str]]}"
    return ""


def unshaped(type: ValueType) -> ValueType:
    """A type without the shape, that of a sequence without its tensors'."""
    if type.other is None:
        return ValueType(type.dtype)
    proto = onnx.TypeProto.FromString(type.other)
    proto.sequence_type.elem_type.tensor_type.ClearField("shape")
    return ValueType(other=proto.SerializeToString(deterministic=True))
