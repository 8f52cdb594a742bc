"""Is a rule true for all sizes of its operands, at the ranks and attributes of its examples?

Every dimension of every operand becomes a whole number of which nothing is known but that it is at least 1. The rule's
conditions split this into cases; in each case in which the rule matches, both sides are evaluated at an index of which
nothing is known either, and the two elements have to be the same: as sums of products over bound indices
(:mod:`reals`), or bit for bit (:mod:`bits`).
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from graphopt.ir.types import FLOATS
from graphopt.prover.cases import Case, parse_case
from graphopt.prover.generic.bits import Bits
from graphopt.prover.generic.elements import plain
from graphopt.prover.generic.facts import Facts, OpenError, OutOfTimeError, VacuousError
from graphopt.prover.generic.language import holds
from graphopt.prover.generic.lines import Given, leaf, pattern, replacement
from graphopt.prover.generic.ordered import equal_by_order, equal_truths
from graphopt.prover.generic.propositions import eq
from graphopt.prover.generic.reals import Reals
from graphopt.prover.generic.sizes import atom, symbol
from graphopt.prover.generic.tensors import Scope, Tensor
from graphopt.prover.generic.terms import Real
from graphopt.prover.generic.world import MISSING, Broken, World
from graphopt.rewrite.examples import Example, ExampleError, Operand, build_example
from graphopt.rewrite.expr import Env, Ref
from graphopt.rewrite.schema import Rule

AS_GIVEN = " (sizes in constants as given)"


@dataclass(frozen=True)
class GenericProof:
    """What is proved of a rule for all sizes.

    Attributes:
        proved: Ranks and attributes at which both sides are the same for all sizes, as text.
        complete: Whether these are all that the rule's accepting examples have.
        why: What is missing, if something is.
        cases: Cases of sizes that were told apart.
        seconds: Processor time taken.
    """

    proved: tuple[str, ...]
    complete: bool
    why: str = ""
    cases: int = 0
    seconds: float = 0.0


def prove_generic(rule: Rule, *, seconds: float = 5.0) -> GenericProof:
    """Try to prove a rule for all sizes (of at least 1) at the ranks and attributes of its examples.

    Rejecting examples are looked at, too: a rule whose conditions are too weak matches them at some sizes.

    Args:
        rule: The rule.
        seconds: Processor time for it.
    """
    begin = time.process_time()
    if rule.claim == "approx":
        return GenericProof((), False, "an approximation is tested, not proved")
    proved: list[str] = []
    seen: set[str] = set()
    why = ""
    count = 0
    for case in [parse_case(rule, c) for kind in ("accept", "reject") for c in rule.examples[kind]]:
        text = assignment(case)
        if text in seen:
            continue
        seen.add(text)
        try:
            found, as_given = prove_case(rule, case, begin + seconds)
            count += found
            proved += [text + (AS_GIVEN if as_given else "")] if found else []
        except OutOfTimeError:
            why = why or f"{seconds:g} s were over"
        except OpenError as error:
            why = why or str(error)
        except RecursionError:
            why = why or "terms too deep"
        except (ArithmeticError, LookupError, TypeError, ValueError) as error:
            why = why or f"can't be followed: {type(error).__name__}: {error}"
    done = bool(proved) and not why
    return GenericProof(tuple(proved), done, why or ("" if done else "no example"), count, time.process_time() - begin)


def assignment(case: Mapping[str, Any]) -> str:
    """Ranks, types and attributes of a case."""
    parts = []
    for name, value in sorted(case.items()):
        many = value if isinstance(value, list) else [value]
        if any(isinstance(v, Operand) for v in many):
            shown = "; ".join(_operand(v) for v in many)
            parts.append(f"{name}: {shown}")
        else:
            parts.append(f"{name} = {value}")
    return ", ".join(parts)


def _operand(operand: Operand) -> str:
    names = "".join(f" {d}" for d in operand.dims if isinstance(d, str))
    kind = f"{'const ' if operand.const else ''}rank {len(operand.dims)} {operand.dtype}"
    return kind + (f" ({names.strip()})" if names else "") + ("" if operand.data is None else f" = {operand.data}")


def prove_case(rule: Rule, case: Case, deadline: float) -> tuple[int, bool]:
    """Prove a rule at the ranks and attributes of a case.

    Returns:
        The number of cases of sizes that were told apart, 0 if the rule matches at no size; and whether sizes in integer
        constants had to stay what they are in the example.

    Raises:
        OpenError: It can't be proved.
        OutOfTimeError: The time is over.
    """
    try:
        example = build_example(rule, case)
    except ExampleError:
        return 0, False  # the pattern is not defined there
    if example.match is None:
        example = build_example(replace(rule, where=()), case)
    if example.match is None:
        return 0, False
    try:
        return _proved(rule, case, example, deadline, Given()), False
    except OpenError as error:
        if not any(isinstance(v, Operand) and v.data is not None and v.dtype == "i64" for v in case.values()):
            raise
        try:
            return _proved(rule, case, example, deadline, Given(content=True)), True
        except OpenError:
            raise error from None


def _proved(rule: Rule, case: Case, example: Example, deadline: float, given: Given) -> int:
    facts = Facts(deadline)
    algebra = Bits(facts) if rule.claim == "exact" else Reals(facts)

    def run() -> None:
        _path(rule, case, example, facts, algebra, given)

    return len(facts.branches([], [], run))


def _path(rule: Rule, case: Case, example: Example, facts: Facts, algebra: Reals, given: Given) -> None:
    """One case of sizes, told apart by the decisions on the way."""
    assert example.match is not None
    scope = Scope(facts, algebra, example.graph.opset)
    world = World(scope, example.graph)
    names = _names(rule, case, example, scope, given)
    pattern(rule, world, names, example.match.names)
    env = Env(world, names)  # type: ignore[arg-type]
    for condition in rule.where:
        if not holds(condition.text, env):
            raise VacuousError(condition.text)
    scope.after = True
    after = replacement(rule, world, names)
    for root in rule.roots:
        if isinstance(names[root], Broken):
            raise names[root].error
        _same(root, names[root], after[root], scope)


def _names(rule: Rule, case: Case, example: Example, scope: Scope, given: Given) -> dict[str, Any]:
    """What the pattern's variables are bound to: operands of any size, and attributes as in the example."""
    assert example.match is not None
    by_key: dict[int, tuple[str, Operand]] = {}
    named = {value.name: key for key, value in example.graph.values.items()}
    for name, value in case.items():
        if isinstance(value, Operand) and name in named:
            by_key[named[name]] = (name, value)
        elif isinstance(value, list):
            for i, item in enumerate(value):
                if isinstance(item, Operand):
                    by_key[named[f"{name}{i}"]] = (f"{name}{i}", item)
    made = {key: leaf(scope, rule, name, operand, key, given) for key, (name, operand) in by_key.items()}
    names: dict[str, Any] = {}
    outputs = {o for line in rule.match for o in line.outputs}
    for name, bound in example.match.names.items():
        if name in outputs:
            continue
        if isinstance(bound, Ref):
            names[name] = MISSING if bound.key is None else made[bound.key]
        elif isinstance(bound, tuple) and name in rule.leaves:
            names[name] = tuple(made[ref.key] for ref in bound)
        else:
            names[name] = bound
    return names


def _same(root: str, before: Tensor, after: Tensor, scope: Scope) -> None:
    """Both sides of a root have the same shape and, at any index, the same element.

    Raises:
        OpenError: They may differ.
    """
    facts = scope.facts
    if before.dtype != after.dtype or before.rank != after.rank:
        raise VacuousError("the engine refuses another type or rank")
    for a, b in zip(before.shape, after.shape, strict=True):
        scope.require(eq(a, b), f"{root} has dimension {a}, the replacement's {b}", checked=True)
    index = []
    for axis, d in enumerate(before.shape):
        name = f"{root}.{axis}"
        facts.below[atom("index", name)] = facts.norm(d)
        index.append(symbol("index", name))
    left, right = before.at(tuple(index)), after.at(tuple(index))
    if isinstance(left, Real) and isinstance(right, Real):
        # Sums of whole numbers may wrap around: z3, which does not know, is asked where there are none.
        ordered = before.dtype in FLOATS or (plain(left) and plain(right))
        if not scope.algebra.same(left, right) and not (ordered and equal_by_order(scope.algebra, left, right)):
            raise OpenError(f"different elements: {scope.algebra.normal(left)} and {scope.algebra.normal(right)}")
    elif isinstance(left, bool) or isinstance(right, bool):
        if left is not right:
            raise OpenError("different truth values")
    else:
        if not equal_truths(scope.algebra, left, right):
            raise OpenError(f"different truth values: {left} and {right}")
