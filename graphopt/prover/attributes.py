"""Changes of a case in one attribute or operator, in an operator set that has it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from graphopt.prover.cases import Case
from graphopt.rewrite.examples import DEFAULT_OPSET
from graphopt.rewrite.pattern import Line
from graphopt.rewrite.schema import Rule

Change = Callable[[Case], Case]
"""Of one case to another."""


def opset_of(case: Case) -> int:
    """The operator set of a case."""
    return int(case.get("opset", DEFAULT_OPSET))


def operator_of(case: Case, line: Line) -> tuple[str, str]:
    """Domain and name of the operator that a line has in a case."""
    if not line.op_variable or case.get(line.op_variable) is None:
        return line.ops[0] if line.ops else ("", "")
    domain, _, op = str(case[line.op_variable]).rpartition(".")
    return domain, op


def attribute_of(case: Case, line: Line, attribute: str) -> Any:
    """An attribute that the pattern names, or takes without naming it, as the node of a line has it in a case."""
    named = case.get(dict(line.captures).get(attribute, ""))
    rest = case.get(line.rest) if line.rest else None
    return rest.get(attribute, named) if isinstance(rest, dict) else named


def told(case: Case, line: Line, wanted: dict[str, Any]) -> Case | None:
    """A case in which the node of a line has some attributes, named by the pattern or not; ``None`` where the pattern takes none of one."""
    captured, listed = dict(line.captures), dict(line.lists)
    named = {captured[name]: value for name, value in wanted.items() if name in captured}
    # Of a list whose items are named one by one, those that the pattern says itself stay.
    pairs = [pair for name, many in listed.items() if name in wanted for pair in zip(many, wanted[name], strict=False)]
    named |= {item: value for item, value in pairs if isinstance(item, str)}
    others = {name: value for name, value in wanted.items() if name not in captured and name not in listed}
    if not others:
        return {**case, **named}
    rest = case.get(line.rest) if line.rest else None
    return {**case, **named, line.rest: {**rest, **others}} if isinstance(rest, dict) else None


def axes_in(rule: Rule, case: Case) -> list[str]:
    """The variables of a rule's pattern that a case gives the number of an axis."""
    return [v for line in rule.match for a, v in line.captures if a == "axis" and isinstance(case.get(v), int)]


def orders_in(rule: Rule, case: Case) -> list[str]:
    """The variables that hold permutations in a case."""
    return [v for line in rule.match for a, v in line.captures if a == "perm" and isinstance(case.get(v), list)]


def same(case: Case) -> Case:
    """No change."""
    return case


def since(opset: int, case: Case) -> Case:
    """A case in an operator set, or in its own if that is newer."""
    return case if opset <= opset_of(case) else {**case, "opset": opset}


def given(name: str, value: Any, opset: int, case: Case) -> Case:
    """A case in which a variable has a value."""
    return since(opset, {**case, name: value})


def within(rest: str, attribute: str, value: Any, opset: int, case: Case) -> Case:
    """A case in which an attribute that the pattern does not name has a value, or is left out."""
    held = {k: v for k, v in (case.get(rest) or {}).items() if k != attribute}
    return since(opset, {**case, rest: held if value is None else {**held, attribute: value}})
