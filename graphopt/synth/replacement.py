"""From the instances of a law to a draft: expressions for what the replacement needs of the pattern's attributes and shapes.

The pairs of a skeleton are instances of one law, or of several that look alike. For every attribute and constant operand of
the replacement, the simplest expression is taken that gives what the instances have; instances that it does not fit are
left for another draft.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from graphopt.errors import GraphoptError
from graphopt.rewrite.examples import build_example
from graphopt.rewrite.expr import Env, Ref, Unknown, compile_expression
from graphopt.rewrite.functions import FUNCTIONS
from graphopt.synth import pairs as sides
from graphopt.synth.draft import LOOSE, Draft, Pattern, Row, at_default, fresh, named_outputs, one_rule, operand
from graphopt.synth.operators import Param, Shape, results
from graphopt.synth.pairs import Pair, Side

_Bound = list[tuple[Pair, Env]]
"""Instances, each with what the pattern's variables are there."""


def drafts(pairs: Sequence[Pair], style: str) -> Iterator[Draft]:
    """Drafts that together cover the instances of a skeleton, as far as expressions are found."""
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
    used = [n for n in pair.nodes if n.op in LOOSE]
    scaled = any(p.kind == "factor" for n in pair.before.nodes for p in n.form)
    plain = ["plain", "bare"] if scaled else ["plain"]
    if not used:
        return plain
    left = {n.op for n in pair.before.nodes if n.op in LOOSE}
    windows = [n for n in used if any(p.kind == "window" for p in n.form)]
    same = len({(n.op, tuple(p for p in n.form if p.kind == "window")) for n in windows}) == len(
        {n.op for n in windows}
    )
    general = all(n.op in left for n in used)
    return (["loose"] if general and same else []) + (["windows"] if general and windows else []) + plain


def _draft(pairs: Sequence[Pair], style: str) -> Draft | None:
    first = pairs[0]
    pattern = Pattern(first.before, style)
    bound = [(pair, env) for pair in pairs for env in [_bind(pattern, pair)] if env is not None]
    if not bound or bound[0][0] is not first:
        return None
    replacement = _Replacement(pattern, first.after)
    kept = replacement.resolve(bound)
    if not kept:
        return None
    swapped = Side(first.before.nodes, tuple(reversed(first.before.roots)))
    unordered = len(pattern.roots) == 2 and _shape_of(swapped) == _shape_of(first.before)
    return Draft(tuple(kept), pattern, tuple(replacement.rows), replacement.let, unordered, {})


def _shape_of(side: Side) -> Any:
    """What a side looks like from its roots, inputs numbered as they are met."""
    number: dict[Any, int] = {}

    def of(ref: sides.Ref) -> Any:
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


def _bind(pattern: Pattern, pair: Pair) -> Env | None:
    """What the pattern's variables are in an instance."""
    leaf = pattern.side.inputs[0]
    item = [f"id: bind, doc: bind, equal: real, match: {[str(row) for row in pattern.rows]}"]
    item += [f"roots: [{', '.join(pattern.roots)}], replace: {[f'{r} = {leaf}' for r in pattern.roots]}"]
    try:
        example = build_example(one_rule(f"  - {{{', '.join(item)}}}\n"), pattern.case(pair))
    except GraphoptError:
        return None
    return None if example.match is None else Env(example.graph, example.match.names)


class _Replacement:
    """The replacement of a draft.

    Args:
        pattern: What is matched.
        side: What replaces it, with the names of the first instance.

    Attributes:
        rows: Its lines.
        let: The constants that it needs.
    """

    def __init__(self, pattern: Pattern, side: Side) -> None:
        self.pattern, self.side = pattern, side
        self.outputs = named_outputs(side, pattern.roots, "n")
        self.rows: list[Row] = []
        self.let: dict[str, str] = {}

    def resolve(self, bound: _Bound) -> list[Pair]:
        """Find an expression for everything; the instances that they fit, none if something can't be expressed."""
        taken = {s.variable for s in self.pattern.slots} | set(self.pattern.side.inputs)
        for n, node in enumerate(self.side.nodes):
            attributes: list[tuple[str, str]] = []
            operands = [operand(o, self.outputs) for o in node.operands]
            axis = ""
            for k, param in enumerate(node.form):
                if param.kind == "number":
                    operands.append(f"{param.value:g}")
                    continue
                if self.pattern.style == "loose" and param.kind == "window":
                    continue
                text, bound = self._expression(n, k, param, axis, bound)
                if not bound:
                    return []
                axis = text if param.kind == "axis" else axis
                if not param.operand:
                    literal = any(text == said for said in (repr(param.value), "1.0"))
                    if not (literal and at_default(node, param)):
                        attributes.append((param.name, text))
                elif any(s.operand and s.variable == text for s in self.pattern.slots):
                    operands.append(text)
                else:
                    same = next((name for name, held in self.let.items() if held == f"i64({text})"), None)
                    name = same or fresh((f"new_{param.name}",), taken)
                    taken.add(name)
                    self.let[name] = f"i64({text})"
                    operands.append(name)
            if node.op in LOOSE and self.pattern.style in ("loose", "windows"):
                attributes.append(("", f"*{LOOSE[node.op]}"))
            self.rows.append(Row(tuple(self._named(n)), node.op, tuple(attributes), tuple(operands)))
        for root, ref in zip(self.pattern.roots, self.side.roots, strict=True):
            if isinstance(ref, str):
                self.rows.append(Row((root,), "", (), (ref,)))
        return [pair for pair, _ in bound]

    def _named(self, n: int) -> list[str]:
        # Nothing is ignored in a replacement: a result that nobody reads still needs a name.
        return [o if o != "_" else f"unread{n}" for o in self.outputs[n]]

    def _expression(self, n: int, k: int, param: Param, axis: str, bound: _Bound) -> tuple[str, _Bound]:
        """The simplest expression that fits most instances, and those."""
        best: tuple[str, _Bound] = ("", [])
        for text in dict.fromkeys(self._candidates(n, param, axis, bound)):
            if best[0] and param.kind == "axes" and not any(c.isalpha() for c in text):
                continue  # numbers say less than what they are the same as
            compiled = compile_expression(text, FUNCTIONS)
            fits = [(pair, env) for pair, env in bound if _fits(compiled.run, env, pair, n, k)]
            # The first instance is what the draft is about.
            if len(fits) > len(best[1]) and fits[0][0] is bound[0][0]:
                best = (text, fits)
        return best

    def _candidates(self, n: int, param: Param, axis: str, bound: _Bound) -> Iterator[str]:
        """Expressions for a parameter, the simplest first: what the pattern has, what can be made of it, the number itself."""
        slots = _Slots(param, self.pattern)
        node = self.side.nodes[n]
        first = bound[0][0]
        literal = repr(list(param.value)) if isinstance(param.value, tuple) else repr(param.value)
        match param.kind:
            case "axis":
                rank = len(_operand_shape(first.after, n, first.shapes))
                yield from slots.axis()
                yield repr((param.value % rank) - rank)
                literal = repr(param.value % rank)
            case "axes":
                rank = len(_operand_shape(first.after, n, first.shapes)) + (node.op == "Unsqueeze")
                yield from slots.axes_()
                yield repr([(a % rank) - rank for a in param.value])
            case "perm":
                yield from slots.perm()
            case "sizes":
                if axis:
                    outs = self._named(n)
                    if all(o in self.pattern.roots for o in outs):
                        yield f"[{', '.join(f'dim({o}, {axis})' for o in outs)}]"
                    pairs = itertools.permutations(slots.values, 2)
                    yield from (f"[dim({v}, {axis}), dim({w}, {axis})]" for v, w in pairs)
                yield from slots.plain()
            case "dims":
                yield from slots.plain()
                operand = node.operands[0]
                if isinstance(operand, str):
                    yield from (f"target({operand}, {v})" for v in reversed(slots.values))
                yield from (f"shape({v})" for v in reversed(slots.values))
            case "position":
                yield from slots.position()
            case "window":
                yield from slots.window()
            case "flag":
                yield from slots.plain()
                yield from (f"1 - {s.variable}" for s in [*slots.same, *slots.others])
                yield from (s.variable for s in slots.others)
            case _:
                yield from slots.plain()
        yield literal


class _Slots:
    """Expressions of what a pattern's variables stand for, by the kind of the parameter that they are to give.

    Attributes:
        same: Variables for the same parameter of an operator.
        others: Those of the same kind with another name.
        values: Names of the pattern's inputs and results.
    """

    def __init__(self, param: Param, pattern: Pattern) -> None:
        self.param, slots = param, pattern.slots
        self.same = [s for s in slots if s.kind == param.kind and s.name == param.name]
        self.others = [s for s in slots if s.kind == param.kind and s.name != param.name]
        self.axes = [s for s in slots if s.kind == "axis"]
        self.over = [s for s in slots if s.kind == "axes"]
        self.perms = [s.variable for s in slots if s.kind == "perm"]
        self.leaves = list(pattern.side.inputs)
        self.values = [*self.leaves, *(o for outs in pattern.outputs for o in outs if o != "_")]

    def plain(self) -> Iterator[str]:
        """What the pattern has for the same parameter."""
        yield from (s.variable for s in self.same)

    def axis(self) -> Iterator[str]:
        """An axis."""
        found = [f"axis({s.variable}, rank({s.tensor}))" for s in self.axes]
        yield from self.plain()
        yield from found
        yield from (f"{p}[axis({s.variable}, len({p}))]" for p in self.perms for s in self.axes)
        yield from (f"invert({p})[axis({s.variable}, len({p}))]" for p in self.perms for s in self.axes)
        yield from (f"{axis} {d}" for axis in found for d in ("+ 1", "- 1"))
        yield from (f"values({s.variable})[0]" for s in self.over)

    def axes_(self) -> Iterator[str]:
        """Several axes."""
        found = {s.variable: f"axes(values({s.variable}), rank({s.tensor}))" for s in self.over}
        yield from (s.variable for s in [*self.same, *self.others])
        for order in ("{p}", "invert({p})"):
            for p, s in itertools.product(self.perms, self.over):
                yield f"[{order.format(p=p)}[a] for a in axes(values({s.variable}), len({p}))]"
        yield from (f"values({s.variable}) + values({t.variable})" for s, t in itertools.combinations(self.over, 2))
        yield from (f"{found[s.variable]} + {found[t.variable]}" for s, t in itertools.combinations(self.over, 2))
        yield from (f"[axis({s.variable}, rank({s.tensor}))]" for s in self.axes)
        yield from (f"[a {d} for a in {axes}]" for axes in found.values() for d in ("+ 1", "- 1"))

    def perm(self) -> Iterator[str]:
        """An order of axes."""
        yield from self.plain()
        yield from (f"invert({s.variable})" for s in self.same)
        yield from (f"permute({s.variable}, {t.variable})" for s, t in itertools.permutations(self.same, 2))
        for p, t in itertools.product(self.perms, self.over):
            gone = f"{p}[axis(values({t.variable})[0], len({p}))]"
            yield f"[k - 1 if k > {gone} else k for k in {p} if k != {gone}]"
        yield from (f"[k for k in range(rank({v}) - 2)] + [rank({v}) - 1, rank({v}) - 2]" for v in self.values)

    def position(self) -> Iterator[str]:
        """Where a slice begins or ends."""
        yield from self.plain()
        for s, t, v in itertools.product(self.same, self.over, self.leaves):
            yield f"[values({s.variable})[0] - dim({v}, values({t.variable})[0])]"
        pairs = itertools.combinations([*self.same, *self.others], 2)
        yield from (f"[values({s.variable})[0] + values({t.variable})[0]]" for s, t in pairs)

    def window(self) -> Iterator[str]:
        """A window's sizes: of two windows, one after the other, what they are together."""
        item = {"kernel_shape": "a + b - 1", "pads": "a + b"}.get(self.param.name)
        if item is None:
            yield from (s.variable for s in reversed(self.same))
            return
        pairs = itertools.combinations(self.same, 2)
        yield from (f"[{item} for a, b in zip({s.variable}, {t.variable})]" for s, t in pairs)
        yield from self.plain()


def _operand_shape(side: Side, n: int, shapes: Mapping[str, Shape]) -> Shape:
    """Shape of a node's first operand."""
    made: list[tuple[Shape, ...]] = []

    def of(ref: sides.Ref) -> Shape:
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
        if isinstance(found, Ref):
            found = FUNCTIONS["values"](env, found)  # an operand of the pattern
    except Unknown:
        return False
    shape = _operand_shape(pair.after, n, pair.shapes)
    rank = len(shape) + (pair.after.nodes[n].op == "Unsqueeze")
    if param.kind == "axis":
        return isinstance(found, int) and -rank <= found < rank and found % rank == param.value % rank
    if param.kind == "axes":
        return (
            isinstance(found, tuple)
            and all(isinstance(a, int) and -rank <= a < rank for a in found)
            and sorted(a % rank for a in found) == sorted(a % rank for a in param.value)
        )
    if param.kind == "dims" and isinstance(found, tuple):
        found = tuple(shape[i] if d == 0 and i < len(shape) else d for i, d in enumerate(found))
    wanted = tuple(param.value) if isinstance(param.value, tuple | list) else param.value
    return bool(found == wanted)
