"""Words and categories that encoders know, read off the graph: one refuses others, or what it makes of them is the same for all."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from graphopt.ir.constants import small_array
from graphopt.ir.graph import Graph, Node
from graphopt.runtime.vocabulary import Vocabulary

ENCODERS = {
    "OneHotEncoder": ("cats_strings", "cats_int64s"),
    "LabelEncoder": ("keys_strings", "classes_strings"),
    "CategoryMapper": ("cats_strings",),
    "TfIdfVectorizer": ("pool_strings",),
}
"""Attributes that list what an operator knows."""
_DOMAINS = ("", "ai.onnx.ml")
_AS_THEY_ARE = frozenset({"Identity", "Cast", "Where", "StringNormalizer", "Tokenizer", "StringSplit"})
_SHAPES = frozenset({"Reshape", "Flatten", "Squeeze", "Unsqueeze"})
_HOLDING = {"str": str, "i64": int, "f32": int, "f64": int}
"""The inputs that are looked at, and what is put into them."""
_MOST = 1024  # steps from an input
_OTHER = "alpha"  # that no model knows

Places = tuple[int | None, ...]
"""From which place of an input's last dimension each place of a value's last dimension comes; of one alone all its elements."""


def input_words(graph: Graph) -> dict[str, Vocabulary]:
    """For each input that encoders read, what they know: of words also what is merely told apart, of numbers what is refused otherwise."""
    found: dict[str, Vocabulary] = {}
    for key in graph.inputs:
        value = graph.values[key]
        if value.default or value.type.shape is None or value.type.dtype not in _HOLDING:
            continue
        width = value.type.shape[-1] if len(value.type.shape) > 1 else 1
        places: Places = tuple(range(width)) if isinstance(width, int) and width < _MOST else (0,)
        asked = list(_asked(graph, key, places))
        held = _HOLDING[value.type.dtype]
        columns = tuple(_known([words for place, words in asked if place == n], held) for n in range(len(places)))
        if any(columns):
            found[value.name] = Vocabulary(columns)
    return found


Words = tuple[tuple[str | int, ...], bool]
"""What an operator knows, and whether it refuses all others."""


def _known(asked: Sequence[Words], held: type) -> tuple[str | int, ...]:
    """What one place may hold: what all that refuse others know, or else, of words, what any knows, and one that none does."""
    strict = [dict.fromkeys(words) for words, refuses in asked if refuses]
    if strict:
        return tuple(w for w in strict[0] if isinstance(w, held) and all(w in others for others in strict))
    words = dict.fromkeys(w for words, _ in asked for w in words if isinstance(w, held))
    return (*words, _OTHER) if words and held is str else ()


def _asked(graph: Graph, start: int, places: Places) -> Iterator[tuple[int, Words]]:
    """What operators that an input reaches know of the elements of each place."""
    stack, seen = [(start, places)], {(start, places)}
    while stack and len(seen) < _MOST:
        key, places = stack.pop()
        for user in graph.users[key]:
            node = graph.nodes[user]
            if node.captures:
                continue
            listed = ENCODERS.get(node.op, ()) if node.domain in _DOMAINS else ()
            for words in (node.attributes.get(name) for name in listed):
                if isinstance(words, tuple):
                    refuses = node.op == "OneHotEncoder" and node.attributes.get("zeros", 1) == 0
                    yield from ((place, (words, refuses)) for place in places if place is not None)
            further = None if listed else _moved(graph, node, key, places)
            for out in node.outputs if further else ():
                if out is not None and further and (out, further) not in seen:
                    seen.add((out, further))
                    stack.append((out, further))


def _moved(graph: Graph, node: Node, key: int, places: Places) -> Places | None:
    """Where the places of an operand come out of a node; ``None`` where they do not, or nobody knows where."""
    if node.op in _AS_THEY_ARE:
        return places
    if node.op in _SHAPES and node.inputs[0] == key:
        return places if len(places) == 1 or _width(graph, node.outputs[0]) == len(places) else None
    if node.op in ("Gather", "ArrayFeatureExtractor") and node.inputs[0] == key:
        return _picked(graph, node, key, places)
    if node.op == "Concat":
        widths = [_width(graph, k) for k in node.inputs]
        if _last(graph, node, key) and all(isinstance(w, int) and w < _MOST for w in widths):
            parts = [
                places if k == key and len(places) == w else (None,) * (w or 0)
                for k, w in zip(node.inputs, widths, strict=True)
            ]
            return tuple(place for part in parts for place in part)
        return places if len(places) == 1 else None
    return None


def _picked(graph: Graph, node: Node, key: int, places: Places) -> Places | None:
    """The places that a node takes out of the last dimension; any others of the same place are all that place."""
    indices = small_array(graph, node.inputs[1])
    if indices is None or indices.size > _MOST or not (node.op != "Gather" or _last(graph, node, key)):
        return places if len(places) == 1 else None
    width = len(places)
    chosen = [int(i) for i in indices.ravel()]
    return tuple(places[i] for i in chosen) if all(-width <= i < width for i in chosen) else None


def _last(graph: Graph, node: Node, key: int) -> bool:
    """Whether a node's axis is the last one of an operand: of a matrix where its rank is not known, as columns come from `ArrayFeatureExtractor`."""
    shape = graph.type(key).shape
    return node.attributes.get("axis", 0) in (-1, 1 if shape is None else len(shape) - 1)


def _width(graph: Graph, key: int | None, steps: int = 8) -> int | None:
    """The size of the last dimension, also behind `ArrayFeatureExtractor`, which ONNX does not infer."""
    if key is None:
        return None
    shape, node = graph.type(key).shape, graph.producer(key)
    if shape and isinstance(shape[-1], int):
        return shape[-1]
    if node is None or not steps:
        return None
    if node.op == "ArrayFeatureExtractor":
        indices = small_array(graph, node.inputs[1])
        return None if indices is None else int(indices.size)
    operands = reversed(node.inputs) if node.op in _AS_THEY_ARE else ()
    return next((w for k in operands if (w := _width(graph, k, steps - 1)) is not None), None)
