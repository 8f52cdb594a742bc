"""Is a rule's claim true at one instance, for every content of its operands?

The instance is first attacked on float64 numbers, then proved by the cheapest method that succeeds:

    terms   both sides do the same operations on the same operands: equal bit for bit
    field   both sides agree on random elements of a prime field: the same real function
    order   z3 finds no real numbers on which the sides differ; for small instances

A rule that claims ``exact`` needs terms, or order where both sides only select among their operands (no rounding takes
place). Integers are elements like floats, with the laws that hold modulo a power of two; those that say a shape or a
position are numbers, and an instance in which such numbers come from outside is not proved.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from functools import partial

import numpy as np

from graphopt.errors import install
from graphopt.ir.graph import Graph
from graphopt.ir.types import FLOATS, NUMPY_NAMES, Array
from graphopt.prover.attack import Counterexample
from graphopt.prover.cases import Instance, operands
from graphopt.prover.domains import Domain, Floats, RandomOrder, Terms, fresh
from graphopt.prover.evaluate import BEYOND, evaluate
from graphopt.prover.residues import PRIMES, Field
from graphopt.prover.semantics import ContradictionError, UnsupportedError
from graphopt.prover.values import uses
from graphopt.rewrite.schema import Rule

METHODS = ("terms", "field", "order")
UNDECIDED = "z3 did not decide in time"
OUTSIDE = "numbers that say shapes or positions come from outside"
_ROUNDING = 2e-5  # constants are float32, and let-expressions round to it
_ORDER_ELEMENTS = 400  # operands larger than this together are not given to z3
_ORDER_MILLISECONDS = 1500
_ORDERS = 12  # random orders, for each assignment of symbols and each prime, in which both sides have to agree
_FEW_ORDERS = 4  # where many instances are looked at
_COMPARED = 200  # results after which no further order is drawn
_TRUTHS = 6  # draws of truth values
# Integers that say positions, steps and sizes: of any sign, positions in a small tensor. A pattern may be defined for some only.
_INTEGERS = ((-4, 5), (0, 2), (1, 4))
# Operators that choose or move elements, or change signs, and so never round.
_SELECTING = frozenset(
    {"Relu", "Max", "Min", "Clip", "Abs", "Neg", "Where", "Identity", "Greater", "Less", "Equal", "Not", "And", "Or", "Sign",
     "GreaterOrEqual", "LessOrEqual", "MaxPool", "GlobalMaxPool", "ReduceMax", "ReduceMin", "Transpose", "Reshape", "Concat",
     "Slice", "Split", "Gather", "Squeeze", "Unsqueeze", "Flatten", "Expand", "Tile", "Pad", "Exp", "Sigmoid", "Tanh", "Softplus",
     "Erf", "Sqrt", "Floor", "Ceil", "Round", "Shape", "HardSigmoid", "Softmax", "Dropout"}
)  # fmt: skip


def judge(
    instance: Instance, rule: Rule, seed: int, use_order: bool = True, signs: tuple[int, ...] = (0, 1, -1)
) -> Counterexample | tuple[str, str]:
    """A counterexample, or the method that proved the instance and why a stronger one did not.

    ``floats`` means that nothing wrong was found; ``undefined`` that the pattern itself can't be computed, or there is
    nothing to compute; ``large`` that its sizes are beyond z3, which alone could prove it, or its integers beyond what is reckoned with.

    Args:
        instance: The instance.
        rule: Its rule.
        seed: Of the random elements.
        use_order: Whether to ask z3.
        signs: Of the float64 numbers: 1, -1, 0 for either.
    """
    if any(0 in o.dims for o in operands(instance.case)):
        return "undefined", ""  # shapes are all there is: the runtime says what becomes of them
    binds = _bindings(instance.before)
    try:
        computed = [_attack(instance, rule, seed + i, bind, signs) for i, bind in enumerate(binds)]
    except UnsupportedError as error:
        return "floats", str(error)
    wrong = next((c for c in computed if isinstance(c, Counterexample)), None)
    if wrong is not None:
        return wrong
    if not any(computed):
        return "undefined", ""
    if rule.claim == "approx":
        return "floats", "an approximation is attacked, not proved"
    given = {*instance.before.inputs, *instance.symbolic}
    if given & uses(instance.before, instance.after, only="shape").keys():
        return "floats", OUTSIDE
    # The same seeds as in the attack give the same truth values as inputs, for which the pattern is known to be defined.
    tried = [(seed + i, bind) for i, bind in enumerate(binds) if computed[i]]
    if any(instance.before.type(k).dtype == "bool" for k in given):
        tried += [(seed + i, tried[0][1]) for i in range(len(binds), len(binds) + _TRUTHS)]
    try:
        if all(_agree_in_any_order(instance, partial(Terms, n), bind) for n, bind in tried):
            return "terms", ""
        residues = [(partial(Field, n, i), bind) for n, bind in tried for i in range(len(PRIMES))]
        if rule.claim == "real" and all(_agree_in_any_order(instance, make, bind) for make, bind in residues):
            return "field", ""
        return _order(instance, rule, *tried[0]) if use_order else ("floats", UNDECIDED)
    except (UnsupportedError, ContradictionError) as error:
        return ("large", "") if str(error) == BEYOND else ("floats", str(error))


def agrees(instance: Instance, seed: int) -> bool | None:
    """Whether both sides of an instance are the same function, asked of one prime field alone.

    A fraction of the work of :func:`judge`, for what is looked at by the hundred before it is proved.

    Returns:
        ``None`` where the field says nothing: it is not defined there, or elements are compared and only z3 could tell.
    """
    types = [instance.before.type(k) for k in instance.before.inputs]
    if any(t.dtype not in FLOATS for t in types):
        return None
    for i, bind in enumerate(_bindings(instance.before)):
        try:
            told = _agree_in_any_order(instance, partial(Field, seed + i), bind, _FEW_ORDERS)
        except UnsupportedError:
            return None
        if not told:
            return told
    return True


def _bindings(graph: Graph) -> list[dict[str, int]]:
    """Sizes for the symbolic dimensions of a graph's inputs."""
    names = sorted({d for k in graph.inputs for d in graph.type(k).shape or () if isinstance(d, str)})
    if not names:
        return [{}, {}]
    different = {name: (3, 5, 2, 4)[i % 4] for i, name in enumerate(names)}
    return [different, dict.fromkeys(names, 1), dict.fromkeys(names, 2)]


def _elements(
    instance: Instance, domain: Domain, bind: Mapping[str, int], integers: tuple[int, int] = _INTEGERS[0]
) -> dict[int, Array]:
    """An element, or an integer between the given bounds, for every element of the inputs."""
    made: dict[int, Array] = {}
    whole = _whole(instance, domain)
    for key in instance.before.inputs:
        value = instance.before.values[key]
        shape = tuple(d if isinstance(d, int) else bind[str(d)] for d in value.type.shape or ())
        if value.type.dtype in FLOATS or key in whole:
            made[key] = fresh(domain, value.name, shape, str(value.type.dtype))
            continue
        rng = np.random.default_rng([domain.seed, len(value.name), *value.name.encode()])
        if value.type.dtype == "bool":
            made[key] = np.asarray(rng.integers(0, 2, shape)).astype(bool)
        else:
            kind = np.dtype(NUMPY_NAMES[value.type.dtype or "i64"])
            low, high = integers
            made[key] = np.asarray(rng.integers(max(low, 0) if kind.kind == "u" else low, high, shape)).astype(kind)
    return made


def _whole(instance: Instance, domain: Domain) -> frozenset[int]:
    """Integers that the domain computes with as elements: those that say no shape and no position."""
    if not isinstance(domain, RandomOrder):
        return frozenset()
    places = uses(instance.before, instance.after, only="shape")
    given = {*instance.before.inputs, *instance.symbolic} - places.keys()
    return frozenset(k for k in given if str(instance.before.type(k).dtype)[0] in "iu")


def _pattern(
    instance: Instance, domain: Domain, bind: Mapping[str, int]
) -> tuple[dict[int, Array], list[Array]] | None:
    """Inputs on which the pattern is defined, and its outputs; ``None`` when there are none to be found."""
    return next(_patterns(instance, domain, bind), None)


def _patterns(
    instance: Instance, domain: Domain, bind: Mapping[str, int]
) -> Iterator[tuple[dict[int, Array], list[Array]]]:
    types = [instance.before.type(k) for k in instance.before.inputs]
    whole = any(t.dtype not in FLOATS and t.dtype != "bool" for t in types)
    for integers in _INTEGERS if whole else _INTEGERS[:1]:
        inputs = _elements(instance, domain, bind, integers)
        with contextlib.suppress(ContradictionError):
            yield inputs, evaluate(instance.before, domain, inputs, instance.symbolic, _whole(instance, domain))


def _attack(
    instance: Instance, rule: Rule, seed: int, bind: Mapping[str, int], signs: tuple[int, ...]
) -> Counterexample | bool:
    """Both sides on random float64 numbers; whether they could be computed."""
    computed = False
    for sign in signs:
        domain = Floats(seed, sign, min(2.0, rule.domain or 2.0))
        with np.errstate(all="ignore"):
            for found in _patterns(instance, domain, bind):
                if rule.domain is not None and any(np.abs(a).max(initial=0) > rule.domain for a in found[0].values()):
                    continue
                wrong = _compare(instance, domain, bind, found, rule.bound if rule.claim == "approx" else _ROUNDING)
                if wrong is not None:
                    return wrong
                computed = True
    return computed


def _compare(
    instance: Instance,
    domain: Floats,
    bind: Mapping[str, int],
    found: tuple[dict[int, Array], list[Array]],
    tolerance: float,
) -> Counterexample | None:
    inputs, left = found
    named = {instance.before.values[k].name: a for k, a in inputs.items()}
    case = (*instance.shapes, *instance.attributes, *(f"{k} = {v}" for k, v in bind.items()))
    try:
        with np.errstate(all="ignore"):
            right = evaluate(instance.after, domain, inputs, instance.symbolic)
    except ContradictionError as error:
        return Counterexample(case, named, f"the replacement is undefined: {error}", instance.case)
    for (name, _), a, b in zip(instance.before.outputs, left, right, strict=True):
        message = _difference(name, a, b, tolerance)
        if message:
            return Counterexample(case, named, message, instance.case)
    return None


def _difference(name: str, a: Array, b: Array, tolerance: float) -> str:
    if a.shape != b.shape:
        return f"{name} has shape {a.shape}, the replacement's {b.shape}"
    if (a.dtype == np.float64) != (b.dtype == np.float64):
        return f"{name} holds {a.dtype}, the replacement's {b.dtype}"
    if a.dtype != np.float64:
        different = a != b
    else:
        finite = np.isfinite(a)
        # Not defined, or infinite: rules speak of real numbers, and of nothing that division by zero gives.
        scale = float(np.abs(a[finite]).max(initial=0.0))
        with np.errstate(all="ignore"):
            different = ~(np.abs(a - b) <= tolerance * max(scale, 1e-6)) & finite
    if not different.any():
        return ""
    at = tuple(int(i) for i in np.argwhere(different)[0])
    return f"{name}{list(at)} is {a[at]:.6g}, the replacement's {b[at]:.6g}"


def _agree_in_any_order(
    instance: Instance, make: Callable[[], Terms | Field], bind: Mapping[str, int], orders: int = _ORDERS
) -> bool | None:
    """Whether both sides agree, however the elements that they compare are ordered.

    ``None`` where they don't and another domain may know better: elements are compared, or the pattern is not defined.
    """
    compared = 0
    for draw in range(orders):
        domain = make()
        domain.reorder(draw)
        elements = _agree(instance, domain, bind)
        if not elements:
            return None if domain.ordered or elements is None else False
        compared += elements
        if not domain.ordered or (compared >= _COMPARED and draw > 2):
            break
    return True


def _agree(instance: Instance, domain: Domain, bind: Mapping[str, int]) -> int | None:
    """How many elements both sides agree on, at least one if there are none; 0 where they differ.

    ``None`` where the pattern is not defined.
    """
    found = _pattern(instance, domain, bind)
    if found is None:
        return None
    inputs, left = found
    try:
        right = evaluate(instance.after, domain, inputs, instance.symbolic, _whole(instance, domain))
    except ContradictionError:
        return 0
    same = all(a.dtype == b.dtype and _same(domain, a, b) for a, b in zip(left, right, strict=True))
    return max(1, sum(a.size for a in left)) if same else 0


def _same(domain: Domain, a: Array, b: Array) -> bool:
    return a.shape == b.shape and bool(np.all(domain.equal(a, b) if domain.holds(a) else a == b))


def _order(instance: Instance, rule: Rule, seed: int, bind: Mapping[str, int]) -> Counterexample | tuple[str, str]:
    if instance.elements > _ORDER_ELEMENTS:
        return "large", f"{instance.elements} elements are too many for z3"
    given = {*instance.before.inputs, *instance.symbolic}
    used = {node.op for graph in (instance.before, instance.after) for node in graph.nodes.values()}
    whole = any(str(instance.before.type(k).dtype)[0] in "iu" for k in given)
    if whole and not used <= _SELECTING - {"Neg", "Abs"}:
        return "floats", "integers are no real numbers: they wrap"
    if rule.claim == "exact" and not used <= _SELECTING:
        return "floats", f"rounding of {', '.join(sorted(used - _SELECTING))} is not modelled"
    try:
        from graphopt.prover.order import Order, refute
    except ImportError:
        return "floats", f"needs z3: {install('prove')}"
    domain = Order(seed)
    found = _pattern(instance, domain, bind)
    if found is None:
        return "floats", "the pattern is not defined for terms"
    inputs, left = found
    defined = list(domain.needs)
    right = evaluate(instance.after, domain, inputs, instance.symbolic)
    for a, b in zip(left, right, strict=True):
        if a.dtype != object or b.dtype != object:
            if a.dtype != b.dtype or not np.array_equal(a, b):
                return "floats", "z3 can't compare these"
            continue
        outcome, values = refute(domain, a, b, defined, domain.needs[len(defined) :], _ORDER_MILLISECONDS)
        if outcome == "differs":
            return _confirmed(instance, rule, bind, values)
        if outcome == "unknown":
            return "floats", UNDECIDED
    return "order", ""


def _confirmed(
    instance: Instance, rule: Rule, bind: Mapping[str, int], values: Mapping[str, float]
) -> Counterexample | tuple[str, str]:
    """Whether the sides really differ where z3, to which most functions mean nothing, says so."""

    class Given(Floats):
        def fresh(self, name: str, shape: tuple[int, ...]) -> Array:
            made = np.zeros(shape)
            for index in np.ndindex(*shape):
                made[index] = values.get(f"{name}[{','.join(map(str, index))}]", 0.0)
            return made

    domain = Given(0)
    with np.errstate(all="ignore"):
        found = _pattern(instance, domain, bind)
    wrong = None if found is None else _compare(instance, domain, bind, found, _ROUNDING)
    return wrong or ("floats", "z3 finds a difference for functions that are only like those of the rule")
