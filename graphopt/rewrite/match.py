"""Find a rule's pattern in a graph.

A pattern is compiled once for each of its lines into a plan that starts at that line and walks along shared values, down
to producers and up to consumers, never over all nodes. So the matches around an edit are found by starting at the edited
nodes, and a pattern with several roots joins on the readers of the value they share.
"""

from __future__ import annotations

from collections.abc import Container, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from graphopt.errors import RuleError
from graphopt.ir import ops
from graphopt.ir.agreement import may_widen
from graphopt.ir.graph import Graph, Node
from graphopt.ir.types import digest
from graphopt.rewrite.expr import Env, Expression, Ref
from graphopt.rewrite.literals import is_number
from graphopt.rewrite.pattern import Line, Operand
from graphopt.rewrite.schema import Rule
from graphopt.rewrite.symbols import OPERANDS, Unknown

Names = dict[str, Any]


@dataclass(frozen=True, slots=True, eq=False)
class Match:
    """A place where a rule applies.

    Attributes:
        rule: The rule.
        names: What its variables are bound to: :class:`Ref`, a tuple of them, or an attribute value.
        nodes: Id of the node of each pattern line.
        roots: Keys that the rewrite redefines.
        preferred: Whether the rule's hints hold here (true when it has none).
        let: What the rule's ``let`` lines come to here, once they were asked for. As little as its conditions do they change
            while the match stands: a change of what they read ends it.
    """

    rule: Rule
    names: Names
    nodes: tuple[int, ...]
    roots: tuple[int, ...]
    preferred: bool
    let: dict[str, Any] = field(default_factory=dict, compare=False, repr=False)

    @property
    def site(self) -> str:
        """A short name of the place, the same in every process."""
        return f"{digest(self.rule.id, self.nodes):016x}"


@dataclass(frozen=True, slots=True)
class Step:
    """How to come to the next line: from the value ``via`` down to its producer, or up to its readers."""

    line: int
    via: str
    up: bool


Operator = tuple[str, str]
"""Domain and type."""
Operators = frozenset[Operator]
_NONE: Operators = frozenset()


@dataclass(frozen=True, slots=True)
class Plan:
    """The lines of a pattern in the order in which they are matched.

    Attributes:
        rule: The rule.
        anchor: Index of the line to start at.
        steps: How to come to the others.
        fed: For operands of the first line that another line makes: position (-1 for any) and that line's operators.
        read: For outputs of the first line that another line reads: position and that line's operators.
    """

    rule: Rule
    anchor: int
    steps: tuple[Step, ...]
    fed: tuple[tuple[int, Operators], ...] = ()
    read: tuple[tuple[int, Operators], ...] = ()

    def may_start(self, around: Around) -> bool:
        """Whether a node and its neighbours could be those of the first line; most fail this cheap test."""
        if around.op not in self.rule.match[self.anchor].ops:
            return False
        for position, operators in self.fed:
            makers = around.makers if position < 0 else around.makers[position : position + 1]
            if operators.isdisjoint(makers):
                return False
        return all(
            position < len(around.readers) and not operators.isdisjoint(around.readers[position])
            for position, operators in self.read
        )


@dataclass(frozen=True, slots=True)
class Around:
    """A node's operator and those of its neighbours.

    Attributes:
        op: Its own.
        makers: Of the node that makes each operand, ``None`` for an input or an initializer.
        readers: Of the nodes that read each output.
    """

    op: Operator
    makers: tuple[Operator | None, ...]
    readers: tuple[Operators, ...]

    @classmethod
    def of(cls, graph: Graph, node: Node) -> Around:
        """Look around a node."""
        nodes, values, users = graph.nodes, graph.values, graph.users
        makers = [None if key is None else values[key].producer for key in node.inputs]
        return cls(
            (node.domain, node.op),
            tuple([None if maker is None else _operator(nodes[maker]) for maker in makers]),
            tuple(
                [_NONE if key is None else frozenset([_operator(nodes[u]) for u in users[key]]) for key in node.outputs]
            ),
        )


def _operator(node: Node) -> Operator:
    return (node.domain, node.op)


def plans(rule: Rule) -> list[Plan]:
    """One plan for each line of the rule's pattern.

    Raises:
        RuleError: The pattern falls into unconnected parts.
    """
    return [plan_from(rule, anchor) for anchor in range(len(rule.match))]


def plan_from(rule: Rule, anchor: int) -> Plan:
    """The plan that starts at one line of the rule's pattern; raises as :func:`plans` does."""
    bound = _names(rule.match[anchor])
    todo = [i for i in range(len(rule.match)) if i != anchor]
    steps: list[Step] = []
    while todo:
        down = [(i, o) for i in todo for o in rule.match[i].outputs if o in bound]
        up = [(i, o.name) for i in todo for o in rule.match[i].operands if o.kind == "value" and o.name in bound]
        if not down and not up:
            line = rule.match[todo[0]]
            raise RuleError(f"{line.text!r} shares no value with the lines before it", line.where)
        index, via = (down or up)[0]
        steps.append(Step(index, via, not down))
        bound |= _names(rule.match[index])
        todo.remove(index)
    return Plan(rule, anchor, tuple(steps), *_neighbours(rule, anchor))


def _neighbours(rule: Rule, anchor: int) -> tuple[tuple[tuple[int, Operators], ...], tuple[tuple[int, Operators], ...]]:
    line = rule.match[anchor]
    loose = any(op in ops.COMMUTATIVE for _, op in line.ops)
    makers = {out: frozenset(other.ops) for other in rule.match for out in other.outputs if out != "_"}
    fed: list[tuple[int, Operators]] = []
    for position, operand in enumerate(line.operands):
        loose = loose or operand.kind == "variadic"
        if operand.kind == "value" and operand.name in makers:
            fed.append((-1 if loose else position, makers[operand.name]))
    read = [
        (position, frozenset(other.ops))
        for position, out in enumerate(line.outputs)
        for other in rule.match
        if out != "_" and any(o.name == out for o in other.operands)
    ]
    return tuple(fed), tuple(read)


def _names(line: Line) -> set[str]:
    return {o for o in line.outputs if o != "_"} | {o.name for o in line.operands if o.kind == "value"}


def find(graph: Graph, plan: Plan, node: Node, block: int = 16, around: Around | None = None) -> Iterator[Match]:
    """All matches of a rule in which ``node`` stands for the plan's first line, one for each set of nodes.

    Args:
        graph: The graph.
        plan: The order in which the rule's lines are matched.
        node: Where to start.
        block: Channel block of the target.
        around: What is around the node, for who tries many plans there.
    """
    if plan.rule.sees(node) and plan.may_start(around or Around.of(graph, node)):
        yield from find_from(graph, plan, node, block)


Starts = dict[tuple[str, bool], list[Names]]
"""Ways in which a line can stand for one node of a graph, by the line's text and exactness: many rules begin with the same line."""


def find_from(
    graph: Graph,
    plan: Plan,
    node: Node,
    block: int = 16,
    without: Container[int] = frozenset(),
    known: Starts | None = None,
) -> Iterator[Match]:
    """:func:`find` where the plan may start at the node, which is not asked again.

    Args:
        graph: The graph.
        plan: The order in which the rule's lines are matched.
        node: Where to start.
        block: Channel block of the target.
        without: Nodes that no match may have besides.
        known: What other plans found of the node, in this graph; added to.
    """
    rule = plan.rule
    line = rule.match[plan.anchor]
    best: dict[tuple[int, ...], Match] = {}
    known = {} if known is None else known
    starts = known.get((line.text, line.exact))
    if starts is None:
        starts = known[line.text, line.exact] = match_line(graph, line, node, {})
    for names, nodes in _walk(graph, plan, 0, starts, {plan.anchor: node.id}, without):
        ids = tuple([nodes[i] for i in range(len(rule.match))])
        held = best.get(ids)
        if held is not None and held.preferred:
            continue
        match = _judge(graph, rule, names, ids, block)
        if match is not None and (held is None or match.preferred):
            best[ids] = match
    yield from best.values()


def _walk(
    graph: Graph, plan: Plan, step: int, starts: list[Names], nodes: dict[int, int], without: Container[int]
) -> Iterator[tuple[Names, dict[int, int]]]:
    """Ways to go on from a step, each with the node of every line; ``nodes`` is the same dictionary each time."""
    if step == len(plan.steps):
        for names in starts:
            yield names, nodes
        return
    todo = plan.steps[step]
    line = plan.rule.match[todo.line]
    for names in starts:
        key = names[todo.via].key
        if key is None:
            continue
        if todo.up:
            candidates = [graph.nodes[u] for u in graph.users[key]]
        else:
            producer = graph.producer(key)
            candidates = [] if producer is None else [producer]
        for node in candidates:
            if (node.domain, node.op) not in line.ops or not plan.rule.sees(node) or node.id in without:
                continue
            extended = match_line(graph, line, node, names)
            if extended:
                nodes[todo.line] = node.id
                yield from _walk(graph, plan, step + 1, extended, nodes, without)


def _judge(graph: Graph, rule: Rule, names: Names, ids: tuple[int, ...], block: int) -> Match | None:
    """The match, unless a condition fails or it is the mirror image of another one."""
    roots = tuple([names[r].key for r in rule.roots])
    if len(roots) > 1:
        if len(set(roots)) != len(roots):
            return None
        # By key, not by rank: an edit elsewhere may give the roots other ranks.
        if rule.unordered and roots != tuple(sorted(roots)):
            return None
    if all(graph.values[r].const for r in roots):
        return None
    env = Env(graph, names, block)
    for condition in rule.where:
        if not condition.holds(env):
            return None
    return Match(rule, names, ids, roots, all(hint.holds(env) for hint in rule.prefer))


def match_line(graph: Graph, line: Line, node: Node, names: Names) -> list[Names]:
    """Ways in which one pattern line can stand for ``node``, as extensions of ``names``."""
    operands, keys = line.operands, node.inputs
    if len(line.outputs) > len(node.outputs) or (line.fixed and len(keys) > len(operands)):
        return []
    if node.op in ops.BY_OUTPUTS and len(line.outputs) != len(node.outputs):
        return []
    bound = dict(names)
    if line.op_variable and not _bind(bound, line.op_variable, f"{node.domain}.{node.op}" if node.domain else node.op):
        return []
    for i, key in enumerate(node.outputs):
        out = line.outputs[i] if i < len(line.outputs) else None
        if out is None:
            # An output that the pattern does not name may be there, but nothing may read it.
            if key is not None and (graph.users[key] or key in graph.output_keys):
                return []
        elif out != "_" and (key is None or not _bind(bound, out, Ref(key))):
            return []
    if not _attributes(graph, line, node, bound):
        return []
    turned = len(operands) == 2 and len(keys) == 2 and node.op in ops.COMMUTATIVE and keys[0] != keys[1]
    orders = (keys, (keys[1], keys[0])) if turned else (keys,)
    if not line.fixed:
        ways = [found for order in orders for found in _operands(graph, operands, order, bound)]
    else:
        tried = [(order, dict(bound)) for order in orders[1:]]
        ways = [found for order, found in [(keys, bound), *tried] if _each(graph, operands, order, found)]
    return [] if ways and node.op in ops.BROADCASTING and may_widen(graph, keys) else ways


def _bind(names: Names, name: str, value: Any) -> bool:
    held = names.setdefault(name, value)
    return held is value or bool(held == value)


def _each(graph: Graph, operands: tuple[Operand, ...], keys: tuple[int | None, ...], names: Names) -> bool:
    """Bind operands of which none is variadic to what a node reads, if they can be."""
    for i, operand in enumerate(operands):
        if not _operand(graph, operand, keys[i] if i < len(keys) else None, names):
            return False
    return True


def _operands(
    graph: Graph, operands: tuple[Operand, ...], keys: tuple[int | None, ...], names: Names
) -> Iterator[Names]:
    """Ways to bind operands, some of them variadic, to what a node reads."""
    bound = dict(names)
    variadic = next((i for i, o in enumerate(operands) if o.kind == "variadic"), None)
    if variadic is None:
        if len(keys) <= len(operands) and _each(graph, operands, keys, bound):
            yield bound
        return
    if len(keys) < variadic or not _each(graph, operands[:variadic], keys, bound):
        return
    rest = operands[variadic + 1 :]
    held = names.get(operands[variadic].name)
    for end in _cuts(rest, keys, variadic, bound) if held is None else (variadic + len(held),):
        taken = dict(bound)
        if _bind(taken, operands[variadic].name, tuple(Ref(k) for k in keys[variadic:end])):
            yield from _operands(graph, rest, keys[end:], taken)


def _cuts(rest: tuple[Operand, ...], keys: tuple[int | None, ...], start: int, names: Names) -> Iterator[int]:
    """Where the operands that a variadic one takes from ``start`` on may end, before the operands of ``rest``."""
    last = next((i for i in range(start, len(keys)) if keys[i] is None), len(keys))
    if all(operand.kind != "variadic" for operand in rest):
        yield from range(max(start, len(keys) - len(rest)), last + 1)  # one, but for optional operands
        return
    known = names.get(rest[0].name) if rest[0].kind == "value" else None
    if known is not None:
        yield from (i for i in range(start, min(last + 1, len(keys))) if keys[i] == known.key)
    elif len(keys) - start <= OPERANDS:
        yield from range(start, last + 1)


def _operand(graph: Graph, operand: Operand, key: int | None, names: Names) -> bool:
    name = operand.name
    if operand.kind == "value" and key is not None:
        if name not in names:
            if name != "_":
                names[name] = Ref(key)
            return True
        return bool(names[name] == (key,))
    if operand.kind == "none":
        return key is None
    if operand.kind == "number":
        return is_number(graph, key, operand.number, operand.exact)
    if key is None and operand.kind != "optional":
        return False
    return name == "_" or _bind(names, name, Ref(key))


def _attributes(graph: Graph, line: Line, node: Node, names: Names) -> bool:
    for name, expression in line.attributes:
        if not _has(graph, expression, attribute_of(graph, node, name), names, line.exact):
            return False
    for name, variable in line.captures:
        if not _bind(names, variable, attribute_of(graph, node, name)):
            return False
    for name, items in line.lists:
        if not _items(graph, items, attribute_of(graph, node, name), names, line.exact):
            return False
    if line.rest == "_":
        return True
    others = {k: v for k, v in node.attributes.items() if k not in line.mentioned}
    if line.rest:
        return _bind(names, line.rest, others)
    return all(
        (node.op, name) in ops.REDUNDANT or same_attribute(value, _default(graph, node, name), line.exact)
        for name, value in others.items()
    )


def _has(graph: Graph, expression: Expression, found: Any, names: Names, exact: bool) -> bool:
    try:
        return same_attribute(found, expression.run(Env(graph, names)), exact)
    except Unknown:
        return False


def _items(graph: Graph, items: tuple[str | Expression, ...], found: Any, names: Names, exact: bool) -> bool:
    """Whether a list has these items; variables among them are bound."""
    return (
        isinstance(found, tuple)
        and len(found) == len(items)
        and all(
            _bind(names, item, value) if isinstance(item, str) else _has(graph, item, value, names, exact)
            for item, value in zip(items, found, strict=True)
        )
    )


def attribute_of(graph: Graph, node: Node, name: str) -> Any:
    """An attribute's value, its default where the node leaves it out."""
    found = node.attributes.get(name)
    return _default(graph, node, name) if found is None else found


def _default(graph: Graph, node: Node, name: str) -> Any:
    shape = graph.type(node.inputs[0]).shape if node.inputs and node.inputs[0] is not None else None
    spatial = None if shape is None else len(shape) - 2
    return ops.default(node.op, name, opset=graph.opset, spatial_rank=spatial, domain=node.domain)


def same_attribute(a: Any, b: Any, exact: bool = False) -> bool:
    """Equality of attribute values; numbers are compared as float32, in which ONNX stores them.

    Args:
        a: One value.
        b: The other.
        exact: Whether they must be the same number, a zero of the same sign, and not only nearly.
    """
    if a is b:
        return True
    if isinstance(a, float) or isinstance(b, float):
        if not isinstance(a, int | float) or not isinstance(b, int | float):
            return False
        if exact:
            return np.float32(a).tobytes() == np.float32(b).tobytes()
        return a == b or abs(a - b) <= 1e-6 * max(abs(a), abs(b))
    if isinstance(a, tuple | list) and isinstance(b, tuple | list):
        return len(a) == len(b) and all(same_attribute(x, y, exact) for x, y in zip(a, b, strict=True))
    return type(a) is type(b) and bool(a == b)
