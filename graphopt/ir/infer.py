"""Types of the outputs of one node, by ONNX's own inference, memoised.

Rewrites add the same few nodes over and over (twelve layers are twelve times the same shapes), so nearly every question
is answered from memory. The runtime's contributed operators have no schema in the ``onnx`` package; those that rules use
stand in a small table here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import onnx
from onnx import AttributeProto, NodeProto, TensorShapeProto, TypeProto, helper, numpy_helper, shape_inference

from graphopt.ir.content import Content, shape
from graphopt.ir.doubts import believed, read
from graphopt.ir.graph import Opaque, Tensor
from graphopt.ir.memo import Memo
from graphopt.ir.schema import DTYPE_OF, allowed, deadly, parameter_at
from graphopt.ir.types import DTYPE_NAMES, DTYPES, NAMELESS, UNKNOWN, Dim, ValueType, dim_name, known

_memo: Memo[Any, tuple[ValueType, ...]] = Memo()
_SHAPE_DATA_LIMIT = 256  # elements; larger constants never steer a shape
_FACTORS_LIMIT = 5  # elements; the factors of a Resize, one for each axis

SCALING = frozenset({"Resize", "Upsample"})
_EARLIER = frozenset({"LayerNormalization"})
"""Operators that the runtime had before ONNX: it has kernels for them in any version of the operator set."""

_UNSHAPED = frozenset({"GroupNormalization", "MeanVarianceNormalization"})
"""Operators of which ONNX infers a type and no shape: it is that of the first operand."""

# Contributed operators whose first output is like an operand.
_LIKE_OPERAND: dict[tuple[str, str], int] = {
    ("com.microsoft", "Gelu"): 0,
    ("com.microsoft", "FastGelu"): 0,
    ("com.microsoft", "QuickGelu"): 0,
    ("com.microsoft", "BiasGelu"): 0,
    ("com.microsoft", "SkipLayerNormalization"): 0,
    ("com.microsoft", "RotaryEmbedding"): 0,
    ("", "SimplifiedLayerNormalization"): 0,
    # Experiments that ONNX has given up, and that converters of its first years wrote: the runtime still has kernels for them.
    ("", "Affine"): 0,
    ("", "ImageScaler"): 0,
    ("", "ParametricSoftplus"): 0,
    ("", "ScaledTanh"): 0,
}


def _multi_head_attention(attributes: Mapping[str, Any], inputs: Sequence[ValueType | None]) -> ValueType:
    """The queries' batch and tokens by the values' width, where both are matrices of a batch."""
    q, v = (inputs[0], inputs[2]) if len(inputs) > 2 else (None, None)
    if q is None or v is None or q.shape is None or v.shape is None:
        return UNKNOWN
    if len(q.shape) != 3 or len(v.shape) != 3:
        return ValueType(q.dtype)
    return ValueType(q.dtype, (*q.shape[:2], v.shape[2]))


def _fused(op: str, version: int) -> Callable[[Mapping[str, Any], Sequence[ValueType | None]], ValueType]:
    """What an operator computes to which the runtime has added an activation, and to a Conv a sum."""

    def plain(attributes: Mapping[str, Any], inputs: Sequence[ValueType | None]) -> ValueType:
        own = {name: value for name, value in attributes.items() if not name.startswith("activation")}
        return _infer(op, "", version, own, inputs[:3], [None] * len(inputs[:3]), 1)[0]

    return plain


def _fused_matmul(attributes: Mapping[str, Any], inputs: Sequence[ValueType | None]) -> ValueType:
    """A product of operands whose last two dimensions may be turned round."""
    if attributes.get("transBatchA") or attributes.get("transBatchB"):
        return UNKNOWN
    turned = [
        ValueType(type.dtype, (*type.shape[:-2], *type.shape[:-3:-1]))
        if type is not None and type.shape and attributes.get(name)
        else type
        for type, name in zip(inputs, ("transA", "transB"), strict=False)
    ]
    return _infer("MatMul", "", 13, {}, turned, [None] * len(turned), 1)[0]


def _packed_attention(attributes: Mapping[str, Any], inputs: Sequence[ValueType | None]) -> ValueType:
    """The rows of the input, as wide as a third of its weights: these hold queries, keys and values."""
    a, w = inputs[0] if inputs else None, inputs[1] if len(inputs) > 1 else None
    if a is None or w is None or not a.shape or not w.shape:
        return UNKNOWN
    apart = attributes.get("qkv_hidden_sizes")
    if apart:
        return ValueType(a.dtype, (*a.shape[:-1], int(apart[2]))) if len(apart) == 3 else UNKNOWN
    width = w.shape[-1]
    if isinstance(width, int) and width % 3:
        return UNKNOWN  # the runtime does not take it
    return ValueType(a.dtype, (*a.shape[:-1], width // 3 if isinstance(width, int) else None))


def _embedded(attributes: Mapping[str, Any], inputs: Sequence[ValueType | None]) -> ValueType:
    """The tokens by the width of their table."""
    ids, table = (inputs[0], inputs[2]) if len(inputs) > 2 else (None, None)
    if ids is None or table is None or ids.shape is None or not table.shape:
        return UNKNOWN
    return ValueType(table.dtype, (*ids.shape, table.shape[-1]))


def _matmul_of_blocks(attributes: Mapping[str, Any], inputs: Sequence[ValueType | None]) -> ValueType:
    """A product with a weight of few bits, which is ``N`` wide."""
    a, width = inputs[0] if inputs else None, attributes.get("N")
    if a is None or not a.shape or not isinstance(width, int):
        return UNKNOWN
    return ValueType(a.dtype, (*a.shape[:-1], width))


def _normalised(inputs: Sequence[ValueType | None]) -> ValueType:
    """What a LayerNormalization makes: something like its first operand, if the scale is of the same type."""
    x, scale = (*inputs, None, None)[:2]
    return x if x is not None and scale is not None and x.dtype == scale.dtype else UNKNOWN


def _cropped(attributes: Mapping[str, Any], inputs: Sequence[ValueType | None]) -> ValueType:
    """An image without its borders (left, top, right, bottom), or a part of a given size; another experiment."""
    x, border, scale = inputs[0] if inputs else None, attributes.get("border", ()), attributes.get("scale", ())
    if x is None or x.shape is None or len(x.shape) != 4 or len(border) != 4:
        return UNKNOWN
    left, top, right, bottom = border
    sides = [
        d - b if isinstance(d, int) else None for d, b in zip(x.shape[2:], (top + bottom, left + right), strict=True)
    ]
    height, width = scale if len(scale) == 2 else sides
    if height is None or width is None or min(height, width) < 0:
        return UNKNOWN
    return ValueType(x.dtype, (*x.shape[:2], height, width))


# Contributed operators whose first output has a shape of its own.
_BY_OPERANDS: dict[tuple[str, str], Callable[[Mapping[str, Any], Sequence[ValueType | None]], ValueType]] = {
    ("", "Crop"): _cropped,
    ("com.microsoft", "MultiHeadAttention"): _multi_head_attention,
    ("com.microsoft", "Attention"): _packed_attention,
    ("com.microsoft", "EmbedLayerNormalization"): _embedded,
    ("com.microsoft", "FusedConv"): _fused("Conv", 11),
    ("com.microsoft", "FusedGemm"): _fused("Gemm", 13),
    ("com.microsoft", "FusedMatMul"): _fused_matmul,
    ("com.microsoft", "MatMulNBits"): _matmul_of_blocks,
}


class InferenceError(Exception):
    """ONNX's inference rejects the node: its inputs or attributes contradict the schema."""


def latest_opset() -> int:
    """Newest version of ONNX's operator set that is known here."""
    return int(onnx.defs.onnx_opset_version())


@dataclass(frozen=True, slots=True)
class Parameter:
    """The type of a formal operand or result.

    Attributes:
        name: Operands and results of one name have one type; empty where nothing else has it.
        dtypes: Short names of the element types that it may have.
    """

    name: str
    dtypes: frozenset[str]


@lru_cache(maxsize=1 << 12)
def parameters(
    op: str, domain: str, version: int, n_inputs: int, n_outputs: int
) -> tuple[tuple[Parameter, ...], tuple[Parameter, ...]] | None:
    """Types of a node's operands and results as its schema declares them; ``None`` where it has no schema here."""
    try:
        schema = onnx.defs.get_schema(op, version, domain)
    except onnx.defs.SchemaError:
        return None

    def told(one: Any | None) -> Parameter:
        if one is None:
            return Parameter("", frozenset())
        dtypes = frozenset(DTYPE_OF[t] for t in allowed(schema, one) if t in DTYPE_OF)
        return Parameter(one.type_str if one.is_homogeneous else "", dtypes)

    return (
        tuple(told(parameter_at(schema.inputs, i)) for i in range(n_inputs)),
        tuple(told(parameter_at(schema.outputs, i)) for i in range(n_outputs)),
    )


def infer(
    op: str,
    domain: str,
    version: int,
    attributes: Mapping[str, Any],
    inputs: Sequence[ValueType | None],
    data: Sequence[np.ndarray[Any, Any] | None],
    n_outputs: int,
    contents: Sequence[Content | None] = (),
) -> tuple[ValueType, ...]:
    """Types of a node's outputs.

    Args:
        op: Operator type.
        domain: Operator domain.
        version: Operator-set version of the domain.
        attributes: As in :class:`graphopt.ir.graph.Node`.
        inputs: Type of each input, ``None`` for an omitted one.
        data: Content of each input that is a small integer constant, else ``None``.
        n_outputs: How many outputs the node has.
        contents: What is known of the elements of each input, constant or not; none if left out.

    Raises:
        InferenceError: The schema forbids the node.
    """
    key = (
        op,
        domain,
        version,
        repr(sorted(attributes.items())) if attributes else "",
        tuple(inputs),
        n_outputs,
        tuple(None if d is None else (d.shape, d.tobytes()) for d in data),
        tuple(contents),
    )
    found = _memo.get(key)
    if found is None:
        found = _infer(op, domain, version, attributes, inputs, data, n_outputs)
        found = believed(op, domain, version, attributes, inputs, contents, found)
        dims = shape(op, attributes, inputs, contents) if contents and found and domain == "" else None
        if dims is not None:
            found = (refined(found[0], ValueType(found[0].dtype, dims)), *found[1:])
        if op in SCALING and domain == "" and found:
            kept = ValueType(found[0].dtype, _unscaled(attributes, inputs, data))
            found = (refined(found[0], kept), *found[1:])
        if op == "Reshape" and domain == "" and inputs[0] is not None:
            before, after = inputs[0].elements, found[0].elements
            if before is not None and after is not None and before != after:  # ONNX does not count
                raise InferenceError(f"Reshape: {inputs[0]} can't be {found[0]}")
        _memo[key] = found
    return found


def _unscaled(
    attributes: Mapping[str, Any], inputs: Sequence[ValueType | None], data: Sequence[np.ndarray[Any, Any] | None]
) -> tuple[Dim, ...] | None:
    """The dimensions of a Resize that a factor of 1 leaves as they are, symbols among them: ONNX names what it can't compute anew."""
    factors = next((d for d in data if d is not None and d.dtype == np.float32 and d.size), None)
    shape = None if inputs[0] is None else inputs[0].shape
    if factors is None or shape is None or len(factors) != len(shape) or attributes.get("axes"):
        return None
    if attributes.get("coordinate_transformation_mode") == "tf_crop_and_resize":  # of what is left the size is another
        return None
    return tuple(d if factor == 1 else None for d, factor in zip(shape, factors, strict=True))


def refined(type: ValueType, other: ValueType) -> ValueType:
    """A type with what another one of the same value knows more; the type itself where the two contradict each other.

    A number says more than a symbol. Of two symbols the other's is taken: what was inferred from a node's operands names the
    sizes of the model's inputs, what was declared of an interior value may have a name of its own for the same size.
    """
    if other == UNKNOWN or type.other is not None or other.other is not None:
        return other if type == UNKNOWN else type
    if type.dtype and other.dtype and type.dtype != other.dtype:
        return type
    dtype, a, b = type.dtype or other.dtype, type.shape, other.shape
    if a is None or b is None:
        return ValueType(dtype, b if a is None else a)
    if len(a) != len(b) or any(isinstance(x, int) and isinstance(y, int) and x != y for x, y in zip(a, b, strict=True)):
        return type
    return ValueType(dtype, tuple(y if _tells_more(y, x) else x for x, y in zip(a, b, strict=True)))


def _tells_more(new: Dim, old: Dim) -> bool:
    return (
        isinstance(new, int)
        or old is None
        or (isinstance(new, str) and isinstance(old, str) and (known(new) or not known(old)))
    )


def _infer(
    op: str,
    domain: str,
    version: int,
    attributes: Mapping[str, Any],
    inputs: Sequence[ValueType | None],
    data: Sequence[np.ndarray[Any, Any] | None],
    n_outputs: int,
) -> tuple[ValueType, ...]:
    like = _LIKE_OPERAND.get((domain, op))
    if like is not None:
        return (inputs[like] or UNKNOWN,) + (UNKNOWN,) * (n_outputs - 1)
    own = _BY_OPERANDS.get((domain, op))
    if own is not None:
        return (own(attributes, inputs),) + (UNKNOWN,) * (n_outputs - 1)
    try:
        schema = onnx.defs.get_schema(op, version, domain)
    except onnx.defs.SchemaError:
        if op in _EARLIER and not domain:
            return (_normalised(inputs),) + (UNKNOWN,) * (n_outputs - 1)
        if onnx.defs.has(op, domain=domain):
            raise InferenceError(f"{op} is not in operator set {version}") from None
        return (UNKNOWN,) * n_outputs
    wrong = deadly(op, domain, attributes, n_outputs)
    if wrong:
        raise InferenceError(wrong)
    names = ["" if t is None else f"i{i}" for i, t in enumerate(inputs)]
    outputs = [f"o{i}" for i in range(n_outputs)]
    try:
        node = make_node(op, domain, version, names, outputs, read(op, domain, attributes))
    except (TypeError, ValueError, AssertionError) as error:  # the last of onnx's own, for an attribute of another type
        raise InferenceError(f"{op}: {error or 'an attribute is of another type'}") from error
    types = {n: type_proto(t) for n, t in zip(names, inputs, strict=True) if t is not None and t != UNKNOWN}
    given = {n: numpy_helper.from_array(d) for n, d in zip(names, data, strict=True) if d is not None}
    try:
        result = shape_inference.infer_node_outputs(
            schema, node, types, given, opset_imports=[helper.make_opsetid(domain, version)], ir_version=10
        )
    except Exception as error:
        # onnx raises its own errors and, for a missing type, a plain RuntimeError.
        if any(t is not None and t.dtype is None for t in inputs):
            return (UNKNOWN,) * n_outputs
        raise InferenceError(f"{op}: {error}") from error
    made = [result[o] for o in outputs if o in result]
    # What reads a size below 0, as a Pad or a ConvTranspose that cuts off too much has it, may end the process in its own inference.
    if any(dim.dim_value < 0 for t in made if t.HasField("tensor_type") for dim in t.tensor_type.shape.dim):
        raise InferenceError(f"{op}: a size below 0")
    if op in _UNSHAPED and not domain and inputs and inputs[0] is not None:
        return (inputs[0],)
    return tuple(value_type(result[o]) if o in result else UNKNOWN for o in outputs)


def make_node(
    op: str, domain: str, version: int, inputs: Sequence[str], outputs: Sequence[str], attributes: Mapping[str, Any]
) -> NodeProto:
    """The ONNX form of a node; an attribute that is ``None`` is left out."""
    node = NodeProto(op_type=op, domain=domain, input=inputs, output=outputs)
    for name, value in sorted(attributes.items()):
        if value is not None:
            node.attribute.append(attribute(op, domain, version, name, value))
    return node


def attribute(op: str, domain: str, version: int, name: str, value: Any) -> AttributeProto:
    """An attribute of the type its schema declares (an empty list says nothing of its type, nor does ``1`` for 1.0)."""
    if isinstance(value, Opaque):
        return value.payload  # type: ignore[no-any-return]
    if isinstance(value, Tensor):
        array = value.numpy()
        return helper.make_attribute(name, numpy_helper.from_array(np.ascontiguousarray(array).reshape(array.shape)))
    try:
        declared = onnx.defs.get_schema(op, version, domain).attributes[name].type
    except (onnx.defs.SchemaError, KeyError):
        return helper.make_attribute(name, list(value) if isinstance(value, tuple) else value)
    kind: int = declared.value  # type: ignore[attr-defined]  # the stub lacks it
    if kind in (AttributeProto.FLOAT, AttributeProto.FLOATS):
        value = float(value) if kind == AttributeProto.FLOAT else [float(v) for v in value]
    return helper.make_attribute(name, value, attr_type=kind)


@lru_cache(maxsize=1 << 12)
def type_proto(type: ValueType) -> TypeProto:
    """The ONNX form of a type, to be read only: it is made once."""
    if type.other is not None:
        return TypeProto.FromString(type.other)
    if type.dtype is None:
        return TypeProto()
    return helper.make_tensor_type_proto(DTYPES[type.dtype], type.shape)


def value_type(proto: TypeProto) -> ValueType:
    """The type an ONNX type says; a sequence, map, optional or sparse tensor is carried as it is."""
    kind = proto.WhichOneof("value")
    if kind is None:
        return UNKNOWN
    if kind != "tensor_type":
        return ValueType(other=proto.SerializeToString(deterministic=True))
    tensor = proto.tensor_type
    if not tensor.HasField("shape"):
        return ValueType(DTYPE_NAMES.get(tensor.elem_type))
    return ValueType(DTYPE_NAMES.get(tensor.elem_type), tuple(dim_of(d) for d in tensor.shape.dim))


def element_shape(type: ValueType) -> tuple[Dim, ...] | None:
    """The shape of the tensors in a sequence, where it is declared."""
    if type.other is None:
        return None
    held = TypeProto.FromString(type.other).sequence_type.elem_type
    return value_type(held).shape if held.HasField("tensor_type") else None


def dim_of(dim: TensorShapeProto.Dimension) -> Dim:
    """What a file says of a dimension: its size, its name or nothing."""
    kind = dim.WhichOneof("value")
    if kind == "dim_value":
        # Some exporters write -1 or 0 for "unknown"; a real empty dimension is rare enough to be left unknown too.
        return int(dim.dim_value) if dim.dim_value >= 0 else None
    named = kind == "dim_param" and dim.dim_param and dim.dim_param not in NAMELESS
    return str(dim.dim_param) if named else None


def called(name: str, axis: int, dim: TensorShapeProto.Dimension) -> str | None:
    """What an open dimension of an input is called; ``None`` where it has a size."""
    told = dim_of(dim)
    if isinstance(told, int):
        return None
    return told if told is not None and known(told) else dim_name(name, axis)


def shape_data(type: ValueType) -> bool:
    """Whether a constant of this type may steer a shape, so that its content is worth giving to the inference."""
    n = type.elements
    if type.dtype == "f32":
        return n is not None and type.shape == (n,) and n <= _FACTORS_LIMIT
    return type.dtype in ("i64", "i32") and n is not None and n <= _SHAPE_DATA_LIMIT
