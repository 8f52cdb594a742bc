"""A rule, from YAML to a checked object.

Positions come from the YAML parser, so that every complaint names file, line and column. Scalars are read as text and
parsed here: YAML 1.1 takes ``1e-5`` for text and ``on`` for true.
"""

from __future__ import annotations

import difflib
import hashlib
import json
import re
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import yaml

from graphopt.config import PROVIDERS, provider_name
from graphopt.documents import DocumentError, compose_yaml, read_text
from graphopt.errors import RuleError
from graphopt.rewrite.expr import Expression, compile_expression
from graphopt.rewrite.functions import FUNCTIONS
from graphopt.rewrite.pattern import Line, parse_line

CLAIMS = ("exact", "real", "approx")
_FILE_KEYS = ("family", "doc", "providers", "rules")
LINES = 40
"""Of a pattern or a replacement, and conditions of a rule; the largest rule that comes with graphopt has 23."""
LINE = 2_000
"""Characters of a line."""
_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,199}")
_RULE_KEYS = ("id", "doc", "equal", "domain", "match", "roots", "where", "prefer", "let", "replace", "examples")


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
        return any((d or op == "SimplifiedLayerNormalization") and (d, op) not in from_match
                   for line in self.replace for d, op in line.ops)  # fmt: skip

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
        RuleError: The file can't be read, or a rule is wrong.
    """
    try:
        text = read_text(path)
    except OSError as error:
        raise RuleError(f"can't be read: {error.strerror or error}", str(path)) from error
    except DocumentError as error:
        raise RuleError(str(error), error.at(str(path))) from error
    return parse_rules(text, str(path))


def parse_rules(text: str, name: str) -> list[Rule]:
    """All rules in a YAML text; ``name`` stands for the file in messages."""
    try:
        root = compose_yaml(text)
    except DocumentError as error:
        raise RuleError(str(error), error.at(name)) from None
    data = _plain(root, name)
    if not isinstance(data, dict):
        raise RuleError("expected 'family', 'doc' and 'rules'", f"{name}:1:1")
    _known(data, _FILE_KEYS, f"{name}:1:1")
    family = _name(data, "family", name)
    providers = tuple(_provider(t) for t in _texts(data, "providers"))
    rules = data.get("rules")
    if not isinstance(rules, list) or not rules:
        raise RuleError("expected a list of rules under 'rules'", f"{name}:1:1")
    return [_rule(item, family, providers, name) for item in rules]


def _plain(node: Any, name: str) -> Any:
    """YAML nodes as dicts, lists and :class:`Text`."""
    if node is None:
        return None
    where = f"{name}:{node.start_mark.line + 1}:{node.start_mark.column + 1}"
    if isinstance(node, yaml.MappingNode):
        out: dict[str, Any] = {}
        for key, value in node.value:
            if not isinstance(key, yaml.ScalarNode):
                raise RuleError("expected plain text as a key", where)
            if key.value in out:
                raise RuleError(
                    f"{key.value!r} is given twice", f"{name}:{key.start_mark.line + 1}:{key.start_mark.column + 1}"
                )
            out[key.value] = _plain(value, name)
        out["__where__"] = where
        return out
    if isinstance(node, yaml.SequenceNode):
        return [_plain(item, name) for item in node.value]
    quoted = node.style in ("'", '"')
    return Text(node.value, f"{name}:{node.start_mark.line + 1}:{node.start_mark.column + 1 + quoted}")


def _known(data: dict[str, Any], keys: tuple[str, ...], where: str) -> None:
    for key in data:
        if key != "__where__" and key not in keys:
            near = difflib.get_close_matches(key, keys, n=1)
            raise RuleError(
                f"unknown key {key!r}", data.get("__where__", where), f"did you mean {near[0]!r}?" if near else None
            )


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
        raise RuleError(
            f"{key!r} is letters, digits, '.', '_' and '-', at most 200 of them, not {name[:40]!r}",
            data.get("__where__", where),
        )
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
            raise RuleError(f"{name!r}: expected one line of text", data["__where__"])
        _short(value, name)
    if len(found) > LINES:
        raise RuleError(f"'let' has {len(found)} lines, more than {LINES}", data["__where__"])
    return found


def _rule(data: Any, family: str, providers: tuple[str, ...], name: str) -> Rule:
    if not isinstance(data, dict):
        raise RuleError("a rule is a mapping that starts with 'id'", f"{name}:1:1")
    at = data["__where__"]
    _known(data, _RULE_KEYS, at)
    ident = _name(data, "id", at)
    match = tuple(parse_line(t.text, t.where) for t in _texts(data, "match"))
    replace = tuple(parse_line(t.text, t.where) for t in _texts(data, "replace"))
    if not match or not replace:
        raise RuleError(f"rule {ident!r} needs 'match' and 'replace'", at)
    where = tuple(compile_expression(t.text, FUNCTIONS, t.where) for t in _texts(data, "where"))
    prefer = tuple(compile_expression(t.text, FUNCTIONS, t.where) for t in _texts(data, "prefer"))
    let = tuple((k, compile_expression(v.text, FUNCTIONS, v.where)) for k, v in _lets(data))
    claim, bound = _claim(_text(data, "equal", at), at)
    roots, unordered = _roots(data, match, replace, at)
    examples = _mapping(data, "examples")
    _known(examples, ("accept", "reject"), at)
    cases = {k: [_example(c, at) for c in _list(examples.get(k), k, at)] for k in ("accept", "reject")}
    rule = Rule(
        ident, family, _text(data, "doc", at), claim, bound, match, replace, where, prefer, let, roots, unordered, cases,
        providers, at, _domain(data, claim, at),
    )  # fmt: skip
    _check_names(rule)
    return rule


def _claim(text: str, where: str) -> tuple[str, float]:
    name, _, rest = text.partition("(")
    if name.strip() not in CLAIMS:
        raise RuleError(f"'equal' is exact, real or approx(bound), not {text!r}", where)
    if name.strip() != "approx":
        return name.strip(), 0.0
    try:
        return "approx", float(rest.rstrip(") "))
    except ValueError:
        raise RuleError(f"{text!r}: write approx(1e-4)", where) from None


def _domain(data: dict[str, Any], claim: str, where: str) -> float | None:
    if "domain" not in data:
        return None
    if claim != "approx":
        raise RuleError("'domain' belongs to approx(bound): other claims are made for all inputs", where)
    try:
        return float(_text(data, "domain", where))
    except ValueError:
        raise RuleError("'domain' is the largest absolute value of an input, a number", where) from None


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
        return {
            k: _example(v, where) if isinstance(v, dict) else _strip(v) for k, v in data.items() if k != "__where__"
        }
    raise RuleError("an example is a mapping from operand to type", where)


def _strip(value: Any) -> Any:
    return [_strip(v) for v in value] if isinstance(value, list) else value.text if isinstance(value, Text) else value


def _check_names(rule: Rule) -> None:
    """Every name that is read is defined, and nothing is defined twice."""
    made: dict[str, Line] = {}
    known: set[str] = set()
    for line in rule.match:
        if line.alias or line.each or (line.op_variable and not line.ops):
            raise RuleError(f"{line.text!r}: 'each', '$f' and plain names belong to 'replace'", line.where)
        for out in line.outputs:
            if out != "_" and out in made:
                raise RuleError(f"{out!r} is defined twice", line.where)
            made[out] = line
        known.update(line.outputs)
        known.update(o.name for o in line.operands if o.name)
        known.update(v for _, v in line.captures)
        known.update(n for n in (line.rest, line.op_variable) if n)
        for operand in line.operands:
            if operand.kind == "number" and len(line.operands) == 1:
                raise RuleError(f"{line.text!r}: a number can't be the only operand", line.where)
    known.discard("_")
    scope = set(known)
    for expression in (*rule.where, *rule.prefer):
        _defined(expression, scope)
    for name, expression in rule.let:
        if name in scope:
            raise RuleError(f"{name!r} is defined twice", expression.where)
        _defined(expression, scope)
        scope.add(name)
    fresh: set[str] = set()
    for line in rule.replace:
        needed = [o.name for o in line.operands if o.name] + [n for n in (line.rest, line.alias) if n and n != "_"]
        needed += [line.op_variable] if line.op_variable else []
        for name in needed:
            if name not in scope and name not in fresh:
                near = difflib.get_close_matches(name, scope | fresh, n=1)
                raise RuleError(
                    f"{line.text!r}: {name!r} is not defined",
                    line.where,
                    f"did you mean {near[0]!r}?" if near else None,
                )
            if name in rule.roots and name not in fresh:
                raise RuleError(f"{line.text!r}: reads {name!r} before it is redefined", line.where)
        for _, expression in line.attributes:
            _defined(expression, scope | fresh)
        for out in line.outputs:
            if out in fresh or (out in scope and out not in rule.roots):
                raise RuleError(f"{line.text!r}: {out!r} is defined already", line.where)
            fresh.add(out)
    _check_uses(rule, set(made))


def _check_uses(rule: Rule, made: set[str]) -> None:
    """``uses`` of an operand would change under edits that the site index does not see; only the pattern's own values."""
    for expression in (*rule.where, *rule.prefer):
        if expression.calls & {"uses", "is_output"} and not expression.names & made:
            raise RuleError(
                f"{expression.text!r}: 'uses' and 'is_output' are for values that the pattern makes", expression.where
            )


def _defined(expression: Expression, scope: set[str]) -> None:
    for name in expression.names:
        if name not in scope:
            near = difflib.get_close_matches(name, scope, n=1)
            raise RuleError(
                f"{expression.text!r}: {name!r} is not defined",
                expression.where,
                f"did you mean {near[0]!r}?" if near else None,
            )
