"""The little ONNX model that runs one window by itself.

Operands that vary become graph inputs; constant ones become random initializers, because the runtime takes another
kernel for a weight it does not know in advance. Numbers are kept away from zero: a denormal costs a hundred times a
normal number, and a zero may cost nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from onnx import NodeProto, TensorProto, ValueInfoProto, helper, numpy_helper

from graphopt.cost.blueprint import BLOCKED, PARTS, Blueprint
from graphopt.cost.measure import CONTEXT
from graphopt.cost.windows import IN_PLACE, kind
from graphopt.ir.constants import NotConstantError, evaluate
from graphopt.ir.graph import Graph, Node
from graphopt.ir.infer import make_node, type_proto
from graphopt.ir.types import DTYPES, NUMPY_NAMES, Array, ValueType
from graphopt.runtime.session import LoadableModel

_INLINE = 1 << 16  # bytes; larger initializers are handed to the runtime as arrays
_IR_VERSION = 10  # read by every runtime that graphopt supports
_DENORMAL = 1e-40  # the smallest normal float32 is 1.2e-38
_HIDDEN = -1e30  # what a mask makes of scores
_PATTERN = 1 << 16  # numbers that are drawn, after which they repeat; odd lengths keep rows from being equal


_LARGEST = 1 << 29
"""Bytes of made-up operands; a symbolic dimension taken for its usual size can make a window absurdly large."""


class UnbuildableError(Exception):
    """The window has no model of its own: an operand can't be made up, or a constant can't be read."""


@dataclass(frozen=True, eq=False)
class Micro:
    """A window as a model.

    Attributes:
        model: The model; its nodes are named ``w0``, ``w1`` ...
        feeds: Its inputs.
        unit: Whether it is a unit of quantisation.
    """

    model: LoadableModel
    feeds: dict[str, Array]
    unit: bool = False


def micro_model(graph: Graph, plan: Blueprint, copies: int = 1, computed: bool = False) -> Micro:
    """Build the model of a window.

    Args:
        graph: Where the window stands.
        plan: Its blueprint.
        copies: How many layers like this follow each other in the model, each with weights of its own (:func:`repeatable`). What
            they compute is read at once and by nobody else, so that the next one finds its place in the cache, as in a real model.
        computed: Whether another node hands over what may be overwritten, and one takes what is written there: an input or an output of the
            model has a place of its own.

    Raises:
        UnbuildableError: It can't be built.
    """
    if not plan.measurable:
        raise UnbuildableError("unknown types, outer values or no result")
    if sum(type.nbytes or 0 for type in plan.externals.values()) > _LARGEST:
        raise UnbuildableError("the operands are too large to make up")
    parts = _Parts()
    names, over = _operands(graph, plan, parts, computed and copies == 1)
    made: list[tuple[TensorProto, Array | None]] = []
    for index, (key, counts) in enumerate(plan.constants.items()):
        names[key] = f"c{index}"
        made.append(_initializer(graph, plan, key, names[key], counts, parts.rng))
    for copy in range(copies):
        mark = f"_{copy}" if copy else ""
        here = {key: f"{name}{mark}" if key in plan.constants else name for key, name in names.items()}
        for known, array in made:
            one = TensorProto()
            one.CopyFrom(known)
            one.name = f"{known.name}{mark}"
            parts.initializers.append(one)
            if array is not None:
                # Of weights that are equal, number by number, the runtime packs one and lets the others share it.
                parts.arrays[one.name] = np.roll(array, copy)
        for index, node in enumerate(plan.nodes):
            here |= {key: f"v{index}_{slot}{mark}" for slot, key in enumerate(node.outputs) if key is not None}
        parts.nodes += [_node(graph, node, f"w{index}{mark}", here) for index, node in enumerate(plan.nodes)]
        for key in plan.outputs:
            whole = kind(plan.marks.get(key, 0))
            if whole is not None:
                parts.quantised(here[key], whole[0])
            elif copies == 1 and not over:
                # Only the element type: the runtime infers the shape, and a symbol that was given a size would contradict it.
                type = graph.type(key)
                parts.outputs.append(
                    helper.make_value_info(here[key], type_proto(ValueType(type.dtype, None, type.other)))
                )
            else:
                read = f"{CONTEXT}_{here[key]}"
                parts.nodes.append(helper.make_node("Size", [here[key]], [read], name=read))
                parts.outputs.append(helper.make_tensor_value_info(read, TensorProto.INT64, ()))
    body = helper.make_graph(parts.context + parts.nodes, "window", parts.inputs, parts.outputs, parts.initializers)
    domains = {node.domain for node in plan.nodes} | {""}
    opsets = [helper.make_opsetid(d, graph.opsets.get(d, 1)) for d in sorted(domains)]
    proto = helper.make_model(body, opset_imports=opsets, ir_version=_IR_VERSION)
    unit = any(kind(mark) is not None for mark in plan.marks.values())
    return Micro(LoadableModel(proto.SerializeToString(), parts.arrays), parts.feeds, unit)


@dataclass(eq=False)
class _Parts:
    """What the model of a window is put together of.

    Attributes:
        rng: Where its numbers come from.
        inputs: Graph inputs.
        feeds: Their content.
        initializers: Constants.
        arrays: Content of those that are handed over apart from the model.
        context: Nodes that stand for the neighbours before it, whose time is not its own.
        nodes: Its nodes.
        outputs: Graph outputs.
    """

    rng: np.random.Generator = field(default_factory=lambda: np.random.default_rng(0))
    inputs: list[ValueInfoProto] = field(default_factory=list)
    feeds: dict[str, Array] = field(default_factory=dict)
    initializers: list[TensorProto] = field(default_factory=list)
    arrays: dict[str, Array] = field(default_factory=dict)
    context: list[NodeProto] = field(default_factory=list)
    nodes: list[NodeProto] = field(default_factory=list)
    outputs: list[ValueInfoProto] = field(default_factory=list)

    def dequantised(self, name: str, shape: tuple[int, ...], dtype: str, const: bool) -> str:
        """An operand of a unit's operator, made of whole numbers that come in or are constant."""
        # Of 7 bits: products of more overflow on some processors, which changes no time.
        low = 64 if dtype == "u8" else -64
        whole = self.rng.integers(low, low + 128, shape).astype(NUMPY_NAMES[dtype])
        if const:
            self.initializers.append(numpy_helper.from_array(whole, name))
        else:
            self.inputs.append(helper.make_tensor_value_info(name, DTYPES[dtype], shape))
            self.feeds[name] = whole
        made = f"w_{name}"
        self.nodes.append(helper.make_node("DequantizeLinear", [name, *self._scale(made, dtype)], [made], name=made))
        return made

    def quantised(self, name: str, dtype: str) -> None:
        """A result of a unit's operator, as whole numbers."""
        made = f"w_{name}"
        self.nodes.append(helper.make_node("QuantizeLinear", [name, *self._scale(made, dtype)], [made], name=made))
        self.outputs.append(helper.make_tensor_value_info(made, DTYPES[dtype], None))

    def _scale(self, name: str, dtype: str) -> list[str]:
        zero = np.asarray(128 if dtype == "u8" else 0).astype(NUMPY_NAMES[dtype])
        # A bias has the product of the other operands' scales, or the runtime fuses nothing.
        scale = np.asarray(1 / 4096 if dtype == "i32" else 1 / 64, np.float32)
        self.initializers.append(numpy_helper.from_array(scale, f"{name}_s"))
        self.initializers.append(numpy_helper.from_array(zero, f"{name}_z"))
        return [f"{name}_s", f"{name}_z"]


def _operands(graph: Graph, plan: Blueprint, parts: _Parts, computed: bool) -> tuple[dict[int, str], bool]:
    """The names of what comes from outside, and whether another node hands over what may be overwritten."""
    names: dict[int, str] = {}
    over = False
    for index, (key, type) in enumerate(plan.externals.items()):
        name = names[key] = f"x{index}"
        whole = kind(plan.marks.get(key, 0))
        if whole is not None:
            names[key] = parts.dequantised(name, _sizes(type), *whole)
            continue
        parts.inputs.append(helper.make_value_info(name, type_proto(type)))
        parts.feeds[name] = _feed(plan, key, type, parts.rng)
        if plan.marks.get(key) == BLOCKED:
            names[key] = _into_blocks(name, type, parts.context, parts.initializers)
        elif computed and _overwritten(graph, plan, key, type):
            over = True
            names[key] = f"{CONTEXT}_{index}"
            # Of one operand it is a copy, and the runtime has no rule that drops it.
            parts.context.append(helper.make_node("Max", [name], [names[key]], name=names[key]))
    return names, over


def repeatable(graph: Graph, plan: Blueprint) -> bool:
    """Whether a window can stand in a model several times: all its nodes depend on a large weight, so no two of them are equal."""
    own = {key for key, counts in plan.constants.items() if not counts and (graph.type(key).nbytes or 0) >= _INLINE}
    for node in plan.nodes:
        if not any(key in own for key in node.inputs):
            return False
        own |= {key for key in node.outputs if key is not None}
    return all(graph.type(key).dtype == "f32" for key in plan.outputs)


def _into_blocks(name: str, type: ValueType, context: list[NodeProto], initializers: list[TensorProto]) -> str:
    """A convolution that changes nothing, as a neighbour that delivers its result in blocks.

    The Relu after it keeps the runtime from fusing the window's own operators into it.
    """
    channels = _sizes(type)[1]
    weight, plain, made = (f"{CONTEXT}_{part}_{name}" for part in ("w", "c", "r"))
    initializers.append(numpy_helper.from_array(np.ones((channels, 1, 1, 1), np.float32), weight))
    context.append(helper.make_node("Conv", [name, weight], [plain], name=plain, group=channels))
    context.append(helper.make_node("Relu", [plain], [made], name=made))
    return made


def _overwritten(graph: Graph, plan: Blueprint, key: int, type: ValueType) -> bool:
    """Whether a window may write a result over an operand: half of the traffic with memory, where it is the only one."""
    if type.dtype != "f32":
        return False
    first = next(node for node in plan.nodes if key in node.inputs)
    out = next(k for k in first.outputs if k is not None)
    return first.op in IN_PLACE and graph.type(out).shape == graph.type(key).shape


def _node(graph: Graph, node: Node, name: str, names: dict[int, str]) -> NodeProto:
    ins = ["" if key is None else names[key] for key in node.inputs]
    outs = ["" if key is None else names[key] for key in node.outputs]
    # What came with the model goes back as it was, whatever attributes it has.
    attributes = node.attributes if node.source is None else {}
    proto = make_node(node.op, node.domain, graph.opsets.get(node.domain, 1), ins, outs, attributes)
    proto.name = name
    if node.source is not None:
        proto.attribute.extend(node.source.attribute)
    return proto


# -- numbers ----------------------------------------------------------------------------------------------------------


def _initializer(
    graph: Graph,
    plan: Blueprint,
    key: int,
    name: str,
    counts: bool,
    rng: np.random.Generator,
) -> tuple[TensorProto, Array | None]:
    """A constant as it stands in the model, and its numbers where those are handed over apart from it."""
    type = graph.type(key)
    if counts:
        try:
            array = evaluate(graph, key)
        except NotConstantError as error:
            raise UnbuildableError(str(error)) from error
        if array.dtype.name not in NUMPY_NAMES.values():
            raise UnbuildableError(f"a constant of type {array.dtype}")
    else:
        array = _floats(type, _sizes(type), rng, *_constant_range(plan, key))
    if array.nbytes < _INLINE:
        return numpy_helper.from_array(np.ascontiguousarray(array).reshape(array.shape), name), None
    proto = TensorProto(name=name, data_type=DTYPES[type.dtype or "f32"], dims=array.shape)
    proto.data_location = TensorProto.EXTERNAL
    proto.external_data.add(key="location", value="<array>")
    return proto, array


def _constant_range(plan: Blueprint, key: int) -> tuple[float, float, bool]:
    """Bounds of the magnitude of a constant, and whether it must be positive."""
    for node in plan.nodes:
        if key in node.inputs:
            at = node.inputs.index(key)
            if node.op in ("Div", "Pow", "PRelu") or node.op.endswith("Normalization"):
                return 0.5, 1.5, True
            # Large weights of an Attention would leave one key to each query, and subnormal numbers to the others.
            if at == 1 and node.op in ("Conv", "MatMul", "Gemm", "ConvTranspose", "FusedMatMul", "Attention"):
                return 0.01, 0.1, False
    return 0.1, 1.0, False


def _feed(plan: Blueprint, key: int, type: ValueType, rng: np.random.Generator) -> Array:
    if type.other is not None or type.dtype not in NUMPY_NAMES:
        raise UnbuildableError(f"an input of type {type}")
    shape = _sizes(type)
    if type.dtype in ("f32", "f64", "f16"):
        positive = any(node.op in ("Sqrt", "Log", "Pow") and key in node.inputs for node in plan.nodes)
        array = _floats(type, shape, rng, 0.1, 1.0, positive)
        share = plan.marks.get(key, 0)
        if share > 0:
            scores = any(node.op == "Softmax" and key in node.inputs for node in plan.nodes)
            array[rng.random(shape) < share / PARTS] = _HIDDEN if scores else _DENORMAL
        return array
    dtype = np.dtype(NUMPY_NAMES[type.dtype])
    if dtype.kind == "c":
        raise UnbuildableError(f"an input of type {type}")
    # Zero is a legal index, axis and flag everywhere; one is too in most places, and makes a lookup less trivial.
    wide = all(node.op in ("Gather", "Where", "Cast", "And", "Or", "Equal") for node in plan.nodes)
    return rng.integers(0, 2 if wide else 1, shape).astype(dtype)


def _sizes(type: ValueType) -> tuple[int, ...]:
    if not type.static:
        raise UnbuildableError(f"a constant of type {type}")
    return tuple(int(d) for d in type.shape or ())  # type: ignore[arg-type]


def _floats(
    type: ValueType, shape: tuple[int, ...], rng: np.random.Generator, low: float, high: float, positive: bool
) -> Array:
    """Random numbers of magnitude ``low`` to ``high``; a repeated pattern, since a million draws take longer than a run."""
    if type.dtype not in ("f32", "f64", "f16"):
        raise UnbuildableError(f"a constant of type {type}")
    n = int(np.prod(shape, dtype=np.int64))
    pattern = rng.uniform(low, high, min(n, _PATTERN + 1))
    if not positive:
        pattern *= rng.choice((-1.0, 1.0), len(pattern))
    return np.resize(pattern.astype(NUMPY_NAMES[type.dtype]), shape)
