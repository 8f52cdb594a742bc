"""What ONNX's schemas say may vary about a pattern: attributes and their values, dtypes, operator-set versions.

Instances of a rule are made from this, not from what its author thought of: every enumerated attribute takes all its
values, every number the ends of its range, every operand all dtypes that its operator takes.
"""

from __future__ import annotations

import ast
import difflib
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import onnx.defs

from graphopt.ir.schema import DTYPE_OF, allowed, formal, schema_of
from graphopt.ir.types import NUMPY_NAMES
from graphopt.rewrite.pattern import Line
from graphopt.rewrite.schema import Rule
from graphopt.runtime.ort import contributed_schemas

OPSETS = (7, 25)
"""Versions of ONNX's operator set between which rules are tried."""

_FLAGS = frozenset(
    {"keepdims", "transA", "transB", "count_include_pad", "ceil_mode", "allowzero", "exclusive", "reverse", "sorted",
     "noop_with_empty_axes", "select_last_index", "largest", "fmod", "upper", "training_mode", "detect_negative",
     "detect_positive", "align_corners", "is_causal", "storage_order", "antialias", "exclude_outside", "layout", "onesided", "inverse",
     "spatial"}
)  # fmt: skip
_COUNTS = frozenset({"group", "num_heads", "kv_num_heads", "q_num_heads", "num_groups", "groups", "blocksize"})
"""Of what there is at least one: of none, kernels divide by zero."""
ACTIVATIONS = ("Relu", "Tanh", "Sigmoid", "LeakyRelu", "HardSigmoid", "Affine")
"""Of recurrent networks and fused operators: such as have no numbers of their own, and such as have."""
_STRINGS: dict[str, tuple[str, ...]] = {
    "auto_pad": ("NOTSET", "SAME_UPPER", "SAME_LOWER", "VALID"), "approximate": ("none", "tanh"),
    "reduction": ("none", "add", "mul", "max", "min"), "direction": ("forward", "reverse", "bidirectional", "LEFT", "RIGHT"),
    "coordinate_transformation_mode": ("half_pixel", "half_pixel_symmetric", "pytorch_half_pixel", "align_corners", "asymmetric"),
    "nearest_mode": ("round_prefer_floor", "round_prefer_ceil", "floor", "ceil"), "padding_mode": ("zeros", "border", "reflection"),
    "mode": ("constant", "reflect", "edge", "wrap", "nearest", "linear", "cubic", "bilinear", "DCR", "CRD", "fan_in"),
    "keep_aspect_ratio_policy": ("stretch", "not_larger", "not_smaller"), "round_mode": ("up", "down", "nearest"),
    "activation": ACTIVATIONS, "activations": ACTIVATIONS,
}  # fmt: skip
"""What descriptions name without quotes, and what is tried where they name nothing."""
_QUOTED, _TICKED = re.compile(r"""["'](\w{2,})["']"""), re.compile(r"`(\w{2,})`")
_SMALL, _LONGEST = 5, 4096  # of the sizes that a rule names, those that are tried
_UNCOUNTED = {"2": (300,), "3": (300,), "10": (2101, 4001)}
"""Sizes that a Cast's type can't count to, odd ones as float16 has even ones: of half of the places in the last it has none."""
TYPES = (1, 2, 3, 4, 5, 6, 7, 9, 10, 11, 12, 13, 16)
"""What a Cast makes, by ONNX's numbers."""
MEANINGLESS = {"Cast": frozenset({"saturate", "round_mode"}), "CastLike": frozenset({"saturate", "round_mode"})}
"""Attributes that say something of floats of eight bits, which operands here have not: the runtime refuses them elsewhere."""
_FLOATS = (0.0, 1.0, -1.0, 0.5, 1.5, 2.0, 100.0, -0.0)
# Powers of two: what is compared is the law, not how a constant of half precision rounds.
_EPSILONS = (2.0**-17, 2.0**-10, 0.125, 0.0)
_PREFERRED = ("f32", "i64", "f64", "f16", "i32", "bool", "u8", "i8", "i16", "u16", "u32", "u64")


@dataclass(frozen=True)
class Attribute:
    """An attribute of an operator.

    Attributes:
        type: ``onnx.defs.OpSchema.AttrType``.
        required: Whether a node must have it.
        words: What it may be, where it is a text, by the operator's description.
    """

    type: Any
    required: bool
    words: tuple[str, ...] = ()


@lru_cache(maxsize=1)
def _contributed() -> dict[tuple[str, str], Any]:
    """The runtime's schemas of operators that ONNX has none of, by domain and name."""
    return {(schema.domain, schema.name): schema for schema in contributed_schemas()}


@lru_cache(maxsize=4096)
def attributes_of(domain: str, op: str, opset: int) -> Mapping[str, Attribute]:
    """The attributes of an operator by name, by ONNX's schema or the runtime's; none where neither knows it."""
    schema, kinds = schema_of(op, domain, opset) or _contributed().get((domain, op)), onnx.defs.OpSchema.AttrType
    found = {} if schema is None else schema.attributes
    return {
        name: Attribute(getattr(kinds, a.type.name), a.required, _words(name, a.description or ""))
        for name, a in found.items()
    }


def _words(attribute: str, description: str) -> tuple[str, ...]:
    """The values of a text that a description names: those that some operator has for such an attribute, and what it puts in quotes."""
    known = [word for word in _STRINGS.get(attribute, ()) if re.search(rf"\b{word}\b", description)]
    quoted = _QUOTED.findall(description) or _TICKED.findall(description)
    return tuple(dict.fromkeys((*known, *quoted)))


def spoken(domain: str, op: str, attribute: str, opset: int) -> dict[str, int]:
    """What an attribute may be where it is a text or a list of texts, with the first operator set from one on whose description names it."""
    found: dict[str, int] = {}
    for version in range(opset, OPSETS[1] + 1):
        known = attributes_of(domain, op, version).get(attribute)
        if known is not None and known.type.name in ("STRING", "STRINGS"):
            # Of a list the description names what it holds by default, at most.
            common = _STRINGS.get(attribute, ()) if known.type.name == "STRINGS" or not known.words else ()
            found = {**dict.fromkeys((*known.words, *common), version), **found}
    return found


def first_with(opset: int, has: Callable[[int], bool]) -> int:
    """The operator set from one on in which there is something; that one if there is none."""
    return next((version for version in range(opset, OPSETS[1] + 1) if has(version)), opset)


def values_of(
    attribute: str,
    kind: Any,
    held: Any,
    rank: int,
    spatial: int,
    rng: np.random.Generator,
    said: Collection[float] = (),
    words: Sequence[str] = (),
) -> list[Any]:
    """Values that an attribute may take.

    Args:
        attribute: Its name.
        kind: Its type, ``onnx.defs.OpSchema.AttrType``; ``None`` where only ``held`` says it.
        held: The value it has, ``None`` if it is left out.
        rank: The highest rank of an operand, for axes and permutations.
        spatial: Number of spatial dimensions, for strides and the like.
        rng: Draws lists, of which there are too many to try all.
        said: Numbers that the rule's conditions name.
        words: What it may be if it is a text; what operators commonly have for it if empty.
    """
    if kind == onnx.defs.OpSchema.AttrType.STRING or isinstance(held, str):
        return list(words or _STRINGS.get(attribute, ()))
    made = _values_of(attribute, kind, held, rank, spatial, rng)
    said = [n for n in said if n >= 1 or attribute not in _COUNTS]
    named = [v for n in said for v in _in_the_form_of(made[0], n)] if made else []
    return [*made, *(v for v in named if v not in made)]


def _in_the_form_of(like: Any, number: float) -> Iterator[Any]:
    """A number as a value of an attribute that another value is known of."""
    if isinstance(like, list) and like and type(number) is int and number > 0:
        yield [number] * len(like)
    elif type(like) is float or (type(like) is int and type(number) is int):
        yield type(like)(number)


def _values_of(attribute: str, kind: Any, held: Any, rank: int, spatial: int, rng: np.random.Generator) -> list[Any]:
    kinds = onnx.defs.OpSchema.AttrType
    listed = held is not None and isinstance(held, list | tuple)
    if attribute in _FLAGS:
        return [0, 1, 2]
    if attribute in _COUNTS:
        return [1, 2, 3, 4, 6]
    if attribute == "saturate":
        return [0, 1]  # with any other number a Cast leaves what its memory held
    if attribute == "axis":
        return list(range(-rank, rank + 1))
    if attribute in ("start", "end"):
        return [-3, -2, -1, 0, 1, 2, 3, 9]
    if attribute == "to":
        return list(TYPES)
    if attribute == "epsilon":
        return list(_EPSILONS)
    if attribute == "perm":
        n = len(held) if listed else rank
        return [[int(i) for i in rng.permutation(n)] for _ in range(3)] + [list(range(n)), list(range(n))[::-1]]
    if attribute in ("strides", "dilations", "kernel_shape", "pads", "output_padding"):
        return _windows(attribute, held, spatial, rng)
    if kind == kinds.FLOAT or isinstance(held, float):
        return list(_FLOATS)
    if kind == kinds.INT or (isinstance(held, int) and not isinstance(held, bool)):
        return [0, 1, 2, 3, -1, -2, 4]
    if kind == kinds.INTS or listed:
        return _lists(list(held) if listed else [], rank, rng)
    return []


def _windows(attribute: str, held: Any, spatial: int, rng: np.random.Generator) -> list[Any]:
    twice = attribute == "pads"
    n = len(held) if isinstance(held, list | tuple) else spatial * (2 if twice else 1)
    low = 0 if attribute in ("pads", "output_padding") else 1
    drawn = [[int(i) for i in rng.integers(low, low + 3, n)] for _ in range(3)]
    ends = [[low + int(i >= n // 2) for i in range(n)], [low + int(i < n // 2) for i in range(n)]] if twice else []
    return [*([low + more] * n for more in range(4)), *ends, *drawn]


def _lists(held: list[Any], rank: int, rng: np.random.Generator) -> list[Any]:
    made = [[0], [-1], [rank - 1], [1], [0, 1], [-1, -2], list(range(rank)), []]
    if held and all(isinstance(i, int) for i in held):
        for _ in range(3):
            items = list(held)
            items[int(rng.integers(len(items)))] = int(rng.integers(-rank, rank + 3))
            made.append(items)
        made += [held[::-1], held[:-1], [*held, held[-1] + 1]]
    return made


def most_operands(domain: str, op: str, opset: int) -> int:
    """How many operands an operator takes at most."""
    schema = schema_of(op, domain, opset)
    return 0 if schema is None else int(schema.max_input)


def dtypes_of(rule: Rule, leaf: str, opset: int) -> list[str]:
    """Dtypes that numpy has and some operator that reads an operand takes there, common ones first."""
    found: set[str] = set()
    for domain, op, position, _ in readers(rule, leaf):
        schema = schema_of(op, domain, opset)
        parameter = None if schema is None else formal(schema, position)
        texts = _contributed_types(domain, op, position) if parameter is None else allowed(schema, parameter)
        found |= {DTYPE_OF[text] for text in texts if text in DTYPE_OF}
    return [name for name in _PREFERRED if name in found and name in NUMPY_NAMES]


def _contributed_types(domain: str, op: str, position: int) -> list[str]:
    """The types that an operand of an operator of the runtime's own may have."""
    schema = _contributed().get((domain, op))
    if schema is None or position >= len(schema.inputs):
        return []
    said = schema.inputs[position].typeStr
    return next((c.allowed_type_strs for c in schema.type_constraints if c.type_param_str == said), [said])


def readers(rule: Rule, leaf: str) -> list[tuple[str, str, int, Line]]:
    """Domain, operator, position and line of each use of an operand in the pattern."""
    return [
        (domain, op, position, line)
        for line in rule.match
        for position, operand in enumerate(line.operands)
        if operand.name == leaf
        for domain, op in line.ops
    ]


@lru_cache(maxsize=1)
def _history() -> dict[tuple[str, str], tuple[int, ...]]:
    found: dict[tuple[str, str], set[int]] = {}
    for schema in onnx.defs.get_all_schemas_with_history():
        found.setdefault((schema.domain, schema.name), set()).add(schema.since_version)
    return {key: tuple(sorted(versions)) for key, versions in found.items()}


def unknown_operators(rule: Rule) -> list[str]:
    """What is wrong with the names of a rule's operators; of those of other domains than ONNX's and the runtime's nobody knows."""
    known = {*_history(), *_contributed()}
    found = []
    for domain, op in sorted({op for line in (*rule.match, *rule.replace) for op in line.ops} - known):
        names = {name.lower(): name for of, name in known if of == domain}
        near = difflib.get_close_matches(op.lower(), names, n=1)
        if names:
            found.append(f"there is no operator {op!r}" + (f"; did you mean {names[near[0]]!r}?" if near else ""))
    return found


def opsets_of(rule: Rule) -> list[int]:
    """Versions of ONNX's operator set between which an operator of a rule changed, with both ends of the range."""
    low, high = OPSETS
    used = {op for line in (*rule.match, *rule.replace) for op in line.ops}
    changed = {v for op in used for v in _history().get(op, ()) if op[0] == "" and low <= v <= high}
    return sorted({low, high, *changed})


def said_by(rule: Rule) -> set[Any]:
    """The numbers and strings that a rule's conditions name, those of its ``let`` lines too; negative ones with their sign and without."""
    trees: list[ast.AST] = [ast.parse(e.text.strip(), mode="eval") for e in (*rule.where, *rule.prefer)]
    chosen = (node for _, e in rule.let for node in ast.walk(ast.parse(e.text.strip(), mode="eval")))
    trees += [node for node in chosen if isinstance(node, ast.Compare)]
    nodes = [node for tree in trees for node in ast.walk(tree)]
    signed = (node.operand for node in nodes if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub))
    negative = {-n.value for n in signed if isinstance(n, ast.Constant) and isinstance(n.value, int | float)}
    return negative | {node.value for node in nodes if isinstance(node, ast.Constant)}


def lengths_of(rule: Rule) -> tuple[int, ...]:
    """Sizes of dimensions that a rule is tried with: small ones, those that its conditions name, and what its narrow types don't count to."""
    said = sorted(n for n in said_by(rule) if type(n) in (int, float) and _SMALL < n <= _LONGEST)
    known = (n for said in map(int, said) for n in (said, 2 * said) if n <= _LONGEST)
    return (1, 2, 5, 3, *known, *_beyond_types(rule))


def _beyond_types(rule: Rule) -> list[int]:
    """Sizes that the narrow types that a rule casts to can't count to, nor float32 where that many products of bytes are summed."""
    cast = {e.text for line in (*rule.match, *rule.replace) for name, e in line.attributes if name == "to"}
    sums = any(op == "MatMulInteger" for line in rule.match for _, op in line.ops)
    return sorted({n for to in cast & _UNCOUNTED.keys() for n in _UNCOUNTED[to]} | ({300} if sums else set()))
