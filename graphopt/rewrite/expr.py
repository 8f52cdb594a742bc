"""The expressions of the rule language: a closed subset of Python's expression syntax.

Python's parser gives the tree and the column of every mistake; nothing is ever handed to ``eval``. Each tree is compiled
to closures over :class:`Env`. What can't be decided (an unknown dimension, a value that is not constant) raises
:class:`Unknown`, and a condition that raises it does not hold: rules fail closed.
"""

from __future__ import annotations

import ast
import marshal
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

from graphopt.errors import RuleError, nearest
from graphopt.ir.graph import Graph
from graphopt.rewrite.symbols import (
    BINARY,
    COMPARE,
    OF_INTEGERS,
    STEPS,
    Symbol,
    TooLargeError,
    any_holds,
    bounded,
    items_of,
)
from graphopt.rewrite.symbols import Unknown as Unknown  # read as the expressions' own

LONGEST = 2_000
"""Characters of an expression."""
DEEPEST = 50
"""Levels of its tree; the deepest that comes with graphopt has 14."""


ARITHMETIC = frozenset(
    {"len", "min", "max", "sum", "abs", "int", "prod", "sqrt", "cosine", "range", "sorted", "reversed", "all", "any", "zip", "enumerate", "find"}
)  # fmt: skip
"""Functions that look at nothing but their arguments."""
_NUMBERS = (int, float, bool, tuple)
_REMEMBERED = 64  # results of a loop
_WITHOUT_REFERENCES = 2  # the version of marshal whose bytes depend on the value alone


class Ref(NamedTuple):
    """A value of the graph, as expressions see it; ``key`` is ``None`` for an omitted optional operand."""

    key: int | None


@dataclass(slots=True)
class Env:
    """What an expression may look at.

    Attributes:
        graph: The graph that was matched.
        names: Pattern variables: :class:`Ref`, a tuple of them, an attribute value, or the result of a ``let``.
        block: Channel block of the target's fast convolution layout.
        steps: Items that loops and ranges took so far.
    """

    graph: Graph
    names: dict[str, Any]
    block: int = 16
    steps: int = 0

    def spend(self, steps: int) -> None:
        """Count items that are about to be made.

        Raises:
            TooLargeError: There were too many.
        """
        self.steps += steps
        if self.steps > STEPS:
            raise TooLargeError(f"loops and ranges of more than {STEPS} items")


Compiled = Callable[[Env], Any]
Function = Callable[..., Any]


@dataclass(frozen=True, eq=False)
class Expression:
    """An expression that was checked; it is compiled when it is first run.

    Attributes:
        text: As written.
        names: Variables it reads.
        calls: Functions it calls.
        where: ``file:line:column`` of its first character.
    """

    text: str
    names: frozenset[str]
    calls: frozenset[str]
    where: str
    _functions: Mapping[str, Function]

    @cached_property
    def run(self) -> Compiled:
        """What it comes to in an :class:`Env`."""
        tree = ast.parse(self.text.strip(), mode="eval").body
        return _Compiler(self.text, self._functions, self.where).compile(tree, frozenset())

    def holds(self, env: Env) -> bool:
        """Whether a condition is known to be true."""
        try:
            return self.run(env) is True
        except Unknown:
            return False


def compile_expression(text: str, functions: Mapping[str, Function], where: str = "") -> Expression:
    """Compile an expression.

    Args:
        text: The source.
        functions: What may be called; each takes the :class:`Env` first.
        where: ``file:line:column`` for error messages; columns inside the expression are added to it.

    Raises:
        RuleError: A syntax error, a construct outside the language, or an unknown function.
    """
    if len(text) > LONGEST or brackets(text) > DEEPEST:
        raise RuleError(
            f"{text[:40]!r}...: longer than {LONGEST} characters, or brackets more than {DEEPEST} deep", where
        )
    try:
        tree = ast.parse(text.strip(), mode="eval").body
    except SyntaxError as error:
        raise RuleError(f"{text!r}: {error.msg}", shifted(where, (error.offset or 1) - 1)) from None
    except ValueError as error:
        raise RuleError(f"{_short(text)}: {error}", where) from None
    except (RecursionError, MemoryError):
        raise RuleError(f"{_short(text)}: nested too deeply", where) from None
    if _depth(tree) > DEEPEST:
        raise RuleError(f"{_short(text)}: more than {DEEPEST} operators deep", where)
    compiler = _Compiler(text, functions, where)
    try:
        run = compiler.compile(tree, frozenset())
    except RecursionError:
        raise RuleError(f"{_short(text)}: nested too deeply", where) from None
    made = Expression(text, frozenset(compiler.names), frozenset(compiler.calls), where, functions)
    made.__dict__["run"] = run
    return made


def brackets(text: str) -> int:
    """How deep brackets nest, counted without a parser: Python's own has crashed on thousands."""
    deepest = depth = 0
    for c in text:
        depth += (c in "([{") - (c in ")]}")
        deepest = max(deepest, depth)
    return deepest


def _depth(tree: ast.AST) -> int:
    """Levels of a tree."""
    level: list[ast.AST] = [tree]
    depth = 0
    while level:
        depth += 1
        level = [child for node in level for child in ast.iter_child_nodes(node)]
    return depth


def _short(text: str) -> str:
    return repr(text if len(text) <= 60 else f"{text[:57]}...")


def shifted(where: str, columns: int) -> str:
    """``file:line:column`` some columns further on."""
    head, _, column = where.rpartition(":")
    return f"{head}:{int(column) + columns}" if head and column.isdigit() else where


_NOWHERE = Env(Graph.__new__(Graph), {})
"""Where what reads nothing is run."""


class _Compiler:
    def __init__(self, text: str, functions: Mapping[str, Function], where: str) -> None:
        self.text, self.functions, self.where = text, functions, where
        self.names: set[str] = set()
        self.calls: set[str] = set()

    def error(self, message: str, node: ast.AST, hint: str | None = None) -> RuleError:
        return RuleError(f"{self.text!r}: {message}", shifted(self.where, getattr(node, "col_offset", 0)), hint)

    def compile(self, node: ast.AST, local: frozenset[str]) -> Compiled:
        method = getattr(self, f"_{type(node).__name__.lower()}", None)
        if method is None:
            hint = "lists are joined by '+'" if isinstance(node, ast.Starred) else None
            raise self.error(f"{type(node).__name__} is not part of the rule language", node, hint)
        return method(node, local)  # type: ignore[no-any-return]

    def _constant(self, node: ast.Constant, local: frozenset[str]) -> Compiled:
        value = node.value
        if not isinstance(value, int | float | str | bool | None):
            raise self.error("this literal is not part of the rule language", node)
        return lambda env: value

    def _name(self, node: ast.Name, local: frozenset[str]) -> Compiled:
        name = node.id
        if name not in local:
            self.names.add(name)

        def run(env: Env) -> Any:
            try:
                return env.names[name]
            except KeyError:
                raise Unknown from None

        return run

    def _tuple(self, node: ast.Tuple | ast.List, local: frozenset[str]) -> Compiled:
        items = [self.compile(e, local) for e in node.elts]
        if not any(isinstance(n, ast.Name | ast.Call) for n in ast.walk(node)):
            with suppress(Unknown):
                fixed = tuple([item(_NOWHERE) for item in items])
                return lambda env: fixed
        return lambda env: tuple([item(env) for item in items])

    _list = _tuple

    def _unaryop(self, node: ast.UnaryOp, local: frozenset[str]) -> Compiled:
        operand = self.compile(node.operand, local)
        if isinstance(node.op, ast.Not):
            return lambda env: not _truth(operand(env))
        if isinstance(node.op, ast.USub):
            return lambda env: -_number(operand(env))
        raise self.error("this operator is not part of the rule language", node)

    def _binop(self, node: ast.BinOp, local: frozenset[str]) -> Compiled:
        apply = BINARY.get(type(node.op))
        if apply is None:
            raise self.error("this operator is not part of the rule language", node)
        left, right = self.compile(node.left, local), self.compile(node.right, local)
        of_integers = OF_INTEGERS.get(type(node.op))

        def run(env: Env) -> Any:
            a, b = left(env), right(env)
            if of_integers is not None and type(a) is int and type(b) is int:
                try:
                    return bounded(of_integers(a, b))
                except ZeroDivisionError:
                    raise Unknown from None
            if isinstance(a, Symbol) or isinstance(b, Symbol):
                raise Unknown
            try:
                return bounded(apply(a, b))
            except (TypeError, ArithmeticError):
                raise Unknown from None

        return self._tried(node, run)

    def _tried(self, node: ast.AST, run: Compiled) -> Compiled:
        """What reads nothing is run once, so that what is too large is found where it is written."""
        if not any(isinstance(n, ast.Name) and n.id not in self.functions for n in ast.walk(node)):
            try:
                run(_NOWHERE)
            except TooLargeError as error:
                raise self.error(f"too large: {error}", node) from None
            except Unknown:
                pass
        return run

    def _boolop(self, node: ast.BoolOp, local: frozenset[str]) -> Compiled:
        items = [self.compile(v, local) for v in node.values]
        if isinstance(node.op, ast.And):

            def both(env: Env) -> bool:
                for item in items:  # noqa: SIM110 - all() of a generator takes twice as long
                    if not _truth(item(env)):
                        return False
                return True

            return both

        return lambda env: any_holds(lambda item: _truth(item(env)), items)

    def _compare(self, node: ast.Compare, local: frozenset[str]) -> Compiled:
        operands = [self.compile(n, local) for n in (node.left, *node.comparators)]
        tests = [COMPARE[type(op)] for op in node.ops]
        if len(tests) == 1:
            (first, second), only = operands, tests[0]
            return lambda env: only(first(env), second(env))

        def run(env: Env) -> bool:
            left = operands[0](env)
            for test, operand in zip(tests, operands[1:], strict=True):
                right = operand(env)
                if not test(left, right):
                    return False
                left = right
            return True

        return run

    def _ifexp(self, node: ast.IfExp, local: frozenset[str]) -> Compiled:
        test, yes, no = (self.compile(n, local) for n in (node.test, node.body, node.orelse))
        return lambda env: yes(env) if _truth(test(env)) else no(env)

    def _subscript(self, node: ast.Subscript, local: frozenset[str]) -> Compiled:
        base = self.compile(node.value, local)
        if isinstance(node.slice, ast.Slice):
            parts = [
                None if n is None else self.compile(n, local)
                for n in (node.slice.lower, node.slice.upper, node.slice.step)
            ]
            index: Compiled = lambda env: slice(*(None if p is None else p(env) for p in parts))  # noqa: E731
        else:
            index = self.compile(node.slice, local)

        def run(env: Env) -> Any:
            try:
                return base(env)[index(env)]
            except (IndexError, TypeError, KeyError, ValueError):
                raise Unknown from None

        return run

    def _listcomp(self, node: ast.ListComp | ast.GeneratorExp, local: frozenset[str]) -> Compiled:
        if len(node.generators) != 1:
            raise self.error("one 'for' at a time", node)
        loop = node.generators[0]
        targets = loop.target.elts if isinstance(loop.target, ast.Tuple) else [loop.target]
        if not all(isinstance(t, ast.Name) for t in targets):
            raise self.error("loop variables must be names", node)
        names = [t.id for t in targets if isinstance(t, ast.Name)]
        inner = local | set(names)
        source = self.compile(loop.iter, local)
        body = self.compile(node.elt, inner)
        tests = [self.compile(t, inner) for t in loop.ifs]
        single = not isinstance(loop.target, ast.Tuple)

        def run(env: Env) -> tuple[Any, ...]:
            out = []
            items = items_of(source(env))
            env.spend(len(items))
            scope = Env(env.graph, dict(env.names), env.block, env.steps)
            for item in items:
                if single:
                    scope.names[names[0]] = item
                else:
                    values = items_of(item)
                    if len(values) != len(names):
                        raise Unknown
                    scope.names.update(zip(names, values, strict=True))
                for test in tests:
                    if not _truth(test(scope)):
                        break
                else:
                    out.append(body(scope))
            env.steps = scope.steps
            return tuple(out)

        return run if local else self._remembered(node, run)

    _generatorexp = _listcomp

    def _remembered(self, node: ast.AST, run: Compiled) -> Compiled:
        """A loop over numbers alone is run once for what it reads: the matrices of Winograd are the same at every place."""
        read = {n.id for n in ast.walk(node) if isinstance(n, ast.Name)}
        called = {n.func.id for n in ast.walk(node) if isinstance(n, ast.Call) and isinstance(n.func, ast.Name)}
        if not called <= ARITHMETIC:
            return run
        names = sorted(read & self.names)
        known: dict[bytes, Any] = {}

        def again(env: Env) -> Any:
            given = [env.names.get(name) for name in names]
            if not all(type(value) in _NUMBERS for value in given):
                return run(env)
            try:
                key = marshal.dumps(given, _WITHOUT_REFERENCES)
            except ValueError:  # a symbol among them
                return run(env)
            if key not in known:
                if len(known) >= _REMEMBERED:
                    known.clear()
                known[key] = run(env)
            return known[key]

        return again

    def _call(self, node: ast.Call, local: frozenset[str]) -> Compiled:
        if not isinstance(node.func, ast.Name) or node.keywords:
            raise self.error("only plain calls of the language's functions", node)
        name = node.func.id
        function = self.functions.get(name)
        if function is None:
            hint = nearest(name, self.functions)
            if name in ("list", "tuple"):
                hint = "lists, tuples and ranges are the same here: leave it out"
            raise self.error(f"unknown function {name!r}", node, hint)
        self.calls.add(name)
        arguments = [self.compile(a, local) for a in node.args]

        def run(env: Env) -> Any:
            try:
                return function(env, *[a(env) for a in arguments])
            except (TypeError, ValueError, LookupError, ArithmeticError, AttributeError):
                # A function asked about something it is not for (the rank of a number) knows nothing.
                raise Unknown from None

        return self._tried(node, run)


def _truth(value: Any) -> bool:
    if value is True or value is False:
        return value
    raise Unknown


def _number(value: Any) -> Any:
    if isinstance(value, int | float):
        return value
    raise Unknown
