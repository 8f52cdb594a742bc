"""A rule, from YAML to a checked object.

Positions come from the YAML parser, so that every complaint names file, line and column. Scalars are read as text and
parsed here: YAML 1.1 takes ``1e-5`` for text and ``on`` for true.
"""

from __future__ import annotations

import difflib
import hashlib
import json
import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

import yaml

from graphopt.config import PROVIDERS, provider_name
from graphopt.documents import DocumentError, compose_yaml, read_text
from graphopt.errors import RuleError
from graphopt.rewrite.expr import Expression, compile_expression
from graphopt.rewrite.functions import FUNCTIONS
from graphopt.rewrite.pattern import Line, parse_line, parse_pattern_line
from graphopt.rewrite.scope import misnamed

T = TypeVar("T")

CLAIMS = ("exact", "real", "approx")
_FILE_KEYS = ("family", "doc", "providers", "rules")
LINES = 64
"""Of a pattern or a replacement, and conditions of a rule; the largest rule that comes with graphopt has 23."""
LINE = 2_000
"""Characters of a line."""
_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,199}")
_RULE_KEYS = (
    "id", "doc", "equal", "domain", "always", "last", "match", "roots", "where", "prefer", "let", "replace", "examples",
)  # fmt: skip


@dataclass(frozen=True)
class Text:
    """A YAML scalar and where it stands."""

    text: str
    where: str


@dataclass(frozen=True)
class Rule:
    """A substitution.

    Attributes:
        id: Unique name.
        family: Name of the file's family.
        doc: One line: why it is true or what it is for.
        claim: ``exact``, ``real`` or ``approx``.
        bound: Relative error bound of an ``approx`` claim, 0 otherwise.
        domain: Largest absolute value of the inputs for which an ``approx`` claim is made; ``None`` for all inputs.
        match: Pattern lines.
        replace: Replacement lines.
        where: Conditions for the rule to be true.
        prefer: Conditions for it to be likely to pay.
        let: Computed names, in order.
        roots: Names that the replacement redefines.
        unordered: Whether the roots may be swapped without changing the rule (so that each pair is found once).
        examples: ``accept`` and ``reject`` cases as written.
        providers: Short names of the providers that the rule is meant for; empty for all.
        where_at: ``file:line:column`` of the rule.
        always: Whether it never costs where its conditions and hints hold, so that it is part of the normal form.
        last: Whether it belongs to the form in which a model is written, and no search sees it.
    """

    id: str
    family: str
    doc: str
    claim: str
    bound: float
    match: tuple[Line, ...]
    replace: tuple[Line, ...]
    where: tuple[Expression, ...]
    prefer: tuple[Expression, ...]
    let: tuple[tuple[str, Expression], ...]
    roots: tuple[str, ...]
    unordered: bool
    examples: dict[str, list[dict[str, Any]]] = field(hash=False)
    providers: tuple[str, ...] = ()
    where_at: str = ""
    domain: float | None = None
    always: bool = False
    last: bool = False

    @cached_property
    def hash(self) -> str:
        """Hash of what the rule says (not of its prose, examples or hints); evidence is recorded under it."""
        content = [
            [line.text for line in self.match], [line.text for line in self.replace], [e.text for e in self.where],
            [[n, e.text] for n, e in self.let], list(self.roots), self.unordered, self.claim, self.bound,
            *([] if self.domain is None else [self.domain]),
        ]  # fmt: skip
        return hashlib.blake2b(json.dumps(content).encode(), digest_size=8).hexdigest()

    @property
    def contributed(self) -> bool:
        """Whether the replacement uses operators outside the ONNX standard."""
        from_match = {op for line in self.match for op in line.ops}
        return any(
            (d or op == "SimplifiedLayerNormalization") and (d, op) not in from_match
            for line in self.replace
            for d, op in line.ops
        )

    @property
    def leaves(self) -> tuple[str, ...]:
        """Operands that no line of the pattern defines, in order of appearance."""
        made = {o for line in self.match for o in line.outputs}
        seen = dict.fromkeys(o.name for line in self.match for o in line.operands if o.name and o.name not in made)
        return tuple(seen)

    @property
    def source(self) -> str:
        """The rule as text: pattern, conditions, replacement."""
        out = [f"    {line.text}" for line in self.match]
        out += [f"  where {e.text}" for e in self.where] + [f"  prefer {e.text}" for e in self.prefer]
        out += [f"  let {n} = {e.text}" for n, e in self.let]
        return "\n".join([*out, "  =>", *(f"    {line.text}" for line in self.replace)])


def read_rules(path: Path) -> list[Rule]:
    """All rules of a file.

    Raises:
        RuleError: The file can't be read, or a rule is wrong. It names all that is wrong.
    """
    rules, errors = read_file(path)
    if errors:
        raise RuleError.of(errors)
    return rules


def parse_rules(text: str, name: str) -> list[Rule]:
    """All rules in a YAML text; ``name`` stands for the file in messages, ``RuleError`` as in :func:`read_rules`."""
    rules, errors = parse_file(text, name)
    if errors:
        raise RuleError.of(errors)
    return rules


def read_file(path: Path) -> tuple[list[Rule], list[RuleError]]:
    """The good rules of a file, and what is wrong with the others or with the file."""
    try:
        return parse_file(rule_text(path), str(path))
    except RuleError as error:
        return [], [error]


def rule_text(path: Path) -> str:
    """The text of a rule file.

    Raises:
        RuleError: It can't be read, or is no text.
    """
    try:
        return read_text(path)
    except OSError as error:
        raise RuleError(f"can't be read: {error.strerror or error}", str(path)) from error
    except DocumentError as error:
        raise RuleError(str(error), error.at(str(path))) from error


def parse_file(text: str, name: str) -> tuple[list[Rule], list[RuleError]]:
    """The good rules in a YAML text, and what is wrong with the others. A mistake at the head of a file spoils them all."""
    try:
        root = compose_yaml(text)
    except DocumentError as error:
        return [], [RuleError(str(error), error.at(name))]
    if not isinstance(root, yaml.MappingNode):
        return [], [RuleError("expected 'family', 'doc' and 'rules'", f"{name}:1:1")]
    wrong = _Wrong()
    given = next((v for k, v in root.value if getattr(k, "value", None) == "rules"), None)
    head = _read(root, name, wrong, given)
    wrong.try_(_known, head, _FILE_KEYS, f"{name}:1:1")
    family = wrong.try_(_name, head, "family", name)
    providers = [wrong.try_(_provider, t) for t in wrong.try_(_texts, head, "providers") or []]
    if not isinstance(given, yaml.SequenceNode) or not given.value:
        wrong.errors.append(RuleError("expected a list of rules under 'rules'", f"{name}:1:1"))
        return [], wrong.errors
    rules: list[Rule] = []
    spoilt = bool(wrong.errors)
    for node in given.value:
        own = _Wrong()
        item = _read(node, name, own)
        rule = _rule(item, family or "", tuple(p for p in providers if p), name, own)
        if rule is not None and not own.errors and not spoilt:
            rules.append(rule)
        ident = item.get("id") if isinstance(item, dict) else None
        for found in sorted(own.errors, key=_place):
            wrong.errors.append(found)
            found.rule = ident.text.strip()[:100] if isinstance(ident, Text) else ""
    return rules, wrong.errors


def _place(error: RuleError) -> tuple[int, ...]:
    """Line and column."""
    return tuple(int(part) for part in error.where.rsplit(":", 2)[1:] if part.isdecimal())


class _Wrong:
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


def _read(node: Any, name: str, wrong: _Wrong, leave: Any = None) -> Any:
    """:func:`_plain`, also of a node that holds itself by an alias."""
    try:
        return _plain(node, name, wrong, leave)
    except RecursionError:
        at = f"{name}:{node.start_mark.line + 1}:{node.start_mark.column + 1}"
        wrong.errors.append(RuleError("nested too deeply", at))
        return {"__where__": at}


def _plain(node: Any, name: str, wrong: _Wrong, leave: Any = None) -> Any:
    """YAML nodes as dicts, lists and :class:`Text`; ``leave`` names a node to leave out."""
    if node is None or node is leave:
        return None
    where = f"{name}:{node.start_mark.line + 1}:{node.start_mark.column + 1}"
    if isinstance(node, yaml.MappingNode):
        out: dict[str, Any] = {}
        for key, value in node.value:
            at = f"{name}:{key.start_mark.line + 1}:{key.start_mark.column + 1}"
            if not isinstance(key, yaml.ScalarNode):
                wrong.errors.append(RuleError("expected plain text as a key", at))
            elif key.value in out:
                wrong.errors.append(RuleError(f"{key.value!r} is given twice", at))
            else:
                out[key.value] = _plain(value, name, wrong, leave)
        out["__where__"] = where
        return out
    if isinstance(node, yaml.SequenceNode):
        return [_plain(item, name, wrong, leave) for item in node.value]
    quoted = node.style in ("'", '"')
    return Text(node.value, f"{name}:{node.start_mark.line + 1}:{node.start_mark.column + 1 + quoted}")


def _known(data: dict[str, Any], keys: tuple[str, ...], where: str) -> None:
    for key in data:
        if key != "__where__" and key not in keys:
            near = difflib.get_close_matches(key, keys, n=1)
            hint = f"did you mean {near[0]!r}?" if near else None
            raise RuleError(f"unknown key {key!r}", data.get("__where__", where), hint)


def _text(data: dict[str, Any], key: str, where: str) -> str:
    value = data.get(key)
    if not isinstance(value, Text) or not value.text.strip():
        raise RuleError(f"{key!r} is missing", data.get("__where__", where))
    return value.text.strip()


def _texts(data: dict[str, Any], key: str) -> list[Text]:
    value = data.get(key) or []
    items = value if isinstance(value, list) else [value]
    for item in items:
        if not isinstance(item, Text):
            raise RuleError(f"{key!r}: expected one line of text an item", data["__where__"])
        _short(item, key)
    if len(items) > LINES:
        raise RuleError(f"{key!r} has {len(items)} lines, more than {LINES}", items[LINES].where)
    return items


def _short(item: Text, key: str) -> None:
    if len(item.text) > LINE:
        raise RuleError(f"{key!r}: a line of {len(item.text)} characters, more than {LINE}", item.where)


def _name(data: dict[str, Any], key: str, where: str) -> str:
    """A name that is shown and searched for as it is: no spaces, no control characters."""
    name = _text(data, key, where)
    if not _ID.fullmatch(name):
        message = f"{key!r} is letters, digits, '.', '_' and '-', at most 200 of them, not {name[:40]!r}"
        raise RuleError(message, data.get("__where__", where))
    return name


def _provider(given: Text) -> str:
    name = provider_name(given.text)
    if name not in PROVIDERS:
        near = difflib.get_close_matches(name, PROVIDERS, n=1)
        hint = f"did you mean {near[0]!r}?" if near else f"known: {', '.join(PROVIDERS)}"
        raise RuleError(f"unknown provider {given.text!r}", given.where, hint)
    return name


def _mapping(data: dict[str, Any], key: str) -> dict[str, Any]:
    value = data.get(key) or {}
    if not isinstance(value, dict):
        raise RuleError(f"{key!r}: expected a mapping", data["__where__"])
    return {k: v for k, v in value.items() if k != "__where__"}


def _list(value: Any, key: str, where: str) -> list[Any]:
    if value is None or isinstance(value, list):
        return value or []
    raise RuleError(f"{key!r}: expected a list", where)


def _lets(data: dict[str, Any]) -> list[tuple[str, Text]]:
    found = list(_mapping(data, "let").items())
    for name, value in found:
        if not isinstance(value, Text):
            hint = f'quote what looks like a list or a mapping to YAML: {name}: "[1, 2]"'
            raise RuleError(f"{name!r}: expected one line of text", data["__where__"], hint)
        _short(value, name)
    if len(found) > LINES:
        raise RuleError(f"'let' has {len(found)} lines, more than {LINES}", data["__where__"])
    return found


def _rule(data: Any, family: str, providers: tuple[str, ...], name: str, wrong: _Wrong) -> Rule | None:
    """A rule as far as it can be read; what is wrong with it is collected."""
    if not isinstance(data, dict):
        at = data.where if isinstance(data, Text) else f"{name}:1:1"
        wrong.errors.append(RuleError("a rule is a mapping that starts with 'id'", at))
        return None
    at = data["__where__"]
    wrong.try_(_known, data, _RULE_KEYS, at)
    ident, doc = wrong.try_(_name, data, "id", at), wrong.try_(_text, data, "doc", at)
    match = wrong.all(lambda t: parse_pattern_line(t.text, t.where), wrong.try_(_texts, data, "match"))
    replace = wrong.all(lambda t: parse_line(t.text, t.where), wrong.try_(_texts, data, "replace"))
    where, prefer = (
        wrong.all(lambda t: compile_expression(t.text, FUNCTIONS, t.where), wrong.try_(_texts, data, key))
        for key in ("where", "prefer")
    )
    lets = wrong.try_(_lets, data) or []
    let = [(k, wrong.try_(compile_expression, v.text, FUNCTIONS, v.where)) for k, v in lets]
    claim = wrong.try_(lambda: _claim(_text(data, "equal", at), data["equal"].where))
    domain = wrong.try_(_domain, data, claim[0], at) if claim else None
    always, last = (wrong.try_(_flag, data, key, claim[0], at) if claim else None for key in ("always", "last"))
    if always and last:
        wrong.errors.append(RuleError("'always' and 'last' exclude each other", at))
    cases = wrong.try_(_cases, data, at)
    if not all(data.get(key) for key in ("match", "replace")):
        wrong.errors.append(RuleError(f"rule {ident!r} needs 'match' and 'replace'", at))
    # Names are looked at where all lines were read: what a lost line defines is not missing.
    if wrong.errors or not ident or not doc or not claim or cases is None:
        return None
    roots = wrong.try_(_roots, data, match, replace, at)
    if roots is None:
        return None
    rule = Rule(
        ident, family, doc, *claim, match, replace, where, prefer, tuple((k, e) for k, e in let if e is not None), *roots,
        cases, providers, at, domain, bool(always), bool(last),
    )  # fmt: skip
    wrong.errors += misnamed(rule.match, (*rule.where, *rule.prefer), rule.let, rule.replace, rule.roots)
    return rule


def _cases(data: dict[str, Any], where: str) -> dict[str, list[dict[str, Any]]]:
    examples = _mapping(data, "examples")
    _known(examples, ("accept", "reject", "measure"), where)
    kinds = ("accept", "reject", *(["measure"] if "measure" in examples else []))
    return {k: [_example(c, where) for c in _list(examples.get(k), k, where)] for k in kinds}


def _claim(text: str, where: str) -> tuple[str, float]:
    name, _, rest = text.partition("(")
    if name.strip() not in CLAIMS:
        raise RuleError(f"'equal' is exact, real or approx(bound), not {text!r}", where)
    if name.strip() != "approx":
        return name.strip(), 0.0
    return "approx", _positive(rest.rstrip(") "), f"{text!r}: write approx(1e-4)", where)


def _domain(data: dict[str, Any], claim: str, where: str) -> float | None:
    if "domain" not in data:
        return None
    if claim != "approx":
        raise RuleError("'domain' belongs to approx(bound): other claims are made for all inputs", where)
    message = "'domain' is the largest absolute value of an input, a number"
    return _positive(_text(data, "domain", where), message, where)


def _flag(data: dict[str, Any], key: str, claim: str, where: str) -> bool:
    if key not in data:
        return False
    if _text(data, key, where) != "true":
        raise RuleError(f"{key!r} is true, or is left out", where)
    if claim == "approx":
        raise RuleError(f"{key!r} is for rules that are exact or real: an approximation is a choice", where)
    return True


def _positive(text: str, message: str, where: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not 0 < number < math.inf:
        raise RuleError(message, where)
    return number


def _roots(
    data: dict[str, Any], match: tuple[Line, ...], replace: tuple[Line, ...], where: str
) -> tuple[tuple[str, ...], bool]:
    made = [o for line in match for o in line.outputs if o != "_"]
    redefined = [o for line in replace for o in line.outputs if o in made]
    given = data.get("roots")
    unordered = isinstance(given, dict)
    if isinstance(given, dict):
        _known(given, ("unordered",), where)
        named = [t.text for t in _texts(given, "unordered")]
    else:
        named = redefined if given is None else [t.text for t in _texts(data, "roots")]
    if sorted(named) != sorted(set(redefined)) or not named:
        raise RuleError(f"the roots {named} are not what 'replace' redefines of 'match': {redefined}", where)
    return tuple(named), unordered


def _example(data: Any, where: str) -> dict[str, Any]:
    if isinstance(data, dict):
        own = {k: v for k, v in data.items() if k != "__where__"}
        return {k: _example(v, where) if isinstance(v, dict) else _strip(v) for k, v in own.items()}
    raise RuleError("an example is a mapping from operand to type", where)


def _strip(value: Any) -> Any:
    return [_strip(v) for v in value] if isinstance(value, list) else value.text if isinstance(value, Text) else value
