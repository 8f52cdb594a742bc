"""Wrong rules made from right ones, to see that the prover refuses them.

A mutant changes one place of a rule's text. Many changes leave a rule true (a hint dropped, a condition that only says
which dtypes the target has kernels for); whether one is wrong is decided by someone else than the prover: ONNX Runtime
runs both sides of the mutant's examples, accepting and rejecting ones, and a mutant counts as wrong when they differ there
or the replacement does not run.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from graphopt.errors import GraphoptError
from graphopt.ir.delta import RefusedError
from graphopt.prover.examples import UndefinedError, compare_sides
from graphopt.prover.proof import prove
from graphopt.rewrite.examples import ExampleError, build_example
from graphopt.rewrite.schema import Rule, parse_rules

_OTHER = {
    "Add": "Sub", "Sub": "Add", "Mul": "Add", "Div": "Mul", "Max": "Min", "Min": "Max", "Relu": "Abs", "Sqrt": "Abs",
    "ReduceMean": "ReduceSum", "ReduceSum": "ReduceMean", "ReduceMax": "ReduceMin", "MaxPool": "AveragePool",
    "GlobalAveragePool": "GlobalMaxPool", "GlobalMaxPool": "GlobalAveragePool", "Exp": "Sqrt", "Neg": "Abs",
    "Sigmoid": "Tanh", "Tanh": "Sigmoid", "Softmax": "LogSoftmax", "Reciprocal": "Neg", "Sum": "Mean",
}  # fmt: skip
_ORDERED = re.compile(r"\b(Sub|Div|MatMul|Pow|Concat|Gemm|Where|Gather)\s*(<[^(]*>)?\(([^()]*)\)")


@dataclass(frozen=True)
class Mutant:
    """A changed rule.

    Attributes:
        rule: As parsed.
        kind: What was changed.
        change: The changed line, before and after.
    """

    rule: Rule
    kind: str
    change: str


def mutants(file: Path, chance: random.Random | None = None) -> Iterator[Mutant]:
    """Every mutant of every rule of a file that still parses, in order or at random; parsed as they are asked for."""
    data = yaml.load(file.read_text(encoding="utf-8"), Loader=yaml.CBaseLoader)
    changes = [change for item in data["rules"] for change in _changes(item)]
    if chance is not None:
        chance.shuffle(changes)
    for kind, change, changed in changes:
        text = yaml.safe_dump(
            {"family": data["family"], "doc": "mutants", "rules": [changed]}, sort_keys=False, width=10_000
        )
        try:
            (rule,) = parse_rules(text, "mutant.yaml")
        except GraphoptError:
            continue
        yield Mutant(rule, kind, change)


def _changes(item: dict[str, Any]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    for i, condition in enumerate(item.get("where", [])):
        yield "where dropped", condition, {**item, "where": item["where"][:i] + item["where"][i + 1 :]}
        parts = condition.split(" and ")
        for k in range(len(parts)) if len(parts) > 1 else ():
            weaker = " and ".join(parts[:k] + parts[k + 1 :])
            yield "where weakened", f"{condition} -> {weaker}", _with(item, "where", i, weaker)
    for i, line in enumerate(item["replace"]):
        for kind, other in _line_changes(line):
            yield kind, f"{line} -> {other}", _with(item, "replace", i, other)
    for name, expression in (item.get("let") or {}).items():
        for other in _off_by_one(expression):
            yield "off by one", f"{name}: {expression} -> {other}", {**item, "let": {**item["let"], name: other}}


def _with(item: dict[str, Any], key: str, index: int, value: str) -> dict[str, Any]:
    return {**item, key: [value if i == index else v for i, v in enumerate(item[key])]}


def _line_changes(line: str) -> Iterator[tuple[str, str]]:
    left, _, right = line.partition("=")
    for found in _ORDERED.finditer(right):
        operands = [o.strip() for o in found[3].split(",")]
        if len(operands) > 1 and operands[-1] != operands[-2]:
            swapped = (
                right[: found.start(3)]
                + ", ".join([*operands[:-2], operands[-1], operands[-2]])
                + right[found.end(3) :]
            )
            yield "operands swapped", f"{left}={swapped}"
    for op, other in _OTHER.items():
        if re.search(rf"\b{op}\b", right):
            yield "operator changed", f"{left}={re.sub(rf'{op}', other, right, count=1)}"
    found = re.search(r"\((.*)\)$", right)
    if found:
        operands = [o.strip() for o in found[1].split(",")]
        for i, operand in enumerate(operands):
            if operand.endswith("?"):
                yield (
                    "operand dropped",
                    f"{left}={right[: found.start(1)]}{', '.join(['none' if k == i else o for k, o in enumerate(operands)])})",
                )
            number = re.fullmatch(r"-?\d+(\.\d+)?([eE]-?\d+)?", operand)
            if number:
                other = f"{float(operand) * 1.01 + 0.003:.9g}"
                changed = [other if k == i else o for k, o in enumerate(operands)]
                yield "constant changed", f"{left}={right[: found.start(1)]}{', '.join(changed)})"
    attributes = re.search(r"<(.*)>", right)
    if attributes:
        inside = attributes[1]
        for other in _off_by_one(inside):
            yield "attribute off by one", f"{left}={right[: attributes.start(1)]}{other}{right[attributes.end(1) :]}"
        rest = re.search(r",?\s*\*\w+", inside)
        if rest:
            bare = inside.replace(rest[0], "")
            yield (
                "attributes dropped",
                f"{left}={right[: attributes.start()]}{f'<{bare}>' if bare.strip() else ''}{right[attributes.end() :]}",
            )
    outputs = [o.strip() for o in left.split(",")]
    if len(outputs) > 1:
        yield "outputs swapped", f"{', '.join([outputs[1], outputs[0], *outputs[2:]])} ={right}"


def _off_by_one(expression: str) -> Iterator[str]:
    for found in re.finditer(r"(?<![\w.])-?\d+(?![\w.])", expression):
        yield expression[: found.start()] + str(int(found[0]) + 1) + expression[found.end() :]


def wrong(mutant: Mutant) -> bool:
    """Whether ONNX Runtime shows the two sides of some example to differ, or can't run the replacement."""
    rule = mutant.rule
    for case in (*rule.examples["accept"], *rule.examples["reject"]):
        try:
            example = build_example(rule, case)
        except (ExampleError, GraphoptError):
            continue
        if example.match is None or _integer_division(rule, case):
            continue
        for seed in (0, 1):
            try:
                error = compare_sides(rule, case, seed)
            except (RefusedError, UndefinedError):
                break  # the engine does not let it happen, or there is nothing to compare with
            except GraphoptError as problem:
                # A dtype for which the runtime has no kernel says nothing of the law.
                return "NOT_IMPLEMENTED" not in str(problem) and "not find an implementation" not in str(problem)
            if not error <= max(rule.bound * 10, 1e-3):
                return True
    return False


def _integer_division(rule: Rule, case: Mapping[str, Any]) -> bool:
    """By zero, on random inputs: undefined, so that nothing follows from a difference."""
    integers = any(
        re.search(r"[iu](8|16|32|64)$", str(v).split("=")[0].strip()) for k, v in case.items() if k in rule.leaves
    )
    return integers and any(op == "Div" for line in (*rule.match, *rule.replace) for _, op in line.ops)


def accepted(mutant: Mutant) -> bool:
    """Whether the prover finds nothing wrong with it. (A rule that the engine never lets happen is not accepted.)"""
    return prove(mutant.rule).outcome in ("proved", "attacked")
