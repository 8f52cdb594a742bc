"""The bounded family of shapes and attributes at which a rule is tried.

A rule's own examples are the seeds: accepting ones, and rejecting ones too, because a rule whose ``where`` is too weak
matches exactly those. Each is varied at random: dimensions renamed, made different from each other, made 1 or symbolic;
ranks, attributes, small constants, operators, optional and variadic operands, element types and operator-set versions
changed. What the rule then still matches is an instance. Instances are small: no operand has more than a few thousand
elements.
"""

from __future__ import annotations

import copy
import itertools
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from graphopt.errors import GraphoptError
from graphopt.ir.edit import RefusedError
from graphopt.ir.graph import Graph
from graphopt.ir.types import FLOATS
from graphopt.rewrite.apply import apply
from graphopt.rewrite.examples import Example, ExampleError, Operand, build_example
from graphopt.rewrite.expr import Ref, Unknown
from graphopt.rewrite.schema import Rule

Case = dict[str, Any]
_SIZES = (1, 2, 3, 4, 5, 6, 7)
_OPSETS = (11, 13, 17, 18, 20, 21, 23)
_LARGEST = 4096
# Functions that look at the content of a constant: such a constant is what it is, others stand for any content.
_READS = frozenset({"value", "values", "min_of", "max_of", "distinct"})
_NUMBERS = (0.5, 2.0, -1.0, 0.25, 3.0, 1.0, 0.0)
_BY_NAME: dict[str, tuple[Any, ...]] = {
    "keepdims": (0, 1), "transA": (0, 1), "transB": (0, 1), "count_include_pad": (0, 1), "ceil_mode": (0, 1),
    "allowzero": (0, 1), "exclusive": (0, 1), "reverse": (0, 1), "noop_with_empty_axes": (0, 1), "group": (1, 2, 3, 4),
    # Powers of two: what is compared is the law, not how a constant of half precision rounds.
    "epsilon": (2.0**-17, 2.0**-10, 0.125), "alpha": _NUMBERS, "beta": _NUMBERS, "axis": (-3, -2, -1, 0, 1, 2, 3),
    "start": (-2, -1, 0, 1, 2), "end": (-2, -1, 0, 1, 2), "auto_pad": ("SAME_UPPER", "SAME_LOWER", "VALID"), "to": (1, 6, 7, 10, 11), "approximate": ("none", "tanh"),
}  # fmt: skip
_BY_OPERATOR = {
    "Conv": ("strides", "pads", "dilations", "auto_pad", "group"),
    "MaxPool": ("strides", "pads", "dilations", "auto_pad", "ceil_mode", "kernel_shape"),
    "AveragePool": ("strides", "pads", "auto_pad", "ceil_mode", "count_include_pad", "kernel_shape"),
    "Gemm": ("alpha", "beta", "transA", "transB"),
    "LayerNormalization": ("axis", "epsilon"), "RMSNormalization": ("axis", "epsilon"),
    "BatchNormalization": ("epsilon",), "Concat": ("axis",), "Split": ("axis",), "Softmax": ("axis",), "LogSoftmax": ("axis",),
    "Gather": ("axis",), "Flatten": ("axis",), "Reshape": ("allowzero",), "LeakyRelu": ("alpha",), "Elu": ("alpha",),
    "Transpose": ("perm",), "Cast": ("to",), "Gelu": ("approximate",), "HardSigmoid": ("alpha", "beta"), "Celu": ("alpha",),
    "Selu": ("alpha",), "ThresholdedRelu": ("alpha",), "Swish": ("alpha",), "Shape": ("start", "end"),
}  # fmt: skip


@dataclass(frozen=True, eq=False)
class Instance:
    """A rule applied to a pattern of given shapes and attributes.

    Attributes:
        case: In the form of the rule's ``examples``.
        before: The pattern.
        after: The rewritten graph.
        symbolic: Keys of the constants that stand for any content.
        elements: Size of the operands together.
    """

    case: Case
    before: Graph
    after: Graph
    symbolic: frozenset[int]
    elements: int

    @property
    def shapes(self) -> tuple[str, ...]:
        """The operands' types."""
        return tuple(f"{k}: {v}" for k, v in sorted(self.case.items()) if isinstance(v, Operand | list))

    @property
    def attributes(self) -> tuple[str, ...]:
        """What is not an operand's type: attributes, operators, the operator-set version."""
        return tuple(f"{k}: {v}" for k, v in sorted(self.case.items()) if not isinstance(v, Operand | list))


def parse_case(rule: Rule, case: Mapping[str, Any]) -> Case:
    """An example with its operands parsed."""
    made: Case = {}
    for name, given in case.items():
        if name in rule.leaves and isinstance(given, list):
            made[name] = [Operand.parse(name, text) for text in given]
        elif name in rule.leaves:
            made[name] = Operand.parse(name, given)
        else:
            made[name] = _number(given)
    return made


def written_case(case: Mapping[str, Any]) -> Case:
    """A case with its operands as text, as in a rule's ``examples``: the inverse of :func:`parse_case`."""

    def written(value: Any) -> Any:
        if isinstance(value, list):
            return [written(v) for v in value]
        return str(value) if isinstance(value, Operand) else value

    return {name: written(value) for name, value in case.items()}


def _number(given: Any) -> Any:
    if isinstance(given, Mapping):
        return {k: _number(v) for k, v in given.items()}
    if isinstance(given, list):
        return [_number(v) for v in given]
    for kind in (int, float):
        try:
            return kind(given)
        except (TypeError, ValueError):
            continue
    return given


def build_instance(rule: Rule, case: Case, block: int = 16) -> Instance | None:
    """The instance of a case; ``None`` where the rule does not match or the engine refuses the rewrite."""
    try:
        example = build_example(rule, case, block=block)
        return None if example.match is None else instance_of(rule, case, example, block)
    except (ExampleError, RefusedError, GraphoptError, Unknown, ArithmeticError, ValueError, TypeError, IndexError):
        return None


def instance_of(rule: Rule, case: Case, example: Example, block: int = 16) -> Instance:
    """The instance of a case whose example matches.

    Raises:
        RefusedError: The engine refuses the rewrite.
    """
    assert example.match is not None
    after, _ = apply(example.graph, example.match, block)
    read = {n for e in _expressions(rule) if e.calls & _READS for n in e.names}
    symbolic: set[int] = set()
    for name in rule.leaves:
        bound = example.match.names[name]
        given = case.get(name)
        for ref, operand in zip(
            [bound] if isinstance(bound, Ref) else bound, given if isinstance(given, list) else [given], strict=True
        ):
            if (
                operand is not None
                and operand.const
                and operand.data is None
                and name not in read
                and ref.key is not None
            ):
                symbolic.add(ref.key)
    elements = sum(math.prod(d if isinstance(d, int) else 3 for d in o.dims) for o in _operands(case))
    return Instance(case, example.graph, after, frozenset(symbolic), elements)


def _expressions(rule: Rule) -> list[Any]:
    in_lines = [e for line in (*rule.match, *rule.replace) for _, e in line.attributes]
    return [*rule.where, *(e for _, e in rule.let), *in_lines]


def instances(rule: Rule, *, seed: int = 0, limit: int = 40, tries: int = 300) -> list[Instance]:
    """Different instances of a rule, the smallest first.

    Args:
        rule: The rule.
        seed: Of the variation.
        limit: How many are wanted.
        tries: How many variations are made for it, at most.
    """
    found: dict[str, Instance] = {}
    for attempt, case in enumerate(variations(rule, seed=seed, tries=tries)):
        if len(found) >= limit:
            break
        made = build_instance(rule, case, 8 if attempt % 4 == 3 else 16)
        if made is not None:
            found[repr(case)] = made
    return sorted(found.values(), key=lambda i: (i.elements, repr(i.case)))


def variations(rule: Rule, *, seed: int = 0, tries: int = 300) -> Iterator[Case]:
    """A rule's examples and different variations of them, whether the rule matches there or not.

    Args:
        rule: The rule.
        seed: Of the variation.
        tries: How many variations are made, at most.
    """
    rng = np.random.default_rng(seed)
    accepts = [parse_case(rule, c) for c in rule.examples["accept"]]
    rejects = [parse_case(rule, c) for c in rule.examples["reject"]]
    seen: set[str] = set()
    for case in itertools.islice(_cases(rule, accepts, rejects, rng), tries + len(accepts) + len(rejects)):
        text = repr(sorted(case.items(), key=lambda item: item[0]))
        if text not in seen and not any(_too_large(o) for o in _operands(case)):
            seen.add(text)
            yield case


def _cases(rule: Rule, accepts: list[Case], rejects: list[Case], rng: np.random.Generator) -> Iterator[Case]:
    yield from accepts
    yield from rejects
    seeds = [*accepts, *accepts, *rejects]
    vary = _Variation(rule, rng, [*accepts, *rejects])
    near = [case for accept in accepts for case in _neighbours(accept)]
    rng.shuffle(near)
    while seeds:
        case = _copied(seeds[int(rng.integers(len(seeds)))])
        if rng.random() < 0.35:
            vary.cube(case)
        for _ in range(int(rng.integers(1, 4))):
            vary(case)
        yield case
        if near:
            yield near.pop()


def _copied(value: Any) -> Any:
    """A copy down to the operands, which nothing changes in place."""
    if isinstance(value, dict):
        return {k: _copied(v) for k, v in value.items()}
    return [_copied(v) for v in value] if isinstance(value, list) else value


def _neighbours(case: Case) -> Iterator[Case]:
    """What chance may miss: the cases that differ from one in a single operand, in one respect."""
    for name, operand in case.items():
        if not isinstance(operand, Operand):
            continue
        if operand.data is not None:
            yield {**case, name: replace(operand, const=False, data=None)}
            continue
        dims = operand.dims
        changed = [(*dims[:i], to, *dims[i + 1 :]) for i in range(len(dims)) for to in ("S", 1, 5)]
        for other in [*changed, (2, *dims), *([dims[1:]] if dims else [])]:
            yield {**case, name: replace(operand, dims=other, const=operand.const and "S" not in other)}


def _operands(case: Mapping[str, Any]) -> list[Operand]:
    found: list[Operand] = []
    for value in case.values():
        found += [value] if isinstance(value, Operand) else []
        found += [v for v in value if isinstance(v, Operand)] if isinstance(value, list) else []
    return found


def _too_large(operand: Operand) -> bool:
    return math.prod(d if isinstance(d, int) else 3 for d in operand.dims) > _LARGEST


class _Variation:
    """Random changes of a case, in place. A change that does not apply does nothing."""

    def __init__(self, rule: Rule, rng: np.random.Generator, examples: list[Case]) -> None:
        self.rule, self.rng, self.examples = rule, rng, examples
        self.captured = [(a, v, line) for line in rule.match for a, v in line.captures]
        self.rests = {line.rest: line for line in rule.match if line.rest and line.rest != "_"}
        self.operators = {line.op_variable: line for line in rule.match if line.op_variable}
        self.optional = {o.name for line in rule.match for o in line.operands if o.kind == "optional"}
        attributes = [self._attribute] * 3 if self.captured or self.rests else []
        attributes += [self._alike] * 2 if len(self.captured) > 1 else []
        operators = [self._operator] * 2 if self.operators else []
        self.changes: list[Callable[[Case], None]] = [
            self._rename, self._rename, self._rename, self._square, self._single, self._single, self._lead, self._symbol, self._data, self._data, self._measure,
            self._constness, self._dtype, self._opset, self._optional, self._variadic, *attributes, *operators,
        ]  # fmt: skip

    def __call__(self, case: Case) -> None:
        self.changes[int(self.rng.integers(len(self.changes)))](case)

    def _pick(self, items: Any) -> Any:
        items = list(items)
        return items[int(self.rng.integers(len(items)))] if items else None

    def _change(self, case: Case, function: Callable[[Operand], Operand], only: Operand | None = None) -> None:
        for name, value in case.items():
            if isinstance(value, Operand) and (only is None or value is only):
                case[name] = function(value)
            elif isinstance(value, list):
                case[name] = [
                    function(v) if isinstance(v, Operand) and (only is None or v is only) else v for v in value
                ]

    def _rename(self, case: Case) -> None:
        """Dimensions of one size get another size everywhere, small integers in data and attributes perhaps with them."""
        sizes = sorted({d for o in _operands(case) for d in o.dims if isinstance(d, int)})
        chosen = [s for s in sizes if self.rng.random() < 0.5] or sizes[:1]
        pool = [1] if self.rng.random() < 0.15 else _SIZES
        to = {s: int(self._pick(pool)) for s in chosen}
        with_data = self.rng.random() < 0.5

        def renamed(operand: Operand) -> Operand:
            dims = tuple(to.get(d, d) if isinstance(d, int) else d for d in operand.dims)
            data = operand.data
            if data is not None and with_data and operand.dtype == "i64":
                data = _mapped(data, to)
            return replace(operand, dims=dims, data=data)

        self._change(case, renamed)
        if with_data and self.rng.random() < 0.5:
            for name in [*self.rests, *(v for _, v, _ in self.captured)]:
                if name in case:
                    case[name] = _mapped(case[name], to)

    def _square(self, case: Case) -> None:
        """Dimensions of several sizes become equal: types do not tell a matrix from its transpose then."""
        sizes = sorted({d for o in _operands(case) for d in o.dims if isinstance(d, int) and d > 1})
        chosen = sizes if self.rng.random() < 0.7 else [s for s in sizes if self.rng.random() < 0.6]
        one = int(self._pick((2, 3)))
        to = dict.fromkeys(chosen, one)
        self._change(case, lambda o: replace(o, dims=tuple(to.get(d, d) if isinstance(d, int) else d for d in o.dims)))

    def cube(self, case: Case) -> None:
        """Operands get ranks by chance, and all dimensions are one number or 1: then types give no mistake away.

        Axes and attributes are drawn anew as well.
        """
        size = int(self._pick((2, 3)))

        def cubed(operand: Operand) -> Operand:
            if operand.data is not None or operand.dtype == "i64":
                return replace(operand, data=drawn(operand.data)) if self.rng.random() < 0.5 else operand
            rank = len(operand.dims) if self.rng.random() < 0.5 else int(self.rng.integers(4))
            return replace(operand, dims=tuple(1 if self.rng.random() < 0.15 else size for _ in range(rank)))

        def drawn(data: Any) -> Any:
            axes = isinstance(data, list) and data and all(type(d) is int for d in data)
            return self.rng.permutation(4)[: len(data)].tolist() if axes and len(data) < 4 else data

        self._change(case, cubed)
        for attribute, variable, _ in self.captured:
            if variable in case and self.rng.random() < 0.4:
                rank = max((len(o.dims) for o in _operands(case)), default=1)
                axis = attribute == "axis" and rank
                case[variable] = (
                    int(self.rng.integers(-rank, rank)) if axis else self._value(attribute, case[variable], case)
                )

    def _single(self, case: Case) -> None:
        """One dimension of one operand, or its rank, changes alone."""
        operand = self._pick(_operands(case))
        if operand is None:
            return
        dims = list(operand.dims)
        kind = int(self.rng.integers(4))
        if kind == 0 and dims:
            dims[int(self.rng.integers(len(dims)))] = 1
        elif kind == 1 and dims:
            dims.pop(0)
        elif kind == 2 and len(dims) < 5:
            dims.insert(0, int(self._pick(_SIZES)))
        elif dims:
            dims[int(self.rng.integers(len(dims)))] = int(self._pick(_SIZES))
        self._change(
            case, lambda o: replace(o, dims=tuple(dims), data=None if operand.dtype != "i64" else o.data), operand
        )

    def _lead(self, case: Case) -> None:
        """Operands of the highest rank get one more leading dimension, or lose theirs."""
        rank = max((len(o.dims) for o in _operands(case)), default=0)
        size = self._pick([*_SIZES, "M"])
        less = self.rng.random() < 0.4

        def led(operand: Operand) -> Operand:
            if (
                len(operand.dims) != rank
                or rank == 0
                or operand.dtype == "i64"
                or (operand.const and size == "M" and not less)
            ):
                return operand
            return replace(operand, dims=operand.dims[1:] if less else (size, *operand.dims))

        self._change(case, led)

    def _symbol(self, case: Case) -> None:
        """Dimensions of one size become symbolic, or symbolic ones become numbers."""
        names = sorted({d for o in _operands(case) for d in o.dims if isinstance(d, str)})
        sizes = sorted({d for o in _operands(case) for d in o.dims if isinstance(d, int) and not o.const})
        old: Any = self._pick(names) if names and self.rng.random() < 0.5 else self._pick(sizes)
        if old is None:
            return
        new: Any = int(self._pick(_SIZES)) if isinstance(old, str) else "S"
        self._change(case, lambda o: o if o.const else replace(o, dims=tuple(new if d == old else d for d in o.dims)))

    def _data(self, case: Case) -> None:
        """One number in the content of a constant changes."""
        operand = self._pick([o for o in _operands(case) if o.data is not None])
        if operand is None:
            return
        whole = operand.dtype not in ("f16", "f32", "f64")
        data = copy.deepcopy(operand.data)
        to: Any = int(self.rng.integers(-4, 6)) if whole else self._pick(_NUMBERS)
        if operand.dtype == "bool":
            to = bool(to % 2)
        if isinstance(data, list) and data and not isinstance(data[0], list):
            if self.rng.random() < 0.3 and len(operand.dims) == 1 and isinstance(operand.dims[0], int):
                longer = self.rng.random() < 0.5
                data = [*data, to] if longer else data[:-1]
                self._change(case, lambda o: replace(o, data=data, dims=(len(data),)), operand)
                return
            data[int(self.rng.integers(len(data)))] = to
        elif not isinstance(data, list):
            data = to
        self._change(case, lambda o: replace(o, data=data), operand)

    def _measure(self, case: Case) -> None:
        """The numbers in an integer constant become dimensions of operands along one axis, as sizes of a Split are."""
        operands = _operands(case)
        operand = self._pick(
            [o for o in operands if o.dtype == "i64" and isinstance(o.data, list) and len(o.dims) == 1]
        )
        if operand is None:
            return
        axis = int(self.rng.integers(-2, 2))
        sizes = [o.dims[axis] for o in operands if o is not operand and -len(o.dims) <= axis < len(o.dims)]
        sizes = [d for d in sizes if isinstance(d, int)]
        if sizes:
            data = [int(self._pick(sizes)) for _ in operand.data]
            self._change(case, lambda o: replace(o, data=data), operand)

    def _constness(self, case: Case) -> None:
        operand = self._pick([o for o in _operands(case) if all(isinstance(d, int) for d in o.dims)])
        if operand is not None:
            self._change(case, lambda o: replace(o, const=not o.const, data=None), operand)

    def _dtype(self, case: Case) -> None:
        to = str(self._pick(("i32", "i64", "f64", "f16")))
        held = [o.data for o in _operands(case) if o.dtype == "f32" and o.data is not None]
        if to not in FLOATS and any(not _whole(data) for data in held):
            return

        def retyped(operand: Operand) -> Operand:
            if operand.dtype != "f32":
                return operand
            return replace(operand, dtype=to, data=operand.data if to in FLOATS else _integers(operand.data))

        self._change(case, retyped)
        if to == "f16":
            for name, value in case.items():
                if isinstance(value, float):
                    case[name] = float(np.float16(value))  # what is compared is the law, not how its numbers round

    def _opset(self, case: Case) -> None:
        case["opset"] = self._pick(_OPSETS)

    def _optional(self, case: Case) -> None:
        name = self._pick(sorted(self.optional))
        if name in case:
            del case[name]
        elif name is not None:
            given = self._pick([e[name] for e in self.examples if name in e])
            if given is not None:
                case[name] = given

    def _variadic(self, case: Case) -> None:
        name = self._pick([k for k, v in case.items() if isinstance(v, list) and k in self.rule.leaves])
        if name is None:
            return
        if case[name] and self.rng.random() < 0.5:
            case[name] = [*case[name], self._pick(case[name])]
        else:
            case[name] = case[name][:-1]

    def _operator(self, case: Case) -> None:
        name = self._pick(sorted(self.operators))
        line = self.operators[name]
        domain, op = self._pick(line.ops)
        case[name] = f"{domain}.{op}" if domain else op
        if line.rest and line.rest != "_":
            # What was written for another operator means nothing for this one.
            chosen = [a for a in _BY_OPERATOR.get(op, ()) if self.rng.random() < 0.6 or a == "to"]
            case[line.rest] = {a: self._value(a, None, case) for a in chosen}

    def _attribute(self, case: Case) -> None:
        if self.rests and (not self.captured or self.rng.random() < 0.5):
            name = self._pick(sorted(self.rests))
            line = self.rests[name]
            held = dict(case.get(name) or {})
            op = line.ops[0][1] if not line.op_variable else str(case.get(line.op_variable) or line.ops[0][1])
            named = {a for a, _ in (*line.attributes, *line.captures)}
            attribute = self._pick([*held, *(a for a in _BY_OPERATOR.get(op, ()) if a not in named)])
            if attribute is None:
                return
            if attribute in held and self.rng.random() < 0.25:
                del held[attribute]
            else:
                held[attribute] = self._value(attribute, held.get(attribute), case)
            case[name] = held
        elif self.captured:
            attribute, variable, _ = self.captured[int(self.rng.integers(len(self.captured)))]
            if variable in case and self.rng.random() < 0.15:
                del case[variable]
            else:
                case[variable] = self._value(attribute, case.get(variable), case)

    def _alike(self, case: Case) -> None:
        """Attributes that take the same values get one value: a condition that two are equal has to be seen to suffice."""
        attribute, variable, _ = self.captured[int(self.rng.integers(len(self.captured)))]
        value = self._value(attribute, case.get(variable), case)
        domain = _BY_NAME.get(attribute, attribute)
        for other, name, _ in self.captured:
            if _BY_NAME.get(other, other) == domain and name in case:
                case[name] = value

    def _value(self, attribute: str, held: Any, case: Case) -> Any:
        ranks = [len(o.dims) for o in _operands(case)]
        rank = int(self._pick(ranks or [2])) if not isinstance(held, list) else len(held)
        if attribute in ("strides", "dilations", "kernel_shape"):
            n = len(held) if isinstance(held, list) else max(max(ranks, default=4) - 2, 1)
            return [int(self.rng.integers(1, 4)) for _ in range(n)]
        if attribute == "pads":
            n = len(held) // 2 if isinstance(held, list) else max(max(ranks, default=4) - 2, 1)
            if self.rng.random() < 0.4:
                return [int(self.rng.integers(0, 3))] * (2 * n)  # the same on all sides, as in most models
            return [int(self.rng.integers(0, 3)) for _ in range(2 * n)]
        if attribute == "perm":
            return [int(i) for i in self.rng.permutation(rank)]
        if attribute in _BY_NAME:
            return self._pick(_BY_NAME[attribute])
        if isinstance(held, list):
            items = list(held)
            if items and all(isinstance(i, int) for i in items):
                items[int(self.rng.integers(len(items)))] = int(self.rng.integers(-4, 6))
            return items
        if isinstance(held, int):
            return int(self.rng.integers(-4, 6))
        return self._pick(_NUMBERS) if isinstance(held, float) or held is None else held


def _whole(data: Any) -> bool:
    return all(map(_whole, data)) if isinstance(data, list) else float(data).is_integer()


def _integers(data: Any) -> Any:
    if isinstance(data, list):
        return [_integers(d) for d in data]
    return None if data is None else int(data)


def _mapped(data: Any, to: Mapping[int, int]) -> Any:
    if isinstance(data, list):
        return [_mapped(d, to) for d in data]
    if isinstance(data, dict):
        return {k: _mapped(v, to) for k, v in data.items()}
    return to.get(data, data) if isinstance(data, int) and not isinstance(data, bool) else data
