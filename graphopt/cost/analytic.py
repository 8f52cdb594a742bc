"""FLOPs and bytes of each operator, held against a roofline.

Instant and rough: within a factor of two for convolutions and matrix products, worse for the small change. It ranks
windows before they are measured and stands in for a measurement that can't be made.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod

from graphopt.cost.base import TICKS_PER_MS, Price, WindowCost
from graphopt.cost.layout import Layout, Move
from graphopt.cost.models import CostModelSpec
from graphopt.cost.roofline import Roofline
from graphopt.cost.shapes import Shapes
from graphopt.cost.windows import VIEWS, Window, result
from graphopt.ir.graph import Graph, Node
from graphopt.runtime.environment import block_size

# Arithmetic operations for one element, by how the runtime's kernels compute it.
_PER_ELEMENT: dict[str, float] = {
    "Exp": 10, "Log": 15, "Erf": 15, "Tanh": 12, "Sigmoid": 12, "Sin": 20, "Cos": 20, "Gelu": 20, "FastGelu": 16,
    "QuickGelu": 16, "BiasGelu": 20, "Swish": 16, "Mish": 30, "Softplus": 25, "Elu": 12, "Selu": 12, "Celu": 12,
    "HardSwish": 4, "Softmax": 14, "LogSoftmax": 16, "Pow": 40, "Sqrt": 4, "Reciprocal": 4, "Div": 3, "Mod": 10,
    "LayerNormalization": 8, "RMSNormalization": 6, "SimplifiedLayerNormalization": 6, "SkipLayerNormalization": 10,
    "InstanceNormalization": 6, "GroupNormalization": 8, "BatchNormalization": 2, "LpNormalization": 5,
    "CumSum": 2, "TopK": 40, "ArgMax": 3, "ArgMin": 3, "Where": 3, "Resize": 12, "Round": 4, "Einsum": 2, "LRN": 40,
}  # fmt: skip
_MOVES = frozenset(
    {
        "Transpose", "Concat", "Split", "Slice", "Gather", "GatherND", "GatherElements", "ScatterND", "ScatterElements",
        "Expand", "Tile", "Pad", "DepthToSpace", "SpaceToDepth", "Trilu", "Cast", "ConstantOfShape", "Resize",
    }
)  # fmt: skip
_GATHERS = frozenset({"Gather", "GatherND", "GatherElements", "Slice"})  # read only what they return
_POOLS = frozenset({"MaxPool", "AveragePool", "LpPool"})
_STRIDED = 2.5  # how much slower than a straight copy an operator is that moves elements around
_GROUPED = 5.0  # how far below the peak a convolution with few channels a group stays
_DEPTHWISE = 6.0  # the same with a single one
_BLOCK = 16  # channels in a vector of AVX-512: groups of whole ones reach the fast kernel


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
    """FLOPs and bytes of a node.

    Args:
        graph: Where it stands.
        node: The node.
        shapes: Shapes of symbolic dimensions.
    """
    if node.op in VIEWS or (node.op == "Dropout" and len(node.inputs) < 3):
        return Work(view=True)
    ins = [() if key is None else shapes.shape(graph, key) for key in node.operands]
    outs = [key for key in node.outputs if key is not None]
    n = prod(shapes.shape(graph, outs[0])) if outs else 0
    written = sum(shapes.nbytes(graph, key) for key in outs)
    read = sum(shapes.nbytes(graph, key) for key in node.operands if key is not None)
    if node.op in _GATHERS:
        return Work(nbytes=2 * written * (_STRIDED if node.op != "Slice" else 1.5))
    if node.op in _MOVES:
        return Work(nbytes=(written + min(read, 4 * written)) * (_STRIDED if node.op == "Transpose" else 1.0))
    if node.op in ("Conv", "FusedConv", "ConvTranspose", "ConvInteger") and len(ins) > 1 and len(ins[1]) > 2:
        return Work(2.0 * _convolution(node, ins, n), n, read + written)
    if node.op in ("MatMul", "FusedMatMul", "MatMulInteger") and len(ins) > 1:
        return Work(2.0 * n * _inner(node, ins[0]), 0, read + written)
    if node.op in ("Gemm", "FusedGemm") and ins and len(ins[0]) == 2:
        return Work(2.0 * n * ins[0][0 if node.attributes.get("transA") else 1], 0, read + written)
    if node.op == "Einsum":
        # A kernel without a plan of its own: transposes, then a product.
        return Work(2.0 * _einsum(node, ins), 0, 3.0 * (read + written))
    if node.op in _POOLS:
        return Work(scalar=float(n * prod(node.attributes.get("kernel_shape", (1,)))), nbytes=read + written)
    if node.op.startswith("Reduce") or node.op.startswith("Global") or node.op in ("ArgMax", "ArgMin", "TopK"):
        return Work(scalar=float(prod(ins[0])) if ins else 0.0, nbytes=read + written)
    return Work(scalar=n * _PER_ELEMENT.get(node.op, 1.0), nbytes=read + written)


def node_ms(graph: Graph, node: Node, roofline: Roofline, shapes: Shapes) -> float:
    """Milliseconds of a node that runs by itself."""
    done = work(graph, node, shapes)
    return roofline.overhead_ms + (0.0 if done.view else _ms(done, roofline))


def window_ms(graph: Graph, window: Window, roofline: Roofline, shapes: Shapes) -> float:
    """Milliseconds of a window: the values between its nodes are taken to stay in registers or the cache.

    Args:
        graph: Where it stands.
        window: The nodes.
        roofline: What this machine can do.
        shapes: Shapes of symbolic dimensions.
    """
    inner = {result(graph.nodes[id]) for id in window.nodes[:-1]}
    total = roofline.overhead_ms
    for id in window.nodes:
        node = graph.nodes[id]
        done = work(graph, node, shapes)
        kept = sum(shapes.nbytes(graph, k) for k in (*node.operands, *node.outputs) if k is not None and k in inner)
        total += _ms(Work(done.flops, done.scalar, max(0.0, done.nbytes - kept)), roofline)
    return total


def _ms(done: Work, roofline: Roofline) -> float:
    seconds = max(
        done.flops / (roofline.gflops * 1e9) + done.scalar / (roofline.scalar_gops * 1e9),
        done.nbytes / (roofline.gbytes * 1e9),
    )
    return seconds * 1e3


def _convolution(node: Node, shapes: list[tuple[int, ...]], n: int) -> float:
    """Multiplications of a convolution, more where its groups are too narrow for the fast kernels."""
    weight = shapes[1]
    group = max(1, int(node.attributes.get("group", 1)))
    if node.op == "ConvTranspose":
        return float(prod(shapes[0]) * weight[1] * prod(weight[2:]))
    count = float(n * weight[1] * prod(weight[2:]))
    if group == 1:
        return count
    return count * (_DEPTHWISE if weight[1] == 1 else 1.0 if weight[1] % _BLOCK == 0 else _GROUPED)


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


def move_ms(graph: Graph, move: Move, roofline: Roofline, shapes: Shapes) -> float:
    """Milliseconds of a conversion into or out of the blocked layout.

    Args:
        graph: Where it takes place.
        move: The conversion.
        roofline: What this machine can do.
        shapes: Static shapes of the graph's values.
    """
    return roofline.overhead_ms + shapes.nbytes(graph, move.key) / (roofline.reorder_gbytes * 1e6)


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
        return round(move_ms(graph, move, self.roofline, self.shapes) * TICKS_PER_MS)


SPEC = CostModelSpec(
    "analytic",
    "floating-point operations and bytes against a roofline; nothing is measured",
    lambda wanted: AnalyticCost(dims=wanted.dims, block=block_size()),
)
