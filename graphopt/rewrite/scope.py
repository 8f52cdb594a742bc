"""The names of a rule: what is read is defined, and nothing is defined twice; in conditions, what they stand for."""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator, Mapping, Sequence

from graphopt.errors import RuleError, nearest
from graphopt.rewrite.expr import Expression, compile_expression
from graphopt.rewrite.functions import FUNCTIONS
from graphopt.rewrite.pattern import Line

_WHOLE = (ast.Name, ast.Constant, ast.Call, ast.Subscript, ast.List, ast.ListComp)
"""What needs no brackets around it, wherever it stands."""


def inlined(conditions: Sequence[Expression], let: Sequence[tuple[str, Expression]]) -> tuple[Expression, ...]:
    """Conditions that read as if the text of each ``let`` stood in the place of its name; a ``let`` may name those before it.

    Raises:
        RuleError: One gets too long, or a loop of it would give a name in that text another meaning.
    """
    needed = set().union(*(condition.names for condition in conditions))
    meant: dict[str, Expression] = {}
    for name, expression in reversed(let):
        needed |= expression.names if name in needed else set()
    for name, expression in let:
        if name in needed:
            meant[name] = _put(expression, meant)
    return tuple(_put(condition, meant) for condition in conditions)


def _put(expression: Expression, meant: Mapping[str, Expression]) -> Expression:
    """An expression with what its names mean in their place."""
    used = expression.names & meant.keys()
    if not used:
        return expression
    text = expression.text.strip()
    names = [node for node in ast.walk(ast.parse(text, mode="eval")) if isinstance(node, ast.Name)]
    bound = {node.id for node in names if isinstance(node.ctx, ast.Store)}
    if taken := bound & used.union(*(meant[name].names for name in used)):
        message = f"{text!r}: {min(taken)!r} is a name of a loop here, and of something else in what 'let' defines"
        raise RuleError(message, expression.where, "give the loop another name")
    lines = text.encode().splitlines(keepends=True)
    for node in sorted(names, key=lambda node: (node.lineno, node.col_offset), reverse=True):
        if node.id in used:
            line, at = lines[node.lineno - 1], node.col_offset
            end = at + len(node.id.encode())
            lines[node.lineno - 1] = line[:at] + _whole(meant[node.id].text.strip()).encode() + line[end:]
    return compile_expression(b"".join(lines).decode(), FUNCTIONS, expression.where)


def _whole(text: str) -> str:
    return text if isinstance(ast.parse(text, mode="eval").body, _WHOLE) else f"({text})"


def misnamed(
    match: Sequence[Line],
    conditions: Sequence[Expression],
    let: Sequence[tuple[str, Expression]],
    replace: Sequence[Line],
    roots: Collection[str],
) -> Iterator[RuleError]:
    """What is wrong with the names of a rule, given its lines, its conditions and hints, and what it redefines."""
    made: set[str] = set()
    scope: set[str] = set()
    for line in match:
        yield from _pattern_line(line, made)
        made.update(line.outputs)
        scope.update(o.name for o in line.operands if o.name)
        scope.update(line.variables)
        scope.update(n for n in (line.rest, line.op_variable) if n)
    yield from _ambiguous(match)
    scope |= made
    scope.discard("_")
    for expression in conditions:
        yield from _undefined(expression, scope)
    for name, expression in let:
        if name in scope:
            yield RuleError(f"{name!r} is defined twice", expression.where)
        yield from _undefined(expression, scope)
        scope.add(name)
    fresh: set[str] = set()
    for line in replace:
        yield from _new_line(line, roots, scope, fresh)
        fresh.update(line.outputs)
    yield from _uses(conditions, made)


def _pattern_line(line: Line, made: Collection[str]) -> Iterator[RuleError]:
    if line.alias or line.each or (line.op_variable and not line.ops):
        yield RuleError(f"{line.text!r}: 'each', '$f' and plain names belong to 'replace'", line.where)
    for out in line.outputs:
        if out != "_" and out in made:
            yield RuleError(f"{out!r} is defined twice", line.where)
    if len(line.operands) == 1 and line.operands[0].kind == "number":
        yield RuleError(f"{line.text!r}: a number can't be the only operand", line.where)


def _ambiguous(match: Sequence[Line]) -> Iterator[RuleError]:
    """A name of a value that an attribute or an operator is bound to as well: an example could not say which one it gives."""
    held = {n for line in match for n in (*line.outputs, *(o.name for o in line.operands))} - {"", "_"}
    for line in match:
        for name in (*line.variables, line.rest, line.op_variable):
            if name in held:
                yield RuleError(f"{line.text!r}: {name!r} is the name of a value", line.where)


def _new_line(
    line: Line, roots: Collection[str], scope: Collection[str], fresh: Collection[str]
) -> Iterator[RuleError]:
    known = {*scope, *fresh}
    needed = [o.name for o in line.operands if o.name] + [n for n in (line.rest, line.alias) if n and n != "_"]
    needed += [line.op_variable] if line.op_variable else []
    for name in needed:
        if name not in known:
            yield RuleError(f"{line.text!r}: {name!r} is not defined", line.where, nearest(name, known))
        if name in roots and name not in fresh:
            yield RuleError(f"{line.text!r}: reads {name!r} before it is redefined", line.where)
    for variable in line.variables:
        hint = f"write the name alone: {variable}"
        yield RuleError(f"{line.text!r}: '${variable}' binds, which only 'match' does", line.where, hint)
    for _, expression in line.attributes:
        yield from _undefined(expression, known)
    for out in line.outputs:
        if out in fresh or (out in scope and out not in roots):
            yield RuleError(f"{line.text!r}: {out!r} is defined already", line.where)


def _uses(conditions: Sequence[Expression], made: Collection[str]) -> Iterator[RuleError]:
    """``uses`` of an operand would change under edits that the site index does not see; only the pattern's own values."""
    for expression in conditions:
        if expression.calls & {"uses", "is_output"} and expression.names.isdisjoint(made):
            yield RuleError(
                f"{expression.text!r}: 'uses' and 'is_output' are for values that the pattern makes", expression.where
            )


def _undefined(expression: Expression, scope: Collection[str]) -> Iterator[RuleError]:
    for name in sorted(expression.names):
        if name not in scope:
            yield RuleError(f"{expression.text!r}: {name!r} is not defined", expression.where, nearest(name, scope))
