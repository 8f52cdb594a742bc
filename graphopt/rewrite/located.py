"""YAML as dicts, lists and texts that know where they stand, and what may be asked of these.

Scalars are read as text: YAML 1.1 takes ``1e-5`` for text and ``on`` for true.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import yaml

from graphopt.errors import RuleError, nearest

T = TypeVar("T")

LINES = 64
"""Of a pattern or a replacement, and conditions of a rule; the largest rule that comes with graphopt has 23."""
LINE = 2_000
"""Characters of a line."""


@dataclass(frozen=True)
class Text:
    """A YAML scalar and where it stands."""

    text: str
    where: str


class Mistakes:
    """Collects what is wrong, so that the rest is looked at as well."""

    def __init__(self) -> None:
        self.errors: list[RuleError] = []

    def try_(self, function: Callable[..., T], *arguments: Any) -> T | None:
        """What a function returns; ``None`` where it raises a :class:`RuleError`, which is kept."""
        try:
            return function(*arguments)
        except RuleError as error:
            self.errors.append(error)
            return None

    def all(self, function: Callable[[Text], T], texts: Sequence[Text] | None) -> tuple[T, ...]:
        """What a function makes of each text, without those that are wrong."""
        made = [self.try_(function, text) for text in texts or ()]
        return tuple(item for item in made if item is not None)


def read_node(node: Any, name: str, wrong: Mistakes, leave: Any = None) -> Any:
    """A YAML node as dicts, lists and :class:`Text`, whose mappings hold their place under ``__where__``; ``leave`` names a node to leave out."""
    try:
        return _plain(node, name, wrong, leave)
    except RecursionError:
        at = _place(node, name)
        wrong.errors.append(RuleError("nested too deeply", at))
        return {"__where__": at}


def _place(node: Any, name: str, behind: int = 0) -> str:
    return f"{name}:{node.start_mark.line + 1}:{node.start_mark.column + 1 + behind}"


def _plain(node: Any, name: str, wrong: Mistakes, leave: Any = None) -> Any:
    """YAML nodes as dicts, lists and :class:`Text`; ``leave`` names a node to leave out."""
    if node is None or node is leave:
        return None
    if isinstance(node, yaml.MappingNode):
        out: dict[str, Any] = {}
        for key, value in node.value:
            at = _place(key, name)
            if not isinstance(key, yaml.ScalarNode):
                wrong.errors.append(RuleError("expected plain text as a key", at))
            elif key.value in out:
                wrong.errors.append(RuleError(f"{key.value!r} is given twice", at))
            else:
                out[key.value] = _plain(value, name, wrong, leave)
        out["__where__"] = _place(node, name)
        return out
    if isinstance(node, yaml.SequenceNode):
        return [_plain(item, name, wrong, leave) for item in node.value]
    return Text(node.value, _place(node, name, behind=node.style in ("'", '"')))


def check_keys(data: dict[str, Any], keys: tuple[str, ...], where: str) -> None:
    """Raises a :class:`RuleError` for a key that is none of these."""
    for key in data:
        if key != "__where__" and key not in keys:
            raise RuleError(f"unknown key {key!r}", data.get("__where__", where), nearest(key, keys))


def text_of(data: dict[str, Any], key: str, where: str) -> str:
    """The text under a key; raises a :class:`RuleError` where there is none."""
    value = data.get(key)
    if not isinstance(value, Text) or not value.text.strip():
        raise RuleError(f"{key!r} is missing", data.get("__where__", where))
    return value.text.strip()


def texts_of(data: dict[str, Any], key: str) -> list[Text]:
    """The text or the texts under a key; raises a :class:`RuleError` for anything else, and for too much of it."""
    value = data.get(key) or []
    items = value if isinstance(value, list) else [value]
    for item in items:
        if not isinstance(item, Text):
            raise RuleError(f"{key!r}: expected one line of text an item", data["__where__"])
        check_length(item, key)
    if len(items) > LINES:
        raise RuleError(f"{key!r} has {len(items)} lines, more than {LINES}", items[LINES].where)
    return items


def check_length(item: Text, key: str) -> None:
    """Raises a :class:`RuleError` for a line that is too long."""
    if len(item.text) > LINE:
        raise RuleError(f"{key!r}: a line of {len(item.text)} characters, more than {LINE}", item.where)


def mapping_of(data: dict[str, Any], key: str) -> dict[str, Any]:
    """The mapping under a key; raises a :class:`RuleError` for anything else."""
    value = data.get(key) or {}
    if not isinstance(value, dict):
        raise RuleError(f"{key!r}: expected a mapping", data["__where__"])
    return {k: v for k, v in value.items() if k != "__where__"}


def list_of(value: Any, key: str, where: str) -> list[Any]:
    """A list, empty for none; raises a :class:`RuleError` for anything else."""
    if value is None or isinstance(value, list):
        return value or []
    raise RuleError(f"{key!r}: expected a list", where)
