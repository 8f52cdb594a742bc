"""One line of a rule, parsed: ``y1, y2 = Split<axis = -1>(x, widths)``.

    line      = ["each"] names "=" (call | name)
    call      = operator ["<" attributes ">"] "(" [operand {"," operand}] ")"
    operator  = Name {"|" Name} [":" variable] | "@unary" [":" variable] | "$" variable
    attribute = name "=" expression | name "=" "$" variable | name "=" "[" item {"," item} "]" | "*" variable
    item      = expression | "$" variable
    operand   = name | name "?" | name "..." | number | "none"

``Name`` may carry a domain, ``com.microsoft.Gelu``. In a pattern ``Relu|Tanh:f`` binds the operator found to ``f`` and
``$f(x)`` in the replacement applies it. Attributes that a pattern does not mention must have their default; ``*rest``
binds whatever is left over and splices it in again.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property

from graphopt.errors import RuleError
from graphopt.ir import ops
from graphopt.rewrite.expr import Expression, compile_expression, shifted
from graphopt.rewrite.functions import FUNCTIONS

_NAME = re.compile(r"[A-Za-z_]\w*")
_OPERATOR = re.compile(r"(?:(?:[a-z][\w]*\.)+)?[A-Z]\w*")
_DOLLAR = (
    "write <pads = $p> for a whole attribute, <pads = [$a, $b]> for its items, and the plain name where it is used"
)
_NUMBER = re.compile(r"-?\d+(\.\d*)?([eE][-+]?\d+)?")


@dataclass(frozen=True, slots=True)
class Operand:
    """An operand of a line.

    Attributes:
        name: Variable, ``""`` for a number or an omitted operand.
        kind: ``value``, ``optional`` (may be absent), ``variadic``, ``number`` or ``none``.
        number: The number, for kind ``number``.
        exact: Whether a pattern takes no other for it, however near.
    """

    name: str
    kind: str = "value"
    number: float = 0.0
    exact: bool = False


@dataclass(frozen=True)
class Line:
    """One node of a pattern or of a replacement.

    Attributes:
        text: As written.
        where: ``file:line:column``.
        outputs: Names of the outputs, ``_`` for one that nothing names.
        ops: ``(domain, operator)`` pairs that are meant; empty for an alias or for ``$f``.
        op_variable: Variable that binds, or supplies, the operator.
        operands: What stands between the parentheses.
        attributes: Attributes with a required (pattern) or given (replacement) value.
        captures: Attribute name to variable.
        lists: Attribute name to what its items are: a variable that binds one, or the value that one has.
        rest: Variable of ``*rest``.
        alias: For ``y = x``: the ``x``.
        each: Whether the node is made once for each element of its variadic operands.
        exact: Whether a pattern takes no number for another, however near.
    """

    text: str
    where: str
    outputs: tuple[str, ...]
    ops: tuple[tuple[str, str], ...] = ()
    op_variable: str = ""
    operands: tuple[Operand, ...] = ()
    attributes: tuple[tuple[str, Expression], ...] = ()
    captures: tuple[tuple[str, str], ...] = ()
    lists: tuple[tuple[str, tuple[str | Expression, ...]], ...] = ()
    rest: str = ""
    alias: str = ""
    each: bool = False
    exact: bool = False

    @property
    def variables(self) -> tuple[str, ...]:
        """Variables that attributes bind, item by item where a list is taken apart."""
        items = [item for _, many in self.lists for item in many if isinstance(item, str)]
        return (*(variable for _, variable in self.captures), *items)

    @property
    def variadic(self) -> Operand | None:
        """The first variadic operand, if there is one."""
        return next((o for o in self.operands if o.kind == "variadic"), None)

    @cached_property
    def fixed(self) -> bool:
        """Whether it has no variadic operand."""
        return self.variadic is None

    @cached_property
    def mentioned(self) -> frozenset[str]:
        """Attributes that it names."""
        return frozenset(name for many in (self.attributes, self.captures, self.lists) for name, _ in many)


def parse_line(text: str, where: str) -> Line:
    """Parse one line.

    Args:
        text: The line.
        where: ``file:line:column`` of its first character.

    Raises:
        RuleError: It does not follow the grammar.
    """
    left, equals, right = text.partition("=")
    if not equals:
        raise RuleError(f"{text!r}: expected 'outputs = Operator(operands)'", where)
    names = left.split(",")
    each = names[0].split()[:1] == ["each"]
    if each:
        names[0] = names[0].split("each", 1)[1]
    outputs = tuple(n.strip() for n in names)
    for name in outputs:
        if not _NAME.fullmatch(name):
            raise RuleError(f"{text!r}: {name!r} is not a name", where)
    right = right.strip()
    if _NAME.fullmatch(right) and len(outputs) == 1:
        return Line(text, where, outputs, alias=right)
    cursor = _Cursor(right, text, where)
    found, variable = cursor.operator()
    said = cursor.attributes()
    operands = cursor.operands()
    return Line(
        text,
        where,
        outputs,
        found,
        variable,
        operands,
        tuple(said.values),
        tuple(said.captures),
        tuple(said.lists),
        said.rest,
        "",
        each,
    )


def exactly(line: Line) -> Line:
    """A line of a pattern that takes no number for another, however near."""
    operands = tuple(replace(o, exact=o.kind == "number") for o in line.operands)
    return replace(line, operands=operands, exact=True)


def parse_pattern_line(text: str, where: str) -> Line:
    """As :func:`parse_line`, for a pattern: of several operators the one that is met has a name, or nobody would try the others."""
    line = parse_line(text, where)
    if line.op_variable or len(line.ops) < 2:
        return line
    return replace(line, op_variable=f"operator of {', '.join(line.outputs)}")


@dataclass(slots=True)
class _Attributes:
    """What stands between ``<`` and ``>``; the fields are those of :class:`Line`."""

    values: list[tuple[str, Expression]] = field(default_factory=list)
    captures: list[tuple[str, str]] = field(default_factory=list)
    lists: list[tuple[str, tuple[str | Expression, ...]]] = field(default_factory=list)
    rest: str = ""


class _Cursor:
    def __init__(self, source: str, text: str, where: str) -> None:
        self.source, self.text, self.where, self.position = source, text, where, 0
        self.named: set[str] = set()

    def place(self) -> str:
        """``file:line:column`` of the cursor."""
        return shifted(self.where, len(self.text.rstrip()) - len(self.source) + self.position)

    def error(self, message: str, hint: str | None = None) -> RuleError:
        return RuleError(f"{self.text!r}: {message}", self.place(), hint)

    def skip(self) -> None:
        while self.position < len(self.source) and self.source[self.position].isspace():
            self.position += 1

    def take(self, token: str) -> bool:
        self.skip()
        if self.source.startswith(token, self.position):
            self.position += len(token)
            return True
        return False

    def match(self, pattern: re.Pattern[str]) -> str | None:
        self.skip()
        found = pattern.match(self.source, self.position)
        if found is None:
            return None
        self.position = found.end()
        return found.group()

    def operator(self) -> tuple[tuple[tuple[str, str], ...], str]:
        if self.take("$"):
            name = self.match(_NAME)
            if name is None:
                raise self.error("expected a variable after '$'")
            return (), name
        found: list[tuple[str, str]] = []
        if self.take("@unary"):
            found = [("", op) for op in sorted(ops.UNARY)]
        else:
            while True:
                name = self.match(_OPERATOR)
                if name is None:
                    raise self.error("expected an operator name such as Conv or com.microsoft.Gelu")
                domain, _, op = name.rpartition(".")
                found.append((domain, op))
                if not self.take("|"):
                    break
        variable = ""
        if self.take(":"):
            variable = self.match(_NAME) or ""
            if not variable:
                raise self.error("expected a variable after ':'")
        return tuple(found), variable

    def attributes(self) -> _Attributes:
        found = _Attributes()
        if not self.take("<"):
            return found
        start = self.position
        end = self._closing(start)
        for begin, item in _split(self.source[start:end]):
            self.position = start + begin
            if item.startswith("*"):
                found.rest = item[1:].strip() or "_"
                if not _NAME.fullmatch(found.rest):
                    raise self.error(f"{found.rest!r} is not a name")
                continue
            name, equals, value = item.partition("=")
            name, value = name.strip(), value.strip()
            if not equals or not _NAME.fullmatch(name) or not value:
                raise self.error(f"expected 'attribute = value', not {item!r}")
            if name in self.named:
                raise self.error(f"attribute {name!r} is given twice")
            self.named.add(name)
            self.position += item.index(value, item.index("=") + 1)
            self._attribute(found, name, value)
        self.position = end + 1
        return found

    def _attribute(self, found: _Attributes, name: str, value: str) -> None:
        """One ``name = value``, whose value starts at the cursor."""
        start = self.position
        inner = value[1:-1]
        if value.startswith("["):
            items = [(start + 1 + begin, item) for begin, item in _split(inner)] if value.endswith("]") else []
            if any(item.startswith("$") for _, item in items):
                many: list[str | Expression] = []
                for self.position, item in items:
                    many.append(self._variable(item) if item.startswith("$") else self._expression(item))
                found.lists.append((name, tuple(many)))
                return
        if value.startswith("$"):
            found.captures.append((name, self._variable(value)))
        else:
            found.values.append((name, self._expression(value)))

    def _variable(self, text: str) -> str:
        """The name behind ``$``."""
        if not _NAME.fullmatch(text[1:]):
            raise self.error(f"expected a variable after '$', not {text[1:]!r}: {_DOLLAR}")
        return text[1:]

    def _expression(self, text: str) -> Expression:
        """The expression that starts at the cursor."""
        at = _outside(text, "$")
        if at is not None:
            self.position += at
            raise self.error(f"'$' inside an expression: {_DOLLAR}")
        return compile_expression(text, FUNCTIONS, self.place())

    def _closing(self, start: int) -> int:
        # '>' ends the attributes unless it is a comparison inside brackets, or in a string.
        end = _outside(self.source[start:], ">")
        if end is None:
            raise self.error("'<' without '>'")
        return start + end

    def operands(self) -> tuple[Operand, ...]:
        if not self.take("("):
            raise self.error("expected '('")
        found: list[Operand] = []
        while not (not found and self.take(")")):
            number = self.match(_NUMBER)
            if number is not None:
                found.append(Operand("", "number", float(number)))
            else:
                name = self.match(_NAME)
                if name is None:
                    raise self.error("expected an operand", "a list is a constant of 'let', as i64([0, -1])")
                if name == "none":
                    found.append(Operand("", "none"))
                elif self.take("..."):
                    found.append(Operand(name, "variadic"))
                elif self.take("?"):
                    found.append(Operand(name, "optional"))
                else:
                    found.append(Operand(name))
            if self.take(")"):
                break
            if not self.take(","):
                raise self.error("expected ',' or ')'")
        self.skip()
        if self.position != len(self.source):
            raise self.error(f"unexpected {self.source[self.position :]!r}")
        return tuple(found)


def _split(text: str) -> Iterator[tuple[int, str]]:
    """Items between commas that stand in no bracket and no string, each with its offset."""
    start = 0
    while start <= len(text):
        comma = _outside(text[start:], ",")
        end = len(text) if comma is None else start + comma
        item = text[start:end]
        if item.strip():
            yield start + len(item) - len(item.lstrip()), item.strip()
        start = end + 1


def _outside(text: str, wanted: str) -> int | None:
    """Place of the first such character that stands in no bracket and no string; ``$`` may stand in brackets."""
    depth, quote, skip = 0, "", False
    for i, c in enumerate(text):
        if skip:
            skip = False
        elif quote:
            skip = c == "\\"
            quote = "" if c == quote else quote
        elif c in "'\"":
            quote = c
        elif c == wanted and (depth == 0 or wanted == "$"):
            return i
        else:
            depth += (c in "([{") - (c in ")]}")
    return None
