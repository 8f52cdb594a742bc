"""Changes of a case in one attribute or operator, in an operator set that has it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from graphopt.prover.cases import Case
from graphopt.rewrite.examples import DEFAULT_OPSET
from graphopt.rewrite.pattern import Line

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
