"""A random model under construction. Every node is run as soon as it is there, so that a draft is a model that runs.

Symbols have sizes that differ from each other; what a node needs to know of a shape it reads off the arrays. At other sizes the
model may not run (a Reshape to numbers does not), which is found out when it is whole.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np
import onnx
from onnx import ModelProto, NodeProto, TensorProto, helper, numpy_helper

from graphopt.errors import GraphoptError
from graphopt.ir.infer import make_node
from graphopt.runtime.session import LoadableModel, Session, SessionConfig

PLAIN = SessionConfig(level="disabled", arena=False)
FLOATS = ("float32", "float64", "float16", "bfloat16")
DTYPES = (*FLOATS, "int64", "int32", "int16", "int8", "uint8", "uint16", "uint32", "uint64", "bool")
_WEIGHTS = np.array([50, 9, 5, 2, 8, 8, 2, 3, 3, 1, 2, 1, 6], float)
SYMBOLS = ("N", "S", "batch", "seq", "H", "W")
_SIZES = (3, 2, 5, 4, 7, 6)
_SPECIAL = 0.15  # share of the floating-point inputs that hold numbers which are none, or have a sign and no size
_SPECIALS = np.array([np.nan, np.inf, -np.inf, -0.0, 0.0])
_LARGEST = 3000  # elements of a value
_WIDE = 0.25  # share of the inputs of 8 and 16 bits that hold any number of their type
_LARGER = 0.06  # share of the floating-point inputs that hold numbers a hundred to a thousand times as large
LARGE = 2.0  # what is larger in such an input than anything in others
_EMPTY = 0.015  # share of the inputs of numbers for dimensions one of which is 0
DEADLY = frozenset(
    {"Conv", "ConvTranspose", "Einsum", "Resize", "ReduceMean", "ArgMin", "ArgMax", "InstanceNormalization", "GroupNormalization",
     "TopK", "MaxPool", "AveragePool", "LpPool", "LayerNormalization", "Concat"}
)  # fmt: skip
"""Operators whose kernels may end the process where an operand is empty, or leave memory as they find it."""

Array = np.ndarray[Any, Any]


def numpy_type(name: str) -> Any:
    """The numpy dtype of a name, bfloat16 included."""
    return np.dtype(ml_dtypes.bfloat16) if name == "bfloat16" else np.dtype(name)


def code(dtype: Any) -> int:
    """ONNX's number of a dtype."""
    return TensorProto.BFLOAT16 if dtype.name == "bfloat16" else int(helper.np_dtype_to_tensor_dtype(dtype))


def content(rng: np.random.Generator, dtype: Any, shape: Sequence[int]) -> Array:
    """Small numbers; those of floats are eighths, so that sums of a few are exact."""
    shape = tuple(shape)
    if dtype.kind == "b":
        return np.asarray(rng.integers(0, 2, shape)).astype(bool)
    if dtype.kind == "u":
        return np.asarray(rng.integers(0, 5, shape)).astype(dtype)
    if dtype.kind == "i":
        return np.asarray(rng.integers(-3, 4, shape)).astype(dtype)
    return np.asarray(rng.integers(-16, 17, shape) / 8).astype(np.float64).astype(dtype)


@dataclass(frozen=True)
class Input:
    """An input of a draft: numbers and symbols for dimensions."""

    name: str
    dtype: str
    dims: tuple[int | str, ...]

    def array(self, sizes: Mapping[str, int], salt: int) -> Array:
        """Content at some sizes of the symbols."""
        rng = np.random.default_rng((salt, zlib.crc32(self.name.encode())))
        dtype, shape = numpy_type(self.dtype), [sizes[d] if isinstance(d, str) else d for d in self.dims]
        made = content(rng, dtype, shape)
        if dtype.kind in "iu" and dtype.itemsize < 4 and rng.random() < _WIDE:
            few = rng.random() < 0.5  # so that sums of them stay what they are
            ends = np.iinfo(dtype)
            whole = np.asarray(rng.integers(ends.min, ends.max + 1, shape)).astype(dtype)
            return np.where(rng.random(shape) < 0.2, whole, made) if few else whole
        if self.dtype in FLOATS and rng.random() < _LARGER:
            made = (made.astype(np.float64) * 2.0 ** rng.integers(6, 11)).astype(dtype)
        if self.dtype in FLOATS and rng.random() < _SPECIAL:
            with np.errstate(over="ignore"):
                made = np.where(
                    rng.random(made.shape) < 0.2, rng.choice(_SPECIALS, made.shape).astype(made.dtype), made
                )
        return made


def schema(op: str, opset: int, domain: str = "") -> Any:
    """The schema of an operator; ``None`` where it is not in the operator set."""
    try:
        found = onnx.defs.get_schema(op, opset, domain)
    except onnx.defs.SchemaError:
        return None
    return None if found.deprecated else found


class Draft:
    """A model under construction.

    Attributes:
        rng: Where its choices come from.
        opset: Its operator-set version.
        arrays: Every value by name, at the first sizes.
        sizes: Sizes of its symbols.
        half: Whether it is a float32 model as converters make one of float16: with a Cast at both ends and float16 between.
        favoured: A value that is picked wherever it fits; empty for none.
    """

    def __init__(self, rng: np.random.Generator, opset: int, half: bool = False) -> None:
        self.rng, self.opset, self.half = rng, opset, half
        self.favoured = ""
        self.inputs: list[Input] = []
        self.weights: dict[str, Array] = {}
        self.nodes: list[NodeProto] = []
        self.arrays: dict[str, Array] = {}
        self.sizes: dict[str, int] = {}
        self.planted: list[str] = []
        self.constants: set[str] = set()
        self._names = 0

    # -- choices --------------------------------------------------------------------------------------------------

    def chance(self, p: float) -> bool:
        """True so often."""
        return bool(self.rng.random() < p)

    def number(self, low: int, high: int) -> int:
        """A number of a range, both ends included."""
        return int(self.rng.integers(low, high + 1))

    def choice(self, items: Sequence[Any]) -> Any:
        """One of some items."""
        return items[int(self.rng.integers(len(items)))]

    def dtype(self) -> str:
        """A dtype, often float32."""
        return str(self.rng.choice(DTYPES, p=_WEIGHTS / _WEIGHTS.sum()))

    def name(self) -> str:
        """A name that is not taken."""
        self._names += 1
        return f"v{self._names}"

    # -- values ---------------------------------------------------------------------------------------------------

    def symbol(self, name: str) -> str:
        """A symbol, which gets a size when it is first used."""
        self.sizes.setdefault(name, _SIZES[len(self.sizes) % len(_SIZES)])
        return name

    def input(self, dims: Sequence[int | str] | None = None, dtype: str | None = None) -> str:
        """A new input."""
        if dims is None:
            mode = self.number(0, 2)  # static, shared symbols, symbols of its own
            rank = int(self.rng.choice(6, p=[0.03, 0.12, 0.27, 0.25, 0.28, 0.05]))
            dims = [self.number(1, 5) for _ in range(rank)]
            for axis in range(rank):
                if mode and self.chance(0.4):
                    dims[axis] = self.choice(SYMBOLS[:3]) if mode == 1 else f"d{len(self.inputs)}_{axis}"
            if rank and mode == 0 and self.chance(_EMPTY):
                dims[self.number(0, rank - 1)] = 0
        for dim in dims:
            if isinstance(dim, str):
                self.symbol(dim)
        made = Input(self.name(), dtype or self.dtype(), tuple(dims))
        self.inputs.append(made)
        self.arrays[made.name] = made.array(self.sizes, 0)
        cast = self.add("Cast", [made.name], to=TensorProto.FLOAT16) if self.half and made.dtype == "float32" else None
        return cast[0] if cast else made.name

    def real(self) -> Any:
        """The dtype of what is float32 elsewhere."""
        return np.dtype(np.float16 if self.half else np.float32)

    def const(self, array: Array, wide: bool = False) -> str:
        """A constant, now and then one that is there already, or a Constant node; ``wide``: float32 where the draft is half as well."""
        array = np.asarray(array)
        if array.dtype == np.float32 and not wide:
            array = array.astype(self.real())
        if self.chance(0.6):
            for name, other in self.weights.items():
                if other.dtype == array.dtype and other.shape == array.shape and np.array_equal(other, array):
                    return name
        name = self.name()
        self.arrays[name] = array
        self.constants.add(name)
        if self.chance(0.15):
            self.nodes.append(helper.make_node("Constant", [], [name], value=numpy_helper.from_array(array, name)))
        else:
            self.weights[name] = array
        return name

    def ints(self, *items: int) -> str:
        """A constant vector of int64."""
        return self.const(np.array(items, np.int64))

    def pick(self, low: int = 0, high: int = 9, kinds: str = "fiub", constant: bool = False) -> str:
        """A value of a rank and kind, a late one more often; a new input where there is none."""
        if (
            self.favoured
            and low <= self.arrays[self.favoured].ndim <= high
            and _kind(self.arrays[self.favoured]) in kinds
        ):
            return self.favoured
        names = [
            n for n, a in self.arrays.items()
            if low <= a.ndim <= high and _kind(a) in kinds and (constant or n not in self.constants)
        ]  # fmt: skip
        if not names or self.chance(0.08):
            dtype = next((d for d in (self.dtype(), "float32", "int64", "bool") if _kind_of(d) in kinds), "float32")
            rank = self.number(low, min(high, max(low, 4)))
            return self.input(
                [self.number(1, 5) if self.chance(0.6) else self.choice(SYMBOLS[:3]) for _ in range(rank)], dtype
            )
        return names[-1 - min(self.number(0, len(names) - 1), self.number(0, len(names) - 1))]

    def partner(self, x: str) -> str:
        """Something that a value can be combined with elementwise: a value of the same or a fitting shape, or a constant."""
        a = self.arrays[x]
        if self.chance(0.45):
            fits = [n for n, b in self.arrays.items() if b.dtype == a.dtype and _fits(a.shape, b.shape)]
            if fits:
                return str(self.choice(fits))
        shape = (a.shape, a.shape[-1:], (), (1,), tuple(1 if self.chance(0.5) else d for d in a.shape))[
            self.number(0, 4)
        ]
        # What stretches over a symbol must be 1 there, or it runs at one size alone.
        if self.sizes and self.chance(0.8):
            shape = tuple(1 if d in self.sizes.values() else d for d in shape)
        fill = self.choice((0, 1, 2, -1, None, None, None))
        if fill is None or (a.dtype.kind in "ub" and fill < 0):
            return self.const(content(self.rng, a.dtype, shape))
        return self.const(np.full(shape, fill).astype(a.dtype))

    # -- nodes ----------------------------------------------------------------------------------------------------

    def add(
        self, op: str, inputs: Sequence[str], outputs: int = 1, domain: str = "", **attributes: Any
    ) -> list[str] | None:
        """Add a node that runs; ``None`` for one that does not."""
        while inputs and not inputs[-1]:
            inputs = inputs[:-1]
        names = [self.name() for _ in range(outputs)]
        try:
            node = make_node(op, domain, 1 if domain else self.opset, list(inputs), names, attributes)
        except (TypeError, ValueError):
            return None
        return names if self.adopt([node], names) else None

    def adopt(self, nodes: Sequence[NodeProto], outputs: Sequence[str], floats: Set[str] = frozenset()) -> bool:
        """Add nodes that read what is there, if they run; ``floats``: which of the values that they make are floats."""
        own = {o for n in nodes for o in n.output}
        reads = dict.fromkeys(i for n in nodes for i in n.input if i and i not in own)
        if not all(self._divides(n, floats) for n in nodes):
            return False
        if any(
            n.op_type in DEADLY
            and any(self.arrays[i].size == 0 for i in n.input if i in self.arrays and i not in self.constants)
            for n in nodes
        ):
            return False
        arrays = run_nodes(nodes, {n: self.arrays[n] for n in reads}, outputs, self.opset, self.constants)
        if arrays is None or any(a.size > _LARGEST for a in arrays.values()):
            return False
        if any(_undefined(n, {**self.arrays, **arrays}) for n in nodes):
            return False
        self.nodes.extend(nodes)
        self.arrays.update(arrays)
        self.constants |= {o for n in nodes if all(i in self.constants for i in n.input if i) for o in n.output if o}
        return True

    def _divides(self, node: NodeProto, floats: Set[str]) -> bool:
        """Whether a node is safe: a division of whole numbers by zero ends the process."""
        if node.input and floats & set(node.input[:2]):
            return True
        first = self.arrays.get(node.input[0]) if node.input else None
        if node.op_type in ("ReduceMean", "Mean", "AveragePool", "GlobalAveragePool"):
            return first is not None and _kind(first) == "f"
        if node.op_type not in ("Div", "Mod"):
            return True
        if first is None:  # made inside a plant: the divisor says which type it is
            first = self.arrays.get(node.input[1])
        if first is None:
            return False
        divisor = self.arrays.get(node.input[1])
        return _kind(first) == "f" or (divisor is not None and node.input[1] in self.constants and bool(divisor.all()))

    # -- the whole ------------------------------------------------------------------------------------------------

    def model(self) -> ModelProto:
        """The model: its outputs are what nothing reads, some of what is read, and rarely a constant or an input."""
        read = {i for n in self.nodes for i in n.input}
        made = [o for n in self.nodes if n.op_type != "Constant" for o in n.output if o]
        outputs = [o for o in made if o in self.arrays and (o not in read or self.chance(0.12))]
        outputs += [n for n in self.weights if n in read and self.chance(0.03)]
        outputs += [i.name for i in self.inputs if self.chance(0.01)]
        nodes = list(self.nodes)
        if self.half:
            for place, name in enumerate(outputs):
                if self.arrays[name].dtype == np.float16:
                    outputs[place] = self.name()
                    nodes.append(helper.make_node("Cast", [name], [outputs[place]], to=TensorProto.FLOAT))
                    self.arrays[outputs[place]] = self.arrays[name].astype(np.float32)
        infos = [helper.make_tensor_value_info(n, code(self.arrays[n].dtype), None) for n in outputs]
        inputs = [helper.make_tensor_value_info(i.name, code(numpy_type(i.dtype)), i.dims) for i in self.inputs]
        weights = [numpy_helper.from_array(a, n) for n, a in self.weights.items()]
        version = 10 if self.opset > 18 else 8
        share = self.choice((0.5, 0.0)) if self.chance(0.04) else 1.0  # of the initializers that are inputs as well
        if share < 1:
            version = 3 if share == 0 else version  # before version 4 all of them are
            inputs += [
                helper.make_tensor_value_info(t.name, t.data_type, t.dims) for t in weights if not self.chance(share)
            ]
        return helper.make_model(
            helper.make_graph(nodes, "fuzz", inputs, infos, weights),
            opset_imports=[helper.make_opsetid("", self.opset), helper.make_opsetid("com.microsoft", 1)],
            ir_version=version,
        )


def _undefined(node: NodeProto, arrays: Mapping[str, Array]) -> bool:
    """Whether the runtime takes a node that ONNX does not allow, and makes of it what its memory holds.

    A slope that stretches its operand; operands of a Concat that are empty along another axis.
    """
    shapes = [arrays[name].shape for name in (*node.input, *node.output[:1]) if name in arrays]
    if node.op_type == "PRelu":
        return len(shapes) == 3 and shapes[0] != shapes[2]
    axis = next((a.i for a in node.attribute if a.name == "axis"), 1)
    return node.op_type == "Concat" and any(0 in np.delete(shape, axis) for shape in shapes if len(shape) > abs(axis))


def _kind(array: Array) -> str:
    return "f" if array.dtype.name == "bfloat16" else array.dtype.kind


def _kind_of(dtype: str) -> str:
    return "f" if dtype == "bfloat16" else np.dtype(dtype).kind


def _fits(a: Sequence[int], b: Sequence[int]) -> bool:
    try:
        return len(np.broadcast_shapes(tuple(a), tuple(b))) <= 5
    except ValueError:
        return False


def run_nodes(
    nodes: Sequence[NodeProto], arrays: Mapping[str, Array], outputs: Sequence[str], opset: int, constants: set[str]
) -> dict[str, Array] | None:
    """The outputs of some nodes at once; ``None`` where the runtime has no kernel for one, or it fails."""
    fixed = [n for n in arrays if n in constants]
    graph = helper.make_graph(
        nodes, "nodes",
        [helper.make_tensor_value_info(n, code(a.dtype), a.shape) for n, a in arrays.items() if n not in fixed],
        [helper.make_empty_tensor_value_info(n) for n in outputs],
        [numpy_helper.from_array(arrays[n], n) for n in fixed],
    )  # fmt: skip
    domains = [helper.make_opsetid("", opset), helper.make_opsetid("com.microsoft", 1)]
    proto = helper.make_model(graph, opset_imports=domains, ir_version=10 if opset > 18 else 8)
    try:
        with Session(LoadableModel(proto.SerializeToString()), PLAIN) as session:
            made = session.run({n: a for n, a in arrays.items() if n not in fixed})
    except GraphoptError:
        return None
    if not all(isinstance(a, np.ndarray) for a in made):
        return None
    return dict(zip(outputs, made, strict=True))
