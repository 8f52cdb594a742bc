"""FLOPs and bytes of each operator, held against a roofline.

Instant and rough: within a fifth for most convolutions and matrix products, worse for the small change. It ranks windows before they
are measured and stands in for a measurement that can't be made. The factors below are fitted to 738 windows of 18 models that were
measured on a Zen 5 (``python -m tests.bench.estimates`` compares them).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import exp, inf, log, prod

from graphopt.cost.base import TICKS_PER_MS, Price, WindowCost
from graphopt.cost.layout import Layout, Move
from graphopt.cost.models import CostModelSpec
from graphopt.cost.shapes import Shapes
from graphopt.cost.windows import VIEWS, Window, result
from graphopt.ir.graph import Graph, Node
from graphopt.runtime.environment import block_size

NEAR, ALIASED = 4 * 64 * 56 * 56, 4 * 64 * 64 * 64
"""Bytes of an early layer's feature map in an image network; the channels of the second lie whole numbers of ``WAY`` apart."""
FAR = 4 * 64 * 384 * 384
"""Bytes of a feature map that has no room beside a second one in a last-level cache of the usual size."""
WAY = 4096
"""Bytes after which addresses share a set of a core's first cache: so do a block's channels whose size is a multiple, more than a set has lines."""


@dataclass(frozen=True)
class Roofline:
    """What a machine can do at best: the numbers that turn FLOPs and bytes into milliseconds; by default one core of a server processor with AVX-512.

    Attributes:
        gflops: Floating-point operations of a matrix product whose weights are in the cache, 10^9 a second.
        gbytes: Bytes read and written by elementwise operators, 10^9 a second.
        far_gbytes: Bytes read from memory, 10^9 a second.
        scalar_gops: Elementwise operations (those that :class:`Work` counts), 10^9 a second.
        reorder_gbytes: Bytes of a feature map of ``NEAR`` bytes converted into or out of the blocked layout, 10^9 a second.
        reorder_aliased_gbytes: The same of one of ``ALIASED`` bytes, whose channels are in each other's way in the cache.
        reorder_far_gbytes: The same of one of ``FAR`` bytes, which comes from memory and goes there.
        overhead_ms: What the runtime spends on a node whatever it does, in milliseconds: where it is measured, what a Reshape between two
            products takes, whose code and shape have left the cache by then.
        shared_bytes: How much this process gets of the last-level cache.
        profiler_ms: What measuring adds to the time of a window, in milliseconds: the profiler to a kernel, or where windows
            are timed from outside, the call into the runtime.
        pace_ms: Time of the model that tells how fast the machine is at the moment, at its best; 0 where none does.
    """

    gflops: float = 150.0
    gbytes: float = 40.0
    far_gbytes: float = 10.0
    scalar_gops: float = 30.0
    reorder_gbytes: float = 40.0
    reorder_aliased_gbytes: float = 25.0
    reorder_far_gbytes: float = 8.0
    shared_bytes: float = 32 << 20
    overhead_ms: float = 0.0003
    profiler_ms: float = 0.001
    pace_ms: float = inf


# Arithmetic operations for one element, by how the runtime's kernels compute it.
_PER_ELEMENT: dict[str, float] = {
    "Exp": 10, "Log": 15, "Erf": 15, "Tanh": 12, "Sigmoid": 6, "Sin": 20, "Cos": 20, "Gelu": 20, "FastGelu": 16,
    "QuickGelu": 16, "BiasGelu": 20, "Swish": 16, "Mish": 500, "Softplus": 400, "Elu": 60, "Selu": 60, "Celu": 70,
    "HardSwish": 4, "Softmax": 14, "LogSoftmax": 16, "Pow": 40, "Sqrt": 4, "Reciprocal": 4, "Div": 3, "Mod": 10,
    "PRelu": 150, "Tan": 500, "Sinh": 1000, "Cosh": 450, "Hardmax": 400, "ReduceLogSumExp": 200,
    "LayerNormalization": 18, "RMSNormalization": 14, "SimplifiedLayerNormalization": 14, "SkipLayerNormalization": 20,
    "InstanceNormalization": 6, "GroupNormalization": 8, "BatchNormalization": 2, "LpNormalization": 5,
    "CumSum": 2, "TopK": 100, "ArgMax": 3, "ArgMin": 3, "Where": 3, "Resize": 12, "Round": 4, "Einsum": 2, "LRN": 1000, "DFT": 500, "STFT": 500,
}  # fmt: skip
_MOVES = frozenset(
    {
        "Transpose", "Concat", "Split", "Slice", "Gather", "GatherND", "GatherElements", "ScatterND", "ScatterElements",
        "Expand", "Tile", "Pad", "DepthToSpace", "SpaceToDepth", "Trilu", "Cast", "ConstantOfShape", "Resize",
    }
)  # fmt: skip
_ATTENTION = frozenset({"Attention", "MultiHeadAttention", "GroupQueryAttention"})
_GATHERS = frozenset({"Gather", "GatherND", "GatherElements", "Slice"})  # read only what they return
_POOLS = frozenset({"MaxPool", "AveragePool", "LpPool"})
_STRIDED = 2.5  # how much slower than a straight copy an operator is that moves elements around
_BLOCK = 16  # channels in a vector of AVX-512: groups of whole ones reach the fast kernel
# Multiplications that a convolution could have made in the time of one, by how its channels fill the vectors.
_NARROW = 8.5  # groups that are no whole vectors
_ONE_VECTOR = 1.4  # groups of a single one
_ONE_CHANNEL = 1.25  # an image of one channel
# A depthwise convolution takes for one output the time of so many, for each row of outputs, and for each of its own.
_DEPTHWISE, _ROW, _TAP = 8.0, 300.0, 0.6
_UNBLOCKED = 10.0  # how much longer it takes where the runtime does not bring the channels into blocks
_FOURS = 4  # channels of which the runtime wants a multiple for that
_SOFTMAX = 14.0  # arithmetic operations for a score of an attention


@dataclass(frozen=True, slots=True)
class Work:
    """What one node has to do.

    Attributes:
        flops: Multiplications and additions in the inner loops of products, at the peak's pace.
        scalar: Arithmetic operations elsewhere, at an elementwise kernel's pace.
        nbytes: Bytes read and written.
        view: Nothing is computed or moved.
    """

    flops: float = 0.0
    scalar: float = 0.0
    nbytes: float = 0.0
    view: bool = False


def work(graph: Graph, node: Node, shapes: Shapes) -> Work:
    """FLOPs and bytes of a node."""
    if node.op in VIEWS or (node.op == "Dropout" and len(node.inputs) < 3):
        return Work(view=True)
    ins = [() if key is None else shapes.shape(graph, key) for key in node.operands]
    outs = [key for key in node.outputs if key is not None]
    made = [shapes.shape(graph, key) for key in outs] or [(0,)]
    n = prod(made[0])
    sizes = [0 if key is None else shapes.nbytes(graph, key) for key in node.operands]
    read, written = sum(sizes), sum(shapes.nbytes(graph, key) for key in outs)
    if node.op in _GATHERS:
        return Work(nbytes=2 * written * (_STRIDED if node.op != "Slice" else 1.5))
    if node.op in _MOVES:
        return Work(nbytes=(written + min(read, 4 * written)) * (_STRIDED if node.op == "Transpose" else 1.0))
    if node.op in ("Conv", "FusedConv", "ConvTranspose", "ConvInteger") and len(ins) > 1 and len(ins[1]) > 2:
        return Work(2.0 * _convolution(node, ins, made[0]), n, read + written)
    if node.op in _ATTENTION and len(ins) > 2 and len(ins[0]) > 2:
        return _attention(node, ins, made, sizes, written)
    if node.op in ("MatMul", "FusedMatMul", "MatMulInteger") and len(ins) > 1:
        columns = made[0][-1] if made[0] and len(ins[1]) > 1 else 1
        return Work(2.0 * n * _inner(node, ins[0]) / _filled(columns), 0, read + written)
    if node.op in ("Gemm", "FusedGemm") and ins and len(ins[0]) == 2:
        return Work(2.0 * n * ins[0][0 if node.attributes.get("transA") else 1], 0, read + written)
    if node.op == "Einsum":
        # A kernel without a plan of its own: transposes, then a product.
        return Work(2.0 * _einsum(node, ins), 0, 3.0 * (read + written))
    if node.op in _POOLS:
        return Work(scalar=float(n * prod(node.attributes.get("kernel_shape", (1,)))), nbytes=read + written)
    if node.op.startswith("Reduce") or node.op.startswith("Global") or node.op in ("ArgMax", "ArgMin", "TopK"):
        given = float(prod(ins[0])) if ins else 0.0
        return Work(scalar=given * _PER_ELEMENT.get(node.op, 1.0), nbytes=read + written)
    return Work(scalar=n * _PER_ELEMENT.get(node.op, 1.0), nbytes=read + written)


def _attention(
    node: Node, ins: list[tuple[int, ...]], outs: list[tuple[int, ...]], sizes: list[int], written: int
) -> Work:
    """Two products and a softmax over the scores."""
    queries, *others = ins[0], *ins[1:3]
    if len(others[0]) == 2:  # weights for queries, keys and values in one
        projected = 2.0 * prod(queries) * others[0][1]
        keys, width = queries[-2], others[0][1] // 3
    else:
        projected, width = 0.0, queries[-1]
        keys = max(shape[-2] for shape in (*others, *outs[1:]) if len(shape) > 2) if len(others[0]) > 2 else queries[-2]
    heads = (
        node.attributes.get("num_heads")
        or node.attributes.get("q_num_heads")
        or (queries[1] if len(queries) == 4 else 1)
    )
    rows = prod(queries[:-1]) if len(queries) == 4 else prod(queries[:-1]) * heads
    products = 4.0 * prod(queries[:-1]) * width * keys
    # Operands of three dimensions are brought into the order of heads first; with a single token each that is none.
    moved = sum(size * 2 * _STRIDED if len(s) == 3 and s[1] > 1 else size for s, size in zip(ins, sizes, strict=True))
    return Work(projected + products, _SOFTMAX * rows * keys, moved + written)


def node_ms(graph: Graph, node: Node, roofline: Roofline, shapes: Shapes) -> float:
    """Milliseconds of a node that runs by itself."""
    done = work(graph, node, shapes)
    return roofline.overhead_ms + (0.0 if done.view else _ms(done, roofline))


def window_ms(graph: Graph, window: Window, roofline: Roofline, shapes: Shapes) -> float:
    """Milliseconds of a window: the values between its nodes are taken to stay in registers or the cache."""
    inner = {result(graph.nodes[id]) for id in window.nodes[:-1]}
    total = roofline.overhead_ms
    for id in window.nodes:
        node = graph.nodes[id]
        done = work(graph, node, shapes)
        kept = sum(shapes.nbytes(graph, k) for k in (*node.operands, *node.outputs) if k is not None and k in inner)
        total += _ms(Work(done.flops, done.scalar, max(0.0, done.nbytes - kept)), roofline)
    return total


def _ms(done: Work, roofline: Roofline) -> float:
    arithmetic = done.flops / (roofline.gflops * 1e9) + done.scalar / (roofline.scalar_gops * 1e9)
    memory = done.nbytes / (roofline.gbytes * 1e9)
    # A product waits for what it reads; what only passes by is read ahead.
    seconds = arithmetic + memory if done.flops else max(arithmetic, memory)
    return seconds * 1e3


def _convolution(node: Node, shapes: list[tuple[int, ...]], result: tuple[int, ...]) -> float:
    """Multiplications of a convolution, more where its groups are too narrow for the fast kernels."""
    weight, n = shapes[1], prod(result)
    group = max(1, int(node.attributes.get("group", 1)))
    if node.op == "ConvTranspose":
        return float(prod(shapes[0]) * weight[1] * prod(weight[2:]))
    outputs, inputs, *window = weight
    if inputs == 1 and group > 1:
        each = _DEPTHWISE + _ROW / max((1, *result[-1:])) + _TAP * prod(window)
        return n * each * (1.0 if outputs % _FOURS == 0 else _UNBLOCKED)
    count = float(n * inputs * prod(window))
    if group > 1:
        whole = inputs % _BLOCK == 0 and outputs // group % _BLOCK == 0
        return count * (_NARROW if not whole else _ONE_VECTOR if inputs == _BLOCK else 1.0)
    return count / _filled(outputs) * (_ONE_CHANNEL if inputs == 1 else 1.0)


def _filled(columns: int) -> float:
    """How much of the vectors that go over some columns is used: one that is filled in part takes as long as a full one."""
    return columns / (_BLOCK * -(-columns // _BLOCK)) if columns > 1 else 1.0


def _inner(node: Node, shape: tuple[int, ...]) -> int:
    """The dimension that a product sums over."""
    if not shape:
        return 1
    return shape[-2] if node.attributes.get("transA") and len(shape) > 1 else shape[-1]


def _einsum(node: Node, shapes: list[tuple[int, ...]]) -> float:
    """Points of the index space of an Einsum."""
    terms = str(node.attributes.get("equation", "")).replace(" ", "").split("->")[0].split(",")
    extent: dict[str, int] = {}
    for term, shape in zip(terms, shapes, strict=False):
        letters = term.replace("...", "")
        for letter, size in zip(reversed(letters), reversed(shape), strict=False):
            extent[letter] = max(size, extent.get(letter, 1))
    return float(prod(extent.values()))


def move_ms(nbytes: int, channels: int, roofline: Roofline, far: bool = False) -> float:
    """Milliseconds of a conversion into or out of the blocked layout.

    Args:
        nbytes: Size of the feature map.
        channels: How many it has, those of all images of a batch.
        roofline: What this machine can do.
        far: Whether the map comes from memory whatever its size.
    """
    aliased = nbytes // max(channels, 1) % WAY == 0
    near = roofline.reorder_aliased_gbytes if aliased else roofline.reorder_gbytes
    share = 1.0 if far else min(max(log(max(nbytes, 1) / NEAR) / log(FAR / NEAR), 0.0), 1.0)
    gbytes = exp((1 - share) * log(near) + share * log(roofline.reorder_far_gbytes))
    return max(roofline.overhead_ms, nbytes / (gbytes * 1e6))


def fetch_ms(nbytes: int, roofline: Roofline) -> float:
    """How many milliseconds longer it takes to read so many bytes of weights from memory than from the cache."""
    return nbytes * max(0.0, 1 / roofline.far_gbytes - 1 / roofline.gbytes) / 1e6


class AnalyticCost(WindowCost):
    """Prices every window by the roofline.

    Args:
        roofline: What this machine can do; typical numbers if not given.
        dims: Sizes of symbolic dimensions by name.
        block: Channels in a block of the runtime's convolution layout, 1 if it has none.
    """

    name = "analytic"

    def __init__(self, roofline: Roofline | None = None, dims: Mapping[str, int] | None = None, block: int = 1) -> None:
        super().__init__(dims, block)
        self.roofline = roofline or Roofline()

    def prices(self, graph: Graph, windows: Sequence[Window], layout: Layout) -> list[Price]:
        """The price of each window."""
        ticks = (round(window_ms(graph, w, self.roofline, self.shapes) * TICKS_PER_MS) for w in windows)
        return [Price(each, each) for each in ticks]

    def move_price(self, graph: Graph, move: Move) -> int:
        """The price of a conversion into or out of the blocked layout, in picoseconds."""
        return round(move_ms(*self.shapes.map_size(graph, move.key), self.roofline) * TICKS_PER_MS)


class OperatorCost(WindowCost):
    """A cost model for toys: each node that runs has the price of its operator, in milliseconds."""

    name = "operators"

    def __init__(self, by_operator: Mapping[str, float]) -> None:
        super().__init__()
        self._ticks = {op: round(ms * TICKS_PER_MS) for op, ms in by_operator.items()}

    def prices(self, graph: Graph, windows: Sequence[Window], layout: Layout) -> list[Price]:
        """The price of each window."""
        ticks = [sum(self._ticks.get(graph.nodes[id].op, 0) for id in window.nodes) for window in windows]
        return [Price(t, t) for t in ticks]

    def move_price(self, graph: Graph, move: Move) -> int:
        """Nothing."""
        return 0


ANALYTIC = CostModelSpec(
    "analytic",
    "floating-point operations and bytes against a roofline; nothing is measured",
    lambda wanted: AnalyticCost(dims=wanted.dims, block=block_size()),
)
OPERATORS = CostModelSpec(
    "operators", "a price for each operator, for toys", lambda wanted: OperatorCost(wanted.prices), ("prices",)
)
