"""Rules that were read before, kept as JSON: to parse and check them again takes half a second of every run.

An entry is what a file's text became, with a mark of the versions of both the text and the parser and of the entry itself; nothing
in it is run, and one that does not fit, or is damaged, is made anew: evidence speaks of the text, and a rule that a disk has spoilt
would pass for proved. Only files without a mistake have one. Expressions are compiled when they are first asked. A process keeps
the rules themselves, compiled as far as they were asked: who optimises many models reads them once.
"""

from __future__ import annotations

import hashlib
import json
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import Any

from graphopt.config import cache_dir
from graphopt.errors import GraphoptError, RuleError
from graphopt.files import in_bytes, write_text
from graphopt.ir.memo import collector_paused
from graphopt.rewrite.expr import Expression
from graphopt.rewrite.functions import FUNCTIONS
from graphopt.rewrite.pattern import Line, Operand
from graphopt.rewrite.schema import Rule, parse_file, rule_text
from graphopt.version import __version__

_PARSER = ("schema.py", "located.py", "pattern.py", "expr.py", "functions.py", "scope.py", "symbols.py", "cache.py")
_MOST = 128
"""Files of which a process keeps the rules; some forty come with graphopt."""
_known: dict[str, tuple[Rule, ...]] = {}  # by the key of their text


def read_cached(path: Path) -> tuple[list[Rule], list[RuleError]]:
    """As :func:`graphopt.rewrite.schema.read_file`, from memory or the cache where the file is as it was."""
    try:
        text = rule_text(path)
    except RuleError as error:
        return [], [error]
    key = hashlib.blake2b(in_bytes(f"{_version()}\n{path}\n{text}"), digest_size=16).hexdigest()
    if key not in _known:
        place = _place(path)
        rules = None if place is None else _recall(place, key)
        if rules is None:
            rules, errors = parse_file(text, str(path))
            if errors:
                return rules, errors
            if place is not None:
                _keep(place, key, rules)
        if len(_known) >= _MOST:
            _known.clear()
        _known[key] = tuple(rules)
    return list(_known[key]), []


def _keep(place: Path, key: str, rules: list[Rule]) -> None:
    with suppress(GraphoptError, OSError):  # a cache that can't be written is none
        place.parent.mkdir(parents=True, exist_ok=True)
        body = json.dumps([_plain(rule) for rule in rules])
        write_text(place, f"{_mark(key, body.encode())}\n{body}")


def _place(path: Path) -> Path | None:
    """Where the rules of a file are kept: one place for each path."""
    try:
        name = hashlib.blake2b(in_bytes(str(path.resolve())), digest_size=8).hexdigest()
        return cache_dir() / "rules" / f"{path.stem[:40]}-{name}.json"
    except (GraphoptError, OSError, RuntimeError):
        return None


@lru_cache(maxsize=1)
def _version() -> str:
    """What the parser is: the release, and in a working tree the files themselves."""
    here = Path(__file__).parent
    marks = [(name, (here / name).stat().st_mtime_ns, (here / name).stat().st_size) for name in _PARSER]
    return f"{__version__} {marks}"


def _recall(place: Path, key: str) -> list[Rule] | None:
    """The rules at a place; ``None`` where there are none, or of another text or parser, or not as they were written."""
    try:
        mark, _, body = place.read_bytes().partition(b"\n")
        with collector_paused():  # a hundred thousand objects are made, and all stay
            return [_made(item) for item in json.loads(body)] if mark == _mark(key, body).encode() else None
    except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return None


def _mark(key: str, body: bytes) -> str:
    return hashlib.blake2b(key.encode() + body, digest_size=16).hexdigest()


_CLASSES: dict[str, Any] = {"rule": Rule, "line": Line, "operand": Operand}
_NAMES = {made: name for name, made in _CLASSES.items()}


def _plain(value: Any) -> Any:
    """A rule and its parts: a list for a tuple, and for what has a class its name and its fields in order."""
    if isinstance(value, Expression):
        return {"expression": [value.text, sorted(value.names), sorted(value.calls), value.where]}
    if isinstance(value, Rule | Line | Operand):
        return {_NAMES[type(value)]: [_plain(getattr(value, name)) for name in type(value).__dataclass_fields__]}
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    return {"as it is": value} if isinstance(value, dict | list) else value


def _made(plain: Any) -> Any:
    """What :func:`_plain` wrote down."""
    if isinstance(plain, list):
        return tuple([_made(item) for item in plain])
    if not isinstance(plain, dict):
        return plain
    ((kind, content),) = plain.items()
    if kind == "expression":
        text, names, calls, where = content
        return Expression(text, frozenset(names), frozenset(calls), where, FUNCTIONS)
    return content if kind == "as it is" else _CLASSES[kind](*[_made(item) for item in content])
