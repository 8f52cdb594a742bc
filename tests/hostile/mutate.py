"""Valid files made invalid: bytes flipped, cut and repeated, and changes that know what they are changing."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable, Sequence
from copy import deepcopy
from typing import Any

from onnx import ModelProto

Mutation = Callable[[bytes, random.Random], bytes]

WORDS = (
    "null", "-1", "0", "1e999", ".nan", "[]", "{}", "*a", "&a", "'", '"', "9" * 60, "\x00", "\U0001d518", "~", "true", ".inf", "{{", "}}", "[" * 40,
    "- ", ": ", "!!python/object:os.system", "!!binary", "<<", "?", "|", ">", "%", "@", "`", "\t", "\r", "\u2028", "x" * 300, "1" + "0" * 400,
    "$a", "$", "<", "()", "**", "9**9", "a.b.c", "é", "\ud7ff", "=", "==", "if", "lambda", "__import__", "float32", "f32", "2147483648",
)  # fmt: skip
VALUES: tuple[Any, ...] = (
    None, True, -1, 0, 2**63, -(2**63), 2**64, 10**400, 1.5, float("inf"), float("nan"), "", "x", "\x00", "\udcff", "a" * 5000, [], {},
    [[]], {"": {}}, [1, "a", None], {"a": 1}, "../../etc", "/", "~", "1", "nan",
)  # fmt: skip
NUMBERS = (-1, 0, 1, 2, 7, 64, 65, 255, 2**31 - 1, 2**31, 2**32, 2**62, 2**63 - 1, -(2**63))


def flip(data: bytes, rng: random.Random) -> bytes:
    """Change a few bytes."""
    made = bytearray(data)
    for _ in range(rng.choice((1, 1, 2, 5, 20))):
        if made:
            at = rng.randrange(len(made))
            made[at] = rng.choice((0, 0x7F, 0x80, 0xFF, made[at] ^ (1 << rng.randrange(8)), rng.randrange(256)))
    return bytes(made)


def cut(data: bytes, rng: random.Random) -> bytes:
    """Leave out a piece, often the end."""
    begin = rng.randrange(len(data) + 1)
    end = len(data) if rng.random() < 0.4 else min(len(data), begin + rng.choice((1, 2, 8, 100, 1000)))
    return data[:begin] + data[end:]


def repeat(data: bytes, rng: random.Random) -> bytes:
    """Repeat a piece, in its place or elsewhere."""
    begin = rng.randrange(len(data) + 1)
    piece = data[begin : begin + rng.choice((1, 4, 30, 300))] * rng.choice((1, 2, 50))
    at = begin if rng.random() < 0.5 else rng.randrange(len(data) + 1)
    return data[:at] + piece + data[at:]


def insert(data: bytes, rng: random.Random) -> bytes:
    """Put in what was not there."""
    at = rng.randrange(len(data) + 1)
    return data[:at] + rng.randbytes(rng.choice((1, 2, 10, 100))) + data[at:]


def words(data: bytes, rng: random.Random) -> bytes:
    """Exchange words of a text, or put in such as its readers may take for something."""
    parts = re.split(r"(\W+)", data.decode("utf-8", "replace"))
    for _ in range(rng.choice((1, 1, 2, 4))):
        at = rng.randrange(len(parts))
        kind = rng.random()
        if kind < 0.6:
            parts[at] = rng.choice(WORDS)
        elif kind < 0.8:
            parts[at] = rng.choice(parts)
        else:
            parts.insert(at, rng.choice(WORDS))
    return "".join(parts).encode("utf-8", "replace")


def lines(data: bytes, rng: random.Random) -> bytes:
    """Exchange, repeat, leave out and indent lines."""
    rows = data.split(b"\n")
    for _ in range(rng.choice((1, 1, 2, 5))):
        at, other = rng.randrange(len(rows)), rng.randrange(len(rows))
        kind = rng.randrange(5)
        if kind == 0:
            rows[at], rows[other] = rows[other], rows[at]
        elif kind == 1:
            rows.insert(at, rows[other])
        elif kind == 2 and len(rows) > 1:
            del rows[at]
        elif kind == 3:
            rows[at] = b"  " + rows[at]
        else:
            rows[at] = rows[at].lstrip()
    return b"\n".join(rows)


def records(data: bytes, rng: random.Random) -> bytes:
    """Exchange values of a JSON document by others, leave keys out, and nest."""
    tree = json.loads(data)
    for _ in range(rng.choice((1, 1, 2, 3))):
        places = list(_places(tree))
        if not places:
            break
        holder, key = rng.choice(places)
        kind = rng.random()
        if kind < 0.6:
            holder[key] = deepcopy(rng.choice(VALUES))
        elif kind < 0.75:
            del holder[key]
        elif kind < 0.9:
            holder[key] = {"a": holder[key]} if rng.random() < 0.5 else [holder[key]]
        elif isinstance(holder, dict):
            holder[rng.choice(WORDS)] = deepcopy(rng.choice(VALUES))
    return json.dumps(tree).encode("utf-8", "surrogateescape")


def _places(tree: Any) -> Any:
    for key in range(len(tree)) if isinstance(tree, list) else list(tree):
        yield tree, key
        if isinstance(tree[key], dict | list):
            yield from _places(tree[key])


def fields(data: bytes, rng: random.Random) -> bytes:
    """Exchange fields of a model: operators, names, types, dimensions, attributes, versions."""
    model = ModelProto.FromString(data)
    for _ in range(rng.choice((1, 1, 2, 3))):
        _field(model, rng)
    return model.SerializeToString()


def _field(model: ModelProto, rng: random.Random) -> None:
    graph = model.graph
    nodes = [*graph.node, *(n for node in graph.node for a in node.attribute for n in a.g.node)]
    names = [n for node in nodes for n in (*node.input, *node.output)] or [""]
    messages: list[Any] = [model, graph, *nodes, *graph.initializer, *graph.input, *graph.output, *model.opset_import]
    messages += [a for node in nodes for a in node.attribute] + [d for t in graph.initializer for d in t.external_data]
    messages += [i.type.tensor_type for i in (*graph.input, *graph.output)]
    messages += [d for i in (*graph.input, *graph.output) for d in i.type.tensor_type.shape.dim]
    message = rng.choice(messages)
    field = rng.choice(message.DESCRIPTOR.fields)
    repeated, value = (
        field.is_repeated if hasattr(field, "is_repeated") else field.label == 3,
        getattr(message, field.name),
    )
    if repeated and len(value):
        kind = rng.randrange(3)
        if kind == 0:
            del value[rng.randrange(len(value))]
        elif kind == 1:
            value.extend([value[rng.randrange(len(value))]])
        elif field.cpp_type != field.CPPTYPE_MESSAGE:
            value[rng.randrange(len(value))] = _scalar(field, names, rng)
    elif repeated and field.cpp_type != field.CPPTYPE_MESSAGE:
        value.append(_scalar(field, names, rng))
    elif not repeated and field.cpp_type != field.CPPTYPE_MESSAGE:
        setattr(message, field.name, _scalar(field, names, rng))
    elif not repeated and rng.random() < 0.5:
        message.ClearField(field.name)


def _scalar(field: Any, names: Sequence[str], rng: random.Random) -> Any:
    if field.cpp_type == field.CPPTYPE_STRING:
        operators = (
            "If",
            "Loop",
            "Scan",
            "Concat",
            "Reshape",
            "Slice",
            "Constant",
            "ConstantOfShape",
            "Resize",
            "Einsum",
            "Split",
        )
        text = rng.choice((*names, *operators, "", "\x00", "é", "ai.onnx", "x" * 3000, "../m.data", "m.onnx"))
        return text if field.type != field.TYPE_BYTES else text.encode()
    if field.cpp_type in (field.CPPTYPE_FLOAT, field.CPPTYPE_DOUBLE):
        return rng.choice((0.0, -1.0, float("nan"), float("inf"), 1e38))
    small = field.cpp_type in (field.CPPTYPE_INT32, field.CPPTYPE_UINT32, field.CPPTYPE_ENUM)
    if field.cpp_type == field.CPPTYPE_ENUM:
        return rng.choice([v.number for v in field.enum_type.values])
    unsigned = field.cpp_type in (field.CPPTYPE_UINT32, field.CPPTYPE_UINT64)
    fitting = [n for n in NUMBERS if (not small or abs(n) < 2**31) and (not unsigned or n >= 0)]
    return rng.choice([*fitting, rng.randrange(30)])


BYTES: tuple[Mutation, ...] = (flip, cut, repeat, insert)
