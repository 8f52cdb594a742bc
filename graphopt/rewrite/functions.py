"""The functions of the rule language. Each is pure and raises :class:`Unknown` when the graph does not say."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import numpy as np

from graphopt.ir.constants import known_content, readable_array, small_array
from graphopt.ir.graph import Node
from graphopt.ir.memo import Memo
from graphopt.ir.types import FLOATS, NUMPY_NAMES, ValueType
from graphopt.rewrite.expr import Env, Function, Ref
from graphopt.rewrite.symbols import ITEMS, Symbol, TooLargeError, Unknown, bounded, equal, leaves

T = TypeVar("T")

_Slot = tuple[int, int | None]
"""Under what something is remembered of a constant: its graph's origin, its key."""
_extremes: Memo[_Slot, tuple[float, float] | None] = Memo()
_margins: Memo[tuple[int, int | None, int, int], float | None] = Memo()
_distinct: Memo[_Slot, tuple[float, ...] | None] = Memo()
_rises: Memo[_Slot, int | None] = Memo()


def _type(env: Env, x: Ref) -> ValueType:
    if x.key is None:
        raise Unknown
    return env.graph.type(x.key)


def shape(env: Env, x: Ref) -> tuple[Any, ...]:
    """Dimensions of x: numbers and symbols."""
    dims = _type(env, x).shape
    if dims is None:
        raise Unknown
    return tuple([d if isinstance(d, int) else Symbol(d) for d in dims])


def rank(env: Env, x: Ref) -> int:
    """Number of dimensions of x."""
    dims = _type(env, x).shape
    if dims is None:
        raise Unknown
    return len(dims)


def dim(env: Env, x: Ref, i: int) -> Any:
    """Dimension i of x."""
    dims = _type(env, x).shape
    if dims is None:
        raise Unknown
    found = dims[i]
    return found if isinstance(found, int) else Symbol(found)


def size(env: Env, x: Ref) -> int:
    """Number of elements of x."""
    n = _type(env, x).elements
    if n is None:
        raise Unknown
    return n


def dtype(env: Env, x: Ref) -> str:
    """Element type of x, ``"f32"``."""
    name = _type(env, x).dtype
    if name is None:
        raise Unknown
    return name


def is_float(env: Env, x: Ref) -> bool:
    """Whether x holds floating-point numbers."""
    return dtype(env, x) in FLOATS


def is_const(env: Env, *xs: Ref) -> bool:
    """Whether all of xs are known before the model runs."""
    for x in xs:  # noqa: SIM110 - all() of a generator takes twice as long, and this is asked most
        if not env.graph.is_const(x.key):
            return False
    return True


def present(env: Env, x: Ref) -> bool:
    """Whether an optional operand is given."""
    return x.key is not None


def uses(env: Env, x: Ref) -> int:
    """How many nodes and graph outputs read x."""
    if x.key is None:
        raise Unknown
    return len(env.graph.users[x.key]) + sum(1 for _, k in env.graph.outputs if k == x.key)


def is_output(env: Env, x: Ref) -> bool:
    """Whether x is an output of the graph."""
    return x.key in env.graph.output_keys


def normalised(env: Env, x: Ref) -> bool:
    """Whether x is something over a root, which a normalisation that is spelled out makes, or that times a gain.

    The runtime has one kernel for all of it if a gain, and a shift where a mean was taken out, follow: be they ones and zeros.
    """
    node = _made_by(env, x.key)
    if node is None or node.op not in ("Div", "Mul"):
        return False
    if _over_root(env, node):
        return True
    return node.op == "Mul" and any(_over_root(env, _made_by(env, key)) for key in node.inputs)


def _over_root(env: Env, node: Node | None) -> bool:
    """Whether a node divides by a root, or multiplies by the reciprocal of one."""
    if node is None or node.op not in ("Div", "Mul"):
        return False
    for key in node.inputs[1:] if node.op == "Div" else node.inputs:
        by = _made_by(env, key)
        if node.op == "Mul":
            by = None if by is None or by.op != "Reciprocal" else _made_by(env, by.inputs[0])
        if by is not None and by.op == "Sqrt":
            return True
    return False


def _made_by(env: Env, key: int | None) -> Node | None:
    """The node of ONNX's own that computes a value, as far as rules may look."""
    node = None if key is None else env.graph.producer(key)
    return None if node is None or node.domain or node.opaque else node


def value(env: Env, x: Ref) -> Any:
    """Content of a small constant: a number when it has one element, else a tuple of all of them, flat."""
    array = small_array(env.graph, x.key)
    if array is None:
        raise Unknown
    items = array.ravel().tolist()
    return items[0] if len(items) == 1 else tuple(items)


def values(env: Env, x: Ref) -> tuple[Any, ...]:
    """Content of a small constant as a flat tuple, also when it has one element."""
    array = small_array(env.graph, x.key)
    if array is None:
        raise Unknown
    return tuple(array.ravel().tolist())


def content(env: Env, x: Ref) -> tuple[Any, ...]:
    """Elements of a small integer tensor, flat, as far as they are known before the model runs: numbers and symbols."""
    found = known_content(env.graph, x.key)
    if found is None:
        raise Unknown
    return tuple(d if isinstance(d, int) else Symbol(d) for d in found)


def target(env: Env, x: Ref, y: Ref) -> tuple[int, ...]:
    """What a Reshape of x to the shape of y is told: numbers, 0 to copy a dimension of x, or -1 for one that is left over."""
    old, new = _type(env, x).shape, _type(env, y).shape
    if old is None or new is None:
        raise Unknown
    dims = [
        d if isinstance(d, int) and d > 0 else 0 if d is not None and i < len(old) and d == old[i] else -1
        for i, d in enumerate(new)
    ]
    # What is left over can't be told when a dimension that is copied is 0.
    if dims.count(-1) > 1 or (-1 in dims and 0 in dims):
        raise Unknown
    return tuple(dims)


def _array(env: Env, x: Ref) -> np.ndarray[Any, Any]:
    array = None if x.key is None else readable_array(env.graph, x.key)
    if array is None:
        raise Unknown
    return array


def _learnt(memo: Memo[_Slot, T | None], env: Env, x: Ref, read: Callable[[np.ndarray[Any, Any]], T | None]) -> T:
    """What is read off a constant, once; :class:`Unknown` where that is nothing."""
    at = (env.graph.origin, x.key)
    if at not in memo:
        memo[at] = read(_array(env, x))
    found = memo[at]
    if found is None:
        raise Unknown
    return found


def _extreme(env: Env, x: Ref) -> tuple[float, float]:
    return _learnt(_extremes, env, x, lambda a: (float(a.min()), float(a.max())) if a.size else None)


def min_of(env: Env, x: Ref) -> float:
    """Smallest element of a constant."""
    return _extreme(env, x)[0]


def max_of(env: Env, x: Ref) -> float:
    """Largest element of a constant."""
    return _extreme(env, x)[1]


def margin(env: Env, x: Ref, rows: int, columns: int) -> float:
    """How much less a constant mask adds, in each of its first ``rows`` rows, from a column on than to what that row sees best before it.

    Rows and columns are the last two axes. Where nothing is seen at all (minus infinity everywhere) it is minus infinity.
    """
    at = (env.graph.origin, x.key, rows, columns)
    if at not in _margins:
        _margins[at] = _margin(_array(env, x), rows, columns)
    if (found := _margins[at]) is None:
        raise Unknown
    return found


def _margin(mask: np.ndarray[Any, Any], rows: int, columns: int) -> float | None:
    if mask.ndim < 2 or mask.dtype.kind != "f" or not (0 < rows <= mask.shape[-2] and 0 < columns < mask.shape[-1]):
        return None
    seen, hidden = (part.max(-1).astype(np.float64) for part in np.split(mask[..., :rows, :], [columns], -1))
    blind = np.isneginf(seen)
    with np.errstate(invalid="ignore"):  # what is no number is no margin
        return -math.inf if blind.any() else float((seen - hidden).min())


def _few(array: np.ndarray[Any, Any]) -> tuple[float, ...] | None:
    found = np.unique(array)
    return tuple(found.tolist()) if found.size <= 16 else None


def distinct(env: Env, x: Ref) -> tuple[float, ...]:
    """The different elements of a constant in ascending order; undecided when there are more than 16."""
    return _learnt(_distinct, env, x, _few)


def _start(array: np.ndarray[Any, Any]) -> int | None:
    flat = array.ravel()
    rises = flat.size > 0 and flat.dtype.kind == "i" and bool((flat == flat[0] + np.arange(flat.size)).all())
    return int(flat[0]) if rises else None


def rises_from(env: Env, x: Ref) -> int:
    """First element of an integer constant whose elements rise by one in their order; undecided for any other content."""
    return _learnt(_rises, env, x, _start)


def opset(env: Env) -> int:
    """Version of ONNX's operator set in this model."""
    return env.graph.opset


def block(env: Env) -> int:
    """Channels in a block of the target's fast convolution layout (16 with AVX-512, 8 with AVX2)."""
    return env.block


def samples(env: Env) -> int:
    """How many samples the model takes at once, at most: the largest first dimension of its inputs, or of what a body reads; undecided if one is open."""
    shapes = [env.graph.type(key).shape for key in env.graph.inputs]
    firsts = [shape[0] if shape else None for shape in shapes if shape != ()]
    if not all(isinstance(first, int) for first in firsts):
        raise Unknown
    return max((first for first in firsts if isinstance(first, int)), default=1)


def axis(env: Env, a: int, r: int) -> int:
    """Axis a of a tensor of rank r, counted from the front."""
    if not -r <= a < r:
        raise Unknown
    return a % r


def axes(env: Env, many: Sequence[int], r: int) -> tuple[int, ...]:
    """Axes counted from the front, sorted."""
    return tuple(sorted(axis(env, a, r) for a in many))


def broadcast(env: Env, a: Sequence[Any], b: Sequence[Any]) -> tuple[Any, ...]:
    """The shape that shapes a and b broadcast to."""
    n = max(len(a), len(b))
    out: list[Any] = []
    for x, y in zip((1,) * (n - len(a)) + tuple(a), (1,) * (n - len(b)) + tuple(b), strict=True):
        if x == 1:
            out.append(y)
        elif y == 1 or equal(x, y):
            out.append(x)
        else:
            raise Unknown
    return tuple(out)


def broadcasts_to(env: Env, a: Sequence[Any], target: Sequence[Any]) -> bool:
    """Whether a tensor of shape a, broadcast against one of shape target, leaves the target's shape as it is."""
    if len(a) > len(target):
        return False
    tail = target[len(target) - len(a) :]
    return all(x == 1 or equal(x, y) for x, y in zip(a, tail, strict=True))


def permute(env: Env, items: Sequence[Any], perm: Sequence[int]) -> tuple[Any, ...]:
    """Items in the order of a transposition."""
    if sorted(perm) != list(range(len(items))):
        raise Unknown
    return tuple(items[p] for p in perm)


def invert(env: Env, perm: Sequence[int]) -> tuple[int, ...]:
    """The permutation that undoes perm."""
    return tuple(perm.index(i) for i in range(len(perm)))


def close(env: Env, a: float, b: float, tolerance: float = 1e-5) -> bool:
    """Whether two numbers agree up to a relative tolerance."""
    return math.isclose(float(a), float(b), rel_tol=tolerance, abs_tol=0.0 if b else tolerance)


def is_int(env: Env, *xs: Any) -> bool:
    """Whether all of xs are known numbers without a fraction (a symbol is not)."""
    return all(isinstance(x, int) and not isinstance(x, bool) for x in xs)


def is_static(env: Env, x: Ref) -> bool:
    """Whether every dimension of x is a number."""
    return _type(env, x).static


# Constants that ``let`` can make -----------------------------------------------------------------------------------


def i64(env: Env, items: Any) -> np.ndarray[Any, Any]:
    """An int64 constant: 0-d from a number, 1-d from a sequence."""
    leaves(items)
    array = np.array(items)
    if array.size and array.dtype.kind not in "iu":
        raise Unknown
    return array.astype(np.int64)


def like(env: Env, x: Ref, items: Any) -> np.ndarray[Any, Any]:
    """A constant of x's element type: 0-d from a number, otherwise of the nesting's shape."""
    name = NUMPY_NAMES.get(dtype(env, x))
    if name is None:
        raise Unknown
    leaves(items)
    with np.errstate(over="ignore"):
        array = np.array(items)
        if array.dtype.kind not in "biuf":  # an attribute that a node does not have
            raise Unknown
        return array.astype(np.float64 if name.startswith("float") else array.dtype).astype(name)


def eye(env: Env, x: Ref, n: int) -> np.ndarray[Any, Any]:
    """The n-by-n unit matrix in x's element type. For small n only."""
    if n * n > ITEMS:
        raise TooLargeError(f"a constant of more than {ITEMS} elements")
    return like(env, x, np.eye(n).tolist())


def full(env: Env, x: Ref, dims: Sequence[int], fill: float) -> np.ndarray[Any, Any]:
    """A constant of x's element type and the given shape, filled with one number. For small shapes only."""
    if _product(dims) > ITEMS:
        raise TooLargeError(f"a constant of more than {ITEMS} elements")
    return np.full(tuple(dims), fill).astype(NUMPY_NAMES[dtype(env, x)])


def lowest(env: Env, x: Ref) -> float:
    """The most negative finite number of x's element type."""
    return float(np.finfo(NUMPY_NAMES[dtype(env, x)]).min)


def cosine(part: int, whole: int) -> float:
    """The cosine of a part of a turn; exactly 0, 1/2, 1 and their negatives where it is. The sine is that of a quarter less."""
    eighth, rest = divmod(8 * (part % whole), whole)  # the turn's eighth that the angle is in, and how far into it
    if eighth % 2:
        rest = whole - rest
    angle = math.tau * rest / (8 * whole)
    turned = eighth in (1, 2, 5, 6)
    size = (0.5 if 3 * rest == 2 * whole else math.sin(angle)) if turned else math.cos(angle)
    return 0.0 - size if 2 <= eighth < 6 else size


def _plain(function: Any) -> Function:
    def run(env: Env, *arguments: Any) -> Any:
        if any(isinstance(a, Symbol) for a in arguments):
            raise Unknown
        for a in arguments:
            if isinstance(a, tuple) and any(isinstance(i, Symbol) for i in a) and function is not len:
                raise Unknown
        return bounded(function(*arguments))

    run.__doc__ = function.__doc__
    return run


def _product(items: Sequence[Any]) -> Any:
    """The product of some numbers."""
    made: Any = 1
    for item in items:
        made = bounded(made * item)
    return made


def _range(env: Env, *bounds: int) -> tuple[int, ...]:
    """Whole numbers, as Python's range."""
    if any(isinstance(b, Symbol) for b in bounds):
        raise Unknown
    if any(isinstance(b, int) and b.bit_length() > 62 for b in bounds):
        raise TooLargeError(f"a range of more than {ITEMS} items")
    made = range(*bounds)
    if len(made) > ITEMS:
        raise TooLargeError(f"a range of more than {ITEMS} items")
    env.spend(len(made))
    return tuple(made)


def _find(items: Sequence[Any], item: Any) -> int:
    """The first place of an item, or behind the last. :class:`Unknown` where symbols may be it."""
    return next((i for i, one in enumerate(items) if equal(one, item)), len(items))


FUNCTIONS: dict[str, Function] = {
    f.__name__: f
    for f in (
        shape, rank, dim, size, dtype, is_float, is_const, present, uses, is_output, normalised, value, values, min_of, max_of,
        distinct, rises_from, margin, content, target, opset, block, samples, axis, axes, broadcast, broadcasts_to, permute, invert, close, is_int, is_static,
        i64, like, eye, full, lowest,
    )
} | {
    "len": _plain(len), "min": _plain(min), "max": _plain(max), "sum": _plain(sum), "abs": _plain(abs), "int": _plain(int),
    "prod": _plain(_product), "sqrt": _plain(math.sqrt), "cosine": _plain(cosine), "range": _range,
    "sorted": _plain(lambda a: tuple(sorted(a))), "reversed": lambda env, a: tuple(reversed(a)),
    "all": _plain(all), "any": _plain(any), "zip": lambda env, *a: tuple(zip(*a, strict=True)),
    "enumerate": lambda env, a: tuple(enumerate(a)),
    "find": lambda env, items, item: _find(items, item),
}  # fmt: skip
"""Every function by name."""
