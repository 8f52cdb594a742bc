"""Both sides of a rule as models that the runtime runs, its own optimiser switched off.

Operands and constants of any content are inputs of both models, so that one pair of sessions serves many contents. What
a rule computes from constants is computed by ordinary nodes, as the runtime will when it folds them.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from onnx import ModelProto, helper, numpy_helper

from graphopt.ir.graph import Graph
from graphopt.ir.infer import make_node, type_proto
from graphopt.ir.types import NUMPY_NAMES, Array, ValueType
from graphopt.prover.cases import Instance
from graphopt.runtime.session import LoadableModel, Session, SessionConfig

PLAIN = SessionConfig(level="disabled")
"""On the processor, as the model stands."""


class Sides:
    """An instance's pattern and replacement in the runtime.

    Args:
        instance: The instance.
        config: Where both run.

    Attributes:
        inputs: Key of each input: the graph's, and the constants that stand for any content.

    Raises:
        SessionError: The runtime refuses the pattern.
    """

    def __init__(self, instance: Instance, config: SessionConfig = PLAIN) -> None:
        self.instance, self.config = instance, config
        self.inputs = (*instance.before.inputs, *sorted(instance.symbolic))
        self.before = self._opened(instance.before)

    def after(self) -> Session:
        """The replacement.

        Raises:
            SessionError: The runtime refuses it.
        """
        return self._opened(self.instance.after)

    def floats(self, keys: Sequence[int]) -> Session:
        """What the pattern computes on the way.

        Args:
            keys: The values that are wanted.
        """
        return self._opened(replace(self.instance.before, outputs=tuple((f"{key:x}", key) for key in keys)))

    def _opened(self, graph: Graph) -> Session:
        return Session(as_model(graph, self.instance.before, self.inputs), self.config)

    def named(self, feeds: Mapping[int, Array]) -> dict[str, Array]:
        """Contents by name instead of key."""
        return {self.instance.before.values[k].name: a for k, a in feeds.items()}

    def shape(self, key: int, bind: Mapping[str, int]) -> tuple[int, ...]:
        """Shape of an input where symbols have the given sizes."""
        dims = self.instance.before.type(key).shape or ()
        return tuple(d if isinstance(d, int) else bind[str(d)] for d in dims)

    def dtype(self, key: int) -> np.dtype[Any]:
        """Dtype of an input."""
        return np.dtype(NUMPY_NAMES[self.instance.before.type(key).dtype or "f32"])


def as_model(graph: Graph, base: Graph, inputs: Sequence[int]) -> LoadableModel:
    """A graph of a pattern's operands as a model.

    Args:
        graph: The graph.
        base: The graph that says types and names of the inputs.
        inputs: Keys of the values that are inputs; other constants are initializers.
    """
    proto = ModelProto(ir_version=10)
    proto.graph.name = "side"
    for domain, version in graph.opsets.items():
        proto.opset_import.append(helper.make_opsetid(domain, version))
    names = {key: base.values[key].name for key in inputs}
    for key, name in names.items():
        proto.graph.input.add(name=name).type.CopyFrom(type_proto(base.values[key].type))
    nodes = list(graph.in_order())
    _initializers(proto, graph, {k for node in nodes for k in node.inputs if k is not None}, names)
    for node in nodes:
        operands = ["" if k is None else names.get(k, f"v{k:x}") for k in node.inputs]
        outputs = ["" if k is None else f"v{k:x}" for k in node.outputs]
        version = graph.opsets.get(node.domain, 1)
        proto.graph.node.append(make_node(node.op, node.domain, version, operands, outputs, node.attributes))
    for name, key in graph.outputs:
        # An output may be an input or a constant by itself: a node in between gives it the name that it needs.
        source = names.get(key, f"v{key:x}")
        proto.graph.node.append(helper.make_node("Identity", [source], [f"out:{name}"]))
        proto.graph.output.add(name=f"out:{name}").type.CopyFrom(type_proto(ValueType(graph.type(key).dtype)))
    return LoadableModel(proto.SerializeToString())


def _initializers(proto: ModelProto, graph: Graph, read: Collection[int], names: Mapping[int, str]) -> None:
    for key in sorted({*read, *(k for _, k in graph.outputs)} - set(names)):
        tensor = graph.values[key].tensor
        if tensor is not None:
            array = np.asarray(tensor.numpy())
            proto.graph.initializer.append(numpy_helper.from_array(array, f"v{key:x}"))
