"""What graphopt knows of operators beyond their ONNX schema: defaults, commutativity, purity.

Attribute defaults matter because a pattern that does not mention an attribute wants its default, and many ONNX
defaults depend on the rank of an input (``strides`` of a Conv) and so stand in no schema.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from graphopt.ir.schema import schema_default

# Operators whose operands may be swapped freely (all of them, when variadic).
COMMUTATIVE = frozenset(
    {"Add", "Mul", "And", "Or", "Xor", "Equal", "Max", "Min", "Sum", "Mean", "BitwiseAnd", "BitwiseOr", "BitwiseXor"}
)

# Elementwise operators with several operands, which are stretched over each other.
BROADCASTING = frozenset(
    {"Add", "Sub", "Mul", "Div", "Pow", "Max", "Min", "Sum", "Mean", "Mod", "And", "Or", "Xor", "Equal", "Greater", "Less",
     "GreaterOrEqual", "LessOrEqual", "Where", "PRelu"}
)  # fmt: skip

# Two runs, or two copies, may differ: never merged with an equal node, never folded.
RANDOM = frozenset(
    {"RandomNormal", "RandomUniform", "RandomNormalLike", "RandomUniformLike", "Multinomial", "Bernoulli"}
)

# What asks for nothing but the shape of its operand: constant where that is known.
OF_SHAPES = frozenset({"Shape", "Size"})

# Where operators of attention take what is added to the scores: a bias, or a mask.
SCORE_BIAS = {("", "Attention"): 3, ("com.microsoft", "Attention"): 5, ("com.microsoft", "MultiHeadAttention"): 5}

# All of their outputs may be left out.
RECURRENT = frozenset({"LSTM", "GRU", "RNN"})

# How many outputs they have, read or not, is a part of what they compute: how a Split divides, and whether a BatchNormalization trains (before
# operator set 14 one of five outputs does).
BY_OUTPUTS = frozenset({"Split", "BatchNormalization"})

# Attributes that only repeat what an operand's shape says: a pattern need not mention them.
REDUNDANT = frozenset({("Conv", "kernel_shape"), ("ConvTranspose", "kernel_shape")})

# Elementwise operators with one operand: any of them may trade places with an operator that only moves elements.
UNARY = frozenset(
    {
        "Abs", "Neg", "Relu", "Sigmoid", "Tanh", "Exp", "Log", "Sqrt", "Reciprocal", "Erf", "Sin", "Cos", "Floor", "Ceil",
        "Round", "Sign", "LeakyRelu", "Elu", "Selu", "HardSigmoid", "HardSwish", "Softplus", "Softsign", "Gelu", "Mish",
        "Cast", "Not", "Celu", "ThresholdedRelu", "Identity", "Swish",
    }
)  # fmt: skip

_DEFAULTS: dict[str, dict[str, Any]] = {
    "BatchNormalization": {"epsilon": 1e-5, "momentum": 0.9, "training_mode": 0, "spatial": 1},
    "InstanceNormalization": {"epsilon": 1e-5},
    "LayerNormalization": {"epsilon": 1e-5, "axis": -1, "stash_type": 1},
    "RMSNormalization": {"epsilon": 1e-5, "axis": -1, "stash_type": 1},
    "SimplifiedLayerNormalization": {"epsilon": 1e-5, "axis": -1, "stash_type": 1},
    "GroupNormalization": {"epsilon": 1e-5, "stash_type": 1},
    "Gemm": {"alpha": 1.0, "beta": 1.0, "transA": 0, "transB": 0},
    "Gather": {"axis": 0},
    "GatherElements": {"axis": 0},
    "ScatterElements": {"axis": 0, "reduction": "none"},
    "Flatten": {"axis": 1},
    "LeakyRelu": {"alpha": 0.01},
    "Elu": {"alpha": 1.0},
    "HardSigmoid": {"alpha": 0.2, "beta": 0.5},
    "Selu": {"alpha": 1.67326319217681884765625, "gamma": 1.05070102214813232421875},
    "ThresholdedRelu": {"alpha": 1.0},
    "Gelu": {"approximate": "none"},
    "Reshape": {"allowzero": 0},
    "Shape": {"start": 0, "end": None},
    "CumSum": {"exclusive": 0, "reverse": 0},
    "DepthToSpace": {"mode": "DCR"},
    "Pad": {"mode": "constant"},
    "Split": {"axis": 0, "num_outputs": None},
    "ArgMax": {"axis": 0, "keepdims": 1, "select_last_index": 0},
    "ArgMin": {"axis": 0, "keepdims": 1, "select_last_index": 0},
    "TopK": {"axis": -1, "largest": 1, "sorted": 1},
    "Cast": {"saturate": 1, "round_mode": "up"},
    "QuickGelu": {"alpha": 1.702},
    "Swish": {"alpha": 1.0},
}
_REDUCE = {"keepdims": 1, "noop_with_empty_axes": 0, "axes": None}


def default(op: str, attribute: str, *, opset: int, spatial_rank: int | None = None, domain: str = "") -> Any:
    """The value that ``attribute`` of ``op`` takes when a node leaves it out.

    Args:
        op: Operator type.
        attribute: Attribute name.
        opset: Version of the operator set; some defaults changed (Softmax's ``axis`` at 13).
        spatial_rank: Number of spatial dimensions of a Conv or pooling input, when known.
        domain: Of the operator: another domain's operator of the same name has not the defaults of ONNX's schema.

    Returns:
        The default; ``None`` when there is none or it can't be told (so nothing compares equal to it).
    """
    if op in ("Conv", "ConvTranspose", "MaxPool", "AveragePool", "LpPool"):
        if attribute == "group":
            return 1
        if attribute == "auto_pad":
            return "NOTSET"
        if attribute in ("ceil_mode", "count_include_pad", "storage_order"):
            return 0
        if spatial_rank is not None:
            if attribute in ("strides", "dilations"):
                return (1,) * spatial_rank
            if attribute == "pads":
                return (0,) * (2 * spatial_rank)
            if attribute == "output_padding":
                return (0,) * spatial_rank
        return None
    if op in ("Softmax", "LogSoftmax", "Hardmax") and attribute == "axis":
        return -1 if opset >= 13 else 1
    if op.startswith("Reduce"):
        return _REDUCE.get(attribute)
    known = _DEFAULTS.get(op, {})
    return known[attribute] if attribute in known else schema_default(op, domain, attribute, opset)


def said(op: str, domain: str, attributes: Mapping[str, Any]) -> list[tuple[str, Any]]:
    """The attributes of a node by name, without those that only repeat a default which no operator set ever changed."""
    defaults = {} if domain else _DEFAULTS.get(op, {})
    return sorted(item for item in attributes.items() if item not in defaults.items())


def plain(op: str, domain: str, attributes: dict[str, Any]) -> dict[str, Any]:
    """Attributes in one form of those that say the same: the equation of an Einsum without its spaces, no pads of a Conv by saying nothing."""
    if op == "Conv" and not domain and attributes.get("auto_pad") == "VALID" and "pads" not in attributes:
        return {name: value for name, value in attributes.items() if name != "auto_pad"}
    equation = attributes.get("equation")
    if op != "Einsum" or domain or not isinstance(equation, str):
        return attributes
    return {**attributes, "equation": equation.replace(" ", "")}


def known_domain(domain: str) -> bool:
    """Whether all operators of a domain are known to be functions of their inputs (but for :data:`RANDOM`)."""
    return domain in ("", "ai.onnx", "com.microsoft", "ai.onnx.ml")


def pure(op: str, domain: str, attributes: Mapping[str, Any], n_inputs: int) -> bool:
    """Whether a node is a function of its inputs, so that equal nodes may be merged and constant ones folded."""
    if op in RANDOM or not known_domain(domain):
        return False
    # A Dropout that is told to train draws a mask.
    return not (op == "Dropout" and n_inputs > 2)
