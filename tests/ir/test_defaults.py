"""An attribute that a node spells out at its default is no other attribute: what a pattern leaves out must match it."""

import numpy as np
import onnx.defs
import onnx.helper
import pytest

from graphopt.ir import ops
from graphopt.ir.simplify import simplify
from graphopt.onnxio.emit import emit
from graphopt.onnxio.load import load
from graphopt.onnxio.save import to_proto
from graphopt.rewrite.library import load_library
from graphopt.rewrite.match import same_attribute
from tests.onnxio.models import F, model, node, run, same, weight

OPSETS = (13, 17, 20, 23, 25)
NAMED = sorted({op for rule in load_library().rules for line in rule.match for domain, op in line.ops if not domain})


@pytest.mark.parametrize("op", NAMED)
def test_what_the_schema_gives_is_the_default(op: str) -> None:
    for version in OPSETS:
        try:
            schema = onnx.defs.get_schema(op, version)
        except onnx.defs.SchemaError:
            continue
        for name, attribute in schema.attributes.items():
            if attribute.default_value.name:
                given = onnx.helper.get_attribute_value(attribute.default_value)
                given = given.decode() if isinstance(given, bytes) else given
                assert same_attribute(given, ops.default(op, name, opset=version)), (version, name)


def test_there_are_operators_to_look_at() -> None:
    assert len(NAMED) > 50


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ({"auto_pad": "VALID"}, {}),
        ({"auto_pad": "VALID", "strides": [2, 1]}, {"strides": (2, 1)}),
        ({"auto_pad": "SAME_UPPER"}, {"auto_pad": "SAME_UPPER"}),
    ],
)
def test_a_convolution_without_pads_says_so_in_one_way(given: dict[str, object], kept: dict[str, object]) -> None:
    conv = node("Conv", ["x", "w"], ["y"], **given)
    proto = model([conv], [("x", F, [1, 2, 7, 6])], [("y", F, None)], [weight("w", np.ones((3, 2, 3, 3), np.float32))])
    loaded = load(proto)
    (read,) = loaded.graph.nodes.values()
    assert dict(read.attributes) == kept
    feeds = {"x": np.arange(84, dtype=np.float32).reshape(1, 2, 7, 6)}
    same(run(to_proto(emit(loaded, simplify(loaded.graph))), feeds), run(proto, feeds), 0, 0)
