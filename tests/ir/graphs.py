"""Random small models for property tests: valid by construction, cheap to run, with twins, dead ends and constants."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from hypothesis import strategies as st
from onnx import ModelProto, NodeProto, TensorProto, helper, numpy_helper

UNARY = ("Relu", "Neg", "Abs", "Sigmoid", "Tanh", "Identity", "LeakyRelu")
BINARY = ("Add", "Sub", "Mul", "Max", "Min")
_LARGEST = 600  # elements of a value


@dataclass(frozen=True)
class Sample:
    """A model with inputs that it accepts."""

    model: ModelProto
    feeds: dict[str, Any]

    def __repr__(self) -> str:
        lines = [
            f"{', '.join(n.output)} = {n.op_type}({', '.join(n.input)}) "
            + " ".join(f"{a.name}={helper.get_attribute_value(a)}" for a in n.attribute if a.type != a.TENSOR)
            for n in self.model.graph.node
        ]
        weights = [
            f"{t.name}{list(t.dims)}={numpy_helper.to_array(t).ravel()[:4]}" for t in self.model.graph.initializer
        ]
        inputs = [f"{name}{list(a.shape)}" for name, a in self.feeds.items()]
        return "\n".join(["Sample", *inputs, *weights, *lines, f"outputs {[o.name for o in self.model.graph.output]}"])


class _Builder:
    """Keeps the values made so far, each with its shape for the feeds at hand."""

    def __init__(self, draw: Any, symbolic: bool) -> None:
        self.draw = draw
        self.symbolic = symbolic
        self.shapes: dict[str, tuple[int, ...]] = {}
        self.constant: set[str] = set()
        self.nodes: list[NodeProto] = []
        self.weights: list[TensorProto] = []
        self.inputs: list[Any] = []
        self.feeds: dict[str, Any] = {}
        self.rng = np.random.default_rng(draw(st.integers(0, 2**16)))

    def number(self, low: int, high: int) -> int:
        return int(self.draw(st.integers(low, high)))

    def choice(self, items: Any) -> Any:
        return self.draw(st.sampled_from(list(items)))

    def input(self, *shape: int) -> str:
        name = f"x{len(self.inputs)}"
        array = self.rng.uniform(-2, 2, shape).astype(np.float32)
        declared: list[Any] = list(shape)
        if self.symbolic and self.draw(st.booleans()):
            declared[0] = f"N{shape[0]}"
        self.inputs.append(helper.make_tensor_value_info(name, TensorProto.FLOAT, declared))
        self.feeds[name], self.shapes[name] = array, shape
        return name

    def weight(self, array: Any) -> str:
        name = f"w{len(self.weights)}"
        self.weights.append(numpy_helper.from_array(np.asarray(array), name))
        if np.asarray(array).dtype == np.float32:
            self.shapes[name] = np.shape(array)
            self.constant.add(name)
        return name

    def floats(self, *shape: int) -> str:
        # Few different numbers, so that equal weights and the literals of rules occur.
        return self.weight(self.choice((0.0, 1.0, 2.0)) * np.ones(shape, np.float32) if self.number(0, 2) == 0
                           else self.rng.choice([-1.0, -0.5, 0.5, 1.0, 1.5], shape).astype(np.float32))  # fmt: skip

    def value(self, rank: int = 0) -> str:
        """A value made before, the later ones more often."""
        names = [n for n, s in self.shapes.items() if len(s) >= rank]
        return names[-1 - min(self.number(0, len(names) - 1), self.number(0, len(names) - 1))] if names else ""

    def emit(self, op: str, inputs: list[str], shapes: list[tuple[int, ...]], **attributes: Any) -> list[str]:
        names = [f"v{len(self.nodes)}_{i}" if len(shapes) > 1 else f"v{len(self.nodes)}" for i in range(len(shapes))]
        self.nodes.append(helper.make_node(op, inputs, names, **attributes))
        for name, shape in zip(names, shapes, strict=True):
            self.shapes[name] = shape
            if all(i in self.constant for i in inputs if i in self.shapes):
                self.constant.add(name)
        return names

    # -- steps ----------------------------------------------------------------------------------------------------

    def unary(self) -> None:
        x = self.value()
        op = self.choice(UNARY)
        self.emit(op, [x], [self.shapes[x]], **({"alpha": 0.5} if op == "LeakyRelu" else {}))

    def binary(self) -> None:
        a = self.value()
        shape = self.shapes[a]
        equal = [n for n, s in self.shapes.items() if s == shape]
        if self.draw(st.booleans()):
            b = self.choice([a, *equal])
        else:
            kind = self.number(0, 3)
            b = self.floats(*((), shape[-1:], shape, tuple(1 if self.number(0, 1) else d for d in shape))[kind])
        operands = [a, b] if self.number(0, 2) else [b, a]
        self.emit(self.choice(BINARY), operands, [np.broadcast_shapes(shape, self.shapes[b])])

    def matmul(self) -> None:
        x = self.value(2)
        if not x:
            return
        shape = self.shapes[x]
        wanted = [n for n, s in self.shapes.items() if len(s) == 2 and s[0] == shape[-1]]
        w = self.choice(wanted) if wanted and self.draw(st.booleans()) else self.floats(shape[-1], self.number(1, 4))
        self.emit("MatMul", [x, w], [(*shape[:-1], self.shapes[w][1])])

    def conv(self) -> None:
        x = self.value(4)
        if not x or len(self.shapes[x]) != 4 or min(self.shapes[x]) < 1:
            return
        n, c, height, width = self.shapes[x]
        k, out = self.choice((1, 3)), self.number(1, 4)
        inputs = [x, self.floats(out, c, k, k)] + ([self.floats(out)] if self.draw(st.booleans()) else [])
        self.emit("Conv", inputs, [(n, out, height, width)], pads=[k // 2] * 4)

    def concat(self) -> None:
        x = self.value(1)
        if not x:
            return
        shape = self.shapes[x]
        axis = self.number(0, len(shape) - 1)
        others = [n for n, s in self.shapes.items() if s == shape]
        parts = [x] + [self.choice(others) for _ in range(self.number(0, 2))]
        shaped = (*shape[:axis], shape[axis] * len(parts), *shape[axis + 1 :])
        self.emit("Concat", parts, [shaped], axis=axis - (len(shape) if self.number(0, 1) else 0))

    def split(self) -> None:
        x = self.value(1)
        shape = self.shapes[x] if x else ()
        axes = [i for i, d in enumerate(shape) if d > 1]
        if not axes:
            return
        axis = self.choice(axes)
        first = self.number(1, shape[axis] - 1)
        sizes = self.weight(np.array([first, shape[axis] - first], np.int64))
        parts = [(*shape[:axis], n, *shape[axis + 1 :]) for n in (first, shape[axis] - first)]
        self.emit("Split", [x, sizes], parts, axis=axis)

    def transpose(self) -> None:
        x = self.value(1)
        if not x:
            return
        perm = self.draw(st.permutations(range(len(self.shapes[x]))))
        self.emit("Transpose", [x], [tuple(self.shapes[x][p] for p in perm)], perm=perm)

    def reshape(self) -> None:
        x = self.value(1)
        if not x:
            return
        shape = self.shapes[x]
        kind = self.number(0, 2)
        if kind == 0:
            new, written = (math.prod(shape),), [-1]
        elif kind == 1:
            new, written = (shape[0], math.prod(shape[1:])), [0, -1]
        else:
            new = (1, *shape)
            written = [1, -1, *shape[1:]]
        self.emit("Reshape", [x, self.weight(np.array(written, np.int64))], [new])

    def reduce(self) -> None:
        x = self.value(1)
        if not x:
            return
        shape = self.shapes[x]
        axis, keep = self.number(0, len(shape) - 1), self.number(0, 1)
        shaped = (*shape[:axis], *([1] * keep), *shape[axis + 1 :])
        if self.draw(st.booleans()):
            self.emit("ReduceMean", [x], [shaped], axes=[axis], keepdims=keep)
        else:
            axes = self.weight(np.array([axis], np.int64))
            self.emit("ReduceSum", [x, axes], [shaped], keepdims=keep)

    def softmax(self) -> None:
        x = self.value(1)
        if x:
            self.emit("Softmax", [x], [self.shapes[x]], axis=self.number(-len(self.shapes[x]), len(self.shapes[x]) - 1))

    def twin(self) -> None:
        """An equal node, to be merged."""
        if self.nodes:
            twin = self.choice(self.nodes)
            attributes = {a.name: helper.get_attribute_value(a) for a in twin.attribute}
            self.emit(twin.op_type, list(twin.input), [self.shapes[o] for o in twin.output], **attributes)


_STEPS = ("unary",) * 4 + ("binary",) * 5 + ("matmul",) * 3 + (
    "conv", "concat", "concat", "split", "split", "transpose", "transpose", "reshape", "reduce", "softmax", "twin", "twin",
)  # fmt: skip


@st.composite
def samples(draw: Any, max_nodes: int = 12, symbolic: bool = True) -> Sample:
    """Models of up to ``max_nodes`` nodes, with symbolic leading dimensions now and then."""
    builder = _Builder(draw, symbolic)
    shapes = ((3,), (2, 3), (2, 3), (2, 3, 4), (1, 2, 3, 4))
    for _ in range(draw(st.integers(1, 3))):
        builder.input(*draw(st.sampled_from(shapes)))
    if draw(st.booleans()):
        builder.floats(*draw(st.sampled_from(shapes)))
    for _ in range(draw(st.integers(1, max_nodes))):
        getattr(builder, draw(st.sampled_from(_STEPS)))()
        last = next(reversed(builder.shapes))
        if math.prod(builder.shapes[last]) > _LARGEST:
            del builder.shapes[last]  # still there, but nothing more is made of it
    if not builder.nodes:
        builder.unary()
    made = [o for n in builder.nodes for o in n.output]
    read = {i for n in builder.nodes for i in n.input}
    wanted = [o for o in made if o not in read and draw(st.integers(0, 5))] or made[-1:]
    wanted += [o for o in made if o in read and not draw(st.integers(0, 7))]
    graph = helper.make_graph(
        builder.nodes, "random", builder.inputs,
        [helper.make_tensor_value_info(o, TensorProto.FLOAT, None) for o in dict.fromkeys(wanted)], builder.weights,
    )  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    return Sample(model, builder.feeds)
