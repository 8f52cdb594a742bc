"""Text files that others wrote, read so that no content of theirs hangs or fells the reader.

A parser is asked only for what has been measured: before YAML becomes a tree its events are counted, and reading stops at
the first that is too deep, too many or too long. What aliases repeat is counted as often as it is repeated. JSON is refused
where it nests too deep, and records are checked against the types of a dataclass.
"""

from __future__ import annotations

import codecs
import dataclasses
import json
import stat
import types
import typing
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from yaml.nodes import Node

T = TypeVar("T")

YAML_BYTES = 4_000_000
"""Of a YAML text; the largest file of rules that comes with graphopt has 115 kB."""
YAML_DEPTH = 32
YAML_NODES = 200_000
"""Values of a YAML text, those that aliases repeat counted each time."""
YAML_SCALAR = 65_536
"""Characters of a single value."""
JSON_BYTES = 512_000_000


class DocumentError(ValueError):
    """A text can't be read.

    Args:
        message: What is wrong.
        line: Where, from 1; 0 where that is not known.
        column: Where, from 1.
    """

    def __init__(self, message: str, line: int = 0, column: int = 0) -> None:
        super().__init__(message)
        self.line, self.column = line, column

    def at(self, name: str) -> str:
        """``name:line:column``, or the name alone."""
        return f"{name}:{self.line}:{self.column}" if self.line else name


def read_text(path: Path, limit: int = YAML_BYTES) -> str:
    """The text of a file of at most ``limit`` bytes.

    Raises:
        OSError: It can't be read.
        DocumentError: It is no file, too large, or not UTF-8.
    """
    if not stat.S_ISREG(mode := path.stat().st_mode) and not stat.S_ISDIR(mode):
        raise DocumentError("not a regular file")  # to read a pipe may take for ever
    with path.open("rb") as file:
        content = file.read(limit + 1)
    if len(content) > limit:
        raise DocumentError(f"larger than {limit // 1_000_000} MB")
    return decode(content)


def decode(content: bytes) -> str:
    """The text of some bytes in UTF-8; the mark that editors of Windows put before it is none of it.

    Raises:
        DocumentError: They are in another encoding.
    """
    if content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        raise DocumentError("not UTF-8 text but UTF-16: save it as UTF-8")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise DocumentError(f"not UTF-8 text: {error.reason}") from None


def compose_yaml(text: str) -> Node | None:
    """The tree of a YAML text; ``None`` for an empty one.

    Raises:
        DocumentError: It is not YAML, or larger than a file of rules or of a task can sensibly be.
    """
    import yaml

    if len(text) > YAML_BYTES:
        raise DocumentError(f"larger than {YAML_BYTES // 1_000_000} MB")
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        _measure(yaml.parse(text, Loader=loader))
        return yaml.compose(text, Loader=loader)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        place = (mark.line + 1, mark.column + 1) if mark else (0, 0)
        reason = getattr(error, "problem", None) or getattr(error, "reason", None) or str(error)
        raise DocumentError(f"not valid YAML: {reason}", *place) from None
    except RecursionError:
        raise DocumentError("not valid YAML: nested too deeply") from None


def _measure(events: Iterator[Any]) -> None:
    """Look at the events of a YAML text until one is too much.

    Raises:
        DocumentError: It is.
    """
    import yaml

    sizes: dict[str, int] = {}  # values under each anchor
    open_: list[tuple[str | None, int]] = []  # anchors of the collections around, and the values before them
    total = 0

    def fail(event: Any, message: str) -> DocumentError:
        return DocumentError(message, event.start_mark.line + 1, event.start_mark.column + 1)

    for event in events:
        before = total
        if isinstance(event, yaml.AliasEvent):
            if any(anchor == event.anchor for anchor, _ in open_):
                raise fail(event, f"the alias *{event.anchor} is part of what it stands for")
            total += sizes.get(event.anchor or "", 0)
        elif isinstance(event, yaml.ScalarEvent):
            total += 1
            if event.anchor:
                sizes[event.anchor] = 1
            if len(event.value) > YAML_SCALAR:
                raise fail(event, f"a text of more than {YAML_SCALAR} characters")
        elif isinstance(event, yaml.CollectionStartEvent):
            open_.append((event.anchor, before))
            total += 1
            if len(open_) > YAML_DEPTH:
                raise fail(event, f"nested more than {YAML_DEPTH} deep")
        elif isinstance(event, yaml.CollectionEndEvent):
            anchor, began = open_.pop()
            if anchor:
                sizes[anchor] = total - began
        if total > YAML_NODES:
            repeated = ", aliases counted each time" if sizes else ""
            raise fail(event, f"more than {YAML_NODES} values{repeated}")


def read_json(path: Path) -> Any:
    """What a JSON file says.

    Raises:
        OSError: It can't be read.
        DocumentError: It is not JSON, too large, or nested too deeply.
    """
    return parse_json(read_text(path, JSON_BYTES))


def parse_json(text: str) -> Any:
    """What a JSON text says.

    Raises:
        DocumentError: It is not JSON, or nested too deeply.
    """
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        raise DocumentError(f"not valid JSON: {error.msg}", error.lineno, error.colno) from None
    except RecursionError:
        raise DocumentError("not valid JSON: nested too deeply") from None
    except ValueError as error:  # a number of thousands of digits
        raise DocumentError(f"not valid JSON: {error}") from None


def record(kind: type[T], data: Any, what: str) -> T:
    """A dataclass of plain fields, from what JSON says, every field of the type that it declares.

    Args:
        kind: The dataclass.
        data: What was read.
        what: What the record is, for the message.

    Raises:
        DocumentError: A field is missing, unknown, or of another type.
    """
    if not isinstance(data, Mapping):
        raise DocumentError(f"{what} must be an object, not {_sketch(data)}")
    hints = typing.get_type_hints(kind)
    known = {f.name: f for f in dataclasses.fields(kind)}  # type: ignore[arg-type]
    for name in data:
        if name not in known:
            raise DocumentError(f"{what} has no field {_sketch(name)}")
    for name, f in known.items():
        if name not in data and f.default is dataclasses.MISSING and f.default_factory is dataclasses.MISSING:
            raise DocumentError(f"{what} lacks {name!r}")
    return kind(**{name: checked(hints[name], value, f"{what}: {name!r}") for name, value in data.items()})


def checked(hint: Any, value: Any, what: str) -> Any:
    """A value of JSON as a type declares it; lists become tuples where it says so.

    Raises:
        DocumentError: It is of another type.
    """
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if hint is Any:
        return value
    if origin in (types.UnionType, typing.Union):
        if value is None and types.NoneType in arguments:
            return None
        return checked(next(a for a in arguments if a is not types.NoneType), value, what)
    if origin is tuple:
        if not isinstance(value, list):
            raise DocumentError(f"{what} must be a list, not {_sketch(value)}")
        return tuple(checked(arguments[0], item, f"{what}, item {n}") for n, item in enumerate(value, 1))
    if isinstance(origin, type) and issubclass(origin, Mapping):
        if not isinstance(value, Mapping):
            raise DocumentError(f"{what} must be an object, not {_sketch(value)}")
        return {key: checked(arguments[1], item, f"{what}: {_sketch(key)}") for key, item in value.items()}
    if dataclasses.is_dataclass(hint):
        if isinstance(value, typing.cast(type[Any], hint)):
            return value  # read already, in a way of its own
        return record(typing.cast(type[Any], hint), value, what)
    number: Any = value
    wanted: tuple[type, ...] = (int, float) if hint is float else (hint,)
    if not isinstance(value, wanted) or (isinstance(value, bool) and hint is not bool):
        name = {str: "text", int: "a whole number", float: "a number", bool: "true or false"}[hint]
        raise DocumentError(f"{what} must be {name}, not {_sketch(value)}")
    try:
        return float(number) if hint is float else value
    except OverflowError:
        raise DocumentError(f"{what} is too large a number: {_sketch(value)}") from None


def _sketch(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 40 else text[:37] + "..."
