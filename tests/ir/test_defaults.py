"""An attribute that a node spells out at its default is no other attribute: what a pattern leaves out must match it."""

import onnx.defs
import onnx.helper
import pytest

from graphopt.ir import ops
from graphopt.rewrite.library import load_library
from graphopt.rewrite.match import same_attribute

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
