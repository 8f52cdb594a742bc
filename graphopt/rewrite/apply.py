"""Carry out one match: turn its replacement lines into an edit."""

from __future__ import annotations

from typing import Any

import numpy as np

from graphopt.ir.agreement import demands_of
from graphopt.ir.delta import Delta, RefusedError
from graphopt.ir.edit import Edit
from graphopt.ir.graph import UNIT, Graph
from graphopt.rewrite import literals
from graphopt.rewrite.expr import Env, Ref
from graphopt.rewrite.match import Match
from graphopt.rewrite.pattern import Line, Operand
from graphopt.rewrite.symbols import Symbol, Unknown


def apply(graph: Graph, match: Match, block: int = 16) -> tuple[Graph, Delta]:
    """The graph after the rewrite, and what changed.

    Args:
        graph: The graph in which the match was found.
        match: The match.
        block: Channel block of the target's fast convolution layout.

    Raises:
        RefusedError: An invariant would break, or the replacement needs something unknown.
    """
    rule = match.rule
    roots = dict(zip(rule.roots, match.roots, strict=True))
    edit = Edit(graph, rule.id, match.roots, demands_of(graph, match.nodes))
    names = {name: value for name, value in match.names.items() if name not in roots}
    env = Env(graph, dict(match.names), block)
    inside = rule.inside if any(graph.nodes[id].opaque == UNIT for id in match.nodes) else {}
    try:
        for name, expression in rule.let:
            if name not in match.let:
                match.let[name] = expression.run(env)
            made = match.let[name]
            if isinstance(made, np.ndarray):
                made = Ref(edit.constant(made))
            names[name] = env.names[name] = made
        for line in rule.replace:
            _line(edit, env, line, names, roots, inside.get(line.outputs[0], ""))
    except (Unknown, KeyError) as error:
        raise RefusedError(f"{rule.id}: {error!r}: the replacement needs something unknown") from None
    return edit.commit()


def _line(edit: Edit, env: Env, line: Line, names: dict[str, Any], roots: dict[str, int], opaque: str) -> None:
    if line.alias:
        target = names[line.alias]
        out = line.outputs[0]
        if out in roots:
            edit.alias(roots[out], target.key)
        names[out] = env.names[out] = target
        return
    domain, op = _operator(line, names)
    attributes = _attributes(line, env, names)
    if line.each:
        many = [names[o.name] for o in line.operands if o.kind == "variadic"]
        rows = zip(*many, strict=True)
        made: list[Ref] = []
        for row in rows:
            items = iter(row)
            given = [
                next(items).key if o.kind == "variadic" else k
                for o in line.operands
                for k in ([None] if o.kind == "variadic" else _keys(names, o))
            ]
            operands = literals.constant(edit, op, domain, given)
            made.append(Ref(edit.add(op, operands, attributes, domain=domain, opaque=opaque)[0]))
        names[line.outputs[0]] = env.names[line.outputs[0]] = tuple(made)
        return
    given = [key for operand in line.operands for key in _keys(names, operand)]
    outputs = [roots.get(o) for o in line.outputs]
    operands = literals.constant(edit, op, domain, given, outputs)
    keys = edit.add(op, operands, attributes, domain=domain, outputs=outputs, opaque=opaque)
    for out, key in zip(line.outputs, keys, strict=True):
        names[out] = env.names[out] = Ref(key)


def _operator(line: Line, names: dict[str, Any]) -> tuple[str, str]:
    if line.ops:
        return line.ops[0]
    domain, _, op = str(names[line.op_variable]).rpartition(".")
    return domain, op


def _keys(names: dict[str, Any], operand: Operand) -> list[int | float | None]:
    """What an operand stands for: keys, a number as such."""
    if operand.kind == "none":
        return [None]
    if operand.kind == "number":
        return [operand.number]
    bound = names[operand.name]
    if isinstance(bound, Ref):
        return [bound.key]
    if isinstance(bound, tuple) and all(isinstance(ref, Ref) for ref in bound):
        return [ref.key for ref in bound]
    raise RefusedError(f"{operand.name!r} is a number, not a value: make it a constant with i64() or like()")


def _attributes(line: Line, env: Env, names: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = dict(names[line.rest]) if line.rest else {}
    for name, expression in line.attributes:
        value = _plain(expression.run(env))
        if value is None:
            found.pop(name, None)
        else:
            found[name] = value
    return found


def _plain(value: Any) -> Any:
    if isinstance(value, Symbol) or (isinstance(value, tuple) and any(isinstance(v, Symbol) for v in value)):
        raise Unknown
    if isinstance(value, bool):
        return int(value)
    return tuple(_plain(v) for v in value) if isinstance(value, list) else value
