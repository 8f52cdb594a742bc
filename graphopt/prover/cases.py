"""Cases and instances: a rule's pattern at given types and attributes, and what the rule makes of it."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from graphopt.errors import GraphoptError
from graphopt.ir.delta import RefusedError
from graphopt.ir.graph import Graph
from graphopt.ir.types import NUMPY_NAMES
from graphopt.prover.values import uses
from graphopt.rewrite.apply import apply
from graphopt.rewrite.examples import Example, ExampleError, Operand, build_example
from graphopt.rewrite.expr import Ref, Unknown
from graphopt.rewrite.schema import Rule
from graphopt.runtime import kernels

Case = dict[str, Any]
"""In the form of a rule's ``examples``, operands parsed."""

Place = tuple[str, int | None]
"""Where an operand stands in a case: its name, and its index in a variadic operand."""

SYMBOL_SIZE = 3
# Functions that look at the content of a constant: such a constant is what it is, others stand for any content.
_READS = frozenset({"value", "values", "min_of", "max_of", "distinct", "rises_from", "margin", "content"})


@dataclass(frozen=True, eq=False)
class Instance:
    """A rule applied to a pattern of given shapes and attributes.

    Attributes:
        case: In the form of the rule's ``examples``.
        before: The pattern.
        after: The rewritten graph.
        symbolic: Keys of the constants that stand for any content.
        elements: Size of the operands together.
        sizes: Of symbols, at which the pattern is known to be possible.
    """

    case: Case
    before: Graph
    after: Graph
    symbolic: frozenset[int]
    elements: int
    sizes: Mapping[str, int] = field(default_factory=dict)

    @property
    def shapes(self) -> tuple[str, ...]:
        """The operands' types."""
        return tuple(f"{k}: {v}" for k, v in sorted(self.case.items()) if isinstance(v, Operand | list))

    @property
    def attributes(self) -> tuple[str, ...]:
        """What is not an operand's type: attributes, operators, the operator-set version."""
        return tuple(f"{k}: {v}" for k, v in sorted(self.case.items()) if not isinstance(v, Operand | list))

    @property
    def symbols(self) -> tuple[str, ...]:
        """Names of the operands' symbolic dimensions."""
        return tuple(sorted({d for o in operands(self.case) for d in o.dims if isinstance(d, str)}))


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


def build_instance(rule: Rule, case: Case) -> Instance | None:
    """The instance of a case; ``None`` where the rule does not match or the engine refuses the rewrite."""
    made = attempt(rule, case)
    return made if isinstance(made, Instance) else None


def attempt(rule: Rule, case: Case, block: int = 16) -> Instance | RefusedError | None:
    """The instance of a case, or why the engine refuses the rewrite; ``None`` where the rule does not match."""
    try:
        example = build_example(rule, case, block=block)
        return None if example.match is None else instance_of(rule, case, example, block)
    except RefusedError as error:
        return error
    except (ExampleError, GraphoptError, Unknown, ArithmeticError, ValueError, TypeError, IndexError):
        return None


def instance_of(rule: Rule, case: Case, example: Example, block: int = 16) -> Instance:
    """The instance of a case whose example matches.

    Raises:
        RefusedError: The engine refuses the rewrite, or there is nothing to fill an operand with.
    """
    assert example.match is not None
    unmade = {str(example.graph.type(key).dtype) for key in example.graph.inputs} - NUMPY_NAMES.keys()
    if unmade:
        raise RefusedError(f"no contents are made up for {', '.join(sorted(unmade))}")
    after, delta = apply(example.graph, example.match, block)
    missing = kernels.complaint(after, delta)
    if missing and not kernels.unsupported(example.graph):
        raise RefusedError(missing)
    read = contents_read(rule)
    # Types follow from what says a shape: such a constant is what it is as well.
    steers = uses(example.graph, after, only="shape")
    symbolic: set[int] = set()
    for name in rule.leaves:
        bound = example.match.names[name]
        given = case.get(name)
        refs = [bound] if isinstance(bound, Ref) else bound
        operands_given = given if isinstance(given, list) else [given]
        if len(refs) != len(operands_given):
            raise RefusedError(f"{name!r} is found to be {len(refs)} operands, where {len(operands_given)} were meant")
        for ref, operand in zip(refs, operands_given, strict=True):
            anything = operand is not None and operand.const and operand.data is None and name not in read
            if anything and ref.key is not None and ref.key not in steers:
                symbolic.add(ref.key)
    elements = sum(size_of(o) for o in operands(case))
    return Instance(case, example.graph, after, frozenset(symbolic), elements)


def contents_read(rule: Rule) -> set[str]:
    """Names of the operands whose content a rule looks at."""
    return {name for e in _expressions(rule) if e.calls & _READS for name in e.names}


def _expressions(rule: Rule) -> Iterator[Any]:
    yield from rule.where
    yield from (e for _, e in rule.let)
    yield from (e for line in (*rule.match, *rule.replace) for _, e in line.attributes)


def fits(rule: Rule, case: Case, sizes: Mapping[str, int]) -> bool:
    """Whether ONNX allows a rule's pattern where the symbols of a case have the given sizes."""

    def sized(value: Any) -> Any:
        if isinstance(value, list):
            return [sized(v) for v in value]
        if not isinstance(value, Operand):
            return value
        return replace(value, dims=tuple(sizes.get(d, d) if isinstance(d, str) else d for d in value.dims))

    try:
        build_example(rule, {name: sized(value) for name, value in case.items()})
    except (GraphoptError, ArithmeticError, ValueError, TypeError, IndexError):
        return False
    return True


def operands(case: Mapping[str, Any]) -> list[Operand]:
    """All operands of a case, those of variadic ones too."""
    return [operand for _, operand in places(case)]


def places(case: Mapping[str, Any]) -> list[tuple[Place, Operand]]:
    """All operands of a case with where they stand."""
    found: list[tuple[Place, Operand]] = []
    for name, value in case.items():
        if isinstance(value, Operand):
            found.append(((name, None), value))
        elif isinstance(value, list):
            found += [((name, i), v) for i, v in enumerate(value) if isinstance(v, Operand)]
    return found


def held(case: Case, place: Place) -> Any:
    """What stands at a place."""
    name, index = place
    return case[name] if index is None else case[name][index]


def put(case: Case, place: Place, operand: Operand) -> Case:
    """A case with another operand at a place."""
    name, index = place
    if index is None:
        return {**case, name: operand}
    return {**case, name: [operand if i == index else v for i, v in enumerate(case[name])]}


def size_of(operand: Operand) -> int:
    """Number of elements; a symbol counts as :data:`SYMBOL_SIZE`."""
    return math.prod(d if isinstance(d, int) else SYMBOL_SIZE for d in operand.dims)
