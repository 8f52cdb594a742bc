"""What the generator starts from: a few small tensors, and the operators that are applied to them.

One set of tensors for all operators would be either too small for any law or too large to enumerate, so there are several
*worlds*, each for operators that have laws with each other. No dimension is above 4, and those of one tensor differ where
they can, so that a wrong layout shows in the result.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from graphopt.errors import UnknownNameError, UsageError
from graphopt.synth.operators import BINARY, POOLS, REDUCE, TABLE, UNARY, Shape


@dataclass(frozen=True)
class World:
    """Where graphs are enumerated.

    Attributes:
        name: For people and for checkpoints.
        leaves: Name and shape of each input. Those of one shape may stand for each other, unless slots tell them apart.
        ops: Operators, in the order in which they are applied.
        numbers: One-element constants.
        about: Operators one of which a law has to contain, none for any: laws of sums alone are found elsewhere.
        deeper: Operators that a graph may have beyond the depth asked for; below 0 where many operators make too many graphs.
        any_order: Whether inputs of one shape may come in any order in the largest graphs too, for laws whose sides have them in
            different ones.
        slots: By operator, for each operand the inputs (names of one letter) one of which it must depend on, ``""`` for any:
            a BatchNormalization has five operands, which in any order would make a hundred copies of every law.
    """

    name: str
    leaves: tuple[tuple[str, Shape], ...]
    ops: tuple[str, ...]
    numbers: tuple[float, ...] = ()
    about: tuple[str, ...] = ()
    deeper: int = 0
    any_order: bool = False
    slots: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    @property
    def sizes(self) -> frozenset[int]:
        """Dimensions of the inputs."""
        return frozenset(d for _, shape in self.leaves for d in shape)

    def depth(self, asked: int) -> int:
        """Operators of a graph at most. Graphs of two are few in every world."""
        return max(asked + self.deeper, min(asked, _FEW))

    def narrowed(self, names: Sequence[str]) -> World:
        """The world with those of its operators alone that somebody names: all their graphs are made, and all their laws are told."""
        ops = tuple(o for o in self.ops if o in names)
        return replace(self, ops=ops, about=(), deeper=max(self.deeper, 0), any_order=True)


def _leaves(text: str) -> tuple[tuple[str, Shape], ...]:
    """Read ``x 2x3, s`` (a name without a shape is a single number)."""
    made = []
    for item in text.split(","):
        name, _, dims = item.strip().partition(" ")
        made.append((name, tuple(int(d) for d in dims.split("x") if d)))
    return tuple(made)


_FEW = 2  # operators of a graph
FLOW = "x"
"""The input that stands for what flows through a model; any other may be a weight."""

_NORMS = {"BatchNormalization": ("xz", "s", "b", "m", "v"), "LayerNormalization": ("xz", "s", "b")}
_CONV = {"Conv": ("xz", "uvwk", "b")}

WORLDS: tuple[World, ...] = (
    World("numbers", _leaves("x 3x4, z 3x4, t 3x4"), (*UNARY, "Pow", *BINARY), (0.0, 1.0), deeper=-1),
    World("signs", _leaves("x 3x4, z 3x4"), ("Neg", "Relu", "Tanh", *BINARY), (0.0, -1.0), deeper=-1),
    World("broadcast", _leaves("x 3x4, z 3x4, r 4, c 3x1, s"), ("Neg", "Relu", "Exp", *BINARY), deeper=-1),
    World("sigmoids", _leaves("x 3x4"), ("Neg", "Exp", "Sigmoid", "Reciprocal", "Add", "Div"), (1.0,), about=("Sigmoid",), deeper=1),
    World("tangents", _leaves("x 3x4"), ("Neg", "Exp", "Tanh", "Sigmoid", "Sub", "Add", "Mul"), (1.0, 2.0), about=("Tanh",)),
    World("exponentials", _leaves("x 3x4, z 3x4"), ("Exp", "Sqrt", *BINARY), about=("Exp", "Sqrt")),
    World("factors", _leaves("x 3x4, z 3x4, t 3x4"), ("Add", "Sub", "Mul")),
    World("fractions", _leaves("x 3x4, z 3x4, t 3x4"), ("Add", "Div")),
    World("products", _leaves("x 2x3, z 2x3, v 3x4, w 3x4, u 4x2, s"), ("MatMul", "Add", "Sub", "Mul", "Div", "Neg", "Transpose"), about=("MatMul",), deeper=-1),
    World("distribution", _leaves("x 2x3, z 2x3, v 3x4, w 3x4, s"), ("MatMul", "Add", "Sub", "Mul", "Transpose"), about=("MatMul",)),
    World("scales", _leaves("x 2x3, v 3x4, c 2x1, r 4, s"), ("MatMul", "Mul", "Div"), about=("MatMul",), deeper=-1),
    World("merging", _leaves("x 4x3, z 4x3, v 3x2, w 3x2"), ("MatMul", "Concat", "Split", "Relu"), about=("MatMul", "Concat", "Split")),
    World("blocks", _leaves("x 2x3, z 2x3, v 3x4, w 3x4, b 4"), ("MatMul", "Add", "Concat", "Transpose"), about=("MatMul", "Concat", "Transpose")),
    World("gemms", _leaves("x 2x3, z 2x3, v 3x4, w 3x4, b 4, c 4, s"), ("Gemm", "MatMul", "Add", "Mul", "Neg", "Transpose"), about=("Gemm", "MatMul"), deeper=-1),
    World("gemm merging", _leaves("x 4x3, z 4x3, v 3x2, w 3x2, b 2, c 2"), ("Gemm", "Concat", "Split"), about=("Gemm",)),
    World("batched", _leaves("x 2x3x4, z 2x3x4, w 4x3, s"), ("MatMul", "Add", "Mul", "Div", "Transpose", "Softmax", "Relu"), about=("MatMul", "Transpose", "Softmax"), deeper=-1),
    World("attention", _leaves("x 2x3x4, z 2x3x4, s"), ("MatMul", "Mul", "Transpose"), about=("MatMul", "Transpose")),
    World("softmax", _leaves("x 3x4, c 3x1, r 4, s"), ("Softmax", "Exp", "Add", "Sub", "Mul", "Div", "ReduceSum", "ReduceMax", "Transpose"), about=("Softmax", "Exp"), deeper=-1),
    World("softmax steps", _leaves("x 3x4, c 3x1"), ("Softmax", "Exp", "Sub", "Div", "ReduceSum", "ReduceMax"), about=("Softmax",)),
    World("means", _leaves("x 3x4, z 3x4, c 3x1, s"), (*REDUCE, "Add", "Sub", "Mul", "Div", "Neg", "Transpose"), about=REDUCE, deeper=-1),
    World("deviations", _leaves("x 3x4, s"), ("ReduceMean", "ReduceSum", "Sub", "Mul"), about=REDUCE),
    World("reductions", _leaves("x 2x3x4, z 2x3x4"), (*REDUCE, "Transpose", "Squeeze", "Unsqueeze", "Neg", "Relu", "Concat"), about=REDUCE, deeper=-1),
    World("reduction merging", _leaves("x 2x4, z 2x4"), (*REDUCE, "Add", "Concat", "Split"), about=REDUCE),
    World("layernorm", _leaves("x 3x4, z 3x4, c 3x1, s 4, b 4, k"), ("LayerNormalization", *BINARY, "Neg", "ReduceMean", "Concat", "Transpose"), about=("LayerNormalization",), slots=_NORMS, deeper=-1),
    World("layernorm steps", _leaves("x 3x4, s 4, b 4"), ("LayerNormalization", "Add", "Sub", "ReduceMean"), about=("LayerNormalization",), slots=_NORMS),
    World("batchnorm", _leaves("x 2x3x4, z 2x3x4, s 3, b 3, m 3, v 3, k"), ("BatchNormalization", *BINARY, "Neg", "Relu", "Concat"), about=("BatchNormalization",), slots=_NORMS, deeper=-1),
    World("batchnorm steps", _leaves("x 2x3x4, z 2x3x4, s 3, b 3, m 3, v 3, k"), ("BatchNormalization", "Add", "Mul"), about=("BatchNormalization",), slots=_NORMS),
    World("layout", _leaves("x 2x3x4, z 2x3x4"), ("Transpose", "Reshape", "Squeeze", "Unsqueeze", "Relu", "Add"), about=("Transpose", "Reshape", "Squeeze", "Unsqueeze")),
    World("pieces", _leaves("x 2x4, z 2x4"), ("Concat", "Split", "Slice", "Transpose", "Relu", "Add"), about=("Concat", "Split", "Slice")),
    World("sums of pieces", _leaves("x 2x3, z 2x3, t 2x3, u 2x3"), ("Concat", "Add"), about=("Concat",), any_order=True),
    World("pointwise", _leaves("x 1x2x3x4, z 1x2x3x4, v 3x2x1x1, w 3x2x1x1, u 2x3x1x1, b 3, s"), ("Conv", "Add", "Sub", "Mul", "Neg", "Relu"), about=("Conv",), slots=_CONV, deeper=-1),
    World("affine", _leaves("x 1x2x3x4, z 1x2x3x4, v 3x2x1x1, w 3x2x1x1, b 3, s"), ("Conv", "Add", "Sub", "Mul"), about=("Conv",), slots=_CONV),
    World("convolutions", _leaves("x 1x2x3x4, z 1x2x3x4, v 2x2x3x3, w 2x2x3x3, k 2x4x3x3"), ("Conv", "Concat", "Split", "Add", "Relu"), about=("Conv",), slots=_CONV),
    World("branches", _leaves("x 1x4x2x3, z 1x4x2x3, v 2x4x1x1, w 2x4x1x1, b 2, c 2"), ("Conv", "Concat", "Split", "Add"), about=("Conv",), slots={"Conv": ("xz", "vw", "bc")}),
    World("groups", _leaves("x 1x4x3x2, v 2x2x1x1, w 2x2x1x1"), ("Conv", "Concat", "Split"), about=("Conv",), slots=_CONV, deeper=1),
    World("pools", _leaves("x 1x2x4x3, z 1x2x4x3, w 3x2x1x1, s"), ("MaxPool", "AveragePool", "GlobalAveragePool", "Relu", "Add", "Mul", "Neg", "Concat", "Conv", "ReduceMean"), about=POOLS, slots=_CONV, deeper=-1),
    World("pool merging", _leaves("x 1x2x4x3, z 1x2x4x3"), (*POOLS, "Relu", "Add", "Concat", "Split"), about=POOLS),
    World("pool chains", _leaves("x 1x2x4x3"), ("MaxPool", "AveragePool", "GlobalAveragePool", "Relu", "ReduceMean", "ReduceMax"), about=POOLS),
)  # fmt: skip
"""All worlds."""

PRESETS: Mapping[str, tuple[str, ...]] = {
    "all": tuple(w.name for w in WORLDS),
    "arithmetic": ("numbers", "signs", "broadcast", "sigmoids", "tangents", "exponentials", "factors", "fractions"),
    "matmul": ("products", "distribution", "scales", "merging", "blocks", "batched", "attention"),
    "gemm": ("gemms", "gemm merging"),
    "conv": ("pointwise", "affine", "convolutions", "branches", "groups"),
    "pool": ("pools", "pool merging", "pool chains"),
    "normalisation": ("softmax", "softmax steps", "layernorm", "layernorm steps", "batchnorm", "batchnorm steps"),
    "reduction": ("means", "deviations", "reductions", "reduction merging"),
    "layout": ("layout", "pieces", "sums of pieces"),
}
"""Names of worlds by preset."""


def select(names: Sequence[str], max_dim: int = 4) -> list[World]:
    """The worlds of presets, or those in which the named operators meet, with no other operators.

    Args:
        names: Presets or operators; none for everything.
        max_dim: Largest dimension; larger ones are cut down to it.

    Raises:
        UnknownNameError: A name is neither.
        UsageError: Presets and operators are mixed, operators don't meet, or ``max_dim`` leaves no room for dimensions that differ.
    """
    if not 2 <= max_dim <= 4:
        raise UsageError(f"--max-dim must be 2, 3 or 4, not {max_dim}")
    for name in names:
        if name not in PRESETS and name not in TABLE:
            raise UnknownNameError("operator or preset", name, [*PRESETS, *TABLE])
    chosen = [name for name in names if name in PRESETS]
    if chosen and len(chosen) < len(names):
        raise UsageError("--ops takes presets or operators, not both at once")
    if chosen or not names:
        wanted = {world for name in chosen or ["all"] for world in PRESETS[name]}
        found = [w for w in WORLDS if w.name in wanted]
    else:
        found = _meeting(names)
    return [_within(w, max_dim) for w in found]


def _meeting(names: Sequence[str]) -> list[World]:
    """The worlds in which operators meet, and those that are about one of them, narrowed to them.

    A world that is about none of them leaves their laws to others, unless no other has these operators together.

    Raises:
        UsageError: An operator meets none of the others.
    """
    least = min(2, len(set(names)))
    narrowed = [(w, w.narrowed(names)) for w in WORLDS]
    whole = [(w, made, not set(w.about).isdisjoint(made.ops)) for w, made in narrowed]
    whole = [(w, made, about) for w, made, about in whole if about or len(made.ops) >= least]
    found = [made for w, made, about in whole if about or not w.about]
    for _, made, _ in whole:
        if not any(set(made.ops) <= set(other.ops) for other in found):
            found.append(made)
    apart = strangers(names)
    alone = [name for name in names if len(apart[name]) == len(apart) - 1 > 0]
    if alone:
        meets = sorted({o for w in WORLDS if alone[0] in w.ops for o in w.ops if o != alone[0]})
        raise UsageError(f"--ops: {alone[0]} meets none of the others", f"it meets {', '.join(meets)}")
    return found


def strangers(names: Sequence[str]) -> dict[str, list[str]]:
    """For each of some operators those of the others with which it is in no world."""
    able = [name for name in dict.fromkeys(names) if name in TABLE]
    return {a: [b for b in able if not any({a, b} <= set(w.ops) for w in WORLDS)] for a in able}


def _within(world: World, limit: int) -> World:
    cut = tuple((name, tuple(min(d, limit) for d in shape)) for name, shape in world.leaves)
    return replace(world, leaves=cut)
