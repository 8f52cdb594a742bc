"""A rule's two sides as tensors of any size."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from graphopt.ir.types import DTYPE_NAMES, NUMPY_NAMES
from graphopt.prover.generic import moving, selecting, sliding, summing
from graphopt.prover.generic.elements import elementwise
from graphopt.prover.generic.facts import OpenError
from graphopt.prover.generic.language import from_data, symbolic
from graphopt.prover.generic.sizes import Int, atom, symbol, whole
from graphopt.prover.generic.tensors import (
    TENSOR_OPERATORS,
    Call,
    Index,
    Scope,
    Tensor,
    constant,
    constant_ints,
)
from graphopt.prover.generic.world import MISSING, Broken, Missing, Several, Size, World, inner
from graphopt.prover.semantics import OPERATORS, ContradictionError
from graphopt.rewrite.examples import Operand
from graphopt.rewrite.expr import Env, Unknown
from graphopt.rewrite.pattern import Line
from graphopt.rewrite.schema import Rule
from graphopt.rewrite.symbols import Symbol

_REGISTERED = (moving, selecting, sliding, summing)  # importing them registers their operators
_TRUTHS = frozenset({"Greater", "Less", "GreaterOrEqual", "LessOrEqual", "Equal", "And", "Or", "Xor", "Not"})
# Operands that are sizes: their content may be any that is of the same kind.
_SIZES = {("Reshape", 1): 1, ("Expand", 1): 1, ("Tile", 1): 1, ("Split", 1): 1, ("Slice", 1): 0, ("Slice", 2): 0,
          ("Pad", 1): 0, ("ConstantOfShape", 0): 1}  # fmt: skip


@dataclass(frozen=True)
class Given:
    """What of an example is kept as it is.

    Attributes:
        content: Whether integer constants keep their content.
        dims: Operands that keep their dimensions.
    """

    content: bool = False
    dims: frozenset[str] = frozenset()


def leaf(scope: Scope, rule: Rule, name: str, operand: Operand, key: int, given: Given) -> Tensor:
    """An operand of the rule's example with dimensions of any size.

    Names of the example stay names. Constants of listed content keep their dimensions and content, but for sizes.
    """
    listed = isinstance(operand.data, list)
    shape = []
    for axis, d in enumerate(operand.dims):
        if isinstance(d, str):
            scope.facts.named.add(atom("dim", d))
            shape.append(symbol("dim", d))
        else:
            keep = listed or name.rstrip("0123456789") in given.dims
            shape.append(whole(int(d or 0)) if keep else symbol("dim", f"{name}.{axis}"))
    made = _leaf(scope, rule, name, operand, tuple(shape), given)
    return Tensor(made.dtype, made.shape, made.at, operand.const, made.ints, made.fill, key)


def _leaf(scope: Scope, rule: Rule, name: str, operand: Operand, shape: tuple[Int, ...], given: Given) -> Tensor:
    data = operand.data
    if data is not None and not isinstance(data, list):
        return constant(scope, operand.dtype, shape, float(data))
    if data is not None:
        array = np.broadcast_to(
            np.array(data).astype(NUMPY_NAMES[operand.dtype]), [d for d in operand.dims if isinstance(d, int)]
        )
        if operand.dtype in ("i64", "i32"):
            least = None if given.content else _least(rule, name)
            ints = [_any(scope, f"{name}[{i}]", n, least) for i, n in enumerate(array.ravel().tolist())]
            return constant_ints(scope, ints, shape, operand.dtype)
        return from_data(scope, operand.dtype, array)

    scope.algebra.dtypes[name] = operand.dtype

    def at(index: Index) -> Any:
        place = tuple(scope.facts.norm(i) for i in index)
        if operand.dtype == "bool":
            return atom("truth", name, place)
        return scope.algebra.of(atom("x", name, place))

    return Tensor(operand.dtype, shape, at)


def _least(rule: Rule, name: str) -> int | None:
    """The least that may stand in an integer constant of sizes; ``None`` where it is something else as well."""
    found = set()
    for line in rule.match:
        for place, operand in enumerate(line.operands):
            if operand.name == name:
                found |= {_SIZES.get((op, place)) for _, op in line.ops}
    return found.pop() if len(found) == 1 else None


def _any(scope: Scope, name: str, value: int, least: int | None) -> Int:
    if least is None or value < 1 or value >= 2**31 - 1:
        return whole(value)
    return symbol("dim" if least else "count", name)


# Lines ---------------------------------------------------------------------------------------------------------------


def pattern(rule: Rule, world: World, names: dict[str, Any], keys: Mapping[str, Any]) -> None:
    """Add what the lines of the pattern compute to ``names``, operands before readers."""
    todo = list(rule.match)
    made = {o for line in rule.match for o in line.outputs}
    while todo:
        ready = [
            line for line in todo if all(not o.name or o.name in names or o.name not in made for o in line.operands)
        ]
        if not ready:
            raise OpenError("a pattern in a circle")
        for line in ready:
            todo.remove(line)
            try:
                _pattern_line(line, world, names, keys)
            except OpenError as error:
                for out in line.outputs:
                    if out != "_":
                        names[out] = Broken(
                            error, world.graph.type(keys[out].key).shape if out in keys else None, out in keys
                        )


def _pattern_line(line: Line, world: World, names: dict[str, Any], keys: Mapping[str, Any]) -> None:
    attributes = dict(names.get(line.rest) or {}) if line.rest and line.rest != "_" else {}
    for name, variable in line.captures:
        if names.get(variable) is not None:
            attributes[name] = names[variable]
    attributes.update(_attributes(line, world, names))
    for out, tensor in zip(line.outputs, _applied(line, world, names, attributes), strict=True):
        if out != "_":
            key = getattr(keys.get(out), "key", None)
            names[out] = replace(tensor, key=key)


def replacement(rule: Rule, world: World, before: Mapping[str, Any]) -> dict[str, Tensor]:
    """What the lines of the replacement make of the roots."""
    env = Env(world, dict(before))  # type: ignore[arg-type]
    names = {name: value for name, value in before.items() if name not in rule.roots}
    for name, expression in rule.let:
        names[name] = env.names[name] = _value(expression.text, env)
    for line in rule.replace:
        if line.alias:
            target = names[line.alias]
            if isinstance(target, Broken):
                raise target.error
            names[line.outputs[0]] = env.names[line.outputs[0]] = target
            continue
        attributes = dict(names[line.rest]) if line.rest else {}
        for name, value in _attributes(line, world, env.names).items():
            attributes[name] = value
        if line.each:
            many = [names[o.name] for o in line.operands if o.kind == "variadic"]
            rows = []
            for row in zip(*many, strict=True):
                items = iter(row)
                operands = [
                    next(items) if o.kind == "variadic" else t
                    for o in line.operands
                    for t in ([None] if o.kind == "variadic" else _operands(line, world, names, o))
                ]
                rows.append(_call(line, world, names, operands, attributes)[0])
            names[line.outputs[0]] = env.names[line.outputs[0]] = tuple(rows)
            continue
        for out, tensor in zip(line.outputs, _applied(line, world, names, attributes), strict=True):
            names[out] = env.names[out] = tensor
    return {root: names[root] for root in rule.roots}


def _value(text: str, env: Env) -> Any:
    try:
        return symbolic(text).run(env)
    except Unknown:
        raise OpenError(f"the replacement needs something unknown: {text}") from None


def _attributes(line: Line, world: World, names: Mapping[str, Any]) -> dict[str, Any]:
    env = Env(world, dict(names))  # type: ignore[arg-type]
    return {name: _plain(_value(expression.text, env)) for name, expression in line.attributes}


def _plain(value: Any) -> Any:
    if isinstance(value, Symbol | Several):
        raise OpenError("an attribute that needs a number")
    if isinstance(value, Size):
        return inner(value)
    return tuple(_plain(v) for v in value) if isinstance(value, tuple | list) else value


def _operands(line: Line, world: World, names: Mapping[str, Any], operand: Any) -> list[Tensor | None]:
    if operand.kind == "none":
        return [None]
    if operand.kind == "number":
        # The condition of a Where says nothing of the type of what is chosen.
        typed = line.operands[1:] if line.ops[0] == ("", "Where") else line.operands
        first = next((names[o.name] for o in typed if o.name), None)
        if first is None:
            raise OpenError("a number without a type")
        if isinstance(first, Broken):
            raise first.error
        first = first[0] if isinstance(first, tuple) else first
        return [constant(world.scope, first.dtype, (), operand.number)]
    bound = names[operand.name]
    if isinstance(bound, tuple):
        return list(bound)
    if isinstance(bound, Missing):
        return [None]
    if isinstance(bound, Broken):
        raise bound.error
    if not isinstance(bound, Tensor):
        raise OpenError(f"{operand.name} is a number, not a value")
    return [bound]


def _applied(line: Line, world: World, names: Mapping[str, Any], attributes: dict[str, Any]) -> list[Tensor]:
    return _call(line, world, names, [t for o in line.operands for t in _operands(line, world, names, o)], attributes)


def _call(
    line: Line, world: World, names: Mapping[str, Any], operands: list[Tensor | None], attributes: dict[str, Any]
) -> list[Tensor]:
    if line.op_variable and names.get(line.op_variable) is not None:
        domain, _, op = str(names[line.op_variable]).rpartition(".")
    else:
        domain, op = line.ops[0]
    attributes = {k: v for k, v in attributes.items() if v is not None}
    call = Call(op, operands, attributes, world.scope, len(line.outputs), domain)
    try:
        return apply(call)
    except (TypeError, ContradictionError, IndexError, KeyError, ValueError, AttributeError) as error:
        raise OpenError(f"{op}: {error}") from error


def apply(call: Call) -> list[Tensor]:
    """The results of an operator."""
    found = TENSOR_OPERATORS.get((call.domain, call.op))
    if found is not None:
        made = found(call)
        return made if isinstance(made, list) else [made]
    if (call.domain, call.op) not in OPERATORS:
        raise OpenError(f"{call.op} has no semantics here")
    if call.op in _TRUTHS:
        dtype = "bool"
    elif call.op == "Cast":
        dtype = DTYPE_NAMES[call.attributes["to"]]
    elif call.op in ("CastLike", "Where"):
        dtype = call.arg(1).dtype
    else:
        dtype = call.arg(0).dtype
    if call.op not in _ELEMENTWISE:
        raise OpenError(f"{call.op} has no semantics for any size")
    return [elementwise(call, dtype)]


_ELEMENTWISE = frozenset(
    {"Add", "Sub", "Mul", "Div", "Max", "Min", "Neg", "Abs", "Sign", "And", "Or", "Xor", "Not", "Greater", "Less",
     "GreaterOrEqual", "LessOrEqual", "Equal", "Pow", "Sum", "Mean", "Mod", "Exp", "Log", "Sqrt", "Erf", "Sin", "Cos", "Floor",
     "Ceil", "Round", "Tanh", "Sigmoid", "Reciprocal", "Relu", "LeakyRelu", "PRelu", "Elu", "Celu", "Selu", "ThresholdedRelu",
     "HardSigmoid", "HardSwish", "Clip", "Softplus", "Softsign", "Mish", "Swish", "QuickGelu", "Gelu", "FastGelu", "Where", "Cast",
     "CastLike"}
)  # fmt: skip

__all__ = ["MISSING", "Given", "leaf", "pattern", "replacement"]
