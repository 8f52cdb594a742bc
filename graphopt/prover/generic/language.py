"""The functions of the rule language where sizes are not known: conditions split cases, constants have any size."""

from __future__ import annotations

import ast
import math
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from graphopt.ir.types import FLOATS, NUMPY_NAMES
from graphopt.prover.generic.facts import OpenError
from graphopt.prover.generic.propositions import eq
from graphopt.prover.generic.sizes import Int, product, whole
from graphopt.prover.generic.tensors import Scope, Tensor, constant, constant_ints
from graphopt.prover.generic.terms import ONE, ZERO, Real
from graphopt.prover.generic.world import Broken, Missing, Several, Size, World, inner, outer
from graphopt.rewrite.expr import Env, Expression, Ref, Unknown, compile_expression
from graphopt.rewrite.functions import FUNCTIONS
from graphopt.rewrite.symbols import Symbol


def _world(env: Env) -> World:
    return env.graph  # type: ignore[return-value]


def _unknown(env: Env) -> Unknown:
    _world(env).raised = Unknown()
    return _world(env).raised or Unknown()


def _tensor(env: Env, x: Any) -> Tensor:
    if isinstance(x, Missing):
        raise _unknown(env)
    if isinstance(x, Broken):
        raise x.error
    if not isinstance(x, Tensor):
        raise OpenError("a function of tensors asked about something else")
    return x


def _broken(env: Env, x: Broken, i: int) -> Any:
    """A dimension of which the engine knows nothing, whatever the sizes of the operands."""
    if x.shape is None and x.known:
        raise _unknown(env)
    if x.shape is None or not -len(x.shape) <= i < len(x.shape) or isinstance(x.shape[i], int):
        raise x.error
    _world(env).sure = True
    return Symbol(None)


def _shape(env: Env, x: Any) -> tuple[Any, ...]:
    if isinstance(x, Broken) and x.shape is None and x.known:
        raise _unknown(env)
    if isinstance(x, Broken) and x.shape is not None:
        return tuple(_broken(env, x, i) for i in range(len(x.shape)))
    return tuple(outer(env, d) for d in _tensor(env, x).shape)


def _dim(env: Env, x: Any, i: int) -> Any:
    if isinstance(x, Broken):
        return _broken(env, x, i)
    dims = _tensor(env, x).shape
    if isinstance(i, Size):
        raise OpenError("a dimension at a place that is not known")
    if not -len(dims) <= i < len(dims):
        raise _unknown(env)
    return outer(env, dims[i])


def _size(env: Env, x: Any) -> Any:
    found = outer(env, product(_tensor(env, x).shape))
    if isinstance(found, Symbol):
        raise _unknown(env)
    return found


def _is_const(env: Env, *xs: Any) -> bool:
    return all(isinstance(x, Missing) or _tensor(env, x).const for x in xs)


def _values(env: Env, x: Any) -> tuple[Any, ...]:
    t = _tensor(env, x)
    if not t.const:
        raise _unknown(env)
    if t.ints is not None:
        return tuple(outer(env, i) for i in t.ints)
    count = product(t.shape).number
    if count is None:
        raise OpenError("the content of a constant of any size")
    if t.fill is not None:
        kind: Any = bool if t.dtype == "bool" else float if t.dtype in FLOATS else int
        return (kind(t.fill),) * count
    return tuple(_floats(t))


def _content(env: Env, x: Any) -> tuple[Any, ...]:
    t = _tensor(env, x)
    if t.ints is None:
        raise OpenError("an integer operand whose content is not known")
    return tuple(outer(env, i) for i in t.ints)


def _floats(t: Tensor) -> list[float]:
    """Content of a constant of floating-point numbers, as far as it is data."""
    dims = [d.number for d in t.shape]
    if None in dims:
        raise OpenError("the content of a constant of any size")
    found = []
    for place in np.ndindex(*[d for d in dims if d is not None]):
        item = t.at(tuple(whole(i) for i in place))
        if isinstance(item, bool):
            found.append(float(item))
            continue
        if item.number is None:
            raise OpenError("the content of a constant that stands for any")
        found.append(float(item.number))
    return found


def _value(env: Env, x: Any) -> Any:
    t = _tensor(env, x)
    if t.const and t.fill is not None and t.ints is None:
        one = _world(env).facts.decide(eq(product(t.shape), 1))
        kind: Any = bool if t.dtype == "bool" else float if t.dtype in FLOATS else int
        return kind(t.fill) if one else Several()
    if t.const and t.ints is None and product(t.shape).number is None:
        raise OpenError("the content of a constant of any size")
    items = _values(env, x)
    return items[0] if len(items) == 1 else items


def _extent(env: Env, x: Any) -> tuple[float, ...]:
    t = _tensor(env, x)
    if not t.const:
        raise _unknown(env)
    if t.fill is not None:
        return (float(t.fill),)
    if t.ints is not None:
        return tuple(float(n) for n in t.numbers)
    return tuple(_floats(t))


def _target(env: Env, x: Any, y: Any) -> tuple[Any, ...]:
    old, new = _shape(env, x), _shape(env, y)
    dims: list[Any] = []
    for i, d in enumerate(new):
        if isinstance(d, int):
            dims.append(d)
        else:
            same = i < len(old) and isinstance(old[i], Symbol) and old[i].name == d.name
            dims.append(0 if same else -1)
    left = sum(1 for d in dims if type(d) is int and d == -1)
    if left > 1 or (left and any(type(d) is int and d == 0 for d in dims)):
        raise _unknown(env)
    return tuple(dims)


def _i64(env: Env, items: Any) -> Tensor:
    scope = _world(env).scope
    many = items if isinstance(items, list | tuple) else (items,)
    for item in many:
        if isinstance(item, Symbol):
            raise _unknown(env)
        if isinstance(item, bool) or not isinstance(item, int):
            raise OpenError("an int64 constant of what is no number")
    shape = (whole(len(many)),) if isinstance(items, list | tuple) else ()
    return constant_ints(scope, [inner(i) for i in many], shape)


def _like(env: Env, x: Any, items: Any) -> Tensor:
    scope, dtype = _world(env).scope, _tensor(env, x).dtype
    if isinstance(items, list | tuple):
        if any(isinstance(i, list | tuple | Size | Symbol) for i in items):
            raise OpenError("a nested constant")
        return from_data(scope, dtype, np.array(items))
    if isinstance(items, Symbol):
        raise _unknown(env)
    if isinstance(items, Several):
        raise OpenError("a constant of the content of another")
    if isinstance(items, Size):
        return Tensor(dtype, (), lambda index: scope.algebra.size(items.p), True)
    return constant(scope, dtype, (), items)


def from_data(scope: Scope, dtype: str, data: np.ndarray[Any, Any]) -> Tensor:
    """A constant of known content."""
    shape = tuple(whole(n) for n in data.shape)
    flat = data.ravel().tolist()
    if dtype not in FLOATS and dtype != "bool":
        return constant_ints(scope, [whole(int(n)) for n in flat], shape, dtype)

    def at(index: Sequence[Int]) -> Any:
        position: Int = whole(0)
        for i, n in zip(index, shape, strict=True):
            position = position * n + i
        place = position.number
        if place is None:
            place = next((i for i in range(len(flat) - 1) if scope.facts.decide(eq(position, i))), len(flat) - 1)
        return bool(flat[place]) if dtype == "bool" else scope.algebra.const(float(flat[place]))

    fill = flat[0] if flat and all(v == flat[0] for v in flat) else None
    return Tensor(dtype, shape, at, True, None, fill)


def _full(env: Env, x: Any, dims: Sequence[Any], fill: Any) -> Tensor:
    if any(isinstance(d, Symbol) for d in dims) or isinstance(fill, Symbol):
        raise _unknown(env)
    if isinstance(fill, Size):
        raise OpenError("a constant of a size")
    return constant(_world(env).scope, _tensor(env, x).dtype, tuple(inner(d) for d in dims), fill)


def _eye(env: Env, x: Any, n: Any) -> Tensor:
    if isinstance(n, Symbol):
        raise _unknown(env)
    scope = _world(env).scope

    def at(index: Sequence[Int]) -> Real:
        return ONE if scope.facts.decide(eq(index[0], index[1])) else ZERO

    return Tensor(_tensor(env, x).dtype, (inner(n), inner(n)), at, True)


def _key(function: Callable[..., Any]) -> Callable[..., Any]:
    def run(env: Env, x: Any) -> Any:
        t = _tensor(env, x)
        if t.key is None:
            raise OpenError("readers of a value that is not in the example")
        return function(Env(_world(env).graph, {}, env.block), Ref(t.key))

    return run


def _surely(function: Callable[..., Any]) -> Callable[..., Any]:
    """What raises :class:`Unknown` of its own accord knows that the engine would."""

    def run(env: Env, *arguments: Any) -> Any:
        try:
            return function(env, *arguments)
        except Unknown as error:
            _world(env).raised = error
            raise

    return run


def _no_sizes(function: Callable[..., Any]) -> Callable[..., Any]:
    def run(env: Env, *arguments: Any) -> Any:
        if any(isinstance(a, Several) for a in arguments):
            raise _unknown(env)
        if any(isinstance(a, Size) for a in arguments):
            raise OpenError("a size where a number is needed")
        return function(env, *arguments)

    return run


_OWN: dict[str, Any] = {
    "shape": _shape, "rank": lambda env, x: _tensor(env, x).rank, "dim": _dim, "size": _size,
    "dtype": lambda env, x: _tensor(env, x).dtype, "is_float": lambda env, x: _tensor(env, x).dtype in FLOATS,
    "is_const": _is_const, "present": lambda env, x: not isinstance(x, Missing),
    "uses": _key(FUNCTIONS["uses"]), "is_output": _key(FUNCTIONS["is_output"]),
    "value": _value, "values": _values, "min_of": lambda env, x: min(_extent(env, x)), "max_of": lambda env, x: max(_extent(env, x)),
    "distinct": lambda env, x: tuple(sorted(set(_extent(env, x)))), "content": _content, "target": _target,
    "opset": lambda env: _world(env).scope.opset,
    "is_static": lambda env, x: not any(isinstance(d, Symbol) for d in _shape(env, x)),
    "i64": _i64, "like": _like, "full": _full, "eye": _eye,
    "lowest": lambda env, x: float(np.finfo(NUMPY_NAMES[_tensor(env, x).dtype]).min),
    "prod": lambda env, items: math.prod(items), "sum": lambda env, items: sum(items),
    "int": lambda env, x: x if isinstance(x, Size) else int(x),
    "range": _no_sizes(FUNCTIONS["range"]), "sqrt": _no_sizes(FUNCTIONS["sqrt"]), "close": _no_sizes(FUNCTIONS["close"]),
}  # fmt: skip
SYMBOLIC = {name: _surely(_OWN.get(name, function)) for name, function in FUNCTIONS.items()}
"""Every function of the rule language."""


def _item(env: Env, items: Any, i: Any) -> Any:
    """An item of a sequence, or what ``items[i]`` is for anything else."""
    if isinstance(i, Size):
        raise OpenError("an item at a place that is not known")
    try:
        return items[i]
    except (IndexError, TypeError, KeyError, ValueError):
        raise _unknown(env) from None


def _part(env: Env, items: Any, *bounds: Any) -> Any:
    """Part of a sequence. A size as a bound would be taken for what it is not."""
    if any(isinstance(b, Size) for b in bounds):
        raise OpenError("a part from a place that is not known")
    try:
        return items[slice(*bounds)]
    except (IndexError, TypeError, KeyError, ValueError):
        raise _unknown(env) from None


SYMBOLIC |= {"_item": _item, "_part": _part}


class _Subscripts(ast.NodeTransformer):
    """Subscripts as calls."""

    def visit_Subscript(self, node: ast.Subscript) -> ast.AST:
        self.generic_visit(node)
        if isinstance(node.slice, ast.Slice):
            bounds = [b or ast.Constant(None) for b in (node.slice.lower, node.slice.upper, node.slice.step)]
            return ast.Call(ast.Name("_part", ast.Load()), [node.value, *bounds], [])
        return ast.Call(ast.Name("_item", ast.Load()), [node.value, node.slice], [])


@lru_cache(maxsize=4096)
def symbolic(text: str) -> Expression:
    """An expression over sizes that are not known."""
    tree = _Subscripts().visit(ast.parse(text.strip(), mode="eval"))
    return compile_expression(ast.unparse(ast.fix_missing_locations(tree)), SYMBOLIC)


def holds(text: str, env: Env) -> bool:
    """Whether a condition holds in the case at hand.

    Raises:
        OpenError: It can't be told.
    """
    world = _world(env)
    world.sure = world.sized = False
    try:
        return symbolic(text).run(env) is True
    except Unknown as error:
        if error is world.raised or world.sure or not world.sized:
            return False
        raise OpenError(f"undecided: {text}") from None
