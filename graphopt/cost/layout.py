"""Where the runtime converts between its blocked convolution layout and the plain one.

On a CPU the runtime keeps feature maps in blocks of 8 or 16 channels (NCHWc) from one convolution to the next, as long as
every operator between knows that layout. Where one does not, it inserts a conversion, and so it does again before the next
convolution. A rewrite that puts a Reshape or a broadcast Mul between two convolutions pays for both; one that removes it
earns both. The rules follow ``nchwc_transformer.cc`` of ONNX Runtime.

Each value is *blocked* or not by what produces it, and a conversion belongs to a value: out of the blocks when some reader
needs it plain, into them when it is plain and some reader wants blocks. However many readers there are, it is done once.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from graphopt.cost.shapes import Shapes
from graphopt.ir.edit import Delta
from graphopt.ir.graph import Graph, Node

_ALIGNED = 4  # channels of which the output of a blocked convolution must be a multiple when it has groups
_POOLS = frozenset({"MaxPool", "AveragePool", "GlobalMaxPool", "GlobalAveragePool"})
_FLOWING = frozenset({"Relu", "Sigmoid", "Tanh", "HardSigmoid", "HardSwish", "Gelu", "QuickGelu", "BatchNormalization"})
_FUSED = frozenset({"LeakyRelu", "Clip"})  # known to the layout only as part of a convolution
_SHAPED = frozenset({"Add", "Sum", "Mul"})
_DROPPED = frozenset({"Identity", "Dropout"})


@dataclass(frozen=True)
class Layout:
    """The layout of a graph's values.

    Attributes:
        blocked: Keys of the blocked values.
        moves: Conversions: key of the value, and whether it goes into the blocks (else out of them).
        payer: The node to whose price a conversion is added.
    """

    blocked: frozenset[int] | dict[int, bool] = field(default_factory=dict)
    moves: Mapping[int, bool] = field(default_factory=dict)
    payer: Mapping[int, int] = field(default_factory=dict)
