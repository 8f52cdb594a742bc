"""The names of a rule: what is read is defined, and nothing is defined twice."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

from graphopt.errors import RuleError, nearest
from graphopt.rewrite.expr import Expression
from graphopt.rewrite.pattern import Line


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
