"""A rule in the making: the lines of its two sides, with attributes as variables."""

from __future__ import annotations

import itertools
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from graphopt.ir import ops
from graphopt.rewrite.schema import Rule, parse_rules
from graphopt.synth.operators import OPSET, TABLE, Param
from graphopt.synth.pairs import Node, Pair, Ref, Side

LOOSE: Mapping[str, str] = {
    "LayerNormalization": "norm", "BatchNormalization": "norm", "Conv": "conv", "MaxPool": "pool", "AveragePool": "pool",
}  # fmt: skip
"""Operators with attributes that the generator does not vary, and the variable that carries these along."""

_NAMES: Mapping[str, tuple[str, ...]] = {
    "axis": ("i", "j"), "perm": ("p", "q"), "axes": ("over",), "sizes": ("sizes",), "dims": ("dims",), "flag": ("f",), "groups": ("g",),
}  # fmt: skip
_DIFFERENCE = re.compile(r"1 - ([01])")


def fresh(names: Sequence[str], taken: Collection[str]) -> str:
    """The first of some names that is not taken, numbered if all are."""
    numbered = (f"{names[0]}{n}" for n in itertools.count(2))
    return next(name for name in itertools.chain(names, numbered) if name not in taken)


@dataclass(frozen=True, slots=True)
class Row:
    """A line of a pattern or of a replacement.

    Attributes:
        outputs: Names of the results.
        op: Operator type, ``""`` for a line that gives a value another name.
        attributes: Name and value as they are written; no name for ``*rest``.
        operands: As they are written.
    """

    outputs: tuple[str, ...]
    op: str
    attributes: tuple[tuple[str, str], ...]
    operands: tuple[str, ...]

    def __str__(self) -> str:
        left = f"{', '.join(self.outputs)} = "
        if not self.op:
            return left + self.operands[0]
        said = ", ".join(f"{name} = {value}" if name else value for name, value in self.attributes)
        return f"{left}{self.op}{f'<{said}>' if said else ''}({', '.join(self.operands)})"

    def fixing(self, values: Mapping[str, str]) -> Row:
        """The line with numbers in place of variables; what is the default then is left out."""
        made = []
        for name, value in self.attributes:
            said = fixed(value, values)
            default = ops.default(self.op, name, opset=OPSET)
            if said == value or default is None or said != f"{default:g}":
                made.append((name, said))
        return replace(self, attributes=tuple(made))


def fixed(text: str, values: Mapping[str, str]) -> str:
    """An expression with numbers in place of variables."""
    for variable, value in values.items():
        text = re.sub(rf"\$?\b{variable}\b", value, text)
    return _DIFFERENCE.sub(lambda m: str(1 - int(m[1])), text)


@dataclass(frozen=True, slots=True)
class Slot:
    """An attribute or constant operand of the pattern, and the variable that it is bound to.

    Attributes:
        node: Index of the pattern's node.
        param: Index in the node's form.
        variable: Name of the variable.
        kind: See :class:`graphopt.synth.operators.Param`.
        name: Name of the attribute or operand.
        operand: Whether it is an operand.
        tensor: Name of the value that axes are of.
    """

    node: int
    param: int
    variable: str
    kind: str
    name: str
    operand: bool
    tensor: str


Case = Mapping[str, Any]
"""An instance in the form of a rule's examples."""


@dataclass(frozen=True)
class Draft:
    """A rule in the making: all but its conditions.

    Attributes:
        pairs: The instances that it fits.
        pattern: What is matched.
        replace: Lines of the replacement.
        let: Constants that the replacement needs, by name.
        unordered: Whether roots may change places.
        fix: Variables of the pattern in whose place numbers stand.
    """

    pairs: tuple[Pair, ...]
    pattern: Pattern
    replace: tuple[Row, ...]
    let: Mapping[str, str]
    unordered: bool
    fix: Mapping[str, str]

    @property
    def slots(self) -> tuple[Slot, ...]:
        """The pattern's variables."""
        return tuple(self.pattern.slots)

    @property
    def leaves(self) -> tuple[str, ...]:
        """Names of the inputs."""
        return self.pattern.side.inputs

    @property
    def values(self) -> tuple[str, ...]:
        """Names of the values that the pattern makes, roots included."""
        return tuple(dict.fromkeys(o for outs in self.pattern.outputs for o in outs if o != "_"))

    def text(
        self, id: str, doc: str, claim: str, where: Sequence[str], accept: Sequence[Case], reject: Sequence[Case]
    ) -> str:
        """The rule in YAML."""
        lines = [f"  - id: {id}", f"    doc: {doc}", f"    equal: {claim}", "    match:"]
        lines += [f"      - {row.fixing(self.fix)}" for row in self.pattern.rows]
        roots = self.pattern.roots
        if len(roots) > 1:
            named = f"[{', '.join(roots)}]"
            lines.append(f"    roots: {{unordered: {named}}}" if self.unordered else f"    roots: {named}")
        if where:
            lines += ["    where:", *(f"      - {_quoted(line)}" for line in where)]
        if self.let:
            lines += ["    let:", *(f"      {name}: {fixed(text, self.fix)}" for name, text in self.let.items())]
        lines += ["    replace:", *(f"      - {row.fixing(self.fix)}" for row in self.replace), "    examples:"]
        for kind, cases in (("accept", accept), ("reject", reject)):
            if cases:
                lines += [f"      {kind}:", *(f"        - {_written(case, self.fix)}" for case in cases)]
        return "\n".join(lines) + "\n"

    def rule(self, where: Sequence[str] = (), accept: Sequence[Case] = ()) -> Rule:
        """The rule itself."""
        return one_rule(self.text("draft", "draft", "real", where, accept, ()))


def one_rule(text: str) -> Rule:
    """The rule of a YAML item."""
    (rule,) = parse_rules(f"family: draft\ndoc: draft\nrules:\n{text}", "draft.yaml")
    return rule


def weakened(text: str) -> str:
    """A rule that claims to be exact with a claim that counts no signs of zeros; any other as it is."""
    return text.replace("equal: exact", "equal: real", 1)


def _written(case: Case, without: Collection[str]) -> str:
    """A case as an item of ``examples``, some variables left out."""

    def of(value: Any) -> str:
        if isinstance(value, Mapping):
            return "{" + ", ".join(f"{k}: {of(v)}" for k, v in value.items()) + "}"
        if isinstance(value, list | tuple):
            return "[" + ", ".join(map(of, value)) + "]"
        text = str(value)
        return f'"{text}"' if any(c in text for c in "[]{},=:") else text

    return of({name: value for name, value in case.items() if name not in without})


def _quoted(text: str) -> str:
    plain = text[:1] not in "[{\"'*&!|>%@`-?" and ": " not in text and " #" not in text
    return text if plain else "'" + text.replace("'", "''") + "'"


STYLES = ("loose", "windows", "plain", "bare")
"""Windows that only have to be the same on both sides; windows captured one by one; other attributes at their defaults
besides; and flags and factors at theirs."""


def at_default(node: Node, param: Param) -> bool:
    """Whether a flag or a factor has its default value."""
    return param.kind in ("flag", "factor") and param.value == ops.default(node.op, param.name, opset=OPSET)


class Pattern:
    """What a draft matches: lines and variables.

    Args:
        side: The graph, with the names of the first instance.
        style: One of :data:`STYLES`.

    Attributes:
        roots: Names of what the rule redefines.
        outputs: Names of the results of each node, ``_`` for one that nobody reads.
        rows: Its lines.
        slots: Its variables.
    """

    def __init__(self, side: Side, style: str) -> None:
        self.side, self.style = side, style
        self.roots = ("y",) if len(side.roots) == 1 else tuple(f"y{i + 1}" for i in range(len(side.roots)))
        self.outputs = named_outputs(side, self.roots, "m")
        self.slots: list[Slot] = []
        taken = set(side.inputs)
        self.rows = [self._row(n, node, taken) for n, node in enumerate(side.nodes)]

    def _row(self, n: int, node: Node, taken: set[str]) -> Row:
        attributes: list[tuple[str, str]] = []
        operands = [operand(o, self.outputs) for o in node.operands]
        tensor = operands[0] if node.op != "Unsqueeze" else self.outputs[n][0]
        for k, param in enumerate(node.form):
            if param.kind == "number":
                operands.append(f"{param.value:g}")
            elif not (self.style == "loose" and param.kind == "window") and not (
                self.style == "bare" and at_default(node, param)
            ):
                variable = fresh(_NAMES.get(param.kind, (param.name[:2],)), taken)
                taken.add(variable)
                self.slots.append(Slot(n, k, variable, param.kind, param.name, param.operand, tensor))
                if param.operand:
                    operands.append(variable)
                else:
                    attributes.append((param.name, f"${variable}"))
        if node.op in LOOSE and self.style in ("loose", "windows"):
            attributes.append(("", f"*{LOOSE[node.op]}"))
        return Row(tuple(self.outputs[n]), node.op, tuple(attributes), tuple(operands))

    def case(self, pair: Pair) -> Case:
        """An instance as a case; inputs go by their place, so that instances of other worlds fit."""
        case: dict[str, Any] = {}
        for name, theirs in zip(self.side.inputs, pair.before.inputs, strict=True):
            case[name] = "".join(f"{d}x" for d in pair.shapes[theirs]) + "f32"
        for slot in self.slots:
            value = pair.before.nodes[slot.node].form[slot.param].value
            value = list(value) if isinstance(value, tuple) else value
            case[slot.variable] = f"const {len(value)}xi64 = {value}" if slot.operand else value
        for node in pair.before.nodes:
            if node.op in LOOSE and self.style in ("loose", "windows"):
                held = {p.name: list(p.value) for p in node.form if p.kind == "window"} if self.style == "loose" else {}
                case[LOOSE[node.op]] = held
        case["opset"] = OPSET
        return case


def operand(ref: Ref, outputs: Sequence[Sequence[str]]) -> str:
    """How an operand is written, given the names of what the nodes make."""
    if isinstance(ref, tuple):
        return outputs[ref[0]][ref[1]]
    return ref if isinstance(ref, str) else f"{ref:g}"


def named_outputs(side: Side, roots: Sequence[str], letter: str) -> list[list[str]]:
    """A name for every result of a side."""
    named = {ref: name for ref, name in zip(side.roots, roots, strict=True) if isinstance(ref, tuple)}
    read = {r for node in side.nodes for r in node.operands}
    count = itertools.count(1)
    made = []
    for n, node in enumerate(side.nodes):
        outs = TABLE[node.op].outputs
        made.append([named.get((n, o)) or (f"{letter}{next(count)}" if (n, o) in read else "_") for o in range(outs)])
    return made
