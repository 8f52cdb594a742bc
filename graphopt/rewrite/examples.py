"""A rule's examples as graphs: the pattern built on operands of the types that the example gives."""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache, partial
from typing import Any

import numpy as np

from graphopt.errors import GraphoptError
from graphopt.ir import ops
from graphopt.ir.constants import tensor_of
from graphopt.ir.delta import RefusedError
from graphopt.ir.edit import Edit
from graphopt.ir.graph import Graph, Node, Value, build
from graphopt.ir.infer import latest_opset
from graphopt.ir.types import DTYPES, NUMPY_NAMES, Dim, ValueType, digest
from graphopt.rewrite import literals
from graphopt.rewrite.expr import Env, Expression, Ref, brackets
from graphopt.rewrite.literals import is_number
from graphopt.rewrite.match import Match, attribute_of, find, match_line, plan_from, same_attribute
from graphopt.rewrite.pattern import Line
from graphopt.rewrite.schema import Rule
from graphopt.rewrite.symbols import TooLargeError, Unknown

DEFAULT_OPSET = 17
LARGEST = 1 << 22
"""Elements of an operand; both sides of a rule are computed on it many times over."""
RANK = 16
# One run of letters for all dimensions: a repeated group would try every way to part it.
_TYPE = re.compile(r"(?P<const>const\s+)?(?P<dims>(?:[A-Za-z0-9_]+x)?)(?P<dtype>[a-z]+\d*\w*)(?:\s*=\s*(?P<data>.+))?")


@dataclass(frozen=True, slots=True)
class Operand:
    """The type of an operand as an example writes it.

    Attributes:
        dtype: Short dtype name.
        dims: Numbers and symbols.
        const: Whether it is a constant.
        data: Its content as nested lists, or one number that fills it; ``None`` for random content.
    """

    dtype: str
    dims: tuple[Dim, ...] = ()
    const: bool = False
    data: Any = None

    @staticmethod
    def parse(name: str, given: Any) -> Operand:
        """Read ``4x5xf32`` or ``const 2xi64 = [1, 2]``; ``name`` is for the message of the :class:`ExampleError`."""
        if isinstance(given, Operand):
            return given
        parsed = _TYPE.fullmatch(str(given).strip())
        if parsed is None or parsed["dtype"] not in DTYPES:
            raise ExampleError(f"{name}: {given!r} is not a type such as 4x5xf32, or 'const 2xi64 = [1, 2]'")
        dims = tuple(_dim(name, d) for d in parsed["dims"].split("x") if d)
        if math.prod(d for d in dims if isinstance(d, int)) > LARGEST or len(dims) > RANK:
            raise ExampleError(f"{name}: {str(given)[:60]!r} has more than {LARGEST} elements or {RANK} dimensions")
        data = parsed["data"]
        if data is not None:
            data = _literal(name, data if "1e999" in data else data.replace("inf", "1e999"))
        return Operand(parsed["dtype"], dims, bool(parsed["const"] or parsed["data"]), data)

    def __str__(self) -> str:
        text = ("const " if self.const else "") + "".join(f"{d}x" for d in self.dims) + self.dtype
        return text if self.data is None else f"{text} = {self.data}"


def _dim(name: str, text: str) -> Dim:
    if not text.isdigit():
        return text
    if len(text) > 9:
        raise ExampleError(f"{name}: a dimension of {len(text)} digits")
    return int(text)


def _literal(name: str, text: str) -> Any:
    """Numbers in nested lists."""
    if brackets(text) > RANK:
        raise ExampleError(f"{name}: lists in each other, more than {RANK} deep")
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError, TypeError, RecursionError, MemoryError):
        hint = "; truth values are 1 and 0" if re.search("true|false", text, re.IGNORECASE) else ""
        raise ExampleError(f"{name}: {text[:60]!r} is neither a number nor a list of numbers{hint}") from None


class ExampleError(GraphoptError):
    """An example can't be built as written."""


@dataclass(frozen=True, eq=False)
class Example:
    """A pattern built as a graph.

    Attributes:
        graph: Its inputs are the operands, its outputs the pattern's roots and unread values.
        match: Where the rule matches; ``None`` when it does not.
        diagnose: Tells what :attr:`failing` and :meth:`why` do.
    """

    graph: Graph
    match: Match | None
    diagnose: Callable[[], tuple[int | None, str]] = lambda: (None, "")

    @cached_property
    def failing(self) -> int | None:
        """Index of the first ``where`` line that fails, when that is why it does not match."""
        return self.diagnose()[0]

    def why(self) -> str:
        """Why it does not match, in words."""
        return self.diagnose()[1]


def build_example(rule: Rule, case: Mapping[str, Any], *, block: int = 16, seed: int = 0) -> Example:
    """Build an example.

    Args:
        rule: The rule.
        case: As in the rule's ``examples``.
        block: Channel block that ``block()`` answers.
        seed: Of the random constants.

    Raises:
        ExampleError: The case names something unknown, or its types contradict the operators.
    """
    case = dict(case)
    opset = _opset(case.pop("opset", DEFAULT_OPSET))
    values: dict[int, Value] = {}
    names: dict[str, Any] = {}
    inputs: list[int] = []
    optional = {o.name for line in rule.match for o in line.operands if o.kind == "optional"}
    variables = {v for line in rule.match for v in line.variables}
    variables |= {n for line in rule.match for n in (line.rest, line.op_variable) if n}
    for name in case:
        if name not in rule.leaves and name not in variables:
            raise ExampleError(f"{name!r} is neither an operand nor an attribute of the pattern")
    for leaf in rule.leaves:
        given = case.get(leaf)
        if given is None:
            if leaf not in optional:
                raise ExampleError(f"operand {leaf!r} has no type")
            names[leaf] = Ref(None)
        elif isinstance(given, list):
            names[leaf] = tuple(Ref(_value(f"{leaf}{i}", text, values, inputs, seed)) for i, text in enumerate(given))
        else:
            names[leaf] = Ref(_value(leaf, given, values, inputs, seed))
    for variable in variables:
        names[variable] = _attribute(case.get(variable))
    graph = build([], values, tuple(inputs), (), {"": opset, "com.microsoft": 1})
    graph = _pattern(rule, graph, names, case)
    found = _match(rule, graph, block)
    if found is not None:
        return Example(graph, found)
    return Example(graph, None, partial(_diagnosis, rule, graph, names, block))


def _diagnosis(rule: Rule, graph: Graph, names: dict[str, Any], block: int) -> tuple[int | None, str]:
    """Which condition fails, if one does, and why a rule does not match."""
    failing, match = _failing(rule, graph, block)
    if failing is None or match is None:
        return None, f"does not fit the pattern: {mismatch(rule, graph, names)}"
    condition = rule.where[failing]
    undecidable = undecided(condition, Env(graph, match.names, block))
    return failing, f"fails on 'where' line {failing + 1} first, {condition.text!r}{undecidable}"


def _opset(given: Any) -> int:
    newest, text = latest_opset(), str(given)
    if not (text.isascii() and text.isdigit() and len(text) < 4 and 1 <= int(text) <= newest):
        raise ExampleError(f"opset: {text[:40]!r} is no version of ONNX's operator set, 1 to {newest}")
    return int(text)


def _value(name: str, given: Any, values: dict[int, Value], inputs: list[int], seed: int) -> int:
    operand = Operand.parse(name, given)
    type = ValueType(operand.dtype, operand.dims)
    if operand.const:
        try:
            array = _array(operand, name, seed)
        except KeyError:
            raise ExampleError(f"{name}: a constant needs a dtype that numpy has, not {operand.dtype}") from None
        except (TypeError, ValueError, OverflowError) as error:
            raise ExampleError(f"{name}: {operand}: {error}") from None
        value = Value(0, name, type, True, tensor_of(array))
        value = replace(value, key=digest("example", name, value.tensor.key if value.tensor else 0))
    else:
        # With its type: what follows from a shape is remembered by key.
        value = Value(digest("input", name, str(type)), name, type)
        inputs.append(value.key)
    values[value.key] = value
    return value.key


def _array(operand: Operand, name: str, seed: int) -> np.ndarray[Any, Any]:
    dtype = np.dtype(NUMPY_NAMES[operand.dtype])
    shape = tuple(d if isinstance(d, int) else 3 for d in operand.dims)
    if operand.data is not None:
        with np.errstate(over="ignore"):
            return np.broadcast_to(np.array(operand.data).astype(dtype), shape).copy()
    return _random_constant(dtype, shape, name, seed)


@lru_cache(maxsize=4096)
def _random_constant(dtype: np.dtype[Any], shape: tuple[int, ...], name: str, seed: int) -> np.ndarray[Any, Any]:
    made = random_array(dtype, shape, np.random.default_rng((seed, *name.encode())))
    if dtype.kind == "f":  # sixteenths: what a rule computes from them is exact, so that provers may compare it
        made = np.asarray(np.round(made * 16) / 16).astype(dtype)
    made.flags.writeable = False
    return made


def random_array(dtype: np.dtype[Any], shape: tuple[int, ...], rng: np.random.Generator) -> np.ndarray[Any, Any]:
    """Random content of a dtype; floats stay away from zero so that division and roots are well conditioned."""
    if dtype.kind == "f":
        return np.asarray(rng.uniform(0.25, 2.0, shape) * rng.choice([-1.0, 1.0], shape)).astype(dtype)
    if dtype.kind == "b":
        return np.asarray(rng.integers(0, 2, shape)).astype(bool)
    return np.asarray(rng.integers(0, 3, shape)).astype(dtype)


def _attribute(given: Any) -> Any:
    if isinstance(given, Mapping):
        return {k: _attribute(v) for k, v in given.items()}
    if isinstance(given, list):
        return tuple(_attribute(v) for v in given)
    if not isinstance(given, str):
        return given
    for kind in (int, float):
        try:
            return kind(given)
        except ValueError:
            continue
    return given


def _pattern(rule: Rule, graph: Graph, names: dict[str, Any], case: Mapping[str, Any]) -> Graph:
    """Add the pattern's nodes, operands before readers."""
    edit = Edit(graph)
    todo = list(rule.match)
    made = {o for line in rule.match for o in line.outputs}
    outputs: dict[str, int] = {}
    try:
        while todo:
            ready = [line for line in todo if all(o.name in names or o.name not in made for o in line.operands)]
            if not ready:
                raise ExampleError("the pattern reads what it defines later in a circle")
            for line in ready:
                todo.remove(line)
                keys = _node(edit, line, names)
                for out, key in zip(line.outputs, keys, strict=True):
                    if out != "_":
                        names[out] = Ref(key)
                        outputs[out] = key
    except RefusedError as error:
        raise ExampleError(f"the types contradict the operators: {error}") from None
    except TooLargeError as error:
        raise ExampleError(f"an attribute is too large: {error}") from None
    except Unknown:
        raise ExampleError("the types do not tell what an attribute is") from None
    read = {o.name for line in rule.match for o in line.operands}
    kept = [(name, key) for name, key in outputs.items() if name in rule.roots or name not in read]
    edit.publish(kept)
    return edit.commit()[0]


def _node(edit: Edit, line: Line, names: dict[str, Any]) -> list[int]:
    operands: list[int | float | None] = []
    for operand in line.operands:
        if operand.kind == "none":
            operands.append(None)
        elif operand.kind == "number":
            operands.append(operand.number)
        elif operand.kind == "variadic":
            operands += [ref.key for ref in names[operand.name]]
        else:
            operands.append(names[operand.name].key)
    attributes: dict[str, Any] = dict(names.get(line.rest) or {}) if line.rest and line.rest != "_" else {}
    for name, variable in line.captures:
        if names[variable] is not None:
            attributes[name] = names[variable]
    for name, expression in line.attributes:
        value = expression.run(Env(edit.graph, names))
        if value is not None:
            attributes[name] = value
    for name, items in line.lists:
        listed = [names[item] if isinstance(item, str) else item.run(Env(edit.graph, names)) for item in items]
        if None not in listed:
            attributes[name] = tuple(listed)
        elif any(value is not None for value in listed):
            raise ExampleError(f"{name!r} of {line.text!r} needs all its items")
    domain, op = line.ops[0]
    if line.op_variable:
        chosen = names.get(line.op_variable)
        if chosen is None:
            names[line.op_variable] = f"{domain}.{op}" if domain else op
        else:
            domain, _, op = str(chosen).rpartition(".")
            if (domain, op) not in line.ops:
                raise ExampleError(f"{chosen!r} is not among the operators of {line.text!r}")
    keys = literals.constant(edit, op, domain, operands)
    return edit.add(op, keys, attributes, domain=domain, outputs=[None] * len(line.outputs), name=line.outputs[0])


def _match(rule: Rule, graph: Graph, block: int) -> Match | None:
    plan = plan_from(rule, 0)
    for node in graph.in_order():
        for match in find(graph, plan, node, block):
            return match
    return None


def _failing(rule: Rule, graph: Graph, block: int) -> tuple[int | None, Match | None]:
    """Index of the first condition that fails, judged with all conditions off, and where; ``None`` without a match."""
    bare = replace(rule, where=())
    plan = plan_from(bare, 0)
    best: tuple[int | None, Match | None] = (None, None)
    for node in graph.in_order():
        for match in find(graph, plan, node, block):
            env = Env(graph, match.names, block)
            index = next((i for i, condition in enumerate(rule.where) if not condition.holds(env)), None)
            if index is not None and (best[0] is None or index > best[0]):
                best = (index, match)
    return best


def undecided(condition: Expression, env: Env) -> str:
    """What to add about a condition that does not hold because it is undecided; empty when it is plainly false."""
    try:
        value = condition.run(env)
    except TooLargeError as error:
        return f" (too large: {error})"
    except Unknown:
        return " (undecided)"
    return "" if value is False else f" (it is {value!r}, not True or False)"


def mismatch(rule: Rule, graph: Graph, names: dict[str, Any]) -> str:
    """What keeps a rule's pattern from matching the graph that was built from it, its conditions aside: what an author reads.

    Args:
        rule: The rule.
        graph: The pattern as a graph.
        names: Its variables: among them the value that each line made.
    """
    given = {name: names[name] for line in rule.match for name in line.variables if names.get(name) is not None}
    for line in rule.match:
        key = next((names[out].key for out in line.outputs if out != "_"), None)
        node = graph.producer(key) if key in graph.values else None
        if node is None:
            return f"{line.text!r} has no node of its own"
        if not any(match_line(graph, line, node, held) for held in ({}, given)):
            return f"{line.text!r}: {next(_reasons(graph, line, node, given), 'its operands do not fit')}"
    roots = [names[root].key for root in rule.roots]
    if len(set(roots)) < len(roots):
        return f"{' and '.join(rule.roots)} are one value, as they compute the same"
    if all(graph.values[key].const for key in roots if key in graph.values):
        return "all is constant, which the engine computes without a rule"
    return "each line fits alone, but a name that stands in several of them would be different values"


def _reasons(graph: Graph, line: Line, node: Node, given: dict[str, Any]) -> Iterator[str]:
    """What is wrong with one line and the node that was made of it."""
    if (node.domain, node.op) not in line.ops:
        yield f"the engine writes it as {node.op}"
    for i, key in enumerate(node.outputs[len(line.outputs) :], len(line.outputs)):
        if key is not None and (graph.users[key] or key in graph.output_keys):
            yield f"output {i}, which it does not name, is read"
    for name, expression in line.attributes:
        found = attribute_of(graph, node, name)
        try:
            wanted = expression.run(Env(graph, given))
        except Unknown:
            continue
        if not same_attribute(found, wanted, line.exact):
            yield f"attribute {name!r} is {found!r}, not {wanted!r}"
    for name, items in line.lists:
        found = attribute_of(graph, node, name)
        if not isinstance(found, tuple) or len(found) != len(items):
            yield f"attribute {name!r} is {found!r}, no list of {len(items)}"
    for name, value in node.attributes.items():
        if not line.rest and name not in line.mentioned and (node.op, name) not in ops.REDUNDANT:
            default = attribute_of(graph, _without(node, name), name)
            if not same_attribute(value, default, line.exact):
                yield f"attribute {name!r}, which it does not mention, is {value!r} and not its default"
    for operand, key in zip(line.operands, node.inputs, strict=False):
        if operand.kind == "number" and not is_number(graph, key, operand.number, operand.exact):
            yield f"operand {operand.number:g} is another constant"
    held: dict[str, Ref] = {}
    for operand, key in zip(line.operands, node.inputs, strict=False):
        if operand.kind == "value" and held.setdefault(operand.name, Ref(key)) != Ref(key):
            yield f"{operand.name!r} stands for two values"


def _without(node: Node, attribute: str) -> Node:
    rest = {name: value for name, value in node.attributes.items() if name != attribute}
    return Node(node.op, node.inputs, node.outputs, rest, domain=node.domain)
