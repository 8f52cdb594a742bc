"""A rule, from YAML to a checked object.

Positions come from the YAML parser, so that every complaint names file, line and column (:mod:`graphopt.rewrite.located`).
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import yaml

from graphopt.config import PROVIDERS, provider_name
from graphopt.documents import DocumentError, compose_yaml, read_text
from graphopt.errors import RuleError, nearest, reason
from graphopt.ir.graph import QUANTISATION, QUANTISING, UNIT, Node
from graphopt.rewrite.expr import Expression, compile_expression
from graphopt.rewrite.functions import FUNCTIONS
from graphopt.rewrite.located import (
    LINES,
    Mistakes,
    Text,
    check_keys,
    check_length,
    list_of,
    mapping_of,
    read_node,
    text_of,
    texts_of,
)
from graphopt.rewrite.pattern import Line, exactly, parse_line, parse_pattern_line
from graphopt.rewrite.scope import inlined, misnamed

CLAIMS = ("exact", "real", "approx")
_HANDS_ON = frozenset(
    {"Identity", "Dropout", "Cast", "Transpose", "Reshape", "Squeeze", "Unsqueeze", "Flatten", "Expand", "Tile"}
)  # their elements, where rules without a rounding error find nothing but a copy
_FILE_KEYS = ("family", "doc", "providers", "rules")
_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,199}")
_RULE_KEYS = (
    "id",
    "doc",
    "equal",
    "domain",
    "always",
    "last",
    "hinted",
    "match",
    "roots",
    "where",
    "prefer",
    "let",
    "replace",
    "examples",
)


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
        hinted: Whether a search sees it only where its hints hold.
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
    hinted: bool = False

    @cached_property
    def hash(self) -> str:
        """Hash of what the rule says (not of its prose, examples or hints); evidence is recorded under it."""
        content = [
            [line.text for line in self.match],
            [line.text for line in self.replace],
            [e.text for e in self.where],
            [[n, e.text] for n, e in self.let],
            list(self.roots),
            self.unordered,
            self.claim,
            self.bound,
            *([] if self.domain is None else [self.domain]),
        ]
        return hashlib.blake2b(json.dumps(content).encode(), digest_size=8).hexdigest()

    @cached_property
    def quantised(self) -> bool:
        """Whether the pattern names operators of quantisation, so that it knows the units in which they stand."""
        return any(op in QUANTISING for line in self.match for _, op in line.ops)

    @cached_property
    def inside(self) -> Mapping[str, str]:
        """Why what lines of the replacement make is opaque: quantised or dequantised in a unit, made of that, or to be quantised."""
        if not self.quantised:
            return {}
        kinds = {
            o: QUANTISATION for line in self.replace for _, op in line.ops if op in QUANTISING for o in line.outputs
        }
        loose = {
            o for line in (*self.match, *self.replace) if ("", "DequantizeLinear") in line.ops for o in line.outputs
        }
        tied = {line.operands[0].name for line in self.replace if ("", "QuantizeLinear") in line.ops}
        lines = (
            line
            for line in self.replace
            if not tied.isdisjoint(line.outputs) or any(x.name in loose for x in line.operands)
        )
        return {o: UNIT for line in lines for o in line.outputs} | kinds

    @cached_property
    def clears(self) -> bool:
        """Whether all it does is to take away what hands elements on as they are: a unit computes the same without that."""
        exact = self.claim == "exact" and all(line.alias for line in self.replace)
        return exact and all(op in _HANDS_ON and not domain for line in self.match for domain, op in line.ops)

    def sees(self, node: Node) -> bool:
        """Whether the rule may match a node."""
        return not node.hidden or (node.opaque == UNIT and (self.quantised or self.clears))

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
        raise RuleError(f"can't be read: {reason(error)}", str(path)) from error
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
    wrong = Mistakes()
    given = next((v for k, v in root.value if getattr(k, "value", None) == "rules"), None)
    head = read_node(root, name, wrong, given)
    wrong.try_(check_keys, head, _FILE_KEYS, f"{name}:1:1")
    family = wrong.try_(_name, head, "family", name)
    providers = [wrong.try_(_provider, t) for t in wrong.try_(texts_of, head, "providers") or []]
    if not isinstance(given, yaml.SequenceNode) or not given.value:
        wrong.errors.append(RuleError("expected a list of rules under 'rules'", f"{name}:1:1"))
        return [], wrong.errors
    rules: list[Rule] = []
    spoilt = bool(wrong.errors)
    for node in given.value:
        own = Mistakes()
        item = read_node(node, name, own)
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


def _name(data: dict[str, Any], key: str, where: str) -> str:
    """A name that is shown and searched for as it is: no spaces, no control characters."""
    name = text_of(data, key, where)
    if not _ID.fullmatch(name):
        message = f"{key!r} is letters, digits, '.', '_' and '-', at most 200 of them, not {name[:40]!r}"
        raise RuleError(message, data.get("__where__", where))
    return name


def _provider(given: Text) -> str:
    name = provider_name(given.text)
    if name not in PROVIDERS:
        hint = nearest(name, PROVIDERS) or f"known: {', '.join(PROVIDERS)}"
        raise RuleError(f"unknown provider {given.text!r}", given.where, hint)
    return name


def _lets(data: dict[str, Any]) -> list[tuple[str, Text]]:
    found = list(mapping_of(data, "let").items())
    for name, value in found:
        if not isinstance(value, Text):
            hint = f'quote what looks like a list or a mapping to YAML: {name}: "[1, 2]"'
            raise RuleError(f"{name!r}: expected one line of text", data["__where__"], hint)
        check_length(value, name)
    if len(found) > LINES:
        raise RuleError(f"'let' has {len(found)} lines, more than {LINES}", data["__where__"])
    return found


def _rule(data: Any, family: str, providers: tuple[str, ...], name: str, wrong: Mistakes) -> Rule | None:
    """A rule as far as it can be read; what is wrong with it is collected."""
    if not isinstance(data, dict):
        at = data.where if isinstance(data, Text) else f"{name}:1:1"
        wrong.errors.append(RuleError("a rule is a mapping that starts with 'id'", at))
        return None
    at = data["__where__"]
    wrong.try_(check_keys, data, _RULE_KEYS, at)
    ident, doc = wrong.try_(_name, data, "id", at), wrong.try_(text_of, data, "doc", at)
    match = wrong.all(lambda t: parse_pattern_line(t.text, t.where), wrong.try_(texts_of, data, "match"))
    replace = wrong.all(lambda t: parse_line(t.text, t.where), wrong.try_(texts_of, data, "replace"))
    where, prefer = (
        wrong.all(lambda t: compile_expression(t.text, FUNCTIONS, t.where), wrong.try_(texts_of, data, key))
        for key in ("where", "prefer")
    )
    lets = wrong.try_(_lets, data) or []
    defined = [(k, wrong.try_(compile_expression, v.text, FUNCTIONS, v.where)) for k, v in lets]
    let = tuple((k, e) for k, e in defined if e is not None)
    where, prefer = (wrong.try_(inlined, conditions, let) or () for conditions in (where, prefer))
    claim = wrong.try_(lambda: _claim(text_of(data, "equal", at), data["equal"].where))
    domain = wrong.try_(_domain, data, claim[0], at) if claim else None
    if claim and claim[0] == "exact":
        match = tuple(exactly(line) for line in match)
    always, last, hinted = (wrong.try_(_flag, data, key, at) for key in ("always", "last", "hinted"))
    if always and last:
        wrong.errors.append(RuleError("'always' and 'last' exclude each other", at))
    if (form := "always" if always else "last" if last else "") and claim and claim[0] == "approx":
        message = f"{form!r} is for rules that are exact or real: an approximation is a choice"
        wrong.errors.append(RuleError(message, at))
    if hinted and not data.get("prefer"):
        wrong.errors.append(RuleError("'hinted' is for rules with 'prefer' lines", at))
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
        ident,
        family,
        doc,
        *claim,
        match,
        replace,
        where,
        prefer,
        let,
        *roots,
        cases,
        providers,
        at,
        domain,
        bool(always),
        bool(last),
        bool(hinted),
    )
    wrong.errors += misnamed(rule.match, (*rule.where, *rule.prefer), rule.let, rule.replace, rule.roots)
    return rule


def _cases(data: dict[str, Any], where: str) -> dict[str, list[dict[str, Any]]]:
    examples = mapping_of(data, "examples")
    check_keys(examples, ("accept", "reject", "measure"), where)
    kinds = ("accept", "reject", *(["measure"] if "measure" in examples else []))
    return {k: [_example(c, where) for c in list_of(examples.get(k), k, where)] for k in kinds}


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
    return _positive(text_of(data, "domain", where), message, where)


def _flag(data: dict[str, Any], key: str, where: str) -> bool:
    if key in data and text_of(data, key, where) != "true":
        raise RuleError(f"{key!r} is true, or is left out", where)
    return key in data


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
        check_keys(given, ("unordered",), where)
        named = [t.text for t in texts_of(given, "unordered")]
    else:
        named = redefined if given is None else [t.text for t in texts_of(data, "roots")]
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
