"""One line of a rule, parsed: ``y1, y2 = Split<axis = -1>(x, widths)``.

    line      = ["each"] names "=" (call | name)
    call      = operator ["<" attributes ">"] "(" [operand {"," operand}] ")"
    operator  = Name {"|" Name} [":" variable] | "@unary" [":" variable] | "$" variable
    attribute = name "=" expression | name "=" "$" variable | "*" variable
    operand   = name | name "?" | name "..." | number | "none"

``Name`` may carry a domain, ``com.microsoft.Gelu``. In a pattern ``Relu|Tanh:f`` binds the operator found to ``f`` and
``$f(x)`` in the replacement applies it. Attributes that a pattern does not mention must have their default; ``*rest``
binds whatever is left over and splices it in again.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from graphopt.errors import RuleError
from graphopt.ir import ops
from graphopt.rewrite.expr import Expression, compile_expression
from graphopt.rewrite.functions import FUNCTIONS

_NAME = re.compile(r"[A-Za-z_]\w*")
_OPERATOR = re.compile(r"(?:(?:[a-z][\w]*\.)+)?[A-Z]\w*")
_NUMBER = re.compile(r"-?\d+(\.\d*)?([eE][-+]?\d+)?")


@dataclass(frozen=True, slots=True)
class Operand:
    """An operand of a line.

    Attributes:
        name: Variable, ``""`` for a number or an omitted operand.
        kind: ``value``, ``optional`` (may be absent), ``variadic``, ``number`` or ``none``.
        number: The number, for kind ``number``.
    """

    name: str
    kind: str = "value"
    number: float = 0.0


@dataclass(frozen=True, slots=True)
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
        rest: Variable of ``*rest``.
        alias: For ``y = x``: the ``x``.
        each: Whether the node is made once for each element of its variadic operands.
    """

    text: str
    where: str
    outputs: tuple[str, ...]
    ops: tuple[tuple[str, str], ...] = ()
    op_variable: str = ""
    operands: tuple[Operand, ...] = ()
    attributes: tuple[tuple[str, Expression], ...] = ()
    captures: tuple[tuple[str, str], ...] = ()
    rest: str = ""
    alias: str = ""
    each: bool = False

    @property
    def variadic(self) -> Operand | None:
        """The first variadic operand, if there is one."""
        return next((o for o in self.operands if o.kind == "variadic"), None)


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
    attributes, captures, rest = cursor.attributes()
    operands = cursor.operands()
    return Line(text, where, outputs, found, variable, operands, attributes, captures, rest, "", each)


class _Cursor:
    def __init__(self, source: str, text: str, where: str) -> None:
        self.source, self.text, self.where, self.position = source, text, where, 0

    def error(self, message: str) -> RuleError:
        column = self.text.index(self.source) + self.position
        head, _, base = self.where.rpartition(":")
        where = f"{head}:{int(base) + column}" if head and base.isdigit() else self.where
        return RuleError(f"{self.text!r}: {message}", where)

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

    def attributes(self) -> tuple[tuple[tuple[str, Expression], ...], tuple[tuple[str, str], ...], str]:
        values: list[tuple[str, Expression]] = []
        captures: list[tuple[str, str]] = []
        rest = ""
        if not self.take("<"):
            return (), (), ""
        start = self.position
        end = self._closing(start)
        offset = self.text.index(self.source)
        for begin, item in _split(self.source[start:end]):
            if item.startswith("*"):
                rest = item[1:].strip()
                if rest and not _NAME.fullmatch(rest):
                    raise self.error(f"{rest!r} is not a name")
                rest = rest or "_"
                continue
            name, equals, value = item.partition("=")
            name, value = name.strip(), value.strip()
            if not equals or not _NAME.fullmatch(name) or not value:
                raise self.error(f"expected 'attribute = value', not {item!r}")
            if value.startswith("$"):
                if not _NAME.fullmatch(value[1:]):
                    raise self.error(f"expected a variable after '$', not {value[1:]!r}")
                captures.append((name, value[1:]))
            else:
                head, _, base = self.where.rpartition(":")
                column = offset + start + begin + item.index(value)
                where = f"{head}:{int(base) + column}" if head and base.isdigit() else self.where
                values.append((name, compile_expression(value, FUNCTIONS, where)))
        self.position = end + 1
        return tuple(values), tuple(captures), rest

    def _closing(self, start: int) -> int:
        depth = 0
        for i in range(start, len(self.source)):
            c = self.source[i]
            depth += c in "([{"
            depth -= c in ")]}"
            # '>' ends the attributes unless it is a comparison inside brackets.
            if c == ">" and depth == 0:
                return i
        raise self.error("'<' without '>'")

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
                    raise self.error("expected an operand")
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
    """Items between commas that stand in no bracket, each with its offset."""
    depth = start = 0
    for i, c in enumerate(text + ","):
        depth += c in "([{"
        depth -= c in ")]}"
        if c == "," and depth == 0:
            item = text[start:i]
            if item.strip():
                yield start + len(item) - len(item.lstrip()), item.strip()
            start = i + 1
