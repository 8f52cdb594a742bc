"""Why a pattern does not match the graph that was built from it: what an author reads of an example that does not behave."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from graphopt.ir import ops
from graphopt.ir.graph import Graph, Node
from graphopt.rewrite.expr import Env, Expression, Ref
from graphopt.rewrite.limits import TooLargeError, Unknown
from graphopt.rewrite.literals import is_number
from graphopt.rewrite.match import attribute_of, match_line, same_attribute
from graphopt.rewrite.pattern import Line

if TYPE_CHECKING:
    from graphopt.rewrite.schema import Rule


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
    """What keeps a rule's pattern from matching, its conditions aside.

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
        if not same_attribute(found, wanted):
            yield f"attribute {name!r} is {found!r}, not {wanted!r}"
    for name, items in line.lists:
        found = attribute_of(graph, node, name)
        if not isinstance(found, tuple) or len(found) != len(items):
            yield f"attribute {name!r} is {found!r}, no list of {len(items)}"
    mentioned = {name for name, _ in (*line.attributes, *line.captures, *line.lists)}
    for name, value in node.attributes.items():
        if not line.rest and name not in mentioned and (node.op, name) not in ops.REDUNDANT:
            default = attribute_of(graph, _without(node, name), name)
            if not same_attribute(value, default):
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
