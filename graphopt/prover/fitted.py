"""What the description of one operator couples, and no change of a part alone meets.

A recurrent network that runs both ways has twice the weights and twice the activations, and states of its width to begin with; a Slice that goes backwards begins at the end;
an activation that has numbers comes with them, past keys with past values;
an axis had another meaning in an older operator set, which shows where that axis has a single element and the ones behind it have more.
"""

from __future__ import annotations

import itertools
import string
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from graphopt.ir import ops
from graphopt.ir.types import FLOATS
from graphopt.prover.attributes import attribute_of, axes_in, operator_of, opset_of, orders_in, told
from graphopt.prover.cases import Case, operands, places, put, size_of
from graphopt.prover.contents import reshaped, squared
from graphopt.prover.schemas import ACTIVATIONS, attributes_of, readers
from graphopt.prover.variation import Variation
from graphopt.rewrite.examples import Operand
from graphopt.rewrite.pattern import Line

_RECURRENT = frozenset({"RNN", "GRU", "LSTM"})
_BY_DIRECTION = (1, 2, 3, 5, 6, 7)
"""Operands of a recurrent network whose first dimension counts its directions: weights, biases, states and peepholes, not lengths."""
_ITEMS = ("activations", "activation_alpha", "activation_beta")
COERCED = frozenset({"Softmax", "LogSoftmax", "Hardmax"})
"""Operators that took an image of two dimensions once: what stood from the axis on was one."""
_NORMALISED = frozenset({"LayerNormalization", "RMSNormalization"})
_NUMBERED = (("LeakyRelu", [0.3]), ("HardSigmoid", [0.3, 0.4]), ("Clip", [-0.5, 0.5]))
"""Activations of fused operators that have numbers, with them."""
_CACHED = {"Attention": 4, "MultiHeadAttention": 6, "GroupQueryAttention": 3}
"""Where operators of attention take past keys; past values come next."""
_SIZES = 6
"""Sizes of an example of which two are tried together, at most."""
_PAST = 2
"""Keys and values in a cache."""
_ALIKE = 2
"""Size of all dimensions where parts are joined or cut."""
_JOINED = 3
"""Dimensions of what is joined, and axes that attributes name, of which all are tried together, at most."""
_BEGIN, _END = (0, 1, _ALIKE, -1), (1, _ALIKE, 3, 4, 2**31 - 1, -1)
_LETTERED = 6  # letters of the operands of an Einsum that are changed
_SPELT = 256
"""Equations that are tried for one Einsum; of two matrices there are no more."""
_ALL = 2**63 - 1
_STEPS = ((-1, -_ALL, -1), (_ALL, -_ALL, -1), (-2, -_ALL, -1), (0, _ALL, 2), (1, _ALL, 2), (-1, -_ALL, -2))
"""Where a Slice begins and ends, and its step."""


def fitted(vary: Variation, case: Case) -> Iterator[Case]:
    """The cases that differ from one in what an operator couples.

    Args:
        vary: Ways to change a case of the rule.
        case: An example that the rule accepts.
    """
    for line in vary.rule.match:
        op = operator_of(case, line)[1]
        if op in _RECURRENT:
            yield from _both_ways(case, line)
            yield from _started(case, line)
        if op == "Slice":
            yield from _stepped(case, line)
            yield from _cut(vary, case, line)
        if op == "Concat":
            yield from _joined(vary, case, line)
        if op == "Einsum":
            yield from _spelt(vary, case, line)
        if op in _CACHED:
            yield from _remembered(case, line, op)
            yield from _biased(case, line)
        yield from _activated(case, line)
    yield from _along(vary, case)
    yield from _lower(vary, case)


def _cut(vary: Variation, case: Case, line: Line) -> Iterator[Case]:
    """A Slice of what was computed, from everywhere to everywhere, along every axis if there are others: what it was made of ends in between."""
    names = [operand.name for operand in line.operands]
    if len(names) < 4 or names[0] in vary.rule.leaves:
        return
    slices = [other for other in vary.rule.match if operator_of(case, other)[1] == "Slice" and len(other.operands) > 3]
    over = [other.operands[3].name for other in slices]
    given = [case.get(name) for name in (*names[1:3], *over)]
    if not all(isinstance(o, Operand) and isinstance(o.data, list) and len(o.data) == 1 for o in given):
        return
    alike = squared(case, _ALIKE)
    axes = axes_in(vary.rule, case)
    for axis in range(max((len(o.dims) for o in operands(case) if o.data is None), default=0)):
        made = {**alike, **dict.fromkeys(axes, axis)}
        made |= {name: replace(case[name], data=[axis]) for name in over}
        for ends in itertools.product(_BEGIN, _END):
            yield made | {name: replace(case[name], data=[end]) for name, end in zip(names[1:3], ends, strict=True)}


def _joined(vary: Variation, case: Case, line: Line) -> Iterator[Case]:
    """Along every axis, an operand that is joined with what was computed, as large as it may have to be to fit there."""
    alike = squared(case, _ALIKE)
    read = {operand.name for operand in line.operands}
    own = [(place, o) for place, o in places(alike) if place[0] in read and o.data is None and len(o.dims) <= _JOINED]
    if not own or read <= set(vary.rule.leaves):
        return
    rank = max(len(o.dims) for _, o in own)
    axes = sorted(set(axes_in(vary.rule, case)))
    for place, operand in own:
        sizes = itertools.product((_ALIKE, 2 * _ALIKE, 1), repeat=len(operand.dims))
        for dims, along in itertools.product(sizes, itertools.product(range(rank), repeat=min(len(axes), _JOINED))):
            yield put({**alike, **dict(zip(axes, along, strict=False))}, place, reshaped(operand, dims))


# -- recurrent networks -------------------------------------------------------------------------------------------


def _both_ways(case: Case, line: Line) -> Iterator[Case]:
    """A network that runs forwards runs both ways, with other activations and numbers on the way back."""
    both: dict[str, Any] = {"direction": "bidirectional"}
    if attribute_of(case, line, "direction") == "bidirectional" or told(case, line, both) is None:
        return
    known = {a: attribute_of(case, line, a) for a in _ITEMS}
    lists = {a: items for a, items in known.items() if isinstance(items, list) and items}
    made = case
    for position, operand in enumerate(line.operands):
        given = case.get(operand.name)
        if position in _BY_DIRECTION and isinstance(given, Operand) and given.dims:
            made = put(made, (operand.name, None), reshaped(given, (2, *given.dims[1:])))
    alike = told(made, line, both | {a: [*items, *items] for a, items in lists.items()}) or made
    yield alike
    yield from (put(alike, place, _unlike(operand)) for place, operand in places(alike) if operand.const)
    for name, items in lists.items():
        for i, item in enumerate(items):
            others = [w for w in ACTIVATIONS if w != item] if isinstance(item, str) else [item + 1.5]
            for other in others:
                back = {a: [*some, *some] for a, some in lists.items()}
                back[name][len(items) + i] = other
                yield told(made, line, both | back) or made


def _started(case: Case, line: Line) -> Iterator[Case]:
    """Sequences of one step or of all, and states to begin with, each alone: an example may have neither."""
    given: list[Any] = [case.get(operand.name) for operand in line.operands]
    x, weights = (given[0], given[2]) if len(given) > 2 else (None, None)
    if not isinstance(x, Operand) or not isinstance(weights, Operand) or not len(x.dims) == len(weights.dims) == 3:
        return
    state = Operand(x.dtype, (weights.dims[0], x.dims[1], weights.dims[2]))
    counted = all(isinstance(d, int) for d in x.dims[:2])
    lengths = [Operand("i32", (x.dims[1],), True, n) for n in (x.dims[0], 1) if counted and isinstance(n, int)]
    # The longest has all the steps, and another has not.
    lengths += [replace(o, data=[*[o.data] * (size_of(o) - 1), 1]) for o in lengths[:1] if size_of(o) > 1]
    for position, operand in enumerate(line.operands[4:7]):
        if operand.kind == "optional":
            yield from ({**case, operand.name: other} for other in ([state] if position else lengths))


# -- fused operators ----------------------------------------------------------------------------------------------


def _activated(case: Case, line: Line) -> Iterator[Case]:
    """An activation that the runtime took into an operator has numbers: in a list, or each an attribute."""
    known = attributes_of(*operator_of(case, line), opset_of(case))
    for word, numbers in _NUMBERED if "activation" in known else ():
        apart = dict(zip(("activation_alpha", "activation_beta"), numbers, strict=False))
        said: dict[str, Any] = {"activation_params": numbers} if "activation_params" in known else apart
        made = told(case, line, {"activation": word} | said)
        if made is not None:
            yield made


def _remembered(case: Case, line: Line, op: str) -> Iterator[Case]:
    """Past keys and values, which come together, as wide as the new ones; and the lengths that count them."""
    first = _CACHED[op]
    names = [operand.name for operand in line.operands]
    keys = next((case[n] for n in names[1:3] if isinstance(case.get(n), Operand)), None)
    past = [o.name for o in line.operands[first : first + 2] if o.kind == "optional"]
    if keys is None or len(past) < 2 or len(keys.dims) not in (3, 4) or not all(isinstance(d, int) for d in keys.dims):
        return
    heads = attribute_of(case, line, "kv_num_heads") or attribute_of(case, line, "num_heads") or 1
    dims: Any = keys.dims
    batch, new = dims[0], dims[-2]
    rest = (dims[1], _PAST, dims[3]) if len(dims) == 4 else (heads, _PAST, dims[2] // heads)
    made = case | dict.fromkeys(past, Operand(keys.dtype, (batch, *rest)))
    # GroupQueryAttention is told the place of the last key, and how many there are.
    for position, count in ((first + 2, _PAST + new - 1), (first + 3, _PAST + new)) if op.startswith("Group") else ():
        counted = made.get(names[position]) if position < len(names) else None
        if isinstance(counted, Operand) and counted.const:
            made = put(made, (names[position], None), replace(counted, data=[count] * batch if counted.dims else count))
    yield made


def _biased(case: Case, line: Line) -> Iterator[Case]:
    """A bias of the scores where the example has none: no other operand need have its shape, of queries by keys."""
    bias = line.operands[ops.SCORE_BIAS.get(operator_of(case, line), len(line.operands)) :][:1]
    floats = [o for o in operands(case) if o.dtype in FLOATS]
    if not bias or bias[0].kind != "optional" or bias[0].name in case or not floats:
        return
    sizes = list(dict.fromkeys(d for o in floats for d in o.dims))[:_SIZES]
    for dims in itertools.product(sizes, repeat=2):
        yield {**case, bias[0].name: Operand(floats[0].dtype, (1, 1, *dims))}


# -- slices -------------------------------------------------------------------------------------------------------


def _stepped(case: Case, line: Line) -> Iterator[Case]:
    """Backwards, and every other element: along each axis, and along the first two together."""
    names = [operand.name if operand.kind in ("value", "optional") else None for operand in line.operands]
    start, end, over, step = [*names[1:5], *[None] * 5][:4]
    rank = max((len(o.dims) for o in operands(case)), default=0)
    if start is None or end is None or not all(isinstance(case.get(n), Operand) for n in (start, end)):
        return  # computed by the pattern
    axes = [[a] for a in range(-rank, rank)] + [[0, 1]] * (rank > 1) if over is not None else [[0]]
    for (first, last, by), along, base in itertools.product(_STEPS, axes, (case, squared(case, 3))):
        if step is None and by != 1:
            continue
        lists = {start: [first] * len(along), end: [last] * len(along), over: along, step: [by] * len(along)}
        yield _with_lists(base, case[start], lists)
    if over is not None and rank > 1:
        # Two axes out of order, with an end each: a rule that sorts the axes gives each the other's.
        for base in (case, squared(case, 3)):
            yield _with_lists(base, case[start], {start: [0, 1], end: [1, 3], over: [1, 0], step: [1, 1]})
        # One goes backwards and keeps its length, another is cut: what is as long as before is not what it was.
        for along in ([0, 1], [1, 0]) if step is not None else ():
            yield _with_lists(case, case[start], {start: [-1, 0], end: [-_ALL, 1], over: along, step: [-1, 1]})


def _with_lists(case: Case, like: Operand, lists: Mapping[str | None, list[int]]) -> Case:
    """A case with other constant lists; one that it does not have yet is of the type of another."""
    for name, items in lists.items():
        if name is not None:
            given = case[name] if isinstance(case.get(name), Operand) else like
            case = {**case, name: replace(given, const=True, dims=(len(items),), data=items)}
    return case


# -- axes ---------------------------------------------------------------------------------------------------------


def _spelt(vary: Variation, case: Case, line: Line) -> Iterator[Case]:
    """An Einsum with other letters in the places of its own, of one size all: which of them are alike says what it sums."""
    text = attribute_of(case, line, "equation")
    if not isinstance(text, str):
        return
    for other in _exchanged(text):
        made = told(squared(case, 3), line, {"equation": other})
        yield from (made,) if made is not None else ()
    if not set(text) <= {*string.ascii_letters, *",->"}:
        return
    terms, arrow, result = text.partition("->")
    equations = []
    places = sum(c != "," for c in terms)
    for letters in itertools.product("ijkl", repeat=places) if places <= _LETTERED else ():
        taken = iter(letters)
        spelt = "".join(c if c == "," else next(taken) for c in terms)
        results = itertools.permutations(sorted(set(letters)), len(result)) if arrow else [()]
        # With an arrow it is the same whatever the letters are called.
        if not arrow or list(dict.fromkeys(letters)) == sorted(set(letters)):
            equations += [spelt + arrow + "".join(chosen) for chosen in results]
    for i in vary.rng.permutation(len(equations))[:_SPELT]:
        made = told(squared(case, 3), line, {"equation": equations[i]})
        yield from (made,) if made is not None else ()


def _exchanged(equation: str) -> Iterator[str]:
    """An equation in which two letters of one operand, or of the result, change places, however many there are."""
    letters = [i for i, c in enumerate(equation) if c.isalpha()]
    for i, j in itertools.combinations(letters, 2):
        if not set(equation[i:j]) & {",", ">"}:
            yield equation[:i] + equation[j] + equation[i + 1 : j] + equation[i] + equation[j + 1 :]


def _along(vary: Variation, case: Case) -> Iterator[Case]:
    """Every axis that an attribute may name, where some or all operands have one element along it; in older operator sets, too."""
    variables = [v for a, v, _ in vary.captured if a == "axis" and isinstance(case.get(v), int | None)]
    rests = [rest for rest, _ in vary.rests if "axis" in (case.get(rest) or {})]
    lines = (*vary.rule.match, *vary.rule.replace)
    coerced = any(op in COERCED for line in lines for _, op in line.ops)
    rank = max((len(o.dims) for o in operands(case)), default=0)
    if not (variables or rests or coerced):
        return
    opsets = [opset_of(case), *(o for o in vary.opsets if coerced and o < opset_of(case))]
    signed = range(-rank if variables or rests else 0, rank)
    for base, axis in itertools.product((case, squared(case, 2)), signed):
        made = base | dict.fromkeys(variables, axis) | {rest: {**base[rest], "axis": axis} for rest in rests}
        for thin in _thinned(vary, _naming(vary, made, axis), axis % rank, rank):
            yield from ({**thin, "opset": opset} for opset in opsets)


def _lower(vary: Variation, case: Case) -> Iterator[Case]:
    """An axis of one element is gone, also from permutations: where none is left, what is said of them is said of open sizes."""
    perms = {v: case[v] for v in orders_in(vary.rule, case)}
    for place, operand in places(case):
        rank = len(operand.dims)
        for axis in (a for a, d in enumerate(operand.dims) if d == 1):
            dims = (*operand.dims[:axis], *operand.dims[axis + 1 :])
            shorter = {v: [p - (p > axis) for p in perm if p != axis] for v, perm in perms.items() if len(perm) == rank}
            for some in dict.fromkeys((dims, ("S", *dims[1:]) if dims else dims)):
                yield {**put(case, place, reshaped(operand, some)), **shorter}


def _naming(vary: Variation, case: Case, axis: int) -> Case:
    """A case in which what lists a single axis lists this one: conditions say that it is the same."""
    for attribute, variable, _ in vary.captured:
        if attribute == "axes" and isinstance(case.get(variable), list) and len(case[variable]) == 1:
            case = {**case, variable: [axis]}
    for place, operand in places(case):
        if any(op.startswith("Reduce") and position for _, op, position, _ in readers(vary.rule, place[0])):
            case = put(case, place, replace(operand, data=[axis])) if operand.dims == (1,) and operand.const else case
    return case


def _thinned(vary: Variation, case: Case, at: int, rank: int) -> Iterator[Case]:
    """A case as it is, with one element along an axis in each operand alone, and in all of them."""
    full = next(o.dims for o in operands(case) if len(o.dims) == rank)
    thin = [(p, o) for p, o in places(case) if len(o.dims) == rank and not isinstance(o.data, list)]
    # What a normalisation multiplies by has the dimensions from the axis on.
    for place, operand in places(case):
        spans = any(op in _NORMALISED and position for _, op, position, _ in readers(vary.rule, place[0]))
        if spans and all(isinstance(d, int) for d in full[at:]):
            case = put(case, place, reshaped(operand, full[at:]))
    yield case
    every = case
    for place, operand in thin:
        narrow = reshaped(operand, (*operand.dims[:at], 1, *operand.dims[at + 1 :]))
        every = put(every, place, narrow)
        yield (made := put(case, place, narrow))
        if narrow.const:
            yield put(made, place, _unlike(narrow))
        # One that is thin elsewhere is as large as the others there.
        other = (*full[:at], 1, *full[at + 1 :])
        if other != narrow.dims and not (narrow.const and any(isinstance(d, str) for d in other)):
            yield put(case, place, reshaped(operand, other))
    if len(thin) > 1:
        yield every


def _unlike(operand: Operand) -> Operand:
    """A constant of one number as one whose elements rise from it, the last fastest."""
    if type(operand.data) not in (int, float):
        return operand
    dims: Any = operand.dims
    rising = np.arange(size_of(operand)).reshape(dims) + operand.data
    return replace(operand, data=rising.tolist())
