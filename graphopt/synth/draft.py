"""From pairs of one skeleton to the text of a rule: attributes become variables, and what the replacement needs of them expressions.

The pairs of a skeleton are instances of one law, or of several that look alike. For every attribute and constant operand of
the replacement, the simplest expression in the pattern's attributes and shapes is taken that gives what the instances
have; instances that it does not fit are left for another draft.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from graphopt.errors import GraphoptError
from graphopt.rewrite.examples import build_example
from graphopt.rewrite.expr import Env, Unknown, compile_expression
from graphopt.rewrite.functions import FUNCTIONS
from graphopt.rewrite.schema import Rule, parse_rules
from graphopt.synth.operators import OPSET, Param, Shape, results
from graphopt.synth.pairs import Node, Pair, Ref, Side

LOOSE: Mapping[str, str] = {
    "LayerNormalization": "norm", "BatchNormalization": "norm", "Conv": "conv", "MaxPool": "pool", "AveragePool": "pool",
}  # fmt: skip
"""Operators with attributes that the generator does not vary, and the variable that carries these along."""

_NAMES: Mapping[str, tuple[str, ...]] = {
    "axis": ("i", "j"), "perm": ("p", "q"), "axes": ("over",), "sizes": ("sizes",), "dims": ("dims",), "flag": ("f",), "groups": ("g",),
}  # fmt: skip


def _fresh(names: Sequence[str], taken: Collection[str]) -> str:
    """The first of some names that is not taken, numbered if all are."""
    numbered = (f"{names[0]}{n}" for n in itertools.count(2))
    return next(name for name in itertools.chain(names, numbered) if name not in taken)


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


@dataclass(frozen=True)
class Draft:
    """A rule in the making: all but its conditions.

    Attributes:
        pairs: The instances that it fits.
        match: Lines of the pattern.
        replace: Lines of the replacement.
        let: Constants that the replacement needs, by name.
        roots: What the rule redefines.
        unordered: Whether roots may change places.
        slots: The pattern's variables.
        values: Names of the values that the pattern makes, roots included.
        windows: Whether windows are captured one by one.
    """

    pairs: tuple[Pair, ...]
    match: tuple[str, ...]
    replace: tuple[str, ...]
    let: Mapping[str, str]
    roots: tuple[str, ...]
    unordered: bool
    slots: tuple[Slot, ...]
    values: tuple[str, ...]
    style: str
    names: Mapping[str, str] = field(default_factory=dict)

    @property
    def leaves(self) -> tuple[str, ...]:
        """Names of the inputs."""
        return self.pairs[0].before.inputs

    def case(self, pair: Pair) -> dict[str, Any]:
        """An instance in the form of a rule's examples."""
        return _Pattern(self.pairs[0].before, self.style).case(pair)

    def text(
        self, id: str, doc: str, claim: str, where: Sequence[str], accept: Sequence[str], reject: Sequence[str]
    ) -> str:
        """The rule in YAML; ``accept`` and ``reject`` as they are written."""
        lines = [f"  - id: {id}", f"    doc: {_quoted(doc)}", f"    equal: {claim}", "    match:"]
        lines += [f"      - {line}" for line in self.match]
        if len(self.roots) > 1:
            named = f"[{', '.join(self.roots)}]"
            lines.append(f"    roots: {{unordered: {named}}}" if self.unordered else f"    roots: {named}")
        if where:
            lines += ["    where:", *(f"      - {_quoted(line)}" for line in where)]
        if self.let:
            lines += ["    let:", *(f"      {name}: {text}" for name, text in self.let.items())]
        lines += ["    replace:", *(f"      - {line}" for line in self.replace), "    examples:"]
        for kind, cases in (("accept", accept), ("reject", reject)):
            if cases:
                lines += [f"      {kind}:", *(f"        - {case}" for case in cases)]
        return "\n".join(lines) + "\n"

    def rule(
        self, where: Sequence[str] = (), accept: Sequence[str] = (), reject: Sequence[str] = (), claim: str = "real"
    ) -> Rule:
        """The rule itself."""
        return one_rule(self.text("draft", "draft", claim, where, accept, reject))


def one_rule(text: str) -> Rule:
    """The rule of a YAML item."""
    (rule,) = parse_rules(f"family: draft\ndoc: draft\nrules:\n{text}", "draft.yaml")
    return rule


def written(case: Mapping[str, Any]) -> str:
    """A case as an item of ``examples``."""

    def of(value: Any) -> str:
        if isinstance(value, Mapping):
            return "{" + ", ".join(f"{k}: {of(v)}" for k, v in value.items()) + "}"
        if isinstance(value, list | tuple):
            return "[" + ", ".join(map(of, value)) + "]"
        text = str(value)
        return f'"{text}"' if any(c in text for c in "[]{},=:") else text

    return of(dict(case))


def _quoted(text: str) -> str:
    plain = text[:1] not in "[{\"'*&!|>%@`-?" and ": " not in text and " #" not in text
    return text if plain else "'" + text.replace("'", "''") + "'"


def _number(value: float) -> str:
    return str(int(value)) if value == int(value) else repr(value)


class _Pattern:
    """The pattern of a draft: its lines and variables.

    Args:
        side: What is matched, with the names of the first instance.
        style: ``loose`` for windows that only have to be the same on both sides, ``windows`` to capture them one by one,
            ``plain`` for other attributes at their defaults besides.
    """

    def __init__(self, side: Side, style: str) -> None:
        self.side, self.style = side, style
        self.outputs = _outputs(side, "m")
        self.slots: list[Slot] = []
        self.lines: list[str] = []
        taken = set(side.inputs)
        for n, node in enumerate(side.nodes):
            self.lines.append(self._line(n, node, taken))

    def value(self, ref: Ref) -> str:
        if isinstance(ref, str):
            return ref
        return self.outputs[ref[0]][ref[1]] if isinstance(ref, tuple) else _number(ref)

    def _line(self, n: int, node: Node, taken: set[str]) -> str:
        attributes, fixed = [], []
        tensor = self.value(node.operands[0]) if node.op != "Unsqueeze" else next(o for o in self.outputs[n])
        for k, param in enumerate(node.form):
            if param.kind == "number":
                fixed.append(_number(param.value))
            elif not (self.style == "loose" and param.kind == "window"):
                variable = _fresh(_NAMES.get(param.kind, (param.name[:2],)), taken)
                taken.add(variable)
                self.slots.append(Slot(n, k, variable, param.kind, param.name, param.operand, tensor))
                if param.operand:
                    fixed.append(variable)
                else:
                    attributes.append(f"{param.name} = ${variable}")
        if node.op in LOOSE and self.style != "plain":
            attributes.append(f"*{LOOSE[node.op]}")
        inside = f"<{', '.join(attributes)}>" if attributes else ""
        return (
            f"{', '.join(self.outputs[n])} = {node.op}{inside}({', '.join([*map(self.value, node.operands), *fixed])})"
        )

    def case(self, pair: Pair) -> dict[str, Any]:
        """An instance as a case; inputs go by their place, so that instances of other worlds fit."""
        case: dict[str, Any] = {}
        for name, theirs in zip(self.side.inputs, pair.before.inputs, strict=True):
            case[name] = "".join(f"{d}x" for d in pair.shapes[theirs]) + "f32"
        for slot in self.slots:
            param = pair.before.nodes[slot.node].form[slot.param]
            value = list(param.value) if isinstance(param.value, tuple) else param.value
            case[slot.variable] = f"const {len(value)}xi64 = {value}" if slot.operand else value
        for node in pair.before.nodes:
            if node.op in LOOSE and self.style != "plain":
                held = {p.name: list(p.value) for p in node.form if p.kind == "window"} if self.style == "loose" else {}
                case[LOOSE[node.op]] = held
        case["opset"] = OPSET
        return case


def _outputs(side: Side, letter: str) -> list[list[str]]:
    """A name for every result: the roots are ``y`` or ``y1`` and ``y2``."""
    roots = {
        r: ("y" if len(side.roots) == 1 else f"y{i + 1}") for i, r in enumerate(side.roots) if isinstance(r, tuple)
    }
    read = {r for node in side.nodes for r in node.operands}
    count = itertools.count(1)
    made = []
    for n, node in enumerate(side.nodes):
        outs = 2 if node.op == "Split" else 1
        made.append([roots.get((n, o)) or (f"{letter}{next(count)}" if (n, o) in read else "_") for o in range(outs)])
    return made


def drafts(pairs: Sequence[Pair], style: str) -> Iterator[Draft]:
    """Drafts that together cover the instances of a skeleton, as far as expressions are found.

    Args:
        pairs: Of one skeleton.
        style: See :class:`_Pattern`.
    """
    left = list(pairs)
    for _ in range(3):
        if not left:
            return
        made = _draft(left, style)
        if made is None:
            left = left[1:]
            continue
        yield made
        left = [p for p in left if p not in made.pairs]


def styles(pair: Pair) -> list[str]:
    """Styles in which a pair is worth trying, the most general first."""
    used = [n for side in (pair.before, pair.after) for n in side.nodes if n.op in LOOSE]
    if not used:
        return ["plain"]
    left = {n.op for n in pair.before.nodes if n.op in LOOSE}
    windows = [n for n in used if any(p.kind == "window" for p in n.form)]
    same = len({(n.op, tuple(p for p in n.form if p.kind == "window")) for n in windows}) == len(
        {n.op for n in windows}
    )
    general = all(n.op in left for n in used)
    return (["loose"] if general and same else []) + (["windows"] if general and windows else []) + ["plain"]


def _draft(pairs: Sequence[Pair], style: str) -> Draft | None:
    first = pairs[0]
    pattern = _Pattern(first.before, style)
    roots = ("y",) if len(first.before.roots) == 1 else tuple(f"y{i + 1}" for i in range(len(first.before.roots)))
    bound = [(pair, env) for pair in pairs for env in [_bind(pattern, pair, roots)] if env is not None]
    if not bound or bound[0][0] is not first:
        return None
    replacement = _Replacement(pattern, first.after, roots)
    kept = replacement.resolve(bound)
    if not kept:
        return None
    swapped = Side(first.before.nodes, tuple(reversed(first.before.roots)))
    unordered = len(roots) == 2 and _shape_of(swapped) == _shape_of(first.before)
    values = tuple(dict.fromkeys(o for outs in pattern.outputs for o in outs if o != "_"))
    return Draft(tuple(kept), tuple(pattern.lines), tuple(replacement.lines), replacement.let, roots, unordered,
                 tuple(pattern.slots), values, style)  # fmt: skip


def _shape_of(side: Side) -> Any:
    """What a side looks like from its roots, inputs numbered as they are met."""
    number: dict[Any, int] = {}

    def of(ref: Ref) -> Any:
        if isinstance(ref, str):
            return number.setdefault(ref, len(number))
        if not isinstance(ref, tuple):
            return str(ref)
        if ref in number:
            return "seen", number[ref]
        node = side.nodes[ref[0]]
        made = (node.op, *[of(o) for o in node.operands], ref[1])
        number[ref] = len(number)
        return made

    return [of(r) for r in side.roots]


def _bind(pattern: _Pattern, pair: Pair, roots: Sequence[str]) -> Env | None:
    """What the pattern's variables are in an instance."""
    leaf = pattern.side.inputs[0]
    text = ["  - {id: bind, doc: bind, equal: real,", f"     match: {[*pattern.lines]},"]
    text += [f"     roots: [{', '.join(roots)}], replace: {[f'{r} = {leaf}' for r in roots]}}}"]
    try:
        example = build_example(one_rule("\n".join(text) + "\n"), pattern.case(pair))
    except GraphoptError:
        return None
    return None if example.match is None else Env(example.graph, example.match.names)


class _Replacement:
    """The replacement of a draft.

    Args:
        pattern: What is matched.
        side: What replaces it, with the names of the first instance.
        roots: Names of what is redefined.
    """

    def __init__(self, pattern: _Pattern, side: Side, roots: Sequence[str]) -> None:
        self.pattern, self.side, self.roots = pattern, side, roots
        self.outputs = _outputs(side, "n")
        self.lines: list[str] = []
        self.let: dict[str, str] = {}

    def _value(self, ref: Ref) -> str:
        if isinstance(ref, str):
            return ref
        return self.outputs[ref[0]][ref[1]] if isinstance(ref, tuple) else _number(ref)

    def resolve(self, bound: list[tuple[Pair, Env]]) -> list[Pair]:
        """Find an expression for everything; the instances that they fit, none if something can't be expressed."""
        taken = {s.variable for s in self.pattern.slots} | set(self.pattern.side.inputs)
        for n, node in enumerate(self.side.nodes):
            attributes, fixed, axis = [], [], ""
            for k, param in enumerate(node.form):
                if param.kind == "number":
                    fixed.append(_number(param.value))
                    continue
                if self.pattern.style == "loose" and param.kind == "window":
                    continue
                text, bound = self._expression(n, k, param, axis, bound)
                if not bound:
                    return []
                axis = text if param.kind == "axis" else axis
                if not param.operand:
                    if not (param.kind == "factor" and text == "1.0"):
                        attributes.append(f"{param.name} = {text}")
                elif any(s.operand and s.variable == text for s in self.pattern.slots):
                    fixed.append(text)
                else:
                    same = next((name for name, held in self.let.items() if held == f"i64({text})"), None)
                    name = same or _fresh((f"new_{param.name}",), taken)
                    taken.add(name)
                    self.let[name] = f"i64({text})"
                    fixed.append(name)
            if node.op in LOOSE and self.pattern.style != "plain":
                attributes.append(f"*{LOOSE[node.op]}")
            inside = f"<{', '.join(attributes)}>" if attributes else ""
            operands = ", ".join([*map(self._value, node.operands), *fixed])
            self.lines.append(f"{', '.join(self._named(n))} = {node.op}{inside}({operands})")
        for root, ref in zip(self.roots, self.side.roots, strict=True):
            if isinstance(ref, str):
                self.lines.append(f"{root} = {ref}")
        return [pair for pair, _ in bound]

    def _named(self, n: int) -> list[str]:
        # Nothing is ignored in a replacement: a result that nobody reads still needs a name.
        return [o if o != "_" else f"unread{n}" for o in self.outputs[n]]

    def _expression(
        self, n: int, k: int, param: Param, axis: str, bound: list[tuple[Pair, Env]]
    ) -> tuple[str, list[tuple[Pair, Env]]]:
        """The simplest expression that fits most instances, and those."""
        best: tuple[str, list[tuple[Pair, Env]]] = ("", [])
        for text in dict.fromkeys(self._candidates(n, param, axis, bound)):
            compiled = compile_expression(text, FUNCTIONS)
            fits = [(pair, env) for pair, env in bound if _fits(compiled.run, env, pair, n, k)]
            # The first instance is what the draft is about.
            if len(fits) > len(best[1]) and fits[0][0] is bound[0][0]:
                best = (text, fits)
        return best

    def _candidates(self, n: int, param: Param, axis: str, bound: list[tuple[Pair, Env]]) -> Iterator[str]:
        slots = self.pattern.slots
        same = [s for s in slots if s.kind == param.kind and s.name == param.name]
        others = [s for s in slots if s.kind == param.kind and s.name != param.name]
        axes = [s for s in slots if s.kind == "axis"]
        over = [s for s in slots if s.kind == "axes"]
        perms = [s for s in slots if s.kind == "perm"]
        leaves = list(self.pattern.side.inputs)
        values = [*leaves, *(o for outs in self.pattern.outputs for o in outs if o != "_")]
        literal = repr(list(param.value)) if isinstance(param.value, tuple) else repr(param.value)
        match param.kind:
            case "axis":
                yield from (s.variable for s in same)
                yield from (f"axis({s.variable}, rank({s.tensor}))" for s in axes)
                yield from (f"{p.variable}[axis({s.variable}, len({p.variable}))]" for p in perms for s in axes)
                yield from (f"invert({p.variable})[axis({s.variable}, len({p.variable}))]" for p in perms for s in axes)
                yield from (f"axis({s.variable}, rank({s.tensor})) {d}" for s in axes for d in ("+ 1", "- 1"))
                yield from (f"values({s.variable})[0]" for s in over)
                rank = len(_operand_shape(bound[0][0].after, n, bound[0][0].shapes))
                yield repr((param.value % rank) - rank)
                yield repr(param.value % rank)
            case "axes":
                yield from (s.variable for s in [*same, *others])
                yield from (
                    f"[{p.variable}[a] for a in axes(values({s.variable}), len({p.variable}))]"
                    for p in perms
                    for s in over
                )
                yield from (
                    f"[invert({p.variable})[a] for a in axes(values({s.variable}), len({p.variable}))]"
                    for p in perms
                    for s in over
                )
                yield from (f"values({s.variable}) + values({t.variable})" for s, t in itertools.combinations(over, 2))
                yield from (
                    f"axes(values({s.variable}), rank({s.tensor})) + axes(values({t.variable}), rank({t.tensor}))"
                    for s, t in itertools.combinations(over, 2)
                )
                yield from (f"[axis({s.variable}, rank({s.tensor}))]" for s in axes)
                yield from (
                    f"[a {d} for a in axes(values({s.variable}), rank({s.tensor}))]"
                    for s in over
                    for d in ("+ 1", "- 1")
                )
                rank = len(_operand_shape(bound[0][0].after, n, bound[0][0].shapes)) + (
                    self.side.nodes[n].op == "Unsqueeze"
                )
                yield repr([(a % rank) - rank for a in param.value])
                yield literal
            case "perm":
                yield from (s.variable for s in same)
                yield from (f"invert({s.variable})" for s in same)
                yield from (f"permute({s.variable}, {t.variable})" for s, t in itertools.permutations(same, 2))
                yield from (f"[k - 1 if k > {p}[{a}] else k for k in {p} if k != {p}[{a}]]"
                            for s in perms for p in [s.variable] for t in over for a in [f"axis(values({t.variable})[0], len({p}))"])  # fmt: skip
                yield from (f"[k for k in range(rank({v}) - 2)] + [rank({v}) - 1, rank({v}) - 2]" for v in values)
                yield literal
            case "sizes":
                if axis:
                    outs = self._named(n)
                    if all(o in self.roots for o in outs):
                        yield f"[{', '.join(f'dim({o}, {axis})' for o in outs)}]"
                    yield from (f"[dim({v}, {axis}), dim({w}, {axis})]" for v, w in itertools.permutations(values, 2))
                yield from (s.variable for s in same)
                yield literal
            case "dims":
                yield from (s.variable for s in same)
                operand = self.side.nodes[n].operands[0]
                if isinstance(operand, str):
                    yield from (f"target({operand}, {v})" for v in reversed(values))
                yield from (f"shape({v})" for v in reversed(values))
                yield literal
            case "position":
                yield from (s.variable for s in same)
                yield from (
                    f"[values({s.variable})[0] - dim({v}, values({t.variable})[0])]"
                    for s in same
                    for t in over
                    for v in leaves
                )
                yield from (
                    f"[values({s.variable})[0] + values({t.variable})[0]]"
                    for s, t in itertools.combinations([*same, *others], 2)
                )
                yield literal
            case "window" if param.name == "kernel_shape":
                yield from (s.variable for s in same)
                yield from (
                    f"[a + b - 1 for a, b in zip({s.variable}, {t.variable})]"
                    for s, t in itertools.combinations(same, 2)
                )
                yield literal
            case "window" if param.name == "pads":
                yield from (s.variable for s in same)
                yield from (
                    f"[a + b for a, b in zip({s.variable}, {t.variable})]" for s, t in itertools.combinations(same, 2)
                )
                yield literal
            case "flag":
                yield from (s.variable for s in same)
                yield from (f"1 - {s.variable}" for s in [*same, *others])
                yield from (s.variable for s in others)
                yield literal
            case _:
                yield from (s.variable for s in same)
                yield literal


def _operand_shape(side: Side, n: int, shapes: Mapping[str, Shape]) -> Shape:
    """Shape of a node's first operand."""
    made: list[tuple[Shape, ...]] = []

    def of(ref: Ref) -> Shape:
        if isinstance(ref, str):
            return shapes[ref]
        return made[ref[0]][ref[1]] if isinstance(ref, tuple) else ()

    for node in side.nodes[:n]:
        made.append(results(node.op, node.form, tuple(map(of, node.operands))))
    return of(side.nodes[n].operands[0])


def _fits(run: Any, env: Env, pair: Pair, n: int, k: int) -> bool:
    """Whether an expression gives what an instance has at a place of its replacement."""
    param = pair.after.nodes[n].form[k]
    try:
        found = run(env)
        if isinstance(found, tuple) and len(found) == 1 and found[0] is not None and hasattr(found, "key"):
            found = FUNCTIONS["values"](env, found)  # an operand of the pattern
    except Unknown:
        return False
    shape = _operand_shape(pair.after, n, pair.shapes)
    rank = len(shape) + (pair.after.nodes[n].op == "Unsqueeze")
    if param.kind == "axis":
        return isinstance(found, int) and -rank <= found < rank and found % rank == param.value % rank
    if param.kind == "axes":
        return isinstance(found, tuple) and all(isinstance(a, int) and -rank <= a < rank for a in found) and sorted(
            a % rank for a in found) == sorted(a % rank for a in param.value)  # fmt: skip
    if param.kind == "dims" and isinstance(found, tuple):
        found = tuple(shape[i] if d == 0 and i < len(shape) else d for i, d in enumerate(found))
    wanted = tuple(param.value) if isinstance(param.value, tuple | list) else param.value
    return bool(found == wanted)
