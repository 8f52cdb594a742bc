"""Known gains on top of the runtime's own optimiser, one micro-model each, through the whole pipeline.

    python -m tests.bench.ecosystem [NAME ...] [--budget 4] [--json FILE] [--markdown FILE]

Each row is a few nodes in the slow spelling. They are optimised with all rules, measurement included, and the table says
what was applied and the ratio of latencies (original over written, both under ``ORT_ENABLE_ALL``). ``expected`` is what
others have measured. ``by hand`` is the ratio for a replacement written here by hand: what there is to gain on this machine.

The last rows are rewrites that lose. There ``by hand`` shows the loss; the written model must be no slower than the input.
Weights are random, those of the replacement by hand too: it is there for its time and not for its values.
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper, parser, shape_inference

from graphopt.api import optimize
from graphopt.runtime.rounds import Sampling, measure_pair
from graphopt.runtime.session import LoadableModel
from graphopt.runtime.timing import Paired

Weight = tuple[int, ...] | list[int] | float | np.ndarray[Any, Any]
"""A shape (random values), integers (a constant), a number (a 0-d constant) or the values themselves."""


@dataclass(frozen=True)
class Row:
    """A pattern.

    Attributes:
        expected: The gain that others have measured, for people.
        inputs: Shape of each input; a string is a symbolic dimension.
        slow: Nodes in ONNX's text syntax, one a line; the last line defines the output ``y``.
        weights: Constants by name.
        fast: The replacement by hand, in the same syntax.
        opset: Version of the operator set.
        positive: Whether the inputs must be positive.
        dims: Sizes for the symbolic dimensions.
        loss: Whether the replacement loses and must not be made.
    """

    expected: str
    inputs: Mapping[str, Sequence[int | str]]
    slow: str
    weights: Mapping[str, Weight] = field(default_factory=dict)
    fast: str = ""
    opset: int = 17
    positive: bool = False
    dims: Mapping[str, int] = field(default_factory=dict)
    loss: bool = False


def conv(k: int, *channels: int) -> tuple[int, ...]:
    """Shape of the weight of a square convolution: outputs, inputs, window."""
    return (*channels, k, k)


IMAGE = {"x": (1, 64, 56, 56)}
TOKENS = {"x": (1, 128, 768)}
P1 = "pads=[1,1,1,1]"
RMS: dict[str, Weight] = {"g": (2048,), "eps": 1e-6, "two": 2.0, "neg": -0.5}
LN: dict[str, Weight] = {"g": (768,), "c": (768,), "eps": 1e-5, "two": 2.0}
GELU = "k = Mul(x, s)\ne = Erf(k)\na = Add(e, one)\np = Mul(x, a)\ny = Mul(p, half)"
TANH_GELU = """
k = Mul(cube, c)
s = Add(x, k)
t = Mul(s, r)
h = Tanh(t)
u = Add(h, one)
z = Mul(x, half)
o = Mul(z, u)
y = Abs(o)"""
"""The runtime's fusion does not take an activation that is a result of the graph."""
ROTATE = "a = Slice(x, zero, mid, last)\nb = Slice(x, mid, end, last)\nn = Neg(b)\nr = Concat<axis=-1>(n, a)\n"
ROTARY = ROTATE + "p = Mul(x, cos)\nq = Mul(r, sin)\ny = Add(p, q)"
ANGLES = np.tile(np.outer(np.arange(128), 10000.0 ** -(np.arange(32) / 32)), (1, 2)).astype(np.float32)
TURNS: dict[str, Weight] = {"zero": [0], "mid": [32], "end": [64], "last": [3], "cos": np.cos(ANGLES)[None, None],
                            "sin": np.sin(ANGLES)[None, None], "c32": np.cos(ANGLES[None, :, :32]), "s32": np.sin(ANGLES[None, :, :32])}  # fmt: skip


def rms(square: str, root: str) -> str:
    """An RMS norm: how it squares and how it divides by the root."""
    return f"q = {square}\nm = ReduceMean<axes=[-1]>(q)\nv = Add(m, eps)\n{root}\ny = Mul(z, g)"


def norm(square: str, divide: str, affine: bool = True) -> str:
    """A layer norm: how it squares and how it divides."""
    tail = "m = Mul(z, g)\ny = Add(m, c)" if affine else "y = Identity(z)"
    return f"""
        mean = ReduceMean<axes=[-1]>(x)
        d = Sub(x, mean)
        q = {square}
        var = ReduceMean<axes=[-1]>(q)
        v = Add(var, eps)
        sd = Sqrt(v)
        {divide}
        {tail}"""


def beside(slow: str, fast: str = f"y = Conv<{P1}>(x, w, b)", **weights: Weight) -> Row:
    """A 3x3 Conv with 64 channels and something affine beside it."""
    return Row("1.02-1.07", IMAGE, slow, {"w": conv(3, 64, 64), "b": (64,), **weights}, fast)


ROWS: dict[str, Row] = {
    "pow-half": Row("9.0", TOKENS, "y = Pow(x, p)", {"p": 0.5}, "y = Sqrt(x)", positive=True),
    "pow-minus-half": Row(
        "6.7", TOKENS, "y = Pow(x, p)", {"p": -0.5}, "r = Sqrt(x)\ny = Reciprocal(r)", positive=True
    ),
    "pow-4": Row("8.9", TOKENS, "y = Pow(x, p)", {"p": 4.0}, "s = Mul(x, x)\ny = Mul(s, s)"),
    "pow-2": Row("1.46", TOKENS, "y = Pow(x, p)", {"p": 2.0}, "y = Mul(x, x)"),
    "pow-2-inside": Row(
        "1.46", TOKENS, "q = Pow(x, p)\nz = Add(q, x)\ny = Tanh(z)", {"p": 2.0}, "q = Mul(x, x)\nz = Add(q, x)\ny = Tanh(z)"
    ),
    "spp-max-pools": Row(
        "3.35", {"x": (1, 128, 20, 20)},
        "a = MaxPool<kernel_shape=[5,5], pads=[2,2,2,2]>(x)\nb = MaxPool<kernel_shape=[9,9], pads=[4,4,4,4]>(x)\n"
        "c = MaxPool<kernel_shape=[13,13], pads=[6,6,6,6]>(x)\ny = Concat<axis=1>(x, a, b, c)",
        fast="a = MaxPool<kernel_shape=[5,5], pads=[2,2,2,2]>(x)\nb = MaxPool<kernel_shape=[5,5], pads=[2,2,2,2]>(a)\n"
        "c = MaxPool<kernel_shape=[5,5], pads=[2,2,2,2]>(b)\ny = Concat<axis=1>(x, a, b, c)",
    ),
    "tanh-gelu-cube": Row(
        "2.52", TOKENS, "sq = Mul(x, x)\ncube = Mul(sq, x)" + TANH_GELU,
        {"c": 0.044715, "r": math.sqrt(2 / math.pi), "one": 1.0, "half": 0.5}, "o = com.microsoft.FastGelu(x)\ny = Abs(o)",
    ),
    "prelu-equal-slopes": Row(
        "2.45", IMAGE, f"z = Conv<{P1}>(x, w, b)\ny = PRelu(z, s)", {"w": conv(1, 64, 64), "b": (64,), "s": np.full((64, 1, 1), 0.25, np.float32)},
        f"z = Conv<{P1}>(x, w, b)\ny = LeakyRelu<alpha=0.25>(z)",
    ),
    "prelu-per-channel": Row(
        "1.83", IMAGE, "y = PRelu(x, s)", {"s": (64, 1, 1)}, "p = Relu(x)\nn = Neg(x)\nq = Relu(n)\nt = Mul(s, q)\ny = Sub(p, t)"
    ),
    "einsum-scores": Row(
        "2.24", {"q": (1, 128, 12, 64), "k": (1, 128, 12, 64)}, 'y = Einsum<equation="bqhd,bkhd->bhqk">(q, k)',
        fast="s = Transpose<perm=[0,2,1,3]>(q)\nt = Transpose<perm=[0,2,3,1]>(k)\ny = MatMul(s, t)",
    ),
    "einsum-projection": Row(
        "1.41", {"x": (1, 128, 256)}, 'y = Einsum<equation="bsd,de->bse">(x, w)', {"w": (256, 256)}, "y = MatMul(x, w)"
    ),
    "shape-arithmetic": Row(
        "2.0 (whole model)", {"x": ("n", "s", 64)},
        """
        d = Shape(x)
        n = Slice(d, zero, first, zero)
        s = Slice(d, first, second, zero)
        ns = Mul(n, s)
        flat = Concat<axis=0>(ns, width)
        a = Reshape(x, flat)
        b = MatMul(a, w)
        e = Shape(x)
        m = Slice(e, zero, second, zero)
        whole = Concat<axis=0>(m, width)
        y = Reshape(b, whole)""",
        {"zero": [0], "first": [1], "second": [2], "width": [64], "w": (64, 64)}, "y = MatMul(x, w)", dims={"n": 2, "s": 8},
    ),
    "rms-norm-reciprocal": Row(
        "1.65-1.93", {"x": (1, 128, 2048)}, rms("Pow(x, two)", "sd = Sqrt(v)\nr = Reciprocal(sd)\nz = Mul(x, r)"), RMS,
        rms("Pow(x, two)", "sd = Sqrt(v)\nz = Div(x, sd)"),
    ),
    "rms-norm-product": Row(
        "1.65-1.93", {"x": (1, 128, 2048)}, rms("Mul(x, x)", "sd = Sqrt(v)\nz = Div(x, sd)"), RMS,
        rms("Pow(x, two)", "sd = Sqrt(v)\nz = Div(x, sd)"),
    ),
    "rms-norm-pow": Row(
        "1.65-1.93", {"x": (1, 128, 2048)}, rms("Pow(x, two)", "r = Pow(v, neg)\nz = Mul(x, r)"), RMS,
        rms("Pow(x, two)", "sd = Sqrt(v)\nz = Div(x, sd)"),
    ),
    "rms-norm-opset-23": Row(
        "1.65-1.93", {"x": (1, 128, 2048)},
        rms("Mul(x, x)", "sd = Sqrt(v)\nr = Reciprocal(sd)\nz = Mul(x, r)").replace("<axes=[-1]>(q)", "(q, last)"), {**RMS, "last": [-1]},
        "y = RMSNormalization<epsilon=0.000001>(x, g)", opset=23,
    ),
    "pad-30-to-32": Row(
        "1.82", {"x": (1, 32, 56, 56)}, f"a = Conv<{P1}>(x, w, b)\nr = Relu(a)\ny = Conv<{P1}>(r, v, c)",
        {"w": conv(3, 30, 32), "b": (30,), "v": conv(3, 32, 30), "c": (32,), "w2": conv(3, 32, 32), "v2": conv(3, 32, 32), "b2": (32,)},
        f"a = Conv<{P1}>(x, w2, b2)\nr = Relu(a)\ny = Conv<{P1}>(r, v2, c)",
    ),
    "conv-1d": Row(
        "1.10-1.76", {"x": (1, 64, 3000)}, "a = Conv<pads=[1,1]>(x, w, b)\nr = Relu(a)\ny = Conv<pads=[1,1]>(r, w, b)",
        {"w": (64, 64, 3), "b": (64,), "v": (64, 64, 1, 3), "at": [2]},
        "i = Unsqueeze(x, at)\na = Conv<pads=[0,1,0,1]>(i, v, b)\nr = Relu(a)\nj = Conv<pads=[0,1,0,1]>(r, v, b)\ny = Squeeze(j, at)",
    ),
    "gelu-product": Row(
        "1.70", TOKENS, GELU, {"s": 1 / math.sqrt(2), "one": 1.0, "half": 0.5}, "y = com.microsoft.Gelu(x)"
    ),
    "compose-1x1-convs": Row(
        "1.68", IMAGE, "a = Conv(x, w, b)\ny = Conv(a, v, c)",
        {"w": conv(1, 64, 64), "b": (64,), "v": conv(1, 64, 64), "c": (64,)}, "y = Conv(x, w, b)",
    ),
    "rotary-constant": Row(
        "1.68", {"x": (1, 12, 128, 64)}, ROTARY, TURNS, "y = RotaryEmbedding(x, c32, s32)", opset=23
    ),
    "rotary-computed": Row(
        "1.68", {"x": (1, 12, 128, 64), "f": (1, 128, 32)},
        "t = Concat<axis=-1>(f, f)\nco = Cos(t)\nsi = Sin(t)\ncos = Unsqueeze(co, one)\nsin = Unsqueeze(si, one)\n" + ROTARY,
        {"zero": [0], "mid": [32], "end": [64], "last": [3], "one": [1]},
        "co = Cos(f)\nsi = Sin(f)\ny = RotaryEmbedding(x, co, si)", opset=23,
    ),
    "layer-norm-product": Row(
        "1.55-1.65", TOKENS, norm("Mul(d, d)", "z = Div(d, sd)"), LN, "y = LayerNormalization(x, g, c)"
    ),
    "layer-norm-reciprocal": Row(
        "1.55-1.65", TOKENS, norm("Pow(d, two)", "r = Reciprocal(sd)\nz = Mul(d, r)"), LN, "y = LayerNormalization(x, g, c)"
    ),
    "layer-norm-no-affine": Row(
        "1.55-1.65", TOKENS, norm("Pow(d, two)", "z = Div(d, sd)", affine=False), LN, "y = LayerNormalization(x, g)"
    ),
    "grouped-conv-32x4": Row(
        "1.45", {"x": (1, 128, 14, 14)}, f"y = Conv<{P1}, group=32>(x, w, b)", {"w": conv(3, 128, 4), "b": (128,), "v": conv(3, 128, 16)},
        f"y = Conv<{P1}, group=8>(x, v, b)",
    ),
    "hard-swish-clip": Row(
        "1.33-1.39", IMAGE, "z = Conv(x, w, b)\na = Add(z, three)\nc = Clip(a, zero, six)\nm = Mul(z, c)\ny = Div(m, six)",
        {"w": conv(1, 64, 64), "b": (64,), "three": 3.0, "zero": 0.0, "six": 6.0},
        "z = Conv(x, w, b)\nh = HardSigmoid<alpha=0.16666667>(z)\ny = Mul(z, h)",
    ),
    "hard-sigmoid-clip": Row(
        "1.33-1.39", IMAGE, "z = Conv(x, w, b)\na = Add(z, three)\nc = Clip(a, zero, six)\ny = Div(c, six)",
        {"w": conv(1, 64, 64), "b": (64,), "three": 3.0, "zero": 0.0, "six": 6.0},
        "z = Conv(x, w, b)\ny = HardSigmoid<alpha=0.16666667>(z)",
    ),
    "channels-first-layer-norm": Row(
        "1.38", {"x": (1, 96, 56, 56)}, norm("Pow(d, two)", "z = Div(d, sd)").replace("[-1]", "[1]"),
        {"g": (96, 1, 1), "c": (96, 1, 1), "eps": 1e-6, "two": 2.0, "g1": (96,), "c1": (96,)},
        "t = Transpose<perm=[0,2,3,1]>(x)\nn = LayerNormalization(t, g1, c1)\ny = Transpose<perm=[0,3,1,2]>(n)",
    ),
    "convs-into-concat": Row(
        "1.18-1.38", IMAGE, "a = Conv(x, w, b)\nc = Conv(x, v, b)\nd = Conv(x, u, b)\ny = Concat<axis=1>(a, c, d)",
        {"w": conv(1, 16, 64), "v": conv(1, 16, 64), "u": conv(1, 16, 64), "b": (16,), "all": conv(1, 48, 64), "bs": (48,)},
        "y = Conv(x, all, bs)",
    ),
    "affine-chain": Row(
        "1.34", IMAGE, "a = Mul(x, s)\nb = Mul(a, t)\nc = Add(b, u)\ny = Add(c, v)",
        {"s": (64, 1, 1), "t": (64, 1, 1), "u": (64, 1, 1), "v": (64, 1, 1)}, "a = Mul(x, s)\ny = Add(a, u)",
    ),
    "divide-by-constant": Row("1.23", IMAGE, "y = Div(x, s)", {"s": 3.0}, "y = Mul(x, s)"),
    "channel-shuffle": Row(
        "1.27", {"x": (1, 128, 28, 28)}, f"i = Conv<{P1}, group=128>(x, d, b)\na = Reshape(i, apart)\nt = Transpose<perm=[0,2,1,3,4]>(a)\nr = Reshape(t, whole)\ny = Conv(r, w, b)",
        {"apart": [1, 4, 32, 28, 28], "whole": [1, 128, 28, 28], "w": conv(1, 128, 128), "b": (128,), "d": conv(3, 128, 1)},
        f"i = Conv<{P1}, group=128>(x, d, b)\ny = Conv(i, w, b)",
    ),
    "min-max-clip": Row(
        "1.24", IMAGE, "z = Conv(x, w, b)\na = Max(z, zero)\ny = Min(a, six)", {"w": conv(1, 64, 64), "b": (64,), "zero": 0.0, "six": 6.0},
        "z = Conv(x, w, b)\ny = Clip(z, zero, six)",
    ),
    "global-average-pool": Row(
        "1.22", IMAGE, "z = Conv(x, w, b)\ny = ReduceMean<axes=[2,3]>(z)", {"w": conv(1, 64, 64), "b": (64,)},
        "z = Conv(x, w, b)\ny = GlobalAveragePool(z)",
    ),
    "conv-of-concat": Row(
        "1.18", {"x": (1, 32, 56, 56), "z": (1, 32, 56, 56)}, "a = Conv(x, w, b)\nc = Conv(z, v, b)\np = Relu(a)\nq = Relu(c)\nr = Concat<axis=1>(p, q)\ny = Conv(r, u, d)",
        {"w": conv(1, 24, 32), "v": conv(1, 24, 32), "b": (24,), "u": conv(1, 32, 48), "d": (32,), "u1": conv(1, 32, 24), "u2": conv(1, 32, 24)},
        "a = Conv(x, w, b)\nc = Conv(z, v, b)\np = Relu(a)\nq = Relu(c)\ne = Conv(p, u1, d)\nf = Conv(q, u2)\ny = Add(e, f)",
    ),
    "split-conv": Row(
        "1.06-1.08", IMAGE, f"a = Conv(x, w, b)\ns = Relu(a)\np, q = Split<axis=1>(s, half)\nr = Conv<{P1}>(q, v, c)\ny = Concat<axis=1>(p, q, r)",
        {"w": conv(1, 64, 64), "b": (64,), "v": conv(3, 32, 32), "c": (32,), "half": [32, 32], "w1": conv(1, 32, 64), "w2": conv(1, 32, 64)},
        f"a = Conv(x, w1, c)\np = Relu(a)\nd = Conv(x, w2, c)\nq = Relu(d)\nr = Conv<{P1}>(q, v, c)\ny = Concat<axis=1>(p, q, r)",
    ),
    "scale-left-of-conv": beside(f"z = Conv<{P1}>(x, w, b)\ny = Mul(s, z)", s=(64, 1, 1)),
    "divisor-after-conv": beside(f"z = Conv<{P1}>(x, w, b)\ny = Div(z, s)", s=(64, 1, 1)),
    "subtraction-after-conv": beside(f"z = Conv<{P1}>(x, w, b)\ny = Sub(z, s)", s=(64, 1, 1)),
    "negation-after-conv": beside(f"z = Conv<{P1}>(x, w, b)\ny = Neg(z)"),
    "scale-before-conv": beside(f"z = Mul(x, s)\ny = Conv<{P1}>(z, w, b)", s=(64, 1, 1)),
    "batch-norm-before-conv": beside(
        "z = BatchNormalization(x, s, b, b, v)\ny = Conv(z, w, b)", fast="y = Conv(x, w, b)", s=(64,), v=np.full(64, 1.5, np.float32)
    ),
    "scale-after-matmul": Row("1.02-1.07", TOKENS, "z = MatMul(x, w)\ny = Mul(z, s)", {"w": (768, 256), "s": (256,)}, "y = MatMul(x, w)"),
    "scale-after-gemm": Row(
        "1.02-1.07", {"x": (128, 768)}, "z = Gemm(x, w, b)\ny = Mul(z, s)", {"w": (768, 256), "b": (256,), "s": (256,)}, "y = Gemm(x, w, b)"
    ),
    "loss-group-norm": Row(
        "0.58", IMAGE, "r = Reshape(x, groups)\nn = InstanceNormalization(r, one, zero)\nz = Reshape(n, whole)\nm = Mul(z, g)\ny = Add(m, c)",
        {"groups": [1, 8, -1], "whole": [1, 64, 56, 56], "one": np.ones(8, np.float32), "zero": np.zeros(8, np.float32), "g": (64, 1, 1), "c": (64, 1, 1),
         "g1": (64,), "c1": (64,)},
        "y = GroupNormalization<num_groups=8>(x, g1, c1)", opset=21, loss=True,
    ),
    "loss-swish": Row("0.61", IMAGE, "s = Sigmoid(x)\ny = Mul(x, s)", fast="y = Swish(x)", opset=24, loss=True),
    "loss-conv-transpose": Row(
        "0.45", {"x": (1, 64, 28, 28)}, "y = ConvTranspose<strides=[2,2]>(x, w, b)",
        {"w": conv(2, 64, 32), "b": (32,), "v": conv(1, 128, 64), "c": (128,)}, "z = Conv(x, v, c)\ny = DepthToSpace<blocksize=2>(z)",
        loss=True,
    ),
    "loss-batch-norm": Row(
        "0.21-0.41", IMAGE, "y = BatchNormalization(x, s, b, b, v)",
        {"s": (64,), "b": (64,), "v": np.full(64, 1.5, np.float32), "t": (64, 1, 1)}, "m = Mul(x, t)\ny = Add(m, t)", loss=True,
    ),
    "loss-merged-convs": Row(
        "0.89", IMAGE, f"a = Conv(x, w, b)\nc = Conv(x, v, b)\ns = Conv<{P1}>(a, u, b)\nt = Conv<{P1}>(c, u, b)\ny = Add(s, t)",
        {"w": conv(1, 64, 64), "v": conv(1, 64, 64), "u": conv(3, 64, 64), "b": (64,), "all": conv(1, 128, 64), "bs": (128,), "half": [64, 64]},
        f"m = Conv(x, all, bs)\na, c = Split<axis=1>(m, half)\ns = Conv<{P1}>(a, u, b)\nt = Conv<{P1}>(c, u, b)\ny = Add(s, t)",
        loss=True,
    ),
    "loss-pad-18-to-32": Row(
        "0.94", {"x": (1, 32, 56, 56)}, f"a = Conv<{P1}>(x, w, b)\nr = Relu(a)\ny = Conv<{P1}>(r, v, c)",
        {"w": conv(3, 18, 32), "b": (18,), "v": conv(3, 32, 18), "c": (32,), "w2": conv(3, 32, 32), "v2": conv(3, 32, 32), "b2": (32,)},
        f"a = Conv<{P1}>(x, w2, b2)\nr = Relu(a)\ny = Conv<{P1}>(r, v2, c)", loss=True,
    ),
}  # fmt: skip


def tensor(name: str, weight: Weight, rng: np.random.Generator) -> onnx.TensorProto:
    """A constant; random ones are scaled so that a product with them keeps its size."""
    if isinstance(weight, tuple):
        fan_in = math.prod(weight[1:])
        random = rng.uniform(0.5, 1.5, weight) * rng.choice([-1, 1], weight) / math.sqrt(fan_in)
        return numpy_helper.from_array(random.astype(np.float32), name)
    if not isinstance(weight, np.ndarray):
        weight = np.array(weight, np.int64 if isinstance(weight, list) else np.float32)
    return numpy_helper.from_array(weight, name)


def model(row: Row, text: str) -> onnx.ModelProto:
    """The nodes of ``text`` as a model with the row's inputs and those of its weights that the nodes read."""
    nodes = [parser.parse_node(line.strip()) for line in text.strip().splitlines()]
    read = {name for node in nodes for name in node.input}
    rng = np.random.default_rng(0)
    weights = [tensor(name, weight, rng) for name, weight in row.weights.items() if name in read]
    inputs = [helper.make_tensor_value_info(name, TensorProto.FLOAT, list(dims)) for name, dims in row.inputs.items()]
    output = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    graph = helper.make_graph(nodes, "g", inputs, [output], weights)
    domains = [helper.make_opsetid("", row.opset), helper.make_opsetid("com.microsoft", 1)]
    made = helper.make_model(graph, opset_imports=domains, ir_version=10)
    return shape_inference.infer_shapes(made, strict_mode="com.microsoft" not in text)


def feeds(row: Row) -> dict[str, np.ndarray[Any, Any]]:
    """Inputs for both models."""
    rng = np.random.default_rng(1)
    shapes = {name: [row.dims[d] if isinstance(d, str) else d for d in dims] for name, dims in row.inputs.items()}
    low = 0.5 if row.positive else -1.5
    return {name: rng.uniform(low, 1.5, shape).astype(np.float32) for name, shape in shapes.items()}


def by_hand(row: Row, seconds: float) -> Paired | None:
    """The replacement by hand against the slow spelling."""
    if not row.fast:
        return None
    slow, fast = (LoadableModel(model(row, text).SerializeToString()) for text in (row.slow, row.fast))
    return measure_pair(slow, fast, feeds(row), sampling=Sampling(seconds, patience=1, early=0.005))


def run(name: str, budget: float) -> dict[str, Any]:
    """Optimise one micro-model; what came of it."""
    row = ROWS[name]
    report = optimize(model(row, row.slow), inputs=feeds(row), budget=budget, threads=1).report
    hand = by_hand(row, budget / 4)
    latency = report["latency"]
    return {
        "name": name, "expected": row.expected, "loss": row.loss, "kept_original": report["kept_original"],
        "ratio": 1.0 if report["kept_original"] else latency["speedup"], "ci95": None if latency is None else latency["ci95"],
        "measured": None if latency is None else latency["speedup"],
        "steps": sorted({s["rule"] for s in report["steps"]}), "rules": list(report["rules"]),
        "by_hand": None if hand is None else hand.speedup, "seconds": report["seconds"],
    }  # fmt: skip


def applied(entry: dict[str, Any]) -> str:
    """What was written, or what was measured and not taken."""
    if not entry["kept_original"]:
        return ", ".join(entry["rules"])
    return f"not applied (tried {', '.join(entry['steps'])})" if entry["steps"] else "not applied"


def line(entry: dict[str, Any]) -> list[str]:
    """The cells of a row."""
    interval = "" if entry["ci95"] is None else " - ".join(f"{end:.3f}" for end in entry["ci95"])
    hand = "" if entry["by_hand"] is None else f"{entry['by_hand']:.2f}"
    measured = "" if entry["measured"] is None else f"{entry['measured']:.3f}"
    taken = "kept" if entry["kept_original"] else "written"
    return [entry["name"], entry["expected"], hand, measured, interval, taken, applied(entry)]


WIDTHS = (26, 17, 7, 8, 15, 7, 1)
HEADER = ["pattern", "expected", "by hand", "measured", "95 % interval", "input", "rules"]


def main() -> int:
    """Run the rows and print the table; fails if a written model is slower than its input."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("names", nargs="*", metavar="NAME")
    options.add_argument("--budget", type=float, default=4.0, help="seconds for each row")
    options.add_argument("--json", type=Path)
    options.add_argument("--markdown", type=Path)
    arguments = options.parse_args()
    entries: list[dict[str, Any]] = []
    print("  ".join(f"{h:{w}}" for h, w in zip(HEADER, WIDTHS, strict=True)))
    for name in arguments.names or ROWS:
        entries.append(run(name, arguments.budget))
        print("  ".join(f"{c:{w}}" for c, w in zip(line(entries[-1]), WIDTHS, strict=True)).rstrip(), flush=True)
    if arguments.json:
        arguments.json.write_text(json.dumps(entries, indent=1) + "\n")
    if arguments.markdown:
        rows = [HEADER, ["---"] * len(HEADER), *map(line, entries)]
        arguments.markdown.write_text("".join(f"| {' | '.join(cells)} |\n" for cells in rows))
    return 1 if any(entry["ratio"] < 1 for entry in entries) else 0


if __name__ == "__main__":
    raise SystemExit(main())
